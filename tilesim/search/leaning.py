"""What a verdict leaned on: switches of `practice` that were used, and what was taken for granted.

A run at `practice` notes where a switch of SEMANTICS 0.3 may have accepted something
(`Core.lean`). Whether it did is what a check at `ptx` says: each of its findings is something that
only the switch accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilesim.ir.elected import depends_on_elected
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.leaning import SWITCHES, Leaning
from tilesim.search.extent import begin
from tilesim.sim.findings import Finding
from tilesim.sim.simulate import Simulation
from tilesim.verdict import Report

Noted = tuple[str, tuple[int, ...]]

#: the switches that findings of a rule belong to, where no instruction tells
_BY_RULE: Mapping[str, tuple[str, ...]] = {
    "proxy-fence": ("U12", "U14", "H24"),
    "wgmma-order": ("F3",),
    "tcgen05-order": ("U20", "U19", "U33"),
    "tmem-lifetime": ("G8", "U20", "U33"),
    "phase-ambiguity": ("U1",),
    "phase-alias": ("A21",),
    "participation": ("E15", "U16"),
    "named-barrier": ("E6",),
    "race": ("H23", "U4", "H3", "E12"),
    "deadlock": ("G9", "E12"),
    "out-of-bounds": ("U21", "B14"),
    "barrier-lifetime": ("A6", "A8"),
}
#: where not all runs are known that may have used one
_ANY: frozenset[Noted] = frozenset((switch, ()) for switch in SWITCHES)


def noted(simulation: Simulation) -> set[Noted]:
    """The switches that runs so far may have used, with instructions."""
    elections = depends_on_elected(simulation.code.graph)
    return simulation.leaned | ({("E12", elections)} if elections else set())


def used(
    mir: Mir, may: Collection[Noted], strict: Report, *, undecided: bool
) -> tuple[Leaning, ...]:
    """The switches that were used, as a check at `ptx` says it; where that is ``undecided``, as
    what it found ended it, or it found nothing, those that ``may`` have been, or any."""
    if strict.verdict in ("proved", "exhausted"):
        return ()
    places: dict[str, dict[Loc, None]] = {}
    for finding in strict.findings:
        places.setdefault(_switch(finding, may), {}).update(dict.fromkeys(finding.locations))
    found = set(places)
    for switch, numbers in sorted(may or _ANY) if undecided or not places else ():
        if switch not in found:
            places.setdefault(switch, {}).update((mir.code[n].loc, None) for n in numbers)
    return tuple(
        Leaning(switch, SWITCHES[switch], tuple(locs) or (begin(mir),), "practice")
        for switch, locs in sorted(places.items())
    )


def _switch(finding: Finding, may: Collection[Noted]) -> str:
    """The switch without which a run has a finding."""
    numbers = {p.instruction for p in finding.participants}
    fitting = _BY_RULE.get(finding.rule, ())

    def rank(one: Noted) -> tuple[int, bool, bool, int]:
        switch, own = one
        place = -fitting.index(switch) if switch in fitting else -len(SWITCHES)
        return len(numbers.intersection(own)), switch in fitting, one in may, place

    return max(sorted({*may, *_ANY}), key=rank)[0]
