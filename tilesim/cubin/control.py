"""The control bits of instructions: the scoreboards that they use, and wait for.

An instruction that takes long raises one of six scoreboards, and lowers it when its results are
there (``write``), or when its operands have been read (``read``). Another one waits, before it is
issued, until each of a set of scoreboards is down; ``DEPBAR`` waits as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import WIDTH, Instruction
from tilesim.records import dataclass

#: where the fields begin in the 128 bits of an instruction
_WRITE, _READ, _WAITS = 110, 113, 116
_NONE = 7


@dataclass(frozen=True)
class Control:
    """``write`` and ``read``: the scoreboard that is raised, None of none. ``waits``: the
    scoreboards that are waited for, bit by bit."""

    write: int | None
    read: int | None
    waits: int


def controls(image: Image, symbol: Symbol) -> Mapping[int, Control]:
    """By place in a function, the control bits of its instructions."""
    section = image.sections[symbol.section]
    start = section.offset + symbol.address - section.address
    code = image.data[start : start + symbol.size]
    return {
        at: _control(int.from_bytes(code[at : at + WIDTH], "little"))
        for at in range(0, len(code) - WIDTH + 1, WIDTH)
    }


def _control(word: int) -> Control:
    write, read = word >> _WRITE & 7, word >> _READ & 7
    return Control(
        None if write == _NONE else write, None if read == _NONE else read, word >> _WAITS & 63
    )


def is_waited_for(scoreboard: int, one: Instruction, control: Control) -> bool:
    """Whether an instruction is issued, or done if it is ``DEPBAR``, when a scoreboard is down."""
    if control.waits >> scoreboard & 1:
        return True
    if one.base != "DEPBAR":
        return False
    if one.operands[1:] == ("0x0",):
        return one.operands[0] == f"SB{scoreboard}"
    return one.operands[0].startswith("{") and str(scoreboard) in one.operands[0]
