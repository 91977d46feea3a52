"""For each rule of the proof kernel a program that breaks it, and the nearest that does not.

``right`` says whether a program is to keep the rule; its name says what is wrong if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.restricted import relaxed_arrive_between_fences
from tests.litmus.tcgen05 import Setup, finish, scaled, setup
from tests.litmus.wgmma import operands
from tilesim import (
    Builder,
    address_of,
    bf16,
    ds,
    f32,
    mbar_at,
    pred,
    s8,
    s32,
    select,
    u8,
    u16,
    u32,
    u64,
    view_at,
)
from tilesim.ir.addressed import Space
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbarriers, SharedTensor
from tilesim.ir.expr import Const, Expr, Operand, Select, Var, as_expr
from tilesim.ir.mir import Branch, Mir, Trap
from tilesim.ir.ops.compute import Exchange
from tilesim.ir.ops.scalar import Store
from tilesim.ir.program import Strict
from tilesim.ir.tensor_memory import TmemView
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower

Classes = Sequence[Sequence[int]]


class Program(Protocol):
    """What builds a program, right or wrong."""

    __name__: str

    def __call__(self, k: Builder, *, right: bool) -> None: ...


@dataclass(frozen=True)
class Pair:
    """A program that breaks a rule, and its twin.

    ``breaks``: the rule that refutes the wrong one; another than ``rule`` if that says when two
    accesses are in order. ``not_covered``: of a rule that says what is not covered, a part of what
    is said. ``edit``: what makes the right program's machine form wrong, where no builder makes the
    wrong program. ``classes``: of clusters, of the wrong and of the right one. ``strict``: the
    level, at `ptx` of a rule that the wrong one does not break at `practice`. ``inputs``: the
    numbers, of 32 bits, that tensors hold. ``together``: all clusters are executed together.
    """

    rule: str
    program: Program
    breaks: str
    not_covered: str = ""
    edit: Callable[[Mir], Mir] | None = None
    classes: tuple[Classes | None, Classes | None] = (None, None)
    strict: Strict = "practice"
    inputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    together: bool = False

    def mir(self, *, right: bool) -> Mir:
        """The wrong or the right program, in machine form."""
        builder = Builder(self.program.__name__)
        self.program(builder, right=right or self.edit is not None)
        mir = lower(builder.finish())
        return mir if self.edit is None or right else self.edit(mir)

    def answer(self, *, right: bool) -> Answer:
        """What the kernel says of it at the pair's level."""
        held = {name: np.array(n, np.int32).tobytes() for name, n in self.inputs.items()}
        mir = self.mir(right=right)
        given = ("in-bounds", "zero-state")
        return certify(mir, self.classes[right], strict=self.strict, inputs=held, assumed=given,
                       together=self.together)  # fmt: skip


PAIRS: list[Pair] = []


def wrong(
    rule: str, *, breaks: str = "", not_covered: str = "",
    edit: Callable[[Mir], Mir] | None = None,
    classes: tuple[Classes | None, Classes | None] = (None, None), strict: Strict = "practice",
    inputs: Mapping[str, Sequence[int]] | None = None, together: bool = False,
) -> Callable[[Program], Program]:  # fmt: skip
    """Decorator: the program breaks this rule unless it is right; see `Pair`."""

    def enter(program: Program) -> Program:
        held = inputs or {}
        pair = Pair(
            rule, program, breaks or rule, not_covered, edit, classes, strict, held, together
        )
        PAIRS.append(pair)
        return program

    return enter


@contextmanager
def cta(k: Builder, rank: int) -> Iterator[None]:
    """One thread of a CTA of the cluster."""
    with k.if_(k.cluster_rank.eq(rank)), k.elected():
        yield


def copied(k: Builder, to: GlobalTensor, source: SharedTensor) -> None:
    """A thread copies to global memory, and waits for it."""
    k.bulk.store(to, source)
    k.bulk.commit_group()
    k.bulk.wait_group(0)


def zeros(k: Builder, cells: TmemView, tile: Fragment) -> None:
    """A tile of zeros is stored to tensor memory, and waited for."""
    k.tile.fill(tile, 0)
    k.tcgen05.st(cells, tile)
    k.tcgen05.wait_st()


def ends(k: Builder, s: Setup, done: Mbarriers) -> None:
    """All threads wait for a commit, and the columns are freed behind it."""
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


# ---------------------------------------------------------------------- launches


