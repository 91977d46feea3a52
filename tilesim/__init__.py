"""tilesim: does this kernel's synchronisation work, on every schedule?

The DSL (`kernel`, `Builder`, expressions, dtypes) is re-exported here; `check` and `simulate` run
a program. Each name loads its module when it is first asked for: importing a part of tilesim loads
what that part needs. Nothing here imports CUDA.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilesim.ir import display as _shown
from tilesim.version import __version__ as __version__

if TYPE_CHECKING:
    from tilesim.arith.types import (
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
    from tilesim.checker import Report, check, replay
    from tilesim.checker.certificates import recheck
    from tilesim.dsl.builder import Builder
    from tilesim.dsl.kernel import Kernel, kernel
    from tilesim.errors import InvalidProgram, ParseError, TargetError, TilesimError, UsageError
    from tilesim.ir.addresses import address_of, mbar_at, view_at
    from tilesim.ir.declarations import ds
    from tilesim.ir.expr import all_of, any_of, maximum, minimum, select
    from tilesim.ir.program import Program
    from tilesim.report.rules import explain
    from tilesim.sim.machine.simulate import Run, simulate

__all__ = [
    "Builder", "InvalidProgram", "Kernel", "ParseError", "Program", "Report", "Run", "TargetError",
    "TilesimError", "UsageError", "address_of", "all_of", "any_of", "bf16", "check", "ds", "e4m3",
    "e5m2", "explain", "f16", "f32", "f64", "kernel", "maximum", "mbar_at", "minimum", "pred",
    "recheck", "replay", "s16", "s32", "s64", "s8", "select", "simulate", "tf32", "u16", "u32",
    "u64", "u8", "view_at",
]  # fmt: skip

_NAMES = {
    "tilesim.arith.types": "bf16 e4m3 e5m2 f16 f32 f64 pred s8 s16 s32 s64 tf32 u8 u16 u32 u64",
    "tilesim.checker": "Report check replay",
    "tilesim.errors": "InvalidProgram ParseError TargetError TilesimError UsageError",
    "tilesim.ir.addresses": "address_of mbar_at view_at",
    "tilesim.dsl.builder": "Builder",
    "tilesim.ir.expr": "all_of any_of maximum minimum select",
    "tilesim.dsl.kernel": "Kernel kernel",
    "tilesim.ir.declarations": "ds",
    "tilesim.ir.program": "Program",
    "tilesim.report.rules": "explain",
    "tilesim.checker.certificates": "recheck",
    "tilesim.sim.machine.simulate": "Run simulate",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilesim' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


def _maker() -> Any:
    return import_module("tilesim.report.inline")


_shown.maker = _maker
