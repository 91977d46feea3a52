"""Rules for instructions that compute registers, and for lanes of a warp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.ir.expr import Const, Special
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.ops.hints import ReadClock
from tilesim.ir.ops.scalar import Assign, Shuffle
from tilesim.ir.ops.warp import ActiveMask, Ballot, VoteSync
from tilesim.ptx import flat
from tilesim.ptx.arithmetic import operation
from tilesim.ptx.compute import Compute, Data, Pack, Unpack
from tilesim.ptx.constants import registers
from tilesim.ptx.expressions import expressions
from tilesim.ptx.flat import Both, Flat, Items, Nothing, Register, Step
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.syntax import WIDTH

_FULL = 0xFFFFFFFF
_CLOCKS = {"clock": "clock", "clock64": "clock64", "globaltimer": "globaltimer"}


def compute(low: Lowering, step: Step) -> Iterator[Op]:
    """An instruction whose operation is known."""
    found = operation(step.opcode)
    assert found is not None
    results = _results(step.operands[0])
    sources = step.operands[1:]
    if len(sources) != len(found.sources):
        raise low.unsupported(f"{len(sources)} operands where {len(found.sources)} are known")
    values = tuple(low.value(o, w) for o, w in zip(sources, found.sources, strict=True))
    kept = tuple(low.register(r) for r in results)
    narrow = all(low.fits(o, w) for o, w in zip(sources, found.sources, strict=True))
    simple = expressions(found, values) if narrow else None
    if simple is not None and (len(kept) == 1 or not low.reads(kept, values)):
        for var, value in zip(kept, simple, strict=False):
            yield Assign(var=var, value=value, loc=low.loc)
        return
    yield Compute(opcode=step.opcode, results=kept, sources=values, loc=low.loc)


def _results(operand: Flat) -> tuple[Flat, ...]:
    return (operand.first, operand.second) if isinstance(operand, Both) else (operand,)


def data(low: Lowering, step: Step) -> Iterator[Op]:
    """An instruction that computes with elements."""
    results = tuple(low.register(r) for r in registers(step.operands[0]))
    sources = tuple(
        low.value(r) for operand in step.operands[1:] for r in registers(operand)
    )  # fmt: skip
    yield Data(opcode=step.opcode, results=results, sources=sources, loc=low.loc)


@rule("mov")
def _move(low: Lowering, step: Step) -> Iterator[Op]:
    target, source = step.operands
    width = WIDTH.get(step.qualifiers[-1], 0)
    match target, source:
        case Items(items), _:
            part = width // len(items)
            wanted = [(k, low.register(r)) for k, r in enumerate(items) if r != Nothing()]
            yield Unpack(
                results=tuple(var for _, var in wanted), value=low.value(source, width), width=part,
                places=tuple(k for k, _ in wanted), loc=low.loc,
            )  # fmt: skip
        case _, Items(items):
            part = width // len(items)
            values = tuple(low.value(item, part) for item in items)
            yield Pack(result=low.register(target), items=values, width=part, loc=low.loc)
        case _, flat.Special("clock" | "clock64" | "globaltimer" as name):
            yield ReadClock(result=low.register(target), register=name, loc=low.loc)
        case _:
            yield Assign(var=low.register(target), value=low.value(source, width), loc=low.loc)


@rule("elect.sync")
def _elect(low: Lowering, step: Step) -> Iterator[Op]:
    target, mask = step.operands
    if not isinstance(target, Both):
        raise low.unsupported("elect.sync sets a lane and a predicate")
    lanes = low.constant(mask, "the mask") & _FULL
    if target.first != Nothing():
        number = low.register(target.first)  # which lane it is, nobody promises
        yield Data(opcode="elect.sync", results=(number,), sources=(), loc=low.loc)
    yield ElectSync(result=low.register(target.second), mask=lanes, warp_sync=False, loc=low.loc)


@rule("bar.warp.sync")
def _sync_warp(low: Lowering, step: Step) -> Iterator[Op]:
    yield SyncWarp(mask=low.constant(step.operands[0], "the mask") & _FULL, loc=low.loc)


@rule("shfl.sync")
def _shuffle(low: Lowering, step: Step) -> Iterator[Op]:
    mode = step.qualifiers[1]
    target, value, lane, clamp, mask = step.operands
    if low.constant(mask, "the mask") & _FULL != _FULL:
        raise low.unsupported("a shuffle of some lanes is not modelled")
    wanted = 0 if mode == "up" else 31
    if low.constant(clamp, "the clamp") != wanted:
        raise low.unsupported("a shuffle within parts of a warp is not modelled")
    first, second = (target.first, target.second) if isinstance(target, Both) else (target, None)
    if mode not in ("idx", "up", "down", "bfly"):
        raise low.unsupported("this mode is not known")
    yield Shuffle(
        result=low.register(first), value=low.value(value, 32), mode=_MODES[mode],
        lane=low.value(lane, 32), loc=low.loc,
    )  # fmt: skip
    if isinstance(second, Register):
        inside = {"idx": Const(1), "bfly": Const(1)}.get(mode)
        if inside is None:
            moved = low.value(lane, 32)
            there = Special("lane_id") + moved if mode == "down" else Special("lane_id") - moved
            condition = there <= 31 if mode == "down" else there >= 0
            yield Assign(var=low.register(second), value=condition, loc=low.loc)
        else:
            yield Assign(var=low.register(second), value=inside, loc=low.loc)


_MODES: dict[str, Literal["idx", "up", "down", "bfly"]] = {
    "idx": "idx",
    "up": "up",
    "down": "down",
    "bfly": "bfly",
}


@rule("vote.sync")
def _vote(low: Lowering, step: Step) -> Iterator[Op]:
    mode = step.qualifiers[1]
    target, predicate, mask = step.operands
    result, value, lanes = low.register(target), low.value(predicate, 1), low.value(mask, 32)
    if mode == "ballot":
        yield Ballot(result=result, predicate=value, mask=lanes, loc=low.loc)
    elif mode == "all":
        yield VoteSync(result=result, predicate=value, mode="all", mask=lanes, loc=low.loc)
    elif mode == "any":
        yield VoteSync(result=result, predicate=value, mode="any", mask=lanes, loc=low.loc)
    elif mode == "uni":
        yield VoteSync(result=result, predicate=value, mode="uni", mask=lanes, loc=low.loc)
    else:
        raise low.unsupported("this vote is not modelled")


@rule("activemask")
def _active(low: Lowering, step: Step) -> Iterator[Op]:
    yield ActiveMask(result=low.register(step.operands[0]), loc=low.loc)
