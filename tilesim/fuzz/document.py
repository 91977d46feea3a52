"""Outcomes of a campaign as JSON (schema 1): no times, the same bytes for the same campaign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tilesim.fuzz.cases import Outcome
from tilesim.report.json import SCHEMA


def render(document: Mapping[str, Any]) -> str:
    """The document as text, ending with a newline."""
    return json.dumps({"schema": SCHEMA, **document}, indent=2) + "\n"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """What became of a case; every entry has the same keys. ``fault`` is null for the original."""
    case = outcome.case
    return {
        "target": case.target,
        "params": dict(case.params),
        "seed": case.seed,
        "fault": outcome.where or None,
        "verdict": outcome.verdict,
        "rules": list(outcome.rules),
        "locations": list(outcome.lines),
        "message": outcome.message,
        "schedules": outcome.schedules,
    }
