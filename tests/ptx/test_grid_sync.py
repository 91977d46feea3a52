"""`grid.sync()` of cooperative groups as nvcc compiles it: the word that CTAs wait with is one of
the driver, whose address two special registers hold. And pointers that are compared with null."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, HEAD
from tests.ptx.test_flags import LOAD, START, STORE
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

CTAS = 3
#: by how the halves become one number
WORD = {
    "a field": "bfi.b64 %rd12, %rd11, %rd10, 32, 32;",
    "a sum of bits": "shl.b64 %rd13, %rd11, 32; or.b64 %rd12, %rd13, %rd10;",
    "a vector": "mov.b64 %rd12, {%r20, %r21};",
}
#: without a launch that is cooperative there is no such word
TRAP = "setp.ne.s64 %p3, %rd12, 0;\n@%p3 bra GO;\ntrap;\nGO: bar.sync 0;\n@%p0 bra OUT;\n"
ARRIVE = (
    "add.s64 %rd14, %rd12, 4; mov.u32 %r22, -2147483647; sub.s32 %r22, %r22, 3; setp.eq.s32 %p1, "
    "%r0, 0; selp.b32 %r8, %r22, 1, %p1;\natom.add.release.gpu.u32 %r9, [%rd14], %r8;\n"
)
WAIT = (
    "L: ld.acquire.gpu.u32 %r10, [%rd14];\nxor.b32 %r11, %r10, %r9; setp.gt.s32 %p2, %r11, -1;\n"
    "@%p2 bra L;\nOUT: bar.sync 0;\n"
)


def sync(word: str = WORD["a field"]) -> str:
    halves = "mov.u32 %r20, %envreg2; cvt.u64.u32 %rd10, %r20; mov.u32 %r21, %envreg1; "
    return f"{halves}cvt.u64.u32 %rd11, %r21; {word}\n{TRAP}{ARRIVE}{WAIT}"


def run(body: str, *, cooperative: bool = True, schedules: int = 0, second: int = 4) -> Report:
    """The report on a kernel whose second buffer has so many bytes."""
    text = f"{HEAD.format(params='.param .u64 x, .param .u64 c')}{START}{body}ret;\n}}\n"
    module = read(text, "k.ptx")
    values = Pointer("x", CTAS * 256), Pointer("c", second)
    launch = Launch("k", (CTAS, 1, 1), (64, 1, 1), cooperative=cooperative, params=values)
    return check(lower(module, module.entries[0], launch), schedules=schedules, budget=0)


@pytest.mark.parametrize("word", WORD)
def test_grid_sync_is_proved(word: str) -> None:
    found = run(STORE + sync(WORD[word]) + LOAD)
    assert found.verdict == "proved", found


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ld.acquire", "ld.relaxed"),
        ("add.release", "add.relaxed"),
        ("GO: bar.sync 0;", "GO:"),
        (WAIT, "OUT: bar.sync 0;\n"),
    ],
)
def test_grid_sync_that_orders_nothing(right: str, wrong: str) -> None:
    body = STORE + sync().replace(right, wrong) + LOAD
    found = run(body, schedules=8)
    assert found.rules == {"race"}
    text = (START + body).splitlines()
    lines = {text[p.loc.line - FIRST].strip() for p in found.findings[0].participants}
    assert lines == {STORE.strip(), LOAD.strip()}


def test_a_grid_that_waits_for_a_cta_too_many() -> None:
    assert run(STORE + sync().replace("%r22, 3", "%r22, 4") + LOAD).rules == {"deadlock"}


def test_a_launch_that_is_not_cooperative_traps() -> None:
    found = run(STORE + sync() + LOAD, cooperative=False)
    assert "trap" in found.findings[0].message


def test_halves_that_belong_to_no_whole_are_not_known() -> None:
    """The kernel's own arithmetic on the address is nothing that is followed."""
    found = run(STORE + sync("bfi.b64 %rd12, %rd10, %rd11, 32, 32;") + LOAD)
    assert found.verdict != "proved"
    assert any("half of the address" in reason for reason in found.reasons), found.reasons


#: each turn reads in one buffer what the turn before has written, and writes in the other one
SWAPS = (
    "mov.u64 %rd30, %rd1; mov.u64 %rd31, %rd2; mov.u32 %r30, 0;\n"
    "TURN: add.u64 %rd32, %rd30, %rd4; add.u64 %rd33, %rd31, %rd3;\n"
    "ld.global.u32 %r31, [%rd32];\n"
    "st.global.u32 [%rd33], %r31;\n"
    "{sync}mov.u64 %rd34, %rd30; mov.u64 %rd30, %rd31; mov.u64 %rd31, %rd34;\n"
    "add.u32 %r30, %r30, 1; setp.lt.u32 %p4, %r30, 3; @%p4 bra TURN;\n"
)


def test_buffers_that_change_places() -> None:
    """An address may be into either; the word that CTAs wait with is in neither."""
    assert run(SWAPS.format(sync=sync()), second=CTAS * 256).verdict == "proved"


@pytest.mark.parametrize("fault", ["bar.sync 0;\n", sync().replace("ld.acquire", "ld.relaxed")])
def test_buffers_that_change_places_too_early(fault: str) -> None:
    body = SWAPS.format(sync=fault)
    found = run(body, schedules=8, second=CTAS * 256)
    assert found.rules == {"race"}
    text = (START + body).splitlines()
    lines = {text[p.loc.line - FIRST].strip() for p in found.findings[0].participants}
    assert lines == {"ld.global.u32 %r31, [%rd32];", "st.global.u32 [%rd33], %r31;"}


NULL = "setp.eq.s64 %p3, {pointer}, 0; @%p3 bra OUT; st.global.u32 [%rd1], 1;\nOUT: bar.sync 0;\n"


@pytest.mark.parametrize("pointer", ["%rd2", "%rd20", "%rd21"])
def test_no_buffer_lies_at_zero(pointer: str) -> None:
    moved = "cvta.to.global.u64 %rd20, %rd2; add.u64 %rd21, %rd2, 4; mov.u64 %rd22, %rd2;"
    body = moved + NULL.format(pointer=pointer)
    found = run(body.replace("st.global", "@!%p0 red.global.add"))
    assert not any("value of an address" in reason for reason in found.reasons), found.reasons


@pytest.mark.parametrize("offset", ["8", "-4", "%rd4"])
def test_what_lies_outside_of_a_buffer_may_be_zero(offset: str) -> None:
    body = f"add.s64 %rd21, %rd2, {offset};" + NULL.format(pointer="%rd21")
    found = run(body.replace("st.global", "@!%p0 red.global.add"))
    assert any("value of an address" in reason for reason in found.reasons)
