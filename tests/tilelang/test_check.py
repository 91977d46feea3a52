"""tilelang kernels, checked as they are launched, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.errors import UsageError
from tilesim.ptx.launch import Map, Pointer, Scalar

torch: Any = pytest.importorskip("torch", reason="tilelang needs torch")
tilelang: Any = pytest.importorskip("tilelang", reason="needs the tilelang extra")
tl: Any = pytest.importorskip("tilesim.tilelang")
kernels: Any = pytest.importorskip("tests.tilelang.kernels")


def empty(*shape: int) -> Any:
    """A tensor of which only type and shape are known."""
    return torch.empty(shape, dtype=torch.float16, device="meta")


def doubled(**mistake: int) -> Any:
    """A launch of `kernels.doubled`."""
    return tilelang.jit(kernels.doubled)(256, **mistake), empty(256, 192), empty(256, 192)


def where(report: Report) -> set[str]:
    """The files of the participants of the first finding."""
    return {p.loc.file for p in report.findings[0].participants}


def test_a_launch_has_what_the_host_function_would_pass() -> None:
    (launched,) = tl.record(
        lambda: tilelang.jit(kernels.doubled)(256)(empty(256, 192), empty(256, 192))
    )
    launch = launched.launch
    assert (launch.entry, launch.grid, launch.block) == ("doubled_kernel", (3, 1, 1), (256, 1, 1))
    a, b, n = launch.params
    assert isinstance(a, Map)
    assert (a.name, a.type, a.shape, a.strides, a.box) == ("A", "f16", (192, 256), (384,), (64, 64))
    assert b == Pointer("B", 256 * 192 * 2)
    assert n == Scalar("N", "s32", 192)
    assert "doubled_kernel" in launched.source
    assert f'"{launched.source_file}"' in launched.ptx


def test_a_kernel_with_barriers_is_proved() -> None:
    report = tl.check(lambda: doubled()[0](*doubled()[1:]))
    assert (report.verdict, report.findings) == ("proved", ())


def test_a_wait_for_the_phase_before_is_a_race() -> None:
    report = tl.check(lambda: doubled(parity=1)[0](*doubled()[1:]))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    assert where(report) == {"doubled_kernel.cu"}


def test_a_count_that_is_too_small_is_found() -> None:
    report = tl.check(lambda: doubled(count=1)[0](*doubled()[1:]))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"


def test_a_result_that_the_kernel_makes_has_its_shape() -> None:
    def launch() -> None:
        product = tilelang.jit(kernels.product, out_idx=-1, pass_configs=kernels.PLAIN)
        assert product(128, 256, 192)(empty(128, 192), empty(192, 256)).shape == (128, 256)

    report = tl.check(launch)
    assert (report.verdict, report.findings) == ("proved", ())


def test_loading_warps_that_may_fall_behind_are_found() -> None:
    """All four warps that load wait for a free stage, one of them loads: the others are free to
    come when the stage has been used twice, and then wait for ever."""
    product = tilelang.jit(kernels.product)
    report = tl.check(
        lambda: product(128, 128, 512)(*(empty(128, 512), empty(512, 128), empty(128, 128)))
    )
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"


def test_a_tensor_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="shape"):
        tl.check(lambda: doubled()[0](empty(128, 192), empty(256, 192)))
