"""The gallery, emitted to PTX and read back: the same verdicts, rules and source lines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.gpu import needs
from tilesim.checker import Report, check
from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import Source, emit
from tilesim.kernels.registry import Case, cases
from tilesim.ptx.description import dumps, loads
from tilesim.ptx.emitted import describe
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read

#: a copy in PTX knows no tiles: the bytes it moves are contiguous, be they of one tile or not
NOT_IN_PTX = {"flattened_region"}
#: the machine says deadlock where it says register-pool for the program with roles
OTHER_RULE = {"register-pool": "deadlock"}
LIMIT = timedelta(seconds=60)


def hopper(case: Case) -> bool:
    """Whether a row is for sm_90a, can be built, and is steered by no input, which PTX has not."""
    if case.expected == "rejected" or case.kernel.name in NOT_IN_PTX:
        return False
    if case.kernel.inputs is not None:
        return False
    try:
        program = case.kernel.build(**case.params)
    except InvalidProgram:
        return False
    return program.target.name == "sm_90a"


ROWS = [case for case in cases() if case.family != "blackwell"]
#: one row in so many is looked at in every run of the tests
ONE_IN = 16


def back(case: Case) -> tuple[Source, Report]:
    source = emit(case.kernel.build(**case.params))
    module = read(compile_ptx(source), "k.ptx")
    launch = loads(dumps(describe(source)))
    mir = lower(module, module.entries[0], launch)
    return source, check(mir, strict=case.strict, time_limit=LIMIT)


def places(report: Report, source: Source | None = None) -> set[tuple[str, frozenset[int]]]:
    """Rules and lines of findings, in the kernel's own source."""
    found = set()
    for finding in report.findings:
        lines = set()
        for place in finding.locations:
            own = place if source is None else source.loc(place.line)
            lines.add(0 if own is None else own.line)
        rule = OTHER_RULE.get(finding.rule, finding.rule)
        found.add((rule, frozenset(lines)))
    return found


def compare(case: Case) -> None:
    if not hopper(case):
        pytest.skip("not a program for sm_90a that can be built")
    source, report = back(case)
    # PTX has more instructions to explore: the budget may end before all schedules are tried
    enough = {"exhausted", "bounded"} if case.expected == "exhausted" else {case.expected}
    assert report.verdict in enough, report.reasons
    if case.expected == "failed":
        program = case.kernel.build(**case.params)
        own = check(program, strict=case.strict, time_limit=LIMIT)
        assert places(own) & places(report, source)


@needs.compiler
@pytest.mark.parametrize("case", ROWS[::ONE_IN], ids=lambda case: str(case.target))
def test_some_rows_read_back(case: Case) -> None:
    compare(case)


@pytest.mark.slow
@needs.compiler
@pytest.mark.parametrize("case", ROWS, ids=lambda case: str(case.target))
def test_all_rows_read_back(case: Case) -> None:
    compare(case)
