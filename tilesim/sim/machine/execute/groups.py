"""Groups of asynchronous operations: of a thread (SEMANTICS B.6, C4 to C6), of a warpgroup
(F5), of a warp (G28)."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.machine.async_groups import DRAINED
from tilesim.sim.machine.clock import GENERIC, GLOBAL, SHARED
from tilesim.sim.machine.compose import Act, executor
from tilesim.sim.machine.executable import Drained
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.warpgroup import WARPS

#: of a bulk group, what has been read and what has been written is known apart (B31)
_KINDS: dict[str, tuple[str, ...]] = {"bulk": ("bulk", "bulk.write"), "cp.async": ("cp.async",)}

#: loads are in the group of their thread as far as the reading of a tensor map goes (B24)
_MAPS = "bulk.map"


def _kinds(op: Op, group: str) -> tuple[str, ...]:
    if group not in _KINDS:
        raise TypeError(f"{op.mnemonic}: groups of {group} are not those of a thread")
    return _KINDS[group]


@executor(fx.Commits)
def _commits(c: Operands, op: Op, effect: fx.Commits) -> Act:
    if effect.group == "wgmma":
        return Act(_commits_together(op))
    kinds = _kinds(op, effect.group)

    def step(w: Warp) -> None:
        for kind in kinds:
            w.lane_groups[kind].commit_by(w.mask)
        if _MAPS in w.lane_groups and effect.group == "bulk":
            w.lane_groups[_MAPS].commit_by(w.mask)

    return Act(step)


def _commits_together(op: Op) -> Step:
    def step(w: Warp) -> None:
        w.groups["wgmma"].commit()
        w.warpgroup.commit(w, op)

    return step


@executor(fx.WaitsGroup)
def _waits(c: Operands, op: Op, effect: fx.WaitsGroup) -> Act:
    if effect.group == "wgmma":
        return Act(_waits_together(op, effect.pending), blocks=True)
    if effect.group in ("tcgen05.ld", "tcgen05.st"):
        return Act(_waits_of_warp(effect.group))
    kinds, pending = _kinds(op, effect.group), effect.pending
    waited = kinds[:1] if effect.read_only else kinds
    #: after an implicit fence: what copies of the async proxy leave is known to both (B3)
    both = effect.group == "bulk"

    def step(w: Warp) -> bool | None:
        machine = w.machine
        group = w.lane_groups[kinds[0]]
        if both and group.must_wait(w.mask, pending) and machine.sleep_until(w, group.finish):
            return True
        proxies = slice(GENERIC, GLOBAL if both else SHARED)
        maps = (_MAPS,) if both and _MAPS in w.lane_groups else ()
        for kind in (*waited, *maps):
            for component, done in w.lane_groups[kind].wait_by(w.mask, pending):
                w.rows(component)[proxies] = done
            if w.is_divided:
                for component, done in w.lane_groups[kind].waited_partly(w.mask):
                    w.parts.note_waited(w.part, component, done, both=both)
        if not both:
            machine.version += 1
        return None

    return Act(step, blocks=both)


def _waits_together(op: Op, pending: int) -> Step:
    """A wait for products that all four warps have issued, which therefore have committed them."""

    def step(w: Warp) -> bool | None:
        machine, group = w.machine, w.groups["wgmma"]
        if pending < len(group.committed):
            if w.warpgroup.holds_up(w, pending):
                return w.block(w.warpgroup, f"waits for {op.mnemonic}", op)
            if machine.sleep_until(w, group.finish):
                return True
            w.warpgroup.passed(w, pending, op)
        done = group.wait(pending)
        size, clock = machine.components.size, w.clock
        each, own = size + group.component, size + w.warpgroup.waited[w.number % WARPS]
        clock[each] = clock[size + each] = clock[own] = clock[size + own] = done
        return None

    return step


def storing(step: Step, op: Op, drained: Drained) -> Step:
    """The step of an instruction that may store what has been loaded from tensor memory (U33)."""
    if op.number in drained.stored:
        return _draining(step, together=any(isinstance(e, fx.WaitsGroup) for e in op.effects()))
    loads = drained.given.get(op.number)
    return _giving(step, loads) if loads else step


def _draining(step: Step, *, together: bool) -> Step:
    """``step`` stores the last of what the warp has loaded: for what comes after what its lanes
    have stored, its loads are complete. ``together``: it is one act of the warp, so each lane comes
    after what the others have stored."""

    def run(w: Warp) -> bool | None:
        if step(w):
            return True
        if _executed_by_all(w):
            _note_drained(w, together=together)
        return None

    return run


def _giving(step: Step, loads: frozenset[int]) -> Step:
    """Behind ``step`` comes a tcgen05.st of what is made of all that these loads have loaded."""

    def run(w: Warp) -> bool | None:
        assert w.tcgen05 is not None
        if _executed_by_all(w):
            w.tcgen05.given = loads
        return step(w)

    return run


def _note_drained(w: Warp, *, together: bool) -> None:
    group = w.groups[DRAINED]
    group.done = group.opened = w.groups["tcgen05.ld"].opened
    for part in w.acting:
        w.components.rows(part.clock, group.component)[GENERIC] = group.done
        if together:
            part.settled[group.component] = group.done


def _executed_by_all(w: Warp) -> bool:
    return w.mask == FULL and w.may_access is None and w.havoc_region is None


def _waits_of_warp(kind: str) -> Step:
    """A wait for all loads, or all stores, of tensor memory by the warp (G28)."""

    def step(w: Warp) -> None:
        group = w.groups[kind]
        group.done = group.opened
        w.rows(group.component)[GENERIC:GLOBAL] = group.done
        if kind == "tcgen05.ld" and DRAINED in w.groups:
            _note_drained(w, together=True)

    return step
