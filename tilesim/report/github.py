"""Annotations on GitHub: one workflow command per finding, and a summary with all of them.

GitHub shows 10 errors and 10 warnings per step; what exceeds that is in the step's summary, to
which ``$GITHUB_STEP_SUMMARY`` points (limit: 1 MiB).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Literal, get_args

from tilesim.checker.assumptions import Leaning
from tilesim.errors import UsageError
from tilesim.findings.sides import doing
from tilesim.ir.loc import Loc
from tilesim.records import dataclass
from tilesim.report.clean import clean
from tilesim.report.reading import LEANINGS, more, page
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.report.sarif import CHAIN
from tilesim.report.source import places, pointed
from tilesim.report.text import Folded, conditions, fold, summary, verdict_of

#: annotations of one kind that GitHub shows per step
LIMIT = 10
SUMMARY_BYTES = 1024 * 1024
_MARKS = {"proved": "✅", "exhausted": "✅", "bounded": "⚠️", "unsupported": "⚠️"}
_CUT = "\n\n(cut: the summary is larger than GitHub accepts)\n"


Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True)
class Annotation:
    """One message at one line (or at none)."""

    level: Level
    title: str
    message: str
    loc: Loc | None = None

    def __str__(self) -> str:
        properties = []
        if self.loc is not None:
            at = pointed(self.loc)
            properties += [f"file={_property(_relative(at))}", f"line={max(1, at.line)}"]
        properties.append(f"title={_property(self.title)}")
        return f"::{self.level} {','.join(properties)}::{_data(self.message)}"


def render(results: Iterable[Result]) -> str:
    """The workflow commands; also appends the summary to ``$GITHUB_STEP_SUMMARY``.

    Raises:
        UsageError: the summary cannot be written.
    """
    done = tuple(clean(result) for result in results)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        _append(Path(path), step_summary(done))
    lines, shown = [], dict.fromkeys(get_args(Level), 0)
    hidden = 0
    for annotation in (a for result in done for a in _annotations(result)):
        shown[annotation.level] += 1
        if shown[annotation.level] <= LIMIT:
            lines.append(str(annotation))
        else:
            hidden += 1
    if hidden:
        where = "in the step's summary" if path else "left out (GITHUB_STEP_SUMMARY is not set)"
        lines.append(f"{hidden} more {where}: GitHub shows {LIMIT} of a kind")
    lines.append(_counts(done))
    return "\n".join(lines) + "\n"


def _annotations(result: Result) -> Iterator[Annotation]:
    match result:
        case Checked(report=report):
            for folded in fold(report.findings):
                yield _of_finding(result, folded)
            for leaning in report.leanings:
                if leaning.conditional or leaning in result.denied:
                    yield _of_leaning(result, leaning)
            if report.overall == "bounded":
                why = "".join(f"\n{reason}" for reason in report.reasons)
                part = f" ({report.said})" if report.for_all is not None else ""
                title = f"not proved{part}: {result.kernel}"
                yield Annotation("warning", title, f"{report.covers}{why}")
        case Rejected(diagnostics=diagnostics):
            for d in diagnostics:
                fix = [f"fix: {d.fix}"] if d.fix else []
                text = "\n".join([d.message, *fix, *more(d.rule, d.message)])
                yield Annotation("error", f"{d.rule}: {result.kernel}", text, d.loc)
        case Failure(message=message):
            yield Annotation("error", f"cannot check {result.kernel}", message)


def _of_finding(result: Checked, folded: Folded) -> Annotation:
    finding = folded.finding
    lines = [finding.message]
    lines += [f"cause: {finding.cause}"] if finding.cause else []
    lines += [f"{p.role} {doing(p)} ({places(p.loc)})" for p in finding.participants]
    lines += [folded.also_in] if folded.also else []
    lines += finding.notes[:CHAIN]
    lines += [f"follows: {line}" for line in folded.consequences]
    lines += [f"fix: {finding.fix}"] if finding.fix else []
    lines += more(finding.rule, finding.message)
    level: Level = "warning" if finding.rule == "unsupported" else "error"
    loc = next(iter(finding.locations), None)
    return Annotation(level, f"{finding.rule}: {result.kernel}", "\n".join(lines), loc)


def _of_leaning(result: Checked, leaning: Leaning) -> Annotation:
    """A notice at the first line for which a proof leans on something; an error if denied."""
    denied = leaning in result.denied
    also = [f"also {places(loc)}" for loc in leaning.locs[1:]]
    title = f"{'denied: ' if denied else ''}{leaning.name}: {result.kernel}"
    told = [f"{result.report.verdict} only by leaning on {leaning.name}: {leaning.text}"]
    told += [f"at {places(loc)}" for loc in leaning.locs[:1] if loc.behind is not None] + also
    message = "\n".join(
        [*told, f"more: tilesim explain {leaning.name}", *filter(None, [page(*LEANINGS)])]
    )
    loc = next(iter(leaning.locs), None)
    return Annotation("error" if denied else "notice", title, message, loc)


def step_summary(results: Iterable[Result]) -> str:
    """Everything as Markdown: a table of verdicts, then each kernel's findings."""
    done = tuple(clean(result) for result in results)
    lines = ["## tilesim", "", "| kernel | verdict | covers |", "|---|---|---|"]
    for result in done:
        verdict = verdict_of(result)
        covers = result.report.covers if isinstance(result, Checked) else ""
        mark = _MARKS.get(verdict, "❌")
        given = conditions(result)
        if given:
            mark = "⚠️" if mark == "✅" else mark
            verdict = f"{verdict}, leaning on {', '.join(given)}"
        if isinstance(result, Checked) and result.report.for_all and not result.denied:
            verdict = _text(result.report.said)
        lines.append(f"| `{_cell(result.kernel)}` | {mark} {verdict} | {_text(covers)} |")
    for result in done:
        for annotation in _annotations(result):
            where = f" at `{_cell(str(annotation.loc))}`" if annotation.loc else ""
            text = _fence(annotation.message)
            lines += ["", f"### {_text(annotation.title)}{where}", "", text]
    return _bounded("\n".join(lines) + "\n", SUMMARY_BYTES)


def _bounded(text: str, limit: int) -> str:
    """``text``, cut to ``limit`` bytes of UTF-8."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _append(path: Path, text: str) -> None:
    try:
        room = SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        with path.open("a", encoding="utf-8") as file:
            file.write(_bounded(text, max(room, len(_CUT.encode()))))
    except OSError as error:
        raise UsageError(f"cannot write GITHUB_STEP_SUMMARY {path}: {error.strerror}") from error


def _counts(results: tuple[Result, ...]) -> str:
    if len(results) == 1:
        given = ", ".join(conditions(results[0]))
        leaning = f", leaning on {given}" if given else ""
        return f"{results[0].kernel}: {verdict_of(results[0])}{leaning}"
    return summary(results).rstrip()


def _relative(loc: Loc) -> str:
    """Relative to the repository, which is where GitHub looks for files."""
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    path = os.path.abspath(loc.file)
    inside = path.startswith(os.path.join(root, ""))
    return (os.path.relpath(path, root) if inside else path).replace(os.sep, "/")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _text(text: str) -> str:
    """As `_cell`, where it is not between backticks."""
    return escape(_cell(text), quote=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


def _fence(text: str) -> str:
    """A code block that the text cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
