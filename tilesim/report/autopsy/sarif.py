"""An autopsy as SARIF 2.1.0: a result for each kernel that waits."""

from __future__ import annotations

from tilesim.autopsy.pipeline import Autopsy
from tilesim.report import sarif
from tilesim.report.autopsy.findings import results


def render(found: Autopsy) -> str:
    """The log, ending with a newline."""
    return sarif.render(results(found))
