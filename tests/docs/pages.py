"""Code blocks of a page: files it shows, Python to run, commands with their output."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

import tilesim
from tilesim.cli import main

ROOT = Path(tilesim.__file__).resolve().parent.parent

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", re.DOTALL)
_PYTHON = re.compile(r"```python\n(?!# \S+\.py\n)(.*?)```", re.DOTALL)


def shown_files(page: str) -> list[tuple[str, str]]:
    """Name and text of the files that the page shows; their first line is their name."""
    return _FILE.findall(page)


def python_blocks(page: str) -> list[str]:
    """Python that is no file."""
    return _PYTHON.findall(page)


def console_blocks(page: str) -> list[str]:
    """Commands and their output."""
    return _BLOCK.findall(page)


def with_outputs(block: str) -> str:
    """The commands of a console block, each followed by what it prints now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_output(command)}" for command in commands)


def updated(page: str) -> str:
    """The page with the current outputs in its console blocks."""
    return _BLOCK.sub(lambda m: f"```console\n{with_outputs(m.group(1))}```", page)


def _output(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "tilesim", f"only tilesim commands can be shown: {command}"
    return CliRunner().invoke(main, arguments).output
