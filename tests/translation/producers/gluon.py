"""Gluon's kernels of the tests, right and with each mistake that they can be given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from tests.triton import test_gluon
from tilesim.recording import Launched


def kernels() -> Iterator[tuple[str, str]]:
    """Each right kernel, and each mistake, once."""
    seen: list[Launched] = []

    def record(*args: Any, **options: Any) -> None:
        seen.extend(test_gluon.tt.record(*args, **options))

    given = [(kernel, fault) for kernel, fault, *_ in test_gluon.MISTAKES + test_gluon.HARMLESS]
    right = [(kernel, "none") for kernel in dict.fromkeys(kernel for kernel, _ in given)]
    for kernel, fault in right + given:
        with patch.object(test_gluon.tt, "check", record):
            kernel(fault)
        yield f"{kernel.__name__}_{fault}", seen.pop().ptx
