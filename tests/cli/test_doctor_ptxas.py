"""``tilesim doctor --ptxas``, with a script that stands for ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import needs
from tilesim.cubin import ptxas
from tilesim.gpu import compile
from tilesim.gpu.errors import MissingExtra

from .conftest import Invoke

CUBINS = Path(__file__).parents[1] / "cubin" / "wrong_forms"
#: stands for ptxas: it makes of each target the cubin of that name
PTXAS = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.8, V12.8.93"; exit; fi
while [ $# -gt 0 ]; do
  case "$1" in -arch=*) arch=${1#-arch=};; -o) made=$2;; esac
  shift
done
[ -f "FOLDER/$arch" ] && cp "FOLDER/$arch" "$made" && exit
echo "ptxas fatal   : Value '$arch' is not defined for option 'gpu-name'" >&2; exit 1
"""


def stand_in(folder: Path, **made: str) -> str:
    """A ptxas that makes these cubins, by target."""
    for arch, name in made.items():
        (folder / arch).write_bytes((CUBINS / f"{name}.cubin").read_bytes())
    path = folder / "ptxas"
    path.write_text(PTXAS.replace("FOLDER", str(folder)))
    path.chmod(0o755)
    return str(path)


@needs.disassembler
def test_doctor_says_which_forms_a_ptxas_makes(tilesim_cli: Invoke, tmp_path: Path) -> None:
    path = stand_in(tmp_path, sm_90a="vimnmx_relu")
    result = tilesim_cli("doctor", "--ptxas", path)
    assert result.exit_code == 1
    first, relu, three, wait = result.stdout.splitlines()
    assert first == f"ptxas 12.8.93 ({path})"
    assert "WRONG: VIMNMX.RELU RZ, P0, P0, R2, 0x40, PT: " in relu
    assert "not known: " in three
    assert "refuses the PTX: Value 'sm_100a' is not defined" in three
    assert "not known: " in wait


def test_copies_of_a_ptxas_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for name, version in (("a", "12.8"), ("b", "12.8"), ("c", "12.9")):
        (tmp_path / name).mkdir()
        path = stand_in(tmp_path / name)
        Path(path).write_text(PTXAS.replace("V12.8", f"V{version}"))
        paths.append(path)
    monkeypatch.setattr(ptxas, "_places", lambda: iter(paths))
    assert [one.path for one in ptxas.installed()] == [paths[0], paths[2]]


@needs.disassembler
def test_doctor_of_a_ptxas_without_these_forms(tilesim_cli: Invoke, tmp_path: Path) -> None:
    path = stand_in(tmp_path, sm_90a="vimnmx3", sm_100a="vimnmx_relu")
    result = tilesim_cli("doctor", "--ptxas", path)
    assert result.exit_code == 0
    assert result.stdout.count(": not made") == 2
    assert "not known: " in result.stdout  # these cubins have no tables of lines


@needs.disassembler
def test_doctor_of_a_ptxas_that_loses_an_order(tilesim_cli: Invoke, tmp_path: Path) -> None:
    path = stand_in(tmp_path, sm_100a="wait_behind_branch")
    result = tilesim_cli("doctor", "--ptxas", path)
    assert result.exit_code == 1
    assert "WRONG: LDTM.x2 R6, tmem[UR4]: other warps get tensor memory that is" in result.stdout


def test_doctor_of_what_is_no_ptxas(tilesim_cli: Invoke, tmp_path: Path) -> None:
    result = tilesim_cli("doctor", "--ptxas", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "cannot be run" in result.stderr


@needs.disassembler
def test_doctor_looks_at_the_compiler_in_nvrtc_too(
    tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ptxas, "_places", lambda: iter(()))
    first, *forms = tilesim_cli("doctor", "--ptxas").stdout.splitlines()
    assert first.startswith("NVRTC ")
    assert [line.split(": ")[1] in ("not made", "WRONG") for line in forms] == [True, True, True]
    made = (CUBINS / "vimnmx_relu.cubin").read_bytes()
    asked = []

    def cubin_of(text: str, arch: str) -> bytes:
        asked.append((arch, "min.s32" in text))
        return made

    monkeypatch.setattr(compile, "cubin_of", cubin_of)
    result = tilesim_cli("doctor", "--ptxas")
    assert result.exit_code == 1
    assert "WRONG: VIMNMX.RELU RZ, P0, P0, R2, 0x40, PT: " in result.stdout
    assert asked == [("sm_90a", True), ("sm_100a", False), ("sm_100a", False)]

    def missing() -> None:
        raise MissingExtra("not installed")

    monkeypatch.setattr(compile, "versions", missing)
    result = tilesim_cli("doctor", "--ptxas")
    assert result.exit_code == 2
    assert "there is no ptxas" in result.stderr
