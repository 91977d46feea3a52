"""Moves into the registers of a `wgmma`, before its fence and behind it, in PTX (F3)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tests.ptx.test_tiles import END, START
from tilesim.ir.program import Strict
from tilesim.proof.check import certify
from tilesim.ptx.plain import plain

FENCE = "wgmma.fence.sync.aligned;"
ZEROS = "mov.b32 %f1, 0f00000000; mov.b32 %f2, %f1;"


def answer(fence: str, strict: Strict = "practice", wait: str = "") -> str:
    """Of products behind this, with a wait before."""
    assert FENCE in START
    return str(certify(program(f"{START.replace(FENCE, wait + fence)}{END}", warps=4, by=plain),
                       strict=strict))  # fmt: skip


def test_in_practice_numbers_may_be_moved_behind_the_fence() -> None:
    assert answer(FENCE + ZEROS) == "certified"
    assert answer(FENCE + ZEROS, "ptx").startswith("refuted: F3")


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_before_it_they_may_by_the_text(strict: Strict) -> None:
    assert answer(ZEROS + FENCE, strict) == "certified"


@pytest.mark.parametrize(
    "fence", [f"{FENCE}add.f32 %f1, %f1, %f1;", ZEROS], ids=["computed", "no fence"]
)
def test_what_is_computed_there_may_not_and_without_a_fence_nothing_is(fence: str) -> None:
    assert answer(fence).startswith("refuted: F3")


def test_nor_may_they_be_moved_while_a_product_is_under_way() -> None:
    end = END.replace(
        "wgmma.wait_group.sync.aligned 0;", ZEROS + "wgmma.wait_group.sync.aligned 0;"
    )
    assert end != END
    found = str(certify(program(START + end, warps=4, by=plain)))
    assert found.startswith("refuted: F3")
