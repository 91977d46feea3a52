"""Rules for loads, stores, atomics, and addresses between state spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from tilesim.ir.op import Op
from tilesim.ir.ops.address import Cvta, CvtaTo, Mapa, MapaGeneric
from tilesim.ir.ops.matrix import Ldmatrix, Stmatrix
from tilesim.ir.ops.scalar import Assign, Atomic, AtomicOp, AtomicSem, Load, Store
from tilesim.ir.ops.vector import LoadVector, StoreVector
from tilesim.ir.types import s8, s16, s32, u16
from tilesim.ptx.flat import At, Flat, Nothing, Step, Symbol
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.syntax import WIDTH

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_SCOPES: dict[str, Literal["cta", "cluster", "gpu", "sys"]] = {
    "cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys",
}  # fmt: skip
#: qualifiers that change no value and no order: caches, eviction, non-coherent loads
_HINTS = frozenset({"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"})
_WEAK = frozenset({"weak", *_HINTS})


def _scope(step: Step, default: Literal["cta", "sys"] = "cta") -> Literal[
    "cta", "cluster", "gpu", "sys"
]:  # fmt: skip
    return next((_SCOPES[q] for q in step.qualifiers if q in _SCOPES), default)


def _known(low: Lowering, step: Step, *names: str) -> None:
    """Qualifiers are of known kinds, or nothing is assumed of the instruction."""
    allowed = {
        *names, *_WEAK, *_SCOPES, *_VECTORS, "shared", "shared::cta", "shared::cluster", "global",
        "param", "param::entry", "param::func",
    }  # fmt: skip
    for qualifier in step.qualifiers[:-1]:
        if qualifier in allowed or qualifier.startswith(("L1::", "L2::")):
            continue
        raise low.unsupported(f".{qualifier} is not modelled")


def _parameter(low: Lowering, operand: Flat) -> Symbol | None:
    """The place in the parameters that an address names."""
    if not isinstance(operand, At):
        return None
    if isinstance(operand.base, Symbol):
        return operand.base if operand.base.variable.space == "param" else None
    base = low.constants.parameter(operand.base) if not isinstance(operand.base, int) else None
    return None if base is None else Symbol(base.variable, base.offset + operand.offset)


@rule("ld")
def _load(low: Lowering, step: Step) -> Iterator[Op]:
    _known(low, step, "relaxed", "acquire", "volatile")
    kind = step.qualifiers[-1]
    targets, place = low.items(step.operands[0]), step.operands[1]
    parameter = _parameter(low, place)
    if parameter is not None:
        yield from _load_parameter(low, targets, parameter, WIDTH[kind] // 8)
        return
    space = low.space(step.qualifiers)
    if len(targets) > 1:
        yield from _load_vector(low, step, targets, space)
        return
    signed = {"s8": s8, "s16": s16, "s32": s32}.get(kind)
    view = low.view(place, signed or low.bits(WIDTH[kind]), (), space)
    var = low.register(targets[0])
    if "acquire" in step.qualifiers:
        yield Load(var=var, src=view, sem="acquire", scope=_scope(step), loc=low.loc)
    elif "relaxed" in step.qualifiers or "volatile" in step.qualifiers:
        scope = _scope(step, "sys" if "volatile" in step.qualifiers else "cta")
        yield Load(var=var, src=view, sem="relaxed", scope=scope, loc=low.loc)
    else:
        yield Load(var=var, src=view, loc=low.loc)


def _load_parameter(
    low: Lowering, targets: tuple[Flat, ...], place: Symbol, nbytes: int
) -> Iterator[Op]:
    for k, target in enumerate(targets):
        if target == Nothing():
            continue
        offset = place.offset + k * nbytes
        value = low.launched.value(place.variable.name, offset, nbytes)
        if value is None:
            raise low.unsupported(
                f"byte {offset} of {place.variable.name} is not in the launch description",
                "give its value",
            )  # fmt: skip
        yield Assign(var=low.register(target), value=value, loc=low.loc)


def _load_vector(low: Lowering, step: Step, targets: tuple[Flat, ...], space: str) -> Iterator[Op]:
    width = WIDTH[step.qualifiers[-1]]
    if "acquire" in step.qualifiers or "relaxed" in step.qualifiers or width < 32:
        raise low.unsupported("vectors of this kind are not modelled")
    view = low.view(step.operands[1], low.bits(width), (len(targets),), space)
    results = tuple(low.register(t) for t in targets)
    yield LoadVector(results=results, src=view, loc=low.loc)


@rule("st")
def _store(low: Lowering, step: Step) -> Iterator[Op]:
    _known(low, step, "relaxed", "release", "volatile")
    width = WIDTH[step.qualifiers[-1]]
    place, values = step.operands[0], low.items(step.operands[1])
    space = low.space(step.qualifiers)
    if len(values) > 1:
        if "release" in step.qualifiers or "relaxed" in step.qualifiers or width < 32:
            raise low.unsupported("vectors of this kind are not modelled")
        view = low.view(place, low.bits(width), (len(values),), space)
        given = tuple(low.value(v, width) for v in values)
        yield StoreVector(dst=view, values=given, loc=low.loc)
        return
    view = low.view(place, low.bits(width), (), space)
    value = low.value(values[0], width)
    if "release" in step.qualifiers:
        yield Store(dst=view, value=value, sem="release", scope=_scope(step), loc=low.loc)
    elif "relaxed" in step.qualifiers or "volatile" in step.qualifiers:
        scope = _scope(step, "sys" if "volatile" in step.qualifiers else "cta")
        yield Store(dst=view, value=value, sem="relaxed", scope=scope, loc=low.loc)
    else:
        yield Store(dst=view, value=value, loc=low.loc)


# ---------------------------------------------------------------------- atomics


@rule("atom", "red")
def _atomic(low: Lowering, step: Step) -> Iterator[Op]:
    has_result = step.base == "atom"
    name = next((q for q in step.qualifiers if q in get_args(AtomicOp)), None)
    sem = next((q for q in step.qualifiers if q in get_args(AtomicSem)), "relaxed")
    allowed = {*get_args(AtomicOp), *get_args(AtomicSem), *_SCOPES, "global", "shared",
               "shared::cta", "shared::cluster"}  # fmt: skip
    if name is None or not set(step.qualifiers[:-1]) <= allowed:
        raise low.unsupported("this operation is not modelled")
    kind = step.qualifiers[-1]
    width = WIDTH[kind]
    dtype = {"s32": s32}.get(kind, low.bits(width))
    if kind[0] == "f" or kind == "bf16" or "x2" in kind:
        raise low.unsupported("atomics on floating-point numbers are not modelled")
    operands = step.operands[1:] if has_result else step.operands
    view = low.view(operands[0], dtype, (), low.space(step.qualifiers))
    values = [low.value(v, width) for v in operands[1:]]
    result = None
    if has_result and step.operands[0] != Nothing():
        result = low.register(step.operands[0])
    for op in get_args(AtomicOp):
        for order in get_args(AtomicSem):
            if (op, order) == (name, sem):
                yield Atomic(
                    dst=view, op=op, value=values[-1], sem=order, scope=_scope_of_atomic(step),
                    compare=values[0] if op == "cas" else None, result=result, loc=low.loc,
                )  # fmt: skip


def _scope_of_atomic(step: Step) -> Literal["cta", "cluster", "gpu", "sys"]:
    return next((_SCOPES[q] for q in step.qualifiers if q in _SCOPES), "gpu")


# ---------------------------------------------------------------------- addresses


@rule("cvta")
def _convert(low: Lowering, step: Step) -> Iterator[Op]:
    space = low.space(step.qualifiers)
    var, address = low.register(step.operands[0]), low.value(step.operands[1])
    if step.qualifiers[-1] != "u64":
        raise low.unsupported("addresses of 32 bits are not modelled")
    match space:
        case "shared::cta" | "shared::cluster" | "global":
            if "to" in step.qualifiers:
                yield CvtaTo(result=var, address=address, space=space, loc=low.loc)
            else:
                yield Cvta(result=var, address=address, space=space, loc=low.loc)
        case _:
            raise low.unsupported(f"addresses in .{space} are not modelled")


@rule("mapa")
def _mapa(low: Lowering, step: Step) -> Iterator[Op]:
    var = low.register(step.operands[0])
    address, cta = low.value(step.operands[1]), low.value(step.operands[2], 32)
    if low.space(step.qualifiers) == "generic":
        yield MapaGeneric(result=var, address=address, cta=cta, loc=low.loc)
    else:
        yield Mapa(result=var, address=address, cta=cta, loc=low.loc)


# ---------------------------------------------------------------------- matrices


@rule("ldmatrix.sync.aligned.m8n8")
def _load_matrix(low: Lowering, step: Step) -> Iterator[Op]:
    row = low.view(step.operands[1], u16, (8,), low.space(step.qualifiers))
    results = tuple(low.register(r) for r in low.items(step.operands[0]))
    yield Ldmatrix(results=results, row=row, trans="trans" in step.qualifiers, loc=low.loc)


@rule("stmatrix.sync.aligned.m8n8")
def _store_matrix(low: Lowering, step: Step) -> Iterator[Op]:
    row = low.view(step.operands[0], u16, (8,), low.space(step.qualifiers))
    values = tuple(low.value(v, 32) for v in low.items(step.operands[1]))
    yield Stmatrix(row=row, values=values, trans="trans" in step.qualifiers, loc=low.loc)
