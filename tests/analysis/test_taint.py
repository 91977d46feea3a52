"""Which inputs steer a kernel: data is followed through memory, registers and other CTAs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.taint import Dataflow
from tilesim.arith.types import s32
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.ir.declarations import GlobalTensor, SharedTensor
from tilesim.ir.expr import Var, minimum
from tilesim.ir.program import Program
from tilesim.transforms.lower import lower

#: takes X to a word of shared memory
Carry = Callable[[Builder, GlobalTensor, SharedTensor, Var], None]


def _by_store(k: Builder, X: GlobalTensor, word: SharedTensor, v: Var) -> None:
    with k.elected():
        k.mem.load(v, X[0, 0])
        k.mem.store(word[0, 0], v + 0)


def _by_atomic(k: Builder, X: GlobalTensor, word: SharedTensor, v: Var) -> None:
    with k.elected():
        k.mem.load(v, X[0, 0])
        k.mem.store(word[0, 0], 0)
        k.mem.atomic(word[0, 0], "max", v)


def _by_tile(k: Builder, X: GlobalTensor, word: SharedTensor, v: Var) -> None:
    tile = k.fragment("tile", s32, (1, 32))
    k.tile.load(tile, X)
    k.tile.zip(tile, "mul", tile, 1)
    k.tile.store(word, tile)


def _by_bulk_copy(k: Builder, X: GlobalTensor, word: SharedTensor, v: Var) -> None:
    loaded = k.mbarriers("loaded")
    with k.elected():
        k.mbarrier.init(loaded, 1)
    k.sync_threads()
    with k.elected():
        k.mbarrier.arrive_expect_tx(loaded, 128)
        k.bulk.load(word, X, loaded)
    k.mbarrier.wait(loaded, 0)


def _by_remote_store(k: Builder, X: GlobalTensor, word: SharedTensor, v: Var) -> None:
    sent, peer = k.mbarriers("sent"), 1 - k.cluster_rank
    with k.elected():
        k.mbarrier.init(sent, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        k.mem.load(v, X[0, 0])
        k.cluster.st_async(word.view().at(peer)[0, 0], v, sent[0].at(peer))
        k.mbarrier.arrive_expect_tx(sent, 4)
        k.mbarrier.wait(sent, 0, scope="cluster")


CARRIERS = (_by_store, _by_atomic, _by_tile, _by_bulk_copy, _by_remote_store)


def steered(carry: Carry) -> Program:
    """Waits for an arrival that never comes if X is not zero."""
    k = Builder("steered", warps=1)
    k.launch(grid=2, cluster=2)
    X, word = k.tensor("X", s32, (1, 32)), k.shared("word", s32, (1, 32))
    never, v, seen = k.mbarriers("never"), k.var("v"), k.var("seen")
    with k.one_thread():
        k.mbarrier.init(never, 1)
    carry(k, X, word, v)
    with k.elected():
        k.mem.load(seen, word[0, 0])
        with k.if_(seen.ne(0)):
            k.mbarrier.wait(never, 0)
        with k.if_(k.cluster_rank.eq(2)):
            k.mbarrier.arrive(never)
    k.cluster.sync()
    return k.finish()


@pytest.mark.parametrize("carry", CARRIERS, ids=lambda c: c.__name__)
def test_input_steers_whichever_way_it_takes(carry: Carry) -> None:
    program = steered(carry)
    assert Dataflow(FlowGraph(lower(program))).steering_inputs == ("X",)
    assert Dataflow(FlowGraph(lower(program))).steers_by_tiles == (carry is _by_tile)


@pytest.mark.parametrize("carry", CARRIERS, ids=lambda c: c.__name__)
def test_nothing_is_proved_for_contents_that_were_not_given(carry: Carry) -> None:
    report = check(steered(carry), schedules=2)
    assert report.verdict == "bounded"
    assert report.reasons == (
        "control flow depends on the contents of X, which were not given (zeros assumed)",
    )


@pytest.mark.parametrize("carry", CARRIERS, ids=lambda c: c.__name__)
def test_given_contents_decide(carry: Carry) -> None:
    program = steered(carry)
    ones, zeros = np.ones((1, 32)), np.zeros((1, 32))
    assert check(program, inputs={"X": ones}).rules == {"deadlock"}
    assert check(program, inputs={"X": zeros}).verdict == "proved"


def test_data_that_is_only_moved_does_not_steer() -> None:
    k = Builder("moves", warps=1)
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", s32, (32,)), k.tensor("Y", s32, (32,))
    word, sent, v = k.shared("word", s32, (32,)), k.mbarriers("sent"), k.var("v")
    with k.one_thread():
        k.mbarrier.init(sent, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    k.mem.load(v, X[k.lane_id])
    k.cluster.st_async(
        word.view().at(1 - k.cluster_rank)[k.lane_id], v, sent[0].at(1 - k.cluster_rank)
    )
    with k.elected():
        k.mbarrier.arrive_expect_tx(sent, 128)
    k.mbarrier.wait(sent, 0, scope="cluster")
    k.mem.load(v, word[k.lane_id])
    with k.if_(k.cluster_rank.eq(0)):
        k.mem.store(Y[k.lane_id], v)
    k.cluster.sync()
    program = k.finish()
    assert Dataflow(FlowGraph(lower(program))).steering_inputs == ()
    assert check(program).verdict == "proved"


def paged(*, change_pages: bool = False, scatter: bool = False, branch: bool = False) -> Program:
    """Loads pages of P that T names, by cp.async and by TMA."""
    k = Builder("paged", warps=1)
    P, T = k.tensor("P", s32, (8, 32)), k.tensor("T", s32, (4,))
    box = k.tensor_map(P, (1, 32))
    rows, full = k.shared("rows", s32, (2, 32)), k.mbarriers("full")
    page = k.var("page", 0)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.loop(4) as i:
        k.mem.load(page, T[i])
        k.cp_async.copy(rows[0], P[page], src_bytes=minimum(page * 4, 128))
        k.cp_async.wait_all()
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, box.box_bytes)
            k.tma.load(box, rows[1:2], (page, 0), full)
        k.mbarrier.wait(full, i % 2)
        if change_pages:
            k.mem.store(P[7, k.lane_id], 0)
        if scatter:
            k.mem.store(k.tensor("O", s32, (8, 32))[page, k.lane_id], 0)
        if branch:
            with k.if_(page.ne(0)):
                k.mbarrier.wait(full, 1 - i % 2)
        k.sync_warp()
    return k.finish()


def test_where_to_read_what_nobody_writes_does_not_steer() -> None:
    program = paged()
    assert Dataflow(FlowGraph(lower(program))).steering_inputs == ()
    assert Dataflow(FlowGraph(lower(program))).addressing == ("T",)
    report = check(program)
    assert report.verdict == "proved"
    assert "if the addresses taken from T are in bounds" in report.covers


def test_given_addresses_are_checked() -> None:
    report = check(paged(), inputs={"T": np.array([0, 3, 8, 1])})
    assert report.rules == {"out-of-bounds"}
    report = check(paged(), inputs={"T": np.array([0, 3, 7, 1])})
    assert report.verdict == "proved"
    assert "in bounds" not in report.covers


@pytest.mark.parametrize("change", ["change_pages", "scatter", "branch"])
def test_addresses_of_what_is_written_steer(change: str) -> None:
    program = paged(**{change: True})
    assert Dataflow(FlowGraph(lower(program))).steering_inputs == ("T",)
    assert Dataflow(FlowGraph(lower(program))).addressing == ()
    assert check(program, schedules=2).verdict in ("bounded", "failed")


def reused(*, again: bool, late: bool = False) -> Program:
    """A register holds an input, and later a number that chooses a barrier.

    ``late``: it is set to that number only at the end of a trip.
    """
    k = Builder("reused", warps=1)
    X, Y = k.tensor("X", s32, (32,)), k.tensor("Y", s32, (32,))
    bars, v = k.mbarriers("bars", 2), k.var("v", 0)
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
        k.mbarrier.init(bars[1], 1)
    k.sync_threads()
    with k.loop(2) as i:
        if again and not late:
            k.assign(v, i * 0)
        with k.elected():
            k.mbarrier.arrive(bars[v])
        k.mbarrier.wait(bars[v], i)
        k.mem.load(v, X[0])
        k.mem.store(Y[k.lane_id], v)
        if again and late:
            with k.if_(k.lane_id < 32):
                k.assign(v, i * 0)
    return k.finish()


def test_register_that_is_set_again() -> None:
    assert Dataflow(FlowGraph(lower(reused(again=True)))).steering_inputs == ()
    assert check(reused(again=True)).verdict == "proved"


def test_register_of_the_trip_before() -> None:
    assert Dataflow(FlowGraph(lower(reused(again=False)))).steering_inputs == ("X",)
    assert check(reused(again=False), schedules=2).verdict == "bounded"


def test_register_that_some_lanes_set_again() -> None:
    assert Dataflow(FlowGraph(lower(reused(again=True, late=True)))).steering_inputs == ("X",)


def test_register_after_a_break() -> None:
    k = Builder("broken", warps=1)
    X, bars, v = k.tensor("X", s32, (32,)), k.mbarriers("bars", 2), k.var("v", 0)
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
    k.sync_threads()
    with k.while_(v.eq(0)):
        k.mem.load(v, X[0])
        with k.if_(k.warp_id.eq(0)):
            k.break_()
        k.assign(v, 1)
    with k.elected():
        k.mbarrier.arrive(bars[v])
    assert Dataflow(FlowGraph(lower(k.finish()))).steering_inputs == ("X",)


def test_an_operand_that_is_the_result_as_well_is_an_input() -> None:
    k = Builder("kernel", warps=1)
    flags, x = k.tensor("flags", s32, (1,)), k.var("x", 0)
    k.mem.load(x, flags[0])
    k.mem.shuffle(x, x, 0)
    k.warp.redux(x, "max", x)
    with k.if_(x > 0):
        k.mem.store(k.tensor("out", s32, (1,))[0], 1)
    assert Dataflow(FlowGraph(lower(k.finish()))).steering_inputs == ("flags",)
