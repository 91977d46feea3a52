"""setmaxnreg: synchronisation between two of them, one site by the text, and the pool (E13-E18)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from tilesim import Builder, Program, f32
from tilesim.checker import Report, check
from tilesim.findings.finding import Participant
from tilesim.ir.program import Strict
from tilesim.sim.machine.register_pool import RegisterPool

from .sites import BOTH, sites


def build(function: Callable[..., None], *, registers: int, warps: int, **params: Any) -> Program:
    k = Builder("kernel", "sm_90a", warps)
    k.launch(registers=registers)
    function(k, **params)
    return k.finish()


def twice(k: Builder, *, between: str) -> None:
    """A warpgroup gives registers back and asks for some of them again."""
    with k.role("WG", range(4)):
        k.setmaxnreg("dec", 40)
        match between:
            case "bar":
                k.bar.sync(1, 128)
            case "two bars":
                k.bar.sync(1 + k.warp_id // 2, 64)
            case "cluster":
                k.cluster.sync()
        k.setmaxnreg("inc", 64)


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize(
    ("wrong", "right"), [("nothing", "bar"), ("two bars", "bar"), ("nothing", "cluster")]
)
def test_a_warpgroup_synchronises_between_two(wrong: str, right: str, strict: Strict) -> None:
    report = check(build(twice, warps=4, registers=168, between=wrong), strict=strict)
    assert report.verdict == "failed"
    assert sites(report, twice) == [
        ("participation", {
            ("WG", 'k.setmaxnreg("dec", 40)'), ("WG", 'k.setmaxnreg("inc", 64)'),
        })
    ]  # fmt: skip
    fixed = check(build(twice, warps=4, registers=168, between=right), strict=strict)
    assert (fixed.verdict, fixed.findings) == ("proved", ())


def repeated(k: Builder, *, second: int) -> None:
    with k.role("WG", range(4)):
        k.setmaxnreg("dec", 40)
        k.setmaxnreg("dec", second)  # again


def test_in_practice_one_that_changes_nothing_needs_no_synchronisation() -> None:
    same = build(repeated, warps=4, registers=168, second=40)
    assert check(same).verdict == "proved"
    sides = {("WG", 'k.setmaxnreg("dec", 40)'), ("WG", 'k.setmaxnreg("dec", second)  # again')}
    assert sites(check(same, strict="ptx"), repeated) == [("participation", sides)]
    less = build(repeated, warps=4, registers=168, second=24)
    assert sites(check(less), repeated) == [("participation", sides)]


def several_sites(k: Builder, *, several: bool) -> None:
    """Every warp of a warpgroup has a role of its own, and gives the same registers back."""
    if not several:
        with k.role("all", range(4)):
            k.setmaxnreg("dec", 40)
    for i in range(4):
        with k.role(f"role{i}", i):
            if several:
                k.setmaxnreg("dec", 40)  # of a role


def test_by_the_text_a_warpgroup_executes_one_site() -> None:
    several = build(several_sites, warps=4, registers=168, several=True)
    assert check(several).verdict == "proved"
    report = check(several, strict="ptx")
    assert report.verdict == "failed"
    line = 'k.setmaxnreg("dec", 40)  # of a role'
    assert sites(report, several_sites) == [
        ("participation", {(f"role{i}", line) for i in range(4)})
    ]
    one = build(several_sites, warps=4, registers=168, several=False)
    assert check(one, strict="ptx").verdict == "proved"


def single_roles(k: Builder, *, up: int = 0, down: int = 48) -> None:
    """Three warps of a warpgroup give back less than the fourth one, which has nothing to do, or
    take more than that; another warpgroup takes all that is free."""
    with k.role("works", range(3)):
        k.setmaxnreg("inc", up) if up else k.setmaxnreg("dec", down)  # works
    with k.role("idle", 3):
        k.setmaxnreg("dec", 24)  # idle
    with k.role("takes", range(4, 8)):
        k.setmaxnreg("inc", 208)  # takes


def test_in_practice_warps_of_a_warpgroup_give_back_different_numbers() -> None:
    """128 x 8 registers are 208 x 4 + 48 x 3 + 24, and 24 that nobody has."""
    several = build(single_roles, warps=8, registers=128)
    report = check(several)
    assert report.verdict == "proved"
    (leaning,) = (one for one in report.leanings if one.name == "E15")
    assert {loc.line for loc in leaning.locs} == {p.loc.line for p in _different(several)}
    sides = {
        ("works", 'k.setmaxnreg("inc", up) if up else k.setmaxnreg("dec", down)  # works'),
        ("idle", 'k.setmaxnreg("dec", 24)  # idle'),
    }
    assert ("participation", sides) in sites(check(several, strict="ptx"), single_roles)
    one_takes = check(build(single_roles, warps=8, registers=128, up=136))
    assert ("participation", sides) in sites(one_takes, single_roles)


def test_registers_of_another_partition_are_of_no_use() -> None:
    """3 x 72 + 104 registers are 4 x 80, but three warps that ask run where 72 were given back."""
    report = check(build(single_roles, warps=8, registers=128, down=56))
    assert report.verdict == "failed"
    (finding,) = report.findings
    assert finding.rule == "register-pool"
    assert [p.warp for p in finding.participants] == [4]
    text = "the register pool holds 2304 registers for warps whose number modulo 4 is 0"
    assert text in " ".join(finding.notes)


def _different(program: Program) -> Sequence[Participant]:
    """The sides of the finding at `ptx` that warps of a warpgroup give back different numbers."""
    found = check(program, strict="ptx").findings
    return next(f.participants for f in found if "different" in f.message)


def second_group(k: Builder, *, last: int) -> None:
    with k.role("gives", range(4, last + 1)):
        k.setmaxnreg("dec", 40)


def test_by_the_text_a_warpgroup_has_four_warps() -> None:
    incomplete = build(second_group, warps=6, registers=168, last=5)
    assert check(incomplete).verdict == "proved"
    report = check(incomplete, strict="ptx")
    assert sites(report, second_group) == [
        ("participation", {("gives", 'k.setmaxnreg("dec", 40)')})
    ]
    whole = build(second_group, warps=8, registers=168, last=7)
    assert check(whole, strict="ptx").verdict == "proved"


# ---------------------------------------------------------------------- the pool


def back_and_forth(k: Builder, *, ordered: bool, up: int = 216) -> None:
    """Two warpgroups take turns with the registers: 40 + 216 is all that two of 128 have."""
    turns = [k.mbarriers(f"turn{i}") for i in range(2)]
    with k.one_thread():
        for turn in turns:
            k.mbarrier.init(turn, 128)
    k.sync_threads()
    for i in range(2):
        with k.role(f"WG{i}", range(4 * i, 4 * i + 4)):
            k.setmaxnreg("dec", 40)
            with k.loop(5) as n:
                if ordered:
                    if i == 0:
                        with k.if_(n > 0):
                            k.mbarrier.wait(turns[1], (n - 1) & 1)
                    else:
                        k.mbarrier.wait(turns[0], n & 1)
                k.bar.sync(1 + i, 128)
                k.setmaxnreg("inc", up)
                k.bar.sync(1 + i, 128)
                k.setmaxnreg("dec", 40)
                k.mbarrier.arrive(turns[i])


def test_registers_handed_back_and_forth_are_proved() -> None:
    for strict in BOTH:
        report = check(build(back_and_forth, warps=8, registers=128, ordered=True), strict=strict)
        assert (report.verdict, report.findings) == ("proved", ()), report
    report = check(build(back_and_forth, warps=8, registers=128, ordered=True, up=224))
    assert report.verdict == "failed"
    assert {f.rule for f in report.findings} == {"register-pool"}


def test_registers_that_each_group_may_hold_a_part_of_are_not_proved() -> None:
    """Without turns two warps of each warpgroup may get theirs, and all wait for the others."""
    report = check(build(back_and_forth, warps=8, registers=128, ordered=False))
    assert report.verdict == "failed"
    assert report.findings[0].rule in ("register-pool", "deadlock")


def halves(k: Builder, *, up: int) -> None:
    """Two warpgroups take what a third gave, in any order, several times."""
    with k.role("gives", range(8, 12)):
        k.setmaxnreg("dec", 24)
    for i in range(2):
        with k.role(f"WG{i}", range(4 * i, 4 * i + 4)), k.loop(2):
            k.setmaxnreg("inc", up)
            k.bar.sync(1 + i, 128)
            k.setmaxnreg("dec", 168)
            k.bar.sync(1 + i, 128)


def test_a_pool_that_holds_enough_for_all_is_enough_in_any_order() -> None:
    assert check(build(halves, warps=12, registers=168, up=240)).verdict == "proved"
    report = check(build(halves, warps=12, registers=168, up=256))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"
    assert {line for _, line in sites(report, halves)[0][1]} >= {'k.setmaxnreg("inc", up)'}


def parted(k: Builder) -> None:
    """One lane of each warp goes ahead, and no barrier behind it hands over memory: the lanes have
    not met, though each waits for all."""
    barriers = k.mbarriers("parted", 12)
    with k.if_(k.lane_id.eq(0), sync=False):
        k.mbarrier.init(barriers[k.warp_id], 1)
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()


def lanes_that_have_parted(k: Builder, *, up: int, turns: bool) -> None:
    """One warpgroup gives, a warp of it late. The next takes ``up`` and gives that back, and the
    last one, which keeps 248, comes after it (``turns``) or in any order."""
    X = k.tensor("X", f32, (32,))
    parted(k)
    with k.role("gives", range(4)):
        with k.if_(k.warp_id.eq(0)), k.loop(8):
            k.mem.store(X[k.lane_id], 0)
        k.setmaxnreg("dec", 40)
    with k.role("lends", range(4, 8)):
        k.setmaxnreg("inc", up)
        k.bar.sync(1, 128)
        k.setmaxnreg("dec", 168)
        if turns:
            k.bar.arrive(2, 256, aligned=False)
    with k.role("keeps", range(8, 12)):
        if turns:
            k.bar.sync(2, 256, aligned=False)
        k.setmaxnreg("inc", 248)


def test_lanes_that_have_not_met_change_the_registers_of_their_warp_once() -> None:
    """As CUTLASS' ping-pong kernel: its roles part behind a relaxed cluster barrier."""

    def checked(strict: Strict, **params: Any) -> Report:
        program = build(lanes_that_have_parted, warps=12, registers=168, **params)
        # a random schedule shows what is wrong, without lanes of twelve warps in all orders
        return check(program, strict=strict, budget=500)

    right = checked("ptx", up=232, turns=True)
    assert (right.verdict, right.findings) == ("proved", ()), right
    in_any_order = checked("practice", up=232, turns=False)
    assert in_any_order.verdict == "failed"
    assert sites(in_any_order, lanes_that_have_parted) == [
        (
            "register-pool",
            {
                ("lends", 'k.setmaxnreg("inc", up)'),
                ("lends", "k.bar.sync(1, 128)"),
                ("keeps", 'k.setmaxnreg("inc", 248)'),
            },
        )
    ]


