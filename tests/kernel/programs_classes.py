"""Pairs of programs of which the wrong one is so in a cluster for which another one is executed.

What such clusters access of global memory is computed for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.kernel.programs import Program, wrong
from tests.litmus.notation import global_words
from tilesim import Builder, address_of, s32, select, u64, view_at
from tilesim.ir.declarations import GlobalTensor, View
from tilesim.ir.expr import Expr

#: clusters, of which the first one is executed
_CLUSTERS = 3


def in_another_cluster(
    rule: str, *, breaks: str = "", not_covered: str = ""
) -> Callable[[Program], Program]:
    """Decorator: it breaks this rule in the last cluster of a class; see `Pair`."""
    one = [range(_CLUSTERS)]
    return wrong(rule, breaks=breaks, not_covered=not_covered, classes=(one, one))


def last(k: Builder, number: int, *, right: bool) -> Expr:
    """A number in the last cluster, and 0 in others; right: in no cluster."""
    return k.cta_x.eq(_CLUSTERS - 1) * (0 if right else number)


def word_at(k: Builder, g: GlobalTensor, byte: Expr) -> View:
    """The word at so many bytes from where a tensor begins."""
    return view_at(k.var("p", address_of(g) + byte, u64), s32, space="global")


def own(k: Builder, words: int = 32) -> Expr:
    """Of each lane and cluster a word."""
    return k.lane_id + words * k.cta_x


@in_another_cluster("inside")
def a_load_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    k.mem.load(k.var("r"), global_words(k, "g", 96)[own(k) + last(k, 1, right=right)])


@in_another_cluster("inside")
def a_store_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    k.mem.store(global_words(k, "g", 96)[own(k) + last(k, 1, right=right)], k.lane_id)


@in_another_cluster("out-of-bounds")
def a_load_at_an_address_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.load(k.var("r"), word_at(k, g, 4 * (own(k) + last(k, 1, right=right))))


@in_another_cluster("out-of-bounds")
def a_load_at_an_address_before_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.load(k.var("r"), word_at(k, g, 4 * (own(k) - last(k, 65, right=right))))


@in_another_cluster("out-of-bounds")
def a_store_at_an_address_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.store(word_at(k, g, 4 * (own(k) + last(k, 1, right=right))), 1)


@in_another_cluster("out-of-bounds")
def a_load_of_another_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g, h = global_words(k, "g", 96), global_words(k, "h", 8)
    first = select(last(k, 1, right=right), address_of(h), address_of(g))
    k.mem.load(k.var("r"), view_at(k.var("p", first + 4 * own(k), u64), s32, space="global"))


@in_another_cluster("aligned")
def a_load_between_two_words(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 97)
    k.mem.load(k.var("r"), word_at(k, g, 4 * own(k) + last(k, 2, right=right)))


@in_another_cluster("H15")
def a_store_of_a_vector_that_begins_between_two(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 4 * 97)
    at = k.var("p", address_of(g) + 16 * own(k) + last(k, 4, right=right), u64)
    k.mem.store_vector(view_at(at, s32, (4,), space="global"), (1, 1, 1, 1))


@in_another_cluster("clusters", not_covered="may be of equal values")
def a_store_where_another_cluster_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    k.mem.store(global_words(k, "g", 96)[own(k) - last(k, 1, right=right)], k.cta_x)


@in_another_cluster("H6")
def a_load_of_what_another_cluster_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.store(g[own(k)], 1)
    k.mem.load(k.var("r"), g[own(k) - last(k, 1, right=right)])


@in_another_cluster("H6")
def a_load_of_what_the_same_lane_of_another_cluster_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.store(g[own(k)], 1)
    k.mem.load(k.var("r"), g[own(k) - last(k, 32, right=right)])


@in_another_cluster("H23-equal", not_covered="lanes store to one place")
def lanes_that_store_to_one_place(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 96)
    k.mem.store(g[own(k) - last(k, 1, right=right) * (k.lane_id & 1)], k.lane_id)


def stores_of_two_warps(k: Builder, *, apart: bool, met: bool) -> None:
    """Each warp stores to words of its own, but for the last cluster; they meet between, or not."""
    k.launch(warps=2, grid=_CLUSTERS)
    g = global_words(k, "g", 64 * _CLUSTERS)
    with k.if_(k.warp_id.eq(0)):
        k.mem.store(g[own(k, 64)], 1)
    if met:
        k.sync_threads()
    with k.if_(k.warp_id.eq(1)):
        k.mem.store(g[own(k, 64) + 32 - last(k, 32, right=apart)], 2)


@in_another_cluster("H6")
def a_store_where_another_warp_stores(k: Builder, *, right: bool) -> None:
    stores_of_two_warps(k, apart=right, met=False)


@in_another_cluster("H6")
def a_store_behind_nothing_where_another_warp_stores(k: Builder, *, right: bool) -> None:
    stores_of_two_warps(k, apart=False, met=right)


@in_another_cluster("H6")
def a_load_before_which_nothing_comes_of_what_a_warp_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, grid=_CLUSTERS)
    g = global_words(k, "g", 32 * _CLUSTERS)
    with k.if_(k.warp_id.eq(0)):
        k.mem.store(g[own(k)], 1)
    if right:
        k.sync_threads()
    with k.if_(k.warp_id.eq(1)):
        k.mem.load(k.var("r"), g[own(k)])


def accesses_of_two_kinds(k: Builder, *, nc: bool, words: Expr) -> None:
    """Each cluster loads words of its own, and then stores others, so many behind these."""
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 64 * (_CLUSTERS + 1))
    k.mem.load(k.var("r"), g[own(k, 64)], nc=nc)
    k.sync_warp()
    k.mem.store(g[own(k, 64) + words], 1)


@in_another_cluster("H25")
def a_store_where_a_load_need_not_be_coherent(k: Builder, *, right: bool) -> None:
    accesses_of_two_kinds(k, nc=True, words=32 - last(k, 32, right=right))


@in_another_cluster("H25")
def a_load_that_need_not_be_coherent_moved_as_a_store(k: Builder, *, right: bool) -> None:
    accesses_of_two_kinds(k, nc=not right, words=0 * k.cta_x)


@in_another_cluster("H6")
def a_store_where_the_next_cluster_loads(k: Builder, *, right: bool) -> None:
    words = 32 if right else 64
    accesses_of_two_kinds(k, nc=False, words=words + 0 * k.cta_x)


@in_another_cluster("clusters", not_covered="may be of equal values")
def a_store_that_moves_less_than_it_is_wide(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    k.mem.store(global_words(k, "g", 96)[own(k, 32 if right else 31)], 1)


@in_another_cluster("H6")
def a_store_where_a_cluster_stores_that_moves_otherwise(k: Builder, *, right: bool) -> None:
    """Clusters store to words that others store to, in the opposite order, or behind these."""
    k.launch(warps=1, grid=_CLUSTERS)
    g = global_words(k, "g", 32 * 2 * _CLUSTERS)
    k.mem.store(g[own(k)], 1)
    k.sync_warp()
    k.mem.store(g[k.lane_id + 32 * (_CLUSTERS if right else 1) + 32 * (_CLUSTERS - 1 - k.cta_x)], 2)


@in_another_cluster("B19")
def a_box_that_does_not_begin_at_a_multiple(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    g, d = global_words(k, "g", 96), k.shared("d", s32, (32,))
    box, b = k.tensor_map(g, (32,)), k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.proxy_async()
        k.mbarrier.arrive_expect_tx(b, 128)
        k.tma.load(box, d, (32 * k.cta_x + last(k, 1, right=right),), b)
        k.mbarrier.wait(b, 0)


@in_another_cluster("agree")
def what_lanes_share_differs_between_them(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    tile = k.fragment("tile", s32, (1, 32))
    k.tile.fill(tile, 1)
    k.tile.zip(tile, "mul", tile, k.cta_x + last(k, 1, right=right) * k.lane_id)


@in_another_cluster("class", not_covered="differs in")
def a_branch_on_what_some_lanes_have(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=_CLUSTERS)
    r = k.var("r", 7)
    with k.if_(k.lane_id < 5):
        k.assign(r, last(k, 1, right=right))
        with k.if_(r.eq(0)):
            k.mem.load(k.var("x"), global_words(k, "g", 96)[own(k)])


def decides_twice(k: Builder, *, right: bool, by_lane: bool) -> None:
    """A sum that decides in two iterations: in the second one it is the same in the cluster that is
    executed, and another one in the last."""
    k.launch(warps=1, grid=_CLUSTERS)
    own = k.lane_id * 0 if by_lane else 0
    n = k.var("n", 5 + last(k, -1, right=False) + own)
    with k.loop(2):
        with k.if_(n + 1 > 6):
            k.sync_warp()
        k.assign(n, 5 + last(k, 2, right=right) + own)


@in_another_cluster("class", not_covered="differs in")
def a_sum_that_differs_in_the_second_iteration(k: Builder, *, right: bool) -> None:
    decides_twice(k, right=right, by_lane=False)


@in_another_cluster("class", not_covered="differs in")
def a_sum_of_lanes_that_differs_in_the_second_iteration(k: Builder, *, right: bool) -> None:
    decides_twice(k, right=right, by_lane=True)
