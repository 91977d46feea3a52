"""What the GPU backend raises: an instruction without an encoding, a compiler error, no GPU."""

from __future__ import annotations

from tilesim.errors import TilesimError
from tilesim.ir.loc import Loc


class GpuError(TilesimError, RuntimeError):
    """Base of the errors of the GPU backend."""


class EmitError(GpuError):
    """The simulator runs the instruction, but no machine instruction does the same."""

    def __init__(self, message: str, loc: Loc) -> None:
        self.loc = loc
        super().__init__(f"{loc}: {message}")


class CompileError(GpuError):
    """The compiler rejected the emitted code; the message names the kernel's lines."""


class MissingExtra(GpuError):
    """A package of the ``compile`` or ``gpu`` extra is not installed."""


class DeviceError(GpuError):
    """No driver, no GPU, a GPU of another architecture, or a launch that failed."""
