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
POLL = "W: mbarrier.try_wait.parity.b64 %p1, [%r1], 0; @!%p1 bra W;"


def test_changes_of_lines() -> None:
    found = {(m.change, m.statement) for m in mutants(TILE, program_mutants._LINE)}
    init, sync = "mbarrier.init b[0], 1", "barrier.sync 0"
    assert found == {
        ("deleted", init), ("0 is 1", init), ("1 is 2", init), ("1 is 0", init),
        ("deleted", sync), ("swapped", sync), ("0 is 1", sync),
    }  # fmt: skip
    (swapped,) = [m.text for m in mutants(TILE, program_mutants._LINE) if m.change == "swapped"]
    assert "    st words[0], 1\n    barrier.sync 0\n}" in swapped


def test_changes_of_statements() -> None:
    found = {(m.change, m.text) for m in mutants(PTX, program_mutants._STATEMENT)}
    assert ("deleted", PTX.replace("bar.sync 0;", "")) in found
    assert ("swapped", PTX.replace("bar.sync 0;\n@%p1 bra L;", "@%p1 bra L;\nbar.sync 0;")) in found
    assert ("without guard", PTX.replace("@!%p2 ", "")) in found
    assert ("8 is 9", PTX.replace("+8", "+9")) in found
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
