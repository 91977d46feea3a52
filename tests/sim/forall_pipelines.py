"""Random pipelines with a parameter, as users write them, for `tests.sim.forall_campaign`.

CTAs that share out tiles (persistent, in strides of the grid or in blocks), loops in loops of which
the parameter decides one or both, the inner one as long as the turn of the outer one is (causal), a
prologue that fills all stages but one, tails of trip counts that a block does not divide, `while`
loops in steps, groups of copies in flight, rows of a tensor of each tile and turn. Faults are those
of `tests.sim.forall_programs`, and some of single lanes and CTAs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

from tests.sim.forall_programs import FAULTS, Draw, Number, condition, constant
from tilesim import Builder, s32
from tilesim.ir.expr import Expr, as_expr
from tilesim.ir.program import Program

#: how a stage is filled
_FILLING = ("store", "store", "store", "bulk", "groups", "async")
#: what loops there are
_SHAPES = (
    "one", "one", "prologue", "prologue", "tail", "steps", "tiles", "tiles", "blocks", "parts",
    "both", "causal",
)  # fmt: skip
_WORDS = 32


def pipeline(draw: Draw, n: Number) -> Program:
    """The program that ``draw`` makes for a value ``n``."""
    return _Pipeline(draw, n).program()


class _Pipeline:
    """A ring between two warps of each CTA, with an index that is carried on from tile to tile."""

    def __init__(self, draw: Draw, n: Number) -> None:
        self.draw, self.n = draw, n
        self.stages = draw.of([1, 2, 2, 3, 3, 4, 5])
        self.shape = draw.of(_SHAPES)
        self.filling = draw.of(_FILLING)
        self.ctas = draw.of([1, 1, 2, 3]) if self.shape in ("tiles", "blocks", "both") else 1
        self.step = draw.of([2, 3, 4, 5])
        self.few = draw.of([1, 2, 3, 4])
        self.tail = draw.below(3)
        self.rounded = draw.one_in(2)
        self.numbers = count()
        self.carried = draw.one_in(2)
        #: who is faulty, and how: often nobody
        self.fault = draw.of(FAULTS) if draw.one_in(2) else ""
        self.place = draw.below(2)
        self.k = k = Builder("pipeline", "sm_90a", warps=2)
        k.launch(grid=self.ctas)
        self.source = k.tensor("source", s32, (self.stages, _WORDS))
        self.data = k.shared("data", s32, (self.stages, _WORDS))
        self.out: Any = self._out() if draw.one_in(4) else None

    def _out(self) -> Any:
        rows = self.n * (self.few + self.step) + self.draw.of([400, 60])
        return self.k.tensor("out", s32, (self.draw.of([rows, rows, constant(8_192)]), _WORDS))

    def program(self) -> Program:
        """Barriers, and both warps."""
        k = self.k
        self.full, self.empty = k.mbarriers("full", self.stages), k.mbarriers("empty", self.stages)
        with k.one_thread():
            for bar in self.full:
                k.mbarrier.init(bar, 1 if self.filling == "bulk" else _WORDS)
            for bar in self.empty:
                k.mbarrier.init(bar, _WORDS)
        k.sync_threads()
        row = self._row() if self.out is not None else None
        with k.role("producer", 0):
            self._warp(self._fill, 1 - self.place, None)
            if self.filling == "groups":
                k.cp_async.wait_group(0)
        with k.role("consumer", 1):
            self._warp(self._use, self.place, row)
        return k.finish()

    # ------------------------------------------------------------------ loops

    def _warp(self, act: Callable[..., None], faulty: int, row: Any) -> None:
        k = self.k
        index = k.var(f"index{faulty}", 0)
        fault = self.fault if faulty else ""
        if self.shape == "prologue" and act == self._fill:
            # all stages but one are filled ahead
            ahead = self.stages - 1
            for early in range(ahead):
                with k.if_(as_expr(early) < self.n):
                    act(as_expr(early), as_expr(early), "", None)
            with k.loop(ahead, self.n) as i:
                act(i, i, fault, row)
            return
        with self._turns(index) as (turn, at):
            act(turn, at, fault, row)
            if self.shape != "steps":
                k.assign(index, index + 1)
        if self.shape == "tail" and (self.tail == 0 or self.n % self.step):
            act(index, index, "", None)

    @contextmanager
    def _turns(self, index: Any) -> Iterator[tuple[Expr, Expr]]:
        """The turn of a loop, and which item of the ring it is."""
        k, n, draw = self.k, self.n, self.draw
        outer: Any = nullcontext()
        inner: Number = n
        match self.shape:
            case "tail":
                trips = n // self.step if self.tail else -(-n // self.step) - 1
                with k.loop(trips) as i:
                    yield i, index
                return
            case "steps":
                with k.while_(index * self.step < n):
                    yield index * self.step, index
                    k.assign(index, index + 1)
                return
            case "tiles":
                outer, inner = k.loop(k.cta_x, n, self.ctas, name="tile"), self.few
            case "blocks":
                each = -(-n // self.ctas) if self.rounded else n // self.ctas + 1
                outer, inner = k.loop(k.cta_x * each, (k.cta_x + 1) * each, name="tile"), self.few
            case "parts":
                outer, inner = k.loop(self.few, name="tile"), n
            case "both":
                outer, inner = k.loop(k.cta_x, n, self.ctas, name="tile"), n // self.step + 1
            case "causal":
                outer, inner = k.loop(n, name="tile"), None
            case _:
                pass
        with outer as tile, k.loop(tile + 1 if inner is None else inner) as i:
            turn = tile if tile is not None and draw.one_in(2) else i
            carried = self.carried or tile is not None
            yield turn, index if carried else i

    # ------------------------------------------------------------------ turns

    def _fill(self, turn: Expr, at: Expr, fault: str, row: Any) -> None:
        k, stage = self.k, at % self.stages
        k.mbarrier.wait(self.empty[stage], (at // self.stages & 1) ^ 1)
        match self.filling:
            case "bulk":
                with k.elected():
                    k.mbarrier.arrive_expect_tx(self.full[stage], 4 * _WORDS)
                    k.bulk.load(self.data[stage], self.source[stage], self.full[stage])
                self._faulty(turn, stage, fault, None)
                return
            case "groups":
                k.cp_async.copy(self.data[stage], self.source[stage], size=4)
                k.cp_async.commit_group()
                k.cp_async.wait_group(0)
            case "async":
                k.cp_async.copy(self.data[stage], self.source[stage], size=4)
                k.cp_async.mbarrier_arrive(self.full[stage], noinc=True)
                self._faulty(turn, stage, fault, None)
                return
            case _:
                k.mem.store(self.data[stage, k.lane_id], 7)
        self._faulty(turn, stage, fault, self.full[stage])

    def _use(self, turn: Expr, at: Expr, fault: str, row: Any) -> None:
        k, stage = self.k, at % self.stages
        k.mbarrier.wait(self.full[stage], at // self.stages & 1)
        value = k.var(f"value{next(self.numbers)}", 0)
        k.mem.load(value, self.data[stage, k.lane_id])
        if row is not None:
            k.mem.store(self.out[row(turn, at), k.lane_id], value)
        self._faulty(turn, stage, fault, self.empty[stage])

    def _row(self) -> Callable[[Expr, Expr], Expr]:
        by, add = 1 + self.draw.below(2), self.draw.below(40)
        which = self.draw.below(4)
        n = self.n

        def row(turn: Expr, at: Expr) -> Expr:
            places: list[Expr] = [
                at * by + add, turn * by + add, at + n, self.k.cta_x * 30 + at,
            ]  # fmt: skip
            return places[which]

        return row

    def _faulty(self, turn: Expr, stage: Expr, fault: str, bar: Any) -> None:
        """Arrives, and does otherwise where a condition on the turn and the parameter holds."""
        k, draw = self.k, self.draw
        if not fault:
            if bar is not None:
                k.mbarrier.arrive(bar)
            return
        holds = condition(draw, turn, self.n)
        match draw.below(6):
            case 0:
                holds = holds & k.lane_id.eq(turn % _WORDS)
            case 1 if self.ctas > 1:
                holds = holds & k.cta_x.eq(self.n % self.ctas)
            case 2:
                few = draw.of([2, 3, 5, 7, 64])
                holds = (turn % few).eq(draw.below(few)) & (turn > draw.turn())
            case _:
                pass
        with k.if_(holds):
            if fault in ("race", "beyond") or bar is None:
                where = (stage + 1) % self.stages if fault != "beyond" else stage + self.stages
                k.mem.store(self.data[where, k.lane_id], 8)
            elif fault == "twice":
                k.mbarrier.arrive(bar)
        if bar is not None and fault == "omits":
            with k.if_(as_expr(holds).eq(0)):
                k.mbarrier.arrive(bar)
        elif bar is not None:
            k.mbarrier.arrive(bar)
