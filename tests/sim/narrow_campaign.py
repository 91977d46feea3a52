"""`python -m tests.sim.narrow_campaign --family F --cases N --seed S`: families with one question.

``absent``: instructions with masks of which lanes exit, wait elsewhere or come later
(`tests.sim.absent_lanes`). ``noncoherent``: loads through the cache for read-only data
(`tests.sim.noncoherent_programs`). Of each program the references of these modules follow all
executions; where one is wrong, `check` must not say `proved` or `exhausted`, where none is, it must
find nothing. A failure must have a rule that fits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import click

from tests.campaign import Judge, Judged, command
from tests.sim import absent_lanes, noncoherent_programs
from tilesim import Program
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.program import Strict

#: random schedules of a case, beside those that are explored
_SCHEDULES = 8
#: the rules by which what the reference finds may be reported
_RULES = {
    "stuck": {"deadlock", "participation"},
    "undefined": {"participation"},
    "race": {"race"},
}
#: of a right program that may be reported all the same
_MAY = "passed"


#: a program, as the reference and as `check` takes it; the rules of what is wrong, none if it is
#: right; rules that may be reported all the same
_Drawn: TypeAlias = tuple[object, Program, set[str], set[str]]


def _absent(rng: random.Random) -> _Drawn | None:
    warp = absent_lanes.absent(rng)
    try:
        found = absent_lanes.failures(warp)
    except absent_lanes.Overfull:
        return None
    rules = {rule for failure in found - {_MAY} for rule in _RULES[failure]}
    may = {"participation"} if _MAY in found else set()
    return warp, absent_lanes.translate(warp), rules, may


def _noncoherent(rng: random.Random) -> _Drawn | None:
    grid = noncoherent_programs.sample(rng)
    if not noncoherent_programs.ordered(grid):
        return None
    rules = {"noncoherent-load"} if noncoherent_programs.wrong(grid) else set()
    if rules and not noncoherent_programs.ordered(grid, loads=True):
        rules |= {"race"}
    return grid, noncoherent_programs.translate(grid), rules, set()


#: draws a program of a family; None without a reference
FAMILIES: dict[str, Callable[[random.Random], _Drawn | None]] = {
    "absent": _absent, "noncoherent": _noncoherent,
}  # fmt: skip


def judged(number: int, family: str) -> Judged:
    """Compares on a program of a family, at one of the two levels: what `check` says, and what the
    reference does."""
    drawn = FAMILIES[family](random.Random(number))
    if drawn is None:
        return Judged("no reference")
    what, program, rules, may = drawn
    strict: Strict = "ptx" if number % 2 else "practice"
    verdict, reported = _checked(program, strict)
    certified = verdict in ("proved", "exhausted")
    other = verdict in ("failed", "rejected") and not reported & (rules | may)
    wrong = ""
    if (certified and rules) or other:
        found = ", ".join(sorted(reported)) or verdict
        wrong = f"{strict}: {found}; reference: {', '.join(sorted(rules)) or 'right'}: {what}"
    return Judged(f"{verdict}, {'wrong' if rules else 'passed by' if may else 'right'}", wrong)


def _checked(program: Program, strict: Strict) -> tuple[str, set[str]]:
    """The verdict of `check` and the rules it reports; ``rejected`` before it is run."""
    try:
        report = check(program, strict=strict, schedules=_SCHEDULES)
    except InvalidProgram as error:
        return "rejected", {problem.rule for problem in error.diagnostics}
    return report.verdict, set(report.rules)


@command
@click.option("--family", type=click.Choice([*FAMILIES]), required=True, help="Kind of programs.")
def main(family: str) -> Judge:
    """Compare `check` with the reference of a family on random programs."""
    return partial(judged, family=family)


if __name__ == "__main__":
    main()
