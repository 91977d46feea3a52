"""PTX of kernels, by what has made it: what is installed makes its kernels, the rest is left out.

A producer is a module with ``kernels()``, which gives names and PTX. Each is imported when it is
asked for, as each needs another compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple


class Kernels(NamedTuple):
    """A producer: its module here, and the module of Python that it needs."""

    module: str
    needs: str


PRODUCERS: Mapping[str, Kernels] = {
    "gallery": Kernels("gallery", "cuda.bindings"),
    "instructions": Kernels("instructions", "cuda.bindings"),
    "cuda": Kernels("cuda", "cuda.bindings"),
    "triton": Kernels("of_triton", "triton"),
    "gluon": Kernels("gluon", "triton"),
    "inductor": Kernels("inductor", "torch"),
    "helion": Kernels("of_helion", "helion"),
    "cute": Kernels("cute", "cutlass"),
    "cutile": Kernels("cutile", "cuda.tile"),
    "tilelang": Kernels("of_tilelang", "tilelang"),
    "tilus": Kernels("of_tilus", "tilus"),
}


def installed(producer: str) -> bool:
    """Whether what it needs is here."""
    top, *_ = name = PRODUCERS[producer].needs.split(".")
    return find_spec(top) is not None and find_spec(".".join(name)) is not None


def texts(producer: str) -> Iterator[tuple[str, str]]:
    """The kernels of a producer: a name and PTX."""
    module = import_module(f"{__name__}.{PRODUCERS[producer].module}")
    kernels: Callable[[], Iterator[tuple[str, str]]] = module.kernels
    yield from kernels()
