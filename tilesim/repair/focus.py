"""Where a finding says that the mistake is: how far each statement is from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilesim.errors import Diagnostic
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.repair.facts import Facts, Place, names
from tilesim.sim.findings import Finding, Named, Stated, together

#: farther than any that is told apart
FAR = 5


@dataclass(frozen=True)
class Focus:
    """The findings (or what the verifier says), the one to begin with first."""

    facts: Facts
    findings: tuple[Finding | Diagnostic, ...]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules, each once."""
        return tuple(dict.fromkeys(f.rule for f in self.findings))

    @property
    def rule(self) -> str:
        """The first finding's."""
        return self.rules[0] if self.rules else ""

    @property
    def diagnosis(self) -> str:
        """The name of the diagnosis that says what the first finding comes from."""
        return self._first.diagnosis if self._first else ""

    @property
    def culprit(self) -> Loc | None:
        """The line that the cause of the first finding names first."""
        return self._first.culprits[0].loc if self._first and self._first.culprits else None

    @property
    def _first(self) -> Finding | None:
        return next((f for f in self.findings[:1] if isinstance(f, Finding)), None)

    @cached_property
    def lines(self) -> frozenset[Loc]:
        """The lines of the first finding."""
        return frozenset(_locations(self.findings[:1]))

    @cached_property
    def _all_lines(self) -> frozenset[Loc]:
        return frozenset(_locations(self.findings))

    @cached_property
    def _beside(self) -> frozenset[int]:
        """The statements in a block with one at the lines of the first finding."""
        return frozenset(
            p.number
            for block in self.facts.blocks
            if any(isinstance(q.what, Op) and q.loc in self.lines for q in block)
            for p in block
        )

    @cached_property
    def _around(self) -> frozenset[int]:
        """The regions around a statement at the lines of the first finding."""
        places = (p for p in self.facts.places if p.loc in self.lines)
        return frozenset(n for p in places for n in p.within)

    @cached_property
    def names(self) -> frozenset[str]:
        """What the first finding names in its sentence and in what its participants do."""
        return together(self._said(self.findings[:1])).names

    @cached_property
    def _noted(self) -> Stated:
        """What all texts of all findings state."""
        notes = (f.noted for f in self.findings if isinstance(f, Finding))
        return together((*self._said(self.findings), *notes))

    def _said(self, findings: Iterable[Finding | Diagnostic]) -> Iterator[Stated]:
        """What the sentences of findings state, and what their participants do."""
        for finding in findings:
            if isinstance(finding, Finding):
                yield from _stated(finding)
            else:
                yield self._at(finding.loc)

    def _at(self, loc: Loc) -> Stated:
        """What is declared, or named by an instruction, at a line."""
        kernel = self.facts.kernel
        declared = (s.name for s in (*kernel.tensors, *kernel.shared) if s.loc == loc)
        used = (n for p in self.facts.ops if p.loc == loc for n in sorted(names(p.op)))
        return Stated(tuple(Named(name, name) for name in (*declared, *used)))

    @cached_property
    def roles(self) -> frozenset[str]:
        """The roles that take part."""
        return frozenset(r for f in self.findings if isinstance(f, Finding) for r in f.roles)

    @cached_property
    def bytes(self) -> tuple[int, ...]:
        """The numbers of bytes that are spoken of."""
        return self._noted.bytes

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """The numbers of arrivals that are spoken of."""
        return self._noted.arrivals

    def distance(self, place: Place) -> int:
        """From 0, a line of the first finding, to `FAR`."""
        own = names(place.what) if isinstance(place.what, Op) else frozenset[str]()
        if place.loc in self.lines:
            return 0
        if own & self.names:
            return 1
        if place.loc in self._all_lines or place.loc in self._noted.lines:
            return 2
        if place.number in self._beside or place.number in self._around:
            return 2
        if own & self._noted.names:
            return 3
        return FAR - 1 if place.role in self.roles else FAR

    def distance_of(self, names: Iterable[str]) -> int:
        """The same of what has these names."""
        own = frozenset(names)
        return 1 if own & self.names else 3 if own & self._noted.names else FAR

    def of_edit(self, numbers: Sequence[int]) -> int:
        """The distance of the nearest statement that changes."""
        return min((self.distance(self.facts.places[n]) for n in numbers), default=FAR)


def _locations(findings: Sequence[Finding | Diagnostic]) -> list[Loc]:
    return [loc for f in findings for loc in (f.locations if isinstance(f, Finding) else (f.loc,))]


def _stated(finding: Finding) -> Iterator[Stated]:
    """What its cause and its message state, and what its participants do."""
    yield finding.because
    yield finding.facts
    for p in (*finding.culprits, *finding.participants):
        if p.deed is not None:
            deed = p.deed
            yield Stated(
                named=() if deed.on is None else (deed.on,),
                bytes=(deed.bytes,) if deed.bytes else (),
            )
