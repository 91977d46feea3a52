"""Images of a core dump: instructions, lines and control flow at addresses of the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.autopsy.core_dump import CoreDump
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image

DUMPS = Path(__file__).parents[1] / "autopsy" / "dumps"


@pytest.fixture(scope="module")
def ring() -> tuple[CoreDump, Image]:
    """The dump of the ring, and its kernel's image with addresses on the device."""
    dump = CoreDump(DUMPS / "ring.nvcudmp.gz")
    (image,) = (one for one in dump.images if one.relocated)
    return dump, Image(image.data, "ring")


def test_each_waiting_warp_stands_behind_a_wait(ring: tuple[CoreDump, Image]) -> None:
    dump, image = ring
    function = function_at(image, dump.grids[0].entry)
    assert function is not None
    assert (function.name, function.address) == ("_Z4ringPKfPfii", dump.grids[0].entry)
    found = set()
    for warp in dump.ctas[0].warps:
        pc = warp.lanes[0].pc - function.address
        (before,) = (p for p in function.predecessors[pc] if p < pc)
        wait = function.code[before]
        found.add((warp.number, wait.opcode, wait.lines[-1].line, function.code[pc].opcode))
    opcode = "SYNCS.PHASECHK.TRANS64.TRYWAIT"
    assert found == {*((n, opcode, 21, "BRA") for n in range(4)), (4, opcode, 19, "BRA")}


def test_nothing_lies_at_another_address(ring: tuple[CoreDump, Image]) -> None:
    dump, image = ring
    assert function_at(image, dump.grids[0].entry - 1) is None
    assert function_at(image, dump.grids[0].entry + 5888) is None
