"""Findings that several CTAs or warps share, folded into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tilesim.sim.findings import Deed, Finding
from tilesim.words import ranges

#: an operation that is not over when its CTA ends
_AT_END = ("async-at-exit", "peer-exit")
#: what comes after an operation of another warp needs a hand-over, too
_HANDED_OVER = ("race", "tcgen05-order", "tmem-lifetime")


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
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_key(finding), []).append(finding)
    return tuple(_by_cause(_folded(group) for group in groups.values()))


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
    if head.because.lanes is not None:
        return True  # lanes were not meant to execute it: what follows may be anything
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
    deeds = frozenset(p.deed.on.name for p in sides if p.deed is not None and p.deed.on is not None)
    return deeds | finding.facts.names | finding.because.names


def _folded(group: list[Finding]) -> Folded:
    """The findings of a group as one."""
    first = [p for finding in group for p in finding.participants[:1]]
    shown = group[0].participants
    also = {p.cta for p in first} - {p.cta for p in shown}
    warps = {p.warp for p in first} - {p.warp for p in shown[:1]}
    return Folded(group[0], tuple(sorted(also)), tuple(sorted(w for w in warps if w is not None)))


def _key(finding: Finding) -> object:
    """What findings share that tell the same story of other CTAs, warps or bytes.

    Waiters of a deadlock differ: of another CTA they wait for the same, and nothing else is waited
    for there.
    """
    sides = finding.participants
    if finding.rule != "deadlock" and sides:
        done = tuple((p.loc, _what(p.deed)) for p in sides)
        own = finding.rule in _HANDED_OVER and not finding.fixes_cause
        alone = own and len({(p.cta, p.warp) for p in sides}) == 1
        return finding.rule, finding.kind, done, finding.diagnosis, finding.fixes_cause, alone
    if len({p.cta for p in sides}) != 1:
        return finding
    waits = tuple((p.role, p.warp, p.loc, _where(p.deed)) for p in sides)
    noted = finding.noted
    return waits, finding.kind, noted.lines, noted.arrivals, noted.bytes


def _what(deed: Deed | None) -> object:
    """What is done, to which array or tensor."""
    return deed and (deed.verb, deed.on and deed.on.name)


def _where(deed: Deed | None) -> object:
    """What is waited for, in whichever CTA."""
    return deed and (deed.on and deed.on.anywhere, deed.parity)
