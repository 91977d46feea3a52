"""Launch descriptions: reading, writing, errors; tensor maps as the driver encodes them."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesim.capture.maps import map_of_tiled
from tilesim.ptx.description import SCHEMA, dumps, loads, loads_all, read, to_json
from tilesim.ptx.launch import Address, Contents, Im2col, Launch, Map, Pointer, Scalar, Struct
from tilesim.ptx.syntax import LaunchError
from tilesim.ptx.tensormap import address, decode, encode

MAPS = json.loads((Path(__file__).parent / "maps.json").read_text())
#: the driver's numbers of element types
TYPES = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f64",
         9: "bf16", 10: "f32.ftz", 11: "tf32", 12: "tf32.ftz"}  # fmt: skip

DOCUMENT: dict[str, Any] = {
    "schema": SCHEMA, "entry": "k", "grid": [4, 2], "block": [128], "cluster": [2, 1, 1],
    "dynamic_shared": 1024, "registers": 168, "cooperative": True, "dependent": True,
    "params": [
        {"kind": "pointer", "name": "a", "bytes": 64, "offset": 8,
         "contents": {"type": "s32", "values": [1, -2]}},
        {"kind": "scalar", "name": "n", "type": "s32", "value": -5},
        {"kind": "scalar", "name": "alpha", "type": "f32", "value": 0.5},
        {"kind": "scalar", "name": "x", "type": "u64", "value": None},
        {"kind": "map", "name": "b", "type": "bf16", "shape": [256, 64], "strides": [512],
         "box": [64, 64], "swizzle": 128},
        {"kind": "map", "name": "i", "type": "f16", "shape": [64, 8, 8, 2], "strides": [128, 1024,
         8192], "im2col": {"lower": [-1, -1], "upper": [1, 1], "channels": 64, "pixels": 128}},
        {"kind": "struct", "name": "s", "size": 256, "data": "0102", "fields": [
            {"offset_in_struct": 64, "kind": "map", "raw": MAPS[0]["raw"]},
            {"offset_in_struct": 8, "kind": "pointer", "name": "a"}]},
    ],
}  # fmt: skip


MISSING = "launch.json: missing or to be filled in: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"params": [{"kind": "scalar"}, {}, {"kind": "struct", "fields": [{"kind": "map"}]}]}',
         f"{MISSING}entry, grid, params[0].type, params[1].kind, params[2].size, "
         "params[2].fields[0].offset_in_struct, params[2].fields[0].type, "
         "params[2].fields[0].shape, params[2].fields[0].strides"),
        ('{"entry": "k", "grid": ["FILL_IN"], "block": [32], "dynamic_shared": "FILL_IN", '
         '"params": [{"kind": "FILL_IN: a pointer or a scalar", "name": "a"}]}',
         f"{MISSING}grid[0], dynamic_shared, params[0].kind"),
        ('{"entry": "k", "grid": ["FILL_IN"]}',
         "launch.json.grid[0]: is not filled in: 'FILL_IN' is still there"),
        ('{"entry": "k", "grid": [' + "null," * 30 + "1]}", "expected 1 to 3 numbers, found 31"),
        ('{"entry": "k", "grid": [1], "params": [' + "{}," * 30 + "{}]}",
         "params[19].kind and 11 others"),
        ('{"entry": "k", "grid": [1], "grid": [2]}',
         "launch.json: 'grid' is given twice in one object"),
        ('{"entry": "k", "grid": [1], "params": [{"name": "a", "kind": "pointer", "name": "b"}]}',
         "launch.json: 'name' is given twice in one object"),
    ],
)  # fmt: skip
def test_all_that_is_missing_is_said_at_once_and_nothing_is_given_twice(
    text: str, message: str
) -> None:
    with pytest.raises(LaunchError, match=re.escape(message)):
        loads(text)


def test_what_is_missing_in_several_launches_is_said_at_once() -> None:
    with pytest.raises(LaunchError, match=re.escape(f"{MISSING}[0].grid, [1].entry")):
        loads_all('[{"entry": "k"}, {"grid": [1]}]')


def test_a_description_is_read() -> None:
    found = read(DOCUMENT)
    assert (found.grid, found.block, found.cluster) == ((4, 2, 1), (128, 1, 1), (2, 1, 1))
    assert (found.ctas, found.threads, found.cluster_size) == (8, 128, 2)
    assert found.params[:4] == (
        Pointer("a", 64, 8, Contents("s32", (1, -2))), Scalar("n", "s32", -5),
        Scalar("alpha", "f32", 0.5), Scalar("x", "u64", None),
    )  # fmt: skip
    tile, picture, struct = found.params[4:]
    assert tile == Map("b", "bf16", (256, 64), (512,), (64, 64), swizzle=128)
    assert tile.box_bytes == 8192
    assert isinstance(picture, Map)
    assert picture.im2col == Im2col((-1, -1), (1, 1), 64, 128)
    assert picture.box_bytes == 64 * 128 * 2
    assert isinstance(struct, Struct)
    assert [f.offset for f in struct.fields] == [64, 8]
    assert isinstance(struct.fields[0].value, Map)


def test_reading_and_writing_are_inverse() -> None:
    found = read(DOCUMENT)
    assert loads(dumps(found)) == found
    assert read(to_json(found)) == found


def test_addresses_in_memory_are_written_in_a_line_each() -> None:
    table = Contents("u64", (Address("a"), 0, Address("a", 16)))
    launch = Launch("f", (1, 1, 1), params=(Pointer("t", 24, contents=table),),
                    buffers=(Pointer("a", 64),))  # fmt: skip
    text = dumps(launch)
    assert loads(text) == launch
    assert '{"name": "a", "offset": 16}' in text


@pytest.mark.parametrize(
    ("buffers", "where", "what"),
    [
        ([{"bytes": 8}], "buffers[0].name", "is missing"),
        ([{"name": "b", "offset": 8}], "buffers[0].offset", "is not a field of this object"),
        ([{"name": "b", "contents": {"type": "u32", "values": [{"name": "c"}]}}],
         "buffers[0].contents.values", "an address has 64 bits, u32 does not"),
        ([{"name": "b", "contents": {"type": "u64", "values": [{"name": "c", "byte": 8}]}}],
         "buffers[0].contents.values[0].byte", "is not a field of this object"),
        ([{"name": "b", "bytes": 8}, {"name": "c"}, {"name": "b", "bytes": 9}],
         "buffers[2].name", "buffers[0] has the name b, too"),
    ],
)  # fmt: skip
def test_errors_in_buffers_name_their_place(buffers: object, where: str, what: str) -> None:
    with pytest.raises(LaunchError) as caught:
        read({"entry": "f", "grid": [1], "buffers": buffers})
    assert where in str(caught.value)
    assert what in str(caught.value)


def test_only_what_is_needed_has_to_be_there() -> None:
    document = {"schema": SCHEMA, "entry": "k", "grid": [1]}
    assert read(document) == Launch("k", (1, 1, 1))
    assert to_json(read(document)) == {
        **document,
        "grid": [1, 1, 1],
        "dynamic_shared": 0,
        "params": [],
    }


def without(path: list[Any], key: str) -> dict[str, Any]:
    return changed(path, key, None, drop=True)


def changed(path: list[Any], key: Any, value: object, *, drop: bool = False) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    at: Any = document
    for step in path:
        at = at[step]
    if drop:
        del at[key]
    else:
        at[key] = value
    return document


@pytest.mark.parametrize(
    ("document", "where", "what"),
    [
        (without([], "grid"), "launch.json.grid", "expected a list"),
        (without([], "entry"), "launch.json.entry", "is missing"),
        (changed([], "schema", "x/2"), "launch.json.schema", "is not one of tilesim.launch/1"),
        (changed([], "frob", 1), "launch.json.frob", "its fields are schema, entry, grid"),
        (changed([], "grid", [0]), "launch.json.grid[0]", "outside 1"),
        (changed([], "grid", [3]), "launch.json.grid", "not a multiple of the cluster's 2"),
        (changed([], "block", [32, 33]), "launch.json.block", "1056 threads"),
        (changed([], "dynamic_shared", True), "launch.json.dynamic_shared", "expected an integer"),
        (changed([], "params", {}), "launch.json.params", "expected a list"),
        (changed(["params", 0], "kind", "ptr"), "launch.json.params[0].kind", "not one of pointer"),
        (changed(["params", 1], "value", 1 << 31), "launch.json.params[1].value", "does not fit"),
        (changed(["params", 1], "value", 0.5), "launch.json.params[1].value", "not an integer"),
        (changed(["params", 4], "box", [64]), "launch.json.params[4].box", "1 numbers"),
        (changed(["params", 4], "swizzle", 12), "launch.json.params[4].swizzle", "one of 0, 32"),
        (changed(["params", 4], "strides", []), "launch.json.params[4].strides", "0 numbers"),
        (changed(["params", 5, "im2col"], "lower", [1]), "params[5].im2col.lower", "2 dimensions"),
        (changed(["params", 6, "fields", 0], "raw", "00"), "params[6].fields[0].raw", "128 bytes"),
        (changed(["params", 6, "fields", 0], "raw", "zz"), "fields[0].raw", "hexadecimal"),
        (changed(["params", 6, "fields", 0], "raw", "00" * 128), "fields[0].raw", "no tensor map"),
    ],
)  # fmt: skip
def test_errors_name_the_field(document: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(LaunchError) as caught:
        read(document)
    assert where in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        ("u32", (1 << 32) - 1, 1 << 32), ("u8", 0, -1), ("s32", -(1 << 31), 1 << 31),
        ("b16", -(1 << 15), 1 << 16), ("pred", 1, 2), ("f16", 65504, 70000),
        ("u64", (1 << 64) - 1, -1), ("f32", 1 << 63, None), ("f64", 1.5e308, 10**400),
    ],
)  # fmt: skip
def test_a_number_has_to_be_one_of_its_type(kind: str, value: float, wrong: int | None) -> None:
    """It would be another number in memory, or none."""

    def scalar(number: object) -> dict[str, Any]:
        return changed([], "params", [{"kind": "scalar", "type": kind, "value": number}])

    def contents(number: object) -> dict[str, Any]:
        inner = {"type": kind, "values": [0, number]}
        pointer = {"kind": "pointer", "name": "p", "contents": inner}
        return changed([], "params", [pointer])

    assert read(scalar(value)).params[0] == Scalar("", kind, value)
    if isinstance(value, int):
        (pointer,) = read(contents(value)).params
        assert isinstance(pointer, Pointer)
        assert pointer.contents == Contents(kind, (0, value))
    if wrong is not None:
        with pytest.raises(
            LaunchError, match=rf"params\[0\].value: {str(wrong)[:9]}.* not fit {kind}"
        ):
            read(scalar(wrong))
        with pytest.raises(LaunchError, match=r"params\[0\].contents.values\[1\]: "):
            read(contents(wrong))


@pytest.mark.parametrize(
    ("text", "what"),
    [("[" * 100_000, "nested too deeply"), ('{"grid": ' + "9" * 5000 + "}", "thousands of digits")],
)
def test_what_python_cannot_take_is_told_in_our_words(text: str, what: str) -> None:
    with pytest.raises(LaunchError, match=what):
        loads(text)


@pytest.mark.parametrize("text", ["", "[", "[1]", "3", '"x"', "[" * 100_000])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        loads(text)


INNER = ("value", "kind", "shape", "strides", "box", "im2col", "fields", "name", "type", "raw",
         "contents")  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(DOCUMENT)), JSON, st.integers(0, 6), st.sampled_from(INNER))
def test_no_value_makes_it_crash(key: str, value: object, number: int, inner: str) -> None:
    for document in (changed([], key, value), changed(["params", number], inner, value)):
        with suppress(LaunchError):
            read(document)


@pytest.mark.parametrize("number", range(len(MAPS)))
def test_a_map_is_decoded_as_the_driver_encoded_it(number: int) -> None:
    given_ = MAPS[number]
    data = bytes.fromhex(given_["raw"])
    found = decode(data, "a")
    assert address(data) == given_["address"]
    assert found.type == TYPES[given_["type"]]
    assert list(found.shape) == given_["dims"]
    assert list(found.strides) == given_["strides"]
    assert list(found.steps) == given_["element_strides"]
    assert found.swizzle == (0, 32, 64, 128)[given_["swizzle"]]
    assert found.interleave == (0, 16, 32)[given_["interleave"]]
    assert found.fill == ("zero", "nan")[given_["fill"]]
    if "box" in given_:
        assert list(found.box) == given_["box"]
    else:
        assert found.im2col == Im2col(
            tuple(given_["lower"]), tuple(given_["upper"]), given_["channels"], given_["pixels"]
        )


@pytest.mark.parametrize("row", MAPS, ids=range(len(MAPS)))
def test_maps_are_encoded_as_the_driver_does(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["raw"])
    made = encode(decode(raw, "x"), row["address"], row["l2"])
    assert made[:64] == raw[:64]
    assert decode(made, "x") == decode(raw, "x")


def test_a_map_of_packed_numbers_is_decoded() -> None:
    """512 x 512 of 4 bits, rows of 256 bytes, as CuTe DSL packs it."""
    head = "0000000000000000a26524001000000000000000000000000000000000000000"
    extents = "ff010000ff010000000000000000000000000000000000ff7f00000000000000"
    found = decode(bytes.fromhex(head + extents).ljust(128, b"\0"), "a")
    assert (found.type, found.bits, found.shape) == ("b4x16", 4, (512, 512, 1))
    assert (found.strides, found.box, found.swizzle) == ((256, 0), (256, 128, 1), 128)


def test_a_map_that_code_packs_itself_may_end_with_anything() -> None:
    """CuTe DSL writes the first half of a map; behind it lies what the stack had there."""
    raw = bytes.fromhex(MAPS[0]["raw"])
    rest = bytes.fromhex("02000000fe7f0000a0402846fe7f0000").ljust(63, b"\x76") + b"\xf9"
    assert decode(raw[:64] + rest, "x") == decode(raw, "x")


@pytest.mark.parametrize(
    ("change", "start"),
    [({}, 24), ({"strides": (24,)}, 16), ({"box": (12, 8)}, 16), ({"box": (64, 300)}, 16),
     ({"box": (128, 8)}, 16), ({"shape": (0, 8)}, 16), ({"element_strides": (1, 9)}, 16)],
)  # fmt: skip
def test_maps_that_the_driver_refuses_are_not_encoded(change: dict[str, Any], start: int) -> None:
    right = Map("x", "f16", (64, 8), (128,), (64, 8), swizzle=128)
    assert decode(encode(right, 16), "x") == right
    with pytest.raises(LaunchError, match="a tensor map is refused"):
        encode(replace(right, **change), start)


@pytest.mark.parametrize(("number", "atoms"), [(3, 16), (4, 32), (5, 32), (6, 64)])
def test_atoms_of_a_swizzle(number: int, atoms: int) -> None:
    """CUTLASS stores D of 32 bits with atoms of 32 bytes; which bytes of a row are where in it
    makes no difference to what a copy of whole rows accesses."""
    found = map_of_tiled(7, (64, 8), (256,), (32, 8), (1, 1), 0, number, 0)
    assert (found.swizzle, found.atoms) == (128, atoms)
    assert decode(encode(found, 16), "") == found
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), params=(replace(found, name="x"),))
    assert loads(dumps(launch)) == launch
