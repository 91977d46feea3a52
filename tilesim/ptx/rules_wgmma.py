"""Rules for wgmma: matrix descriptors give the tiles, tuples of registers the accumulators."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.arith.types import DTYPES, DType
from tilesim.ir.expr import Const
from tilesim.ir.memory import Fragment, View
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Data
from tilesim.ir.ops.wgmma import K_OF, WgmmaMmaAsync
from tilesim.ptx.descriptor import WGMMA
from tilesim.ptx.flat import Flat, Items, Register, Step
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.matrices import matrix


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
    yield WgmmaMmaAsync(
        acc=acc, a=a, b=b, accumulate=low.predicate(operands[3]), a_trans=a_trans,
        b_trans=b_trans, loc=low.loc,
    )  # fmt: skip
    # what the result's registers hold then, the product says; it needs those of A
    registers = [low.items(operand)[0] for operand in operands[:2] if isinstance(operand, Items)]
    result, *sources = map(low.register, registers)
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
