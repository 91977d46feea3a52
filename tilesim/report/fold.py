"""Findings that several CTAs share, folded into one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilesim.sim.findings import Finding

_CTA = re.compile(r"\bCTA \d+\b")


@dataclass(frozen=True)
class Folded:
    """A finding, and the further CTAs in which the same thing happens."""

    finding: Finding
    also: tuple[int, ...] = ()

    @property
    def also_in(self) -> str:
        """``also in CTA 1-3, 7``, or nothing."""
        return f"also in CTA {ranges(self.also)}" if self.also else ""


def fold(findings: Iterable[Finding]) -> tuple[Folded, ...]:
    """``findings`` in order, those that differ in nothing but their CTA as one."""
    first: dict[object, Finding] = {}
    others: dict[object, list[int]] = {}
    for finding in findings:
        ctas = {p.cta for p in finding.participants}
        key = _key(finding) if len(ctas) == 1 else finding
        if key in first:
            others[key].append(ctas.pop())
        else:
            first[key], others[key] = finding, []
    return tuple(Folded(f, tuple(sorted(set(others[key])))) for key, f in first.items())


def _key(finding: Finding) -> object:
    return (
        finding.rule,
        _CTA.sub("CTA", finding.message),
        tuple((p.role, p.warp, _CTA.sub("CTA", p.action), p.loc) for p in finding.participants),
        tuple(_CTA.sub("CTA", note) for note in finding.notes),
    )


def ranges(numbers: tuple[int, ...]) -> str:
    """``1-3, 7`` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
