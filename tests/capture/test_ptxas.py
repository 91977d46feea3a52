"""``tilesim capture --ptxas``: what a ptxas is given, however it is started.

Programs of the system, copied under its name, stand in for it: its name is all that counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.capture.tools import cc
from tilesim.capture.ptxas import run

pytestmark = cc

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry {name}(.param .u32 n) {{ ret; }}
"""


def ptx(name: str, more: str = "") -> str:
    return PTX.format(name=name) + more


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ptxas that succeeds, one that fails and one that prints its input."""
    for name, program in (("good", "true"), ("bad", "false"), ("echo", "cat")):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / name).mkdir()
        shutil.copy(os.path.realpath(found), tmp_path / name / "ptxas")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def capture(script: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and the rows of the manifest by file."""
    code = run(["sh", "-c", script], Path("out"))
    document = json.loads(Path("out/ptxas.json").read_text())
    assert document["schema"] == "tilesim.ptxas/1"
    return code, {row["file"]: row for row in document["compiled"]}


def test_an_absolute_path_keeps_ptx_options_and_the_exit_code(here: Path) -> None:
    """The PTX is deleted when the compiler ends; nothing was put into PATH."""
    Path("k.ptx").write_text(ptx("fill"))
    script = (
        f"{here}/good/ptxas -arch=sm_90a --maxrregcount 64 -O3 k.ptx -o k.cubin; rm k.ptx; exit 3"
    )
    code, rows = capture(script)
    assert code == 3
    assert Path("out/fill.ptx").read_text() == ptx("fill")
    row = rows["fill.ptx"]
    assert (row["arch"], row["maxrregcount"], row["exit"]) == ("sm_90a", 64, 0)
    assert row["options"] == ["-arch=sm_90a", "--maxrregcount", "64", "-O3"]
    assert (row["kernels"], row["input"]) == (["fill"], "k.ptx")
    launch = json.loads(Path("out/fill.json").read_text())
    assert (launch["entry"], launch["registers"]) == ("fill", 64)
    assert launch["grid"] == ["FILL_IN"]


@pytest.mark.parametrize("option", ["-o k.cubin", "--output-file k.cubin", "--output-file=k.cubin"])
def test_the_machine_code_of_a_run_that_succeeds_is_kept(option: str, here: Path) -> None:
    """The stand-in writes none: what is there when it ends counts."""
    Path("k.ptx").write_text(ptx("fill"))
    capture(f"printf code > k.cubin; good/ptxas -arch=sm_90a k.ptx {option}; rm k.cubin")
    assert Path("out/fill.cubin").read_bytes() == b"code"
    shutil.rmtree("out")
    capture(f"printf code > k.cubin; bad/ptxas -arch=sm_90a k.ptx {option}")
    assert not Path("out/fill.cubin").exists()


