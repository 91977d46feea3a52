"""Roles have a barrier of their own, whose id nobody picks, and a thread that is elected."""

from __future__ import annotations

import re

import pytest

import tilesim as ts
from tests.lib.lines import marks, roles
from tilesim.ir.expr import constant
from tilesim.ir.ops.bar import BarSync
from tilesim.transforms.lower import lower

GROUP = 128


@ts.kernel(warps=4)
def exchanged(k: ts.Builder, *, groups: int = 2, turns: int = 2, fault: str = "") -> None:
    """Every warpgroup writes a row together, and one thread of it copies it out, turn by turn."""
    k.launch(warps=4 * groups)
    Y = k.tensor("Y", ts.f32, (groups, turns, GROUP))
    words = k.shared("words", ts.f32, (groups, GROUP))
    part = k.fragment("part", ts.f32, (1, 32))
    for group in range(groups):
        with k.warpgroup(group, f"group {group}") as warps:
            with k.loop(turns) as turn:
                k.tile.fill(part, 1.0)  # @fill
                k.tile.store(words[group, ts.ds(32 * (k.warp_id - 4 * group), 32)], part)  # @write
                k.fence.proxy_async("shared::cta")  # @fence
                if fault != "complete":
                    warps.sync()  # @meet
                with warps.one_thread(3):  # @elect
                    k.bulk.store(Y[group, turn], words[group])  # @copy
                    k.bulk.commit_group()  # @commit
                    k.bulk.wait_group(0, read=True)  # @wait
                if fault != "free":
                    warps.sync()
            with warps.one_thread(3):
                k.bulk.wait_group(0)


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_warpgroups_meet_at_barriers_of_their_own(groups: int, turns: int) -> None:
    assert ts.check(exchanged(groups=groups, turns=turns)).verdict == "proved"


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("complete", ("elect", "fence", "copy", "write")),
        ("free", ("copy", "wait", "write")),
    ],
)
def test_a_meeting_left_out_is_found(fault: str, where: tuple[str, ...]) -> None:
    finding = ts.check(exchanged(fault=fault)).findings[0]
    assert (finding.rule, roles(finding)) == ("race", {"group 0"})
    assert set(where) <= set(marks(exchanged, finding))


def ids(k: ts.Builder) -> list[int | None]:
    """The ids of the named barriers that are used, in the order of the program."""
    ops = (op for op in lower(k.finish()).ops() if isinstance(op, BarSync))
    return [constant(op.id) for op in ops]


def test_ids_are_taken_when_they_are_needed_and_shared_by_the_same_warps() -> None:
    k = ts.Builder("meets", warps=12)
    with k.warpgroup(0):
        pass
    with k.warpgroup(1) as one:
        one.sync()
    with k.warpgroup(2) as two:
        two.sync()
    with k.role("again", [7, 6, 5, 4]) as again:
        again.sync()
    k.named_barrier(64).sync()
    assert ids(k) == [1, 2, 1, 3]


def test_an_id_picked_by_hand_is_left_alone() -> None:
    k = ts.Builder("meets", warps=8)
    k.bar.sync(1, 256)
    k.named_barrier().sync()
    assert ids(k) == [1, 2]


def test_an_id_that_was_given_out_is_refused() -> None:
    k = ts.Builder("meets", warps=8)
    with k.warpgroup(1) as warps:
        warps.sync()  # here
    with pytest.raises(ts.InvalidProgram) as error:
        k.bar.sync(1, 256)
    diagnostic = error.value.diagnostics[0]
    assert diagnostic.rule == "operand"
    assert re.search(r"named barrier 1 is in use since .*test_warps.py:\d+", diagnostic.message)


def test_there_are_fifteen() -> None:
    k = ts.Builder("meets")
    taken = [k.named_barrier(32).id for _ in range(15)]
    assert taken == list(range(1, 16))
    with pytest.raises(ts.InvalidProgram, match="all 15 named barriers are in use"):
        k.named_barrier(32)


def test_an_arrival_needs_a_number_of_threads() -> None:
    with pytest.raises(ts.InvalidProgram, match="the number of threads that join"):
        ts.Builder("meets").named_barrier().arrive()


def test_a_warp_that_is_none_of_these_is_refused() -> None:
    k = ts.Builder("meets", warps=8)
    with (
        k.warpgroup(1) as warps,
        pytest.raises(ts.InvalidProgram, match="the role has 4 warps, there is no warp 4 of it"),
    ):
        warps.one_thread(4)
