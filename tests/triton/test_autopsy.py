"""Autopsies of Triton's and Gluon's kernels: dumps that a simulated machine makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.autopsy.simulated_hang import Hang, Kernel
from tests.gpu import needs
from tilesim.autopsy.pipeline import Autopsy, autopsy
from tilesim.cubin.disassembly import disassemble
from tilesim.recording import Launched

tt: Any = pytest.importorskip(
    "tilesim.triton", reason="needs the triton extra", exc_type=ImportError
)
kernels: Any = pytest.importorskip("tests.silicon.hangs.triton_kernels")
hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
gl: Any = pytest.importorskip("triton.experimental.gluon.language")
tl: Any = pytest.importorskip("triton.language")

pytestmark = needs.disassembler
SOURCE = Path(kernels.__file__)


def line(text: str) -> int:
    """The line of the kernels that has a text."""
    (found,) = (n for n, one in enumerate(SOURCE.read_text().splitlines(), 1) if text in one)
    return found


def described(tiles: int) -> tuple[Any, Any]:
    """A descriptor of square tiles of 16-bit numbers, and memory for as many."""
    where = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    x, y = (tt.empty((64 * tiles, 64), tl.float16) for _ in range(2))
    return hopper.TensorDescriptor.from_tensor(x, [64, 64], where), y


def copied(phase: int, **options: Any) -> Launched:
    launched: Launched
    (launched,) = tt.record(
        kernels.copied[(1,)], *described(1), BLOCK=64, PHASE=phase, num_warps=4, **options
    )
    return launched


def relayed(fault: str, **options: Any) -> Launched:
    launched: Launched
    (launched,) = tt.record(
        kernels.relayed[(1,)], *described(8), 8, BLOCK=64, STAGES=2, FAULT=fault, num_warps=4,
        **options,
    )  # fmt: skip
    return launched


def in_cache(launched: Launched) -> Path:
    """Where Triton has put the PTX of a kernel."""
    every = Path(os.environ["TRITON_CACHE_DIR"]).glob(f"*/{launched.launch.entry}.ptx")
    return next(path for path in every if path.read_text() == launched.ptx)


@cache
def hung(make: Callable[..., Launched], fault: Any, target: str = "sm_90a") -> Hang:
    """A kernel that hangs."""
    launched = make(fault, target=target)
    cubin = in_cache(launched).with_suffix(".cubin").read_bytes()
    hang = Hang(Kernel("k", cubin, target, launched.launch))
    assert list(hang.differences()) == []
    return hang


def lines(found: Autopsy) -> tuple[dict[str, list[int]], list[int]]:
    """Of each wait the lines at which it stands, the innermost first; those of the culprits."""
    (launch,) = found.launches
    waits = {
        str(entry.wait): [at.line for at in entry.wait.instruction.lines]
        for entry in launch.entries
        if entry.wait.instruction is not None
    }
    assert launch.diagnosis is not None
    match = launch.diagnosis.match
    assert match is not None
    assert match.finding is not None
    return waits, [culprit.loc.line for culprit in match.finding.culprits]


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_waits_and_culprits_have_lines_of_the_source(target: str, tmp_path: Path) -> None:
    """The cubin embeds the PTX, in which LLVM says that the wait is four lines further down."""
    dump = hung(copied, 1, target).dump().write(tmp_path / "core")
    found = autopsy(dump)
    second = line("mbarrier.wait(full, PHASE)")
    expect = line("mbarrier.expect(full, BLOCK * BLOCK * 2)")
    waits, culprits = lines(found)
    assert waits == {"waits for mbarrier 0x2400, parity 1": [second]}
    assert culprits == [second, expect]
    diagnosis = found.launches[0].diagnosis
    assert diagnosis is not None
    assert diagnosis.match is not None
    assert (diagnosis.match.kind, diagnosis.ptx and diagnosis.ptx.source) == (
        "same", "embedded in the dump",
    )  # fmt: skip


def test_each_try_of_a_wait_has_its_line() -> None:
    """The first try, and the loop, which lies behind the code."""
    image = hung(copied, 1).image
    found = [
        [at.line for at in one.lines]
        for one in disassemble(image, image.functions)[0].code.values()
        if one.opcode.startswith("SYNCS.PHASECHK")
    ]
    waits = [[line("mbarrier.wait(full, 0)")], [line("mbarrier.wait(full, PHASE)")]]
    assert found == waits * 2


def test_a_partition_of_warps_has_its_own_lines(tmp_path: Path) -> None:
    """Its line is not that of the kernel's definition. The kernel has 255 registers, of which
    `setmaxnreg` makes 256: they were given out."""
    waits, culprits = lines(autopsy(hung(relayed, "bytes").dump().write(tmp_path / "core")))
    assert waits["waits for mbarrier 0x4440, parity 0"] == [
        line("mbarrier.wait(full.index(slot), (i // STAGES) & 1)")
    ]
    assert waits["waits for mbarrier 0x4450, parity 0"] == [
        line("mbarrier.wait(empty.index(slot), parity)")
    ]
    assert culprits == [
        line("mbarrier.expect(full.index(slot), BLOCK * BLOCK * 2 + 32)"),
        line("copy(x, [i * BLOCK, 0], full.index(slot)"),
    ]


@pytest.mark.parametrize(("release", "certain"), [((580, 159), False), ((590, 44), True)])
def test_warps_without_work_wait_at_their_barrier(
    release: tuple[int, int], certain: bool, tmp_path: Path
) -> None:
    """They have registers enough, for which they ask just behind it."""
    dump = hung(relayed, "count").dump(release=release).write(tmp_path / "core")
    (launch,) = autopsy(dump).launches
    (idle,) = (e for e in launch.entries if "barrier 1" in str(e.wait))
    assert (idle.groups[0].warps, idle.wait.certain) == ((4, 5, 7), certain)
    assert ("or it has passed it, and stands in" in idle.wait.evidence) is not certain
    assert "still waits" not in idle.wait.evidence
    assert launch.diagnosis is not None
    assert launch.diagnosis.match is not None
    assert launch.diagnosis.match.kind == "same"


def test_without_lines_the_cache_has_the_ptx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kernels with other constants have the same name; the cubin beside a text decides."""
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    path = in_cache(copied(1))
    other = in_cache(copied(0))
    assert other.name == path.name
    cubin = path.with_suffix(".cubin").read_bytes()
    hang = Hang(Kernel("k", cubin, "sm_90a", copied(1).launch))
    assert hang.image.ptx is None
    dump = hang.dump().write(tmp_path / "core")

    def said(ptx: Path | None = None) -> tuple[bool, str]:
        diagnosis = autopsy(dump, ptx).launches[0].diagnosis
        assert diagnosis is not None
        assert diagnosis.ptx is not None
        return diagnosis.ptx.certain, diagnosis.ptx.file

    assert said() == said(path) == (True, str(path))
    path.with_suffix(".cubin").unlink()
    assert said() == (False, str(path))
