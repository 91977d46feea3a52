"""README.md: the files it shows exist as shown, and its commands print what it says.

``python -m tests.docs.test_readme`` writes the current outputs into it.
"""

from __future__ import annotations

import os

import pytest

from .pages import ROOT, console_blocks, python_blocks, shown_files, updated, with_outputs

README = ROOT / "README.md"


def test_shown_files_are_the_files_of_the_repository() -> None:
    files = shown_files(README.read_text())
    assert files
    for name, text in files:
        assert (ROOT / name).read_text() == text


def test_commands_print_what_the_readme_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = console_blocks(README.read_text())
    assert len(blocks) >= 2
    for block in blocks:
        assert with_outputs(block) == block, "run python -m tests.docs.test_readme"


def test_python_blocks_run() -> None:
    for block in python_blocks(README.read_text()):
        exec(compile(block, "README.md", "exec"), {})


def test_links_lead_to_files() -> None:
    import re

    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (ROOT / target).exists(), target


if __name__ == "__main__":
    os.chdir(ROOT)
    README.write_text(updated(README.read_text()))
