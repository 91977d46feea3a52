"""Fixtures: a working folder with kernel files, and ways to run the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tilesim
from tilesim.cli import main

ROOT = Path(tilesim.__file__).resolve().parent.parent

Invoke = Callable[..., Result]
Spawn = Callable[..., "subprocess.CompletedProcess[str]"]
Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the working folder (a temporary one) and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return write_file


@pytest.fixture
def tilesim_cli() -> Invoke:
    """Runs the command line in this process."""

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args])

    return invoke


@pytest.fixture
def spawn() -> Spawn:
    """Runs ``python -m tilesim`` in a process of its own."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tilesim", *args]
        return subprocess.run(command, env=env, capture_output=True, text=True)

    return run
