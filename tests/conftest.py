"""What a run of the tests sets once (garbage, width, signals), and what it says at its end of those
that it left out."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter

import pytest

# Python's 700 are a third of the processor time of many small tests: what there is to go through
# grows with every module, parameter and cache of some ten thousand tests, and hardly any of it ends
gc.set_threshold(300_000, 10, 10)


# reports in the tests are as wide as those in a file, however wide the terminal of the tests is
os.environ.pop("COLUMNS", None)

# a run in the background of a shell, or behind nohup, ignores these, and so do commands that tests
# start and interrupt: they would wait for ever
for _one in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_one) is signal.SIG_IGN:
        signal.signal(_one, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What has been collected stays until the end: it is no more looked through."""
    gc.collect()
    gc.freeze()


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
