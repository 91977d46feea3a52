"""What a turn leaves behind is wrong in the next one, told by each kind of state that a loop has.

From a turn late in a loop on, each turn leaves something behind that the next one stumbles over.
That turn is executed, and nothing is wrong in it: it begins like those before it, and ends in a
state that is another one. What compares states has to see in what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.litmus.notation import ones
from tests.sim.timed import timed
from tilesim import Builder, Program, bf16, f16, f32, select
from tilesim.arith.types import pred, s32
from tilesim.checker import check
from tilesim.ir.expr import Var
from tilesim.sim.affine.loop_skipping import Skipper

#: turns, one up to which turns are left out, and one from which on nothing is done: what is left
#: behind by turns that are left out is not seen in one that is executed
TURNS, STOP, END = 200, 60, 190
#: what a turn does, if it is to leave something behind where a register is not 0; what is done
#: behind the loop
Iteration = tuple[Callable[[Var], None], Callable[[], None]]
Kind = Callable[[Builder], Iteration]


def _meet(k: Builder) -> None:
    """The warps meet, and both have gone on when a turn ends."""
    k.sync_threads()
    k.sync_threads()


def _nothing() -> None:
    """Behind the loop."""


def _barrier(k: Builder, name: str, count: int) -> Any:
    bar = k.mbarriers(name)
    with k.one_thread():
        k.mbarrier.init(bar, count)
    k.sync_threads()
    return bar


def _word(k: Builder) -> Iteration:
    """A word in shared memory."""
    words, got, never = k.shared("words", s32, (64,)), k.var("got", 0), _barrier(k, "never", 1)
    k.mem.store(words[k.thread_id], 0)

    def turn(told: Var) -> None:
        k.mem.load(got, words[k.thread_id])
        with k.if_(got.ne(0)):
            k.mbarrier.wait(never, 0)
        k.assign(got, 0)
        k.mem.store(words[k.thread_id], told)
        _meet(k)

    return turn, _nothing


def _register(dtype: Any, *, lane: int | None = None) -> Kind:
    """A register, of one lane."""

    def kind(k: Builder) -> Iteration:
        v, never = k.var("v", 0, dtype), _barrier(k, "never", 1)

        def turn(told: Var) -> None:
            with k.if_(v.ne(0)):
                k.mbarrier.wait(never, 0)
            if lane is None:
                k.assign(v, told.ne(0) if dtype is pred else told)
            else:
                with k.if_(k.lane_id.eq(lane)):
                    k.assign(v, told)
            _meet(k)

        return turn, _nothing

    return kind


def _acquired(*, shared: bool, ticks: int = 0) -> Kind:
    """A warp comes to a barrier, and does not wait there for what the other one has stored, which
    comes to one of its own as often as ``ticks`` says."""

    def kind(k: Builder) -> Iteration:
        data: Any = (k.shared if shared else k.tensor)("data", s32, (32,))
        got = k.var("got", 0)
        with k.role("first", 0):
            k.mem.store(data[k.lane_id], 7)
        k.sync_threads()

        def turn(told: Var) -> None:
            with k.role("storing", 0):
                k.bar.sync(2, 64)
                k.mem.store(data[k.lane_id], 7)
                k.bar.arrive(1, 64)
                for _ in range(ticks):
                    k.bar.sync(3, 32)
            with k.role("loading", 1):
                for _ in range(ticks):
                    k.bar.sync(4, 32)
                k.mem.load(got, data[31 - k.lane_id])
                k.bar.arrive(2, 64)
                with k.if_(told.ne(0)):
                    k.bar.arrive(1, 64)
                with k.else_():
                    k.bar.sync(1, 64)

        return turn, _nothing

    return kind


def _copied(k: Builder) -> Iteration:
    """Copies that nothing waits for."""
    source, stage = k.tensor("source", s32, (64, 4)), k.shared("stage", s32, (64, 4))
    got = k.var("got", 0)
    k.mem.store(stage[k.thread_id, 0], 0)

    def turn(told: Var) -> None:
        k.mem.load(got, stage[k.thread_id, 0])
        k.cp_async.copy(stage[k.thread_id], source[k.thread_id])
        k.cp_async.commit_group()
        with k.if_(told.eq(0)):
            k.cp_async.wait_group(0)
        _meet(k)

    return turn, lambda: k.cp_async.wait_all()


def _met(k: Builder) -> Iteration:
    """Lanes that do not meet behind their stores."""
    words, got = k.shared("words", s32, (64,)), k.var("got", 0)
    k.mem.store(words[k.thread_id], 0)
    k.sync_warp()

    def turn(told: Var) -> None:
        k.mem.load(got, words[k.thread_id ^ 31])
        k.sync_warp()
        k.mem.store(words[k.thread_id], 7)
        k.cp_async.wait_all()
        with k.if_(told.eq(0), sync=False):
            k.sync_warp()

    return turn, _nothing


def _fenced(k: Builder) -> Iteration:
    """A store that no fence of the proxies follows."""
    out, stage = k.tensor("out", s32, (64,)), k.shared("stage", s32, (64,), align=128)
    k.mem.store(stage[k.thread_id], 0)
    k.fence.proxy_async()
    k.sync_threads()

    def turn(told: Var) -> None:
        with k.one_thread(0):
            k.bulk.store(out[...], stage[...])
            k.bulk.commit_group()
            k.bulk.wait_group(0)
            k.mem.store(stage[3], 7)
            with k.if_(told.eq(0)):
                k.fence.proxy_async()
        _meet(k)

    return turn, _nothing


def _under_way(k: Builder) -> Iteration:
    """A copy that is under way to another place."""
    source, stage = k.tensor("source", s32, (64,)), k.shared("stage", s32, (2, 64), align=128)
    got, full = k.var("got", 0), _barrier(k, "full", 1)
    for row in range(2):
        k.mem.store(stage[row, k.thread_id], 0)
    k.fence.proxy_async()
    k.sync_threads()
    with k.one_thread(0):
        k.mbarrier.arrive_expect_tx(full, 256)
        k.bulk.load(stage[0], source[...], full)

    def turn(told: Var) -> None:
        k.mem.load(got, stage[1, k.thread_id])
        k.mbarrier.wait(full, 0)
        k.sync_threads()
        with k.one_thread(0):
            k.mbarrier.arrive(full)
        k.mbarrier.wait(full, 1)
        k.sync_threads()
        with k.one_thread(0):
            k.fence.proxy_async()
            k.mbarrier.arrive_expect_tx(full, 256)
            with k.if_(told.ne(0)):
                k.bulk.load(stage[1], source[...], full)
            with k.else_():
                k.bulk.load(stage[0], source[...], full)
        _meet(k)

    return turn, lambda: k.mbarrier.wait(full, 0)


def _left(k: Builder) -> Iteration:
    """A lane that has left, whose arrivals are missing."""
    own = _barrier(k, "own", 64)

    def turn(told: Var) -> None:
        for parity in range(2):
            k.mbarrier.arrive(own)
            k.mbarrier.wait(own, parity)
        with k.if_(told.ne(0) & k.lane_id.eq(5)):
            k.exit()
        _meet(k)

    return turn, _nothing


def _invalidated(k: Builder) -> Iteration:
    """A barrier that is none any more."""
    own = _barrier(k, "own", 1)

    def turn(told: Var) -> None:
        with k.one_thread(0):
            for parity in range(2):
                k.mbarrier.arrive(own)
                k.mbarrier.wait(own, parity)
            with k.if_(told.ne(0)):
                k.mbarrier.inval(own)
        _meet(k)

    return turn, _nothing


def _known(k: Builder) -> Iteration:
    """A copy of numbers that the check is given: of others than those of the turns before."""
    source, stage = k.tensor("X", s32, (2, 64)), k.shared("stage", s32, (1, 64), align=128)
    boxes = k.tensor_map(source, (1, 64))
    got, full, never = k.var("got", 0), _barrier(k, "full", 1), _barrier(k, "never", 1)

    def copy(row: Any) -> None:
        with k.one_thread(0):
            k.mbarrier.arrive_expect_tx(full, 256)
            k.tma.load(boxes, stage[...], [row, 0], full)

    def turn(told: Var) -> None:
        for parity, row in enumerate((0, told)):
            k.mbarrier.wait(full, parity)
            k.mem.load(got, stage[0, k.thread_id])
            with k.if_(got.ne(0)):
                k.mbarrier.wait(never, 0)
            k.assign(got, 0)
            _meet(k)
            copy(row)
        _meet(k)

    copy(0)
    return turn, lambda: k.mbarrier.wait(full, 0)


def _uncommitted(k: Builder) -> Iteration:
    """A store that is in no group when the next turn waits for all of them."""
    out, stage = k.tensor("out", s32, (64,)), k.shared("stage", s32, (64,), align=128)

    def turn(told: Var) -> None:
        with k.one_thread(0):
            k.bulk.wait_group(0)
            k.mem.store(stage[3], 7)
            k.fence.proxy_async()
            k.bulk.store(out[...], stage[...])
            with k.if_(told.eq(0)):
                k.bulk.commit_group()
        _meet(k)

    def ends() -> None:
        with k.one_thread(0):
            k.bulk.commit_group()
            k.bulk.wait_group(0)

    k.mem.store(stage[k.thread_id], 0)
    k.fence.proxy_async()
    k.sync_threads()
    return turn, ends


def _uncommitted_copy(k: Builder) -> Iteration:
    """The same of copies of each thread."""
    source, stage = k.tensor("source", s32, (64, 4)), k.shared("stage", s32, (64, 4))
    got = k.var("got", 0)
    k.mem.store(stage[k.thread_id, 0], 0)

    def turn(told: Var) -> None:
        k.cp_async.wait_group(0)
        k.mem.load(got, stage[k.thread_id, 0])
        k.cp_async.copy(stage[k.thread_id], source[k.thread_id])
        with k.if_(told.eq(0)):
            k.cp_async.commit_group()
        _meet(k)

    return turn, lambda: k.cp_async.wait_all()


def _expected(k: Builder) -> Iteration:
    """Bytes that a barrier waits for, and that do not come."""
    own = _barrier(k, "own", 1)

    def turn(told: Var) -> None:
        with k.one_thread(0):
            for parity in range(2):
                k.mbarrier.arrive(own)
                k.mbarrier.wait(own, parity)
            k.mbarrier.expect_tx(own, told * 16)
        _meet(k)

    return turn, _nothing


def _arrived(k: Builder) -> Iteration:
    """An arrival too many, which the next turn counts."""
    own = _barrier(k, "own", 4)
    data, got = k.shared("data", s32, (32,)), k.var("got", 0)
    with k.role("first", 0):
        k.mem.store(data[k.lane_id], 0)
    k.sync_threads()

    def turn(told: Var) -> None:
        for parity in range(2):
            with k.role(f"storing {parity}", 0):
                k.mem.store(data[k.lane_id], 7)
                k.sync_warp()
                with k.one_thread(0):
                    k.mbarrier.arrive(own, 3)
            with k.role(f"loading {parity}", 1):
                with k.one_thread(1):
                    k.mbarrier.arrive(own)
                k.mbarrier.wait(own, parity)
                k.mem.load(got, data[31 - k.lane_id])
            _meet(k)
        with k.one_thread(1), k.if_(told.ne(0)):
            k.mbarrier.arrive(own)
        _meet(k)

    return turn, _nothing


def _joined(k: Builder) -> Iteration:
    """Threads that have come to a named barrier before the turn in which all do."""

    def turn(told: Var) -> None:
        with k.role("arriving", 0):
            k.bar.arrive(5, 64)
        with k.role("waiting", 1):
            k.bar.sync(5, 64)
        _meet(k)
        with k.role("arriving again", 0), k.if_(told.ne(0)):
            k.bar.arrive(5, 64)
        _meet(k)

    return turn, _nothing


def _released(k: Builder) -> Iteration:
    """What a warp has stored, before an arrival that is relaxed, without a fence between them."""
    bar, data, got = _barrier(k, "bar", 32), k.shared("data", s32, (32,)), k.var("got", 0)
    with k.role("first", 0):
        k.mem.store(data[k.lane_id], 0)
        k.fence.memory("acq_rel", "cta")
    k.sync_threads()

    def turn(told: Var) -> None:
        for parity in range(2):
            with k.role(f"storing {parity}", 0):
                k.mbarrier.arrive(bar, sem="relaxed")
                k.bar.sync(2, 64)
                k.mem.store(data[k.lane_id], 7)
                with k.if_(told.eq(0) | (parity == 0)):
                    k.fence.memory("acq_rel", "cta")
            with k.role(f"loading {parity}", 1):
                k.mbarrier.wait(bar, parity, sem="relaxed")
                k.fence.memory("acq_rel", "cta")
                k.mem.load(got, data[31 - k.lane_id])
                k.bar.arrive(2, 64)

    return turn, _nothing


def _touched(*, waits: bool) -> Kind:
    """A fragment that an instruction has touched without a fence before the products of the next
    turn; or products that are not over in it."""

    def kind(k: Builder) -> Iteration:
        a, b = k.shared("a", bf16, (64, 16), swizzle=32), k.shared("b", bf16, (8, 16), swizzle=32)
        acc = k.fragment("acc", f32, (64, 8), "warpgroup")
        ones(k, a, b)
        k.tile.fill(acc, 0)
        k.wgmma.fence()

        def turn(told: Var) -> None:
            if not waits:
                k.tile.map(acc, "neg", acc)
                k.wgmma.fence()
            k.wgmma.mma_async(acc, a[...], b[...])
            k.wgmma.commit_group()
            if waits:
                k.wgmma.wait_group(0)
                with k.if_(told.ne(0)):
                    k.wgmma.fence()
                k.tile.map(acc, "neg", acc)
                with k.if_(told.eq(0)):
                    k.wgmma.fence()
                k.wgmma.commit_group()  # of none: what came last is the same
            else:
                with k.if_(told.eq(0)):
                    k.wgmma.wait_group(0)

        return turn, lambda: k.wgmma.wait_group(0)

    return kind


def _unfenced(k: Builder) -> Iteration:
    """A fragment that one product reads and the next one, of another shape, adds to: without a
    fence between them."""
    b, a = k.shared("b", f16, (16, 16), swizzle=32), k.shared("a", f16, (64, 16), swizzle=32)
    acc, both = (
        k.fragment(*n, "warpgroup") for n in (("acc", f32, (64, 16)), ("both", f16, (64, 16)))
    )
    ones(k, a, b)
    k.tile.fill(acc, 0)
    k.tile.fill(both, 0)
    k.wgmma.fence()

    def product(result: Any, read: Any) -> None:
        k.wgmma.mma_async(result, read, b[...])
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)

    def turn(told: Var) -> None:
        product(both, a[...])
        k.wgmma.fence()
        with k.if_(told.ne(0)):
            k.wgmma.fence()
        product(acc, both)
        with k.if_(told.eq(0)):
            k.wgmma.fence()
        k.wgmma.commit_group()  # of none: what came last is the same
        _meet(k)

    return turn, lambda: k.wgmma.wait_group(0)


KINDS: dict[str, tuple[Kind, set[str]]] = {
    "a word": (_word, {"deadlock"}),
    "a register": (_register(s32), {"deadlock"}),
    "a float": (_register(f32), {"deadlock"}),
    "a predicate": (_register(pred), {"deadlock"}),
    "a lane's register": (_register(s32, lane=9), {"deadlock"}),
    "what is acquired": (_acquired(shared=True), {"race"}),
    "what is acquired of global memory": (_acquired(shared=False), {"race"}),
    "what was acquired long ago": (_acquired(shared=True, ticks=6), {"race"}),
    "copies": (_copied, {"race"}),
    "lanes that meet": (_met, {"race"}),
    "a fence": (_fenced, {"proxy-fence"}),
    "a copy under way": (_under_way, {"race"}),
    "a lane that left": (_left, {"deadlock"}),
    "a barrier": (_invalidated, {"barrier-lifetime"}),
    "known numbers": (_known, {"deadlock"}),
    "a store in no group": (_uncommitted, {"race"}),
    "copies in no group": (_uncommitted_copy, {"race"}),
    "bytes to come": (_expected, {"deadlock"}),
    "an arrival": (_arrived, {"over-arrival"}),
    "threads at a named barrier": (_joined, {"named-barrier"}),
    "what is released": (_released, {"race"}),
    "a fragment": (_touched(waits=True), {"wgmma-order"}),
    "products": (_touched(waits=False), {"wgmma-order"}),
    "a fence of fragments": (_unfenced, {"wgmma-order"}),
}  # fmt: skip
#: those of a warpgroup
WARPGROUP = {"a fragment", "products", "a fence of fragments"}
#: those in which warps do not meet at the begin of a turn, which would tell one of the other
APART = {
    "what is acquired", "what is acquired of global memory", "what was acquired long ago",
    "what is released", "lanes that meet",
}  # fmt: skip
#: what tensors hold
GIVEN = {"known numbers": {"X": np.repeat(np.arange(2, dtype=np.int32)[:, None], 64, 1)}}


def leaving(name: str, first: int = TURNS, length: int = 1) -> Program:
    """Some warps; the last of each ``length`` turns leaves something behind, from the turn
    ``first`` on: never, if there is no such turn. What is left out of the turns before ends at
    another one."""
    k = Builder("leaving", "sm_90a", warps=4 if name in WARPGROUP else 2)
    told = k.var("told", 0)
    turn, behind = KINDS[name][0](k)
    with k.loop(TURNS) as i:
        if name not in APART:
            k.sync_threads()  # before anything of the turn when states are compared
        k.assign(told, select(i.eq(STOP), 1, 0))
        since = i + TURNS * length - first
        last = (since % length).eq(length - 1)
        k.assign(told, select((since // length >= TURNS) & last, 1, 0))
        with k.if_(i < END):
            turn(told)
        k.assign(told, 0)
        if name not in APART:
            k.sync_threads()
    behind()
    return k.finish()


def watched(name: str, monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """The first turns of the repetitions that are watched in the right program, and their lengths,
    of those behind the turn up to which some are left out; there are some before it, too."""
    found: set[tuple[int, int]] = set()

    def began(self: Skipper, shifts: object) -> None:
        level, slot = self._watching, self.machine.plan.slots["i"]
        assert level is not None
        found.add((max(w.registers[slot] for w in self.machine.warps), level.length))

    with monkeypatch.context() as patch:
        patch.setattr(Skipper, "began", began)
        run = timed(leaving(name), GIVEN.get(name))
    assert not run.findings
    assert run.stats.skipped > run.stats.instructions / 2
    assert min(found)[0] < STOP < max(found)[0]
    return {(turn, length) for turn, length in found if turn > STOP}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_turn_leaves_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repetition that is watched, one of each length, ends with the first turn that leaves
    something."""
    right = check(leaving(name), inputs=GIVEN.get(name))
    assert right.verdict == "proved"
    for length, first in {length: turn for turn, length in watched(name, monkeypatch)}.items():
        wrong = check(leaving(name, first, length), inputs=GIVEN.get(name))
        assert wrong.verdict == "failed"
        assert wrong.rules == KINDS[name][1]


