"""docs/: every Python and console block of every page is executed, in the order of the page.

A block that starts with ``# name.py`` is written to that file first, and imported; the commands of
console blocks run beside those files and must print what the page says.
``python -m tests.docs.test_pages`` writes the current outputs into the pages that own them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate import PAGE, namespaces, page, recorded
from tilesim.ir.op import OPS
from tilesim.ir.text import parse

from .pages import ROOT, with_outputs

DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)

#: pages whose console blocks another test executes
ELSEWHERE = {"cli.md": "tests/cli/test_docs.py"}

#: blocks that cannot stand alone, by page and first line
FRAGMENTS = {
    ("blackwell.md", "slot, address = k.shared("): "part of a kernel",
    ("blackwell.md", 'with k.role("mma", 1), k.elected():'): "part of a kernel",
    ("clusters.md", "with k.one_thread():"): "part of a kernel",
    ("clusters.md", "plan = k.tile.copy_cluster("): "part of a kernel",
    ("clusters.md", "plan = k.tile.plan_cluster_copy("): "part of a kernel",
    ("gpu.md", "@EMIT.rule(FenceProxyAsync)"): "a rule that tilesim has already",
}

_FENCE = re.compile(r"^```(python|console|tile)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CACHES = shutil.ignore_patterns("__pycache__")
_FILE = re.compile(r"# (\w+\.py)\n")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of the blocks of a page that can be executed."""
    for match in _FENCE.finditer(text):
        yield match[1], match[2]


def fragment(name: str, block: str) -> bool:
    """Whether the block is listed as one that cannot be executed."""
    return any(name == page and block.startswith(start) for page, start in FRAGMENTS)


def play(path: Path, folder: Path) -> str:
    """The page with the outputs its commands have now; its Python is executed on the way."""
    name = path.relative_to(DOCS).as_posix()
    text = path.read_text()
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=_CACHES, dirs_exist_ok=True)
    variables: dict[str, Any] = {"__name__": "docs"}
    for kind, block in blocks(text):
        match kind:
            case "console" if name not in ELSEWHERE:
                text = text.replace(block, with_outputs(block))
            case "python" if not fragment(name, block):
                _execute(block, folder, f"docs/{name}", variables)
            case "tile":
                parse(block, name)
            case _:
                pass
    return text


def _execute(block: str, folder: Path, where: str, variables: dict[str, Any]) -> None:
    shown = _FILE.match(block)
    if shown:
        where = str(folder / shown[1])
        Path(where).write_text(block[shown.end() :])
        block = block[shown.end() :]
    exec(compile(block, where, "exec"), variables)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_blocks_run_and_print_what_the_page_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    try:
        assert play(path, tmp_path) == path.read_text(), "run python -m tests.docs.test_pages"
    finally:
        for module in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]


def test_fragments_are_still_in_the_pages() -> None:
    for name, start in FRAGMENTS:
        found = [b for _, b in blocks((DOCS / name).read_text()) if b.startswith(start)]
        assert len(found) == 1, (name, start)


def test_other_tests_execute_what_is_left_to_them() -> None:
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text()


def test_links_lead_to_pages() -> None:
    for path in PAGES:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate"


def test_reference_has_every_method_and_instruction() -> None:
    text = PAGE.read_text()
    reached = set()
    for name, namespace in namespaces().items():
        for method, function in vars(type(namespace)).items():
            if not method.startswith("_"):
                assert f"`k.{name}.{method}(" in text
                reached |= {op.mnemonic for op in recorded(function, type(namespace))}
    common = {"bar.warp.sync", "elect.sync", "exit", "mov", "setmaxnreg"}
    assert set(OPS) - reached == common
    assert all(f"`{name}`" in text for name in common)


if __name__ == "__main__":
    for path in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            path.write_text(play(path, Path(folder)))
            sys.path.remove(folder)
