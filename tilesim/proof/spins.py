"""Loops that only poll an mbarrier: such a poll is a wait (A25).

    again: try_wait p, [b], parity        A poll that answers no comes back to itself. On its way it
           branch again, cond=not p       sets registers only, each turn to the same.

So turns in vain change nothing, and how many there are decides nothing. The poll is executed as the
wait that the loop is, and answers yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from tilesim.ir import effects as fx
from tilesim.ir.expr import Base, Const, Expr, ScalarParam, Var, walk
from tilesim.ir.mir import Branch, Join
from tilesim.ir.op import Op
from tilesim.proof.operands import LANES, Operands, Value, lane_of, need, seen
from tilesim.proof.phases import Look
from tilesim.proof.rules import rule

#: instructions of a turn
_MOST = 64


class _Known:
    """A warp of whose registers is known only what follows from the answer, and, in turns of a
    ``lane``, what its registers are outside."""

    side = ""
    detours: Mapping[int, tuple[Look, int]] = MappingProxyType({})

    def __init__(self, v: Operands, w: Any = None, lane: int = 0) -> None:
        self._v, self._w, self._lane = v, w, lane
        self.registers: dict[str, Value] = {}
        self.values: dict[int, tuple[list[Value], Value]] = {}

    def special(self, name: str) -> Value:
        """A special register of the lane, if there is one."""
        return None if self._w is None else lane_of(self._w.special(name), self._lane)

    def literal(self, e: Const | ScalarParam) -> Value:
        """A literal, if it is the same in all programs of a family."""
        known = self._v.grown(e)
        return known if isinstance(known, int) else None

    def value(self, e: Expr | None) -> Value:
        """What an expression is; None: other things than the answer decide it."""
        if e is None or any(isinstance(part, Base) for part in walk(e)):
            return None
        return self._v.value(e, self)

    def sets(self, number: int) -> None:
        """An instruction is executed."""
        for e in self._v.mir.effects[number]:
            if isinstance(e, fx.Defines):
                value = self.value(e.value if isinstance(e.value, Expr) else None)
                self._v.assign(self, e.var, value, range(LANES))


class Iteration(NamedTuple):
    """A loop around a load that only waits for a word: what it executes behind the load, and the
    branch from which it comes back, if the condition is so."""

    loaded: Var
    ops: tuple[int, ...]
    branch: int
    back: bool

    def passes(self, v: Operands, w: Any, lane: int, loads: Any) -> Callable[[int], bool]:
        """Whether a lane goes on that has found some bits, of which it ``loads`` a number, with
        what its registers hold now."""
        branch, names = v.mir.code[self.branch].what, {self.loaded.name}
        assert isinstance(branch, Branch)
        names |= v.names(branch).union(*(v.sources(v.mir.code[n].what) for n in self.ops))
        held = {name: lane_of(seen(w.registers.get(name), w), lane) for name in names}

        @cache
        def passes(bits: int) -> bool:
            known = _Known(v, w, lane)
            known.registers |= held
            v.assign(known, self.loaded, loads(bits), range(LANES))
            for n in self.ops:
                known.sets(n)
            found = need(known.value(branch.cond), f"the branch at {self.branch}")
            return bool(found) != self.back

        return passes


@rule("counter-wait", "a load that comes back to itself until it finds some numbers is a wait")
def iterations(v: Operands) -> dict[int, Iteration]:
    """The loads that are waits for words, by their numbers."""
    entered, found = _entered(v), dict[int, Iteration]()
    for number, effects in enumerate(v.mir.effects):
        match effects:
            case (fx.Reads() as e, fx.Defines(var=loaded)) if _a_word(e):
                for back in (True, False):
                    way = [*_in_vain(v, number, back)]
                    asks = [n for n in way if getattr(v.mir.code[n].what, "cond", None) is not None]
                    comes_back = len(asks) == 1 and way[-1] == number
                    if comes_back and _changes_nothing(v, number, way[:-1], entered):
                        ops = tuple(n for n in way[:-1] if isinstance(v.mir.code[n].what, Op))
                        found[number] = Iteration(loaded, ops, asks[0], back)
    return found


@rule("A25", "a poll that comes back to itself if it answers no, and nothing else, is a wait")
def spins(v: Operands) -> frozenset[int]:
    """The polls that are waits, by their numbers."""
    entered, found = _entered(v), set()
    for number, waits in v.mir.all_of(fx.Waits):
        way = [*_in_vain(v, number)] if waits.poll else []
        if way and way[-1] == number and _changes_nothing(v, number, way[:-1], entered):
            found.add(number)
    return frozenset(found)


def _a_word(e: fx.Reads) -> bool:
    """Whether lanes load an integer each, strongly."""
    t = e.view.dtype
    whole = t.kind in ("int", "uint") and e.view.nbytes == t.bytes
    return whole and e.sem != "weak" and bool(e.lanes) and not (e.elsewhere or e.element)


def _entered(v: Operands) -> list[int]:
    """Where branches go."""
    return [
        t for i in v.mir.code for t in getattr(i.what, "targets", [getattr(i.what, "target", -1)])
    ]


def _in_vain(v: Operands, poll: int, back: bool | None = None) -> Iterator[int]:
    """The way of a lane from a poll that answers no, the poll itself last if it comes there. It
    ends where other things decide, or anything but registers changes. ``back``: what all conditions
    are, if they are not to be known."""
    code, known = v.mir.code, _Known(v)
    known.registers |= dict.fromkeys(_sets(v, poll), 0)
    at = poll + 1
    for _ in range(_MOST):
        if at >= len(code) or code[at].guard is not None:
            return
        yield at
        what = code[at].what
        if at == poll:
            return
        at += 1
        if isinstance(what, Branch):
            taken = what.sense if what.cond is None else known.value(what.cond)
            taken = taken if back is None or what.cond is None else back
            if not isinstance(taken, int):
                return
            at = what.target if bool(taken) == what.sense else at
        elif isinstance(what, Op) and _only_sets(v, at - 1):
            known.sets(at - 1)
        elif not isinstance(what, Join) or what.syncs:
            return


def _changes_nothing(v: Operands, poll: int, way: Sequence[int], entered: Sequence[int]) -> bool:
    """Whether a turn in vain leaves what it finds: what it sets stands right before the poll, where
    all that come to the poll have executed it, or between the poll and the first branch, which all
    execute behind it; and each turn sets it to the same."""
    code = v.mir.code
    head = poll
    while head - 1 in way and not isinstance(code[head - 1].what, Branch):
        head -= 1
    first = next(n for n in way if isinstance(code[n].what, Branch))
    iteration = [*range(head, poll + 1), *range(poll + 1, first)]
    elsewhere = [n for n in way if isinstance(code[n].what, Op) and n not in iteration]
    if elsewhere or any(head < target <= poll for target in entered):
        return False
    changed = {name for n in iteration for name in _sets(v, n)}
    fresh: set[str] = set()
    for n in iteration:
        if v.sources(code[n].what) & changed - fresh:
            return False
        fresh |= _sets(v, n)
    return code[poll].guard is None


def _only_sets(v: Operands, number: int) -> bool:
    """Whether an instruction sets registers to what its operands say, and nothing else."""
    return all(
        isinstance(e, fx.Defines) and not (e.oracle or e.elsewhere or e.unknown)
        and (e.value is None or isinstance(e.value, Expr)) for e in v.mir.effects[number]
    )  # fmt: skip


def _sets(v: Operands, number: int) -> set[str]:
    return {e.var.name for e in v.mir.effects[number] if isinstance(e, fx.Defines)}
