"""The count of a barrier, and who arrives on it how often."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import pairwise

from tilesim.blame.arrays import array_of
from tilesim.blame.barriers import (
    COUNTED,
    Maker,
    about,
    executed,
    helpful,
    helps,
    inits,
    shares,
)
from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.history import Touch
from tilesim.blame.places import branch_past, loop_range
from tilesim.ir import effects as fx
from tilesim.sim.findings import Participant, Stated
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.words import count

_LANES = 32


def arrivals(number: int) -> str:
    """``1 arrival is made``."""
    return f"{count(number, 'arrival')} {'is' if number == 1 else 'are'} made"


def _arrivers(case: Case, on: Mbarrier) -> list[Participant]:
    """One participant per place at which arrivals are made, with how many these are."""
    places: dict[int, list[Touch]] = defaultdict(list)
    for credit in case.history.credits(on):
        if credit.arrivals > 0:
            places[credit.op.number].append(credit)
    found = []
    for credits in places.values():
        each = shares(credits)
        own = each.get((credits[0].warp, credits[0].op.number), 0)
        others = f", as {len(each)} warps do: {sum(each.values())} in all" if len(each) > 1 else ""
        what = f"makes {count(own, 'arrival')} on {on.label} each time{others}"
        found.append(case.of(credits[0], what))
    return found


def _by_all_lanes(
    case: Case, on: Mbarrier, each: dict[Maker, int], credits: list[Touch]
) -> Cause | None:
    """Arrivals that all lanes of a warp make, where the count is that of one of each."""
    total = sum(each.values())
    if any(made % _LANES for made in each.values()):
        return None
    if total != _LANES * on.expected and not (
        case.finding.rule == "over-arrival" and on.expected % _LANES
    ):
        return None
    if credits:
        op, side = credits[0].op, case.of(credits[0], f"is executed by all {_LANES} lanes")
    else:
        op = case.sides[0].op
        side = case.who(case.sides[0].warp, op, f"is executed by all {_LANES} lanes")
    init = case.init(on)
    if init is not None and any(isinstance(e, fx.Arrives) and e.asynchronous for e in op.effects()):
        return Cause(
            f"each lane's {op.mnemonic} on {on.label}, which counts {on.expected}, stands for the "
            "copies of that lane",
            (init, side),
            f"count all lanes that execute {op.mnemonic} on {on.label}",
        )
    return Cause(
        f"all {_LANES} lanes execute {op.mnemonic} on {on.label}, which counts {on.expected}: "
        "elect one",
        (side,) if init is None else (side, init),
        f"let one lane of each warp arrive on {on.label}, or count all of them",
        facts=Stated(lanes=_LANES),
    )


@diagnosis("over-arrival")
def again_without_a_wait(case: Case) -> Cause | None:
    """A warp that arrives again and has not waited for anything since it did so before."""
    history = case.history
    for side in case.sides[:1]:
        for on in about(case):
            # a loop that is unrolled has copies of one line
            made = [c for c in history.credits(on, side.warp) if c.op.loc == side.op.loc]
            if not made or on.pending or on.expected != made[-1].arrivals:
                continue
            if any(made[-1].issued < p.at for p in history.passes(side.warp)):
                continue
            waited: set[object] = {t.on for t in history.touches if t.kind == "pass"}
            waited |= {s.on for s in history.stuck}
            arrays = {array_of(o) for o in waited}
            lost = next(
                (
                    t for t in history.touches
                    if t.kind == "credit" and t.arrivals > 0 and isinstance(t.on, Mbarrier)
                    and array_of(t.on) not in arrays
                ),
                None,
            )  # fmt: skip
            sides = [] if lost is None else [case.of(lost, f"arrives on {lost.on.label}")]
            told = "" if lost is None else f", and nobody waits for {lost.on.label}"
            what = f"arrives on {on.label} again, without a wait before it"
            return Cause(
                f"{side.warp} arrives on {on.label} again and has not waited since its last "
                f"arrival{told}",
                (case.who(side.warp, side.op, what, on), *sides),
                f"wait before the next arrival on {on.label} until its phase is over and what it "
                "guards is used",
            )
    return None


@diagnosis(*COUNTED)
def count_of_arrivals(case: Case) -> Cause | None:
    """The init count is not the number of arrivals of one use."""
    for on in about(case):
        credits = [c for c in case.history.credits(on) if c.arrivals > 0]
        each = shares(credits)
        more = _one_more(case, on, credits)
        if case.finding.rule == "over-arrival" and case.sides and _is_about(case, on):
            each.setdefault((case.sides[0].warp, case.sides[0].op.number), _too_many(case))
        total = sum(each.values())
        init, by_turn = case.init(on), _by_turn(case, credits)
        per_turn = sum(by_turn.values()) + more
        right = (total, _of_one_loop(case, each), per_turn)
        if not total or init is None or on.expected in right:
            continue
        lanes = _by_all_lanes(case, on, each, credits)
        if lanes is not None:
            return lanes
        total = per_turn if per_turn != on.expected else total
        if total < on.expected and (case.finding.rule != "deadlock" or _to_come(case, on, each)):
            continue
        twice = _twice(credits, on.expected, each)
        own = _by_waiters(case, on, credits, each) if total > on.expected else None
        absent = _absent(case, on, credits) if total < on.expected else None
        early = None if total >= on.expected else _left_early(case, on, credits, each)
        sides = [init, *_arrivers(case, on), *_newcomer(case, on, credits)]
        if twice is not None:
            sides.insert(0, case.of(twice, f"arrives on {on.label} once more"))
        if own is not None:
            sides.insert(0, case.of(own, f"arrives on {on.label}, for which its warp waits"))
        if len(sides) > 1 and _of_more_warps(on, each, total):
            where = branch_past(case.history.machine.loaded.mir, credits[0].op)
            if where is not None:
                warps = len({warp for warp, _ in each})
                sides.insert(1, case.who(credits[0].warp, where, f"is entered by {warps} warps"))
        some = _some_lanes(case, credits, each) if total < on.expected else None
        if absent is not None:
            sides.insert(0, absent)
        elif early is not None:
            sides.insert(1, early)  # which of the two is wrong is unknown
        elif some is not None:
            sides.insert(0, some)
        elif total < on.expected and _leaves_out(case, on, credits):
            sides = [*sides[1:], init]
        elif total * case.history.machine.program.cluster_size == on.expected != total:
            # the count is that of all CTAs, who arrives is of one
            sides = [*sides[1:], init]
        return Cause(
            f"{on.label} is initialised with {on.expected}, and {arrivals(total)} on it per use",
            tuple(sides),
            f"let as many arrive on {on.label} in each phase as it counts: {on.expected} instead "
            f"of {total}, or initialise it with {total}",
            facts=Stated(arrivals=(total,)),
        )
    return None


@diagnosis("deadlock", first=True)
def adds_its_own(case: Case) -> Cause | None:
    """cp.async.mbarrier.arrive without .noinc makes the phase expect the arrivals that it makes:
    what the barrier was initialised with stays to come."""
    for on in about(case):
        made: dict[int, int] = defaultdict(int)
        credits = case.history.credits(on)
        for credit in credits:
            made[credit.op.number] += credit.arrivals
        for credit in credits:
            arrives = next((e for e in credit.op.effects() if isinstance(e, fx.Arrives)), None)
            if arrives is None or not arrives.lent or made[credit.op.number] or not on.pending:
                continue
            return Cause(
                f"{credit.op.mnemonic} without .noinc makes {on.label} expect the arrivals that it "
                f"makes: the {count(on.expected, 'arrival')} that it counts stay to come",
                (case.of(credit, "arrives without .noinc"), *inits(case, on)),
                f"use .noinc, or let others make the arrivals that {on.label} counts",
                facts=Stated(arrivals=(on.expected,)),
            )
    return None


def _to_come(case: Case, on: Mbarrier, each: dict[Maker, int]) -> bool:
    """Whether a warp that has not arrived yet would, once what it waits for itself has come: how
    many arrivals there are says nothing of the count then."""
    graph, made = case.history.waits_for, {warp for warp, _ in each}
    waiters = [s.warp for s in case.history.stuck if s.on is on]
    return graph is not None and any(
        warp not in made for waiter in waiters for warp, _ in graph.suppliers(waiter)
    )


def _of_more_warps(on: Mbarrier, each: dict[Maker, int], total: int) -> bool:
    """Whether the count is that of all lanes of fewer warps than arrive."""
    warps = {warp for warp, _ in each}
    return (
        len(warps) > 1 and total == _LANES * len(warps) > on.expected > _LANES
        and not on.expected % _LANES
    )  # fmt: skip


def _by_waiters(
    case: Case, on: Mbarrier, credits: list[Touch], each: dict[Maker, int]
) -> Touch | None:
    """An arrival by warps that wait for the barrier themselves, without which the count fits."""
    waiting = {t.warp for t in case.history.touches if t.kind == "pass" and t.on is on}
    waiting |= {s.warp for s in case.history.stuck if s.on is on}
    mine = [c for c in credits if c.warp in waiting]
    others = sum(n for (warp, _), n in each.items() if warp not in waiting)
    return mine[0] if mine and others == on.expected else None


def _too_many(case: Case) -> int:
    """How many arrivals an over-arrival says are made at once."""
    return next(iter(case.finding.facts.arrivals), 1)


def _is_about(case: Case, on: Mbarrier) -> bool:
    """Whether the finding names a barrier."""
    return on.named in case.finding.facts.named


def _one_more(case: Case, on: Mbarrier, credits: list[Touch]) -> int:
    """1 if the arrival that is too many is one of a turn in which its warp has arrived; in the
    first phase all those of one who has not arrived before."""
    if case.finding.rule != "over-arrival" or not case.sides:
        return 0
    if _newcomer(case, on, credits):
        return _too_many(case)
    warp = case.sides[0].warp
    own = [c.issued for c in credits if c.warp is warp]
    passed = [p.at for p in case.history.passes(warp)]
    return int(bool(own) and (not passed or passed[-1] < own[-1]))


def _newcomer(case: Case, on: Mbarrier, credits: list[Touch]) -> list[Participant]:
    """Who arrives on a barrier for the first time, in its first phase, and is too many."""
    if case.finding.rule != "over-arrival" or on.phase or not _is_about(case, on):
        return []
    return [
        case.who(side.warp, side.op, f"makes {count(_too_many(case), 'arrival')} more")
        for side in case.sides[:1] if all(c.warp is not side.warp for c in credits)
    ]  # fmt: skip


def _by_turn(case: Case, credits: list[Touch]) -> dict[Agent, int]:
    """By warp: the arrivals that it usually makes between two waits that it passes."""
    found: dict[Agent, int] = {}
    for warp in dict.fromkeys(c.warp for c in credits):
        passed = [p.at for p in case.history.passes(warp)]
        turns: Counter[int] = Counter()
        for credit in credits:
            if credit.warp is warp:
                turns[bisect_left(passed, credit.issued)] += credit.arrivals
        usual = Counter(turns.values())
        found[warp] = max(usual, key=lambda value: (usual[value], value))
    return found


def _of_one_loop(case: Case, each: dict[Maker, int]) -> int:
    """The arrivals per use if those of different loops belong to different uses."""
    mir = case.history.machine.loaded.mir
    loops = {number: loop_range(mir, mir.code[number].what) for _, number in each}
    found: dict[tuple[Agent, object], int] = defaultdict(int)
    for (warp, number), arrivals in each.items():
        found[warp, loops[number]] += arrivals
    by_warp: dict[Agent, int] = {}
    for (warp, _), arrivals in found.items():
        by_warp[warp] = max(arrivals, by_warp.get(warp, 0))
    return sum(by_warp.values())


def _absent(case: Case, on: Mbarrier, credits: list[Touch]) -> Participant | None:
    """The condition that keeps an instruction from being executed which would arrive as well."""
    made = {c.op.number for c in credits}
    for warp in case.history.machine.warps:
        for op in helpful(case, warp, on):
            if op.number in made or not helps(case, warp, op, on) or executed(case, warp, op, on):
                continue
            where = case.history.condition_past(warp, op)
            if where is not None and any(isinstance(e, fx.Arrives) for e in op.effects()):
                return case.who(warp, where, f"keeps {op.mnemonic} from being executed")
    return None


def _left_early(
    case: Case, on: Mbarrier, credits: list[Touch], each: dict[Maker, int]
) -> Participant | None:
    """The condition by which a warp ends without the arrival that others make, if it is the one
    that is missing."""
    history = case.history
    for (maker, number), made in each.items():
        op = next(c.op for c in credits if c.op.number == number)
        if sum(each.values()) + made != on.expected:
            continue
        for warp in history.machine.warps:
            if warp.cta is not maker.cta or not warp.exited or history.executions(warp, number):
                continue
            where = history.condition_past(warp, op)
            mine = history.between(warp, 0, 1 << 62)
            through = any(
                d.op.number > op.number and not any(isinstance(e, fx.Exits) for e in d.op.effects())
                for d in mine
            )
            if where is not None and not through:
                return case.who(warp, where, f"ends by this condition, without the {op.mnemonic}")
    return None


def _some_lanes(case: Case, credits: list[Touch], each: dict[Maker, int]) -> Participant | None:
    """Where lanes of a warp end, or part from those that arrive, of which there are others."""
    for (warp, number), made in each.items():
        if not 1 < made < _LANES:
            continue
        first = next(c for c in credits if c.warp is warp and c.op.number == number)
        for done in case.history.between(warp, 0, first.issued):
            if any(isinstance(e, fx.Exits) for e in done.op.effects()):
                return case.who(warp, done, "ends lanes that do not arrive")
        where = branch_past(case.history.machine.loaded.mir, first.op)
        if where is not None:
            return case.who(warp, where, f"lets {made} lanes of it arrive")
    return None


def _leaves_out(case: Case, on: Mbarrier, credits: list[Touch]) -> bool:
    """Whether warps that arrive on the barrier elsewhere do not do so here."""
    made = {c.warp for c in credits}
    waiting = {s.warp for s in case.history.stuck if s.on is on}
    return any(
        case.history.supplies(warp, on) and case.history.passes(warp)
        for warp in case.history.machine.warps if warp not in made | waiting
    )  # fmt: skip


def _twice(credits: list[Touch], expected: int, each: dict[Maker, int]) -> Touch | None:
    """The second of two arrivals that the same warps make, without which the count is right; best
    one that does the same as another one."""
    numbers = sorted({number for _, number in each})
    found = []
    for number in reversed(numbers):
        rest = sum(n for (_, other), n in each.items() if other != number)
        warps = {w for w, other in each if other == number}
        made = next((c for c in credits if c.op.number == number), None)
        if made and rest == expected and warps <= {w for w, other in each if other != number}:
            found.append(made)
    same = [
        c for c in found
        if any(o.op.number < c.op.number and o.tx == c.tx and o.arrivals == c.arrivals
               for o in credits)
    ]  # fmt: skip
    again = (
        b for a, b in pairwise(credits)
        if a.warp is b.warp and a.op.loc == b.op.loc and a.op.number < b.op.number
        and a.phase != b.phase
    )  # fmt: skip
    return next(iter((*same, *found, *again)), None)
