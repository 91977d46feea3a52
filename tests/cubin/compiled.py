"""Cubins compiled by NVRTC, each once."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tilesim.cubin.image import Image


@cache
def image(source: str, arch: str = "sm_90a", *, lines: bool = True) -> Image:
    """The cubin of a source, which is called ``k.cu`` in its lines."""
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"k.cu", 0, [], [])
    options = [f"--gpu-architecture={arch}".encode(), b"-std=c++17"]
    options += [b"-lineinfo"] if lines else []
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert int(status) == 0
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    made = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, made)
    return Image(made, "k.cubin")
