"""Addresses in registers: what lies there, what they decide (SEMANTICS J)."""

from __future__ import annotations

from tilesim import (
    Builder,
    address_of,
    bf16,
    f32,
    mbar_at,
    pred,
    s32,
    select,
    u8,
    u32,
    u64,
    view_at,
)
from tilesim.ir.addressed import Space

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row


@row("LJ01", completes(out=[2 * lane for lane in range(32)]), arrives=True, lanes=32)
@row(
    "LJ01-early",
    fails(defect("race", T0="producer", T1="consumer")),
    arrives=False,
    lanes=32,
)
@row("LJ01-count", fails(defect("deadlock", T1="k.mbarrier.wait(")), arrives=True, lanes=33)
def a_barrier_in_the_middle_of_a_buffer_hands_over_bytes_at_addresses(
    k: Builder, *, arrives: bool, lanes: int
) -> None:
    k.launch(warps=2)
    out, buffer = k.tensor("out", s32, (32,)), k.shared("buffer", u8, (1024,))
    p, x = k.var("p", address_of(buffer), u32), k.var("x", 0)
    full = mbar_at(p + 64)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(full, lanes)
    k.sync_threads()
    with k.role("T0", 0):
        k.mem.store(view_at(p + 128 + 4 * k.lane_id, s32), 2 * k.lane_id)  # producer
        if arrives:
            k.mbarrier.arrive(full)
    with k.role("T1", 1):
        if not arrives:
            k.mbarrier.arrive(full)
        k.mbarrier.wait(full, 0)
        k.mem.load(x, view_at(p + 128 + 4 * k.lane_id, s32))  # consumer
        k.mem.store(out[k.lane_id], x)


@row("LJ02", completes(out=7), sync=True)
@row("LJ02-race", fails(defect("race", T0="by address", T1="by name")), sync=False)
def an_address_and_a_name_are_the_same_bytes(k: Builder, *, sync: bool) -> None:
    k.launch(warps=2)
    out, w, x = global_words(k, "out"), words(k, "w", 4), k.var("x", 0)
    with thread(k, 0):
        k.mem.store(view_at(address_of(w) + 8, s32), 7)  # by address
    if sync:
        k.sync_threads()
    with thread(k, 1):
        k.mem.load(x, w[2])  # by name
        k.mem.store(out, x)


@row("LJ03", completes(out=[6, 5]), space="shared::cluster")
@row("LJ03-own", fails(defect("out-of-bounds", T="k.mem.store(view_at(")), space="shared::cta")
def mapa_names_the_same_bytes_in_a_peer(k: Builder, *, space: Space) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    out, w, x = global_words(k, "out", 2), words(k, "w", 4), k.var("x", 0)
    b, p, q = k.mbarriers("b"), k.var("p", 0, u32), k.var("q", 0, u32)
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    k.cluster.arrive()
    k.cluster.wait()
    k.mem.mapa(p, address_of(w[1]), 1 - k.cluster_rank)
    k.mem.mapa(q, address_of(b.only()), 1 - k.cluster_rank)
    with thread(k, 0, "T"):
        k.mem.store(view_at(p, s32, space=space), 5 + k.cluster_rank)
        k.mbarrier.arrive(mbar_at(q, space="shared::cluster"), scope="cluster")
        k.mbarrier.wait(b, 0, scope="cluster")
        k.mem.load(x, w[1])
        k.mem.store(out[k.cluster_rank], x)
    k.cluster.arrive()
    k.cluster.wait()


@row("LJ04", completes(out=list(range(32))), sync=True)
@row("LJ04-lanes", fails(defect("race", T=("by generic address", "by its name"))), sync=False)
def lanes_with_generic_addresses_are_in_several_memories(k: Builder, *, sync: bool) -> None:
    k.launch(warps=1)
    out, w = k.tensor("out", s32, (32,)), words(k, "w", 32)
    g, x = k.var("g", 0, u64), k.var("x", 0)
    with k.role("T", 0):
        k.mem.cvta(g, address_of(w[k.lane_id ^ 1]), "shared")
        k.assign(g, select(k.lane_id < 16, g, address_of(out[k.lane_id])))
        value = select(k.lane_id < 16, k.lane_id ^ 1, k.lane_id)
        k.mem.store(view_at(g, s32, space="generic"), value)  # by generic address
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id < 16):
            k.mem.load(x, w[k.lane_id])  # by its name
            k.mem.store(out[k.lane_id], x)


