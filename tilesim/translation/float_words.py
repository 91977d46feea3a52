"""Floating point of 32 bits as ptxas uses it to divide whole numbers: words of registers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Mapping

_LARGEST = 3.4028234663852886e38


def word_of(value: float, rounding: str = "") -> int:
    """The number of 32 bits that is nearest, or not less (``RP``), or nearer to 0 (``RZ``)."""
    word: int = struct.unpack("<I", struct.pack("<f", max(-_LARGEST, min(_LARGEST, value))))[0]
    nearest = number_of(word)
    if rounding == "RP" and nearest < value:
        return word + (1 if value > 0 else -1)
    if rounding == "RZ" and abs(nearest) > abs(value):
        return word - 1
    return word


def number_of(word: int) -> float:
    """The number that a word is."""
    return float(struct.unpack("<f", struct.pack("<I", word))[0])


def _rounding(modifiers: Collection[str]) -> str:
    return next((name for name in ("RP", "RZ") if name in modifiers), "")


def _from_whole(modifiers: Collection[str], words: list[int]) -> int:
    signed = "U32" not in modifiers and words[0] >> 31
    return word_of(words[0] - (1 << 32 if signed else 0), _rounding(modifiers))


def _to_whole(modifiers: Collection[str], words: list[int]) -> int:
    value = number_of(words[0])
    if math.isnan(value):
        return 0
    least, most = (0, (1 << 32) - 1) if "U32" in modifiers else (-(1 << 31), (1 << 31) - 1)
    return int(max(least, min(most, value))) & 0xFFFFFFFF


def _reciprocal(modifiers: Collection[str], words: list[int]) -> int:
    value = number_of(words[0])
    return word_of(1 / value) if value and math.isfinite(value) else 0x7F800000


def _product(modifiers: Collection[str], words: list[int]) -> int:
    value = number_of(words[0]) * number_of(words[1])
    return word_of(value, _rounding(modifiers)) if math.isfinite(value) else 0x7F800000


_Rule = Callable[[Collection[str], list[int]], int]
#: by opcode: the rule, how many values it reads, and all modifiers with which it holds
_RULES: Mapping[str, tuple[_Rule, int, frozenset[str]]] = {
    "I2F": (_from_whole, 1, frozenset({"RP", "RZ", "U32", "S32"})),
    "I2FP": (_from_whole, 1, frozenset({"RP", "RZ", "F32", "U32", "S32"})),
    "F2I": (_to_whole, 1, frozenset({"FTZ", "U32", "S32", "TRUNC", "NTZ"})),
    "MUFU": (_reciprocal, 1, frozenset({"RCP"})),
    "FMUL": (_product, 2, frozenset({"RZ"})),
}
#: the opcodes of these
FLOATING = frozenset(_RULES)
#: the modifier without which it does something else
_NEEDED = {"F2I": "TRUNC", "MUFU": "RCP"}


def computed(base: str, modifiers: Collection[str], words: list[int | None]) -> int | None:
    """What an instruction computes of the words that it reads; None if that is not known.

    ``MUFU.RCP`` is rounded to the nearest number here; the GPU's may be the next one, which the
    code that ptxas writes for a division corrects.
    """
    rule = _RULES.get(base)
    known = [word for word in words if word is not None]
    if rule is None or {*modifiers} - rule[2] or len(known) != len(words) or len(words) != rule[1]:
        return None
    if _NEEDED.get(base, "") not in ("", *modifiers):
        return None
    return rule[0](modifiers, known)
