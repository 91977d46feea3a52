"""``tilesim check``: verdicts, exit codes, formats, witnesses, interrupts."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.ir.program import Program

from . import kernels
from .conftest import ROOT, Invoke, Spawn, Write

RESULT_KEYS = {
    "kernel", "target", "verdict", "covers", "conditional", "leanings", "reasons", "findings",
    "diagnostics", "error", "stats",
}  # fmt: skip
FINDING_KEYS = {
    "rule", "message", "cause", "culprits", "locations", "participants", "notes", "fix", "witness",
}  # fmt: skip


# ------------------------------------------------------------------ verdicts and exit codes


def test_proved_kernel_exits_0(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("good.py", kernels.GOOD))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("PROVED good.py::handshake\n")
    assert "covers    every schedule of the CTA; strictness practice" in result.stdout
    assert re.search(r"cost      \d+ warp instructions, 1 schedule, 1 CTA\n", result.stdout)


def test_failing_kernel_exits_1_and_names_both_sides(write: Write, tilesim_cli: Invoke) -> None:
    name = write("bad.py", kernels.BAD)
    result = tilesim_cli("check", name)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "FAILED bad.py::handshake  (deadlock)"
    for role, text in (
        ("producer", "k.mbarrier.wait(empty, (i & 1) ^ int(parity))"),
        ("consumer", "k.mbarrier.wait(full, i & 1)"),
    ):
        number = next(n for n, row in enumerate(kernels.BAD.splitlines(), 1) if text in row)
        assert any(f"{role} (warp" in line and "waits on" in line for line in lines), lines
        assert f"            bad.py:{number}" in lines
        assert f"              {number} | {text}" in lines
    for label in ("where", "why", "notes", "fix"):
        assert any(line.startswith(f"    {label:8}") for line in lines), label
    assert "  more      tilesim explain deadlock" in lines


def test_bounded_kernel_exits_3_or_0_if_accepted(write: Write, tilesim_cli: Invoke) -> None:
    name = write("open.py", kernels.OPEN)
    result = tilesim_cli("check", name, "--schedules", "4")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("BOUNDED open.py::unknown_count\n")
    assert "because" in result.stdout
    assert tilesim_cli("check", name, "--schedules", "4", "--accept", "bounded").exit_code == 0


def test_unsupported_kernel_exits_3(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("u.py", kernels.UNSUPPORTED), "--accept", "bounded")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("UNSUPPORTED u.py::swizzled  (unsupported)\n")


@pytest.mark.parametrize(
    ("files", "code"),
    [(("good", "bad"), 1), (("good", "open"), 3), (("open", "bad"), 1), (("missing", "bad"), 2)],
)
def test_worst_of_several_exit_codes(
    write: Write, tilesim_cli: Invoke, files: tuple[str, ...], code: int
) -> None:
    sources = {"good": kernels.GOOD, "bad": kernels.BAD, "open": kernels.OPEN}
    names = [write(f"{f}.py", sources[f]) if f in sources else f"{f}.py" for f in files]
    assert tilesim_cli("check", *names, "--schedules", "2").exit_code == code


def test_a_bad_target_does_not_hide_the_others(write: Write, tilesim_cli: Invoke) -> None:
    write("good.py", kernels.GOOD)
    write("bad.py", kernels.BAD)
    result = tilesim_cli("check", "missing.py", "good.py", "bad.py")
    assert result.exit_code == 2
    heads = re.findall(r"^([A-Z]{2,}) (\S+)", result.stdout, re.MULTILINE)
    assert heads == [
        ("ERROR", "missing.py"), ("PROVED", "good.py::handshake"), ("FAILED", "bad.py::handshake"),
    ]  # fmt: skip
    assert result.stdout.endswith("\n3 kernels: 1 proved, 1 failed, 1 error\n")


def test_strictness_is_passed_on(tilesim_cli: Invoke) -> None:
    target = (
        "tilesim.kernels.nvfuser.printed::printed"
        "[open_twice=0,leaf_predicate=0,dead_role=0,early_inval=0]"
    )
    assert tilesim_cli("check", target).exit_code == 0
    result = tilesim_cli("check", target, "--strict", "ptx")
    assert result.exit_code == 1
    assert "(proxy-fence)" in result.stdout.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x.py", "--schedules", "-1"],
        ["x.py", "--schedules", "1000001"],
        ["x.py", "--budget", "-1"],
        ["x.py", "--seed", "-1"],
        ["x.py", "--seed", str(1 << 63)],
        ["x.py", "--strict", "lax"],
        ["x.py", "--format", "yaml"],
        ["x.py", "--accept", "failed"],
        ["x.py", "--param", "stages"],
        ["x.py", "--param", "a=1", "--param", "a=2"],
        ["x.py", "--nonsense"],
    ],
)
def test_bad_options_exit_2(tilesim_cli: Invoke, arguments: list[str]) -> None:
    result = tilesim_cli("check", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(" (see tilesim check --help)\n")
    assert result.stdout == ""


# ------------------------------------------------------------------ folding


def test_a_finding_of_several_ctas_is_printed_once(write: Write, tilesim_cli: Invoke) -> None:
    name = write("stuck.py", kernels.FOUR_CTAS)
    result = tilesim_cli("check", name)
    assert result.exit_code == 1
    assert result.stdout.count("  deadlock: ") == 1
    assert "also in CTA 1-3" in result.stdout
    document = json.loads(tilesim_cli("check", name, "--format", "json").stdout)
    assert len(document["results"][0]["findings"]) == 4


# ------------------------------------------------------------------ JSON


def test_json_of_every_kind_of_result_has_the_same_keys(write: Write, tilesim_cli: Invoke) -> None:
    write("bad.py", kernels.BAD)
    write("box.py", kernels.rejected("k.tensor_map(k.tensor('A', ts.bf16, (512, 64)), (300, 64))"))
    result = tilesim_cli("check", "bad.py", "box.py", "missing.py", "--format", "json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert set(document) == {"schema", "results"}
    assert document["schema"] == 1
    failed, rejected, error = document["results"]
    assert all(set(entry) == RESULT_KEYS for entry in document["results"])

    assert (failed["kernel"], failed["target"]) == ("bad.py::handshake", "sm_90a")
    assert failed["verdict"] == "failed"
    assert set(failed["stats"]) == {"instructions", "schedules", "ctas"}
    (finding,) = failed["findings"]
    assert set(finding) == FINDING_KEYS
    assert finding["rule"] == "deadlock"
    assert {loc["file"] for loc in finding["locations"]} == {"bad.py"}
    keys = {"role", "cta", "warp", "action", "instruction", "file", "line", "iterations"}
    assert set(finding["participants"][0]) == keys
    assert {p["role"] for p in finding["participants"]} == {"producer", "consumer"}
    assert finding["witness"]["schema"] == 2

    assert (rejected["verdict"], rejected["findings"]) == ("rejected", [])
    (diagnostic,) = rejected["diagnostics"]
    assert set(diagnostic) == {"rule", "message", "locations", "fix"}
    assert diagnostic["locations"] == [{"file": "box.py", "line": 6}]

    assert error["verdict"] == "error"
    assert error["error"] == "missing.py: no such file"


def test_output_goes_to_a_file(write: Write, tilesim_cli: Invoke, tmp_path: Path) -> None:
    name = write("good.py", kernels.GOOD)
    result = tilesim_cli("check", name, "--format", "json", "-o", "out/report.json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads((tmp_path / "out/report.json").read_text())["schema"] == 1
    assert tilesim_cli("check", name, "-o", "report.txt").exit_code == 0
    assert (tmp_path / "report.txt").read_text().startswith("PROVED good.py::handshake\n")


def test_output_that_cannot_be_written_exits_2(write: Write, tilesim_cli: Invoke) -> None:
    name = write("good.py", kernels.GOOD)
    result = tilesim_cli("check", name, "-o", f"{name}/report.txt")
    assert result.exit_code == 2
    assert "cannot write good.py/report.txt" in result.stderr


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_the_same_command_gives_the_same_bytes(
    write: Write, spawn: Spawn, output_format: str
) -> None:
    for name in ("bad", "rare", "open"):
        write(f"{name}.py", getattr(kernels, name.upper()))
    arguments = ("check", "bad.py", "rare.py", "open.py", "--format", output_format)
    first, second = spawn(*arguments), spawn(*arguments)
    assert first.returncode == second.returncode == 1
    assert first.stdout == second.stdout
    assert first.stdout


def test_what_a_kernel_file_prints_stays_out_of_the_report(
    write: Write, tilesim_cli: Invoke
) -> None:
    name = write("loud.py", "print('hello')\n" + kernels.GOOD)
    result = tilesim_cli("check", name, "--format", "json")
    assert json.loads(result.stdout)["schema"] == 1
    assert "hello" in result.stderr


# ------------------------------------------------------------------ witnesses


def test_witness_is_written_and_replays(write: Write, tilesim_cli: Invoke, tmp_path: Path) -> None:
    name = write("rare.py", kernels.RARE)
    result = tilesim_cli("check", name, "--witness-dir", "w")
    assert result.exit_code == 1, result.output
    (witness,) = (tmp_path / "w").iterdir()
    assert witness.name == "rare.py_rare.json"
    line = next(row for row in result.stdout.splitlines() if row.startswith("  replay "))
    command = shlex.split(line)[1:]
    assert command[:2] == ["tilesim", "check"]
    again = tilesim_cli(*command[1:])
    assert again.exit_code == 1, again.output
    assert "race" in again.stdout.splitlines()[0]
    assert "covers    the schedule of w/rare.py_rare.json" in again.stdout


def test_witness_of_a_repaired_kernel_is_one_of_another_program(
    write: Write, tilesim_cli: Invoke
) -> None:
    tilesim_cli("check", write("bad.py", kernels.BAD), "--witness-dir", "w")
    write("bad.py", kernels.GOOD)
    result = tilesim_cli("check", "bad.py", "--replay", "w/bad.py_handshake.json")
    assert result.exit_code == 2
    text = re.sub(r"\s+", " ", result.output)
    assert "was recorded on another program than this handshake" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "a tilesim witness of version 1 of the format"),
        ({"kernel": "other"}, "the witness is one of kernel other, not of handshake"),
        ({"choices": {"0": [-1]}}, "is not a list of non-negative integers"),
        ({"clusters": [7]}, "clusters the kernel does not have"),
    ],
)
def test_malformed_witness_exits_2(
    write: Write, tilesim_cli: Invoke, change: dict[str, Any], message: str
) -> None:
    tilesim_cli("check", write("bad.py", kernels.BAD), "--witness-dir", "w")
    path = Path("w/bad.py_handshake.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    result = tilesim_cli("check", "bad.py", "--replay", str(path))
    assert result.exit_code == 2
    assert f"{path}: " in result.output
    assert message in re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_file_that_is_no_witness_exits_2(write: Write, tilesim_cli: Invoke, text: str) -> None:
    write("w.json", text)
    result = tilesim_cli("check", write("good.py", kernels.GOOD), "--replay", "w.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "w.json: " in result.stderr


def test_missing_witness_exits_2(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", "x.py", "--replay", "nowhere.json")
    assert result.exit_code == 2
    assert "cannot read nowhere.json" in result.stderr


# ------------------------------------------------------------------ interrupts, pipes, bugs


def test_interrupt_reports_what_was_found(write: Write, spawn: Spawn) -> None:
    result = spawn("check", write("long.py", kernels.INTERRUPTING), "missing.py")
    assert result.returncode == 130
    assert result.stdout.startswith("PROVED long.py::first\n")
    assert result.stderr == ("interrupted while checking long.py::second; 2 kernels not started\n")


def test_interrupt_in_json(write: Write, spawn: Spawn) -> None:
    result = spawn("check", write("long.py", kernels.INTERRUPTING), "--format", "json")
    assert result.returncode == 130
    document = json.loads(result.stdout)
    assert [entry["verdict"] for entry in document["results"]] == ["proved"]
    assert document["interrupted"] == {"kernel": "long.py::second", "not_started": 1}


def interrupted(*args: object, **kwargs: object) -> Report:
    """What `tilesim.checker.check` returns when Ctrl-C hits it while it explores."""
    return Report("k", "bounded", "3 schedules", reasons=("interrupted by the user",))


def test_interrupt_while_exploring_keeps_the_partial_verdict(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilesim.cli.examine.check", interrupted)
    result = tilesim_cli("check", write("open.py", kernels.OPEN), write("good.py", kernels.GOOD))
    assert result.exit_code == 130
    assert result.stdout.startswith("BOUNDED open.py::unknown_count\n")
    assert "because   interrupted by the user" in result.stdout
    assert "interrupted while checking open.py::unknown_count; 1 kernel not started" in (
        result.stderr
    )


def test_closed_pipe_ends_quietly(write: Write) -> None:
    """The reader takes one byte of what a small pipe does not hold at once, and leaves."""
    name = write("good.py", kernels.GOOD)
    ours, theirs = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        [sys.executable, "-m", "tilesim", "check", *[name] * 300], stdout=theirs,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        os.close(theirs)
        assert os.read(ours, 1) == b"P"
        os.close(ours)
        _, errors = process.communicate()
    assert errors == ""
    assert process.returncode == 141


def test_internal_error_asks_for_a_report_and_does_not_hide_the_others(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Report] = sys.modules["tilesim.checker"].check

    def fragile(program: Program, **options: Any) -> Report:
        if program.name == "rare":
            raise RuntimeError("unexpected state")
        return real(program, **options)

    monkeypatch.setattr("tilesim.cli.examine.check", fragile)
    names = [write("rare.py", kernels.RARE), write("good.py", kernels.GOOD)]
    result = tilesim_cli("check", *names)
    assert result.exit_code == 70
    assert "internal error: RuntimeError: unexpected state" in result.stdout
    assert "please report it" in result.stdout
    assert "PROVED good.py::handshake" in result.stdout
    assert "Traceback" not in result.output
    assert "Traceback" in tilesim_cli("--debug", "check", *names).stderr


def test_internal_error_outside_a_check(
    tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("unexpected state")

    monkeypatch.setattr("tilesim.report.rules.listing", broken)
    result = tilesim_cli("explain")
    assert result.exit_code == 70
    assert "internal error: RuntimeError: unexpected state" in result.stderr
    assert "please report it" in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in tilesim_cli("--debug", "explain").stderr


#: proved at ``practice`` only: two aligned barriers of one round
LEANING = (
    kernels.HEAD
    + """
