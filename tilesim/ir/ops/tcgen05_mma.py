"""Products of fifth-generation tensor cores (PTX 9.7.16.10; SEMANTICS G11, G14 to G20).

Shapes and types of the forms of tcgen05.mma are those of PTX 9.7.16.2.1, Table 39 (SEMANTICS G15).
Where the operands lie in tensor memory is in PTX 9.7.16.10.5-8 (SEMANTICS G12, G14). The figures of
that text are those of CuTe's layouts (`cute/atom/mma_traits_sm100_frag.hpp`); tests compare the
two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import (
    DType,
    bf16,
    e4m3,
    e5m2,
    f16,
    f32,
    numpy_dtype,
    s8,
    s32,
    tf32,
    truncated,
    u8,
)
from tilesim.ir.declarations import View, extents, rows_of
from tilesim.ir.effects import Effect, Issues, Reads, UsesTmem
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Inputs, MeaninglessOperand, Op
from tilesim.ir.tensor_memory import CELL, LANES, TmemLayout, TmemPart, TmemView
from tilesim.records import dataclass, replace

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane


CtaGroup = Literal[1, 2]
Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
#: elements of 4 and 6 bits, of which sixteen begin each 16 bytes of shared memory
Narrow = Literal["e2m1", "e2m3", "e3m2"]
#: the kinds that have them next to 8-bit elements
NARROW_KINDS: tuple[Kind, ...] = ("f8f6f4", "mxf8f6f4")

#: bytes of one row of A that an instruction consumes, for every kind (G15)
ROW_BYTES = 32
INPUTS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f16, bf16), "tf32": (tf32,), "f8f6f4": (e4m3, e5m2), "i8": (s8, u8),
    "mxf8f6f4": (e4m3, e5m2), "mxf4": (u8,), "mxf4nvf4": (u8,),
}  # fmt: skip
ACCUMULATORS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f32, f16), "tf32": (f32,), "f8f6f4": (f32, f16), "i8": (s32,),
    "mxf8f6f4": (f32,), "mxf4": (f32,), "mxf4nvf4": (f32,),
}  # fmt: skip
#: scale factors per row and instruction of the block-scaled kinds (``.scale_vec``)
SCALE_VECTORS: dict[Kind, tuple[int, ...]] = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (4, 2)}
#: columns of tensor memory with the sparsity metadata of one instruction
METADATA_COLUMNS: dict[Kind, int] = {"f16": 1, "tf32": 1, "f8f6f4": 2, "i8": 2}
WS_ROWS = (32, 64, 128)
WS_COLUMNS = (64, 128, 256)
#: what ``scale-input-d`` can be
_LARGEST_SCALE = 15
#: 32-bit words of ``disable-output-lane`` per CTA
_LANE_WORDS = 4


def either(numbers: tuple[int, ...]) -> str:
    """``64 or 128``."""
    return " or ".join(map(str, numbers))


def type_problems(
    kind: Kind, d: TmemView, a: View | TmemView, b: View,
    narrow: tuple[Narrow | None, Narrow | None],
) -> Iterator[str]:  # fmt: skip
    """Element types that the kind does not combine."""
    for name, operand, type_ in (("A", a, narrow[0]), ("B", b, narrow[1])):
        if type_ is not None:
            yield from _narrow_problems(kind, name, operand, type_)
        elif operand.dtype not in INPUTS[kind]:
            yield f"kind::{kind} has no {operand.dtype} inputs ({name})"
    if kind == "f16" and a.dtype != b.dtype:
        yield f"A is {a.dtype}, B is {b.dtype}"
    if isinstance(a, TmemView) and not a.packed:
        yield f"{a.name} is not packed: an mma reads A with its elements side by side (G14)"
    if d.dtype not in ACCUMULATORS[kind]:
        yield f"kind::{kind} does not accumulate in {d.dtype}"
    elif d.dtype is f16 and bf16 in (a.dtype, b.dtype):
        yield "kind::f16 accumulates products of bf16 in f32 only (G15)"
    if d.dtype.bits < 32 and d.packed:
        yield (
            f"{d.name} packs its {d.dtype} elements, an mma stores one in a column (G14): "
            "make the view with packed=False"
        )


def _narrow_problems(
    kind: Kind, name: str, operand: View | TmemView, type_: Narrow
) -> Iterator[str]:
    """An operand of 4- or 6-bit elements."""
    if kind not in NARROW_KINDS:
        yield f"kind::{kind} has no {type_} inputs ({name})"
    elif isinstance(operand, TmemView):
        yield f"{operand.name} of {type_} in tensor memory is not modelled: put it in shared memory"
    elif operand.dtype is not u8:
        yield (
            f"{name} is {operand.dtype}: of {type_}, sixteen elements share 16 bytes, which are "
            "elements of u8 (G15)"
        )


def transpose_problems(kind: Kind, *, a: bool, b: bool) -> Iterator[str]:
    """Kinds that transpose no operands, or only in a layout tilesim lacks (Tables 49-52)."""
    if not (a or b):
        return
    if kind in ("mxf4", "mxf4nvf4"):
        yield f"kind::{kind} has no transposed operands (G15)"
    if kind == "tf32":
        yield (
            "kind::tf32 transposes only operands in the 128-byte swizzle with 32-byte atomicity, "
            "which is not modelled (G15)"
        )


def row_problems(kind: Kind, rows: int, group: CtaGroup) -> Iterator[str]:
    """Rows of A in one CTA."""
    allowed = (128,) if kind in SCALE_VECTORS and group == 1 else (64, 128)
    if rows not in allowed:
        yield f"{rows} rows per CTA, kind::{kind} has {either(allowed)} (G15)"


def column_problems(kind: Kind, n: int, group: CtaGroup) -> Iterator[str]:
    """N of the whole instruction."""
    step = (16 if kind == "i8" else 8) * group
    small = kind == "i8" and group == 1 and n in (8, 24)
    if not 8 * group <= n <= 256 or (n % step and not small):
        yield f"N = {n} is not a size of kind::{kind}.cta_group::{group} (G15)"


def transposed_column_problems(
    bits: int, n: int, group: CtaGroup, transposed: bool
) -> Iterator[str]:
    """N of a transposed B of 8-bit elements (Table 50)."""
    step = 16 * group
    if transposed and bits == 8 and n % step:
        yield f"N = {n}: with a transposed 8-bit B it is a multiple of {step} (G15)"


def input_d_problems(kind: Kind, scale: int) -> Iterator[str]:
    """``scale-input-d``."""
    if scale and kind not in ("f16", "tf32"):
        yield f"kind::{kind} has no scale-input-d, the kinds f16 and tf32 have (G14)"
    if not 0 <= scale <= _LARGEST_SCALE:
        yield f"scale-input-d is {scale}, it is from 0 to {_LARGEST_SCALE} (G14)"


def lane_mask_problems(kind: Kind, words: tuple[int, ...], group: CtaGroup) -> Iterator[str]:
    """``disable-output-lane``."""
    if not words:
        return
    if kind in SCALE_VECTORS:
        yield f"kind::{kind} has no disable-output-lane (G14)"
    if len(words) != _LANE_WORDS * group or not all(0 <= w < 1 << 32 for w in words):
        yield (
            f"disable-output-lane is {words}, .cta_group::{group} has {_LANE_WORDS * group} words "
            "of 32 bits (G14)"
        )
    elif words[:_LANE_WORDS] * group != words:
        yield (
            "disable-output-lane differs between the CTAs of the pair, which is not modelled: "
            "PTX does not document which CTA uses which half"
        )


# ------------------------------------------------- where operands lie (PTX 9.7.16.10.5-8; G12, G14)


LoadShape = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
CopyShape = Literal["128x256b", "4x256b", "128x128b", "64x128b", "32x128b"]
CopyMulticast = Literal["warpx2::02_13", "warpx2::01_23", "warpx4"]

#: lanes of a warp, which hold one quarter of tensor memory
QUARTER = 32
_HALF_QUARTER = 16


def matrix(
    view: TmemView, rows: int, folds: int, *, scattered: bool, beside: TmemView | None = None
) -> TmemLayout:
    """D or A of a product: rows below each other, in ``folds`` groups of lanes, or ``scattered``
    over 16 lanes of every quarter."""
    if scattered:
        parts = tuple(
            TmemPart(QUARTER * i, _HALF_QUARTER, view.columns) for i in range(rows // _HALF_QUARTER)
        )
        return TmemLayout(parts, (0, _HALF_QUARTER), beside)
    parts = tuple(TmemPart(rows * i, rows, view.columns) for i in range(folds))
    return TmemLayout(parts, (0,))


def scale_columns(rows: int, folds: int) -> TmemLayout:
    """The scale factors of ``rows`` rows: a column per 32 rows of a fold, in all four quarters.

    The first 4 / folds parts hold those of the first fold, and so on.
    """
    columns = -(-rows // folds // QUARTER)
    return TmemLayout(tuple(TmemPart(QUARTER * i, QUARTER, columns) for i in range(4)))


def metadata(view: TmemView, selector: int | None = None) -> TmemLayout:
    """The sparsity metadata of one instruction; ``selector``: which column of a pair."""
    if selector is None:
        return TmemLayout((TmemPart(0, LANES, view.columns),), step=view.columns)
    return TmemLayout((TmemPart(0, LANES, view.columns, selector),), step=2)


def copied(view: TmemView, shape: CopyShape, multicast: CopyMulticast | None) -> TmemLayout:
    """What a tcgen05.cp writes: its rows, as often as it repeats them (`copied_rows`)."""
    if shape == "4x256b":
        lanes, count = [QUARTER * i for i in range(4)], 1
    elif multicast is None:
        lanes, count = [0], view.shape[0]
    else:
        lanes, count = [QUARTER * i for i in range(4)], QUARTER
    return TmemLayout(tuple(TmemPart(lane, count, view.columns) for lane in lanes))


def copied_rows(rows: int, multicast: CopyMulticast | None) -> list[int]:
    """The row that each lane of `copied` gets."""
    match multicast:
        case None:
            return list(range(rows))
        case "warpx4":
            first = [0, 0, 0, 0]
        case "warpx2::02_13":
            first = [0, QUARTER, 0, QUARTER]
        case "warpx2::01_23":
            first = [0, 0, QUARTER, QUARTER]
    return [start + i for start in first for i in range(QUARTER)]


def shifted(view: TmemView) -> TmemLayout:
    """What a tcgen05.shift moves: 32 lanes of one quarter."""
    starts = tuple(range(0, LANES, QUARTER))
    return TmemLayout((TmemPart(0, QUARTER, view.columns),), starts)


def loaded(view: TmemView, shape: LoadShape, half_split: int) -> TmemLayout:
    """What a tcgen05.ld or st of a warp accesses: its own lanes only, once or twice (G12)."""
    lanes, columns = view.shape[0], view.columns
    parts = [TmemPart(0, lanes, columns)]
    if shape == "16x32bx2":
        parts.append(TmemPart(0, lanes, columns, half_split))
    return TmemLayout(tuple(parts), own=True)


def lane_mask(words: tuple[int, ...]) -> int:
    """The lanes of a CTA that ``disable-output-lane`` leaves out."""
    return sum(word << CELL * i for i, word in enumerate(words[: LANES // CELL]))


# ------------------------------------------------------------------ instructions (PTX 9.7.16.10)


#: every kind takes as long for its 32 bytes of K as 16-bit inputs do
_DEPTH = 16


@dataclass(frozen=True, kw_only=True)
class Tcgen05Product(Op):
    """What all forms of tcgen05.mma have in common (G11, G14-G20).

    ``d (+)= a @ b`` asynchronously, issued by one thread. ``a``: shared or tensor memory (rows, K),
    ``b``: shared memory (N, K), with ``a_trans`` / ``b_trans`` (K, rows), or as
    `tilesim.ir.declarations` says; K fills 32 bytes. With
    ``a_type`` / ``b_type`` the bytes are elements of 4 or 6 bits, sixteen in 16 bytes, as tensor
    copies of b4x16_p64 and b6x16_p32 leave them.
    ``accumulate`` is PTX's enable-input-d. With cta_group 2 every view names the part of the
    executing CTA, and the peer has its part at the same addresses: its own rows of A and D, and its
    own half of the rows of B.

    ``d`` is (rows, N); 16-bit elements of it are not packed. 64 rows of a single CTA lie in lanes
    0-15, 32-47, 64-79 and 96-111 (or 16 higher), in D and in A. Where the columns are folded
    (`folds`), ``d`` is (128, N / folds): the lanes hold one group of columns after the other; A in
    tensor memory is repeated in each group of lanes, and ``a`` names the first copy.
    """

    features = frozenset({"tcgen05"})

    d: TmemView
    a: View | TmemView
    b: View
    kind: Kind
    accumulate: Expr = Const(1)
    cta_group: CtaGroup = 1
    a_trans: bool = False
    b_trans: bool = False
    a_type: Narrow | None = None
    b_type: Narrow | None = None

    @property
    def rows(self) -> int:
        """Rows of A and D in one CTA."""
        return self._extents_of_a[0]

    @property
    def _extents_of_a(self) -> tuple[int, ...]:
        return extents(tuple(self.a.shape), transposed=self.a_trans)

    @property
    def _extents_of_b(self) -> tuple[int, ...]:
        return extents(tuple(self.b.shape), transposed=self.b_trans)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the instruction, over both CTAs of a pair."""
        n, k = self._extents_of_b
        packed = 2 if self.kind in ("mxf4", "mxf4nvf4") else 1
        return self.rows * self.cta_group, n * self.cta_group, k * packed

    @property
    def folds(self) -> int:
        """Groups of lanes that each hold a part of D's columns (PTX 9.7.16.10.5, layout B)."""
        return 2 if self.cta_group == 2 and self.rows == 64 else 1

    @property
    def scattered(self) -> bool:
        """Whether the rows of A and D are 16 lanes of every quarter (layout F)."""
        return self.rows == 64 and self.folds == 1

    @property
    def depth_ratio(self) -> int:
        """K of B over K of A as it is stored."""
        return 1

    def verify(self) -> Iterator[str]:
        matrices = ("A", self.a, self._extents_of_a), ("B", self.b, self._extents_of_b)
        for name, operand, found in matrices:
            if len(found) != 2:
                yield f"{name} has shape {tuple(operand.shape)}, a matrix is needed"
                return
        narrow = (self.a_type, self.b_type)
        yield from type_problems(self.kind, self.d, self.a, self.b, narrow)
        for type_, transposed in zip(narrow, (self.a_trans, self.b_trans), strict=True):
            if type_ is not None and transposed:
                yield f"a transposed operand of {type_} is not modelled"
        yield from transpose_problems(self.kind, a=self.a_trans, b=self.b_trans)
        for view in (self.a, self.b):
            if isinstance(view, View) and (view.space != "shared" or view.remote):
                yield f"{view} must be in the executing CTA's shared memory (G14)"
        if isinstance(self.a, TmemView) and self.a_trans:
            yield "A in tensor memory cannot be transposed"
        yield from self._depth_problems()
        yield from self._shape_problems()
        m, n, _ = self.shape
        folds = self.folds
        d = (LANES, n // folds) if folds > 1 else (self.rows, n)
        if self.d.shape != d:
            yield f"D is {self.d.shape}, M = {m} and N = {n} need {d} (G14)"

    def _depth_problems(self) -> Iterator[str]:
        depth_a, depth_b = self._extents_of_a[1], self._extents_of_b[1]
        expected = ROW_BYTES * 8 // self.a.dtype.bits
        if (depth_a, depth_b) != (expected, expected * self.depth_ratio):
            need = " and ".join(map(str, sorted({expected, expected * self.depth_ratio})))
            yield f"A has K = {depth_a}, B {depth_b}, kind::{self.kind} needs {need} (G15)"

    def _shape_problems(self) -> Iterator[str]:
        n = self.shape[1]
        yield from row_problems(self.kind, self.rows, self.cta_group)
        yield from column_problems(self.kind, n, self.cta_group)
        yield from transposed_column_problems(self.b.dtype.bits, n, self.cta_group, self.b_trans)

    def _inputs(self) -> Iterator[UsesTmem]:
        """Reads of operands in tensor memory."""
        if isinstance(self.a, TmemView):
            yield UsesTmem(
                self.a, "mma", called="A",
                layout=matrix(
                    self.a, self.rows, self.folds, scattered=self.scattered, beside=self.d
                ),
            )  # fmt: skip

    @property
    def _disabled(self) -> int:
        """The lanes of D that stay as they are."""
        return 0

    def effects(self) -> tuple[Effect, ...]:
        m, n, _ = self.shape
        shared = (v for v in (self.a, self.b) if isinstance(v, View))
        d = matrix(self.d, self.rows, self.folds, scattered=self.scattered)
        return (
            Issues("tcgen05", work=(m // self.cta_group, n, _DEPTH), pair=self.cta_group == 2),
            *(Reads(view, "async", asynchronous=True) for view in shared),
            *self._inputs(),
            UsesTmem(
                self.d, "mma", write=True, layout=replace(d, disabled=self._disabled),
                keeps=self.accumulate, product=(self.mnemonic, self.shape, self.kind),
            ),
        )  # fmt: skip

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        """What D becomes in each CTA, its rows in the order of their lanes."""
        from tilesim.arith.tensor_cores import stacked

        ctas = range(self.cta_group)
        of_b = self.b.dtype, self.b_type
        stored = (inputs.part(self.b, cta) for cta in ctas)
        b = stacked([self._values(part, *of_b, trans=self.b_trans) for part in stored])
        return tuple(self._sum(inputs, cta, b) for cta in ctas)

    def _sum(self, inputs: Inputs, cta: int, b: PerLane) -> PerLane:
        """D of one CTA, from B of all."""
        from tilesim.arith.tensor_cores import product

        a = self._values(inputs.part(self.a, cta), self.a.dtype, self.a_type, trans=self.a_trans)
        copies = [a[i : i + self.rows] for i in range(0, len(a), self.rows)]
        found = product(*self._weighted(inputs, cta, copies, b), self.folds)
        if inputs.lanes(self.accumulate)[0]:
            old = inputs.part(self.d, cta).astype(found.dtype)
            found = found + (old if self._factor == 1 else old * found.dtype.type(self._factor))
        result: PerLane = found.astype(numpy_dtype(self.d.dtype))
        return result

    @property
    def _factor(self) -> float:
        """What the old D is multiplied by."""
        return 1

    def _weighted(
        self, inputs: Inputs, cta: int, a: list[PerLane], b: PerLane
    ) -> tuple[list[PerLane], PerLane]:
        """The copies of A, and B, as they are multiplied."""
        return a, b

    def _values(
        self, stored: PerLane, dtype: DType, narrow: Narrow | None, *, trans: bool
    ) -> PerLane:
        """Stored elements as rows of numbers."""
        from tilesim.arith.tensor_cores import pairs, sixteens

        if narrow is not None:
            return sixteens(rows_of(stored, transposed=False), narrow)
        rows = rows_of(stored, transposed=trans)
        if self.kind in ("mxf4", "mxf4nvf4"):
            return pairs(rows)
        return truncated(rows, dtype).astype("int32" if self.kind == "i8" else "float32")


class _Dressed(Tcgen05Product):
    """A product that may scale its old D, and leave some lanes of it."""

    scale_input_d: int
    disable_output_lane: tuple[int, ...]

    @property
    def _disabled(self) -> int:
        return lane_mask(self.disable_output_lane)

    @property
    def _factor(self) -> float:
        return 0.5**self.scale_input_d

    def verify(self) -> Iterator[str]:
        yield from super().verify()
        yield from input_d_problems(self.kind, self.scale_input_d)
        yield from lane_mask_problems(self.kind, self.disable_output_lane, self.cta_group)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Mma(_Dressed):
    """``d (+)= a @ b`` with a dense A of 64 or 128 rows; operands: `Tcgen05Product`.

    Block-scaled kinds read one scale factor byte per block of K from tensor memory: that of row
    ``r`` lies in lane ``r % 32`` of every quarter, column ``r // 32``, from byte ``scale_id`` on.
    Where the columns are folded, those of B are folded too: the upper half of the lanes holds the
    factors of the upper half of N.

    ``scale_input_d``: the accumulator is multiplied by ``2 ** -scale_input_d`` before the addition.
    ``disable_output_lane``: 32-bit words, a bit per lane from lane 0 of the CTA on; lanes with a
    1 keep their D. Four words, for a pair eight, which must say the same of both CTAs.
    """

    mnemonic = "tcgen05.mma"

    scale_a: TmemView | None = None
    scale_b: TmemView | None = None
    scale_vec: int = 1
    scale_id: int = 0
    scale_input_d: int = 0
    disable_output_lane: tuple[int, ...] = ()

    @property
    def block_scaled(self) -> bool:
        """Whether the kind has scale factors."""
        return self.kind in SCALE_VECTORS

    def _inputs(self) -> Iterator[UsesTmem]:
        yield from super()._inputs()
        scales = (self.scale_a, self.rows, 1), (self.scale_b, self.shape[1], self.folds)
        for view, rows, folds in scales:
            if view is not None:
                layout = scale_columns(rows, folds)
                yield UsesTmem(view, "mma", called="the scale factors", layout=layout)

    def _weighted(
        self, inputs: Inputs, cta: int, a: list[PerLane], b: PerLane
    ) -> tuple[list[PerLane], PerLane]:
        from tilesim.arith.tensor_cores import factors, scaled

        if self.scale_a is None or self.scale_b is None:
            return a, b

        def stored(view: TmemView, rows: int, folds: int) -> PerLane:
            found = inputs.part(view, cta, scale_columns(rows, folds))
            return factors(found, rows, folds, self.scale_id, self.scale_vec)

        of_a = stored(self.scale_a, self.rows, 1)
        of_b = stored(self.scale_b, self.shape[1], self.folds)
        nv = self.scale_vec == 4
        return [scaled(x, of_a, nv=nv) for x in a], scaled(b, of_b, nv=nv)

    def verify(self) -> Iterator[str]:
        yield from super().verify()
        yield from self._scale_problems()

    def _scale_problems(self) -> Iterator[str]:
        scales = (self.scale_a, self.scale_b)
        if not self.block_scaled:
            if any(s is not None for s in scales):
                yield f"kind::{self.kind} has no scale factors"
            return
        if any(s is None for s in scales):
            yield f"kind::{self.kind} needs scale_a and scale_b in tensor memory (G14)"
        for scale in scales:
            if scale is not None and (scale.dtype is not u8 or scale.shape[0] != 32):
                yield f"{scale.name} is {scale.shape} {scale.dtype}, scales are 32 rows of u8"
        if self.scale_vec not in SCALE_VECTORS[self.kind]:
            allowed = either(SCALE_VECTORS[self.kind])
            yield f"scale_vec::{self.scale_vec}X: kind::{self.kind} has {allowed}"
        elif self.scale_id % self.scale_vec or not 0 <= self.scale_id <= 4 - self.scale_vec:
            yield f"scale factor id {self.scale_id} with scale_vec::{self.scale_vec}X"


@dataclass(frozen=True, kw_only=True)
class Tcgen05MmaSp(_Dressed):
    """``d (+)= a @ b`` where every row of A is half zeros (PTX 9.7.16.10.8).

    ``a`` holds the K / 2 elements that are not zero, ``b`` is (N, K). ``metadata`` says in 4 bits
    where they are: for tf32 in a pair of elements, for the other kinds in four. It is (128, 1)
    columns of 32 bits for the kinds f16 and tf32 (of a pair of columns at an even address, which
    ``metadata`` names with a ``selector``, and otherwise the one of them that this picks), and 2 at
    an even address for the others. The 64 bits of
    row ``r`` of 8-bit kinds are lane ``r``. For f16 and tf32, K's first half lies in lane
    ``r // 16 * 16 + r % 8``, its second 8 lanes further, in the upper 16 bits if ``r % 16 >= 8``.

    128 rows per CTA and no block scaling; see `Tcgen05Mma` for the other operands.
    """

    mnemonic = "tcgen05.mma.sp"

    metadata: TmemView
    selector: int | None = None
    scale_input_d: int = 0
    disable_output_lane: tuple[int, ...] = ()

    @property
    def depth_ratio(self) -> int:
        return 2

    def _inputs(self) -> Iterator[UsesTmem]:
        yield from super()._inputs()
        layout = metadata(self.metadata, self.selector)
        yield UsesTmem(self.metadata, "mma", called="the metadata", layout=layout)

    def _weighted(
        self, inputs: Inputs, cta: int, a: list[PerLane], b: PerLane
    ) -> tuple[list[PerLane], PerLane]:
        from tilesim.arith.tensor_cores import (
            ONE_OF_TWO,
            TWO_OF_FOUR,
            dense,
            meaningless,
            metadata_of_rows,
        )

        four = self.kind != "tf32"
        words = inputs.part(self.metadata, cta).view("uint32")
        fields = metadata_of_rows(words, self.rows)
        meaningful = TWO_OF_FOUR if four else ONE_OF_TWO
        wrong = meaningless(fields, meaningful)
        if wrong is not None:
            row, group, says = wrong
            raise MeaninglessOperand(
                "out-of-bounds",
                f"the metadata {self.metadata.name} of {self.mnemonic} says {says:#06b} for row "
                f"{row}, group {group}; valid values are "
                f"{', '.join(f'{value:#06b}' for value in meaningful)} (PTX 9.7.16.10.8)",
                "write the positions of the elements that are not zero, in increasing order",
            )
        return [dense(x, fields, two_of_four=four) for x in a], b

    def verify(self) -> Iterator[str]:
        if self.kind in SCALE_VECTORS:
            yield f"tcgen05.mma.sp.kind::{self.kind} is not modelled, only kinds without scales"
            return
        yield from super().verify()
        if self.rows != LANES:
            yield (
                f"tcgen05.mma.sp with {self.rows} rows per CTA is not modelled: where the metadata "
                f"lies is known for {LANES} rows"
            )
        columns = METADATA_COLUMNS[self.kind]
        if self.selector is not None and (columns, self.selector) not in ((1, 0), (1, 1)):
            yield f"a sparsity selector of {self.selector}: kind::{self.kind} has no such columns"
        if self.metadata.shape[0] != LANES or self.metadata.columns != columns:
            yield (
                f"{self.metadata.name} is {self.metadata.shape} {self.metadata.dtype}, the "
                f"metadata of kind::{self.kind} is {LANES} lanes x {columns} columns of 32 bits"
            )


@dataclass(frozen=True, kw_only=True)
class Tcgen05MmaWs(Tcgen05Product):
    """The weight-stationary product: A of 32, 64 or 128 rows of one CTA (PTX 9.7.16.10.9.3).

    Fewer than 128 rows fold D's columns over the lanes (layouts E and G), see `Tcgen05Product`.
    """

    mnemonic = "tcgen05.mma.ws"

    @property
    def folds(self) -> int:
        return LANES // self.rows if self.rows in WS_ROWS else 1

    def verify(self) -> Iterator[str]:
        if self.kind in SCALE_VECTORS:
            yield f"tcgen05.mma.ws has no kind::{self.kind} (G15)"
            return
        if self.cta_group != 1:
            yield "tcgen05.mma.ws has .cta_group::1 only (G15)"
        if isinstance(self.a, TmemView) and self.rows != LANES:
            yield (
                f"tcgen05.mma.ws with {self.rows} rows of A in tensor memory is not modelled: "
                "where they lie is not documented; put A in shared memory"
            )
        yield from super().verify()

    def _shape_problems(self) -> Iterator[str]:
        n = self.shape[1]
        if self.rows not in WS_ROWS:
            yield f"{self.rows} rows, tcgen05.mma.ws has {either(WS_ROWS)} (G15)"
        if n not in WS_COLUMNS:
            yield f"N = {n}, tcgen05.mma.ws has {either(WS_COLUMNS)} (G15)"
