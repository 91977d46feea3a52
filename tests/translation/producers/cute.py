"""CuTe DSL: the kernel of the tests, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator

import tilesim.cute as tc
from tests.cute.test_check import launch


def kernels() -> Iterator[tuple[str, str]]:
    """For Hopper and for Blackwell."""
    for target in ("sm_90a", "sm_100a"):
        for mistake in ({}, {"phase": 1}, {"freed": False}):
            (found,) = tc.record(launch, target=target, **mistake)
            yield f"doubled_{target}_{next(iter(mistake), 'right')}", found.ptx
