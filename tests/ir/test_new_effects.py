"""Effects of a kind that tilesim does not have: they are executed, and never taken for proved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from tilesim import Builder, Program, check, s32
from tilesim.dsl.methods import base
from tilesim.export import NotExportable, to_promela
from tilesim.gpu.emit import emit
from tilesim.ir import effects as fx
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Strict
from tilesim.ir.text import parse, to_text
from tilesim.proof.check import certify
from tilesim.records import dataclass
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.compose import EXECUTORS, Act
from tilesim.sim.machine.execute import JUDGED
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.simulate import simulate
from tilesim.sim.machine.warp import Awaited
from tilesim.transforms.lower import lower


@dataclass(frozen=True)
class GivesPermit:
    """Adds a permit to the gate of the CTA, for every active lane."""


@dataclass(frozen=True)
class TakesPermit:
    """Waits until the gate has a permit for every active lane, and takes them."""


class Gate(Awaited):
    """A counting semaphore, of which the executors note nothing."""

    def __init__(self, published: Clock) -> None:
        super().__init__()
        self.published = published
        self.permits = 0


def _gives(c: Operands, op: Op, effect: Any) -> Act:
    def step(w: Warp) -> None:
        gate = _gate(w)
        gate.permits += w.lanes
        join(gate.published, w.published)
        w.advance()
        gate.wake_waiters()

    return Act(step)


def _takes(c: Operands, op: Op, effect: Any) -> Act:
    def step(w: Warp) -> bool | None:
        gate = _gate(w)
        if gate.permits < w.lanes:
            return w.block(gate, "waits for a permit", op)
        gate.permits -= w.lanes
        w.learns(gate.published)
        return None

    return Act(step, blocks=True)


def _gate(w: Warp) -> Gate:
    gate: Gate = vars(w.cta).setdefault("gate", Gate(w.machine.components.clock()))
    return gate


@pytest.fixture(autouse=True)
def gates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``gate.give`` and ``gate.take``."""

    @dataclass(frozen=True, kw_only=True)
    class Give(Op):
        """``gate.give``: adds a permit."""

        mnemonic = "gate.give"
        sync = True
        call = "gate.give()"
        ptx = "gate.give.release.cta;"

        def effects(self) -> tuple[Any, ...]:
            return (GivesPermit(),)

    @dataclass(frozen=True, kw_only=True)
    class Take(Op):
        """``gate.take``: waits for a permit."""

        mnemonic = "gate.take"
        sync = True
        call = "gate.take()"
        ptx = "gate.take.acquire.cta;"

        def effects(self) -> tuple[Any, ...]:
            return (TakesPermit(),)

    executors: dict[Any, Any] = EXECUTORS
    monkeypatch.setitem(executors, GivesPermit, _gives)
    monkeypatch.setitem(executors, TakesPermit, _takes)
    yield
    for cls, name in ((Give, "give"), (Take, "take")):
        del OPS[cls.mnemonic]
        if name in vars(base("gate")):
            delattr(base("gate"), name)


def _handover(*, waits: bool = True) -> Program:
    """Warp 0 hands a tile to warp 1."""
    k: Any = Builder("handover", warps=2)
    out, tile, x = k.tensor("out", s32, (32,)), k.shared("tile", s32, (32,)), k.var("x", 0)
    with k.role("giver", 0):
        k.mem.store(tile[k.lane_id], k.lane_id)
        k.sync_warp()
        k.gate.give()
    with k.role("taker", 1):
        if waits:
            k.gate.take()
        k.sync_warp()
        k.mem.load(x, tile[k.lane_id])
        k.mem.store(out[k.lane_id], x)
    program: Program = k.finish()
    return program


def _one_keeps_it() -> Program:
    """Two warps take a permit and one gives it back: if the other one is first, one waits for ever;
    in the timed run it is not."""
    k: Any = Builder("order", warps=3)
    with k.role("giver", 0):
        k.gate.give()
    with k.role("gives it back", 1):
        k.gate.take()
        k.gate.give()
    with k.role("keeps it", 2):
        k.gate.take()
    program: Program = k.finish()
    return program


@pytest.mark.parametrize("strict", ["ptx", "practice"])
def test_a_new_kind_of_effect_leaves_every_schedule_open(strict: Strict) -> None:
    report = check(_handover(), strict=strict)
    assert report.verdict == "bounded"
    assert any("what the effect TakesPermit leaves may depend" in r for r in report.reasons)


def test_so_other_schedules_are_run() -> None:
    assert simulate(_one_keeps_it()).findings == ()
    (finding,) = check(_one_keeps_it()).findings
    assert finding.rule == "deadlock"
    assert {p.role for p in finding.participants} == {"gives it back"}


def test_what_a_run_finds_stands() -> None:
    (finding,) = check(_handover(waits=False)).findings
    assert finding.rule == "race"
    assert {p.role for p in finding.participants} == {"giver", "taker"}


def test_one_definition_gives_it_text_and_cuda() -> None:
    program = _handover()
    assert parse(to_text(program)) == program
    assert "gate.take.acquire.cta;" in emit(program).text


def test_others_refuse_it() -> None:
    with pytest.raises(NotExportable, match="not GivesPermit"):
        to_promela(_handover())
    answer = certify(lower(_handover()))
    assert (answer.verdict, answer.what.split(": ")[-1]) == ("not covered", "GivesPermit")


def test_every_kind_is_judged_once() -> None:
    judged = [kind for kinds in JUDGED.values() for kind in kinds]
    assert len(judged) == len(set(judged))
    assert set(judged) == set(get_args(fx.Effect)), "say what judges it, or that nothing has to"
