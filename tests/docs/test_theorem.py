"""docs/theorem: the proofs compile, and lack what the page says that they lack."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .pages import ROOT

FOLDER = ROOT / "docs" / "theorem"
PAGE = (ROOT / "docs" / "theorem.md").read_text()
#: in the order in which they need each other
FILES = ("Model.v", "Proof.v", "Check.v", "Examples.v")


def without_comments(text: str) -> str:
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)


def stated(what: str) -> int:
    found = re.search(rf"{what}: (\d+)", PAGE)
    assert found is not None
    return int(found[1])


SOURCE = {name: without_comments((FOLDER / name).read_text()) for name in FILES}


def test_all_files_are_compiled() -> None:
    assert {path.name for path in FOLDER.glob("*.v")} == set(FILES)
    assert all(f"`{name}`" in PAGE for name in FILES)


def test_the_page_counts_what_is_not_proved() -> None:
    text = "\n".join(SOURCE.values())
    assert len(re.findall(r"\b(?:Admitted|admit)\b", text)) == stated("`Admitted` lemmas")
    assert len(re.findall(r"\b(?:Axioms?|Parameters?|Conjecture)\b", text)) == stated("Axioms")


def compiled(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Compiles files of a folder in turn, up to the first that fails; returns the last outcome."""
    for name in names:
        done = subprocess.run(
            ["coqc", "-R", ".", "Tilesim", name],
            cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            break
    return done


@pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed")
def test_the_proofs_compile_and_assume_nothing(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(FOLDER / name, tmp_path)
    done = compiled(tmp_path, *FILES)
    assert done.returncode == 0, done.stderr
    asked = SOURCE[FILES[-1]].count("Print Assumptions")
    assert asked
    assert done.stdout.splitlines() == ["Closed under the global context"] * asked


@pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed")
def test_the_proof_fails_without_a_condition(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(FOLDER / name, tmp_path)
    model = tmp_path / "Model.v"
    text, times = re.subn(
        r"(Definition cond_C2 :=).*?\.\n\n", r"\1 True.\n\n", model.read_text(), flags=re.DOTALL
    )
    assert times == 1
    model.write_text(text)
    assert compiled(tmp_path, "Model.v").returncode == 0
    assert compiled(tmp_path, "Proof.v").returncode != 0
