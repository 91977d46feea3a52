"""Instructions as Promela: one rule per instruction that others can observe or wait for.

Instructions without a rule are left out if they only move data: data races are not part of the
model, and a wait for the issuer's own copies (bulk groups, wgmma) always ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesim.export.errors import NotExportable
from tilesim.export.model import NAMED, Flight
from tilesim.export.nodes import Action, Choice, Node
from tilesim.export.process import Process
from tilesim.export.values import INT, Known, Runtime
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.memory import Mbar
from tilesim.ir.op import Op, OpTable
from tilesim.ir.ops.bar import (
    BarArrive,
    BarRed,
    BarSync,
    ElectSync,
    Exit,
    Setmaxnreg,
    SyncWarp,
)
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait, RedAsync, StAsync
from tilesim.ir.ops.cp_async import CpAsyncMbarrierArrive
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierArriveDrop,
    MbarrierArriveExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInval,
    MbarrierTestWait,
    MbarrierTryWait,
    MbarrierWait,
)
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.ops.tma import BulkCopy, BulkLoad, BulkReducePeer, TmaLoad
from tilesim.ir.passes.warps import LANES

Rule = Callable[[Process, Any], tuple[Node, ...]]
#: how each instruction is written; those that only move data have none
PROMELA: OpTable[Rule] = OpTable("the Promela export")

#: effects that nobody waits for but the issuing thread
_DATA = (
    fx.Reads, fx.Writes, fx.ReadsMap, fx.WritesMap, fx.UsesFragment, fx.Orders, fx.Crosses,
    fx.Gathers, fx.Defines, fx.Prefetches, fx.Issues,
)  # fmt: skip
#: groups whose operations complete by themselves, whatever other agents do
_OWN_GROUPS = frozenset({"bulk", "cp.async", "wgmma"})


def instruction(p: Process, op: Op) -> tuple[Node, ...]:
    """The statements of one instruction.

    Raises:
        NotExportable: the model has nothing for it, or for one of its operands.
    """
    rule = _rule(op)
    if rule is not None:
        return rule(p, op)
    strange = [e for e in op.effects() if not _is_data(e)]
    if strange:
        kind = type(strange[0]).__name__
        raise NotExportable(
            op.mnemonic, op.loc,
            f"the model has mbarriers, named barriers, cluster barriers and copies, not {kind}",
        )  # fmt: skip
    for effect in op.effects():
        if isinstance(effect, fx.Defines):
            p.forget(effect.var, f"{effect.var}, which {op.mnemonic} sets at {op.loc}")
    return ()


def silent(op: Op) -> bool:
    """Whether the instruction only moves data."""
    return isinstance(op, Assign) or (_rule(op) is None and all(map(_is_data, op.effects())))


def _rule(op: Op) -> Rule | None:
    try:
        return PROMELA[type(op)]
    except KeyError:
        return None


def _is_data(effect: fx.Effect) -> bool:
    match effect:
        case fx.Commits(group=group) | fx.WaitsGroup(group=group):
            return group in _OWN_GROUPS
        case _:
            return isinstance(effect, _DATA)


def _step(op: Op, *parts: str) -> tuple[Node, ...]:
    """One indivisible step."""
    return (Action(f"d_step {{ {'; '.join(p for p in parts if p)} }}", op.loc, op.mnemonic),)


def _misuse(op: Op, rule: str) -> tuple[Node, ...]:
    return (Action("assert(false)", op.loc, f"{op.mnemonic}: {rule}"),)


# ------------------------------------------------------------------ operands


class _Barrier:
    """An mbarrier operand: its number in the model, what must hold, and where it is."""

    def __init__(self, p: Process, op: Op, mbar: Mbar) -> None:
        index = p.uniform(mbar.index, op.mnemonic, op.loc, f"index into {mbar.array.name}")
        self.index = index.text
        self.rank = str(p.rank)
        self.checks = _inside(index, 0, mbar.array.count - 1)
        if mbar.cta is not None:
            rank = p.uniform(mbar.cta, op.mnemonic, op.loc, "CTA rank")
            self.rank = rank.text
            self.checks += _inside(rank, 0, len(p.model.ctas) - 1)
            if self.rank != str(p.rank):
                self.checks.append(f"running({self.rank})")
        self.number = p.model.mbarrier(mbar.array, self.index, self.rank)

    def step(self, op: Op, *parts: str) -> tuple[Node, ...]:
        """One step on the barrier, which it calls ``at``."""
        return _step(op, *self.checks, f"at = {self.number}", *parts)


def _inside(value: Runtime, low: int, high: int) -> list[str]:
    """The assertion that a value is in a range, unless that is known."""
    if low <= value.range[0] and value.range[1] <= high:
        return []
    return [f"assert({value.text} >= {low} && {value.text} <= {high})"]


def _bytes(p: Process, op: Op, expr: Expr) -> str:
    """Bytes of all active lanes, in the model's unit."""
    return _in_units(p, p.total(expr, op, "byte count"))


