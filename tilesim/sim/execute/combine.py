"""What reductions in memory make of the old and the new value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Combine = Callable[[Any, Any], Any]

COMBINE: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
