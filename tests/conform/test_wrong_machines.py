"""Recordings of an H200 conform, and refute machines that are wrong on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.wrong_machines import Facts, claim_of, longest, refuted
from tilesim.conform.compare import compare
from tilesim.conform.order import order_of
from tilesim.conform.recorded import load
from tilesim.dsl.kernel import Kernel
from tilesim.kernels.cluster.multicast import multicast
from tilesim.kernels.cluster.ring import ring

#: kernel, its parameters, and the wrong machines that its recording does not refute, or that claim
#: nothing else than the real one
ROWS: dict[str, tuple[Kernel, dict[str, int], set[str]]] = {
    "multicast": (multicast, {}, {"instant_copy"}),
    "ring": (ring, {"ctas": 2}, {"instant_copy"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_recordings_refute_wrong_machines(name: str) -> None:
    kernel, params, left = ROWS[name]
    recorded = load(Path(__file__).with_name(f"{name}.npz"))
    order = order_of(kernel.build(**params))
    assert recorded.launches == 24
    assert compare(order, recorded).conforms
    facts = Facts.of(order, recorded)
    found = refuted(facts)
    assert {machine for machine, yes in found.items() if not yes} == left
    assert all(claim_of(machine) for machine in found)
    assert 0 < longest(facts)[0] < 3000
