"""Cubins compiled by NVRTC, each once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import Function


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


def kernels(image: Image) -> tuple[Symbol, ...]:
    """The functions of a cubin that can be launched: those with constants of their own."""
    return tuple(one for one in image.functions if image.section(f".nv.constant0.{one.name}"))


def functions(image: Image) -> Mapping[str, Function]:
    """The functions of a cubin by name."""
    return {one.name: one for one in disassemble(image, image.functions)}
