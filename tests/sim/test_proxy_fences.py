"""Which memory a proxy fence orders (H9), and that the one-way fences are halves (H10)."""

from __future__ import annotations

from typing import Literal

import pytest

from tilesim import Builder, ds, kernel
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.checker import Report, check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict
from tilesim.lib.tensor_memory import TensorMemory
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

from ..kernels.mutate import line

Kind = Literal["", "all", "global", "shared::cta", "shared::cluster", "release", "acquire"]
STRICT: tuple[Strict, ...] = ("practice", "ptx")
THREADS = 64
#: what writes and what copies, first found here
LINES = {
    "staged": ("k.mem.store(buffer", "k.bulk.store(Y"),
    "reloaded": ("k.mem.store(X", "k.bulk.load(buffer"),
}


def _fence(k: Builder, kind: Kind) -> None:
    match kind:
        case "":
            pass
        case "all":
            k.fence.proxy_async()
        case "release" | "acquire":
            k.fence.proxy_async_generic(kind)
        case _:
            k.fence.proxy_async(kind)


def _name(value: object) -> str:
    return value.name if isinstance(value, Kernel) else str(value) or "none"


@kernel(warps=2)
def staged(k: Builder, *, writer: Kind = "", issuer: Kind = "") -> None:
    """Threads fill a buffer in shared memory, one of them sends it."""
    Y, buffer = k.tensor("Y", f32, (THREADS,)), k.shared("buffer", f32, (THREADS,))
    k.mem.store(buffer[k.thread_id], 1.0)
    _fence(k, writer)
    k.sync_threads()
    with k.one_thread():
        _fence(k, issuer)
        k.bulk.store(Y, buffer)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@kernel(warps=2)
def reloaded(k: Builder, *, writer: Kind = "", issuer: Kind = "") -> None:
    """Threads fill a tensor in global memory, one of them loads it."""
    X, buffer = k.tensor("X", f32, (THREADS,)), k.shared("buffer", f32, (THREADS,))
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.mem.store(X[k.thread_id], 1.0)
    _fence(k, writer)
    k.sync_threads()
    with k.one_thread():
        _fence(k, issuer)
        k.mbarrier.arrive_expect_tx(full, buffer.nbytes)
        k.bulk.load(buffer, X, full)
    k.mbarrier.wait(full, 0)


@pytest.mark.parametrize(
    ("program", "writer", "issuer"),
    [
        (staged, "all", ""),
        (staged, "", "all"),
        (staged, "shared::cta", ""),
        (staged, "", "shared::cluster"),
        (staged, "release", "acquire"),
        (reloaded, "all", ""),
        (reloaded, "global", ""),
        (reloaded, "", "global"),
    ],
    ids=_name,
)
def test_the_fence_orders_the_two(program: Kernel, writer: Kind, issuer: Kind) -> None:
    assert check(program.build(writer=writer, issuer=issuer), strict="ptx").verdict == "proved"


def _assert_unordered(report: Report, program: Kernel, note: str) -> None:
    assert report.verdict == "failed"
    assert report.rules == {"proxy-fence"}
    lines = {line(program, text, nth=1) for text in LINES[program.name]}
    assert all({loc.line for loc in f.locations} == lines for f in report.findings)
    assert all(note in " ".join(f.notes) for f in report.findings)


@pytest.mark.parametrize(
    ("program", "writer", "issuer", "note"),
    [
        (staged, "", "", "memory: "),
        (staged, "global", "", "not one for shared memory (H9)"),
        (staged, "", "global", "not one for shared memory (H9)"),
        (staged, "release", "", "needs the acquire"),
        (staged, "", "release", "needs the acquire"),
        (staged, "acquire", "", "memory: "),
        (staged, "", "acquire", "memory: "),
        (staged, "acquire", "release", "needs the acquire"),
        (reloaded, "", "", "memory: "),
        (reloaded, "shared::cta", "", "not one for global memory (H9)"),
        (reloaded, "", "shared::cluster", "not one for global memory (H9)"),
        (reloaded, "release", "acquire", "not one for global memory (H9)"),
    ],
    ids=_name,
)
def test_the_fence_is_another_one(program: Kernel, writer: Kind, issuer: Kind, note: str) -> None:
    report = check(program.build(writer=writer, issuer=issuer))
    _assert_unordered(report, program, note)


