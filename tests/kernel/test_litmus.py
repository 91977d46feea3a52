"""What the proof kernel says of the litmus programs, at both levels.

`litmus.json` holds, by level, those that complete and are certified, and by which rule others are
refuted. None that fails is certified; of the rest it may come to cover more. The file is written by
`python -m tests.kernel.test_litmus`, which prints those that complete and are refuted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.litmus.sections import all_rows
from tests.litmus.table import STRICTNESS, Fails, Rejected, Row
from tilesim.ir.program import Strict
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower

FILE = Path(__file__).with_name("litmus.json")
#: by level and row, "certified" or the rule that refutes it
SAID: Mapping[Strict, Mapping[str, str]] = json.loads(FILE.read_text())
PROGRAMS = [row for row in all_rows() if not isinstance(row.practice, Rejected)]


def judged(row: Row, strict: Strict) -> Answer:
    """What the kernel says of a program; words that are waited for begin with 0, as a check has
    it."""
    return certify(lower(row.build()), strict=strict, assumed=("zero-state",))


def said(answer: Answer) -> str:
    """Of an answer, what the file holds."""
    return answer.rule or answer.verdict


@pytest.mark.parametrize("strict", STRICTNESS)
@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.id)
def test_no_litmus_program_that_fails_is_certified(row: Row, strict: Strict) -> None:
    answer = said(judged(row, strict))
    assert answer != "certified" or not isinstance(row.expected(strict), Fails)
    assert answer == SAID[strict].get(row.id, answer)


def test_what_is_certified_by_the_text_is_certified_in_practice() -> None:
    certified = {strict: {row for row in SAID[strict] if SAID[strict][row] == "certified"}
                 for strict in STRICTNESS}  # fmt: skip
    assert certified["ptx"] < certified["practice"]


def known(strict: Strict) -> dict[str, str]:
    """What is said of the programs at a level, where that is right."""
    found = {}
    for row in sorted(PROGRAMS, key=lambda row: row.id):
        answer, fails = judged(row, strict), row.expected(strict)
        if answer.verdict == "refuted" and not isinstance(fails, Fails):
            print(f"{strict}: {row.id} completes: {answer}")
        elif answer.verdict != "not covered":
            assert isinstance(fails, Fails) == (answer.verdict == "refuted"), row.id
            found[row.id] = said(answer)
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps({strict: known(strict) for strict in STRICTNESS}, indent=0) + "\n")
