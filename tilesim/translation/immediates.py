"""Numbers that are constants in PTX and in SASS: counts of waits, barriers and their threads, what
an mbarrier expects, arrivals, bytes.

A register of SASS holds a constant if no path leads to another value (`ValueSets`). What only one
of the texts has as a constant is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilesim.cubin.operands import Immediate, Register, following, parse
from tilesim.cubin.sass import Instruction
from tilesim.cubin.value_sets import ValueSets
from tilesim.ptx.constants import Constants
from tilesim.ptx.inline import At, Step
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference, Effect, Undecided

#: waits for groups, of which fewer may be left: the SASS names how many as the last operand
_WAITS = frozenset({"wgmma.wait", "bulk.wait", "cp.async.wait"})
_BARRIERS = frozenset({"bar", "bar.arrive"})
#: what the word of an mbarrier counts up to: it begins with that less the arrivals, twice
_COUNTED_TO = 1 << 20
#: modifiers of SYNCS.ARRIVE: one arrival, as many as the register says; the register says bytes of
#: expect_tx, or of complete_tx. Without them it is one arrival, and the register says bytes
_ONE, _MANY, _BYTES, _COMPLETED = "A1T0", "ART0", "A0TR", "A0TX"
_ARRIVALS = frozenset({_ONE, _MANY, _BYTES, _COMPLETED, "A0T1"})
_WORD = 0xFFFFFFFF


def compare(
    translation: Translation, merged: Mapping[int, Sequence[Pair]]
) -> Iterator[Difference | Undecided]:
    """The constants of copies that differ from those of their PTX instruction.

    ``merged``: by the number of an arrival, the ``expect_tx`` whose bytes it expects as well. If
    that it does cannot be seen, they are undecided.
    """
    constants = Constants(translation.ptx, lambda *_: None, {})
    values = ValueSets(translation.sass)
    for pair in translation.pairs:
        if pair.kind == "mbarrier.init":
            yield from _initial(translation, pair, constants, values)
        elif pair.kind == "mbarrier.arrive" and pair.step.base == "mbarrier":
            also = merged.get(pair.number, ())
            yield from _arrivals(translation, pair, also, constants, values)
        elif pair.kind in _WAITS:
            yield from _waits(translation, pair, constants)
        elif pair.kind in _BARRIERS and "red" not in pair.step.qualifiers:
            yield from _barriers(translation, pair, constants)


def _numbers(one: Instruction) -> list[int | None]:
    """The operands of an instruction as numbers, None of others."""
    found = [parse(text) for text in one.operands]
    return [operand.value if isinstance(operand, Immediate) else None for operand in found]


def _asked(step: Step, constants: Constants) -> list[int | None]:
    return [constants.number(operand) for operand in step.operands]


def _held(text: str, pc: int, values: ValueSets) -> int | None:
    """The constant that an operand is; None if it is none."""
    operand = parse(text)
    if isinstance(operand, Immediate):
        return None if operand.value is None else operand.value & _WORD
    if not isinstance(operand, Register) or operand.sign or operand.part:
        return None
    if operand.name in ("RZ", "URZ"):
        return 0
    found = values.value(operand.name, pc)
    return next(iter(found)) & _WORD if found is not None and len(found) == 1 else None


def _initial(
    translation: Translation, pair: Pair, constants: Constants, values: ValueSets
) -> Iterator[Difference]:
    wanted = constants.number(pair.step.operands[1])
    for copy in pair.copies:
        word = parse(copy.operands[-1])
        if wanted is None or "EXCH" not in copy.modifiers or not isinstance(word, Register):
            continue
        low, high = (_held(name, copy.pc, values) for name in following(word.name, 2))
        ones = _COUNTED_TO - wanted
        if low is not None and high is not None and (low, high) != (ones << 1, ones << 11):
            what = f"expects {wanted}; the word of its SASS is {high:#x}{low:08x}"
            yield _difference(translation, pair, copy, "expected arrivals", "weaker", what)


def _arrivals(
    translation: Translation, pair: Pair, merged: Sequence[Pair], constants: Constants,
    values: ValueSets,
) -> Iterator[Difference | Undecided]:  # fmt: skip
    name, wanted = _named(pair.step, constants)
    for one in merged:
        more = _named(one.step, constants)[1]
        wanted = None if wanted is None or more is None else wanted + more
    seen = bool(pair.copies)
    for copy in pair.copies:
        found = _of_copy(name, copy, values)
        seen &= found is not None and wanted is not None
        if found is not None and wanted is not None and found != wanted & _WORD:
            what = f"is of {wanted} {name}; its SASS is of {found}"
            yield _difference(translation, pair, copy, name, "weaker", what)
    for one in merged if not seen else ():
        line = one.step.place.line
        why = f"whether the arrival of line {pair.step.place.line} expects its bytes is not seen"
        yield Undecided("bytes", line, translation.text(line), why)


def _named(step: Step, constants: Constants) -> tuple[str, int | None]:
    """What an arrival is of in the PTX: ``bytes``, ``completed bytes`` or ``arrivals``."""
    operands = [*step.operands]
    first = next((n for n, one in enumerate(operands) if isinstance(one, At)), len(operands))
    behind = operands[first + 1 :]
    number = constants.number(behind[0]) if behind else 1
    if "complete_tx" in step.qualifiers:
        return "completed bytes", number
    return ("bytes" if "expect_tx" in step.qualifiers else "arrivals"), number


def _of_copy(name: str, copy: Instruction, values: ValueSets) -> int | None:
    """How many bytes or arrivals a copy is of; None if that is not known."""
    if copy.base != "SYNCS" or "ARRIVE" not in copy.modifiers:
        return None
    kinds = _ARRIVALS & {*copy.modifiers}
    number = _held(copy.operands[-1], copy.pc, values)
    match name:
        case "arrivals" if _ONE in kinds:
            return 1
        case "arrivals" if _MANY in kinds:
            return number
        case "bytes" if not kinds or _BYTES in kinds:
            return number
        case "completed bytes" if _COMPLETED in kinds:
            return number
    return None


def _waits(translation: Translation, pair: Pair, constants: Constants) -> Iterator[Difference]:
    asked = [0] if "wait_all" in pair.step.qualifiers else _asked(pair.step, constants)
    for copy in pair.copies:
        left = _numbers(copy)[-1:]
        if not asked or asked[0] is None or not left or left[0] is None or left[0] == asked[0]:
            continue
        effect: Effect = "weaker" if left[0] > asked[0] else "stronger"
        what = f"leaves at most {asked[0]} groups; its SASS leaves {left[0]}"
        yield _difference(translation, pair, copy, "wait count", effect, what)


def _barriers(translation: Translation, pair: Pair, constants: Constants) -> Iterator[Difference]:
    asked = _asked(pair.step, constants)
    for copy in pair.copies:
        names = ("barrier", "threads of a barrier")
        for name, wanted, found in zip(names, asked, _numbers(copy), strict=False):
            if wanted is not None and found is not None and wanted != found:
                what = f"names {wanted} ({name}); its SASS names {found}"
                yield _difference(translation, pair, copy, name, "weaker", what)


def _difference(
    translation: Translation, pair: Pair, copy: Instruction, kind: str, effect: Effect, what: str
) -> Difference:
    line = pair.step.place.line
    return Difference(
        kind, "constants", effect, line, translation.text(line),
        f"PTX line {line} ({pair.kind}) {what}", copy.pc, str(copy),
        copy.lines[0] if copy.lines else None,
    )  # fmt: skip
