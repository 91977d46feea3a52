"""Matrix products of a warp in its registers (SEMANTICS E24)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import DTYPES, DType, f32, f64, numpy_dtype, s32, truncated, u32
from tilesim.ir.effects import Defines, Effect, Gathers
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilesim.ir.op import PerLane


#: element types of a and b
Kind = Literal[
    "f16", "bf16", "tf32", "f64", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1",
    "s8", "u8", "s4", "u4", "b1",
]  # fmt: skip
#: by type of the elements: their bits in a register (those of fewer than 8 bits that floats have
#: lie in a byte each), and how many registers of a a lane has, with 8 rows and with 16
_FORMS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "f16": (16, (), (2, 4)), "bf16": (16, (), (2, 4)), "tf32": (32, (), (2, 4)),
    "f64": (64, (1,), (2, 4, 8)),
    "e4m3": (8, (), (2, 4)), "e5m2": (8, (), (2, 4)),
    "e3m2": (8, (), (4,)), "e2m3": (8, (), (4,)), "e2m1": (8, (), (4,)),
    "s8": (8, (1,), (2, 4)), "u8": (8, (1,), (2, 4)),
    "s4": (4, (1,), (2, 4)), "u4": (4, (1,), (2, 4)), "b1": (1, (1,), (2, 4)),
}  # fmt: skip
#: types that may be multiplied with each other
_MIXED = (
    frozenset({"s8", "u8"}), frozenset({"s4", "u4"}),
    frozenset({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}),
)  # fmt: skip
#: types below 8 bits, by what NumPy calls them
_NARROW = {"e3m2": "float6_e3m2fn", "e2m3": "float6_e2m3fn", "e2m1": "float4_e2m1fn"}
_INTEGER = frozenset({"s8", "u8", "s4", "u4"})
#: types of a and b whose products may be summed as f16
_HALF = frozenset({"f16", "e4m3", "e5m2", *_NARROW})


def numbers(words: NDArray[Any], kind: str) -> NDArray[Any]:
    """The elements that rows of 32-bit registers hold, the first one in the lowest bits.

    ``kind``: a type of elements or scales; of e2m1 two lie in a byte if ``packed`` stands before.
    """
    import ml_dtypes
    import numpy as np

    octets = np.ascontiguousarray(words.astype(np.uint32)).view(np.uint8)
    found: NDArray[Any]
    match kind:
        case "b1":
            found = np.unpackbits(octets, axis=1, bitorder="little").astype(np.int64)
        case "s4" | "u4" | "packed e2m1":
            halves = np.stack([octets & 15, octets >> 4], axis=2).reshape(len(octets), -1)
            if kind == "packed e2m1":
                found = halves.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
            else:
                found = halves.astype(np.int64)
            if kind == "s4":
                found = found - (found >> 3 << 4)
        case "ue8m0":
            found = octets.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        case "ue4m3":
            found = (octets & 127).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        case "e2m1" | "e2m3" | "e3m2":
            few = octets >> 2 & 15 if kind == "e2m1" else octets & 63
            found = few.view(getattr(ml_dtypes, _NARROW[kind])).astype(np.float64)
        case _:
            wide = np.int64 if kind in _INTEGER else np.float64
            type_ = DTYPES[kind]
            found = truncated(octets.view(numpy_dtype(type_)), type_).astype(wide)
    return found


def _effects(results: tuple[Var, ...]) -> tuple[Effect, ...]:
    """A whole warp executes the instruction; each lane gets its part of the product (E24)."""
    return (
        Gathers(None, "E24", whole=True),
        *(Defines(result, divergent=True) for result in results),
    )


@dataclass(frozen=True, kw_only=True)
class MmaSync(Op):
    """``mma.sync``: ``d = a b + c`` with a of 16 rows (or 8) and b of 8 columns, by the whole warp.

    A register of ``a`` or ``b`` has 32 bits, that is p elements of ``kind`` (of ``kind_b`` in b, if
    that is another one); of f64 it is one element. e3m2, e2m3 and e2m1 take a byte each, as
    ``ldmatrix`` leaves them. ``a`` has 4 registers per lane and k is 8 p, or 2 and k is 4 p, of f64
    also 8 and k is 16; ``b`` has half as many. With 8 rows (integers, f64) both have one and k is
    4 p. With g = lane / 4 and t = lane % 4, register i of a holds row g + 8 (i % 2) from column
    p t + 4 p (i / 2) on, register i of b column g from row p t + 4 p i on. ``c`` and ``d`` (4, with
    8 rows 2) hold row g + 8 (i / 2), column 2 t + i % 2; as f16 (``half``) two neighbours share a
    register of type u32. ``satfinite`` clamps sums of integers. Bits are combined by ``bits`` and
    counted. Sums are rounded once (E24).
    """

    mnemonic = "mma.sync"
    call = "matrix.mma(d, a, b, c, kind, *, kind_b, half, satfinite, bits)"
    ptx = (
        "mma.sync.aligned.m{rows}n8k{k}.row.col{.narrow}{.satfinite}.{sum}.{kind}.{other}.{sum}"
        "{.counted} {d}, {a:letter}, {b:letter}, {c:sums};"
    )
    cycles = 16
    data = frozenset({"a", "b", "c"})

    d: tuple[Var, ...]
    a: tuple[Expr, ...]
    b: tuple[Expr, ...]
    c: tuple[Expr, ...]
    kind: Kind = "f16"
    kind_b: Kind | None = None
    half: bool = False
    satfinite: bool = False
    bits: Literal["xor", "and"] | None = None

    @property
    def rows(self) -> int:
        """Rows of a."""
        return 8 if len(self.a) == 1 else 16

    @property
    def other(self) -> str:
        """The type of the elements of b."""
        return self.kind_b or self.kind

    @property
    def narrow(self) -> str | None:
        """The group of types below 8 bits."""
        return "kind::f8f6f4" if _NARROW.keys() & {self.kind, self.other} else None

    @property
    def per_register(self) -> int:
        """Elements of a register: p."""
        return max(1, 32 // _FORMS[self.kind][0])

    @property
    def k(self) -> int:
        """Columns of a."""
        return 4 * self.per_register * (len(self.a) * 8 // self.rows)

    @property
    def sum(self) -> str:
        """The type of c and d."""
        if self.kind == "f64":
            return "f64"
        whole = self.kind in _INTEGER or self.kind == "b1"
        return "s32" if whole else "f16" if self.half else "f32"

    @property
    def letter(self) -> str:
        """The class of the registers of a and b."""
        return "d" if self.kind == "f64" else "r"

    @property
    def sums(self) -> str:
        """The class of the registers of c."""
        return {"f64": "d", "f32": "f"}.get(self.sum, "r")

    @property
    def counted(self) -> str | None:
        """How bits are multiplied and added."""
        return None if self.bits is None else f"{self.bits}.popc"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"mma.f8f6f4"}) if self.narrow else frozenset()

    def verify(self) -> Iterator[str]:
        mixed = {self.kind, self.other}
        if len(mixed) > 1 and not any(mixed <= group for group in _MIXED):
            yield f"mma.sync multiplies no {self.kind} with {self.other} (E24)"
        if self.half and self.kind not in _HALF:
            yield f"products of {self.kind} are not summed as f16 (E24)"
            return
        few, many = _FORMS[self.kind][1:]
        if self.narrow:
            many = (4,)
        if len(self.a) not in (*few, *many):
            known = " or ".join(map(str, (*few, *many)))
            yield f"a of {self.kind} has {known} registers per lane, not {len(self.a)} (E24)"
            return
        sums = self.rows // 4 // (2 if self.sum == "f16" else 1)
        wanted = (sums, (len(self.a) + 1) // 2, sums)
        counts = (len(self.d), len(self.b), len(self.c))
        if counts != wanted:
            yield f"d, b and c have {wanted} registers per lane here, not {counts} (E24)"
        if any(r.dtype is not self._result for r in self.d):
            yield f"the results of mma.sync are of type {self._result} here (E24)"
        if self.satfinite and self.kind not in _INTEGER:
            yield f"sums of products of {self.kind} have no .satfinite (E24)"
        if (self.bits is not None) != (self.kind == "b1"):
            yield ".xor and .and are needed for b1, and exist for b1 only (E24)"

    @property
    def _result(self) -> DType:
        return {"f64": f64, "f32": f32, "s32": s32, "f16": u32}[self.sum]

    def effects(self) -> tuple[Effect, ...]:
        return _effects(self.d)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        exact = np.int64 if self.sum == "s32" else np.float64
        lane, p = np.arange(32), self.per_register
        g, t = lane // 4, lane % 4
        elements = (p * t)[:, None] + np.arange(p)
        a, b = np.zeros((self.rows, self.k), exact), np.zeros((self.k, 8), exact)
        for n, register in enumerate(self.a):
            rows = (g + n % 2 * 8)[:, None]
            a[rows, elements + n // 2 * 4 * p] = self._elements(inputs, register, self.kind)
        for n, register in enumerate(self.b):
            b[elements + n * 4 * p, g[:, None]] = self._elements(inputs, register, self.other)
        places = [(g + n // 2 * 8, 2 * t + n % 2) for n in range(self.rows // 4)]
        c = self._summands(inputs)
        product = self._product(a, b)
        sums = [product[place] + c[n] for n, place in enumerate(places)]
        if self.satfinite:
            ends = np.iinfo(np.int32)
            return tuple(np.clip(s, ends.min, ends.max) for s in sums)
        if self.sum != "f16":
            return tuple(sums)
        halves = [s.astype(np.float16).view(np.uint16).astype(np.int64) for s in sums]
        return tuple(x | y << 16 for x, y in zip(halves[::2], halves[1::2], strict=True))

    def _elements(self, inputs: Inputs, register: Expr, kind: str) -> PerLane:
        """The elements of a register, by lane."""
        import numpy as np

        values = inputs.lanes(register)
        if kind == "f64":
            return values.astype(np.float64)[:, None]
        return numbers(values.astype(np.int64)[:, None], kind)

    def _summands(self, inputs: Inputs) -> list[PerLane]:
        """What is added, as many per lane as there are sums."""
        import numpy as np

        values = [inputs.lanes(x) for x in self.c]
        if self.sum != "f16":
            return [v.astype(np.int64 if self.sum == "s32" else np.float64) for v in values]
        pairs = (numbers(v.astype(np.int64)[:, None], "f16") for v in values)
        return [pair[:, i] for pair in pairs for i in range(2)]

    def _product(self, a: PerLane, b: PerLane) -> PerLane:
        """Sums of products; of bits, how many are left of each row with each column."""
        import numpy as np

        if self.bits is None:
            return a @ b
        ones, both = a.sum(axis=1)[:, None] + b.sum(axis=0)[None, :], a @ b
        return np.asarray(both if self.bits == "and" else ones - 2 * both)


# ------------------------------------------------------ groups of 8 lanes, and products with scales


Order = Literal["row", "col"]


def _words(inputs: Inputs, register: Expr) -> NDArray[Any]:
    """A register as a row of one word per lane."""
    import numpy as np

    return inputs.lanes(register).astype(np.int64)[:, None]


def _halves(inputs: Inputs, registers: tuple[Expr, ...]) -> NDArray[Any]:
    """The f16 elements that registers hold: lanes x elements."""
    import numpy as np

    return np.concatenate([numbers(_words(inputs, r), "f16") for r in registers], axis=1)


@dataclass(frozen=True, kw_only=True)
class MmaGroups(Op):
    """``mma.sync.m8n8k4`` of f16: four products ``d = a b + c`` of 8 x 4 and 4 x 8, one by each
    group of 8 lanes: 4 q to 4 q + 3 and 4 q + 16 to 4 q + 19.

    Lane l has place p = l % 4 + 4 (l / 16). ``a`` (2 registers of 2 elements, i from 0 to 3) holds
    row p, column i, or with ``order_a`` col row i + 4 (l / 16), column l % 4. ``b`` holds column p,
    row i, or with ``order_b`` row column i + 4 (l / 16), row l % 4. ``c`` and ``d`` are 4 registers
    of 2 elements f16 each, which hold row p, or 8 of type f32: element i lies in row l % 2 + i / 2
    % 2 * 2 + 4 (l / 16), column i / 4 * 4 + l / 2 % 2 * 2 + i % 2. Sums are rounded once (E24).
    """

    mnemonic = "mma.sync.m8n8k4"
    call = "matrix.mma_groups(d, a, b, c, *, order_a, order_b)"
    ptx = (
        "mma.sync.aligned.m8n8k4.{order_a}.{order_b}.{sum}.f16.f16.{start} "
        "{d}, {a:r}, {b:r}, {c:letter};"
    )
    cycles = 16
    data = frozenset({"a", "b", "c"})

    d: tuple[Var, ...]
    a: tuple[Expr, ...]
    b: tuple[Expr, ...]
    c: tuple[Expr, ...]
    order_a: Order = "row"
    order_b: Order = "col"

    @property
    def sum(self) -> str:
        """The type of d."""
        return "f16" if len(self.d) == 4 else "f32"

    @property
    def start(self) -> str:
        """The type of c."""
        return "f16" if len(self.c) == 4 else "f32"

    @property
    def letter(self) -> str:
        """The class of the registers of c."""
        return "r" if self.start == "f16" else "f"

    def verify(self) -> Iterator[str]:
        if (len(self.a), len(self.b)) != (2, 2):
            yield f"a and b have 2 registers per lane, not {len(self.a)} and {len(self.b)} (E24)"
        if {len(self.c), len(self.d)} - {4, 8}:
            yield "c and d are 4 registers of two f16, or 8 of f32 (E24)"
        elif len(self.c) > len(self.d):
            yield "c is f32 only if d is f32 (E24)"
        wanted = u32 if self.sum == "f16" else f32
        if any(r.dtype is not wanted for r in self.d):
            yield f"the results of mma.sync are of type {wanted} here (E24)"

    def effects(self) -> tuple[Effect, ...]:
        return _effects(self.d)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        lane, i = np.arange(32)[:, None], np.arange(4)[None, :]
        group, upper, inner = lane // 4 % 4, lane // 16 * 4, lane % 4
        a, b = np.zeros((4, 8, 4)), np.zeros((4, 4, 8))
        own, other = (inner + upper, i), (i + upper, inner)
        row, column = own if self.order_a == "row" else other
        a[group, row, column] = _halves(inputs, self.a)
        column, row = own if self.order_b == "col" else other
        b[group, row, column] = _halves(inputs, self.b)
        products = a @ b
        sums = products[(group, *_sums(self.sum))]
        c = np.zeros((4, 8, 8))
        if self.start == "f16":
            c[(group, *_sums("f16"))] = _halves(inputs, self.c)
        else:
            c[(group, *_sums("f32"))] = np.stack([inputs.lanes(x) for x in self.c], axis=1)
        sums = sums + c[(group, *_sums(self.sum))]
        if self.sum == "f32":
            return tuple(sums.T)
        octets = sums.astype(np.float16).view(np.uint16).astype(np.int64)
        return tuple((octets[:, ::2] | octets[:, 1::2] << 16).T)


def _sums(type_: str) -> tuple[PerLane, PerLane]:
    """Row and column of each of a lane's 8 sums: lanes x sums."""
    import numpy as np

    lane, i = np.arange(32)[:, None], np.arange(8)[None, :]
    upper = lane // 16 * 4
    if type_ == "f16":
        return lane % 4 + upper + 0 * i, i + 0 * lane
    return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)


