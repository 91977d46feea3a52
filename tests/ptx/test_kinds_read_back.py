"""The FP8 and grouped matmuls, emitted to PTX and read back."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from tests.gpu import needs
from tests.kernels.mutate import without
from tests.ptx import campaign
from tilesim.checker import check
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import emit
from tilesim.kernels.hopper import matmul_fp8, matmul_fp8_blocks, matmul_grouped
from tilesim.ptx.emitted import describe
from tilesim.ptx.launch import Contents, Map, Pointer
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read

FP8 = (matmul_fp8.matmul, matmul_fp8_blocks.matmul)


def test_tensor_maps_of_fp8_are_of_bytes() -> None:
    """The driver has no name for the type; nor has a launch description."""
    maps = [p for p in describe(emit(matmul_fp8.matmul.build())).params if isinstance(p, Map)]
    assert [m.type for m in maps] == ["u8", "u8", "bf16"]


@needs.compiler
@pytest.mark.parametrize("kernel", FP8)
def test_fp8_is_proved(kernel: Any) -> None:
    source = emit(kernel.build(ctas=1, m=256))
    assert check(campaign.back(source), strict="ptx").verdict == "proved"


@needs.compiler
@pytest.mark.parametrize("kernel", FP8)
def test_fp8_without_the_proxy_fence_is_not(kernel: Any) -> None:
    source = emit(without(kernel.build(ctas=1, m=256), "fence.proxy.async"))
    assert "proxy-fence" in check(campaign.back(source)).rules


@needs.compiler
@pytest.mark.parametrize(("sizes", "verdict"), [((70, 58), "proved"), ((70, 90), "failed")])
def test_groups_are_proved_where_they_end_within_the_data(
    sizes: tuple[int, ...], verdict: str
) -> None:
    """The launch says what the kernel reads: where the groups end. 128 rows is all there is."""
    source = emit(matmul_grouped.matmul.build(sizes=(70, 58), ctas=1, n=128, depth=64, stages=2))
    ends = Contents("s32", tuple(accumulate(sizes)))
    launch = describe(source)
    params = tuple(
        replace(p, contents=ends) if isinstance(p, Pointer) and p.name == "ends" else p
        for p in launch.params
    )
    module = read(compile_ptx(source), "k.ptx")
    mir = lower(module, module.entries[0], replace(launch, params=params))
    assert check(mir).verdict == verdict