@ts.kernel(warps=2)
def two_sites(k):
    with k.role("first", 0):
        k.bar.sync(1, 64)
    with k.role("second", 1):
        k.bar.sync(1, 64)
"""
)


def test_a_conditional_proof_says_so_in_every_line_and_can_be_denied(
    write: Write, tilesim_cli: Invoke
) -> None:
    names = [write("leaning.py", LEANING), write("good.py", kernels.GOOD)]
    result = tilesim_cli("check", *names)
    assert result.exit_code == 0
    assert "PROVED leaning.py::two_sites  (leaning on U16)\n" in result.stdout
    assert "\n  warning   U16: an .aligned instruction" in result.stdout
    assert "leaning.py:8\n" in result.stdout
    assert "proved  leaning.py::two_sites  leaning on U16; " in result.stdout
    assert result.stdout.endswith("2 kernels: 2 proved (1 conditionally)\n")
    assert "PROVED good.py::handshake\n" in result.stdout

    denied = tilesim_cli("check", *names, "--deny", "U4,U16")
    assert denied.exit_code == 1
    assert "DENIED leaning.py::two_sites  (leaning on U16)" in denied.stdout
    assert "\n  denied    U16: an .aligned" in denied.stdout
    assert denied.stdout.endswith("2 kernels: 1 proved, 1 denied\n")
    assert tilesim_cli("check", *names, "--deny", "U4").exit_code == 0
    assert tilesim_cli("check", "good.py", "--deny", "any").exit_code == 0
    unknown = tilesim_cli("check", *names, "--deny", "U61")
    assert unknown.exit_code == 2
    assert "'U61' is not an assumption of a verdict" in unknown.stderr


def test_conditional_proofs_in_formats_for_ci(write: Write, tilesim_cli: Invoke) -> None:
    name = write("leaning.py", LEANING)
    github = tilesim_cli("check", name, "--format", "github").stdout
    assert github.startswith("::notice file=leaning.py,line=")
    assert github.endswith("leaning.py::two_sites: proved, leaning on U16\n")
    assert tilesim_cli("check", name, "--format", "github", "--deny", "any").stdout.startswith(
        "::error file=leaning.py,line="
    )
    (entry,) = json.loads(tilesim_cli("check", name, "--format", "json").stdout)["results"]
    assert entry["conditional"] is True
    *model, leaning = entry["leanings"]
    assert [(one["name"], one["kind"]) for one in model] == [
        ("program-order", "model"), ("machine-code", "model"),
    ]  # fmt: skip
    assert (leaning["name"], leaning["kind"], leaning["denied"]) == ("U16", "practice", False)
    assert [place["line"] for place in leaning["locations"]] == [10, 8]
    (run,) = json.loads(tilesim_cli("check", name, "--format", "sarif").stdout)["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("U16", "note")
    junit = tilesim_cli("check", name, "--format", "junit").stdout
    assert "proved, leaning on U16: every schedule" in junit
    assert (
        '<failure message="DENIED'
        in tilesim_cli("check", name, "--format", "junit", "--deny", "any").stdout
    )


def test_a_long_report_is_cut_to_a_screen(tilesim_cli: Invoke) -> None:
    long = "tilesim.kernels.bugs.shared_barriers::too_few_stages"
    brief = tilesim_cli("check", long).stdout.splitlines()
    whole = tilesim_cli("check", long, "--verbose").stdout.splitlines()
    assert len(brief) <= 48 < len(whole)
    assert brief[-1].startswith(f"  ...       a report of {len(whole)} lines")
    assert brief[:12] == whole[:12]
    assert "--verbose" not in whole[-1]
