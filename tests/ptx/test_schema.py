"""The published schema says what the code that reads descriptions says."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ptx.test_launch import DOCUMENT
from tilesim.cli import main
from tilesim.ptx.description import JSON_SCHEMA as SCHEMA
from tilesim.ptx.description import loads, read, to_json
from tilesim.ptx.syntax import LaunchError

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
#: rules between fields, which a schema does not have
BETWEEN = re.compile(
    "not a multiple|threads are more|does not fit|is not an integer|numbers; a tensor|numbers for|"
    "bytes, the struct|not? .*tensor map|128 bytes|has none in space|hexadecimal|"
    "is outside 0..|raw|an address has 64 bits"
)
EXAMPLE: dict[str, Any] = {
    **DOCUMENT, "about": "x", "variables": {"t": {"type": "u8", "values": [1]}, "u": None},
    "buffers": [
        {"name": "b", "bytes": 16, "contents": {"type": "u64", "values": [{"name": "c"}, 1]}},
        {"name": "c", "bytes": 8},
    ],
}  # fmt: skip


def fits(schema: dict[str, Any], value: object) -> bool:
    """Whether a value is as a schema says; of JSON Schema what ours uses."""
    if "$ref" in schema:
        return fits(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], value)
    kinds = schema.get("type", [])
    allowed = tuple(t for k in ([kinds] if isinstance(kinds, str) else kinds) for t in TYPES[k])
    if allowed and (type(value) not in allowed):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and not any(type(e) is type(value) and e == value for e in schema["enum"]):
        return False
    if "oneOf" in schema and sum(fits(s, value) for s in schema["oneOf"]) != 1:
        return False
    if "anyOf" in schema and not any(fits(s, value) for s in schema["anyOf"]):
        return False
    match value:
        case bool() | None:
            return True
        case int() | float():
            low, high = schema.get("minimum", value), schema.get("maximum", value)
            return bool(low <= value <= high)
        case str():
            low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
            return low <= len(value) <= high and bool(re.search(schema.get("pattern", ""), value))
        case list():
            right = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            return right and all(fits(schema.get("items", {}), item) for item in value)
        case dict():
            known = schema.get("properties", {})
            rest = schema.get("additionalProperties", {})
            return all(key in value for key in schema.get("required", ())) and all(
                fits(known[k], v) if k in known else rest is not False and fits(rest, v)
                for k, v in value.items()
            )
        case _:
            raise AssertionError(value)


def is_read(document: object) -> str:
    """Nothing if it is read, else what is wrong."""
    try:
        read(document)
    except LaunchError as error:
        return str(error)
    return ""


def test_what_is_read_and_written_fits() -> None:
    assert fits(SCHEMA, EXAMPLE)
    assert fits(SCHEMA, [EXAMPLE, EXAMPLE])
    assert fits(SCHEMA, to_json(read(EXAMPLE)))
    assert not fits(SCHEMA, [])


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(
        value if isinstance(value, list) else ())  # fmt: skip
    return [path, *(p for key, item in inside for p in places(item, (*path, key)))][not path :]


VALUES = st.one_of(
    st.booleans(), st.integers(-(1 << 70), 1 << 70), st.integers(-3, 300), st.text(max_size=3),
    st.floats(allow_nan=False, allow_infinity=False), st.just([]), st.just({}), st.just([1, 2]),
    st.sampled_from(["u8", "f32", "zero", "00", "map", "pointer"]),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(places(EXAMPLE)), VALUES, st.sampled_from(["set", "drop", "add"]))
def test_the_schema_and_the_reader_agree(path: tuple[Any, ...], value: Any, how: str) -> None:
    document = copy.deepcopy(EXAMPLE)
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    if how == "drop":
        del at[path[-1]]
    elif how == "set" or not isinstance(at[path[-1]], dict):
        at[path[-1]] = value
    else:
        at[path[-1]]["frob"] = value
    wrong = is_read(document)
    if not wrong:
        assert fits(SCHEMA, document), path
    elif not BETWEEN.search(wrong):
        assert not fits(SCHEMA, document), wrong


def test_the_command() -> None:
    result = CliRunner().invoke(main, ["launch-schema"])
    assert result.exit_code == 0
    assert json.loads(result.output) == SCHEMA


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ([], "variables: expected an object"), ({"t": 3}, "variables.t: expected an object"),
        ({"t": {"type": "u8"}}, "variables.t.values: expected a list"),
        ({"t": {"type": "u8", "values": [1], "x": 1}}, "variables.t.x: is not a field of"),
        ({"t": {"type": "q8", "values": [1]}}, "variables.t.type: 'q8' is not one of"),
    ],
)  # fmt: skip
def test_errors_in_variables_name_their_place(variables: object, where: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(f"launch.json.{where}")):
        loads(json.dumps({**EXAMPLE, "variables": variables}))
