"""Named barriers and ``__syncthreads``: ids, thread counts, and which warps take part."""

from __future__ import annotations

from typing import Any, Literal

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

#: what the warps do that do not reach a barrier
Others = Literal["return", "loop"]


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(warps=12, family="bugs", reference=_doubled)
def reused_id(k: Builder, *, tiles: int = 6, fixed: bool = False) -> None:
    """flashinfer-ai/flashinfer #4732, issue #3700 (B092).

    Y = 2 X. Two stages are full by mbarrier and free by named barrier: the math warps arrive on
    barrier 1 when they have read a tile, the I/O warps wait there before they load the tile after
    the next. With two stages the math warps may finish two tiles before the I/O warps look, and so
    arrive twice in one round of the barrier.

    Fix: two barrier ids in alternation.
    """
    math, io = range(8), range(8, 12)
    threads, everyone = 32 * len(math), 32 * 12
    stages = 2
    X = k.tensor("X", f32, (tiles, threads))
    Y = k.tensor("Y", f32, (tiles, threads))
    buffer = k.shared("buffer", f32, (stages, threads))
    full = k.mbarriers("full", stages)
    value = k.var("value", dtype=f32)

    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(full[s], 1)
    k.sync_threads()

    with k.role("math", math), k.loop(tiles, name="t") as t:
        k.mbarrier.wait(full[t % stages], (t // stages) & 1)
        k.mem.load(value, buffer[t % stages, k.thread_id])
        free = 1 + 4 * (t % 2) if fixed else 1
        k.bar.arrive(free, everyone, aligned=False)  # BUG: the previous round may still be open
        k.mem.store(Y[t, k.thread_id], value * 2.0)

    with k.role("I/O", io):
        with k.one_thread(io[0]):
            for s in range(min(stages, tiles)):
                k.mbarrier.arrive_expect_tx(full[s], buffer[s].nbytes)
                k.bulk.load(buffer[s], X[s], full[s])
        with k.loop(tiles, name="t") as t:
            free = 1 + 4 * (t % 2) if fixed else 1
            k.bar.sync(free, everyone, aligned=False)
            with k.if_(t + stages < tiles), k.one_thread(io[0]):
                k.mbarrier.arrive_expect_tx(full[t % stages], buffer[t % stages].nbytes)
                k.bulk.load(buffer[t % stages], X[t + stages], full[t % stages])


@kernel(warps=8, family="bugs", reference=_doubled)
def half_count(k: Builder, *, rounds: int = 3, fixed: bool = False) -> None:
    """facebookexperimental/triton #378 (B094).

    Y = 2 X, handed from one warpgroup to the other through one buffer: 128 threads arrive and 128
    wait, but the count of the barriers is 128 instead of 256. Each side completes rounds of its
    own: no warp waits, nothing is ordered, and the kernel terminates.

    Fix: the count is the number of participants, arriving and waiting ones.
    """
    count = 256 if fixed else 128
    filled, drained = 10, 9
    X = k.tensor("X", f32, (rounds, 128))
    Y = k.tensor("Y", f32, (rounds, 128))
    buffer = k.shared("buffer", f32, (128,))
    value = k.var("value", dtype=f32)
    element = k.thread_id % 128

    with k.role("warpgroup0", range(4)), k.loop(rounds) as i:
        k.mem.load(value, X[i, element])
        k.mem.store(buffer[element], value)
        k.bar.arrive(filled, count, aligned=False)  # BUG: 128 arriving threads are a whole round
        k.bar.sync(drained, count, aligned=False)

    with k.role("warpgroup1", range(4, 8)), k.loop(rounds) as i:
        k.bar.sync(filled, count, aligned=False)
        k.mem.load(value, buffer[element])
        k.bar.arrive(drained, count, aligned=False)
        k.mem.store(Y[i, element], value * 2.0)


@kernel(warps=12, family="bugs", reference=_doubled)
def half_of_the_cta(k: Builder, *, others: Others = "return", fixed: bool = False) -> None:
    """flashinfer-ai/flashinfer #2996; NVIDIA/Fuser #4187; Triton #9456 (B096).

    Y = 2 X for blocks of 128 values. Warps 0-3 compute and exchange values through shared memory
    with ``__syncthreads``, which the copying warps 4-11 never reach: they leave after their copies
    (``return``: the lanes that do not copy leave at once), or copy on in a loop that waits for the
    computing warps (``loop``). Threads that have left do not hold up a barrier of the whole CTA
    (PTX, ``exit``), so that only the latter hangs.

    Fix: a named barrier of the 128 computing threads.
    """
    compute, copy = range(4), range(4, 12)
    blocks = 2 * len(copy) if others == "loop" else len(copy)
    X = k.tensor("X", f32, (blocks, 128))
    Y = k.tensor("Y", f32, (blocks, 128))
    buffer = k.shared("buffer", f32, (len(copy), 128))
    scratch = k.shared("scratch", f32, (2, 128))
    full = k.mbarriers("full", len(copy))
    empty = k.mbarriers("empty", len(copy))
    value = k.var("value", dtype=f32)

    with k.one_thread():
        for s in range(len(copy)):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 32 * len(compute))
    k.sync_threads()

    with k.role("copy", copy):
        mine = k.warp_id - copy[0]
        leader = k.elect("leader")
        with k.if_(leader.eq(0)):
            k.exit()
        for use in range(blocks // len(copy)):
            k.mbarrier.wait(empty[mine], (use & 1) ^ 1)
            k.mbarrier.arrive_expect_tx(full[mine], buffer[0].nbytes)
            k.bulk.load(buffer[mine], X[mine + use * len(copy)], full[mine])

    with k.role("compute", compute), k.loop(blocks) as i:
        stage = i % len(copy)
        k.mbarrier.wait(full[stage], (i // len(copy)) & 1)
        k.mem.load(value, buffer[stage, k.thread_id])
        k.mbarrier.arrive(empty[stage])
        k.mem.store(scratch[i % 2, k.thread_id], value * 2.0)
        if fixed:
            k.bar.sync(1, 32 * len(compute), aligned=False)
        else:
            k.sync_threads()  # BUG: the copying warps are not here
        k.mem.load(value, scratch[i % 2, k.thread_id ^ 127])
        k.mem.store(Y[i, k.thread_id ^ 127], value)


@kernel(warps=4, family="bugs", reference=_doubled)
def half_of_the_cluster(k: Builder, *, others: Others = "loop", fixed: bool = False) -> None:
    """triton-lang/triton #9456 (B096): a cluster barrier that only some warps reach.

    Y = 2 X. Warps 0-1 of each CTA exchange values with the other CTA through the cluster barrier;
    warps 2-3 leave (``return``: threads that have left are not waited for) or wait for them at the
    end of the kernel (``loop``).

    Fix: every warp of the cluster executes the barrier.
    """
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (2, 64)), k.tensor("Y", f32, (2, 64))
    scratch, value = k.shared("scratch", f32, (64,)), k.var("value", dtype=f32)
    with k.role("exchange", range(2)):
        k.mem.load(value, X[k.cluster_rank ^ 1, k.thread_id])
        k.mem.store(scratch[k.thread_id], value * 2.0)
        k.cluster.sync()  # BUG: the other warps are not here
        k.mem.load(value, scratch[k.thread_id].at(k.cluster_rank ^ 1))
        k.mem.store(Y[k.cluster_rank, k.thread_id], value)
        k.cluster.sync()
    with k.role("others", range(2, 4)):
        if fixed:
            k.cluster.sync()
            k.cluster.sync()
        if others == "return":
            k.exit()
    k.sync_threads()


@kernel(warps=13, family="bugs")
def aligned_sites(k: Builder, *, fixed: bool = False) -> None:
    """mlc-ai/TIRx-kernels #21 (B098).

    Three roles of 416 threads meet at one named barrier, each in its own branch, with ``bar.sync``,
    which is ``barrier.sync.aligned``: all threads are to execute the same instruction. The counts
    are fine, sanitizers report divergent barriers; a finding at strictness ``ptx`` only.

    Fix: ``barrier.sync`` without ``.aligned``.
    """
    everyone = 32 * 13
    for name, warps in (("load", range(1)), ("mma", range(1, 5)), ("epilogue", range(5, 13))):
        with k.role(name, warps):
            match name:
                case "load":
                    k.bar.sync(5, everyone, aligned=not fixed)  # BUG: site 1
                case "mma":
                    k.bar.sync(5, everyone, aligned=not fixed)  # BUG: site 2
                case _:
                    k.bar.sync(5, everyone, aligned=not fixed)  # BUG: site 3


_PARTICIPATION = frozenset({"participation"})

CASES = (
    Case(reused_id, {}, "bugs", "failed", frozenset({"named-barrier"}), source="B092"),
    Case(reused_id, {"fixed": True}, "bugs", "proved", source="B092"),
    Case(half_count, {}, "bugs", "failed", frozenset({"race"}), source="B094"),
    Case(half_count, {"fixed": True}, "bugs", "proved", source="B094"),
    Case(
        half_of_the_cta, {}, "bugs", "proved", source="B096",
        note="the exit of the other threads releases the barrier (E9)",
    ),
    Case(
        half_of_the_cta,
        {"others": "loop"},
        "bugs",
        "failed",
        frozenset({"deadlock"}),
        source="B096",
        note="the other role waits, too: the kernel hangs",
    ),
    Case(half_of_the_cta, {"fixed": True}, "bugs", "proved", source="B096"),
    Case(half_of_the_cta, {"others": "loop", "fixed": True}, "bugs", "proved", source="B096"),
    Case(
        half_of_the_cluster, {}, "bugs", "failed", frozenset({"deadlock"}), source="B096",
        note="a cluster barrier",
    ),
    Case(
        half_of_the_cluster, {"others": "return"}, "bugs", "proved", source="B096",
        note="threads that have ended count as arrived (D2)",
    ),
    Case(half_of_the_cluster, {"fixed": True}, "bugs", "proved", source="B096"),
    Case(aligned_sites, {}, "bugs", "failed", _PARTICIPATION, strict="ptx", source="B098"),
    Case(aligned_sites, {}, "bugs", "proved", source="B098", note="each warp is converged"),
    Case(aligned_sites, {"fixed": True}, "bugs", "proved", strict="ptx", source="B098"),
)  # fmt: skip
