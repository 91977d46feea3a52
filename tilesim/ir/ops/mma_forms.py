"""Products of a warp by groups of 8 lanes, and with scales (SEMANTICS E24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import f32, u32
from tilesim.ir.effects import Defines, Effect, Gathers
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.ir.ops.mma_sync import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilesim.ir.op import PerLane

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
            yield "what is added to is f32 only where the sum is (E24)"
        wanted = u32 if self.sum == "f16" else f32
        if any(r.dtype is not wanted for r in self.d):
            yield f"the results of mma.sync are of type {wanted} here (E24)"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Gathers(None, "E24", whole=True),
            *(Defines(result, divergent=True) for result in self.d),
        )

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
                yield f"scales are held by one of {lanes}, of which there is no {lane} (E24)"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Gathers(None, "E24", whole=True),
            *(Defines(result, divergent=True) for result in self.d),
        )

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
