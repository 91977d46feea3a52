"""Findings say in which turns of their loops those were who take part, skipped turns counted."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.ptx.test_check import FIRST, INIT, program
from tests.sim.timed import timed
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.findings.finding import Iteration, Participant
from tilesim.findings.sides import doing


@ts.kernel(warps=2)
def ring(k: Builder, *, turns: int = 40, at: int = -1, bug: str = "", tiles: int = 1) -> None:
    """Words through a ring of two; in one turn the consumer makes a mistake."""
    words = k.shared("words", ts.s32, (2,))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for slot in range(2):
            k.mbarrier.init(full[slot], 1)
            k.mbarrier.init(empty[slot], 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(tiles) as tile, k.loop(turns) as step:
        number = tile * turns + step
        k.mbarrier.wait(empty[number % 2], ((number // 2) & 1) ^ 1)
        k.mem.store(words[number % 2], 1)
        k.mbarrier.arrive(full[number % 2])
    with k.role("consumer", 1), k.elected(), k.loop(tiles) as tile, k.loop(10, 10 + turns) as i:
        value = k.var("value")
        number = tile * turns + i - 10
        wrong = (number).eq(at)
        k.mbarrier.wait(full[number % 2], (number // 2) & 1)
        if bug == "early":
            with k.if_(wrong):
                k.mbarrier.arrive(empty[number % 2])
        behind = 2 * wrong if bug == "outside" else 0
        k.mem.load(value, words[number % 2 + behind])
        with k.if_(wrong.eq(0) if bug in ("never", "early") else number >= 0):
            k.mbarrier.arrive(empty[number % 2])


def sides(report: ts.Report) -> dict[str, Participant]:
    """By role, the first participant of the first finding."""
    found: dict[str, Participant] = {}
    for p in report.findings[0].participants:
        found.setdefault(p.role, p)
    return found


def innermost(p: Participant) -> tuple[int | None, str, int | None]:
    """The number of the turn, and the variable's name and value."""
    turn: Iteration = p.iterations[-1]
    return turn.number, turn.variable, turn.value


@pytest.mark.parametrize(("turns", "at"), [(40, 20), (400, 300)])
def test_who_waits_for_ever_says_in_which_turn(turns: int, at: int) -> None:
    report = check(ring.build(turns=turns, at=at, bug="never"))
    assert report.rules == {"deadlock"}
    found = sides(report)
    assert innermost(found["producer"]) == (at + 3, "i_1", at + 2)
    assert innermost(found["consumer"]) == (at + 3, "i_3", at + 12)
    line = found["consumer"].iterations[-1].loc.line
    assert doing(found["consumer"]).endswith(
        f"in iteration 1 of the loop at :{line} (tile=0), {at + 3} of that at :{line} (i={at + 12})"
    )


@pytest.mark.parametrize(("bug", "rule"), [("early", "race"), ("outside", "out-of-bounds")])
def test_both_sides_of_a_race_and_misuse_say_their_turn(bug: str, rule: str) -> None:
    report = check(ring.build(turns=60, at=50, bug=bug))
    assert report.findings[0].rule == rule
    found = sides(report)
    assert innermost(found["consumer"])[::2] == (51, 60)
    if bug == "early":
        assert innermost(found["producer"])[::2] == (53, 52)


def skipped(program: ts.Program) -> int:
    """Instructions that a run leaves out."""
    return timed(program).stats.skipped


@pytest.mark.parametrize("bug", ["never", "early", "outside"])
def test_turns_that_are_skipped_count(bug: str) -> None:
    program = ring.build(turns=700, at=650, bug=bug)
    skipping, whole = check(program), check(program, skip=False)
    assert skipped(program) > 1000
    for one, other in zip(skipping.findings, whole.findings, strict=True):
        assert one == other
        pairs = zip(
            (*one.culprits, *one.participants), (*other.culprits, *other.participants), strict=True
        )
        assert all(a.iterations == b.iterations for a, b in pairs)
    assert any(p.iterations for p in skipping.findings[0].participants)


def test_those_who_wait_after_a_run_too_long_to_repeat() -> None:
    report = check(ring.build(turns=200_000, at=150_000, bug="never"))
    assert innermost(sides(report)["producer"]) == (150_003, "i_1", 150_002)


def test_turns_begin_again_with_every_turn_of_the_loop_around() -> None:
    report = check(ring.build(tiles=3, turns=5, at=7, bug="never"))
    producer = sides(report)["producer"]
    assert [(t.number, t.value) for t in producer.iterations] == [(2, 1), (5, 4)]


@ts.kernel(warps=1)
def counted(k: Builder, *, by: int = 3) -> None:
    """A loop without a variable, and one whose steps are known when it runs."""
    done = k.mbarriers("done")
    number, step = k.var("number", 0), k.var("step", by)
    with k.one_thread():
        k.mbarrier.init(done, 1)
        with k.while_(number < 4):
            with k.if_(number.eq(2)), k.loop(1, 100, step) as j, k.if_(j > 7):
                k.mbarrier.wait(done, 0)
            k.assign(number, number + 1)


def test_loops_without_a_variable_and_those_of_unknown_steps() -> None:
    report = check(counted.build())
    (waiter,) = report.findings[0].participants
    assert [(t.number, t.value) for t in waiter.iterations] == [(3, None), (4, 10)]


LOOP = """mov.u32 %r5, 0;
TURN: add.u32 %r5, %r5, 1; setp.ge.u32 %p3, %r5, 4;
@%p3 bra LAST;
@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];
LAST:
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r6;
@!%p1 bra WAIT;
xor.b32 %r6, %r6, 1; setp.lt.u32 %p2, %r5, 9;
@%p2 bra TURN;
"""


def test_loops_of_ptx() -> None:
    report = check(program(f"{INIT}mov.u32 %r6, 0;{LOOP}"))
    assert report.rules == {"deadlock"}
    (waiter,) = report.findings[0].participants
    (turn,) = waiter.iterations
    assert (turn.number, turn.loc.line - FIRST) == (4, 11)
    assert doing(waiter).endswith(f"in iteration 4 of the loop at :{turn.loc.line}")


def test_a_proof_knows_of_no_turns() -> None:
    report = check(ring.build())
    assert report.verdict == "proved"
    assert report.findings == ()
