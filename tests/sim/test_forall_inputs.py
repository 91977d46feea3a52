"""Proofs for every trip count of kernels that are steered by what a check is given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesim as ts
from tests.sim.timed import timed
from tilesim.ir.expr import Expr
from tilesim.lib import Pipeline, open_cta

SIZE = 64


def steered(n: int, *, at: Callable[[Expr], Expr | int], counts: bool = False) -> ts.Program:
    """A ring of rows; what the consumer loads from ``table[at(turn)]`` says where it stores.
    ``counts``: it also adds one to it."""
    k = ts.Builder("steered", warps=2)
    data, table = k.tensor("data", ts.f32, (n, 32)), k.tensor("table", ts.s32, (SIZE,))
    ring, out = k.shared("ring", ts.f32, (2, 32)), k.shared("out", ts.s32, (4,))
    where = k.var("where", 0)
    pipe = Pipeline(k, 2)
    open_cta(k, pipe)
    with k.role("load", 0), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(128)
        k.bulk.load(ring[slot.stage], data[i], slot.full)
    with k.role("use", 1), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(where, table[at(i)])
        k.mem.store(out[ts.maximum(where, 0)], 1)
        if counts:
            k.mem.store(table[at(i)], where + 1)
        slot.release()
    return k.finish()


def proof(build: Callable[[int], ts.Program], **elements: int) -> ts.Report:
    """For every trip count; the table has zeros but for the numbers that are given."""
    table = np.zeros(SIZE, np.int32)
    for name, value in elements.items():
        table[int(name.removeprefix("at"))] = value
    return ts.check(build, for_all={"n": None}, inputs={"table": table})


def test_contents_that_stay_are_the_same_for_every_value() -> None:
    report = proof(lambda n: steered(n, at=lambda i: 5), at5=3)
    assert report.for_all is not None
    assert report.for_all.proved
    assert "for these contents of table" in report.covers
    assert proof(lambda n: steered(n, at=lambda i: 5), at5=4).verdict == "failed"


@pytest.mark.parametrize("turn", [2, 50])
def test_contents_that_a_later_turn_loads_are_not_taken_for_those_before(turn: int) -> None:
    report = proof(lambda n: steered(n, at=lambda i: i % SIZE), **{f"at{turn}": 4})
    assert report.for_all is None or not report.for_all.proved


@pytest.mark.parametrize("start", [1, -20])
def test_contents_that_the_kernel_changes_do_not_stay(start: int) -> None:
    report = proof(lambda n: steered(n, at=lambda i: 0, counts=True), at0=start)
    assert report.for_all is None or not report.for_all.proved


@pytest.mark.parametrize(("turn", "first"), [(True, 36), (False, 35)])
def test_what_one_cta_loads_fails_for_some_values(turn: bool, first: int) -> None:
    """The last of three CTAs, in the turn or for the value 35."""

    def build(n: int) -> ts.Program:
        k = ts.Builder("apart", warps=1)
        k.launch(grid=3)
        table, out = k.tensor("table", ts.s32, (3,)), k.shared("out", ts.s32, (4,))
        own, bar = k.var("own", 0), k.mbarriers("bar")
        with k.one_thread():
            k.mbarrier.init(bar, 1)
            k.mem.load(own, table[k.cta_x])
            with k.loop(n) as i:
                k.mbarrier.arrive(bar)
                k.mbarrier.wait(bar, i & 1)
                with k.if_((own + (i if turn else n)).eq(40)):
                    k.mem.store(out[i * 0 + 4], 1)
        return k.finish()

    given = {"table": np.array([100, 100, 5], np.int32)}
    report = ts.check(build, for_all={"n": None}, inputs=given)
    assert report.verdict == "failed"
    assert report.for_all is not None
    assert report.for_all.at == first


def test_inputs_that_fit_one_value_only() -> None:
    """They say nothing about others, and no value is taken to be refused by the kernel."""

    def build(n: int) -> ts.Program:
        k = ts.Builder("grows", warps=1)
        flags, seen = k.tensor("flags", ts.s32, (n,)), k.var("seen", 0)
        with k.one_thread(), k.loop(n) as i:
            k.mem.load(seen, flags[i])
            with k.if_(seen.ne(0)):
                k.mem.store(flags[i], 1)
        return k.finish()

    report = ts.check(build, for_all={"n": "3.."}, inputs={"flags": np.zeros(3, np.int32)})
    assert report.for_all is not None
    assert not report.for_all.proved
    assert "input flags has shape (3,)" in str(report.for_all.obstacle)


def rows(n: int, *, late: int = -1, kept: int | None = None) -> ts.Program:
    """A ring of rows of numbers that copies bring from a tensor and the consumer loads. In turn
    ``late`` too few bytes are expected. ``kept``: how many rows the tensor has, if not ``n``."""
    k = ts.Builder("rows", "sm_90a", warps=2)
    source = k.tensor("source", ts.s32, (n if kept is None else kept, 32))
    ring, value = k.shared("ring", ts.s32, (2, 32)), k.var("value", 0)
    pipe = Pipeline(k, 2)
    open_cta(k, pipe)
    with k.role("load", 0), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(ts.select(i.eq(late), 64, 128))
        k.bulk.load(ring[slot.stage], source[i], slot.full)
    with k.role("use", 1), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(value, ring[slot.stage, 5])
        slot.release()
    return k.finish()


def test_a_tensor_that_grows_may_be_copied_to_where_it_is_looked_at() -> None:
    report = ts.check(rows, for_all={"n": None})
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all
    late = ts.check(lambda n: rows(n, late=60), for_all={"n": None})
    assert late.for_all is not None
    assert (late.verdict, late.for_all.at) == ("failed", 61)
    ends = ts.check(lambda n: rows(n, kept=50), for_all={"n": None}).for_all
    assert ends is not None
    assert (ends.proved, ends.at) == (False, 51)


@pytest.mark.parametrize("at", [None, 150])
def test_what_a_loop_loads_from_a_tensor_that_grows(at: int | None) -> None:
    def loaded(n: int) -> ts.Program:
        k = ts.Builder("loaded", warps=1)
        source, value = k.tensor("source", ts.s32, (n, 32)), k.var("value", 0)
        with k.loop(n) as i:
            row = i if at is None else i + ts.select(i.eq(at), 9, 0)
            k.mem.load(value, source[row, k.lane_id])
            k.bar.sync(1, 32)
        return k.finish()

    claim = ts.check(loaded, for_all={"n": None}).for_all
    assert claim is not None
    assert (claim.proved, claim.at) == ((True, None) if at is None else (False, 151))


def test_repetitions_that_copy_from_what_is_given_are_executed() -> None:
    """Unlike those that copy from what is not: there all rows are the same."""
    given = np.zeros((400, 32), np.int32)
    given[300] = 7
    for inputs, skipped in ({}, True), ({"source": given}, False):
        assert bool(timed(rows(400), inputs).stats.skipped) is skipped
