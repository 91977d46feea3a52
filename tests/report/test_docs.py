"""docs/ci.md and docs/timeline.md: commands print what they say, Python runs, files exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import console_blocks, python_blocks, updated, with_outputs
from tilesim.cli.check import command as check_command
from tilesim.cli.trace import command as trace_command

from .programs import ROOT

PAGES = ("ci.md", "timeline.md")
DOCS = ROOT / "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_says(page: str, folder: Path) -> None:
    blocks = console_blocks((DOCS / page).read_text())
    assert blocks
    for block in blocks:
        assert with_outputs(block) == block, "run python -m tests.report.update"


@pytest.mark.parametrize("page", PAGES)
def test_python_runs(page: str, folder: Path) -> None:
    for block in python_blocks((DOCS / page).read_text()):
        exec(compile(block, page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_linked_exist(page: str) -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)", (DOCS / page).read_text())
    assert targets
    for target in targets:
        assert (DOCS / target).is_file(), target


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str) -> None:
    known = {o for c in (check_command, trace_command) for p in c.params for o in p.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", (DOCS / page).read_text())) <= known


def test_the_page_lists_the_inputs_of_the_action() -> None:
    inputs = (ROOT / "action.yml").read_text().split("inputs:")[1].split("outputs:")[0]
    names = re.findall(r"^  ([\w-]+):$", inputs, re.MULTILINE)
    table = re.findall(
        r"^\| `([\w-]+)` \| .+ \| .+ \|$", (DOCS / "ci.md").read_text(), re.MULTILINE
    )
    assert table == names


def update() -> None:
    """Writes the current outputs into the pages; to be called in a folder with the examples."""
    for page in PAGES:
        path = DOCS / page
        path.write_text(updated(path.read_text()))