def _in_units(p: Process, total: Runtime) -> str:
    low, high = total.range
    if low == high:
        p.model.sizes.add(low)
        return "0" if low == 0 else f"{low} / UNIT"
    p.model.open_sizes = True
    return f"({total.text} / UNIT)"


# ------------------------------------------------------------------ mbarriers


@PROMELA.rule(MbarrierInit)
def _init(p: Process, op: MbarrierInit) -> tuple[Node, ...]:
    count = p.uniform(op.count, op.mnemonic, op.loc, "arrival count")
    p.model.note_count(count)
    barrier = _Barrier(p, op, op.mbar)
    start = barrier.step(op, f"initialise(at, {count.text})")
    return start if p.lanes == 1 else (*start, *_misuse(op, "by several lanes (A6)"))


@PROMELA.rule(MbarrierInval)
def _inval(p: Process, op: MbarrierInval) -> tuple[Node, ...]:
    return _Barrier(p, op, op.mbar).step(op, "invalidate(at)")


@PROMELA.rule(MbarrierArrive)
def _arrive(p: Process, op: MbarrierArrive) -> tuple[Node, ...]:
    count = p.total(op.count, op, "arrival count").text
    barrier = _Barrier(p, op, op.mbar)
    kept = f"assert({count} < pending[at])" if op.no_complete else ""
    return barrier.step(op, _token(p, op), kept, f"credit(at, {count}, 0)")


@PROMELA.rule(MbarrierArriveExpectTx)
def _arrive_expect_tx(p: Process, op: MbarrierArriveExpectTx) -> tuple[Node, ...]:
    nbytes, barrier = _bytes(p, op, op.bytes), _Barrier(p, op, op.mbar)
    return barrier.step(op, _token(p, op), f"credit(at, {p.lanes}, {nbytes})")


@PROMELA.rule(MbarrierArriveDrop)
def _arrive_drop(p: Process, op: MbarrierArriveDrop) -> tuple[Node, ...]:
    count = p.total(op.count, op, "arrival count").text
    nbytes = "0" if op.bytes is None else _bytes(p, op, op.bytes)
    barrier = _Barrier(p, op, op.mbar)
    return barrier.step(op, _token(p, op), f"drop(at, {count})", f"credit(at, {count}, {nbytes})")


def _token(p: Process, op: MbarrierArrive | MbarrierArriveExpectTx | MbarrierArriveDrop) -> str:
    """The phase before the arrival, for a later wait (A20)."""
    if op.token is None:
        return ""
    p.model.tokens = True
    return f"{p.result(op.token, INT)} = phase[at]"


@PROMELA.rule(MbarrierExpectTx)
def _expect_tx(p: Process, op: MbarrierExpectTx) -> tuple[Node, ...]:
    nbytes, barrier = _bytes(p, op, op.bytes), _Barrier(p, op, op.mbar)
    ends = f"assert(pending[at] > 0 || tx[at] + {nbytes} != 0)"
    return barrier.step(op, ends, f"credit(at, 0, {nbytes})")


@PROMELA.rule(MbarrierCompleteTx)
def _complete_tx(p: Process, op: MbarrierCompleteTx) -> tuple[Node, ...]:
    nbytes, barrier = _bytes(p, op, op.bytes), _Barrier(p, op, op.mbar)
    return barrier.step(op, f"credit(at, 0, -({nbytes}))")


@PROMELA.rule(MbarrierWait)
def _wait(p: Process, op: MbarrierWait) -> tuple[Node, ...]:
    barrier = _Barrier(p, op, op.mbar)
    done, checks = _completed(p, op, barrier.number)
    ready = f"!live[{barrier.number}] || {done}"
    checks = [*barrier.checks, *checks]
    nodes = _step(op, *checks) if checks else ()
    return (
        *nodes,
        *_step(op, f"{ready} -> assert(live[{barrier.number}])", _alias(p, op, barrier)),
    )


