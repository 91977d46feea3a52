"""Of which values of a parameter a verdict is: in the first words of every report."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import tilesim as ts
from tests.report import for_values
from tests.report.for_values import drawn, ring
from tilesim.cli import main
from tilesim.dsl.kernel import Kernel

FILE = for_values.__file__
FAILS = "PROVED {} for n in 1..612; FAILED for n = 613: deadlock"


def said(target: str, *options: str, values: str = "n=1..100000") -> tuple[int, str]:
    """The exit code and the output of a check."""
    place = f"{FILE}::{target.partition(' ')[0]}"
    given = [word for p in target.split()[1:] for word in ("--param", p)]
    result = CliRunner().invoke(main, ["check", place, *given, "--for-all", values, *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("target", "values", "code", "head"),
    [
        ("ring", "n", 0, "PROVED {} for n in 1..2147483644"),
        ("ring", "n=1..100000", 0, "PROVED {} for every n in 1..100000"),
        ("ring", "n=2..100000:2", 0, "PROVED {} for every n in 2..100000 in steps of 2"),
        ("ring wrong=613", "n=1..100000", 1, FAILS),
        ("ring wrong=613", "n", 1, FAILS),
        ("ring wrong=613", "n=1..612", 0, "PROVED {} for every n in 1..612"),
        ("ring wrong=613", "n=613..700", 1, "FAILED {} for n = 613: deadlock"),
        (
            "ring wrong=613", "n=600..620:13", 1,
            "PROVED {} for n = 600; FAILED for n = 613: deadlock",
        ),
        ("ring wrong=40", "n", 1, "FAILED {} for n = 40: deadlock"),
        ("ring listed=true", "n", 3, "PROVED {} for n = 40; not shown for every n >= 1"),
        # what a run does not decide is checked by itself
        ("drawn", "n=1..100000", 1, FAILS),
        ("drawn harmless=true at=61", "n=1..100000", 0, "PROVED {} for every n in 1..100000"),
        (
            "drawn harmless=true at=40", "n", 3,
            "EXHAUSTED {} for n = 40; not shown for every n >= 1",
        ),
    ],
)  # fmt: skip
def test_the_first_line_says_of_which_values(
    target: str, values: str, code: int, head: str
) -> None:
    found, text = said(target, values=values)
    assert found == code, text
    words = text.splitlines()[0].split(" for ", 1)
    name = words[0].partition(" ")[2]
    assert f"{words[0]} for {words[1]}" == head.format(name)


@pytest.mark.parametrize(
    ("kernel", "params", "at"),
    [(ring, {"wrong": 613}, 613), (drawn, {}, 613), (drawn, {"unknown": True, "at": 61}, 61)],
)
def test_the_report_of_a_value_that_is_not_right(
    kernel: Kernel, params: dict[str, int], at: int
) -> None:
    values = {"n": "1..100000"}
    report = ts.check(kernel, params=params, for_all=values, schedules=2, budget=2_000)
    claim = report.for_all
    assert claim is not None
    assert claim.at == at
    assert not claim.proved
    assert not report.is_whole
    assert report.overall == ("bounded" if "unknown" in params else "failed")
    if "unknown" in params:
        assert report.said == "proved for n in 1..60; bounded for n = 61"
    if report.verdict == "failed":
        assert report.rules == {"deadlock"}
        for loc in (p.loc for p in report.findings[0].participants):
            assert "k.mbarrier.wait(" in Path(loc.file).read_text().splitlines()[loc.line - 1]
        assert report.said == "proved for n in 1..612; failed for n = 613: deadlock"


def test_all_formats_say_it(tmp_path: Path) -> None:
    wanted, values = "proved for n = 600; failed for n = 613: deadlock", "n=600..620:13"
    (entry,) = json.loads(said("ring wrong=613", "--format", "json", values=values)[1])["results"]
    assert entry["verdict"] == "failed"
    assert entry["for_all"]["said"] == [
        {"verdict": "proved", "values": "n = 600"},
        {"verdict": "failed", "values": "n = 613: deadlock"},
    ]
    for form in ("junit", "sarif", "github"):
        code, text = said("ring wrong=613", "--format", form, values=values)
        assert code == 1
        assert wanted in text or form == "github"
    page = tmp_path / "page.html"
    said("ring wrong=613", "--html", str(page), values=values)
    assert wanted in page.read_text()
    assert "A schedule means nothing" not in page.read_text()
    code, text = said(
        "ring wrong=613", "--witness-dir", str(tmp_path), "--format", "text", values=values
    )
    witness = next(tmp_path.glob("*.json"))
    again = CliRunner().invoke(
        main, ["check", f"{FILE}::ring[n=613,wrong=613]", "--replay", str(witness)]
    )
    assert again.exit_code == 1
    assert "deadlock" in again.output


def test_what_is_not_shown_for_all_is_proved_nowhere(tmp_path: Path) -> None:
    wanted = "proved for n = 40; not shown for every n &gt;= 1"
    code, text = said("ring listed=true", "--format", "json", values="n")
    assert code == 3
    (entry,) = json.loads(text)["results"]
    assert entry["verdict"] == "bounded"
    code, text = said("ring listed=true", "--format", "junit", values="n")
    assert code == 3
    suite = ElementTree.fromstring(text)
    assert suite.get("skipped") == "1"
    assert suite.get("errors") == suite.get("failures") == "0"
    assert wanted in text
    code, text = said("ring listed=true", "--format", "github", values="n")
    assert "::warning title=not proved (proved for n = 40%3B" in text or "not proved (" in text
    page = tmp_path / "page.html"
    said("ring listed=true", "--html", str(page), values="n")
    assert wanted in page.read_text()
    assert said("ring listed=true", "--accept", "bounded", values="n")[0] == 0
