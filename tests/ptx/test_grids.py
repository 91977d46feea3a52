"""Grids of PTX kernels, which access global memory at addresses, of which one CTA is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ptx.test_check import INIT, WAIT, lines, program, report
from tilesim.checker import Report, check
from tilesim.ptx.launch import Contents, Pointer

GRID, ODD = 100, 37
#: ``%r1`` is the CTA or, where one is wrong and this is that one, ``other``; ``%p1`` says so
CTA = (
    "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p1, %r0, {odd}; selp.b32 %r1, {other}, %r0, %p1; "
    "mov.u32 %r2, %tid.x;\n"
)
#: the address of word ``%tid.x`` of CTA ``%r1`` in ``%rd3``
WORD = (
    "ld.param.u64 %rd1, [c]; mad.lo.u32 %r3, %r1, 32, %r2; mul.wide.u32 %rd2, %r3, 4; "
    "add.u64 %rd3, %rd1, %rd2;\n"
)
STORE = "st.global.u32 [%rd3], %r2;\n"


def grid(body: str, *, wrong: bool, other: int = ODD - 1, warps: int = 1) -> Report:
    text = CTA.format(odd=ODD if wrong else GRID, other=other) + WORD + body
    return report(
        text, warps=warps, grid=GRID, params=(".param .u64 c", ".param .u64 d"),
        values=(Pointer("c", GRID * 128), Pointer("d", GRID * 128)),
    )  # fmt: skip


def ctas(found: Report) -> set[int | None]:
    return {p.cta for p in found.findings[0].participants}


def pair(body: str, rule: str, *, other: int = ODD - 1, ran: int = 1, warps: int = 1) -> Report:
    """The report of the wrong grid; the right twin is proved by ``ran`` CTAs."""
    right = grid(body, wrong=False, warps=warps)
    assert right.verdict == "proved", right
    assert f"all {GRID} CTAs" in right.covers
    assert right.stats.ctas == ran
    found = grid(body, wrong=True, other=other, warps=warps)
    assert found.verdict == "failed"
    assert found.rules == {rule}, found
    return found


def test_a_cta_that_stores_what_another_one_stores() -> None:
    found = pair(STORE, "race")
    assert ctas(found) == {ODD - 1, ODD}
    assert lines(found) == [2]


def test_a_cta_that_reads_what_another_one_stores() -> None:
    at = "mad.lo.u32 %r4, %r0, 32, %r2; mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd1, %rd4;\n"
    found = pair(f"{at}st.global.u32 [%rd5], %r2;\nld.global.u32 %r5, [%rd3];\n", "race")
    assert ctas(found) == {ODD - 1, ODD}
    assert lines(found) == [3, 4]


def test_a_cta_that_leaves_the_buffer() -> None:
    found = pair(STORE, "out-of-bounds", other=GRID)
    assert ctas(found) == {ODD}
    assert lines(found) == [2]


def test_a_cta_whose_address_is_no_multiple_of_what_it_stores() -> None:
    shift = "selp.b64 %rd4, 2, 0, %p1; add.u64 %rd3, %rd3, %rd4;\n"
    found = pair(shift + STORE, "out-of-bounds", other=ODD)
    assert ctas(found) == {ODD}
    assert lines(found) == [3]


def test_a_cta_that_stores_to_another_buffer() -> None:
    """Which one it is the address says, no name."""
    other = "ld.param.u64 %rd6, [d]; selp.b64 %rd7, %rd6, %rd1, %p1; add.u64 %rd8, %rd7, %rd2;\n"
    read = "add.u64 %rd9, %rd6, 4864;\nld.global.u32 %r5, [%rd9];\n"
    found = pair(f"{other}st.global.u32 [%rd8], %r2;\n{read}", "race", other=38)
    assert lines(found) == [3, 5]


def test_a_cta_that_waits_for_another_phase_as_computed() -> None:
    """What instructions compute that no expression says is followed in all CTAs."""
    parity = "cvt.u64.u32 %rd4, %r1; setp.lt.u64 %p2, %rd4, 100; selp.b32 %r9, 0, 1, %p2;\n"
    arrive = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r8];\n"
    again = WAIT.replace("L", "M").replace(", 0;", ", %r9;").replace("%p1", "%p3")
    waits = (WAIT.replace("%p1", "%p4") + again).replace("[%r1]", "[%r8]")
    init = INIT.replace("%r1", "%r8").replace("%r2", "%r7")
    found = pair(init + arrive + parity + waits, "deadlock", other=GRID)
    assert ctas(found) == {ODD}
    assert lines(found) == [9]


def test_lanes_that_do_not_store_may_have_any_address() -> None:
    """Nor do registers that they do not set differ."""
    body = (
        "setp.lt.u32 %p3, %r2, 16; mov.u64 %rd9, %rd1;\n@%p3 mov.u64 %rd9, %rd3;\n"
        "@%p3 st.global.u32 [%rd9], %r2;\n"
    )
    found = pair(body, "race")
    assert ctas(found) == {ODD - 1, ODD}
    assert lines(found) == [4]


COPY = (
    "mov.u32 %r8, smem; mad.lo.u32 %r8, %r2, 4, %r8; ld.param.u64 %rd6, [d]; "
    "add.u64 %rd7, %rd6, %rd2;\ncp.async.ca.shared.global [%r8], [%rd7], 4, %r9;\n"
    "cp.async.wait_all;\n"
)


@pytest.mark.parametrize("size", [4, 0])
def test_a_cta_that_copies_from_beyond_the_buffer(size: int) -> None:
    """Unless it copies nothing."""
    body = f"selp.b32 %r9, {size}, 4, %p1;\n{COPY}"
    if size:
        assert ctas(pair(body, "out-of-bounds", other=GRID)) == {ODD}
    else:
        assert grid(body, wrong=True, other=GRID).verdict == "proved"


def test_where_a_copy_of_nothing_would_read_does_not_tell_ctas_apart() -> None:
    """The last CTA's address is behind the end: pipelines run ahead like that (C2)."""
    copy = (
        "mov.u32 %r7, smem; shl.b32 %r8, %r2, 2; add.s32 %r7, %r7, %r8; mov.u32 %r9, {size};\n"
        "cp.async.ca.shared.global [%r7], [%rd3+128], 4, %r9;\ncp.async.wait_all;\n"
    )
    right = grid(copy.format(size=0), wrong=False)
    assert right.verdict == "proved", right
    assert right.stats.ctas == 1
    found = grid(copy.format(size=4), wrong=False)
    assert found.verdict == "failed"
    assert found.rules == {"out-of-bounds"}
    assert ctas(found) == {GRID - 1}
    assert lines(found) == [3]


