"""`check` against the reference model on random small programs: no false proof, no false alarm.

`tests.sim.reference` follows every interleaving of a program one by one. Where it finds a
deadlock, a race or a misuse, `check` must not say proved or exhausted; where it finds none,
`check` must not report anything. A disagreement is shrunk to a minimal program.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.sim.reference import (
    Arrive,
    ArriveExpect,
    Copy,
    Expect,
    Fence,
    Join,
    Loop,
    Read,
    Small,
    TooLarge,
    Verdict,
    Wait,
    Write,
    explore,
)
from tests.sim.small import generate, shrink, translate
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.text import to_text
from tilesim.sim.schedule import ChoiceEnvironment, Move
from tilesim.sim.simulate import Simulation

#: states of the reference; programs with more are skipped
_LIMIT = 10_000
#: enough that a small program is nearly always explored completely
_BUDGET = 20_000
_SCHEDULES = 16
_BRUTE_FORCE = 1000


@dataclass(frozen=True)
class Opinion:
    """What `check` says: the verdict (``rejected`` by the verifier) and the findings' rules."""

    verdict: str
    rules: tuple[str, ...]

    def disagrees(self, truth: Verdict) -> str:
        """In which way this contradicts the reference; empty if it does not."""
        if truth.clean:
            return "" if self.verdict in ("proved", "exhausted", "bounded") else "false alarm"
        if self.verdict in ("proved", "exhausted"):
            return "false proof"
        if self.verdict == "failed" and self.rules[0] not in truth.failures:
            return "wrong rule"
        return ""


def opinion(small: Small, *, one_line: bool = False) -> Opinion:
    """The verdict of `check` on a small program."""
    program = translate(small, one_line=one_line)
    try:
        report = check(program, schedules=_SCHEDULES, budget=_BUDGET)
    except InvalidProgram as error:
        return Opinion("rejected", tuple(d.rule for d in error.diagnostics))
    return Opinion(report.verdict, tuple(f.rule for f in report.findings))


def disagreement(small: Small, *, one_line: bool = False) -> str:
    """How `check` and the reference differ on a program; empty if they agree."""
    try:
        truth = explore(small, _LIMIT)
    except TooLarge:
        return ""
    return opinion(small, one_line=one_line).disagrees(truth)


def report(small: Small, kind: str, *, one_line: bool) -> str:
    """A disagreement, shrunk, with the interleaving that shows who is right."""
    minimal = shrink(small, lambda s: disagreement(s, one_line=one_line) == kind)
    truth = explore(minimal, _LIMIT)
    story = [f"{rule}: " + "; ".join(moves) for rule, moves in truth.failures.items()]
    said = opinion(minimal, one_line=one_line)
    return "\n".join(
        [f"{kind}: {said}", f"{minimal!r}", "reference:", *(story or ["clean"]),
         to_text(translate(minimal))]
    )  # fmt: skip


def campaign(seeds: Sequence[int]) -> Counter[str]:
    """Compares on one program per seed; returns how often each pair of verdicts came up."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        small = generate(random.Random(seed).randrange)
        one_line = seed % 4 == 0
        try:
            truth = explore(small, _LIMIT)
        except TooLarge:
            seen["too large"] += 1
            continue
        said = opinion(small, one_line=one_line)
        kind = said.disagrees(truth)
        assert not kind, f"seed {seed}: {report(small, kind, one_line=one_line)}"
        seen[f"{said.verdict} {'clean' if truth.clean else 'wrong'}"] += 1
    return seen


def test_check_agrees_with_every_interleaving() -> None:
    seen = campaign(range(300))
    assert seen["proved clean"] > 20, seen
    assert seen["failed wrong"] > 100, seen
    bounded = seen["bounded clean"] + seen["bounded wrong"] + seen["too large"]
    assert bounded <= 6, seen


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_check_agrees_on_many_programs(block: int) -> None:
    seen = campaign(range(1_000_000 + 1000 * block, 1_001_000 + 1000 * block))
    assert seen["bounded clean"] + seen["bounded wrong"] <= 20, seen


# ------------------------------------------------------------------ against our own schedules


class _Enumerate:
    """A chooser that follows a prefix and records how many moves there were to choose from."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.picks: list[int] = []
        self.widths: list[int] = []
        self._prefix = prefix

    def choose(self, moves: Sequence[Move]) -> int:
        place = len(self.picks)
        self.picks.append(self._prefix[place] if place < len(self._prefix) else 0)
        self.widths.append(len(moves))
        return self.picks[-1]

    def toss(self) -> int:
        return 0

    def following(self) -> list[int] | None:
        """The next prefix in lexicographic order."""
        for place in reversed(range(len(self.picks))):
            if self.picks[place] + 1 < self.widths[place]:
                return [*self.picks[:place], self.picks[place] + 1]
        return None


