"""Kernels of CuTe DSL, checked as they are launched, without a GPU."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.ptx.launch import Map, Pointer, Struct

torch: Any = pytest.importorskip("torch", reason="tensors on the CPU are those of torch")
cutlass: Any = pytest.importorskip("cutlass.cute", reason="needs the cute extra")
tc: Any = pytest.importorskip("tilesim.cute")
kernels: Any = pytest.importorskip("tests.cute.kernels")

SOURCE = Path(kernels.__file__).read_text().splitlines()


def launch(**mistake: Any) -> None:
    """Compiles and launches `kernels.Doubled`."""
    a, b = (torch.empty(256, 128, dtype=torch.float16) for _ in range(2))
    given = (cutlass.runtime.from_dlpack(t, assumed_align=16) for t in (a, b))
    kernels.Doubled(**mistake)(*given)


def through_ffi(shapes: str) -> None:
    """The same, compiled with TVM FFI for tensors, or for what they will be, and called with
    tensors of torch."""
    a, b = (torch.empty(256, 128, dtype=torch.float16) for _ in range(2))
    if shapes == "of tensors":
        given = [
            cutlass.runtime.from_dlpack(t, assumed_align=16, enable_tvm_ffi=True) for t in (a, b)
        ]
    else:
        half = importlib.import_module("cutlass").Float16
        make = cutlass.runtime.make_fake_compact_tensor
        given = [make(half, (256, 128), stride_order=(1, 0), assumed_align=16) for _ in range(2)]
    cutlass.compile(kernels.Doubled(), *given, options="--enable-tvm-ffi")(a, b)


def lines(report: Report) -> set[str]:
    """The lines of the participants of the first finding."""
    return {SOURCE[p.loc.line - 1].strip() for p in report.findings[0].participants}


LOAD = "cute.copy(atom, parts[(None, i, x)], whole, tma_bar_ptr=full)"
READ = "b[i * TILE + r, x * TILE + c] = tile[r, c] + tile[r, c]"


def test_a_launch_has_what_the_host_code_would_pass() -> None:
    (launched,) = tc.record(launch)
    assert (launched.launch.grid, launched.launch.block) == ((2, 1, 1), (128, 1, 1))
    assert launched.launch.dynamic_shared >= kernels.BYTES
    a, b = launched.launch.params
    assert isinstance(a, Map)
    assert (a.type, a.shape, a.strides, a.box) == ("f16", (128, 256), (256,), (64, 64))
    assert isinstance(b, Struct)
    assert isinstance(b.fields[0].value, Pointer)
    assert b.fields[0].value.bytes == 256 * 128 * 2


@pytest.mark.parametrize("shapes", ["of tensors", "that are said"])
def test_functions_with_tvm_ffi_launch_the_same(shapes: str) -> None:
    pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    (plain,), (found,) = tc.record(launch), tc.record(through_ffi, shapes)
    assert replace(found.launch, entry="") == replace(plain.launch, entry="")
    assert tc.check(through_ffi, shapes).verdict == "proved"


def test_a_kernel_with_tensor_maps_is_proved() -> None:
    report = tc.check(launch)
    assert (report.verdict, report.findings) == ("proved", ())


def test_a_wait_for_the_phase_before_is_a_race() -> None:
    report = tc.check(launch, phase=1)
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    assert lines(report) == {LOAD, READ}


def test_a_buffer_that_is_filled_while_it_is_read_is_a_race() -> None:
    report = tc.check(launch, freed=False)
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    assert lines(report) == {LOAD, READ}
