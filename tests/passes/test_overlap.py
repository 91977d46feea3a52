"""Which views of tensor memory the passes tell apart."""

from __future__ import annotations

import pytest

from tilesim.arith.types import f32, u32
from tilesim.ir.expr import Expr, Special, Var
from tilesim.ir.tensor_memory import TmemView
from tilesim.transforms.fence_flow import LANE, tmem_overlap

BASE, OTHER, STAGE = Var("base", u32), Var("other", u32), Var("stage", u32)
#: the lanes of the executing warp, as the DSL writes them
MINE = Special("warp_id") % 4 * 32 * LANE


def view(address: Expr, lanes: int = 128, columns: int = 64) -> TmemView:
    return TmemView(address, f32, (lanes, columns), "t")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (view(BASE), view(BASE + 64)),
        (view(BASE + 32 + 32), view(BASE)),
        (view(BASE), view(BASE + 64 + MINE, 32)),
        (view(BASE + MINE, 32), view(BASE + 128 + MINE, 32)),
        (view(BASE + MINE + 64, 32), view(BASE)),
        (view(BASE, 32), view(BASE + 32 * LANE, 32)),
        (view(BASE + STAGE * 64, 32), view(BASE + STAGE * 64 + 64)),
    ],
)
def test_other_columns_or_other_lanes_are_apart(a: TmemView, b: TmemView) -> None:
    assert not tmem_overlap(a, b)
    assert not tmem_overlap(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (view(BASE), view(BASE + 63)),
        (view(BASE), view(OTHER + 64)),
        (view(BASE), view(BASE + STAGE * 64)),
        (view(BASE), view(BASE + MINE, 32)),
        (view(BASE + MINE, 32), view(BASE + 32 * LANE, 32)),
        (view(BASE, 32), view(BASE + 31 * LANE, 32)),
    ],
)
def test_what_may_be_the_same_is_not(a: TmemView, b: TmemView) -> None:
    assert tmem_overlap(a, b)
    assert tmem_overlap(b, a)
