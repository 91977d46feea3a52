"""``tilesim ptxas-diff``, with scripts that stand for two ptxas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.capture.test_fatbin import entry, fatbin, program
from tests.cubin.compiled import image

from .conftest import Invoke, Write
from .test_sass import RIGHT, without

#: stands for ptxas: it makes a cubin of each text that it does not refuse, and reads PTX up to 8.8
PTXAS = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release VERSION, VVERSION.1"; exit; fi
while [ $# -gt 1 ]; do [ "$1" = -o ] && made=$2; before=$text; text=$1; shift; done
grep -q "version NEWER" "$before" &&
  echo "ptxas k.ptx, line 1; fatal   : Unsupported .version NEWER; current version is '8.8'" &&
  exit 1
cp "FOLDER/cubin" "$made"
"""


def stand_in(folder: Path, version: str, cubin: bytes, newer: str = "no") -> str:
    """A ptxas of a version that makes this cubin of each text; in a toolkit of its own."""
    (folder / "bin").mkdir(parents=True)
    (folder / "cubin").write_bytes(cubin)
    path = folder / "bin" / "ptxas"
    text = PTXAS.replace("FOLDER", str(folder)).replace("VERSION", version)
    path.write_text(text.replace("NEWER", newer))
    path.chmod(0o755)
    return str(folder)


@pytest.fixture
def ptx(write: Write) -> str:
    text = image(RIGHT).ptx
    assert text is not None
    write("k.ptx", text)
    return text


def test_what_one_of_them_leaves_out(ptx: str, tmp_path: Path, tilesim_cli: Invoke) -> None:
    old = stand_in(tmp_path / "a", "12.9", image(RIGHT).data)
    new = stand_in(tmp_path / "b", "13.0", without(image(RIGHT), "BAR.SYNC"))
    line = next(n for n, text in enumerate(ptx.split("\n"), 1) if "bar.sync" in text)
    result = tilesim_cli("ptxas-diff", old, new, "k.ptx")
    assert result.exit_code == 1, result.output
    first, outcome, before, after, *_ = result.stdout.splitlines()
    assert first.startswith("k.ptx::k: ")
    assert outcome.startswith(f"  line {line} outcome of bar: ")
    assert before == "    ptxas 12.9.1  kept"
    assert after.startswith("    ptxas 13.0.1  lost: ")
    assert "weaker: PTX line" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        f"ptxas 12.9.1 ({old}/bin/ptxas) and ptxas 13.0.1 ({new}/bin/ptxas): 1 kernel, 1 in which "
        "it differs"
    )
    data = json.loads(tilesim_cli("ptxas-diff", old, new, "k.ptx", "--format", "json").stdout)
    assert data["new"] == {"path": f"{new}/bin/ptxas", "version": "13.0.1"}
    (kernel,) = data["kernels"]
    assert (kernel["file"], kernel["kernel"], kernel["outcome"]) == ("k.ptx", "k", "differs")
    change = kernel["changes"][0]
    assert (change["aspect"], change["kind"], change["line"]) == ("outcome", "bar", line)
    assert change["old"] == ["kept"]


def test_the_same_code_and_the_same_synchronisation(
    ptx: str, tmp_path: Path, tilesim_cli: Invoke
) -> None:
    old = stand_in(tmp_path / "a", "12.9", image(RIGHT).data)
    same = stand_in(tmp_path / "b", "13.0", image(RIGHT).data)
    result = tilesim_cli("ptxas-diff", old, same, "k.ptx")
    assert result.exit_code == 0
    assert result.stdout.endswith(": 1 kernel, 1 with the same machine code\n")
    other = stand_in(tmp_path / "c", "13.0", without(image(RIGHT), "S2R"))
    result = tilesim_cli("ptxas-diff", old, other, "k.ptx")
    assert result.exit_code == 0, result.output
    assert "1 with the same synchronisation in other machine code" in result.stdout


def test_ptx_that_one_of_them_does_not_know_yet(
    ptx: str, tmp_path: Path, tilesim_cli: Invoke
) -> None:
    version = ptx.split(".version ")[1].split()[0]
    old = stand_in(tmp_path / "a", "12.9", image(RIGHT).data, newer=version)
    new = stand_in(tmp_path / "b", "13.0", without(image(RIGHT), "BAR.SYNC"))
    result = tilesim_cli("ptxas-diff", old, new, "k.ptx")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith("(as PTX 8.8)")
    refuses = stand_in(tmp_path / "c", "12.0", image(RIGHT).data, newer="")
    result = tilesim_cli("ptxas-diff", refuses, new, "k.ptx")
    assert result.exit_code == 3
    assert "k.ptx: not compared: ptxas 12.0.1 refuses the PTX: Unsupported" in result.stdout


def test_folders_programs_and_what_is_no_ptx(
    ptx: str, write: Write, tmp_path: Path, tilesim_cli: Invoke
) -> None:
    old = stand_in(tmp_path / "a", "12.9", image(RIGHT).data)
    Path("in").mkdir()
    Path("in/k.ptx").write_text(ptx)
    Path("in/k.cubin").write_bytes(image(RIGHT).data)
    Path("in/other.tile").write_text("")
    Path("prog").write_bytes(program((64, fatbin(entry(ptx.encode())))))
    result = tilesim_cli("ptxas-diff", old, old, "in", "./prog")
    assert result.exit_code == 0, result.output
    assert ": 2 kernels, 2 with the same machine code" in result.stdout
    write("none.ptx", "")
    write("k.txt", "")
    result = tilesim_cli("ptxas-diff", old, old, "none.ptx", "k.txt", "gone.ptx", "k.ptx")
    assert result.exit_code == 2
    none, text, gone, _ = result.stdout.splitlines()
    assert none == "none.ptx: not read: it is not PTX: it has no .target"
    assert text == "k.txt: not read: k.txt is neither PTX (.ptx) nor machine code"
    assert gone == "gone.ptx: not read: gone.ptx cannot be read: No such file or directory"


def test_what_is_no_ptxas(ptx: str, tmp_path: Path, tilesim_cli: Invoke) -> None:
    old = stand_in(tmp_path / "a", "12.9", image(RIGHT).data)
    for path, says in (
        (tmp_path, "has no ptxas and no bin/ptxas: name a ptxas or its toolkit"),
        (tmp_path / "none", "cannot be run"),
        ("k.ptx", "cannot be run"),
    ):
        result = tilesim_cli("ptxas-diff", old, path, "k.ptx")
        assert result.exit_code == 2
        assert says in result.stderr
