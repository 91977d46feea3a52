"""Checks with and without leaving out repetitions say the same: whole reports, of everything.

    python -m tests.sim.steady_everything [--gallery] [--ptx] [--litmus] [--tiles 500] [--as-it-is]

The gallery with its bugs, also read back from the PTX that is emitted of it, every litmus row at
both strictness levels, and random persistent kernels: different numbers of tiles, places that may
meet, tokens and counters in each turn, faults of single CTAs behind their last tile. Searches never
rest, and one CTA stands for others whatever the size of the grid; with ``--as-it-is`` both are as
in any check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TypeAlias, cast, get_args

import click

import tilesim as ts
from tests.litmus.sections import all_rows
from tests.ptx.campaign import back
from tests.sim.steady_campaign import always, condition
from tilesim import Builder, InvalidProgram, s32, u32
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.kernels.registry import cases

#: a program, its name, and how strictly it is checked
_Named: TypeAlias = "tuple[str, Program | Mir, Strict]"


@dataclass
class Tally:
    """What has been compared: checks by verdict, and what is not the same."""

    verdicts: dict[str, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        return f"{found or 'none'}; different: {', '.join(self.different) or 'none'}"


def gallery() -> Iterator[tuple[str, Program, Strict]]:
    """The kernels of the gallery that can be checked."""
    for case in cases(None):
        if case.expected != "rejected":
            yield case.target, case.kernel.build(**case.params), case.strict


def read_back() -> Iterator[tuple[str, Mir, Strict]]:
    """The same from the PTX that is emitted of them, of those that CUDA has."""
    for name, program, strict in gallery():
        with suppress(EmitError):
            yield f"{name} in PTX", back(emit(program)), strict


def litmus() -> Iterator[tuple[str, Program, Strict]]:
    """The litmus rows."""
    for row in all_rows():
        for strict in get_args(Strict):
            yield f"{row.id} {strict}", row.build(), cast(Strict, strict)


def tiles(draw: random.Random) -> Program:
    """A random persistent kernel."""
    ctas = draw.randrange(2, 7)
    total = ctas * draw.randrange(6, 40) + draw.randrange(ctas)
    apart = draw.choice([1, 1, 2, 3])
    k = Builder("tiles", warps=2)
    k.launch(grid=ctas)
    out = k.tensor("out", s32, (apart * total + 8, 32))
    done = k.tensor("done", u32, (ctas,))
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 32)
    k.sync_threads()
    last, count = k.var("last", k.cta_x), k.var("count", 0)
    kinds = [name for name in ("token", "counter", "late", "computed") if draw.randrange(2)]
    with k.role("worker", 0), k.loop(k.cta_x, total, ctas) as tile:
        row = tile * apart
        if "computed" in kinds:
            width = draw.randrange(2, 9)
            row = tile // width * width + tile % width
        k.mem.store(out[row + draw.choice([0, 0, 0, 1]), k.lane_id], 1)
        if "token" in kinds:
            token = k.var("token")
            k.mbarrier.arrive(bar, token=token)
            k.mbarrier.wait(bar, token=token)
        if "counter" in kinds:
            with k.one_thread():
                k.mem.atomic(done[k.cta_x], "add", 1, sem="release")
        if "late" in kinds:
            with k.if_(condition(draw, tile, total)):
                k.mem.store(out[draw.randrange(total), k.lane_id], 2)
        k.assign(last, tile)
        k.assign(count, count + 1)
    with k.role("other", 1), k.loop(draw.choice([1, total])):
        k.bar.sync(1, 32)
    if draw.randrange(2):
        with k.role("worker again", 0), k.if_(_last(draw, last, count, ctas, total)):
            k.mem.store(out[draw.choice([0, total - 1]), k.lane_id], 3)
    return k.finish()


def _last(draw: random.Random, last: Expr, count: Expr, ctas: int, total: int) -> Expr:
    which = (last % ctas).eq(draw.randrange(ctas))
    often = count.eq(total // ctas + draw.choice([0, 0, 1]))
    return draw.choice([which, often, which & often, last.eq(total - 1 - draw.randrange(ctas))])


def compare(
    name: str, program: Program | Mir, strict: Strict, tally: Tally,
    how: Callable[[], AbstractContextManager[object]] = always,
) -> None:  # fmt: skip
    """Notes whether both reports of a program are the same, unless it is refused."""
    with suppress(InvalidProgram), how():
        report = ts.check(program, strict=strict, schedules=2, budget=20)
        other = ts.check(program, strict=strict, schedules=2, budget=20, skip=False)
        tally.verdicts[report.verdict] = tally.verdicts.get(report.verdict, 0) + 1
        if report != other:
            tally.different.append(name)


def random_tiles(
    number: int, seed: int, tally: Tally,
    how: Callable[[], AbstractContextManager[object]] = always,
) -> None:  # fmt: skip
    """Compares so many random kernels."""
    for case in range(seed, seed + number):
        compare(f"tiles {case}", tiles(random.Random(case)), "practice", tally, how)


@click.command()
@click.option("--gallery", "whole", is_flag=True, help="Compare the gallery.")
@click.option("--ptx", "emitted", is_flag=True, help="Compare the gallery in PTX.")
@click.option("--litmus", "rows", is_flag=True, help="Compare the litmus rows.")
@click.option("--tiles", "number", default=0, help="Compare so many random kernels.")
@click.option("--seed", default=1, show_default=True)
@click.option("--as-it-is", "plain", is_flag=True, help="As in any check.")
def main(*, whole: bool, emitted: bool, rows: bool, number: int, seed: int, plain: bool) -> None:
    """Compare reports."""
    how = nullcontext if plain else always
    tally = Tally()
    random_tiles(number, seed, tally, how)
    if number:
        click.echo(f"tiles: {tally}")
    every: tuple[tuple[str, bool, Callable[[], Iterator[_Named]]], ...] = (
        ("litmus", rows, litmus), ("gallery", whole, gallery), ("PTX", emitted, read_back)
    )  # fmt: skip
    for name, chosen, programs in every:
        tally = Tally()
        for program in programs() if chosen else ():
            compare(*program, tally, how)
        if chosen:
            click.echo(f"{name}: {tally}")


if __name__ == "__main__":
    main()
