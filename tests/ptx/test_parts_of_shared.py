"""What tells parts of shared memory apart (`tilesim.ir.near`): without a condition of it, what an
answer of hardware decides is not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.gpu import needs
from tests.ptx.test_gallery import back, late_tile, tiles
from tilesim.ir.addressed import PART
from tilesim.ir.near import Range
from tilesim.ir.op import Op
from tilesim.kernels.registry import Case
from tilesim.sim import accessed
from tilesim.sim.accessed import Accessed
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.storage import Memory

NOTE = Accessed.note


def verdict(case: Case) -> str:
    return back(case)[1].verdict


def each_alone(accessed: Mapping[int, Iterable[Range]]) -> dict[int, str]:
    """Instructions are in parts of their own, whatever bytes they share."""
    return {number: f"{PART}{number}" for number in accessed}


def once(self: Accessed, memory: Memory, footprint: Footprint, op: Op) -> None:
    """What was found out first stays, whatever else is accessed."""
    graph, flow = self._graph, self._flow
    NOTE(self, memory, footprint, op)
    self._graph, self._flow = graph, flow


@needs.compiler
def test_instructions_that_share_a_byte_are_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"odd_ones": "left out", "own": "handed over"}
    case = Case(tiles, params, "bugs", "proved")
    assert verdict(case) == "bounded"
    monkeypatch.setattr(accessed, "parts_of_shared", each_alone)
    assert verdict(case) == "proved"


@needs.compiler
def test_what_is_accessed_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(late_tile, {"asks": 5}, "bugs", "proved")
    assert verdict(case) == "failed"
    monkeypatch.setattr(Accessed, "note", once)
    assert verdict(case) == "proved"
