"""Instructions as Promela: one rule per kind of effect that others can observe or wait for.

Instructions without such an effect are left out if they only move data: data races are not part of
the model, and a wait for the issuer's own copies (bulk groups, wgmma) always ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilesim.analysis.cfg import LANES
from tilesim.export.errors import NotExportable
from tilesim.export.model import NAMED, Flight
from tilesim.export.nodes import Action, Choice, Node
from tilesim.export.process import Process
from tilesim.export.values import INT, Known, Runtime
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import RANK_SHIFT
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.op import Op
from tilesim.sim.machine.register_pool import PARTITIONS

EffectRule = Callable[[Process, Op, Any], tuple[Node, ...]]
#: how each kind of effect is written; those that only move data have none
EFFECTS: dict[type[Any], EffectRule] = {}
R = TypeVar("R", bound=EffectRule)
#: of an address in shared memory, without the rank of the CTA
_OFFSET = (1 << RANK_SHIFT) - 1

#: effects that no thread waits for but the issuing one
_DATA = (
    fx.Reads, fx.Writes, fx.ReadsMap, fx.WritesMap, fx.UsesFragment, fx.Orders, fx.Crosses,
    fx.Defines, fx.PendingCount, fx.RemoteStore, fx.WaitsGrids, fx.Prefetches, fx.Issues,
    fx.ReleasesMaps, fx.AcquiresMap, fx.Queries, fx.GathersWarps, fx.FencesFragments,
    fx.OrdersTmem, fx.RelinquishesTmem, fx.Agrees, fx.Shuffles,
)  # fmt: skip
#: groups whose operations complete by themselves, whatever other agents do
_OWN_GROUPS = frozenset({"bulk", "cp.async", "wgmma"})


def instruction(p: Process, op: Op) -> tuple[Node, ...]:
    """The statements of one instruction.

    Raises:
        NotExportable: the model has nothing for it, or for one of its operands.
    """
    effects = op.effects()
    strange = [e for e in effects if not (_is_data(e) or type(e) in EFFECTS)]
    if strange:
        kind = type(strange[0]).__name__
        raise NotExportable(
            op.mnemonic, op.loc,
            f"the model has mbarriers, named barriers, cluster barriers and copies, not {kind}",
        )  # fmt: skip
    nodes: list[Node] = []
    for effect in effects:
        if type(effect) in EFFECTS:
            nodes += EFFECTS[type(effect)](p, op, effect)
        elif isinstance(effect, fx.Defines):
            nodes += _defines(p, op, effect)
    return tuple(nodes)


def silent(op: Op) -> bool:
    """Whether the instruction only moves data."""
    return all(map(_is_data, op.effects()))


def _effect(kind: type[Any]) -> Callable[[R], R]:
    """Decorator: the function writes this kind of effect."""

    def register(function: R) -> R:
        EFFECTS[kind] = function
        return function

    return register


def _is_data(effect: fx.Effect) -> bool:
    match effect:
        case fx.Commits(group=group) | fx.WaitsGroup(group=group):
            return group in _OWN_GROUPS
        case fx.Gathers(orders=orders):
            return not orders
        case _:
            return isinstance(effect, _DATA)


def _answer(op: Op, effect: fx.Effect) -> Var | None:
    """The register that gets what an effect answers."""
    for other in op.effects():
        if isinstance(other, fx.Defines) and other.value == effect:
            return other.var
    return None


def _step(op: Op, *parts: str) -> tuple[Node, ...]:
    """One indivisible step."""
    return (Action(f"d_step {{ {'; '.join(p for p in parts if p)} }}", op.loc, op.mnemonic),)


def _misuse(op: Op, rule: str) -> tuple[Node, ...]:
    return (Action("assert(false)", op.loc, f"{op.mnemonic}: {rule}"),)


# ------------------------------------------------------------------ operands


class _Barrier:
    """An mbarrier operand: its number in the model, what must hold, and where it is."""

    def __init__(self, p: Process, op: Op, mbar: Mbar) -> None:
        own = Runtime(str(p.rank), (p.rank, p.rank))
        if isinstance(mbar.array, AddressedMbarriers):
            if not p.addressed:
                raise NotExportable(op.mnemonic, op.loc, "the model has no mbarriers at addresses")
            address = p.uniform(mbar.array.address, op.mnemonic, op.loc, "address")
            if address.range[0] != address.range[1]:
                raise NotExportable(op.mnemonic, op.loc, "its address changes at run time")
            number, place = address.range[0] >> RANK_SHIFT, address.range[0] & _OFFSET
            array, own = p.model.mbarrier_at(place), Runtime(str(number), (number, number))
            index = Runtime("0", (0, 0))
        else:
            array = mbar.array
            index = p.uniform(mbar.index, op.mnemonic, op.loc, f"index into {mbar.array.name}")
        self.array = array
        self.index = index.text
        self.checks = _inside(index, 0, array.count - 1)
        rank = own if mbar.cta is None else p.uniform(mbar.cta, op.mnemonic, op.loc, "CTA rank")
        self.rank = rank.text
        self.checks += _inside(rank, 0, len(p.model.ctas) - 1)
        if self.rank != str(p.rank):
            self.checks.append(f"running({self.rank})")
        self.number = p.model.mbarrier(array, self.index, self.rank)

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


@_effect(fx.InitsMbarrier)
def _inits(p: Process, op: Op, effect: fx.InitsMbarrier) -> tuple[Node, ...]:
    count = p.uniform(effect.count, op.mnemonic, op.loc, "arrival count")
    p.model.note_count(count)
    barrier = _Barrier(p, op, effect.mbar)
    start = barrier.step(op, f"initialise(at, {count.text})")
    return start if p.lanes == 1 else (*start, *_misuse(op, "by several lanes (A6)"))


@_effect(fx.InvalidatesMbarrier)
def _invalidates(p: Process, op: Op, effect: fx.InvalidatesMbarrier) -> tuple[Node, ...]:
    return _Barrier(p, op, effect.mbar).step(op, "invalidate(at)")


@_effect(fx.Arrives)
def _arrives(p: Process, op: Op, effect: fx.Arrives) -> tuple[Node, ...]:
    if effect.asynchronous:
        return _arrives_later(p, op, effect)
    count = p.total(effect.count, op, "arrival count").text
    nbytes = "0" if effect.bytes is None else _bytes(p, op, effect.bytes)
    barrier = _Barrier(p, op, effect.mbar)
    kept = f"assert({count} < pending[at])" if effect.partial else ""
    dropped = f"drop(at, {count})" if effect.drop else ""
    token = _token(p, _answer(op, effect))
    return barrier.step(op, token, kept, dropped, f"credit(at, {count}, {nbytes})")


def _token(p: Process, result: Var | None) -> str:
    """The phase before the arrival, for a later wait (A20)."""
    if result is None:
        return ""
    p.model.tokens = True
    return f"{p.result(result, INT)} = phase[at]"


def _arrives_later(p: Process, op: Op, effect: fx.Arrives) -> tuple[Node, ...]:
    barrier, raised = _Barrier(p, op, effect.mbar), ""
    if effect.lent:
        p.model.open_counts = True
        raised = f"pending[at] = pending[at] + {p.lanes}"
    flight = Flight(barrier.array, arrivals=p.lanes)
    entry = p.model.entry(flight, barrier.index, barrier.rank)
    return barrier.step(op, "assert(live[at])", raised, f"{entry} = {entry} + 1")


@_effect(fx.Expects)
def _expects(p: Process, op: Op, effect: fx.Expects) -> tuple[Node, ...]:
    nbytes, barrier = _bytes(p, op, effect.bytes), _Barrier(p, op, effect.mbar)
    ends = f"assert(pending[at] > 0 || tx[at] + {nbytes} != 0)"
    return barrier.step(op, ends, f"credit(at, 0, {nbytes})")


@_effect(fx.Completes)
def _completes(p: Process, op: Op, effect: fx.Completes) -> tuple[Node, ...]:
    if effect.bytes is None:
        raise NotExportable(op.mnemonic, op.loc, "how many bytes it moves is not in the model")
    if effect.pair:
        raise NotExportable(op.mnemonic, op.loc, "cta_group::2 is not in the model")
    if not effect.asynchronous:
        nbytes, barrier = _bytes(p, op, effect.bytes), _Barrier(p, op, effect.mbar)
        return barrier.step(op, f"credit(at, 0, -({nbytes}))")
    size = constant(effect.bytes)
    if size is None:
        raise NotExportable(op.mnemonic, op.loc, f"its size {effect.bytes} is not constant")
    # stores of the lanes to a peer land together
    together = any(isinstance(e, fx.RemoteStore) for e in op.effects())
    nbytes_each, times = (size * p.lanes, 1) if together else (size, p.lanes)
    return _copies(p, op, effect.mbar, nbytes_each, times, effect.multicast)


@_effect(fx.Waits)
def _waits(p: Process, op: Op, effect: fx.Waits) -> tuple[Node, ...]:
    if effect.poll:
        return _poll(p, op, effect)
    barrier = _Barrier(p, op, effect.mbar)
    done, checks = _completed(p, op, effect, barrier.number)
    ready = f"!live[{barrier.number}] || {done}"
    checks = [*barrier.checks, *checks]
    nodes = _step(op, *checks) if checks else ()
    return (
        *nodes,
        *_step(op, f"{ready} -> assert(live[{barrier.number}])", _alias(p, op, effect, barrier)),
    )


def _completed(p: Process, op: Op, effect: fx.Waits, number: str) -> tuple[str, list[str]]:
    """When the phase that is waited for has completed (A20, A21), and what must hold before."""
    what = "parity" if effect.parity else "token"
    phase = p.uniform(effect.phase, op.mnemonic, op.loc, what)
    if not effect.parity:
        return f"phase[{number}] != {phase.text}", []
    return f"(phase[{number}] & 1) != {phase.text}", _inside(phase, 0, 1)


def _alias(p: Process, op: Op, effect: fx.Waits, barrier: _Barrier) -> str:
    """A token is one of the current or the preceding phase (A19)."""
    if effect.parity:
        return ""
    token = p.uniform(effect.phase, op.mnemonic, op.loc, "token").text
    return f"assert(phase[{barrier.number}] == {token} || phase[{barrier.number}] == {token} + 1)"


def _poll(p: Process, op: Op, effect: fx.Waits) -> tuple[Node, ...]:
    barrier = _Barrier(p, op, effect.mbar)
    done, checks = _completed(p, op, effect, "at")
    alias = _alias(p, op, effect, barrier)
    result = _answer(op, effect)
    name = "" if result is None else p.result(result, (0, 1))
    told = f"{name} = ({done})" if name else ""
    look = barrier.step(op, *checks, "assert(live[at])", alias, told)
    if not (effect.suspends and name):
        return look
    # A25: it may answer 0 at any time
    return (Choice((("true", look), ("true", (Action(f"{name} = 0"),))), op.loc),)


# ------------------------------------------------------------------ copies


def _copies(
    p: Process, op: Op, mbar: Mbar, nbytes: int, times: int, multicast: Expr | None
) -> tuple[Node, ...]:
    """``times`` copies leave; each completes its bytes later, on one barrier per destination."""
    barrier = _Barrier(p, op, mbar)
    flight = Flight(barrier.array, _in_units(p, Runtime("", (nbytes, nbytes))))

    def leave(rank: str) -> str:
        entry = p.model.entry(flight, barrier.index, rank)
        live = f"assert(live[{p.model.mbarrier(barrier.array, barrier.index, rank)}])"
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


@_effect(fx.JoinsBarrier)
def _joins(p: Process, op: Op, effect: fx.JoinsBarrier) -> tuple[Node, ...]:
    number = p.uniform(effect.id, op.mnemonic, op.loc, "barrier id")
    warps = p.model.program.warps
    threads = effect.count(LANES * warps)
    if threads is None:
        raise NotExportable(op.mnemonic, op.loc, f"its number of threads is {effect.threads}")
    result = _answer(op, effect)
    if result is not None:
        p.forget(result, f"{result}, which {op.mnemonic} sets at {op.loc}")
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (E2)")
    if threads > LANES * warps:
        return _misuse(op, "more threads than the CTA has (E1)")
    known = number.range[0] == number.range[1]
    p.model.named.update([number.range[0]] if known else range(NAMED))
    barrier = p.model.named_barrier(number.text, p.rank)
    waits, reduces = int(effect.waits), int(effect.vote is not None)
    whole = int(effect.threads is None)
    arguments = f"at, {p.rank}, {p.me}, {threads // LANES}, {whole}, {reduces}, {waits}"
    joined = _step(op, *_inside(number, 0, NAMED - 1), f"at = {barrier}", f"join({arguments})")
    if not waits:
        return joined
    return (*joined, Action(f"!(parked[{barrier}] & {p.me})", op.loc, op.mnemonic))


@_effect(fx.JoinsCluster)
def _joins_cluster(p: Process, op: Op, effect: fx.JoinsCluster) -> tuple[Node, ...]:
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (D3)")
    p.model.uses_cluster = True
    mine = f"round[{p.rank * p.model.program.warps + p.warp}]"
    if effect.arrives:
        return _step(op, f"assert({mine} == 0)", f"{mine} = 1", "settle_cluster()")
    return _step(op, f"{mine} != 1 -> assert({mine} == 2)", f"{mine} = 0")


# ------------------------------------------------------------------ lanes and registers


@_effect(fx.Gathers)
def _gathers(p: Process, op: Op, effect: fx.Gathers) -> tuple[Node, ...]:
    mask, live = p.state.mask, p.state.live
    named = live if effect.mask is None else constant(effect.mask)
    if named is not None and (mask & ~named or named & live & ~mask):
        return _misuse(op, f"not by the lanes of its mask ({effect.rule})")
    return ()


@_effect(fx.Elects)
def _elects(p: Process, op: Op, effect: fx.Elects) -> tuple[Node, ...]:
    result, mask = _answer(op, effect), p.state.mask
    if result is None:
        return ()
    first = mask & -mask
    lanes = tuple(int(first >> i & 1) if mask >> i & 1 else None for i in range(LANES))
    return p.define(result, Known(lanes))


@_effect(fx.Registers)
def _registers(p: Process, op: Op, effect: fx.Registers) -> tuple[Node, ...]:
    held, p.state.held = p.state.held, effect.count
    change = LANES * abs(effect.count - held)
    pool = f"pool[{PARTITIONS * p.rank + p.warp % PARTITIONS}]"
    if p.state.mask != p.state.live:
        return _misuse(op, "by some lanes of the warp (E15)")
    if effect.count < held if effect.increase else effect.count > held:
        return _misuse(op, f"to {effect.count} from {held} registers (E13)")
    p.model.uses_pool = True
    if effect.increase:
        return _step(op, f"{pool} >= {change} -> {pool} = {pool} - {change}")
    return _step(op, f"{pool} = {pool} + {change}")


@_effect(fx.Exits)
def _exits(p: Process, op: Op, effect: fx.Exits) -> tuple[Node, ...]:
    state = p.state
    if state.mask == state.live:
        state.dead = p.exits = True
        return (Action("goto done", op.loc, op.mnemonic),)
    if p.depth:
        raise NotExportable(op.mnemonic, op.loc, "some lanes exit in a run-time loop or branch")
    state.live &= ~state.mask
    state.mask = 0
    return ()


def _defines(p: Process, op: Op, effect: fx.Defines) -> tuple[Node, ...]:
    """A register is set, to what the model may not know."""
    if isinstance(effect.value, Expr):
        if effect.var.name in p.counters:
            raise NotExportable(op.mnemonic, op.loc, f"{effect.var} counts the loop it is in")
        return p.define(effect.var, p.value(effect.value))
    if type(effect.value) not in EFFECTS:
        p.forget(effect.var, f"{effect.var}, which {op.mnemonic} sets at {op.loc}")
    return ()
