"""Lanes of a warp: election, exchange of values, registers that are set, ends.

Rules: SEMANTICS E8 to E12; PTX 9.7.9.6 for values of other lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.uses_defs import operand_expressions, registers_set
from tilesim.ir import effects as fx
from tilesim.ir.declarations import View
from tilesim.ir.expr import Expr, Var, constant, walk
from tilesim.ir.op import Op
from tilesim.sim.machine.assignment_jit import one_by_one
from tilesim.sim.machine.compose import Act, Give, Take, executor, lanes_named
from tilesim.sim.machine.divergence import lanes_exit
from tilesim.sim.machine.errors import BarrierError, NotUniform, UnassignedVariable
from tilesim.sim.machine.execute.fences import lean_on_fences
from tilesim.sim.machine.expression import assign, evaluator, fit_value
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array, mask_bits, shuffled_from
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import Unknown, open_lanes, opened, plain, unset_lanes
from tilesim.sim.machine.view_access import uniform_value

#: where all 32 lanes of a warp are asked for
_WHOLE = "E15, F1, G4, G13"


def require_converged(w: Warp, op: Op) -> None:
    """Aligned barriers need every live lane of the warp (E2, E8)."""
    if w.mask == w.live_mask or w.machine.plan.places:
        return
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w.lanes} of the {w.live_mask.bit_count()} live lanes of {w}: an "
        "aligned barrier is executed by all of them (E2, E8)",
        "execute it outside the divergent region",
    )


def gather_all(w: Warp, op: Op, rule: str = _WHOLE) -> None:
    """All 32 lanes of a warp execute an instruction together (F1, G4, G13): ``.sync`` makes each of
    them wait for the others."""
    if w.mask != FULL:
        require_whole_warp(w, op, rule)
    if w.may_divide:
        w.gather()


def require_whole_warp(w: Warp, op: Op, rule: str = _WHOLE) -> None:
    """What all 32 lanes of a warp execute together, none of which has ended (F1, G4, G13)."""
    if w.mask == FULL:
        return
    if w.exited_lanes & ~w.mask:
        gone = w.exited_lanes.bit_count()
        why = f"{gone} of its lanes have exited: it needs all 32"
    else:
        why = f"only {w.lanes} of its 32 lanes execute it"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w}: {why} ({rule})",
        "execute it with the whole warp, outside the divergent region",
    )


def gather(w: Warp, op: Op, mask: int, rule: str) -> None:
    """Raises unless the lanes of ``mask`` that live, and no others, execute the instruction."""
    if w.mask & ~mask:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} by lanes {w.mask & ~mask:#x} of {w}, which are "
            f"outside of it ({rule})",
            "name every lane that executes the instruction in the mask",
        )
    missing = mask & w.live_mask & ~w.mask
    if missing:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} waits for lanes {missing:#x} of {w}, which do "
            f"not execute it ({rule})",
            "name only the lanes that execute it, or move it out of the branch",
        )


@executor(fx.Gathers)
def _gathers(c: Operands, op: Op, effect: fx.Gathers) -> Act:
    rule, mask_of = effect.rule, lanes_named(c, effect.mask)
    named = FULL if effect.mask is None else constant(effect.mask)
    if effect.whole:
        return Act(lambda w: gather_all(w, op, rule))
    if not effect.orders:

        def wait(w: Warp) -> None:
            if w.mask != named:
                gather(w, op, mask_of(w), rule)
            if _whole_parts(w):
                w.gather()

        return Act(wait)

    def meet(w: Warp) -> None:
        if w.mask != named:
            gather(w, op, mask_of(w), rule)
        if w.machine.plan.fencing and w.fences and not w.fences_by_lane:
            lean_on_fences(w, op)
        w.meet()

    return Act(meet)


def by_masks(c: Operands, op: Op, step: Step) -> Step:
    """``step`` of all active lanes, or of those that name the same lanes, each group for itself, as
    the tiles of a warp do (E11, E19 to E21)."""
    named = [e for e in op.effects() if isinstance(e, fx.Gathers) and e.mask is not None]
    if not named or named[0].mask is None or constant(named[0].mask) is not None:
        return step
    mask, orders = c.expr(named[0].mask), named[0].orders

    def groups(w: Warp) -> None:
        try:
            step(w)
        except NotUniform:
            active = w.mask
            own = np.where(mask_array(active), plain(mask(w)) & FULL, -1)
            different = dict.fromkeys(own[own >= 0].tolist())
            elsewhere = w.live_mask & ~active
            if any(number & elsewhere for number in different):
                raise BarrierError(
                    "unsupported",
                    f"{op.mnemonic} of {w} by lanes that name different lanes, some of which are "
                    "elsewhere",
                    "let the lanes reconverge before it, or name one mask there",
                ) from None
            try:
                for number in different:
                    w.mask = mask_bits(own == number)
                    if orders:
                        w.regroup()
                    step(w)
            finally:
                w.mask = active
            if orders:
                w.met = -1
                w.regroup()

    return groups


def _whole_parts(w: Warp) -> bool:
    """Whether the active lanes are parts of their warp, and not some of one: only then may others
    come after what all of a part have done, as these lanes do that have waited for each other."""
    return w.mask == sum(part.mask for part in w.acting) & w.live_mask


@executor(fx.Agrees)
def _agrees(c: Operands, op: Op, effect: fx.Agrees) -> Act:
    value = c.expr(effect.value)

    def step(w: Warp) -> None:
        uniform_value(value(w), w)

    return Act(step)


@executor(fx.GathersWarps)
def _gathers_warps(c: Operands, op: Op, effect: fx.GathersWarps) -> Act:
    ops = (op,)

    def step(w: Warp) -> None:
        if w.mask != FULL or w.may_divide:
            gather_all(w, op)
        w.warpgroup.together(w, ops)

    return Act(step)


@executor(fx.Elects)
def _elects(c: Operands, op: Op, effect: fx.Elects) -> Give:
    def elect(w: Warp) -> Lanes:
        # which lane is unspecified; an H200 takes the first, and code that relies on that shows
        # with the last
        first, last = w.mask & -w.mask, 1 << w.mask.bit_length() - 1
        options = w.machine.options
        return Lanes(last if options.ptx and not options.first_lane else first)

    return Give(effect, elect)


@executor(fx.Exits)
def _exits(c: Operands, op: Op, effect: fx.Exits) -> Act:
    def step(w: Warp) -> bool | None:
        left, w.mask = w.mask, 0
        if lanes_exit(w, left):
            return True
        if w.live_mask:
            return None
        w.machine.exit(w.origin)
        return True

    return Act(step, blocks=True)


# -------------------------------------------------------------- values of other lanes (PTX 9.7.9.6)


def _require_sources(w: Warp, op: Op, where: NDArray[np.int64]) -> None:
    """A lane gets a value of a lane that executes the shuffle, too (PTX 9.7.9.6)."""
    active = mask_array(w.mask)
    wrong = np.flatnonzero(active & ~active[where])
    if not len(wrong):
        return
    reader = int(wrong[0])
    other = int(where[reader])
    gone = "has exited" if w.exited_lanes >> other & 1 else "does not execute it"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w}: lane {reader} reads the value of lane {other}, which {gone}",
        "execute it with the whole warp, or read from lanes that execute it",
    )


def _note_asked(w: Warp, op: Op, where: NDArray[np.int64]) -> None:
    """Where a lane is asked for an address that holds none."""
    holding = mask_array(w.machine.plan.lanes_asked[op.number])
    others = where[mask_array(w.mask) & ~holding[where]]
    if len(others):
        given = f"lane {others[0]} has no address to give, as others have: what {op.mnemonic} at"
        why = f"{given} {op.loc} gives of it is not known to be one in every launch"
        w.machine.outcome.decided_by_bases[why] = None
        w.machine.outcome.explorable = False


@executor(fx.Shuffles)
def _shuffles(c: Operands, op: Op, effect: fx.Shuffles) -> Give:
    value, lane = evaluator(c.code, effect.value), c.expr(effect.lane)
    results = (e.var for e in op.effects() if isinstance(e, fx.Defines) and e.value == effect)
    fits = [c.fit(result, effect.value) for result in results]
    fit = fits[0] if fits else None

    def read(w: Warp) -> Any:
        if w.mask == FULL:
            w.gather()
        found, of = value(w), plain(lane(w))
        given, unset = plain(found), open_lanes(found)
        asked = op.number in w.machine.plan.lanes_asked
        if type(given) is Unknown and not unset and w.mask == FULL and not asked:
            return given  # whichever lane is asked
        where = shuffled_from(effect.mode, of)
        if w.mask != FULL:
            _require_sources(w, op, where)
        if asked:
            _note_asked(w, op, where)
        if isinstance(given, np.ndarray):
            # one number for all lanes stays one
            alike = effect.mode == "idx" and type(of) is int
            given = given[where[:1]].tolist()[0] if alike else given[where]
        given = given if fit is None else fit(given)
        return opened(mask_bits(mask_array(unset)[where]), given) if unset else given

    return Give(effect, read)


# --------------------------------------------------------------- registers that an instruction sets


def spread(w: Warp, values: NDArray[Any]) -> Any:
    """One value per active lane as a register value: a scalar if all lanes hold the same."""
    kind: Any = np.float64 if values.dtype.kind in "Vf" else np.int64
    if values.dtype == np.uint64 and (values > np.iinfo(np.int64).max).any():
        kind = object  # Python's integers
    values = values.astype(kind)
    if (values == values[0]).all():
        return values[0] if kind is object else values[0].item()
    result = np.zeros(32, dtype=kind)
    result[mask_array(w.mask)] = values
    return result


def idle(c: Operands, op: Op) -> Step:
    """The step of an instruction whose results are not needed: its registers are set.

    It needs operands all the same, which it would find not to be set.
    """
    require_set = _requirement(c, op)
    slots = [c.slot(var) for var in registers_set(op)]

    def step(w: Warp) -> None:
        require_set(w)
        registers = w.registers
        for slot in slots:
            registers[slot] = 0

    return step


def _requirement(c: Operands, op: Op) -> Callable[[Warp], None]:
    """Raises `UnassignedVariable` where a register that an instruction is given is set on no path
    before: it may not evaluate its operands, which would find that."""
    read = {v.name: c.slot(v) for e in operand_expressions(op) for v in walk(e)
            if isinstance(v, Var) and v.name not in c.open.at_entry}  # fmt: skip
    sources = [*read.items()]

    def require_set(w: Warp) -> None:
        registers = w.registers
        for name, slot in sources:
            if registers[slot] is None:
                raise UnassignedVariable(name)

    return require_set


def exchanged(c: Operands, op: Op, general: Step) -> Step:
    """The step of an instruction by which lanes exchange what is not needed: they meet.

    ``general``: what it does where not all lanes take part, some of which may read from others.
    """
    rest = idle(c, op)

    def step(w: Warp) -> bool | None:
        if w.mask != FULL or len(w.acting) > 1:
            return general(w)
        w.gather()
        return rest(w)

    return step


def idle_row(c: Operands, ops: Sequence[Op], alone: Sequence[tuple[Step, bool]]) -> Step:
    """Instructions in a row that are `idle`, as one step; ``alone`` are their steps, each with
    whether it counts as executed."""
    slots: dict[int, None] = {}
    before: dict[int, None] = {}
    for op in ops:
        read = (v for e in operand_expressions(op) for v in walk(e)
                if isinstance(v, Var) and v.name not in c.open.at_entry)  # fmt: skip
        before |= dict.fromkeys(slot for v in read if (slot := c.slot(v)) not in slots)
        slots |= dict.fromkeys(c.slot(var) for var in registers_set(op))
    sources, results, others = [*before], [*slots], len(ops) - 1
    counted = max(0, sum(counts for _, counts in alone) - 1)

    def step(w: Warp) -> None:
        registers = w.registers
        for slot in sources:
            if registers[slot] is None:
                one_by_one(w, alone)  # which ends where one reads what was not assigned
                return
        for slot in results:
            registers[slot] = 0
        w.pc += others
        w.executed += counted

    return step


def per_lane(w: Warp, value: Any) -> NDArray[Any]:
    """A register value as one element per active lane."""
    value = plain(value)
    known = isinstance(value, np.ndarray) and value.shape == (32,)
    lanes: NDArray[Any] = (value if known else np.broadcast_to(value, 32))[mask_array(w.mask)]
    return lanes


@executor(fx.Defines)
def _defines(c: Operands, op: Op, effect: fx.Defines) -> Act | Take:
    slot, oracle, elsewhere = c.slot(effect.var), effect.oracle, effect.elsewhere
    if effect.unknown:
        unknown, require_set = Unknown(effect.unknown, loc=op.loc), _requirement(c, op)
        sources = [c.slot(v) for e in operand_expressions(op) for v in walk(e)
                   if isinstance(v, Var) and v.name in c.open.unset]  # fmt: skip

        def lose(w: Warp) -> None:
            require_set(w)
            lanes = 0
            for source in sources:
                lanes |= unset_lanes(w.registers[source])
            assign(w, slot, unknown.opened(lanes))

        return Act(lose)
    if isinstance(effect.value, Expr):
        # the register may take a number that is open
        return Take(_setter(c, effect.var, effect.value), evaluator(c.code, effect.value))
    fit = fit_value(effect.var.dtype, None)

    def store(w: Warp, lanes: NDArray[Any]) -> None:
        value = spread(w, lanes)
        assign(w, slot, value if fit is None else fit(value))

    def compute(w: Warp, value: Any) -> None:
        lanes, value = open_lanes(value) & w.mask, plain(value)
        if type(value) is Unknown or type(value) is int:
            assign(w, slot, value if fit is None or type(value) is not int else fit(value))
        else:
            store(w, np.broadcast_to(value, 32)[mask_array(w.mask)])
        if lanes:
            held = w.registers[slot]
            w.registers[slot] = opened(open_lanes(held) | lanes, plain(held))

    def guess(w: Warp, value: Any) -> None:
        w.machine.nondeterministic(oracle, op, explorable=False)
        if elsewhere:
            w.machine.outcome.elsewhere.setdefault(oracle, op.loc)
        compute(w, value)

    if oracle and effect.var.name in c.flow.deciding:
        return Take(guess)
    if effect.value is None:
        return Take(compute)

    if isinstance(effect.value, View):
        raise TypeError(f"{op.mnemonic}: what lanes load has an executor of its own")
    return Take(lambda w, value: assign(w, slot, value), effect.value)


def _setter(c: Operands, var: Var, value: Expr) -> Callable[[Warp, Any], None]:
    """How the value of an expression gets into its register, with as little as that needs."""
    slot, fit = c.slot(var), c.fit(var, value)
    if c.private(var):

        def keep(w: Warp, value: Any) -> None:
            value = value if fit is None else fit(value)
            if w.machine.split_groups:  # other lanes may be in another iteration
                assign(w, slot, value)
            else:
                w.registers[slot] = value

        return keep

    def write(w: Warp, value: Any) -> None:
        if fit is not None:
            value = fit(value)
        # `assign`, without a call of it
        if w.mask == FULL:
            w.registers[slot] = value
        else:
            assign(w, slot, value)

    return write
