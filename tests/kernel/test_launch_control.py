"""Programs with launch control (`clusterlaunchcontrol`): what is certified is right whatever the
answers are."""

from __future__ import annotations

import pytest

from tests.campaign import tally
from tests.kernel.programs import taken_over
from tests.kernel.random_launch_control import judged
from tests.litmus.notation import global_words
from tilesim import Builder
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower


@pytest.mark.parametrize("number", range(1, 13))
def test_random_programs_are_certified_only_if_they_are_right(number: int) -> None:
    assert not judged(number).wrong


def test_right_programs_are_certified() -> None:
    assert tally(judged, range(1, 9)).count("certified") >= 2


def works(k: Builder) -> None:
    g = global_words(k, "g", 8)
    with taken_over(k) as taken:
        k.mem.store(g[taken.tile], 1)


def test_what_a_certificate_claims_of_launch_control_is_not_believed() -> None:
    """Neither that clusters do other things than others, nor that iterations repeat."""
    builder = Builder("works")
    works(builder)
    mir = lower(builder.finish())
    assert str(certify(mir)) == str(certify(mir, [range(5)])) == "certified"
    some = certify(mir, [[0, 1], [2, 3, 4]])
    assert str(some) == "not covered: launch control, of clusters that differ"
    left_out = certify(mir, [range(5)], [[Repetition(2, 1, 2)]])
    assert str(left_out) == "not covered: repetitions of requests to launch control"


def test_executed_instructions_are_those_of_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder("works")
    works(builder)
    mir = lower(builder.finish())
    monkeypatch.setattr("tilesim.proof.machine.MOST_STEPS", 120)
    assert certify(mir).what == "more than 120 executed instructions"
