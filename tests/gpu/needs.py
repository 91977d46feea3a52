"""What a test needs, as skip markers with the reason."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

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


compiler = pytest.mark.skipif(
    not _has("cuda.bindings"), reason="the compile extra (cuda-bindings, NVRTC) is not installed"
)
no_driver = pytest.mark.skipif(_driver(), reason="this machine has a CUDA driver")
driver = pytest.mark.skipif(not _driver(), reason="there is no CUDA driver here")
