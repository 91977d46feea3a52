"""Random programs with loops: what is certified with repetitions left out is certified without.

    python -m tests.kernel.random_loops --cases 400 [--seed 1] [--jobs 2] [--seconds 100]

The programs are those with a parameter (`tests.sim.forall_programs` and others), at some value of
it, many with a fault in one iteration, and those of `tests.kernel.changed_iterations`, with few.
Each goes through the kernel whole, with what the search proposes to leave out, and with random
claims.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.campaign import Judge, Judged, command
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


def judged(number: int) -> Judged:
    """What the kernel says of a whole program; of what it refutes it must believe no claim."""
    draw = random.Random(number)
    kind = _KINDS[number % len(_KINDS)]
    value = draw.randrange(8, 16 if kind is changed_iterations else 60)
    arguments = {"n": value} if kind is not clusters else {"n": value, "m": draw.randrange(1, 5)}
    try:
        program = RandomProgram(number, kind)(**arguments)
        verify(program)
        mir = lower(program)
    except (TilesimError, ValueError, AssertionError):
        return Judged("refused")
    whole = certify(mir)
    some, left_out = proposed(mir)
    if some is None or left_out is None:
        return Judged(whole.verdict)
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
    amounts = {
        "as said of all, with what is proposed left out":
            int(any(left_out) and answers[0].verdict == whole.verdict),
        "drawn claims believed": sum(answer.verdict == "certified" for answer in answers[1:]),
    }  # fmt: skip
    return Judged(whole.verdict, "\n".join(wrong), "", amounts)


@command
def main() -> Judge:
    """Compare runs that leave repetitions out with whole ones."""
    return judged


if __name__ == "__main__":
    main()
