"""Triton's kernels: those of the tests and of the benchmarks, in several configurations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tilesim.triton as tt
from benchmarks import triton_kernels as measured
from tests.triton import kernels as small

_TARGETS = ("sm_90a", "sm_100a")


def kernels() -> Iterator[tuple[str, str]]:
    """Matrix products and attention by stages, warps and target."""
    half, size, depth = tl.float16, 1024, 4096
    a, b, c = (tt.empty(s, half) for s in ((size, depth), (depth, size), (size, size)))
    tile: dict[str, Any] = {"BM": 128, "BN": 128, "BK": 64}
    for target, stages, warps in product(_TARGETS, (1, 2, 3, 4), (4, 8)):
        name = f"{target}_stages={stages}_warps={warps}"
        with_options: dict[str, Any] = {"num_stages": stages, "num_warps": warps, "target": target}
        (found,) = tt.record(
            measured.by_pointers[(8, 8)], a, b, c, depth, depth, size, size, **tile, **with_options
        )
        yield f"by_pointers_{name}", found.ptx
        maps = [
            TensorDescriptor.from_tensor(t, box)
            for t, box in ((a, [128, 64]), (b, [64, 128]), (c, [128, 128]))
        ]
        (found,) = tt.record(measured.by_maps[(8, 8)], *maps, depth, **tile, **with_options)
        yield f"by_maps_{name}", found.ptx
        (found,) = tt.record(
            small.product[(8, 8)], *maps, depth, M=128, N=128, K=64, **with_options
        )
        yield f"product_{name}", found.ptx
        if stages > 2:
            continue
        rows = [
            TensorDescriptor.from_tensor(tt.empty((4096, 128), half), [box, 128])
            for box in (128, 64, 64, 128)
        ]
        (found,) = tt.record(
            measured.attention[(32,)], *rows, 4096, 0.1, BM=128, BN=64, D=128, **with_options
        )
        yield f"attention_{name}", found.ptx
