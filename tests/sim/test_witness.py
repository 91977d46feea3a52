"""Witnesses: they replay, they are short, and loading one trusts nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tilesim import Builder, Program, UsageError
from tilesim.checker import check
from tilesim.checker.witness import Witness, load, replay
from tilesim.ir.text.mir import fingerprint, parse, to_text
from tilesim.transforms.lower import lower

from .test_explore import arrivals


def late_second_arrival() -> Program:
    """Two phases of one arrival each; the second thread arrives long after the first, usually."""
    k = Builder("late", warps=3)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("early", 0), k.elected():
        k.mbarrier.arrive(b)
    with k.role("late", 1):
        with k.loop(200):
            k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(b)
    with k.role("waiter", 2):
        k.mbarrier.wait(b, 0)
    return k.finish()


GOOD: dict[str, Any] = {
    "schema": 2, "kernel": "arrivals", "strict": "practice", "policy": "replay",
    "clusters": [0], "choices": {"0": [1, 0, 2]}, "program": "0123456789abcdef",
}  # fmt: skip


def test_witness_of_a_schedule_that_must_be_chosen_replays_the_findings() -> None:
    program = late_second_arrival()
    report = check(program)
    assert report.witness is not None
    assert report.witness["policy"] == "replay"
    again = replay(program, load(json.dumps(report.witness)))
    assert [f.rule for f in again.findings] == [
        f.rule for f in report.findings if f.rule == "deadlock"
    ]
    assert again.findings[0] == report.findings[0]


def test_witness_is_shortened() -> None:
    """Only the picks that matter are left: few are not zero, none of them trails."""
    report = check(late_second_arrival())
    assert report.witness is not None
    (picks,) = report.witness["choices"].values()
    assert len(picks) <= 12
    assert picks == [] or picks[-1] != 0


def test_witness_round_trips() -> None:
    assert Witness.from_dict(GOOD).to_dict() == GOOD
    smaller = {**GOOD, "params": {"stages": 1}}
    assert Witness.from_dict(smaller).to_dict() == smaller


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "reads version 2"),
        ({"kernel": 3}, "names no kernel"),
        ({"strict": "lax"}, "strictness 'lax'"),
        ({"policy": "import os"}, "policy 'import os'"),
        ({"clusters": ["0"]}, "clusters is not a list"),
        ({"clusters": [-1]}, "clusters is not a list"),
        ({"choices": []}, "not an object of lists"),
        ({"choices": {"zero": [0]}}, "not a cluster number"),
        ({"choices": {"0": [0, -1]}}, "choices of cluster 0"),
        ({"choices": {"0": [True]}}, "choices of cluster 0"),
        ({"choices": {"0": [1 << 40]}}, "choices of cluster 0"),
        ({"program": None}, "no fingerprint"),
        ({"program": "0123456789ABCDEF"}, "no fingerprint"),
        ({"params": [1]}, "params are not integers"),
        ({"params": {"stages": "1"}}, "params are not integers"),
    ],
)
def test_malformed_witness_is_refused_with_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_text_that_is_no_witness(text: str) -> None:
    with pytest.raises(UsageError):
        load(text)


def test_witness_of_another_kernel_or_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="not of arrivals"):
        replay(arrivals(2, 1), {**GOOD, "kernel": "other"})
    own = {**GOOD, "program": fingerprint(lower(arrivals(2, 1)))}
    with pytest.raises(UsageError, match="clusters the kernel does not have"):
        replay(arrivals(2, 1), {**own, "clusters": [3]})


def test_witness_of_another_program_is_refused() -> None:
    """The same kernel with another count: its schedules mean nothing here."""
    own = {**GOOD, "program": fingerprint(lower(arrivals(2, 1))), "choices": {}}
    assert [f.rule for f in replay(arrivals(2, 1), own).findings] == ["deadlock"]
    with pytest.raises(UsageError, match="recorded on another program than this arrivals"):
        replay(arrivals(2, 2), own)


def test_a_witness_holds_for_the_program_by_other_names() -> None:
    """What barriers, roles and registers are called, and on which lines, is not executed."""
    program = late_second_arrival()
    report = check(program)
    assert report.witness is not None
    text = to_text(lower(program))
    for old, new in (("b", "phases"), ("elected", "chosen"), ("i", "turn")):
        text = re.sub(rf"(?<![%.\w]){old}\b(?=[\[: ,.]|$)", new, text, flags=re.MULTILINE)
    text = text.replace('"late"', '"second"')
    other = parse("\n" + text)
    assert other.kernel.shared != program.shared
    (again,) = replay(other, report.witness).findings
    (own,) = replay(program, report.witness).findings
    assert (again.rule, again.message) == ("deadlock", own.message)
    assert "phases" in str(again)
