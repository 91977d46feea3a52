"""Which types instructions have, as the tables of PTX say (9.7.1 to 9.7.10, 9.7.14) and ptxas 13.0
takes them.

What others do is not defined: they are not read.
"""

from __future__ import annotations

from tilesim.arith.types import WIDTH

_WORDS = frozenset({"u32", "s32", "u64", "s64"})
_INTEGERS = _WORDS | {"u16", "s16"}
_BITS = frozenset({"b16", "b32", "b64"})
_WIDE_FLOATS = frozenset({"f32", "f64"})
_FLOATS = _WIDE_FLOATS | {"f16", "bf16", "f16x2", "bf16x2"}
_PAIRS = frozenset({"u16x2", "s16x2"})
_STORED = _BITS | _INTEGERS | _WIDE_FLOATS | {"b8", "u8", "s8", "b128"}
_PRODUCTS = {
    "cc": _WORDS, "lo": _INTEGERS, "hi": _INTEGERS, "wide": frozenset({"u16", "s16", "u32", "s32"}),
}  # fmt: skip
_LOGIC = frozenset({"b32", "b64"})
_OF_VECTORS = _FLOATS - {"f64"}
_ATOMICS = {
    "add": frozenset({"u32", "s32", "u64", *_FLOATS}),
    "min": _WORDS | _OF_VECTORS, "max": _WORDS | _OF_VECTORS,
    "inc": frozenset({"u32"}), "dec": frozenset({"u32"}),
    "and": _LOGIC, "or": _LOGIC, "xor": _LOGIC,
    "exch": _LOGIC | {"b128"}, "cas": _LOGIC | {"b16", "b128"},
}  # fmt: skip
_LANES = {
    "add": frozenset({"u32", "s32"}), "min": frozenset({"u32", "s32", "f32"}),
    "max": frozenset({"u32", "s32", "f32"}),
    "and": frozenset({"b32"}), "or": frozenset({"b32"}), "xor": frozenset({"b32"}),
}  # fmt: skip
#: by the first name: by one of the qualifiers, or none of those before (""), the types
_TYPES: dict[str, dict[str, frozenset[str]]] = {
    "add": {"cc": _WORDS, "": _INTEGERS | _PAIRS | _FLOATS | {"f32x2"}},
    "sub": {"cc": _WORDS, "": _INTEGERS | _FLOATS | {"f32x2"}},
    "addc": {"": _WORDS},
    "subc": {"": _WORDS},
    "mul": {**_PRODUCTS, "": _FLOATS | {"f32x2"}},
    "mad": {**_PRODUCTS, "": _WIDE_FLOATS},
    "madc": {"": _WORDS},
    "div": {"": _INTEGERS | _WIDE_FLOATS},
    "abs": {"": _INTEGERS - {"u16", "u32", "u64"} | _FLOATS},
    "neg": {"": _INTEGERS - {"u16", "u32", "u64"} | _FLOATS},
    "min": {"": _INTEGERS | _PAIRS | _FLOATS},
    "max": {"": _INTEGERS | _PAIRS | _FLOATS},
    "setp": {
        **dict.fromkeys(("lo", "ls", "hi", "hs"), frozenset({"u16", "u32", "u64"})),
        "": _BITS | _INTEGERS | _FLOATS,
    },
    "selp": {"": _BITS | _INTEGERS | _WIDE_FLOATS},
    "mov": {"": _BITS | _INTEGERS | _WIDE_FLOATS | {"pred", "b128"}},
    "ld": {"": _STORED},
    "st": {"": _STORED},
    "atom": _ATOMICS,
    "red": _ATOMICS,
    "redux": _LANES,
}  # fmt: skip


def wrong_type(opcode: str) -> str | None:
    """The type of an instruction that has no such; None if it may have it, or names none."""
    base, *qualifiers = opcode.split(".")
    kind = next((q for q in reversed(qualifiers) if q in WIDTH), None)
    if kind is None or base not in _TYPES or "async" in qualifiers:
        return None
    named = next((types for name, types in _TYPES[base].items() if name in qualifiers), None)
    types = _TYPES[base].get("") if named is None else named
    return None if types is None or kind in types else kind
