"""Registers that an assignment may set in all lanes, and others that it must not."""

from __future__ import annotations

from tests.ptx.test_check import program, report
from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uniformity import private_registers

#: lane 3 goes on, the others wait at OUT, or go to ELSE
SPLIT = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; mov.u32 %r2, 5;\n@!%p1 bra {};\n"
#: in lanes in which %r2 is no longer 5
WRONG = "setp.ne.u32 %p2, %r2, 5; setp.ne.u32 %p3, %r1, 3; and.pred %p4, %p2, %p3;\n@%p4 trap;\n"


def private(body: str) -> frozenset[str]:
    return private_registers(graph_of(program(body)))


def test_what_one_way_sets_and_nobody_uses_behind_it() -> None:
    """%r2 is of one lane alone where that is all that uses it."""
    used = "".join(f"st.shared.u32 [smem+{at}], %r2;\n" for at in (0, 64, 128))
    alone = SPLIT.format("OUT").replace("mov.u32 %r2, 5;", "")
    assert "r2" in private(f"{alone}add.u32 %r2, %r1, 7;\n{used}OUT: bar.sync 0;\n")
    assert "r2" not in private(f"{SPLIT.format('OUT')}add.u32 %r2, %r1, 7;\n{used}OUT: {used}")


def test_what_the_other_way_mentions_as_well_is_not() -> None:
    two = SPLIT.format("ELSE") + "mov.u32 %r2, 7;\nst.shared.u32 [smem], %r2;\nbra OUT;\nELSE: "
    end = "OUT: bar.sync 0;\n"
    for what in ("st.shared.u32 [smem+4], %r2;\n", "mov.u32 %r2, 8;\n", "add.u32 %r2, %r2, 1;\n"):
        assert "r2" not in private(f"{two}{what}st.shared.u32 [smem+4], %r2;\n{end}")


def test_a_counter_of_a_loop_that_lanes_leave_apart() -> None:
    """%r3 ends each lane's own loop; the counter is used behind it, or is not."""
    loop = "mov.u32 %r3, %tid.x; mov.u32 %r2, 0;\nL: add.u32 %r2, %r2, 1;\n"
    loop += "setp.lt.u32 %p1, %r2, %r3;\n@%p1 bra L;\n"
    assert "r2" in private(f"{loop}bar.sync 0;\n")
    assert "r2" not in private(f"{loop}mul.lo.u32 %r4, %r3, 4; mov.u32 %r5, smem;"
                               "add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %r2;\n")  # fmt: skip


def test_one_that_an_instruction_with_a_guard_sets_is_not() -> None:
    body = SPLIT.format("OUT").replace("mov.u32 %r2, 5;", "")
    assert "r2" not in private(f"{body}@%p1 mov.u32 %r2, 7;\nst.shared.u32 [smem], %r2;\nOUT:\n")


def test_lanes_keep_what_they_use_later() -> None:
    """The lanes that wait have 5 in %r2, where they use it."""
    body = SPLIT.format("OUT") + "mov.u32 %r2, 7;\nst.shared.u32 [smem], %r2;\nOUT:\n"
    assert report(body + WRONG).verdict == "proved"
    assert report(body + WRONG.replace("%r2, 5", "%r2, 7")).verdict != "proved"
