"""Torch's guard of the device "cuda" where torch is built without CUDA.

Every operation on a tensor asks the guard of its device for the current device and stream. Builds
without CUDA have none, and end there; those with CUDA and no GPU replace theirs by one that does
nothing. This puts the same one in place.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from tilesim.errors import UsageError

#: the guards by type of device, in c10
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA = 1
#: at least as many as a guard has methods
_METHODS = 128


def ensure_cuda_guard() -> None:
    """Tensors on "cuda" can be described; torch keeps the guard until the process ends.

    Raises:
        UsageError: this build of torch has no place for one.
    """
    import torch

    if not torch.backends.cuda.is_built():
        _register_without_devices(torch)
    torch._C._ensureCUDADeviceGuardSet()


def _register_without_devices(torch: Any) -> None:
    """A guard that counts no devices: torch replaces that by one that does nothing."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        raise UsageError(
            f'torch {torch.__version__} cannot describe tensors on "cuda": install one that is '
            "built for CUDA"
        ) from error
    if registry[_CUDA]:
        return
    zero = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0)
    methods = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(zero, ctypes.c_void_p).value] * _METHODS)
    guard = ctypes.c_void_p(ctypes.addressof(methods))
    registry[_CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()
