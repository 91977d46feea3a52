"""What is wrong with a PTX text or a launch description."""

from __future__ import annotations

from tilesim.errors import TilesimError


class PtxError(TilesimError, ValueError):
    """A PTX text cannot be read; the message starts with ``file:line:column``.

    ``line`` and ``column`` start at 1; ``fix`` says what to do.
    """

    def __init__(self, file: str, line: int, column: int, what: str, fix: str = "") -> None:
        self.file, self.line, self.column = file, line, column
        self.what, self.fix = what, fix
        text = f"{file}:{line}:{column}: {what}"
        super().__init__(f"{text}\n    fix: {fix}" if fix else text)


class LaunchError(TilesimError, ValueError):
    """A launch description is malformed or contradicts the kernel; the message says where."""
