"""Rules for instructions that compute registers, and for lanes of a warp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Literal

from tilesim.arith.bit_vectors import Operation
from tilesim.arith.opcodes import operation
from tilesim.arith.types import WIDTH
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.compute import Compute, Data, Exchange, Pack, Unpack
from tilesim.ir.ops.scalar import Assign, Shuffle
from tilesim.ir.ops.warp import ReduxSync
from tilesim.ptx import inline
from tilesim.ptx.constants import narrowed, registers
from tilesim.ptx.expressions import expressions, signed
from tilesim.ptx.inline import Both, Flat, Items, Register, Step
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.rules.by_spelling import spelled
from tilesim.ptx.syntax import Integer, Sink
from tilesim.records import replace
from tilesim.wording import count

_FULL = 0xFFFFFFFF
#: special registers that say where and when a kernel runs, which no launch says
_MACHINE = frozenset({
    "smid", "nsmid", "gridid", "warpid", "nwarpid", "clock_hi", "globaltimer_lo", "globaltimer_hi",
})  # fmt: skip


def compute(low: Lowering, step: Step) -> list[Op]:
    """An instruction whose operation is known."""
    found = operation(step.opcode)
    assert found is not None
    target, *sources = step.operands
    if len(sources) == 3 and found.name in ("min.float", "max.float"):
        return _extreme_of_three(low, step)
    if len(sources) != len(found.sources):
        raise low.unsupported(f"{count(len(sources), 'operand')}, expected {len(found.sources)}")
    _require_widths(low, step, found)
    values = tuple(map(low.value, sources, found.sources))
    kept = tuple(map(low.register, _results(target)))
    fits = all(map(low.fits, sources, found.sources))
    simple = expressions(found, values) if fits else None
    made: list[Op] = [Compute(opcode=step.opcode, results=kept, sources=values, loc=low.loc)]
    if simple is not None and (len(kept) == 1 or not low.reads(kept, values)):
        pairs = zip(kept, simple, strict=False)
        made = [Assign(var=var, value=value, loc=low.loc) for var, value in pairs]
    if kind := narrowed(step):  # the rest of the register is filled as the type says
        low_bits = kept[0] & (1 << WIDTH[kind]) - 1
        filled = signed(low_bits, WIDTH[kind]) if kind.startswith("s") else low_bits
        made.append(Assign(var=kept[0], value=filled, loc=low.loc))
    return made


def _require_widths(low: Lowering, step: Step, found: Operation) -> None:
    """Registers are as wide as the operation has them; those of ``cvt`` may be wider (PTX 9.4.1).

    Raises:
        PtxError: one is not.
    """
    target, *sources = step.operands
    results = zip(_results(target), found.results, strict=False)  # that of setp may be one
    for operand, width in chain(results, zip(sources, found.sources, strict=True)):
        low.require_width(operand, width, wider=step.base == "cvt")


def _extreme_of_three(low: Lowering, step: Step) -> list[Op]:
    """The first of two steps leaves in the result what the second one takes, so a source that is
    the result comes first; the order does not matter otherwise."""
    target, *sources = step.operands
    first, second, third = sorted(sources, key=lambda source: source != target)
    return [
        *compute(low, replace(step, operands=(target, first, second))),
        *compute(low, replace(step, operands=(target, target, third))),
    ]


def _results(operand: Flat) -> tuple[Flat, ...]:
    return (operand.first, operand.second) if isinstance(operand, Both) else (operand,)


def data(low: Lowering, step: Step) -> list[Data]:
    """An instruction that computes with elements."""
    results = tuple([low.register(r) for r in registers(step.operands[0])])
    sources = tuple([low.value(r) for operand in step.operands[1:] for r in registers(operand)])
    base, *qualifiers = step.opcode.split(".")
    results += (low.carry,) if "cc" in qualifiers else ()
    sources += (low.carry,) if base in _CARRYING else ()
    return [Data(opcode=step.opcode, results=results, sources=sources, loc=low.loc)]


@rule("redux.sync")
def _reduce(low: Lowering, step: Step) -> Iterator[Op]:
    """Of floating-point numbers the result is not computed; the lanes meet all the same."""
    if step.qualifiers[-1] != "f32" or len(step.operands) != 3:
        yield from spelled(low, step)
        return
    target, _, mask = step.operands
    result = low.register(target)
    yield ReduxSync(
        result=result, op="or", value=Const(0), kind="b32", mask=low.value(mask, 32), loc=low.loc
    )
    yield Data(opcode=step.opcode, results=(result,), sources=(), loc=low.loc)


def _high(low: Lowering, operand: Flat, width: int) -> int | None:
    """The upper half of a register of ``width`` bits, if it is known."""
    mask, bits = low.constants.bits(operand)
    half = width // 2
    return (bits & (1 << half) - 1) << half if mask == (1 << 64) - 1 else None


@rule("mov")
def _move(low: Lowering, step: Step) -> Iterator[Op]:
    target, source = step.operands
    width = WIDTH.get(step.qualifiers[-1], 0)
    for parts in map(low.items, step.operands):
        for item in parts:
            low.require_width(item, width // len(parts))
    match target, source:
        case Items((_, _) as items), _ if width == 64:
            whole = low.value(source, width)
            for item, half in zip(items, (whole, whole >> 32), strict=True):
                if item != Sink():
                    yield Assign(var=low.register(item), value=half & _FULL, loc=low.loc)
        case Items(items), _:
            part = width // len(items)
            wanted = [(k, low.register(r)) for k, r in enumerate(items) if r != Sink()]
            yield Unpack(
                results=tuple(var for _, var in wanted), value=low.value(source, width), width=part,
                places=tuple(k for k, _ in wanted), loc=low.loc,
            )  # fmt: skip
        case _, Items((first, second)) if (high := _high(low, second, width)) is not None:
            value = low.value(first, width // 2)
            top = value + high if high < 1 << 63 else value - ((1 << 64) - high)
            yield Assign(var=low.register(target), value=top, loc=low.loc)
        case _, Items(items):
            part = width // len(items)
            values = tuple(low.value(item, part) for item in items)
            yield Pack(result=low.register(target), items=values, width=part, loc=low.loc)
        case _, inline.Special("clock" | "clock64" | "globaltimer"):
            yield from spelled(low, step)
        case _, inline.Special(name) if name in _MACHINE or _is_unsaid(low, name):
            var, why = low.register(target), f"what %{name} shows"
            yield Data(opcode=step.opcode, results=(var,), sources=(), why=why, loc=low.loc)
        case _:
            yield Assign(var=low.register(target), value=low.value(source, width), loc=low.loc)


def _is_unsaid(low: Lowering, name: str) -> bool:
    """Whether a register asks if clusters of one CTA were asked for: a launch without any has the
    same CTAs."""
    said = {"explicitcluster", "reqnctapercluster"} & low.kernel.entry.directives.keys()
    return name == "is_explicit_cluster" and low.launched.launch.cluster_size == 1 and not said


@rule(
    "bar.arrive", "bar.cta", "bar.red", "bar.sync", "barrier.arrive", "barrier.cta", "barrier.red",
    "barrier.sync",
)  # fmt: skip
def _barrier(low: Lowering, step: Step) -> Iterator[Op]:
    """The number of a barrier, and how many threads it counts, may be in registers; a number where
    it is known which one they hold."""
    first = int("red" in step.qualifiers)
    places = range(first, len(step.operands) - first)
    known = [_number(low, o) if n in places else o for n, o in enumerate(step.operands)]
    yield from spelled(low, replace(step, operands=tuple(known)))


def _number(low: Lowering, operand: Flat) -> Flat:
    found = low.constants.number(operand) if isinstance(operand, Register) else None
    return operand if found is None else Integer(found & _FULL)


@rule("elect.sync")
def _elect(low: Lowering, step: Step) -> Iterator[Op]:
    """By itself it does not make lanes wait for each other's accesses."""
    for op in spelled(low, step):
        yield replace(op, warp_sync=False) if isinstance(op, ElectSync) else op


