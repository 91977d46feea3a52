"""What tests of ``tilesim capture`` need, and how they run it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilesim.capture.program import run

NVCC = shutil.which("nvcc")
CC = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
nvcc = pytest.mark.skipif(NVCC is None or CC is None, reason="nvcc is not installed")
cc = pytest.mark.skipif(
    CC is None or not sys.platform.startswith("linux"), reason="there is no C compiler, or no Linux"
)


@dataclass(frozen=True)
class Done:
    """How a captured program has ended, and what was printed."""

    code: int
    out: str
    err: str


class Capture:
    """``tilesim capture`` of programs; what they print goes to a file descriptor."""

    def __init__(self, printed: pytest.CaptureFixture[str]) -> None:
        self._printed = printed

    def __call__(
        self, folder: Path, program: Path, *arguments: str, target: str = "sm_90a"
    ) -> Done:
        """Runs a program."""
        self._printed.readouterr()
        code = run([str(program), *arguments], folder, target)
        found = self._printed.readouterr()
        return Done(code, found.out, found.err)
