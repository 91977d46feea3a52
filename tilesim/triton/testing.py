"""Tests in which launching a Triton kernel checks it: the fixture ``triton_check``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tilesim.checker import Report
from tilesim.checker.assumptions import denied, require_names
from tilesim.recording import Distinct, Launched, Skipped, check_launched, known_target
from tilesim.recording.left_out import LeftOut, Unavailable, counted
from tilesim.recording.without_gpu import torch_without_gpu
from tilesim.report.result import Checked
from tilesim.report.text import result_text
from tilesim.triton.driver import recording

_PROVED = ("proved", "exhausted")


class Checks:
    """Every launch of a Triton kernel in a test, checked once per kernel, configuration and launch.

    ``fail`` is called with a text when a launch is not proved, or its proof leans on what ``deny``
    names, after all configurations of an autotuned kernel; with ``expect`` when the test is over
    and the rule was not found; when the test needs numbers, as tensors have none. What is done
    without them (comparisons that say that all agree) is in ``left_out``, and ``fail`` is called
    for it when the test is over if ``strict_values``.
    """

    def __init__(
        self, fail: Callable[[str], None], *, target: str = "sm_90a", expect: str = "",
        accept: str = "", deny: Iterable[str] = (), strict_values: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.reports: list[tuple[Launched, Report]] = []
        self.skipped: list[Skipped] = []
        self.left_out: list[LeftOut] = []
        self._strict_values = strict_values
        self._fail = fail
        self._target = known_target(target)
        self._expect = expect
        self._accept = accept
        self._deny = require_names(deny)
        self._options: Mapping[str, Any] = options
        self._failed: list[str] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within it, launches are checked. Tensors that torch makes on "cuda" have no storage."""
        with ExitStack() as stack:
            tensors = "meta"
            if "torch" in sys.modules:
                stack.enter_context(torch_without_gpu(self._target, self.left_out.append))
                tensors = "cuda"
            launches = recording(
                self._target, Distinct(self._check), tensors=tensors, skip=self.skipped.append,
                settle=self._settle,
            )  # fmt: skip
            stack.enter_context(launches)
            needed = ""
            try:
                yield
            except Unavailable as error:
                needed = str(error)
            if needed:
                self._fail(needed)

    def _check(self, launched: Launched) -> None:
        report = check_launched(launched, **self._options)
        self.reports.append((launched, report))
        against = denied(report.leanings, self._deny)
        if not self._expect and (against or report.verdict not in (*_PROVED, self._accept)):
            checked = Checked(launched.launch.entry, self._target, report, denied=against)
            self._failed.append(result_text(checked))

    def _settle(self) -> None:
        if self._failed:
            failed, self._failed = self._failed, []
            self._fail("\n".join(failed))

    def finish(self) -> None:
        """Fails a test that launches nothing, or in which the expected rule was not found, or
        that compares numbers if these are asked for."""
        if not self.reports:
            self._fail("no Triton kernel was launched in this test")
        found = {rule for _, report in self.reports for rule in report.rules}
        if self._expect and self._expect not in found:
            self._fail(f"expected {self._expect}, but the checks say\n{self.summary}")
        values = [one for one in self.left_out if one.needs_values]
        if self._strict_values and values:
            places = "\n".join(f"  {one}" for one in values)
            total = counted(one.function for one in values)
            self._fail(f"{total}: tensors have no values here\n{places}")

    @property
    def verdicts(self) -> str:
        """``2 proved, 1 proved conditionally, 1 failed``."""
        counts = Counter(
            f"{report.verdict}{' conditionally' * bool(report.conditions)}"
            for _, report in self.reports
        )
        return ", ".join(f"{n} {verdict}" for verdict, n in counts.items())

    @property
    def summary(self) -> str:
        """A line per launch, per configuration that was not launched, and per thing left out."""
        lines = [
            f"{report.said}  {launched.launch.entry} {launched.launch.about}"
            for launched, report in self.reports
        ]
        lines += (f"skipped  {one}" for one in self.skipped)
        lines += (f"left out  {one}" for one in self.left_out)
        return "\n".join(lines)