@kernel(warps=1)
def covered(
    k: Builder,
    *,
    writer: Kind = "",
    issuer: Kind = "",
    multicast: bool = True,
    meets: bool = True,
) -> None:
    """Both CTAs write a buffer; rank 0 then copies over those of both, or over that of rank 1."""
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (32,))
    source, slot = k.shared("source", f32, (32,)), k.shared("slot", f32, (32,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 64)
        k.fence.mbarrier_init()
    k.mem.store(source[k.lane_id], 0.0)
    k.fence.proxy_async()
    k.cluster.sync()
    receives = k.cluster_rank >= (0 if multicast else 1)
    with k.if_(receives):
        k.mem.store(slot[k.lane_id], 1.0)
        _fence(k, writer)
    with k.if_(receives), k.elected(sync=meets):
        k.mbarrier.arrive_expect_tx(full, slot.nbytes)
    k.mbarrier.arrive(empty[0].at(0), scope="cluster")
    with k.if_(k.cluster_rank.eq(0)), k.elected():
        k.mbarrier.wait(empty, 0, scope="cluster")
        _fence(k, issuer)
        if multicast:
            k.bulk.load(slot, X, full, multicast=0b11)
        else:
            k.bulk.copy(slot.view().at(1), source, full[0].at(1))
    with k.if_(receives):
        k.mbarrier.wait(full, 0, scope="cluster")
    k.cluster.sync()


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize(
    ("writer", "issuer"),
    [("all", ""), ("shared::cta", ""), ("", "all"), ("", "shared::cluster")],
    ids=_name,
)
def test_a_fence_before_a_copy_over_what_a_peer_has_written(
    writer: Kind, issuer: Kind, *, multicast: bool
) -> None:
    program = covered.build(writer=writer, issuer=issuer, multicast=multicast)
    assert check(program, strict="ptx").verdict == "proved"


@pytest.mark.parametrize("multicast", [True, False])
def test_lanes_that_part_behind_a_fence_for_their_own_memory_each_hand_it_on(
    *, multicast: bool
) -> None:
    """One of them arms the barrier first, and all of them arrive."""

    def verdict(writer: Kind, issuer: Kind) -> str:
        kinds = covered.build(writer=writer, issuer=issuer, multicast=multicast, meets=False)
        return check(kinds).verdict

    assert verdict("shared::cta", "") == "proved"
    assert verdict("", "shared::cta") == "failed"
    assert verdict("release", "acquire") == "proved"
    assert verdict("release", "") == "failed"
    assert verdict("", "acquire") == "failed"


@pytest.mark.parametrize("multicast", [True, False])
def test_a_fence_for_ones_own_memory_is_none_for_a_peers(*, multicast: bool) -> None:
    """Those who wrote it are in other CTAs, and nothing but copies accesses a peer's memory."""
    program = covered.build(issuer="shared::cta", multicast=multicast)
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules == {"proxy-fence"}
    copy = line(covered, "k.bulk.load(slot" if multicast else "k.bulk.copy(slot")
    written = line(covered, "k.mem.store(slot")
    (finding,) = report.findings
    assert {loc.line for loc in finding.locations} == {copy, written}
    assert "CTA 1 warp 0 wrote slot" in finding.message
    assert "this is another one's (H9)" in " ".join(finding.notes)


@kernel(target="sm_100a", warps=4)
def multiplied(k: Builder, *, writer: Kind = "", issuer: Kind = "") -> None:
    """Both CTAs of a pair write their halves of operands, which rank 0 has multiplied."""
    k.launch(grid=2, cluster=2)
    a, b = k.shared("a", bf16, (128, 16), swizzle=32), k.shared("b", bf16, (32, 16), swizzle=32)
    rows, columns = k.fragment("rows", bf16, (32, 16)), k.fragment("columns", bf16, (8, 16))
    word, address = k.shared("word", u32, (1,)), k.var("address", 0, u32)
    ready, done = k.mbarriers("ready"), k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(ready, 256)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("allocates", 0):
        k.tcgen05.alloc(word[0], 64, cta_group=2)
    k.cluster.sync()
    k.mem.load(address, word[0])
    d = k.tcgen05.tensor(address, f32, (128, 64), name="d")
    k.tile.fill(rows, 1.0)
    k.tile.fill(columns, 1.0)
    k.tile.store(b[ds(k.warp_id * 8, 8)], columns)
    k.tile.store(a[ds(k.warp_id * 32, 32)], rows)
    _fence(k, writer)
    k.mbarrier.arrive(ready[0].at(0), scope="cluster")
    with k.role("multiplies", 0), k.if_(k.cluster_rank.eq(0)), k.elected():
        k.mbarrier.wait(ready, 0, scope="cluster")
        _fence(k, issuer)
        k.tcgen05.mma(d, a, b, accumulate=0, cta_group=2)
        k.tcgen05.commit(done, multicast=0b11, cta_group=2)
    k.mbarrier.wait(done, 0, scope="cluster")
    k.tcgen05.fence_before_thread_sync()
    k.cluster.sync()
    k.tcgen05.fence_after_thread_sync()
    with k.role("frees", 0):
        k.tcgen05.dealloc(address, 64, cta_group=2)


@pytest.mark.parametrize(
    ("writer", "issuer"), [("shared::cta", ""), ("", "shared::cluster")], ids=_name
)
def test_a_fence_before_a_product_of_a_pair(writer: Kind, issuer: Kind) -> None:
    assert check(multiplied.build(writer=writer, issuer=issuer)).verdict == "proved"


def test_a_fence_for_ones_own_operands_is_none_for_the_others_of_a_pair() -> None:
    report = check(multiplied.build(issuer="shared::cta"))
    assert report.verdict == "failed"
    assert report.rules == {"proxy-fence"}
    product = line(multiplied, "k.tcgen05.mma(d")
    written = {line(multiplied, "k.tile.store(a"), line(multiplied, "k.tile.store(b")}
    for finding in report.findings:
        lines = {loc.line for loc in finding.locations}
        assert product in lines
        assert lines - {product} <= written
        assert "CTA 1 warp" in finding.message


@kernel(warps=1)
def fetched(k: Builder, *, fences: int = 3, meets: bool = True) -> None:
    """Rank 1 loads what rank 0 has stored, behind fences for shared memory (H18)."""
    k.launch(grid=2, cluster=2)
    sent, number = k.shared("sent", s32, (32,)), k.var("number")
    stored, other = k.mbarriers("stored"), k.mbarriers("other")
    with k.one_thread():
        k.mbarrier.init(stored, 32)
        k.mbarrier.init(other, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)):
        k.mem.store(sent[k.lane_id], 1)
        if fences & 1:
            k.fence.sync_restrict("release")
        with k.elected(sync=meets):
            k.mbarrier.arrive(other)
        k.mbarrier.arrive(stored[0].at(1), sem="relaxed", scope="cluster")
    with k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.wait(stored, 0, sem="relaxed", scope="cluster")
        if fences & 2:
            k.fence.sync_restrict("acquire")
        k.mem.load(number, sent[k.lane_id].at(0))
    k.cluster.sync()


