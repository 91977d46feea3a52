"""Accesses that are made for the sake of what they may race with (`tilesim.sim.perhaps`).

Nobody knows where they are made, or, of a reduction, whether: then nobody may learn from it either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from tilesim.analysis.uses_defs import registers_set
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.scalars import word_access
from tilesim.sim.execute.compose import Operands
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.addressed import AddressedAccess
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import ViewAccess
from tilesim.sim.machine.unknown import Unknown, UnknownSteers, require_known
from tilesim.sim.perhaps import may_be_made


@dataclass(frozen=True)
class _Place:
    """One access of an instruction."""

    view: ViewAccess
    write: bool
    scope: FenceScope | None

    def address(self, w: Warp) -> Unknown | None:
        """The address, if nobody knows it."""
        return self.view.lost(w) if isinstance(self.view, AddressedAccess) else None


class Anywhere:
    """An instruction of which nobody knows where it accesses memory, or whether it does."""

    def __init__(self, c: Operands, op: Op) -> None:
        self._operands, self._op = c, op
        word = word_access(op.effects())
        #: whether it reads and writes in one step
        self.reduces = word is not None and word.combine is not None

    @cached_property
    def _places(self) -> tuple[_Place, ...]:
        kinds = fx.Writes if self.reduces else fx.Reads | fx.Writes
        return tuple(
            _Place(
                self._operands.view(e.view), isinstance(e, fx.Writes),
                None if e.sem == "weak" else e.scope,
            )
            for e in self._op.effects() if isinstance(e, kinds)
        )  # fmt: skip

    def lost(self, w: Warp) -> Unknown | None:
        """An address that nobody knows, if it has one."""
        return next((a for a in (p.address(w) for p in self._places) if a is not None), None)

    def access(self, w: Warp) -> None:
        """Made where it may be made: what it leaves, in memory and in registers, nobody knows.

        Raises:
            UnknownSteers: that has to be known.
        """
        value = w.perhaps
        assert value is not None
        for place in self._places:
            self._touch(w, place, value)
        for var in registers_set(self._op):
            w.registers[self._operands.slot(var)] = value

    def _touch(self, w: Warp, place: _Place, value: Unknown) -> None:
        address, among = place.address(w), w.mask
        if address is None:
            # lanes that name several memories end it, as what is done wrong does (`may_be_made`)
            memory, footprint, _ = place.view.lane_footprint(w)
        else:
            assert isinstance(place.view, AddressedAccess)
            w.machine.outcome.in_bounds[address.source] = None
            w.machine.irregular += 1
            memory, among = place.view.memory_at(w, address), EVERY
            footprint = place.view.whole(w, memory)
            if memory.label in w.machine.plan.of_threads:
                if place.write:
                    w.perhaps_written.append((footprint, partial(memory.forget, footprint)))
                return
            if place.write and place.scope is None and w.lanes > 1:
                if w.machine.options.ptx:
                    require_known(value)
                w.machine.lean("H23", self._op)
        if place.scope is not None and not w.machine.timed:
            require_known(value)  # of several orders each has to be seen
        access = Access(
            w, self._op, w.component, w.tick, False, place.write, place.scope,
            lanes=w.mask, among=among,
        )  # fmt: skip
        check = w.machine.races.write if place.write else w.machine.races.read
        check(memory, footprint, access, w.clock)
        if place.write:
            w.effects += 1
            w.machine.changed()


def where_nobody_knows(step: Step, anywhere: Anywhere) -> Step:
    """``step`` of an instruction that accesses memory; ``anywhere``: what it is if nobody knows
    where, or whether it is made and others could learn from it."""

    def run(w: Warp) -> bool | None:
        if w.perhaps is not None and anywhere.reduces:
            anywhere.access(w)
            return None
        try:
            return step(w)
        except UnknownSteers:
            address = anywhere.lost(w)
            if address is None:
                raise
            may_be_made(w, address, partial(anywhere.access, w))
            return None

    return run
