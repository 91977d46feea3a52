"""What a launch says when it cannot run, and which arrays it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim import Builder, UsageError, bf16
from tilesim.gpu import compile as compiler
from tilesim.gpu import launch as launcher
from tilesim.gpu.compile import package
from tilesim.gpu.driver import DeviceInfo, Gpu, probe
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import _address, _stream, prepare
from tilesim.ir.declarations import GlobalTensor
from tilesim.kernels.hopper.copy import vector

from . import needs
from .fake_gpu import FakeGpu


class Array:
    """Looks like a CuPy array."""

    def __init__(self, shape: tuple[int, ...], typestr: str = "<i2", **interface: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (4096, False), "version": 3, **interface
        }  # fmt: skip


class Torch:
    """Looks like a bf16 torch tensor, which has no __cuda_array_interface__."""

    shape = (4, 8)

    @property
    def __cuda_array_interface__(self) -> Any:
        raise TypeError("BFloat16")

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def data_ptr(self) -> int:
        return 8192

    def element_size(self) -> int:
        return 2

    def stride(self) -> tuple[int, ...]:
        return (8, 1)


@pytest.fixture
def matrix() -> GlobalTensor:
    return Builder("kernel").tensor("T", bf16, (4, 8))


def test_arrays_with_the_cuda_array_interface_or_dlpack_are_taken(matrix: GlobalTensor) -> None:
    assert _address(matrix, {"T": Array((4, 8))}) == 4096
    assert _address(matrix, {"T": Array((4, 8), strides=(16, 2))}) == 4096
    assert _address(matrix, {"T": Torch()}) == 8192


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (None, "there is no array for tensor T"),
        (Array((8, 4)), r"array T has shape \(8, 4\), not \(4, 8\)"),
        (Array((4, 8), "<f4"), "array T has elements of 4 bytes, bf16 has 2"),
        (Array((4, 8), strides=(32, 2)), r"array T has strides \(32, 2\) bytes, not \(16, 2\)"),
        (Array((4, 8), data=(4100, False)), "array T starts at 0x1004, not 16-byte aligned"),
        (np.zeros((4, 8), np.int16), "array T is a ndarray: pass an array on the GPU"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    matrix: GlobalTensor, array: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _address(matrix, {} if array is None else {"T": array})


def test_streams_are_recognised() -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 11)

    class CuPy:
        ptr = 12

    class Torch:
        cuda_stream = 13

    assert [_stream(s) for s in (None, Protocol(), CuPy(), Torch(), 14)] == [0, 11, 12, 13, 14]


@needs.compiler
def test_a_prepared_launch_is_only_enqueued(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder(FakeGpu):
        def __init__(self) -> None:
            super().__init__()
            self.launched: list[tuple[Any, ...]] = []

        def launch(self, *arguments: Any, **options: Any) -> None:
            self.launched.append(arguments)

    device = Recorder()
    monkeypatch.setattr(launcher, "gpu", lambda: device)
    program = vector.build()
    floats = Array((4096,), "<f4")
    ready = prepare(program, {"X": floats, "Y": floats})
    assert device.launched == []
    ready()
    ready(stream=7)
    (_, grid, block, smem, arguments, first), (*_, second) = device.launched
    assert (grid, block) == (program.grid, 32 * program.warps)
    assert smem == ready.binary.source.smem_bytes
    assert [int(a[0]) for a in arguments[:2]] == [4096, 4096]
    assert (first, second) == (0, 7)
    with pytest.raises(UsageError, match="vector has no tensor Z"):
        prepare(program, {"X": floats, "Y": floats, "Z": floats})


@needs.no_driver
def test_without_a_driver_a_sentence_says_so() -> None:
    with pytest.raises(DeviceError, match="there is no NVIDIA driver here"):
        probe()


@pytest.mark.parametrize(
    ("arch", "capability", "fits"),
    [
        ("sm_90a", (9, 0), True), ("sm_90", (9, 0), True), ("sm_90a", (10, 0), False),
        ("sm_100a", (9, 0), False), ("sm_100f", (10, 3), True), ("sm_103a", (10, 3), True),
    ],
)  # fmt: skip
def test_a_gpu_of_another_architecture_is_refused(
    arch: str, capability: tuple[int, int], fits: bool
) -> None:
    gpu = object.__new__(Gpu)
    gpu.info = DeviceInfo("GPU X", capability, 1, "13.0")
    if fits:
        gpu.require(arch)
        return
    with pytest.raises(DeviceError, match=f"compiled for {arch}, the GPU \\(GPU X\\) is sm_"):
        gpu.require(arch)


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(compiler, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'tilesim\[compile\]'"):
        package("cuda.core")
