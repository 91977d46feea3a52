"""The GPU backend: CUDA C++ from programs, machine code without a GPU, runs with one.

`tilesim.gpu.emit.emit` needs nothing, `compile_cubin` the ``compile`` extra,
`tilesim.gpu.launch.launch` and `Executor` a GPU too. Nothing here is loaded before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesim.gpu.compile import Binary, compile_cubin, compile_ptx
    from tilesim.gpu.emit.emitter import Source
    from tilesim.gpu.watchdog import Execution, Executor, Hang

__all__ = [
    "Binary", "Execution", "Executor", "Hang", "Source", "compile_cubin", "compile_ptx",
]  # fmt: skip

_HOME = {
    "Binary": "compile", "compile_cubin": "compile", "compile_ptx": "compile",
    "Source": "emit.emitter",
    "Execution": "watchdog", "Executor": "watchdog", "Hang": "watchdog",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads a part of the backend on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'tilesim.gpu' has no attribute {name!r}")
    return getattr(import_module(f"tilesim.gpu.{_HOME[name]}"), name)
