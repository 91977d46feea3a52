"""tilelang: the kernels of the tests, by target and tile."""

from __future__ import annotations

from collections.abc import Iterator

import tilelang

import tilesim.tilelang as tl
from tests.tilelang.kernels import PLAIN, doubled, product
from tests.tilelang.test_check import empty


def kernels() -> Iterator[tuple[str, str]]:
    """With warps that only load, and without."""
    a = empty(512, 512)
    for target in ("sm_90a", "sm_100a"):
        for block, depth in ((128, 64), (64, 64), (128, 32)):
            for configs in ({}, PLAIN):
                made = tilelang.jit(product, pass_configs=configs)
                (found,) = tl.record(
                    lambda: made(512, 512, 512, block, depth)(a, a, a), target=target
                )
                name = f"product_{target}_{block}_{depth}_{'plain' if configs else 'warps'}"
                yield name, found.ptx
        for mistake in ({}, {"parity": 1}, {"count": 64}):
            x = empty(256, 192)
            (found,) = tl.record(lambda: tilelang.jit(doubled)(256, **mistake)(x, x), target=target)
            yield f"doubled_{target}_{next(iter(mistake), 'right')}", found.ptx
