"""What to look at while one cluster runs, so that all others can be compared with it.

What may differ between the clusters of a grid is read off the program, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.solver import closure
from tilesim.analysis.taint import tensors_written
from tilesim.analysis.uses_defs import (
    OPERANDS,
    expressions_in,
    mentioned,
    operand_expressions,
    registers_of,
    registers_set,
    sets_only,
)
from tilesim.arith.byte_set import ByteSet
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import GlobalTensor, TensorMap, View
from tilesim.ir.expr import Binary, Expr, constant, divisor, walk
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.scalar import Atomic, Load, Shuffle, Store
from tilesim.ir.tensormap import in_bytes, in_global, unit
from tilesim.records import dataclass, replace
from tilesim.sim.machine.expression import (
    Fit,
    fit_register,
    fit_value,
    may_divide_by_zero,
)
from tilesim.sim.machine.machine import Code

Integers = NDArray[np.int64]
#: special registers that are not the same function of rank, warp and lane in every cluster
_OF_THE_GRID = ("%cta_x", "%cta_y", "%cta_z", "%cluster_id")
#: those that differ between the warps of a CTA
OF_THE_WARP = ("%warp_id", "%thread_id")


def varying_registers(mir: Mir) -> frozenset[str]:
    """What may have different values in different clusters, special registers among it."""
    made = registers_of(mir)
    return frozenset(closure(_OF_THE_GRID, lambda name: made.get(name, ())))


def varies(expr: Expr, registers: Collection[str]) -> bool:
    """Whether an expression may have different values in different clusters."""
    named = mentioned(expr)
    return not named.isdisjoint(_OF_THE_GRID) or not named.isdisjoint(registers)


def is_far(value: object) -> TypeGuard[View]:
    """Whether an operand is at an address that may be into global memory."""
    if not isinstance(value, View) or not isinstance(value.tensor, AddressedTensor):
        return False
    return value.tensor.space in ("global", "generic")


def global_operand(op: Op) -> View | TensorMap | None:
    """What an instruction names in global memory: no instruction names two places there."""
    for name in OPERANDS[type(op)]:
        value = getattr(op, name)
        if isinstance(value, TensorMap) and hasattr(op, "coords"):
            return value
        if isinstance(value, View) and isinstance(value.tensor, GlobalTensor):
            return value
    return None


#: the largest number of bytes that an address has to be a multiple of
ALIGNED = 16

# ----------------------------------------------------------- what to look at while one cluster runs


@dataclass(frozen=True)
class NamedAccess:
    """What an instruction names in global memory: per dimension its offset in elements.

    ``tracked``: the kernel writes the tensor, so that accesses to it may race. ``aligned``: the
    instruction asks for an aligned address. ``decides``: what is read there may steer and is not
    zero everywhere.
    """

    tensor: GlobalTensor
    offsets: tuple[Expr, ...]
    extents: tuple[int, ...]
    map: TensorMap | None
    tracked: bool
    aligned: bool
    decides: bool


@dataclass(frozen=True)
class AddressedAccess:
    """What an instruction accesses at an address into global memory, or a generic one.

    ``address``: of the first byte, a multiple of ``align``; ``pieces``: intervals of bytes from
    there. ``written``: the tensors in which it may lie and which the kernel writes; ``decides`` as
    for `NamedAccess`. ``moves``: what is accessed moves along with the address. ``real``: how many
    bytes are read, if that is an operand; of none the address does not matter.
    """

    address: Expr
    pieces: tuple[tuple[int, int], ...]
    align: int
    written: frozenset[str]
    decides: bool
    moves: bool
    real: Expr | None = None


@dataclass(frozen=True)
class Plan:
    """What an instruction evaluates that may differ between clusters.

    The clusters of a class agree on ``same`` and ``stays``. ``moves``: what it sets is ``data``,
    read from memory, or computed of these operands; a shuffle takes the first of another lane, as
    the second says. ``fits`` bring results into their registers.
    """

    same: tuple[Expr, ...] = ()
    stays: Expr | None = None
    place: NamedAccess | None = None
    far: AddressedAccess | None = None
    moves: Literal["mov", "ld", "shfl.sync", "computes"] | None = None
    data: tuple[Expr, ...] = ()
    fits: tuple[Fit | None, ...] = ()

    @property
    def others(self) -> tuple[Expr, ...]:
        """All else that is evaluated: data, and places in global memory."""
        offsets = () if self.place is None else self.place.offsets
        far = () if self.far is None else (self.far.address, self.far.real)
        return (*self.data, *offsets, *(expr for expr in far if expr is not None))

    @property
    def accesses(self) -> bool:
        """Whether it is looked at where in global memory an access lies."""
        return self.place is not None or self.far is not None


@dataclass(frozen=True)
class _Context:
    """What is known about the program as a whole."""

    code: Code
    varying: Collection[str]
    holds: Callable[[str], bool]
    numbers: bool
    written: Collection[str]
    given: Collection[str]

    def varies(self, expr: Expr | None) -> bool:
        return expr is not None and varies(expr, self.varying)


def asks_for_clusters(mir: Mir) -> bool:
    """Whether clusters take over the work of others, of which no expression says anything."""
    return bool(mir.all_of(fx.Cancels))


def plans(
    code: Code,
    holds: Callable[[str], bool],
    *,
    numbers: bool,
    written: Collection[str],
    given: Collection[str],
) -> dict[int, Plan]:
    """By number: the instructions to look at.

    ``holds``: whether the bytes of a tensor may be observed; ``numbers``: whether those of tiles.
    ``written`` are tensors that the kernel writes, ``given`` those whose contents were given.
    """
    context = _Context(code, varying_registers(code.mir), holds, numbers, written, given)
    alive = ((n, i) for n, i in enumerate(code.mir.code) if n not in code.idle)
    made = ((number, _plan(context, number, i)) for number, i in alive)
    return {number: plan for number, plan in made if plan is not None}


def _plan(context: _Context, number: int, instruction: Instruction) -> Plan | None:
    op, stays, plan = instruction.what, context.code.stays.get(number), Plan()
    matters = context.varies(condition(instruction))
    if isinstance(op, Op):
        plan = _instruction(context, op)
        matters |= any(r.name in context.varying for r in registers_set(op))
    if stays is not None and context.varies(stays):
        plan, matters = replace(plan, stays=stays), True
    return plan if matters or plan.same or plan.place or plan.far else None


def _instruction(context: _Context, op: Op) -> Plan:
    match op.effects():
        case (fx.Defines(var=var, value=Expr() as value),):
            typing = context.code.mir.typing
            fit = fit_register(var.dtype, value, typing, token=var.name in typing.tokens)
            return Plan(moves="mov", data=(value,), fits=(fit,))
        case _:
            pass
    place, far, named = _place(context, op), _far(context, op), _far_operand(op)
    if isinstance(op, Computation):
        fits = tuple(fit_value(register.dtype, None) for register in registers_set(op))
        return Plan((), None, place, far, "computes", operand_expressions(op), fits)
    same: list[Expr] = []
    for name in () if _guesses(op) else OPERANDS[type(op)]:
        value = getattr(op, name)
        inputs = name == "coords" and _only_inputs(context, op)
        # a map in memory says what is inside of its tensor: the clusters of a class have the same
        if name not in op.addresses:
            if _is_place(value) or value is named or inputs:
                continue
            if name == "coords" and not _scattered(op):
                continue
            if isinstance(op, Shuffle) and name == "value":
                continue
            if _is_only_data(context, op, name):
                same += _divisors(context, value)
                continue
        same += filter(context.varies, expressions_in(value))
    same += filter(context.varies, _starts(context, op))
    plan = Plan(tuple(same), None, place, far)
    match op:
        case Load():
            return replace(plan, moves="ld")
        case Shuffle():
            return replace(plan, moves="shfl.sync", data=(op.value, op.lane))
        case _:
            return plan


def _guesses(op: Op) -> bool:
    """Whether it is not known what an instruction sets, whatever its operands are."""
    if not sets_only(op):
        return False
    return all(isinstance(e, fx.Defines) and (e.oracle or e.unknown) for e in op.effects())


def _divisors(context: _Context, value: object) -> Iterator[Expr]:
    """Whether data that is not followed is the quotient of a division by zero."""
    for part in (p for e in expressions_in(value) for p in walk(e)):
        if isinstance(part, Binary) and may_divide_by_zero(part, context.code.mir.typing):
            zero = part.rhs.eq(0)
            if context.varies(zero):
                yield zero


def _starts(context: _Context, op: Op) -> list[Expr]:
    """How far from where rows of a tensor copy may begin its first coordinate is (B36, B37)."""
    target, found = context.code.mir.kernel.target.name, []
    for effect in op.effects():
        if isinstance(effect, fx.ReadsMap | fx.WritesMap):
            least = unit(effect.map.packing, effect.map.tensor.dtype, target)
            if divisor(effect.coords[-1]) % least:
                found.append(effect.coords[-1] % least)
    return found


def _scattered(op: Op) -> bool:
    """Whether an instruction names rows or pixels that lie apart, or a box that a tensor map in
    memory has, or in a part of a tensor: no box at an offset among its operands."""
    elsewhere = getattr(op, "mode", "tile") != "tile" or getattr(op, "at", None) is not None
    elsewhere |= getattr(getattr(op, "map", None), "dims", None) is not None
    return hasattr(op, "coords") and elsewhere


def _is_place(value: object) -> bool:
    return isinstance(value, View) and isinstance(value.tensor, GlobalTensor)


def _is_only_data(context: _Context, op: Op, name: str) -> bool:
    """Whether nothing that the machine follows depends on the contents of an operand."""
    if op.mnemonic.startswith("tile."):
        return not context.numbers
    stored = [tensor for effect in op.effects() for tensor in tensors_written(effect)]
    return name in op.data and bool(stored) and not any(map(context.holds, stored))


def _place(context: _Context, op: Op) -> NamedAccess | None:
    """What the instruction names in global memory, unless all clusters only read the same there."""
    named = global_operand(op)
    if named is None:
        return None
    if _scattered(op):
        at: View | None = getattr(op, "at", None)
        if at is None or not _is_place(at) or not _only_inputs(context, op):
            return None  # one at an address is looked at as such
        named = at
    tensor = named.tensor
    assert isinstance(tensor, GlobalTensor)
    observed, given = context.holds(tensor.name), tensor.name in context.given
    if isinstance(named, TensorMap):
        offsets = in_bytes(named, getattr(op, "coords", ()))
        extents = in_global(named, named.box_shape)
        given = given or named.fill == "nan"
    else:
        offsets, extents = named.offsets, named.extents
    tracked, decides = tensor.name in context.written, observed and given
    matters = decides or isinstance(named, View)
    if not tracked and not (matters and any(map(context.varies, offsets))):
        return None
    scalar = isinstance(op, Load | Store | Atomic)
    return NamedAccess(
        tensor, tuple(offsets), extents,
        named if isinstance(named, TensorMap) else None, tracked,
        aligned=not scalar and not op.mnemonic.startswith("tile."),
        decides=decides,
    )  # fmt: skip


def _far(context: _Context, op: Op) -> AddressedAccess | None:
    """What the instruction accesses at an address, unless all clusters only read the same there."""
    view = _far_operand(op)
    if view is None:
        return None
    tensor = view.tensor
    assert isinstance(tensor, AddressedTensor)
    address, within = tensor.address, tensor.within
    for offset, stride in zip(view.offsets, tensor.byte_strides, strict=True):
        if constant(offset) != 0:
            address = address + offset * stride
    written = frozenset(context.written)
    if within:
        written &= {within}
    if not written and not context.varies(address):
        return None
    given = within in context.given if within else bool(context.given)
    sizes = tuple(zip(view.extents, tensor.byte_strides, strict=True))
    return AddressedAccess(
        address, _pieces(sizes, tensor.dtype.bytes),
        ALIGNED if view.nbytes % ALIGNED == 0 else view.nbytes & -view.nbytes, written,
        decides=given and context.holds(tensor.name),
        moves=not tensor.swizzle,
        real=next(_real(op), None),
    )  # fmt: skip


def _real(op: Op) -> Iterator[Expr]:
    """How many bytes a copy reads, if that is an operand."""
    for effect in op.effects():
        if isinstance(effect, fx.Issues) and effect.real is not None:
            yield effect.real


def _far_operand(op: Op) -> View | None:
    """The only operand of an instruction at an address that may be into global memory."""
    views = [v for name in OPERANDS[type(op)] if is_far(v := getattr(op, name))]
    return views[0] if len(views) == 1 else None


def _pieces(sizes: tuple[tuple[int, int], ...], itemsize: int) -> tuple[tuple[int, int], ...]:
    """The bytes of a box, of which ``sizes`` are the extents and strides of the dimensions."""
    spans = tuple(range(extent) for extent, _ in sizes)
    held = ByteSet.box(0, spans, tuple(stride for _, stride in sizes), itemsize)
    return tuple(held.pairs)


def _only_inputs(context: _Context, op: Op) -> bool:
    """Whether a copy that names no box reads only what is never written or looked at."""
    if not _scattered(op):
        return False
    named = [e.map for e in op.effects() if isinstance(e, fx.ReadsMap)]
    names = {tensor.name for m in named for tensor in m.tensors}
    filled = {m.fill == "nan" for m in named} != {False}
    decides = any(context.holds(name) and (filled or name in context.given) for name in names)
    return bool(named) and not decides and names.isdisjoint(context.written)


def refuses_negative(op: object) -> bool:
    """Whether negative coordinates are an error: boxes stored may stick out at the end only."""
    return isinstance(op, Op) and any(isinstance(e, fx.WritesMap) for e in op.effects())