@row("LJ05", completes(), more=0)
@row("LJ05-beyond", fails(defect("out-of-bounds", **{"warp 0": "k.mem.store("})), more=4)
@row("LJ05-before", fails(defect("out-of-bounds", **{"warp 0": "k.mem.store("})), more=-128)
@row("LJ05-odd", fails(defect("out-of-bounds", **{"warp 0": "k.mem.store("})), more=-2)
def an_address_is_inside_of_something_declared(k: Builder, *, more: int) -> None:
    k.launch(warps=1)
    p = k.var("p", address_of(words(k, "w", 32)), u32)
    k.mem.store(view_at(p + 4 * k.lane_id + more, s32), 1)


@row("LJ06", completes(), more=0)
@row("LJ06-beyond", fails(defect("out-of-bounds", **{"warp 0": "k.mem.store("})), more=4)
def a_global_address_is_inside_of_its_tensor(k: Builder, *, more: int) -> None:
    k.launch(warps=1)
    a, _ = k.tensor("a", f32, (32,)), k.tensor("b", f32, (32,))
    p = k.var("p", address_of(a), u64)
    k.mem.store(view_at(p + 4 * k.lane_id + more, f32, space="global"), 1.0)


@row("LJ07", completes(), place=0)
@row(
    "LJ07-live",
    fails(defect("barrier-lifetime", T=("k.mem.store(", "k.mbarrier.init("))),
    place=5,
)
def the_bytes_of_a_live_barrier_are_no_data(k: Builder, *, place: int) -> None:
    w = words(k, "w", 8)
    with thread(k, 0, "T"):
        k.mbarrier.init(mbar_at(address_of(w[4])), 1)
        k.mem.store(w[place], 1)


@row("LJ08-uninitialised", fails(defect("uninitialised-barrier", T="k.mbarrier.arrive(")), init=0)
@row("LJ08", completes(), init=1)
@row("LJ08-twice", fails(defect("barrier-lifetime", T=("second", "first"))), init=2)
def a_barrier_is_where_init_has_put_it(k: Builder, *, init: int) -> None:
    w = words(k, "w", 8)
    p = k.var("p", address_of(w), u32)
    with thread(k, 0, "T"):
        if init:
            k.mbarrier.init(mbar_at(p + 8), 2)  # first
        if init == 2:
            k.mbarrier.init(mbar_at(address_of(w[2])), 2)  # second
        k.mbarrier.arrive(mbar_at(p + 8))


@row("LJ09", completes(out=[1] * 6), decides="invariant")
@row(
    "LJ09-value",
    completes(verdicts=("bounded",), note="where shared memory begins, nobody knows"),
    decides="value",
)
@row(
    "LJ09-low-bits",
    completes(verdicts=("bounded",), note="shared memory begins at a multiple of 1024"),
    decides="low bits",
)
@row(
    "LJ09-two",
    completes(verdicts=("bounded",), note="how far tensors are apart, nobody knows"),
    decides="two tensors",
)
def where_memory_lies_decides_nothing(k: Builder, *, decides: str) -> None:
    k.launch(warps=1)
    out, a, b = global_words(k, "out", 6), global_words(k, "a", 8), global_words(k, "b", 8)
    s = k.shared("s", bf16, (64, 64), swizzle=128, align=1024)
    p = k.var("p", address_of(s[3, 8]), u32)
    conditions = {
        "invariant": (
            (p - address_of(s)).eq(400 ^ 3 << 4), p >= address_of(s),
            (p & 1023).eq(400 ^ 3 << 4), ((p & 0xFFFFFF) >> 24).eq(0),
            (address_of(a[4]) - address_of(a)).eq(16), (address_of(s) + 64 & 127).eq(64),
        ),
        "value": (p < 4096,), "low bits": ((p & 4095).eq(400),),
        "two tensors": (address_of(b) > address_of(a),),
    }[decides]  # fmt: skip
    for place, condition in enumerate(conditions):
        with k.if_(condition), k.elected():
            k.mem.store(out[place], 1)


