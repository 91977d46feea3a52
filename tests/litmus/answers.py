"""Instructions that answer or end something: who may ask, and what the answer is good for."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, address_of, f16, f32, pred, s32, u32, u64, view_at

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row

ROWS_OF_D = [[8 * lane + column for column in range(8)] for lane in range(32)]
SHIFTED = [*ROWS_OF_D[1:], ROWS_OF_D[31]]


@row("LM01", completes(out=7), test="test_wait", repeats=True)
@row("LM01-once", fails(defect("race", T0="producer", T1="consumer"), also=("deadlock",)),
     test="test_wait", repeats=False)  # fmt: skip
@row("LM02", completes(out=7), test="try_wait", repeats=True)
@row("LM02-once", fails(defect("race", T0="producer", T1="consumer"), also=("deadlock",)),
     test="try_wait", repeats=False)  # fmt: skip
def a_poll_is_repeated_until_it_answers_yes(
    k: Builder, *, test: Literal["test_wait", "try_wait"], repeats: bool
) -> None:
    k.launch(warps=2)
    out, s, full = global_words(k, "out"), words(k, "s"), k.mbarriers("full")
    x, done = k.var("x"), k.var("done", 0, pred)
    ask = k.mbarrier.test_wait if test == "test_wait" else k.mbarrier.try_wait
    begin(k, (full, 1))
    with thread(k, 0):
        k.mem.store(s[0], 7)  # producer
        k.mbarrier.arrive(full)
    with thread(k, 1):
        if repeats:
            with k.while_(done.eq(0)):
                ask(done, full, 0)
        else:
            ask(done, full, 0)
        k.mem.load(x, s[0])  # consumer
        k.mem.store(out[0], x)


@row("LM03", completes(), dropped=1)
@row("LM03-all", fails(defect("over-arrival", T0="arrives again")), dropped=2)
def who_drops_is_not_expected_again(k: Builder, *, dropped: int) -> None:
    k.launch(warps=1)
    full = k.mbarriers("full")
    begin(k, (full, 2))
    with thread(k, 0):
        k.mbarrier.arrive_drop(full, dropped)
        if dropped == 1:
            k.mbarrier.arrive(full)
        k.mbarrier.wait(full, 0)
        k.mbarrier.arrive(full)  # arrives again
        k.mbarrier.wait(full, 1)


@row("LM04", completes(), last=True)
@row("LM04-used", fails(defect("barrier-lifetime", T0=("k.mbarrier.inval(", "arrives again"))),
     last=False)  # fmt: skip
def nobody_uses_a_barrier_that_has_ended(k: Builder, *, last: bool) -> None:
    k.launch(warps=1)
    full = k.mbarriers("full")
    begin(k, (full, 1))
    with thread(k, 0):
        k.mbarrier.arrive(full)
        k.mbarrier.wait(full, 0)
        if last:
            k.mbarrier.arrive(full)
            k.mbarrier.wait(full, 1)
        k.mbarrier.inval(full)
        if not last:
            k.mbarrier.arrive(full)  # arrives again


@row(
    "LM05",
    completes(out=3, verdicts=("exhausted",), note="how many are pending may depend on others"),
    counted=True,
)
@row(
    "LM05-plain",
    fails(defect("phase-alias", T0=("k.mbarrier.arrive(full, token", "k.mbarrier.pending_count("))),
    counted=False,
)
def only_some_tokens_hold_a_count(k: Builder, *, counted: bool) -> None:
    k.launch(warps=1)
    out, full = global_words(k, "out"), k.mbarriers("full")
    token, count = k.var("token", 0, u64), k.var("count", 0, u32)
    begin(k, (full, 3))
    with thread(k, 0):
        k.mbarrier.arrive(full, token=token, no_complete=counted)
        k.mbarrier.pending_count(count, token)
        k.mem.store(out[0], count)


@row("LM06", completes({"g": 7}, out=7), waits=True)
@row("LM06-starts", fails(defect("race", **{"warp 0": "k.mem.load(x"})), waits=False)
@row("LM06-early", fails(defect("race", **{"warp 0": "k.mem.load(x"})), early=True)
def who_lets_others_start_has_not_waited(
    k: Builder, *, waits: bool = True, early: bool = False
) -> None:
    k.launch(warps=1)
    g, out = k.tensor("g", s32, (1,), dependent=True), global_words(k, "out")
    x = k.var("x")
    k.griddep.launch_dependents()
    if waits and not early:
        k.griddep.wait()
    with k.elected():
        k.mem.load(x, g[0])
        if early:
            k.griddep.wait()
        k.mem.store(out[0], x)


@row("LM07", completes(out=5), space="shared")
@row("LM07-global", fails(defect("out-of-bounds", T0="k.mem.load(x")), space="global")
def an_address_is_taken_to_the_space_that_it_is_in(
    k: Builder, *, space: Literal["shared", "global"]
) -> None:
    k.launch(warps=1)
    out, s, x = global_words(k, "out"), words(k, "s", 4), k.var("x")
    g, p = k.var("g", 0, u64), k.var("p", 0, u32 if space == "shared" else u64)
    with thread(k, 0):
        k.mem.store(s[2], 5)
        k.mem.cvta(g, address_of(s[2]), "shared")
        k.mem.cvta_to(p, g, space)
        k.mem.load(x, view_at(p, s32, space="global" if space == "global" else "shared::cta"))
        k.mem.store(out[0], x)


@row("LM08", completes(out=[1, 0]), sync=True)
@row(
    "LM08-unordered",
    fails(defect("race", **{"warp 0": ("k.mem.store(view_at(p", "k.mem.load(x")})),
    sync=False,
)
def a_peers_memory_by_its_address(k: Builder, *, sync: bool) -> None:
    """`mapa`, its generic form and `isspacep` say where something is, and order nothing."""
    k.launch(warps=1, grid=2, cluster=2)
    out, s, x = global_words(k, "out", 2), words(k, "s", 4), k.var("x")
    p, rank, g = k.var("p", 0, u32), k.var("rank", 0, u32), k.var("g", 0, u64)
    holds = k.var("holds", 0, pred)
    k.cluster.sync()
    with k.elected():
        k.mem.mapa(p, address_of(s[1]), 1 - k.cluster_rank)
        k.mem.getctarank(rank, p)
        k.mem.cvta(g, address_of(s[1]), "shared")
        k.mem.mapa_generic(g, g, 1 - k.cluster_rank)
        k.mem.isspacep(holds, g, "shared::cluster")
        with k.if_(holds):
            k.mem.store(view_at(p, s32, space="shared::cluster"), 1 - rank)
    if sync:
        k.cluster.sync()
    with k.elected():
        k.mem.load(x, s[1])
        k.mem.store(out[k.cluster_rank], x)
    if not sync:
        k.cluster.sync()


@row("LM09", completes(), ctas=1)
@row(
    "LM09-two",
    fails(defect("race", **{"warp 0": ("k.multimem.store(", "k.multimem.store(")})),
    ctas=2,
)
def one_cta_stores_to_all_devices(k: Builder, *, ctas: int) -> None:
    k.launch(grid=2, warps=1)
    count = k.tensor("count", u32, (1,), devices=8)
    with k.if_(k.cta_x < ctas), k.elected():
        k.multimem.store(count[0], (0,))


@row("LM10", completes(), sync=True)
@row("LM10-race", fails(defect("race", W0="k.tile.store(s", W1="k.tile.load(whole")), sync=False)
def tiles_are_handed_over(k: Builder, *, sync: bool) -> None:
    """Arithmetic on fragments has no effect on memory; what is loaded and stored has."""
    k.launch(warps=2)
    s, out = k.shared("s", f16, (32, 32)), k.tensor("out", f16, (32, 32))
    a, b = (k.fragment(name, f32, (32, 32)) for name in ("a", "b"))
    whole = k.fragment("whole", f16, (32, 32))
    low, most = k.fragment("low", f32, (32, 32)), k.fragment("most", f32, (32, 1))
    narrow = k.fragment("narrow", f16, (32, 32))
    with k.role("W0", 0):
        k.tile.fill(a, 2.0)
        k.tile.map(b, "neg", a)
        k.tile.zip(b, "add", a, b)
        k.tile.fma(b, a, a, b)
        k.tile.tril(low, b, 0, 0.0)
        k.tile.reduce(most, "max", low)
        k.tile.zip(low, "mul", low, most)
        k.tile.left(b, low, 16, 0.0)
        k.tile.cast(narrow, b)
        k.tile.store(s, narrow)
    if sync:
        k.sync_threads()
    with k.role("W1", 1):
        k.tile.load(whole, s)
        k.tile.store(out, whole)


@row("LM11", completes({"source": ROWS_OF_D}, out=SHIFTED), waits=True)
@row(
    "LM11-unwaited",
    fails(
        defect("tcgen05-order", W0=("k.tcgen05.shift(", "k.tcgen05.ld(")), also=("tmem-lifetime",)
    ),
    waits=False,
)
def rows_are_moved_before_they_are_loaded(k: Builder, *, waits: bool) -> None:
    """A shift is asynchronous: a commit says when it is over (G18)."""
    k.launch(warps=4, target="sm_100a")
    source, out = k.tensor("source", s32, (32, 8)), k.tensor("out", s32, (32, 8))
    slot, done, r = k.shared("slot", u32, (1,)), k.mbarriers("done"), k.fragment("r", s32, (32, 8))
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32)
    begin(k, (done, 1))
    address = k.var("address", 0, u32)
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, s32, (128, 8), name="d")
    with k.role("W0", 0):
        k.tile.load(r, source)
        k.tcgen05.st(d[0:32], r)
        k.tcgen05.wait_st()
        with k.elected():
            k.tcgen05.shift(d[0:32])
            k.tcgen05.commit(done)
        if waits:
            k.mbarrier.wait(done, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(r, d[0:32])
        k.tcgen05.wait_ld()
        k.tile.store(out, r)
        k.mbarrier.wait(done, 0)
        k.tcgen05.dealloc(address, 32)
