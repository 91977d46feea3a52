"""Faults in PTX get the verdict of the faults of the program that it comes from."""

from __future__ import annotations

from benchmarks.ptx_mutants import Row, compared
from tests.gpu import needs
from tilesim.kernels.registry import cases

#: faults of which not every mutant is found, and how many are not
UNFOUND = {
    # the last wait of the cluster barrier: the CTA ends behind it
    "cluster barrier dropped": 1, "cluster barrier halved": 1, "cluster barrier relaxed": 1,
    # nothing but the copies is published
    "relaxed arrival": 1, "scope too small": 1,
    # without its work the kernel ends well
    "dead predicate": 1,
}  # fmt: skip


@needs.compiler
def test_a_mutant_in_ptx_is_found_as_the_mutant_of_the_program_is() -> None:
    name = "tilesim.kernels.cluster.multicast::multicast"
    (case,) = (c for c in cases() if str(c.target) == name)
    rows: dict[str, Row] = {}
    assert list(compared(case.kernel.build(**case.params), rows)) == []
    assert {f: r.made - r.found for f, r in rows.items() if r.found < r.made} == UNFOUND
    uncompared = {f for f, row in rows.items() if not row.compared}
    assert uncompared == {"barrier of another slot"}
    assert sum(row.made for row in rows.values()) == 34