def test_a_failure_is_the_commands_and_is_noted(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("k.ptx").write_text(ptx("fill"))
    code, rows = capture("bad/ptxas --gpu-name=sm_100a k.ptx")
    assert (code, rows["fill.ptx"]["exit"], rows["fill.ptx"]["arch"]) == (1, 1, "sm_100a")
    assert "captured fill: sm_100a, ptxas failed" in capfd.readouterr().err


def test_ptx_of_pipes_reaches_ptxas_as_well(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard input, a pipe of the shell, a redirected file; `cat` prints what it was given."""
    for name in ("one", "three"):
        Path(name).write_text(ptx(name))
    code, rows = capture(
        "cat one | echo/ptxas -; sed s/one/two/ one | echo/ptxas /dev/stdin; echo/ptxas - < three"
    )
    assert capfd.readouterr().out == ptx("one") + ptx("two") + ptx("three")
    assert (code, [row["kernels"] for row in rows.values()]) == (0, [["one"], ["three"], ["two"]])


def test_ptx_in_an_argument(here: Path) -> None:
    text = ptx("fill")
    code, rows = capture(f"good/ptxas -arch sm_90a --input-as-string '{text}' -o fill.cubin")
    assert (code, rows["fill.ptx"]["arch"], rows["fill.ptx"]["options"]) == (
        0, "sm_90a", ["-arch", "sm_90a"],
    )  # fmt: skip
    assert Path("out/fill.ptx").read_text() == text


def test_names_that_collide_and_the_same_ptx_twice_at_once(here: Path) -> None:
    """Names do not depend on which compile comes first."""
    for number in range(8):
        Path(f"{number}.ptx").write_text(ptx("fill", f"// {number % 2}\n"))
    code, rows = capture("for i in 0 1 2 3 4 5 6 7; do good/ptxas -arch=sm_90a $i.ptx & done; wait")
    assert code == 0
    assert {name: row["times"] for name, row in rows.items()} == {"fill.ptx": 4, "fill_1.ptx": 4}
    texts = {Path("out", name).read_text() for name in rows}
    assert texts == {ptx("fill", "// 0\n"), ptx("fill", "// 1\n")}
    again = {name: Path("out", name).read_text() for name in rows}
    shutil.rmtree("out")
    capture("for i in 7 6 5 4 3 2 1 0; do good/ptxas -arch=sm_90a $i.ptx; done")
    assert {name: Path("out", name).read_text() for name in rows} == again


def test_several_kernels_have_the_name_of_the_source_and_parsed_ptx_is_left_out(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As nvcc does it: `ptxas -arch=compute_90` of the same kernels makes no code."""
    name = "tmpxft_0000_00000000-6_gemm.compute_90a.ptx"
    Path(name).write_text(ptx("a") + ptx("b").split("\n", 3)[3])
    Path("parsed.ptx").write_text(ptx("a").replace("sm_90a", "sm_90") + ptx("b").split("\n", 3)[3])
    Path("none.ptx").write_text(ptx("a").split(".visible")[0])
    _, rows = capture(
        f"good/ptxas -arch=sm_90a {name}; good/ptxas -arch=compute_90 parsed.ptx; "
        "good/ptxas -arch=sm_90a none.ptx; good/ptxas --version"
    )
    assert [*rows] == ["gemm.ptx"]
    assert rows["gemm.ptx"]["kernels"] == ["a", "b"]
    assert [one["entry"] for one in json.loads(Path("out/gemm.json").read_text())] == ["a", "b"]
    assert "1 PTX file without a kernel left out" in capfd.readouterr().err


def test_ptx_without_kernels_is_all_that_was_compiled(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("none.ptx").write_text(ptx("a").split(".visible")[0])
    capture("good/ptxas -arch=sm_90a none.ptx")
    said = capfd.readouterr().err
    assert "1 PTX file without a kernel left out" in said
    assert "no ptxas was run" not in said


def test_ptx_that_is_not_read_is_kept_all_the_same(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("k.ptx").write_text(ptx("fill", ".unheard of\n"))
    _, rows = capture("good/ptxas -arch=sm_90a k.ptx")
    assert [*rows] == ["fill.ptx"]
    assert not Path("out/fill.json").exists()
    assert "fill.ptx:5" in capfd.readouterr().err


def test_a_command_without_ptxas_says_so(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, rows = capture("true")
    assert (code, rows) == (0, {})
    assert "captured 0 PTX files into out\nno ptxas was run" in capfd.readouterr().err


def test_what_cannot_be_copied_does_not_keep_ptxas_from_its_work(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A limit on the size of files is a disk that is full."""
    Path("k.ptx").write_text(ptx("fill", "//" + "x" * 5000 + "\n"))
    code, rows = capture("(trap '' XFSZ; ulimit -f 1; echo/ptxas k.ptx) | cat")
    assert (code, rows) == (0, {})
    printed = capfd.readouterr()
    assert printed.out == Path("k.ptx").read_text()
    assert "the PTX of 1 run of ptxas could not be copied" in printed.err


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_triton_runs_the_ptxas_that_it_brings_along(here: Path) -> None:
    Path("k.py").write_text(
        "import triton, triton.language as tl\n"
        "from triton.backends.compiler import GPUTarget\n"
        "from triton.compiler import ASTSource\n"
        "@triton.jit\n"
        "def one(x):\n"
        "    tl.store(x, 1)\n"
        "source = ASTSource(one, {'x': '*i32'})\n"
        "triton.compile(source, target=GPUTarget('cuda', 90, 32))\n"
    )
    subprocess.run([sys.executable, "k.py"], check=True, capture_output=True)  # it is cached
    assert run([sys.executable, "k.py"], Path("out")) == 0
    launch = json.loads(Path("out/one.json").read_text())
    assert (launch["entry"], launch["block"]) == ("one", [128])
