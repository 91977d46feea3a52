"""Random programs, run with and without leaving out repetitions: the runs are the same.

    python -m tests.sim.steady_campaign --cases 2000 [--seed 1] [--seconds 100] [--kind emitted]

Rings of stages with many turns, their mutants, and rings with a fault where a random condition on
the turn holds: constants up to the number of turns, remainders, bits, products. One in three stores
to global memory in each turn. Of the kind ``emitted`` these are read back from the PTX that a
compiler makes of them. Those of the kind ``guarded`` are PTX whose registers are set under
predicates (`tests.sim.guarded_programs`): they are compared with an interpreter as well, also where
one CTA stands for others.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import click

import tilesim as ts
from tests.campaign import Judge, Judged, command
from tests.ptx.campaign import back
from tests.sim.guarded_programs import GuardedProgram
from tests.sim.steady_programs import ring
from tests.sim.steady_stores import stores
from tilesim.checker import verdict
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.mistakes.table import mutants
from tilesim.sim.affine.loop_skipping import Skipper
from tilesim.sim.machine.simulate import Run, Simulation
from tilesim.sim.observers import certificate
from tilesim.strategies.rings import Ring

#: of which kind all programs are
KINDS = ("mixed", "emitted", "guarded")
#: an amount: runs that leave repetitions out
REPEATED = "with repetitions"


def condition(draw: random.Random, i: Expr, trips: int, depth: int = 2) -> Expr:
    """A condition on the turn ``i``."""
    value = number(draw, i, trips, depth)
    bound = draw.choice([0, 1, draw.randrange(trips), trips - 1, trips - 2, draw.randrange(64)])
    match draw.randrange(4):
        case 0:
            return value.eq(bound)
        case 1:
            return value > as_expr(bound) + trips // 2
        case 2:
            return value < draw.randrange(-3, 3)
        case _:
            return value.ne(bound) & i.eq(draw.randrange(trips))


def number(draw: random.Random, i: Expr, trips: int, depth: int) -> Expr:
    """An expression over the turn."""
    if not depth or not draw.randrange(3):
        return draw.choice([i, as_expr(draw.randrange(1, trips)), i + draw.randrange(9)])
    a, b = (number(draw, i, trips, depth - 1) for _ in range(2))
    few = draw.randrange(1, 40)
    match draw.randrange(9):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * draw.randrange(4)
        case 3:
            return a // few
        case 4:
            return a % few
        case 5:
            return a & draw.choice([1, 3, 7, 63, 5])
        case 6:
            return a ^ draw.randrange(16)
        case 7:
            return select(condition(draw, i, trips, 0), a, b)
        case _:
            return a * b


def program(draw: random.Random) -> Program | None:
    """A random program; None if there is no such one."""
    if not draw.randrange(3):
        return stores(draw)
    trips = draw.randrange(60, 400)
    if draw.randrange(2):
        seed = draw.randrange(1 << 30)

        def faulty(i: Expr) -> Expr:
            return condition(random.Random(seed), i, trips)

        extra = draw.choice([0, 0, 0, 1, -1])
        return ring(trips, stages=draw.randrange(1, 5), consumer_trips=trips + extra, faulty=faulty)
    stages = draw.randrange(1, 5)
    spec = Ring(
        stages=stages, trips=draw.randrange(40, 150), tiles=draw.choice([1, 1, 2, 3]),
        filling=draw.choice(["tensor", "bulk", "store"]),
        producers=2 if stages % 2 == 0 and draw.randrange(2) else 1,
        operands=draw.randrange(1, 3), consumers=draw.randrange(1, 3),
        release=draw.choice(["lane", "warp"]), chained=not draw.randrange(3),
        stored=not draw.randrange(4),
    )  # fmt: skip
    right = spec.build()
    if draw.randrange(2):
        return right
    every = list(mutants(right))
    return draw.choice(every).program if every else None


def emitted(draw: random.Random) -> Mir | None:
    """A random program, read back from PTX; None if there is no such one."""
    made = program(draw)
    try:
        return None if made is None else back(emit(made))
    except EmitError:
        return None


def always() -> ExitStack:
    """Searches never rest, and one CTA stands for others whatever the size of the grid."""
    stack = ExitStack()
    stack.enter_context(patch.object(Skipper, "thrifty", False))
    stack.enter_context(patch.object(verdict, "all_are_run", lambda simulation: False))
    return stack


def guarded(number: int) -> Judged:
    """What is said of the PTX of a number without leaving out repetitions, and with: the same, and
    what an interpreter says of it, up to the turn that fails, and without that."""
    made, draw = GuardedProgram(number), random.Random(number)
    fails = made.first or draw.randrange(80, 400)
    runs = []
    for turns in (max(1, fails - 1), fails + draw.choice([0, 7, 20])):
        loaded = made(turns)
        with always():
            report = ts.check(loaded, schedules=0, budget=20)
        if made.wrong(turns, report.verdict, report.rules):
            return Judged("guarded", f"an interpreter does not find {report.verdict} ({turns})")
        runs.append(same(loaded))
    failing = sum(run.said == "fails" for run in runs)
    repeated = {REPEATED: sum(run.amounts[REPEATED] for run in runs)}
    return Judged(f"{failing} of 2 fail", "; ".join(r.wrong for r in runs if r.wrong), "", repeated)


def same(program: Program | Mir) -> Judged:
    """Whether a run that leaves out repetitions says what one says that does not."""
    runs = []
    for skips in (True, False):
        simulation = Simulation(program, numbers=False, strict="practice")
        simulation.skips = skips
        simulation.options = replace(simulation.options, max_steps=60_000)
        runs.append(simulation.run({}, lambda cluster: None))
    said = "fails" if runs[1].findings else "goes well"
    repeated = {REPEATED: int(bool(runs[0].stats.skipped))}
    differ = summary(runs[0]) != summary(runs[1])
    return Judged(said, "another one in full" if differ else "", "", repeated)


def summary(run: Run) -> tuple[object, ...]:
    """What a report is made of."""
    violations = certificate.standing_violations(run.outcomes)
    reasons = certificate.reasons(run.outcomes, violations)
    why = tuple(outcome.cut_off for outcome in run.outcomes)
    return run.findings, reasons, why, replace(run.stats, skipped=0)


def judged(number: int, kind: str = KINDS[0]) -> Judged:
    """Compares runs of a random program."""
    # also what is too short for it to be worth it
    with patch.object(Skipper, "thrifty", False):
        if kind == "guarded":
            return guarded(number)
        made = (emitted if kind == "emitted" else program)(random.Random(number))
        return Judged("no program") if made is None else same(made)


@command
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True)
def main(kind: str) -> Judge:
    """Compare runs of random programs."""
    return partial(judged, kind=kind)


if __name__ == "__main__":
    main()
