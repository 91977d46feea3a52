"""docs/bugs.md, benchmarks/bugs.md: complete, current, and not made without a check."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import pytest

from benchmarks.bug_catalogue import BUGS, CONTROLS, Bug
from docs import generate_bugs
from docs.generate_bugs import ROWS as TABLE
from docs.generate_bugs import Times, collected, key, measure, pages
from tests.verdicts.corpora import name_of
from tests.verdicts.files import kept
from tilesim.kernels.outcome import Outcome
from tilesim.kernels.registry import Case

ROWS = {**kept("bugs"), **kept("gallery")}
NAMES = [bug.name for bug in (*BUGS, *CONTROLS)]


def entries(case: Case) -> set[str]:
    return set(case.source.split())


def test_every_entry_of_the_catalogue_is_named_once_and_has_links() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert [*sorted(NAMES[: len(BUGS)]), *NAMES[len(BUGS) :]] == NAMES
    for bug in (*BUGS, *CONTROLS):
        assert bug.links
        assert all(link.count("https://github.com/") == 1 for link in bug.links)


def test_source_without_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="names no thread, commit or path"):
        _ = Bug("B0", "no link", ("NVIDIA/Fuser",)).links


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_has_a_kernel_that_fails_and_one_that_does_not(bug: Bug) -> None:
    mine = [case for case in collected() if bug.name in entries(case)]
    assert {case.fails for case in mine} == {True, False}


@pytest.mark.parametrize("bug", CONTROLS, ids=lambda bug: bug.name)
def test_no_kernel_of_a_correct_idiom_fails(bug: Bug) -> None:
    mine = [case for case in collected() if bug.name in entries(case)]
    assert {case.fails for case in mine} == {False}


def test_sources_of_the_gallery_are_entries_of_the_catalogue() -> None:
    assert {name for case in collected() for name in entries(case)} == set(NAMES)


def outcome(case: Case) -> Outcome:
    """What the verdict files say of a case."""
    row = ROWS[name_of(case), case.strict]
    return Outcome(case, case.kernel.target, row.verdict, cast(Any, row.findings), 0)


def test_pages_are_up_to_date() -> None:
    """The verdict files, of which other tests see that they are what is found, say the same."""
    for path, text in pages(Times.load(), outcome).items():
        assert path.read_text() == text, "run python -m docs.generate_bugs"


def test_page_names_every_entry_with_a_check_of_it() -> None:
    text = TABLE.read_text()
    rows = re.findall(r"^\| ([BN]\d+) .* \| `(.+)` \| (.+) \|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == NAMES
    fails = {(n, case.target) for case in collected() if case.fails for n in entries(case)}
    for name, target, found in rows:
        named = {t for n, t in fails if n == name and t.endswith(target)}
        assert bool(named) == name.startswith("B") == found.startswith("`")


def test_unexpected_verdict_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in collected() if case.source == "N7")
    wrong = replace(case, expected="proved" if case.fails else "failed", rule=frozenset())
    monkeypatch.setattr(generate_bugs, "collected", lambda: (wrong,))
    monkeypatch.setattr(generate_bugs, "FAMILIES", ())
    monkeypatch.setattr(
        generate_bugs, "CONTROLS", [b for b in CONTROLS if b.name in entries(wrong)]
    )
    with pytest.raises(RuntimeError, match=f"not {wrong.expected}"):
        pages(Times("", {}))


def test_times_are_measured_coarsely_and_for_every_case() -> None:
    some = collected()[:2]
    times = measure(some)
    assert set(times.milliseconds) == {key(case) for case in some}
    assert all(value >= 10 and value % 10 == 0 for value in times.milliseconds.values())
    assert {key(case) for case in collected()} == set(Times.load().milliseconds), (
        "run python -m docs.generate_bugs --measure"
    )
