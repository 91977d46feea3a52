"""tilus kernels, checked as they are launched, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.errors import UsageError
from tilesim.ptx.launch import Map, Pointer, Scalar

torch: Any = pytest.importorskip("torch", reason="tilus needs torch")
pytest.importorskip("tilus", reason="needs the tilus extra")
tl: Any = pytest.importorskip("tilesim.tilus")
kernels: Any = pytest.importorskip("tests.tilus.kernels")

TILES = 5


def tensors() -> tuple[Any, Any]:
    """Two tensors of which only type and shape are known."""
    shape = 2 * TILES * kernels.ROWS, kernels.COLUMNS
    a, b = (torch.empty(shape, dtype=torch.float16, device="meta") for _ in range(2))
    return a, b


def doubled(**mistake: Any) -> Report:
    report: Report = tl.check(kernels.Doubled(**mistake), TILES, *tensors(), target="sm_100a")
    return report


def test_a_launch_is_what_the_host_function_makes() -> None:
    (launched,) = tl.record(kernels.Doubled(), TILES, *tensors(), target="sm_100a")
    launch = launched.launch
    assert (launch.grid, launch.block, launch.cluster) == ((2, 1, 1), (128, 1, 1), (1, 1, 1))
    tiles, a, b, tile = launch.params
    size = 2 * TILES * 64 * 64 * 2
    assert (tiles.value, a.bytes, b.bytes) == (TILES, size, size)
    assert isinstance(tiles, Scalar)
    assert isinstance(a, Pointer)
    assert isinstance(tile, Map)
    assert (tile.type, tile.shape, tile.box) == ("f16", (64, 2 * TILES * 64), (64, 64))
    assert launched.source_file in launched.ptx
    assert "tilus_launch" in launched.source


def test_a_kernel_with_stages_is_proved() -> None:
    report = doubled()
    assert (report.verdict, report.findings) == ("proved", ())


def test_a_stage_that_is_loaded_while_it_is_read_is_a_race() -> None:
    report = doubled(kept=False)
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    files = {p.loc.file for p in report.findings[0].participants}
    assert len(files) == 1
    assert files.pop().endswith(".cu")


def test_a_count_that_is_too_large_is_a_deadlock() -> None:
    report = doubled(count=2)
    assert (report.verdict, report.findings[0].rule) == ("failed", "deadlock")


def test_a_wait_for_the_turn_before_is_a_race() -> None:
    report = doubled(late=1)
    assert (report.verdict, report.findings[0].rule) == ("failed", "race")


def test_of_an_autotuned_kernel_the_first_configuration_is_launched() -> None:
    skipped: list[object] = []
    (launched,) = tl.record(
        kernels.Tuned(), TILES, *tensors(), target="sm_100a", skip=skipped.append
    )
    assert 2 * 64 * 64 * 2 < launched.launch.dynamic_shared < 3 * 64 * 64 * 2
    assert [str(s) for s in skipped] == [
        "tuned: 1 of 2 configurations not launched: only the first configuration of an autotuned "
        "kernel is checked"
    ]


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(UsageError, match="target must be"):
        tl.check(kernels.Doubled(), TILES, *tensors(), target="sm_80")


def test_a_kernel_is_compiled_for_its_target() -> None:
    (launched,) = tl.record(kernels.Plain(), 100, *tensors(), target="sm_90a")
    assert ".target sm_90a" in launched.ptx
    assert launched.launch.grid == (2, 1, 1)
