"""Words that only count and waits for them: what one run proves, and what it must not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tilesim as ts
from tests.sim.counting import Add, Fence, Meet, Model, Set, Spin, Touch, Warps, sample, translate
from tilesim import Builder, kernel
from tilesim.analysis.cfg import FlowGraph
from tilesim.arith.types import DType, s32, u32
from tilesim.ir.expr import Binary
from tilesim.ir.ops.scalar import AtomicSem
from tilesim.ir.program import Program, Role, While, walk
from tilesim.transforms import word_waits
from tilesim.transforms.lower import lower

W, R = Touch(0, write=True), Touch(0, write=False)
#: takes its time in the timed run; the reduction is where another warp may go on
LATE = (Add(1, 1, release=False), *(Touch(1, write=False),) * 12)


def verdict(program: Program) -> str:
    """What one run says."""
    return ts.check(program, schedules=0, budget=0).verdict


#: right in every schedule, and proved
RIGHT: dict[str, Warps] = {
    "message": ((W, Add(0)), (Spin(0, 1), R)),
    "message by a store": ((W, Set(0, 1)), (Spin(0, 1, "equal"), R)),
    "message by fences": ((W, Fence(), Add(0, 1, False)), (Spin(0, 1, "least", False), Fence(), R)),
    "until it is not what it was": ((W, Add(0)), (Spin(0, 0, "other"), R)),
    "all of several": ((Touch(0, True), Add(0)), (Touch(1, True), Add(0)),
                       (Spin(0, 2), R, Touch(1, False))),
    "amounts": ((Add(0, 2),), (W, Add(0, 3)), (Spin(0, 5), R)),
    "a chain of two": ((W, Add(0)), (Spin(0, 1), W, Add(0)), (Spin(0, 2), R)),
    "turns": ((W, Set(0, 1), Spin(1, 1), R, Set(0, 2)), (Spin(0, 1), W, Set(1, 1), Spin(0, 2), W)),
    "barrier of all, twice": (
        (W, Add(0), Spin(0, 2), R, Add(0), Spin(0, 4), W),
        (Add(0), Spin(0, 2), R, Add(0), Spin(0, 4)),
    ),
    "stored again without a release": (
        (W, Set(0, 1), *LATE, Set(0, 2, "relaxed")), (Spin(0, 1), R),
    ),
    "growing stores": ((W, Set(0, 1), W, Set(1, 1), Set(0, 3)), (Spin(0, 2), W)),
    "passed on by another": (
        (W, Set(0, 1)), (Spin(0, 1), Set(0, 2)), (Spin(0, 1), R),
    ),
    "known without the wait": (
        (W, Add(0), Meet()), (Meet(), Add(0)), (Meet(), *LATE, Spin(0, 1), R),
    ),
    "reset between rounds": (
        (Add(0), Spin(0, 2), Meet(), Set(0, 0, "weak"), Meet(), W, Add(0)),
        (Add(0), Spin(0, 2), Meet(), Meet(), Spin(0, 1), R),
    ),
    "initialised": ((Set(0, 0, "weak"), Meet(), W, Add(0)), (Meet(), Spin(0, 1), R)),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_proved(name: str) -> None:
    assert Model(RIGHT[name]).failures(50_000) == set()
    assert verdict(translate(RIGHT[name])) == "proved"


#: wrong in the very first run
FAILING: dict[str, tuple[Warps, str]] = {
    "a value that comes and goes": (((Add(0), W, Add(0)), (*LATE, Spin(0, 1, "other"), R)), "race"),
    "relaxed increment": (((W, Add(0, 1, False)), (Spin(0, 1), R)), "race"),
    "fence missing after": (
        ((W, Fence(), Add(0, 1, False)), (Spin(0, 1, "least", False), R)), "race"),
    "fence missing before": (
        ((W, Add(0, 1, False)), (Spin(0, 1, "least", False), Fence(), R)), "race"),
    "too few": (((W, Add(0)), (Add(0),), (*LATE, Spin(0, 0), R)), "race"),
    "too many": (((W, Add(0)), (Spin(0, 2), R)), "deadlock"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_wrong_programs_fail(name: str) -> None:
    warps, rule = FAILING[name]
    assert rule in Model(warps).failures(50_000)
    assert rule in ts.check(translate(warps)).rules


#: without this clause one run proves a program that fails
NEEDED: dict[str, Warps] = {
    "A for increments after the wait": ((W, Add(0)), (Spin(0, 1), R), (*LATE, Add(0))),
    "A for increments before the wait": (
        (W, Add(0)), (*LATE, *LATE, Spin(0, 1), R), (*LATE, Add(0)),
    ),
    "A in the second round": ((Add(0), Spin(0, 2), R), (W, Add(0)), (*LATE, Add(0), Spin(0, 3))),
    "no part reaches the value": (
        (*LATE, Add(0, 2)), (W, Add(0, 1)), (*LATE, *LATE, Spin(0, 2), R),
    ),
    "C": ((Add(0), *LATE, Add(0)), (Spin(0, 1, "equal"),)),
    "what is learned": ((Add(0),), (W, Spin(0, 1), Add(0)), (*LATE, *LATE, *LATE, Spin(0, 1), R)),
    "C for a word that shrinks": ((Add(0), *LATE, Add(0, -1)), (Spin(0, 1),)),
    "stores come in one order": ((Set(0, 1),), (*LATE, Set(0, 2)), (Spin(0, 2, "equal"),)),
    "later stores release as much": (
        (W, Set(0, 1)), (Spin(0, 1, "least", False), *LATE, Set(0, 2, "relaxed")), (Spin(0, 1), R),
    ),
    "and so do those of others": (
        (W, Set(0, 1)), (Spin(0, 1, "least", False), *LATE, Set(0, 2)), (Spin(0, 1), R),
    ),
    "a reset comes after all waits": ((Add(0), *LATE, Set(0, 0)), (Spin(0, 1),)),
    "and before all increments": (
        (Add(0), Spin(0, 2), Meet(), Set(0, 0, "relaxed"), Spin(0, 1)),
        (Add(0), Spin(0, 2), Meet(), *LATE, Add(0)),
    ),
    "and before all waits": (
        (Set(0, 1), Meet(), Set(0, 0), W, Add(0)), (Meet(), *LATE, Spin(0, 1), R),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_every_clause_is_needed(name: str) -> None:
    assert Model(NEEDED[name]).failures(50_000)
    assert verdict(translate(NEEDED[name])) != "proved"


# ------------------------------------------------------------------ which loops are waits


@kernel(warps=2)
def handover(k: Builder, *, use: str = "", goal: int = 1) -> None:
    """Warp 0 stores data and counts; warp 1 waits, in one way or another."""
    x, y = k.tensor("x", s32, (2,)), k.tensor("y", s32, (2,))
    seen, got = k.var("seen", 0), k.var("got", 0)
    with k.role("writer", 0), k.elected():
        k.mem.store(y[0], 1)
        k.mem.atomic(x[0], "add", 1, sem="release")
        if use == "second":
            k.mem.atomic(x[0], "add", 1, sem="release")
        if use == "stale":
            k.mem.atomic(x[1], "add", 1, sem="release")
            k.mem.store(y[1], 1)
    with k.role("reader", 1), k.elected():
        if use == "before":
            k.mem.load(seen, x[0], sem="acquire", scope="gpu")
        with k.while_(seen < goal):
            k.mem.load(seen, x[0], sem="acquire", scope="gpu")
            if use == "writes":
                k.mem.store(y[1], seen)
        k.mem.load(got, y[0])
        if use == "second":
            with k.if_(seen > 1):
                k.mem.load(got, y[1])
        if use == "stale":
            with k.while_(seen < 1):
                k.mem.load(seen, x[1], sem="acquire", scope="gpu")
            k.mem.load(got, y[1])
        if use == "again":
            k.mem.load(got, x[0], sem="relaxed", scope="gpu")
        if use == "weak":
            k.mem.load(got, x[0])


@pytest.mark.parametrize("use", ["", "before"])
def test_a_loop_that_only_polls_is_a_wait(use: str) -> None:
    assert verdict(handover.build(use=use)) == "proved"


@pytest.mark.parametrize("use", ["second", "writes", "again"])
def test_what_is_loaded_must_not_be_used(use: str) -> None:
    assert verdict(handover.build(use=use)) == "bounded"


def test_a_flag_left_from_another_wait_passes_at_once() -> None:
    """The second loop makes no trip, whatever is in x[1]."""
    assert verdict(handover.build(use="stale")) == "failed"


def test_register_in_use_is_not_certified() -> None:
    assert verdict(handover.build(use="second")) == "bounded"


def test_an_instruction_in_two_loops_is_two_waits() -> None:
    """A pass that copies a loop may leave its poll one object, with another condition."""
    program = handover.build()
    (loop,) = (s for s in walk(program.body) if isinstance(s, While) and s.body)
    assert isinstance(loop.cond, Binary)
    other = replace(loop, cond=loop.cond.lhs < 7)
    role = Role(name="other", warps=(0,), body=(other,))
    found = word_waits.word_waits(FlowGraph(lower(replace(program, body=(*program.body, role)))))
    assert [(s.ends.spans(()), s.kept) for s in found.values()] == [
        (((1, 1 << 31),), False), (((7, 1 << 31),), False),
    ]  # fmt: skip


def test_what_is_there_at_launch_acquires_nothing() -> None:
    program = handover.build()
    assert "with x zero at the start" in ts.check(program).covers
    report = ts.check(program, inputs={"x": np.array([1, 0])})
    assert report.rules == {"race"}


@kernel(warps=2)
def wide(k: Builder, *, goal: int = 32, value: int = 1, type: DType = s32) -> None:
    """32 lanes count; another warp waits for some or all of them."""
    x, y, seen = k.tensor("x", type, (1,)), k.tensor("y", s32, (32,)), k.var("seen", 0)
    with k.role("writers", 0):
        k.mem.store(y[k.lane_id], 1)
        k.mem.atomic(x[0], "add", value, sem="release")
    with k.role("reader", 1):
        with k.elected(), k.while_(seen < goal):
            k.mem.load(seen, x[0], sem="acquire", scope="gpu")
        k.sync_warp()
        k.mem.load(seen, y[k.lane_id])


def test_lanes_count_one_by_one() -> None:
    assert verdict(wide.build()) == "proved"
    assert verdict(wide.build(goal=31)) == "failed"


@kernel(warps=4)
def lane_waits(k: Builder, *, goal: int = 1) -> None:
    """Lane i of warp 3 waits for x[i]; x[0] is raised after both increments of x[1], relaxed."""
    x, y, z = (k.tensor(name, s32, (2,)) for name in "xyz")
    seen, got = k.var("seen", 0), k.var("got", 0)
    with k.role("first", 0), k.elected():
        k.mem.atomic(x[1], "add", 1, sem="release")
    with k.role("second", 1), k.elected():
        with k.while_(seen < 1):
            k.mem.load(seen, x[1], sem="acquire", scope="gpu")
        k.mem.store(y[0], 1)
        k.mem.atomic(x[1], "add", 1, sem="release")
    with k.role("third", 2), k.elected():
        with k.while_(seen < 2):
            k.mem.load(seen, x[1], sem="relaxed", scope="gpu")
        k.mem.atomic(x[0], "add", 1, sem="relaxed")
    with k.role("reader", 3):
        with k.if_(k.lane_id < 2):
            k.fence.memory("acq_rel", scope="cta")
            for _ in range(40):
                k.mem.load(got, z[0])
            k.fence.memory("acq_rel", scope="cta")
            k.assign(got, 1 if goal == 1 else k.lane_id + 1)
            with k.while_(seen < got):
                k.mem.load(seen, x[k.lane_id], sem="acquire", scope="gpu")
        with k.elected():
            k.mem.load(got, y[0])


def test_lanes_wait_for_words_of_their_own() -> None:
    """What one lane comes to know says nothing about when another one has looked."""
    assert verdict(lane_waits.build(goal=2)) == "proved"
    assert ts.check(lane_waits.build()).rules == {"race"}


@pytest.mark.parametrize("type", [s32, u32])
def test_a_counter_must_not_wrap_around(type: DType) -> None:
    """2 ** 31 is negative in a signed register, which a poll may use for either type."""
    most = (1 << 26) - 1
    assert verdict(wide.build(value=most, goal=32 * most, type=type)) == "proved"
    wrapped = ts.check(wide.build(value=1 << 26, goal=31 << 26, type=type))
    assert wrapped.verdict == "failed"
    assert wrapped.rules == {"deadlock"}


@kernel(warps=3)
def lock(k: Builder, *, form: str = "cas", sem: AtomicSem = "acq_rel") -> None:
    """A message whose reader polls by atom.cas, which leaves the flag as it is, or takes it."""
    x, y = k.tensor("x", s32, (1,)), k.tensor("y", s32, (1,))
    got = k.var("got", 0)
    with k.role("writer", 0), k.elected():
        k.mem.store(y[0], 1)
        if form == "exchange":
            k.mem.atomic(x[0], "exch", 1, sem=sem, scope="gpu")
        else:
            k.mem.store(x[0], 1, sem="release", scope="gpu")
    with k.role("reader", 1), k.elected():
        with k.while_(got.ne(1)):
            value = 2 if form == "takes" else 1
            k.mem.atomic(x[0], "cas", value, compare=1, result=got, sem=sem, scope="gpu")
        k.mem.load(got, y[0])


def test_a_cas_that_changes_nothing_is_a_poll() -> None:
    assert verdict(lock.build()) == "proved"
    assert verdict(lock.build(form="takes")) == "bounded"
    assert ts.check(lock.build(sem="relaxed")).rules == {"race"}


def test_an_exchange_of_which_nobody_uses_the_result_is_a_store() -> None:
    assert verdict(lock.build(form="exchange")) == "proved"
    assert ts.check(lock.build(form="exchange", sem="relaxed")).rules == {"race"}


@kernel(warps=3)
def failing_cas(k: Builder) -> None:
    """A lock; warp 2 fails to take it, which hands nothing over to the one that does."""
    x, y = k.tensor("x", s32, (2,)), k.tensor("y", s32, (1,))
    got = k.var("got", 1)
    with k.role("fails", 0), k.elected():
        k.mem.store(y[0], 1)
        k.mem.atomic(x[0], "cas", 7, compare=5, result=got, sem="release", scope="gpu")
        k.mem.store(x[1], 1, sem="relaxed", scope="gpu")
    with k.role("reader", 1), k.elected():
        k.assign(got, 0)
        with k.while_(got.eq(0)):
            k.mem.load(got, x[1], sem="relaxed", scope="gpu")
        k.mem.atomic(x[0], "add", 1, result=got, sem="acquire", scope="gpu")
        k.mem.load(got, y[0])


def test_a_cas_that_fails_releases_nothing() -> None:
    assert "race" in ts.check(failing_cas.build()).rules


def test_random_programs_agree_with_the_model() -> None:
    seen = set()
    for seed in range(60):
        warps = sample(random.Random(seed))
        wrong, said = bool(Model(warps).failures(50_000)), verdict(translate(warps))
        assert not (wrong and said == "proved"), (seed, warps)
        assert wrong or said != "failed", (seed, warps)
        seen.add((wrong, said))
    assert {(False, "proved"), (True, "failed"), (True, "bounded")} <= seen


# ------------------------------------------------------------------ shipping forms


@kernel(warps=2)
def grid_barrier(k: Builder, *, ctas: int = 3, rounds: int = 2, fault: str = "") -> None:
    """A barrier of the grid: count up, wait for the round's total."""
    k.launch(grid=ctas, cooperative=fault != "resident")
    bar = k.tensor("bar", u32, (1,))
    part, out = k.tensor("part", s32, (ctas, 64)), k.tensor("out", s32, (ctas, 64))
    seen, x = k.var("seen", 0), k.var("x", 0)
    with k.loop(rounds) as r:
        k.mem.store(part[k.cta_x, k.thread_id], r)
        for half in range(2 if fault != "one" else 1):
            k.sync_threads()
            with k.one_thread():
                k.mem.atomic(bar[0], "add", 1, sem="release", scope="gpu")
                k.assign(seen, 0)
                goal = ctas * ((2 if fault != "one" else 1) * r + half + 1)
                with k.while_(seen < goal - (fault == "few")):
                    k.mem.load(seen, bar[0], sem="acquire", scope="gpu")
            k.sync_threads()
            if half == 0:
                k.mem.load(x, part[(k.cta_x + 1) % ctas, k.thread_id])
        k.mem.store(out[k.cta_x, k.thread_id], x)


