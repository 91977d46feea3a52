"""The 32-bit instruction descriptor of tcgen05.mma (PTX 9.7.16.4.2)."""

from __future__ import annotations

from tilesim.ir.ops.tcgen05_mma import SCALE_VECTORS, Kind, Tcgen05Mma, Tcgen05MmaSp, Tcgen05Product
from tilesim.records import dataclass

#: formats of A and B, by kind and number
_FORMATS: dict[Kind, tuple[str, ...]] = {
    "f16": ("f16", "bf16"), "tf32": ("", "", "tf32"), "i8": ("u8", "s8"),
    "f8f6f4": ("e4m3", "e5m2", "", "e2m3", "e3m2", "e2m1"),
    "mxf8f6f4": ("e4m3", "e5m2", "", "e2m3", "e3m2", "e2m1"),
    "mxf4": ("", "u8"), "mxf4nvf4": ("", "u8"),
}  # fmt: skip
#: bits of a product with scales that say which bytes of the scales' columns are used, of A and B
SCALE_IDS = 3 << 29 | 3 << 4
#: bits that are zero in the descriptor of a kind
_ZERO: dict[Kind, int] = {
    "f16": 0x20800048, "tf32": 0x20800048, "f8f6f4": 0x20800048, "i8": 0x20806040,
    "mxf8f6f4": 0x8700004B, "mxf4": 0x0701904B, "mxf4nvf4": 0x0701904B,
}  # fmt: skip
#: formats of D
_RESULTS = ("f16", "f32", "s32")


@dataclass(frozen=True)
class Form:
    """What a descriptor says: (M, N) over both CTAs of a pair, element types by name ("" is none
    that the kind has), and which scale factors are used. ``selector``: of the sparsity metadata.
    ``long``: K is 96. ``wrong``: its bits that should be zero."""

    m: int
    n: int
    a: str
    b: str
    d: str
    a_trans: bool = False
    b_trans: bool = False
    sparse: bool = False
    selector: int = 0
    scale_ids: tuple[int, int] = (0, 0)
    ue8m0: bool = False
    long: bool = False
    wrong: int = 0


def decode(bits: int, kind: Kind) -> Form:
    """What the descriptor of a product of a kind says."""
    scaled = kind in SCALE_VECTORS
    b_format = bits >> 10 & (3 if kind in ("mxf4", "mxf4nvf4") else 7)
    return Form(
        m=(bits >> 27 & 3) << 7 if scaled else (bits >> 24 & 0x1F) << 4,
        n=(bits >> 17 & 0x3F) << 3,
        a=_named(_FORMATS[kind], bits >> 7 & 7),
        b=_named(_FORMATS[kind], b_format),
        d="f32" if scaled else _named(_RESULTS, bits >> 4 & 3),
        a_trans=bool(bits >> 15 & 1),
        b_trans=bool(bits >> 16 & 1),
        sparse=bool(bits >> 2 & 1),
        selector=bits & 3,
        scale_ids=(bits >> 29 & 3, bits >> 4 & 3) if scaled else (0, 0),
        ue8m0=scaled and bool(bits >> 23 & 1),
        long=kind in ("mxf4", "mxf4nvf4") and bool(bits >> 31 & 1),
        wrong=bits & _ZERO[kind],
    )


def _named(formats: tuple[str, ...], number: int) -> str:
    return formats[number] if number < len(formats) else ""


def encode(op: Tcgen05Product) -> int:
    """The descriptor of an instruction, without a sparsity selector."""
    m, n, _ = op.shape
    formats = _FORMATS[op.kind]
    bits = int(op.a_trans) << 15 | int(op.b_trans) << 16 | n >> 3 << 17 | m >> 4 << 24
    bits |= int(isinstance(op, Tcgen05MmaSp)) << 2
    bits |= formats.index(op.a_type or op.a.dtype.name) << 7
    bits |= formats.index(op.b_type or op.b.dtype.name) << 10
    if not isinstance(op, Tcgen05Mma) or not op.block_scaled:
        return bits | _RESULTS.index(op.d.dtype.name) << 4
    ue8m0 = not (op.kind == "mxf4nvf4" and op.scale_vec == 4)
    return bits | int(ue8m0) << 23 | op.scale_id << 4 | op.scale_id << 29
