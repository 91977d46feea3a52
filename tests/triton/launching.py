"""A program that launches kernels, with a driver that counts launches in the place of a GPU's.

``python -m tests.triton.launching COMMAND...``: a command is ``right``, ``wrong``, ``tuned``,
``twice`` (the same kernel again, with another grid) or ``old`` (a GPU that is not modelled).
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia import hopper
from triton.runtime.driver import driver

from tests.triton import kernels

launched: list[str] = []


class Tensor:
    """A tensor on a GPU: where it lies, and no more."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self.strides = (*shape[1:], 1)
        self.nbytes = shape[0] * shape[-1] * 2

    def data_ptr(self) -> int:
        """Every one lies elsewhere."""
        return id(self) << 8

    def stride(self) -> tuple[int, ...]:
        """As torch's."""
        return self.strides


class Driver:
    """The driver of a GPU on which kernels take no time."""

    def __init__(self, arch: int) -> None:
        self._arch = arch
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=self._load, unload_module=lambda module: None,
        )  # fmt: skip
        self._functions = 0

    def _load(self, *kernel: object) -> tuple[int, int, int, int, int]:
        self._functions += 1
        return self._functions, self._functions, 32, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        """What launches a kernel."""
        return lambda *args: launched.append(f"{metadata.name}{args[:3]}")

    def get_current_target(self) -> GPUTarget:
        """A Hopper GPU, if it is not another one."""
        return GPUTarget("cuda", self._arch, 32)

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """There is one."""
        return 0

    def get_benchmarker(self) -> Any:
        """A measurement calls twice."""
        return lambda call, **_: (call(), call(), [1.0, 1.0, 1.0])[2]


def maps() -> list[Any]:
    """Descriptors of two matrices."""
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    make = hopper.TensorDescriptor.from_tensor
    return [make(Tensor((256, 64), triton.language.float16), [64, 64], layout) for _ in range(2)]


def main(commands: list[str]) -> None:
    """See the module."""
    driver.set_active(Driver(80 if "old" in commands else 90))
    for command in commands:
        match command:
            case "right" | "wrong":
                phase = int(command == "wrong")
                kernels.increased[(1,)](*maps(), 4, PHASE=phase, num_warps=4)
            case "twice":
                kernels.increased[(2,)](*maps(), 4, PHASE=0, num_warps=4)
            case "tuned":
                kernels.tuned[(1,)](*maps(), 4)
                print("chosen", kernels.tuned.best_config.kwargs)
            case _:
                y = Tensor((1, 64), triton.language.float32)
                kernels.filled[(1,)](y, BLOCK=64)
    print(*launched, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
