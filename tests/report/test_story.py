"""Stories: the failing schedule as columns."""

from __future__ import annotations

import pytest

from tilesim.layout import PLAIN, Style
from tilesim.report.story import barriers_of, lines, of_result, tell
from tilesim.report.text import result_text

from .programs import checked, line

WRITER, READER = 'k.role("writer"', 'k.role("reader"'


def test_a_race_is_told_up_to_the_second_access() -> None:
    told = of_result(checked("rare"))
    assert told is not None
    finding, story = told
    assert finding.rule == "race"
    assert story.columns == ("writer", "reader", "helper")
    fatal = [(story.columns[r.column], r.text, r.loc.line) for r in story.rows if r.fatal]
    assert fatal == [
        ("reader", "executes ld", line("k.mem.load", READER)),
        ("writer", "executes st", line("k.mem.store", WRITER)),
    ]
    assert story.rows[-1].fatal
    assert [r.time for r in story.rows] == sorted(r.time for r in story.rows)


def test_the_story_shows_why_the_reader_went_first() -> None:
    told = of_result(checked("rare"))
    assert told is not None
    story = told[1]
    before = [(story.columns[r.column], r.text) for r in story.rows if not r.fatal]
    assert before[-4:] == [
        ("helper", "arrives on b[0] (2 left), phase 0"),
        ("helper", "arrives on b[0] (1 left), phase 0"),
        ("reader", "arrives on b[0] (0 left), phase 0"),
        ("reader", "passes b[0] phase 0"),
    ]


def test_a_deadlock_ends_with_the_waits_of_all_warps_of_a_role_in_one_row() -> None:
    told = of_result(checked("pipeline", parity=0))
    assert told is not None
    story = told[1]
    last = {story.columns[r.column]: r for r in story.rows if r.fatal}
    assert last["consumer"].text == "waits on full[0] parity 0, for ever"
    assert last["consumer"].label == "warps 0-3"
    assert last["producer"].text == "waits on empty[0] parity 0, for ever"
    assert last["producer"].label == ""


def test_only_barriers_of_the_finding_are_told() -> None:
    result = checked("pipeline", parity=0)
    assert result.recording is not None
    (timeline,) = result.recording.timelines
    finding = result.report.findings[0]
    assert barriers_of(timeline, finding) == {"full[0]", "empty[0]"}
    texts = [r.text for r in tell(timeline, finding).rows]
    assert not any("[1]" in text or "named barrier" in text for text in texts)


def test_nothing_is_told_of_a_kernel_that_works() -> None:
    assert of_result(checked("pipeline")) is None
    assert "schedule " not in result_text(checked("pipeline")).split("cost")[0].split("covers")[0]


def test_rows_are_limited_from_the_front() -> None:
    result = checked("rare")
    assert result.recording is not None
    whole = tell(result.recording.timelines[0], result.report.findings[0])
    short = tell(result.recording.timelines[0], result.report.findings[0], rows=3)
    assert short.rows == whole.rows[-3:]
    assert short.skipped == len(whole.rows) - 3
    assert next(lines(short, 90)) == f"... {short.skipped} earlier steps"


@pytest.mark.parametrize("width", [50, 70, 90, 100, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    told = of_result(checked("rare"))
    assert told is not None
    rows = list(lines(told[1], width))
    assert max(map(len, rows)) <= width
    assert any("executes ld" in row for row in rows)
    assert any(" | " in row for row in rows) == (width >= 90)


def test_the_text_report_tells_special_schedules_only() -> None:
    special = result_text(checked("rare"), PLAIN)
    assert "\n  schedule  how it gets to the race, step by step; > is what is reported" in special
    assert "> executes st" in special
    assert "how it gets to" not in result_text(checked("pipeline", parity=0), PLAIN)
    narrow = result_text(checked("rare"), Style(width=60))
    assert "writer: > executes st" in narrow
