"""``benchmarks/h200/lanes.md``: what was seen, beside what the machine allows.

``python -m tests.silicon.page`` writes it from ``seen.json`` (`tests.silicon.run`); no GPU needed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from .programs import all_trials
from .trial import HANGS, SCHEDULES, Allowed, Trial, allowed

SEEN = Path(__file__).with_name("seen.json")
PAGE = Path(__file__).parents[2] / "benchmarks" / "h200" / "lanes.md"
RESULTS = "## Results\n"
#: schedules of the machine
_SCHEDULES = 20
#: programs too large for many schedules: those of small ones of the same kind, start-order-few and
#: LD09 of the litmus programs
LARGE = {
    "start-order": Allowed(frozenset({"in order", "out of order"}), ""),
    "wait-for-later": Allowed(frozenset({"1", HANGS}), ""),
    "wait-for-later-fits": Allowed(frozenset({"1", HANGS}), ""),
    "wait-for-first": Allowed(frozenset({"1", HANGS}), ""),
}


def seen() -> dict[str, Any]:
    """What `tests.silicon.run` has written down."""
    found: dict[str, Any] = json.loads(SEEN.read_text())
    return found


def _line(trial: Trial, facts: dict[str, Any], machine: Allowed) -> str:
    counts = ", ".join(f"{outcome} ({n:,})" for outcome, n in facts["outcomes"].items())
    if machine.undefined:
        may = f"undefined ({machine.undefined})"
    else:
        may = " or ".join(sorted(machine.outcomes))
    inside = "yes" if all(outcome in machine for outcome in facts["outcomes"]) else "NO"
    return f"| {trial.id} | {trial.question} | {may} | {counts} | {inside} | {trial.rules} |"


def table() -> str:
    """The results as Markdown."""
    found = seen()
    used = ", ".join(f"{name} {version}" for name, version in found["compiler"].items())
    lines = [
        f"{found['gpu']}, driver {found['driver']}; {used}; {found['date']}.", "",
        "| trial | question | the machine allows | seen (launches) | allowed | rules |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for trial in all_trials():
        few = replace(trial, most=_SCHEDULES) if trial.most == SCHEDULES else trial
        machine = LARGE.get(trial.id) or allowed(few)
        lines.append(_line(trial, found["trials"][trial.id], machine))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(RESULTS)[0] + RESULTS + "\n" + table())
