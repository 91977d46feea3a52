"""Kernels of cuTile, checked as they are launched, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilesim.errors import UsageError
from tilesim.ptx.launch import Map, Pointer, Scalar

torch: Any = pytest.importorskip("torch", reason="tensors on the CPU are those of torch")
ct: Any = pytest.importorskip("cuda.tile", reason="needs the cutile extra")
tc: Any = pytest.importorskip("tilesim.cutile")
kernels: Any = pytest.importorskip("tests.cutile.kernels")

SOURCE = Path(kernels.__file__).read_text().splitlines()


def launch(ctas: int = 1, rows: int = 128) -> None:
    """A matrix product, ``rows`` per block of so many CTAs."""
    a, b, c = (
        torch.empty(shape, dtype=torch.float16) for shape in ((1024, 512), (512, 768), (1024, 768))
    )
    kernel = kernels.product.replace_hints(num_ctas=ctas)
    ct.launch(0, (1024 // rows, 6, 1), kernel, (a, b, c, rows, 128, 64))


def test_hidden_parameters_are_the_tensor_maps_that_the_driver_would_make() -> None:
    (launched,) = tc.record(launch)
    assert (launched.launch.entry, launched.launch.grid) == ("product", (8, 6, 1))
    *given, a, b, c = launched.launch.params
    first = given[:5]
    assert isinstance(first[0], Pointer)
    assert first[0].bytes == 1024 * 512 * 2
    assert [p.value for p in first[1:] if isinstance(p, Scalar)] == [1024, 512, 512, 1]
    for found, name, shape in ((a, 0, (512, 1024)), (b, 5, (768, 512)), (c, 10, (768, 1024))):
        assert isinstance(found, Map)
        assert (found.name, found.shape) == (f"arg{name}", shape)
        assert (found.type, found.swizzle, found.strides) == ("f16", 128, (2 * shape[0],))
    assert (a.box, b.box) == ((64, 128), (64, 64))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_product_is_proved(target: str) -> None:
    report = tc.check(launch, target=target)
    assert (report.verdict, report.findings) == ("proved", ())


def test_blocks_of_two_ctas() -> None:
    (launched,) = tc.record(launch, 2, 256)
    assert (launched.launch.grid, launched.launch.cluster) == ((8, 6, 1), (2, 1, 1))
    assert tc.check_launched(launched).verdict == "proved"


def test_pairs_free_tensor_memory_that_the_other_cta_may_read() -> None:
    """A commit of the second CTA signals no mbarrier, which the proof leans on."""
    (launched,) = tc.record(launch, 2, 256, target="sm_100a")
    report = tc.check_launched(launched)
    assert [finding.rule for finding in report.findings] == ["tmem-lifetime"]
    at = launched.ptx.rindex(":\n", 0, launched.ptx.index("tcgen05.dealloc")) + len(":\n")
    barrier = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
    text = launched.ptx[:at] + barrier + launched.ptx[at:]
    report = tc.check_launched(replace(launched, ptx=text))
    assert (report.verdict, report.findings) == ("proved", ())
    assert "U9" in {leaning.name for leaning in report.leanings}


def test_blocks_that_store_to_one_place_race_on_the_line_of_the_store() -> None:
    def sums() -> None:
        a, b = torch.empty((128, 64)), torch.empty(64)
        ct.launch(0, (2, 1, 1), kernels.summed, (a, b, 64))

    report = tc.check(sums)
    assert (report.verdict, report.findings[0].rule) == ("failed", "race")
    lines = {SOURCE[p.loc.line - 1].strip() for p in report.findings[0].participants}
    assert lines == {"ct.store(b, index=(0,), tile=ct.sum(tile, axis=1))"}


def test_what_was_compiled_is_launched_again() -> None:
    kernel = kernels.summed

    def sums(blocks: int) -> None:
        a, b = torch.empty((64 * blocks, 64)), torch.empty(64)
        ct.launch(0, (blocks, 1, 1), kernel, (a, b, 64))

    def several() -> None:
        for blocks in (2, 2, 3):
            sums(blocks)

    assert [one.launch.grid[0] for one in tc.record(several)] == [2, 3]
    assert [one.launch.grid[0] for one in tc.record(sums, 4)] == [4]
    with pytest.raises(UsageError, match="was compiled for sm_90a in this process"):
        tc.record(sums, 2, target="sm_100a")