@rule("shfl.sync")
def _shuffle(low: Lowering, step: Step) -> Iterator[Op]:
    mode = _MODES.get(step.qualifiers[1])
    target, value, lane, clamp, mask = step.operands
    if mode is None or step.qualifiers[2:] != ("b32",):
        raise low.unsupported("this mode or type is not known")
    for source in (value, lane, clamp, mask):
        low.require_width(source, 32)
    first, second = _results(target) if isinstance(target, Both) else (target, Sink())
    moved = low.value(value, 32)
    plain = low.constants.number(clamp) == (0 if mode == "up" else 31)
    lanes = low.constants.number(mask)
    whole = plain and lanes is not None and lanes & _FULL == _FULL
    if whole and (second == Sink() or mode == "idx"):
        yield Shuffle(
            result=low.register(first), value=moved, mode=mode, lane=low.value(lane, 32),
            mask=Const(_FULL), loc=low.loc,
        )  # fmt: skip
        if second != Sink():
            yield Assign(var=low.register(second), value=Const(1), loc=low.loc)
        return
    yield Exchange(
        result=low.register(first), inside=low.register(second), value=moved, mode=mode,
        lane=low.value(lane, 32), clamp=low.value(clamp, 32),
        mask=low.value(mask, 32) if lanes is None else Const(lanes & _FULL),
        loc=low.loc,
    )  # fmt: skip


