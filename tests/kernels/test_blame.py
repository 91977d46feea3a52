"""Culprits that are known: the lines in which a wrong kernel and its right twin differ."""

from __future__ import annotations

import pytest

from benchmarks.blame.__main__ import Blamed, blamed, table
from benchmarks.blame.culprits import culprits
from benchmarks.blame.known import collection, mutants
from tilesim.checker import check
from tilesim.kernels.bugs.arrival_count import contiguous_load, split_load
from tilesim.mistakes import diagnose as explain

from .evidence import at


def test_culprits_are_the_lines_that_differ_and_those_around_what_is_missing() -> None:
    found = culprits(contiguous_load.build(), contiguous_load.build(fixed=True))
    wrong = at(contiguous_load, "# BUG")
    right = wrong - 2  # what the fixed kernel has instead
    assert {loc.line for loc in found} == {right, wrong}
    found = culprits(split_load.build(fixed=True), split_load.build())
    extra = at(split_load, "# BUG")
    around = (
        at(split_load, "low[slot.stage], (i * height"),
        at(split_load, "high[slot.stage], (i"),
    )
    assert {extra, *around} <= {loc.line for loc in found}
    assert culprits(split_load.build(), split_load.build()) == frozenset()


def test_twins_differ_in_the_mistake_only() -> None:
    every = {known.name.removeprefix("bugs."): known for known in collection()}
    assert len(every) >= 80
    (twin,) = every["arrival_count::short_pipeline"].twins
    assert twin() == every["arrival_count::short_pipeline"].twins[0]()
    assert {loc.line for known in every.values() for loc in known.culprits}
    issuer = every["store_fence::staged_store"]
    assert len(issuer.twins) == 2  # a fence by every writer, or by the issuer


def test_each_fault_has_its_share_of_the_mutants() -> None:
    found = list(mutants(1))
    assert len({known.group for known in found}) == len(found) > 20


def test_a_table_has_the_shares_of_each_group() -> None:
    known = next(k for k in collection() if k.name == "bugs.parity::pinned_slot")
    result = blamed(known)
    assert result is not None
    second = Blamed(known, "race", result.lines, 1, 0.0)
    assert table([result, second], "entry") == [
        ("entry", "bugs", "first line", "first three"),
        ("B020", "2", "1 (50 %)", "2 (100 %)"),
        ("all", "2", "1 (50 %)", "2 (100 %)"),
    ]


#: bugs of the collection, and what the cause of the first finding says
CAUSES = (
    ("arrival_count::short_pipeline", "the next copy starts before a wait on full[1] for this one"),
    ("cta_pairs::pair[ready=own]", "arrives on CTA 0 reports[0], and no warp waits for it"),
    ("cta_pairs::pair[release=own]", "arrives on CTA 1 empty[0], on which no warp waits"),
    (
        "empty_tiles::block_sparse[mistake=no wait]",
        "has not waited for stat_empty in this iteration",
    ),
    ("copy_groups::waited_by_issuers", "math (warp 2) does not wait for math (warp 0)"),
    ("cluster_arrivals::cta_scope", "has scope cta, and the other side is in another CTA"),
    ("tensor_memory::freed_while_read", "makes it wait for epilogue (warp 0)"),
    (
        "printed[open_twice=False,dead_role=False,early_inval=False]",
        "execute different instructions",
    ),
)


@pytest.mark.parametrize(("name", "cause"), CAUSES, ids=[name for name, _ in CAUSES])
def test_the_first_line_of_a_bug_is_a_culprit_s(
    name: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    known = next(k for k in collection() if k.name.endswith(name))
    report = check(known.make(), strict=known.strict, inputs=known.inputs)
    assert cause in report.findings[0].cause
    assert report.findings[0].locations[0] in known.culprits
    for twin in known.twins:
        assert check(twin(), strict=known.strict, inputs=known.inputs).findings == ()
