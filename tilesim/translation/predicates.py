"""Predicates of SASS that are copies of others: guards that agree although their names differ.

ptxas copies a predicate to the uniform datapath (``VOTEU``), from it (``PLOP3``), and computes a
comparison twice. A condition on such a copy is one on what it is a copy of, where every path comes
from the copying to the use without a new value of either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilesim.cubin.operands import Register, parse, read, written
from tilesim.cubin.sass import Function, Instruction
from tilesim.ptx.constants import naming
from tilesim.ptx.inline import Kernel, Step
from tilesim.ptx.inline import Register as PtxRegister
from tilesim.ptx.syntax import Integer
from tilesim.translation.conditions import Condition

#: copies of copies that are followed, and places that are looked at for a use, at most
_DEEPEST = 4
_FARTHEST = 4096
#: the comparison that is true where another one is false
_OPPOSITE = {"NE": "EQ", "GE": "LT", "GT": "LE"}
#: what votes of the lanes: of a predicate that only one lane has, or that they share
_VOTES = frozenset({"VOTE", "VOTEU"})


#: the value of a predicate that one lane of the warp has: ``elect.sync`` of all lanes chooses the
#: same one each time (PTX 9.7.13.15)
ELECTED = "elected"


def ptx_unified(kernel: Kernel, conditions: Mapping[int, Condition]) -> Mapping[int, Condition]:
    """The conditions of `guards.ptx_conditions`, of which those are one that depend on
    ``elect.sync`` of all lanes."""
    setters = naming(kernel).setters
    elected: dict[str, bool] = {}
    for name, steps in setters.items():
        if all(step.base == "elect" and _is_of_all(step) for step in steps):
            elected[name] = True
    for name, steps in setters.items():
        match steps:
            case [Step(base="not", guard=None, operands=(_, PtxRegister(name=other)))]:
                if elected.get(other):
                    elected[name] = False
    return {
        number: Condition(ELECTED, one.holds == elected[str(one.value)], frozenset())
        if one.value in elected
        else one
        for number, one in conditions.items()
    }


def _is_of_all(step: Step) -> bool:
    mask = step.operands[-1]
    return isinstance(mask, Integer) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF


def unified(function: Function, conditions: Mapping[int, Condition]) -> Mapping[int, Condition]:
    """The same conditions (of `guards.sass_conditions`, where a value is the name of a predicate),
    with those on copies as ones on what is copied.

    A vote stands for the lanes that it is true or false for: an instruction of the uniform datapath
    is executed once for these.
    """
    return _Copies(function).of(conditions)


class _Copies:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._entry = next(iter(function.code))
        self._writers: dict[str, set[int]] = {}
        self._twins: dict[tuple[str, tuple[str, ...]], list[tuple[int, bool]]] = {}
        for pc, one in function.code.items():
            for name in written(one):
                if "P" in name:
                    self._writers.setdefault(name, set()).add(pc)
            if key := _comparison(one):
                self._twins.setdefault(key[0], []).append((pc, key[1]))

    def of(self, conditions: Mapping[int, Condition]) -> Mapping[int, Condition]:
        found: dict[int, Condition] = {}
        for pc, condition in conditions.items():
            name, holds = str(condition.value), condition.holds
            for _ in range(_DEEPEST):
                step = self._source(pc, name)
                if step is None:
                    break
                name, holds = step[0], holds == step[1]
            if self._is_elected(pc, name):
                found[pc] = Condition(ELECTED, holds, frozenset())
                continue
            changed = name != condition.value
            found[pc] = (
                Condition(name, holds, frozenset(self._writers.get(name, ())))
                if changed
                else condition
            )
        return found

    def _is_elected(self, pc: int, name: str) -> bool:
        """Whether a predicate is at a place what ``ELECT`` says, on every path."""
        code = self._function.code
        return all(
            place in code and code[place].base == "ELECT"
            for place in self._reaching(pc, name) or (-1,)
        )

    def _source(self, pc: int, name: str) -> tuple[str, bool] | None:
        """What a predicate is a copy of at a place, and whether it is equal to that."""
        places = self._reaching(pc, name)
        if len(places) != 1:
            return None
        (place,) = places
        one = self._function.code.get(place)
        if one is None or one.guard:
            return None
        if copied := _copied(one):
            other, same = copied
            writers = self._writers.get(other, set())
            if self._backwards(pc, lambda at: True if at == place else at not in writers and None):
                return other, same
            return None
        key = _comparison(one)
        if key is None:
            return None
        for twin, opposite in self._twins[key[0]]:
            if twin == place or self._function.code[twin].guard:
                continue
            other = _result(self._function.code[twin])
            if other < name and self._both(pc, place, name, twin, other):
                return other, opposite == key[1]
        return None

    def _reaching(self, pc: int, name: str) -> set[int]:
        """The places where a predicate gets the value that it has at another one; -1 of none."""
        writers = self._writers.get(name, set())
        found: set[int] = set()
        seen: set[int] = set()
        todo = [*self._function.predecessors[pc]] or [-1]
        if pc == self._entry:
            todo.append(-1)
        while todo and len(seen) < _FARTHEST:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in writers or at < 0:
                found.add(at)
                continue
            if at == self._entry:
                found.add(-1)
            todo += self._function.predecessors[at]
        return found if len(seen) < _FARTHEST else {-1, pc}

    def _backwards(self, pc: int, judge: Callable[[int], bool | None]) -> bool:
        """Whether every path backwards from a place comes to one that is judged true before it
        comes to one that is judged false, or to the entry."""
        seen: set[int] = set()
        todo = [*self._function.predecessors[pc]]
        if not todo or pc == self._entry:
            return False
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            verdict = judge(at)
            if verdict:
                continue
            if verdict is False or at == self._entry or len(seen) > _FARTHEST:
                return False
            todo += self._function.predecessors[at]
        return True

    def _both(self, pc: int, place: int, name: str, twin: int, other: str) -> bool:
        """Whether every path to a place computes both comparisons, last and of equal operands."""
        inputs = read(self._function.code[place])
        names = self._writers.get(name, set()), self._writers.get(other, set())
        seen: set[tuple[int, bool, bool]] = set()
        todo = [(at, False, False) for at in self._function.predecessors[pc]]
        if not todo or pc == self._entry:
            return False
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            at, one, two = state
            if len(seen) > _FARTHEST:
                return False
            if at == place and not one:
                one = True
            elif at == twin and not two:
                two = True
            else:
                other_value = (at in names[0] and not one) or (at in names[1] and not two)
                changed = one != two and not inputs.isdisjoint(written(self._function.code[at]))
                if other_value or changed:
                    return False
            if one and two:
                continue
            if at == self._entry:
                return False
            todo += [(before, one, two) for before in self._function.predecessors[at]]
        return True


def _result(one: Instruction) -> str:
    first = parse(one.operands[0])
    return first.name if isinstance(first, Register) else ""


def _copied(one: Instruction) -> tuple[str, bool] | None:
    """The predicate that an instruction copies, and whether it does not negate it."""
    operands = [parse(text) for text in one.operands]
    names = [operand for operand in operands if isinstance(operand, Register)]
    if one.base in _VOTES and len(names) >= 2:
        inputs = [name for name in names[1:] if name.name not in ("PT", "UPT", "URZ", "RZ")]
        if "P" in names[0].name and len(inputs) == 1 and "P" in inputs[0].name:
            return inputs[0].name, inputs[0].sign != "!"
    if one.base in ("PLOP3", "UPLOP3") and one.operands[-2:-1] == ("0x80",):
        inputs = [name for name in names[2:] if name.name not in ("PT", "UPT")]
        if len(inputs) == 1 and not any(name.sign for name in names[2:] if name not in inputs):
            return inputs[0].name, inputs[0].sign != "!"
    return None


def _comparison(one: Instruction) -> tuple[tuple[str, tuple[str, ...]], bool] | None:
    """What an instruction compares, and whether it is the opposite of what the key says."""
    if one.base not in ("ISETP", "UISETP") or len(one.operands) < 5:
        return None
    if one.operands[1] not in ("PT", "UPT"):
        return None
    modifiers = [*one.modifiers]
    opposite = False
    if one.operands[4:] in (("PT",), ("UPT",)) and modifiers[-1:] == ["AND"]:
        relation = modifiers[0]
        opposite = relation in _OPPOSITE
        modifiers[0] = _OPPOSITE.get(relation, relation)
    return (".".join((one.base, *modifiers)), one.operands[2:]), opposite
