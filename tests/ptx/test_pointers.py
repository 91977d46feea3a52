"""Kernels that load the addresses of their buffers from memory, compiled by NVRTC from CUDA C++."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import HEAD, SOURCES, compiled, reported
from tilesim.checker import Report
from tilesim.ptx.launch import Address, Contents, Launch, Map, Parameter, Pointer, Scalar
from tilesim.ptx.syntax import LaunchError

pytestmark = needs.compiler

#: two CTAs of two rows, and of two parts of which 32 and 20 numbers are copied
TABLE = Contents("u64", (Address("row0"), Address("row1")))
PARTS = (Address("from0"), Address("to0"), 32, Address("from1"), Address("to1"), 20)
ROWS = {"row0": 256, "row1": 256, "from0": 128, "to0": 128, "from1": 128, "to1": 80}
#: what CTA 0 loads by its tensor map are groups 0 and 1, CTA 1 groups 1 and 2
GROUPS = (Address("group0"), 8, Address("group1"), 8, Address("group2"), 8)


def batched(
    old: str = "", new: str = "", table: Contents = TABLE, **sizes: int
) -> tuple[Report, set[str]]:
    parts = Pointer("parts", 48, contents=Contents("u64", PARTS))
    params = (Pointer("table", 16, contents=table), parts)
    return _run("batched", old, new, params, {**ROWS, **sizes})


def grouped(old: str = "", new: str = "", **sizes: int) -> tuple[Report, set[str]]:
    params = (
        Map("first", "f32", (32, 8), (128,), (32, 8)),
        Pointer("groups", 48, contents=Contents("u64", GROUPS)),
        Pointer("maps", 256), Pointer("y", 256), Scalar("n", "s32", 2),
    )  # fmt: skip
    found = {f"group{i}": 1024 for i in range(3)}
    return _run("grouped", old, new, params, {**found, **sizes})


def _run(
    name: str, old: str, new: str, params: tuple[Parameter, ...], sizes: dict[str, int]
) -> tuple[Report, set[str]]:
    source = (SOURCES / f"{name}.cu").read_text()
    assert old in source
    text = HEAD + source.replace(old, new, 1)
    buffers = tuple(Pointer(buffer, size) for buffer, size in sizes.items())
    launch = Launch("f", (2, 1, 1), (64, 1, 1), params=params, buffers=buffers)
    return reported(text, compiled(text), launch)


# ---------------------------------------------------------------------- arrays of pointers


def test_pointers_in_a_table_and_in_structs() -> None:
    assert batched()[0].verdict == "proved"


def test_a_buffer_behind_a_pointer_has_an_end() -> None:
    found, named = batched(row1=128)
    assert found.rules == {"out-of-bounds"}
    assert named == {"row[t] = row[t] + 1;"}
    moved = Contents("u64", (Address("row0"), Address("row1", 16)))
    assert batched(table=moved)[0].rules == {"out-of-bounds"}
    found, named = batched("t < part.n", "t < 32")
    assert found.rules == {"out-of-bounds"}
    assert named == {"if (t < 32) part.to[t] = part.from[t];"}


def test_two_ctas_with_one_buffer_race() -> None:
    found, named = batched("table[blockIdx.x]", "table[blockIdx.x / 2]")
    assert found.rules == {"race"}
    assert named == {"row[t] = row[t] + 1;"}
    same = Contents("u64", (Address("row1"), Address("row1")))
    assert batched(table=same)[0].rules == {"race"}


def test_an_address_that_nobody_gives() -> None:
    found, _ = batched(table=Contents("u64", (Address("row0"),)))
    assert found.verdict == "bounded"
    assert "give the contents of table in the launch description" in found.reasons[0]


def test_a_number_is_no_address() -> None:
    found, _ = batched(table=Contents("u64", (Address("row0"), 4096)))
    assert found.rules == {"out-of-bounds"}


def test_what_addresses_decide_is_said() -> None:
    """Of two buffers nobody knows which one lies first."""
    found, _ = batched("if (t < part.n)", "if (t < part.n && part.from < part.to)")
    assert found.verdict == "bounded"
    assert "depends on the value of an address" in " ".join(found.reasons)


def test_contents_with_addresses_of_nothing() -> None:
    with pytest.raises(LaunchError, match="the address of row9 at byte 8, which is not a buffer"):
        batched(table=Contents("u64", (Address("row0"), Address("row9"))))
    with pytest.raises(LaunchError, match="the address of row1 at byte 8, byte 257 of it"):
        batched(table=Contents("u64", (Address("row0"), Address("row1", 257))))


# ---------------------------------------------------------------------- tensor maps made of them


def test_a_map_of_each_group() -> None:
    assert grouped()[0].verdict == "proved"


#: by name: what is written for what, the rule, and the lines that are named
WRONG = {
    "not published": ("publish(mine, staged);", "if (lane == 0) *mine = staged[0];", "proxy-fence",
                      "if (lane == 0) *mine = staged[0];"),
    "not acquired": ("acquire(mine);", "", "proxy-fence", "publish(mine, staged);"),
    "changed in a copy": ("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", "",
                          "race", "publish(mine, staged);"),
}  # fmt: skip
LOAD = "load(buf[i % 2], mine, 0, 0, full + i % 2);"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_fail_on_their_lines(name: str) -> None:
    old, new, rule, line = WRONG[name]
    found, named = grouped(old, new)
    assert found.rules == {rule}
    assert named == {line, LOAD}


def test_staged_by_a_lane_that_others_have_not_met() -> None:
    found, named = grouped("__syncwarp();  // staged", "")
    assert found.rules == {"race"}
    assert "publish(mine, staged);" in named


def test_a_map_that_is_larger_than_its_buffer() -> None:
    found, named = grouped(group1=512)
    assert found.rules == {"out-of-bounds"}
    assert named == {LOAD}


def test_a_map_that_begins_as_nothing() -> None:
    """No field but those that are replaced has been set."""
    found, named = grouped("staged[0] = first", "staged[0] = Map{}")
    assert found.rules == {"uninitialised-read"}
    assert named == {LOAD}


def test_half_of_a_map_is_all_that_there_is() -> None:
    half = "for (int i = 0; i < 8; i++) staged[0].words[i] = first.words[i]"
    assert grouped("staged[0] = first", half)[0].verdict == "proved"
