"""Every rule number that a finding may print has a place in the documentation."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

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
    page = (ROOT / "docs" / "rules.md").read_text()
    anchors = set(re.findall(r"^## (\S+)$", page, re.MULTILINE))
    assert len(printed()) > 80
    assert printed() <= anchors


def test_the_page_is_current() -> None:
    path = Path(ROOT / "docs" / "generate_rules.py")
    spec = importlib.util.spec_from_file_location("generate_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "docs" / "semantics.md").read_text()
    assert module.page(text) == (ROOT / "docs" / "rules.md").read_text(), (
        "run python docs/generate_rules.py"
    )
    assert module.data(text) == NUMBERED.read_text(), "run python docs/generate_rules.py"
    assert printed() <= json.loads(NUMBERED.read_text()).keys()
