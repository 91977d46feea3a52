"""What a test needs, as skip markers with the reason."""

from __future__ import annotations

import ctypes
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tilesim.gpu.compile import versions
from tilesim.gpu.errors import MissingExtra


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


def _nvrtc() -> tuple[int, int]:
    """The version of NVRTC; 0 if it is not installed."""
    if not _has("cuda.bindings"):
        return 0, 0
    try:
        major, minor = versions()["nvrtc"].split(".")
    except MissingExtra:
        return 0, 0
    return int(major), int(minor)


#: what knows all instructions that are emitted: PTX ISA 9.2
_RECENT = 13, 2
NVDISASM = _nvdisasm()
disassembler = pytest.mark.skipif(
    NVDISASM is None, reason="nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)"
)
compiler = pytest.mark.skipif(
    not _has("cuda.bindings"), reason="the compile extra (cuda-bindings, NVRTC) is not installed"
)
recent_compiler = pytest.mark.skipif(
    _nvrtc() < _RECENT,
    reason="NVRTC is missing, or older than PTX ISA 9.2 (the compile extra has one that is not)",
)
no_driver = pytest.mark.skipif(_driver(), reason="this machine has a CUDA driver")
driver = pytest.mark.skipif(not _driver(), reason="there is no CUDA driver here")
