"""`docs/architecture.md`, `tests/README.md`: what one looks for, or its tests, is found there."""

from __future__ import annotations

import re

from .pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
TILESIM = ROOT / "tilesim"


def test_every_package_and_every_module_at_the_top_is_named() -> None:
    packages = [p.name for p in TILESIM.iterdir() if (p / "__init__.py").exists()]
    assert [p for p in packages if not re.search(rf"`(tilesim/)?{p}/", PAGE)] == []
    modules = [p.name for p in TILESIM.glob("*.py") if not p.name.startswith("_")]
    assert [m for m in modules if f"{m}`" not in PAGE and m != "version.py"] == []


def test_the_first_line_of_a_file_says_what_is_in_it() -> None:
    files = [p for p in TILESIM.rglob("*.py") if p.name != "__init__.py" or p.stat().st_size]
    assert [p for p in files if not re.match(r'r?"""\S.{8,}', p.read_text())] == []


def test_what_is_named_is_there() -> None:
    bases = (ROOT, TILESIM, TILESIM / "sim", TILESIM / "ir", TILESIM / "gpu", TILESIM / "capture")
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert [n for n in named if not any((base / n).exists() for base in bases)] == []


def test_every_folder_of_tests_is_named() -> None:
    page = (ROOT / "tests" / "README.md").read_text()
    folders = [p.name for p in (ROOT / "tests").iterdir() if (p / "__init__.py").exists()]
    assert [f for f in folders if f"`{f}/`" not in page] == []


def test_files_that_any_page_names_are_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`((?:tilesim|tests|benchmarks)/[\w/.-]+)`", page.read_text())
    }
    assert [n for n in sorted(named) if "KIND" not in n[1] and not (ROOT / n[1]).exists()] == []
