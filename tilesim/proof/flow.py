"""Where lanes of a program may go, and where all ways from an instruction meet."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from tilesim.ir import effects as fx
from tilesim.ir.expr import Const
from tilesim.ir.mir import Branch, Mir, Switch, Trap
from tilesim.ir.op import Op
from tilesim.proof.rules import NotCovered


class Flow:
    """Where lanes of a program may go."""

    def __init__(self, mir: Mir) -> None:
        self._mir, self._meets = mir, dict[int, int]()

    def next(self, at: int) -> set[int]:
        """Where an instruction may lead. The program ends behind its last one."""
        end = len(self._mir.code)
        instruction = self._mir.code[at]
        behind = {at + 1} if instruction.guard is not None else set[int]()
        match instruction.what:
            case Branch(target=target, cond=cond):
                return behind | {target} | (set() if cond is None else {at + 1})
            case Switch(targets=targets):
                return behind | {*targets}
            case Trap(cond=Const(value)) if value:
                return behind
            case Op() if any(isinstance(e, fx.Exits) for e in self._mir.effects[at]):
                return behind | {end}
        return {at + 1}

    @cached_property
    def _to_the_end(self) -> dict[int, int]:
        """By instruction, the next one on a shortest way to the end, if there is any."""
        before = defaultdict[int, list[int]](list)
        end = len(self._mir.code)
        for at in range(end):
            for to in self.next(at):
                before[to].append(at)
        found, left = {end: end}, [end]
        for to in left:
            new = [at for at in before[to] if at not in found]
            found |= dict.fromkeys(new, to)
            left += new
        return found

    def meet(self, at: int) -> int:
        """The first instruction through which all ways from one to the end go.

        Raises: NotCovered: there are none."""
        if at in self._meets:
            return self._meets[at]
        if at not in self._to_the_end:
            raise NotCovered(f"from {at} on nothing ends")
        way = [at]
        while way[-1] != len(self._mir.code):
            way.append(self._to_the_end[way[-1]])
        place = {at: number for number, at in enumerate(way)}
        seen, left, around, far = {at}, [at], 0, 1
        while left or around + 1 < far:
            if not left:  # there is a way around the first ones
                around += 1
                left.append(way[around])
            for to in self.next(left.pop()):
                far = max(far, place.get(to, 0))
                if to in self._to_the_end and to not in place and to not in seen:
                    seen.add(to)
                    left.append(to)
        self._meets[at] = way[far]
        return way[far]
