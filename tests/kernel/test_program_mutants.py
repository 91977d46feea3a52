"""What is changed in programs, and that a contradiction of check and kernel is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kernel import program_mutants
from tests.kernel.program_mutants import Judge, mutants
from tilesim.ir.text import parse

TILE = """tile 1

body {
    if %warp_id == 0 {
        mbarrier.init b[0], 1
    }
    barrier.sync 0
    st words[0], 1
}
"""
PTX = "mov.u32 %r1, 2; bar.sync 0;\n@%p1 bra L;\n@!%p2 mbarrier.arrive.b64 _, [%r1+8];\nL: ret;\n"
POLL = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra W;"


def test_changes_of_lines() -> None:
    found = {(m.change, m.statement) for m in mutants(TILE, program_mutants._LINE)}
    init, sync = "mbarrier.init b[0], 1", "barrier.sync 0"
    every = {(change, line) for line in (init, sync) for change in (
        "deleted", "twice", "only %lane_id == 1 nosync", "only %lane_id < 16 nosync",
        "only %warp_id == 1", "0 is 1", f"weaker: {line}, sem=relaxed",
        f"weaker: {line}, scope=cta",
    )}  # fmt: skip
    assert found == every | {
        ("1 is 2", init), ("1 is 0", init), ("swapped", sync), ("weaker: barrier.arrive 0", sync),
    }  # fmt: skip
    texts = {(m.change, m.statement): m.text for m in mutants(TILE, program_mutants._LINE)}
    assert "    st words[0], 1\n    barrier.sync 0\n}" in texts["swapped", sync]
    assert "    if %warp_id == 1 {\nbarrier.sync 0\n}\n" in texts["only %warp_id == 1", sync]


def test_changes_of_statements() -> None:
    found = {(m.change, m.text) for m in mutants(PTX, program_mutants._STATEMENT)}
    assert ("deleted", PTX.replace("bar.sync 0;", "")) in found
    assert ("swapped", PTX.replace("bar.sync 0;\n@%p1 bra L;", "@%p1 bra L;\nbar.sync 0;")) in found
    assert (
        "swapped",
        PTX.replace("mov.u32 %r1, 2; bar.sync 0;", "bar.sync 0; mov.u32 %r1, 2;"),
    ) in found
    assert ("twice", PTX.replace("bar.sync 0;", "bar.sync 0;\nbar.sync 0;")) in found
    assert ("only @!%p2", PTX.replace("bar.sync 0;", "@!%p2 bar.sync 0;")) in found
    assert ("without guard", PTX.replace("@!%p2 ", "")) in found
    assert ("8 is 9", PTX.replace("+8", "+9")) in found
    assert ("weaker: bar.arrive 0;", PTX.replace("bar.sync", "bar.arrive")) in found
    weaker = {m.text for m in mutants(POLL, program_mutants._STATEMENT)}
    assert POLL.replace("parity", "parity.relaxed.cta") in weaker
    passes = [m.text for m in mutants(POLL, program_mutants._STATEMENT) if m.change == "passes"]
    assert passes == ["W: setp.eq.u32 %p1, 0, 0; @!%p1 bra W;"]


HANDED_OVER = """tile 1

kernel k: target=sm_90a, warps=2
shared words: u32, {64}
var got: u32

body {
    st words[%thread_id], 1
    barrier.sync 0
    ld got, words[%thread_id ^ 32]
}
"""


def test_a_contradiction_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(tmp_path)
    judge.test = "t"
    judge.check(parse(HANDED_OVER))
    (file,) = tmp_path.iterdir()
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    assert ["failed", "refuted: uninitialised"] in [row["said"] for row in rows]
    assert not any("test" in row for row in rows)
    monkeypatch.setattr(program_mutants, "rechecked", lambda *_: {"ptx": "certified"})
    judge.check(parse(HANDED_OVER), strict="ptx")
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    assert [row["base"] for row in rows if row.get("change") == "deleted"] == [
        ["proved", "certified"]
    ]


def test_an_error_of_python_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(tmp_path)
    judge.test = "t"
    program, check = parse(HANDED_OVER), judge._check
    monkeypatch.setattr(judge, "_check", lambda p: check(p) if p is program else 1 // 0)
    judge.check(program)
    (file,) = tmp_path.iterdir()
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    assert {row["said"][0] for row in rows} == {"crash"}
    assert {row["base"][0] for row in rows} == {"proved"}
