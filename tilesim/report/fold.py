"""Findings that several CTAs or warps share, folded into one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tilesim.sim.findings import Finding
from tilesim.words import ranges

_CTA = re.compile(r"\bCTA \d+\b")
_NUMBER = re.compile(r"\d+")
#: an operation that lanes issue which were not meant to: what follows may be anything
_LANES = re.compile(r"all \d+ lanes execute")
#: an operation that is not over when its CTA ends
_AT_END = ("async-at-exit", "peer-exit")
#: a barrier, a tile of shared memory, a named barrier, tensor memory
_NAME = re.compile(r"[\w.:@]+(?=\[)|named barrier \d+|\w+(?= \(lanes)")


@dataclass(frozen=True)
class Folded:
    """A finding, and the further CTAs and warps in which the same thing happens.

    ``warps`` are further ones of its first participant, between the same lines; what they access
    may be other bytes. ``follows``: further findings that come of the same mistake.
    """

    finding: Finding
    also: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    follows: tuple[Finding, ...] = ()

    @property
    def consequences(self) -> tuple[str, ...]:
        """What follows, each with its rule."""
        return tuple(f"{one.rule}: {one.message}" for one in self.follows)

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
    """One mistake is one finding: what comes of it goes with the first that names its cause."""
    kept: list[list[Folded]] = []
    for one in folded:
        group = next((g for g in kept if _comes_of(one.finding, g[0].finding)), None)
        if group is None:
            kept.append([one])
        else:
            group.append(one)
    for head, *others in kept:
        yield replace(head, follows=tuple(one.finding for one in others))


def _comes_of(finding: Finding, head: Finding) -> bool:
    """Whether a finding tells of the mistake that another one names: the same culprit or cause; or
    it has none and is about the same barrier, memory or line; or it is about both."""
    if not head.cause:
        return False
    if _LANES.match(head.cause):
        return True
    near = bool({*finding.locations} & {*head.locations})
    alike = bool(_names(finding) & _names(head))
    if not finding.cause:
        return near or alike
    if finding.cause == head.cause or finding.culprits[0].loc == head.culprits[0].loc:
        return True
    return near and (alike or finding.rule in _AT_END)


def _names(finding: Finding) -> frozenset[str]:
    """The barriers and the memory that a finding speaks of."""
    sides = (*finding.participants, *finding.culprits)
    texts = (finding.message, finding.cause, *(p.action for p in sides))
    return frozenset(name for text in texts for name in _NAME.findall(text))


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