def behind(*, wrong: bool) -> Program:
    """The warps of a warpgroup are never level when the first one ends a turn: it has made products
    that the others have not; a wait is missing behind the loop."""
    k = Builder("behind", "sm_90a", warps=4)
    a, b = k.shared("a", bf16, (64, 32), swizzle=64), k.shared("b", bf16, (8, 32), swizzle=64)
    acc = k.fragment("acc", f32, (64, 8), "warpgroup")
    ones(k, a, b)
    k.tile.fill(acc, 0)
    with k.loop(80):
        with k.if_(k.warp_id.ne(0)):
            k.bar.sync(k.warp_id, 32)
            k.bar.sync(k.warp_id, 32)
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[:, 0:16], b[:, 0:16])
        k.wgmma.mma_async(acc, a[:, 16:32], b[:, 16:32])
        k.wgmma.commit_group()
        k.bar.sync(4 + k.warp_id, 32)
        k.wgmma.wait_group(1)
    if not wrong:
        k.wgmma.wait_group(0)
    k.tile.map(acc, "neg", acc)
    return k.finish()


def test_warps_that_are_behind_when_repetitions_are_looked_for() -> None:
    assert check(behind(wrong=False)).verdict == "proved"
    assert check(behind(wrong=True)).rules == {"wgmma-order", "async-at-exit"}
