"""What the proof kernel says of the litmus programs.

`litmus.json` holds those that complete and are certified, and by which rule others are refuted.
None that fails is certified; of the rest it may come to cover more. The file is written by
`python -m tests.kernel.test_litmus`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.litmus.sections import all_rows
from tests.litmus.table import Fails, Rejected, Row
from tilesim.ir.lower import lower
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer

FILE = Path(__file__).with_name("litmus.json")
#: by row, "certified" or the rule that refutes it
SAID: Mapping[str, str] = json.loads(FILE.read_text())
PROGRAMS = [row for row in all_rows() if not isinstance(row.practice, Rejected)]


def said(answer: Answer) -> str:
    """Of an answer, what the file holds."""
    return answer.rule or answer.verdict


@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.id)
def test_no_litmus_program_that_fails_is_certified(row: Row) -> None:
    answer = said(certify(lower(row.build())))
    assert answer != "certified" or not isinstance(row.practice, Fails)
    assert answer == SAID.get(row.id, answer)


if __name__ == "__main__":
    answers = {row.id: said(certify(lower(row.build()))) for row in PROGRAMS}
    known = {
        row.id: answers[row.id]
        for row in sorted(PROGRAMS, key=lambda row: row.id)
        if answers[row.id] != "not covered"
        and isinstance(row.practice, Fails) == (answers[row.id] != "certified")
    }
    FILE.write_text(json.dumps(known, indent=0) + "\n")
