"""Generated regions of pages that are written by hand otherwise."""

from __future__ import annotations

BEGIN, END = "<!-- generated: {} -->\n", "<!-- end: {} -->\n"


def replaced(text: str, name: str, rows: str) -> str:
    """The page with ``rows`` between the marks of the region."""
    begin, end = BEGIN.format(name), END.format(name)
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    assert found, f"the page has no region {name!r}"
    assert closed, f"the region {name!r} has no end"
    return f"{head}{begin}{rows}{end}{tail}"
