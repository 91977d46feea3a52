"""Who could release whom: from blocked warps to the warps that still come to what wakes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.registers import RegisterPool
from tilesim.sim.machine.tmem import Tmem, TmemPool
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.sim.prospect import TAKES, Bytes, Prospects


def state_of(warp: Agent, cta: int | None = None) -> str:
    """What ``warp`` is doing: has exited, waits (for what, where), or is running; in a text that
    speaks of one ``cta``, or of none."""
    if warp.exited:
        return "has exited"
    if warp.blocked is not None:
        return f"{warp.blocked.seen_from(cta)} at {warp.blocked.loc}"
    return "is running"


class WaitFor:
    """Who could release whom: from blocked warps to those that still come to an instruction which
    counts for what they wait for (`tilesim.sim.prospect`)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.prospects = Prospects(machine)
        self._known: dict[Agent, list[tuple[Agent, Op]]] = {}

    def suppliers(self, warp: Agent) -> list[tuple[Agent, Op]]:
        """Other live warps that could release ``warp``, each with the first such instruction."""
        known = self._known.get(warp)
        if known is None:
            known = self._known[warp] = self._suppliers(warp)
        return known

    def _suppliers(self, warp: Agent, *, again: bool = False) -> list[tuple[Agent, Op]]:
        """``again``: also who has made the same contribution to the open phase already, and would
        make the next one."""
        on = warp.blocked.on if warp.blocked else None
        match on:
            case Mbarrier():
                bytes_, credits = not on.pending, on.current.credits
                what = {Bytes(on) if bytes_ else on}
                made = {
                    (c.warp, c.op.number) for c in credits if (c.tx < 0 if bytes_ else c.arrivals)
                }
                return [*self._coming(warp, what, set() if again else made)]
            case NamedBarrier():
                joined = {(j.warp, None) for j in on.current.joins}
                return [*self._coming(warp, {on}, joined)]
            case Warpgroup():
                assert warp.blocked is not None
                assert warp.blocked.op is not None
                late = [w for w in on.missing(warp, 0) if not w.exited]
                return [(w, warp.blocked.op) for w in late]
            case RegisterPool():
                # who takes registers before it gives some gives back what it has taken, and so do
                # the others of the warpgroup, which take theirs together (E15)
                return [
                    (other, op)
                    for other, op in self._coming(warp, {fx.Registers, TAKES}, set())
                    if other.number // 4 != warp.number // 4
                    and any(isinstance(e, fx.Registers) and not e.increase for e in op.effects())
                ]
            case TmemPool():
                return [*self._coming(warp, {fx.FreesTmem}, set())]
            case Tmem():
                return [*self._coming(warp, {fx.FreesTmem, fx.AllocatesTmem}, set())]
            case _:
                return []

    def _coming(
        self, warp: Agent, what: Set[object], but: Set[tuple[Agent, int | None]]
    ) -> Iterator[tuple[Agent, Op]]:
        """The first instruction of each other warp that acts on one of ``what``, ``but`` for some
        (None: all of a warp's)."""
        for other in self.near(warp, own=fx.Registers in what):
            if other is warp or (other, None) in but:
                continue
            for coming in self.prospects.of(other):
                if not coming.on.isdisjoint(what) and (other, coming.op.number) not in but:
                    yield other, coming.op
                    break

    def near(self, warp: Agent, *, own: bool = False) -> Iterator[Agent]:
        """The agents of the warp's cluster; ``own``: of its CTA."""
        home = self._machine.ctas[warp.cta.index]
        for cta in [home] if own else home.cluster.ctas:
            yield from cta.warps
        for fork in self._machine.forks:
            if fork.cta is home or (not own and fork.cta.cluster is home.cluster):
                yield fork

    def can_release(self, runner: Agent, waiter: Agent) -> bool:
        """True if ``runner``, which still runs, might release ``waiter`` directly or not."""
        seen: set[Agent] = set()
        todo = [waiter]
        while todo:
            current = todo.pop()
            for other, _ in self._suppliers(current, again=True):
                if other is runner:
                    return True
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return False

    def cycle(self, blocked: Sequence[Agent]) -> list[Agent]:
        """A shortest cycle of waiting warps through the first of them that is in one, or an empty
        list: each could be released by the next one alone, or by others that wait as well."""
        stuck = set(blocked)
        for start in blocked:
            before: dict[Agent, Agent] = {}
            todo = deque([start])
            while todo:
                current = todo.popleft()
                for other, _ in self.suppliers(current):
                    if other is start:
                        return _path(before, current)
                    if other in stuck and other not in before:
                        before[other] = current
                        todo.append(other)
        return []


def _path(before: dict[Agent, Agent], last: Agent) -> list[Agent]:
    """From where a search began to ``last``."""
    path = [last]
    while path[-1] in before:
        path.append(before[path[-1]])
    return path[::-1]
