"""tilesim: does this kernel's synchronisation work, on every schedule?

The DSL (`kernel`, `Builder`, expressions, dtypes) is re-exported here; `check` and `simulate` run
a program. Nothing here imports CUDA.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilesim.errors import InvalidProgram, ParseError, TargetError, TilesimError, UsageError
from tilesim.ir import shown as _shown
from tilesim.ir.addresses import address_of, mbar_at, view_at
from tilesim.ir.builder import Builder
from tilesim.ir.expr import all_of, any_of, maximum, minimum, select
from tilesim.ir.kernel import Kernel, kernel
from tilesim.ir.memory import ds
from tilesim.ir.program import Program
from tilesim.ir.types import (
    bf16,
    e4m3,
    e5m2,
    f16,
    f32,
    f64,
    pred,
    s8,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilesim.version import __version__ as __version__

if TYPE_CHECKING:
    from tilesim.checker import Report, check, replay
    from tilesim.report.rules import explain
    from tilesim.search.certificates import recheck
    from tilesim.sim.simulate import Run, simulate

__all__ = [
    "Builder", "InvalidProgram", "Kernel", "ParseError", "Program", "Report", "Run", "TargetError",
    "TilesimError", "UsageError", "address_of", "all_of", "any_of", "bf16", "check", "ds", "e4m3",
    "e5m2", "explain", "f16", "f32", "f64", "kernel", "maximum", "mbar_at", "minimum", "pred",
    "recheck", "replay", "s16", "s32", "s64", "s8", "select", "simulate", "tf32", "u16", "u32",
    "u64", "u8", "view_at",
]  # fmt: skip

_LAZY = {
    "check": "tilesim.checker", "Report": "tilesim.checker", "replay": "tilesim.checker",
    "simulate": "tilesim.sim.simulate", "Run": "tilesim.sim.simulate",
    "explain": "tilesim.report.rules", "recheck": "tilesim.search.certificates",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads the simulator on first use, so that building kernels stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module 'tilesim' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


def _maker() -> Any:
    return import_module("tilesim.report.inline")


_shown.maker = _maker
