"""Which inputs steer a kernel: data is followed through memory, registers and other CTAs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.ir.builder import Builder
from tilesim.ir.dataflow import steering_inputs, steers_by_tiles
from tilesim.ir.expr import Var
from tilesim.ir.memory import GlobalTensor, SharedTensor
from tilesim.ir.program import Program
from tilesim.ir.types import s32

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
    assert steering_inputs(program) == ("X",)
    assert steers_by_tiles(program) == (carry is _by_tile)


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
    assert steering_inputs(program) == ()
    assert check(program).verdict == "proved"
