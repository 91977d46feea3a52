"""The gallery, emitted to PTX and read back: the same verdicts, rules and source lines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.gpu import needs
from tilesim.checker import Report, check
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
#: rows whose other findings hang on how long instructions take, of which PTX has more: what the
#: program says beside the race that both report, and what its PTX says
AFTER_THE_RACE = {
    # a copy that no phase counts meets a later phase, or the end of the kernel
    "plain_arrive": ({"async-at-exit"}, {"deadlock"}),
    # an arrival too early lets the other role in, or shuts it out
    "printed[open_twice=False,dead_role=False,early_inval=False,register_sharing=False]": (
        set(), {"deadlock"},
    ),
}  # fmt: skip
#: rows with launch control: what is loaded from shared memory may be an answer, and may steer
MAY_STEER = {
    "tilesim.kernels.blackwell.matmul_v5", "tilesim.kernels.blackwell.matmul_v6",
    "tilesim.kernels.bugs.launch_control",
}  # fmt: skip
LIMIT = timedelta(seconds=60)


def readable(case: Case) -> bool:
    """Whether a row is a program that is steered by no input, which PTX has not."""
    kernel = case.kernel
    return case.expected != "rejected" and kernel.name not in NOT_IN_PTX and kernel.inputs is None


def may_steer(case: Case) -> bool:
    """Whether what is loaded from shared memory may be an answer of launch control, and decide."""
    return case.expected == "proved" and str(case.target).partition("::")[0] in MAY_STEER


ROWS = [case for case in cases() if readable(case)]
QUICK = [case for case in ROWS if not may_steer(case)]
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
        for place in (participant.loc for participant in finding.participants):
            own = place if source is None else source.loc(place.line)
            lines.add(0 if own is None else own.line)
        rule = OTHER_RULE.get(finding.rule, finding.rule)
        found.add((rule, frozenset(lines)))
    return found


def compare(case: Case) -> None:
    source, report = back(case)
    name = str(case.target).partition("::")[2]
    if may_steer(case):
        assert report.verdict in ("proved", "bounded"), report
        return
    # PTX has more instructions to explore: the budget may end before all schedules are tried
    enough = {"exhausted", "bounded"} if case.expected == "exhausted" else {case.expected}
    assert report.verdict in enough, report.reasons
    if case.expected == "failed":
        program = case.kernel.build(**case.params)
        own = places(check(program, strict=case.strict, time_limit=LIMIT))
        read_back = places(report, source)
        says, ptx_says = AFTER_THE_RACE.get(name, (set(), set()))
        assert {rule for rule, _ in own - read_back} == says
        assert {rule for rule, _ in read_back - own} == ptx_says
        assert own & read_back


@needs.compiler
@pytest.mark.parametrize("case", QUICK[::ONE_IN], ids=lambda case: str(case.target))
def test_some_rows_read_back(case: Case) -> None:
    compare(case)


@pytest.mark.slow
@needs.compiler
@pytest.mark.parametrize("case", ROWS, ids=lambda case: str(case.target))
def test_all_rows_read_back(case: Case) -> None:
    compare(case)
