"""Every instruction that is emitted is read back from the PTX that compilers make of it."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from tests.gpu import needs
from tests.gpu.programs import PROGRAMS
from tests.kernels.mutate import without
from tests.ptx import campaign
from tests.ptx.campaign import back
from tilesim.arith.types import f16, s16
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.ir.op import OPS
from tilesim.ir.program import instructions
from tilesim.kernels.hopper import matmul_fp8, matmul_fp8_blocks, matmul_grouped
from tilesim.ptx.launch import Contents, Map, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

#: programs of which something else is not read: where, and why
REFUSED = {
    # their buffers have maps of the launch as well
    "tensor_maps": "the tensor map's base is unknown",
    "packed_elements": "the map of a copy of mode im2col is for other modes",
    "products": "the instruction descriptor is not a constant",  # metadata is chosen at run time
    "paired_products": "the instruction descriptor is not a constant",
}
#: read as other instructions: of PTX's own, or a hint that is left out
OTHERWISE = {
    "clusterlaunchcontrol.query_cancel.get_first_ctaid",
    "clusterlaunchcontrol.query_cancel.is_canceled",
    "mma.sync", "mma.sync.block_scale", "mma.sync.m8n8k4", "prefetch",
}  # fmt: skip
#: tests with PTX that is written out: maps made on the device, launch control, products
ELSEWHERE = {
    "tensormap.copy", "tensormap.cp_fenceproxy", "tensormap.replace",
    "fence.proxy.tensormap::generic.acquire", "fence.proxy.tensormap::generic.release",
    "tcgen05.mma.sp", "tcgen05.mma.ws",
}  # fmt: skip


@needs.compiler
def test_every_emitted_instruction_is_read_back() -> None:
    read: set[str] = set()
    emitted = {op.mnemonic for program in PROGRAMS.values() for op in instructions(program)}
    for name, program in PROGRAMS.items():
        if name in REFUSED:
            with pytest.raises(Unsupported, match=REFUSED[name]):
                back(emit(program))
        else:
            read |= {op.mnemonic for op in back(emit(program)).ops()}
    tiles = {mnemonic for mnemonic in OPS if mnemonic.startswith("tile.")}
    assert emitted - read == tiles | OTHERWISE | ELSEWHERE


# The FP8 and grouped matmuls, emitted to PTX and read back.


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
    launch = describe(source, {"ends": np.cumsum(sizes), "A": np.ones((128, 64))})
    known = [(p.name, p.contents) for p in launch.params if isinstance(p, Pointer) and p.contents]
    assert known == [("ends", Contents("s32", tuple(accumulate(sizes))))]
    module = read(compile_ptx(source), "k.ptx")
    assert check(lower(module, module.entries[0], launch)).verdict == verdict


@kernel(warps=1)
def steered(k: Builder) -> None:
    """Waits where the first element of a row says so, of two types; the second row has a gap."""
    halves = k.tensor("halves", f16, (2, 3), strides=(4, 1))
    words = k.tensor("words", s16, (2, 2), strides=(3, 1))
    half, word, never = k.var("half", 0.0, f16), k.var("word", 0), k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(never, 1)
        k.mem.load(half, halves[1, 0])
        k.mem.load(word, words[1, 0])
        with k.if_((half > 1) | (word < 0)):
            k.mbarrier.wait(never, 0)


def test_what_steers_is_listed_as_it_lies_in_memory() -> None:
    """Numbers that are no integers by their bytes, and zeros between rows."""
    given = {"halves": np.array([[1, 2, 3], [4, 5, -6]]), "words": np.array([[1, -2], [3, 4]])}
    launch = describe(emit(steered.build()), given)
    halves, words = (p.contents for p in launch.params if isinstance(p, Pointer))
    flat = np.array([1, 2, 3, 0, 4, 5, -6], np.float16)
    assert halves == Contents("u8", tuple(flat.tobytes()))
    assert words == Contents("s16", (1, -2, 0, 3, 4))
