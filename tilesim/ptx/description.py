"""The launch description as JSON (``docs/launch.md``); `read` and `to_json` are inverses.

Typed access to a decoded JSON document, with errors that say where in it something is wrong.

The launch description as JSON (``docs/launch.md``); `read` and `to_json` are inverses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar, get_args

from tilesim.arith.floats import FLOATS
from tilesim.arith.types import WIDTH
from tilesim.ptx.launch import (
    ADDRESSES,
    MAP_TYPES,
    SCALAR_TYPES,
    UNSAID,
    Address,
    Atoms,
    Contents,
    Field,
    Fill,
    Im2col,
    Interleave,
    Launch,
    Map,
    Parameter,
    Pointer,
    Scalar,
    Struct,
    Swizzle,
    Wide,
    bytes_of,
)
from tilesim.ptx.syntax import LaunchError
from tilesim.ptx.tensormap import decode
from tilesim.wording import did_you_mean

T = TypeVar("T")
#: entries of a list, characters of a text
MOST = 1 << 20
LARGEST = 1 << 48


class Fields:
    """An object of the document; every field that is read is taken, what is left is an error."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise LaunchError(f"{path}: expected an object, found {shown(value)}")
        self._left: dict[str, Any] = dict(value)
        self._known: list[str] = []

    def fail(self, key: str, what: str) -> NoReturn:
        """Raises for a field."""
        raise LaunchError(f"{self.path}.{key}: {what}")

    def end(self) -> None:
        """All fields must have been read."""
        for key in self._left:
            hint = did_you_mean(str(key), self._known)
            self.fail(str(key), f"is not known here{hint}; there are {', '.join(self._known)}")

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._left.pop(key, None)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; required without a default."""
        value = self._take(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing")
            return default
        if not isinstance(value, str) or len(value) > MOST:
            self.fail(key, f"expected a text, found {shown(value)}")
        return value

    def choice(self, key: str, allowed: tuple[T, ...], default: T | None = None) -> T:
        """One of some values."""
        value = self._take(key)
        if value is None and default is not None:
            return default
        for one in allowed:
            if type(one) is type(value) and one == value:
                return one
        names = ", ".join(map(str, allowed))
        what = "is missing" if value is None else f"{shown(value)} is not one of"
        return self.fail(key, f"{what}{':' if value is None else ''} {names}")

    def flag(self, key: str) -> bool:
        """A truth value, false if it is missing."""
        value = self._take(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.fail(key, f"expected true or false, found {shown(value)}")
        return value

    def integer(
        self, key: str, default: int | None = None, *, low: int = 0, high: int = LARGEST
    ) -> int:
        """An integer between bounds; required without a default."""
        value = self._take(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing")
            return default
        return self._integer(key, value, low, high)

    def _integer(self, key: str, value: object, low: int, high: int) -> int:
        if type(value) is not int:
            self.fail(key, f"expected an integer, found {shown(value)}")
        if not low <= value <= high:
            self.fail(key, f"{shown(value)} is outside {low}..{high}")
        return value

    def optional(self, key: str, *, low: int = 0) -> int | None:
        """An integer, or None if it is missing."""
        value = self._take(key)
        return None if value is None else self._integer(key, value, low, LARGEST)

    def number(self, key: str) -> int | float | None:
        """An integer or a float; None (``null``): not known."""
        value = self._take(key)
        if value is None or type(value) in (int, float):
            return float(value) if isinstance(value, float) else value
        if isinstance(value, bool):
            return int(value)
        return self.fail(key, f"expected a number or null, found {shown(value)}")

    def integers(
        self, key: str, *, low: int, high: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """A list of integers; required without a default."""
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            self.fail(key, f"expected a list of integers, found {shown(value)}")
        return tuple(self._integer(f"{key}[{i}]", v, low, high) for i, v in enumerate(value))

    def items(
        self, key: str, low: int, high: int, other: Callable[[Fields], T]
    ) -> tuple[int | T, ...]:
        """A list of integers, and of objects as ``other`` reads them."""
        value = self._take(key)
        if not isinstance(value, list):
            self.fail(key, f"expected a list of integers, found {shown(value)}")
        return tuple(
            other(Fields(item, f"{self.path}.{key}[{i}]")) if isinstance(item, dict)
            else self._integer(f"{key}[{i}]", item, low, high)
            for i, item in enumerate(value)
        )  # fmt: skip

    def triple(self, key: str, default: tuple[int, int, int] | None = None) -> tuple[int, int, int]:
        """Three sizes, x first; missing ones are 1."""
        numbers = self.integers(key, low=1, high=(1 << 31) - 1, default=default)
        if not 1 <= len(numbers) <= 3:
            self.fail(key, f"expected 1 to 3 numbers, found {len(numbers)}")
        x, y, z = (*numbers, 1, 1)[:3]
        return x, y, z

    def object(self, key: str) -> Fields | None:
        """An object, or None if it is missing."""
        value = self._take(key)
        return None if value is None else Fields(value, f"{self.path}.{key}")

    def named(self, key: str) -> Iterator[tuple[str, Fields | None]]:
        """The members of an object with any names; None where one is ``null``."""
        inner = self.object(key)
        for name, value in () if inner is None else inner._left.items():
            yield name, None if value is None else Fields(value, f"{self.path}.{key}.{name}")

    def objects(self, key: str) -> Iterator[Fields]:
        """A list of objects, empty if it is missing."""
        value = self._take(key)
        if value is None:
            return
        if not isinstance(value, list):
            self.fail(key, f"expected a list, found {shown(value)}")
        for i, item in enumerate(value):
            yield Fields(item, f"{self.path}.{key}[{i}]")


def shown(value: object) -> str:
    """A value in a message, its beginning if it is long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


