"""What the operators of expressions do to arrays of integers, one per lane or thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ARRAY_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": np.negative,
    "~": np.invert,
    "not": lambda a: (a == 0).astype(np.int64),
}
#: where 0 divides integers is looked at before
_divides = np.errstate(divide="ignore", invalid="ignore")
#: comparisons give truth values
ARRAY_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply,
    "//": _divides(np.floor_divide), "%": _divides(np.mod),
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": np.left_shift, ">>": np.right_shift, "min": np.minimum, "max": np.maximum,
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
