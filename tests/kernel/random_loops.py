"""Random programs with loops: what is certified with repetitions left out is certified without.

    python -m tests.kernel.random_loops --cases 400 [--seed 1] [--jobs 2] [--seconds 100]

The programs are those with a parameter (`tests.sim.forall_programs` and others), at some value of
it, many with a fault in one iteration, and those of `tests.kernel.changed_iterations`, with few.
Each goes through the kernel whole, with what the search proposes to leave out, and with random
claims.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import click

from tests.kernel.campaign import each, options
from tests.kernel.changed_iterations import changed_iterations
from tests.sim.forall_clusters import clusters
from tests.sim.forall_pipelines import pipeline
from tests.sim.forall_programs import RandomProgram, rings
from tilesim.checker.certificates import proposed
from tilesim.errors import TilesimError
from tilesim.ir.program import Program
from tilesim.ir.verify import verify
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

#: claims that are drawn for a program
CLAIMS = 8
_KINDS: tuple[Callable[..., Program], ...] = (rings, rings, pipeline, clusters, changed_iterations)
#: periods, in rounds, that are claimed of changed iterations, which take one to three
_PERIODS = (1, 2, 2, 3, 4, 4, 6)


class Row(NamedTuple):
    """A program, what the kernel says of all of it, and how many of the claims it believes; the
    claims that it must not believe."""

    number: int
    whole: str
    proposed: int
    believed: int
    wrong: tuple[str, ...]


def judged(number: int) -> Row:
    """What comes of one program."""
    draw = random.Random(number)
    kind = _KINDS[number % len(_KINDS)]
    value = draw.randrange(8, 16 if kind is changed_iterations else 60)
    arguments = {"n": value} if kind is not clusters else {"n": value, "m": draw.randrange(1, 5)}
    try:
        program = RandomProgram(number, kind)(**arguments)
        verify(program)
        mir = lower(program)
    except (TilesimError, ValueError, AssertionError):
        return Row(number, "refused", 0, 0, ())
    whole = certify(mir)
    some, left_out = proposed(mir)
    if some is None or left_out is None:
        return Row(number, whole.verdict, 0, 0, ())
    claims = [left_out]
    for _ in range(CLAIMS):
        period = draw.randrange(1, 13)
        if left_out[0] and draw.randrange(2):
            period = left_out[0][0].period
        drawn = Repetition(draw.randrange(2, 40), period, draw.randrange(1, 12))
        if kind is changed_iterations:
            drawn = Repetition(draw.randrange(2, 20), draw.choice(_PERIODS), draw.randrange(1, 3))
        claims.append(((drawn,),))
    answers = [certify(mir, some, claim) for claim in claims]
    wrong = [
        f"{claim}: {answer}" for claim, answer in zip(claims, answers, strict=True)
        if answer.verdict == "certified" and whole.verdict == "refuted"
    ]  # fmt: skip
    believed = sum(answer.verdict == "certified" for answer in answers[1:])
    same = any(left_out) and answers[0].verdict == whole.verdict
    return Row(number, whole.verdict, same, believed, tuple(wrong))


@click.command()
@options
def main(cases: int, seed: int, jobs: int, seconds: float) -> None:
    """Compares runs that leave repetitions out with whole ones."""
    rows = []
    for row in each(judged, cases, seed, jobs, seconds):
        rows.append(row)
        for wrong in row.wrong:
            print(f"program {row.number}: {row.whole}, but {wrong}", flush=True)
    for whole, number in Counter(row.whole for row in rows).most_common():
        some = [row for row in rows if row.whole == whole]
        print(f"{number:6} {whole}: {sum(r.proposed for r in some)} as said with what is proposed "
              f"left out, {sum(r.believed for r in some)} drawn claims believed")  # fmt: skip
    sys.exit(any(row.wrong for row in rows))


if __name__ == "__main__":
    main()
