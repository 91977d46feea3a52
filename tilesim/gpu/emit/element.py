"""Elements of tensors and fragments in C: storage type, the type math runs in, conversions."""

from __future__ import annotations

from collections.abc import Callable

from tilesim.arith.types import DType, bf16, e4m3, e5m2, f16, f64, pred, tf32

_RAW = {bf16: "u16", f16: "u16", e4m3: "u8", e5m2: "u8", tf32: "f32", pred: "u8"}


def storage_type(dtype: DType) -> str:
    """The C type an element is stored as; raw bits for the floats C++ does not have."""
    return _RAW.get(dtype, dtype.name)


def math_type(dtype: DType) -> str:
    """The C type elementwise math on ``dtype`` runs in: f32 for narrow floats and bytes."""
    if dtype is f64:
        return "f64"
    return "f32" if dtype.kind == "float" or dtype.bits == 8 else dtype.name


def widen(dtype: DType, value: str, use: Callable[[str], None]) -> str:
    """``value`` (as stored) in the type math runs in; ``use`` is told the helpers it needs."""
    if dtype in (bf16, f16, e4m3, e5m2):
        use(f"{dtype}_to_f32")
        return f"{dtype}_to_f32({value})"
    return value if storage_type(dtype) == math_type(dtype) else f"({math_type(dtype)}){value}"


def narrow(dtype: DType, value: str, kind: str, use: Callable[[str], None]) -> str:
    """``value`` of C type ``kind`` rounded to ``dtype`` and in its storage type."""
    if dtype in (bf16, f16, e4m3, e5m2):
        use(f"f32_to_{dtype}")
        return f"f32_to_{dtype}({value})"
    stored = storage_type(dtype)
    return value if stored == kind else f"({stored})({value})"
