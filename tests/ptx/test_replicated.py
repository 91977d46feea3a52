"""Several warps that store the same data, which nobody knows, to the same shared memory."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

START = (
    "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; mov.u32 %r4, smem; "
    "add.u32 %r5, %r4, %r3; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; shl.b32 %r6, %r1, 2;\n"
)
LOAD = "cvt.u64.u32 %rd3, {at}; add.u64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4];\n"
COMPUTE = "ex2.approx.f32 %f2, %f1; fma.rn.f32 %f3, %f2, %f1, %f2;\n"
STORE = "st.shared.f32 [%r5], %f3;\n"
END = "bar.sync 0;\nld.shared.f32 %f4, [%r5]; cvt.u64.u32 %rd5, %r6; add.u64 %rd6, %rd2, %rd5; " \
    "st.global.f32 [%rd6], %f4;\n"  # fmt: skip
SAME = LOAD.format(at="%r3")
OWN = LOAD.format(at="%r6")


def run(*parts: str, strict: Strict = "practice") -> Report:
    return report(
        START + "".join(parts) + END, warps=2, params=(".param .u64 x", ".param .u64 y"),
        values=(Pointer("x", 256), Pointer("y", 256)), strict=strict,
    )  # fmt: skip


def test_two_warps_store_what_they_made_of_the_same() -> None:
    assert run(SAME, COMPUTE, STORE).verdict == "proved"
    assert run(SAME, COMPUTE, STORE, strict="ptx").rules == {"race"}
    wrong = run(OWN, COMPUTE, STORE)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [3]


SPARED = "mov.b32 %r20, %f3; shfl.sync.bfly.b32 %r21, %r20, 1, 31, -1; mov.b32 %f3, %r21;\n"
#: what both have stored in shared memory before, and what only one has
KEPT = "add.u32 %r7, %r5, 512;\nst.shared.f32 [%r7], %f1;\nbar.sync 0;\nld.shared.f32 %f5, [%r7];\n"
MADE = "ex2.approx.f32 %f3, %f5;\n"


def test_what_was_loaded_from_shared_memory() -> None:
    assert run(SAME, KEPT, MADE, STORE).verdict == "proved"
    own = KEPT.replace("add.u32 %r7, %r5, 512", "add.u32 %r7, %r4, %r6; add.u32 %r7, %r7, 512")
    wrong = run(OWN, own, MADE, STORE)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [7]


def test_what_has_been_overwritten_in_between() -> None:
    """The second warp waits until the first one has changed what both load."""
    change = (
        "setp.ge.u32 %p1, %r1, 32; @%p1 bar.sync 1, 64;\nld.shared.f32 %f5, [%r7];\n"
        "@!%p1 st.shared.f32 [%r7], %f2;\n@!%p1 bar.sync 1, 64;\n"
    )
    before = KEPT.rpartition("ld.shared")[0]
    start = SAME + "ex2.approx.f32 %f2, %f1;\n" + before
    wrong = run(start, change, MADE, STORE)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [11]
    harmless = change.replace("@!%p1 st.shared.f32 [%r7]", "@!%p1 st.shared.f32 [%r7 + 256]")
    assert (
        run(SAME, "ex2.approx.f32 %f2, %f1;\n", before, harmless, MADE, STORE).verdict == "proved"
    )


@pytest.mark.parametrize(
    "made",
    [
        "cvt.rn.f32.u32 %f3, %r1;\n",
        "mul.f32 %f3, %f1, %f2;\n",
        "fma.rn.f32 %f3, %f1, %f1, %f1;\n@%p2 mov.f32 %f3, %f2;\n",
    ],
    ids=["the thread's number", "a register that nothing sets", "what only some lanes set"],
)
def test_data_of_which_it_is_not_known_to_be_the_same(made: str) -> None:
    assert run(SAME, "setp.eq.u32 %p2, %r2, 3;\n", made, STORE).verdict != "proved"


def test_two_instructions_are_not_looked_at() -> None:
    arms = "setp.lt.u32 %p1, %r1, 32; @%p1 bra A;\n" + STORE + "bra B;\nA: " + STORE + "B:\n"
    assert run(SAME, COMPUTE, arms).rules == {"race"}


def test_lanes_that_change_places() -> None:
    """Data of other lanes counts as the same if the whole warps agree."""
    assert run(SAME, COMPUTE, SPARED.replace("%f3, %r21", "%f6, %r21"), STORE).verdict == "proved"


#: a register that has decided something, and then holds data
AGAIN = "add.u32 %r9, %r2, 1; setp.gt.u32 %p1, %r9, 100; @%p1 ret;\n"
REUSED = [
    "ex2.approx.f32 %f2, %f1; mov.b32 %r10, %f2; xor.b32 %r9, %r10, 5;\n",
    "ex2.approx.f32 %f2, %f1; mov.b32 %r10, %f2; not.b32 %r9, %r10;\n",
    "mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r9, %r10, 1, 31, -1;\n",
]


@pytest.mark.parametrize("made", REUSED)
def test_a_register_that_has_decided_before(made: str) -> None:
    """What it holds then is not computed: it was taken for a number that all warps have."""
    store = STORE.replace("%f3", "%r9")
    assert run(SAME, AGAIN, made, store).verdict == "proved"
    wrong = run(OWN, AGAIN, made, store)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [4]


def test_what_is_carried_is_an_operand() -> None:
    """Both warps add one to what both have loaded, with the carry of a sum of something else."""
    carried = (
        "mov.b32 %r20, %f1; add.cc.u32 %r21, %r20, %r20; addc.u32 %r22, %r20, 0;\n"
        "mov.b32 %f3, %r22;\n"
    )
    two = (
        SAME
        + "mov.f32 %f5, %f1;\n{}"
        + carried.replace("addc.u32 %r22, %r20", "mov.b32 %r20, %f5; addc.u32 %r22, %r20")
    )
    assert run(two.format(SAME), STORE).verdict == "proved"
    wrong = run(two.format(OWN), STORE)
    assert wrong.rules == {"race"}
