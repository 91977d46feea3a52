"""Rows of the gallery that ask launch control for tiles, with fewer of them.

How tiles can be handed over takes a run each; some still are, and the code is that of the row but
for its bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesim.kernels.registry import Case

#: the sizes instead, by row
SIZES: Mapping[str, Mapping[str, int]] = {
    "tilesim.kernels.blackwell.matmul_v5::matmul": {"m": 128},
    "tilesim.kernels.blackwell.matmul_v5::matmul[stages=2,m=768,chunk=16]": {"m": 256},
    "tilesim.kernels.blackwell.matmul_v6::matmul": {"m": 768, "n": 64},
    "tilesim.kernels.blackwell.matmul_v6::matmul[n=256,block_n=128,stages=4]": {"m": 256},
}


def with_fewer_tiles(case: Case) -> Case:
    """The row with fewer tiles if it is one of these, else the row."""
    return replace(case, params={**case.params, **SIZES.get(case.target, {})})
