"""Code blocks of a page: files it shows, Python to run, commands with their output.

In an output a line ``...`` stands for one or more lines that the page leaves out.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

import tilesim
from tilesim.cli import main

ROOT = Path(tilesim.__file__).resolve().parent.parent

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n", re.MULTILINE)
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
    """The commands of a console block, each followed by what it prints now; a line ``...`` of what
    the page says stays if it stands for lines of that."""
    parts = _COMMAND.split(block)[1:]
    shown = zip(parts[::2], parts[1::2], strict=True)
    return "".join(f"$ {command}\n{abridged(said, _output(command))}" for command, said in shown)


def abridged(said: str, output: str) -> str:
    """What a page says, if it is the output but for lines that ``...`` stands for; else this."""
    lines = (".*\n(?:.*\n)*?" if x == "...\n" else re.escape(x) for x in said.splitlines(True))
    return said if re.fullmatch("".join(lines), output) else output


def updated(page: str) -> str:
    """The page with the current outputs in its console blocks."""
    return _BLOCK.sub(lambda m: f"```console\n{with_outputs(m.group(1))}```", page)


def _output(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "tilesim", f"only tilesim commands can be shown: {command}"
    return CliRunner().invoke(main, arguments).output
