"""What can be named on the command line and in ``pyproject.toml``, and what a shell completes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tests.capture.test_fatbin import entry, fatbin, program
from tilesim.cli import main

from . import kernels
from .conftest import Invoke, Write

PAIR = (
    kernels.GOOD.replace("def handshake", "def gemm_good")
    + kernels.BAD.replace(kernels.HEAD, "").replace("def handshake", "def gemm_bad")
    + "\n\n@ts.kernel(warps=1)\ndef copy(k):\n    k.sync_threads()\n"
)


def checked(output: str) -> dict[str, str]:
    """Verdicts by kernel."""
    return {r["kernel"]: r["verdict"] for r in json.loads(output)["results"]}


# ------------------------------------------------------------------ kernels by name


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("copy",), ["copy"]),
        (("gemm_*",), ["gemm_good", "gemm_bad"]),
        (("copy", "*_bad"), ["gemm_bad", "copy"]),
    ],
)
def test_kernels_of_a_name(
    write: Write, tilesim_cli: Invoke, names: tuple[str, ...], found: list[str]
) -> None:
    options = [part for name in names for part in ("--kernel", name)]
    name = write("k.py", PAIR)
    result = tilesim_cli("check", name, "--format", "json", *options)
    assert list(checked(result.stdout)) == [f"k.py::{n}" for n in found]


def test_a_name_that_no_kernel_has(write: Write, tilesim_cli: Invoke) -> None:
    write("k.py", PAIR)
    write("other.py", kernels.GOOD)
    alone = tilesim_cli("check", "k.py", "--kernel", "copi")
    assert alone.exit_code == 2
    assert "k.py has no kernel copi (did you mean copy?)" in alone.stdout
    several = tilesim_cli("check", "k.py", "other.py", "--kernel", "copy", "--format", "json")
    assert checked(several.stdout) == {"k.py::copy": "proved"}
    none = tilesim_cli("check", "k.py", "other.py", "--kernel", "nothing")
    assert none.exit_code == 2
    assert "no target has a kernel nothing" in none.stderr


# ------------------------------------------------------------------ folders and standard input


@pytest.fixture
def project(write: Write) -> None:
    """A folder with Python files: two import tilesim, one is a script to capture."""
    for folder in ("p", "p/.venv", "p/site-packages"):
        Path(folder).mkdir()
    write("p/k.py", kernels.GOOD)
    write("p/empty.py", "import tilesim as ts\n")
    write("p/script.py", "from tilesim.triton import empty\nraise SystemExit('this was run')\n")
    write("p/other.py", "raise SystemExit('this was run')\n")
    write("p/.venv/x.py", "import tilesim\nraise SystemExit('this was run')\n")
    write("p/site-packages/x.py", "import tilesim\nraise SystemExit('this was run')\n")


@pytest.mark.usefixtures("project")
def test_python_files_of_a_folder_are_run_if_that_is_said(tilesim_cli: Invoke) -> None:
    refused = tilesim_cli("check", "p")
    assert refused.exit_code == 2
    assert "or with --python" in re.sub(r"\s+", " ", refused.stdout)
    result = tilesim_cli("check", "p", "--python", "--format", "json")
    assert result.exit_code == 0
    assert checked(result.stdout) == {"p/k.py::handshake": "proved"}
    Path("p/k.py").unlink()
    Path("p/empty.py").unlink()
    none = tilesim_cli("check", "p", "--python")
    assert none.exit_code == 2
    said = re.sub(r"\s+", " ", none.stdout)
    assert "with --python if they import tilesim to define kernels" in said


TILE = "tile 1\nkernel t: target=sm_90a, warps=1\nbody {\n  barrier.sync 0\n}\n"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (kernels.GOOD, 0, "PROVED -::handshake"),
        (TILE, 0, "PROVED -::t"),
        ("# a comment\n" + TILE, 0, "PROVED -::t"),
        (kernels.BAD, 1, "k.mbarrier.wait(empty, (i & 1) ^ int(parity))"),
        (TILE.replace("barrier.sync", "barrier.snyc"), 2, "<stdin>:4:3: expected an instruction"),
        ("import tilesim\n1 / 0\n", 2, "<stdin>:2: loading standard input raises ZeroDivision"),
        ("def f(:\n", 2, "<stdin>:1: SyntaxError"),
        (".version 8.8\n", 2, "PTX needs a launch description"),
        ("", 2, "- defines no kernel"),
    ],
)
def test_standard_input(text: str, code: int, said: str) -> None:
    result = CliRunner().invoke(main, ["check", "-"], input=text)
    assert result.exit_code == code, result.output
    assert said in re.sub(r"\s+", " ", result.stdout).replace("( ", "(")


def test_standard_input_is_for_one_process() -> None:
    result = CliRunner().invoke(main, ["check", "-", "--jobs", "2"], input=PAIR)
    assert result.exit_code == 2
    assert "by one process: leave out --jobs" in result.stderr


# ------------------------------------------------------------------ pyproject.toml


def section(text: str) -> str:
    """A project's file."""
    return f"[tool.other]\nx = 1\n\n[tool.tilesim]\n{text}"


