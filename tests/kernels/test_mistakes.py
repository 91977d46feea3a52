"""The table of mistakes: what a fault injects is found as the mistake, and its inverse is tried."""

from __future__ import annotations

from itertools import islice

import pytest

import tilesim as ts
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram
from tilesim.kernels.cluster.push import push
from tilesim.kernels.hopper.copy import tensor
from tilesim.mistakes.context import Facts, Focus
from tilesim.mistakes.table import MISTAKES, mutants
from tilesim.repair.search import candidates

#: a right kernel, a fault, the mistake that some place of it is found as
INJECTED = (
    (tensor, "arrive duplicated", "again_without_a_wait"),
    (tensor, "wrong arrival count", "count_of_arrivals"),
    (tensor, "bytes not expected", "bytes_of_a_phase"),
    (tensor, "init dropped", "no_init"),
    (tensor, "named barrier dropped", "after_the_init"),
    (tensor, "store not awaited", "unfinished_group"),
    (tensor, "barrier of another slot", "other_slot"),
    (tensor, "phase not carried", "stale_wait"),
    (tensor, "uneven trips", "uneven"),
    (push, "cluster barrier dropped", "start_of_the_target"),
    (push, "dead predicate", "never_executed"),
    (push, "wait dropped", "unobserved"),
)
#: edits that are looked at
_FIRST = 5


@pytest.mark.parametrize(("kernel", "fault", "name"), INJECTED)
def test_what_is_injected_is_found_and_its_inverse_is_tried(
    kernel: Kernel, fault: str, name: str
) -> None:
    mistake = MISTAKES[name]
    assert fault in mistake.inject
    right = kernel.build()
    assert not ts.check(right).findings
    for mutant in mutants(right, [fault]):
        try:
            findings = ts.check(mutant.program).findings
        except InvalidProgram:
            continue
        if findings and findings[0].diagnosis == name:
            facts = Facts(mutant.program)
            tried = islice(candidates(facts, Focus(facts, findings)), _FIRST)
            assert any(edit.family in mistake.mend for edit in tried)
            return
    pytest.fail(f"no {fault} is found as {name}")
