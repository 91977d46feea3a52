"""Pairs of programs about data that is not known: which of it is stored, and which is the same."""

from __future__ import annotations

from collections.abc import Sequence

from tests.kernel.programs import allocates, frees, wrong
from tests.kernel.programs_edges import PAIRS
from tests.kernel.programs_ptx import wrong_by_the_text
from tests.litmus.notation import global_words
from tilesim import Builder, address_of, f32, u32, view_at
from tilesim.ir.expr import Var
from tilesim.ir.memory import GlobalTensor
from tilesim.ir.ops.compute import Data
from tilesim.ir.tmem import TmemView

__all__ = ["PAIRS"]

# ---------------------------------------------------------------------- loads that are stored


def filled(k: Builder, warps: int = 2) -> tuple[Var, TmemView, GlobalTensor]:
    """An address in tensor memory, 32 lanes of 4 columns there that warp 0 has filled, and words
    in global memory."""
    address = allocates(k, 32, warps=warps)
    cells, tile = k.tcgen05.tensor(address, f32, (32, 4)), k.fragment("tile", f32, (32, 4))
    with k.role("W0", 0):
        k.tile.fill(tile, 0)
        k.tcgen05.st(cells, tile)
        k.tcgen05.wait_st()
    return address, cells, global_words(k, "out", 256)


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
    address, cells, out = filled(k)
    with k.role("W0", 0):
        store(k, out, loaded(k, cells)[: 4 if right else 3])
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def a_load_of_which_a_register_is_not_stored_by_one_lane(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        first, *others = loaded(k, cells)
        store(k, out, others)
        with k.if_(k.lane_id < (32 if right else 31)):
            store(k, out, [first], 3)
    frees(k, address, 32)


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
    address, cells, out = filled(k)
    with k.role("W0", 0):
        registers = loaded(k, cells)
        if right:
            store(k, out, registers)
        k.tcgen05.ld(k.fragment("again", f32, (32, 4)), cells)
        k.emit(Data(opcode="tcgen05.ld", results=tuple(registers), sources=(), group="tcgen05.ld"))
        store(k, out, registers, 4)
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def a_register_that_is_set_again_before_it_is_stored(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        first, *others = loaded(k, cells)
        if not right:
            k.assign(first, 1)
        store(k, out, [first, *others])
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def a_register_that_is_set_again_by_some_lanes(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        first, *others = loaded(k, cells)
        with k.if_(k.lane_id < (0 if right else 1)):
            k.assign(first, 1)
        store(k, out, [first, *others])
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def a_sum_of_all_but_one_register(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        a, b, c, d = loaded(k, cells)
        (low,) = computed(k, "low", a, b)
        (high,) = computed(k, "high", c, d if right else c)
        store(k, out, [low, high])
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def one_of_two_results_of_all_registers(k: Builder, *, right: bool) -> None:
    """Each of two results may be made of a part of the sources."""
    address, cells, out = filled(k)
    with k.role("W0", 0):
        registers = loaded(k, cells)
        store(k, out, computed(k, "made", *registers, results=1 if right else 2)[:1])
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def a_store_where_nothing_but_the_address_is_loaded(k: Builder, *, right: bool) -> None:
    """It stores a number to where a register says: that is none of its data."""
    address, cells, out = filled(k)
    with k.role("W0", 0):
        registers, zero = loaded(k, cells), k.var("zero", 0, dtype=u32)
        store(k, out, registers[:3])
        at = view_at(address_of(out[96 + k.lane_id + (zero if right else 0)]), u32, space="global")
        k.mem.store(at, registers[3] if right else zero)
    frees(k, address, 32)


@wrong("U33", breaks="H6")
def stores_of_a_load_that_are_handed_over_by_one_lane(k: Builder, *, right: bool) -> None:
    """Of the other lanes it knows nothing unless they have met."""
    b = k.mbarriers("b")
    address, cells, out = filled(k)
    with k.role("W1", 1), k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("W0", 0):
        store(k, out, loaded(k, cells))
        if right:
            k.sync_warp()
        with k.elected(sync=False):
            k.mbarrier.arrive(b)
    with k.role("W1", 1):
        k.mbarrier.wait(b, 0)
        k.tcgen05.dealloc(address, 32)


@wrong("U33", breaks="H6")
def stores_of_a_load_that_are_ordered_in_time_only(k: Builder, *, right: bool) -> None:
    b = k.mbarriers("b")
    address, cells, out = filled(k)
    with k.role("W1", 1), k.elected():
        k.mbarrier.init(b, 32)
    k.sync_threads()
    with k.role("W0", 0):
        store(k, out, loaded(k, cells))
        k.mbarrier.arrive(b, sem="release" if right else "relaxed")
    with k.role("W1", 1):
        k.mbarrier.wait(b, 0, sem="acquire" if right else "relaxed")
        k.tcgen05.dealloc(address, 32)


@wrong_by_the_text("U33", breaks="H6")
def a_load_that_is_stored_without_a_wait(k: Builder, *, right: bool) -> None:
    address, cells, out = filled(k)
    with k.role("W0", 0):
        registers = loaded(k, cells)
        if right:
            k.tcgen05.wait_ld()
        store(k, out, registers)
    frees(k, address, 32)
