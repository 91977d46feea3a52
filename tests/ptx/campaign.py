"""`python -m tests.ptx.campaign --cases N --seed S`: PTX of random programs against the reference.

The programs are those of `tests.sim.campaign`. Each is emitted, compiled and read back; what
`check` says of its first run must not contradict the reference, which follows all executions of the
program it was made from. Where it decides nothing, `check` of the program itself should not, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import click

from tests.sim.comparison import LIMIT, explore, goes_on, opinion, opinion_of, written
from tests.sim.generate import MIXTURE, sample
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tests.sim.steps import Small
from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import Source, emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.mir import Mir
from tilesim.ptx.description import dumps, loads
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: seeds that a process takes at a time
_BLOCK = 50


@dataclass
class Tally:
    """What came out: how often `check` says what of programs that are right, or wrong;
    contradictions; what is decided for a program, and not for its PTX."""

    seen: Counter[str] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    undecided: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Joins another tally."""
        self.seen.update(other.seen)
        self.contradictions += other.contradictions
        self.undecided.update(other.undecided)


def back(source: Source) -> Mir:
    """A program from the PTX that was emitted of it."""
    module = read(compile_ptx(source), "k.ptx")
    return lower(module, module.entries[0], loads(dumps(describe(source))))


def compare(seeds: Iterable[int]) -> Tally:
    """Compares on one program per seed."""
    tally = Tally()
    for seed in seeds:
        _, small = sample(random.Random(seed).randrange, MIXTURE[seed % len(MIXTURE)])
        tally.seen[_one(tally, seed, small)] += 1
    return tally


def _one(tally: Tally, seed: int, small: Small) -> str:
    """Compares on a program; what is said of it, and whether it is right."""
    try:
        said = opinion_of(back(emit(translate(small))), full=False)
    except EmitError:
        return "has no CUDA"
    except InvalidProgram:
        return "rejected"
    if said.verdict == "rejected":
        return said.verdict
    try:
        truth = explore(small, LIMIT, until=said.rules[0] if said.verdict == "failed" else "")
    except TooLarge:
        return "too large"
    wrong = said.disagrees(truth)
    if wrong == "wrong rule":
        wrong = "" if goes_on(small, said.rules[0]) else wrong
    if wrong:
        tally.contradictions.append(f"seed {seed}: {wrong}: {said}, {written(small)}")
    elif said.verdict == "bounded" and opinion(small, full=False).verdict != "bounded":
        tally.undecided[f"{small.family}: {said.reasons[0]}"] += 1
    return f"{said.verdict}, is {'right' if truth.clean else 'wrong'}"


@click.command()
@click.option("--cases", default=1000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--jobs", default=1, show_default=True)
def main(*, cases: int, seed: int, jobs: int) -> None:
    """Compare so many random programs, from this seed on."""
    tally, end = Tally(), seed + cases
    blocks = [range(first, min(end, first + _BLOCK)) for first in range(seed, end, _BLOCK)]
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(compare, blocks):
            tally.add(part)
            for text in part.contradictions:
                click.echo(text)
    for text, number in sorted(tally.seen.items()):
        click.echo(f"{number:8,} {text}")
    for text, number in tally.undecided.most_common():
        click.echo(f"{number:8,} decided for the program only: {text}")
    click.echo(f"{len(tally.contradictions)} contradictions")
    raise SystemExit(bool(tally.contradictions))


if __name__ == "__main__":
    main()
