"""tilelang: the kernels of the tests, by target and tile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import tilelang

import tilesim.tilelang as tl
from tests.tilelang import kernels as ours
from tests.tilelang.kernels import PLAIN
from tests.tilelang.test_check import empty

_TARGETS = ("sm_90a", "sm_100a")
#: rows and columns of a tile, and its depth
_TILES = ((128, 64), (64, 64), (128, 32))


def kernels() -> Iterator[tuple[str, str]]:
    """With warps that only load, and without."""
    a, x = empty(512, 512), empty(256, 192)
    for target, (block, depth), configs in product(_TARGETS, _TILES, ({}, PLAIN)):
        made = partial(tilelang.jit(ours.product, pass_configs=configs), 512, 512, 512)
        (found,) = tl.record(partial(_called, made, (block, depth), (a, a, a)), target=target)
        yield f"product_{target}_{block}_{depth}_{'plain' if configs else 'warps'}", found.ptx
    for target, mistake in product(_TARGETS, ({}, {"parity": 1}, {"count": 64})):
        made = partial(tilelang.jit(ours.doubled), **mistake)
        (found,) = tl.record(partial(_called, made, (256,), (x, x)), target=target)
        yield f"doubled_{target}_{next(iter(mistake), 'right')}", found.ptx


def _called(kernel: Any, shape: tuple[int, ...], tensors: tuple[Any, ...]) -> None:
    kernel(*shape)(*tensors)
