"""What a sweep says of every trip count: one proof instead of a few values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from tilesim.checker import Report, prove_alone
from tilesim.checker.for_all import ForAll
from tilesim.checker.report import Claim, Values
from tilesim.errors import TilesimError
from tilesim.fuzz.cases import Outcome, Params, kernel_of
from tilesim.ir.program import Strict
from tilesim.limits import Timer
from tilesim.parallel import Opener, work
from tilesim.records import dataclass
from tilesim.report.json import for_all_json

#: warp instructions that the runs of one proof may execute: some tens of seconds
MOST = 1_000_000
#: an outcome that says nothing against a kernel, and nothing for it
OPEN = "not shown"


@dataclass(frozen=True)
class Every:
    """The values from 1 on of the parameter ``name``, with the others of ``params``."""

    number: int
    target: str
    name: str
    params: Params
    strict: Strict


@dataclass(frozen=True)
class EveryResult:
    """What came of it: `OPEN`, ``proved``, or the verdict for a value for which it is another."""

    every: Every
    verdict: str
    claim: Claim | None = None
    message: str = ""

    @property
    def text(self) -> str:
        """What is said besides the verdict."""
        if self.claim is None:
            return self.message
        if self.claim.proved:
            return self.claim.covers.removeprefix(self.claim.wanted).lstrip()
        if self.claim.at is not None and self.verdict != OPEN:
            return f"{self.every.name} = {self.claim.at}: {self.message}"
        shown = self.claim.upto
        end = "" if shown is None else f"; shown up to {self.every.name} = {shown}"
        return f"{self.claim.obstacle}{end}"

    def json(self) -> dict[str, Any]:
        """As plain data."""
        claim = None if self.claim is None else for_all_json(self.claim)
        return {
            "name": self.every.name, "params": dict(self.every.params), "verdict": self.verdict,
            "message": self.message, "claim": claim,
        }  # fmt: skip


def asked(outcomes: Sequence[Outcome], name: str) -> list[Every]:
    """What to ask for of a parameter: all values, with each choice of the others with which nothing
    failed and something was proved."""
    groups: dict[Params, list[Outcome]] = {}
    for outcome in outcomes:
        others = tuple((n, v) for n, v in outcome.case.params if n != name)
        groups.setdefault(others, []).append(outcome)
    found: list[Every] = []
    for others, group in groups.items():
        verdicts = {o.verdict for o in group}
        if "proved" in verdicts and verdicts <= {"proved", "refused", "rejected"}:
            case = group[0].case
            found.append(Every(len(found), case.target, name, others, case.settings.strict))
    return found


def prove_all(
    wanted: Iterable[Every], opener: Opener, *, workers: int = 1, seconds: float | None = None,
    on_result: Callable[[EveryResult], None] = lambda said: None,
) -> tuple[list[EveryResult], bool]:  # fmt: skip
    """What is said of each, in their order, and whether the user did not interrupt. None is begun
    after so many ``seconds``.

    Raises:
        WorkersLost: as `tilesim.parallel.work`.
    """
    found: list[EveryResult] = []

    def add(said: EveryResult) -> None:
        found.append(said)
        on_result(said)

    done = work(
        prove_every, wanted, opener, workers=workers, seconds=seconds, lost=_lost, on_result=add
    )
    return sorted(found, key=lambda said: said.every.number), done


def _lost(every: Every, reason: str) -> EveryResult:
    return EveryResult(every, OPEN, message=reason)


def prove_every(every: Every) -> EveryResult:
    """The proof, or why there is none; whatever goes wrong is said as well."""
    try:
        return _proved(every)
    except (TilesimError, ValueError, AssertionError, ArithmeticError) as error:
        return EveryResult(every, OPEN, message=f"{type(error).__name__}: {error}")


def _proved(every: Every) -> EveryResult:
    kernel, strict = kernel_of(every.target), every.strict
    proof = ForAll(
        kernel, {**kernel.params, **dict(every.params)}, every.name, Values(),
        partial(prove_alone, strict), strict, Timer(None), MOST,
    )  # fmt: skip
    claim = proof.claim()
    if claim.proved:
        return EveryResult(every, "proved", claim)
    if proof.failing is not None:
        return EveryResult(every, "failed", claim, _first(proof.failing))
    return EveryResult(every, OPEN, claim)


def _first(report: Report) -> str:
    finding = report.findings[0]
    at = f" ({finding.locations[0]})" if finding.locations else ""
    return f"{finding.rule}{at}"
