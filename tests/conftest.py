"""What a run of the tests says at its end of those that it left out."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was not tested and why, however many files it was in: a run that is green without
    SPIN or a GPU has not shown that their tests pass."""
    left_out = Counter(reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if not left_out:
        return
    terminalreporter.section("NOT TESTED HERE", yellow=True, bold=True)
    for why, number in sorted(left_out.items(), key=lambda item: (-item[1], item[0])):
        terminalreporter.line(f"{number:6} {why}", yellow=True)


def reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ").partition("\n")[0]
