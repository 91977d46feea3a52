"""What is read out of dumps: real ones, and ones that the writer makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.autopsy.core_dump import CoreDump

from . import dump_writer as writer
from .held import held

DUMPS = Path(__file__).parent / "dumps"
REAL = ["ring", "waits", "states"]


def real(name: str) -> CoreDump:
    return CoreDump(DUMPS / f"{name}.nvcudmp.gz")


@pytest.mark.parametrize("name", REAL)
def test_a_dump_that_is_written_again_holds_the_same(name: str, tmp_path: Path) -> None:
    dump = real(name)
    again = CoreDump(writer.copy_of(dump).write(tmp_path / "again"))
    first, second = held(dump), held(again)
    for part in first:
        assert first[part] == second[part], part


def test_what_the_ring_s_dump_holds() -> None:
    dump = real("ring")
    assert dump.driver == ((580, 159), (13, 0), ("skip_global_memory",))
    assert dump.devices == ((0, (9, 0), 132, 64, "NVIDIA H200"),)
    (grid,) = dump.grids
    assert (grid.grid, grid.block, grid.cluster, grid.status) == (
        (3, 1, 1), (160, 1, 1), (0, 0, 0), "active",
    )  # fmt: skip
    assert [c.index for c in dump.ctas] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    warps = dump.ctas[1].warps
    assert [w.number for w in warps] == [0, 1, 2, 3, 4]
    assert [len(w.lanes) for w in warps] == [32, 32, 32, 32, 1]
    assert (warps[4].valid, warps[4].exited) == (1, 0xFFFFFFFE)
    assert {lane.pc - grid.entry for w in warps for lane in w.lanes} == {0x14A0, 0x15A0}
    image = dump.image_of(grid)
    assert image is not None
    assert image.data[:4] == b"\x7fELF"
