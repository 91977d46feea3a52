"""docs/real-kernels.md: its summary counts the rows that are recorded."""

from __future__ import annotations

import re
from collections import Counter

from .pages import ROOT

RECORDS = sorted((ROOT / "benchmarks" / "real_kernels").glob("*.md"))
VERDICTS = ("proved", "failed", "bounded", "unsupported")


def recorded() -> dict[str, Counter[str]]:
    """How many rows of each heading have which verdict."""
    found: dict[str, Counter[str]] = {}
    for path in RECORDS:
        for section in path.read_text().split("\n## ")[1:]:
            rows = re.findall(rf"^\|.*\| ({'|'.join(VERDICTS)}) \|", section, re.MULTILINE)
            if rows:
                found[section.partition("\n")[0]] = Counter(rows)
    return found


def test_the_summary_counts_what_is_recorded() -> None:
    page = (ROOT / "docs" / "real-kernels.md").read_text()
    rows = re.findall(r"^\| (.+?) \| [\w, ]+ \| ([\d |]+) \|$", page, re.MULTILINE)
    said = {name: tuple(map(int, cells.split("|"))) for name, cells in rows}
    counts = recorded()
    assert counts
    assert said == {
        name: (found.total(), *(found[verdict] for verdict in VERDICTS))
        for name, found in counts.items()
    }
