"""`check` against the reference: what each says of a program, and in which way they differ."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import count

from tests.sim import laggards, reference, reference_grid, reference_lanes
from tests.sim.code_lanes import IllFormed
from tests.sim.generate import MIXTURE, sample
from tests.sim.model import DATA
from tests.sim.reference import TooLarge, Verdict
from tests.sim.small import shrink, translate
from tests.sim.steps import Family, Small
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.text import to_text

#: states of the reference; programs with more are counted as too large
LIMIT = 10_000
#: the same of programs of lanes, which have larger states
_LANES = 3_000
#: by how much fewer of a program with lanes of a warp apart, which has to be followed five times
_APART = 4
#: exploration of one case: enough that a small program is nearly always explored completely
_BUDGET, _SCHEDULES = 20_000, 16
#: changes tried of a program that contradicts, to make it smaller
_TRIES = 400


def explore(
    small: Small, limit: int = LIMIT, *, until: str = "", beyond: frozenset[str] = frozenset()
) -> Verdict:
    """Every interleaving of a program, by the model that has its steps; see `Rules`.

    That of warps has lanes of a warp apart as well (`tests.sim.laggards`).
    """
    if small.family == "lanes":
        return reference_lanes.explore(small, min(limit, _LANES), until=until, beyond=beyond)
    if small.family == "grids":
        return reference_grid.explore(small, limit, until=until, beyond=beyond)
    verdict = reference.explore(small, limit, until=until, beyond=beyond)
    for other in laggards.apart(small):
        if until in verdict.failures or (verdict.failures and not until):
            break
        try:
            found = reference.explore(other, limit // _APART, until=until, beyond=beyond)
        except TooLarge:
            verdict.whole = False
            continue
        verdict.states += found.states
        verdict.failures = found.failures | verdict.failures
    return verdict


@dataclass(frozen=True)
class Opinion:
    """What `check` says: the verdict (``rejected`` by the verifier, ``crash`` for an exception),
    rules found, and reasons. ``summed``: a phase ends between the lanes of one instruction, which
    is fine by the text, and so for the reference, but not on an H200 (A32)."""

    verdict: str
    rules: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    summed: bool = False

    def disagrees(self, truth: Verdict) -> str:
        """In which way this contradicts the reference; empty if it does not."""
        if self.verdict == "crash":
            return "crash"
        if self.summed:
            return ""
        if truth.clean:
            alarm = self.verdict in ("failed", "rejected") and truth.whole
            return "false alarm" if alarm else ""
        if self.verdict in ("proved", "exhausted"):
            return "false proof"
        if self.verdict == "failed" and self.rules[0] not in truth.failures:
            return "wrong rule"
        return ""


def opinion(small: Small, *, one_line: bool = False, full: bool = True) -> Opinion:
    """The verdict of `check` on a small program; without ``full``, of its first run."""
    return opinion_of(translate(small, one_line=one_line), full=full)


def opinion_of(program: Program | Mir, *, full: bool) -> Opinion:
    """The same of any program."""
    try:
        report = check(program, schedules=_SCHEDULES if full else 0, budget=_BUDGET if full else 0)
    except InvalidProgram as error:
        return Opinion("rejected", tuple(d.rule for d in error.diagnostics))
    except Exception as error:
        return Opinion("crash", (type(error).__name__,), (str(error),))
    summed = any("(A32)" in finding.message for finding in report.findings)
    return Opinion(report.verdict, tuple(f.rule for f in report.findings), report.reasons, summed)


def assert_told_apart(right: Small, wrong: Small, rule: str) -> None:
    """The reference and `check` agree that only ``wrong`` breaks ``rule``, or `check` says that a
    phase ends between the lanes of one instruction."""
    assert explore(right).clean, explore(right)
    assert rule in explore(wrong).failures
    assert opinion(right).verdict in ("proved", "exhausted")
    said = opinion(wrong)
    assert rule in said.rules or said.summed


def disagreement(small: Small, *, one_line: bool = False, full: bool = True) -> str:
    """How `check` and the reference differ on a program; empty if they agree."""
    try:
        truth = explore(small, LIMIT)
    except (TooLarge, IllFormed):
        return ""
    how = opinion(small, one_line=one_line, full=full)
    wrong = how.disagrees(truth)
    return "" if wrong == "wrong rule" and goes_on(small, how.rules[0]) else wrong


def goes_on(small: Small, rule: str) -> bool:
    """Whether ``rule`` is broken in an execution that goes on after others about data are.

    The reference ends an execution at the first broken rule; what is undefined after a race happens
    on hardware all the same, and `check` may name it instead.
    """
    try:
        truth = explore(small, LIMIT, until=rule, beyond=DATA - {rule})
    except TooLarge:
        return False
    return rule in truth.failures


def describe(small: Small, kind: str, *, one_line: bool = False, full: bool = True) -> str:
    """A disagreement, shrunk, with the interleaving that shows who is right."""

    tries = count()

    def same(small: Small) -> bool:
        if next(tries) >= _TRIES:
            return False
        return disagreement(small, one_line=one_line, full=full) == kind

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
    """What came out: pairs of verdicts per kind of program; contradictions, shrunk; failures that
    are there but not by the rule that is named; what was not proved; ``later`` counts failures by a
    rule that is broken after another one is, ``summed`` what is correct by the text alone."""

    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    other_rules: list[str] = field(default_factory=list)
    uncertified: dict[str, str] = field(default_factory=dict)
    states: int = 0
    later: int = 0
    summed: int = 0

    def add(self, other: Tally) -> None:
        """Joins another tally."""
        self.seen.update(other.seen)
        self.contradictions += other.contradictions
        self.other_rules += other.other_rules
        self.uncertified |= other.uncertified
        self.states += other.states
        self.summed += other.summed
        self.later += other.later

    @property
    def cases(self) -> int:
        """Programs compared, too large ones included."""
        return self.seen.total()

    def certified(self) -> tuple[int, int]:
        """Correct pipelines proved by one run, or exhausted, and all of them; not those that are
        correct by the text alone."""
        pairs = {k: n for k, n in self.seen.items() if k[0] == "correct"}
        right = sum(n for k, n in pairs.items() if k[1] in ("proved", "exhausted"))
        return right, sum(pairs.values()) - self.summed


def compare(seeds: Iterable[int], *, every: int = 8, family: Family | None = "mbarriers") -> Tally:
    """Compares on one program per seed; every ``every``-th is also explored by `check`.

    ``family``: None for all in turn.
    """
    tally = Tally()
    for seed in seeds:
        which = family or MIXTURE[seed % len(MIXTURE)]
        one_line, full = seed % 4 == 0, every > 0 and seed // len(MIXTURE) % every == 0
        try:
            _compare_one(tally, seed, which, one_line=one_line, full=full)
        except Exception as error:
            tally.contradictions.append(f"seed {seed} ({which}): the comparison fails: {error!r}")
    return tally


def _compare_one(tally: Tally, seed: int, family: Family, *, one_line: bool, full: bool) -> None:
    """Adds what comes out for one program."""
    kind, small = sample(random.Random(seed).randrange, family)
    said = opinion(small, one_line=one_line, full=full)
    until = said.rules[0] if said.verdict == "failed" else ""
    try:
        truth = explore(small, LIMIT, until=until)
    except TooLarge:
        tally.seen[kind, said.verdict, "too large"] += 1
        return
    tally.states += truth.states
    tally.seen[kind, said.verdict, "clean" if truth.clean else "wrong"] += 1
    tally.summed += kind == "correct" and said.summed
    wrong = said.disagrees(truth) or (
        "" if kind != "correct" or truth.clean else "the pipeline is not correct"
    )
    if wrong == "wrong rule" and goes_on(small, said.rules[0]):
        tally.later += 1
    elif wrong:
        texts = tally.other_rules if wrong == "wrong rule" else tally.contradictions
        texts.append(f"seed {seed}: {describe(small, wrong, one_line=one_line, full=full)}")
    elif kind == "correct" and said.verdict not in ("proved", "exhausted") and not said.summed:
        reason = (*said.reasons, *said.rules, said.verdict)[0].split(" (")[0]
        tally.uncertified.setdefault(f"{small.family}: {reason}", f"{seed}: {written(small)}")


def table(tally: Tally) -> Iterator[str]:
    """The verdicts of `check` (rows) against those of the reference (columns), per kind."""
    truths = ("clean", "wrong", "too large")
    for kind in ("correct", "mutated", "random"):
        yield f"{kind:10}" + "".join(f"{t:>12}" for t in truths)
        for verdict in sorted({v for k, v, _ in tally.seen if k == kind}):
            counts = (tally.seen[kind, verdict, t] for t in truths)
            yield f"  {verdict:8}" + "".join(f"{n:12,}" for n in counts)