@pytest.mark.parametrize("meets", [True, False])
@pytest.mark.parametrize("fences", [0, 1, 2, 3])
def test_lanes_that_part_behind_a_fence_for_shared_memory(fences: int, *, meets: bool) -> None:
    report = check(fetched.build(fences=fences, meets=meets))
    assert report.verdict == ("proved" if fences == 3 else "failed")
    if fences != 3:
        assert report.rules == {"race"}
        lines = {line(fetched, "k.mem.store(sent"), line(fetched, "k.mem.load(number")}
        assert all(lines <= {loc.line for loc in f.locations} for f in report.findings)


@kernel(warps=1)
def handed_on(k: Builder, *, filler: int = 1, copies: bool = True, restricted: bool = True) -> None:
    """CTA 0 tells CTA 2 of what it has learned, maybe of another CTA (H18)."""
    k.launch(grid=4, cluster=4)
    sent, number, source = k.shared("sent", s32, (4,)), k.var("number"), k.tensor("S", s32, (4,))
    filled, told, known = k.mbarriers("filled"), k.mbarriers("told"), k.mbarriers("known")
    with k.one_thread():
        for barrier in (filled, told, known):
            k.mbarrier.init(barrier, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(filler)), k.one_thread():
        if copies:
            k.mbarrier.arrive_expect_tx(filled, 16)
            k.bulk.load(sent, source, filled)
            k.mbarrier.wait(filled, 0)
        else:
            k.mem.store(sent[0], 1)
        if filler:
            k.mbarrier.arrive(told.at(0), scope="cluster")
    with k.if_(k.cluster_rank.eq(0)), k.one_thread():
        if filler:
            k.mbarrier.wait(told, 0, scope="cluster")
        if restricted:
            k.fence.sync_restrict("release")
        else:
            k.fence.memory("release", scope="cluster")
        k.mbarrier.arrive(known.at(2), sem="relaxed", scope="cluster")
    with k.if_(k.cluster_rank.eq(2)), k.one_thread():
        k.mbarrier.wait(known, 0, sem="relaxed", scope="cluster")
        k.fence.sync_restrict("acquire")
        k.mem.load(number, sent.view().at(filler)[0])
    k.cluster.sync()


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(("filler", "restricted"), [(1, True), (1, False), (0, True)])
def test_a_restricted_release_hands_on_nothing_of_another_cta(
    filler: int, *, copies: bool, restricted: bool
) -> None:
    """Nor that another CTA's copies are complete, which counted."""
    program = handed_on.build(filler=filler, copies=copies, restricted=restricted)
    answer, wrong = certify(lower(program)), bool(filler and restricted)
    for strict in STRICT:
        report = check(program, strict=strict)
        assert report.verdict == ("failed" if wrong else "proved")
        assert report.rules == ({"race"} if wrong else set())
    assert (answer.verdict, answer.rule) == (("refuted", "H6") if wrong else ("certified", ""))