# ---------------------------------------------------------------------- all schedules

#: gives registers (positive), takes some (negative), or waits for an event of another warp
Event = int | tuple[int, int]


@dataclass(eq=False)
class Fake:
    """What the pool asks of a warp."""

    component: int
    clock: Any
    cta: Any
    exited: bool = False
    registers: int = 0
    number: int = 0

    @property
    def moment(self) -> int:
        return int(self.clock[self.component])


@dataclass
class FakeCta:
    warps: list[Fake] = field(default_factory=list)


def some_events(rng: random.Random) -> list[list[Event]]:
    """Two or three warps with some events each; a warp may wait for a place of an earlier one."""
    warps: list[list[Event]] = [[] for _ in range(rng.choice((2, 3)))]
    for _ in range(rng.randint(3, 8)):
        warp = rng.randrange(len(warps))
        other = rng.randrange(len(warps))
        if rng.random() < 0.4 and other != warp and warps[other]:
            warps[warp].append((other, rng.randint(1, len(warps[other]))))
        warps[warp].append(rng.choice((-2, -1, 1, 2, 3)))
    return warps


def successors(
    warps: list[list[Event]], parts: Sequence[int], state: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """The states after one more event: ``state`` says how many each warp has executed, ``parts``
    on which partition of the SM each runs."""
    free = dict.fromkeys(parts, 0)
    for part, w, n in zip(parts, warps, state, strict=True):
        free[part] += sum(e for e in w[:n] if isinstance(e, int))
    for i, n in enumerate(state):
        if n < len(warps[i]):
            event = warps[i][n]
            if isinstance(event, tuple):
                ready = state[event[0]] >= event[1]
            else:
                ready = free[parts[i]] + event >= 0
            if ready:
                yield (*state[:i], n + 1, *state[i + 1 :])


def can_get_stuck(warps: list[list[Event]], parts: Sequence[int]) -> bool:
    """Whether some schedule does not get to the end."""
    end, seen = tuple(map(len, warps)), {(0,) * len(warps)}
    todo = list(seen)
    while todo:
        state = todo.pop()
        following = list(successors(warps, parts, state))
        if not following and state != end:
            return True
        todo += [s for s in following if s not in seen]
        seen.update(following)
    return False


def opinion(warps: list[list[Event]], parts: Sequence[int], rng: random.Random) -> bool | None:
    """Whether the pool is certain after one random run; None if that got stuck."""
    cta = FakeCta()
    count = len(warps)
    cta.warps = [
        Fake(i, np.zeros(count, dtype=np.int64), cta, number=part) for i, part in enumerate(parts)
    ]
    for fake in cta.warps:
        fake.clock[fake.component] = 1
    pool = RegisterPool(cast(Any, None), cast(Any, cta.warps))
    past: list[list[Any]] = [[] for _ in warps]
    state = (0,) * count
    while state != tuple(map(len, warps)):
        following = list(successors(warps, parts, state))
        if not following:
            return None
        after = rng.choice(following)
        i = next(n for n in range(count) if after[n] != state[n])
        event, fake = warps[i][state[i]], cta.warps[i]
        if isinstance(event, tuple):
            np.maximum(fake.clock, past[event[0]][event[1] - 1], out=fake.clock)
        elif event > 0:
            pool.give(cast(Any, fake), event)
        else:
            assert pool.take(cast(Any, fake), cast(Any, "op"), -event)
        past[i].append(fake.clock.copy())
        fake.clock[i] += 1
        state = after
    return pool.doubtful is None


def test_the_pool_is_certain_only_where_no_schedule_gets_stuck() -> None:
    """Against all schedules of small random programs; most that cannot get stuck are told so."""
    rng = random.Random(0)
    right = told = 0
    for _ in range(1500):
        warps = some_events(rng)
        parts = rng.choice(([0, 0, 0], [0, 1, 0], [2, 1, 0]))[: len(warps)]
        stuck, certain = can_get_stuck(warps, parts), opinion(warps, parts, rng)
        assert not (stuck and certain), (warps, parts)
        right += not stuck
        told += bool(certain)
    assert right > 150
    assert told > 0.8 * right
