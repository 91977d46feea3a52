"""What the operators of expressions do to arrays of integers, one per lane or thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilesim.arith.operators import NUMPY_NAMES

ARRAY_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": np.negative,
    "~": np.invert,
    "not": lambda a: (a == 0).astype(np.int64),
}
#: where 0 divides integers is looked at before
_divides = np.errstate(divide="ignore", invalid="ignore")
#: comparisons give truth values
ARRAY_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    symbol: getattr(np, name) for symbol, name in NUMPY_NAMES.items()
} | {"//": _divides(np.floor_divide), "%": _divides(np.mod)}
