"""Matrix products of a warp in its registers (SEMANTICS E24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import DTYPES, DType, f32, f64, numpy_dtype, s32, truncated, u32
from tilesim.ir.effects import Defines, Effect, Gathers
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op

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
            yield "xor or and is said of bits, and of nothing else (E24)"

    @property
    def _result(self) -> DType:
        return {"f64": f64, "f32": f32, "s32": s32, "f16": u32}[self.sum]

    def effects(self) -> tuple[Effect, ...]:
        return (
            Gathers(None, "E24", whole=True),
            *(Defines(result, divergent=True) for result in self.d),
        )

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
