"""Random kernels in which a register that counts turns has several roles, for
`tests.sim.forall_campaign`.

Two warps count turns, all lanes alike or not, and use what they have counted in each turn or behind
the loop: as it is, or as `shfl`, `vote`, `redux` or `match` make it, in place or not. It says where
an atomic adds, where a store or a copy goes, in global and in shared memory at once; it is stored
where it says, or a condition compares it. Tensors grow with the parameter, or end, late mostly. The
parameter may be a scalar of the launch, or be in the grid or in the size of a cluster, as a second
one may, which is a number in each proof.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

from tests.sim.forall_programs import Draw, Number, condition, constant
from tilesim import Builder, u32
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.program import Program

#: what makes another register of one, or leaves it there
_MADE = (
    "", "", "", "", "shuffled", "shuffled", "voted", "voted", "reduced", "matched",
)  # fmt: skip
_SHUFFLES: tuple[Literal["idx", "up", "down", "bfly"], ...] = ("idx", "idx", "up", "down", "bfly")
_VOTES: tuple[Literal["all", "any", "uni"], ...] = ("all", "any", "uni")
#: what a register is used for
_USES = (
    "adds", "adds", "adds shared", "fetches", "both", "both", "tile", "itself", "stores", "loads",
    "shared", "decides", "decides",
)  # fmt: skip
_WORDS = 32


def places(draw: Draw, n: Number, m: Number) -> Program:
    """The program that ``draw`` makes for a value of each parameter."""
    return _Places(draw, n, m).program()


class _Places:
    """Two warps of each CTA, which use the same memories."""

    def __init__(self, draw: Draw, n: Number, m: Number) -> None:
        self.draw, self.n, self.m = draw, n, m
        self.k = k = Builder("places", "sm_90a", warps=2)
        cluster = self._few() if draw.one_in(8) else 1
        self.grid = cluster * (self._few() if draw.one_in(4) else 1)
        k.launch(grid=self.grid, cluster=cluster)
        self.turns = self._turns()
        if draw.one_in(3):
            self.turns = k.scalar("turns", self.turns)
        self.words = draw.of([4, self._late(), self._late()])
        grows = 4 * n + draw.of([8, 200])
        rows = draw.of([grows, grows, grows, constant(4_096), constant(self._late())])
        self.sums = k.tensor("sums", u32, (rows, _WORDS))
        self.source = k.tensor("source", u32, (rows, _WORDS))
        self.data = k.shared("data", u32, (self.words, _WORDS), align=128)
        self.bars = k.mbarriers("bars", 2)

    def _late(self) -> int:
        """A constant that decides something beyond the first values."""
        return self.draw.mark(26, 64) if self.draw.one_in(2) else self.draw.mark(64, 300)

    def _few(self) -> Number:
        """How many CTAs or clusters there are."""
        draw, n, m = self.draw, self.n, self.m
        match draw.below(6):
            case 0:
                return min(n, 1 + draw.below(3))
            case 1:
                return 1 + (n > draw.turn())
            case 2:
                return 1 + n % 2
            case 3:
                return min(m, 3)
            case _:
                return constant(1 + draw.below(2))

    def _turns(self) -> Number:
        draw, n, m = self.draw, self.n, self.m
        few = [n + m, 2 * n, n // 2 + 1, min(n, draw.turn()), n + draw.below(40)]
        return draw.of([n, n, n, draw.of(few)])

    def program(self) -> Program:
        """Both warps, of which the second one may have no loop."""
        k, draw = self.k, self.draw
        with k.one_thread():
            for bar in self.bars:
                k.mbarrier.init(bar, 1)
        k.sync_threads()
        self._warp(0, self.turns)
        match draw.below(4):
            case 0:
                self._warp(1, draw.of([self.turns, self.n, constant(3)]))
            case 1 | 2:
                with k.role("other", 1):
                    self._other()
            case _:
                pass
        return k.finish()

    def _other(self) -> None:
        """A row that the second warp writes, or adds to, which nothing counts."""
        k, draw, n = self.k, self.draw, self.n
        row = draw.of([constant(self._late()), constant(self._late()), n, n - 1, 3 * n, self.m])
        if draw.one_in(3):
            k.mem.atomic(self.sums[row, k.lane_id], "add", 1)
        else:
            k.mem.store(self.sums[row, k.lane_id], 1)

    def _warp(self, warp: int, turns: Number) -> None:
        k, draw = self.k, self.draw
        count = k.var(f"count{warp}", draw.of([0, 0, draw.below(9)]))
        by = self._step()
        inside, guarded = draw.one_in(3), draw.one_in(5)
        with k.role(f"w{warp}", warp):
            with k.loop(turns) as i:
                if inside:
                    self._use(warp, count, i)
                with k.if_(k.lane_id < 8) if guarded else nullcontext():
                    k.assign(count, count + by)
                k.bar.sync(1 + warp, 32)
            if not inside:
                self._use(warp, count, as_expr(self.n))

    def _step(self) -> Expr:
        """How much is counted in a turn: as much in all lanes, mostly."""
        k, draw = self.k, self.draw
        few = 1 + draw.below(3)
        lanes = [k.lane_id, k.lane_id % 2, select(k.lane_id < 16, few, 1)]
        return draw.of(lanes) if draw.one_in(4) else as_expr(draw.of([1, 1, few]))

    # ------------------------------------------------------------------ registers

    def _made(self, count: Any, warp: int) -> Any:
        """The register, or what an instruction makes of it: in another one, or in itself."""
        k, draw = self.k, self.draw
        how = draw.of(_MADE)
        if not how:
            return count
        result = count if draw.one_in(2) else k.var(f"made{warp}", 0)
        match how:
            case "shuffled":
                k.mem.shuffle(result, count, draw.of([0, 1, 16, count]), draw.of(_SHUFFLES))
            case "voted":
                bound = self._late()
                k.warp.vote(result, draw.of([count > bound, count.eq(bound)]), draw.of(_VOTES))
            case "reduced":
                k.warp.redux(result, draw.of(["add", "min", "max"]), count)
            case _:
                k.warp.match_any(result, count)
        return result

    def _place(self, value: Expr, i: Expr) -> Expr:
        """Where: what a register says, mostly."""
        draw = self.draw
        match draw.below(10):
            case 0:
                return value + self._late()
            case 1:
                return value * (1 + draw.below(3)) + draw.below(9)
            case 2:
                return as_expr(self.n - value)
            case 3:
                return value % self.words
            case 4:
                return i
            case _:
                return value

    def _inside(self, at: Expr) -> Expr:
        """A place in shared memory, which ends at once if it wraps, and late otherwise."""
        return at % self.words if self.words <= 4 or self.draw.one_in(4) else at

    def _use(self, warp: int, count: Any, i: Expr) -> None:
        """What is counted says where, what, or whether."""
        k, draw = self.k, self.draw
        value = self._made(count, warp)
        at, lane = self._place(value, i), k.lane_id
        seen = k.var(f"seen{warp}", 0, u32)
        match draw.of(_USES):
            case "adds":
                k.mem.atomic(self.sums[at, lane], "add", draw.of([as_expr(1), at, value]))
            case "adds shared":
                k.mem.atomic(self.data[self._inside(at), lane], "add", 1)
            case "fetches":
                with k.elected():
                    k.mem.atomic(self.sums[at, lane], "add", 1, result=seen)
            case "both":
                inside = self._inside(at)
                k.cp_async.copy(self.data[inside, lane], self.source[at, lane], size=4)
                k.cp_async.commit_group()
                k.cp_async.wait_group(0)
            case "tile":
                with k.elected():
                    k.mbarrier.arrive_expect_tx(self.bars[warp], 4 * _WORDS)
                    k.bulk.load(self.data[self._inside(at)], self.source[at], self.bars[warp])
                k.mbarrier.wait(self.bars[warp], i & 1)
            case "itself":
                k.mem.store(self.sums[at, lane], at)
            case "stores":
                k.mem.store(self.sums[at, lane], 7)
            case "loads":
                k.mem.load(seen, draw.of([self.sums, self.source])[at, lane])
            case "shared":
                k.mem.store(self.data[self._inside(at), lane], value)
            case _:
                compared = draw.of([value.eq(self._late()), value > self._late()])
                holds = condition(draw, i, self.n) if draw.one_in(4) else compared
                with k.if_(holds):
                    k.mem.store(self.data[lane // _WORDS + self.words, lane], 8)
