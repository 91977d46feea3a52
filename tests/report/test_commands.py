"""``tilesim trace``, the report options of ``tilesim check``, and what CI systems are offered."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree as Xml

import pytest
from click.testing import CliRunner, Result

from tests.cli.test_folder import ARRIVE
from tests.cli.test_ptx import LAUNCH, PTX
from tilesim.cli import main
from tilesim.cli.check import command as check_command
from tilesim.report.ci import FORMATS

from .programs import ROOT, file, pair

Invoke = Callable[..., Result]

KERNEL = file(pair)


@pytest.fixture
def tilesim_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command line in a folder with pair.py."""
    monkeypatch.chdir(tmp_path)
    Path("pair.py").write_text(KERNEL)

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, args)

    return invoke


def test_trace_writes_a_timeline(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("trace", "pair.py", "-o", "out/pair.json")
    assert result.exit_code == 0, result.output
    assert re.match(r"wrote out/pair.json: \d+ cycles, 1 CTA, \d+ slices\n", result.stdout)
    assert "https://ui.perfetto.dev" in result.stdout
    first = Path("out/pair.json").read_bytes()
    names = {e["args"]["name"] for e in json.loads(first)["traceEvents"]
             if e["name"] == "thread_name"}  # fmt: skip
    assert names == {"producer warp 0", "consumer warp 1"}
    tilesim_cli("trace", "pair.py", "-o", "out/pair.json")
    assert Path("out/pair.json").read_bytes() == first


def test_trace_of_a_kernel_that_hangs_shows_it(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("trace", "pair.py", "--param", "parity=0")
    assert result.exit_code == 1
    assert "deadlock: all 2 live warps wait for each other" in result.stdout
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    stuck = [e for e in events if e.get("args", {}).get("ends") == "never"]
    assert {e["name"] for e in stuck} == {"waits on empty[0] parity 0", "waits on full[0] parity 0"}


def test_trace_is_bounded_and_says_so(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("trace", "pair.py", "--limit", "5")
    assert result.exit_code == 0
    assert "the limit was reached" in result.stdout


def test_trace_wants_one_kernel(tilesim_cli: Invoke) -> None:
    Path("two.py").write_text(KERNEL + KERNEL.split("\n\n\n")[1].replace("pair", "other"))
    result = tilesim_cli("trace", "two.py")
    assert result.exit_code == 2
    assert "two.py has 2 kernels; name one of two.py::pair, two.py::other" in result.stderr


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_check(tilesim_cli: Invoke, name: str) -> None:
    result = tilesim_cli("check", "pair.py::pair[parity=0]", "--format", name)
    assert result.exit_code == 1
    match name:
        case "sarif":
            assert json.loads(result.stdout)["runs"][0]["results"][0]["ruleId"] == "deadlock"
        case "junit":
            assert Xml.fromstring(result.stdout.encode()).attrib["failures"] == "1"
        case _:
            assert result.stdout.startswith("::error file=pair.py,line=14,title=deadlock%3A")


def test_one_check_writes_several_reports(tilesim_cli: Invoke) -> None:
    files = ["--html", "o/r.html", "--sarif", "o/r.sarif", "--junit", "o/r.xml"]
    result = tilesim_cli("check", "pair.py", "--param", "parity=0", *files)
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED pair.py::pair")
    assert "What waits for what" in Path("o/r.html").read_text()
    assert json.loads(Path("o/r.sarif").read_text())["version"] == "2.1.0"
    assert Xml.parse("o/r.xml").getroot().attrib["tests"] == "1"


def test_a_proved_kernel_has_what_is_covered_and_a_folded_diagram(
    tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule of a proof is not run again for a picture."""
    monkeypatch.setattr("tilesim.cli.examine.retrace", None)
    assert tilesim_cli("check", "pair.py", "--html", "page.html").exit_code == 0
    text = Path("page.html").read_text()
    assert "every schedule of the CTA" in text
    assert "<details><summary>Barriers: arrivals and waits" in text
    assert text.count("<svg") == 1
    assert "Timeline" not in text


def test_a_long_run_is_not_run_again_for_pictures(
    tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a schedule that the report tells is."""
    monkeypatch.setattr("tilesim.cli.examine.DRAWN", 1)
    assert tilesim_cli("check", "pair.py", "--param", "parity=0", "--html", "p.html").exit_code == 1
    text = Path("p.html").read_text()
    assert '<span class="hit"' in text
    assert "The run is too long to be drawn here" in text
    assert "How it gets there" not in text


def test_replay_can_be_shown_as_html(tilesim_cli: Invoke) -> None:
    tilesim_cli("check", "pair.py", "--param", "parity=0", "--witness-dir", "w")
    (witness,) = Path("w").iterdir()
    result = tilesim_cli("check", "pair.py", "--param", "parity=0", "--replay", str(witness),
                         "--html", "r.html")  # fmt: skip
    assert result.exit_code == 1
    assert "How it gets there" in Path("r.html").read_text()


# ------------------------------------------------------------------ action and hook


def test_the_action_uses_options_that_exist() -> None:
    script = (ROOT / "action.yml").read_text()
    line = next(row for row in script.splitlines() if "tilesim check --format" in row)
    known = {option for p in check_command.params for option in p.opts}
    used = set(re.findall(r"(?<![\w-])--[a-z]+", script.split("runs:")[1])) - {"--quiet"}
    assert {"--format", "--html", "--sarif"} <= used <= known
    assert "--format github" in line


def test_the_action_passes_inputs_through_the_environment() -> None:
    script = (ROOT / "action.yml").read_text().split("runs:")[1]
    commands = re.findall(r"run: (?:\|\n((?:        .*\n)+)|(.*))", script)
    assert len(commands) == 2
    for block in commands:
        assert "${{" not in "".join(block), "an input must not become part of a command"


@pytest.mark.parametrize(
    ("targets", "arguments", "code"),
    [
        ("p*r.py", "--param parity=1", 0), ("p*r.py", "--param parity=0", 1),
        ("p*r.py\n", "--param\nparity=0\n--source-root\nmy kernels\n", 1),
        ("my kernels/p*.py\npair.py\n", "--param parity=1", 0), ("my kernels/pair.py\n", "", 0),
    ],
)  # fmt: skip
def test_the_script_of_the_action_runs(
    tilesim_cli: Invoke, tmp_path: Path, targets: str, arguments: str, code: int
) -> None:
    script = re.findall(r"run: \|\n((?:        .*\n)+)", (ROOT / "action.yml").read_text())[0]
    shim = tmp_path / "tilesim"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tilesim "$@"\n')
    shim.chmod(0o755)
    Path("my kernels").mkdir()
    shutil.copy("pair.py", "my kernels")
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TARGETS": targets,
        "ARGUMENTS": arguments, "SARIF": "t t.sarif", "HTML": "", "GITHUB_OUTPUT": "outputs",
        "GITHUB_STEP_SUMMARY": "summary.md",
    }  # fmt: skip
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", dedent(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert Path("outputs").read_text() == f"exit-code={code}\n"
    assert len(json.loads(Path("t t.sarif").read_text())["runs"][0]["results"]) == code
    assert done.stdout.count("::error") == code
    summary = Path("summary.md").read_text()
    assert ("| `my kernels/pair.py::pair" in summary) == ("my kernels/" in targets)
    assert ("| `pair.py::pair" in summary) == (targets != "my kernels/pair.py\n")


def test_the_action_pins_what_it_uses() -> None:
    used = re.findall(r"uses: (\S+)(.*)", (ROOT / "action.yml").read_text())
    assert len(used) == 4
    for action, version in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", version)


def test_the_hook_passes_over_files_without_kernels(tilesim_cli: Invoke) -> None:
    Path("empty.py").write_text("x = 1\n")
    assert tilesim_cli("check", "empty.py").exit_code == 2
    alone = tilesim_cli("check", "empty.py", "--skip-empty")
    assert (alone.exit_code, alone.output) == (0, "")
    both = tilesim_cli("check", "--skip-empty", "empty.py", "pair.py")
    assert both.exit_code == 0
    assert both.stdout.startswith("PROVED pair.py::pair")
    assert tilesim_cli("check", "--skip-empty", "pair.py::nothing").exit_code == 2


def test_the_action_installs_the_version_that_it_is_of(tmp_path: Path) -> None:
    text = (ROOT / "action.yml").read_text()
    (script,) = re.findall(r"run: (python -m pip install .*)", text)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nfor argument; do echo "$argument"; done\n')
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_ACTION_PATH": str(ROOT)}
    for package, installed in (("", str(ROOT)), ("tilesim[triton] @ .", "tilesim[triton] @ .")):
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            env={**env, "PACKAGE": package}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split("\n")[:-1] == ["-m", "pip", "install", "--quiet", installed]
    assert (ROOT / "pyproject.toml").is_file()


def test_the_hook_gates_python_and_program_files(tilesim_cli: Invoke, tmp_path: Path) -> None:
    """As pre-commit runs it: the entry, then the files of the commit that fit."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    fields = dict(re.findall(r"^[- ] (\w+): (.*)$", text, re.MULTILINE))
    assert (fields["id"], fields["language"], fields["types"]) == (
        "tilesim-check", "python", "[text]",
    )  # fmt: skip
    program, *arguments = fields["entry"].split()
    assert program == "tilesim"
    Path("kernels").mkdir()
    shutil.copy("pair.py", "kernels/pair.py")
    Path("kernels/empty.py").write_text("x = 1\n")
    Path("kernels/notes.md").write_text("# notes\n")
    for name, parity in (("right", 1), ("wrong", 0)):
        shown = tilesim_cli("show", "pair.py", "--param", f"parity={parity}")
        Path(f"{name}.tile").write_text(shown.stdout)
        listed = tilesim_cli("show", "--mir", f"{name}.tile")
        Path(f"{name}.mir").write_text(listed.stdout)
    for name, arrive in (("right", ARRIVE), ("wrong", "")):
        Path(f"{name}.ptx").write_text(PTX.replace("ARRIVE", arrive))
        Path(f"{name}.json").write_text(json.dumps(LAUNCH))
    right = ["kernels/pair.py", "kernels/empty.py", "right.tile", "right.mir", "right.ptx"]
    touched = [*right, "kernels/notes.md", "pair.py", "right.json"]
    fitting = [name for name in touched if re.search(fields["files"], name)]
    assert fitting == right
    assert tilesim_cli(*arguments, *fitting).exit_code == 0
    for wrong, kernel in (("wrong.tile", "pair"), ("wrong.mir", "pair"), ("wrong.ptx", "k")):
        assert re.search(fields["files"], wrong)
        failed = tilesim_cli(*arguments, *fitting, wrong)
        assert failed.exit_code == 1
        assert f"FAILED {wrong}::{kernel}" in failed.output
