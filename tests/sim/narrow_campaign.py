"""`python -m tests.sim.narrow_campaign --family F --cases N --seed S`: families with one question.

``absent``: instructions with masks of which lanes exit, wait elsewhere or come later
(`tests.sim.absent_lanes`). ``noncoherent``: loads through the cache for read-only data
(`tests.sim.noncoherent_programs`). Of each program the references of these modules follow all
executions; where one is wrong, `check` must not say `proved` or `exhausted`, where none is, it must
find nothing. A failure must have a rule that fits.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from tests.sim import absent_lanes, noncoherent_programs
from tilesim import Program
from tilesim.checker import check
from tilesim.errors import InvalidProgram

#: seeds that a process takes at a time
_BLOCK = 50
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


def _checked(program: Program, strict: Any) -> tuple[str, set[str]]:
    """The verdict of `check` and the rules it reports; ``rejected`` before it is run, ``crashed``
    where it says nothing at all, which contradicts any reference."""
    try:
        report = check(program, strict=strict, schedules=_SCHEDULES)
    except InvalidProgram as error:
        return "rejected", {problem.rule for problem in error.diagnostics}
    except Exception as error:  # one program does not end a campaign
        return "crashed", {repr(error)}
    return report.verdict, set(report.rules)


def compare(
    seeds: Iterable[int], family: str
) -> tuple[Counter[tuple[str, str]], list[str]]:  # fmt: skip
    """How often `check` says what of right and wrong programs, and the contradictions."""
    seen: Counter[tuple[str, str]] = Counter()
    contradictions = []
    for seed in seeds:
        drawn = FAMILIES[family](random.Random(seed))
        if drawn is None:
            seen["no reference", ""] += 1
            continue
        what, program, rules, may = drawn
        strict: Any = "ptx" if seed % 2 else "practice"
        verdict, reported = _checked(program, strict)
        seen[verdict, "wrong" if rules else "passed by" if may else "right"] += 1
        certified = verdict in ("proved", "exhausted")
        other = verdict in ("failed", "rejected", "crashed") and not reported & (rules | may)
        if (certified and rules) or other:
            found = ", ".join(sorted(reported)) or verdict
            expected = ", ".join(sorted(rules)) or "right"
            contradictions.append(f"seed {seed} ({strict}): {found}; reference: {expected}: {what}")
    return seen, contradictions


def main(arguments: list[str] | None = None) -> int:
    """Runs a campaign; 1 if anything was contradicted."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.narrow_campaign",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--family", choices=FAMILIES, required=True, help="kind of programs")
    parser.add_argument("--cases", type=int, default=1000, help="programs to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    end = options.seed + options.cases
    blocks = [range(at, min(at + _BLOCK, end)) for at in range(options.seed, end, _BLOCK)]
    seen: Counter[tuple[str, str]] = Counter()
    contradictions: list[str] = []
    start = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        for part, wrong in pool.map(partial(compare, family=options.family), blocks):
            seen += part
            contradictions += wrong
            print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    for (verdict, by_reference), number in sorted(seen.items()):
        print(f"{verdict:12} {by_reference:9} {number:7,}")
    rate = seen.total() / (time.monotonic() - start)
    print(f"{seen.total():,} programs, {rate:.1f} per second; {len(contradictions)} contradictions")
    return 1 if contradictions else 0


if __name__ == "__main__":
    raise SystemExit(main())
