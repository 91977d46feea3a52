"""The launch description as JSON (``docs/launch.md``): tables of its fields, by which it is read
and written, and which are its JSON Schema (2020-12). `read` and `to_json` are inverses.

Rules between fields (a stride per dimension, a grid of whole clusters, a value that fits its type)
no schema says; reading has them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar, get_args

from tilesim.arith.floats import FLOATS
from tilesim.arith.types import WIDTH
from tilesim.ptx import launch as of
from tilesim.ptx.launch import (
    ADDRESSES,
    MAP_TYPES,
    SCALAR_TYPES,
    UNSAID,
    Address,
    Contents,
    Field,
    Im2col,
    Launch,
    Map,
    Parameter,
    Pointer,
    Scalar,
    Struct,
    Triple,
    bytes_of,
)
from tilesim.ptx.syntax import LaunchError
from tilesim.ptx.tensormap import decode
from tilesim.records import dataclass, fields, replace
from tilesim.wording import did_you_mean

T = TypeVar("T")
Schema = dict[str, Any]

SCHEMA = "tilesim.launch/1"
#: what a template has where something is to be filled in
MISSING = "FILL_IN"
#: paths of missing fields that are named
_NAMED = 20
#: entries of a list, characters of a text
_MOST = 1 << 20
_LARGEST = 1 << 48
#: the least and the largest number in memory
_NUMBERS = -(1 << 63), (1 << 64) - 1
#: a list of numbers and words without blanks
_FLAT = re.compile(r'\[\n\s+((?:-?[\d.]+|"[\w.]*")(?:,\n\s+(?:-?[\d.]+|"[\w.]*"))*)\n\s+\]')
#: an address in memory
_ADDRESS = re.compile(r'\{\n\s+("name": "[^"\n]*"(?:,\n\s+"offset": \d+)?)\n\s+\}')


# ---------------------------------------------------------------------- values


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _Form:
    """What a value of the document may be.

    ``read`` makes of it, None where it is missing, what a `Launch` has, or raises a LaunchError
    that begins with its path; ``write`` is the inverse.
    """

    schema: Schema
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = _unchanged


class _Missing(LaunchError):
    """Fields that are missing or to be filled in, by path, and what is to be said of one of them
    alone."""

    def __init__(self, paths: tuple[str, ...], what: str = "is missing") -> None:
        super().__init__(f"{paths[0]}: {what}")
        self.paths = paths


def _fail(path: str, what: str) -> NoReturn:
    raise LaunchError(f"{path}: {what}")


def _each(reads: Iterable[tuple[_Form, Any, str]]) -> list[Any]:
    """What forms read of values at paths.

    Raises:
        _Missing: all that is missing in any of them.
        LaunchError: the first that is wrong, if nothing is missing before it.
    """
    found, alone = [], None
    missing: list[str] = []
    for form, value, path in reads:
        try:
            found.append(_one(form, value, path))
        except _Missing as error:
            missing += error.paths
            alone = alone or error
    if alone is not None:
        raise alone if len(missing) == 1 else _Missing(tuple(missing))
    return found


def _one(form: _Form, value: Any, path: str) -> Any:
    """What a form reads of a value that may still be to be filled in, as a template has it."""
    if isinstance(value, str) and value.partition(":")[0] == MISSING:
        raise _Missing((path,), f"is not filled in: {value!r} is still there")
    return form.read(value, path)


def _shown(value: object) -> str:
    """A value in a message, its beginning if it is long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _text(value: Any, path: str) -> str:
    if value is None:
        raise _Missing((path,))
    if not isinstance(value, str) or len(value) > _MOST:
        _fail(path, f"expected a text, found {_shown(value)}")
    return value


def _bytes(value: Any, path: str) -> bytes:
    try:
        return bytes.fromhex(_text(value, path))
    except ValueError:
        _fail(path, "these are not hexadecimal digits")


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        _fail(path, f"expected true or false, found {_shown(value)}")
    return value


def _number(value: Any, path: str) -> int | float | None:
    """None (``null``): not known."""
    if not isinstance(value, int | float | None):
        _fail(path, f"expected a number or null, found {_shown(value)}")
    return int(value) if isinstance(value, bool) else value


_TEXT = _Form({"type": "string", "maxLength": _MOST}, _text)
_BYTES = _Form({**_TEXT.schema, "pattern": r"^\s*(?:[0-9A-Fa-f]{2}\s*)*$"}, _bytes, bytes.hex)
_FLAG = _Form({"type": "boolean"}, _flag)
_NUMBER = _Form({"type": ["number", "boolean", "null"]}, _number)


