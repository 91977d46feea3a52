"""Public bugs that are only a missing fence: the passes repair them."""

from __future__ import annotations

import pytest

from tilesim.checker import check
from tilesim.ir.passes import inject_proxy_fence, inject_tcgen05_fence
from tilesim.kernels.registry import Case, cases

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
