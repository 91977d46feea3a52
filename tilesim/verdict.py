"""What a check says of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilesim.ir import shown
from tilesim.ir.program import Verdict
from tilesim.ir.shown import Shown
from tilesim.leaning import Leaning
from tilesim.proof.certificate import Certificate
from tilesim.proof.rules import Answer
from tilesim.repair import Repairs
from tilesim.search.values import Claim
from tilesim.sim.findings import Finding

#: the reason of a verdict that would be stronger had the user waited
INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True)
class Stats:
    """What a check cost: warp instructions executed, schedules run, CTAs simulated in the first."""

    instructions: int = 0
    schedules: int = 0
    ctas: int = 0


@dataclass(frozen=True)
class Report(Shown):
    """The result of `check`.

    ``covers`` says what the verdict extends to (schedules, CTAs, strictness, assumptions);
    ``reasons`` why it is not stronger; ``witness`` replays the failing schedule (see `replay`);
    ``frontier`` is where an exploration that did not end can go on. Both are JSON objects.
    ``repairs`` are those that were asked for. ``leanings`` are what a proof leans on, for which
    ``covers`` has words as well; ``for_all`` is what is said of all values of parameters, if that
    was asked: ``verdict`` is about one of them, ``overall`` about all. ``certificate`` is that of a
    proof, if it was asked for, and ``rechecked`` what the proof kernel says of it; the recheck
    trusts ``recheck_trusts`` as well as what any does (docs/trust.md). ``print`` shows it as
    ``tilesim check`` does, a notebook as a page.
    """

    kernel: str
    verdict: Verdict
    covers: str
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    witness: dict[str, Any] | None = None
    stats: Stats = field(default_factory=Stats)
    frontier: dict[str, Any] | None = field(default=None, repr=False)
    repairs: Repairs | None = None
    leanings: tuple[Leaning, ...] = ()
    for_all: Claim | None = None
    certificate: Certificate | None = field(default=None, repr=False)
    rechecked: Answer | None = None
    recheck_trusts: str = ""

    def __str__(self) -> str:
        return repr(self) if shown.maker is None else shown.maker().text(self)

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the findings."""
        return frozenset(f.rule for f in self.findings)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of what makes a proof conditional."""
        return tuple(one.name for one in self.leanings if one.conditional)

    @property
    def said(self) -> str:
        """The verdict; of a conditional proof, what it leans on as well; and for which values of
        parameters, if more than one was asked for."""
        said = self.verdict if self.for_all is None else self.for_all.said
        given = ", ".join(self.conditions)
        return f"{said}, leaning on {given}" if given else said

    @property
    def is_whole(self) -> bool:
        """Whether the verdict is about all values of parameters that were asked for."""
        return self.for_all is None or self.for_all.proved

    @property
    def overall(self) -> Verdict:
        """The verdict on all values of parameters that were asked for: ``bounded`` if it is one on
        some of them only."""
        right = self.verdict in ("proved", "exhausted")
        return "bounded" if right and not self.is_whole else self.verdict


def whole(report: Report) -> Report:
    """A report that is a part of something: nothing, if the user has interrupted its check.

    Raises:
        KeyboardInterrupt: that is so; whoever asked for all of it says what there is.
    """
    if INTERRUPTED in report.reasons:
        raise KeyboardInterrupt
    return report
