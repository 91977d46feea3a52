"""docs/soundness/parameters.md: what it says of the gallery is current, and proved again."""

from __future__ import annotations

import pytest

from docs.generate_for_all import PAGE, ROWS, Row, load, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run python -m docs.generate_for_all"
    assert load().keys() == {row.key for row in ROWS}


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=[] if r.quick else pytest.mark.slow, id=r.key) for r in ROWS],
)
def test_what_the_page_says_is_found_again(row: Row) -> None:
    assert row.prove() == load()[row.key], "run python -m docs.generate_for_all --measure"
