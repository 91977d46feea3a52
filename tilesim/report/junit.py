"""JUnit XML: one test case per kernel, for test dashboards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as Xml

from tilesim.layout import Style
from tilesim.report.clean import clean
from tilesim.report.result import OK, USAGE, Checked, Result
from tilesim.report.text import result_text, verdict_of

#: what XML 1.0 does not allow
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Iterable[Result]) -> str:
    """The document, ending with a newline; times are in it if the results have some."""
    done = tuple(clean(result) for result in results)
    failed = [r for r in done if _outcome(r) == "failure"]
    errors = [r for r in done if _outcome(r) == "error"]
    skipped = [r for r in done if _outcome(r) == "skipped"]
    counts = {
        "tests": str(len(done)),
        "failures": str(len(failed)),
        "errors": str(len(errors)),
        "skipped": str(len(skipped)),
    }
    root = Xml.Element("testsuites", {"name": "tilesim", **counts})
    suite = Xml.SubElement(root, "testsuite", {"name": "tilesim", **counts})
    for result in done:
        _case(suite, result)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _outcome(result: Result) -> str:
    """``failure``, ``error`` or ``skipped``; empty for a kernel that passed."""
    code = result.code()
    if code == OK:
        return ""
    if isinstance(result, Checked) and result.report.overall in ("bounded", "unsupported"):
        return "skipped"
    return "failure" if code < USAGE else "error"


def _case(suite: Xml.Element, result: Result) -> None:
    module, _, name = result.kernel.rpartition("::")
    names = {"classname": _clean(module or result.kernel), "name": _clean(name)}
    time = {} if result.seconds is None else {"time": f"{result.seconds:.3f}"}
    case = Xml.SubElement(suite, "testcase", names | time)
    outcome = _outcome(result)
    if outcome:
        message = _message(result)
        element = Xml.SubElement(case, outcome, {"message": _clean(message)})
        if outcome != "skipped":
            element.set("type", verdict_of(result))
        element.text = _clean(result_text(result, Style(verbose=True)))
    if isinstance(result, Checked):
        Xml.SubElement(case, "system-out").text = _clean(
            f"{result.report.said}: {result.report.covers}"
        )


def _message(result: Result) -> str:
    """One line: the first finding, or why there is no proof."""
    if isinstance(result, Checked) and result.report.findings:
        finding = result.report.findings[0]
        at = "" if result.report.for_all is None else f"{result.report.for_all.said}: "
        return f"{at}{finding.rule}: {finding.message}"
    if isinstance(result, Checked) and not result.report.is_whole:
        claim = result.report.for_all
        return f"{result.report.said}: {claim.obstacle if claim else ''}"
    if isinstance(result, Checked) and result.report.reasons:
        return f"{result.report.verdict}: {result.report.reasons[0]}"
    return result_text(result).splitlines()[0]


def _clean(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
