"""Words that are waited for: random programs, and what each rule is needed for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernel.counting import judged
from tests.sim.counting import Add, Fence, Model, Set, Spin, Touch, Warps, translate
from tilesim.ir.lower import lower
from tilesim.proof import counters
from tilesim.proof.check import certify
from tilesim.proof.counters import Word

SEEDS = range(60)
W, R = Touch(0, write=True), Touch(0, write=False)


def test_what_is_certified_is_right() -> None:
    said = [judged(seed) for seed in SEEDS]
    assert "certified, wrong" not in said
    assert said.count("certified, right") >= 25


def test_a_fence_behind_an_addition_hands_on_nothing_by_it() -> None:
    """The wait is executed when the second fence has been."""
    adds = (Fence(), W, Add(0, 1, release=False), Fence(), Add(1))
    found = certify(lower(translate(((Spin(1, 1), Spin(0, 1), R), adds))), assumed=("zero-state",))
    assert str(found) == "certified"
    threads = ((Spin(0, 1), R), adds)
    assert certify(lower(translate(threads)), assumed=("zero-state",)).rule == "H6"
    assert Model(threads).failures(20_000)


#: what is not asked, and a program that is certified then and wrong
WITHOUT: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Warps]] = {
    "counter-A": (
        lambda p: p.setattr(counters, "_after", lambda *_: True),
        ((W, Add(0)), (Spin(0, 1), R), (Add(0),)),
    ),
    "counter-A, stores": (
        lambda p: p.setattr(counters, "_hides", lambda *_: False),
        ((W, Add(0)), (Spin(0, 1), Set(0, 2, "relaxed")), (Spin(0, 1), R)),
    ),
    "counter-order": (
        lambda p: p.setattr(counters, "_after", lambda *_: True),
        ((Set(0, 1),), (Set(0, 2),), (Spin(0, 2),)),
    ),
    "counter-just": (
        lambda p: p.setattr(Word, "_just", lambda *_: None),
        ((W, Add(0)), (Add(0, 2),), (Spin(0, 2), R)),
    ),
    "counter-C": (
        lambda p: p.setattr(Word, "_still_passes", lambda *_: None),
        ((Spin(0, 1, "equal"),), (Add(0), Spin(1, 1), Add(0)), (Add(1),)),
    ),
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_each_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, threads = WITHOUT[rule]
    mir = lower(translate(threads))
    assert certify(mir, assumed=("zero-state",)).verdict == "not covered"
    patch(monkeypatch)
    assert str(certify(mir, assumed=("zero-state",))) == "certified"
    assert Model(threads).failures(20_000)
