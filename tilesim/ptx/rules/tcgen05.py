"""Rules for tcgen05: descriptors say what products multiply, addresses where it lies.

Registers that tcgen05.ld sets hold unknown values; that they are not set before its wait is
left to the assembler, which honours the dependency (SEMANTICS G21).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilesim.arith.types import DTYPES, DType, f32, u8, u16, u32
from tilesim.ir.declarations import View
from tilesim.ir.instruction_descriptor import SCALE_IDS, Form, decode
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import AccessTile, Data
from tilesim.ir.ops.tcgen05 import (
    COPY_SHAPES,
    LOAD_SHAPES,
    SPLIT_ROWS,
    Tcgen05Commit,
    Tcgen05Cp,
    Tcgen05Ld,
    Tcgen05Shift,
    Tcgen05St,
)
from tilesim.ir.ops.tcgen05_k96 import LongMma
from tilesim.ir.ops.tcgen05_mma import (
    METADATA_COLUMNS,
    NARROW_KINDS,
    ROW_BYTES,
    SCALE_VECTORS,
    WS_ROWS,
    CtaGroup,
    Kind,
    LoadShape,
    Narrow,
    Tcgen05Mma,
    Tcgen05MmaSp,
    Tcgen05MmaWs,
)
from tilesim.ir.tensor_memory import LANES, TmemView
from tilesim.ptx.descriptor import TCGEN05
from tilesim.ptx.inline import At, Flat, Items, Step
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.matrices import long_rows, matrix
from tilesim.ptx.rules.by_spelling import spelled
from tilesim.records import replace

_KINDS: tuple[Kind, ...] = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
_WORD = (1 << 32) - 1
_NARROW: tuple[Narrow, ...] = ("e2m1", "e2m3", "e3m2")
#: scale factors per row by what an opcode says of them: their number, or how long a block is
_SCALES = {
    "scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block32": 2, "block16": 4,
}  # fmt: skip


def _checked(low: Lowering, op: Op) -> Op:
    """An instruction whose operands fit together."""
    for problem in op.verify():
        raise low.unsupported(problem)
    return op


#: qualifiers of products; that an operand stays in the collector changes no result, to take it from
#: there is right only behind a product that has left it there
_PRODUCT = (
    "mma", "sp", "ws", "cta_group::", "kind::", "block_scale", *_SCALES,
    *(f"collector::{buffer}::{op}" for buffer in ("a", "b0", "b1", "b2", "b3")
      for op in ("fill", "discard")),
)  # fmt: skip
_RED = ("red", "min", "max", "abs", "NaN", "u32", "s32", "f32")


def _kind(low: Lowering, step: Step) -> Kind:
    low.require_known(step, *_PRODUCT)
    found = next((k for k in _KINDS if f"kind::{k}" in step.qualifiers), None)
    if found is None:
        raise low.unsupported("products of this kind are not modelled")
    return found


def _group(step: Step) -> CtaGroup:
    return 2 if "cta_group::2" in step.qualifiers else 1


def _at(
    low: Lowering, operand: Flat, dtype: DType, shape: tuple[int, int], name: str, *,
    packed: bool = True,
) -> TmemView:  # fmt: skip
    """What lies at an address of tensor memory."""
    return TmemView(low.address(operand), dtype, shape, name, packed)


def _scales_at(low: Lowering, operand: Flat, name: str) -> TmemView:
    """Scale factors. CuTe's addresses of them have in their upper bits, which no lane needs, which
    bytes of a column they are in; what is accessed is the columns."""
    found = _at(low, operand, u8, (32, 4), name)
    return replace(found, address=found.address & _WORD >> 2)


# ---------------------------------------------------------------------- products


class _Product:
    """A product, read from its opcode, its operands and its instruction descriptor."""

    def __init__(self, low: Lowering, step: Step, descriptor: int) -> None:
        self.low = low
        self.step = step
        self.operands = step.operands
        self.kind = _kind(low, step)
        self.group = _group(step)
        self.form: Form = decode(self._descriptor(step.operands[descriptor]), self.kind)
        #: the operands behind the instruction descriptor
        self.rest = list(step.operands[descriptor + 1 :])
        if not (self.form.a and self.form.b and self.form.d):
            raise low.unsupported(
                "its instruction descriptor names types that the kind does not support (G15)"
            )
        if self.form.m % self.group or self.form.n % self.group or not self.form.m:
            raise low.unsupported(
                "its instruction descriptor has an M or N that this kind does not have (G15)"
            )
        if self.form.wrong:
            raise low.unsupported(
                f"its instruction descriptor has bits {self.form.wrong:#x} that the kind does "
                "not define"
            )
        if self.form.sparse != ("sp" in step.qualifiers):
            raise low.unsupported(
                "the sparsity bit of its instruction descriptor does not agree with .sp"
            )

    def _descriptor(self, operand: Flat) -> int:
        """The instruction descriptor. Which bytes of their columns hold the scale factors need not
        be known: CuTe DSL takes it from the upper bits of their addresses, and what an instruction
        accesses is the columns."""
        known, number = self.low.constants.bits(operand)
        unsaid = SCALE_IDS if self.kind in SCALE_VECTORS else 0
        if (known | unsaid) & _WORD != _WORD:
            return self.low.constant(operand, "the instruction descriptor")
        return number & known & _WORD

    @property
    def rows(self) -> int:
        """Rows of A in one CTA."""
        return self.form.m // self.group

    def matrices(self, folds: int, *, ratio: int = 1) -> dict[str, Any]:
        """D, A and B with their types; ``folds`` groups of lanes hold the columns of D, and K of B
        is ``ratio`` times that of A as it is stored."""
        form, low = self.form, self.low
        a_type, b_type = self._narrow(form.a), self._narrow(form.b)
        of_a, of_b = (u8 if n else DTYPES[t] for n, t in ((a_type, form.a), (b_type, form.b)))
        d_type, n = DTYPES[form.d], form.n
        lanes = LANES if folds > 1 else self.rows
        depth = ROW_BYTES * 8 // of_a.bits, ROW_BYTES * 8 // of_b.bits * ratio
        d = _at(low, self.operands[0], d_type, (lanes, n // folds), "d", packed=d_type.bits == 32)
        a: View | TmemView
        if isinstance(self.operands[1], At):
            a = _at(low, self.operands[1], of_a, (self.rows, depth[0]), "a")
        else:
            extents = self.rows, depth[0]
            a = matrix(low, self.operands[1], TCGEN05, of_a, extents, trans=form.a_trans)
        extents = n // self.group, depth[1]
        b = matrix(low, self.operands[2], TCGEN05, of_b, extents, trans=form.b_trans)
        return {
            "d": d, "a": a, "b": b, "kind": self.kind, "cta_group": self.group,
            "a_trans": form.a_trans, "b_trans": form.b_trans, "a_type": a_type, "b_type": b_type,
            "loc": low.loc,
        }  # fmt: skip

    def long(self) -> LongMma:
        """The product with K = 96; which bytes of the second word of scales follow those of the
        first one is drawn in the text for blocks of 32, and six take of both whatever they are."""
        low, form, step = self.low, self.form, self.step
        if "block16" not in step.qualifiers or form.sparse:
            raise low.unsupported("products with K = 96 and three scale factors are not modelled")
        a, a_rest = long_rows(low, step.operands[1], self.rows)
        b, b_rest = long_rows(low, step.operands[2], form.n // self.group)
        scale_a, scale_b, accumulate = self.rest
        return LongMma(
            d=_at(low, step.operands[0], f32, (self.rows, form.n), "d"), a=a, b=b, a_rest=a_rest,
            b_rest=b_rest, kind=self.kind, cta_group=self.group, scale_vec=4,
            accumulate=low.predicate(accumulate), loc=low.loc,
            scale_a=_scales_at(low, scale_a, "scale_a"),
            scale_b=_scales_at(low, scale_b, "scale_b"),
        )  # fmt: skip

    def _narrow(self, name: str) -> Narrow | None:
        found = next((n for n in _NARROW if n == name), None)
        return found if self.kind in NARROW_KINDS else None

    def tail(self) -> dict[str, Any]:
        """``disable-output-lane``, ``enable-input-d`` and ``scale-input-d``."""
        low = self.low
        words: tuple[int, ...] = ()
        if isinstance(self.rest[0], Items):
            mask, *self.rest = self.rest
            words = tuple(low.constant(w, "disable-output-lane") for w in low.items(mask))
        accumulate, *scale = self.rest
        return {
            "disable_output_lane": words,
            "accumulate": low.predicate(accumulate),
            "scale_input_d": low.constant(scale[0], "scale-input-d") if scale else 0,
        }


@rule("tcgen05.mma")
def _mma(low: Lowering, step: Step) -> Iterator[Op]:
    product = _Product(low, step, 3)
    if product.form.long:
        yield _checked(low, product.long())
        return
    folds = 2 if product.group == 2 and product.rows == 64 else 1
    matrices = product.matrices(folds)
    if "block_scale" not in step.qualifiers:
        yield _checked(low, Tcgen05Mma(**matrices, **product.tail()))
        return
    said = [number for text, number in _SCALES.items() if text in step.qualifiers]
    vector = SCALE_VECTORS[product.kind][0] if not said or product.kind == "mxf8f6f4" else said[0]
    if vector != 4 and not product.form.ue8m0:
        raise low.unsupported(f"{vector} scale factors of ue4m3 for each row are not modelled")
    of_a, of_b = product.form.scale_ids
    if of_a != of_b:
        raise low.unsupported("scale factors of A and B at different bytes are not modelled")
    scale_a, scale_b, accumulate = product.rest
    yield _checked(low, Tcgen05Mma(
        **matrices, accumulate=low.predicate(accumulate), scale_vec=vector, scale_id=of_a,
        scale_a=_scales_at(low, scale_a, "scale_a"),
        scale_b=_scales_at(low, scale_b, "scale_b"),
    ))  # fmt: skip


@rule("tcgen05.mma.sp")
def _mma_sp(low: Lowering, step: Step) -> Iterator[Op]:
    product = _Product(low, step, 4)
    if product.kind in SCALE_VECTORS:
        raise low.unsupported("sparse products with scale factors are not modelled")
    columns, selector = METADATA_COLUMNS[product.kind], product.form.selector
    if selector > (columns == 1):
        raise low.unsupported(f"a sparsity selector of {selector} is not modelled")
    metadata = _at(low, step.operands[3], u32, (LANES, columns), "metadata")
    yield _checked(low, Tcgen05MmaSp(
        **product.matrices(1, ratio=2), **product.tail(), metadata=metadata,
        selector=selector if columns == 1 else None,
    ))  # fmt: skip


@rule("tcgen05.mma.ws")
def _mma_ws(low: Lowering, step: Step) -> Iterator[Op]:
    product = _Product(low, step, 3)
    if len(product.rest) > 1:
        raise low.unsupported("a mask of zero columns is not modelled")
    folds = LANES // product.rows if product.rows in WS_ROWS else 1
    accumulate = low.predicate(product.rest[0])
    yield _checked(low, Tcgen05MmaWs(**product.matrices(folds), accumulate=accumulate))


@rule("tcgen05.commit")
def _commit(low: Lowering, step: Step) -> Iterator[Op]:
    """With a mask the address is that of the executing CTA's barrier; the others' are like it."""
    for op in spelled(low, step):
        assert isinstance(op, Tcgen05Commit)
        own = op.multicast is not None
        yield replace(op, mbar=low.mbar(step.operands[0])) if own else op


# ---------------------------------------------------------------------- copies


@rule("tcgen05.cp")
def _cp(low: Lowering, step: Step) -> Iterator[Op]:
    shape = next((s for s in COPY_SHAPES if s in step.qualifiers), None)
    if shape is None or any(q.startswith(("b8x16", "b6x16")) for q in step.qualifiers):
        raise low.unsupported("copies of this form are not modelled")
    low.require_known(step, "cp", "cta_group::", shape, "warpx4", "warpx2::")
    rows, width, multicasts = COPY_SHAPES[shape]
    said = ".".join(q for q in step.qualifiers if q.startswith(("warpx", "02_13", "01_23")))
    multicast = next((m for m in multicasts if m == (said or None)), None)
    source = matrix(low, step.operands[1], TCGEN05, u8, (rows, width))
    yield _checked(low, Tcgen05Cp(
        dst=_at(low, step.operands[0], u8, (rows, width), "copied"), src=source, shape=shape,
        multicast=multicast, cta_group=_group(step), loc=low.loc,
    ))  # fmt: skip


@rule("tcgen05.shift")
def _shift(low: Lowering, step: Step) -> Iterator[Op]:
    low.require_known(step, "shift", "cta_group::", "down")
    dst = _at(low, step.operands[0], u32, (32, 8), "shifted")
    yield Tcgen05Shift(dst=dst, cta_group=_group(step), loc=low.loc)


# ---------------------------------------------------------------------- registers


class _Move:
    """tcgen05.ld or st: the registers, the view, and a fragment that stands for the registers."""

    def __init__(self, low: Lowering, step: Step, registers: Flat, place: Flat) -> None:
        shape: LoadShape | None = next((s for s in LOAD_SHAPES if s in step.qualifiers), None)
        times = [q for q in step.qualifiers if q[0] == "x" and q[1:].isdigit()]
        if shape is None or not times:
            raise low.unsupported("accesses of this form are not modelled")
        form = ("st", "unpack::16b") if step.qualifiers[0] == "st" else ("ld", "pack::16b", *_RED)
        low.require_known(step, *form, "sync", "aligned", shape, times[0], "b32")
        self.shape: LoadShape = shape
        self.items = low.items(registers)
        lanes, columns, each = LOAD_SHAPES[shape]
        count = int(times[0][1:])
        if len(self.items) != count * each:
            raise low.unsupported(f".{shape}.x{count} has {count * each} registers")
        paired = "pack::16b" in step.qualifiers or "unpack::16b" in step.qualifiers
        dtype, elements = (u16, 2 * columns * count) if paired else (f32, columns * count)
        self.view = _at(low, place, dtype, (lanes, elements), "accessed", packed=not paired)
        rows = SPLIT_ROWS if shape == "16x32bx2" else lanes
        self.fragment = low.moved_fragment(dtype, (rows, elements))


@rule("tcgen05.ld")
def _ld(low: Lowering, step: Step) -> Iterator[Op]:
    registers, *rest = step.operands
    #: of ``.red``: the least or largest of what a lane loads
    least = [rest.pop(0)] if "red" in step.qualifiers else []
    move = _Move(low, step, registers, rest[0])
    yield _checked(low, Tcgen05Ld(
        dst=move.fragment, src=move.view, shape=move.shape, half_split=_half(low, rest[1:]),
        loc=low.loc,
    ))  # fmt: skip
    results = tuple(low.register(item) for item in (*move.items, *least))
    yield Data(
        opcode="tcgen05.ld", results=results, sources=(), group="tcgen05.ld", loc=low.loc
    )  # fmt: skip


@rule("tcgen05.st")
def _st(low: Lowering, step: Step) -> Iterator[Op]:
    registers = step.operands[-1]
    move = _Move(low, step, registers, step.operands[0])
    sources = tuple(low.value(item, 32) for item in move.items)
    yield AccessTile(fragment=move.fragment, write=True, sources=sources, loc=low.loc)
    yield _checked(low, Tcgen05St(
        dst=move.view, src=move.fragment, shape=move.shape,
        half_split=_half(low, step.operands[1:-1]), loc=low.loc,
    ))  # fmt: skip


def _half(low: Lowering, operands: Sequence[Flat]) -> int:
    """The distance of the halves of .16x32bx2, the only operand of these if there is one."""
    return low.constant(operands[0], "the distance of the halves") if operands else 0
