"""Campaigns: programs that follow from numbers are judged, and what is said of them is counted.

A campaign has a judge: a function that makes the program of a number, and says what came of it and
in which way that contradicts what else is known of it (`Judged`). A judge that ends with an error
contradicts as well. `command` makes a command of a judge, and `tally` is for a few programs in a
test. The commands have these options and their own:

    python -m tests.sim.campaign [--cases 1000] [--seed 1] [--jobs 2] [--seconds 100]

The seed is the number of the first program; ``--cases 1`` judges a single one again. What is wrong
is printed as it comes, and a command ends with 1 if anything is.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import islice, takewhile
from typing import TypeAlias

import click

#: programs of a campaign for which neither their number nor a time is given
CASES = 1000
#: programs between two lines about how far a campaign is
_EVERY = 250
#: programs that are handed out ahead, per process
_AHEAD = 4


@dataclass(frozen=True)
class Judged:
    """What came of a program: what is counted; in which way it is wrong, if it is; what is to be
    looked at although it is not; amounts, which are added up."""

    said: str
    wrong: str = ""
    note: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)


#: judges the program of a number
Judge: TypeAlias = Callable[[int], Judged]


@dataclass
class Tally:
    """What came of all programs: how often what was said, and of which number first; what is wrong
    and what is to be looked at, by number; amounts."""

    said: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    amounts: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, judged: Judged) -> None:
        """One more program."""
        self.said[judged.said] += 1
        self.first.setdefault(judged.said, number)
        self.amounts.update(judged.amounts)
        if judged.wrong:
            self.wrong[number] = judged.wrong
        if judged.note:
            self.notes[number] = judged.note

    def count(self, *parts: str) -> int:
        """Programs of which all these parts, between commas, have been said."""
        return sum(n for said, n in self.said.items() if set(parts) <= {*said.split(", ")})

    def __str__(self) -> str:
        rows = [
            f"{n:9,} {said} (the first: {self.first[said]})"
            for said, n in sorted(self.said.items())
        ]
        rows += [f"{n:9,} {what}" for what, n in sorted(self.amounts.items())]
        numbers = ", ".join(map(str, sorted(self.wrong))) or "none"
        return "\n".join((*rows, f"{self.said.total():,} programs; wrong: {numbers}"))


def tally(judge: Judge, numbers: Iterable[int]) -> Tally:
    """What comes of the programs of these numbers."""
    found = Tally()
    for number, judged in each(judge, numbers):
        found.add(number, judged)
    return found


def each(
    judge: Judge, numbers: Iterable[int], jobs: int = 1, seconds: float = float("inf")
) -> Iterator[tuple[int, Judged]]:
    """What comes of each number, in any order if there are several ``jobs``, which are processes;
    behind so many seconds no other one is begun."""
    end = time.monotonic() + seconds
    to_do = takewhile(lambda _: time.monotonic() < end, numbers)
    one = partial(_one, judge)
    if jobs == 1:
        yield from map(one, to_do)
        return
    # what all processes share is not looked through for garbage in each of them
    with ProcessPoolExecutor(jobs, initializer=gc.freeze) as pool:
        running = {pool.submit(one, number) for number in islice(to_do, _AHEAD * jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(one, number) for number in islice(to_do, len(done))}
            yield from (future.result() for future in done)


def _one(judge: Judge, number: int) -> tuple[int, Judged]:
    """A number and what comes of it; one program that ends with an error does not end all."""
    try:
        return number, judge(number)
    except Exception:
        return number, Judged("ended with an error", traceback.format_exc())


def command(judge: Callable[..., Judge]) -> click.Command:
    """Decorator: the command of a campaign. The function takes the options that the campaign has
    besides, and returns its judge."""

    @wraps(judge)
    def run(
        cases: int | None, seed: int, jobs: int, seconds: float | None, **others: object
    ) -> None:  # fmt: skip
        number = cases or (CASES if seconds is None else sys.maxsize)
        numbers = range(seed, seed + number)
        found, start = Tally(), time.monotonic()
        try:
            for one, judged in each(judge(**others), numbers, jobs, seconds or float("inf")):
                found.add(one, judged)
                if judged.wrong:
                    click.echo(f"WRONG: {one}: {judged.said}: {judged.wrong}")
                if judged.note:
                    click.echo(f"{one}: {judged.note}")
                if not found.said.total() % _EVERY:
                    rate = found.said.total() / (time.monotonic() - start)
                    said = f"{found.said.total():,} programs, {rate:.1f} per second"
                    click.echo(f"{said}, {len(found.wrong)} wrong", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted; so far:", err=True)
        click.echo(str(found))
        raise SystemExit(bool(found.wrong))

    every = (
        click.option("--seconds", type=float, help="Begin no more programs after so long."),
        click.option("--jobs", default=1, show_default=True, help="Processes."),
        click.option("--seed", default=1, show_default=True, help="The first program's number."),
        click.option(
            "--cases", type=int,
            help=f"Programs. [default: {CASES}; with --seconds as many as there is time for]",
        ),
    )  # fmt: skip
    for option in every:
        run = option(run)
    return click.command()(run)
