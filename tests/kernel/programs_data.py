"""Pairs of programs with unknown data: loads of tensor memory, which are over when they are stored
(U33), and stores of equal data to one place (H23)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.kernel.programs import allocates, frees, wrong, zeros
from tests.kernel.programs_ptx import wrong_by_the_text
from tests.litmus.notation import begin, global_words
from tilesim import Builder, address_of, f16, f32, pred, u32, view_at
from tilesim.ir.declarations import GlobalTensor, Mbarriers
from tilesim.ir.expr import Const, Operand, Var, as_expr
from tilesim.ir.ops.compute import Data, Exchange
from tilesim.ir.tensor_memory import TmemView

# ---------------------------------------------------------------------- loads that are stored


def filled(k: Builder, warps: int = 2) -> tuple[Var, TmemView, GlobalTensor]:
    """An address in tensor memory, 32 lanes of 4 columns there that warp 0 has filled, and words
    in global memory."""
    address = allocates(k, 32, warps=warps)
    cells, tile = k.tcgen05.tensor(address, f32, (32, 4)), k.fragment("tile", f32, (32, 4))
    with k.role("W0", 0):
        zeros(k, cells, tile)
    return address, cells, global_words(k, "out", 256)


@contextmanager
def freed_behind(k: Builder) -> Iterator[tuple[TmemView, GlobalTensor]]:
    """What the first of two warps does with such cells and words, before it frees the cells."""
    address, cells, out = filled(k)
    with k.role("W0", 0):
        yield cells, out
    frees(k, address, 32)


def loaded(k: Builder, cells: TmemView, name: str = "r") -> list[Var]:
    """The four registers that a load of the cells sets, as the plain form of PTX has it."""
    results = [k.var(f"{name}{n}", dtype=u32) for n in range(4)]
    k.tcgen05.ld(k.fragment(f"{name}s", f32, (32, 4)), cells)
    k.emit(Data(opcode="tcgen05.ld", results=tuple(results), sources=(), group="tcgen05.ld"))
    return results


def store(k: Builder, out: GlobalTensor, registers: Sequence[Var], first: int = 0) -> None:
    """Each lane stores each of them to a word of its own."""
    for n, register in enumerate(registers, first):
        k.mem.store(out[32 * n + k.lane_id], register)


def computed(k: Builder, name: str, *sources: Var, results: int = 1) -> list[Var]:
    """What an instruction makes of some registers."""
    made = [k.var(f"{name}{n}", dtype=u32) for n in range(results)]
    k.emit(Data(opcode="fma.rn.f32", results=tuple(made), sources=sources))
    return made


@wrong("U33", breaks="H6")
def a_load_of_which_a_register_is_not_stored(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        store(k, out, loaded(k, cells)[: 4 if right else 3])


@wrong("U33", breaks="H6")
def a_load_of_which_a_register_is_not_stored_by_one_lane(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        first, *others = loaded(k, cells)
        store(k, out, others)
        with k.if_(k.lane_id < (32 if right else 31)):
            store(k, out, [first], 3)


@wrong("U33", breaks="H6")
def a_load_that_is_stored_behind_the_hand_over(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        registers = loaded(k, cells)
        if right:
            store(k, out, registers)
    frees(k, address, 32)
    if not right:
        with k.role("W0", 0):
            store(k, out, registers)


@wrong("U33", breaks="H6")
def loads_of_which_the_last_one_is_stored(k: Builder, *, right: bool) -> None:
    """The second one sets the same registers."""
    with freed_behind(k) as (cells, out):
        registers = loaded(k, cells)
        if right:
            store(k, out, registers)
        k.tcgen05.ld(k.fragment("again", f32, (32, 4)), cells)
        k.emit(Data(opcode="tcgen05.ld", results=tuple(registers), sources=(), group="tcgen05.ld"))
        store(k, out, registers, 4)


@wrong("U33", breaks="H6")
def a_register_that_is_set_again_before_it_is_stored(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        first, *others = loaded(k, cells)
        if not right:
            k.assign(first, 1)
        store(k, out, [first, *others])


@wrong("U33", breaks="H6")
def a_register_that_is_set_again_by_some_lanes(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        first, *others = loaded(k, cells)
        with k.if_(k.lane_id < (0 if right else 1)):
            k.assign(first, 1)
        store(k, out, [first, *others])


@wrong("U33", breaks="H6")
def a_sum_of_all_but_one_register(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        a, b, c, d = loaded(k, cells)
        (low,) = computed(k, "low", a, b)
        (high,) = computed(k, "high", c, d if right else c)
        store(k, out, [low, high])


@wrong("U33", breaks="H6")
def one_of_two_results_of_all_registers(k: Builder, *, right: bool) -> None:
    """Each of two results may be made of a part of the sources."""
    with freed_behind(k) as (cells, out):
        registers = loaded(k, cells)
        store(k, out, computed(k, "made", *registers, results=1 if right else 2)[:1])


@wrong("U33", breaks="H6")
def a_store_where_nothing_but_the_address_is_loaded(k: Builder, *, right: bool) -> None:
    """It stores a number to where a register says: that is none of its data."""
    with freed_behind(k) as (cells, out):
        registers, zero = loaded(k, cells), k.var("zero", 0, dtype=u32)
        store(k, out, registers[:3])
        at = view_at(address_of(out[96 + k.lane_id + (zero if right else 0)]), u32, space="global")
        k.mem.store(at, registers[3] if right else zero)


@contextmanager
def freed_behind_an_mbarrier(
    k: Builder, arrivals: int, *, acquires: bool = True
) -> Iterator[Mbarriers]:
    """The first warp loads the cells and stores them; what it does then; the second warp frees them
    behind a wait for an mbarrier."""
    b = k.mbarriers("b")
    address, cells, out = filled(k)
    with k.role("W1", 1), k.elected():
        k.mbarrier.init(b, arrivals)
    k.sync_threads()
    with k.role("W0", 0):
        store(k, out, loaded(k, cells))
        yield b
    with k.role("W1", 1):
        k.mbarrier.wait(b, 0, sem="acquire" if acquires else "relaxed")
        k.tcgen05.dealloc(address, 32)


@wrong("U33", breaks="H6")
def stores_of_a_load_that_are_handed_over_by_one_lane(k: Builder, *, right: bool) -> None:
    """Of the other lanes it knows nothing unless they have met."""
    with freed_behind_an_mbarrier(k, 1) as b:
        if right:
            k.sync_warp()
        with k.elected(sync=False):
            k.mbarrier.arrive(b)


@wrong("U33", breaks="H6")
def stores_of_a_load_that_are_ordered_in_time_only(k: Builder, *, right: bool) -> None:
    with freed_behind_an_mbarrier(k, 32, acquires=right) as b:
        k.mbarrier.arrive(b, sem="release" if right else "relaxed")


@wrong_by_the_text("U33", breaks="H6")
def a_load_that_is_stored_without_a_wait(k: Builder, *, right: bool) -> None:
    with freed_behind(k) as (cells, out):
        registers = loaded(k, cells)
        if right:
            k.tcgen05.wait_ld()
        store(k, out, registers)


# ---------------------------------------------------------------------- stores of the same data

EQUAL, APART = "stores that may be of equal values", "lanes store to one place"


def stores(k: Builder, value: Operand, *, to: Operand = 0, warps: int = 2) -> None:
    """Lanes store to shared memory, in no order, and all read it when all have met."""
    s, r = k.shared("s", u32, (64,)), k.var("read", dtype=u32)
    with k.if_(k.warp_id < warps):
        k.mem.store(s[to], value)
    k.sync_threads()
    k.mem.load(r, s[to])


def given(k: Builder, at: Operand = 0, name: str = "x") -> Var:
    """What lanes load from a tensor that nothing writes."""
    g, x = k.tensor(f"of_{name}", u32, (128,)), k.var(name, dtype=u32)
    k.mem.load(x, g[at])
    return x


@wrong("H23-equal", not_covered=APART)
def lanes_that_load_from_places_of_their_own(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    stores(k, given(k, 5 if right else k.lane_id))


@wrong("H23-equal", not_covered=EQUAL)
def warps_that_load_from_different_places(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    stores(k, given(k, k.lane_id + (0 if right else k.warp_id)), to=k.lane_id)


def found_by_two_warps(
    k: Builder, *, between: bool, strong: bool = False, far: bool = False
) -> Var:
    """What one instruction finds in shared memory in warp 0, and then in warp 1; in ``between`` a
    word of it is stored, or ``far`` from there."""
    w, x = k.shared("w", u32, (64,)), k.var("x", dtype=u32)
    k.mem.store(w[k.thread_id], given(k, k.thread_id, "start"))
    k.sync_threads()
    with k.loop(2) as iteration:
        with k.if_(k.warp_id.eq(iteration)):
            k.mem.load(x, w[k.lane_id], sem="relaxed" if strong else "weak")
        k.sync_threads()
        if between:
            with k.if_(k.thread_id.eq(7)):
                k.mem.store(w[40 if far else 9], x)
            k.sync_threads()
    return x


@wrong("H23-equal", not_covered=EQUAL)
def warps_that_load_before_and_behind_a_store(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    stores(k, found_by_two_warps(k, between=True, far=right), to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def strong_loads_of_two_warps(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    stores(k, found_by_two_warps(k, between=False, strong=not right), to=k.lane_id)


@wrong("H23-equal", not_covered=APART)
def results_of_atomics(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, x = k.tensor("g", u32, (32,)), k.var("x", dtype=u32)
    if right:
        k.mem.load(x, g[0])
    else:
        k.mem.atomic(g[0], "add", 1, result=x)
    stores(k, x)


@wrong("H23-equal", not_covered=EQUAL)
def sums_of_the_same_and_of_other_data(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, y = given(k, k.lane_id), given(k, k.lane_id + 32 * (0 if right else k.warp_id), "y")
    stores(k, computed(k, "sum", x, y)[0], to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def sums_with_a_number_that_differs(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    n = k.var("n", 3 if right else 3 + k.warp_id, dtype=u32)
    stores(k, computed(k, "sum", given(k, k.lane_id), n)[0], to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def a_sum_with_the_number_of_the_warp(k: Builder, *, right: bool) -> None:
    """The store itself computes it."""
    k.launch(warps=2)
    x = given(k, k.lane_id)
    stores(k, x + (1 if right else k.warp_id), to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def sums_of_which_one_has_one_more_iteration(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, sum_ = given(k, k.lane_id), k.var("sum", 0, dtype=u32)
    with k.loop(2) as iteration, k.if_((iteration + k.warp_id) < (3 if right else 2)):
        k.emit(Data(opcode="add.f32", results=(sum_,), sources=(sum_, x)))
    stores(k, sum_, to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def data_that_some_lanes_replace(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, y = given(k, k.lane_id), given(k, k.lane_id, "y")
    with k.if_((k.lane_id < 4) & (0 if right else k.warp_id.eq(1))):
        k.assign(x, y)
    stores(k, x, to=k.lane_id)


@wrong("H23-equal", not_covered=EQUAL)
def data_that_is_shuffled_otherwise(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, y = given(k, k.lane_id), k.var("y", dtype=u32)
    lane, inside = as_expr(1 if right else 1 + k.warp_id), k.var("inside", dtype=pred)
    k.emit(Exchange(result=y, inside=inside, value=x, mode="bfly", lane=lane, clamp=Const(31),
                    mask=Const(0xFFFFFFFF)))  # fmt: skip
    stores(k, y, to=k.lane_id)


@wrong("H23-equal", not_covered=APART, classes=([[0, 1]], [[0, 1]]))
def lanes_that_load_from_places_of_their_own_in_another_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    stores(k, given(k, k.cta_x * (1 if right else k.lane_id)))


@wrong("H23-equal", not_covered=EQUAL, classes=([[0, 1]], [[0, 1]]))
def a_word_that_is_stored_in_between_in_another_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, grid=2)
    h, x = k.tensor("h", u32, (4,)), k.var("x", dtype=u32)
    with k.loop(2) as iteration:
        with k.if_(k.warp_id.eq(iteration)), k.elected():
            k.mem.load(x, h[3 * k.cta_x])
        k.sync_threads()
        with k.if_(k.thread_id.eq(0) & iteration.eq(0)):
            k.mem.store(h[1 + k.cta_x * (1 if right else 2)], 1)
        k.sync_threads()
    with k.elected():
        stores_once(k, x)


def stores_once(k: Builder, value: Operand) -> None:
    """Lanes store to one word of shared memory."""
    k.mem.store(k.shared("s", u32, (1,))[0], value)


@wrong("H23-equal", not_covered=EQUAL)
def what_two_ctas_find_in_their_own_memory(k: Builder, *, right: bool) -> None:
    """Each finds what its first store has left there, and stores that to one place."""
    k.launch(warps=1, grid=2, cluster=2)
    own, both = k.shared("own", u32, (1,)), k.shared("both", u32, (1,))
    x, y = given(k, k.cluster_rank), k.var("y", dtype=u32)
    with k.elected():
        k.mem.store(own[0], x)
    k.cluster.sync()
    with k.elected():
        k.mem.load(y, own.view().at(0)[0] if right else own[0])
        k.mem.store(both.view().at(0)[0], y)
    k.cluster.sync()


@wrong("H6")
def a_read_beside_one_of_two_stores_of_the_same_data(k: Builder, *, right: bool) -> None:
    """Behind the last one of the two, but not the first one."""
    k.launch(warps=3)
    s, r, b = k.shared("s", u32, (1,)), k.var("r", dtype=u32), k.mbarriers("b")
    begin(k, (b, 1))
    x = given(k)
    with k.if_(k.warp_id < 2):
        k.mem.store(s[0], x)
        if right:
            k.bar.sync(1, 64)
        with k.if_(k.warp_id.eq(1)), k.elected():
            k.sync_warp(1)
            k.mbarrier.arrive(b)
    with k.if_(k.warp_id.eq(2)):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, s[0])


@wrong("H6")
def a_store_of_the_same_data_beside_what_the_other_one_covers(k: Builder, *, right: bool) -> None:
    """One warp reads what was there; the first of two stores comes behind that."""
    k.launch(warps=3)
    s, r, x = k.shared("s", u32, (1,)), k.var("r", dtype=u32), given(k)
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(s[0], 1)
    k.sync_threads()
    with k.role("W2", 2):
        k.mem.load(r, s[0])
        k.bar.sync(1, 96 if right else 64)
    with k.if_(k.warp_id < 2):
        with k.if_(k.warp_id.eq(0) | int(right)):
            k.bar.sync(1, 96 if right else 64)
        k.mem.store(s[0], x)


@wrong("H23-equal", not_covered=APART)
def rows_of_matrices_that_differ(k: Builder, *, right: bool) -> None:
    """All lanes of a warp hold the same; those of one of the matrices hold their own."""
    k.launch(warps=1)
    s, x, y = k.shared("s", f16, (8, 8)), given(k), given(k, k.lane_id, "y")
    k.matrix.store(s[k.lane_id & 7], (x, x if right else y))
