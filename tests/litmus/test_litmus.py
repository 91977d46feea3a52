"""Every row of the litmus table, at the strictness that decides.

That is both, where the outcome differs; else practice for a row that fails, where less is
forbidden, and the text for one that completes. ``python -m tests.verdicts compare`` checks all at
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilesim import InvalidProgram, Program
from tilesim.arith.types import numpy_dtype
from tilesim.checker import check
from tilesim.findings.finding import Finding
from tilesim.ir.program import Strict
from tilesim.sim.machine.simulate import simulate

from .sections import all_rows
from .table import STRICTNESS, Completes, Defect, Fails, Rejected, Row

#: what the sections hold, apart from the rows README.md leaves out
IDS = {
    *(f"LA{n:02}" for n in range(1, 26) if n != 24),
    *(f"LB{n:02}" for n in (*range(1, 11), *range(14, 32))),
    *(f"LC{n:02}" for n in range(1, 10)),
    *(f"LD{n:02}" for n in range(1, 13)),
    "LD",
    *(f"LE{n:02}" for n in range(1, 13)),
    *(f"LF{n:02}" for n in range(1, 7)),
    *(f"LG{n:02}" for n in range(1, 20)),
    *(f"LH{n:02}" for n in range(2, 7)),
    *(f"LV{n:02}" for n in range(1, 26)),
    *(f"LW{n:02}" for n in range(1, 17)),
    *(f"LI{n:02}" for n in range(1, 11)),
    *(f"LJ{n:02}" for n in range(1, 14)),
    *(f"LK{n:02}" for n in range(1, 17)),
    *(f"LM{n:02}" for n in range(1, 12)),
    *(f"LS{n:02}" for n in range(1, 9)),
}


def deciding() -> Iterator[Any]:
    """Rows, each with a level."""
    for row in sorted(all_rows(), key=attrgetter("id")):
        levels: tuple[Strict, ...] = STRICTNESS
        if row.practice == row.ptx:
            levels = ("ptx",) if isinstance(row.ptx, Completes) else ("practice",)
        yield from (pytest.param(row, strict, id=f"{row.id}-{strict}") for strict in levels)


@pytest.mark.parametrize(("row", "strict"), deciding())
def test_litmus(row: Row, strict: Strict) -> None:
    match row.expected(strict):
        case Completes() as outcome:
            assert_completes(row, outcome, strict)
        case Fails() as outcome:
            assert_fails(row, outcome, strict)
        case Rejected() as outcome:
            assert_rejected(row, outcome)


def test_every_program_of_these_sections_has_a_row() -> None:
    assert {row.id.split("-")[0] for row in all_rows()} == IDS


def test_a_run_with_la16_ends_on_sm90_although_it_is_reported() -> None:
    (row,) = (r for r in all_rows() if r.id == "LA16")
    assert all(f.rule != "deadlock" for f in simulate(row.build()).findings)


def assert_completes(row: Row, outcome: Completes, strict: Strict) -> None:
    """No finding by the verdict, nor in the timed schedule; the stated values there, and in a
    sample of the others."""
    program = row.build()
    report = check(program, strict=strict)
    assert (report.verdict in outcome.verdicts, report.findings) == (True, ()), report
    inputs = inputs_of(program, outcome)
    runs = [simulate(program, inputs, strict=strict)]
    seeds = range(3 if outcome.outputs else 0)
    runs += [simulate(program, inputs, strict=strict, policy="random", seed=s) for s in seeds]
    for run in runs:
        assert run.findings == ()
        for name, value in outcome.outputs.items():
            np.testing.assert_array_equal(run.outputs[name], np.asarray(value), err_msg=name)


def inputs_of(program: Program, outcome: Completes) -> dict[str, np.ndarray]:
    """Arrays for every global tensor: the stated ones, zeros for the others."""
    return {
        t.name: np.broadcast_to(outcome.inputs.get(t.name, 0), t.shape).astype(numpy_dtype(t.dtype))
        for t in program.tensors
    }


def assert_fails(row: Row, outcome: Fails, strict: Strict) -> None:
    """At least one of the defects is found, with its participants, and nothing else is."""
    report = check(row.build(), strict=strict)
    assert report.verdict == "failed", report
    rules = {d.rule for d in outcome.defects}
    found = {f.rule for f in report.findings}
    assert found & rules, report
    assert found <= rules | outcome.also, report
    for finding in report.findings:
        if finding.rule in rules:
            same = [d for d in outcome.defects if d.rule == finding.rule]
            assert any(matches(row, finding, d) for d in same), finding


def matches(row: Row, finding: Finding, defect: Defect) -> bool:
    """Whether the participants of the finding are exactly the sites of the defect."""
    if not defect.sites:
        return True
    wanted = {(role, (row.file, row.line(text))) for role, text in defect.sites}
    named = {(p.role, (Path(p.loc.file).name, p.loc.line)) for p in finding.participants}
    return named == wanted


def assert_rejected(row: Row, outcome: Rejected) -> None:
    """The verifier names the rule and the line."""
    with pytest.raises(InvalidProgram) as caught:
        check(row.build())
    named = {(d.rule, Path(d.loc.file).name, d.loc.line) for d in caught.value.diagnostics}
    assert named == {(outcome.rule, row.file, row.line(outcome.line))}
