"""The page says what campaigns have measured."""

from __future__ import annotations

import json

from docs.generate_translation import PAGE, RESULTS, section
from docs.regions import replaced


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    document = json.loads(RESULTS.read_text())
    text = PAGE.read_text()
    assert replaced(text, "translation", section(document)) == text
    # every mutant that is counted as one without effect is listed with the reason
    harmless = sum(one["without effect"] for one in document["mutants"].values())
    assert len(document["harmless"]) == harmless
    assert all(reason for _, _, reason in document["harmless"])
