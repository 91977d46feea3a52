"""Accesses of which data decides whether they are made: they are made, for what may race."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, lines, report
from tests.ptx.test_unknown import LOAD
from tilesim.checker import Report
from tilesim.ptx.launch import Contents, Pointer

TWO = (".param .u64 a", ".param .u64 b")
#: every thread loads its word of a, finds its word of b at %rd6, and asks whether that is below 7
SETUP = LOAD + (
    "mov.u32 %r8, %ctaid.x; mul.wide.u32 %rd8, %r8, 256;\n"
    "ld.param.u64 %rd5, [b]; cvta.to.global.u64 %rd5, %rd5;\n"
    "add.s64 %rd6, %rd5, %rd2; add.s64 %rd6, %rd6, %rd8; setp.lt.u32 %p2, %r5, 7;\n"
)
#: the line of what follows
NEXT = FIRST + 6
#: the word of the same lane of the other warp
OTHER = (
    "add.u32 %r6, %r4, 32; and.b32 %r6, %r6, 63; mul.wide.u32 %rd7, %r6, 4;\n"
    "add.s64 %rd7, %rd5, %rd7; add.s64 %rd7, %rd7, %rd8; ld.global.u32 %r7, [%rd7];\n"
)
GUARDED = "@%p2 st.global.u32 [%rd6], %r4;\n"
BRANCHES = (
    "@!%p2 bra ELSE; add.s64 %rd9, %rd6, 0; st.global.u32 [%rd9], 1; bra.uni END;\n"
    "ELSE: st.global.u32 [%rd6], 2;\nEND: mov.u32 %r9, 1;\n"
)


def check(
    body: str, *, warps: int = 2, grid: int = 1, given: tuple[int, ...] = (), nbytes: int = 1 << 20
) -> Report:
    known = Contents("u32", given) if given else None
    values = (Pointer("a", 4096, 0, known), Pointer("b", nbytes))
    return report(SETUP + body, params=TWO, values=values, warps=warps, grid=grid)


def is_open(found: Report, *at: int) -> bool:
    """Whether nothing is proved, as one of these lines needs what nobody knows, or does what is
    wrong if that is so."""
    needs = "depends on a value that is not known: the contents of a, which ld reads"
    places = [f"k.ptx:{NEXT + line}" for line in at]
    said = [reason for reason in found.reasons if needs in reason]
    return found.verdict == "bounded" and any(
        reason.split(" at ", 1)[1].startswith(place) for reason in said for place in places
    )


@pytest.mark.parametrize("grid", [1, 3, 100])
@pytest.mark.parametrize("store", [GUARDED, BRANCHES], ids=["guard", "arms"])
def test_who_waits_for_what_may_be_stored(store: str, grid: int) -> None:
    """Nobody knows whether the word is stored: it is read behind a barrier, or without one."""
    assert check(store + "bar.sync 0;\n" + OTHER, grid=grid).verdict == "proved"
    found = check(store + OTHER, grid=grid)
    assert is_open(found, 0, 1, 2, 4)
    assert found.reasons[0].startswith("race at k.ptx:")
    assert "if data allows it: k (" in found.reasons[0]
    # each of the words is 5: the guard holds
    known = check(GUARDED + OTHER, given=(5,) * 64)
    assert known.rules == {"race"}
    assert set(lines(known)) == {NEXT - FIRST, NEXT - FIRST + 2}


def test_a_word_that_may_be_loaded() -> None:
    """The arms of a branch load into one register; another warp has stored there, or has not."""
    load = "@!%p2 bra END; ld.global.u32 %r7, [%rd7];\nEND: add.u32 %r7, %r7, 1;\n"
    where = "mov.u32 %r7, 0; " + OTHER.replace("ld.global.u32 %r7, [%rd7];", "")
    store = "st.global.u32 [%rd6], 1;\n"
    assert check(store + "bar.sync 0;\n" + where + load).verdict == "proved"
    assert is_open(check(store + where + load), 0, 3)
    # what it loads is known to nobody
    steers = "setp.eq.u32 %p3, %r7, 1;\n@%p3 bar.sync 1;"
    assert is_open(check(where + load + steers), 5)


def test_what_may_be_stored_is_not_known() -> None:
    """A word that is 4 at first, and is looked at behind a store that may have been made."""
    body = (
        "st.global.u32 [%rd6], 4;\n{0}\nld.global.u32 %r6, [%rd6];\n"
        "setp.ne.u32 %p3, %r6, 4;\n@%p3 bar.sync 1;"
    )
    assert check(body.format("")).verdict == "proved"
    assert is_open(check(body.format("@%p2 st.global.u32 [%rd6], 4;")), 4)


def test_a_word_of_another_cta() -> None:
    """Each CTA stores to 256 bytes of its own, and loads a word of nobody, or of the first."""
    load = "ld.global.u32 %r6, [%rd5+{0}];\n"
    assert check(GUARDED + load.format(1 << 19), grid=3).verdict == "proved"
    assert check(GUARDED + load.format(128), grid=3).verdict == "bounded"
    assert check(GUARDED + load.format(128), grid=3, given=(9,) * 64).verdict == "proved"


def test_a_race_between_others_fails() -> None:
    """Both warps store to one word, whatever data says."""
    found = check(GUARDED + "st.global.u32 [%rd5+4096], %r4;\n")
    assert found.rules == {"race"}
    assert set(lines(found)) == {NEXT - FIRST + 1}


@pytest.mark.parametrize("mine", ["", "mov.u32 %r6, 4096; "])
def test_an_arm_does_not_see_what_the_other_one_sets(mine: str) -> None:
    """Arms are gone through one after the other: each begins with what registers held before."""
    body = (
        "mov.u32 %r6, 4096; shl.b32 %r7, %r4, 2;\n"
        "@!%p2 bra ELSE; mov.u32 %r6, 0; st.global.u32 [%rd6], 1; bra.uni END;\n"
        "ELSE: {0}add.u32 %r7, %r7, %r6; cvt.u64.u32 %rd7, %r7; add.s64 %rd7, %rd5, %rd7;\n"
        "st.global.u32 [%rd7], 1;\nEND: mov.u32 %r9, 1;\n"
        "xor.b32 %r8, %r4, 33; mul.wide.u32 %rd8, %r8, 4; add.s64 %rd8, %rd5, %rd8;\n"
        "ld.global.u32 %r8, [%rd8+{1}];"
    )
    assert check(body.format(mine, 8192)).verdict == "proved"
    assert is_open(check(body.format(mine, 4096)), 3, 5)


def test_an_arm_that_loads_what_the_other_one_stores() -> None:
    """A lane goes one way: behind the other one it finds 4, and stores where all others do."""
    body = (
        "st.global.u32 [%rd6], 4;\nadd.u32 %r7, %r4, 1;\n"
        "@!%p2 bra ELSE; st.global.u32 [%rd6], 5; bra.uni END;\n"
        "ELSE: ld.global.u32 %r6, [%rd6]; sub.u32 %r6, %r6, 4; mul.lo.u32 %r6, %r6, %r7;\n"
        "mul.wide.u32 %rd7, %r6, 4; add.s64 %rd7, %rd5, %rd7; st.global.u32 [%rd7+4096], 1;\n"
        "END: mov.u32 %r9, 1;"
    )
    assert is_open(check(body), 4)


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r1, smem; @%p2 st.shared.u32 [%r1], %r4;",
        "@%p2 bar.sync 0;",
        "@!%p2 bra END; bar.warp.sync -1;\nEND: mov.u32 %r6, 1;",
        "@%p2 atom.global.add.u32 %r6, [%rd6], 1; st.global.u32 [%rd6+4096], %r6;",
        "@%p2 st.release.gpu.global.u32 [%rd6], 1;",
        "@%p2 st.global.u32 [%rd6+1], 1;",
    ],
)
def test_what_others_may_see_in_time_has_to_be_known(body: str) -> None:
    assert is_open(check(body), 0)


def test_reductions_that_nobody_looks_at() -> None:
    assert check("@%p2 red.global.add.u32 [%rd5], 1;", grid=3).verdict == "proved"
    looked = "@%p2 red.global.add.u32 [%rd6], 1; ld.relaxed.gpu.global.u32 %r6, [%rd6];\n"
    assert check(looked).verdict == "proved"
    steers = check(looked + "setp.eq.u32 %p3, %r6, 1;\n@%p3 bar.sync 1;")
    assert steers.verdict == "bounded"
    stored = "@%p2 red.global.add.u32 [%rd5+4], 1;\nst.global.u32 [%rd6], 1;"
    assert is_open(check(stored), 1)


@pytest.mark.parametrize("grid", [1, 3, 100])
def test_the_last_tile_ends_where_data_says(grid: int) -> None:
    """Lanes beyond the end of the buffer store nothing, if data is right; said in what is covered.
    Where no data decides, they are out of bounds."""
    found = check(GUARDED, grid=grid, nbytes=256 * grid - 64)
    assert found.verdict == "proved"
    assert "in-bounds" in {one.name for one in found.leanings}
    assert "in-bounds" not in {one.name for one in check(GUARDED, grid=grid).leanings}
    assert check("st.global.u32 [%rd6], 1;", grid=grid, nbytes=256 * grid - 64).rules == {
        "out-of-bounds"
    }


#: what an acquiring load has found
USE = "setp.eq.u32 %p3, %r7, 9; @%p3 st.global.u32 [%rd6 + 65536], 1;\n"


@pytest.mark.parametrize("sem", ["release", "acq_rel"])
@pytest.mark.parametrize("how", ["red.{sem}.gpu.global.max.s32 [%rd6], %r4;",
                                 "atom.{sem}.gpu.global.max.s32 %r9, [%rd6], %r4;"])  # fmt: skip
def test_what_an_atomic_releases_matters_if_somebody_looks(how: str, sem: str) -> None:
    """Triton's atomics release and acquire unless that is turned off, and those on the largest of
    floating-point numbers are two, each made as the sign has it."""
    atomic = f"@%p2 {how.format(sem=sem)}\n"
    assert check(atomic, grid=3).verdict == "proved"
    found = check(atomic + "ld.acquire.gpu.global.u32 %r7, [%rd5];\n" + USE, grid=3)
    assert is_open(found, 0)
