"""Pairs of programs in which numbers that lie in memory decide: those that vectors and matrices
leave there, and those that a tensor begins with."""

from __future__ import annotations

from tests.kernel.programs import wrong
from tests.litmus.notation import begin, global_words, thread
from tilesim import Builder, address_of, ds, minimum, u16, u32, u64, view_at
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.expr import Var


def _registers(k: Builder, number: int) -> tuple[Var, ...]:
    return tuple(k.var(f"r{n}", dtype=u32) for n in range(number))


def _row(k: Builder) -> SharedTensor:
    """Four words, aligned as a vector is."""
    return k.shared("s", u32, (4,), align=16)


# ---------------------------------------------------------------------- vectors


@wrong("deadlock")
def arrivals_that_a_vector_counts(k: Builder, *, right: bool) -> None:
    """As many as the last number of the vector."""
    k.launch(warps=1)
    s, r, b = _row(k), k.var("r", dtype=u32), k.mbarriers("b")
    begin(k, (b, 3 if right else 4))
    with thread(k, 0):
        k.mem.store_vector(s[ds(0, 4)], (7, 5, 9, 3))
        k.mem.load(r, s[3])
        with k.loop(r):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("data", not_covered="data decides")
def a_branch_on_a_vector_of_which_one_number_is_data(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, g, (x, r) = _row(k), global_words(k, "g"), _registers(k, 2)
    with thread(k, 0):
        k.mem.load(x, g[0])
        k.mem.store_vector(s[ds(0, 4)], (1, 1 if right else x, 1, 1))
        k.mem.load(r, s[1])
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


@wrong("data", not_covered="data decides")
def a_branch_on_a_vector_of_which_data_has_overwritten_a_number(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, g, (x, r) = _row(k), global_words(k, "g"), _registers(k, 2)
    with thread(k, 0):
        k.mem.load(x, g[0])
        k.mem.store_vector(s[ds(0, 4)], (1, 1, 1, 1))
        k.mem.store(s[2], 1 if right else x)
        k.mem.load(r, s[2])
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


@wrong("deadlock")
def arrivals_that_a_vector_of_words_counts(k: Builder, *, right: bool) -> None:
    """A vector that is loaded of words that are stored one by one."""
    k.launch(warps=1)
    s, found, b = _row(k), _registers(k, 4), k.mbarriers("b")
    begin(k, (b, 3 if right else 4))
    with thread(k, 0):
        for n, number in enumerate((7, 5, 3, 9)):
            k.mem.store(s[n], number)
        k.mem.load_vector(found, s[ds(0, 4)])
        with k.loop(found[2]):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("data", not_covered="data decides")
def a_branch_on_words_between_which_one_is_data(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, g, x, found = _row(k), global_words(k, "g"), k.var("x", dtype=u32), _registers(k, 4)
    with thread(k, 0):
        k.mem.load(x, g[0])
        for n in range(4):
            k.mem.store(s[n], x if n == 1 and not right else 1)
        k.mem.load_vector(found, s[ds(0, 4)])
        with k.if_(found[1].eq(1)):
            k.fence.proxy_async()


@wrong("data", not_covered="decides the branch")
def a_branch_on_a_vector_of_where_shared_memory_begins(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, r = _row(k), k.var("r", dtype=u32)
    with thread(k, 0):
        k.mem.store_vector(s[ds(0, 4)], (1, 1 if right else address_of(s), 1, 1))
        k.mem.load(r, s[1])
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


# ---------------------------------------------------------------------- matrices


@wrong("deadlock")
def arrivals_that_a_stored_matrix_counts(k: Builder, *, right: bool) -> None:
    """Elements 4 and 5 of the first row are the halves of the third lane's register."""
    k.launch(warps=1)
    s, r, b = k.shared("s", u16, (8, 8), align=16), k.var("r", dtype=u32), k.mbarriers("b")
    begin(k, (b, 3 if right else 4))
    k.matrix.store(s[k.lane_id & 7], (k.lane_id + 1,))
    k.sync_warp()
    with thread(k, 0):
        k.mem.load(r, view_at(address_of(s) + 8, u32))
        with k.loop(r):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("deadlock")
def arrivals_that_a_loaded_matrix_counts(k: Builder, *, right: bool) -> None:
    """Lane 5 gets elements 2 and 3 of the second row, its second word."""
    k.launch(warps=1)
    s, r, b = k.shared("s", u16, (8, 8), align=16), k.var("r", dtype=u32), k.mbarriers("b")
    begin(k, (b, 2 if right else 3))
    row = view_at(address_of(s) + 16 * k.lane_id, u32, (4,))
    with k.if_(k.lane_id < 8):
        k.mem.store_vector(row, [k.lane_id + n for n in range(4)])
    k.sync_warp()
    k.matrix.load((r,), s[k.lane_id & 7])
    with k.if_(k.lane_id.eq(5)):
        with k.loop(r):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("data", not_covered="data decides")
def a_branch_on_a_matrix_of_data(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    s, g, (x, r) = k.shared("s", u16, (8, 8), align=16), global_words(k, "g"), _registers(k, 2)
    k.mem.load(x, g[0])
    k.matrix.store(s[k.lane_id & 7], (1 if right else x,))
    k.sync_warp()
    k.mem.load(r, view_at(address_of(s), u32))
    with k.if_(r.eq(1)):
        k.sync_warp()


# ---------------------------------------------------------------------- contents of tensors


@wrong("inputs", not_covered="data decides", inputs={"n": [1]})
def a_number_that_is_written_by_its_address(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    n, g, r = global_words(k, "n"), global_words(k, "g"), k.var("r", dtype=u32)
    p = k.var("p", address_of(g if right else n), u64)
    with thread(k, 0):
        k.mem.store(view_at(p, u32, space="global"), 2)
        k.mem.load(r, n[0])
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


@wrong("inputs", not_covered="data decides", inputs={"n": [1]})
def a_number_that_is_written_by_an_address_from_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    n, g, r = global_words(k, "n"), global_words(k, "g"), k.var("r", dtype=u32)
    kept, p = k.shared("kept", u64, (1,)), k.var("p", dtype=u64)
    with thread(k, 0):
        k.mem.store(kept[0], address_of(g if right else n))
        k.mem.load(p, kept[0])
        k.mem.store(view_at(p, u32, space="global"), 2)
        k.mem.load(r, n[0])
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


@wrong("inputs", not_covered="data decides", inputs={"n": [1]})
def a_number_that_is_written_where_it_says(k: Builder, *, right: bool) -> None:
    """An element of which the number decides is one of another tensor; or the number's own."""
    k.launch(warps=1)
    n, g, r = global_words(k, "n"), global_words(k, "g", 2), k.var("r", dtype=u32)
    with thread(k, 0):
        k.mem.load(r, n[0])
        p = k.var("p", address_of(g if right else n) + (4 * r if right else 0), u64)
        k.mem.store(view_at(p, u32, space="global"), 2)
        with k.if_(r.eq(1)):
            k.fence.proxy_async()


# ---------------------------------------------------------------------- the type of operands


@wrong("deadlock")
def a_negative_number_beside_one_without_a_sign(k: Builder, *, right: bool) -> None:
    """Of 5 and -5 in 64 bits without a sign the first one is less."""
    k.launch(warps=1)
    b, x = k.mbarriers("b"), k.var("x", 5, dtype=u64)
    begin(k, (b, 5 if right else 6))
    with thread(k, 0):
        with k.loop(minimum(x, -5)):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@wrong("data", not_covered="data decides")
def a_number_that_is_compared_as_a_floating_point_number(k: Builder, *, right: bool) -> None:
    """2^24 + 1 is none of 32 bits: it is 2^24."""
    k.launch(warps=1)
    x = k.var("x", (1 << 24) + 1)
    with k.if_(x.eq(1 << 24 if right else float(1 << 24))), thread(k, 0):
        k.fence.proxy_async()
