"""Words that are waited for: random programs, and what each rule is needed for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tilesim as ts
from tests.campaign import tally
from tests.kernel.random_counters import judged
from tests.sim.counting import Add, Fence, Model, Set, Spin, Touch, Warps, translate
from tilesim.checker import check
from tilesim.checker.certificate_file import text_of
from tilesim.checker.certificates import certified
from tilesim.proof import counters
from tilesim.proof.check import certify
from tilesim.proof.counters import Word
from tilesim.transforms.lower import lower

SEEDS = range(60)
W, R = Touch(0, write=True), Touch(0, write=False)


def test_what_is_certified_is_right() -> None:
    found = tally(judged, SEEDS)
    assert not found.wrong
    assert found.said["certified, right"] >= 25


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


@ts.kernel
def all_ctas_meet(k: ts.Builder, *, ctas: int = 3) -> None:
    """Each CTA stores, all meet, and each loads what the next one has stored."""
    k.launch(grid=ctas, warps=1, cooperative=True)
    g, count = k.tensor("g", ts.s32, (ctas,)), k.tensor("count", ts.s32, (1,))
    seen = k.var("seen", 0)
    with k.elected():
        k.mem.store(g[k.cta_x], 1)
        k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
        with k.while_(seen < ctas):
            k.mem.load(seen, count[0], sem="acquire", scope="gpu")
        k.mem.load(seen, g[(k.cta_x + 1) % ctas])


def test_a_certificate_says_that_clusters_are_executed_together() -> None:
    report = check(all_ctas_meet, certificate=True)
    made = report.certificate
    assert made is not None
    assert (report.verdict, str(report.rechecked), made.together) == ("proved", "certified", True)
    assert made.assumptions == ("zero-state",)
    assert str(ts.recheck(text_of(made), all_ctas_meet)) == "certified"
    assert "others may change" in ts.recheck(replace(made, together=False), all_ctas_meet).what
    assert "is not known" in ts.recheck(replace(made, assumptions=()), all_ctas_meet).what
    large = check(all_ctas_meet, params={"ctas": 17}, certificate=True)
    assert (large.verdict, str(large.rechecked).partition(":")[0]) == ("proved", "not covered")


def test_what_words_begin_with_is_named_by_a_certificate() -> None:
    inputs = {"count": np.array([3], np.int32)}
    made, answer = certified(all_ctas_meet.build(), "practice", ("zero-state",), None, inputs)
    assert made.inputs == (("count", inputs["count"].tobytes()),)
    assert (answer.verdict, answer.rule) == ("refuted", "H6")