def _completed(
    p: Process, op: MbarrierWait | MbarrierTestWait | MbarrierTryWait, number: str
) -> tuple[str, list[str]]:
    """When the phase that is waited for has completed (A20, A21), and what must hold before."""
    phase = p.uniform(op.phase, op.mnemonic, op.loc, "parity" if op.parity else "token")
    if not op.parity:
        return f"phase[{number}] != {phase.text}", []
    return f"(phase[{number}] & 1) != {phase.text}", _inside(phase, 0, 1)


def _alias(
    p: Process, op: MbarrierWait | MbarrierTestWait | MbarrierTryWait, barrier: _Barrier
) -> str:
    """A token is one of the current or the preceding phase (A19)."""
    if op.parity:
        return ""
    token = p.uniform(op.phase, op.mnemonic, op.loc, "token").text
    return f"assert(phase[{barrier.number}] == {token} || phase[{barrier.number}] == {token} + 1)"


@PROMELA.rule(MbarrierTestWait, MbarrierTryWait)
def _poll(p: Process, op: MbarrierTestWait | MbarrierTryWait) -> tuple[Node, ...]:
    barrier = _Barrier(p, op, op.mbar)
    done, checks = _completed(p, op, "at")
    alias = _alias(p, op, barrier)
    name = p.result(op.result, (0, 1))
    look = barrier.step(op, *checks, "assert(live[at])", alias, f"{name} = ({done})")
    if isinstance(op, MbarrierTestWait):
        return look
    # A25: it may answer 0 at any time
    return (Choice((("true", look), ("true", (Action(f"{name} = 0"),))), op.loc),)


@PROMELA.rule(CpAsyncMbarrierArrive)
def _late_arrive(p: Process, op: CpAsyncMbarrierArrive) -> tuple[Node, ...]:
    barrier, raised = _Barrier(p, op, op.mbar), ""
    if not op.noinc:
        p.model.open_counts = True
        raised = f"pending[at] = pending[at] + {p.lanes}"
    flight = Flight(op.mbar.array, arrivals=p.lanes)
    entry = p.model.entry(flight, barrier.index, barrier.rank)
    return barrier.step(op, "assert(live[at])", raised, f"{entry} = {entry} + 1")


# ------------------------------------------------------------------ copies


@PROMELA.rule(TmaLoad, BulkLoad)
def _load(p: Process, op: TmaLoad | BulkLoad) -> tuple[Node, ...]:
    if isinstance(op, TmaLoad) and op.cta_group == 2:
        raise NotExportable(op.mnemonic, op.loc, "cta_group::2 is not in the model")
    nbytes = op.nbytes if isinstance(op, TmaLoad) else op.dst.nbytes
    return _copies(p, op, op.mbar, nbytes, p.lanes, op.multicast)


@PROMELA.rule(BulkCopy, BulkReducePeer)
def _peer_copy(p: Process, op: BulkCopy | BulkReducePeer) -> tuple[Node, ...]:
    return _copies(p, op, op.mbar, op.dst.nbytes, p.lanes, None)


@PROMELA.rule(StAsync, RedAsync)
def _remote_store(p: Process, op: StAsync | RedAsync) -> tuple[Node, ...]:
    return _copies(p, op, op.mbar, op.dst.dtype.bytes * p.lanes, 1, None)


def _copies(
    p: Process, op: Op, mbar: Mbar, nbytes: int, times: int, multicast: Expr | None
) -> tuple[Node, ...]:
    """``times`` copies leave; each completes its bytes later, on one barrier per destination."""
    barrier = _Barrier(p, op, mbar)
    flight = Flight(mbar.array, _in_units(p, Runtime("", (nbytes, nbytes))))

    def leave(rank: str) -> str:
        entry = p.model.entry(flight, barrier.index, rank)
        live = f"assert(live[{p.model.mbarrier(mbar.array, barrier.index, rank)}])"
        return f"{live}; {entry} = {entry} + {times}"

    if multicast is None:
        return _step(op, *barrier.checks, leave(barrier.rank))
    ranks = range(len(p.model.ctas))
    mask = p.uniform(multicast, op.mnemonic, op.loc, "multicast mask")
    checks = _inside(mask, 1, (1 << len(ranks)) - 1)
    here = [*barrier.checks, *checks]
    if mask.range[0] == mask.range[1]:
        chosen = [r for r in ranks if mask.range[0] >> r & 1]
        peers = [f"running({r})" for r in chosen if r != p.rank]
        return _step(op, *here, *peers, *(leave(str(r)) for r in chosen))
    return _step(op, *here, *(_if_in(mask.text, r, leave(str(r))) for r in ranks))


