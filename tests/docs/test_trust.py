"""The page on what a proof rests on has the tables of today."""

from __future__ import annotations

from docs.generate_trust import PAGE, page


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run python -m docs.generate_trust"