def test_grid_barriers() -> None:
    assert verdict(grid_barrier.build()) == "proved"
    assert verdict(grid_barrier.build(ctas=8, rounds=4)) == "proved"
    for fault in ("one", "few"):
        assert "race" in ts.check(grid_barrier.build(ctas=2, fault=fault)).rules
    assert "deadlock" in ts.check(grid_barrier.build(fault="resident")).rules


@kernel(warps=1)
def ring(k: Builder, *, items: int = 8, slots: int = 2, fault: str = "") -> None:
    """A queue between CTAs: each side polls the other's count only if what it saw last is not
    enough (DeepEP's channels)."""
    k.launch(grid=2, cooperative=True)
    queue = k.tensor("queue", s32, (slots, 32))
    head, tail = k.tensor("head", s32, (1,)), k.tensor("tail", s32, (1,))
    freed, filled, x = k.var("freed", 0), k.var("filled", 0), k.var("x", 0)
    with k.loop(items) as i:
        with k.if_(k.cta_x.eq(0)):
            with k.elected(), k.while_(i - freed >= slots + (fault == "over")):
                k.mem.load(freed, head[0], sem="acquire", scope="gpu")
            k.sync_warp()
            k.mem.store(queue[i % slots, k.lane_id], i)  # fills
            k.sync_warp()
            with k.elected():
                sem: Literal["relaxed", "release"] = "relaxed" if fault == "sem" else "release"
                k.mem.store(tail[0], i + 1, sem=sem, scope="gpu")
        with k.else_():
            with k.elected(), k.while_(filled <= i - (fault == "early")):
                k.mem.load(filled, tail[0], sem="acquire", scope="gpu")
            k.sync_warp()
            k.mem.load(x, queue[i % slots, k.lane_id])  # reads
            k.sync_warp()
            with k.elected():
                k.mem.store(head[0], i + 1, sem="release", scope="gpu")
        if fault == "use":
            with k.if_((filled % 4).eq(3)):
                k.fence.proxy_async()


