"""docs/: every Python and console block of every page is executed, in the order of the page.

A block that starts with ``# name.py`` is written to that file first (and run by pytest if it is a
test file); the commands of console blocks run beside those files and must print what the page says.
``python -m tests.docs.test_pages PAGE.md...`` writes the current outputs into these pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from docs.generate import PAGE, listed, namespaces, page
from tilesim.dsl.methods import recorded
from tilesim.ir import ops
from tilesim.ir.op import OPS
from tilesim.ir.text import parse

from . import captured
from .pages import ROOT, with_outputs

DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)

#: pages whose console blocks another test executes
ELSEWHERE = {"cli.md": "tests/cli/test_docs.py"}

#: files that a page's commands need beside those it shows
FILES = {
    "fuzzing.md": ["tests/fuzz/kernels.py"],
    "howto/hang.md": ["tests/autopsy/dumps/ring.nvcudmp.gz", "tests/autopsy/dumps/ring.cu"],
    "autopsy.md": ["tests/autopsy/dumps/ring.nvcudmp.gz", "tests/autopsy/dumps/ring.cu"],
}

#: what programs that a page compiles with nvcc leave behind, which CI has not
PREPARED = {"howto/cuda.md": captured.ring}

#: blocks that cannot stand alone, by page and first line
FRAGMENTS = {
    ("blackwell.md", "slot, address = k.shared("): "part of a kernel",
    ("blackwell.md", 'with k.role("mma", 1), k.elected():'): "part of a kernel",
    ("clusters.md", "with k.one_thread():"): "part of a kernel",
    ("clusters.md", "plan = k.tile.copy_cluster("): "part of a kernel",
    ("clusters.md", "plan = k.tile.plan_cluster_copy("): "part of a kernel",
    ("fuzzing.md", "from hypothesis import given"): "my_pass is the reader's",
    ("pytest.md", "from tilesim import mark\nfrom my_kernels"): "my_kernels is the reader's",
    ("pytest.md", "@mark.check(gemm)"): "gemm is the reader's",
    ("pytest.md", "def test_generated(tilesim_check)"): "generate is the reader's",
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
    for file in FILES.get(name, ()):
        shutil.copy(ROOT / file, folder)
    if name in PREPARED:
        PREPARED[name](folder)
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
        block = block[shown.end() :]
        Path(where).write_text(block)
        if shown[1].startswith("test_"):
            _run_tests(where)
            return
    with redirect_stdout(StringIO()):
        exec(compile(block, where, "exec"), variables)


def _run_tests(where: str) -> None:
    """A page's test file, with the plugin as an installed tilesim has it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:tilesim", "-p", "_tilesim_pytest"]
    done = subprocess.run(
        [*command, where], cwd=Path(where).parent, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_blocks_run_and_print_what_the_page_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    try:
        assert play(path, tmp_path) == path.read_text(), (
            f"run python -m tests.docs.test_pages {path.relative_to(DOCS)}"
        )
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


@pytest.mark.parametrize("form", ["dummy", pytest.param("html", marks=pytest.mark.slow)])
def test_site_builds_without_a_warning(form: str, tmp_path: Path) -> None:
    """Pages, what they name and link; as HTML in campaigns."""
    pytest.importorskip("sphinx", reason="needs the docs extra")
    pytest.importorskip("furo", reason="needs the docs extra")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", form]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / form)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert form == "dummy" or (tmp_path / form / "index.html").exists()


def test_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate"


def test_reference_has_every_method_and_instruction() -> None:
    text = PAGE.read_text()
    reached = set()
    for name, namespace in namespaces().items():
        for call, function in listed(name, namespace):
            assert f"`{call}(" in text
            reached |= {op.mnemonic for op in recorded(function)}
    common = {"bar.warp.sync", "elect.sync", "exit", "mov", "setmaxnreg"}
    own = {m for m, cls in OPS.items() if cls.__module__.split(".")[-1] in ops.__all__}
    assert own - reached == common
    assert all(f"| `{name}" in text for name in common - {"exit"})
    assert "| `k.exit()` |  |" in text  # it has the name of the call


if __name__ == "__main__":
    for path in [p for p in PAGES if p.relative_to(DOCS).as_posix() in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            path.write_text(play(path, Path(folder)))
            sys.path.remove(folder)
