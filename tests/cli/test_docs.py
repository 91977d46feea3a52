"""docs/cli.md: every console block is what the command prints."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import COMMANDS, main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)


def write_files(page: str, folder: Path) -> None:
    """Writes the files that the page shows; their first line is their name."""
    for name, text in _FILE.findall(page):
        (folder / name).write_text(f"# {name}\n{text}")


def with_outputs(block: str) -> str:
    """The commands of a console block, each followed by what it prints now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{output(command)}" for command in commands)


def output(command: str) -> str:
    """What a ``tilesim`` command line prints."""
    program, *arguments = shlex.split(command)
    assert program == "tilesim"
    return CliRunner().invoke(main, arguments).output


def test_console_blocks_are_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text()
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page)
    assert len(blocks) >= 5
    for block in blocks:
        assert with_outputs(block) == block, "run python -m tests.cli.update"


def test_exit_codes_are_in_one_table() -> None:
    """Each command is in a row, with the codes that its help names; 2 is the same for all."""
    section = PAGE.read_text().split("## Exit codes\n")[1].split("\n## ")[0]
    rows = {}
    for line in section.splitlines():
        names, *cells = (cell.strip() for cell in line.strip("|").split("|")) if line else ("",)
        for name in re.findall(r"`([\w-]+)`", names):
            rows[name] = {code for code, cell in zip("013", cells, strict=False) if cell}
    assert set(rows) == set(COMMANDS)
    assert "\n2 is a usage or input error" in section
    for name, codes in rows.items():
        text = " ".join((import_module(COMMANDS[name]).command.help or "").split())
        said = re.search(r"Exit: (.*)", text)
        if said is not None and name != "watch":
            assert set(re.findall(r"(?<![\w-])[0-3](?![\w-])", said[1])) - {"2"} == codes, name


def test_every_command_is_listed_and_has_a_section() -> None:
    page = PAGE.read_text()
    table = page.split("| command | what it does |\n")[1].split("\n\n")[0]
    listed = re.findall(r"\[`([a-z-]+)`\]\(#\1\)", table)
    assert sorted(listed) == sorted(COMMANDS)
    for name in listed:
        assert f"\n## {name}\n" in page
