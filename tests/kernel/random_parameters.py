"""Random programs with a parameter: what is certified for all its values is certified for each.

    python -m tests.kernel.random_parameters --cases 400 [--seed 1] [--jobs 1] [--seconds 100]

The programs are those of `tests.sim.forall_campaign`, many with a fault at some values. Of each,
claims go through the kernel that a value stands for others: what the search proposes, and some that
are drawn. Where one is believed, values for which it stands go through the kernel as a whole: the
next ones, and those beside the constants that decide something.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.campaign import Judge, Judged, command
from tests.sim.forall_clusters import clusters
from tests.sim.forall_pipelines import pipeline
from tests.sim.forall_places import places
from tests.sim.forall_programs import RandomProgram, rings
from tilesim.checker.certificates import Proof, for_others, machine_form, proposed
from tilesim.errors import TilesimError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.proof.forms import family
from tilesim.proof.rules import NotCovered

_KINDS: tuple[Callable[..., Program], ...] = (rings, pipeline, rings, clusters, places)
#: how many values apart those are that are claimed of, and how many they are
_PERIODS, _MOST = (1, 2, 3, 4, 4, 6, 8, 12), (3, 30, 800, 50_000)
#: claims that are drawn, and the largest value that is executed as a whole
_CLAIMS, _LARGEST = 6, 900


def judged(number: int) -> Judged:
    """Whether the kernel believes claims about a program, and of which values they are wrong."""
    draw = random.Random(number)
    kind = _KINDS[number % len(_KINDS)]
    others = {"m": draw.randrange(1, 5)} if kind in (clusters, places) else {}
    made = RandomProgram(number, kind)

    def program(value: int) -> Mir:
        return machine_form(made(n=value, **others))

    first, period, most = draw.randrange(6, 40), draw.choice(_PERIODS), draw.choice(_MOST)
    try:
        mir, second, end = (program(first + k * period) for k in (0, 1, most))
        of_all = family((mir, second, end), most)
        found = for_others(program, first, period, most, Proof())
    except (TilesimError, ValueError, AssertionError, NotCovered):
        return Judged("no claim is believed")
    claims: list[Any] = [] if found is None else [(found.classes, found.repetitions)]
    classes, _ = proposed(mir)
    for _ in range(_CLAIMS):
        some = [
            Repetition(draw.randrange(1, 30), draw.randrange(1, 13), draw.choice((1, 1, 1, 2, 3)))
        ]
        if found is not None and any(found.repetitions or ()) and draw.randrange(3):
            given = draw.choice([r for one in found.repetitions or () for r in one])
            first_round = max(given.round + draw.randrange(-3, 9), 0)
            rounds = given.period * draw.choice((1, 1, 2))
            some = [Repetition(first_round, rounds, draw.choice((1, 1, 2)))]
        claims.append((classes, [some] * len(classes or ())))
    claims.append((classes, None))
    believed = [n for n, (cl, rs) in enumerate(claims)
                if certify(mir, cl, rs, of_all=of_all).verdict == "certified"]  # fmt: skip
    if not believed:
        return Judged("no claim is believed")
    wrong, compared = [], 0
    marks = {m + by for m in made.marks for by in (-1, 0, 1, 2)}
    steps = {1, 2, 3, 5, 8, draw.randrange(1, 60), most, *((m - first) // period for m in marks)}
    for k in sorted(k for k in steps if 0 < k <= most and first + k * period <= _LARGEST):
        try:
            other = program(first + k * period)
            family((mir, second, other), k)  # of a program of the family
        except (TilesimError, ValueError, AssertionError, NotCovered):
            continue
        compared += 1
        answer = certify(other, classes)
        if answer.verdict != "certified":
            wrong.append(
                f"{[claims[n] for n in believed]} of {first} + {period} k, k <= {most}; "
                f"but k = {k}: {answer}"
            )
    amounts = {
        "claims believed": len(believed),
        "drawn ones among them": len([n for n in believed if n or found is None]),
        "values compared": compared,
    }
    return Judged("some claim is believed", "\n".join(wrong), "", amounts)


@command
def main() -> Judge:
    """Compare what is certified for all values with what is certified for some."""
    return judged


if __name__ == "__main__":
    main()
