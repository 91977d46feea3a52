"""One PTX as two ptxas compile it: in what the synchronisation of the two machine codes differs.

Each is compared with the PTX (`validate`); what differs between the two comparisons is a `Change`.
Registers, addresses, the order of what does not synchronise, and which of two equal forms of an
instruction is taken, are no changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args

from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.operands import Immediate, Register, parse
from tilesim.cubin.sass import Function, Instruction
from tilesim.cubin.value_sets import ValueSets
from tilesim.records import dataclass
from tilesim.translation.classes import BY_NAME
from tilesim.translation.validate import TranslationError, validate
from tilesim.translation.validation import RelationKind, Relations, Translated, Validation

#: what differs: what became of a PTX instruction; its machine instructions, their numbers and how
#: many there are; whether they are executed always; synchronising ones that no PTX asks for; what
#: is lost or strengthened; what cannot be compared with the PTX; how many relations hold in which
#: way
Aspect = Literal["outcome", "SASS", "guard", "inserted", "difference", "undecided", "relations"]

#: kinds whose last operand is a number that may be in a register: arrivals or bytes, barriers, ...
_NUMBERED = frozenset({"mbarrier.arrive", "bar", "bar.arrive"})
#: of SYNCS.ARRIVE: as many arrivals as the register says, and one
_MANY, _ONE = "ART0", "A1T0"
#: what no PTX asks for, it waits for a register
_SCOREBOARD = "DEPBAR"


@dataclass(frozen=True)
class Change:
    """Something in which two machine codes of a kernel differ.

    ``kind`` is the row of `tilesim.translation.classes`, or what a difference is of, ``line`` the
    line in the PTX (from 1; 0: none) and ``text`` what stands there. ``old`` and ``new`` are what
    the two have, in words and SASS; empty: nothing.
    """

    aspect: Aspect
    kind: str
    line: int
    text: str
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Compiled:
    """The machine code of a kernel, and how it compares with its PTX."""

    function: Function
    validation: Validation


def compiled(image: Image, symbol: Symbol, ptx: str) -> Compiled:
    """The machine code of a kernel compared with its PTX; raises like `validate`."""
    validation = validate(image, symbol, ptx)
    (function,) = disassemble(image, (symbol,))
    return Compiled(function, validation)


def changes(old: Compiled, new: Compiled) -> tuple[Change, ...]:
    """In what two machine codes of one kernel and PTX differ, in the order of the PTX;
    what is of no line is last.

    Raises:
        TranslationError: they are not of the same PTX.
    """
    found = (
        *_instructions(old, new),
        *_inserted(old, new),
        *_differences(old.validation, new.validation),
        *_undecided(old.validation, new.validation),
        *_relations(old.validation, new.validation),
    )
    order = get_args(Aspect)
    return tuple(sorted(found, key=lambda one: (not one.line, one.line, order.index(one.aspect))))


def _instructions(old: Compiled, new: Compiled) -> Iterator[Change]:
    """What became of each synchronising PTX instruction: outcomes and machine instructions."""
    values = ValueSets(old.function), ValueSets(new.function)
    earlier, later = (_by_line(one.validation.instructions) for one in (old, new))
    if earlier.keys() != later.keys():
        name = old.validation.kernel
        raise TranslationError(f"the two machine codes of {name} embed PTX that is not the same")
    for key, before in earlier.items():
        after = later[key]
        sides = _outcome(before), _outcome(after)
        if sides[0] != sides[1]:
            yield Change("outcome", before.kind, before.line, before.text, *sides)
        expanded = BY_NAME[before.kind].expanded  # into a sequence that is another in each version
        if expanded:
            continue
        forms = [
            Counter(_form(one.kind, side.function.code[pc], known) for pc in one.pcs)
            for one, side, known in zip((before, after), (old, new), values, strict=True)
        ]
        sass = _sass(before, old.function), _sass(after, new.function)
        if forms[0] != forms[1]:
            yield Change("SASS", before.kind, before.line, before.text, *sass)
        elif _are_guarded(before, old.function) != _are_guarded(after, new.function) and (
            _are_always(before, old.function) != _are_always(after, new.function)
        ):
            yield Change("guard", before.kind, before.line, before.text, *sass)


def _by_line(instructions: Iterable[Translated]) -> Mapping[tuple[int, str, int], Translated]:
    """Instructions by line, kind, and which one of these."""
    seen: Counter[tuple[int, str]] = Counter()
    found = {}
    for one in instructions:
        found[one.line, one.kind, seen[one.line, one.kind]] = one
        seen[one.line, one.kind] += 1
    return found


def _outcome(one: Translated) -> tuple[str, ...]:
    return (f"{one.outcome}: {one.why}" if one.why else one.outcome,)


def _are_guarded(one: Translated, function: Function) -> Counter[bool]:
    return Counter(bool(function.code[pc].guard) for pc in one.pcs)


def _are_always(one: Translated, function: Function) -> Counter[bool]:
    """How many machine instructions of it each thread executes that comes to an end: a guard may
    stand for a branch."""
    return Counter(not function.code[pc].guard and not _is_avoided(function, pc) for pc in one.pcs)


def _is_avoided(function: Function, pc: int) -> bool:
    """Whether a path goes from the beginning to an end without a place."""
    seen, todo = {pc}, [next(iter(function.code))]
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        if function.code[place].base == "EXIT":
            return True
        todo += function.successors[place]
    return False


def _form(kind: str, copy: Instruction, values: ValueSets) -> tuple[str, tuple[str, ...]]:
    """What is the same in equal instructions of two machine codes: the opcode, and numbers, of some
    kinds also those in registers."""
    numbers = [*filter(None, (_number(kind, text, copy, values) for text in copy.operands))]
    opcode = copy.opcode
    if opcode.endswith(f".{_MANY}") and numbers[-1:] == ["0x1"]:
        opcode = f"{opcode.removesuffix(_MANY)}{_ONE}"
    if opcode.endswith(f".{_ONE}"):
        numbers = []
    return opcode, tuple(numbers)


def _number(kind: str, text: str, copy: Instruction, values: ValueSets) -> str:
    """An operand as a number, if it is one; else empty."""
    operand = parse(text)
    if isinstance(operand, Immediate):
        return text if operand.value is None else f"{operand.value:#x}"
    if kind not in _NUMBERED or not isinstance(operand, Register) or operand.sign or operand.part:
        return ""
    if operand.name in ("RZ", "URZ"):
        return "0x0" if text == copy.operands[-1] else ""
    found = values.value(operand.name, copy.pc)
    return f"{next(iter(found)):#x}" if found is not None and len(found) == 1 else ""


def _sass(one: Translated, function: Function) -> tuple[str, ...]:
    return tuple(f"{function.code[pc]} at {pc:#x}" for pc in one.pcs)


def _inserted(old: Compiled, new: Compiled) -> Iterator[Change]:
    """Synchronising machine instructions that no PTX asks for."""
    sides = [
        Counter(
            (one.line or 0, side.function.code[one.pc].opcode, one.why)
            for one in side.validation.inserted
            if side.function.code[one.pc].base != _SCOREBOARD
        )
        for side in (old, new)
    ]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        line, opcode, why = key
        if sides[0][key] != sides[1][key]:
            texts = [(f"{n} {opcode}: {why}",) if (n := side[key]) else () for side in sides]
            yield Change("inserted", opcode, line, "", texts[0], texts[1])


def _differences(old: Validation, new: Validation) -> Iterator[Change]:
    """In what one of them does not do what the PTX says, and the other does."""
    sides = [
        {
            (one.line, one.kind, one.rule, one.effect, one.other): one
            for one in side.differences
            if one.effect != "harmless"
        }
        for side in (old, new)
    ]
    for key in dict.fromkeys((*sides[0], *sides[1])):
        texts = [
            (f"{one.effect}: {one.sentence}",) if (one := side.get(key)) else () for side in sides
        ]
        if not all(texts):
            one = sides[0].get(key) or sides[1][key]
            yield Change("difference", one.kind, one.line, one.text, texts[0], texts[1])


def _undecided(old: Validation, new: Validation) -> Iterator[Change]:
    """What can be compared with the PTX in one of them only."""
    sides = [
        {(one.line, one.kind): one for one in side.undecided if not one.always}
        for side in (old, new)
    ]
    for key in dict.fromkeys((*sides[0], *sides[1])):
        texts = [(one.why,) if (one := side.get(key)) else () for side in sides]
        if not all(texts):
            one = sides[0].get(key) or sides[1][key]
            yield Change("undecided", one.kind, one.line, one.text, texts[0], texts[1])


def _relations(old: Validation, new: Validation) -> Iterator[Change]:
    """How many relations hold, in which way, where that differs."""
    kinds: tuple[RelationKind, ...] = get_args(RelationKind)
    for kind in kinds:
        sides = [side.relations.get(kind, Relations()) for side in (old, new)]
        if sides[0] != sides[1]:
            yield Change("relations", kind, 0, "", _counts(sides[0]), _counts(sides[1]))


def _counts(one: Relations) -> tuple[str, ...]:
    return (
        f"{one.shown} shown, {one.explained} explained, {one.lost} lost, {one.undecided} undecided",
    )
