"""Text reports: golden files, width, colour."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tilesim.cli.options import style_for
from tilesim.errors import Diagnostic
from tilesim.ir.loc import Loc
from tilesim.layout import Style, quoted
from tilesim.report.result import Failure, Rejected, Result
from tilesim.report.text import render, result_text

from .pictures import IMAGES, pictures
from .programs import checked

GOLDEN = Path(__file__).parent / "golden"
_ESCAPE = re.compile(r"\x1b\[\d+m")

REJECTED = Rejected(
    "k.py::k", "sm_90a",
    (Diagnostic("tma", "the box is 512 wide, the limit is 256", Loc("k.py", 7), "split the box"),),
)  # fmt: skip
MISSING = Failure("missing.py", "missing.py: no such file (did you mean mixing.py?)")

TEXTS: dict[str, Callable[[], str]] = {
    "deadlock": lambda: result_text(checked("pipeline", parity=0)),
    "deadlock-60": lambda: result_text(checked("pipeline", parity=0), Style(60)),
    "race": lambda: result_text(checked("rare")),
    "race-60": lambda: result_text(checked("rare"), Style(60)),
    "several-ctas": lambda: result_text(checked("lonely")),
    "several-kernels": lambda: render([checked("pipeline"), REJECTED, MISSING]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_messages_are_as_written_down(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / f"{name}.txt").read_text(), (
        "run python -m tests.report.update"
    )


@pytest.mark.parametrize("width", [50, 60, 80, 100])
@pytest.mark.parametrize("name", ["pipeline", "rare", "lonely"])
def test_lines_fit_the_terminal(name: str, width: int) -> None:
    params = {"parity": 0} if name == "pipeline" else {}
    text = result_text(checked(name, **params), Style(width))
    rows = (row for row in text.splitlines() if not re.match(r" +\d+ \| ", row))  # of source
    long = [row for row in rows if len(row) > width]
    assert all(len(row.split()) <= 2 for row in long), "only words that cannot be broken"


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("name", ["pipeline", "rare", "lonely"])
def test_colour_changes_no_text(name: str, width: int) -> None:
    params = {"parity": 0} if name == "pipeline" else {}
    plain = result_text(checked(name, **params), Style(width))
    coloured = result_text(checked(name, **params), Style(width, colour=True))
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert _ESCAPE.sub("", coloured) == plain


def test_every_finding_says_what_where_why_and_how_to_fix() -> None:
    results: list[Result] = [checked("pipeline", parity=0), checked("rare"), checked("lonely")]
    for result in results:
        text = result_text(result, Style(verbose=True))
        labels = re.findall(r"^    (where|why|notes|fix) ", text, re.MULTILINE)
        assert labels == ["where", "why", "notes", "fix"] * (len(labels) // 4)
        assert labels


def test_pictures_of_the_documentation_are_current() -> None:
    for name, svg in pictures():
        assert (IMAGES / f"{name}.svg").read_text() == svg, "run python -m tests.report.update"
        Xml.fromstring(svg)


class _Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colour_only_on_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "72")
    assert style_for(_Terminal()) == Style(72, colour=True)
    assert style_for(io.StringIO()) == Style(72, colour=False)
    monkeypatch.setenv("COLUMNS", "")
    assert style_for(io.StringIO()) == Style(100, colour=False)
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setenv("NO_COLOR", "1")
    assert style_for(_Terminal()) == Style(72, colour=False)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert style_for(_Terminal()).colour is False
    monkeypatch.setenv("COLUMNS", "200")
    assert style_for(_Terminal()).width == 100
    assert style_for(io.StringIO()).width == 100


def test_a_line_of_source_is_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong may stand at its end; a file that is no source has bounds."""
    monkeypatch.chdir(tmp_path)
    lines = [f"k.mbarrier.wait(full[{'x' * 300}], phase & 1)", "ld " * 200 + "[%r1];", "y" * 5000]
    Path("k.py").write_text("\n".join(lines))
    behind = Loc("k.py", 2)
    shown = list(quoted(Loc("k.py", 1, behind=behind), 4))
    assert shown[1] == f"      1 | {lines[0]}"
    assert shown[2] == f"      k.py:2 | {lines[1]}"
    (_, long) = quoted(Loc("k.py", 3), 4)
    assert long == f"      3 | {'y' * 2000}..."
