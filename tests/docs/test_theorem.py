"""docs/soundness/proofs: the proofs compile, lack what the page says that they lack, and are about
the conditions that the proof kernel checks."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim.small import translate
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

from .modelled import coq, random_program
from .pages import ROOT

FOLDER = ROOT / "docs" / "soundness" / "proofs"
PAGE = (ROOT / "docs" / "soundness" / "theorem.md").read_text()
#: in the order in which they need each other
FILES = ("Model.v", "Proof.v", "Check.v", "Examples.v")


def without_comments(text: str) -> str:
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)


def stated(what: str) -> int:
    found = re.search(rf"{what}: (\d+)", PAGE)
    assert found is not None
    return int(found[1])


needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed")

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


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the compiled files, and what the last of them prints."""
    folder = tmp_path_factory.mktemp("theorem")
    for name in FILES:
        shutil.copy(FOLDER / name, folder)
    done = compiled(folder, *FILES)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@needs_coq
def test_the_proofs_assume_nothing(proved: tuple[Path, str]) -> None:
    asked = SOURCE[FILES[-1]].count("Print Assumptions")
    assert asked
    assert proved[1].splitlines() == ["Closed under the global context"] * asked


@needs_coq
def test_the_proof_fails_without_a_condition(tmp_path: Path) -> None:
    text, times = re.subn(
        r"(Definition cond_C2 :=).*?\.\n\n", r"\1 True.\n\n",
        (FOLDER / "Model.v").read_text(), flags=re.DOTALL,
    )  # fmt: skip
    assert times == 1
    (tmp_path / "Model.v").write_text(text)
    shutil.copy(FOLDER / "Proof.v", tmp_path)
    assert compiled(tmp_path, "Model.v").returncode == 0
    assert "C_C2" in compiled(tmp_path, "Proof.v").stderr


@needs_coq
def test_the_proof_kernel_certifies_the_same_programs(proved: tuple[Path, str]) -> None:
    folder, _ = proved
    programs = [random_program(seed) for seed in range(150)]
    terms = ";\n".join(map(coq, programs))
    (folder / "Random.v").write_text(
        "Require Import ZArith List Tilesim.Model Tilesim.Check.\n"
        "Import ListNotations.\nOpen Scope nat_scope.\n"
        f"Eval vm_compute in map judge [{terms}].\n"
    )
    done = compiled(folder, "Random.v")
    assert done.returncode == 0, done.stderr
    judged = [word == "true" for word in re.findall(r"\b(?:true|false)\b", done.stdout)]
    answers = [certify(lower(translate(program))) for program in programs]
    assert judged == [answer.verdict == "certified" for answer in answers]
    assert {"A", "B", "C1", "C2", "N", "H6"} <= {answer.rule for answer in answers}
    assert any(judged)
