"""The work of an SM under measured latencies: when does what its CTAs execute end?

Warps execute their instructions one after the other, and wait for the groups that they waited for
on the machine. What they share serves one after the other: each quarter of an SM its tensor core
and its pipes, the SM its shared memory and its copy engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import prod

from tilesim.ir import effects as fx
from tilesim.ir.declarations import Fragment, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.ir.ops.cluster import ClusterArrive
from tilesim.ir.ops.mbarrier import MbarrierArrive
from tilesim.ir.ops.tile import TileCast, TileFill, TileLoad, TileMap, TileReduce, TileStore
from tilesim.predict.constants import Constants
from tilesim.predict.work import Cluster, Executed
from tilesim.records import dataclass, field

#: an SM has so many quarters, each with a tensor core
QUARTERS = 4
_TRANSCENDENTAL = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp"})


@dataclass(slots=True)
class Sm:
    """Until when what warps share is taken, and what it has done."""

    tensor: list[float] = field(default_factory=lambda: [0.0] * QUARTERS)
    arithmetic: list[float] = field(default_factory=lambda: [0.0] * QUARTERS)
    special: list[float] = field(default_factory=lambda: [0.0] * QUARTERS)
    shared: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    direct: float = 0.0
    #: cycles in which a quarter's tensor core multiplies, and bytes that copies bring
    multiplied: float = 0.0
    loaded: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """What an SM gets of what all share: cycles per byte that a copy brings, its latency, cycles
    per byte that warps store."""

    per_byte: float
    latency: float
    per_stored: float


@dataclass(slots=True)
class Agent:
    """A warp of a CTA that runs."""

    steps: list[Executed]
    sm: Sm
    quarter: int
    cta: Running
    rank: int
    at: int = 0
    time: float = 0.0
    #: per kind of group: when what was committed is over, and when its source is read
    committed: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    open: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: where a wait began
    waits: bool = False


@dataclass(slots=True)
class Running:
    """A cluster that runs: per group what is missing, when it is complete, which warps sleep."""

    cluster: Cluster
    sms: list[Sm]
    missing: list[int]
    complete: list[float]
    sleepers: dict[int, list[Agent]] = field(default_factory=dict)
    left: int = 0
    end: float = 0.0


#: what an instruction does to the time of the warp that executes it, and to what warps share
Act = Callable[[Agent], None]


class Replay:
    """Runs clusters on as many SMs as a cluster has CTAs."""

    def __init__(self, constants: Constants, share: Share, slots: int) -> None:
        self.constants = constants
        self.share = share
        self.slots = slots
        self._heap: list[tuple[float, int, Agent]] = []
        self._number = 0
        #: by the instructions' numbers
        self._acts: dict[int, Act] = {}

    def run(self, clusters: Sequence[Cluster]) -> tuple[float, list[Sm]]:
        """When the last of these clusters ends, of which ``slots`` run at a time, and the SMs."""
        sms = [Sm() for _ in range(clusters[0].ranks)]
        waiting = list(reversed(clusters))
        end = 0.0
        for _ in range(min(self.slots, len(waiting))):
            self._start(waiting.pop(), sms, 0.0)
        while self._heap:
            _, _, agent = heappop(self._heap)
            if self._advance(agent):
                cta = agent.cta
                cta.left -= 1
                cta.end = max(cta.end, agent.time)
                if not cta.left:
                    end = max(end, cta.end)
                    if waiting:
                        self._start(waiting.pop(), sms, cta.end + self.constants.next_cta)
        return end, sms

    def _start(self, cluster: Cluster, sms: list[Sm], time: float) -> None:
        running = Running(
            cluster, sms, [count for count, _ in cluster.groups], [0.0] * len(cluster.groups)
        )
        for (rank, warp), steps in cluster.warps.items():
            running.left += 1
            self._push(Agent(steps, sms[rank], warp % QUARTERS, running, rank, time=time))

    def _push(self, agent: Agent) -> None:
        self._number += 1
        heappush(self._heap, (agent.time, self._number, agent))

    def _advance(self, agent: Agent) -> bool:
        """Executes until another warp is behind, or the warp sleeps; True: it has ended."""
        steps, acts = agent.steps, self._acts
        while agent.at < len(steps):
            if self._heap and self._heap[0][0] < agent.time:
                self._push(agent)
                return False
            step = steps[agent.at]
            if step.takes and not self._passes(agent, step.takes):
                return False
            act = acts.get(step.op.number)
            if act is None:
                act = acts[step.op.number] = self._act(step.op)
            act(agent)
            if not step.takes:
                for group in step.gives:
                    self._credit(agent, group, agent.time)
            agent.at += 1
            agent.waits = False
        return True

    # ------------------------------------------------------------------ groups

    def _passes(self, agent: Agent, takes: Sequence[int]) -> bool:
        """True if the groups are complete; a warp that joins one has joined it by then."""
        cta = agent.cta
        if not agent.waits:
            step = agent.steps[agent.at]
            for group in step.gives:
                self._credit(agent, group, agent.time)
            agent.waits = True
        for group in takes:
            if cta.missing[group] > 0:
                cta.sleepers.setdefault(group, []).append(agent)
                return False
            if cta.complete[group] > agent.time:
                agent.time = cta.complete[group] + self._woken(agent)
        return True

    def _woken(self, agent: Agent) -> float:
        op = agent.steps[agent.at].op
        return self.constants.wake if any(isinstance(e, fx.Waits) for e in op.effects()) else 0.0

    def _credit(self, agent: Agent, group: int, time: float) -> None:
        """A contribution of a warp, which takes its time to another CTA."""
        cluster = agent.cta.cluster
        far = cluster.ranks > 1 and cluster.groups[group][1] != agent.rank
        self._complete(agent.cta, group, time + (self.constants.far if far else 0.0))

    def _complete(self, cta: Running, group: int, time: float) -> None:
        """A contribution; with the last one the waiting warps go on."""
        cta.missing[group] -= 1
        cta.complete[group] = max(cta.complete[group], time)
        if cta.missing[group] == 0:
            for sleeper in cta.sleepers.pop(group, ()):
                self._push(sleeper)

    # ------------------------------------------------------------------ instructions

    def _act(self, op: Op) -> Act:
        """What an instruction does to the time of its warp."""
        c = self.constants
        for effect in op.effects():
            match effect:
                case fx.Commits(group):
                    return self._commits(group)
                case fx.WaitsGroup(group, pending, read_only):
                    return self._waits_group(group, pending, read_only)
                case fx.Issues(group="wgmma"):
                    return self._multiplies(op)
                case fx.Waits():
                    return self._takes(c.wait)
                case fx.JoinsBarrier():
                    return self._takes(c.barrier)
                case fx.JoinsCluster():
                    return self._takes(c.cluster_barrier)
                case fx.Registers():
                    return self._takes(c.setmaxnreg)
                case _:
                    pass
        if op.engine == "TMA" or any(isinstance(e, fx.Issues) for e in op.effects()):
            return self._copies(op)
        if isinstance(op, MbarrierArrive) and op.sem == "release" and op.scope == "cluster":
            return self._takes(c.release_cluster)
        if isinstance(op, ClusterArrive):
            return self._takes(c.cluster_barrier)
        if any(isinstance(e, fx.Arrives) for e in op.effects()):
            return self._takes(c.arrive)
        if any(isinstance(e, fx.Crosses) for e in op.effects()):
            return self._takes(c.fence)
        if op.mnemonic.startswith("tile."):
            return self._tile(op)
        return self._takes(c.issue)

    def _takes(self, cycles: float) -> Act:
        def act(agent: Agent) -> None:
            agent.time += cycles
            for group in agent.steps[agent.at].issues:
                self._credit(agent, group, agent.time)

        return act

    def _commits(self, kind: str) -> Act:
        cycles = self.constants.issue

        def act(agent: Agent) -> None:
            agent.time += cycles
            before = agent.committed.setdefault(kind, [(0.0, 0.0)])
            now = agent.open.pop(kind, (0.0, 0.0))
            before.append((max(before[-1][0], now[0]), max(before[-1][1], now[1])))

        return act

    def _waits_group(self, kind: str, pending: int, read: bool) -> Act:
        cycles, visible = self.constants.issue, self.constants.mma_wait if kind == "wgmma" else 0.0

        def act(agent: Agent) -> None:
            agent.time += cycles
            done = agent.committed.get(kind, [])
            place = len(done) - 1 - pending
            if place > 0:
                over = done[place][1 if read else 0] + visible
                agent.time = max(agent.time, over)

        return act

    def _multiplies(self, op: Op) -> Act:
        c = self.constants
        product = next(e.product for e in op.effects() if isinstance(e, fx.UsesFragment))
        assert product is not None
        rows, columns, _ = product
        # every wgmma takes 32 bytes of each row of its operands
        operands = sum(isinstance(e, fx.Reads) for e in op.effects())
        nbytes = 32 * (columns + (rows if operands > 1 else 0)) / QUARTERS
        busy, read = columns * c.mma_per_column, nbytes / c.shared

        def act(agent: Agent) -> None:
            sm, quarter = agent.sm, agent.quarter
            agent.time += c.issue
            start = max(agent.time + c.mma_issue, sm.tensor[quarter])
            sm.shared = max(sm.shared, agent.time) + read
            end = max(start + busy, sm.shared)
            sm.tensor[quarter] = end
            sm.multiplied += busy / QUARTERS
            last = agent.open.get("wgmma", (0.0, 0.0))
            agent.open["wgmma"] = (max(last[0], end), max(last[1], end))

        return act

    def _copies(self, op: Op) -> Act:
        """A bulk copy: to this CTA or others, or out of this one."""
        c, share = self.constants, self.share
        nbytes = float(_bytes_of(op))
        store = any(isinstance(e, fx.Issues) for e in op.effects())

        def act(agent: Agent) -> None:
            agent.time += c.copy
            sm = agent.sm
            if store:
                start = max(agent.time, sm.stores)
                sm.shared = max(sm.shared, agent.time) + nbytes / c.shared
                sm.stores = read = start + nbytes / c.store_rate
                last = agent.open.get("bulk", (0.0, 0.0))
                read += c.store_latency
                agent.open["bulk"] = (max(last[0], read + c.load_latency), max(last[1], read))
                return
            groups, issues = agent.cta.cluster.groups, agent.steps[agent.at].issues
            ranks = {groups[g][1] for g in issues} or {agent.rank}
            start = max(agent.time, sm.loads)
            sm.loads = start + nbytes * max(share.per_byte, 1 / c.load_rate)
            end = sm.loads
            for rank in ranks:
                there = agent.cta.sms[rank]
                there.shared = max(there.shared, agent.time) + nbytes / c.shared
                there.loaded += nbytes
                if there is not sm:
                    there.loads = max(there.loads, start) + nbytes / c.load_rate
                    end = max(end, there.loads)
            for group in issues:
                self._complete(agent.cta, group, end + share.latency)

        return act

    # ------------------------------------------------------------------ tiles

    def _tile(self, op: Op) -> Act:
        """What the lanes do to their elements, one after the other on a pipe of their quarter."""
        c = self.constants
        match op:
            case TileStore(dst=view) | TileLoad(src=view):
                return self._moves(op, view)
            case TileMap(op=what, src=tile) if what in _TRANSCENDENTAL:
                return self._on_pipe("special", c.exp * _elements(tile))
            case TileReduce(op=what, src=tile):
                each = c.total if what == "sum" else c.maximum
                row = c.shuffles if op.dst.shape[1] == 1 else 0.0
                return self._on_pipe("arithmetic", each * _elements(tile), row)
            case TileCast(src=tile):
                return self._on_pipe("arithmetic", c.cast * _elements(tile))
            case TileFill(dst=tile):
                return self._on_pipe("arithmetic", c.element * _elements(tile) / 2)
            case _:
                tile = next(e.fragment for e in op.effects() if isinstance(e, fx.UsesFragment))
                return self._on_pipe("arithmetic", c.element * _elements(tile))

    def _on_pipe(self, pipe: str, cycles: float, after: float = 0.0) -> Act:
        after += self.constants.tile

        def act(agent: Agent) -> None:
            free = agent.sm.special if pipe == "special" else agent.sm.arithmetic
            start = max(agent.time, free[agent.quarter])
            free[agent.quarter] = agent.time = start + cycles
            agent.time += after

        return act

    def _moves(self, op: Op, view: View) -> Act:
        """A fragment to or from memory: this warp's part of it."""
        c = self.constants
        whole = next(e.fragment for e in op.effects() if isinstance(e, fx.UsesFragment))
        parts = QUARTERS if whole.split else 1
        nbytes = prod(view.shape) * view.dtype.bytes / parts
        if isinstance(view.tensor, SharedTensor):
            swizzled = view.tensor.swizzle == 128
            cycles = nbytes / (c.shared_stores if swizzled else c.shared_conflicts)

            def store(agent: Agent) -> None:
                agent.sm.shared = agent.time = max(agent.time, agent.sm.shared) + cycles

            return store
        load = isinstance(op, TileLoad)
        latency = c.ld_latency if load else 0.0
        cycles = nbytes * (1 / c.ld_rate if load else self.share.per_stored)

        def move(agent: Agent) -> None:
            agent.sm.direct = agent.time = max(agent.time, agent.sm.direct) + cycles
            agent.time += latency

        return move


def _elements(tile: Fragment) -> float:
    """Elements of a thread."""
    return max(1.0, prod(tile.shape) / tile.threads)


def _bytes_of(op: Op) -> int:
    """What a bulk copy moves."""
    nbytes = getattr(op, "nbytes", None)
    if nbytes is not None:
        return int(nbytes)
    for name in ("src", "dst"):
        view = getattr(op, name, None)
        if isinstance(view, View):
            return prod(view.shape) * view.dtype.bytes
    return 0