def _integer(low: int = 0, high: int = _LARGEST) -> _Form:
    def read(value: Any, path: str) -> int:
        if value is None:
            raise _Missing((path,))
        if type(value) is not int:
            _fail(path, f"expected an integer, found {_shown(value)}")
        if not low <= value <= high:
            _fail(path, f"{_shown(value)} is outside {low}..{high}")
        return value

    return _Form({"type": "integer", "minimum": low, "maximum": high}, read)


def _choice(allowed: tuple[T, ...]) -> _Form:
    def read(value: Any, path: str) -> T:
        for one in allowed:
            if type(one) is type(value) and one == value:
                return one
        choices = ", ".join(map(str, allowed))
        if value is None:
            raise _Missing((path,), f"is missing, one of {choices}")
        _fail(path, f"{_shown(value)} is not one of {choices}")

    return _Form({"enum": list(allowed)}, read)


def _constant(value: str) -> _Form:
    return replace(_choice((value,)), schema={"const": value}, write=lambda _: value)


def _list(item: _Form, least: int = 0, most: int = _MOST, of_what: str = "") -> _Form:
    schema: Schema = {"type": "array", "items": item.schema, "minItems": least}

    def read(value: Any, path: str) -> tuple[Any, ...]:
        what = f"expected a list{of_what}, found {_shown(value)}"
        if value is None:
            raise _Missing((path,), what)
        if not isinstance(value, list):
            _fail(path, what)
        if not least <= len(value) <= most:
            _fail(path, f"expected {least} to {most} numbers, found {len(value)}")
        return tuple(_each((item, one, f"{path}[{i}]") for i, one in enumerate(value)))

    def write(values: tuple[Any, ...]) -> list[Any]:
        return [*map(item.write, values)]

    return _Form(schema if most == _MOST else {**schema, "maxItems": most}, read, write)


def _integers(low: int, high: int, least: int, most: int) -> _Form:
    return _list(_integer(low, high), least, most, " of integers")


# ---------------------------------------------------------------------- objects

_REQUIRED, _CONSTANT = object(), object()


@dataclass(frozen=True)
class _Entry:
    """A field of an object. ``default``: what it is where it is missing, or ``null``; unless it is
    that, or ``always``, it is written."""

    key: str
    form: _Form
    default: object = _REQUIRED
    always: bool = False


#: a rule between the fields of an object, at a path: what becomes of it; raises a LaunchError
_Rule = Callable[[Any, str], Any]


