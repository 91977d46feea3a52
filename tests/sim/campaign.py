"""`python -m tests.sim.campaign --cases N --seed S`: `check` against the reference, at length.

Every case is a random small program (`tests.sim.generate`), of one family of steps or, by default,
of all: a third are programs of lanes. The reference follows all of its executions; the verdict of
`check`, made from one run, and for one in ``--full`` cases also with exploration, must not
contradict it. A contradiction is shrunk and printed, with the execution that shows who is right.

The programs follow from the seeds alone (which mean others when the generator changes). The
campaign of a release, within ten minutes on 16 cores:

    python -m tests.sim.campaign --cases 200000 --seed 30000000 --full 5 --jobs 16
"""

from __future__ import annotations

import random
from functools import partial

import click

from tests.campaign import Judge, Judged, command
from tests.sim.comparison import LIMIT, describe, explore, goes_on, opinion
from tests.sim.generate import FAMILIES, MIXTURE, sample
from tests.sim.reference import TooLarge
from tests.sim.steps import Family


def judged(number: int, every: int = 8, family: Family | None = None) -> Judged:
    """Compares on a program; of one of ``every`` so many `check` explores the executions, too.

    What is said is the kind of the program, what `check` says and what the reference does.
    ``summed``: it is correct by the text alone (`tests.sim.comparison.Opinion`). A failure by
    another rule than the reference finds is to be looked at, unless that rule is broken as well.
    """
    which = family or MIXTURE[number % len(MIXTURE)]
    one_line, full = number % 4 == 0, every > 0 and number // len(MIXTURE) % every == 0
    kind, small = sample(random.Random(number).randrange, which)
    opined = opinion(small, one_line=one_line, full=full)
    verdict = opined.verdict
    try:
        truth = explore(small, LIMIT, until=opined.rules[0] if verdict == "failed" else "")
    except TooLarge:
        return Judged(f"{kind}, {verdict}, too large")
    said = f"{kind}, {verdict}, {'clean' if truth.clean else 'wrong'}"
    states = {"states of the reference": truth.states}
    wrong = opined.disagrees(truth)
    if kind == "correct" and not truth.clean and not wrong:
        wrong = "the pipeline is not correct"
    if wrong == "wrong rule" and goes_on(small, opined.rules[0]):
        return Judged(f"{said}, by a rule that is broken after another one", amounts=states)
    if wrong:
        text = describe(small, wrong, one_line=one_line, full=full)
        if wrong == "wrong rule":
            return Judged(f"{said}, by another rule", note=text, amounts=states)
        return Judged(said, text, amounts=states)
    if kind == "correct" and opined.summed:
        said = f"{said}, summed"
    elif kind == "correct" and verdict not in ("proved", "exhausted"):
        reason = (*opined.reasons, *opined.rules, verdict)[0].split(" (")[0]
        said = f"{said}: {which}: {reason}"
    return Judged(said, amounts=states)


@command
@click.option("--family", type=click.Choice(FAMILIES), help="Kind of steps. [default: all]")
@click.option("--full", default=8, show_default=True, help="Explore one of so many (0: none).")
def main(family: Family | None, full: int) -> Judge:
    """Compare `check` with the reference on random programs."""
    return partial(judged, every=full, family=family)


if __name__ == "__main__":
    main()