def test_a_project_sets_defaults(write: Write, tilesim_cli: Invoke) -> None:
    write("k.py", kernels.OPEN)
    write("pyproject.toml", section(
        'targets = ["k.py"]\nschedules = 4\n[tool.tilesim.check]\naccept = "bounded"\n'
    ))  # fmt: skip
    assert tilesim_cli("check").exit_code == 0
    assert tilesim_cli("check", "k.py").exit_code == 0
    assert "5 schedules" in tilesim_cli("check", "--budget", "0").stdout
    assert "3 schedules" in tilesim_cli("check", "--budget", "0", "--schedules", "2").stdout
    write("pyproject.toml", section('targets = ["k.py"]\nschedules = 4\n'))
    assert tilesim_cli("check").exit_code == 3


def test_a_project_is_found_from_below(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("k.py", kernels.GOOD)
    write("pyproject.toml", section('targets = ["k.py"]\n'))
    Path("below").mkdir()
    monkeypatch.chdir("below")
    result = tilesim_cli("check")
    assert result.exit_code == 0
    assert "k.py::handshake" in result.stdout


def test_a_format_of_check_is_none_of_others(write: Write, tilesim_cli: Invoke) -> None:
    write("k.py", kernels.GOOD)
    write("pyproject.toml", section('format = "github"\n'))
    assert tilesim_cli("check", "k.py").stdout == "k.py::handshake: proved\n"
    assert "A13 (A. mbarrier)" in tilesim_cli("explain", "A13").stdout
    write("pyproject.toml", section('format = "jsn"\n'))
    assert tilesim_cli("check", "k.py").exit_code == 2
    write("pyproject.toml", section('format = "json"\n'))
    assert tilesim_cli("show", "k.py").stdout.startswith("{")


def test_without_targets_they_are_missing(write: Write, tilesim_cli: Invoke) -> None:
    write("pyproject.toml", section("schedules = 4\n"))
    result = tilesim_cli("check")
    assert result.exit_code == 2
    assert "missing argument 'TARGET...'" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedule = 4\n", "cannot set 'schedule' (did you mean schedules"),
        ('output = "x"\n', "cannot set 'output'"),
        ('source-root = "/"\n', "cannot set 'source-root'"),
        ("[tool.tilesim.chek]\n", "there is no command chek (did you mean check"),
        ("[tool.tilesim]\n", "pyproject.toml is not TOML"),
        ("schedules = [1]\n", "schedules is not a text, number, boolean or list of texts"),
        ("[tool.tilesim.check]\nschedules = {a = 1}\n", "schedules is not a text, number"),
        ("jobs = true\n", "jobs takes a value, and is not a switch: True"),
        ('schedules = "many"\n', "'many' is not an integer like 64"),
        ("[tool.tilesim.check]\nschedules = 1.5\n", "'1.5' is not an integer like 64"),
    ],
)
def test_a_project_that_says_what_cannot_be(
    write: Write, tilesim_cli: Invoke, text: str, said: str
) -> None:
    write("k.py", kernels.GOOD)
    write("pyproject.toml", section(text))
    result = tilesim_cli("check", "k.py")
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


# ------------------------------------------------------------------ terminals, mistakes, shells


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, False),
     ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({"FORCE_COLOR": "1", "TERM": "dumb"}, True)],
)  # fmt: skip
def test_colour_can_be_forced(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], coloured: bool,
) -> None:  # fmt: skip
    name = write("k.py", kernels.BAD)
    for variable in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert ("\x1b[31m" in tilesim_cli("check", name).stdout) == coloured


def test_the_width_is_that_of_columns(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write("k.py", kernels.BAD)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    lines = tilesim_cli("check", name).stdout.splitlines()
    assert 50 < max(len(line) for line in lines if " | " not in line) <= 61  # not of the source


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("chek", "k.py"), "there is no command 'chek' (did you mean check"),
        (("check", "--formt", "json", "k.py"), "--format"),
        (("qqq",), "there is no command 'qqq' (see tilesim --help)"),
    ],
)
def test_mistyped_words_are_answered(tilesim_cli: Invoke, args: tuple[str, ...], said: str) -> None:
    result = tilesim_cli(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    shell = ShellComplete(main, {}, "tilesim", "_TILESIM_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_files_kernels_rules_and_commands(write: Write) -> None:
    write("k.py", PAIR + "\nraise SystemExit('this was run')\n")
    write("t.tile", TILE)
    write("x.ptx", ".visible .entry one(\n)\n{ }\n.entry two()\n")
    shell = ShellComplete(main, {}, "tilesim", "_TILESIM_COMPLETE")
    (item,) = shell.get_completions(["check"], "k")
    assert item.type == "file"
    assert completed("check", "k.py::") == ["k.py::gemm_good", "k.py::gemm_bad", "k.py::copy"]
    assert completed("run", "k.py::c") == ["k.py::copy"]
    assert completed("show", "t.tile::") == ["t.tile::t"]
    assert completed("trace", "x.ptx::t") == ["x.ptx::two"]
    assert completed("explain", "dead") == ["deadlock"]
    assert "check" in completed("ch")
    assert completed("check", "missing.py::") == []


def test_a_shell_completes_kernels_in_machine_code(write: Write) -> None:
    write("prog", "")
    ptx = b".version 9.0\n.target sm_90a\n.entry one() { ret; }\n.entry two() { ret; }\n"
    Path("prog").write_bytes(program((64, fatbin(entry(ptx)))))
    Path("cut").write_bytes(program((64, fatbin(entry(ptx))[:-8])))
    assert completed("check", "./prog::t") == ["./prog::two"]
    assert completed("check", "./cut::") == []
