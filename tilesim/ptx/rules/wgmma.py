"""Rules for wgmma and wmma: descriptors give the tiles, tuples of registers the accumulators.

``wmma`` has matrices of a warp in memory (SEMANTICS E26). Which lane has which element PTX does not
say, so each lane is taken to access all of a matrix, but for what its warp loads and stores in one
form: that is as each lane has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.arith.types import DTYPES, WIDTH, DType
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.addresses import address_of
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Data
from tilesim.ir.ops.wgmma import K_OF, WgmmaMmaAsync
from tilesim.ir.ops.wmma import WmmaLoad, WmmaStore
from tilesim.ptx.descriptor import WGMMA
from tilesim.ptx.inline import Flat, Items, Register, Step
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.matrices import matrix
from tilesim.records import replace


def declare(low: Lowering, step: Step) -> None:
    """Makes the tiles of a product, before anything accesses them."""
    kind, _, accumulator, n, k = _form(low, step)
    _fragment(low, step.operands[0], accumulator, (64, n))
    if isinstance(step.operands[1], Items):
        _fragment(low, step.operands[1], kind, (64, k))


def _form(low: Lowering, step: Step) -> tuple[DType, DType, DType, int, int]:
    """Element types of A, B and the sums, N and K."""
    shape, sums, kind_a, kind_b = step.qualifiers[3:7]
    a, b, accumulator = DTYPES.get(kind_a), DTYPES.get(kind_b), DTYPES.get(sums)
    if accumulator is None or a not in K_OF or b not in K_OF:
        raise low.unsupported("operands of these types are not modelled")
    n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split()[1:])
    return a, b, accumulator, n, k


@rule("wgmma.mma_async.sync.aligned")
def _multiply(low: Lowering, step: Step) -> Iterator[Op]:
    kind, other, accumulator, n, k = _form(low, step)
    operands = list(step.operands)
    acc = _fragment(low, operands[0], accumulator, (64, n))
    if not isinstance(operands[1], Items):
        transposed = [low.constant(o, "a transposition") for o in operands[6:8]]
    else:
        transposed = [0, *(low.constant(o, "a transposition") for o in operands[6:7])]
    a_trans, b_trans = [bool(t) for t in (*transposed, 0, 0)[:2]]
    a: View | Fragment
    if isinstance(operands[1], Items):
        a = _fragment(low, operands[1], kind, (64, k))
    else:
        a = matrix(low, operands[1], WGMMA, kind, (64, k), trans=a_trans)
    b = matrix(low, operands[2], WGMMA, other, (n, k), trans=b_trans)
    accumulate = low.predicate(operands[3])
    yield WgmmaMmaAsync(
        acc=acc, a=a, b=b, accumulate=accumulate, a_trans=a_trans, b_trans=b_trans, loc=low.loc
    )
    # what the result's registers hold then, the product says; it needs those of A, and its own
    # where it always adds to them
    registers = [low.items(operand)[0] for operand in operands[:2] if isinstance(operand, Items)]
    result, *sources = map(low.register, registers)
    if accumulate == Const(1):
        sources.append(result)
    yield Data(
        opcode="wgmma.mma_async", results=(result,), sources=tuple(sources) or (Const(0),),
        partly=True, loc=low.loc,
    )  # fmt: skip


def _fragment(low: Lowering, operand: Flat, dtype: DType, shape: tuple[int, int]) -> Fragment:
    """The registers of a tile: those that begin with the same one are the same tile."""
    first = low.items(operand)[0]
    if not isinstance(first, Register):
        raise low.unsupported("a tile consists of registers")
    return low.fragment(first.name, dtype, shape)


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_SPACES = ("global", "shared", "shared::cta")
#: bits of elements of which a byte holds several
_BITS = {"s4": 4, "u4": 4, "b1": 1}


@rule("wmma.load")
def _load(low: Lowering, step: Step) -> Iterator[Op]:
    results = tuple(low.register(r) for r in low.items(step.operands[0]))
    *others, last = _parts(low, step, step.operands[1])
    form = _layout(step)
    for part in others:
        yield WmmaLoad(results=(), matrix=part, form=form, loc=low.loc)
    yield WmmaLoad(results=results, matrix=last, form=form, loc=low.loc)


@rule("wmma.store")
def _store(low: Lowering, step: Step) -> Iterator[Op]:
    values = tuple(low.value(v) for v in low.items(step.operands[1]))
    for part in _parts(low, step, step.operands[0]):
        yield WmmaStore(matrix=part, values=values, form=_layout(step), loc=low.loc)


def _layout(step: Step) -> str:
    """What decides which lane has which element: sums that are loaded and stored lie alike."""
    names = {*_SPACES, "load", "store", "sync", "aligned"}
    operand, *others = (name for name in step.qualifiers if name not in names)
    return " ".join(("sum" if operand in "cd" else operand, *others))


def _parts(low: Lowering, step: Step, origin: Flat) -> tuple[View, ...]:
    """The matrix that begins at an address; if it is not known before it runs how far apart its
    rows (columns) lie, or that they begin where they may, these one by one."""
    count, length, bits = _wmma_form(low, step)
    dtype, space = low.bits(max(8, bits)), low.space(step.qualifiers)
    each, multiple = length * bits // dtype.bits, _multiple(low, step)
    pitch = each * dtype.bits // bits if len(step.operands) == 2 else None
    if len(step.operands) > 2:
        pitch = low.constants.number(step.operands[2])
    if pitch is not None and pitch * bits // 8 % multiple == 0:
        strides = pitch * bits // dtype.bits, 1
        return (_begins(low.view(origin, dtype, (count, each), space, strides), multiple),)
    first = _begins(low.view(origin, dtype, (each,), space), multiple)
    assert isinstance(first.tensor, AddressedTensor)
    place, apart = address_of(first), low.value(step.operands[2], 32) * bits >> 3
    rows = (replace(first.tensor, address=place + apart * n) for n in range(1, count))
    return (first, *(replace(first, tensor=row) for row in rows))


def _multiple(low: Lowering, step: Step) -> int:
    """At a multiple of how many bytes each row (column) begins: of the size of what a lane has of
    the matrix, as PTX says, but of no more than 16, as CUDA's guide says."""
    registers = low.items(step.operands["store" in step.qualifiers])
    return min(16, len(registers) * (8 if step.qualifiers[-1] == "f64" else 4))


def _begins(view: View, multiple: int) -> View:
    """A view that begins at a multiple of so many bytes."""
    assert isinstance(view.tensor, AddressedTensor)
    return replace(view, tensor=replace(view.tensor, multiple=multiple))


def _wmma_form(low: Lowering, step: Step) -> tuple[int, int, int]:
    """How many rows or columns a matrix has in memory, elements of one, and bits of an element.

    Raises:
        Unsupported: it has no such form.
    """
    sizes = next(filter(None, map(_SHAPE.fullmatch, step.qualifiers)), None)
    bits = _BITS.get(step.qualifiers[-1]) or WIDTH.get(step.qualifiers[-1])
    if sizes is None or bits is None:
        raise low.unsupported("a matrix of this form is not modelled")
    m, n, k = map(int, sizes.groups())
    rows, columns = {"a": (m, k), "b": (k, n)}.get(step.qualifiers[1], (m, n))
    return (columns, rows, bits) if "col" in step.qualifiers else (rows, columns, bits)
