"""Control flow that no structured program has: what the lanes of a warp do, and where they meet."""

from __future__ import annotations

from textwrap import dedent, indent

import numpy as np
import pytest

from tilesim import check
from tilesim.ir.mir import Mir
from tilesim.ir.text.mir import parse, to_text
from tilesim.sim.machine.simulate import simulate

LANES = np.arange(32)


def program(code: str, *, warps: int = 1) -> Mir:
    """MIR with registers x and y, tensors out and met with an element per thread, a barrier."""
    roles = ", ".join(f'"warp {w}"' for w in range(warps))
    head = f"""
        mir 2

        kernel flow: target=sm_90a, warps={warps}, grid={{1, 1, 1}}
        global out: s32, {{{32 * warps}}}
        global met: u32, {{{32 * warps}}}
        mbarriers bar: 1
        var x
        var y
        var mask: u32

        code {{
            roles {roles}
            in role "" warps 0..{warps - 1}
        """
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    numbered = "\n".join(f"{n}: {line}" for n, line in enumerate(lines))
    text = dedent(head).strip() + "\n" + indent(numbered, "    ") + "\n}\n"
    mir = parse(text)
    assert parse(to_text(mir)) == mir
    return mir


def results(code: str) -> tuple[list[int], list[int]]:
    """What the lanes store to out and, where they meet, which lanes they are."""
    run = simulate(program(code))
    assert not run.findings
    return run.outputs["out"].tolist(), run.outputs["met"].tolist()


END = """
    st out[4 * (%lane_id)], x
    activemask mask
    st met[4 * (%lane_id)], mask
"""
ALL = [0xFFFFFFFF] * 32
DATA, FLAG = "st met[4 * (0)], 1", "st out[4 * (0)], 1, sem=release, scope=gpu"


def test_a_loop_with_two_entries() -> None:
    """Even lanes come in at the top, odd ones in the middle."""
    out, met = results(
        """
        mov x, 0
        branch 4, cond=%lane_id % 2, sense=true
        join
        mov x, x + 1
        join
        mov x, x + 10
        branch 2, cond=x < 30, sense=true
        join
        """
        + END
    )
    assert out == [32 if lane % 2 else 33 for lane in range(32)]
    assert met == ALL


def test_a_loop_with_two_exits() -> None:
    """Lanes leave at the head after some turns, or in the middle to another place."""
    out, met = results(
        """
        mov x, 0
        branch 7, cond=x < %lane_id % 4, sense=false
        branch 5, cond=%lane_id > 29, sense=true
        mov x, x + 1
        branch 1
        mov x, 100
        branch 8
        mov x, x + 50
        join
        """
        + END
    )
    assert out == [100 if n > 29 else 50 + n % 4 for n in range(32)]
    assert met == ALL


def test_a_table_of_targets() -> None:
    out, met = results(
        """
        mov x, 0
        switch %lane_id % 4, {2, 4, 6, 7}
        mov x, 10
        branch 7
        mov x, 20
        branch 7
        mov x, 30
        join
        """
        + END
    )
    assert out == [(10, 20, 30, 0)[lane % 4] for lane in range(32)]
    assert met == ALL


def test_an_index_that_the_table_does_not_have() -> None:
    (finding,) = simulate(program("switch %lane_id, {1, 1}\nexit")).findings
    assert "2 targets" in finding.message


@pytest.mark.parametrize(("other", "verdict"), [("mov y, 1", "proved"), (FLAG, "bounded")])
def test_which_target_of_a_table_comes_first_is_open_if_several_synchronise(
    other: str, verdict: str
) -> None:
    report = check(
        program(
            f"""
            branch 6, cond=%thread_id < 2, sense=false
            switch %thread_id, {{2, 4}}
            st out[4 * (1)], 1, sem=release, scope=gpu
            branch 5
            {other}
            join
            join
            """
        )
    )
    assert report.verdict == verdict
    assert all("which side of a lane-divergent branch" in r for r in report.reasons[:1])