def test_a_loop_that_is_entered_with_what_it_saw_last() -> None:
    for slots in (1, 2, 3):
        assert verdict(ring.build(slots=slots)) == "proved"
    assert verdict(ring.build(fault="use")) == "bounded"


@pytest.mark.parametrize("fault", ["over", "sem", "early"])
def test_a_queue_that_is_filled_or_read_too_early(fault: str) -> None:
    report = ts.check(ring.build(fault=fault))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    source = Path(__file__).read_text().splitlines()
    sides = {source[p.loc.line - 1].rpartition("# ")[2] for p in report.findings[0].participants}
    assert sides == {"fills", "reads"}


@kernel(warps=1)
def sense(k: Builder, *, rounds: int = 2) -> None:
    """A sense-reversing barrier of two CTAs: the last to come flips the flag; the flag steers."""
    k.launch(grid=2, cooperative=True)
    count, flag = k.tensor("count", s32, (1,)), k.tensor("flag", s32, (1,))
    mine, seen = k.var("mine", 0), k.var("seen", 0)
    with k.elected():
        for r in range(rounds):
            k.mem.atomic(count[0], "add", 1, result=mine, sem="acq_rel", scope="gpu")
            with k.if_(mine.eq(2 * r + 1)):
                k.mem.store(flag[0], (r + 1) % 2, sem="release", scope="gpu")
            with k.else_():
                k.assign(seen, r % 2)
                with k.while_(seen.eq(r % 2)):
                    k.mem.load(seen, flag[0], sem="acquire", scope="gpu")


def test_a_sense_reversing_barrier_is_explored() -> None:
    assert verdict(sense.build()) == "bounded"
    assert ts.check(sense.build()).verdict == "exhausted"