#: shapes of products, and types of which metadata tells pairs of elements
_SHAPE = re.compile(r"m\d+n\d+k\d+")
_IN_PAIRS = frozenset({"s4", "u4", "kind::mxf4", "kind::mxf4nvf4"})
#: scale factors of a row, where it is not one
_VECTORS = {"scale_vec::2X": 2, "scale_vec::4X": 4, "kind::mxf4": 2}

_MODES: dict[str, Literal["idx", "up", "down", "bfly"]] = {
    "idx": "idx", "up": "up", "down": "down", "bfly": "bfly",
}  # fmt: skip


@rule("mma.sync", "mma.sp", "mma.sp::ordered_metadata", "movmatrix.sync", "wmma.mma")
def _multiply(low: Lowering, step: Step) -> Iterator[Op]:
    """The product is data; the whole warp takes part."""
    _require_selectors(low, step)
    for op in data(low, step):
        yield replace(op, warp=True)


def _require_selectors(low: Lowering, step: Step) -> None:
    """What says which lanes and bytes hold metadata and scale factors names some that there are.

    Raises:
        Unsupported: it does not, which is undefined (PTX 9.7.14.3, 9.7.14.6), or is not known.
    """
    qualifiers, operands = step.qualifiers, step.operands
    selectors: list[tuple[Flat, Sequence[int]]] = []
    if qualifiers[0].startswith("sp"):
        depth = next(int(q.partition("k")[2]) for q in qualifiers if _SHAPE.fullmatch(q))
        # four bits for each of so many elements, in 32 lanes of 32 bits
        chunk = 2 if "tf32" in qualifiers else 8 if _IN_PAIRS & {*qualifiers} else 4
        selectors.append((operands[5], range(16 * chunk // depth)))
    if "block_scale" in qualifiers:
        vectors = next((n for text, n in _VECTORS.items() if text in qualifiers), 1)
        of_a, of_b = (low.items(operands[place]) for place in (-3, -1))
        selectors += [(of_a[0], range(0, 4, vectors)), (of_a[1], range(2))]
        selectors += [(of_b[0], range(0, 4, vectors)), (of_b[1], range(4))]
    for operand, meaningful in selectors:
        number = low.constant(operand, "a selector")
        if number not in meaningful:
            raise low.unsupported(f"a selector of {number} is not defined here")


@rule("createpolicy")
def _policy(low: Lowering, step: Step) -> Iterator[Op]:
    """A policy of caches is a number that need not be known."""
    yield from data(low, step)


# ---------------------------------------------------------------------- data

#: types of elements that are only computed with
_ELEMENTS = frozenset({
    "f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32", "e4m3x2", "e5m2x2", "e2m1x2",
    "e2m3x2", "e3m2x2", "ue8m0x2", "e4m3x4", "e5m2x4", "e2m1x4", "e2m3x4", "e3m2x4", "u16x2",
    "s16x2", "e4m3", "e5m2",
})  # fmt: skip
#: opcodes whose results are data whatever their type
_ALWAYS = frozenset({
    "ex2", "lg2", "rcp", "sqrt", "rsqrt", "sin", "cos", "tanh", "fma", "copysign", "testp", "mma",
    "movmatrix",
})  # fmt: skip
#: arithmetic on longer numbers by their parts: carries are not followed
_CARRYING = frozenset({"addc", "subc", "madc"})
#: opcodes whose results are data if they compute with elements
_WITH_ELEMENTS = frozenset({
    "add", "sub", "mul", "div", "min", "max", "abs", "neg", "cvt", "set", "setp", "mad", "slct",
})  # fmt: skip


@cache
def is_data(opcode: str) -> bool:
    """Whether an instruction that is no `operation` only computes with elements: its results are
    unknown, and that costs nothing."""
    base, *qualifiers = opcode.split(".")
    if base in _CARRYING or "cc" in qualifiers:
        return True
    if base in _ALWAYS:
        return base != "mma" or qualifiers[:1] != ["async"]
    return base in _WITH_ELEMENTS and not _ELEMENTS.isdisjoint(qualifiers)