def stores_of_clusters(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    g = global_words(k, "g", 2)
    with k.elected():
        k.mem.store(g[k.cta_x if right else 0], 1)


wrong("clusters")(stores_of_clusters)


@wrong("clusters")
def a_reduction_by_a_copy_beside_an_atomic_of_another_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    with k.if_(k.cta_x < (2 if right else 1)), k.elected():
        k.bulk.reduce(g, x)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    if not right:
        with k.if_(k.cta_x.eq(1)), k.elected():
            k.mem.atomic(g[0], "add", 1)


def loads_beside_an_atomic(k: Builder, *, loading: int, word: int) -> None:
    """One of two clusters loads word 0, the other one adds to a word."""
    k.launch(warps=1, grid=2)
    g, r = global_words(k, "g", 2), k.var("r")
    with k.elected():
        with k.if_(k.cta_x.eq(loading)):
            k.mem.load(r, g[0])
        with k.else_():
            k.mem.atomic(g[word], "add", 1)


@wrong("clusters")
def atomics_of_two_sizes_by_clusters(k: Builder, *, right: bool) -> None:
    """Each cluster adds to eight bytes, and loads four of these, or of others."""
    k.launch(warps=1, grid=2)
    g, x = k.tensor("g", u64, (2,)), k.var("x")
    with k.elected():
        k.mem.atomic(g[0], "add", 1)
        four = view_at(address_of(g[1 if right else 0]), s32, space="global")
        k.mem.load(x, four, sem="relaxed", scope="gpu")


@wrong("clusters")
def a_load_beside_an_atomic_of_the_next_cluster(k: Builder, *, right: bool) -> None:
    loads_beside_an_atomic(k, loading=0, word=1 if right else 0)


@wrong("clusters")
def a_load_beside_an_atomic_of_the_cluster_before(k: Builder, *, right: bool) -> None:
    loads_beside_an_atomic(k, loading=1, word=1 if right else 0)


@wrong("partition", classes=([[0]], [[0, 1]]))
def a_cluster_in_no_class(k: Builder, *, right: bool) -> None:
    stores_of_clusters(k, right=True)


@wrong("partition", classes=([[0, 1], [1]], [[0], [1]]))
def a_cluster_in_two_classes(k: Builder, *, right: bool) -> None:
    stores_of_clusters(k, right=True)


@wrong("class", not_covered="differs in", classes=([[0, 1]], [[0, 1]]))
def a_branch_that_clusters_of_a_class_take_differently(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    with k.if_((k.warp_id if right else k.cta_x).eq(0)):
        k.sync_warp()


@wrong("data", not_covered="data decides")
def a_branch_on_a_loaded_value(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, r = global_words(k, "g"), k.var("r")
    k.mem.load(r, g[0])
    with k.if_((k.lane_id if right else r).eq(0)):
        k.sync_warp(1)


@wrong("data", not_covered="an address decides")
def a_branch_on_where_tensor_memory_lies(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    slot, r = k.shared("slot", u32, (1,)), k.var("r", dtype=u32)
    k.tcgen05.alloc(slot, 32)
    k.mem.load(r, slot[0])
    with k.if_((k.warp_id if right else r).eq(0)):
        k.sync_warp()
    k.tcgen05.dealloc(r, 32)


@wrong("inputs", not_covered="data decides", inputs={"n": [1]})
def a_trip_count_that_the_kernel_changes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    n, g, r = global_words(k, "n"), global_words(k, "g"), k.var("r")
    with k.elected():
        k.mem.store((g if right else n)[0], 2)
        k.mem.load(r, n[0])
        with k.loop(r):
            k.fence.proxy_async()


@wrong("inputs", not_covered="data decides", inputs={"n": [1]})
def a_number_behind_what_is_given(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    n, r = global_words(k, "n", 2), k.var("r")
    k.mem.load(r, n[0 if right else 1])
    with k.if_(r.eq(0)):
        k.sync_warp()


@wrong("inputs", breaks="deadlock", inputs={"n": [3, -1]})
def arrivals_that_a_tensor_counts(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    n, r, b = global_words(k, "n", 2), k.var("r"), k.mbarriers("b")
    begin(k, (b, 3 if right else 4))
    k.mem.load(r, n[0])
    with k.elected(), k.loop(r):
        k.mbarrier.arrive(b)
    k.mem.load(r, n[1])
    k.mbarrier.wait(b, r + 1)


@wrong("in-bounds", not_covered="data decides an address")
def an_element_that_is_loaded_of_what_is_written(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x, r = global_words(k, "g"), global_words(k, "x", 32), k.var("r")
    y = global_words(k, "y")
    with k.elected():
        k.mem.load(r, g[0])
        k.mem.load(r, x[r])
        k.mem.store((y if right else x)[0], r)


@wrong("in-bounds", not_covered="data decides the branch", inputs={"x": [1, 1]})
def a_branch_on_what_any_element_holds(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x, r = global_words(k, "g"), global_words(k, "x", 2), k.var("r")
    k.mem.load(r, g[0])
    k.mem.load(r, x[0 if right else r])
    with k.if_(r.eq(1)):
        k.sync_warp()


@wrong("in-bounds", breaks="H15")
def rows_of_which_the_first_one_is_aligned(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x, r = global_words(k, "g"), k.tensor("x", s32, (8, 8 if right else 5)), k.var("r")
    d, b = words(k, "d", 4), k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mem.load(r, g[0])
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, x[r, ds(0, 4)], b)
        k.mbarrier.wait(b, 0)


@wrong("in-bounds", not_covered="data decides the last coordinate")
def a_box_at_a_column_that_is_loaded(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x, r = global_words(k, "g"), k.tensor("x", s32, (8, 8)), k.var("r")
    d, b, box = k.shared("d", s32, (2, 4), align=128), k.mbarriers("b"), k.tensor_map(x, (2, 4))
    begin(k, (b, 1))
    with thread(k, 0):
        k.mem.load(r, g[0])
        k.mbarrier.arrive_expect_tx(b, 32)
        k.tma.load(box, d, (r, 0) if right else (0, r), b)
        k.mbarrier.wait(b, 0)


def on_an_address(condition: Callable[[Expr, Expr], Expr]) -> Program:
    """A branch on an address, or on how far one in a tensor is from another one in it."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        g, h = global_words(k, "g", 4), global_words(k, "h")
        p = k.var("p", address_of(g if right else h) + 8, u64)
        with k.if_(condition(p, address_of(g))):
            k.sync_warp()

    program.__name__ = "a_branch_on_where_tensors_lie"
    return program


for decides in (
    lambda p, g: p > g,
    lambda p, g: (p - g).eq(8),
    lambda p, g: p.ne(g + 4),
    lambda p, g: (p - 4) >= g,
):
    wrong("address", breaks="data", not_covered="an address decides")(on_an_address(decides))


def in_shared(condition: Callable[[Expr, Expr, bool], Expr]) -> Program:
    """A branch on an address in shared memory, and on what its place does not change."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        s = k.shared("s", u8, (4096,), align=1024)
        p = k.var("p", address_of(s) + 72, u32)
        with k.if_(condition(p, address_of(s), right)):
            k.sync_warp()

    program.__name__ = "a_branch_on_where_shared_memory_begins"
    return program


for chosen in (
    lambda p, s, right: p - s > 8 if right else p > 8,
    lambda p, s, right: (p & (1023 if right else 4095)).eq(72),
    lambda p, s, right: (p % (8 if right else 2048)).eq(0),
    lambda p, s, right: (p % 8 if right else as_expr(8) % p).eq(0),
    lambda p, s, right: ((p ^ (64 if right else 1024)) - s).eq(8),
    lambda p, s, right: ((p & (-64 if right else -2048)) - s).eq(64),
):
    wrong("address", breaks="data", not_covered="an address decides")(in_shared(chosen))


def generic(condition: Callable[[Expr, bool], Expr]) -> Program:
    """A branch on the generic address of a byte in shared memory."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        s, p = k.shared("s", u8, (4096,), align=1024), k.var("p", 0, u64)
        k.mem.cvta(p, address_of(s) + 72, space="shared")
        with k.if_(condition(p, right)):
            k.sync_warp()

    program.__name__ = "a_branch_on_where_generic_addresses_begin"
    return program


for found in (
    lambda p, right: (p & (1023 if right else 4095)).eq(72),
    lambda p, right: (p % (8 if right else 2048)).eq(0),
    lambda p, right: ((p & -64) - p if right else (p & 0xFFFFC0)).eq(-8),
    lambda p, right: (p if right else p & 0xFFFFFF).ne(0),
    lambda p, right: (p if right else p - (1 << 36) - 72).ne(0),
):
    wrong("address", breaks="data", not_covered="an address decides")(generic(found))


@wrong("address", breaks="data", not_covered="an address decides")
def a_branch_on_a_pointer_that_is_not_null(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g", 4)
    p = k.var("p", address_of(g) + 8, u64)
    with k.if_(p.ne(0 if right else 4096)):
        k.sync_warp()


@wrong("address", breaks="data", not_covered="an address decides")
def a_branch_on_a_pointer_far_outside_of_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g", 4)
    p = k.var("p", address_of(g) - (0 if right else 1 << 40), u64)
    with k.if_(p.ne(0)):
        k.sync_warp()


@wrong("address", breaks="data", not_covered="an address decides")
def a_branch_on_an_address_in_shared_memory_that_is_not_null(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    p = k.var("p", address_of(global_words(k, "g") if right else words(k, "s")), u64)
    with k.if_(p.ne(0)):
        k.sync_warp()


@wrong("address", breaks="data", not_covered="an address decides")
def a_branch_on_an_address_that_was_loaded(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, r = k.shared("s", u32, (2,)), k.var("r", dtype=u32)
    with k.elected():
        k.mem.store(s[0], address_of(s))
        k.mem.load(r, s[0])
        with k.if_((r - address_of(s) if right else r).eq(0)):
            k.fence.proxy_async()


@wrong("address", breaks="data", not_covered="an address decides")
def a_branch_on_bits_of_an_address(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g", 4)
    p = k.var("p", address_of(g) + 8, u64)
    with k.if_(((p - address_of(g) if right else p) & 256).eq(0)):
        k.sync_warp()


@wrong("data", not_covered="data decides")
def a_branch_on_the_bits_of_a_float(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, r = k.shared("x", s32 if right else f32, (1,)), k.var("r")
    with k.elected():
        k.mem.store(x[0], 1)
        k.mem.load(r, view_at(address_of(x), s32))
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


@wrong("deadlock")
def a_wait_without_an_arrival(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        if right:
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("deadlock")
def an_arrival_if_a_byte_without_a_sign_is_negative(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, x, r = k.mbarriers("b"), k.shared("x", s8, (1,)), k.var("r", dtype=u32)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mem.store(x[0], -1)
        k.mem.load(r, view_at(address_of(x), u8))
        with k.if_(r.eq(0xFF if right else 0xFFFFFFFF)):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


def _in_one_way(mir: Mir) -> Mir:
    """Of each branch it is said that lanes go one way."""
    jumps = (
        i.doing(replace(i.what, uniform=True)) if isinstance(i.what, Branch) else i
        for i in mir.code
    )
    return replace(mir, code=tuple(jumps))


@wrong("uniform", edit=_in_one_way)
def a_jump_at_which_lanes_part(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    out = k.tensor("out", s32, (64,))
    with k.if_(k.lane_id < 8):
        k.mem.store(out[k.thread_id], 1)


def _in_one_way_but_by_lane(mir: Mir) -> Mir:
    """The same of those that do not name the lane."""
    jumps = zip(mir.code, _in_one_way(mir).code, strict=True)
    return replace(mir, code=tuple(i if "lane_id" in str(i.what) else j for i, j in jumps))


@wrong("uniform", edit=_in_one_way_but_by_lane, not_covered="several parts of a warp")
def a_jump_at_which_another_half_of_a_warp_goes_another_way(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    out = k.tensor("out", s32, (32,))
    with k.loop(2) as turn, k.if_((k.lane_id // 16).eq(turn)), k.if_(turn.eq(0)):
        k.mem.store(out[k.lane_id], 1)


def _traps(mir: Mir) -> Mir:
    """The store is a trap."""
    trap = Trap(cond=Const(1), what="trap", aborts=True)
    code = tuple(i.doing(trap) if isinstance(i.what, Store) else i for i in mir.code)
    return replace(mir, code=code)


@wrong("trap", edit=_traps)
def a_trap_in_place_of_a_store(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    with k.elected():
        k.mem.store(global_words(k, "g")[0], 1)


# ---------------------------------------------------------------------- accesses


@wrong("H6")
def a_lane_that_stores_before_its_warp_stores_as_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.if_(k.lane_id.eq(3), sync=False):
        k.mem.store(slot[0], 1)
    if right:
        k.sync_warp()
    k.tcgen05.alloc(slot, 32)
    k.sync_warp()
    k.mem.load(address, slot[0])
    k.tcgen05.dealloc(address, 32)


@wrong("H6")
def two_stores_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x = words(k, "x")
    for warp in range(2):
        with thread(k, warp):
            k.mem.store(x[0], warp)
        if right:
            k.sync_threads()


@wrong("H6")
def lanes_that_read_one_word_of_which_the_last_has_waited(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, x, r = k.mbarriers("b"), words(k, "x"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 1):  # the warp that completes the barrier goes on first
        k.mem.atomic(x[0], "add", 1)
        k.mbarrier.arrive(b)
    with k.if_(k.warp_id.eq(0), sync=False):
        with k.if_(k.lane_id.eq(31) if not right else k.lane_id >= 0, sync=False):
            k.mbarrier.wait(b, 0)
        k.mem.load(r, x[0])


@wrong("H6")
def a_copy_that_is_read_before_its_barrier_ends(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g, r = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4), k.var("r")
    begin(k, (b, 1), zero=[d])
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, g, b)
        if right:
            k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mbarrier.wait(b, 0)


def copies_behind_fences(k: Builder, *fences: Literal["both", "release", "acquire"]) -> None:
    """A thread stores four words, fences for the asynchronous proxy, and copies them."""
    k.launch(warps=1)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    with thread(k, 0):
        for i in range(4):
            k.mem.store(x[i], 1)
        for fence in fences:
            if fence == "both":
                k.fence.proxy_async()
            else:
                k.fence.proxy_async_generic(fence)
        copied(k, g, x)


@wrong("H6")
def a_copy_of_what_no_proxy_fence_hands_over(k: Builder, *, right: bool) -> None:
    copies_behind_fences(k, *(("both",) if right else ()))


@wrong("H10", breaks="H6")
def a_copy_of_what_a_one_way_fence_has_not_released(k: Builder, *, right: bool) -> None:
    copies_behind_fences(k, *(("release", "acquire") if right else ("acquire",)))


@wrong("H10", breaks="H6")
def a_copy_of_what_a_one_way_fence_has_not_acquired(k: Builder, *, right: bool) -> None:
    copies_behind_fences(k, *(("release", "acquire") if right else ("release",)))


@wrong("H18", breaks="H6")
def a_store_to_a_tensor_before_a_release_for_shared_memory(k: Builder, *, right: bool) -> None:
    release = "whole" if right else "restricted"
    relaxed_arrive_between_fences(k, release=release, acquire="whole", in_global=True)


@wrong("H10", breaks="H6")
def a_copy_from_a_peer_that_has_released_its_own_memory_only(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    k.cluster.sync()
    with cta(k, 1 if right else 0):
        for i in range(4):
            k.mem.store(x.view().at(1)[i], 1)
        k.fence.proxy_async_generic("release")
    k.cluster.sync()
    with cta(k, 1):
        k.fence.proxy_async_generic("acquire")
        copied(k, g, x)
    k.cluster.sync()


@contextmanager
def remote(k: Builder, nbytes: int = 4) -> Iterator[tuple[Mbarriers, SharedTensor]]:
    """A cluster of two CTAs, each of which expects so many bytes, and has four zeros."""
    k.launch(warps=1, grid=2, cluster=2)
    b, x = k.mbarriers("b"), words(k, "x", 4)
    begin(k, (b, 1), zero=[x])
    k.fence.mbarrier_init()
    with k.elected():
        k.mbarrier.arrive_expect_tx(b, nbytes)
    k.cluster.sync()
    yield b, x
    k.cluster.sync()


@wrong("D11")
def a_reduction_in_the_own_cta(k: Builder, *, right: bool) -> None:
    to = 1 if right else 0
    with remote(k) as (b, x):
        with cta(k, 0):
            k.cluster.red_async(x.view().at(to)[0], "add", 1, b[0].at(to))
        with cta(k, to):
            k.mbarrier.wait(b, 0, scope="cluster")


@wrong("D11", breaks="H6")
def a_store_of_a_peer_that_is_read_before_its_barrier_ends(k: Builder, *, right: bool) -> None:
    r = k.var("r")
    with remote(k) as (b, x):
        with cta(k, 0):
            k.cluster.st_async(x.view().at(1)[0], 1, b[0].at(1))
        with cta(k, 1):
            if right:
                k.mbarrier.wait(b, 0, scope="cluster")
            k.mem.load(r, x[0])
            k.mbarrier.wait(b, 0, scope="cluster")


@wrong("D11", breaks="H6")
def a_store_of_a_peer_that_is_copied_without_a_proxy_fence(k: Builder, *, right: bool) -> None:
    g = global_words(k, "g", 4)
    with remote(k) as (b, x):
        with cta(k, 0):
            k.cluster.st_async(x.view().at(1)[0], 1, b[0].at(1))
        with cta(k, 1):
            k.mbarrier.wait(b, 0, scope="cluster")
            if right:
                k.fence.proxy_async()
            copied(k, g, x)


@wrong("H2", breaks="H6")
def two_asynchronous_stores_or_reductions_of_one_word(k: Builder, *, right: bool) -> None:
    with remote(k, 8) as (b, x):
        with cta(k, 1):
            k.mbarrier.wait(b, 0, scope="cluster")
        with k.if_(k.cluster_rank.eq(0)), k.if_(k.lane_id < 2):
            to, mbar = x.view().at(1)[0], b[0].at(1)
            if right:
                k.cluster.red_async(to, "add", 1, mbar)
            else:
                k.cluster.st_async(to, 1, mbar)


@wrong("uninitialised")
def a_reduction_of_a_peer_where_nothing_has_written(k: Builder, *, right: bool) -> None:
    with remote(k) as (b, x):
        y = words(k, "y")
        with cta(k, 0):
            to = x.view().at(1)[0] if right else y.view().at(1)[0]
            k.cluster.red_async(to, "add", 1, b[0].at(1))
        with cta(k, 1):
            k.mbarrier.wait(b, 0, scope="cluster")


@wrong("H2", breaks="H6")
def strong_stores_of_two_ctas_at_the_scope_of_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    g = global_words(k, "g")
    with k.elected():
        k.mem.store(g[0], 1, sem="relaxed", scope="cluster" if right else "cta")


@wrong("H2", breaks="H6")
def strong_stores_of_two_sizes(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, b = k.shared("x", u32, (1,), offset=0), k.shared("b", u8, (4,), offset=0)
    with thread(k, 0):
        k.mem.store(x[0], 1, sem="relaxed")
    with thread(k, 1):
        k.mem.store(x[0] if right else b[0], 1, sem="relaxed")


@wrong("H2", breaks="H6")
def a_reduction_by_a_copy_beside_an_atomic(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    for warp in range(2):
        with thread(k, warp):
            if right or not warp:
                k.bulk.reduce(g, x)
                k.bulk.commit_group()
                k.bulk.wait_group(0)
            else:
                k.mem.atomic(g[0], "add", 1)


@wrong("out-of-bounds")
def a_cta_that_the_cluster_lacks(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x = words(k, "x")
    k.cluster.sync()
    with cta(k, 0):
        k.mem.store(x.view().at(k.var("peer", 1 if right else 2))[0], 1)
    k.cluster.sync()


@wrong("out-of-bounds")
def a_store_at_an_address_beyond_shared_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = words(k, "x", 4)
    with k.elected():
        k.mem.store(view_at(k.var("p", address_of(x) + (12 if right else 16), u32), s32), 1)


@wrong("out-of-bounds")
def an_address_in_shared_memory_of_more_than_32_bits(k: Builder, *, right: bool) -> None:
    """It is the one that its lowest 32 are."""
    k.launch(warps=1)
    beyond = 1 << 32 if right else 1 << 28
    with k.elected():
        k.mem.store(view_at(address_of(words(k, "x", 4)) + beyond, s32), 1)


@wrong("out-of-bounds")
def an_address_of_a_peer_that_is_named_as_the_own(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, p = words(k, "x"), k.var("p", 0, u32)
    k.cluster.sync()
    with cta(k, 0):
        k.mem.mapa(p, address_of(x), 1)
        space: Space = "shared::cluster" if right else "shared::cta"
        k.mem.store(view_at(p, s32, space=space), 1)
    k.cluster.sync()
    with cta(k, 1):
        k.mem.store(x[0], 1)


@wrong("out-of-bounds")
def an_address_in_no_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g")
    p = k.var("p", address_of(g) - (0 if right else 64), u64)
    with k.elected():
        k.mem.store(view_at(p, s32, space="global"), 1)


@wrong("out-of-bounds")
def an_mbarrier_beyond_its_array(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b", 2), k.var("n", 1 if right else 2)
    with k.elected():
        k.mbarrier.init(b[n], 1)


@wrong("inside")
def a_prefetch_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, n = global_words(k, "g", 8), k.var("n", 4 if right else 8)
    with k.elected():
        k.bulk.prefetch(g[ds(n, 4)])


@wrong("inside", classes=([range(3)], [range(3)]))
def a_prefetch_beyond_its_tensor_by_the_last_cluster_of_a_class(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=3)
    g = global_words(k, "g", 12 if right else 8)
    with k.elected():
        k.bulk.prefetch(g[ds(4 * k.cta_x, 4)])


@wrong("out-of-bounds")
def a_prefetch_at_an_address_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g", 8)
    p = k.var("p", address_of(g) + (16 if right else 32), u64)
    with k.elected():
        k.bulk.prefetch(view_at(p, s32, (4,), space="global"))


@wrong("inside")
def a_row_of_a_matrix_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    """The first eight lanes name rows; what the others name is not accessed (E23)."""
    k.launch(warps=1)
    x = k.shared("x", u16, (8, 8))
    k.matrix.store(x[k.lane_id + (0 if right else 1)], (1,))


@wrong("inside")
def an_element_beyond_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, n = words(k, "x", 4), k.var("n", 3 if right else 4)
    words(k, "behind", 4)
    with k.elected():
        k.mem.store(x[n], 1)


@wrong("inside")
def an_element_before_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    words(k, "before", 32)
    x, n = words(k, "x", 4), k.var("n", 0 if right else -1)
    with k.elected():
        k.mem.store(x[n], 1)


@wrong("aligned")
def a_word_at_an_odd_address(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = words(k, "x", 4)
    with k.elected():
        k.mem.store(view_at(k.var("p", address_of(x) + (4 if right else 5), u32), s32), 1)


@wrong("H15")
def a_bulk_copy_to_no_multiple_of_16_bytes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d[ds(4 if right else 2, 4)], g, b)
        k.mbarrier.wait(b, 0)


@wrong("H15")
def a_piece_of_a_copy_at_no_multiple_of_its_size(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 8), global_words(k, "g", 4)
    with thread(k, 0):
        k.cp_async.copy(d[ds(4 if right else 2, 4)], g, size=16)
        k.cp_async.wait_all()


@wrong("C2-bytes")
def a_copy_of_more_bytes_than_it_has(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g, n = words(k, "d", 4), global_words(k, "g", 4), k.var("n", 12 if right else 20)
    with thread(k, 0):
        k.cp_async.copy(d, g, src_bytes=n)
        k.cp_async.wait_all()


@wrong("C2-bytes", breaks="H6")
def a_copy_of_some_bytes_that_another_thread_writes(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    d, g, n = words(k, "d", 4), global_words(k, "g", 4), k.var("n", 0 if right else 4)
    with thread(k, 0):
        k.cp_async.copy(d, g, src_bytes=n)
        k.cp_async.wait_all()
    with thread(k, 1):
        k.mem.store(g[0], 1)


@wrong("C2-bytes", breaks="inside")
def a_copy_of_some_bytes_from_beyond_a_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = k.shared("d", s32, (32, 4)), k.tensor("g", s32, (16, 4))
    size = (k.lane_id < (16 if right else 17)) * 16
    k.cp_async.copy(d[k.lane_id], g[k.lane_id], src_bytes=size)
    k.cp_async.wait_all()


@wrong("H6")
def copies_of_several_sizes_to_one_place(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 8), global_words(k, "g", 8)
    k.cp_async.copy(d, g, src_bytes=8 if right else 4 * (1 + k.lane_id % 2))
    k.cp_async.wait_all()


@wrong("H6")
def copies_of_several_rows_to_one_place(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 8), k.tensor("g", s32, (32, 8))
    k.cp_async.copy(d, g[0 if right else k.lane_id])
    k.cp_async.wait_all()


@wrong("H6")
def a_copy_by_a_lane_that_does_not_wait_for_it(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = k.shared("d", s32, (32, 4)), global_words(k, "g", 4)
    k.cp_async.copy(d[k.lane_id], g)
    with k.if_(k.lane_id < (32 if right else 5)):
        k.cp_async.wait_all()
    k.sync_warp()
    with k.elected():
        k.mem.store(g[0], 1)


@wrong("H6")
def copies_of_some_of_each_16_bytes(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, target="sm_100a")
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    for warp, mask in enumerate((0x0FF0, 0xF00F if right else 0xF01F)):
        with thread(k, warp):
            k.bulk.store(g, x, mask=k.var(f"mask{warp}", mask, u16))
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@wrong("H15")
def a_vector_at_no_multiple_of_its_size(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, n = words(k, "d", 8), k.var("n", 4 if right else 2)
    with thread(k, 0):
        k.mem.store_vector(d[ds(n, 4)], (1, 1, 1, 1))


def loads_a_tile(k: Builder, *, to: int = 0, at: int = 0) -> None:
    """A thread loads eight words, from so many on, to shared memory from so many words on."""
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 64), global_words(k, "g", 16)
    box, place = k.tensor_map(g, (8,)), k.var("place", address_of(d) + 4 * to, u32)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 32)
        k.tma.load(box, view_at(place, s32, (8,)), (k.var("first", at),), b)
        k.mbarrier.wait(b, 0)


@wrong("H15")
def a_tile_at_no_multiple_of_128_bytes(k: Builder, *, right: bool) -> None:
    loads_a_tile(k, to=32 if right else 16)


@wrong("B19")
def a_tensor_copy_from_no_multiple_of_16_bytes(k: Builder, *, right: bool) -> None:
    loads_a_tile(k, at=-4 if right else -3)


@wrong("B19")
def a_tensor_store_that_begins_before_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 8), global_words(k, "g", 16)
    box, n = k.tensor_map(g, (8,)), k.var("n", 0 if right else -4)
    begin(k, zero=[d])
    with thread(k, 0):
        k.tma.store(box, d, (n,))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@wrong("H23")
def a_tile_that_is_stored_to_rows_at_one_place(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g = k.tensor("g", f32, (2, 32), strides=(32 if right else 0, 1))
    tile = k.fragment("tile", f32, (2, 32))
    k.tile.fill(tile, 0)
    k.tile.store(g, tile)


@wrong("uninitialised")
def shared_memory_that_nothing_has_written(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, first, second = words(k, "x", 2), k.var("first"), k.var("second")
    with k.elected():
        for i in range(2 if right else 1):
            k.mem.store(x[i], 1)
        k.mem.load_vector((first, second), x[ds(0, 2)])


@wrong("A6-bytes")
def a_store_to_a_live_mbarrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b", offset=0)
    x = k.shared("x", s32, (4,), align=16, offset=16 if right else 0)
    with k.elected():
        k.mbarrier.init(b, 1)
        k.mem.store_vector(x[ds(0, 4)], (1, 1, 1, 1))


@wrong("U9")
def a_multicast_to_a_cta_that_the_cluster_lacks(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    mask = k.var("mask", 0b11 if right else 0b100)
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
        k.mbarrier.arrive_expect_tx(b, 16)
    k.cluster.sync()
    with cta(k, 0):
        k.bulk.load(d, g, b, multicast=mask)
    k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


@wrong("U9")
def a_multicast_to_no_cta(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        if right:
            k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, g, b, multicast=k.var("mask", int(right)))
        if right:
            k.mbarrier.wait(b, 0)


@wrong("agree")
def a_tile_that_lanes_multiply_by_several_numbers(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    tile = k.fragment("tile", f32, (1, 32))
    k.tile.fill(tile, 1)
    k.tile.zip(tile, "mul", tile, k.lane_id // (32 if right else 16))


def stores_to_a_peer(k: Builder, *, before: bool = True, behind: bool = True) -> None:
    """A CTA stores to the other one's memory; barriers of the cluster before it, and behind it."""
    k.launch(warps=1, grid=2, cluster=2)
    x = words(k, "x")
    if before:
        k.cluster.sync()
    with cta(k, 0):
        k.mem.store(x.view().at(1)[0], 1)
    if behind:
        k.cluster.sync()


@wrong("D8")
def a_peer_that_need_not_have_started(k: Builder, *, right: bool) -> None:
    stores_to_a_peer(k, before=right)


@wrong("D9")
def a_peer_that_may_have_ended(k: Builder, *, right: bool) -> None:
    stores_to_a_peer(k, behind=right)


@wrong("B34")
def a_copy_that_reads_when_the_cta_has_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    with thread(k, 0):
        k.bulk.store(g, x)
        k.bulk.commit_group()
        if right:
            k.bulk.wait_group(0, read=True)


# ---------------------------------------------------------------------- mbarriers


@wrong("A")
def a_credit_that_may_count_for_the_phase_before(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    for warp in range(2):
        with thread(k, warp):
            k.mbarrier.arrive(b)
            if right:
                k.mbarrier.wait(b, 0)
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 1)


@wrong("A")
def a_copy_that_may_land_in_the_phase_before(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (2, 4)), k.tensor("g", s32, (2, 4))
    begin(k, (b, 1))
    with thread(k, 0):
        for i in range(2):
            k.mbarrier.arrive_expect_tx(b, 16)
            k.bulk.load(d[i], g[i], b)
            if right or i:
                k.mbarrier.wait(b, i)


@wrong("A3")
def more_bytes_than_an_operation_can_expect(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", (1 << 20) - right)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, n)


@wrong("A5")
def an_mbarrier_that_expects_no_arrival(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", int(right))
    with k.elected():
        k.mbarrier.init(b, n)


@wrong("A5")
def an_mbarrier_that_starts_twice(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        if right:
            k.mbarrier.inval(b)
        k.mbarrier.init(b, 1)


@wrong("A5")
def an_mbarrier_that_all_lanes_start(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    with k.if_(k.lane_id < (1 if right else 32)):
        k.mbarrier.init(b, 1)


@wrong("A5")
def an_mbarrier_that_expects_too_many_arrivals(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", (1 << 20) - right)
    with k.elected():
        k.mbarrier.init(b, n)


@wrong("A5")
def an_mbarrier_at_no_multiple_of_8_bytes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = words(k, "x", 8)
    with k.elected():
        k.mbarrier.init(mbar_at(k.var("p", address_of(x) + (8 if right else 4), u32)), 1)


@wrong("A5")
def an_mbarrier_that_a_peer_starts(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b, p = k.mbarriers("b"), k.var("p", 0, u32)
    k.cluster.sync()
    with cta(k, 0):
        k.mem.mapa(p, address_of(b.only()), 0 if right else 1)
        k.mbarrier.init(mbar_at(p, space="shared::cluster"), 1)
    k.cluster.sync()


@wrong("A6")
def an_arrival_where_no_mbarrier_is(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    with k.elected():
        if right:
            k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b)


@wrong("A7")
def an_arrival_that_may_come_before_the_init(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    with thread(k, 0):
        k.mbarrier.init(b, 1)
    if right:
        k.sync_threads()
    with thread(k, 1):
        k.mbarrier.arrive(b)


@wrong("A7")
def an_init_that_no_fence_hands_to_the_peer(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b = k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        if right:
            k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with cta(k, 0):
        k.mbarrier.arrive(b[0].at(1), scope="cluster")
    k.cluster.sync()


@wrong("A11")
def an_arrival_that_counts_nothing(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b"), k.var("n", int(right))
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, n)


@wrong("A13")
def more_arrivals_than_a_phase_expects(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mbarrier.arrive(b, 2 if right else 3)


@wrong("A17")
def a_wait_for_the_mbarrier_of_a_peer(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        k.mbarrier.arrive(b)
    k.cluster.sync()
    with cta(k, 0):
        k.mbarrier.wait(b[0].at(0 if right else 1), 0)
    k.cluster.sync()


@wrong("A20")
def a_token_of_a_phase_before_the_last(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, first, then = k.mbarriers("b"), k.var("first"), k.var("then")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, token=first)
        k.mbarrier.arrive(b, token=then)
        k.mbarrier.wait(b, token=then if right else first)


@wrong("A20")
def a_number_in_place_of_a_token(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, t = k.mbarriers("b"), k.var("t", 0)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, token=t if right else None)
        k.mbarrier.wait(b, token=t)


@wrong("A20")
def a_token_of_another_mbarrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, other, t = k.mbarriers("b"), k.mbarriers("other"), k.var("t")
    begin(k, (b, 1), (other, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, token=t)
        k.mbarrier.arrive(other)
        k.mbarrier.wait(b if right else other, token=t)


@wrong("B")
def a_phase_that_may_end_before_bytes_are_expected(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 1):
        k.mbarrier.expect_tx(b, 16)
        k.mbarrier.complete_tx(b, 16)
        if right:
            k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.arrive(b, 1 if right else 2)
        k.mbarrier.wait(b, 0)


def no_bytes(k: Builder, *, expected: bool, right: bool) -> None:
    """Only the credit of no bytes comes after the wait of warp 1: phase 1 may end without it, and
    that wait miss phase 0."""
    k.launch(warps=3)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        (k.mbarrier.expect_tx if expected else k.mbarrier.complete_tx)(b, 0)
        if right:
            k.mbarrier.arrive(b)
    with thread(k, 2):
        if not right:
            k.mbarrier.wait(b, 0)
            k.mbarrier.arrive(b)


@wrong("B")
def a_phase_that_may_end_before_no_bytes_are_expected(k: Builder, *, right: bool) -> None:
    no_bytes(k, expected=True, right=right)


@wrong("B")
def a_phase_that_may_end_before_no_bytes_are_completed(k: Builder, *, right: bool) -> None:
    no_bytes(k, expected=False, right=right)


@wrong("B")
def a_phase_that_may_end_before_an_arrival_is_lent(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 1):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b)
        if right:
            k.mbarrier.arrive(b)
    with thread(k, 0):
        if not right:
            k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)


@wrong("B-last")
def a_phase_that_copies_leave_open(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16 if right else 32)
        k.bulk.load(d, g, b)
        if right:
            k.mbarrier.wait(b, 0)


@wrong("B-last")
def a_phase_that_lacks_bytes_below_zero(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        (k.mbarrier.expect_tx if right else k.mbarrier.complete_tx)(b, 16)
        k.mbarrier.arrive(b)


@wrong("B")
def bytes_that_are_expected_behind_the_last_arrival(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mbarrier.complete_tx(b, 16)
        k.mbarrier.arrive(b, 1 if right else 2)
        k.mbarrier.expect_tx(b, 16)


@contextmanager
def two_phases(k: Builder) -> Iterator[tuple[Mbarriers, Mbarriers]]:
    """A thread arrives at the first mbarrier, and once more behind an arrival at the second one;
    what another one does."""
    k.launch(warps=2)
    b, go = k.mbarriers("b"), k.mbarriers("go")
    begin(k, (b, 1), (go, 1))
    with thread(k, 1):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(go, 0)
        k.mbarrier.arrive(b)
    with thread(k, 0):
        yield b, go


@wrong("C1")
def a_wait_that_may_pass_two_phases_early(k: Builder, *, right: bool) -> None:
    with two_phases(k) as (b, go):
        if right:
            k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(go)
        k.mbarrier.wait(b, 1)


@wrong("C2")
def a_wait_that_may_look_when_the_next_phase_is_over(k: Builder, *, right: bool) -> None:
    with two_phases(k) as (b, go):
        if not right:
            k.mbarrier.arrive(go)
        k.mbarrier.wait(b, 0)
        if right:
            k.mbarrier.arrive(go)


@wrong("C1-peek", breaks="C1")
def a_poll_that_may_find_the_phase_before_the_last_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, go, seen = k.mbarriers("b"), k.mbarriers("go"), k.var("seen", 0)
    begin(k, (b, 1), (go, 1))
    with thread(k, 1):
        for phase in range(3):
            k.mbarrier.arrive(b)
            k.mbarrier.wait(go, phase & 1)
    with thread(k, 0):
        k.mbarrier.wait(b, 0)
        if not right:
            k.mbarrier.try_wait(seen, b, 0)
        k.mbarrier.arrive(go)
        k.mbarrier.wait(b, 1)
        k.mbarrier.arrive(go)
        if right:
            k.mbarrier.try_wait(seen, b, 0)
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(go)


@wrong("C1-peek", not_covered="a poll of something else")
def a_poll_of_another_mbarrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, other, seen = k.mbarriers("b"), k.mbarriers("other"), k.var("seen", 0)
    begin(k, (b, 1), (other, 1))
    with thread(k, 1):
        k.mbarrier.arrive(b)
        k.mbarrier.arrive(other)
    with thread(k, 0):
        k.mbarrier.try_wait(seen, b if right else other, 0)
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b, 0)


@wrong("C1-peek", not_covered="a poll of something else")
def a_poll_that_acquires_nothing(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, seen = k.mbarriers("b"), k.var("seen", 0)
    begin(k, (b, 1))
    with thread(k, 1):
        k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.try_wait(seen, b, 0, sem="acquire" if right else "relaxed")
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b, 0)


@wrong("C1-peek", not_covered="a poll of something else")
def a_poll_of_another_lane(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, seen, first = k.mbarriers("b"), k.var("seen", 0), k.var("first", 0)
    begin(k, (b, 1))
    with thread(k, 1):
        k.mbarrier.arrive(b)
    with k.if_(k.warp_id.eq(0)):
        k.mbarrier.try_wait(seen, b, 0)
        k.mem.shuffle(first, seen, k.lane_id if right else 0)
        with k.if_(first.eq(0)):
            k.mbarrier.wait(b, 0)


@wrong("C1-peek", not_covered="a poll of something else")
def a_poll_of_the_life_before(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, seen = k.mbarriers("b"), k.var("seen", 0)
    begin(k)
    with thread(k, 0):
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b)
        k.mbarrier.try_wait(seen, b, 0)
        if not right:
            k.mbarrier.inval(b)
            k.mbarrier.init(b, 1)
            k.mbarrier.arrive(b)
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b, 0)


@wrong("H6")
def a_read_behind_a_poll_that_may_have_answered_no(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, word, x = k.mbarriers("b"), words(k, "word"), k.var("x")
    seen = k.var("seen", 0)
    begin(k, (b, 1), zero=[word])
    with thread(k, 1):
        k.mem.store(word[0], 1)
        k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.try_wait(seen, b, 0)
        if right:
            with k.while_(seen.eq(0)):
                k.mbarrier.try_wait(seen, b, 0)
        k.mem.load(x, word[0])


@wrong("I")
def a_poll_when_the_mbarrier_may_have_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, seen = k.mbarriers("b"), k.var("seen", 0)
    begin(k, (b, 1))
    with thread(k, 1):
        k.mbarrier.try_wait(seen, b, 1)
    if right:
        k.sync_threads()
    with thread(k, 0):
        k.mbarrier.inval(b)


def ends_beside_an_arrival(k: Builder, *, warps: int, arriving: int, met: bool) -> None:
    """One of the first two warps arrives at an mbarrier, the other one invalidates it; ``met``:
    behind that."""
    k.launch(warps=warps)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, arriving):
        k.mbarrier.arrive(b)
    if met:
        k.sync_threads()
    with thread(k, 1 - arriving):
        k.mbarrier.inval(b)


@wrong("I")
def an_arrival_when_the_mbarrier_may_have_ended(k: Builder, *, right: bool) -> None:
    ends_beside_an_arrival(k, warps=2, arriving=1, met=right)


@wrong("I")
def an_arrival_that_need_not_come_before_the_end(k: Builder, *, right: bool) -> None:
    ends_beside_an_arrival(k, warps=4, arriving=0, met=right)


@wrong("I")
def an_arrival_of_a_peer_when_the_cta_may_have_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    k.cluster.sync()
    with cta(k, 0):
        k.mbarrier.arrive(b[0].at(1), scope="cluster")
    if right:
        k.cluster.sync()


@wrong("I")
def a_copy_that_lands_when_the_cta_may_have_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, g, b)
        if right:
            k.mbarrier.wait(b, 0)


@wrong("I")
def a_commit_that_arrives_when_the_mbarrier_may_have_ended(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
        k.tcgen05.commit(done)
        k.mbarrier.wait(b if right else done, 0)
        k.mbarrier.inval(b)
    ends(k, s, done)


def bytes_in_a_phase(k: Builder, *, last: int, ends: bool) -> None:
    """Twice bytes are expected and completed in a phase, 2^19 first; ``ends``: it comes to an
    end."""
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        for nbytes in (1 << 19, last):
            k.mbarrier.expect_tx(b, nbytes)
            k.mbarrier.complete_tx(b, nbytes)
        if ends:
            k.mbarrier.arrive(b)


@wrong("T")
def more_bytes_in_a_phase_than_a_tx_count_holds(k: Builder, *, right: bool) -> None:
    bytes_in_a_phase(k, last=(1 << 19) - right, ends=True)


@wrong("T")
def more_bytes_in_a_phase_that_stays_open_than_a_tx_count_holds(k: Builder, *, right: bool) -> None:
    bytes_in_a_phase(k, last=(1 << 19) - right, ends=False)


@wrong("P")
def an_arrival_that_must_not_be_the_last_and_may_be(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mbarrier.arrive(b, no_complete=True)
        if right:
            k.mbarrier.arrive(b)
    with thread(k, 1):
        if not right:
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("P")
def an_arrival_that_may_be_the_last_in_a_phase_that_lacks_bytes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mbarrier.expect_tx(b, 16)
        if not right:
            k.mbarrier.arrive(b)
        k.mbarrier.arrive(b, no_complete=True)
        if right:
            k.mbarrier.arrive(b)


@wrong("U6")
def bytes_when_all_have_dropped(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_drop(b)
        k.mbarrier.wait(b, 0)
        if not right:
            k.mbarrier.expect_tx(b, 16)
            k.mbarrier.complete_tx(b, 16)
        k.mbarrier.inval(b)


@wrong("R")
def more_arrivals_lent_than_a_pending_count_holds(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g, count = k.shared("d", s32, (32, 4)), k.tensor("g", s32, (32, 4)), (1 << 20) - 32 - right
    b = k.mbarriers("b")
    begin(k, (b, count))
    k.cp_async.copy(d, g)
    k.cp_async.mbarrier_arrive(b)
    k.sync_warp()
    with k.elected():
        k.mbarrier.arrive(b, count)
        k.mbarrier.wait(b, 0)


@wrong("R")
def an_arrival_lent_that_a_later_drop_does_not_make_room_for(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g, count = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4), (1 << 20) - 1
    begin(k, (b, count - right))
    with thread(k, 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b)
        k.mbarrier.arrive_drop(b)
        k.mbarrier.arrive(b, count - 1 - right)
        k.mbarrier.wait(b, 0)


# ---------------------------------------------------------------------- barriers of many threads


@wrong("N")
def rounds_of_a_named_barrier_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    for first in (0, 2):
        with k.role(f"W{first}", (first, first + 1)):
            k.bar.sync(1 + (first if right else 0), 64, aligned=False)


@wrong("E1")
def a_named_barrier_of_more_threads_than_the_cta_has(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    with k.role("W0", 0):
        k.bar.arrive(1, 64 if right else 96, aligned=False)


@wrong("E1")
def a_named_barrier_beyond_the_last_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    k.bar.sync(k.var("n", 15 if right else 16), aligned=False)


@wrong("E8")
def an_aligned_barrier_that_lanes_pass_by(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    y = k.tensor("y", s32, (64,))
    with k.if_(k.lane_id < (32 if right else 16), sync=False):
        k.bar.sync(0)
    k.mem.store(y[k.thread_id], 1)


@wrong("E8")
def an_aligned_barrier_of_lanes_where_others_end(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    y = k.tensor("y", s32, (32,))
    with k.if_(k.lane_id < 16, sync=False):
        if not right:
            k.mem.store(y[k.lane_id], 1)
        k.exit()
    k.bar.sync(0)


@wrong("E5")
def a_vote_in_which_others_only_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    v = k.var("v")
    with k.role("W0", 0):
        k.bar.red(v, 1, 1, threads=64, aligned=False)
    with k.role("W1", 1):
        if right:
            k.bar.red(v, 1, 1, threads=64, aligned=False)
        else:
            k.bar.sync(1, 64, aligned=False)


@wrong("data", not_covered="data decides")
def a_branch_on_what_a_vote_comes_to(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    v = k.var("v")
    k.bar.red(v, 1, k.lane_id.eq(0))
    with k.if_((k.warp_id if right else v).eq(1)):
        k.sync_warp()


@wrong("E7")
def two_counts_in_a_round_of_a_named_barrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    with k.role("W0", 0):
        k.bar.arrive(1, 64 if right else 96, aligned=False)
    with k.role("W1", 1):
        k.bar.sync(1, 64, aligned=False)


@wrong("E6", not_covered="joins twice in a round")
def a_warp_that_joins_twice(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    for n, warp in enumerate((0, 2 if right else 0)):
        with k.role(f"{n}", warp):
            k.bar.arrive(1, 96, aligned=False)
    with k.role("W1", 1):
        k.bar.sync(1, 96, aligned=False)


@wrong("D2")
def two_arrivals_at_the_cluster_barrier_without_a_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    k.cluster.arrive()
    if right:
        k.cluster.wait()
    k.cluster.arrive()
    k.cluster.wait()


@wrong("U30")
def a_wait_for_the_cluster_barrier_without_an_arrival(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    if right:
        k.cluster.arrive()
    k.cluster.wait()


@wrong("E11")
def a_lane_that_is_not_in_its_mask(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    k.sync_warp(k.var("mask", 0xFFFFFFFF if right else 0xFFFFFFFE, u32))


def halves_meet(k: Builder, *, first: int = 0xFFFF, of: int = 1) -> None:
    """Each half of a warp meets by itself, between a store by lane 0 and a load by another one."""
    k.launch(warps=1)
    word, r = words(k, "word"), k.var("r")
    with k.if_(k.lane_id.eq(0), sync=False):
        k.mem.store(word[0], 1)
    k.sync_warp(k.var("mask", select(k.lane_id < 16, first, 0xFFFF0000), u32))
    with k.if_(k.lane_id.eq(of)):
        k.mem.load(r, word[0])


@wrong("E11", breaks="deadlock")
def a_mask_of_one_half_that_names_a_lane_of_the_other(k: Builder, *, right: bool) -> None:
    halves_meet(k, first=0xFFFF if right else 0x1FFFF)


@wrong("E11")
def a_mask_of_one_half_that_names_a_lane_of_it_not(k: Builder, *, right: bool) -> None:
    halves_meet(k, first=0xFFFF if right else 0x7FFF)


@wrong("H6")
def a_load_by_the_half_that_has_met_by_itself(k: Builder, *, right: bool) -> None:
    halves_meet(k, of=15 if right else 16)


@wrong("E11", not_covered="lanes of a member mask that have exited")
def a_mask_of_lanes_that_end_without_executing_it(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    with k.if_(k.lane_id < (32 if right else 4), sync=False):
        k.sync_warp()


@wrong("E27")
def a_value_of_a_lane_that_does_not_execute_the_shuffle(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    r = k.var("r", 0)
    with k.if_(k.lane_id < 4):
        k.mem.shuffle(r, k.lane_id, 3 if right else 4, mask=0xF)


@wrong("E27")
def a_shuffle_of_which_the_last_five_bits_count(k: Builder, *, right: bool) -> None:
    """By 33 lanes up is by one, and the lane below the first one does not execute it."""
    k.launch(warps=1)
    r = k.var("r", 0)
    with k.if_(k.lane_id >= 16):
        k.mem.shuffle(r, k.lane_id, 32 if right else 33, mode="up", mask=0xFFFF0000)


def ticket_of_lane_0(k: Builder, *, from_lane: int, mode: Literal["idx", "up"]) -> None:
    """What one lane has set, and lanes get."""
    k.launch(warps=1)
    ticket, drawn, x = k.var("ticket", dtype=s32), k.var("drawn", dtype=s32), words(k, "x", 64)
    with k.if_(k.lane_id.eq(0)):
        k.assign(ticket, 7)
    k.mem.shuffle(drawn, ticket, from_lane, mode=mode)
    k.mem.store(x[k.lane_id + drawn], 1)


@wrong("unset", not_covered="which nothing has set")
def a_register_of_a_lane_that_has_not_set_it(k: Builder, *, right: bool) -> None:
    ticket_of_lane_0(k, from_lane=0 if right else 1, mode="idx")


@wrong("unset", not_covered="which nothing has set")
def a_register_of_the_lanes_below_that_have_not_set_it(k: Builder, *, right: bool) -> None:
    ticket_of_lane_0(k, from_lane=0, mode="idx" if right else "up")


@wrong("unset", not_covered="which nothing has set")
def a_register_that_is_taken_in_one_part_of_a_warp(k: Builder, *, right: bool) -> None:
    """Each half takes from its first lane (shfl.sync with a clamp), of which one has set it."""
    k.launch(warps=1)
    ticket, drawn, x = k.var("ticket", dtype=s32), k.var("drawn", dtype=s32), words(k, "x", 64)
    with k.if_(k.lane_id.eq(0)):
        k.assign(ticket, 7)
    k.emit(Exchange(result=drawn, inside=k.var("inside", dtype=pred), value=ticket, mode="idx",
                    lane=Const(0), clamp=Const(31 if right else 31 | 16 << 8),
                    mask=Const(0xFFFFFFFF)))  # fmt: skip
    k.mem.store(x[k.lane_id + drawn], 1)


@wrong("unset", not_covered="which nothing has set", classes=(((0, 1),), ((0, 1),)))
def a_register_that_is_taken_from_another_lane_in_another_cluster(
    k: Builder, *, right: bool
) -> None:
    k.launch(grid=2, warps=1)
    ticket, drawn, g = (
        k.var("ticket", dtype=s32),
        k.var("drawn", dtype=s32),
        k.tensor("g", s32, (2,)),
    )
    with k.if_(k.lane_id < (2 if right else 1)):
        k.assign(ticket, 7)
    k.mem.shuffle(drawn, ticket, k.cta_x)
    with k.elected():
        k.mem.store(g[k.cta_x], drawn)


@wrong("E11")
def a_lane_that_has_ended_before_its_warp_acts_as_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    if not right:
        with k.if_(k.lane_id.eq(3)):
            k.exit()
    k.tcgen05.relinquish_alloc_permit()


# ---------------------------------------------------------------------- registers


@wrong("E15")
def three_warps_of_a_warpgroup_that_give_registers(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, registers=168)
    with k.role("WG0", range(4 if right else 3)):
        k.setmaxnreg("dec", 24)


@wrong("E15")
def warps_of_a_warpgroup_that_take_several_numbers(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, registers=168)
    with k.role("first", range(2)):
        k.setmaxnreg("inc", 168)
    with k.role("second", range(2, 4)):
        k.setmaxnreg("inc", 168 if right else 176)


def gives_registers(k: Builder, to: int) -> None:
    """The first of three warpgroups gives registers, and the other two take some."""
    with k.role("WG0", range(4)):
        k.setmaxnreg("dec", to)
    with k.role("WG1", range(4, 12)):
        k.setmaxnreg("inc", 240)


@wrong("E17")
def more_registers_than_others_give(k: Builder, *, right: bool) -> None:
    k.launch(warps=12, registers=168)
    gives_registers(k, 24 if right else 32)


@wrong("E17")
def an_increase_to_fewer_registers(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, registers=168)
    k.setmaxnreg("inc", 168 if right else 160)


@wrong("F1")
def a_warpgroup_of_three_warps(k: Builder, *, right: bool) -> None:
    k.launch(warps=4 if right else 3)
    k.wgmma.fence()


@wrong("F1", breaks="deadlock")
def a_warp_that_does_not_come_to_a_product(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    with k.role("WG", range(4 if right else 3)):
        k.wgmma.fence()


@wrong("F1", breaks="deadlock")
def a_lane_that_does_not_come_to_a_product(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    if not right:
        with k.if_(k.thread_id.eq(100)):
            k.exit()
    k.wgmma.fence()


@wrong("A")
def a_fence_of_a_warpgroup_for_a_barrier_of_its_warps(k: Builder, *, right: bool) -> None:
    """A product that is over has been issued by all four; `wgmma.fence` waits for its own warp."""
    k.launch(warps=4)
    bar = k.mbarriers("bar")
    a, b, acc, _, _ = operands(k, (bar, 1))
    with k.role("first", 0), k.elected():
        k.mbarrier.arrive(bar)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b, accumulate=0)
    k.wgmma.commit_group()
    if right:
        k.wgmma.wait_group(0)
    with k.role("second", 1), k.elected():
        k.mbarrier.arrive(bar)
    k.wgmma.wait_group(0)
    k.sync_threads()
    k.mbarrier.wait(bar, 1)


@wrong("F3")
def an_accumulator_that_is_filled_without_a_fence(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    a, b, acc, _, _ = operands(k)
    k.tile.fill(acc, 0)
    if right:
        k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@wrong("F3")
def an_accumulator_that_is_stored_before_the_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    a, b, acc, out, _ = operands(k)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b, accumulate=0)
    k.wgmma.commit_group()
    if right:
        k.wgmma.wait_group(0)
    k.tile.store(out, acc)
    k.wgmma.wait_group(0)


@wrong("F3")
def an_operand_in_registers_that_is_filled_before_the_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    _, b, acc, _, _ = operands(k)
    a = k.fragment("registers", bf16, (64, 16), "warpgroup")
    k.tile.fill(a, 1)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a, b, accumulate=0)
    k.wgmma.commit_group()
    if right:
        k.wgmma.wait_group(0)
    k.tile.fill(a, 2)
    k.wgmma.wait_group(0)


def multiplies_a_stage(k: Builder, differing: Expr, *, right: bool) -> None:
    """A product of the first stage of A; wrong: of one of two by what differs."""
    k.launch(warps=4)
    a, b, acc, _, _ = operands(k)
    stage = replace(a[0], offsets=(as_expr(0 if right else differing % 2), *a[0].offsets[1:]))
    k.wgmma.fence()
    k.wgmma.mma_async(acc, stage, b, accumulate=0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@wrong("F10")
def warps_of_a_product_that_name_several_operands(k: Builder, *, right: bool) -> None:
    multiplies_a_stage(k, k.warp_id, right=right)


@wrong("F10")
def lanes_of_a_product_that_name_several_operands(k: Builder, *, right: bool) -> None:
    multiplies_a_stage(k, k.lane_id, right=right)


# ---------------------------------------------------------------------- launch control


class Taken(NamedTuple):
    """The CTA whose work is done, the iteration, and whether there is another one."""

    tile: Var
    iteration: Var
    more: Var


@contextmanager
def taken_over(k: Builder, *, grid: int = 5, number: str = "if there is one") -> Iterator[Taken]:
    """One thread does the work of its CTA, and of those that launch control hands out to it."""
    k.launch(warps=1, grid=grid, target="sm_100a")
    response, b = k.shared("response", u32, (4,)), k.mbarriers("b")
    taken = Taken(k.var("tile", k.cta_x), k.var("iteration", 0), k.var("more", 1))
    with k.elected():
        k.mbarrier.init(b, 1)
        with k.while_(taken.more.ne(0)):
            yield taken
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(response, b)
            k.mbarrier.wait(b, taken.iteration & 1)
            k.clc.query_is_canceled(taken.more, response)
            with k.if_(taken.more.ne(0) if number == "if there is one" else taken.iteration >= 0):
                k.clc.query_first_ctaid(taken.tile, response)
            k.fence.proxy_async("shared::cta")
            k.assign(taken.iteration, taken.iteration + 1)


@wrong("D18", not_covered="behind one that has failed")
def a_request_behind_one_that_cancels_nothing(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=3, target="sm_100a")
    response, b = k.shared("response", u32, (2, 4)), k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive_expect_tx(b, 16 if right else 32)
        k.clc.try_cancel(response[0], b)
        if not right:
            k.clc.try_cancel(response[1], b)
        k.mbarrier.wait(b, 0)


@wrong("D19")
def the_number_of_no_cluster(k: Builder, *, right: bool) -> None:
    with taken_over(k, number="if there is one" if right else "always"):
        k.sync_warp(1)


@wrong("D21", breaks="H6")
def work_of_which_a_part_is_of_the_next_cluster(k: Builder, *, right: bool) -> None:
    g = global_words(k, "g", 8)
    with taken_over(k) as taken:
        k.mem.store(g[taken.tile], 1)
        if not right:
            k.mem.store(g[taken.tile + 1], 1)


@wrong("D21")
def work_that_reads_what_another_cluster_has_written_first(k: Builder, *, right: bool) -> None:
    g, r = global_words(k, "g", 8), k.var("r")
    with taken_over(k) as taken:
        with k.if_(taken.iteration.eq(0)):
            k.mem.store(g[k.cta_x], 1)
        with k.if_(taken.iteration > 0):
            k.mem.load(r, g[taken.tile if right else 4 - taken.tile])


@wrong("D21", not_covered="stores that may be of equal values")
def a_place_that_every_cluster_writes_in_each_iteration(k: Builder, *, right: bool) -> None:
    g, h = global_words(k, "g", 8), global_words(k, "h", 8)
    with taken_over(k) as taken:
        k.mem.store(g[taken.tile], 1)
        k.mem.store(h[k.cta_x if right else 0], 1)


@wrong("D21")
def a_place_that_a_cluster_writes_when_it_gets_no_more(k: Builder, *, right: bool) -> None:
    """Clusters that get different numbers of others meet there."""
    g = global_words(k, "g", 8)
    with taken_over(k) as taken, k.if_(taken.iteration > 0):
        k.mem.store(g[taken.tile], 1)
    with k.elected():
        k.mem.store(g[k.cta_x if right else 4 - k.cta_x], 2)


@wrong("D21", breaks="H6")
def work_of_one_cluster_in_no_order(k: Builder, *, right: bool) -> None:
    x, g = words(k, "x", 4), global_words(k, "g", 32)
    begin(k, zero=[x])
    k.fence.proxy_async()
    with taken_over(k) as taken:
        k.bulk.store(g[ds(4 * taken.tile, 4)], x)
        k.bulk.commit_group()
        if right:
            k.bulk.wait_group(0)
        k.bulk.store(g[ds(4 * taken.tile, 4)], x)
        k.bulk.commit_group()
    with k.elected():
        k.bulk.wait_group(0)


@wrong("D21", breaks="inside")
def a_list_of_iterations_that_is_too_short_for_all_clusters(k: Builder, *, right: bool) -> None:
    done = words(k, "done", 5 if right else 4)
    with taken_over(k) as taken:
        k.mem.store(done[taken.iteration], 1)


@wrong("D21", breaks="deadlock")
def a_wait_in_the_last_iteration_of_a_cluster_that_gets_three(k: Builder, *, right: bool) -> None:
    never = k.mbarriers("never")
    with k.elected():
        k.mbarrier.init(never, 1)
    with taken_over(k) as taken:
        k.sync_warp(1)
    with k.elected(), k.if_(taken.iteration.eq(9 if right else 4)):
        k.mbarrier.wait(never, 0)


@wrong("D21", breaks="uninitialised")
def a_word_that_a_cluster_writes_only_if_it_gets_another(k: Builder, *, right: bool) -> None:
    x, r = words(k, "x"), k.var("r")
    with (
        taken_over(k) as taken,
        k.if_((taken.iteration > 0) if not right else (taken.iteration >= 0)),
    ):
        k.mem.store(x[0], 1)
    with k.elected():
        k.mem.load(r, x[0])


@wrong("class", not_covered="differs in")
def work_that_is_another_for_one_of_the_clusters(k: Builder, *, right: bool) -> None:
    with taken_over(k) as taken, k.if_(taken.tile.ne(9 if right else 3)):
        k.sync_warp(1)


@wrong("class", not_covered="data decides")
def work_that_depends_on_that_of_the_iteration_before(k: Builder, *, right: bool) -> None:
    """In each iteration, the number is one of another answer."""
    before = k.var("before", 0)
    with taken_over(k) as taken:
        with k.if_((taken.tile if right else taken.tile - before) < 9):
            k.sync_warp(1)
        k.assign(before, taken.tile)


@wrong("class", not_covered="several answers of launch control decide an address")
def a_place_that_two_answers_decide(k: Builder, *, right: bool) -> None:
    g, before = k.tensor("g", s32, (8, 8)), k.var("before", 0)
    with taken_over(k) as taken:
        k.mem.store(g[taken.tile, 0] if right else g[before, taken.tile], 1)
        k.assign(before, taken.tile)


@wrong("class", not_covered="differs in")
def a_word_that_holds_the_number_of_a_cluster(k: Builder, *, right: bool) -> None:
    word, r = words(k, "word"), k.var("r")
    with taken_over(k) as taken:
        k.mem.store(word[0], taken.tile)
        k.mem.load(r, word[0])
        with k.if_(r >= (0 if right else 2)):
            k.sync_warp(1)


@wrong("class", not_covered="differs in")
def a_place_in_shared_memory_by_the_number_of_a_cluster(k: Builder, *, right: bool) -> None:
    x = words(k, "x", 5)
    with taken_over(k) as taken:
        k.mem.store(x[taken.tile * (0 if right else 1)], 1)


@wrong("H2", not_covered="a strong access where launch control hands out clusters")
def an_atomic_beside_launch_control(k: Builder, *, right: bool) -> None:
    g = global_words(k, "g", 8)
    with taken_over(k) as taken:
        if right:
            k.mem.store(g[taken.tile], 1)
        else:
            k.mem.atomic(g[taken.tile], "add", 1)


# ---------------------------------------------------------------------- tensor memory


def columns_of_a_pair(k: Builder, *, warps: int = 1, waits: bool = True) -> Var:
    """Warp 0 of each CTA of a pair allocates 32 columns, and every warp of both knows where."""
    k.launch(warps=warps, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    if waits:
        k.cluster.sync()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32, cta_group=2)
    k.cluster.sync()
    k.mem.load(address, slot[0])
    return address


def frees_of_a_pair(k: Builder, address: Var) -> None:
    """Warp 0 of each frees them when all warps of both are done."""
    k.tcgen05.fence_before_thread_sync()
    k.cluster.sync()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32, cta_group=2)


@wrong("G9", breaks="D8")
def an_allocation_by_a_pair_of_which_one_need_not_have_started(k: Builder, *, right: bool) -> None:
    address = columns_of_a_pair(k, waits=right)
    frees_of_a_pair(k, address)


@wrong("G9")
def allocations_of_a_pair_that_differ(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.cluster.sync()
    for rank in range(2):
        with k.if_(k.cluster_rank.eq(rank)):
            columns = 32 if right or rank else 64
            k.tcgen05.alloc(slot, columns, cta_group=2)
            k.cluster.sync()
            k.mem.load(address, slot[0])
            k.tcgen05.dealloc(address, columns, cta_group=2)


@wrong("G9")
def allocations_of_a_pair_by_two_warps_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (2,)), k.var("address", dtype=u32)
    k.cluster.sync()
    for warp in range(2):
        with k.role(f"W{warp}", warp):
            k.tcgen05.alloc(slot[ds(warp, 1)], 32, cta_group=2)
            k.mem.load(address, slot[warp])
        if right:
            k.sync_threads()
    k.cluster.sync()
    for warp in range(2):
        with k.role(f"W{warp}", warp):
            k.tcgen05.dealloc(address, 32, cta_group=2)
        k.sync_threads()


@wrong("G9", breaks="deadlock")
def a_pair_of_which_one_frees_behind_a_barrier_and_the_other_before(
    k: Builder, *, right: bool
) -> None:
    address = columns_of_a_pair(k)
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)):
        k.cluster.sync()
        k.tcgen05.dealloc(address, 32, cta_group=2)
    with k.if_(k.cluster_rank.eq(1)):
        if right:
            k.cluster.sync()
        k.tcgen05.dealloc(address, 32, cta_group=2)
        if not right:
            k.cluster.sync()


@wrong("G9-exit")
def a_permit_that_one_cta_of_a_pair_gives_up(k: Builder, *, right: bool) -> None:
    address = columns_of_a_pair(k)
    with k.if_(k.cluster_rank < (2 if right else 1)):
        k.tcgen05.relinquish_alloc_permit(cta_group=2)
    frees_of_a_pair(k, address)


@wrong("G9", breaks="H6")
def columns_that_the_first_cta_frees_without_knowing_of_the_other(
    k: Builder, *, right: bool
) -> None:
    _uses_of_one_cta(k, user=1, known_to_both=right)


@wrong("G9", breaks="H6")
def columns_that_the_second_cta_frees_without_knowing_of_the_other(
    k: Builder, *, right: bool
) -> None:
    _uses_of_one_cta(k, user=0, known_to_both=right)


@wrong("G9", breaks="H6")
def columns_of_which_only_the_other_cta_knows_that_their_use_is_over(
    k: Builder, *, right: bool
) -> None:
    _uses_of_one_cta(k, user=1, known_to_both=right, others=True)


def _uses_of_one_cta(k: Builder, *, user: int, known_to_both: bool, others: bool = False) -> None:
    """Warp 1 of a CTA stores to tensor memory, and warp 0 of both CTAs, of that one, or of the
    ``others`` frees when it is done."""
    address = columns_of_a_pair(k, warps=2)
    done, tile = k.mbarriers("done"), k.fragment("tile", f32, (32, 32))
    with k.one_thread():
        k.mbarrier.init(done, 32)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(user)), k.role("W1", 1):
        zeros(k, k.tcgen05.tensor(address + (32 << 16), f32, (32, 32)), tile)
        k.tcgen05.fence_before_thread_sync()
        for rank in range(2):
            if known_to_both or (rank == user) != others:
                k.mbarrier.arrive(done[0].at(rank), scope="cluster")
    for rank in range(2):
        if known_to_both or (rank == user) != others:
            with k.if_(k.cluster_rank.eq(rank)), k.role("W0", 0):
                k.mbarrier.wait(done, 0, scope="cluster")
    with k.role("W0", 0):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32, cta_group=2)
    k.cluster.sync()


@wrong("B26")
def a_copy_that_completes_on_an_mbarrier_of_another_pair(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=4, cluster=4, target="sm_100a")
    d, g, b = words(k, "d", 32), global_words(k, "g", 32), k.mbarriers("b")
    copied = k.tensor_map(g, (32,))
    begin(k, (b, 1))
    leader = 0 if right else 2
    with cta(k, leader):
        k.mbarrier.arrive_expect_tx(b, 128)
    k.cluster.sync()
    with cta(k, 1):
        k.tma.load(copied, d, (0,), b[0].at(leader), cta_group=2)
    with cta(k, leader):
        k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


@wrong("B26", breaks="deadlock")
def a_multicast_of_a_pair_that_the_other_one_waits_for(k: Builder, *, right: bool) -> None:
    """In each pair, the bytes complete in the CTA whose rank is as even as that of the named
    mbarrier (B27)."""
    k.launch(warps=1, grid=4, cluster=4, target="sm_100a")
    d, g, b = words(k, "d", 32), global_words(k, "g", 32), k.mbarriers("b")
    copied = k.tensor_map(g, (32,))
    begin(k, (b, 1))
    k.cluster.sync()
    for rank in (1, 3 if right else 2):
        with cta(k, rank):
            k.mbarrier.arrive_expect_tx(b, 128)
    k.cluster.sync()
    with cta(k, 0):
        k.tma.load(copied, d, (0,), b[0].at(1), cta_group=2, multicast=0b0101)
    for rank in (1, 3 if right else 2):
        with cta(k, rank):
            k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


def allocates(k: Builder, columns: int, *, warps: int = 1) -> Var:
    """Warp 0 allocates columns, and every warp knows where."""
    k.launch(warps=warps, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, columns)
    k.sync_threads()
    k.mem.load(address, slot[0])
    return address


def frees(k: Builder, address: Var, columns: int) -> None:
    """Warp 0 frees them when all warps are done."""
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, columns)


def copies_over_the_word(k: Builder, *, stored: bool = False, fence: bool = False) -> None:
    """A copy goes over the word in which tcgen05.alloc has left its address, which has been read;
    ``stored``: and over a word that a thread has stored."""
    k.launch(warps=2, target="sm_100a")
    source, address = k.tensor("source", u32, (4,)), k.var("address", dtype=u32)
    slot = k.shared("slot", u32, (1,), offset=0)
    over, b = k.shared("over", u32, (4,), offset=0), k.mbarriers("b", offset=64)
    begin(k, (b, 1))
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32)
        if stored:
            with k.elected():
                k.mem.store(over[1], 0)
    k.sync_threads()
    k.mem.load(address, slot[0])
    if fence:
        k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 1):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(over, source, b)
    k.mbarrier.wait(b, 0)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.dealloc(address, 32)


@wrong("H24", breaks="H6")
def a_reduction_over_the_word_of_an_allocation(k: Builder, *, right: bool) -> None:
    """It reads what it adds to."""
    k.launch(warps=1, cluster=2, grid=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (4,)), k.var("address", dtype=u32)
    source, b = k.shared("source", u32, (4,)), k.mbarriers("b")
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    with k.elected():
        k.mem.store_vector(slot[0:4], (0, 0, 0, 0))
        k.mem.store_vector(source[0:4], (0, 0, 0, 0))
    k.sync_warp()
    k.fence.proxy_async()
    k.tcgen05.alloc(slot[0], 32)
    k.mem.load(address, slot[0])
    if right:
        k.fence.proxy_async()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(1)), k.elected():
        k.bulk.reduce_peer(slot.at(0), source, b[0].at(0))
    with k.if_(k.cluster_rank.eq(0)):
        with k.elected():
            k.mbarrier.arrive_expect_tx(b, 16)
        k.mbarrier.wait(b, 0, scope="cluster")
    k.sync_warp()
    k.tcgen05.dealloc(address, 32)
    k.cluster.sync()


@wrong("H25")
def a_load_that_need_not_be_coherent_of_what_is_stored_later(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x = global_words(k, "g", 2), k.var("x")
    with k.elected():
        k.mem.load(x, g[0], nc=True)
        k.mem.store(g[1 if right else 0], 1)


@wrong("H25")
def a_load_that_need_not_be_coherent_of_what_is_stored(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    g, x = global_words(k, "g", 2), k.var("x")
    with thread(k, 0):
        k.mem.store(g[0], 1)
    k.sync_threads()
    with thread(k, 1):
        k.mem.load(x, g[0], nc=not right)


@wrong("H25")
def a_load_that_need_not_be_coherent_of_what_is_copied(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    d, g, x = words(k, "d", 4), global_words(k, "g", 8), k.var("x")
    with thread(k, 0):
        k.mem.load(x, g[4 if right else 3], nc=True)
        k.mem.store_vector(d[0:4], (1, 1, 1, 1))
        k.fence.proxy_async()
        k.bulk.store(g[0:4], d)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@wrong("H24", breaks="H6")
def a_copy_over_a_store_beside_the_word_of_an_allocation(k: Builder, *, right: bool) -> None:
    copies_over_the_word(k, stored=not right)


def stores_to_tensor_memory(
    k: Builder, *, columns: int = 0, lanes: int = 0, warps: int | Sequence[int] = 0
) -> None:
    """Some warps of two store zeros to 32 lanes and columns, so many of each behind the first ones
    of an allocation of 32 columns."""
    address, tile = allocates(k, 32, warps=2), k.fragment("tile", f32, (32, 32))
    with k.role("stores", warps):
        zeros(k, k.tcgen05.tensor(address + ((lanes << 16) + columns), f32, (32, 32)), tile)
    frees(k, address, 32)


@wrong("G4")
def columns_that_are_not_allocated(k: Builder, *, right: bool) -> None:
    stores_to_tensor_memory(k, columns=0 if right else -8)


@wrong("G5")
def an_allocation_that_is_larger_than_the_one_before(k: Builder, *, right: bool) -> None:
    address, slot = allocates(k, 64), k.shared("next", u32, (1,))
    second, then = 64 if right else 128, k.var("then", dtype=u32)
    k.tcgen05.alloc(slot, second)
    k.mem.load(then, slot[0])
    k.tcgen05.dealloc(then, second)
    k.tcgen05.dealloc(address, 64)


@wrong("G5", not_covered="allocations of tensor memory in no order")
def allocations_of_two_warps_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (32,)), k.var("address", dtype=u32)
    for warp in range(2):
        with k.role(f"W{warp}", warp):
            k.tcgen05.alloc(slot[ds(warp, 1)], 32)
            k.mem.load(address, slot[warp])
            k.tcgen05.dealloc(address, 32)
        if right:
            k.sync_threads()


@wrong("G5", not_covered="allocations of tensor memory that may wait")
def more_columns_than_there_are(k: Builder, *, right: bool) -> None:
    address, slot = allocates(k, 512 if right else 256), k.shared("next", u32, (32,))
    for i in range(0 if right else 2):
        then = k.var(f"then{i}", dtype=u32)
        k.tcgen05.alloc(slot[ds(i, 1)], 256)
        k.mem.load(then, slot[i])
        k.tcgen05.dealloc(then, 256)
    k.tcgen05.dealloc(address, 512 if right else 256)


@wrong("G6", not_covered="may wait for other clusters")
def columns_that_are_held_while_more_are_asked_for(k: Builder, *, right: bool) -> None:
    """With another cluster on its SM that does the same, each may wait for the other one."""
    k.launch(warps=1, grid=1 if right else 2, target="sm_100a")
    slot, address = k.shared("slot", u32, (2,)), [k.var(f"a{i}", dtype=u32) for i in range(2)]
    for i in range(2):
        k.tcgen05.alloc(slot[ds(i, 1)], 256)
        k.mem.load(address[i], slot[i])
    for i in range(2):
        k.tcgen05.dealloc(address[i], 256)


@wrong("G6", not_covered="may wait for other clusters")
def columns_that_a_cluster_holds_while_its_other_cta_asks(k: Builder, *, right: bool) -> None:
    """Right: two clusters on an SM, or more, find columns."""
    k.launch(warps=16, grid=32, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, 128 if right else 256)
        k.mem.load(address, slot[0])
    k.cluster.sync()
    with k.role("W0", 0):
        k.tcgen05.dealloc(address, 128 if right else 256)


@wrong("G6", not_covered="cluster-spread is not assumed")
def columns_that_both_ctas_of_a_cluster_ask_for(k: Builder, *, right: bool) -> None:
    """On one SM, the second one waits for the first one's columns, which wait for it."""
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.tcgen05.alloc(slot, 256 if right else 512)
    k.mem.load(address, slot[0])
    k.cluster.sync()
    k.tcgen05.dealloc(address, 256 if right else 512)


@wrong("G7")
def an_allocation_behind_the_end_of_the_permit(k: Builder, *, right: bool) -> None:
    address, slot = allocates(k, 64), k.shared("next", u32, (1,))
    then = k.var("then", dtype=u32)
    if not right:
        k.tcgen05.relinquish_alloc_permit()
    k.tcgen05.alloc(slot, 64)
    if right:
        k.tcgen05.relinquish_alloc_permit()
    k.mem.load(then, slot[0])
    k.tcgen05.dealloc(then, 64)
    k.tcgen05.dealloc(address, 64)


@wrong("G7")
def a_permit_that_may_end_before_another_warp_allocates(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, 32)
        k.mem.load(address, slot[0])
    if right:
        k.sync_threads()
    with k.role("W1", 1):
        k.tcgen05.relinquish_alloc_permit()
    with k.role("W0", 0):
        k.tcgen05.dealloc(address, 32)


@wrong("G8")
def half_of_an_allocation_that_is_freed(k: Builder, *, right: bool) -> None:
    address = allocates(k, 64)
    k.tcgen05.dealloc(address, 64 if right else 32)


@wrong("G8")
def columns_that_do_not_exist(k: Builder, *, right: bool) -> None:
    """The allocation lies in the last columns, so some of those that are named do not exist."""
    address = allocates(k, 64)
    k.tcgen05.dealloc(address, 64 if right else 128)


@wrong("G8-exit")
def columns_that_nothing_frees(k: Builder, *, right: bool) -> None:
    address = allocates(k, 64)
    if right:
        k.tcgen05.dealloc(address, 64)


@wrong("G12")
def lanes_of_another_warp(k: Builder, *, right: bool) -> None:
    stores_to_tensor_memory(k, lanes=32 if right else 64, warps=1)


@wrong("G12")
def columns_beyond_tensor_memory(k: Builder, *, right: bool) -> None:
    stores_to_tensor_memory(k, columns=0 if right else 1)


@wrong("U21")
def lanes_of_the_first_warp_for_the_second_alone(k: Builder, *, right: bool) -> None:
    stores_to_tensor_memory(k, warps=(0, 1) if right else 1)


@wrong("G-init")
def tensor_memory_that_nothing_has_written(k: Builder, *, right: bool) -> None:
    address, tile = allocates(k, 32), k.fragment("tile", f32, (32, 32))
    cells = k.tcgen05.tensor(address, f32, (32, 32))
    k.tile.fill(tile, 0)
    if right:
        k.tcgen05.st(cells, tile)
        k.tcgen05.wait_st()
    k.tcgen05.ld(tile, cells)
    k.tcgen05.wait_ld()
    frees(k, address, 32)


@wrong("G-init")
def tensor_memory_that_is_written_in_part(k: Builder, *, right: bool) -> None:
    address, tile = allocates(k, 32), k.fragment("tile", f32, (32, 32))
    width = 32 if right else 16
    part = k.fragment("part", f32, (32, width))
    zeros(k, k.tcgen05.tensor(address, f32, (32, width)), part)
    k.tcgen05.ld(tile, k.tcgen05.tensor(address, f32, (32, 32)))
    k.tcgen05.wait_ld()
    frees(k, address, 32)


@wrong("G19", breaks="H6")
def a_product_of_what_another_one_is_computing(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    first, second = s.at(k, 0, "first"), s.at(k, 64, "second")
    with thread(k, 4):
        k.tcgen05.mma(first, s.a, s.b, accumulate=0)
        if right:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(second, first[:, 0:8].cast(bf16, 16), s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("G19", breaks="H6")
def a_product_of_a_lane_that_does_not_know_of_the_wait(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    other = k.tcgen05.tensor(s.address, f32, (128, 16), name="other")
    with k.role("W4", 4):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        if right:
            k.sync_warp()
        with k.if_(k.lane_id.eq(1), sync=False):
            k.tcgen05.mma(other, s.a, s.b[ds(0, 16)], accumulate=0)
            k.tcgen05.commit(done)
    for one in (b, done):
        k.mbarrier.wait(one, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@wrong("G19", breaks="H6")
def products_of_two_forms_in_one_place(k: Builder, *, right: bool) -> None:
    done = k.mbarriers("done")
    s = setup(k, (done, 1))
    other = k.tcgen05.tensor(s.address, f32, (128, 16), name="other")
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        if right:
            k.tcgen05.mma(s.at(k, 0), s.a, s.b)
        else:
            k.tcgen05.mma(other, s.a, s.b[ds(0, 16)])
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("G19", breaks="H6")
def a_copy_to_where_another_one_copies(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    q = scaled(k)
    scales = k.tcgen05.tensor(s.address + 64, u8, (32, 16), name="scales")
    with thread(k, 4):
        for n in range(2):
            k.tcgen05.cp(scales, q.factors, "32x128b", multicast="warpx4")
            if right and not n:
                k.tcgen05.commit(b)
                k.mbarrier.wait(b, 0)
                k.tcgen05.fence_after_thread_sync()
        k.tcgen05.commit(done)
    ends(k, s, done)


def behind_a_product(*, copied: bool, again: Literal["load", "tma.store"]) -> Program:
    """A is written, multiplied, and read once more by a thread that only the commit orders behind
    the product; right: the write is handed over to it as well."""

    def program(k: Builder, *, right: bool) -> None:
        written, done = k.mbarriers("written"), k.mbarriers("done")
        s = setup(k, (written, 1), (done, 1))
        with thread(k, 4):
            if copied:
                k.mbarrier.arrive_expect_tx(written, s.map_a.box_bytes)
                k.tma.load(s.map_a, s.a, (0, 0), written)
                k.mbarrier.wait(written, 0)
            else:
                k.mem.store(s.a[0, 0], 1.0)
                k.fence.proxy_async()
                k.mbarrier.arrive(written)
            k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
            k.tcgen05.commit(done)
        k.mbarrier.wait(done, 0)
        with thread(k, 0):
            if right:
                k.mbarrier.wait(written, 0)
            if again == "load":
                k.mem.load(k.var("x", dtype=bf16), s.a[0, 0])
            else:
                k.tma.store(s.map_a, s.a, (0, 0))
                k.bulk.commit_group()
                k.bulk.wait_group(0)
        k.tcgen05.fence_after_thread_sync()
        finish(k, s.address)

    program.__name__ = f"a_{again}_behind_a_product_of_what_was_{'copied' if copied else 'stored'}"
    return program


for is_copied in (False, True):
    wrong("H6")(behind_a_product(copied=is_copied, again="load"))
    wrong("H6")(behind_a_product(copied=is_copied, again="tma.store"))


@wrong("address", breaks="data", not_covered="an address decides")
def a_barrier_of_an_array_that_bits_of_an_address_choose(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, b = k.shared("s", u8, (4096,), align=1024), k.mbarriers("b", 2)
    with k.one_thread():
        for i in range(2):
            k.mbarrier.init(b[i], 1)
    k.sync_threads()
    bits = (address_of(s) + 8 & 8) >> 3 if right else address_of(s) >> 12 & 1
    with k.elected():
        k.mbarrier.arrive(b[bits])


@wrong("address", breaks="data", not_covered="an address decides")
def an_element_that_bits_of_an_address_choose(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s = k.shared("s", s32, (1024,), align=1024)
    with k.elected():
        k.mem.store(s[address_of(s[8]) & (1023 if right else 4095)], 1)


@wrong("B34", breaks="H6")
def a_copy_that_no_product_of_those_waited_for_uses(k: Builder, *, right: bool) -> None:
    """It is over with the product of another thread that executes behind it (G19)."""
    first, b, done = k.mbarriers("first"), k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (first, 1), (b, 1), (done, 1))
    q = scaled(k)
    scales, others = (
        k.tcgen05.tensor(s.address + column, u8, (32, 16), name="scales") for column in (64, 96)
    )
    with thread(k, 4):
        k.tcgen05.cp(others, q.factors, "32x128b", multicast="warpx4")
        k.tcgen05.commit(first)
        k.tcgen05.cp(scales, q.factors, "32x128b", multicast="warpx4")
        k.mbarrier.arrive(b)
    with thread(k, 3):
        k.mbarrier.wait(first, 0)
        k.mbarrier.wait(b, 0)
        of = scales if right else others
        k.tcgen05.mma(s.at(k, 0), q.x, q.y, kind="mxf8f6f4", accumulate=0, scale_a=of, scale_b=of)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("G19", breaks="H6")
def a_load_of_what_a_product_behind_a_copy_computes(k: Builder, *, right: bool) -> None:
    done = k.mbarriers("done")
    s = setup(k, (done, 1))
    q = scaled(k)
    d, scales = s.at(k, 0), k.tcgen05.tensor(s.address + 64, u8, (32, 16), name="scales")
    with k.role("W0", 0):
        with k.elected():
            k.tcgen05.cp(scales, q.factors, "32x128b", multicast="warpx4")
            k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", accumulate=0, scale_a=scales,
                          scale_b=scales)  # fmt: skip
            k.tcgen05.commit(done)
        if right:
            k.mbarrier.wait(done, 0)
            k.tcgen05.fence_after_thread_sync()
        tile = k.fragment("tile", f32, (32, 32))
        k.tcgen05.ld(tile, k.tcgen05.tensor(s.address, f32, (32, 32)))
        k.tcgen05.wait_ld()
    ends(k, s, done)


# ---------------------------------------------------------------------- edges of decisions


@wrong("deadlock")
def an_arrival_of_a_lane_with_the_wrong_neighbours(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    modes: tuple[Literal["idx", "up", "down", "bfly"], ...] = ("up", "down", "bfly", "idx")
    found = [k.var(mode) for mode in modes]
    begin(k, (b, 2))
    for var, mode in zip(found, modes, strict=True):
        k.mem.shuffle(var, k.lane_id + 100, 33 if mode == "idx" else 3, mode)
    up, down, bfly, idx = found
    last = down.eq(131) & up.eq(128) & bfly.eq(128) & idx.eq(101)
    first = down.eq(103) & up.eq(100) & bfly.eq(103 if right else 100) & idx.eq(101)
    with k.if_((k.lane_id.eq(0) & first) | (k.lane_id.eq(31) & last)):
        k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.wait(b, 0)


@wrong("deadlock")
def an_arrival_if_small_registers_hold_what_they_cannot(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, byte, whole, truth = (
        k.mbarriers("b"),
        k.var("s", 0, s8),
        k.var("u", 0, u8),
        k.var("p", 0, pred),
    )
    largest = k.var("largest", 0, s8)
    begin(k, (b, 1))
    k.assign(byte, k.lane_id + 128)
    k.assign(largest, k.lane_id + 127)
    k.assign(whole, k.lane_id + 255)
    k.assign(truth, k.lane_id + 2)
    with thread(k, 0):
        held = byte.eq(-128) & largest.eq(127) & whole.eq(255) & truth.eq(1)
        with k.if_(held if right else ~held & byte.eq(128)):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("H2", breaks="H6")
def strong_stores_of_two_ctas_of_which_one_has_the_scope_of_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    g = global_words(k, "g")
    with cta(k, 0):
        k.mem.store(g[0], 1, sem="relaxed", scope="cluster")
    with cta(k, 1):
        k.mem.store(g[0], 1, sem="relaxed", scope="cluster" if right else "cta")


@wrong("H6")
def a_tile_of_a_map_beside_a_store_to_its_last_element(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    d, g = words(k, "d", 8), global_words(k, "g", 16)
    box = k.tensor_map(g, (8,))
    begin(k, zero=[d])
    with thread(k, 0):
        k.tma.store(box, d, (0,))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.store(g[8 if right else 7], 1)


@wrong("H6")
def columns_of_a_tile_that_other_lanes_read(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, r = k.shared("x", f32, (32, 32)), k.var("r", dtype=f32)
    tile = k.fragment("tile", f32, (32, 64))
    k.tile.fill(tile, 0)
    k.tile.store(x, tile, column=32)
    if right:
        k.sync_warp()
    k.mem.load(r, x[31 - k.lane_id, 0])


@wrong("H6")
def an_allocation_that_writes_where_a_copy_reads(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    slot, g, r = k.shared("slot", u32, (4,)), k.tensor("g", u32, (4,)), k.var("r", dtype=u32)
    begin(k, zero=[slot])
    with thread(k, 0):
        k.bulk.store(g, slot)
        k.bulk.commit_group()
        if right:
            k.bulk.wait_group(0, read=True)
    k.tcgen05.alloc(slot[ds(0, 1)], 32)
    k.mem.load(r, slot[0])
    k.tcgen05.dealloc(r, 32)
    with thread(k, 0):
        k.bulk.wait_group(0)


@wrong("H6")
def a_store_that_a_fence_of_the_cta_hands_to_a_peer(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x = words(k, "x")
    k.cluster.sync()
    with cta(k, 0):
        k.mem.store(x.view().at(1)[0], 1)
        k.fence.memory("acq_rel", "cluster" if right else "cta")
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with cta(k, 1):
        k.mem.store(x[0], 2)


@wrong("G12")
def a_shift_that_starts_at_no_quarter(k: Builder, *, right: bool) -> None:
    done = k.mbarriers("done")
    s = setup(k, (done, 1))
    rows = k.tcgen05.tensor(s.address + ((32 if right else 16) << 16), f32, (32, 8), name="rows")
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.shift(rows)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("H6")
def a_copy_to_where_a_strong_store_has_been_read(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g, r = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4), k.var("r")
    begin(k, (b, 1), zero=[d])
    with thread(k, 0):
        k.fence.proxy_async()
        k.mem.store(d[0], 1, sem="relaxed")
        k.mem.load(r, d[0])  # needs no fence before the copy (U12), but the store does
        if right:
            k.fence.proxy_async()
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, g, b)
        k.mbarrier.wait(b, 0)


@wrong("A6-order", not_covered="in time only")
def an_end_of_an_mbarrier_behind_a_relaxed_arrival(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, c = k.mbarriers("b"), k.mbarriers("c")
    begin(k, (b, 1), (c, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(c, 0)
        k.mbarrier.inval(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(c, sem="release" if right else "relaxed")


def copies_behind_an_end(k: Builder, *, acquires: bool, last: bool) -> None:
    """A thread invalidates the mbarrier of another one's copy, for which it has waited, ``last`` or
    before a phase without one."""
    k.launch(warps=2)
    b, x, g = k.mbarriers("b"), words(k, "x", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 1):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(x, g, b)
    with thread(k, 0):
        k.mbarrier.wait(b, 0, sem="acquire" if acquires else "relaxed")
        if not last:
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 1)
        k.mbarrier.inval(b)


@wrong("A6-order", not_covered="in time only")
def an_end_of_an_mbarrier_behind_a_copy_of_which_nothing_is_acquired(
    k: Builder, *, right: bool
) -> None:
    copies_behind_an_end(k, acquires=right, last=True)


@wrong("A6-order", not_covered="in time only")
def an_end_of_an_mbarrier_a_phase_behind_a_copy(k: Builder, *, right: bool) -> None:
    copies_behind_an_end(k, acquires=True, last=right)


def stores_of_lanes(k: Builder, *, numbers: tuple[Operand, Operand], met: bool = True) -> None:
    """The lanes of two warps store to one word, in a class of two clusters, and one reads it."""
    k.launch(warps=3, grid=2)
    word, x = words(k, "word"), k.var("x")
    with k.if_(k.warp_id < 2):
        k.mem.store(word[0], Select(k.warp_id.eq(0), *map(as_expr, numbers)))
        if met:
            k.bar.sync(1, 96)
    with k.if_(k.warp_id.eq(2)):
        if met:
            k.bar.sync(1, 96)
        k.mem.load(x, word[0])


@wrong("H23-equal", not_covered="may be of equal values")
def a_store_of_another_number_by_another_warp(k: Builder, *, right: bool) -> None:
    stores_of_lanes(k, numbers=(5, 5 if right else 6))


@wrong("H23-equal", not_covered="lanes store to one place")
def a_store_of_another_number_by_another_lane(k: Builder, *, right: bool) -> None:
    stores_of_lanes(k, numbers=(5, 5 if right else k.lane_id))


@wrong("H23-equal", not_covered="lanes store to one place", classes=([[0, 1]], [[0, 1]]))
def a_store_of_another_number_by_a_lane_of_another_cluster(k: Builder, *, right: bool) -> None:
    stores_of_lanes(k, numbers=(5, 5 if right else 5 + k.lane_id * k.cta_x))


def copies_of_lanes(
    k: Builder, *, lanes: int = 32, sources: int = 1, places: int = 1, waits: int = 32,
    met: bool = True,
) -> None:  # fmt: skip
    """So many lanes copy, of several sources, to several places; as many wait for it, and
    one stores there. They have ``met`` behind what all of them have written into the sources."""
    k.launch(warps=1)
    g, d = k.tensor("g", s32, (64,)), k.shared("d", s32, (64,))
    box, n = k.tensor_map(g, (32,)), k.var("n")
    k.mem.store(d[k.lane_id], 1)
    k.mem.store(d[k.lane_id + 32], 2)
    k.fence.proxy_async()
    if met:
        k.sync_warp()
    k.assign(n, k.lane_id % places * 4)
    with k.if_(k.lane_id < lanes):
        k.tma.store(box, d[ds(k.lane_id % sources * 32, 32)], (n,))
        k.bulk.commit_group()
    with k.if_(k.lane_id < waits):
        k.bulk.wait_group(0)
    k.sync_warp()
    k.mem.store(g[k.lane_id], 3)


@wrong("H23-copies", breaks="H6")
def copies_of_two_boxes_to_one_place(k: Builder, *, right: bool) -> None:
    copies_of_lanes(k, sources=1 if right else 2)


@wrong("H23-copies", breaks="H6")
def copies_of_one_box_to_places_that_overlap(k: Builder, *, right: bool) -> None:
    copies_of_lanes(k, places=1 if right else 2)


@wrong("H23-copies", breaks="H6")
def a_store_behind_some_of_the_copies_of_one_box(k: Builder, *, right: bool) -> None:
    copies_of_lanes(k, waits=32 if right else 31)


@wrong("H23-copies", breaks="H6")
def copies_of_one_box_of_which_each_lane_knows_its_own_number(k: Builder, *, right: bool) -> None:
    copies_of_lanes(k, met=right)


@wrong("H6")
def a_read_beside_one_of_two_stores_of_one_number(k: Builder, *, right: bool) -> None:
    """Behind the last one of the two, but not the first one."""
    k.launch(warps=3)
    word, x, b = words(k, "word"), k.var("x"), k.mbarriers("b")
    begin(k, (b, 1))
    with k.if_(k.warp_id < 2):
        k.mem.store(word[0], 5)
        if right:
            k.bar.sync(1, 64)
        with k.if_(k.warp_id.eq(1)), k.elected():
            k.mbarrier.arrive(b)
    with k.if_(k.warp_id.eq(2)):
        k.mbarrier.wait(b, 0)
        k.mem.load(x, word[0])


@wrong("H6")
def stores_of_one_number_by_two_instructions(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word = words(k, "word")
    if right:
        k.mem.store(word[0], 5)
        return
    with k.if_(k.warp_id.eq(0)):
        k.mem.store(word[0], 5)
    with k.if_(k.warp_id.eq(1)):
        k.mem.store(word[0], 5)


@wrong("H6")
def a_store_of_another_number_before_one_of_two_stores(k: Builder, *, right: bool) -> None:
    """The store of the other warp need not come after it."""
    k.launch(warps=2)
    word = words(k, "word")
    with k.if_(k.warp_id.eq(0)):
        k.mem.store(word[0], 1)
    if right:
        k.sync_threads()
    k.mem.store(word[0], 5)


@wrong("H6")
def a_read_before_one_of_two_stores_of_one_number(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, x = words(k, "word"), k.var("x")
    begin(k, zero=[word])
    with k.if_(k.warp_id.eq(0)):
        k.mem.load(x, word[0])
    if right:
        k.sync_threads()
    k.mem.store(word[0], 5)


# ---------------------------------------------------------------------- words in order


def looks(k: Builder, word: SharedTensor, value: int, there: Mbarriers) -> None:
    """A thread arrives if it finds that value, and waits for that."""
    seen = k.var("seen", -1)
    k.mem.load(seen, word[0], sem="relaxed")
    with k.if_(seen.eq(value)):
        k.mbarrier.arrive(there)
    k.mbarrier.wait(there, 0)


@wrong("data-order", not_covered="data decides")
def a_look_before_other_lanes_have_added(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    k.mem.atomic(word[0], "add", k.lane_id - 1)
    if right:
        k.sync_warp()
    with k.if_(k.lane_id.eq(3)):
        looks(k, word, 31 * 16 - 32, there)


@wrong("data-order", not_covered="may come before")
def a_look_behind_which_another_warp_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with thread(k, 1):
        looks(k, word, 0, there)
    if right:
        k.sync_threads()
    with thread(k, 0):
        k.mem.store(word[0], 7, sem="relaxed")


@wrong("data-order", not_covered="data decides")
def a_look_behind_two_stores_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with thread(k, 0):
        k.mem.store(word[0], 7, sem="relaxed")
    if right:
        k.sync_threads()
    with thread(k, 1):
        k.mem.store(word[0], 8, sem="relaxed")
    k.sync_threads()
    with thread(k, 2):
        looks(k, word, 8, there)


@wrong("data-order", not_covered="data decides")
def a_look_behind_a_sum_and_a_store_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with thread(k, 0):
        if right:
            k.mem.atomic(word[0], "add", 7)
        else:
            k.mem.atomic(word[0], "exch", 7)
    with thread(k, 1):
        k.mem.atomic(word[0], "add", 8)
    k.sync_threads()
    with thread(k, 2):
        looks(k, word, 15, there)


@wrong("data-order", not_covered="data decides")
def a_look_behind_an_addition_that_a_store_may_follow(k: Builder, *, right: bool) -> None:
    """The store is in no order with the first addition, and the second one behind it."""
    k.launch(warps=3)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with thread(k, 0):
        k.mem.atomic(word[0], "add", 7)
    if right:
        k.sync_threads()
    with thread(k, 1):
        k.mem.store(word[0], 1, sem="relaxed")
        k.mem.atomic(word[0], "add", 8)
    k.sync_threads()
    with thread(k, 2):
        looks(k, word, 9, there)


@wrong("data-order", not_covered="may come before")
def a_draw_that_another_lane_may_come_before(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    word, there, ticket = words(k, "word"), k.mbarriers("there"), k.var("ticket", 9)
    begin(k, (there, 1), zero=[word])
    with k.if_(k.lane_id.eq(1), sync=False):
        k.mem.atomic(word[0], "add", 1, result=ticket)
        with k.if_(ticket.eq(0), sync=False):
            k.mbarrier.arrive(there)
    if right:
        k.sync_warp()
    with k.if_(k.lane_id.eq(0), sync=False):
        k.mem.atomic(word[0], "add", 1)
    k.mbarrier.wait(there, 0)


@wrong("data-order", not_covered="data decides")
def a_draw_by_two_lanes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    word, there, ticket = words(k, "word"), k.mbarriers("there"), k.var("ticket", 9)
    begin(k, (there, 1), zero=[word])
    with k.if_(k.lane_id < (1 if right else 2)):
        k.mem.atomic(word[0], "add", 1, result=ticket)
        with k.if_(ticket.eq(0)):
            k.mbarrier.arrive(there)
    k.mbarrier.wait(there, 0)


@wrong("data-order", not_covered="data decides", classes=([[0, 1]], [[0, 1]]))
def a_sum_that_differs_between_clusters(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    word, there = words(k, "word"), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with k.elected():
        k.mem.atomic(word[0], "add", 1 if right else k.cta_x + 1)
        looks(k, word, 1, there)


@wrong("data-order", not_covered="data decides")
def a_look_at_a_word_of_which_a_part_is_copied(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    word, g, there = words(k, "word", 4), global_words(k, "g", 4), k.mbarriers("there")
    begin(k, (there, 1), zero=[word])
    with k.elected():
        if not right:
            k.cp_async.copy(word, g)
            k.cp_async.wait_all()
        looks(k, word, 0, there)
