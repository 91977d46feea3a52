"""Random small programs: what the proof kernel certifies is right in every execution.

    python -m tests.kernel.campaign --cases 2000 [--seed 1] [--jobs 2] [--seconds 100]
                                    [--strict ptx] [--regions]

Each program (`tests.sim.generate`) goes through the kernel; one that it certifies or refutes, also
through the exhaustive reference of the tests, which shares no code with tilesim. The command ends
with 1 if a certified one is wrong there. The reference has one level, `practice`; what is certified
at `ptx` has to be right there, too. ``--regions``: data decides about some of the accesses
(`tests.kernel.small_regions`); the reference executes what it may make of the program.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import NoReturn, TypeVar

import click

from tests.kernel import small_regions
from tests.sim.code_lanes import IllFormed
from tests.sim.comparison import explore
from tests.sim.generate import FAMILIES, sample
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tests.verdicts.row import kind
from tilesim.errors import InvalidProgram
from tilesim.ir.program import Strict
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

T = TypeVar("T")


def judged(number: int, strict: Strict, regions: bool = False) -> tuple[int, str, str, str]:
    """(number, family, what the kernel says at a level, what the reference says) of a program;
    ``regions``: of one with regions that data decides."""
    some = small_regions.FAMILIES if regions else FAMILIES
    family, choose = some[number % len(some)], random.Random(number).randrange
    try:
        _, small = sample(choose, family)
        every = [small]
        if regions:
            small = small_regions.with_regions(choose, small)
            every = [*small_regions.executions(small)]
        program = small_regions.translated(small) if regions else translate(small)
        verify(program)
        answer = certify(lower(program), strict=strict, assumed=("loops-end",))
    except (IllFormed, InvalidProgram):
        return number, family, "refused", ""
    if answer.verdict == "not covered":
        return number, family, answer.verdict, kind(answer.what)
    try:
        truth = "right" if all(explore(one).clean for one in every) else "wrong"
    except TooLarge:
        truth = "too large"
    except IllFormed:
        return number, family, "refused", ""
    return number, family, answer.verdict, truth


def each(
    judge: Callable[[int], T], cases: int, seed: int, jobs: int, seconds: float
) -> Iterator[T]:
    """What ``judge`` says of the programs of so many numbers from a seed on, in any order. It is
    called in ``jobs`` processes; behind so many seconds for no more of them."""
    end = time.monotonic() + seconds
    numbers = iter(range(seed, seed + cases))
    with ProcessPoolExecutor(jobs) as pool:
        left = {pool.submit(judge, n) for n in islice(numbers, 4 * jobs)}
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            if time.monotonic() < end:
                left |= {pool.submit(judge, n) for n in islice(numbers, len(done))}
            yield from (f.result() for f in done)


def tallied(judge: Callable[[int], str], seed: int, seconds: float) -> NoReturn:
    """Prints how often ``judge`` says what of programs from a seed on, within so many seconds; ends
    with 1 if it says "certified, wrong" of one, and prints that one's number."""
    tally: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        said = judge(seed)
        tally[said] += 1
        if said == "certified, wrong":
            print(f"CERTIFIED AND WRONG: {seed}", flush=True)
        seed += 1
    for said, n in tally.most_common():
        print(f"{n:6} {said}")
    sys.exit(bool(tally["certified, wrong"]))


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: the options of a command that calls `each`."""
    for option in (
        click.option("--seconds", default=1e9, help="Begin no more programs after so long."),
        click.option("--jobs", default=2, show_default=True, help="Processes."),
        click.option("--seed", default=1, show_default=True, help="The first program's number."),
        click.option("--cases", default=500, show_default=True, help="Programs."),
    ):
        command = option(command)
    return command


@click.command()
@options
@click.option("--strict", type=click.Choice(["practice", "ptx"]), default="practice")
@click.option("--regions", is_flag=True, help="Data decides about some accesses.")
def main(cases: int, seed: int, jobs: int, seconds: float, strict: Strict, regions: bool) -> None:
    """Compares what the kernel says of random programs with an exhaustive reference."""
    tally: Counter[tuple[str, str]] = Counter()
    wrong = []
    judge = partial(judged, strict=strict, regions=regions)
    for number, family, verdict, truth in each(judge, cases, seed, jobs, seconds):
        tally[verdict, truth] += 1
        if verdict == "certified" and truth == "wrong":
            wrong.append(number)
            print(f"CERTIFIED AND WRONG: {number} of {family}", flush=True)
    for (verdict, truth), n in tally.most_common():
        print(f"{n:7} {verdict:12} {truth}")
    print(f"{tally.total()} programs from {seed} on, certified and wrong: {wrong or 'none'}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
