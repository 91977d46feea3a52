"""README.md: what it shows of files stands there, and its commands print what it says.

``python -m tests.docs.test_readme`` writes the current outputs into it.
"""

from __future__ import annotations

import os

import pytest

from .pages import ROOT, console_blocks, python_blocks, shown_files, updated, with_outputs

README = ROOT / "README.md"


def test_what_is_shown_of_files_stands_in_them() -> None:
    files = shown_files(README.read_text())
    assert files
    for name, text in files:
        assert text in (ROOT / name).read_text()


def test_its_length_is_that_of_a_page() -> None:
    assert len(README.read_text().splitlines()) <= 130


def test_commands_print_what_the_readme_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = console_blocks(README.read_text())
    assert blocks
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
