"""Rows of the tables of shipping kernels, and what is asserted of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kernels.mutate import line
from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.findings.finding import Finding
from tilesim.ir.program import Strict

STRICT: tuple[Strict, ...] = ("practice", "ptx")


@dataclass(frozen=True)
class Right:
    """A correct kernel and its verdict; ``exhausted`` where polls or counters decide."""

    kernel: Kernel
    params: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = "proved"

    def __str__(self) -> str:
        return "-".join([self.kernel.name, *(f"{n}={v}" for n, v in self.params.items())])


@dataclass(frozen=True)
class Wrong:
    """A fault: the rule, the roles of its finding, and the text of a line that it names."""

    kernel: Kernel
    params: Mapping[str, Any]
    rule: str
    roles: frozenset[str]
    text: str

    def __str__(self) -> str:
        return "-".join([self.kernel.name, *(f"{n}={v}" for n, v in self.params.items())])


def wrong(kernel: Kernel, fault: str, rule: str, roles: str, text: str, **params: Any) -> Wrong:
    """A row of the table; ``roles`` separated by commas, empty where they are bare warps."""
    names = frozenset(roles.split(", ")) if roles else frozenset()
    return Wrong(kernel, {"fault": fault, **params}, rule, names, text)


def rings(kernel: Kernel, *, empty: bool = True) -> list[Right]:
    """One to three stages, with no items, as many as stages, and enough to wrap twice."""
    return [
        Right(kernel, {"stages": stages, "n": n})
        for stages in (1, 2, 3)
        for n in sorted({0 if empty else 1, stages, 2 * stages + 1})
    ]


def assert_clean(right: Right, strict: Strict) -> None:
    """The verdict is the row's, and nothing is reported."""
    report = check(right.kernel.build(**right.params), strict=strict)
    assert (report.verdict, report.findings) == (right.verdict, ()), report


def assert_found(fault: Wrong, strict: Strict) -> None:
    """A finding has the row's rule and roles and names its line."""
    report = check(fault.kernel.build(**fault.params), strict=strict)
    assert report.verdict == "failed", report
    expected = line(fault.kernel, fault.text)
    assert any(_names(finding, fault, expected) for finding in report.findings), report.findings


def _names(finding: Finding, fault: Wrong, expected: int) -> bool:
    return (
        finding.rule == fault.rule
        and fault.roles <= set(finding.roles)
        and expected in {loc.line for loc in finding.locations}
    )
