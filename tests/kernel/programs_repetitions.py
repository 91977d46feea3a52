"""Pairs of programs with a loop: of the wrong one, only the first iterations are right.

Behind the last right iteration the state is another one, though the next iteration keeps all rules;
what a certificate leaves out from there on does not. So no claim of a wrong program may be
believed, and some claim of its twin is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.kernel.programs import Program, cta, frees
from tests.kernel.programs_data import filled, loaded
from tests.litmus.notation import begin, global_words, thread, words
from tilesim import Builder, ds, f32, s32, u32
from tilesim.ir.expr import Expr, as_expr
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.proof.certificate import Repetition
from tilesim.transforms.lower import lower

#: iterations of a loop, and the last right one of a wrong program
ITERATIONS, LAST = 12, 5
#: rounds of the schedule from which on something is claimed, behind a first period
FIRST = range(8)


@dataclass(frozen=True)
class Repeated:
    """A program with a loop. ``breaks``: the rule that the wrong one breaks as a whole; ``why``: a
    part of what is said of some claim of it; ``periods``: in rounds, what is claimed."""

    breaks: str
    why: str
    periods: tuple[int, ...]
    program: Program
    strict: Strict

    @property
    def claims(self) -> tuple[Repetition, ...]:
        """What is claimed of it."""
        return tuple(Repetition(p + first, p, 1) for p in self.periods for first in FIRST)

    def mir(self, *, right: bool) -> Mir:
        """The wrong or the right program, in machine form."""
        builder = Builder(self.program.__name__)
        self.program(builder, right=right)
        return lower(builder.finish())


REPEATED: list[Repeated] = []


def wrong(
    breaks: str, why: str, *periods: int, strict: Strict = "practice"
) -> Callable[[Program], Program]:
    """Decorator: the program breaks this rule behind the iteration `LAST` unless it is right."""

    def enter(program: Program) -> Program:
        REPEATED.append(Repeated(breaks, why, periods, program, strict))
        return program

    return enter


def late(i: Expr, *, right: bool) -> Expr:
    """Whether an iteration is a later one of a wrong program, and ends a period of two."""
    return as_expr(0) if right else (i > LAST) & (i & 1)


@wrong("N", "numbers that stay and numbers that grow meet", 1, 3)
def a_warp_that_no_longer_waits_for_rounds(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    with k.role("W0", 0), k.loop(ITERATIONS) as i:
        with k.if_(i <= (ITERATIONS if right else LAST)):
            k.bar.sync(1, 64, aligned=False)
        with k.else_():
            k.bar.arrive(1, 64, aligned=False)
    with k.role("W1", 1), k.loop(ITERATIONS):
        k.bar.sync(1, 64, aligned=False)


@wrong("H6", "the order is another one", 4)
def a_store_behind_the_arrival_that_hands_it_over(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, full, empty, r = words(k, "x"), k.mbarriers("full"), k.mbarriers("empty"), k.var("r")
    begin(k, (full, 1), (empty, 1), zero=[x])
    with thread(k, 0), k.loop(ITERATIONS) as i:
        k.mbarrier.wait(empty, i & 1)
        early = late(i, right=right)
        with k.if_(early):
            k.mbarrier.arrive(full)
        k.mem.store(x[0], 1)
        with k.if_(early.eq(0)):
            k.mbarrier.arrive(full)
    with thread(k, 1), k.loop(ITERATIONS) as i:
        k.mem.load(r, x[0])
        k.mbarrier.arrive(empty)
        k.mbarrier.wait(full, i & 1)


@wrong("deadlock", "the state is another one", 1, 2)
def a_parity_that_no_longer_changes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0), k.loop(ITERATIONS) as i:
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, (i & 1) if right else (i & 1) & (i <= LAST))


@wrong("deadlock", "the state is another one", 1, 2)
def a_load_of_data_by_all_lanes_in_each_turn(k: Builder, *, right: bool) -> None:
    """What is loaded is as little known before turns are left out as in these."""
    k.launch(warps=1)
    b, g, r = k.mbarriers("b"), k.tensor("g", s32, (ITERATIONS * 32,)), k.var("r")
    begin(k, (b, 32))
    with k.loop(ITERATIONS) as i:
        k.mem.load(r, g[i * 32 + k.lane_id])
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, (i & 1) if right else (i & 1) & (i <= LAST))


@wrong("H6", "the order is another one", 4)
def a_fence_before_a_store_for_an_arrival_of_the_next_iteration(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, full, empty, r = words(k, "x"), k.mbarriers("full"), k.mbarriers("empty"), k.var("r")
    begin(k, (full, 1), (empty, 1), zero=[x])
    with thread(k, 0), k.loop(ITERATIONS) as i:
        k.mbarrier.arrive(full, sem="relaxed")
        k.mbarrier.wait(empty, i & 1)
        early = late(i, right=right)
        with k.if_(early):
            k.fence.memory("acq_rel", "cta")
        k.mem.store(x[0], 1)
        with k.if_(early.eq(0)):
            k.fence.memory("acq_rel", "cta")
    with thread(k, 1), k.loop(ITERATIONS) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(r, x[0])
        k.mbarrier.arrive(empty)


@wrong("H6", "the state is another one", 2)
def a_copy_that_is_committed_with_the_next_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, g = words(k, "x", 4), k.tensor("g", s32, (ITERATIONS, 4))
    b = k.mbarriers("b")
    begin(k, (b, 1), zero=[x])
    with thread(k, 0), k.loop(ITERATIONS) as i:
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, i & 1)
        k.bulk.wait_group(0, read=True)
        k.mem.store_vector(x[ds(0, 4)], (1, 1, 1, 1))
        k.fence.proxy_async()
        early = late(i, right=right)
        with k.if_(early):
            k.bulk.commit_group()
        k.bulk.store(g[i], x)
        with k.if_(early.eq(0)):
            k.bulk.commit_group()
    with thread(k, 0):
        k.bulk.wait_group(0)


@wrong("H6", "another one", 3)
def an_arrival_at_the_cluster_that_no_longer_releases(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, r = words(k, "x"), k.var("r")
    begin(k, zero=[x])
    k.cluster.arrive()
    with k.loop(ITERATIONS) as i:
        k.cluster.wait()
        with cta(k, 1):
            k.mem.load(r, x[0])
        k.cluster.sync()
        with cta(k, 0):
            k.mem.store(x.view().at(1)[0], 1)
        relaxed = late(i + 1, right=right)
        with k.if_(relaxed):
            k.cluster.arrive(sem="relaxed")
        with k.if_(relaxed.eq(0)):
            k.cluster.arrive()
    k.cluster.wait()


@wrong("A20", "another one", 2)
def a_token_that_is_no_longer_renewed(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, t = k.mbarriers("b"), k.var("t")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, token=t)
        with k.loop(ITERATIONS) as i:
            k.mbarrier.wait(b, token=t)
            without = late(i, right=right)
            with k.if_(without):
                k.mbarrier.arrive(b)
            with k.if_(without.eq(0)):
                k.mbarrier.arrive(b, token=t)
        k.mbarrier.wait(b, token=t)


@wrong("deadlock", "differs in", 1)
def a_count_that_grows_by_more_each_iteration(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", 0)
    begin(k, (b, 1))
    with thread(k, 0):
        with k.loop(ITERATIONS) as i:
            k.assign(n, n + (1 if right else i))
        with k.if_(n <= ITERATIONS):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("H6", "", 1)
def places_of_lanes_that_move_apart(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, place = words(k, "x", 64 * ITERATIONS), k.var("place", k.lane_id)
    g = global_words(k, "g", 32 * ITERATIONS)
    with k.loop(ITERATIONS):
        k.mem.store(g[place], 1)
        k.assign(place, place + 32)
    k.mem.store(x[place - 32 * ITERATIONS], 1)
    if not right:
        k.mem.store(x[31 - k.lane_id], 1)


@wrong("deadlock", "differs in", 2, strict="ptx")
def a_count_of_the_elected_lane(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", 0)
    begin(k, (b, 1))
    with k.loop(ITERATIONS), k.elected():
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, n & 1)
        k.assign(n, n + 1)
    with k.elected():
        with k.if_(n.eq(ITERATIONS if right else ITERATIONS + 1)):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("H6", "differs in", 1, 2)
def a_load_of_tensor_memory_that_is_no_longer_stored(k: Builder, *, right: bool) -> None:
    """Each iteration writes what the one before it has loaded (U33)."""
    address, cells, _ = filled(k)
    s, tile = k.shared("s", u32, (4, 32)), k.fragment("again", f32, (32, 4))
    with k.role("W0", 0), k.loop(ITERATIONS) as i:
        first, *others = loaded(k, cells)
        for n, register in enumerate(others):
            k.mem.store(s[n, k.lane_id], register)
        with k.if_(late(i, right=right).eq(0)):
            k.mem.store(s[3, k.lane_id], first)
        k.sync_warp()
        k.tile.fill(tile, 0)
        k.tcgen05.st(cells, tile)
        k.tcgen05.wait_st()
    frees(k, address, 32)


@wrong("", "equal values", 1, 2)
def warps_that_no_longer_store_the_same_data(k: Builder, *, right: bool) -> None:
    """They load it from a place of each iteration, and store it to one place (H23)."""
    k.launch(warps=2)
    s, g, x = k.shared("s", u32, (32,)), k.tensor("g", u32, (64, 32)), k.var("x", dtype=u32)
    with k.loop(ITERATIONS) as i:
        k.mem.load(x, g[i + late(i, right=right) * k.warp_id, k.lane_id])
        k.mem.store(s[k.lane_id], x)
        k.sync_threads()
        k.mem.load(x, s[k.lane_id])
        k.sync_threads()


@wrong("", "numbers that stay and numbers that grow meet", 2)
def registers_taken_in_an_iteration_that_others_know_of_late(k: Builder, *, right: bool) -> None:
    """Each warp of a chain hands on in an iteration what it knew in the one before. The last one
    gives registers behind the loop: with fewer iterations, in no order with the first one, which
    has taken some."""
    k.launch(warps=12, registers=120)
    chain, last, x = (0, 8, 9, 10, 11, 4), 5, words(k, "x", 32)
    full = [k.mbarriers(f"full{n}") for n in range(last)]
    empty = [k.mbarriers(f"empty{n}") for n in range(last)]
    begin(k, *((b, 32) for b in (*full, *empty)))
    for n, number in enumerate(chain):
        with k.role(f"W{number}", number):
            with k.loop(ITERATIONS) as i:
                if n < last:
                    k.mbarrier.wait(empty[n], (i & 1) ^ 1)
                    k.mbarrier.arrive(full[n])
                if n > 0:
                    k.mbarrier.wait(full[n - 1], i & 1)
                    k.mbarrier.arrive(empty[n - 1])
                if n == 0:
                    k.sync_warp()
                    with k.if_(i.eq(-1 if right else LAST)):
                        k.setmaxnreg("inc", 168)
                    with k.else_():
                        k.mem.store(x[k.lane_id], 1)
                    k.sync_warp()
            if n == 0 and right:
                k.setmaxnreg("inc", 168)
    with k.if_((k.warp_id > 0) & (k.warp_id < 4)):
        k.setmaxnreg("inc", 168)
    with k.if_((k.warp_id >= 4) & (k.warp_id < 8)):
        k.setmaxnreg("dec", 72)
