"""The page says what surveys of machine code have counted."""

from __future__ import annotations

import json

from docs.generate_inventory import KINDS, PAGE, RESULTS, section
from docs.regions import replaced


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    document = json.loads(RESULTS.read_text())
    text = PAGE.read_text()
    assert replaced(text, "inventory", section(document)) == text
    # what differs in machine code of others is looked at by a person before it is said
    assert all(one[kind]["differs"] == 0 for one in document["sources"].values() for kind in KINDS)
