"""What is reported of dumps: text, JSON, SARIF, a page; what is not known; exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tilesim.autopsy import autopsy, render
from tilesim.autopsy.core_dump import CoreDump
from tilesim.cli import main
from tilesim.records import replace

from . import dump_writer as writer

DUMPS = Path(__file__).parent / "dumps"
RING = str(DUMPS / "ring.nvcudmp.gz")


def command(*arguments: str) -> Result:
    """Runs ``tilesim autopsy``."""
    return CliRunner().invoke(main, ["autopsy", *arguments])


def text(dump: writer.Dump, folder: Path) -> str:
    """The report on a dump, with its lines joined."""
    return " ".join(render(autopsy(dump.write(folder / "core"))).split())


# ---------------------------------------------------------------------- several kernels, or none

SPIN, LATE = 0x7F0000000000, 0x7F0000100000


def spinning(grid: int, sm: int, x: int) -> writer.Cta:
    """A CTA of a warp."""
    lanes = [writer.Lane(n, SPIN + 16, (n, 0, 0), [0] * 8) for n in range(32)]
    return writer.Cta(grid, (x, 0, 0), [writer.Warp(lanes)], sm=sm, shared=bytes(2048))


def two_kernels(sms: int = 4) -> writer.Device:
    """One kernel on each of 4 SMs, and one that has not begun."""
    spin = writer.Grid(1, SPIN, (4, 1, 1), (32, 1, 1), registers=255)
    late = writer.Grid(2, LATE, (8, 2, 1), (128, 1, 1), registers=168, status=1)
    return writer.Device([spin, late], [spinning(1, n, n) for n in range(4)], sms=sms)


def test_a_kernel_that_does_not_get_its_sms_is_told_from_the_one_that_has_them(
    tmp_path: Path,
) -> None:
    said = text(writer.Dump([two_kernels()]), tmp_path)
    assert (
        "OPEN the kernel at 0x7f0000000000 grid 4, block 32, sm_90; 4 of 4 CTAs resident "
        "PENDING the kernel at 0x7f0000100000 grid 8x2, block 128, sm_90; 0 of 16 CTAs resident, "
        "16 not started held the kernel at 0x7f0000000000: 4 CTAs on 4 of 4 SMs; a CTA has 32 "
        "threads of 255 registers each, 2,048 bytes of shared memory "
        "whether it waits for these, or for an earlier kernel, is not in the dump"
    ) in said
    assert "the code of a kernel is not in the dump" in said


def test_each_device_is_named_where_there_are_several(tmp_path: Path) -> None:
    late = writer.Grid(7, LATE, (8, 1, 1), (128, 1, 1), status=1)
    said = text(writer.Dump([two_kernels(), writer.Device([late])]), tmp_path)
    assert "4 of 4 CTAs resident on device 0" in said
    assert "8 not started on device 1 held no other kernel runs on its device" in said


def test_kernels_that_wait_in_a_queue_are_counted(tmp_path: Path) -> None:
    late = [writer.Grid(n, LATE + n, (1, 1, 1), (32, 1, 1), status=1) for n in range(1, 21)]
    said = text(writer.Dump([writer.Device(late)]), tmp_path)
    assert said.count("PENDING") == 8
    assert "and 12 kernels more that have not begun" in said


def test_nothing_runs(tmp_path: Path) -> None:
    path = writer.Dump([writer.Device()]).write(tmp_path / "core")
    result = command(str(path))
    assert (result.exit_code, result.stdout) == (0, "IDLE no kernel was running on 1 device\n")
    assert json.loads(command(str(path), "--format", "json").stdout)["exit"] == 0


def test_an_exception_of_an_sm_is_said(tmp_path: Path) -> None:
    device = writer.Device(sms=4, faults={2: writer.Sm(14, SPIN + 0x40)})
    path = str(writer.Dump([device]).write(tmp_path / "core"))
    result = command(path)
    assert "exception warp: illegal address, on SM 2 at 0x7f0000000040" in result.stdout
    assert result.exit_code == 1
    (said,) = json.loads(command(path, "--format", "json").stdout)["exceptions"]
    assert (said["sm"], said["number"], said["pc"]) == (2, 14, SPIN + 0x40)


# ---------------------------------------------------------------------- what is not known


def test_a_dump_without_shared_memory_says_which_flag_to_leave_out(tmp_path: Path) -> None:
    dump = replace(writer.copy_of(CoreDump(Path(RING))), flags=0b101111)

    def cut(sections: list[writer.Section]) -> None:
        for number, section in enumerate(sections):
            if section.name.startswith(".cudbg.shared."):
                sections[number] = writer.Section("", -0x80000000, b"")

    path = tmp_path / "core"
    path.write_bytes(dump.to_bytes(cut))
    said = " ".join(render(autopsy(path)).split())
    assert (
        "the dump has no shared memory (skip_shared_memory was set): the state of mbarriers is not "
        "known; leave that flag out of CUDA_COREDUMP_GENERATION_FLAGS"
    ) in said
    assert "0xc08" in said
