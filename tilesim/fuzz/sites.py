"""Mutants of one kernel with several parameters, put together by what was changed and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tilesim.fuzz.cases import Outcome
from tilesim.fuzz.judge import Kind, kind

#: what counts if the kinds differ between parameters: a defect that shows with some is found
_ORDER: tuple[Kind, ...] = (
    "contradicted", "error", "found", "refused", "wrong result", "open", "silent", "equivalent",
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One fault at one place of a kernel, and what became of it with each set of parameters.

    ``number`` counts equal changes of one line: a Python loop may make several instructions.
    """

    target: str
    where: str
    number: int
    outcomes: tuple[Outcome, ...]

    @property
    def fault(self) -> str:
        """The kind of fault."""
        return self.outcomes[0].fault

    @property
    def kernel(self) -> str:
        """The kernel as the gallery calls it, without the package."""
        return self.target.removeprefix("tilesim.kernels.")

    @property
    def kind(self) -> Kind:
        """What became of it."""
        return kind(self.decisive)

    @property
    def decisive(self) -> Outcome:
        """The outcome that decides; among equal ones that of the fewest schedules."""
        return min(self.outcomes, key=lambda o: (_ORDER.index(kind(o)), o.schedules))


def sites(outcomes: Iterable[Outcome]) -> tuple[Site, ...]:
    """The sites of judged mutants, in the order in which they appear."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[str, str, int], list[Outcome]] = {}
    for outcome in outcomes:
        case = outcome.case
        one = (case.target, case.params, outcome.where)
        found.setdefault((case.target, outcome.where, seen[one]), []).append(outcome)
        seen[one] += 1
    return tuple(Site(*key, tuple(group)) for key, group in found.items())