def _if_in(mask: str, rank: int, then: str) -> str:
    return f"if :: ({mask} >> {rank}) & 1 -> running({rank}); {then} :: else fi"


# ------------------------------------------------------------------ barriers of a CTA and a cluster


@PROMELA.rule(BarSync, BarArrive, BarRed)
def _join(p: Process, op: BarSync | BarArrive | BarRed) -> tuple[Node, ...]:
    number = p.uniform(op.id, op.mnemonic, op.loc, "barrier id")
    warps = p.model.program.warps
    if isinstance(op, BarRed):
        p.forget(op.result, f"{op.result}, which {op.mnemonic} sets at {op.loc}")
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (E2)")
    if op.threads is not None and op.threads > LANES * warps:
        return _misuse(op, "more threads than the CTA has (E1)")
    known = number.range[0] == number.range[1]
    p.model.named.update([number.range[0]] if known else range(NAMED))
    barrier = p.model.named_barrier(number.text, p.rank)
    waits, reduces = int(not isinstance(op, BarArrive)), int(isinstance(op, BarRed))
    count = warps if op.threads is None else op.threads // LANES
    arguments = f"at, {p.rank}, {p.me}, {count}, {int(op.threads is None)}, {reduces}, {waits}"
    joined = _step(op, *_inside(number, 0, NAMED - 1), f"at = {barrier}", f"join({arguments})")
    if not waits:
        return joined
    return (*joined, Action(f"!(parked[{barrier}] & {p.me})", op.loc, op.mnemonic))


@PROMELA.rule(ClusterArrive)
def _cluster_arrive(p: Process, op: ClusterArrive) -> tuple[Node, ...]:
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (D3)")
    p.model.uses_cluster = True
    mine = f"round[{p.rank * p.model.program.warps + p.warp}]"
    return _step(op, f"assert({mine} == 0)", f"{mine} = 1", "settle_cluster()")


@PROMELA.rule(ClusterWait)
def _cluster_wait(p: Process, op: ClusterWait) -> tuple[Node, ...]:
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (D3)")
    p.model.uses_cluster = True
    mine = f"round[{p.rank * p.model.program.warps + p.warp}]"
    return _step(op, f"{mine} != 1 -> assert({mine} == 2)", f"{mine} = 0")


@PROMELA.rule(SyncWarp)
def _sync_warp(p: Process, op: SyncWarp) -> tuple[Node, ...]:
    mask, live = p.state.mask, p.state.live
    if mask & ~op.mask or op.mask & live & ~mask:
        return _misuse(op, "not by the lanes of its mask (E11)")
    return ()


@PROMELA.rule(ElectSync)
def _elect(p: Process, op: ElectSync) -> tuple[Node, ...]:
    mask, live = p.state.mask, p.state.live
    if mask & ~op.mask or op.mask & live & ~mask:
        return _misuse(op, "not by the lanes of its mask (E12)")
    chosen = op.mask & mask
    first = chosen & -chosen
    lanes = tuple(int(first >> i & 1) if mask >> i & 1 else None for i in range(LANES))
    return p.define(op.result, Known(lanes))


@PROMELA.rule(Setmaxnreg)
def _setmaxnreg(p: Process, op: Setmaxnreg) -> tuple[Node, ...]:
    held, p.state.held = p.state.held, op.count
    pool, change = f"pool[{p.rank}]", LANES * abs(op.count - held)
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (E15)")
    if op.action == "dec":
        if op.count > held:
            return _misuse(op, f"to {op.count} from {held} registers (E13)")
        p.model.uses_pool = True
        return _step(op, f"{pool} = {pool} + {change}")
    if op.count < held:
        return _misuse(op, f"to {op.count} from {held} registers (E13)")
    p.model.uses_pool = True
    return _step(op, f"{pool} >= {change} -> {pool} = {pool} - {change}")


@PROMELA.rule(Exit)
def _exit(p: Process, op: Exit) -> tuple[Node, ...]:
    state = p.state
    if state.mask == state.live:
        state.dead = p.exits = True
        return (Action("goto done", op.loc, op.mnemonic),)
    if p.depth:
        raise NotExportable(op.mnemonic, op.loc, "some lanes exit in a run-time loop or branch")
    state.live &= ~state.mask
    state.mask = 0
    return ()


# ------------------------------------------------------------------ registers


@PROMELA.rule(Assign)
def _assign(p: Process, op: Assign) -> tuple[Node, ...]:
    if op.var.name in p.counters:
        raise NotExportable(op.mnemonic, op.loc, f"{op.var} counts the loop it is in")
    return p.define(op.var, p.value(op.value))
