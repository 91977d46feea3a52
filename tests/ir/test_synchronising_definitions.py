"""One definition is enough for instructions that synchronise, too: three that PTX does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from docs.generate import page
from tilesim import Builder, Program, check, s32
from tilesim.dsl.methods import base
from tilesim.dsl.to_python import builder_code
from tilesim.errors import InvalidProgram
from tilesim.export import to_promela
from tilesim.gpu.emit import emit
from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import Arrives, Defines, Effect, JoinsBarrier, Waits
from tilesim.ir.expr import Const, Expr, Var, binary
from tilesim.ir.mir import Mir
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import instructions
from tilesim.ir.text import parse, to_text
from tilesim.mistakes.table import mutants
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.records import dataclass
from tilesim.sim.machine.simulate import simulate


@dataclass(frozen=True)
class Family:
    """The classes of the instructions."""

    knock: type[Op]
    meet: type[Op]
    none: type[Op]


@pytest.fixture
def family() -> Iterator[Family]:
    """Arrivals by the pair, an arrival that waits, and a vote against."""

    @dataclass(frozen=True, kw_only=True)
    class Knock(Op):
        """``mbarrier.knock``: arrives ``pairs`` times two, and expects ``bytes``."""

        mnemonic = "mbarrier.knock"
        sync = True
        call = "door.knock(mbar, pairs, *, bytes)"
        ptx = "mbarrier.knock.{sem}{mbar.space}.b64 _, [{mbar}], {pairs:r}, {bytes:r};"
        sem = "release"

        mbar: Mbar
        pairs: Expr
        bytes: Expr = Const(0)

        def effects(self) -> tuple[Effect, ...]:
            return (Arrives(self.mbar, binary("*", self.pairs, 2), self.bytes, scope="cluster"),)

    @dataclass(frozen=True, kw_only=True)
    class Meet(Op):
        """``mbarrier.meet``: arrives, and waits until the phase of the arrival is over."""

        mnemonic = "mbarrier.meet"
        sync = True
        call = "door.meet(token, mbar)"
        ptx = "mbarrier.meet.shared.b64 {token:l}, [{mbar}];"

        token: Var
        mbar: Mbar

        def effects(self) -> tuple[Effect, ...]:
            arrives = Arrives(self.mbar, Const(1))
            waits = Waits(self.mbar, self.token, parity=False)
            return (arrives, Defines(self.token, arrives), waits)

    @dataclass(frozen=True, kw_only=True)
    class BarrierNone(Op):
        """``barrier.none``: joins barrier ``id``; 1 if ``value`` is false in all its threads."""

        mnemonic = "barrier.none"
        sync = True
        call = "door.none(result, id, value)"
        ptx = "barrier.none.sync.pred {result:p}, {id}, {value:p};"

        result: Var
        id: Expr
        value: Expr

        def effects(self) -> tuple[Effect, ...]:
            against = binary("==", self.value, 0)
            join = JoinsBarrier(
                self.id, None, waits=True, aligned=False, vote=against, reduction="and"
            )
            return (join, Defines(self.result, join))

    family = Family(Knock, Meet, BarrierNone)
    yield family
    for cls, name in ((Knock, "knock"), (Meet, "meet"), (BarrierNone, "none")):
        del OPS[cls.mnemonic]
        if name in vars(base("door")):
            delattr(base("door"), name)


def _handover(*, lanes: int = 3, pairs: int = 1, late: bool = False) -> Program:
    """Warp 0 hands a tile to warp 1 with six arrivals, a pair by each of three lanes."""
    k: Any = Builder("knocking", warps=2)
    out, tile = k.tensor("out", s32, (32,)), k.shared("tile", s32, (32,))
    full, x = k.mbarriers("full", 1), k.var("x", 0)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(full, 6)
    k.sync_threads()
    with k.role("giver", 0):
        if not late:
            k.mem.store(tile[k.lane_id], k.lane_id)
        k.sync_warp()
        with k.if_(k.lane_id < lanes):
            k.door.knock(full, pairs)
        if late:
            k.mem.store(tile[k.lane_id], k.lane_id)
    with k.role("taker", 1):
        k.mbarrier.wait(full, 0)
        k.mem.load(x, tile[k.lane_id])
        k.mem.store(out[k.lane_id], x)
    program: Program = k.finish()
    return program


def _meeting(*, expected: int = 64, alone: bool = False) -> Program:
    """The lanes of two warps meet at an mbarrier; what one has written the other one reads."""
    k: Any = Builder("meeting", warps=2)
    out, tile = k.tensor("out", s32, (64,)), k.shared("tile", s32, (64,))
    door, token, x = k.mbarriers("door", 1), k.var("token", 0), k.var("x", 0)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(door, expected)
    k.sync_threads()
    with k.loop(3):
        k.mem.store(tile[k.thread_id], k.thread_id)
        with k.if_(k.warp_id.eq(0)) if alone else k.if_(k.warp_id < 2):
            k.door.meet(token, door)
        k.mem.load(x, tile[63 - k.thread_id])
        k.door.meet(token, door)
    k.mem.store(out[k.thread_id], x)
    program: Program = k.finish()
    return program


def _voting(*, warps: int = 2, value: int = 64) -> Program:
    """All threads of a CTA are asked whether none of them is number ``value``."""
    k: Any = Builder("voting", warps=2)
    out, x = k.tensor("out", s32, (64,)), k.var("x", 0)
    with k.if_(k.warp_id < warps):
        k.door.none(x, 3, k.thread_id.eq(value))
    with k.if_(k.warp_id >= warps):
        k.sync_threads()
    k.mem.store(out[k.thread_id], x)
    program: Program = k.finish()
    return program


def _only(program: Program, cls: type[Op]) -> Op:
    return next(op for op in instructions(program) if isinstance(op, cls))


def test_arrivals_hand_over_what_came_before(family: Family) -> None:
    np.testing.assert_array_equal(simulate(_handover()).outputs["out"], np.arange(32))
    assert check(_handover()).verdict == "proved"
    program = _handover(late=True)
    (finding,) = check(program).findings
    assert finding.rule == "race"
    assert {p.role for p in finding.participants} == {"giver", "taker"}


def test_an_arrival_too_few_or_too_many_is_found(family: Family) -> None:
    program = _handover(lanes=2)
    (finding,) = check(program).findings
    assert finding.rule == "deadlock"
    assert "full[0] phase 0: 2 of 6 arrivals pending" in str(finding)
    program = _handover(lanes=2, pairs=2)
    (finding,) = check(program).findings
    assert finding.rule == "over-arrival"
    assert finding.participants[0].loc == _only(program, family.knock).loc


def test_an_arrival_that_waits(family: Family) -> None:
    np.testing.assert_array_equal(simulate(_meeting()).outputs["out"], np.arange(64)[::-1])
    assert check(_meeting()).verdict == "proved"
    report = check(_meeting(alone=True))
    assert report.verdict == "failed"
    assert report.findings[0].rule in ("race", "deadlock")
    (finding,) = check(_meeting(expected=96)).findings
    assert finding.rule == "deadlock"
    assert finding.participants[0].loc == _only(_meeting(), family.meet).loc


def test_a_barrier_that_votes(family: Family) -> None:
    for value, none in ((64, 1), (40, 0)):
        out = simulate(_voting(value=value)).outputs["out"]
        np.testing.assert_array_equal(out, np.full(64, none))
    assert check(_voting()).verdict == "proved"
    (finding,) = check(_voting(warps=1)).findings
    assert finding.rule == "deadlock"
    assert "barrier 3 round 0: 32 of 64 threads" in str(finding)


@pytest.mark.parametrize("build", [_handover, _meeting, _voting])
def test_they_are_printed_parsed_and_documented(family: Family, build: Any) -> None:
    program: Program = build()
    text = to_text(program)
    assert parse(text) == program
    assert "k.door." in builder_code(program)
    assert "| `k.door.knock(mbar, pairs, *, bytes=0)` | `mbarrier.knock.{sem}" in page()


def test_they_are_emitted_as_they_are_spelled(family: Family) -> None:
    text = emit(_handover()).text
    assert "mbarrier.knock.release.shared::cta.b64 _, [%0], %1, %2;" in text
    # a token has 64 bits, as an arrive gives it
    assert "u64 token" in emit(_meeting()).text
    assert "barrier.none.sync.pred p0, " in emit(_voting()).text


HEAD = (
    ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n"
    ".visible .entry k()\n{\n.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p0, %r2, 0; setp.lt.u32 %p1, %r2, 3;\n"
    "shr.u32 %r3, %r2, 5; setp.ne.u32 %p2, %r3, 0;\n"
)
#: the lines of the bodies below begin here
FIRST = 10
KNOCKING = (
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], 6;\nbar.sync 0;\n@%p2 bra TAKER;\n"
    "@%p1 mbarrier.knock.release.shared::cta.b64 _, [%r1], {pairs}, 0;\nret;\n"
    "TAKER: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0;\n@!%p3 bra TAKER;\n"
)
MEETING = (
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], {expected};\nbar.sync 0;\n"
    "mbarrier.meet.shared.b64 %rd1, [%r1];\nmbarrier.meet.shared.b64 %rd1, [%r1];\n"
)
VOTING = "{guard} barrier.none.sync.pred %p3, 3, !%p0;\n"


def _read(body: str) -> Mir:
    """A kernel of two warps in PTX."""
    module = read(f"{HEAD}{body}ret; }}\n", "k.ptx")
    launch = Launch("k", (1, 1, 1), (64, 1, 1), dynamic_shared=128)
    return lower(module, module.entries[0], launch)


@pytest.mark.parametrize(
    ("right", "wrong", "rule", "line"),
    [
        (KNOCKING.format(pairs=1), KNOCKING.format(pairs=2), "over-arrival", 3),
        (MEETING.format(expected=64), MEETING.format(expected=96), "deadlock", 2),
        (VOTING.format(guard=""), VOTING.format(guard="@!%p2 bar.sync 0;\n@%p2"), "deadlock", 1),
    ],
)
def test_they_are_read_from_ptx(
    family: Family, right: str, wrong: str, rule: str, line: int
) -> None:
    assert check(_read(right)).verdict == "proved"
    (finding,) = check(_read(wrong)).findings
    assert finding.rule == rule
    assert FIRST + line in {p.loc.line for p in finding.participants}


def test_they_are_exported_from_their_effects(family: Family) -> None:
    assert "credit(at, 6, 0)" in to_promela(_handover())
    meeting = to_promela(_meeting())
    assert "v_token = phase[at]; credit(at, 32, 0)" in meeting
    assert "assert(phase[" in meeting
    assert "join(at, 0, 1, 2, 1, 1, 1)" in to_promela(_voting())


def test_they_are_mutated(family: Family) -> None:
    dropped, doubled = mutants(_handover(), ["arrive dropped", "arrive duplicated"])
    assert (dropped.what, doubled.what) == ("mbarrier.knock removed", "mbarrier.knock repeated")
    with pytest.raises(InvalidProgram, match="no instruction of the kernel arrives on full"):
        check(dropped.program)
    # the second round completes the phase after the one that is waited for
    assert check(doubled.program).findings[0].rule == "deadlock"
