"""Addresses that have wrapped, or are not in what they count from (SEMANTICS J1, J5): what comes of
them in a run comes of them with one base only. Each program with its right twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.kernel.programs_edges import an_address_that_wraps_into_the_next_cta
from tests.litmus.notation import global_words, words
from tilesim import Builder, Program, address_of, check, s32, select, u32, u64, view_at
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.expr import Expr
from tilesim.ir.program import Strict

Kernel = Callable[..., None]
#: a generic address in the simulator's window of shared memory lies so far before its first tensor
UP_TO_A_TENSOR = (1 << 40) - (1 << 36)


def a_running_address(k: Builder) -> None:
    """Beyond shared memory, in 32 bits; what is taken from it leads back."""
    out, p = k.tensor("out", s32, (32,)), k.var("p", address_of(words(k, "x", 32)), u32)
    q = k.var("q", p - 4096, u32)
    far = k.var("far", (q + 4096 & 0xFFFFFFFF) >> 24, u32)
    with k.if_(far.eq(0)):
        k.mem.store(out[k.lane_id], 1)


def test_an_address_that_wraps_and_comes_back_in_its_own_bits() -> None:
    k = Builder("comes_back", warps=1)
    a_running_address(k)
    assert check(k.finish()).verdict == "proved"


def built(kernel: Kernel, *, right: bool, warps: int = 1) -> Program:
    k = Builder(kernel.__name__, warps=warps)
    kernel(k, right=right)
    return k.finish()


def decides(k: Builder, cond: Expr) -> None:
    """Whether a condition holds is seen from outside."""
    out = k.tensor("out", s32, (32,))
    with k.if_(cond):
        k.mem.store(out[k.lane_id], 1)


def two_that_are_compared(k: Builder, *, right: bool) -> None:
    p = k.var("p", address_of(words(k, "x", 32)), u32)
    decides(k, (p + (64 if right else 0xFFFFFFC0)) > p)


def a_remainder(k: Builder, *, right: bool) -> None:
    p = k.var("p", address_of(words(k, "x", 32)), s32)
    decides(k, ((p + (16 if right else -16)) % 32).ne(0))


def a_rank(k: Builder, *, right: bool) -> None:
    p = k.var("p", address_of(words(k, "x", 32)), u32)
    decides(k, ((p + (64 if right else 0xFFFFFFC0)) >> 24).eq(0))


def bits_that_a_shift_has_lost(k: Builder, *, right: bool) -> None:
    p, by = k.var("p", address_of(words(k, "x", 32)), u32), 4 if right else 20
    decides(k, ((p << by) >> by).eq(p))


def a_pointer_in_half_a_register(k: Builder, *, right: bool) -> None:
    low = k.var("low", address_of(global_words(k, "g")), u32)
    decides(k, (low & (15 if right else 16)).eq(0))


def in_another_cluster_only(k: Builder, *, right: bool) -> None:
    k.launch(grid=8)
    p = k.var("p", address_of(words(k, "x", 32)), u32)
    q = k.var("q", p + 4 * select(k.cta_x.eq(7), 1 if right else -1, 1), u32)
    decides(k, (q >> 24).eq(9))


def in_a_late_turn_only(k: Builder, *, right: bool) -> None:
    p = k.var("p", address_of(words(k, "x", 512)), u32)
    q, out = k.var("q", p + 2044, u32), k.tensor("out", s32, (32,))
    with k.loop(500 if right else 600):
        with k.if_((q >> 24).eq(9)):
            k.mem.store(out[k.lane_id], 1)
        k.assign(q, q - 4)


def a_generic_one_beyond_its_window(k: Builder, *, right: bool) -> None:
    g, x = global_words(k, "g", 4), words(k, "x", 4)
    p = k.var("p", dtype=u64)
    k.mem.cvta(p, address_of(x), space="shared")
    with k.elected():
        k.mem.store(view_at(p + (4 if right else UP_TO_A_TENSOR), s32, space="generic"), 1)
        k.mem.store(g[1], 1)


def one_that_has_wrapped_in_a_sum(k: Builder, *, right: bool) -> None:
    p = k.var("p", address_of(words(k, "x", 8)), u32)
    q = k.var("q", p + (16 if right else -16), u32)
    decides(k, (q + 16) > p)


def half_a_pointer_that_has_wrapped(k: Builder, *, right: bool) -> None:
    x = words(k, "x", 8)
    half = k.var("half", address_of(x) + (16 if right else -16), u32)
    q, p = k.var("q", half, u64), k.var("p", dtype=u64)
    k.mem.cvta(p, q + (-16 if right else 16 - (1 << 32)), space="shared")
    with k.elected():
        k.mem.store(view_at(p, s32, space="generic"), 1)


DECIDES = (
    one_that_has_wrapped_in_a_sum, half_a_pointer_that_has_wrapped,
    two_that_are_compared, a_remainder, a_rank, bits_that_a_shift_has_lost,
    a_pointer_in_half_a_register, in_another_cluster_only, in_a_late_turn_only,
    an_address_that_wraps_into_the_next_cta, a_generic_one_beyond_its_window,
)  # fmt: skip


@pytest.mark.parametrize("kernel", DECIDES, ids=lambda kernel: kernel.__name__)
def test_an_address_that_another_base_would_change_proves_nothing(kernel: Kernel) -> None:
    assert check(built(kernel, right=True)).verdict == "proved"
    report = check(built(kernel, right=False))
    assert report.verdict == "bounded"
    assert "every launch may have another" in " ".join(report.reasons)


def in_the_next_tensor(k: Builder, *, right: bool) -> None:
    g, h = address_of(global_words(k, "g", 4)), address_of(global_words(k, "h", 4))
    with k.elected():
        k.mem.store(view_at(h if right else g + (1 << 40), s32, space="global"), 1)


def in_a_tensor_that_is_neither(k: Builder, *, right: bool) -> None:
    g, h, i = (address_of(global_words(k, name, 4)) for name in "ghi")
    p = k.var("p", select(k.lane_id < 16, g, h), u64)
    with k.elected():
        k.mem.store(view_at(i if right else p + (2 << 40), s32, space="global"), 1)


def lanes_of_which_one_is_in_the_next_tensor(k: Builder, *, right: bool) -> None:
    g, _ = address_of(global_words(k, "g", 32)), global_words(k, "h", 32)
    lane = 4 * k.lane_id
    by = k.var("by", lane if right else select(k.lane_id < 31, lane, lane + (1 << 40)), u64)
    k.mem.store(view_at(g + by, s32, space="global"), 1)


@pytest.mark.parametrize(
    "kernel",
    [in_the_next_tensor, in_a_tensor_that_is_neither, lanes_of_which_one_is_in_the_next_tensor],
    ids=lambda kernel: kernel.__name__,
)
def test_a_pointer_that_counts_from_a_tensor_accesses_no_other_one(kernel: Kernel) -> None:
    assert check(built(kernel, right=True)).verdict == "proved"
    report = check(built(kernel, right=False))
    assert report.rules == {"out-of-bounds"}


def _either(k: Builder, first: Expr, second: Expr, by: int = 0) -> None:
    """Lanes store through a pointer to one of two tensors, ``by`` bytes further."""
    p = k.var("p", select(k.lane_id < 16, first, second), u64)
    q = k.var("q", p + 4 * k.lane_id + by, u64)
    k.mem.store(view_at(q, s32, space="global"), 1)


def one_that_has_been_moved_into_the_other(k: Builder, *, right: bool) -> None:
    g, h = (address_of(global_words(k, name, 32)) for name in "gh")
    _either(k, g if right else g + (1 << 40), h)


def either_that_is_moved(k: Builder, *, right: bool) -> None:
    g, h, _ = (address_of(global_words(k, name, 32)) for name in "ghi")
    _either(k, g, h, 0 if right else 1 << 40)


def a_number_that_the_other_begins_at(k: Builder, *, right: bool) -> None:
    """In one run: a number is where nothing lies."""
    g, h = (address_of(global_words(k, name, 32)) for name in "gh")
    _either(k, select(k.lane_id < 8, g if right else 2 << 40, g), h)


def a_number_on_one_way(k: Builder, *, right: bool) -> None:
    g, h = (address_of(global_words(k, name, 32)) for name in "gh")
    p = k.var("number", 0, u64)
    with k.if_(k.lane_id < 8):
        k.assign(p, 0 if right else 2 << 40)
    with k.if_((k.lane_id >= 8) if not right else (k.lane_id >= 0)):
        k.assign(p, g)
    _either(k, p, h)


def a_number_before(k: Builder, *, right: bool) -> None:
    """A number in the register of a pointer, which it is no more where that is."""
    g, h = (address_of(global_words(k, name, 32)) for name in "gh")
    p = k.var("number", 2 << 40, u64)
    k.var("other", p + 1, u64)
    with nullcontext() if right else k.if_(k.lane_id >= 8):
        k.assign(p, g)
    _either(k, p, h)


def one_that_is_in_front_for_a_time(k: Builder, *, right: bool) -> None:
    g, h = (address_of(global_words(k, name, 32)) for name in "gh")
    p = k.var("p", select(k.lane_id < 16, g - 64, h - 64), u64)
    by = 64 if right else 64 - (1 << 40)
    k.mem.store(view_at(p + (4 * k.lane_id + by), s32, space="global"), 1)


ONE_OF_TWO = (
    one_that_has_been_moved_into_the_other, either_that_is_moved,
    a_number_that_the_other_begins_at, a_number_on_one_way, a_number_before,
    one_that_is_in_front_for_a_time,
)  # fmt: skip


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("kernel", ONE_OF_TWO, ids=lambda kernel: kernel.__name__)
def test_a_pointer_to_one_of_two_tensors_stays_where_it_is(kernel: Kernel, strict: Strict) -> None:
    """Where the other one lies is chance: so much further than the first in one run only."""
    assert check(built(kernel, right=True), strict=strict).verdict == "proved"
    report = check(built(kernel, right=False), strict=strict)
    assert report.verdict != "proved"


def _stored_by_warps(k: Builder, x: SharedTensor, first: Expr, second: Expr | int) -> None:
    number = k.var("number", select(k.warp_id.eq(0), first, second), u64)
    with k.elected():
        k.mem.store(x[0], number)


def warps_store_a_number_or_an_address(k: Builder, *, right: bool) -> None:
    """0 is where shared memory begins in a run."""
    x = k.shared("x", u64, (1,))
    place = address_of(x)
    _stored_by_warps(k, x, place, place if right else 0)


def warps_store_two_addresses(k: Builder, *, right: bool) -> None:
    g, h = (address_of(global_words(k, name, 4)) for name in "gh")
    _stored_by_warps(k, k.shared("x", u64, (1,)), g, g if right else h - (1 << 40))


@pytest.mark.parametrize(
    "kernel", [warps_store_a_number_or_an_address, warps_store_two_addresses],
    ids=lambda kernel: kernel.__name__,
)  # fmt: skip
def test_numbers_that_are_equal_by_where_things_lie_are_not_the_same_data(kernel: Kernel) -> None:
    assert check(built(kernel, right=True, warps=2)).verdict == "proved"
    report = check(built(kernel, right=False, warps=2))
    assert report.rules == {"race"}
