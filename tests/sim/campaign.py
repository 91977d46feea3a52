"""`python -m tests.sim.campaign --cases N --seed S`: `check` against the reference, at length.

Every case is a random small program (`tests.sim.generate`). The reference follows all of its
interleavings; the verdict of `check`, made from one run, and in every ``--full``-th case also with
exploration, must not contradict it. A contradiction is shrunk and printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass

from tests.sim import reference, reference_grid, reference_lanes
from tests.sim.code_lanes import IllFormed
from tests.sim.generate import FAMILIES, sample
from tests.sim.reference import TooLarge, Verdict
from tests.sim.small import shrink, translate
from tests.sim.steps import Family, Small
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.text import to_text

#: states of the reference; programs with more are counted as too large
LIMIT = 10_000
#: exploration of one case: enough that a small program is nearly always explored completely
_BUDGET, _SCHEDULES = 20_000, 16
_BLOCK = 250


def explore(small: Small, limit: int = LIMIT, *, until: str = "") -> Verdict:
    """Every interleaving of a program, by the model that has its steps."""
    if small.family == "lanes":
        return reference_lanes.explore(small, limit, until=until)
    if small.family == "grids":
        return reference_grid.explore(small, limit, until=until)
    return reference.explore(small, limit, until=until)


@dataclass(frozen=True)
class Opinion:
    """What `check` says: the verdict (``rejected`` by the verifier), rules found, and reasons."""

    verdict: str
    rules: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    def disagrees(self, truth: Verdict) -> str:
        """In which way this contradicts the reference; empty if it does not."""
        if truth.clean:
            return "" if self.verdict in ("proved", "exhausted", "bounded") else "false alarm"
        if self.verdict in ("proved", "exhausted"):
            return "false proof"
        if self.verdict == "failed" and self.rules[0] not in truth.failures:
            return "wrong rule"
        return ""


def opinion(small: Small, *, one_line: bool = False, full: bool = True) -> Opinion:
    """The verdict of `check` on a small program; without ``full``, of its first run."""
    program = translate(small, one_line=one_line)
    try:
        report = check(program, schedules=_SCHEDULES if full else 0, budget=_BUDGET if full else 0)
    except InvalidProgram as error:
        return Opinion("rejected", tuple(d.rule for d in error.diagnostics))
    return Opinion(report.verdict, tuple(f.rule for f in report.findings), report.reasons)


def disagreement(small: Small, *, one_line: bool = False, full: bool = True) -> str:
    """How `check` and the reference differ on a program; empty if they agree."""
    try:
        truth = explore(small, LIMIT)
    except (TooLarge, IllFormed):
        return ""
    return opinion(small, one_line=one_line, full=full).disagrees(truth)


def describe(small: Small, kind: str, *, one_line: bool = False, full: bool = True) -> str:
    """A disagreement, shrunk, with the interleaving that shows who is right."""

    def same(candidate: Small) -> bool:
        return disagreement(candidate, one_line=one_line, full=full) == kind

    minimal = shrink(small, same)
    truth = explore(minimal, LIMIT)
    story = [f"{rule}: " + "; ".join(moves) for rule, moves in truth.failures.items()]
    said = opinion(minimal, one_line=one_line, full=full)
    return "\n".join(
        [f"{kind}: {said}", written(minimal), "reference:", *(story or ["clean"]),
         to_text(translate(minimal))]
    )  # fmt: skip


def written(value: object) -> str:
    """A program or step as Python, without what is as by default."""
    if isinstance(value, tuple):
        return "(" + "".join(f"{written(x)}, " for x in value).rstrip() + ")"
    if not is_dataclass(value):
        return repr(value)
    said: list[str] = []
    for place, part in enumerate(fields(value)):
        inside = getattr(value, part.name)
        if inside != part.default:
            named = "" if place == len(said) else f"{part.name}="
            said.append(named + written(inside))
    return f"{type(value).__name__}({', '.join(said)})"


@dataclass
class Tally:
    """What came out: pairs of verdicts per kind of program, contradictions, what was not proved."""

    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    uncertified: dict[str, str] = field(default_factory=dict)
    states: int = 0

    def add(self, other: Tally) -> None:
        """Joins another tally."""
        self.seen.update(other.seen)
        self.contradictions += other.contradictions
        self.uncertified |= other.uncertified
        self.states += other.states

    @property
    def cases(self) -> int:
        """Programs compared, too large ones included."""
        return self.seen.total()

    def certified(self) -> tuple[int, int]:
        """Correct pipelines proved by one run, or exhausted, and all of them."""
        pairs = {k: n for k, n in self.seen.items() if k[0] == "correct"}
        right = sum(n for k, n in pairs.items() if k[1] in ("proved", "exhausted"))
        return right, sum(pairs.values())


def compare(seeds: Iterable[int], *, every: int = 8, family: Family = "mbarriers") -> Tally:
    """Compares on one program per seed; every ``every``-th is also explored by `check`."""
    tally = Tally()
    for seed in seeds:
        kind, small = sample(random.Random(seed).randrange, family)
        one_line, full = seed % 4 == 0, every > 0 and seed % every == 0
        said = opinion(small, one_line=one_line, full=full)
        until = said.rules[0] if said.verdict == "failed" else ""
        try:
            truth = explore(small, LIMIT, until=until)
        except TooLarge:
            tally.seen[kind, said.verdict, "too large"] += 1
            continue
        tally.states += truth.states
        tally.seen[kind, said.verdict, "clean" if truth.clean else "wrong"] += 1
        wrong = said.disagrees(truth) or (
            "" if kind != "correct" or truth.clean else "the pipeline is not correct"
        )
        if wrong:
            text = f"seed {seed}: {describe(small, wrong, one_line=one_line, full=full)}"
            tally.contradictions.append(text)
        elif kind == "correct" and said.verdict not in ("proved", "exhausted"):
            tally.uncertified.setdefault(said.reasons[0].split("(")[1][:12], f"{seed}: {small}")
    return tally


def table(tally: Tally) -> Iterator[str]:
    """The verdicts of `check` (rows) against those of the reference (columns), per kind."""
    truths = ("clean", "wrong", "too large")
    for kind in ("correct", "mutated", "random"):
        yield f"{kind:10}" + "".join(f"{t:>12}" for t in truths)
        for verdict in sorted({v for k, v, _ in tally.seen if k == kind}):
            counts = (tally.seen[kind, verdict, t] for t in truths)
            yield f"  {verdict:8}" + "".join(f"{n:12,}" for n in counts)


def main(arguments: list[str] | None = None) -> int:
    """Runs a campaign; 1 if anything was contradicted."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.campaign", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="programs to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--family", choices=FAMILIES, default="mbarriers", help="kind of steps")
    parser.add_argument("--full", type=int, default=8, help="explore every n-th (0: none)")
    options = parser.parse_args(arguments)
    tally = Tally()
    try:
        _run(tally, _parts(options))
    except KeyboardInterrupt:
        print("interrupted; so far:", file=sys.stderr)
    print("\n".join(table(tally)))
    proved, correct = tally.certified()
    print(f"correct pipelines proved by one run or exhausted: {proved:,} of {correct:,}")
    for reason, example in tally.uncertified.items():
        print(f"  not proved ({reason}): seed {example}")
    print(f"states of the reference: {tally.states:,}; contradictions: {len(tally.contradictions)}")
    return 1 if tally.contradictions else 0


def _run(tally: Tally, parts: Iterator[Tally]) -> None:
    """Adds the parts as they come, with progress; contradictions are printed at once."""
    start = time.monotonic()
    for part in parts:
        tally.add(part)
        took = time.monotonic() - start
        for text in part.contradictions:
            print(text, file=sys.stderr)
        print(
            f"{tally.cases:,} cases, {took:.0f} s, {len(tally.contradictions)} contradictions",
            file=sys.stderr,
        )


def _parts(options: argparse.Namespace) -> Iterator[Tally]:
    end = options.seed + options.cases
    blocks = [range(start, min(start + _BLOCK, end)) for start in range(options.seed, end, _BLOCK)]
    one = _Comparison(options.full, options.family)
    if options.jobs <= 1:
        yield from map(one, blocks)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(one, blocks)


@dataclass(frozen=True)
class _Comparison:
    """`compare` with its options, for another process."""

    every: int
    family: Family

    def __call__(self, seeds: range) -> Tally:
        return compare(seeds, every=self.every, family=self.family)


if __name__ == "__main__":
    raise SystemExit(main())
