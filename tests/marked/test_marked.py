"""Every kernel of `kernels` is what its lines say: see `tests.marked`."""

from __future__ import annotations

import pytest

from tests.marked import FOLDER, Marked, marked, told
from tilesim.checker import check

FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".ptx"))


@pytest.mark.parametrize("every_level", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("one", [kernel for path in FILES for kernel in marked(path)], ids=str)
def test_a_kernel_is_what_its_lines_say(one: Marked, every_level: bool) -> None:
    """At the level that decides: what is right by the text, and wrong in practice, where less is
    forbidden."""
    assert one.errors
    for strict in one.levels if every_level else one.levels[-1:]:
        right = check(one.form(0), strict=strict)
        assert (right.verdict, right.findings) == (one.options.get("right", "proved"), ()), (
            strict,
            right,
        )
    for strict in one.levels if every_level else one.levels[:1]:
        for number, expected in one.errors.items():
            wrong = check(one.form(number), strict=strict)
            assert wrong.verdict == "failed", (strict, number, wrong)
            assert told(wrong, expected) == expected, (strict, number, wrong)


#: by kernel and the number of a wrong one, what its findings say beside
TEXTS = {
    ("words_read_in_reverse", 1): "a bar.warp.sync is missing between (E11)",
    ("a_lane_that_read_a_word_vouches_for_no_other", 1): "lane 0 accesses what lane 1 accessed",
    ("sides_of_a_branch_meet_at_different_places", 2): "waits for lanes 0xffff0000",
    ("a_lane_for_which_nothing_arrives", 1): "bars[1]",
    ("a_barrier_ends_once", 1): "mbarrier.inval on b[0] after its mbarrier.inval (A6)",
    ("a_token_of_another_barrier", 1): "with a token of b[1]",
    ("a_token_of_an_earlier_life", 1): "before its mbarrier.inval",
    ("an_accumulator_is_read_as_a", 1): "(F6)",
    ("an_accumulator_is_read_as_a", 3): "(F3)",
    ("a_product_over_its_own_operand", 1): "(G17)",
    ("more_arrivals_than_a_barrier_counts", 1): "expect 1048576 arrivals",
    ("an_allocation_that_can_never_succeed", 1): "can never be satisfied",
    ("a_number_that_stands_for_no_phase", 1): "a number that no arrive has returned",
}


@pytest.mark.parametrize(("name", "number"), TEXTS)
def test_what_is_said_beside(name: str, number: int) -> None:
    (one,) = (kernel for path in FILES for kernel in marked(path) if kernel.name == name)
    assert TEXTS[name, number] in str(check(one.form(number)))
