"""Every instruction that is emitted is read back from the PTX that compilers make of it."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.gpu.programs import PROGRAMS
from tests.ptx.campaign import back
from tilesim.gpu.emit import emit
from tilesim.ir.op import OPS
from tilesim.ir.program import instructions
from tilesim.ptx.lowering_context import Unsupported

#: programs of which something else is not read: where, and why
REFUSED = {
    # their buffers have maps of the launch as well
    "tensor_maps": "the tensor map's base is unknown",
    "packed_elements": "the map of a copy of mode im2col is for other modes",
    "products": "the instruction descriptor is no constant",  # metadata is chosen at run time
    "paired_products": "the instruction descriptor is no constant",
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
