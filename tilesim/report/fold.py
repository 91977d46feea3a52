"""Findings that several CTAs or warps share, folded into one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tilesim.sim.findings import Finding
from tilesim.words import ranges

_CTA = re.compile(r"\bCTA \d+\b")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Folded:
    """A finding, and the further CTAs and warps in which the same thing happens.

    ``warps`` are further ones of its first participant, between the same lines; what they access
    may be other bytes. ``follows``: other findings of its rule that have the same culprit.
    """

    finding: Finding
    also: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    follows: tuple[Finding, ...] = ()

    @property
    def also_in(self) -> str:
        """``also in warps 2-3; CTA 1-3, 7``, or nothing."""
        parts = []
        if self.warps:
            parts.append(f"warp{'s' if len(self.warps) > 1 else ''} {ranges(self.warps)}")
        if self.also:
            parts.append(f"CTA {ranges(self.also)}")
        return f"also in {'; '.join(parts)}" if parts else ""


def fold(findings: Iterable[Finding]) -> tuple[Folded, ...]:
    """``findings`` in order, those that differ in nothing but CTA, or warp and bytes, as one."""
    first: dict[object, Finding] = {}
    ctas: dict[object, list[int]] = {}
    for finding in findings:
        here = {p.cta for p in finding.participants}
        key = _key(finding) if len(here) == 1 else finding
        if key in first:
            ctas[key].append(here.pop())
        else:
            first[key], ctas[key] = finding, []
    groups: dict[object, list[object]] = {}
    for key, finding in first.items():
        groups.setdefault(_lines(finding), []).append(key)
    return tuple(_by_cause(_folded(group, first, ctas) for group in groups.values()))


def _by_cause(folded: Iterable[Folded]) -> Iterator[Folded]:
    """One mistake is one finding: what has the same culprit goes with the first that has it."""
    kept: dict[object, list[Folded]] = {}
    for number, one in enumerate(folded):
        culprits = one.finding.culprits
        key = (one.finding.rule, culprits[0].loc) if culprits else number
        kept.setdefault(key, []).append(one)
    for head, *others in kept.values():
        yield replace(head, follows=tuple(one.finding for one in others))


def _folded(
    group: list[object], first: dict[object, Finding], ctas: dict[object, list[int]]
) -> Folded:
    """The findings of a group as one."""
    shown = first[group[0]]
    also = {cta for key in group for cta in ctas[key]}
    also |= {p.cta for key in group for p in first[key].participants[:1]}
    also -= {p.cta for p in shown.participants}
    own = {p.warp for p in shown.participants[:1]}
    warps = {p.warp for key in group for p in first[key].participants[:1]} - own
    return Folded(shown, tuple(sorted(also)), tuple(sorted(w for w in warps if w is not None)))


def _key(finding: Finding) -> object:
    return (
        finding.rule,
        _CTA.sub("CTA", finding.message),
        tuple((p.role, p.warp, _CTA.sub("CTA", p.action), p.loc) for p in finding.participants),
        tuple(_CTA.sub("CTA", note) for note in finding.notes),
    )


def _lines(finding: Finding) -> object:
    """What two findings share that tell the same story of other warps or bytes.

    Only where the first participant is a warp that did something: waiters of a deadlock differ.
    """
    if finding.rule == "deadlock" or not finding.participants[:1]:
        return finding
    sides = tuple((p.loc, _NUMBER.sub("#", p.action)) for p in finding.participants)
    return finding.rule, sides, _NUMBER.sub("#", finding.fix)
