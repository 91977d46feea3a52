"""Random programs with a parameter, for `tests.sim.forall_campaign`.

One to three rings of stages in pairs of warps: one after another, or in warps of their own, with
stages and trip counts of their own; nested in loops over a number or over the parameter. Phases
are told by the turn, a counter of 8 or 32 bits, a bit that is flipped, or tokens. Trip counts go
through Python's arithmetic. One ring has a fault where a condition on the turn and the parameter
holds, in the kernel or in its Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from tilesim import Builder, s32, u8, u32
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.program import Program

#: a parameter, or an expression over it and the turn of a loop
Number = Any
T = TypeVar("T")

#: how the phase of a turn is told; a proof with a counter of 8 bits takes 256 values, if any
STYLES = ("turn", "turn", "count", "flip")
#: what a fault does
FAULTS = ("race", "race", "omits", "twice", "beyond")
#: turns of loops around others whose number does not depend on the parameter
_FEW = (2, 3)
#: what the parameter and turns are divided by: a proof takes a run for each multiple of them all
_DIVISORS = (2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 11)


class Draw:
    """What is drawn for one program. ``marks`` are the constants that turns and the parameter are
    compared with: values beside them are worth a look."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.marks: set[int] = set()

    def of(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self._random.randrange(len(choices))]

    def below(self, number: int) -> int:
        """A number from 0 on."""
        return self._random.randrange(number)

    def one_in(self, number: int) -> bool:
        """True so often."""
        return not self._random.randrange(number)

    def mark(self, low: int, high: int) -> int:
        """A constant that decides something."""
        value = self._random.randrange(low, high)
        self.marks.add(value)
        return value

    def turn(self) -> int:
        """A constant to compare with: mostly one of those that are checked one by one."""
        return self.mark(64, 700) if self.one_in(5) else self.mark(0, 64)


class RandomProgram:
    """The program of a number, for all values of its parameters; ``make`` makes it of draws."""

    def __init__(self, number: int, make: Callable[..., Program] | None = None) -> None:
        self.number = number
        self.marks: frozenset[int] = frozenset()
        self._make = make or rings

    def __call__(self, **values: Number) -> Program:
        """The program for these values; raises as kernels do if it takes others only."""
        draw = Draw(self.number)
        program = self._make(draw, **values)
        self.marks = frozenset(draw.marks)
        return program


def rings(draw: Draw, n: Number) -> Program:
    """Rings of stages, for a value ``n``."""
    return _Maker(draw, n).program()


