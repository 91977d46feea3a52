"""What a test needs, as skip markers with the reason."""

from __future__ import annotations

import ctypes
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _nvdisasm() -> str | None:
    """The disassembler of the wheel nvidia-cuda-nvdisasm, or one on the path."""
    spec = find_spec("nvidia.cu13") if _has("nvidia.cu13") else None
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    wheels = [Path(place) / "bin" / "nvdisasm" for place in places]
    return next((str(p) for p in wheels if p.exists()), shutil.which("nvdisasm"))


NVDISASM = _nvdisasm()
disassembler = pytest.mark.skipif(
    NVDISASM is None, reason="nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)"
)
compiler = pytest.mark.skipif(
    not _has("cuda.bindings"), reason="the compile extra (cuda-bindings, NVRTC) is not installed"
)
no_driver = pytest.mark.skipif(_driver(), reason="this machine has a CUDA driver")
driver = pytest.mark.skipif(not _driver(), reason="there is no CUDA driver here")