def every_schedule(simulation: Simulation) -> Iterator[frozenset[str]]:
    """The rules found in each schedule of the simulator's moves, without any reduction."""
    prefix: list[int] | None = []
    for _ in range(_BRUTE_FORCE):
        if prefix is None:
            return
        chooser = _Enumerate(prefix)
        environment = ChoiceEnvironment(chooser)
        yield frozenset(f.rule for f in simulation.run_in(environment, 0, {}).findings)
        prefix = chooser.following()
    raise TooLarge


def test_reduction_loses_no_failing_schedule() -> None:
    compared = 0
    for seed in range(5000, 5050):
        small = generate(random.Random(seed).randrange, most=4)
        if len(small.warps) > 3:
            continue
        said = opinion(small)
        if said.verdict == "rejected":
            continue
        try:
            simulation = Simulation(translate(small), numbers=False, strict="practice")
            failing = any(every_schedule(simulation))
        except TooLarge:
            continue
        compared += 1
        assert failing == (said.verdict == "failed"), f"seed {seed}: {said}\n{small}"
    assert compared > 20


# ------------------------------------------------------------------ the reference itself

#: programs that are right, each with a change that makes it wrong and the rule that breaks
TWINS = {
    "handoff": (
        Small(((Write(0), Arrive(0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((Arrive(0), Write(0)), (Wait(0, 0), Read(0))), (1,)),
        "race",
    ),
    "relaxed handoff": (
        Small(((Write(0), Arrive(0)), (Wait(0, 0), Write(0))), (1,)),
        Small(((Write(0), Arrive(0, relaxed=True)), (Wait(0, 0), Write(0))), (1,)),
        "race",
    ),
    "arrival count": (
        Small(((Arrive(0),), (Arrive(0), Wait(0, 0))), (2,)),
        Small(((Arrive(0),), (Wait(0, 0),)), (2,)),
        "deadlock",
    ),
    "too many arrivals": (
        Small(((Arrive(0, 2),), (Wait(0, 0), Arrive(0, 2))), (2,)),
        Small(((Arrive(0, 2),), (Arrive(0, 1), Arrive(0, 1))), (3,)),
        "over-arrival",
    ),
    "copy": (
        Small(((ArriveExpect(0), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((ArriveExpect(0, 2), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        "deadlock",
    ),
    "copy nobody waits for": (
        Small(((ArriveExpect(0), Copy(0, 0)), (Wait(0, 0),)), (1,)),
        Small(((ArriveExpect(0), Copy(0, 0)), ()), (1,)),
        "async-at-exit",
    ),
    "late expectation": (
        Small(((Expect(0), Copy(0, 0), Arrive(0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((Arrive(0), Expect(0), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        "race",
    ),
    "bytes after the arrival": (
        Small(((Expect(0), Arrive(0)), (Copy(0, 0), Wait(0, 0))), (1,)),
        Small(((Arrive(0), Expect(0)), (Copy(0, 0), Wait(0, 0))), (2,)),
        "deadlock",
    ),
    "fence": (
        Small(((Write(0), Fence(), ArriveExpect(0), Copy(0, 0), Wait(0, 0)), ()), (1,)),
        Small(((Fence(), Write(0), ArriveExpect(0), Copy(0, 0), Wait(0, 0)), ()), (1,)),
        "proxy-fence",
    ),
    "parity in a loop": (
        Small(((Loop(2, (Arrive(0), Wait(0, 0, carried=True))),), ()), (1,)),
        Small(((Loop(2, (Arrive(0), Wait(0, 0))),), ()), (1,)),
        "deadlock",
    ),
    "named barrier": (
        Small(((Write(0), Join(0, 2, waits=False)), (Join(0, 2), Read(0))), (1,)),
        Small(((Join(0, 2, waits=False), Write(0)), (Join(0, 2), Read(0))), (1,)),
        "race",
    ),
    "named barrier joined twice": (
        Small(((Join(0, 2), Join(1, 2)), (Join(0, 2), Join(1, 2))), (1,)),
        Small(((Join(0, 2, waits=False), Join(0, 2)), (Join(0, 2), Join(0, 2))), (1,)),
        "named-barrier",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_reference_and_check_tell_right_from_wrong(name: str) -> None:
    right, wrong, rule = TWINS[name]
    assert explore(right).clean, explore(right)
    assert rule in explore(wrong).failures
    assert opinion(right).verdict in ("proved", "exhausted")
    assert rule in opinion(wrong).rules


#: found by the campaign, shrunk: each was proved although the reference finds a failure
REGRESSIONS = {
    "a fence covers only what came before it": TWINS["fence"][1],
    "arrivals of different size overflow an unobserved phase": Small(
        ((Arrive(0, 3),), (Arrive(0, 1),)), (3,)
    ),
    "an arrival that did not fit joins the next phase: no order of the two may be skipped": Small(
        ((Arrive(0, 2),), (Arrive(0), Arrive(0))), (2,)
    ),
    "an unobserved arrival reaches back into a phase that a wait can miss": Small(
        ((Wait(0, 1), Arrive(0, 3), Arrive(0, 3)), (Read(0), Arrive(0, 3))), (3,)
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(name: str) -> None:
    assert not disagreement(REGRESSIONS[name])
    assert not disagreement(REGRESSIONS[name], one_line=True)
