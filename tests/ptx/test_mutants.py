"""PTX with one synchronising instruction changed gets the verdict of the program changed so."""

from __future__ import annotations

import pytest

from benchmarks.ptx_mutants import RETARGETED, SWAPPED, Row, compared
from tests.gpu import needs
from tilesim.kernels.registry import cases

#: by kernel: the faults of which not every mutant is found, and how many are not
UNFOUND = {
    # the last wait of the cluster barrier: the CTA ends behind it
    "tilesim.kernels.cluster.multicast::multicast": {"cluster barrier halved": 1},
}


@needs.compiler
@pytest.mark.parametrize("name", UNFOUND)
def test_a_mutant_in_ptx_is_found_as_the_mutant_of_the_program_is(name: str) -> None:
    (case,) = (c for c in cases() if str(c.target) == name)
    rows: dict[str, Row] = {}
    assert list(compared(case.kernel.build(**case.params), rows)) == []
    assert {f: r.made - r.found for f, r in rows.items() if r.found < r.made} == UNFOUND[name]
    assert {f for f, r in rows.items() if not r.compared} == {RETARGETED, SWAPPED}
    assert sum(row.made for row in rows.values()) == 21
