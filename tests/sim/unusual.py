"""Instructions that synchronise, begin or end something, in executions that are not usual: by two
lanes, by none, behind the end of another lane, twice, by two warps in no order, late in a loop.

``python -m tests.sim.unusual [INSTRUCTION ...]`` prints what the check and the proof kernel say of
each cell. `tests.sim.test_unusual` has those that have been judged by the text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.tcgen05 import finish, setup
from tilesim import (
    Builder,
    Program,
    bf16,
    check,
    ds,
    f16,
    pred,
    s32,
    select,
    u8,
    u32,
)
from tilesim.checker.certificates import certified
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.program import Strict

Act = Callable[[], None]
Execution = Callable[[Builder, Act], None]
Instruction = Callable[[Builder, Callable[[Act], None]], None]

INSTRUCTIONS: dict[str, Instruction] = {}
TURNS, LATE = 40, 30


def _one(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id.eq(0)):
        act()


def _two(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id < 2):
        act()


def _warp(k: Builder, act: Act) -> None:
    with k.if_(k.warp_id.eq(0)):
        act()


def _none(k: Builder, act: Act) -> None:
    none = k.var("none", 0)
    with k.if_(k.thread_id < none):
        act()


def _survivor(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id.eq(31)):
        k.exit()
    _one(k, act)


def _survivors(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id.eq(31)):
        k.exit()
    _warp(k, act)


def _twice(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id.eq(0)):
        act()
        act()


def _unordered(k: Builder, act: Act) -> None:
    with k.if_(k.lane_id.eq(0) & (k.warp_id < 2)):
        act()


def _late(k: Builder, act: Act) -> None:
    with k.loop(TURNS) as i, k.if_(i.eq(LATE) & k.thread_id.eq(0)):
        act()


def _two_late(k: Builder, act: Act) -> None:
    with k.loop(TURNS) as i, k.if_(i.eq(LATE) & (k.thread_id < 2)):
        act()


def _two_in_one_cta(k: Builder, act: Act) -> None:
    with k.if_(k.thread_id < select(k.cta_x.eq(6), 2, 1)):
        act()


#: which lanes execute an instruction, and how often
EXECUTIONS: dict[str, Execution] = {
    "one": _one, "two lanes": _two, "a warp": _warp, "none": _none, "survivor": _survivor,
    "survivors": _survivors, "twice": _twice, "two warps": _unordered, "late": _late,
    "two late": _two_late, "two in CTA 6": _two_in_one_cta,
}  # fmt: skip


def instruction(function: Instruction) -> Instruction:
    """Decorator: the program is one of an instruction, by its name."""
    INSTRUCTIONS[function.__name__] = function
    return function


def program(name: str, execution: str) -> Program:
    """The program of a cell."""
    k = Builder(name)
    if execution.endswith("CTA 6"):
        k.launch(grid=16)
    INSTRUCTIONS[name](k, lambda act: EXECUTIONS[execution](k, act))
    return k.finish()


# ---------------------------------------------------------------------- mbarriers


def _made(k: Builder, count: int = 1) -> Mbarriers:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, count))
    return b


def _awaited(k: Builder, b: Mbarriers) -> None:
    with k.if_(k.warp_id.eq(1)):
        k.mbarrier.wait(b, 0)


@instruction
def init(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    by(lambda: k.mbarrier.init(b, 1))
    k.sync_threads()
    with thread(k, 1):
        k.mbarrier.arrive(b)


@instruction
def inval(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    by(lambda: k.mbarrier.inval(b))
    k.sync_threads()
    with thread(k, 1):
        k.mbarrier.init(b, 1)


@instruction
def arrive(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    by(lambda: k.mbarrier.arrive(b))
    _awaited(k, b)


@instruction
def arrive_for_none(k: Builder, by: Callable[[Act], None]) -> None:
    b, count = _made(k), k.var("count", 0)
    by(lambda: k.mbarrier.arrive(b, count))


@instruction
def arrive_for_fewer_than_none(k: Builder, by: Callable[[Act], None]) -> None:
    b, count = _made(k, 5), k.var("count", -1)
    by(lambda: k.mbarrier.arrive(b, count))


@instruction
def arrive_drop(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k, 2)
    by(lambda: k.mbarrier.arrive_drop(b))
    with thread(k, 1):
        k.mbarrier.arrive(b)
    _awaited(k, b)


@instruction
def arrive_no_complete(k: Builder, by: Callable[[Act], None]) -> None:
    b, token = _made(k, 2), k.var("token")
    by(lambda: k.mbarrier.arrive(b, token=token, no_complete=True))
    k.sync_threads()
    with thread(k, 1):
        k.mbarrier.arrive(b)


@instruction
def expect_tx(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    by(lambda: k.mbarrier.expect_tx(b, 16))
    k.sync_threads()
    with thread(k, 1):
        k.mbarrier.complete_tx(b, 16)
        k.mbarrier.arrive(b)
    _awaited(k, b)


@instruction
def complete_tx(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    with thread(k, 1):
        k.mbarrier.arrive_expect_tx(b, 16)
    by(lambda: k.mbarrier.complete_tx(b, 16))
    _awaited(k, b)


@instruction
def complete_tx_of_most(k: Builder, by: Callable[[Act], None]) -> None:
    b, most = _made(k), k.var("most", (1 << 20) - 1)
    by(lambda: k.mbarrier.complete_tx(b, most))


@instruction
def wait_for_a_parity_of_3(k: Builder, by: Callable[[Act], None]) -> None:
    b, parity = _made(k), k.var("parity", 3)
    by(lambda: k.mbarrier.wait(b, parity))


# ---------------------------------------------------------------------- copies


@instruction
def cp_async_noinc(k: Builder, by: Callable[[Act], None]) -> None:
    b, r = _made(k), k.var("r")
    s, g = k.shared("s", s32, (64, 4)), k.tensor("g", s32, (64, 4))

    def act() -> None:
        k.cp_async.copy(s[k.thread_id], g[k.thread_id])
        k.cp_async.mbarrier_arrive(b, noinc=True)

    by(act)
    with k.if_(k.warp_id.eq(1)):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, s[0, 0])


@instruction
def cp_async_inc(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    s, g = k.shared("s", s32, (64, 4)), k.tensor("g", s32, (64, 4))

    def act() -> None:
        k.cp_async.copy(s[k.thread_id], g[k.thread_id])
        k.cp_async.mbarrier_arrive(b)
        k.mbarrier.arrive(b)

    by(act)
    _awaited(k, b)


@instruction
def bulk_load(k: Builder, by: Callable[[Act], None]) -> None:
    b, s, g = _made(k), words(k, "s", 4), global_words(k, "g", 4)
    with thread(k, 1):
        k.mbarrier.arrive_expect_tx(b, 16)
    by(lambda: k.bulk.load(s, g, b))
    k.mbarrier.wait(b, 0)


@instruction
def bulk_store(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    s, g = words(k, "s", 4), global_words(k, "g", 64)
    begin(k, zero=[s])

    def act() -> None:
        k.bulk.store(g[ds(4 * k.cta_x, 4)], s)
        k.bulk.commit_group()

    by(act)
    with k.if_(k.thread_id.eq(0)):
        k.bulk.wait_group(0)


@instruction
def bulk_prefetch(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    g, n = global_words(k, "g", 16), k.var("n", 1)
    by(lambda: k.bulk.prefetch(g[ds(n, 4)]))


@instruction
def bulk_prefetch_aligned(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    g, n = global_words(k, "g", 16), k.var("n", 4)
    by(lambda: k.bulk.prefetch(g[ds(n, 4)]))


@instruction
def tma_load(k: Builder, by: Callable[[Act], None]) -> None:
    b = _made(k)
    x, s = k.tensor("x", bf16, (8, 64)), k.shared("s", bf16, (8, 64), swizzle=128)
    m = k.tensor_map(x, (8, 64), swizzle=128)

    def act() -> None:
        k.mbarrier.arrive_expect_tx(b, m.box_bytes)
        k.tma.load(m, s, (0, 0), b)

    by(act)
    k.mbarrier.wait(b, 0)


# ---------------------------------------------------------------------- barriers


@instruction
def bar_sync(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(lambda: k.bar.sync(1, 32))


@instruction
def bar_sync_of_64(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(lambda: k.bar.sync(1, 64))


@instruction
def barrier_sync(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(lambda: k.bar.sync(1, 32, aligned=False))


@instruction
def barrier_arrive(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(lambda: k.bar.arrive(1, 64, aligned=False))


@instruction
def barrier_of_no_threads(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    count = k.var("count", 0)
    by(lambda: k.bar.sync(1, count))


@instruction
def barrier_16(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    number = k.var("number", 16)
    by(lambda: k.bar.sync(number, 32))


@instruction
def barrier_red(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    result = k.var("result", dtype=pred)
    by(lambda: k.bar.red(result, 1, k.lane_id.eq(0), threads=32, aligned=False))


def _pair(k: Builder) -> None:
    k.launch(warps=2, cluster=2, grid=2)


@instruction
def cluster_arrive(k: Builder, by: Callable[[Act], None]) -> None:
    _pair(k)
    by(lambda: k.cluster.arrive(aligned=False))


@instruction
def cluster_sync(k: Builder, by: Callable[[Act], None]) -> None:
    _pair(k)

    def act() -> None:
        k.cluster.arrive(aligned=False)
        k.cluster.wait(aligned=False)

    by(act)


@instruction
def cluster_wait(k: Builder, by: Callable[[Act], None]) -> None:
    _pair(k)
    by(lambda: k.cluster.wait(aligned=False))


@instruction
def sync_warp(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(k.sync_warp)


@instruction
def sync_lane_0(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    mask = k.var("mask", 1, dtype=u32)
    by(lambda: k.sync_warp(mask))


@instruction
def elect(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)

    def act() -> None:
        k.elect(warp_sync=False)

    by(act)


@instruction
def vote(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    result = k.var("result", dtype=pred)
    by(lambda: k.warp.vote(result, k.lane_id.eq(0), "all"))


@instruction
def setmaxnreg(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=4, registers=168)
    by(lambda: k.setmaxnreg("dec", 104))


@instruction
def end(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    by(k.exit)
    k.bar.sync(1, 64)


# ---------------------------------------------------------------------- clusters


def _of_a_pair(k: Builder) -> Mbarriers:
    _pair(k)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.fence.mbarrier_init()
    k.cluster.sync()
    return b


@instruction
def remote_arrive(k: Builder, by: Callable[[Act], None]) -> None:
    b = _of_a_pair(k)
    by(lambda: k.mbarrier.arrive(b[0].at(k.cluster_rank ^ 1), scope="cluster"))
    k.mbarrier.wait(b, 0, scope="cluster")


@instruction
def arrive_that_no_peer_waits_for(k: Builder, by: Callable[[Act], None]) -> None:
    b = _of_a_pair(k)
    by(lambda: k.mbarrier.arrive(b[0].at(k.cluster_rank ^ 1), scope="cluster"))


@instruction
def arrive_at_a_cta_that_is_not(k: Builder, by: Callable[[Act], None]) -> None:
    b, rank = _of_a_pair(k), k.var("rank", 2)
    by(lambda: k.mbarrier.arrive(b[0].at(rank), scope="cluster"))
    k.cluster.sync()


@instruction
def st_async(k: Builder, by: Callable[[Act], None]) -> None:
    b, s = _of_a_pair(k), words(k, "s", 64)
    with thread(k, 1):
        k.mbarrier.arrive_expect_tx(b, 4)
    peer = k.cluster_rank ^ 1
    by(lambda: k.cluster.st_async(s[k.thread_id].at(peer), 1, b[0].at(peer)))
    k.mbarrier.wait(b, 0, scope="cluster")


# ---------------------------------------------------------------------- tensor memory and others


@instruction
def alloc(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    by(lambda: k.tcgen05.alloc(slot, 32))
    k.sync_threads()
    k.mem.load(address, slot[0])
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.dealloc(address, 32)


@instruction
def dealloc(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32)
    k.sync_threads()
    k.mem.load(address, slot[0])
    by(lambda: k.tcgen05.dealloc(address, 32))


@instruction
def relinquish(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2, target="sm_100a")
    by(k.tcgen05.relinquish_alloc_permit)


@instruction
def commit(k: Builder, by: Callable[[Act], None]) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    with k.if_(k.thread_id.eq(0)):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
    by(lambda: k.tcgen05.commit(b))
    k.mbarrier.wait(b, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@instruction
def try_cancel(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(target="sm_100a")
    b, response, found = _made(k), k.shared("response", u32, (4,)), k.var("found", dtype=pred)

    def act() -> None:
        k.mbarrier.arrive_expect_tx(b, 16)
        k.clc.try_cancel(response, b)

    by(act)
    k.mbarrier.wait(b, 0)
    k.clc.query_is_canceled(found, response)


@instruction
def wgmma_commit(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=4)
    by(k.wgmma.commit_group)


@instruction
def cp_fenceproxy(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    x, g = k.tensor("x", bf16, (64, 64)), k.tensor("g", u8, (16 * 128,))
    m, s = k.tensor_map(x, (64, 64), swizzle=128), k.shared("s", u8, (128,))
    with k.if_(k.thread_id.eq(0)):
        k.tensormap.copy(s, m)
    k.sync_threads()
    by(lambda: k.tensormap.cp_fenceproxy(g[ds(128 * k.cta_x, 128)], s))


@instruction
def stmatrix(k: Builder, by: Callable[[Act], None]) -> None:
    k.launch(warps=2)
    s = k.shared("s", f16, (8, 8))
    by(lambda: k.matrix.store(s[k.lane_id % 8, :], [0]))


def main(names: list[str]) -> None:
    """Prints the verdicts of all cells, or those of some instructions."""
    levels: tuple[Strict, ...] = ("practice", "ptx")
    for name in names or INSTRUCTIONS:
        for execution in EXECUTIONS:
            made = program(name, execution)
            for strict in levels:
                report = check(made, strict=strict)
                answer = certified(made, strict, ("in-bounds", "zero-state"), None)[1]
                rules = ", ".join(sorted(report.rules))
                print(f"{name}, {execution}, {strict}: {report.verdict} [{rules}]; {answer}")


if __name__ == "__main__":
    main(sys.argv[1:])
