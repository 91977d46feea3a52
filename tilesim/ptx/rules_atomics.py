"""Rules for atomics on vectors and on floating-point numbers: they are atomics on each element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, zip_longest
from typing import Literal

from tilesim.arith.types import WIDTH, DType, f32
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Decode, Encode
from tilesim.ir.ops.multimem import MultimemLdReduce, MultimemRed, MultimemSt
from tilesim.ir.ops.scalar import Atomic
from tilesim.ptx.constants import registers
from tilesim.ptx.flat import POLICY, At, Nothing, Step
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.spelled import element, spelled
from tilesim.ptx.syntax import Integer

_FLOATS: dict[str, Literal["f16", "bf16", "f32", "f64"]] = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
}  # fmt: skip
#: an acquire of a value that nobody looks at, nor at any other that threads leave for each other,
#: comes after nothing for certain, and a release that nobody looks at before nothing
_WITHOUT_ORDER = {"acq_rel": "relaxed", "acquire": "relaxed", "release": "relaxed"}
_WITHOUT_RESULT = {"acq_rel": "release", "acquire": "relaxed"}
_WIDEST = 64
_WIDE = frozenset({"f32", "f64"})
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


@rule("atom", "red")
def _atomic(low: Lowering, step: Step) -> Iterator[Op]:
    step = _as_seen(low, step)
    names = step.qualifiers
    kind = next((q for q in reversed(names) if q in WIDTH), "")
    if WIDTH.get(kind, 0) > _WIDEST:
        raise low.unsupported(f"atomics on {kind} are not modelled")
    dtype, packed = element(kind) if kind else (f32, 1)
    if "async" in names or (dtype.kind != "float" and not set(names) & _VECTORS.keys()):
        ops = spelled(low, step)
        if ops is None:
            raise low.unsupported("this operation is not modelled")
        yield from ops
        return
    if dtype.name not in _FLOATS:
        raise low.unsupported(f"atomics on vectors of {kind} are not modelled")
    yield from _elements(low, step, dtype, packed, kind)


def _as_seen(low: Lowering, step: Step) -> Step:
    """An atomic without what it orders if nobody sees that, nor what it finds."""
    names, seen = step.qualifiers, low.constants.observes
    if "async" in names:
        return step
    if step.base == "atom":
        acquires = bool(_WITHOUT_RESULT.keys() & set(names))
        results = [r.name for r in registers(step.operands[0])]
        if (acquires and seen) or not low.constants.read.isdisjoint(results):
            return step
        step = replace(step, operands=(Nothing(), *step.operands[1:]))
    elif seen:
        return step
    without = _WITHOUT_RESULT if seen else _WITHOUT_ORDER
    opcode = ".".join((step.base, *(without.get(q, q) for q in names)))
    return step.as_if(opcode, step.operands)


def _elements(low: Lowering, step: Step, dtype: DType, packed: int, kind: str) -> Iterator[Op]:
    """One atomic for each element; vectors and pairs are not atomic as a whole (PTX ``red``)."""
    operands = step.operands_without_policy
    has_result = step.base == "atom" and operands[0] != Nothing()
    targets = low.items(operands[0]) if has_result else ()
    given, place = low.items(operands[-1]), operands[-2]
    size = next((n for name, n in _VECTORS.items() if name in step.qualifiers), 1)
    if not isinstance(place, At) or {len(given), len(targets) or size} != {size}:
        raise low.unsupported("operands are a result, an address and a value")
    encoded, number, whole = _FLOATS[dtype.name], count(), size * packed * dtype.bytes
    for value, target in zip_longest(given, targets, fillvalue=Nothing()):
        values = tuple(low.variable(dtype) for _ in range(packed))
        before = tuple(low.variable(dtype) for _ in values) if target != Nothing() else ()
        source = low.value(value, packed * dtype.bits)
        yield Decode(results=values, value=source, kind=encoded, loc=low.loc)
        for operand, result in zip_longest(values, before):
            beyond = next(number) * dtype.bytes
            at = At(place.base, place.offset + beyond, vector=(whole, beyond))
            yield replace(_one(low, step, at, kind, dtype), value=operand, result=result)
        if before:
            yield Encode(
                result=low.register(target), items=before, kind=encoded, loc=low.loc
            )  # fmt: skip


def _one(low: Lowering, step: Step, place: At, kind: str, dtype: DType) -> Atomic:
    """The same operation on one element, without operands."""
    dropped = {*_VECTORS, kind, POLICY}
    names = [q for q in step.qualifiers if q not in dropped]
    opcode = ".".join(("red", *names, dtype.name))
    (op,) = spelled(low, step.as_if(opcode, (place, Integer(0)))) or (None,)
    if not isinstance(op, Atomic) or op.op != "add":
        raise low.unsupported("this operation on floating-point numbers is not modelled")
    return op


@rule("multimem")
def _of_all_devices(low: Lowering, step: Step) -> Iterator[Op]:
    """Numbers of 32 and 64 bits are in registers as bits; narrow ones are packed there anyway."""
    for op in spelled(low, step) or (None,):
        match op:
            case MultimemLdReduce(src=view) if view.dtype.name in _WIDE:
                numbers = tuple(low.variable(view.dtype) for _ in op.results)
                yield replace(op, results=numbers)
                for register, number in zip(op.results, numbers, strict=True):
                    kind = _FLOATS[view.dtype.name]
                    yield Encode(result=register, items=(number,), kind=kind, loc=low.loc)
            case MultimemSt(dst=view) | MultimemRed(dst=view) if view.dtype.name in _WIDE:
                numbers = tuple(low.variable(view.dtype) for _ in op.values)
                for number, value in zip(numbers, op.values, strict=True):
                    kind = _FLOATS[view.dtype.name]
                    yield Decode(results=(number,), value=value, kind=kind, loc=low.loc)
                yield replace(op, values=numbers)
            case Op():
                yield op
            case _:
                raise low.unsupported("this operation is not modelled")
