"""Comparing what a kernel computed with what its reference computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.records import dataclass

#: largest error accepted, relative to the largest expected value: rounding of sums in any order
_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
_COARSE = 0.1


@dataclass(frozen=True)
class Comparison:
    """One output: the largest absolute error, where it is, and what is accepted."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    error: float
    allowed: float
    where: tuple[int, ...]

    @property
    def equal(self) -> bool:
        """Whether the error is accepted."""
        return self.error <= self.allowed

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        head = f"{self.name} ({shape} {self.dtype})"
        if self.error == 0:
            return f"{head}: equal to the reference, max error 0"
        verdict = "equal to the reference" if self.equal else "differs from the reference"
        at = ", ".join(map(str, self.where))
        return (
            f"{head}: {verdict}, max error {self.error:.3g} at [{at}], allowed {self.allowed:.3g}"
        )


def compare(
    outputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]
) -> tuple[Comparison, ...]:
    """One comparison for each array of the reference.

    Raises:
        UsageError: the reference gives an array that the kernel does not have, or of another shape.
    """
    return tuple(_one(name, outputs, want) for name, want in expected.items())


def _one(name: str, outputs: Mapping[str, NDArray[Any]], expected: NDArray[Any]) -> Comparison:
    if name not in outputs:
        raise UsageError(
            f"the reference gives {name!r}, which is not a tensor of the kernel; "
            f"it has {', '.join(outputs)}"
        )
    got, want = outputs[name], np.asarray(expected)
    if got.shape != want.shape:
        raise UsageError(f"the reference gives {name} of shape {want.shape}, it has {got.shape}")
    dtype = got.dtype.name
    if got.size == 0:
        return Comparison(name, got.shape, dtype, 0.0, 0.0, ())
    difference = _difference(got, want)
    where = np.unravel_index(int(difference.argmax()), got.shape)
    allowed = 0.0
    if got.dtype.kind not in "iub":
        largest = float(np.nanmax(np.abs(want.astype(np.float64)), initial=0.0))
        allowed = _TOLERANCE.get(dtype, _COARSE) * (largest if np.isfinite(largest) else 1.0)
    place = tuple(int(i) for i in where)
    return Comparison(name, got.shape, dtype, float(difference.max()), allowed, place)


def _difference(got: NDArray[Any], want: NDArray[Any]) -> NDArray[np.float64]:
    """Absolute differences; equal infinities and NaNs differ by 0, other NaNs infinitely."""
    if got.dtype.kind in "iub" and want.dtype.kind in "iub":
        exact: NDArray[np.float64] = np.abs(got.astype(object) - want.astype(object)).astype(
            np.float64
        )
        return exact
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference: NDArray[np.float64] = np.abs(a - b)
    difference[np.isnan(difference)] = np.inf
    difference[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return difference
