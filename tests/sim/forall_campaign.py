"""Random programs with a parameter: what is said of all values, compared with checks of each.

    python -m tests.sim.forall_campaign --cases 2000 [--seed 1] [--seconds 100] [--jobs 2]

Rings of stages with a number of turns that depends on the parameter, nested in a loop over tiles or
not, whose consumers turn as often, once more, or another number of times; with a fault where a
random condition on the turn and the parameter holds, in the kernel or in its Python.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

import click

from tilesim import Builder, s32
from tilesim.checker import prove_alone
from tilesim.errors import TilesimError
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.program import Program
from tilesim.search.forall import ForAll
from tilesim.search.values import Values
from tilesim.timer import Timer

#: values that are checked one by one
VALUES = 64
#: a parameter, or an expression over it and the turn of a loop
Number = Any


@dataclass(frozen=True)
class Shape:
    """What does not depend on the parameter: drawn once per program."""

    stages: int
    tiles: int
    copies: bool
    writes: bool
    seed: int


def made(shape: Shape, n: int) -> Program:
    """The program for a value of the parameter; raises as kernels do if it takes others only."""
    draw = random.Random(shape.seed)
    k = Builder("ring", warps=2)
    stages = shape.stages
    data = k.shared("data", s32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    source = k.tensor("source", s32, (_size(draw, n), 32))
    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.init(full[stage], 32)
            k.mbarrier.init(empty[stage], 32)
    k.sync_threads()
    many, one = random.Random(shape.seed + 1), random.Random(shape.seed + 2)
    if shape.writes:
        out = k.tensor("out", s32, (many.choice([9 * n + 200, as_constant(4_096)]), 32))
    turns = _trips(draw, n)
    fault = _python(draw, n)
    with k.role("producer", 0):
        count = k.var("made", 0)
        with k.loop(shape.tiles), k.loop(turns) as i:
            k.mbarrier.wait(empty[count % stages], (count // stages & 1) ^ 1)
            if shape.writes:
                k.mem.store(out[_row(many, i, n), k.lane_id], 1)
            if shape.copies:
                value = k.var("copied", 0)
                k.mem.load(value, source[_place(draw, i), k.lane_id])
            k.mem.store(data[count % stages, k.lane_id], 7)
            if fault:
                with k.if_(_condition(draw, i, n)):
                    k.mem.store(data[(count + 1) % stages, k.lane_id], 8)
            k.mbarrier.arrive(full[count % stages])
            k.assign(count, count + 1)
    with k.role("consumer", 1):
        count = k.var("used", 0)
        if shape.writes and one.randrange(2):
            k.mem.store(out[_row(one, as_expr(0), n), k.lane_id], 2)
        with k.loop(shape.tiles), k.loop(_others(draw, turns, n)) as i:
            if shape.writes and one.randrange(2):
                k.mem.store(out[_row(one, i, n), k.lane_id], 3)
            k.mbarrier.wait(full[count % stages], count // stages & 1)
            value = k.var("value", 0)
            k.mem.load(value, data[count % stages, k.lane_id])
            k.mbarrier.arrive(empty[count % stages])
            k.assign(count, count + 1)
    return k.finish()


def _size(draw: random.Random, n: Number) -> Number:
    return draw.choice([n + 8, 2 * n + 9, as_constant(4_096), as_constant(50)])


def as_constant(value: int) -> Number:
    """A number that the parameter has nothing to do with."""
    return value


def _row(draw: random.Random, i: Expr, n: Number) -> Expr:
    """Where in a tensor that grows a row is written."""
    by, at = draw.randrange(1, 4), draw.randrange(150)
    places: list[Number] = [i * by, i * by + at, i * by + n, n - i + at, n * by + at, at, i]
    return as_expr(draw.choice(places))


def _trips(draw: random.Random, n: Number) -> Number:
    match draw.randrange(6):
        case 0:
            return n + draw.randrange(4)
        case 1:
            return n * draw.randrange(1, 3)
        case 2:
            return n // draw.randrange(1, 4) + 1
        case _:
            return n


def _others(draw: random.Random, turns: Number, n: Number) -> Number:
    """How often the consumer turns: as often, mostly."""
    match draw.randrange(12):
        case 0:
            return turns if n != draw.randrange(1, 80) else turns + 1
        case 1:
            return turns - (n > draw.randrange(20, 200))
        case _:
            return turns


def _python(draw: random.Random, n: Number) -> bool:
    """Whether there is a fault at all, as Python decides it."""
    at, by = draw.randrange(1, 90), draw.randrange(2, 9)
    match draw.randrange(7):
        case 0:
            return bool(n == at)
        case 1:
            return bool(n % by == at % by)
        case 2:
            return bool(n > at)
        case 3:
            return False
        case _:
            return True


def _place(draw: random.Random, i: Expr) -> Expr:
    places: list[Expr] = [i, i, as_expr(0), i // 2, i + 1]
    return draw.choice(places)


def _condition(draw: random.Random, i: Expr, n: Number) -> Expr:
    """A condition on the turn and the parameter."""
    value = _number(draw, i, n, 2)
    at = draw.choice([draw.randrange(80), n - 1, n - 2, n - draw.randrange(60), 0, n, -1])
    turn: Expr = as_expr(value)
    match draw.randrange(5):
        case 0:
            return turn.eq(at)
        case 1:
            return turn > as_expr(at + draw.randrange(60))
        case 2:
            return turn < draw.randrange(-3, 2)
        case 3:
            return turn.eq(-1 - draw.randrange(3))
        case _:
            return turn.eq(at) & i.eq(draw.randrange(64))


def _number(draw: random.Random, i: Expr, n: Number, depth: int) -> Number:
    if not depth or not draw.randrange(3):
        return draw.choice([i, i, n, i + draw.randrange(9), n - i])
    a, b = (_number(draw, i, n, depth - 1) for _ in range(2))
    few = draw.randrange(2, 12)
    match draw.randrange(8):
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
            return a & draw.choice([1, 3, 7])
        case 6:
            return select(i < draw.randrange(70), a, b)
        case _:
            return as_expr(a) * b if draw.randrange(2) else a


@dataclass(frozen=True)
class Case:
    """What came of one program: what was said, and what is wrong about it."""

    number: int
    said: str
    wrong: str = ""
    runs: int = 0


def case(number: int) -> Case:
    """Compares what is said of all values of a random program with checks of each."""
    draw = random.Random(number)
    shape = Shape(
        draw.randrange(1, 4),
        draw.choice([1, 1, 1, 2]),
        draw.random() < 0.1,
        draw.random() < 0.25,
        draw.randrange(1 << 40),
    )
    build = partial(made, shape)
    proof = ForAll(build, {}, "n", Values(), partial(prove_alone, "practice"), "practice", _timer())
    claim = proof.claim()
    if claim.proved:
        last = claim.limit[0] if claim.limit else 1 << 20
        late = [draw.randrange(VALUES, 400), draw.randrange(400, 3_000)]
        values = [*range(1, VALUES + 1), *(v for v in late if v <= last)]
        bad = next((v for v in values if _alone(build, v) not in ("proved", "refused")), None)
        return Case(number, "proved", f"not so for n = {bad}" if bad else "", claim.runs)
    if proof.failing is not None and claim.at is not None:
        wrong = "" if _alone(build, claim.at) == "failed" else f"n = {claim.at} is right"
        return Case(number, "failed", wrong, claim.runs)
    return Case(number, f"not shown: {_kind(str(claim.obstacle))}", runs=claim.runs)


def _timer() -> Timer:
    return Timer(timedelta(seconds=60))


def _kind(text: str) -> str:
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in text.split())[:60]


def _alone(build: Callable[..., Program], value: int) -> str:
    try:
        return prove_alone("practice", build(value), _timer(), lambda _: None).verdict
    except TilesimError:
        return "refused"


def campaign(
    cases: int, seed: int, seconds: float = 1e9, jobs: int = 1
) -> tuple[Counter[str], list[Case]]:
    """So many programs, for so long: how often what was said, and what was wrong."""
    said: Counter[str] = Counter()
    wrong: list[Case] = []
    end = time.monotonic() + seconds
    numbers = iter(range(seed, seed + cases))
    pool = ProcessPoolExecutor(jobs)
    left = {pool.submit(case, number) for number in islice(numbers, 2 * jobs)}
    while left and time.monotonic() < end:
        done, left = wait(left, end - time.monotonic(), FIRST_COMPLETED)
        left |= {pool.submit(case, number) for number in islice(numbers, len(done))}
        for found in (future.result() for future in done):
            said[found.said] += 1
            if found.wrong:
                wrong.append(found)
                click.echo(f"case {found.number}: said {found.said}, but {found.wrong}")
            if not said.total() % 250:
                click.echo(f"{said.total()} programs, {len(wrong)} wrong")
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    return said, wrong


@click.command()
@click.option("--cases", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--seconds", default=1e9, help="Stop after so long.")
@click.option("--jobs", default=1, show_default=True)
def main(cases: int, seed: int, seconds: float, jobs: int) -> None:
    """Compare what is said of all values with checks of each."""
    said, wrong = campaign(cases, seed, seconds, jobs)
    for what, number in said.most_common():
        click.echo(f"{number:7}  {what}")
    click.echo(f"{said.total()} programs; wrong: {[c.number for c in wrong] or 'none'}")


if __name__ == "__main__":
    main()
