"""What orders nothing, and what answers only: instructions that programs are tempted to lean on."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from tilesim import Builder, pred, s32, u32, u64

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row

Between: TypeAlias = Literal[
    "activemask", "vote", "ballot", "match_any", "match_all", "shuffle", "redux", "sleep", "clock"
]


def _neighbours(n: int, between: Between) -> None:
    """Two rows: with ``bar.warp.sync`` as well, and without."""
    turned = [31 - lane for lane in range(32)]
    name = f"LK{n:02}"
    race = defect("race", **{"warp 0": ("k.mem.store(s", "k.mem.load(x")})
    row(name, completes(out=turned), between=between, sync=True)(lanes_meet_without_order)
    row(f"{name}-alone", fails(race), between=between, sync=False)(lanes_meet_without_order)


def lanes_meet_without_order(k: Builder, *, between: Between, sync: bool) -> None:
    """Lanes that wait for each other, or simply wait, hand over no memory (E19 to E22, H17)."""
    k.launch(warps=1)
    s, out, x = words(k, "s", 32), global_words(k, "out", 32), k.var("x")
    seen, found, holds, now = k.var("seen", 0, u32), k.var("found"), k.var("holds", 0, pred), None
    k.mem.store(s[k.lane_id], k.lane_id)
    match between:
        case "activemask":
            k.warp.activemask(seen)
        case "vote":
            k.warp.vote(found, k.lane_id < 3, "any")
        case "ballot":
            k.warp.ballot(seen, k.lane_id < 3)
        case "match_any":
            k.warp.match_any(seen, k.lane_id // 4)
        case "match_all":
            k.warp.match_all(seen, holds, k.lane_id // 32)
        case "shuffle":
            k.mem.shuffle(found, k.lane_id, 0)
        case "redux":
            k.warp.redux(found, "add", k.lane_id)
        case "sleep":
            k.time.sleep(1000)
        case "clock":
            now = k.var("now", 0, u64)
            k.time.read(now, "globaltimer")
    if sync:
        k.sync_warp()
    k.mem.load(x, s[31 - k.lane_id])
    k.mem.store(out[k.lane_id], x)


for number, kind in enumerate(get_args(Between), 1):
    _neighbours(number, kind)


@row("LK10", completes(out=7), level="mem", sync=True)
@row("LK10-mem", fails(defect("race", T0="producer", T1="consumer")), level="mem", sync=False)
@row("LK11", completes(out=7), level="bulk", sync=True)
@row("LK11-bulk", fails(defect("race", T0="producer", T1="consumer")), level="bulk", sync=False)
@row("LK12", completes(out=7), level="tma", sync=True)
@row("LK12-tma", fails(defect("race", T0="producer", T1="consumer")), level="tma", sync=False)
def a_prefetch_reads_nothing(
    k: Builder, *, level: Literal["mem", "bulk", "tma"], sync: bool
) -> None:
    """Hints race with nothing, and order nothing (H17, B13)."""
    k.launch(warps=2)
    g, out, x = k.tensor("g", s32, (4, 32)), global_words(k, "out"), k.var("x")
    box = k.tensor_map(g, (4, 32))
    with thread(k, 0):
        k.mem.store(g[0, 0], 7)  # producer
    with thread(k, 1):
        match level:
            case "mem":
                k.mem.prefetch(g[0, 0])
            case "bulk":
                k.bulk.prefetch(g[0, 0:4])
            case "tma":
                k.tma.prefetch(box, (0, 0))
    if sync:
        k.sync_threads()
    with thread(k, 1):
        k.mem.load(x, g[0, 0])  # consumer
        k.mem.store(out[0], x)


@row("LK13", completes({"a": range(8)}, out=4), pending=0)
@row(
    "LK13-pending",
    fails(defect("race", T0=("k.cp_async.copy(s[4:8]", "k.mem.load(x"))),
    pending=1,
)
def groups_of_cp_async_are_waited_for_in_order(k: Builder, *, pending: int) -> None:
    k.launch(warps=1)
    a, out, s, x = global_words(k, "a", 8), global_words(k, "out"), words(k, "s", 8), k.var("x")
    with thread(k, 0):
        k.cp_async.copy(s[0:4], a[0:4])
        k.cp_async.commit_group()
        k.cp_async.copy(s[4:8], a[4:8])
        k.cp_async.commit_group()
        k.cp_async.wait_group(pending)
        k.mem.load(x, s[4])
        k.mem.store(out[0], x)
        k.cp_async.wait_all()


@row("LK14", completes({"g": 1}, g=[[1 + lane for lane in range(32)]]), by="bulk", fence=True)
@row(
    "LK14-bulk",
    fails(defect("proxy-fence", **{"warp 0": "k.mem.store(s", "T0": "k.bulk.reduce("})),
    by="bulk",
    fence=False,
)
@row("LK15", completes({"g": 1}, g=[[1 + lane for lane in range(32)]]), by="tma", fence=True)
@row(
    "LK15-tma",
    fails(defect("proxy-fence", **{"warp 0": "k.mem.store(s", "T0": "k.tma.reduce("})),
    by="tma",
    fence=False,
)
def a_reduction_reads_its_source_by_the_async_proxy(
    k: Builder, *, by: Literal["bulk", "tma"], fence: bool
) -> None:
    k.launch(warps=1)
    g, s = k.tensor("g", s32, (1, 32)), k.shared("s", s32, (1, 32), align=128)
    box = k.tensor_map(g, (1, 32))
    k.mem.store(s[0, k.lane_id], k.lane_id)
    if fence:
        k.fence.proxy_async()
    k.sync_warp()
    with thread(k, 0):
        if by == "bulk":
            k.bulk.reduce(g[0, 0:32], s[0, 0:32])
        else:
            k.tma.reduce(box, s, (0, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LK16", completes(out=[[8] * 4] * 2), waits=True)
@row(
    "LK16-unwaited",
    fails(defect("race", **{"warp 0": ("k.bulk.reduce_peer(", "k.mem.load(x")})),
    waits=False,
)
def a_reduction_into_a_peer_is_waited_for_there(k: Builder, *, waits: bool) -> None:
    k.launch(grid=2, cluster=2, warps=1)
    out, done = k.tensor("out", s32, (2, 4)), k.mbarriers("done")
    sums, ones, x = words(k, "sums", 4), words(k, "ones", 4), k.var("x")
    begin(k, (done, 1), zero=(sums,))
    with k.if_(k.lane_id < 4):
        k.mem.store(ones[k.lane_id], 8)
    k.fence.proxy_async()
    k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        k.mbarrier.arrive_expect_tx(done, 16)
        k.bulk.reduce_peer(sums.at(1 - k.cluster_rank), ones, done.at(1 - k.cluster_rank))
    if waits:
        k.mbarrier.wait(done, 0, scope="cluster")
    with k.if_(k.lane_id < 4):
        k.mem.load(x, sums[k.lane_id])
        k.mem.store(out[k.cluster_rank, k.lane_id], x)
    if not waits:
        k.mbarrier.wait(done, 0, scope="cluster")
    k.cluster.sync()
