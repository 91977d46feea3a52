"""Numbers of synchronisation that are constants in PTX and in SASS, compared wherever they stand.

The quantities are those of `effects`. A register of SASS holds a constant if no path leads to
another value (`ValueSets`). `executions` compares the others, where a thread comes to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilesim.cubin.operands import Immediate, Register, parse
from tilesim.cubin.sass import Instruction
from tilesim.cubin.value_sets import ValueSets
from tilesim.ptx.constants import Constants
from tilesim.ptx.inline import Flat
from tilesim.translation import effects
from tilesim.translation.effects import BYTES, Quantities
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference, Undecided

_WORD = 0xFFFFFFFF


def compare(
    translation: Translation, merged: Mapping[int, Sequence[Pair]]
) -> Iterator[Difference | Undecided]:
    """The constants of copies that differ from those of their PTX instruction.

    ``merged``: by the number of an arrival, the ``expect_tx`` whose bytes it expects as well. If
    that it does cannot be seen, they are undecided.
    """
    numbers = _PtxConstants(translation)
    values = ValueSets(translation.sass)
    for pair in translation.pairs:
        if pair.kind not in effects.KINDS:
            continue
        wanted = {**effects.of_ptx(pair.kind, pair.step, numbers, None)}
        also = merged.get(pair.number, ())
        for one in also:
            more = effects.of_ptx(one.kind, one.step, numbers, None)[BYTES]
            bytes_ = wanted[BYTES]
            wanted[BYTES] = None if bytes_ is None or more is None else bytes_ + more
        seen = bool(pair.copies) and wanted.get(BYTES) is not None
        for copy in pair.copies:
            found = effects.of_sass(pair.kind, copy, _SassConstants(values, copy.pc), None)
            seen &= found.get(BYTES) is not None
            yield from _differences(translation, pair, copy, wanted, found)
        for one in also if not seen else ():
            line = one.step.place.line
            why = (
                f"whether the arrival of line {pair.step.place.line} expects its bytes is not seen"
            )
            yield Undecided("bytes", line, translation.text(line), why)


class _PtxConstants:
    """Operands of PTX that are constants."""

    def __init__(self, translation: Translation) -> None:
        self._constants = Constants(translation.ptx, lambda *_: None, {})

    def value(self, operand: Flat) -> int | None:
        return self._constants.number(operand)

    def address(self, operand: Flat) -> int | None:
        return None


class _SassConstants:
    """Operands of SASS that are constants at a place."""

    def __init__(self, values: ValueSets, pc: int) -> None:
        self._values = values
        self._pc = pc

    def value(self, text: str) -> int | None:
        operand = parse(text)
        if isinstance(operand, Immediate):
            return None if operand.value is None else operand.value & _WORD
        if not isinstance(operand, Register) or operand.sign or operand.part:
            return None
        return self.register(operand.name)

    def register(self, name: str) -> int | None:
        if name in ("RZ", "URZ"):
            return 0
        found = self._values.value(name, self._pc)
        return next(iter(found)) & _WORD if found is not None and len(found) == 1 else None

    def address(self, text: str) -> int | None:
        return None


def _differences(
    translation: Translation, pair: Pair, copy: Instruction, wanted: Quantities, found: Quantities
) -> Iterator[Difference]:
    line = pair.step.place.line
    for name in effects.differing(wanted, found):
        yield Difference(
            name, "constants", effects.effect_of(name, wanted, found), line, translation.text(line),
            f"PTX line {line} ({pair.kind}), {effects.said(name, wanted, found)}", copy.pc,
            str(copy), copy.lines[0] if copy.lines else None,
        )  # fmt: skip