class _Maker:
    def __init__(self, draw: Draw, n: Number) -> None:
        self.draw = draw
        self.n = n
        self.wide = draw.one_in(4)
        self.rings = draw.of([1, 1, 1, 2])
        self.apart = self.rings > 1 and draw.one_in(2)
        self.faulty = draw.below(self.rings)
        self.fault = draw.of(FAULTS)
        self.k = Builder("random", warps=2 * self.rings if self.apart else 2)

    def program(self) -> Program:
        """Rings, and sometimes a tensor that is written."""
        k, draw, n = self.k, self.draw, self.n
        stages = [draw.of([1, 1, 2, 2, 2, 3, 4]) for _ in range(self.rings)]
        fulls = [k.mbarriers(f"full{r}", s) for r, s in enumerate(stages)]
        empties = [k.mbarriers(f"empty{r}", s) for r, s in enumerate(stages)]
        own = k.mbarriers("own", 2)
        lanes = 32 if self.wide else 1
        with k.one_thread():
            for bars, count in [(b, lanes) for b in (*fulls, *empties)] + [(own, lanes)]:
                for bar in bars:
                    k.mbarrier.init(bar, count)
        k.sync_threads()
        out = None
        if draw.one_in(6):
            out = k.tensor("out", s32, (draw.of([9 * n + 200, constant(4_096)]), 32))
        for r, count in enumerate(stages):
            ring = _Ring(self, r, count, fulls[r], empties[r], own, out)
            ring.emit(2 * r if self.apart else 0)
        return k.finish()

    def trips(self) -> Number:
        """How many turns a loop makes."""
        draw, n = self.draw, self.n
        by = 1 + draw.below(3)
        match draw.below(14):
            case 0:
                return n + draw.below(4)
            case 1:
                return n * by
            case 2:
                return n // (by + 1) + 1
            case 3:
                return max(n, draw.turn())
            case 4:
                return min(n, draw.turn())
            case 5:
                return -(-n // (by + 1))
            case 6:
                return n - n % (by + 1) + 1
            case 7:
                return n if n < draw.turn() else n + by
            case 8:
                return sum(divmod(n, by + 1))
            case _:
                return n


class _Ring:
    """A ring between two warps."""

    def __init__(
        self, maker: _Maker, number: int, stages: int, full: Any, empty: Any, own: Any, out: Any
    ) -> None:
        self.maker, self.number, self.stages = maker, number, stages
        self.k, self.draw, self.n = maker.k, maker.draw, maker.n
        self.full, self.empty, self.own, self.out = full, empty, own, out
        lanes = 32 if maker.wide else 1
        self.lane = self.k.lane_id if maker.wide else as_expr(0)
        self.data = self.k.shared(f"data{number}", s32, (stages, lanes))
        self.turns = maker.trips()
        self.style = "byte" if self.draw.one_in(40) else self.draw.of(STYLES)
        self.outer: Number = None
        if self.draw.one_in(5):
            self.outer = self.draw.of(_FEW)
        elif self.draw.one_in(7):
            self.outer, self.turns = self.turns, 1 + self.draw.below(3)
        if self.outer is not None and self.style == "turn":
            self.style = "count"

    def emit(self, warp: int) -> None:
        """Both warps."""
        others = self._others()
        faults = self.maker.faulty == self.number and self._python()
        faulty, place = self.maker.fault if faults else "", self.draw.below(2)
        with self._role(f"p{self.number}", warp):
            self._loop(self.turns, self.empty, self.full, 1, faulty if not place else "")
        with self._role(f"c{self.number}", warp + 1):
            self._loop(others, self.full, self.empty, 0, faulty if place else "")

    def _role(self, name: str, warp: int) -> Any:
        return _Nested(self.k.role(name, warp), _all() if self.maker.wide else self.k.elected)

    def _loop(self, turns: Number, waits: Any, arrives: Any, first: int, fault: str) -> None:
        """Turns that wait for one barrier each, access the data, and arrive on another."""
        k, draw = self.k, self.draw
        count, stage, phase = self._state(f"{self.number}{first}")
        tokens, writes = draw.one_in(12), self.out is not None and draw.one_in(2)
        row = random.Random(draw.below(1 << 30))
        outer = nullcontext() if self.outer is None else k.loop(self.outer)
        with outer, k.loop(turns) as i:
            at, parity = self._at(count, stage, phase, i)
            k.mbarrier.wait(waits[at], parity ^ first)
            if writes:
                k.mem.store(self.out[_row(row, i, self.n), self.lane], 1)
            value = k.var(f"value{self.number}{first}", 0)
            if first:
                k.mem.store(self.data[at, self.lane], 7)
            else:
                k.mem.load(value, self.data[at, self.lane])
            if tokens:
                token = k.var(f"token{self.number}{first}")
                k.mbarrier.arrive(self.own[first], token=token)
                k.mbarrier.wait(self.own[first], token=token)
            self._arrive(arrives[at], fault, at, i)
            self._advance(count, stage, phase)

    def _arrive(self, bar: Any, fault: str, at: Expr, i: Expr) -> None:
        k = self.k
        if not fault:
            k.mbarrier.arrive(bar)
            return
        holds = condition(self.draw, i, self.n)
        match fault:
            case "omits":
                with k.if_(select(holds, 0, 1).eq(1)):
                    k.mbarrier.arrive(bar)
                return
            case "twice":
                with k.if_(holds):
                    k.mbarrier.arrive(bar)
            case "beyond":
                value = k.var(f"beyond{self.number}", 0)
                k.mem.load(value, self.data[at, self.lane + select(holds, 32, 0)])
            case _:
                with k.if_(holds):
                    k.mem.store(self.data[(at + 1) % self.stages, self.lane], 8)
        k.mbarrier.arrive(bar)

    # ------------------------------------------------------------------ phases

    def _state(self, name: str) -> tuple[Any, Any, Any]:
        k = self.k
        match self.style:
            case "count":
                return k.var(f"count{name}", 0, self.draw.of([s32, s32, u32])), None, None
            case "byte":
                return k.var(f"byte{name}", 0, u8), None, None
            case "flip":
                return None, k.var(f"stage{name}", 0), k.var(f"phase{name}", 0)
            case _:
                return None, None, None

    def _at(self, count: Any, stage: Any, phase: Any, i: Expr) -> tuple[Any, Any]:
        if stage is not None:
            return stage, phase
        turn = i if count is None else count
        return turn % self.stages, turn // self.stages & 1

    def _advance(self, count: Any, stage: Any, phase: Any) -> None:
        k = self.k
        if count is not None:
            k.assign(count, count + 1)
        if stage is not None:
            k.assign(stage, stage + 1)
            with k.if_(stage.eq(self.stages)):
                k.assign(stage, 0)
                k.assign(phase, phase ^ 1)

    # ------------------------------------------------------------------ faults

    def _others(self) -> Number:
        """How often the consumer turns: as often, mostly."""
        draw, n = self.draw, self.n
        match draw.below(16):
            case 0:
                return self.turns if n != draw.turn() else self.turns + 1
            case 1:
                return self.turns - (n > draw.turn())
            case _:
                return self.turns

    def _python(self) -> bool:
        """Whether there is a fault at all, as Python decides it."""
        draw, n = self.draw, self.n
        match draw.below(12):
            case 0:
                return bool(n == draw.turn())
            case 1:
                by = draw.of(_DIVISORS)
                return bool(n % by == draw.below(by))
            case 2:
                return bool(n > draw.turn())
            case 3 | 4 | 5 | 6 | 7:
                return False
            case _:
                return True


class _Nested:
    """One region in another; the inner one is made within the outer."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._outer, self._make = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner = self._make()
        self._inner.__enter__()

    def __exit__(self, *why: Any) -> None:
        self._inner.__exit__(*why)
        self._outer.__exit__(*why)


def _all() -> Any:
    return nullcontext


def constant(value: int) -> Number:
    """A number that the parameter has nothing to do with."""
    return value


def _row(draw: random.Random, i: Expr, n: Number) -> Expr:
    """Where in a tensor that grows a row is written."""
    by, at = draw.randrange(1, 4), draw.randrange(150)
    places: list[Number] = [i * by, i * by + at, i * by + n, n - i + at, n * by + at, at, i]
    return as_expr(draw.choice(places))


def condition(draw: Draw, i: Expr, n: Number) -> Expr:
    """A condition on the turn and the parameter."""
    match draw.below(12):
        case 0 | 1:
            return i.eq(draw.turn())
        case 2 | 3:
            return i.eq(n - 1 - draw.turn())
        case 4:
            return i > draw.turn()
        case 5:
            by = draw.of(_DIVISORS)
            return i.eq(draw.below(8)) & as_expr(int(n % by == draw.below(by))).eq(1)
        case 6:
            return (i + ((1 << 31) - draw.turn())) < 0
        case 7:
            return i * (1 << draw.of([24, 26, 28])) + as_expr(n) < 0
        case 8:
            times = i * (2 + draw.below(4))
            return times.eq(n + draw.turn())
        case _:
            return _composed(draw, i, n)


def _composed(draw: Draw, i: Expr, n: Number) -> Expr:
    turn = as_expr(_number(draw, i, n, 2))
    at = draw.of([draw.turn(), n - 1, n - 2, n - draw.below(60), 0, n, -1])
    match draw.below(5):
        case 0:
            return turn.eq(at)
        case 1:
            return turn > as_expr(at + draw.below(60))
        case 2:
            return turn < draw.below(5) - 3
        case 3:
            return turn.eq(-1 - draw.below(3))
        case _:
            return turn.eq(at) & i.eq(draw.turn())


def _number(draw: Draw, i: Expr, n: Number, depth: int) -> Number:
    if not depth or draw.one_in(3):
        return draw.of([i, i, n, i + draw.below(9), n - i])
    a, b = (_number(draw, i, n, depth - 1) for _ in range(2))
    few = draw.of(_DIVISORS)
    match draw.below(8):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * few
        case 3:
            return a // few
        case 4:
            return a % few
        case 5:
            return a & draw.of([1, 3, 7])
        case 6:
            return select(i < draw.turn(), a, b)
        case _:
            return as_expr(a) * b if draw.one_in(2) else a