@kernel(target="sm_100a", warps=5)
def refilled(k: Builder, *, fence: Kind = "shared::cta", ctas: int = 2) -> None:
    """What copies have filled and a product has read is written part by part, and copied on, by a
    warp that has waited for the product alone."""
    k.launch(grid=ctas, cluster=ctas)
    A, B = k.tensor("A", bf16, (128, 16)), k.tensor("B", bf16, (32, 16))
    Out = k.tensor("Out", f32, (256 * ctas,))
    filled = k.tensor_map(A, (128, 16), swizzle=32), k.tensor_map(B, (32, 16), swizzle=32)
    a = k.shared("a", bf16, (128, 16), swizzle=32)
    b = k.shared("b", bf16, (32, 16), swizzle=32, offset=8192)
    tile = k.shared("tile", f32, (256,), offset=8192)
    full, done = k.mbarriers("full"), k.mbarriers("done")
    memory = TensorMemory(k, 32)
    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 1)
        k.mbarrier.arrive_expect_tx(full, a.nbytes + b.nbytes)
        k.fence.mbarrier_init()
    k.cluster.sync()
    d = k.tcgen05.tensor(memory.address(), f32, (128, 32), name="d")
    with k.role("multiplies", 4), k.elected():
        with k.if_(k.cluster_rank.eq(0)):
            for into, tensor_map in zip((a, b), filled, strict=True):
                k.tma.load(tensor_map, into, (0, 0), full, multicast=(1 << ctas) - 1)
        k.mbarrier.wait(full, 0, scope="cluster")
        k.tcgen05.mma(d, a, b, accumulate=0)
        k.tcgen05.commit(done)
    with k.role("stores", 0):
        k.mbarrier.wait(done, 0)
        for part in range(8):
            k.mem.store(tile[k.lane_id + 32 * part], 1.0)
        _fence(k, fence)
        k.sync_warp()
        with k.elected():
            k.bulk.store(Out[ds(k.cluster_rank * 256, 256)], tile)
            k.bulk.commit_group()
            k.bulk.wait_group(0)
    k.cluster.sync()
    memory.free()


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("fence", ["shared::cta", "all"])
def test_what_comes_after_a_copy_counts_by_a_fence_for_this_memory_alone(
    fence: Kind, ctas: int
) -> None:
    """Who knows of the stores, which together cover what was copied, knows of that (A28)."""
    assert check(refilled.build(fence=fence, ctas=ctas), strict="ptx").verdict == "proved"
    report = check(refilled.build(fence="", ctas=ctas))
    assert report.verdict == "failed"
    assert report.rules == {"race", "proxy-fence"}
    fence_finding = next(f for f in report.findings if f.rule == "proxy-fence")
    places = {loc.line for loc in fence_finding.locations}
    assert places == {line(refilled, "k.mem.store(tile"), line(refilled, "k.bulk.store(Out")}
