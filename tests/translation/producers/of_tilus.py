"""tilus: the kernel of the tests, right and wrong, for Blackwell, which its instructions are of."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import tilesim.tilus as tl
from tests.tilus.test_check import TILES, tensors

ours: Any = import_module("tests.tilus.kernels")


def kernels() -> Iterator[tuple[str, str]]:
    """With each mistake that the kernel can be given."""
    for mistake in ({}, {"stages": 3}, {"count": 2}, {"late": 1}, {"kept": False}):
        (found,) = tl.record(ours.Doubled(**mistake), TILES, *tensors(), target="sm_100a")
        yield f"doubled_{next(iter(mistake), 'right')}", found.ptx
