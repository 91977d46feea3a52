"""Schedules by chance let everybody move who can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tilesim.sim.machine.schedule import Move, PctChooser


@pytest.mark.parametrize("seed", range(8))
def test_who_polls_for_ever_does_not_keep_others_from_moving(seed: int) -> None:
    """Four agents poll until the fifth has moved, of which two give way by chance."""
    chooser = PctChooser(seed)
    names = ("store", "a", "b", "c", "d")
    moves = [cast(Move, SimpleNamespace(agent=name)) for name in names]
    chosen = [moves[chooser.choose(moves)].agent for _ in range(20_000)]
    assert set(chosen[10_000:]) == set(names)


def test_priorities_decide_until_then() -> None:
    chooser = PctChooser(0, depth=1)
    moves = [cast(Move, SimpleNamespace(agent=name)) for name in ("poll", "store")]
    chosen = [moves[chooser.choose(moves)].agent for _ in range(2000)]
    assert len(set(chosen)) == 1
