"""Every rule number that a finding may print has a place in the documentation."""

from __future__ import annotations

import ast
import json
import re
from functools import cache

from docs.generate_rules import anchored, data
from tilesim.checker.assumptions import SWITCHES
from tilesim.findings.rules import RULE_DOCS

from .pages import ROOT

#: a message of ptxas such as (C7519) is no rule
_PRINTED = re.compile(r"\(((?:[A-IU]\d{1,2}\b(?:, | and )?)+)[^)]*\)")
_NUMBER = re.compile(r"\b[A-IU]\d{1,2}\b")
_BUGS = re.compile(r"B0\d")


NUMBERED = ROOT / "tilesim" / "findings" / "numbered.json"


@cache
def printed() -> frozenset[str]:
    """The numbers in the strings of the simulator and the verifier, docstrings included."""
    found: set[str] = set()
    for folder in ("analysis", "dsl", "findings", "ir", "sim", "transforms"):
        for path in (ROOT / "tilesim" / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for group in _PRINTED.findall(node.value):
                        found.update(_NUMBER.findall(group))
    return frozenset(rule for rule in found if not _BUGS.match(rule))


def test_every_rule_has_an_anchor() -> None:
    page = (ROOT / "docs" / "semantics.md").read_text()
    anchors = re.findall(r"<a id=(\w+)></a>", page)
    assert len(anchors) == len(set(anchors))
    assert len(printed()) > 80
    assert {rule.lower() for rule in printed() | SWITCHES.keys()} <= set(anchors)


def test_every_number_that_a_page_of_a_finding_names_is_stated() -> None:
    known = json.loads(NUMBERED.read_text())
    named = {rule for doc in RULE_DOCS.values() for rule in doc.rules}
    assert len(named) > 60
    assert sorted(named - known.keys()) == []


def test_what_is_explained_is_current() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    assert anchored(text) == text, "run python docs/generate_rules.py"
    assert data(text) == NUMBERED.read_text(), "run python docs/generate_rules.py"
    assert printed() <= json.loads(NUMBERED.read_text()).keys()
