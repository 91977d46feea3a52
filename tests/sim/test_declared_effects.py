"""Every access, credit and order that a run records for an instruction is one of its effects."""

from __future__ import annotations

from operator import attrgetter

import pytest

from tests.litmus.sections import all_rows
from tests.litmus.table import Rejected, Row
from tilesim import Builder, Program, s32
from tilesim.ir.effects import Effect, Expects
from tilesim.ir.expr import Const
from tilesim.ir.ops.mbarrier import MbarrierArrive
from tilesim.ir.ops.scalar import Store
from tilesim.ir.program import Strict
from tilesim.kernels.registry import Case, cases

from .declared import Recorded, declared, says

#: one of each kernel of the gallery
CASES = {case.kernel.function: case for case in reversed(cases()) if case.expected != "rejected"}


def undeclared(patch: pytest.MonkeyPatch, program: Program, strict: Strict) -> list[str]:
    """What a run has recorded that no effect says."""
    recorded = Recorded(patch)
    recorded.run(program, strict)
    return unsaid(program, recorded)


def unsaid(program: Program, recorded: Recorded) -> list[str]:
    """What was recorded that no effect says."""
    return [
        f"{op.mnemonic} at {op.loc} {what} {thing or ''}"
        for op, events in recorded.events.items()
        for what, thing in sorted(events, key=str)
        if not says(declared(program, op), (what, thing))
    ]


@pytest.mark.parametrize("row", sorted(all_rows(), key=attrgetter("id")), ids=attrgetter("id"))
def test_litmus(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(row.practice, Rejected):
        assert undeclared(monkeypatch, row.build(), "practice") == []


@pytest.mark.parametrize("case", CASES.values(), ids=attrgetter("target"))
def test_gallery(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert undeclared(monkeypatch, case.build(), case.strict) == []


def test_what_is_not_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Builder("lying", warps=1)
    x, bars = k.shared("x", s32, (32,)), k.mbarriers("bars", 1)
    with k.elected():
        k.mbarrier.init(bars, 1)
    k.sync_threads()
    with k.elected():
        k.mbarrier.arrive(bars)
    k.mem.store(x[k.lane_id], 1)
    program = k.finish()
    assert undeclared(monkeypatch, program, "practice") == []

    def expects(op: MbarrierArrive) -> tuple[Effect, ...]:
        return (Expects(op.mbar, Const(4)),)

    recorded = Recorded(monkeypatch)
    recorded.run(program, "practice")
    with monkeypatch.context() as lying:
        lying.setattr(Store, "effects", lambda op: ())
        found = unsaid(program, recorded)
    assert [text.split()[0] for text in found] == ["st"]
    assert found[0].endswith(" writes x")
    # what is declared is what is executed: an effect cannot be forgotten
    monkeypatch.setattr(MbarrierArrive, "effects", expects)
    recorded = Recorded(monkeypatch)
    recorded.run(program, "practice")
    (arrive,) = (op for op in recorded.events if isinstance(op, MbarrierArrive))
    assert {what for what, _ in recorded.events[arrive]} == {"expects"}
