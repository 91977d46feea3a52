"""Triton and Gluon kernels, checked as they are launched, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.errors import UsageError

tt: Any = pytest.importorskip(
    "tilesim.triton", reason="needs the triton extra", exc_type=ImportError
)
kernels: Any = pytest.importorskip("tests.triton.kernels")
described: Any = pytest.importorskip("triton.tools.tensor_descriptor")
hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
gl: Any = pytest.importorskip("triton.experimental.gluon.language")
tl: Any = pytest.importorskip("triton.language")

SOURCE = Path(kernels.__file__).read_text().splitlines()


def increased(*, phase: int) -> Report:
    """The report on a copy through one buffer, which waits for phases from ``phase`` on."""
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    x, y = (
        hopper.TensorDescriptor.from_tensor(tt.empty((256, 64), tl.float16), [64, 64], layout)
        for _ in range(2)
    )
    report: Report = tt.check(kernels.increased[(1,)], x, y, 4, PHASE=phase, num_warps=4)
    return report


def test_a_gluon_kernel_is_proved() -> None:
    report = increased(phase=0)
    assert (report.verdict, report.findings) == ("proved", ())


def test_a_wait_for_the_phase_before_is_a_race_on_the_lines_of_the_kernel() -> None:
    report = increased(phase=1)
    assert report.verdict == "failed"
    first = report.findings[0]
    assert first.rule == "race"
    assert [Path(p.loc.file).name for p in first.participants] == ["kernels.py"] * 2
    lines = {SOURCE[p.loc.line - 1].strip() for p in first.participants}
    assert lines == {
        "value = buffer.load(layout)",
        "tma.async_load(x, [i * x.block_shape[0], 0], full, buffer)",
    }


def product(rows: int = 1024) -> tuple[Any, ...]:
    """A launch of a matrix product with tensor descriptors."""
    a, b, c = (tt.empty(shape, tl.float16) for shape in ((rows, 512), (512, 1024), (rows, 1024)))
    maps = [
        described.TensorDescriptor.from_tensor(t, box)
        for t, box in ((a, [128, 64]), (b, [64, 128]), (c, [128, 128]))
    ]
    return kernels.product[(rows // 128, 8)], *maps, 512


SHAPE = {"M": 128, "N": 128, "K": 64}


def test_a_pipelined_product_is_proved_for_the_whole_grid() -> None:
    report: Report = tt.check(*product(), **SHAPE)
    assert (report.verdict, report.findings) == ("proved", ())
    assert report.covers.startswith("every schedule of all 64 CTAs")


def test_a_launch_has_what_the_ptx_does_not_say() -> None:
    (launched,) = tt.record(*product(), **SHAPE)
    launch = launched.launch
    assert (launch.entry, launch.grid, launch.block) == ("product", (8, 8, 1), (128, 1, 1))
    a = launch.params[0]
    assert (a.name, a.shape, a.strides, a.box, a.swizzle) == (
        "a",
        (512, 1024),
        (1024,),
        (64, 128),
        128,
    )
    assert launch.params[-2].name == "global_scratch"


def test_the_same_launch_is_recorded_once() -> None:
    launcher, *arguments = product()

    def twice() -> None:
        for _ in range(2):
            launcher(*arguments, **SHAPE)

    assert len(tt.record(twice)) == 1


def test_a_kernel_may_make_its_own_name() -> None:
    y = tt.empty((128,), tl.float32)
    (launched,) = tt.record(lambda: kernels.filled[(1,)](y, BLOCK=128))
    assert launched.launch.entry == "filled_by_128"
    assert ".entry filled_by_128(" in launched.ptx
    assert tt.check(kernels.filled[(1,)], y, BLOCK=128).verdict == "proved"


def test_host_code_may_ask_for_triton_s_cublas() -> None:
    nvidia = pytest.importorskip("triton._C.libtriton").nvidia
    y = tt.empty((128,), tl.float32)

    def compared() -> None:
        library = nvidia.cublas.CublasLt(y)
        kernels.filled[(1,)](y, BLOCK=128)
        library.matmul(y, y, y)

    assert len(tt.record(compared)) == 1


def test_what_launches_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"takes the launch of one kernel in .*, this is none"):
        tt.check(lambda: None)
    with pytest.raises(UsageError, match="target must be sm_90a"):
        tt.check(lambda: None, target="sm_80")


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_a_script_with_torch_is_captured(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, triton\n"
        "from triton.tools.tensor_descriptor import TensorDescriptor\n"
        "from tests.triton.kernels import product\n"
        "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
        "a = torch.randn(1024, 512, device=DEVICE, dtype=torch.float16)\n"
        "b = torch.randn(512, 1024, device='cuda').half()\n"
        "b = b[torch.randperm(512, device='cuda')].t()[:, :512].contiguous().t().contiguous()\n"
        "assert (*b.shape, *b.stride(), *b[1:, 2].stride()) == (512, 1024, 1024, 1, 1024)\n"
        "c = torch.empty(1024, 1024, device='cuda', dtype=torch.float16)\n"
        "maps = [TensorDescriptor.from_tensor(t, s) for t, s in\n"
        "        ((a, [128, 64]), (b, [64, 128]), (c, [128, 128]))]\n"
        "stream = getattr(torch, DEVICE.type).Stream()\n"
        "call = lambda: product[(8, 8)](*maps, 512, M=128, N=128, K=64)\n"
        "print(triton.testing.do_bench(call, quantiles=[0.5, 0.2, 0.8]))\n"
        "torch.testing.assert_close(c, a @ b)\n"
    )
    folder = tmp_path / "captured"
    command = [
        sys.executable,
        "-m",
        "tilesim",
        "capture",
        "-o",
        str(folder),
        "--",
        sys.executable,
        str(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {f.name for f in folder.iterdir()} == {"product.ptx", "product.json"}
    checked = subprocess.run(
        [sys.executable, "-m", "tilesim", "check", str(folder / "product.ptx")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.stdout.startswith("PROVED")