SCHEMA = "tilesim.launch/1"
#: the least and the largest number in memory
NUMBERS = -(1 << 63), (1 << 64) - 1
#: a list of numbers and words without blanks
_FLAT = re.compile(r'\[\n\s+((?:-?[\d.]+|"[\w.]*")(?:,\n\s+(?:-?[\d.]+|"[\w.]*"))*)\n\s+\]')
#: an address in memory
_ADDRESS = re.compile(r'\{\n\s+("name": "[^"\n]*"(?:,\n\s+"offset": \d+)?)\n\s+\}')


# ---------------------------------------------------------------------- reading


def loads(text: str, file: str = "launch.json") -> Launch:
    """The launch that a JSON text describes.

    Raises:
        LaunchError: with the place in the description.
    """
    return read(_parsed(text, file), file)


def loads_all(text: str, file: str = "launch.json") -> tuple[Launch, ...]:
    """The launches of a JSON text: one description, or a list of them. Raises like `loads`."""
    document = _parsed(text, file)
    if not isinstance(document, list):
        return (read(document, file),)
    if not document:
        raise LaunchError(f"{file}: the list has no description")
    return tuple(read(one, f"{file}[{i}]") for i, one in enumerate(document))


def _parsed(text: str, file: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise LaunchError(f"{file}: this is no JSON: {error}") from error
    except RecursionError as error:
        raise LaunchError(f"{file}: lists and objects are nested too deeply") from error
    except ValueError as error:  # Python's, of integers that are too long to be converted
        raise LaunchError(f"{file}: a number has thousands of digits") from error


def read(document: object, file: str = "launch.json") -> Launch:
    """The launch that a decoded JSON document describes; raises like `loads`."""
    top = Fields(document, file)
    schema = top.text("schema", SCHEMA)
    if schema != SCHEMA:
        top.fail("schema", f"{schema!r} is not known; this version reads {SCHEMA!r}")
    sizes = (top.triple("grid"), top.triple("block", UNSAID), top.triple("cluster", UNSAID))
    launch = Launch(
        top.text("entry"), *sizes, top.integer("dynamic_shared", 0),
        top.optional("registers", low=1), top.flag("cooperative"), top.flag("dependent"),
        tuple(_parameter(p) for p in top.objects("params")),
        tuple(_buffer(b) for b in top.objects("buffers")),
        tuple((n, None if v is None else _values(v)) for n, v in top.named("variables")),
        " ".join(top.text("about", "").split()),
    )  # fmt: skip
    top.end()
    for n, c, axis in zip(launch.grid, launch.cluster, "xyz", strict=True):
        if c and n % c:
            top.fail("grid", f"{n} CTAs in {axis} are no multiple of the cluster's {c}")
    if launch.threads > 1024:
        top.fail("block", f"{launch.threads} threads are more than 1024")
    return launch


def _parameter(fields: Fields) -> Parameter:
    kind = fields.choice("kind", ("pointer", "scalar", "map", "struct"))
    result: Parameter
    match kind:
        case "pointer":
            name = fields.text("name", "").strip() or fields.path
            result = _pointer(fields, name, fields.integer("offset", 0))
        case "scalar":
            result = _scalar(fields)
        case "map":
            result = _map(fields)
        case _:
            result = _struct(fields)
    fields.end()
    return result


def _buffer(fields: Fields) -> Pointer:
    """A buffer that no parameter points into."""
    found = _pointer(fields, fields.text("name").strip(), 0)
    fields.end()
    return found


def _pointer(fields: Fields, name: str, offset: int) -> Pointer:
    size, inner = fields.optional("bytes"), fields.object("contents")
    return Pointer(name, size, offset, None if inner is None else _values(inner))


def _values(inner: Fields) -> Contents:
    kind = inner.choice("type", tuple(sorted(SCALAR_TYPES)))
    values = inner.items("values", *NUMBERS, _address)
    if kind not in ADDRESSES and any(isinstance(value, Address) for value in values):
        inner.fail("values", f"an address has 64 bits, {kind} has not: use {', '.join(ADDRESSES)}")
    for i, value in enumerate(values):
        if not isinstance(value, Address):
            _require_fits(inner, f"values[{i}]", kind, value)
    inner.end()
    return Contents(kind, values)


def _address(fields: Fields) -> Address:
    found = Address(fields.text("name").strip(), fields.integer("offset", 0))
    fields.end()
    return found


def _scalar(fields: Fields) -> Scalar:
    kind = fields.choice("type", tuple(sorted(SCALAR_TYPES)))
    value = fields.number("value")
    if value is not None:
        _require_fits(fields, "value", kind, value)
    return Scalar(fields.text("name", ""), kind, value)


def _require_fits(fields: Fields, key: str, kind: str, value: float) -> None:
    """A number that a type of PTX does not have is wrong: it would be another one in memory."""
    if kind in FLOATS:
        try:
            bytes_of(kind, value)
        except OverflowError:
            fields.fail(key, f"{shown(value)} does not fit {kind}")
        return
    if isinstance(value, float):
        fields.fail(key, f"{value} is no integer")
    width = WIDTH[kind]
    low = 0 if kind[0] == "u" else -(1 << width - 1)
    high = (1 << width - 1) - 1 if kind[0] == "s" else (1 << width) - 1
    if not low <= value <= high:
        fields.fail(key, f"{shown(value)} does not fit {kind}")


def _map(fields: Fields) -> Map:
    raw = fields.text("raw", "")
    name = fields.text("name", "").strip() or fields.path
    if raw:
        try:
            data = bytes.fromhex(raw)
        except ValueError:
            fields.fail("raw", "these are no hexadecimal digits")
        return decode(data, name, where=f"{fields.path}.raw")
    shape = fields.integers("shape", low=1, high=1 << 32)
    rank = len(shape)
    if not 1 <= rank <= 5:
        fields.fail("shape", f"a tensor map has 1 to 5 dimensions, not {rank}")
    im2col = _im2col(fields, rank)
    box = () if im2col else fields.integers("box", low=1, high=256)
    strides = fields.integers("strides", low=0, high=1 << 40)
    steps = fields.integers("element_strides", low=1, high=8, default=())
    wanted = {"strides": (strides, rank - 1), "element_strides": (steps, rank if steps else 0)}
    if not im2col:
        wanted["box"] = box, rank
    for key, (numbers, count) in wanted.items():
        if len(numbers) != count:
            fields.fail(key, f"{len(numbers)} numbers; a tensor of {rank} dimensions has {count}")
    swizzle = fields.choice("swizzle", get_args(Swizzle), 0)
    interleave = fields.choice("interleave", get_args(Interleave), 0)
    fill = fields.choice("fill", get_args(Fill), "zero")
    kind = fields.choice("type", tuple(MAP_TYPES))
    return Map(
        name, kind, shape, strides, box, steps, swizzle, interleave, fill, im2col,
        fields.integer("offset", 0), fields.choice("atoms", get_args(Atoms), 16),
    )  # fmt: skip


def _im2col(fields: Fields, rank: int) -> Im2col | None:
    inner = fields.object("im2col")
    if inner is None:
        return None
    if rank < 3:
        fields.fail("im2col", f"a tensor of {rank} dimensions has none in space")
    wide = inner.choice("wide", get_args(Wide), "")
    spatial = 1 if wide else rank - 2
    corners = []
    for key in ("lower", "upper"):
        corner = inner.integers(key, low=-(1 << 15), high=(1 << 15) - 1)
        if len(corner) != spatial:
            inner.fail(key, f"{len(corner)} numbers for {spatial} dimensions in space")
        corners.append(corner)
    result = Im2col(
        corners[0], corners[1], inner.integer("channels", low=1, high=256),
        inner.integer("pixels", low=1, high=1024), wide,
    )  # fmt: skip
    inner.end()
    return result


def _struct(fields: Fields) -> Struct:
    size = fields.integer("size", low=1, high=1 << 16)
    try:
        data = bytes.fromhex(fields.text("data", ""))
    except ValueError:
        fields.fail("data", "these are no hexadecimal digits")
    if len(data) > size:
        fields.fail("data", f"{len(data)} bytes, the struct has {size}")
    found = []
    for inner in fields.objects("fields"):
        offset = inner.integer("offset_in_struct", low=0, high=size - 1)
        value = _parameter(inner)
        if isinstance(value, Struct):
            inner.fail("kind", "a field is no struct; give its fields with their offsets")
        found.append(Field(offset, value))
    return Struct(fields.text("name", ""), size, tuple(found), data)


# ---------------------------------------------------------------------- writing


def to_json(launch: Launch) -> dict[str, Any]:
    """The description of a launch, for ``json.dumps``."""
    document: dict[str, Any] = {
        "schema": SCHEMA, "entry": launch.entry, "grid": list(launch.grid),
        "dynamic_shared": launch.dynamic_shared,
    }  # fmt: skip
    if launch.block != UNSAID:
        document["block"] = list(launch.block)
    if launch.cluster != UNSAID:
        document["cluster"] = list(launch.cluster)
    if launch.registers is not None:
        document["registers"] = launch.registers
    if launch.cooperative:
        document["cooperative"] = True
    if launch.dependent:
        document["dependent"] = True
    if launch.about:
        document["about"] = launch.about
    document["params"] = [_to_json(p) for p in launch.params]
    if launch.buffers:
        document["buffers"] = [_pointer_to_json(b) for b in launch.buffers]
    if launch.variables:
        document["variables"] = {n: None if v is None else _contents_json(v)
                                 for n, v in launch.variables}  # fmt: skip
    return document


def dumps(launch: Launch) -> str:
    """The description of a launch as text."""
    return as_text(to_json(launch))


def as_text(document: object) -> str:
    """JSON, lists of numbers in a line each."""
    text = _ADDRESS.sub(_in_one_line, json.dumps(document, indent=2))
    return _FLAT.sub(_in_one_line, text) + "\n"


def _in_one_line(found: re.Match[str]) -> str:
    return f"{found[0][0]}{' '.join(found[1].split())}{found[0][-1]}"


def _to_json(parameter: Parameter) -> dict[str, Any]:
    match parameter:
        case Pointer():
            return {"kind": "pointer", **_pointer_to_json(parameter)}
        case Scalar(name, kind, value):
            return {"kind": "scalar", "name": name, "type": kind, "value": value}
        case Struct(name, size, fields, data):
            inner = [{"offset_in_struct": f.offset, **_to_json(f.value)} for f in fields]
            return {
                "kind": "struct", "name": name, "size": size, "data": data.hex(), "fields": inner,
            }  # fmt: skip
        case Map():
            return _map_to_json(parameter)


def _pointer_to_json(pointer: Pointer) -> dict[str, Any]:
    found: dict[str, Any] = {"name": pointer.name}
    if pointer.bytes is not None:
        found["bytes"] = pointer.bytes
    if pointer.offset:
        found["offset"] = pointer.offset
    if pointer.contents is not None:
        found["contents"] = _contents_json(pointer.contents)
    return found


def _contents_json(contents: Contents) -> dict[str, Any]:
    values = [_address_json(v) if isinstance(v, Address) else v for v in contents.values]
    return {"type": contents.type, "values": values}


def _address_json(value: Address) -> dict[str, Any]:
    return {"name": value.name, "offset": value.offset} if value.offset else {"name": value.name}


def _map_to_json(value: Map) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "map", "name": value.name, "type": value.type, "shape": list(value.shape),
        "strides": list(value.strides), "swizzle": value.swizzle, "interleave": value.interleave,
        "fill": value.fill, "offset": value.offset,
    }  # fmt: skip
    if value.atoms != 16:
        found["atoms"] = value.atoms
    if value.element_strides:
        found["element_strides"] = list(value.element_strides)
    if value.im2col is None:
        found["box"] = list(value.box)
    else:
        corners = value.im2col
        found["im2col"] = {
            "lower": list(corners.lower), "upper": list(corners.upper),
            "channels": corners.channels, "pixels": corners.pixels,
        }  # fmt: skip
        if corners.wide:
            found["im2col"]["wide"] = corners.wide
    return found
