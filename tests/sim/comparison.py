"""`check` against the reference: what each says of a program, and in which way they differ."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from itertools import count

from tests.sim import laggards, reference, reference_grid, reference_lanes
from tests.sim.code_lanes import IllFormed
from tests.sim.model import DATA
from tests.sim.reference import TooLarge, Verdict
from tests.sim.small import shrink, translate
from tests.sim.steps import Small
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
