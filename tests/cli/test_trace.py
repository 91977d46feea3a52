"""``tilesim trace``: the schedule of a witness, and a timeline for a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tilesim.report.timeline import LEGEND

from . import kernels
from .conftest import Invoke, Write


def test_the_schedule_of_a_witness_is_recorded(write: Write, tilesim_cli: Invoke) -> None:
    name = write("rare.py", kernels.RARE)
    assert tilesim_cli("check", name, "--witness-dir", "w").exit_code == 1
    (witness,) = map(str, Path("w").iterdir())
    timed = tilesim_cli("trace", name, "-o", "timed.json")
    failing = tilesim_cli("trace", name, "-o", "failing.json", "--replay", witness)
    assert (timed.exit_code, failing.exit_code) == (0, 1)
    assert "race: " in failing.stdout
    assert "race: " not in timed.stdout
    assert "one cycle is shown as one microsecond" in timed.stdout
    assert "one step is shown as one microsecond" in failing.stdout
    units = [json.loads(Path(f"{n}.json").read_text())["otherData"]["unit"]
             for n in ("timed", "failing")]  # fmt: skip
    assert units == ["cycle", "step"]


def test_a_trace_has_the_cause_that_a_check_has(write: Write, tilesim_cli: Invoke) -> None:
    name = write("bad.py", kernels.BAD)
    checked, traced = tilesim_cli("check", name), tilesim_cli("trace", name)
    said = [re.findall(r"^    (?:cause|culprit|fix) .*$", r.stdout, re.MULTILINE)
            for r in (checked, traced)]  # fmt: skip
    assert len(said[0]) == 3
    assert said[0] == said[1]


def test_a_witness_of_another_kernel_is_refused(write: Write, tilesim_cli: Invoke) -> None:
    tilesim_cli("check", write("rare.py", kernels.RARE), "--witness-dir", "w")
    (witness,) = map(str, Path("w").iterdir())
    result = tilesim_cli("trace", write("good.py", kernels.GOOD), "--replay", witness)
    assert result.exit_code == 2
    assert f"{witness}: the witness is one of kernel" in result.stderr


def test_a_timeline_in_the_terminal(write: Write, tilesim_cli: Invoke) -> None:
    good = tilesim_cli("trace", write("good.py", kernels.GOOD), "--text").stdout
    rows = {n: re.search(rf"^{n} warp \d +(.*)$", good, re.MULTILINE) for n in
            ("producer", "consumer")}  # fmt: skip
    for found in rows.values():
        assert found is not None
        assert set(found[1]) <= set("#.= ")
        assert "#" in found[1]
    assert LEGEND in good
    assert max(map(len, good.splitlines())) <= 100
    stuck = tilesim_cli("trace", write("bad.py", kernels.BAD), "--text").stdout
    (row,) = re.findall(r"^producer warp \d +(.*)$", stuck, re.MULTILINE)
    assert row.endswith("!")
    assert LEGEND not in tilesim_cli("trace", "good.py").stdout


def test_a_predicted_time_is_an_estimate(
    tilesim_cli: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = "tilesim.kernels.hopper.matmul_v3::matmul"
    plain = tilesim_cli("trace", target, "--format", "json")
    found = tilesim_cli("trace", target, "--predict")
    document = json.loads(tilesim_cli("trace", target, "--predict", "--format", "json").stdout)
    assert json.loads(plain.stdout)["prediction"] is None
    assert "an estimate from measured latencies, no part of any verdict" in found.stdout
    prediction = document["prediction"]
    assert prediction["low"] < prediction["microseconds"] < prediction["high"]
    assert prediction["gpu"] == "H200"
    assert "2026-11-22" in prediction["source"]
    refused = tilesim_cli("trace", "tilesim.kernels.blackwell.matmul_v0::matmul", "--predict")
    assert refused.exit_code == 2
    assert "not calibrated" in refused.stderr