def _members(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _fail(path, f"expected an object, found {_shown(value)}")
    return value


def _object(cls: type, *entries: _Entry, rule: _Rule = lambda made, _: made) -> _Form:
    """An instance of a dataclass; entries that are no fields of it are constant."""
    own, known = {field.name for field in fields(cls)}, [entry.key for entry in entries]

    def read(value: Any, path: str) -> Any:
        members = _members(value, path)
        for key in members:
            if key not in known:
                hint = did_you_mean(str(key), known)
                _fail(
                    f"{path}.{key}",
                    f"is not a field of this object{hint}; its fields are {', '.join(known)}",
                )
        given = [e for e in entries if members.get(e.key) is not None or e.default is _REQUIRED]
        found = _each((e.form, members.get(e.key), f"{path}.{e.key}") for e in given)
        made = {entry.key: entry.default for entry in entries}
        made |= {entry.key: one for entry, one in zip(given, found, strict=True)}
        return rule(cls(**{key: one for key, one in made.items() if key in own}), path)

    def write(made: Any) -> dict[str, Any]:
        held = [(entry, getattr(made, entry.key, _CONSTANT)) for entry in entries]
        return {
            entry.key: None if value is None else entry.form.write(value)
            for entry, value in held
            if entry.always or value is _CONSTANT or value != entry.default
        }

    schema: Schema = {
        "type": "object", "required": [e.key for e in entries if e.default is _REQUIRED],
        "properties": {e.key: e.form.schema for e in entries}, "additionalProperties": False,
    }  # fmt: skip
    return _Form(schema, read, write)


def _by_name(form: _Form) -> _Form:
    """Pairs of a name and what has it, or None, as the members of an object."""

    def read(value: Any, path: str) -> tuple[tuple[str, Any], ...]:
        return tuple(
            (name, None if one is None else form.read(one, f"{path}.{name}"))
            for name, one in _members(value, path).items()
        )

    def write(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
        return {name: None if one is None else form.write(one) for name, one in pairs}

    each = {"oneOf": [form.schema, {"type": "null"}]}
    return _Form({"type": "object", "additionalProperties": each}, read, write)


# ---------------------------------------------------------------------- rules between fields


def require_fits(path: str, kind: str, value: float) -> None:
    """A number that a type of PTX does not have is wrong: it would be another one in memory."""
    if kind in FLOATS:
        try:
            bytes_of(kind, value)
        except OverflowError:
            _fail(path, f"{_shown(value)} does not fit {kind}")
        return
    if isinstance(value, float):
        _fail(path, f"{value} is not an integer")
    width = WIDTH[kind]
    low = 0 if kind[0] == "u" else -(1 << width - 1)
    high = (1 << width - 1) - 1 if kind[0] == "s" else (1 << width) - 1
    if not low <= value <= high:
        _fail(path, f"{_shown(value)} does not fit {kind} ({low} to {high})")


def _named(made: Pointer | Map | Address, path: str) -> Pointer | Map | Address:
    """What has no name is called by its place."""
    return replace(made, name=made.name.strip() or path)


def _contents(made: Contents, path: str) -> Contents:
    for i, value in enumerate(made.values):
        if not isinstance(value, Address):
            require_fits(f"{path}.values[{i}]", made.type, value)
        elif made.type not in ADDRESSES:
            what = f"an address has 64 bits, {made.type} does not: use {', '.join(ADDRESSES)}"
            _fail(f"{path}.values", what)
    return made


def _scalar(made: Scalar, path: str) -> Scalar:
    if made.value is not None:
        require_fits(f"{path}.value", made.type, made.value)
    return made


def _map(made: Map, path: str) -> Any:
    rank = len(made.shape)
    counts = {"strides": (made.strides, rank - 1)}
    if made.element_strides:
        counts["element_strides"] = made.element_strides, rank
    if made.im2col is None:
        counts["box"] = made.box, rank
    elif made.box:
        _fail(f"{path}.box", "a map in im2col mode has none")
    else:
        if rank < 3:
            _fail(f"{path}.im2col", f"a tensor of {rank} dimensions has none in space")
        spatial = 1 if made.im2col.wide else rank - 2
        for key in ("lower", "upper"):
            count = len(getattr(made.im2col, key))
            if count != spatial:
                what = f"{count} numbers for {spatial} dimensions in space"
                _fail(f"{path}.im2col.{key}", what)
    for key, (numbers, count) in counts.items():
        if len(numbers) != count:
            what = f"{len(numbers)} numbers; a tensor of {rank} dimensions has {count}"
            _fail(f"{path}.{key}", what)
    return _named(made, path)


def _struct(made: Struct, path: str) -> Struct:
    if len(made.data) > made.size:
        _fail(f"{path}.data", f"{len(made.data)} bytes, the struct has {made.size}")
    for i, field in enumerate(made.fields):
        if field.offset >= made.size:
            where = f"{path}.fields[{i}].offset_in_struct"
            _fail(where, f"{field.offset} is outside 0..{made.size - 1}")
    return made


def _launch(made: Launch, path: str) -> Launch:
    for n, c, axis in zip(made.grid, made.cluster, "xyz", strict=True):
        if c and n % c:
            _fail(f"{path}.grid", f"{axis} = {n} is not a multiple of the cluster's {c}")
    if made.threads > 1024:
        _fail(f"{path}.block", f"{made.threads} threads are more than 1024")
    first: dict[str, int] = {}
    for i, buffer in enumerate(made.buffers):
        if first.setdefault(buffer.name, i) != i:
            what = f"buffers[{first[buffer.name]}] has the name {buffer.name}, too"
            _fail(f"{path}.buffers[{i}].name", what)
    return replace(made, about=" ".join(made.about.split()))


# ---------------------------------------------------------------------- the tables

_NAME = _Entry("name", _TEXT, "", always=True)
_OWN_NAME = _Entry("name", _TEXT)
_OFFSET = _Entry("offset", _integer(), 0)
_TYPE = _Entry("type", _choice(tuple(sorted(SCALAR_TYPES))))
_ADDRESS_FORM = _object(Address, _OWN_NAME, _OFFSET, rule=_named)
_WORD = _integer(*_NUMBERS)


def _is_address(value: object) -> bool:
    return isinstance(value, dict | Address)


_VALUE = _Form(
    {"oneOf": [_WORD.schema, _ADDRESS_FORM.schema]},
    lambda v, path: (_ADDRESS_FORM if _is_address(v) else _WORD).read(v, path),
    lambda v: _ADDRESS_FORM.write(v) if _is_address(v) else v,
)
_VALUES = _list(_VALUE, of_what=" of integers")
_CONTENTS = _object(Contents, _TYPE, _Entry("values", _VALUES), rule=_contents)
_BYTES_THERE = _Entry("bytes", _integer(), None)
_HELD = _Entry("contents", _CONTENTS, None)
_CORNER = _integers(-(1 << 15), (1 << 15) - 1, 1, 3)
_IM2COL = _object(
    Im2col, _Entry("lower", _CORNER), _Entry("upper", _CORNER),
    _Entry("channels", _integer(1, 256)), _Entry("pixels", _integer(1, 1024)),
    _Entry("wide", _choice(get_args(of.Wide)), ""),
)  # fmt: skip


def _kind(name: str) -> _Entry:
    return _Entry("kind", _constant(name))


_POINTER = _object(Pointer, _kind("pointer"), _NAME, _BYTES_THERE, _OFFSET, _HELD, rule=_named)
_SCALAR = _object(
    Scalar, _kind("scalar"), _NAME, _TYPE, _Entry("value", _NUMBER, None, always=True),
    rule=_scalar,
)  # fmt: skip
_FIELDS_OF_MAP = _object(
    Map, _kind("map"), _NAME, _Entry("type", _choice(tuple(MAP_TYPES))),
    _Entry("shape", _integers(1, 1 << 32, 1, 5)), _Entry("strides", _integers(0, 1 << 40, 0, 4)),
    _Entry("swizzle", _choice(get_args(of.Swizzle)), 0, always=True),
    _Entry("interleave", _choice(get_args(of.Interleave)), 0, always=True),
    _Entry("fill", _choice(get_args(of.Fill)), "zero", always=True), replace(_OFFSET, always=True),
    _Entry("atoms", _choice(get_args(of.Atoms)), 16),
    _Entry("element_strides", _integers(1, 8, 0, 5), ()),
    _Entry("box", _integers(1, 256, 1, 5), ()), _Entry("im2col", _IM2COL, None), rule=_map,
)  # fmt: skip
_MAP = replace(_FIELDS_OF_MAP, schema={
    **_FIELDS_OF_MAP.schema, "anyOf": [{"required": ["box"]}, {"required": ["im2col"]}],
})  # fmt: skip


@dataclass(frozen=True)
class _Encoded:
    """A tensor map as its bytes."""

    name: str
    raw: bytes


_RAW_BYTES = replace(_BYTES, schema={**_BYTES.schema, "minLength": 2})
_ENCODED = _object(
    _Encoded, _kind("map"), _NAME, _Entry("raw", _RAW_BYTES),
    rule=lambda made, path: decode(made.raw, made.name.strip() or path, where=f"{path}.raw"),
)  # fmt: skip


def _parameter(forms: Mapping[type, _Form]) -> _Form:
    """A parameter of one of these kinds; a tensor map may be given as its bytes."""
    named = {cls.__name__.lower(): form for cls, form in forms.items()}
    kind = _choice(tuple(named))

    def read(value: Any, path: str) -> Parameter:
        members = _members(value, path)
        form = named[_one(kind, members.get("kind"), f"{path}.kind")]
        found: Parameter = (_ENCODED if members.get("raw") else form).read(members, path)
        return found

    every = [*forms.values(), _ENCODED]
    return _Form({"oneOf": [f.schema for f in every]}, read, lambda v: forms[type(v)].write(v))


def _field(inner: _Form, at: str = "offset_in_struct") -> _Form:
    """A parameter inside of a struct, with where it is there."""
    offset = _integer(0, (1 << 16) - 1)

    def read(value: Any, path: str) -> Field:
        members = {**_members(value, path)}
        place = members.pop(at, None)
        return Field(*_each([(offset, place, f"{path}.{at}"), (inner, members, path)]))

    every = [
        s | {"required": [*s["required"], at], "properties": s["properties"] | {at: offset.schema}}
        for s in inner.schema["oneOf"]
    ]
    return _Form({"oneOf": every}, read, lambda f: {at: f.offset, **inner.write(f.value)})


_IN_A_STRUCT = {Pointer: _POINTER, Scalar: _SCALAR, Map: _MAP}
_STRUCT = _object(
    Struct, _kind("struct"), _NAME, _Entry("size", _integer(1, 1 << 16)),
    _Entry("data", _BYTES, b"", always=True),
    _Entry("fields", _list(_field(_parameter(_IN_A_STRUCT))), (), always=True), rule=_struct,
)  # fmt: skip
_NUMBERS_OF_AXES = _integers(1, (1 << 31) - 1, 1, 3)


def _sizes(value: Any, path: str) -> Triple:
    """Three sizes, x first; missing ones are 1."""
    x, y, z = (*_NUMBERS_OF_AXES.read(value, path), 1, 1)[:3]
    return x, y, z


_SIZES = replace(_NUMBERS_OF_AXES, read=_sizes)
_BUFFER = _object(Pointer, _OWN_NAME, _BYTES_THERE, _HELD, rule=_named)
_LAUNCH = _object(
    Launch, _Entry("schema", _constant(SCHEMA), SCHEMA), _Entry("entry", _TEXT),
    _Entry("grid", _SIZES), _Entry("dynamic_shared", _integer(), 0, always=True),
    _Entry("block", _SIZES, UNSAID), _Entry("cluster", _SIZES, UNSAID),
    _Entry("registers", _integer(1), None), _Entry("cooperative", _FLAG, False),
    _Entry("dependent", _FLAG, False), _Entry("about", _TEXT, ""),
    _Entry("params", _list(_parameter({**_IN_A_STRUCT, Struct: _STRUCT})), (), always=True),
    _Entry("buffers", _list(_BUFFER), ()), _Entry("variables", _by_name(_CONTENTS), ()),
    rule=_launch,
)  # fmt: skip
_LIST = _list(_LAUNCH)
JSON_SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The launch of a PTX kernel, or a list of launches, for tilesim",
    "oneOf": [{"$ref": "#/$defs/launch"},
              {"type": "array", "items": {"$ref": "#/$defs/launch"}, "minItems": 1}],
    "$defs": {"launch": _LAUNCH.schema},
}  # fmt: skip


# ---------------------------------------------------------------------- the document


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
        raise LaunchError(f"{file}: the list is empty: it needs at least one launch")
    return tuple(_whole(_LIST, document, file))


def _parsed(text: str, file: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=partial(_members_once, file))
    except json.JSONDecodeError as error:
        raise LaunchError(f"{file}: this is not JSON: {error}") from error
    except RecursionError as error:
        raise LaunchError(f"{file}: lists and objects are nested too deeply") from error
    except LaunchError:
        raise
    except ValueError as error:  # Python's, of integers that are too long to be converted
        raise LaunchError(f"{file}: a number has thousands of digits") from error


def read(document: object, file: str = "launch.json") -> Launch:
    """The launch that a decoded JSON document describes; raises like `loads`."""
    found: Launch = _whole(_LAUNCH, document, file)
    return found


def _whole(form: _Form, document: object, file: str) -> Any:
    """What a form reads of a document; all that is missing in it is one error."""
    try:
        return form.read(document, file)
    except _Missing as error:
        paths = [path.removeprefix(file).removeprefix(".") for path in error.paths]
        if len(paths) == 1:
            raise
        more = f" and {len(paths) - _NAMED} others" if len(paths) > _NAMED else ""
        names = ", ".join(paths[:_NAMED])
        raise LaunchError(f"{file}: missing or to be filled in: {names}{more}") from None


def _members_once(file: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which a key stands once: of two values one would be passed over."""
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise LaunchError(f"{file}: {_shown(twice)} is given twice in one object")
    return members


def to_json(launch: Launch) -> dict[str, Any]:
    """The description of a launch, for ``json.dumps``."""
    found: dict[str, Any] = _LAUNCH.write(launch)
    return found


def dumps(launch: Launch) -> str:
    """The description of a launch as text."""
    return as_text(to_json(launch))


def as_text(document: object) -> str:
    """JSON, lists of numbers in a line each."""
    text = _ADDRESS.sub(_in_one_line, json.dumps(document, indent=2))
    return _FLAT.sub(_in_one_line, text) + "\n"


def _in_one_line(found: re.Match[str]) -> str:
    return f"{found[0][0]}{' '.join(found[1].split())}{found[0][-1]}"
