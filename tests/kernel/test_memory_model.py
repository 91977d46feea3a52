"""Random programs of strong accesses that are certified have no race by PTX's axioms."""

from __future__ import annotations

from functools import partial

import pytest

from tests.campaign import tally
from tests.kernel.random_memory_model import judged
from tests.sim.weak_campaign import Kind
from tilesim.proof.memory import Memory

KINDS: tuple[Kind, ...] = ("lanes", "barriers")
SEEDS = range(60)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_certified_is_right(kind: Kind) -> None:
    found = tally(partial(judged, kind=kind), SEEDS)
    assert not found.wrong
    assert found.said["certified, right"] >= 5


def test_what_one_schedule_shows_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """If what it has left in a word is taken for what every other one leaves, races are missed."""
    monkeypatch.setattr(Memory, "settled", lambda *_, **__: True)
    monkeypatch.setattr(Memory, "_race", lambda *_: None)
    assert tally(partial(judged, kind="lanes"), SEEDS).said["certified, wrong"]
