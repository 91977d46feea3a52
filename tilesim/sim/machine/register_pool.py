"""The register pool of a CTA behind setmaxnreg (SEMANTICS E.3).

PTX speaks of one pool per CTA. Registers lie in the four partitions of an SM, and a warp runs on
one of them, by its number modulo 4. An H200 grants a setmaxnreg.inc of what the warps of its
partition have given back, whatever others have: 12 warps that asked for 240 registers got none
although the CTA had enough for three (docs/gpu-results.md). So the pool has a part for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.executing_warps import executing
from tilesim.ir.effects import Registers
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.warp import Awaited

if TYPE_CHECKING:
    from tilesim.ir.mir import Mir
    from tilesim.sim.machine.warp import Agent

#: of an SM: warp n of a CTA runs on partition n % 4, from the registers of which it takes
PARTITIONS = 4
#: registers are allocated per thread in units of 8 (I2)
_UNIT = 8
_MAX_PER_THREAD = 255
#: a warp that hears of no setmaxnreg keeps all of them under observation: so many
_MAX_GRANTS = 512


def partition_of(warp: Agent) -> int:
    """The partition of the SM on which a warp runs."""
    return warp.number % PARTITIONS


def launch_registers(mir: Mir) -> int:
    """Registers per thread at launch: as declared, else the most one CTA per SM can have.

    ptxas decides what was not declared: not more than the first setmaxnreg.inc of a warp asks for,
    which may not lower the count (E13).
    """
    program = mir.kernel
    if program.registers is not None:
        return program.registers
    share = program.target.registers // (32 * program.warps)
    most = min(share, _MAX_PER_THREAD) // _UNIT * _UNIT
    if not any(isinstance(e, Registers) for effects in mir.effects for e in effects):
        return most
    first = (change for warp in range(program.warps) for change in _first_counts(mir, warp))
    return min([most, *(change.count for change in first if change.increase)])


def _first_counts(mir: Mir, warp: int) -> Iterator[Registers]:
    """Every setmaxnreg that may be the first of a warp."""
    graph, warps = graph_of(mir), executing(mir)
    seen, new = {0}, [0]
    while new:
        block = new.pop()
        for number in graph.blocks[block]:
            if warp not in warps[number]:
                break
            changes = [e for e in mir.effects[number] if isinstance(e, Registers)]
            yield from changes
            if changes and mir.code[number].guard is None:
                break
        else:
            new += (after for after in graph.successors[block] if after not in seen)
            seen.update(graph.successors[block])


@dataclass(frozen=True, slots=True)
class Change:
    """What an instruction does to the registers of a thread: ``setmaxnreg.dec 40``."""

    op: Op
    count: int
    increase: bool

    @property
    def name(self) -> str:
        """Without the count."""
        return f"{self.op.mnemonic}.{self._form}"

    @property
    def _form(self) -> str:
        return "inc" if self.increase else "dec"

    @property
    def short(self) -> str:
        """Without the mnemonic: ``.dec 40``."""
        return f".{self._form} {self.count}"

    def __str__(self) -> str:
        return f"{self.name} {self.count}"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change that ``warp`` has executed, at its position: what knows that comes after it."""

    warp: Agent
    change: Change
    component: int
    tick: int


@dataclass(slots=True)
class _Others:
    """What one warp gives and takes beside a grant: the sum so far, and the least one it may have
    come to where something keeps it from going on."""

    balance: int = 0
    least: int | None = None

    def may_stop(self) -> None:
        """The warp may get no further than this."""
        self.least = self.balance if self.least is None else min(self.least, self.balance)

    @property
    def worst(self) -> int:
        """The least sum; the warp may also get to its end."""
        return self.balance if self.least is None else min(self.least, self.balance)


class _Grant:
    """An .inc that was granted, and what the run did later that need not come after it.

    ``spare``: how many registers the pool had beyond those it took. Suppose that in another
    schedule some .inc are blocked for ever, and of these the run granted this one first. All that
    the run gave and took before it has then happened as well. Of ``others`` a warp has got to an
    .inc, or to something that comes after another's .inc, or to its end. So if the pool cannot
    have become smaller than ``spare`` allows, the .inc is granted after all.
    """

    def __init__(self, warp: Agent, op: Op, spare: int) -> None:
        self.op = op
        self._partition = partition_of(warp)
        self._component, self._tick = warp.component, warp.moment
        self._spare = spare
        self._others: dict[Agent, _Others] = {}
        #: the position of each .inc of the others
        self._taken: list[tuple[int, int]] = []

    def known_to(self, warp: Agent) -> bool:
        """True if what ``warp`` does comes after it in every schedule."""
        return bool(warp.clock[self._component] >= self._tick)

    def note(self, warp: Agent, registers: int) -> None:
        """``warp``, to which it is not known, gives registers, or takes a negative number."""
        others = self._others.setdefault(warp, _Others())
        own, here = warp.component, partition_of(warp) == self._partition
        if registers < 0:
            others.may_stop()
            self._taken.append((own, warp.moment))
        elif any(warp.clock[c] >= tick for c, tick in self._taken if c != own):
            others.may_stop()
        others.balance += registers if here else 0

    @property
    def certain(self) -> bool:
        """True if it is granted in every schedule."""
        return self._spare + sum(others.worst for others in self._others.values()) >= 0


class RegisterPool(Awaited):
    """Registers given back by setmaxnreg.dec and not yet taken by .inc (E14: starts empty).

    Which warp comes first may decide whether an .inc is granted at all (E18). Those for which it
    does not are told from one run (`_Grant`); if all are, no schedule blocks one for ever.
    """

    def __init__(self, mir: Mir, warps: Sequence[Agent]) -> None:
        super().__init__()
        self._mir = mir
        self._warps = warps
        self._free = [0] * PARTITIONS
        self._grants: list[_Grant] = []
        #: an .inc that may be blocked for ever in another schedule
        self._doubtful: Op | None = None

    @cached_property
    def launch(self) -> int:
        """Registers per thread before the first setmaxnreg."""
        return launch_registers(self._mir)

    def free(self, warp: Agent) -> int:
        """The registers that a warp can take."""
        return self._free[partition_of(warp)]

    def give(self, warp: Agent, registers: int) -> None:
        """A .dec by ``warp`` returns ``registers`` (of a whole warp) to the pool."""
        self._free[partition_of(warp)] += registers
        self._note(warp, registers)

    def take(self, warp: Agent, op: Op, registers: int) -> bool:
        """An .inc by ``warp`` takes ``registers`` from the pool; False if it has too few."""
        if registers > self.free(warp):
            return False
        self._free[partition_of(warp)] -= registers
        if registers:
            self._note(warp, -registers)
            self._grants.append(_Grant(warp, op, self.free(warp)))
        return True

    @property
    def doubtful(self) -> Op | None:
        """An .inc that some schedule may not grant, at the end of a run; None if there is none."""
        if self._doubtful is None:
            self._doubtful = next((g.op for g in self._grants if not g.certain), None)
        return self._doubtful

    def _note(self, warp: Agent, registers: int) -> None:
        kept = []
        for grant in self._grants:
            if not grant.known_to(warp):
                grant.note(warp, registers)
            elif all(w.exited or grant.known_to(w) for w in self._warps):
                if self._doubtful is None and not grant.certain:
                    self._doubtful = grant.op
                continue
            kept.append(grant)
        if len(kept) > _MAX_GRANTS:
            self._doubtful = self._doubtful or kept.pop(0).op
        self._grants = kept
