"""Where to read more about a finding: what to ask `tilesim explain`, and pages about it.

``$TILESIM_DOCS`` says where the documentation is, if it is anywhere: a URL with ``{page}`` in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tilesim.findings.rules import RULE_DOCS, numbered

#: the environment variable that says where the documentation is
DOCS = "TILESIM_DOCS"
#: the page, and the place in it, about what verdicts lean on
LEANINGS = ("soundness", "#what-a-verdict-leans-on")
#: numbers of rules in a message: ``(A13, U5)``
_NUMBERS = re.compile(r"\(([A-IU]\d{1,2}(?:, [A-IU]\d{1,2})*)\)")


def more(rule: str, message: str) -> list[str]:
    """The command that explains the rule of a finding, and the numbers that its message names; then
    the pages of all of them, each a line."""
    rules = [rule] if rule in RULE_DOCS else []
    numbers = list(dict.fromkeys(_numbers(message)))
    found = [page(f"findings/{name}") for name in rules]
    found += [page("semantics", f"#{number.lower()}") for number in numbers]
    asked = " ".join((*rules, *numbers))
    return [f"more: tilesim explain {asked}"] * bool(asked) + [url for url in found if url]


def page(name: str, anchor: str = "") -> str:
    """The address of a page of the documentation; nothing if it is not known where that is."""
    where = os.environ.get(DOCS, "")
    return f"{where.replace('{page}', name)}{anchor}" if where else ""


def _numbers(message: str) -> Iterator[str]:
    for group in _NUMBERS.findall(message):
        yield from (number for number in group.split(", ") if number in numbered())
