"""Public bugs and litmus rows that are only a missing fence: the passes repair them."""

from __future__ import annotations

import pytest

from tilesim.checker import check
from tilesim.checker.inject_fences import inject_proxy_fence, inject_tcgen05_fence
from tilesim.kernels.registry import Case, cases

from ..litmus.sections import all_rows

REPAIRED = (
    "tensor_memory::hand_over",
    "launch_control::answer[fence=False]",
    "proxy_fences::overwritten_after_read",
    "proxy_fences::fence_in_loop",
    "proxy_fences::fence_after_barrier",
    "store_fence::staged_store",
)


def broken(name: str) -> Case:
    """The failing case of that name."""
    found = [c for c in cases("bugs") if c.target.endswith(f".{name}") and c.expected == "failed"]
    assert found, name
    return found[0]


@pytest.mark.parametrize("name", REPAIRED)
def test_a_missing_fence_is_repaired(name: str) -> None:
    case = broken(name)
    program = case.build()
    assert set(check(program, strict=case.strict).rules) <= {"tcgen05-order", "proxy-fence"}
    fenced = inject_proxy_fence(inject_tcgen05_fence(program), strict=case.strict)
    assert check(fenced, strict=case.strict).verdict == "proved"


def test_fences_do_not_hide_what_else_is_wrong() -> None:
    case = broken("copy_destination::zeroed_first")
    program = case.build()
    assert {"race", "proxy-fence"} <= set(check(program).rules)
    assert check(inject_proxy_fence(program)).rules == {"race"}


@pytest.mark.parametrize(
    "name",
    [
        "LF04", "LG06", "LG06-relaxed-no-fence", "LG07-no-fences", "LG07-no-fences-release",
        "LG08-no-fences", "LG09-store-no-fences", "LG13",
    ],
)  # fmt: skip
def test_a_litmus_row_without_its_fences_is_repaired(name: str) -> None:
    """In these programs branches on the warp number separate the roles."""
    program = next(row for row in all_rows() if row.id == name).build()
    assert check(program, strict="ptx").verdict == "failed"
    fenced = inject_proxy_fence(inject_tcgen05_fence(program), strict="ptx")
    assert check(fenced, strict="ptx").verdict == "proved"


def test_a_missing_completion_is_no_missing_fence() -> None:
    """LG14: cp into columns an mma still reads; only a commit and a wait help (G20)."""
    program = next(row for row in all_rows() if row.id == "LG14").build()
    assert check(inject_tcgen05_fence(program), strict="ptx").rules == {"tcgen05-order"}
