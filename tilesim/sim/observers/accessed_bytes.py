"""Which bytes of shared memory instructions have accessed, and what can be told from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.taint import Dataflow, at_addresses
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import View
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.memory import Memory
from tilesim.sim.observers.monotone_words import ticket_tensors

if TYPE_CHECKING:
    from tilesim.analysis.pointer_table import Range


def is_asked_for(mir: Mir, *, decided: bool) -> bool:
    """Whether it may matter what shares memory: there are answers of hardware that are loaded, or
    numbers that are drawn; or (``decided``) it is not known that addresses decide nothing."""
    answers = [*mir.all_of(fx.AllocatesTmem), *mir.all_of(fx.Cancels), *ticket_tensors(mir)]
    return (bool(answers) or decided) and any(
        tensor.space != "global" for tensor in at_addresses(mir)
    )


class Accessed:
    """The bytes of shared memory that each instruction of a program has accessed in any run."""

    def __init__(self, mir: Mir) -> None:
        self._mir = mir
        self._ranges: dict[int, set[Range]] = {}
        #: generic accesses to global memory
        self._far: set[int] = set()
        self._seen: set[tuple[int, Footprint]] = set()
        self._graph: FlowGraph | None = None
        self._flow: Dataflow | None = None

    def watch(self, machine: Machine) -> None:
        """Notes what a machine that is going to run accesses."""
        self._seen.clear()
        machine.races.witness = self

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """``access`` to ``footprint`` is made."""
        op = access.op
        key = op.number, footprint
        if key in self._seen:
            return
        self._seen.add(key)
        if memory.mbarriers is None:
            if _is_generic(op) and op.number not in self._far:
                self._far.add(op.number)
                self._graph = self._flow = None
            return
        new = set(footprint.bytes.pairs)
        known = self._ranges.setdefault(op.number, set())
        if not new <= known:
            known |= new
            self._graph = self._flow = None

    @property
    def graph(self) -> FlowGraph:
        """The program, with the parts of shared memory told apart where that can be done."""
        if self._graph is None:
            mir = self._mir
            if self._far.isdisjoint(self._ranges):
                from tilesim.analysis.pointer_table import parts_of_shared, with_shared_parts

                mir = with_shared_parts(mir, parts_of_shared(self._ranges), self._far)
            self._graph = graph_of(mir)
        return self._graph

    @property
    def flow(self) -> Dataflow:
        """What may flow where in it."""
        if self._flow is None:
            self._flow = Dataflow(self.graph)
        return self._flow

    def decided_by_bases(
        self, asked: Mapping[int, int], stays: Mapping[int, Expr]
    ) -> tuple[str, ...] | None:
        """What the address of a declaration may decide in it; None if more would have to be asked
        of shuffles and of addresses than runs have looked at."""
        from tilesim.analysis.pointer_table import located

        found = located(self.graph.mir)
        known = found.lanes.items() <= asked.items() and found.stays.items() <= stays.items()
        return found.reasons if known else None

    def decides(self, number: int) -> bool:
        """Whether what an instruction leaves in shared memory may reach a branch."""
        effects = self.graph.mir.effects[number]
        written = {e.view.tensor.name for e in effects if isinstance(e, fx.Writes)}
        return not written.isdisjoint(self.flow.branching)


def _is_generic(op: Op) -> bool:
    views = (value for value in vars(op).values() if isinstance(value, View))
    return any(isinstance(v.tensor, AddressedTensor) and v.tensor.space == "generic" for v in views)
