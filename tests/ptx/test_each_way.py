"""Branches on data, way by way: what registers hold behind them, and in each turn of a loop.

Each kernel is one of which a proof would be false, beside its right twin.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import INIT, program
from tests.ptx.test_perhaps import SETUP, TWO
from tilesim import checker
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer

#: %r7 is 0 by one way and {other} by another one, which data chooses in the second branch
MERGED = (
    "mov.u32 %r7, {first}; and.b32 %r9, %r5, 4; setp.eq.u32 %p3, %r9, 0;\n"
    "@!%p2 bra END;\nst.global.u32 [%rd6+8192], 1;\n@%p3 bra END;\nmov.u32 %r7, {second};\n"
    "END: mov.u32 %r9, 1;\n"
)
#: both warps store behind that, each thread to its own word or, with 128, to one of the other warp
STORES = "cvt.u64.u32 %rd7, %r7; add.s64 %rd7, %rd6, %rd7; st.global.u32 [%rd7], 1;\n"
#: who ends may be waited for
BARRIER = "setp.eq.u32 %p4, %r7, 0;\n@%p4 bar.sync 1, 64;\n"
PARITY = (
    INIT + "bar.sync 0;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r7;\n@!%p1 bra L;\n"
)


def check(body: str, *, warps: int = 2, grid: int = 1) -> Report:
    values = Pointer("a", 4096), Pointer("b", 1 << 20)
    loaded = program(SETUP + body, params=TWO, values=values, warps=warps, grid=grid)
    return checker.check(loaded, schedules=1, max_schedules=1)


def is_proved(found: Report) -> bool:
    return found.verdict == "proved"


@pytest.mark.parametrize(
    ("use", "other", "warps"), [(STORES, 128, 2), (BARRIER, 1, 2), (PARITY, 1, 1)],
    ids=["address", "barrier", "parity"],
)  # fmt: skip
def test_what_differs_by_way_is_not_known(use: str, other: int, warps: int) -> None:
    for first, second in ((0, other), (other, 0)):
        body = MERGED.format(first=first, second=second) + use
        assert check(body, warps=warps).verdict == "bounded"
    same = MERGED.format(first=0, second=0) + use
    assert is_proved(check(same, warps=warps))


#: each turn stores to a word of its own, {step} bytes further: of another warp from the third on
TURNS = (
    "mov.u32 %r7, 0; mul.wide.u32 %rd7, %r4, 128; add.s64 %rd7, %rd5, %rd7;\n"
    "{enter}\n"
    "HEAD: st.global.u32 [%rd7], 1; add.s64 %rd7, %rd7, {step}; add.u32 %r7, %r7, 1;\n"
    "setp.lt.u32 %p3, %r7, {turns}; @%p3 bra HEAD;\nEND: mov.u32 %r9, 1;\n"
)


def test_a_place_that_moves_turn_by_turn_meets_another_one_later() -> None:
    """Rows of 128 bytes per thread, in the middle of which there is room for two turns."""
    inside = "@%p2 bra END;"
    data = TURNS.format(enter="", step=0, turns="%r5")
    assert is_proved(check(data))
    assert not is_proved(check(TURNS.format(enter="", step=64, turns="%r5")))
    for enter in (inside, ""):
        assert is_proved(check(TURNS.format(enter=enter, step=64, turns=2)))
        assert not is_proved(check(TURNS.format(enter=enter, step=64, turns=4)))


def test_a_loop_that_is_left_in_its_middle_or_at_its_end() -> None:
    """What nobody knows first leads to its end, without a look at how its turn began."""
    body = (
        "mov.u32 %r7, 0; mul.wide.u32 %rd7, %r4, 128; add.s64 %rd7, %rd5, %rd7;\n"
        "HEAD: st.global.u32 [%rd7], 1; add.u32 %r7, %r7, 1;\n@%p2 bra END;\n"
        "add.s64 %rd7, %rd7, {step}; setp.lt.u32 %p3, %r7, %r5; @%p3 bra HEAD;\n"
        "END: mov.u32 %r9, 1;\n"
    )
    assert not is_proved(check(body.format(step=64)))
    assert is_proved(check(body.format(step=0)))


def test_a_turn_that_leaves_memory_and_looks_elsewhere() -> None:
    """Each turn loads {step} bytes further: from the third on what another thread has stored."""
    body = (
        "mov.u32 %r7, 0; mul.wide.u32 %rd7, %r4, 128; add.s64 %rd7, %rd5, %rd7;\n"
        "st.global.u32 [%rd7], 1; mov.u64 %rd9, %rd7;\n"
        "HEAD: ld.global.u32 %r8, [%rd9]; add.s64 %rd9, %rd7, {step}; add.s64 %rd7, %rd7, {step};\n"
        "add.u32 %r7, %r7, 1; mov.u32 %r8, 0; setp.lt.u32 %p3, %r7, %r5; @%p3 bra HEAD;\n"
    )
    assert not is_proved(check(body.format(step=64)))
    assert is_proved(check(body.format(step=0)))


def test_what_a_turn_stores_the_next_one_finds() -> None:
    """The second turn finds 1 where the first one found 0, and stores where the other warp does."""
    body = (
        "st.global.u32 [%rd6+4096], 0; mov.u32 %r7, 0;\n"
        "HEAD: ld.global.u32 %r8, [%rd6+4096]; mul.lo.u32 %r8, %r8, 128;\n"
        "cvt.u64.u32 %rd7, %r8; add.s64 %rd7, %rd6, %rd7; st.global.u32 [%rd7], 1;\n"
        "st.global.u32 [%rd6+{place}], 1; mov.u32 %r8, 0; mov.u64 %rd7, 0;\n"
        "add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, %r5; @%p3 bra HEAD;\n"
    )
    assert not is_proved(check(body.format(place=4096)))
    assert is_proved(check(body.format(place=8192)))


@pytest.mark.parametrize(("where", "right"), [("and.b32 %r11, %r5, 60", False),
                                              ("mov.u32 %r11, 68", True)])  # fmt: skip
def test_a_turn_that_leaves_registers_and_stores_elsewhere(where: str, right: bool) -> None:
    """From the third turn on a word of the thread's own is stored at a place that data says; the
    fourth one finds it, with registers as they were."""
    body = (
        ".local .align 16 .b8 own[128]; mov.u64 %rd10, own; mov.u32 %r7, 0;\n"
        "mov.u32 %r10, 64; mov.u32 %r11, 68; st.local.u32 [%rd10], 0;\n"
        "HEAD: ld.local.u32 %r8, [%rd10]; mul.lo.u32 %r8, %r8, 128;\n"
        "cvt.u64.u32 %rd7, %r8; add.s64 %rd7, %rd6, %rd7; st.global.u32 [%rd7], 1;\n"
        "cvt.u64.u32 %rd7, %r10; add.s64 %rd7, %rd10, %rd7; st.local.u32 [%rd7], 1;\n"
        f"mov.u32 %r8, 0; mov.u32 %r10, %r11; {where}; mov.u64 %rd7, 0; add.u32 %r7, %r7, 1;\n"
        "setp.lt.u32 %p3, %r7, %r5; @%p3 bra HEAD;\n"
    )
    assert is_proved(check(body)) is right


#: a lock that nobody gives back, taken by who stores between two attempts
LOCK = (
    "mov.u32 %r7, 0;\n@%p2 bra END;\n"
    "HEAD: st.global.u32 [%rd6], 1; add.u32 %r7, %r7, 1;\n"
    "{attempt}\nsetp.ne.u32 %p3, {result}, 0; @%p3 bra HEAD;\nEND: mov.u32 %r9, 1;\n"
)


def test_a_loop_that_others_end() -> None:
    atomic = "atom.global.cas.b32 %r8, [%rd5+65536], 0, 1;"
    assert not is_proved(check(LOCK.format(attempt=atomic, result="%r8")))
    counts = "red.global.add.u32 [%rd5+65536], 1; and.b32 %r8, %r5, %r7;"
    assert is_proved(check(LOCK.format(attempt=counts, result="%r8")))


def test_one_cta_that_goes_another_way_than_the_one_that_is_run() -> None:
    """100 CTAs of which one stores where its other warp does, {n} or none of them."""
    differs = "setp.eq.u32 %p4, %r8, {n}; selp.u32 {to}, 128, 0, %p4;\n"
    ways = {
        # by one way it is 0, by the other one as before
        "overwritten": differs.replace("{to}", "%r7") + (
            "@!%p2 bra ELSE;\nmov.u32 %r7, 0; st.global.u32 [%rd6+65536], 1; @%p3 bra END;\n"
            f"st.global.u32 [%rd6+65536], 2; bra.uni END;\nELSE: {STORES}END: mov.u32 %r9, 1;\n"
        ),
        # 0 by both ways in most of them
        "merged": differs.replace("{to}", "%r10") + (
            "mov.u32 %r7, 0;\n@!%p2 bra END;\nst.global.u32 [%rd6+65536], 1; @%p3 bra END;\n"
            f"mov.u32 %r7, %r10;\nEND: {STORES}"
        ),
        # the same by both ways
        "kept": differs.replace("{to}", "%r7") + (
            "@!%p2 bra END;\nst.global.u32 [%rd6+65536], 1; @%p3 bra END;\n"
            f"st.global.u32 [%rd6+65536], 2;\nEND: {STORES}"
        ),
        # it grows in each turn, in most of them by nothing
        "turns": differs.replace("{to}", "%r10") + (
            "mov.u32 %r7, 0; mov.u32 %r11, 0;\n"
            f"HEAD: {STORES}add.u32 %r7, %r7, %r10; add.u32 %r11, %r11, 1;\n"
            "setp.lt.u32 %p3, %r11, %r5; @%p3 bra HEAD;\n"
        ),
    }  # fmt: skip
    start = "and.b32 %r9, %r5, 4; setp.eq.u32 %p3, %r9, 0;\n"
    for name, body in ways.items():
        assert not is_proved(check(start + body.format(n=57), grid=100)), name
        assert is_proved(check(start + body.format(n=157), grid=100)), name
