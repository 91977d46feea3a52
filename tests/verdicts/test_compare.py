"""What is worse, better or changed between two rows, and that the command says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.verdicts import measure
from tests.verdicts.__main__ import main
from tests.verdicts.compare import Kind, differences
from tests.verdicts.files import by_key, keep, kept, read, text_of
from tests.verdicts.row import Found, Row, place
from tilesim.ir.loc import Loc

PROVED = Row("a", "practice", "proved", recheck="certified")
FAILED = Row(
    "a", "practice", "failed", findings=(Found("race", ("k.py: x",)),), recheck="refuted: H6"
)
UNCOVERED = replace(PROVED, recheck="not covered: data decides an address")


def with_rules(*rules: str) -> Row:
    return replace(FAILED, findings=tuple(Found(rule) for rule in rules))


def claim(verdict: str, *, values: str = "", leans: tuple[str, ...] = ()) -> Row:
    return Row("a", "practice", verdict, values, leans=leans)


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (PROVED, PROVED, []),
        (FAILED, FAILED, []),
        (claim("failed"), claim("proved"), ["worse"]),
        (claim("failed"), claim("exhausted"), ["worse"]),
        (claim("failed"), claim("bounded"), ["worse"]),
        (claim("failed"), claim("rejected"), ["changed"]),
        (claim("rejected"), claim("proved"), ["worse"]),
        (claim("proved"), claim("exhausted"), ["worse"]),
        (claim("proved"), claim("bounded"), ["worse"]),
        (claim("proved"), claim("failed"), ["worse"]),
        (claim("proved"), claim("crash: KeyError"), ["worse"]),
        (claim("crash: KeyError"), claim("failed"), ["better"]),
        (claim("bounded"), claim("failed"), ["changed"]),
        (claim("bounded"), claim("exhausted"), ["better"]),
        (claim("exhausted"), claim("proved"), ["better"]),
        (claim("unsupported"), claim("bounded"), ["better"]),
        (claim("bounded"), claim("unsupported"), ["worse"]),
        (claim("proved"), claim("proved", leans=("H23",)), ["worse"]),
        (claim("proved", leans=("H23",)), claim("proved"), ["better"]),
        (claim("proved", leans=("H23",)), claim("proved", leans=("U33",)), ["changed"]),
        (claim("proved", values="n in 1..8"), claim("proved", values="n in 1..4"), ["changed"]),
        (with_rules("race", "deadlock"), with_rules("race"), ["worse"]),
        (with_rules("race"), with_rules("race", "deadlock"), ["changed", "changed"]),
        (with_rules("race", "deadlock"), with_rules("deadlock", "race"), ["changed"]),
        (FAILED, replace(FAILED, findings=(Found("race", ("k.py: y",)),)), ["changed"]),
        (PROVED, UNCOVERED, ["worse"]),
        (PROVED, replace(PROVED, recheck="refuted: H6"), ["worse"]),
        (UNCOVERED, PROVED, ["better"]),
        (UNCOVERED, replace(PROVED, recheck="refuted: A"), ["worse"]),
        (FAILED, replace(FAILED, recheck="not covered: x"), ["changed"]),
        (FAILED, replace(FAILED, recheck="crash: KeyError"), ["worse"]),
    ],
)  # fmt: skip
def test_a_row_is_worse_better_or_changed(old: Row, new: Row, kinds: list[Kind]) -> None:
    assert [d.kind for d in differences(by_key([old]), by_key([new]))] == kinds


def test_a_wrong_program_that_is_certified_is_worse_whatever_was_said_before() -> None:
    certified = replace(FAILED, recheck="certified")
    found = differences(by_key([certified]), by_key([certified]))
    assert [str(d) for d in found] == [
        "worse: a at practice: failed, and the proof kernel certifies it"
    ]


def test_a_false_proof_comes_first() -> None:
    old = [FAILED, replace(PROVED, program="b"), replace(FAILED, program="c")]
    new = [
        replace(FAILED, verdict="bounded"),
        replace(PROVED, program="b", recheck="refuted: H6"),
        replace(FAILED, program="c", verdict="proved", findings=()),
    ]
    assert [d.row[0] for d in differences(by_key(old), by_key(new))] == ["c", "a", "b"]


def test_a_program_that_is_gone_is_worse_and_a_new_one_is_a_change() -> None:
    one, other = by_key([PROVED]), by_key([replace(PROVED, level="ptx")])
    assert [(d.kind, d.row[1]) for d in differences(one, other)] == [
        ("worse", "practice"),
        ("changed", "ptx"),
    ]


def test_a_file_holds_what_was_written() -> None:
    rows = by_key([
        FAILED,
        replace(PROVED, level="ptx", leans=("U33",), values="n in 1..4"),
        replace(PROVED, program="only ptx", level="ptx"),
        replace(FAILED, program="both"),
        replace(FAILED, program="both", level="ptx", recheck=""),
    ])  # fmt: skip
    text = text_of(rows.values())
    assert by_key(read(text)) == rows
    assert len(text.splitlines()) == 3
    assert '"ptx": {"recheck": null}' in text


def test_a_line_is_named_by_its_text_and_keeps_its_name_where_it_moves(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "k.py", tmp_path / "b" / "k.py"
    for file, text in ((one, "x = 1\ny = 2\nx = 1\n"), (other, "\nx = 1\n\n\ny = 2\nx = 1\n")):
        file.parent.mkdir()
        file.write_text(text)
    places = [place(Loc(str(one), n)) for n in (1, 2, 3)]
    assert places == ["k.py: x = 1", "k.py: y = 2", "k.py: x = 1 [2]"]
    assert places == [place(Loc(str(other), n)) for n in (2, 5, 6)]
    assert place(Loc("kernel.ptx", 7)) == "kernel.ptx:7"


def test_the_command_ends_with_1_where_a_verdict_is_worse(tmp_path: Path) -> None:
    run = CliRunner().invoke
    asked = ("--corpus", "litmus", "--only", "LA06", "--jobs", "1")
    written = run(main, ["write", *asked, "--to", str(tmp_path)])
    assert written.exit_code == 0, written.output
    same = run(main, ["compare", *asked, "--of", str(tmp_path)])
    assert (same.exit_code, "0 differences" in same.output) == (0, True), same.output
    row = kept("litmus", tmp_path)["LA06", "practice"]
    assert row.rules == {"over-arrival"}
    more = replace(row, findings=(*row.findings, Found("deadlock")))
    keep("litmus", {**kept("litmus", tmp_path), row.key: more}, tmp_path)
    worse = run(main, ["compare", *asked, "--of", str(tmp_path)])
    assert worse.exit_code == 1
    assert "worse: LA06 at practice: no finding of deadlock" in worse.output


def test_an_interrupt_keeps_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [replace(PROVED, program=fault) for fault in ("none", "exit-wait")]
    keep("consan", by_key(old), tmp_path)

    def interrupted(task: measure.Task) -> tuple[measure.Task, tuple[Row, ...]]:
        if task.program != "none":
            raise KeyboardInterrupt
        return task, (replace(PROVED, program="none", verdict="exhausted"),)

    monkeypatch.setattr(measure, "rows_of", interrupted)
    asked = ["--corpus", "consan", "--jobs", "1"]
    compared = CliRunner().invoke(main, ["compare", *asked, "--of", str(tmp_path)])
    assert compared.exit_code == 130
    assert "proved, now exhausted" in compared.output
    assert "exit-wait" not in compared.output
    assert CliRunner().invoke(main, ["write", *asked, "--to", str(tmp_path)]).exit_code == 130
    verdicts = {row.program: row.verdict for row in kept("consan", tmp_path).values()}
    assert verdicts == {"none": "exhausted", "exit-wait": "proved"}