#: by group of types: bits of an element's place in a register, and by number of scales per row the
#: types that these may have
_SCALED: dict[str, tuple[int, dict[int, tuple[str, ...]]]] = {
    "mxf8f6f4": (8, {1: ("ue8m0",)}),
    "mxf4": (4, {2: ("ue8m0",)}),
    "mxf4nvf4": (4, {2: ("ue8m0",), 4: ("ue4m3", "ue8m0")}),
}
#: by number of scales per row: where they may begin in a register
_BYTES = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
Narrow = Literal["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"]


@dataclass(frozen=True, kw_only=True)
class MmaScaled(Op):
    """``mma.sync`` with ``block_scale``: the rows of a and columns of b have scales.

    ``a`` (4 registers), ``b`` (2), ``c`` and ``d`` (4 of f32) lie as in ``mma.sync``, with k = 32
    of ``mxf8f6f4``, whose elements take a byte each, and 64 of ``mxf4`` and ``mxf4nvf4``, whose
    e2m1 take 4 bits. Each row of a and column of b has ``vectors`` pieces with a scale each, bytes
    of a register. ``at_a`` says which byte comes first and which of two pairs of lanes has it: of
    quad g lane 2 ``at_a[1]`` holds those of row g, the next lane those of row g + 8; for b lane
    ``at_b[1]`` those of column g. Sums are rounded once (E24).
    """

    mnemonic = "mma.sync.block_scale"
    features = frozenset({"mma.block_scale"})
    call = (
        "matrix.mma_scaled(d, a, b, c, scale_a, scale_b, group, *, kind, kind_b, vectors, scale, "
        "at_a, at_b)"
    )
    ptx = (
        "mma.sync.aligned.m16n8k{k}.row.col.kind::{group}.block_scale.scale_vec::{vectors}X"
        ".f32.{kind}.{kind_b}.f32.{scale} {d}, {a:r}, {b:r}, {c:f}, {scale_a:r}, {at_a}, "
        "{scale_b:r}, {at_b};"
    )
    cycles = 16
    data = frozenset({"a", "b", "c", "scale_a", "scale_b"})

    d: tuple[Var, ...]
    a: tuple[Expr, ...]
    b: tuple[Expr, ...]
    c: tuple[Expr, ...]
    scale_a: Expr
    scale_b: Expr
    group: Literal["mxf8f6f4", "mxf4", "mxf4nvf4"] = "mxf8f6f4"
    kind: Narrow = "e2m1"
    kind_b: Narrow = "e2m1"
    vectors: Literal[1, 2, 4] = 1
    scale: Literal["ue8m0", "ue4m3"] = "ue8m0"
    at_a: tuple[int, int] = (0, 0)
    at_b: tuple[int, int] = (0, 0)

    @property
    def k(self) -> int:
        """Columns of a."""
        return 256 // _SCALED[self.group][0]

    def verify(self) -> Iterator[str]:
        bits, scales = _SCALED[self.group]
        if bits == 4 and (self.kind, self.kind_b) != ("e2m1", "e2m1"):
            yield f"{self.group} multiplies e2m1, not {self.kind} and {self.kind_b} (E24)"
        if self.scale not in scales.get(self.vectors, ()):
            yield f"{self.group} has no {self.vectors} scales of {self.scale} per row (E24)"
        counts = (len(self.d), len(self.a), len(self.b), len(self.c))
        if counts != (4, 4, 2, 4):
            yield f"d, a, b and c have (4, 4, 2, 4) registers per lane, not {counts} (E24)"
        if any(r.dtype is not f32 for r in self.d):
            yield "the results of mma.sync are of type f32 here (E24)"
        begins = _BYTES[self.vectors]
        for (byte, lane), lanes in ((self.at_a, 2), (self.at_b, 4)):
            if byte not in begins:
                yield f"{self.vectors} scales begin at byte {begins}, not {byte} (E24)"
            if not 0 <= lane < lanes:
                yield f"lane {lane} of the scales is outside 0..{lanes - 1} (E24)"

    def effects(self) -> tuple[Effect, ...]:
        return _effects(self.d)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        lane, p = np.arange(32), 32 // _SCALED[self.group][0]
        g, t = lane // 4, lane % 4
        elements = (p * t)[:, None] + np.arange(p)
        a, b = np.zeros((16, self.k)), np.zeros((self.k, 8))
        packed = "packed " if p == 8 else ""
        for n, register in enumerate(self.a):
            held = numbers(_words(inputs, register), packed + self.kind)
            a[(g + n % 2 * 8)[:, None], elements + n // 2 * 4 * p] = held
        for n, register in enumerate(self.b):
            held = numbers(_words(inputs, register), packed + self.kind_b)
            b[elements + n * 4 * p, g[:, None]] = held
        quad = np.arange(8) * 4
        scales = self._scales(inputs, self.scale_a, self.at_a[0])
        first = quad + 2 * self.at_a[1]
        a *= np.concatenate([scales[first], scales[first + 1]])
        b *= self._scales(inputs, self.scale_b, self.at_b[0])[quad + self.at_b[1]].T
        product = a @ b
        return tuple(
            product[g + n // 2 * 8, 2 * t + n % 2] + inputs.lanes(c) for n, c in enumerate(self.c)
        )

    def _scales(self, inputs: Inputs, register: Expr, first: int) -> NDArray[Any]:
        """What each lane's register has for the elements of a row: lanes x k."""
        import numpy as np

        held = numbers(_words(inputs, register), self.scale)[:, first : first + self.vectors]
        return np.repeat(held, self.k // self.vectors, axis=1)
