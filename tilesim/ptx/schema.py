"""The JSON Schema (2020-12) of launch descriptions.

What it refuses `tilesim.ptx.description` refuses, and it accepts what that reads; rules between
fields (a stride per dimension, a grid of whole clusters, a value that fits its type) only that has.
"""

from __future__ import annotations

from typing import Any, get_args

from tilesim.ptx.description import LARGEST, MOST, NUMBERS
from tilesim.ptx.description import SCHEMA as VERSION
from tilesim.ptx.launch import MAP_TYPES, SCALAR_TYPES, Atoms, Fill, Interleave, Swizzle, Wide

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "maxLength": MOST}
_HEX: Schema = {**_TEXT, "pattern": r"^\s*(?:[0-9A-Fa-f]{2}\s*)*$"}


def _integer(low: int = 0, high: int = LARGEST) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _list(low: int, high: int, least: int = 0, most: int | None = None) -> Schema:
    found: Schema = {"type": "array", "items": _integer(low, high), "minItems": least}
    return found if most is None else {**found, "maxItems": most}


def _object(required: tuple[str, ...], fields: Schema) -> Schema:
    return {
        "type": "object", "required": list(required), "properties": fields,
        "additionalProperties": False,
    }  # fmt: skip


def _one_of(kind: str, required: tuple[str, ...], fields: Schema, inside: bool) -> Schema:
    """A parameter of a kind; ``inside`` of a struct it has an offset."""
    own = {"kind": {"const": kind}, "name": _TEXT, **fields}
    if inside:
        own["offset_in_struct"] = _integer(0, (1 << 16) - 1)
    return _object(("kind", *(("offset_in_struct",) if inside else ()), *required), own)


_TYPE: Schema = {"enum": sorted(SCALAR_TYPES)}
_ADDRESS = _object(("name",), {"name": _TEXT, "offset": _integer()})
_VALUES: Schema = {"type": "array", "items": {"oneOf": [_integer(*NUMBERS), _ADDRESS]}}
_CONTENTS = _object(("type", "values"), {"type": _TYPE, "values": _VALUES})
_MEMORY: Schema = {"bytes": _integer(), "contents": _CONTENTS}
_IM2COL = _object(
    ("lower", "upper", "channels", "pixels"),
    {
        "lower": _list(-(1 << 15), (1 << 15) - 1, 1, 3),
        "upper": _list(-(1 << 15), (1 << 15) - 1, 1, 3),
        "channels": _integer(1, 256),
        "pixels": _integer(1, 1024),
        "wide": {"enum": list(get_args(Wide))},
    },
)
_MAP: Schema = {
    "type": {"enum": list(MAP_TYPES)},
    "shape": _list(1, 1 << 32, 1, 5),
    "strides": _list(0, 1 << 40, 0, 4),
    "box": _list(1, 256, 1, 5),
    "element_strides": _list(1, 8, 0, 5),
    "swizzle": {"enum": list(get_args(Swizzle))},
    "atoms": {"enum": list(get_args(Atoms))},
    "interleave": {"enum": list(get_args(Interleave))},
    "fill": {"enum": list(get_args(Fill))},
    "im2col": _IM2COL,
    "offset": _integer(),
}


def _parameters(*, inside: bool) -> list[Schema]:
    pointer = {**_MEMORY, "offset": _integer()}
    scalar = {"type": _TYPE, "value": {"type": ["number", "boolean", "null"]}}
    described = _one_of("map", ("type", "shape", "strides"), _MAP, inside)
    raw = {"raw": {**_HEX, "minLength": 2}}
    return [
        _one_of("pointer", (), pointer, inside),
        _one_of("scalar", ("type",), scalar, inside),
        {**described, "anyOf": [{"required": ["box"]}, {"required": ["im2col"]}]},
        _one_of("map", ("raw",), raw, inside),
    ]


_STRUCT = _one_of(
    "struct", ("size",),
    {
        "size": _integer(1, 1 << 16), "data": _HEX,
        "fields": {"type": "array", "items": {"oneOf": _parameters(inside=True)}},
    },
    inside=False,
)  # fmt: skip
_SIZES = _list(1, (1 << 31) - 1, 1, 3)
_LAUNCH = _object(
    ("entry", "grid"),
    {
        "schema": {"const": VERSION},
        "entry": _TEXT,
        "grid": _SIZES,
        "block": _SIZES,
        "cluster": _SIZES,
        "dynamic_shared": _integer(),
        "registers": _integer(1),
        "cooperative": {"type": "boolean"},
        "dependent": {"type": "boolean"},
        "about": _TEXT,
        "params": {"type": "array", "items": {"oneOf": [*_parameters(inside=False), _STRUCT]}},
        "buffers": {"type": "array", "items": _object(("name",), {"name": _TEXT, **_MEMORY})},
        "variables": {
            "type": "object", "additionalProperties": {"oneOf": [_CONTENTS, {"type": "null"}]},
        },
    },
)  # fmt: skip
SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The launch of a PTX kernel, or a list of launches, for tilesim",
    "oneOf": [{"$ref": "#/$defs/launch"},
              {"type": "array", "items": {"$ref": "#/$defs/launch"}, "minItems": 1}],
    "$defs": {"launch": _LAUNCH},
}  # fmt: skip