@pytest.mark.parametrize(
    ("word", "rules"), [("out[4 * (0)]", set()), ("out[4 * (1)]", {"deadlock"})]
)
def test_sides_of_a_branch_that_both_synchronise_wait_for_each_other(
    word: str, rules: set[str]
) -> None:
    """Most lanes poll a word that another one stores, or does not."""
    report = check(
        program(
            f"""
            branch 4, cond=%lane_id == 2, sense=true
            ld x, out[4 * (0)], sem=acquire, scope=gpu
            branch 1, cond=x == 0, polls=true
            branch 5
            st {word}, 1, sem=release, scope=gpu
            join
            """
        )
    )
    assert report.rules == rules


@pytest.mark.parametrize("guard", [True, False], ids=["guard", "branch"])
def test_some_lanes_return_early(guard: bool) -> None:
    early = "if (%lane_id < 5) exit" if guard else "branch 12, cond=%lane_id < 5, sense=true"
    out, met = results(
        f"""
        mov x, 1
        {early}
        branch 4, cond=%lane_id < 9, sense=true
        mov x, 2
        join
        """
        + END
        + "join\n" * 4
    )
    assert out == [0] * 5 + [1] * 4 + [2] * 23
    assert met == [0] * 5 + [0xFFFFFFE0] * 27


def test_the_lanes_that_are_left_are_all_that_a_barrier_waits_for() -> None:
    """Half a warp ends; the aligned barrier needs those that live."""
    code = "branch 3, cond=%lane_id < 16, sense=true\nbarrier.sync 0\nst out[4 * (%thread_id)], 1"
    assert check(program(code, warps=2)).verdict == "proved"


def test_code_that_is_out_of_line() -> None:
    """The rare case was written behind the end; its lanes come back before the others go on."""
    out, met = results(
        """
        mov x, 1
        branch 7, cond=%lane_id == 3, sense=true
        join
        """
        + END
        + """
        exit
        mov x, 9
        branch 2
        """
    )
    assert out == [9 if lane == 3 else 1 for lane in range(32)]
    assert met == ALL


def test_a_way_back_that_some_lanes_take() -> None:
    """A loop that tests behind its body."""
    out, met = results(
        """
        mov x, 0
        mov x, x + 1
        branch 1, cond=x < %lane_id, sense=true
        join
        """
        + END
    )
    assert out == [max(1, lane) for lane in range(32)]
    assert met == ALL


def test_lanes_that_leave_a_loop_wait_for_those_that_stay() -> None:
    """``break`` inside a branch with another side: the others go on in the loop together."""
    out, met = results(
        """
        mov x, 0
        branch 12, cond=x < 8, sense=false
        branch 6, cond=%lane_id < 16, sense=false
        mov y, 1
        branch 12, cond=x > 2 and %lane_id < 4, sense=true
        branch 7
        mov y, 2
        join
        activemask mask
        st met[4 * (%lane_id)], mask
        mov x, x + y
        branch 1
        join
        st out[4 * (%lane_id)], x
        """
    )
    assert out == [3] * 4 + [8] * 28
    assert met == [0xFFFFFFFF] * 4 + [0x0000FFF0] * 12 + [0xFFFFFFF0] * 16


def spinning(*stores: str, until: int = 1) -> Mir:
    """Warp 0 stores; warp 1 waits for the flag, tests behind its poll, and loads the data."""
    return program(
        f"""
        branch 5, cond=%thread_id == 0, sense=false
        {stores[0]}
        {stores[1]}
        join
        exit
        branch 4, cond=%thread_id == 32, sense=false
        ld x, out[4 * (0)], sem=acquire, scope=gpu
        branch 6, cond=x < {until}, polls=true
        ld y, met[4 * (0)]
        """,
        warps=2,
    )


def test_a_loop_that_polls_before_it_tests_is_a_wait() -> None:
    assert check(spinning(DATA, FLAG)).verdict == "proved"


@pytest.mark.parametrize(
    ("mir", "rule", "lines"),
    [
        (spinning(FLAG, DATA), "race", {16, 22}),
        (spinning(DATA, FLAG, until=2), "deadlock", {21}),
    ],
    ids=["data after the flag", "a value that is never stored"],
)
def test_what_such_a_loop_does_not_order_is_found(mir: Mir, rule: str, lines: set[int]) -> None:
    report = check(mir)
    assert report.rules == {rule}
    (finding,) = report.findings
    assert {p.loc.line for p in finding.participants} == lines