@row("LJ10", completes(out=[1, 1, 0, 0, 1, 0, 0, 0, 1]))
def isspacep_tells_state_spaces_apart(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    out, w = global_words(k, "out", 9), words(k, "w", 8)
    g, holds = k.var("g", 0, u64), k.var("holds", 0, pred)
    k.cluster.arrive()
    k.cluster.wait()
    place = 0
    for what in ("own", "peer", "global"):
        if what == "global":
            k.assign(g, address_of(out[3]))
        else:
            k.mem.cvta(g, address_of(w[1]), "shared")
        if what == "peer":
            k.mem.mapa_generic(g, g, 1 - k.cluster_rank)
        for space in ("shared::cta", "shared::cluster", "global"):
            k.mem.isspacep(holds, g, space)
            with k.if_(holds), k.if_(k.cluster_rank.eq(0)), k.elected():
                k.mem.store(out[place], 1)
            place += 1


@row("LJ11", completes(out=[float(lane) for lane in range(8, 40)]), nbytes=1024)
@row("LJ11-bytes", fails(defect("deadlock", T="k.mbarrier.wait(")), nbytes=2048)
def copies_land_at_addresses(k: Builder, *, nbytes: int) -> None:
    k.launch(warps=1)
    source, out = k.tensor("source", f32, (64, 64)), k.tensor("out", f32, (32,))
    tile, x = k.tensor_map(source, (8, 32), swizzle=128), k.var("x", 0.0, f32)
    p = k.var("p", address_of(k.shared("buffer", u8, (4096,), align=1024)), u32)
    full, box = mbar_at(p + 8), view_at(p + 2048, f32, (8, 32), swizzle=128)
    k.mem.store(source[8, k.lane_id], 1.0 * k.lane_id + 8)
    k.fence.proxy_async()
    k.sync_warp()
    with thread(k, 0, "T"):
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
        k.mbarrier.arrive_expect_tx(full, nbytes)
        k.tma.load(tile, box, (8, 0), full)
    k.sync_warp()
    with k.role("T", 0):
        k.mbarrier.wait(full, 0)
    k.mem.load(x, box[0, k.lane_id])
    k.mem.store(out[k.lane_id], x)


@row("LJ12", completes(out=64), sync=True)
@row("LJ12-early", fails(defect("race", T="reads it", W="k.mem.atomic(")), sync=False)
def atomics_at_addresses(k: Builder, *, sync: bool) -> None:
    k.launch(warps=3)
    out, w, x = global_words(k, "out"), words(k, "w"), k.var("x", 0)
    begin(k, zero=[w])
    with k.role("W", [1, 2]):
        k.mem.atomic(view_at(address_of(w), s32), "add", 1)
    if sync:
        k.sync_threads()
    with thread(k, 0, "T"):
        k.mem.load(x, w[0])  # reads it
        k.mem.store(out, x)


@row("LJ13", completes(out=7), release=True, acquire=True)
@row(
    "LJ13-relaxed", fails(defect("race", T0="the data", T1="takes it")), release=True, acquire=False
)
@row(
    "LJ13-weak",
    fails(defect("race", T0="the flag", T1="asks"), defect("race", T0="the data", T1="takes it")),
    release=False,
    acquire=True,
)
def a_word_is_released_by_name_and_acquired_at_its_address(
    k: Builder, *, release: bool, acquire: bool
) -> None:
    k.launch(warps=2)
    out, data, flag = global_words(k, "out"), global_words(k, "data"), global_words(k, "flag")
    g, seen, x = k.var("g", address_of(flag), u64), k.var("seen", 0), k.var("x", 0)
    with thread(k, 0):
        k.mem.store(data, 7)  # the data
        k.mem.store(flag, 1, sem="release" if release else "weak", scope="gpu")  # the flag
    with thread(k, 1):
        word = view_at(g, s32, space="generic")
        with k.while_(seen.eq(0)):
            k.mem.load(seen, word, sem="acquire" if acquire else "relaxed", scope="gpu")  # asks
        k.mem.load(x, data)  # takes it
        k.mem.store(out, x)
