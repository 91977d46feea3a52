"""The documentation of every rule, as data: ``tilesim explain`` and ``docs/findings/``."""

from __future__ import annotations

import json
from importlib.resources import files

from tilesim.findings import barriers, groups, machine_code, memory, static, warps
from tilesim.findings.finding import RULES
from tilesim.findings.rule import RuleDoc

_PARTS = barriers, memory, groups, warps, machine_code, static
_ALL = {d.name: d for part in _PARTS for d in part.DOCS}
#: the rules of findings in the order of `tilesim.findings.finding.RULES`, then the verifier's own
RULE_DOCS: dict[str, RuleDoc] = {name: _ALL[name] for name in (*RULES, *_ALL) if name in _ALL}


def numbered() -> dict[str, tuple[str, list[str]]]:
    """By number (A13): the section of the semantics that states a rule, and what it says there."""
    text = files(__package__).joinpath("numbered.json").read_text(encoding="utf-8")
    return {rule: (section, said) for rule, (section, said) in json.loads(text).items()}


__all__ = ["RULE_DOCS", "RuleDoc", "numbered"]
