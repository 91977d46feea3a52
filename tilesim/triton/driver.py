"""A driver for Triton's runtime on a machine without a GPU: it records launches.

Triton asks its active driver for the target, and hands it what it would launch. This one answers
for the target of the caller's choice, and keeps PTX, grid and arguments. Host code runs unchanged;
autotuners run every configuration once. Nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

from triton import testing
from triton._C.libtriton import nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import ty_to_cpp
from triton.knobs import runtime
from triton.runtime.driver import driver

from tilesim.ptx.launch import Launch, Parameter, Pointer, Triple
from tilesim.recording import MULTIPROCESSORS, Launched, Skipped, once
from tilesim.recording.tensors import storages
from tilesim.recording.values import VALUES
from tilesim.triton.autotuning import Autotuning, configuration
from tilesim.triton.parameters import im2col_map, parameters, tiled_map

_SHARED_BYTES, _REGISTERS, _THREADS = 232448, 65536, 1024
#: every recording is a device of its own: Triton keeps what it compiled per device
_devices = count()


class Utils:
    """The functions of the CUDA driver that Triton's runtime calls."""

    def __init__(self, target: str) -> None:
        self._multiprocessors = MULTIPROCESSORS[target]
        self._modules = 0
        self.fill_tma_descriptor_tiled = tiled_map
        self.fill_tma_descriptor_im2col = im2col_map

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What host code sizes its grids and buffers by."""
        return {
            "max_shared_mem": _SHARED_BYTES, "max_num_regs": _REGISTERS, "warpSize": 32,
            "multiprocessor_count": self._multiprocessors,
            "sm_clock_rate": 1980000, "mem_clock_rate": 2619000, "mem_bus_width": 5120,
        }  # fmt: skip

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spilled registers and the largest number of threads."""
        self._modules += 1
        return self._modules, self._modules, 255, 0, _THREADS

    def unload_module(self, module: int) -> None:
        """Nothing was loaded."""


class Driver:
    """Triton's active driver while launches are recorded."""

    def __init__(self, target: str, record: Callable[[Launched], None], tensors: str) -> None:
        self.utils = Utils(target)
        self._target = target
        self._record = record
        self._tensors = tensors
        self._device = next(_devices)
        #: PTX by function
        self._loaded: dict[int, str] = {}

    def loaded(
        self, module: int, function: int, name: str, group: Mapping[str, str], key: str
    ) -> None:
        """Triton's hook: a kernel has been compiled to the files of ``group``, which are called as
        its function is, whatever name it has of its own."""
        path = next(path for file, path in group.items() if file.endswith(".ptx"))
        self._loaded[function] = Path(path).read_text()

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What Triton calls to launch a kernel."""

        def launch(
            x: int, y: int, z: int, stream: int, function: int, packed: object, about: object,
            enter: object, leave: object, *values: Any,
        ) -> None:  # fmt: skip
            if not x * y * z:
                return  # CUDA launches nothing, either
            self._record(launched(self._loaded[function], source, metadata, (x, y, z), values))
            # it may have written to whatever it was given
            VALUES.forget(storages(values))

        return launch

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", int(self._target[3:-1]), 32)

    def get_current_device(self) -> int:
        """Its number."""
        return self._device

    def get_current_stream(self, device: int) -> int:
        """There is one."""
        return 0

    def map_python_to_cpp_type(self, kind: str) -> str:
        """Triton's types in C."""
        return str(ty_to_cpp(kind))

    def get_active_torch_device(self) -> Any:
        """Where host code makes its tensors, which have no storage."""
        import torch

        return torch.device(self._tensors)

    def get_device_interface(self) -> Any:
        """What host code asks about the GPU."""
        import torch

        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing is measured."""

    def clear_cache(self, cache: object) -> None:
        """There is none."""

    def get_benchmarker(self) -> Callable[..., float | list[float]]:
        """Nothing is measured."""
        return once


class Library:
    """Triton's binding to cuBLAS, whose kernels are not the program's: its calls do nothing."""

    def __init__(self, workspace: object) -> None:
        """Nothing is loaded."""

    def _called(self, *operands: object) -> None:
        """The result would be in an operand, of which nothing is known anyway."""

    matmul = gemm = block_scaled_matmul_mxfp8 = block_scaled_matmul_nvfp4 = _called


def launched(ptx: str, source: Any, metadata: Any, grid: Triple, values: Sequence[Any]) -> Launched:
    """A kernel as Triton launches it: with a grid of clusters, and the values of its arguments."""
    own = parameters(source.signature, metadata.tensordesc_meta or (), values)
    launch = _launch(ptx, metadata, grid, (*own, *_scratch(metadata, prod(grid))))
    return Launched(ptx, replace(launch, about=configuration(source, metadata)))


def _scratch(metadata: Any, ctas: int) -> Iterator[Parameter]:
    """The two pointers that Triton appends to the parameters of every kernel."""
    for name, size in (
        ("global_scratch", metadata.global_scratch_size),
        ("profile_scratch", metadata.profile_scratch_size),
    ):
        yield Pointer(name, size * ctas * metadata.num_ctas)


def _launch(ptx: str, metadata: Any, grid: Triple, params: tuple[Parameter, ...]) -> Launch:
    """``grid`` counts clusters; warps that the compiler adds are in the PTX only."""
    found = re.search(r"^\.reqntid\s+(\d+)", ptx, re.MULTILINE)
    threads = int(found[1]) if found else 32 * int(metadata.num_warps)
    ctas = int(metadata.num_ctas)
    return Launch(
        metadata.name, (grid[0] * ctas, grid[1], grid[2]), (threads, 1, 1), (ctas, 1, 1),
        int(metadata.shared), metadata.maxnreg, bool(metadata.launch_cooperative_grid),
        bool(metadata.launch_pdl), params,
    )  # fmt: skip


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "meta",
    skip: Callable[[Skipped], None] = lambda skipped: None,
    settle: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Within it, every launch of a Triton kernel is handed to ``record`` instead of made.

    Of an autotuned kernel each configuration is launched once; ``skip`` is told of those that could
    not be launched. ``settle`` is called after each launch, of an autotuned kernel after all of its
    configurations. ``tensors`` is the
    device of torch that host code is told to make its tensors on.
    """
    tuning = Autotuning(skip, settle)

    def launch(launched: Launched) -> None:
        record(launched)
        if not tuning.running:
            settle()

    active = Driver(target, launch, tensors)
    before = driver._active
    driver.set_active(active)
    runtime.kernel_load_end_hook.add(active.loaded)
    try:
        with tuning.every_configuration(), ExitStack() as stack:
            stack.enter_context(patch.object(nvidia.cublas, "CublasLt", Library))
            for name in ("do_bench", "do_bench_cudagraph"):
                stack.enter_context(patch.object(testing, name, once))
            yield
    finally:
        runtime.kernel_load_end_hook.remove(active.loaded)
        driver._active = before
