"""Reads of bytes that nothing has written, and whether they reach the results of a kernel.

The bytes are of shared memory, or of a thread's own; reads and reductions carry what they hold on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.taint import Dataflow
from tilesim.arith.types import numpy_dtype
from tilesim.findings.finding import Deed, Finding
from tilesim.ir.effects import Defines, RemoteStore, Writes, WritesMap
from tilesim.ir.program import Program
from tilesim.records import dataclass
from tilesim.sim.machine.schedule import Answers
from tilesim.sim.machine.unknown import require_known

if TYPE_CHECKING:
    from collections.abc import Container

    from tilesim.ir.op import Op
    from tilesim.sim.machine.footprint import Access, Footprint
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import Memory
    from tilesim.sim.machine.warp import Agent


@dataclass(frozen=True, slots=True)
class _Early:
    """An access of bytes that nothing had written; ``in_part``: some of the others had been;
    ``reduces``: it is a reduction of a tile."""

    memory: Memory
    footprint: Footprint
    warp: Agent
    op: Op
    in_part: bool
    reduces: bool
    #: the write that has left nothing there, if one has
    lost: Access | None = None


def is_written(memory: Memory, footprint: Footprint) -> bool:
    """False for bytes that nothing has written, of a memory that begins empty."""
    if not memory.begins_empty or not memory.tracked or footprint.initialised:
        return True
    return memory.table.is_initialised(footprint)


def _on_its_way(memory: Memory, footprint: Footprint, access: Access) -> bool:
    """Whether lanes that read what each has for itself have stored it where data has led them."""
    region = access.warp.havoc_region
    own = set() if region is None else region.own & {*footprint.overlaps}
    return memory.private and bool(own) and memory.table.is_initialised(footprint, own)


class Unwritten:
    """The accesses of one machine that came before anything wrote their bytes."""

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        #: by line and tensor, the first one
        self._early: dict[tuple[object, ...], _Early] = {}
        #: warps, and the instructions by which they made them
        self._made: set[tuple[Agent, int]] = set()

    @property
    def footprints(self) -> Iterator[Footprint]:
        """Of what is to be reported."""
        return (early.footprint for early in self._early.values())

    def note(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """An access goes on from what is in memory; nothing may have written it."""
        if not is_written(memory, footprint) and not _on_its_way(memory, footprint, access):
            require_known(access.may_access, memory.table.may_be_written(footprint))
            reduces = access.write and access.asynchronous
            self._made.add((access.warp.origin, access.op.number))
            key = (access.op.loc, footprint.tensor)
            if key not in self._early:
                in_part = any(other.initialised for other in footprint.overlaps)
                early = _Early(memory, footprint, access.warp, access.op, in_part, reduces)
                self._early[key] = early

    def note_lost(
        self, memory: Memory, footprint: Footprint, access: Access, losing: Container[int]
    ) -> None:
        """An access reads global memory; one of the ``losing`` instructions may have left there
        nothing that is to be read. Where others have written some of the bytes as well, nothing is
        said: what of that came later is not kept."""
        last = [record for other in footprint.overlaps for record in other.writes]
        if last and all(record.op.number in losing for record in last):
            require_known(
                access.may_access, next((r.may_access for r in last if r.may_access), None)
            )
            key = (access.op.loc, footprint.tensor)
            early = _Early(memory, footprint, access.warp, access.op, False, False, last[0])
            self._early.setdefault(key, early)

    def has_read(self, warp: Agent, numbers: Iterable[int]) -> bool:
        """Whether a warp has taken what nothing had written, by one of these instructions."""
        return bool(self._made) and any((warp.origin, n) in self._made for n in numbers)

    def report(self, raced: Container[Footprint]) -> None:
        """At the end of a run: what has been noted, but of bytes that are in a race."""
        for early in self._early.values():
            if not any(footprint in raced for footprint in early.footprint.overlaps):
                self._report(early)

    def _report(self, early: _Early) -> None:
        """Where a tile is filled in part, the rest may be rows that are not used: for the
        simulation to find out."""
        machine, memory, footprint = self._machine, early.memory, early.footprint
        warp, op = early.warp, early.op
        deed = Deed("reads", footprint.named)
        reader = machine.participant(warp, f"reads {footprint.name} by {op.mnemonic}", op, deed)
        if early.lost is not None:
            by = early.lost
            machine.add(Finding(
                "uninitialised-read",
                f"{warp} reads {footprint.name} ({memory.label}), whose bytes {by.op.mnemonic} has "
                "discarded: their contents are unknown from then on",
                (reader, machine.participant(by.warp, f"discards it by {by.op.mnemonic}", by.op)),
                fix="write it again before it is read, or discard it after the last read",
            ))  # fmt: skip
            return
        finding = Finding(
            "uninitialised-read",
            f"{warp} reads {footprint.name} ({memory.label}) before anything wrote it",
            (reader,),
            fix="write it first, or wait for the copy that fills it",
        )
        used = any(
            isinstance(e, Defines)
            or (isinstance(e, Writes | RemoteStore) and e.combine is not None)
            for e in op.effects()
        )
        partly = early.reduces and early.in_part
        if not partly and (footprint.tensor not in memory.table.written or used):
            machine.add(finding)
        elif machine.plan.graph.mir.computed or not _goes_on(op):
            machine.outcome.unfilled.append(finding)
        elif early.in_part:
            what = f"what {op.mnemonic} makes of bytes of {footprint.name} that nothing has written"
            machine.nondeterministic(what, op, explorable=False)
        else:
            machine.add(finding)


def _goes_on(op: Op) -> bool:
    """Whether what an instruction makes of its operand stays in the CTA or its cluster, where
    numbers that are not computed may be made of it."""
    return not any(
        isinstance(e, WritesMap) or (isinstance(e, Writes) and e.view.space == "global")
        for e in op.effects()
    )


# ------------------------------------------------------- whether initial contents reach the results


Inputs: TypeAlias = Mapping[str, NDArray[Any]]
#: what a group of clusters leaves in global memory if shared memory starts with a byte, the group
#: and the inputs and answers are these; None if the run fails
Results: TypeAlias = Callable[[int, int, Inputs, "Answers | None"], "dict[str, bytes] | None"]

#: zeros, and bytes that are no number in every floating-point type
_FILLS = (0x00, 0xFF)


class Garbage:
    """Compares runs of one program that start with different bytes in shared memory.

    Rows of a tile that a kernel neither fills nor stores are read by instructions that take whole
    tiles. That is no mistake if what is stored does not depend on them.
    """

    def __init__(self, program: Program, flow: Dataflow, results: Results) -> None:
        self._program = program
        self._flow = flow
        self._results = results
        self._known: dict[tuple[int, str], bool] = {}

    def is_hidden(self, group: int, inputs: Inputs, answers: Answers | None) -> bool:
        """Whether a group of clusters leaves the same bytes in global memory, whatever it starts
        with. Tensors that are not among the ``inputs`` and do not steer hold other than zeros."""
        key = (group, repr(answers))
        if key not in self._known:
            chosen = {**self._numbers(), **inputs}
            first, second = (self._results(fill, group, chosen, answers) for fill in _FILLS)
            self._known[key] = first is not None and first == second
        return self._known[key]

    def _numbers(self) -> dict[str, NDArray[Any]]:
        flow, rng = self._flow, np.random.default_rng(0)
        return {
            t.name: rng.integers(1, 4, t.shape).astype(numpy_dtype(t.dtype))
            for t in self._program.tensors
            if t.name not in flow.steering and t.name not in flow.addressing
        }
