"""Rules for memory that MIR does not have: parameters, arguments, constants, local variables.

Atomics on vectors and on floating-point numbers are atomics on each element.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, zip_longest
from typing import Literal

from tilesim.arith.types import WIDTH, DType, f32
from tilesim.ir.elements import unordered
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Data, Decode, Encode
from tilesim.ir.ops.multimem import MultimemLdReduce, MultimemRed, MultimemSt
from tilesim.ir.ops.scalar import Assign, Atomic
from tilesim.ptx.constants import extended, registers
from tilesim.ptx.expressions import signed
from tilesim.ptx.inline import POLICY, At, Flat, Items, Register, Step, Symbol
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.rules.by_spelling import element, spelled
from tilesim.ptx.syntax import Integer, Sink
from tilesim.records import replace

_VECTORS = frozenset({"v2", "v4", "v8"})
_STRONG = frozenset({"acquire", "release", "relaxed", "volatile"})
#: state spaces that are parts of global memory here
_PARTS = frozenset({"local", "const"})
#: instructions whose result is an address of what an operand is one of, and how many in a row
_KEEPING = frozenset({"mov", "cvta", "cvt", "add", "sub"})
_DEEPEST = 64


def _place(low: Lowering, operand: Flat) -> Symbol | None:
    """The place in the parameters, arguments or constants that an address names, if it is known."""
    if not isinstance(operand, At) or isinstance(operand.base, int):
        return None
    if isinstance(operand.base, Symbol):
        return operand.base
    base = low.constants.place(operand.base)
    return None if base is None else Symbol(base.variable, base.offset + operand.offset)


def _elements(step: Step, place: Symbol, items: tuple[Flat, ...]) -> Iterator[tuple[Symbol, Flat]]:
    """Each register of a vector with its place, but those that are ``_``."""
    for k, item in enumerate(items):
        if item != Sink():
            yield Symbol(place.variable, place.offset + k * _size(step)), item


def _size(step: Step) -> int:
    return WIDTH[step.qualifiers[-1]] // 8


def _is_argument(low: Lowering, place: Symbol) -> bool:
    """Whether it is a variable with which a function is called, no parameter of the kernel."""
    return all(p.name != place.variable.name for p in low.kernel.entry.params)


def _require_form(low: Lowering, step: Step) -> None:
    """What is loaded fits its registers, what is stored has all bits of its type, and a variable is
    in the state space that the instruction names.

    Raises:
        PtxError: a register is narrower, or a variable is elsewhere.
    """
    place, space = step.operands[step.base == "ld"], low.space(step.qualifiers)
    if isinstance(place, At) and isinstance(place.base, Symbol) and space != "generic":
        variable = place.base.variable
        if variable.space != space.partition("::")[0]:
            raise low.malformed(f"{variable.name} is in .{variable.space}")
    elif isinstance(place, At) and isinstance(place.base, Register):
        within = _space_of(low, place.base)
        if within not in (None, space):
            raise low.unsupported(f"the address of a variable for .{within} is used for .{space}")
    if step.base in ("ld", "st") and step.qualifiers[-1] in WIDTH:
        for item in low.items(step.operands[step.base == "st"]):
            low.require_width(item, 8 * _size(step), wider=True)


def _space_of(low: Lowering, operand: Flat, depth: int = 0) -> str | None:
    """The space for which a register is the address of a variable in ``.local`` or ``.const``: its
    own, or generic; None if it is no such address, as far as one instruction each says."""
    if isinstance(operand, Symbol):
        return operand.variable.space if operand.variable.space in _PARTS else None
    step = low.constants.setter(operand)
    if step is None or depth > _DEEPEST:
        return None
    if step.base == "ld" and isinstance(operand, Register):
        passed = low.constants.passed(step, operand)
        return None if passed is None else _space_of(low, passed, depth + 1)
    if step.base not in _KEEPING:
        return None
    found = (_space_of(low, source, depth + 1) for source in step.operands[1:])
    within = next((space for space in found if space is not None), None)
    if within is None or step.base != "cvta":
        return within
    return low.space(step.qualifiers) if "to" in step.qualifiers else "generic"


@rule("isspacep.global")
def _in_global(low: Lowering, step: Step) -> Iterator[Op]:
    """Variables that lie in global memory here are elsewhere."""
    elsewhere = sorted(n for n, v in low.kernel.variables.items() if v.space in _PARTS)
    if elsewhere:
        raise low.unsupported(f"whether an address is in .global, or that of {elsewhere[0]}")
    yield from spelled(low, step)


def _require_inside(low: Lowering, place: Symbol, nbytes: int) -> None:
    """A parameter, or a variable with which a function is called, has all bytes that are accessed.

    Raises:
        PtxError: some lie before it, or behind its end.
    """
    name, size, first = place.variable.name, place.variable.size, place.offset
    if not 0 <= first <= size - nbytes:
        raise low.malformed(
            f"bytes {first} to {first + nbytes - 1} of {name}, which has {size} bytes"
        )


@rule("ld")
def _load(low: Lowering, step: Step) -> Iterator[Op]:
    _require_form(low, step)
    place, nbytes = _place(low, step.operands[1]), _size(step)
    if place is None or place.variable.space not in ("param", "const"):
        yield from _in_memory(low, step)
        return
    values: list[tuple[Flat, int | None]] = []
    items = low.items(step.operands[0])
    if place.variable.space == "param":
        _require_inside(low, place, nbytes * len(items))
    for part, target in _elements(step, place, items):
        if place.variable.space == "const":
            values.append((target, low.launched.constant(part.variable, part.offset, nbytes)))
        elif _is_argument(low, place):
            passed = low.part_of_argument(part, nbytes)
            if step.qualifiers[-1].startswith("s"):
                passed = signed(passed, 8 * nbytes)
            yield Assign(var=low.register(target), value=passed, loc=low.loc)
        else:
            yield _parameter(low, step, target, part)
    if any(value is None for _, value in values):
        yield from _in_memory(low, step)
        return
    for target, value in values:
        held = extended(value or 0, step.qualifiers[-1], target)
        yield Assign(var=low.register(target), value=Const(held), loc=low.loc)


def _parameter(low: Lowering, step: Step, target: Flat, place: Symbol) -> Op:
    value = low.launched.value(place.variable.name, place.offset, _size(step))
    var = low.register(target)
    if value is None:
        where = f"byte {place.offset} of {place.variable.name}"
        return Data(
            opcode="ld.param", results=(var,), sources=(), loc=low.loc,
            why=f"{where}, which the launch description does not say",
        )  # fmt: skip
    if isinstance(value, Const):
        low.given.add(var.name)
        if isinstance(value.value, int):
            value = Const(extended(value.value, step.qualifiers[-1], target))
    return Assign(var=var, value=value, loc=low.loc)


@rule("st")
def _store(low: Lowering, step: Step) -> Iterator[Op]:
    _require_form(low, step)
    place = _place(low, step.operands[0])
    if place is None or place.variable.space != "param" or not _is_argument(low, place):
        yield from _in_memory(low, step)
        return
    nbytes, items = _size(step), low.items(step.operands[1])
    _require_inside(low, place, nbytes * len(items))
    for part, item in _elements(step, place, items):
        value = low.value(item, 8 * nbytes)
        yield Assign(var=low.argument(part, nbytes), value=value, loc=low.loc)


@rule("cvta")
def _in_memory(low: Lowering, step: Step) -> Iterator[Op]:
    """Constants, local variables and some parameters lie in global memory."""
    passed = any(p.name in low.launched.variables for p in low.kernel.entry.params)
    parts = _PARTS | {"param"} if passed else _PARTS
    names = ["global" if name in parts else name for name in step.qualifiers]
    if step.base == "ld" and {"const", "param"} & {*step.qualifiers} and "global" in names:
        # neither is coherent with stores
        names.insert(names.index("global") + 1, "nc")
    access = step.as_if(".".join((step.base, *names)), step.operands)
    if step.base in ("ld", "st") and _VECTORS & set(step.qualifiers) and _in_parts(step):
        each = [op for part in _each(access) for op in _spelled(low, part)]
        whole = any(isinstance(o, At) and o.undivided for o in step.operands)
        yield from each if whole else unordered(each)
    else:
        yield from _spelled(low, access)


def _in_parts(step: Step) -> bool:
    """Whether a vector is accessed element by element: a strong one, or one of narrow elements."""
    return bool(_STRONG & set(step.qualifiers)) or WIDTH[step.qualifiers[-1]] < 32


def _each(step: Step) -> Iterator[Step]:
    """The accesses of a vector, which PTX orders in no way; what is said to be ``_`` is none. A
    register that has the address comes last if it is loaded, too."""
    loads = step.base == "ld"
    place, vector = step.operands[1 if loads else 0], step.operands[0 if loads else 1]
    opcode = ".".join((step.base, *(q for q in step.qualifiers if q not in _VECTORS)))
    if not isinstance(place, At) or not isinstance(vector, Items):
        return
    named = ((k, item) for k, item in enumerate(vector.items) if item != Sink())
    for k, item in sorted(named, key=lambda pair: loads and pair[1] == place.base):
        before = k * _size(step)
        piece = len(vector.items) * _size(step), before
        at = replace(place, offset=place.offset + before, vector=piece)
        if isinstance(place.base, Symbol):
            moved = Symbol(place.base.variable, place.base.offset + at.offset)
            at = replace(place, base=moved, offset=0)
        yield step.as_if(opcode, (item, at) if loads else (at, item))


@rule("st.async")
def _st_async(low: Lowering, step: Step) -> Iterator[Op]:
    """A vector is stored, and its bytes are completed, element by element; what releases is a
    scalar in global memory, and no barrier counts it."""
    if "release" in step.qualifiers:
        yield from _spelled(low, step)
        return
    place, values, mbar = step.operands
    for part in _each(replace(step, operands=(place, values))) if isinstance(values, Items) else ():
        yield from _spelled(low, replace(part, operands=(*part.operands, mbar)))
    if not isinstance(values, Items):
        yield from _spelled(low, step)


def _spelled(low: Lowering, step: Step) -> list[Op]:
    return spelled(low, step, "this access")


@rule("call")
def _printed(low: Lowering, step: Step) -> Iterator[Op]:
    """A function that only prints gives what need not be known."""
    results = [o for o in step.operands if isinstance(o, Symbol)]
    made = tuple(low.argument(o, o.variable.size) for o in results)
    yield Data(opcode="call", results=made, sources=(), loc=low.loc)


_FLOATS: dict[str, Literal["f16", "bf16", "f32", "f64"]] = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
}  # fmt: skip
#: an acquire of a value that nothing looks at, nor at any other that threads leave for each other,
#: comes after nothing for certain, and a release that nothing looks at before nothing
_WITHOUT_ORDER = {"acq_rel": "relaxed", "acquire": "relaxed", "release": "relaxed"}
_WITHOUT_RESULT = {"acq_rel": "release", "acquire": "relaxed"}
_WIDEST = 64
_WIDE = frozenset({"f32", "f64"})
_VECTOR_ATOMICS = {"v2": 2, "v4": 4, "v8": 8}


@rule("atom", "red")
def _atomic(low: Lowering, step: Step) -> Iterator[Op]:
    step = _as_seen(low, step)
    names = step.qualifiers
    kind = next((q for q in reversed(names) if q in WIDTH), "")
    if WIDTH.get(kind, 0) > _WIDEST:
        raise low.unsupported(f"atomics on {kind} are not modelled")
    dtype, packed = element(kind) if kind else (f32, 1)
    if "async" in names or (dtype.kind != "float" and not set(names) & _VECTOR_ATOMICS.keys()):
        yield from spelled(low, step, "this operation")
        return
    if dtype.name not in _FLOATS:
        raise low.unsupported(f"atomics on vectors of {kind} are not modelled")
    yield from _atomic_elements(low, step, dtype, packed, kind)


def _as_seen(low: Lowering, step: Step) -> Step:
    """An atomic without what it orders if nothing sees that, nor what it finds."""
    names, seen = step.qualifiers, low.constants.observes
    if "async" in names:
        return step
    if step.base == "atom":
        acquires = bool(_WITHOUT_RESULT.keys() & set(names))
        results = [r.name for r in registers(step.operands[0])]
        if (acquires and seen) or not low.constants.read.isdisjoint(results):
            return step
        step = replace(step, operands=(Sink(), *step.operands[1:]))
    elif seen:
        return step
    without = _WITHOUT_RESULT if seen else _WITHOUT_ORDER
    opcode = ".".join((step.base, *(without.get(q, q) for q in names)))
    return step.as_if(opcode, step.operands)


def _atomic_elements(
    low: Lowering, step: Step, dtype: DType, packed: int, kind: str
) -> Iterator[Op]:
    """One atomic for each element; vectors and pairs are not atomic as a whole (PTX ``red``)."""
    operands = step.operands_without_policy
    has_result = step.base == "atom" and operands[0] != Sink()
    targets = low.items(operands[0]) if has_result else ()
    given, place = low.items(operands[-1]), operands[-2]
    size = next((n for name, n in _VECTOR_ATOMICS.items() if name in step.qualifiers), 1)
    if not isinstance(place, At) or {len(given), len(targets) or size} != {size}:
        raise low.unsupported("operands are a result, an address and a value")
    encoded, number, whole = _FLOATS[dtype.name], count(), size * packed * dtype.bytes
    for value, target in zip_longest(given, targets, fillvalue=Sink()):
        values = tuple(low.variable(dtype) for _ in range(packed))
        before = tuple(low.variable(dtype) for _ in values) if target != Sink() else ()
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
    dropped = {*_VECTOR_ATOMICS, kind, POLICY}
    names = [q for q in step.qualifiers if q not in dropped]
    opcode = ".".join(("red", *names, dtype.name))
    what = "this operation on floating-point numbers"
    (op,) = spelled(low, step.as_if(opcode, (place, Integer(0))), what)
    if not isinstance(op, Atomic) or op.op != "add":
        raise low.unsupported(f"{what} is not modelled")
    return op


@rule("multimem")
def _of_all_devices(low: Lowering, step: Step) -> Iterator[Op]:
    """Numbers of 32 and 64 bits are in registers as bits; narrow ones are packed there anyway."""
    for op in spelled(low, step, "this operation"):
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
            case _:
                yield op
