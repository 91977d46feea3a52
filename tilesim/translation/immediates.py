"""Numbers that PTX and SASS both name as constants: counts of waits, barriers, their threads.

A number that the SASS holds in a register is not compared here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.cubin.operands import Immediate, parse
from tilesim.cubin.sass import Instruction
from tilesim.ptx.constants import Constants
from tilesim.ptx.inline import Step
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference, Effect

#: waits for groups, of which fewer may be left: the SASS names how many as the last operand
_WAITS = frozenset({"wgmma.wait", "bulk.wait", "cp.async.wait"})
_BARRIERS = frozenset({"bar", "bar.arrive"})


def compare(translation: Translation) -> Iterator[Difference]:
    """The constants of copies that differ from those of their PTX instruction."""
    constants = Constants(translation.ptx, lambda *_: None, {})
    for pair in translation.pairs:
        if pair.kind in _WAITS:
            yield from _waits(translation, pair, constants)
        elif pair.kind in _BARRIERS and "red" not in pair.step.qualifiers:
            yield from _barriers(translation, pair, constants)


def _numbers(one: Instruction) -> list[int | None]:
    """The operands of an instruction as numbers, None of others."""
    found = [parse(text) for text in one.operands]
    return [operand.value if isinstance(operand, Immediate) else None for operand in found]


def _asked(step: Step, constants: Constants) -> list[int | None]:
    return [constants.number(operand) for operand in step.operands]


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