LONG = (
    CTA + "ld.param.u64 %rd1, [c]; mad.lo.u32 %r3, %r1, 4096, %r2; mul.wide.u32 %rd2, %r3, 4;\n"
    "add.u64 %rd3, %rd1, %rd2; mov.u32 %r5, 0;\nTURN:\nst.global.u32 [%rd3], %r2;\n"
    "add.u64 %rd3, %rd3, 128; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, {turns}; @%p2 bra TURN;\n"
)


def test_few_ctas_with_long_loops_stand_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.checker.verdict.PATIENCE", 1024)

    def run(turns: int, odd: int = GRID) -> Report:
        text = LONG.format(odd=odd, other=1, turns=turns)
        values = (Pointer("c", 4 * 4 * 4096),)
        long = program(text, grid=4, params=(".param .u64 c",), values=values)
        return check(long, skip=False)

    few, many = run(4), run(128)
    assert few.verdict == many.verdict == "proved"
    assert few.stats.ctas == 4
    assert "all 4 CTAs;" in few.covers
    assert "all 4 CTAs, of which 1 were run" in many.covers
    for wrong in run(4, odd=2), run(128, odd=2):
        assert wrong.verdict == "failed"
        assert wrong.rules == {"race"}
        assert ctas(wrong) == {1, 2}


ADD = "mov.u32 %r6, 1;\natom{sem}.gpu.global.add.u32 {to}, [%rd1], %r6;\n"


@pytest.mark.parametrize("sem", [".acq_rel", ".acquire", ""])
def test_acquires_of_what_nobody_looks_at_are_no_communication(sem: str) -> None:
    """Triton writes every atomic so, whether its result is used or not."""
    add = ADD.format(sem=sem, to="%r7").replace("%rd1", "%rd5")
    found = pair(f"ld.param.u64 %rd5, [d];\n{add}{STORE}", "race")
    assert ctas(found) == {ODD - 1, ODD}


def test_an_acquire_after_a_relaxed_poll_is_one() -> None:
    """A strong load has told what the atomic finds, so this one comes after what was released."""
    text = (
        "mov.u32 %r0, %ctaid.x; ld.param.u64 %rd1, [c]; mov.u32 %r2, %tid.x;\n"
        "setp.ne.u32 %p1, %r2, 0; @%p1 ret; setp.eq.u32 %p1, %r0, 0; mov.u32 %r6, 1;\n"
        "@%p1 st.global.u32 [%rd1+64], %r2; @%p1 red.release.gpu.global.add.u32 [%rd1], %r6;\n"
        "@%p1 ret;\nPOLL:\nld.relaxed.gpu.global.u32 %r4, [%rd1]; setp.eq.u32 %p2, %r4, 0;\n"
        "@%p2 bra POLL;\n{acquire}\nld.global.u32 %r5, [%rd1+64];\n"
    )
    values = (Pointer("c", 128, contents=Contents("u32", (0,) * 32)),)

    def run(acquire: str) -> Report:
        body = text.replace("{acquire}", acquire)
        whole = program(body, grid=2, params=(".param .u64 c",), values=values)
        return check(replace(whole, kernel=replace(whole.kernel, cooperative=True)))

    right = run("mov.u32 %r6, 0; atom.acquire.gpu.global.add.u32 %r7, [%rd1], %r6;")
    assert right.verdict in ("proved", "exhausted", "bounded")
    assert not right.findings
    assert run("").rules == {"race"}


@pytest.mark.parametrize("rows", [32, 31])
def test_a_product_of_24_bits_is_a_place_like_any_other(rows: int) -> None:
    at = f"mad24.lo.u32 %r4, %r0, {rows}, %r2; mul24.lo.s32 %r5, %r4, 4;"
    body = f"{at} cvt.u64.u32 %rd4, %r5; add.u64 %rd5, %rd1, %rd4;\nst.global.u32 [%rd5], %r2;\n"
    found = grid(body, wrong=False)
    if rows == 32:
        assert found.verdict == "proved", found
        assert found.stats.ctas == 1
    else:
        assert found.rules == {"race"}
        assert lines(found) == [3]
