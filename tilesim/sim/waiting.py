"""Who could release whom: from blocked warps to the warps whose code can wake them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.memory import Mbarriers
from tilesim.ir.op import Op
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.registers import RegisterPool
from tilesim.sim.machine.tmem import Tmem, TmemPool
from tilesim.sim.machine.warpgroup import Warpgroup


def names_of(warps: Sequence[Agent]) -> str:
    """``consumer (warps 0-3)``: several warps of one role in one CTA."""
    if len(warps) == 1:
        return str(warps[0])
    first = warps[0]
    numbers = [w.number for w in warps]
    contiguous = numbers == list(range(numbers[0], numbers[-1] + 1))
    text = f"{numbers[0]}-{numbers[-1]}" if contiguous else ", ".join(map(str, numbers))
    place = f"CTA {first.cta.number} " if first.machine.program.ctas > 1 else ""
    plain = first.role == f"warp {first.number}"
    return f"{place}warps {text}" if plain else f"{first.role} ({place}warps {text})"


def state_of(warp: Agent) -> str:
    """What ``warp`` is doing: has exited, waits (for what, where), or is running."""
    if warp.exited:
        return "has exited"
    if warp.blocked is not None:
        return f"{warp.blocked.text} at {warp.blocked.loc}"
    return "is running"


class Supplier(NamedTuple):
    """An instruction that can release a waiter: who executes it, and whether it reaches peers."""

    op: Op
    warps: frozenset[int]
    remote: bool = False


class WaitFor:
    """Who could release whom: from blocked warps to the warps whose code arrives on what they
    wait for (an over-approximation by barrier array, role and CTA)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._arrivals: dict[Mbarriers | AddressedMbarriers, list[Supplier]] = {}
        self._joins: list[Supplier] = []
        self._cluster_joins: list[Supplier] = []
        self._registers: list[Supplier] = []
        self._frees: list[Supplier] = []
        self._allocates: list[Supplier] = []
        for instruction in machine.plan.mir.code:
            if isinstance(instruction.what, Op):
                self._note(instruction.what, frozenset(instruction.warps))

    def _note(self, op: Op, warps: frozenset[int]) -> None:
        for effect in op.effects():
            match effect:
                case fx.Arrives(mbar=mbar, multicast=mask):
                    entry = Supplier(op, warps, mbar.remote or mask is not None)
                    self._arrivals.setdefault(mbar.array, []).append(entry)
                case fx.Completes(mbar=mbar, multicast=mask):
                    entry = Supplier(op, warps, mbar.remote or mask is not None)
                    self._arrivals.setdefault(mbar.array, []).append(entry)
                case fx.JoinsCluster(arrives=True):
                    self._cluster_joins.append(Supplier(op, warps, remote=True))
                case fx.JoinsBarrier():
                    self._joins.append(Supplier(op, warps))
                case fx.FreesTmem():
                    self._frees.append(Supplier(op, warps, remote=True))
                case fx.AllocatesTmem():
                    self._allocates.append(Supplier(op, warps, remote=True))
                case fx.Registers(increase=False):
                    self._registers.append(Supplier(op, warps))
                case _:
                    pass

    def suppliers(self, warp: Agent) -> list[tuple[Agent, Op]]:
        """Other live warps that could release ``warp``, each with one such instruction."""
        on = warp.blocked.on if warp.blocked else None
        cta = self._machine.ctas[warp.cta.index]
        arrived: set[Agent] = set()
        match on:
            case Mbarrier():
                candidates = [
                    supplier
                    for array, suppliers in self._arrivals.items() if self._may_be_in(on, array)
                    for supplier in suppliers
                ]  # fmt: skip
                arrived = {c.warp for c in on.current.credits if c.arrivals > 0}
            case NamedBarrier():
                everywhere = on is cta.cluster.barrier
                candidates = self._cluster_joins if everywhere else self._joins
                arrived = {j.warp for j in on.current.joins}
            case Warpgroup():
                assert warp.blocked is not None
                assert warp.blocked.op is not None
                late = [w for w in on.missing(warp, 0) if not w.exited]
                return [(w, warp.blocked.op) for w in late]
            case RegisterPool():
                candidates = self._registers
                arrived = {w for w in cta.warps if w.setmaxnreg_count}
            case TmemPool():
                candidates = self._frees
            case Tmem():
                candidates = [*self._frees, *self._allocates]
            case _:
                return []
        result: dict[Agent, Op] = {}
        for op, numbers, remote in candidates:
            reach = cta.cluster.ctas if remote else [cta]
            for other in (w for place in reach for w in place.warps):
                eligible = other.number in numbers and not other.exited
                if not eligible or other is warp or other in arrived:
                    continue
                known = result.get(other)
                if known is None or (self.ahead(other, op) and not self.ahead(other, known)):
                    result[other] = op
        return list(result.items())

    def _may_be_in(self, barrier: Mbarrier, array: Mbarriers | AddressedMbarriers) -> bool:
        """Whether an instruction that names an array may mean this barrier."""
        if isinstance(array, AddressedMbarriers):
            return True
        first = self._machine.program.placement[array.name]
        return first <= barrier.address < first + array.nbytes

    def ahead(self, warp: Agent, op: Op) -> bool:
        """Whether ``op`` comes after the warp's position in the program."""
        return op.number >= warp.pc

    def can_release(self, runner: Agent, waiter: Agent) -> bool:
        """True if ``runner``, which still runs, might release ``waiter`` directly or not."""
        seen: set[Agent] = set()
        todo = [waiter]
        while todo:
            current = todo.pop()
            for other, _ in self.suppliers(current):
                if other is runner:
                    return True
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return False

    def cycle(self, blocked: Sequence[Agent]) -> list[Agent]:
        """A cycle of waiting warps, or an empty list."""
        stuck = set(blocked)
        for start in blocked:
            path: list[Agent] = []
            position: dict[Agent, int] = {}
            current: Agent | None = start
            while current is not None and current not in position:
                position[current] = len(path)
                path.append(current)
                current = next((w for w, _ in self.suppliers(current) if w in stuck), None)
            if current is not None:
                return path[position[current] :]
        return []
