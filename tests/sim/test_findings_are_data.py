"""What findings state is data: no code that looks for causes, repairs or stories reads English."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilesim
from tests.sim.text_searches import searches

ROOT = Path(tilesim.__file__).parent
#: packages whose code gets findings
PACKAGES = ("mistakes", "repair", "search", "report", "fuzz")
#: functions that print a text: they escape it, or link the rules whose numbers it gives
PRINTS = frozenset({
    "report/github.py:_data", "report/github.py:_fence", "report/junit.py:_clean",
    "report/reading.py:_numbers",
})  # fmt: skip


def test_no_code_searches_in_the_texts_of_findings() -> None:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    found = [place for place in searches(files, ROOT) if place.rpartition(":")[0] not in PRINTS]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'return "not freed" in case.finding.message',
        "return PATTERN.search(case.finding.message)",
        'return re.match(r"(\\d+) lanes", case.finding.message)',
        'return any("publish no memory" in note for note in case.finding.notes)',
        'return [p.action for p in case.finding.participants][0].startswith("reads")',
        'return "comes only afterwards" in case.finding.fix',
        "return case.finding.cause[:40]",
        "return helper(case.finding.message)",
        'said = case.finding.message; return said.replace("CTA", "")',
        "return self.said().split()",
    ],
)
def test_the_check_finds_what_reads_a_text(line: str, tmp_path: Path) -> None:
    assert _found(line, tmp_path) != []


@pytest.mark.parametrize(
    "line",
    [
        'return case.finding.kind == "tmem-lifetime/not-freed"',
        'return f"{case.finding.rule}: {case.finding.message}"',
        "return other(case.finding.message)",
        "return case.finding.notes[:3]",
        "return case.finding.message == case.other.message",
        "return case.finding.facts.arrivals[0]",
        'return "race" in case.rules',
    ],
)
def test_the_check_lets_texts_be_printed(line: str, tmp_path: Path) -> None:
    assert _found(line, tmp_path) == []


def _found(line: str, folder: Path) -> list[str]:
    file = folder / "reader.py"
    file.write_text(
        f"def reads(self, case):\n    {line}\n"
        "def said(self):\n    return self.finding.message\n"
        'def helper(text):\n    return text.partition("x")\n'
        "def other(text):\n    return print(text)\n"
    )
    return list(searches([file], folder))
