"""Arrivals on mbarriers: their count, missing ones, ones too many, at home or at a peer.

A warp that writes into a peer's memory waits until that has been read, on a barrier of its own CTA:
the peer has to arrive there (``mapa`` and ``mbarrier.arrive.release.cluster.shared::cluster``, PTX
9.7.13.15.13), and with a multicast every CTA of its mask on the barrier of every CTA that issues
one. Which CTAs that are is read off the memory that the waiting role accesses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import mentioned
from tilesim.arith.types import pred
from tilesim.findings.finding import Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import mbar_at, peer_address
from tilesim.ir.declarations import Mbar, Mbarriers, View
from tilesim.ir.expr import Const, Expr, Special, Var, binary, constant, walk
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierInit,
    MbarrierWait,
)
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import If
from tilesim.ir.sites import sites
from tilesim.mistakes.barrier_use import (
    Maker,
    about,
    elsewhere,
    executes,
    first_per_instruction,
    reached,
    shares,
)
from tilesim.mistakes.context import (
    FAR,
    LANES,
    Facts,
    Focus,
    Place,
    array_of,
    branch_past,
    effect_of,
    has,
    is_election,
    is_own_address,
    mbars,
)
from tilesim.mistakes.edits import (
    Edit,
    after,
    before,
    beside,
    by_line,
    changed,
    family,
    of_places,
)
from tilesim.mistakes.fences import brief
from tilesim.mistakes.history import Touch
from tilesim.mistakes.mistake import Case, Cause, setters_in_loop
from tilesim.mistakes.operands import parities_at, slots_at, to_its_scope
from tilesim.records import replace
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent
from tilesim.transforms.rewrite import Instead
from tilesim.wording import count


def arrivals(number: int) -> str:
    """``1 arrival is made``."""
    return f"{count(number, 'arrival')} {'is' if number == 1 else 'are'} made"


def _arrivers(case: Case, on: Mbarrier) -> Iterator[Participant]:
    """One participant per place at which arrivals are made, with how many these are."""
    places: dict[int, list[Touch]] = defaultdict(list)
    for credit in case.history.arrivals(on=on):
        places[credit.op.number].append(credit)
    for credits in places.values():
        each = shares(credits)
        own = each.get((credits[0].warp, credits[0].op.number), 0)
        others = f", as {len(each)} warps do: {sum(each.values())} in all" if len(each) > 1 else ""
        what = f"makes {count(own, 'arrival')} on {on.label} each time{others}"
        yield case.of(credits[0], what)


def _by_all_lanes(
    case: Case, on: Mbarrier, each: dict[Maker, int], credits: list[Touch]
) -> Cause | None:
    """Arrivals that all lanes of a warp make, where the count is that of one of each."""
    uneven = case.finding.rule == "over-arrival" and on.expected % LANES
    if any(made % LANES for made in each.values()):
        return None
    if sum(each.values()) != LANES * on.expected and not uneven:
        return None
    what, init = f"is executed by all {LANES} lanes", case.inits(on)
    if credits:
        op, side = credits[0].op, case.of(credits[0], what)
    else:
        op = case.sides[0].op
        side = case.warp(case.sides[0].warp, op, what)
    if init and has(op, fx.Arrives, asynchronous=True):
        return Cause(
            f"each lane's {op.mnemonic} on {on.label}, which counts {on.expected}, stands for the "
            "copies of that lane",
            (*init, side),
            f"count all lanes that execute {op.mnemonic} on {on.label}",
        )
    return Cause(
        f"all {LANES} lanes execute {op.mnemonic} on {on.label}, which counts {on.expected}: "
        "elect one",
        (side, *init),
        f"let one lane of each warp arrive on {on.label}, or count all of them",
        facts=Stated(lanes=LANES),
    )


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
            arrays = {array_of(other) for other in history.waited}
            lost = next((t for t in history.arrivals() if array_of(t.on) not in arrays), None)
            also = "" if lost is None else f", and no warp waits for {lost.on.label}"
            what = f"arrives on {on.label} again, without a wait before it"
            return Cause(
                f"{side.warp} arrives on {on.label} again and has not waited since its last "
                f"arrival{also}",
                (case.warp(side.warp, side.op, what, on),
                 *(() if lost is None else (case.arrives(lost),))),
                f"before the next arrival on {on.label}, wait until its phase is over and its "
                f"data is used",
            )  # fmt: skip
    return None


def count_of_arrivals(case: Case) -> Cause | None:
    """The init count is not the number of arrivals of one use."""
    for on in about(case):
        credits = case.history.arrivals(on=on)
        each = shares(credits)
        more = _one_more(case, on, credits)
        if case.finding.rule == "over-arrival" and case.sides and _is_about(case, on):
            each.setdefault((case.sides[0].warp, case.sides[0].op.number), _too_many(case))
        total = sum(each.values())
        init, per_iteration = case.inits(on), _per_turn(case, credits) + more
        right = (total, _of_one_loop(case, each), per_iteration)
        if not total or not init or on.expected in right:
            continue
        lanes = _by_all_lanes(case, on, each, credits)
        if lanes is not None:
            return lanes
        total = per_iteration
        if total < on.expected and (case.finding.rule != "deadlock" or _to_come(case, on, each)):
            continue
        few = total < on.expected
        twice = _twice(credits, on.expected, each)
        own = _by_waiters(case, on, credits, each) if total > on.expected else None
        early = _left_early(case, on, credits, each) if few else None
        some = _some_lanes(case, credits, each) if few else None
        sides = [*init, *_arrivers(case, on), *_newcomer(case, on, credits)]
        if twice is not None:
            sides.insert(0, case.of(twice, f"arrives on {on.label} once more"))
        if own is not None:
            sides.insert(0, case.of(own, f"arrives on {on.label}, for which its warp waits"))
        warps = len({warp for warp, _ in each})
        if total == LANES * warps > on.expected > LANES:  # which is that of fewer warps
            where = branch_past(case.mir, credits[0].op)
            if where is not None:
                sides.insert(1, case.warp(credits[0].warp, where, f"is entered by {warps} warps"))
        # the count is that of all CTAs, the arrivals are of one
        of_all = total * case.history.machine.program.cluster_size == on.expected != total
        without = _gets_none(case, on, total)
        if early is not None:
            sides.insert(1, early)  # which of the two is wrong is unknown
        elif some is not None:
            sides.insert(0, some)
        elif without is not None or of_all or (few and _leaves_out(case, on, credits)):
            sides = [*(side for side in sides if side not in init), *init]
        what = f"{on.label} is initialised with {on.expected}, and {arrivals(total)} on it per use"
        fix = f"make as many arrivals on {on.label} in each phase as it counts: {on.expected} "
        fix += f"instead of {total}, or initialise it with {total}"
        if without is not None:
            what += f", and none on {without.label}"
            fix = f"let the arrivals that are meant for {without.label} name it"
        return Cause(what, tuple(sides), fix, facts=Stated(arrivals=(total,)))
    return None


def adds_its_own(case: Case) -> Cause | None:
    """cp.async.mbarrier.arrive without .noinc makes the phase expect the arrivals that it makes:
    what the barrier was initialised with stays to come."""
    for on in about(case):
        made: dict[int, int] = defaultdict(int)
        credits = case.history.credits(on)
        for credit in credits:
            made[credit.op.number] += credit.arrivals
        for credit in credits:
            arrives = effect_of(credit, fx.Arrives)
            if arrives is None or not arrives.lent or made[credit.op.number] or not on.pending:
                continue
            return Cause(
                f"{credit.op.mnemonic} without .noinc adds its arrivals to the count of "
                f"{on.label}: the {count(on.expected, 'arrival')} of the init count are still "
                f"pending",
                (case.of(credit, "arrives without .noinc"), *case.inits(on)),
                f"use .noinc, or let other instructions make the arrivals that {on.label} counts",
                facts=Stated(arrivals=(on.expected,)),
            )
    return None


def _to_come(case: Case, on: Mbarrier, each: dict[Maker, int]) -> bool:
    """Whether a warp that has not arrived yet would, once what it waits for itself has come: how
    many arrivals there are says nothing of the count then."""
    made = {warp for warp, _ in each}
    waiters = (s.warp for s in case.history.stuck if s.on is on)
    return any(warp not in made for w in waiters for warp, _ in case.history.suppliers(w))


def _by_waiters(
    case: Case, on: Mbarrier, credits: list[Touch], each: dict[Maker, int]
) -> Touch | None:
    """An arrival by warps that wait for the barrier themselves, without which the count fits."""
    waiting = case.history.waiters(on)
    others = sum(n for (warp, _), n in each.items() if warp not in waiting)
    mine = (c for c in credits if c.warp in waiting)
    return next(mine, None) if others == on.expected else None


def _too_many(case: Case) -> int:
    """How many arrivals an over-arrival says are made at once."""
    return next(iter(case.finding.facts.arrivals), 1)


def _is_about(case: Case, on: Mbarrier) -> bool:
    """Whether the finding names a barrier."""
    return on.named in case.finding.facts.named


def _one_more(case: Case, on: Mbarrier, credits: list[Touch]) -> int:
    """1 if the arrival that is too many is one of a turn in which its warp has arrived; in the
    first phase all those of a warp that has not arrived before."""
    if case.finding.rule != "over-arrival" or not case.sides:
        return 0
    if _newcomer(case, on, credits):
        return _too_many(case)
    warp = case.sides[0].warp
    own = [c.issued for c in credits if c.warp is warp]
    passed = [p.at for p in case.history.passes(warp)]
    return int(bool(own) and (not passed or passed[-1] < own[-1]))


def _newcomer(case: Case, on: Mbarrier, credits: list[Touch]) -> list[Participant]:
    """The warp that arrives on a barrier for the first time, in its first phase, one too many."""
    if case.finding.rule != "over-arrival" or on.phase or not _is_about(case, on):
        return []
    return [
        case.warp(side.warp, side.op, f"makes {count(_too_many(case), 'arrival')} more")
        for side in case.sides[:1] if all(c.warp is not side.warp for c in credits)
    ]  # fmt: skip


def _per_turn(case: Case, credits: list[Touch]) -> int:
    """The arrivals that warps usually make, each between two waits that it passes."""
    total = 0
    for warp in dict.fromkeys(c.warp for c in credits):
        passed = [p.at for p in case.history.passes(warp)]
        iterations: Counter[int] = Counter()
        for credit in credits:
            if credit.warp is warp:
                iterations[bisect_left(passed, credit.issued)] += credit.arrivals
        usual = Counter(iterations.values())
        total += max(usual, key=lambda value: (usual[value], value))
    return total


def _of_one_loop(case: Case, each: dict[Maker, int]) -> int:
    """The arrivals per use if those of different loops belong to different uses."""
    found: dict[Agent, Counter[object]] = defaultdict(Counter)
    for (warp, number), made in each.items():
        found[warp][case.loop_range(case.mir.code[number].what)] += made
    return sum(max(by_loop.values()) for by_loop in found.values())


def _some_lanes(case: Case, credits: list[Touch], each: dict[Maker, int]) -> Participant | None:
    """Where lanes of a warp diverge from those that arrive, of which there are others."""
    for (warp, number), made in each.items():
        if not 1 < made < LANES:
            continue
        first = next(c for c in credits if c.warp is warp and c.op.number == number)
        where = branch_past(case.mir, first.op)
        if where is not None and where != UNKNOWN:  # a predicate that is part of the arrival
            return case.warp(warp, where, f"lets {made} lanes of it arrive")
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
        for warp in history.peers(maker):
            if not warp.exited or history.executions(warp, number):
                continue
            where = history.condition_past(warp, op)
            mine = history.between(warp)
            through = any(d.op.number > op.number and not has(d, fx.Exits) for d in mine)
            if where is not None and not through:
                return case.warp(warp, where, f"ends by this condition, without the {op.mnemonic}")
    return None


def _gets_none(case: Case, on: Mbarrier, total: int) -> Mbarrier | None:
    """The barrier of another CTA at the same place on which no arrival is made, where this one gets
    those of all: arrivals that are meant for it name this one."""
    history, ctas = case.history, case.history.machine.program.cluster_size
    if ctas == 1 or total != ctas * on.expected:
        return None
    others = (b for b in history.objects() if b.address == on.address and b.cta is not on.cta)
    return next((b for b in others if b.live and not history.arrivals(on=b)), None)


def _leaves_out(case: Case, on: Mbarrier, credits: list[Touch]) -> bool:
    """Whether warps that arrive on the barrier elsewhere do not do so here."""
    made = {c.warp for c in credits}
    waiting = {s.warp for s in case.history.stuck if s.on is on}
    return any(
        case.history.supplies(warp, on) and case.history.passes(warp)
        for warp in case.history.machine.warps if warp not in made | waiting
    )  # fmt: skip


def _twice(credits: list[Touch], expected: int, each: dict[Maker, int]) -> Touch | None:
    """The second of two arrivals that the same warps make, without which the count is right."""
    numbers = sorted({number for _, number in each})
    found = []
    for number in reversed(numbers):
        rest = sum(n for (_, other), n in each.items() if other != number)
        warps = {w for w, other in each if other == number}
        made = next((c for c in credits if c.op.number == number), None)
        if made and rest == expected and warps <= {w for w, other in each if other != number}:
            found.append(made)
    again = (
        b for a, b in pairwise(credits)
        if a.warp is b.warp and a.op.loc == b.op.loc and a.op.number < b.op.number
    )  # fmt: skip
    return next(iter((*found, *again)), None)


def never_arrived(case: Case) -> Cause | None:
    """A barrier on which no arrival has been made: the warp that should make one, and where."""
    history = case.history
    for on in about(case):
        credits = history.credits(on)
        if any(c.arrivals > 0 for c in credits):
            continue
        others = [c for c in elsewhere(case, on) if _is_surplus(case, c)]
        if others:
            return Cause(
                f"no arrival comes on {on.label}: the one meant for it names another barrier",
                (*(case.arrives(c) for c in others), *case.inits(on)),
                f"let an arrival name {on.label}",
            )
        waiters = [stuck.warp for stuck in history.stuck if stuck.on is on]
        if any(map(history.suppliers, waiters)):
            continue
        bare = first_per_instruction(c for c in credits if c.tx > 0)
        if bare:
            return Cause(
                f"no instruction arrives on {on.label}: its bytes are expected without an arrival",
                (*(case.of(c, f"expects {c.tx} bytes and does not arrive") for c in bare),
                 *case.inits(on)),
                f"arrive on {on.label} as well: arrive.expect_tx",
            )  # fmt: skip
        starts = _starts_over(case, on)
        if starts:
            return Cause(
                f"no instruction arrives on {on.label}: the slot of the arrivals returns to 0 "
                f"before this one",
                (*starts, *case.inits(on)),
                "let the slot take every value",
            )
        apart = _from_some_ctas(case, on)
        if apart is not None:
            return apart
        where = _last_use(case, on)
        if where is not None:
            return Cause(
                f"{on.label} expects {count(on.expected, 'arrival')} per phase; no instruction "
                "arrives on it",
                (where, *case.inits(on)),
                f"arrive on {on.label} after this, in every iteration",
                facts=Stated(arrivals=(on.expected,)),
            )
        if waiters and not any(history.supplies(warp, on) for warp in history.machine.warps):
            return Cause(
                f"no instruction arrives on {on.label}, which counts "
                f"{count(on.expected, 'arrival')}",
                (*(case.warp(s.warp, s.blocked.op or s.blocked.loc, f"waits on {on.label}", on)
                   for s in history.stuck if s.on is on), *case.inits(on)),
                f"arrive on {on.label} before this wait",
                facts=Stated(arrivals=(on.expected,)),
            )  # fmt: skip
    return None


def _is_surplus(case: Case, arrival: Touch) -> bool:
    """Whether a barrier has got more arrivals than the waits on it need: one of them may be
    meant for another barrier."""
    history, on = case.history, arrival.on
    passed = [t.phase for t in history.passes(on=on)]
    uses = max([-1, *passed, *(s.phase for s in history.stuck if s.on is on)]) + 1
    return sum(c.arrivals for c in history.credits(on)) > on.expected * uses


def _from_some_ctas(case: Case, on: Mbarrier) -> Cause | None:
    """A warp that does not execute what the same warp of another CTA does, by which it would arrive
    on the barrier."""
    history = case.history
    for credit in elsewhere(case, on):
        for warp in history.machine.warps:
            same = warp.number == credit.warp.number and warp.cta is not credit.warp.cta
            if not same or history.executions(warp, credit.op.number):
                continue
            where = history.condition_past(warp, credit.op)
            if where is None or not history.names(warp, credit.op, on, (fx.Arrives,)):
                continue
            return Cause(
                f"no arrival comes on {on.label}: {warp} does not execute the "
                f"{credit.op.mnemonic} by which {credit.warp} arrives on {credit.on.label}",
                (case.warp(warp, where, f"skips that {credit.op.mnemonic} by this condition"),
                 case.arrives(credit), *case.inits(on)),
                f"let {warp} arrive on {on.label}",
            )  # fmt: skip
    return None


def _starts_over(case: Case, on: Mbarrier) -> tuple[Participant, ...]:
    """Where a register with the slot is set of arrivals on a barrier's array that have gone back to
    the first slot without a use of this one; empty: there are none such."""
    history, mir = case.history, case.mir
    for warp in history.machine.warps:
        for op in history.supplies(warp, on):
            made = [history.number_of(t.on) or 0 for t in history.arrivals(warp) if t.op is op]
            back = any(b < a < (history.number_of(on) or 0) for a, b in pairwise(made))
            indices = [e.mbar.index for e in op.effects() if isinstance(e, fx.Arrives)]
            steps = [n for n in setters_in_loop(case, op, indices) if not mir.code[n].counts]
            last = mir.code[steps[-1]].what if steps else None
            if back and isinstance(last, Op):
                where = branch_past(mir, last)
                return tuple(
                    case.warp(warp, loc, "lets its slot start over")
                    for loc in (where, last.loc) if loc is not None
                )  # fmt: skip
    return ()


def _last_use(case: Case, on: Mbarrier) -> Participant | None:
    """The last thing that a warp does which warps that wait for ``on`` have let go on: it should
    arrive."""
    history = case.history
    waiters = {s.warp for s in history.stuck if s.on is on}
    for stuck in history.stuck:
        if stuck.warp in waiters:
            continue
        passes = [
            p for p in history.passes(stuck.warp)
            if any(history.supplies(w, p.on) for w in waiters)
        ][-1:]  # fmt: skip
        for last in passes:
            done = history.between(stuck.warp, last.at)
            iteration = [d for d in done if d.iterations == history.turns_at(last)] or done
            for place in ([d for d in iteration if has(d, fx.Arrives)] or iteration)[-1:]:
                what = f"does not arrive on {on.label} afterwards"
                return case.warp(stuck.warp, place, what, on)
    return None


#: slots, and parities of a wait, that are tried at one place
_SLOTS, _PARITIES = 4, 6


def wanted_arrays(facts: Facts, focus: Focus) -> list[Mbarriers]:
    """The arrays that the findings name, those of the first one first; all, if they name none."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    near = [a for a in arrays if a.name in focus.names]
    return near or [a for a in arrays if focus.distance_of({a.name}) < FAR] or arrays


def spots_of(facts: Facts, focus: Focus) -> Iterator[tuple[Place, bool]]:
    """Where an arrival may be missing: the ends of blocks, then behind and before what
    synchronises or takes part; and whether it comes after the statement there."""
    ends = [(b[-1], True) for b in facts.blocks if b]
    inner = sorted(ends, key=lambda e: (-len(e[0].loops), not e[0].one))
    yield from inner
    for place in facts.ops:
        if has(place, fx.Waits, fx.Arrives, fx.Completes, fx.WaitsGroup, fx.JoinsBarrier):
            yield place, True
        elif focus.distance(place) <= 1:
            yield place, True
            yield place, False


@family("missing arrival")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival on a barrier that a finding names, by a lane or by all."""
    remote = facts.kernel.cluster_size > 1
    for array in wanted_arrays(facts, focus):
        waiters = {p.role for p in facts.using(array.name, fx.Waits)}
        for place, late in spots_of(facts, focus):
            if place.role in waiters and len({p.role for p in facts.ops}) > 1:
                continue
            if not facts.blocks or has(place, fx.InitsMbarrier):
                continue
            for slot in slots_at(facts, place, array)[:_SLOTS]:
                for cta in (None, Const(0)) if remote else (None,):
                    yield from _added(facts, Mbar(array, slot), place, late,
                                      (cta,))  # fmt: skip


def _added(facts: Facts, mbar: Mbar, place: Place, late: bool, targets: Targets) -> Iterator[Edit]:
    """Arrivals on the barriers of all targets next to a statement; by one lane, too, where all
    execute it."""
    like = MbarrierArrive(mbar=mbar, loc=place.loc)
    arrivals = tuple(_on(mbar, cta, like) for cta in targets)
    new, side = beside(place, late, *arrivals)
    what = arrivals_text(facts, arrivals)
    yield of_places(f"{what} {side} {brief(place)}", [(place, new)], 2)
    if place.one or isinstance(facts.program, Mir):
        return
    elected = Var(facts.fresh("elected"), pred)
    region = If(cond=elected, then=arrivals, loc=place.loc)
    new, _ = beside(place, late, ElectSync(result=elected, loc=place.loc), region)
    edit = of_places(f"{what} by one lane {side} {brief(place)}", [(place, new)], 2)
    yield replace(edit, variables=(elected,))


def arrivals_text(facts: Facts, arrivals: tuple[MbarrierArrive, ...]) -> str:
    """Arrivals in words."""
    return " and ".join(f"{op.mnemonic} on {facts.shown(op.mbar)}" for op in arrivals)


@family("other side")
def _other_side(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival where a condition does not hold, if there is one where it does."""
    wanted = {array.name for array in wanted_arrays(facts, focus)}
    for place in facts.places:
        region = place.what
        if not isinstance(region, If) or region.orelse or is_election(facts, region.cond):
            continue
        inside = [p.op for p in facts.ops if place.number in p.within]
        found = [e for op in inside for e in op.effects() if isinstance(e, fx.Arrives)]
        for effect in {e.mbar: e for e in found if e.mbar.array.name in wanted}.values():
            arrive = MbarrierArrive(mbar=effect.mbar, loc=place.loc)
            what = (
                f"{arrive.mnemonic} on {facts.shown(effect.mbar)} also where "
                f"{facts.shown(region.cond)} does not hold"
            )
            new = replace(region, orelse=(arrive,))
            yield of_places(what, [(place, (new,))], 1)


@family("missing wait")
def _wait(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A wait before an instruction that takes part, on any barrier."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    unwaited = [a for a in arrays if not any(facts.using(a.name, fx.Waits))]
    arrays.sort(key=lambda a: (a not in unwaited, focus.distance_of({a.name})))
    for place in facts.ops:
        first = facts.block_of.get(place.number, (place,))[0].number == place.number
        if focus.distance(place) > (1 if not first else 4) or has(place, fx.InitsMbarrier):
            continue
        for array in arrays:
            for slot in slots_at(facts, place, array)[:2]:
                mbar = Mbar(array, slot)
                for phase in parities_at(facts, place, [mbar])[:_PARITIES]:
                    for wait, said in waiting(facts, mbar, phase, place):
                        what = f"{said} before {brief(place)}"
                        yield of_places(what, [(place, before(place, *wait))], 2)


def waiting(
    facts: Facts, mbar: Mbar, phase: Expr, place: Place
) -> Iterator[tuple[tuple[Op, ...], str]]:
    """A wait, and in words what it is: with the step of the register that its parity is made of,
    if there is one, then without."""
    wait = MbarrierWait(mbar=mbar, phase=phase, loc=place.loc)
    what = f"{wait.mnemonic} on {facts.shown(mbar)} parity {facts.shown(phase)}"
    for var in _registers(facts, phase):
        step = Assign(var=var, value=binary("^", var, 1), loc=place.loc)
        yield (wait, step), f"{what} and {var.name} ^= 1"
    yield (wait,), what


@family("wait, not arrival")
def _wait_instead(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A wait where a role arrives on a barrier for which it waits elsewhere."""
    for place in facts.ops:
        if not has(place, fx.Arrives) or has(place, fx.Issues, fx.Completes):
            continue
        for mbar in mbars(place.op):
            array = mbar.array
            if not isinstance(array, Mbarriers) or mbar.remote:
                continue
            if not any(p.role == place.role for p in facts.using(array.name, fx.Waits)):
                continue
            for phase in parities_at(facts, place, [mbar])[:_PARITIES]:
                for wait, said in waiting(facts, mbar, phase, place):
                    what = f"{said} instead of {brief(place)}"
                    yield of_places(what, [(place, wait)], 2)


@family("missing step")
def _step(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A register with a parity that is not turned behind the wait that it is for."""
    for place in facts.ops:
        for site in sites(place.op):
            if site.kind != "phase":
                continue
            for var in _registers(facts, site.value):
                turned = Assign(var=var, value=binary("^", var, 1), loc=place.loc)
                block = facts.block_of.get(place.number, (place,))
                for spot in dict.fromkeys((place.number, block[-1].number)):
                    target = facts.places[spot]
                    what = f"{var.name} ^= 1 after {brief(target)}"
                    yield of_places(what, [(target, after(target, turned))], 2)


def _registers(facts: Facts, phase: Expr) -> Iterator[Var]:
    loops = {loop.var.name for p in facts.places for loop in p.loops}
    for expr in walk(phase):
        if isinstance(expr, Var) and expr.name not in loops:
            yield expr


RANK = Special("cluster_rank")
#: clusters of more CTAs are named by no source line
_MOST = 8

#: the barriers to arrive on, each by its CTA; None: that of the executing CTA
Targets = tuple[Expr | None, ...]


@family("peer arrival")
def _peer(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival on the barriers of the CTAs that wait for this one: in the place of one on the own
    barrier, beside it, where a condition lets only some CTAs arrive, or where there is none."""
    if not 1 < facts.kernel.cluster_size <= _MOST:
        return
    for array in wanted_arrays(facts, focus):
        for targets in _targets(facts, array):
            plain = (p for p in facts.arrays.get(array.name, ()) if any(_mbars(p.op)))
            for places in by_line(plain, lambda place: (place.loc, place.role)):
                yield from _instead(facts, places, targets)
                yield from _by_all(facts, places, targets)
            waiters = {p.role for p in facts.using(array.name, fx.Waits)}
            for place, late in spots_of(facts, focus):
                if place.role not in waiters:
                    for slot in slots_at(facts, place, array)[:4]:
                        yield from _added(facts, Mbar(array, slot), place, late,
                                          targets)  # fmt: skip
    if isinstance(facts.program, Mir):
        yield from _at_addresses(facts, facts.program)


def _at_addresses(facts: Facts, mir: Mir) -> Iterator[Edit]:
    """The same of barriers at addresses, as compiled code has them: in the place of an arrival on
    the own one, and beside it; with the count of the inits of that barrier, where it has more."""
    own = (p for p in facts.ops if any(map(is_own_address, _mbars(p.op))))
    for places in by_line(own, lambda place: place.loc.written_places):
        inits = _inits(facts, mir, places)
        counts = {constant(s.value) for p in inits for s in sites(p.op) if s.kind == "count"}
        for targets in _any(facts.kernel.cluster_size):
            for edit in _instead(facts, places, targets):
                yield edit
                for known in counts - {None} if len(counts) == 1 else ():
                    count = Const((known or 0) * facts.kernel.cluster_size)
                    raised = {p.number: (changed(p.op, count=count),) for p in inits}
                    what = f"{edit.what}; count {count} in {inits[0].op.mnemonic}"
                    lines = dict.fromkeys((*edit.lines, *(p.loc for p in inits)))
                    yield replace(edit, what=what, instead={**edit.instead, **raised}, size=2,
                                  lines=tuple(lines))  # fmt: skip


def _mbars(op: Op) -> Iterator[Mbar]:
    """The barriers of a plain arrival."""
    if isinstance(op, MbarrierArrive) and op.token is None:
        yield op.mbar


def _any(size: int) -> Iterator[Targets]:
    """The CTAs that an arrival may have been meant for: the peer (as well), all, each CTA."""
    if size == 2:
        yield (binary("^", RANK, 1),)
        yield None, binary("^", RANK, 1)
    else:
        yield tuple(Const(n) for n in range(size))
    yield from ((Const(n),) for n in range(size))


def _inits(facts: Facts, mir: Mir, places: list[Place]) -> list[Place]:
    """The inits of the barriers on which some arrivals may be: at the same address, else those of
    what their addresses are made of."""
    inits = [p for p in facts.ops if isinstance(p.what, MbarrierInit)]
    wanted = {m for p in places for m in _addresses(p.op)}
    same = [p for p in inits if wanted & set(_addresses(p.op))]
    if same:
        return same
    names = frozenset(n for p in places for e in _addresses(p.op) for n in _bases(mir, e))
    return [p for p in inits if any(names & _bases(mir, e) for e in _addresses(p.op))]


def _addresses(op: Op) -> Iterator[Expr]:
    mbar = getattr(op, "mbar", None)
    if isinstance(mbar, Mbar) and isinstance(mbar.array, AddressedMbarriers):
        yield mbar.array.address


def _bases(mir: Mir, address: Expr) -> frozenset[str]:
    """The declarations that an address is made of, through the registers in it."""

    def sources_of(name: str) -> Iterator[str]:
        for number in mir.setters.get(name, ()):
            value = getattr(mir.code[number].what, "value", None)
            yield from mentioned(value) if isinstance(value, Expr) else ()

    return frozenset(name for name in closure(mentioned(address), sources_of) if name[0] == "&")


# ------------------------------------------------------------------ CTAs to arrive in


def _targets(facts: Facts, array: Mbarriers) -> list[Targets]:
    """Whose barriers of an array a CTA has to arrive on, the likeliest first: those of the CTAs
    whose waiting role accesses its memory; if that is not known, one peer, all, each CTA's."""
    own = _accessing(facts, array)
    if own is None:
        return [*_any(facts.kernel.cluster_size)]
    targets = _spelled(own)
    return [] if targets is None else [targets]


def _accessing(facts: Facts, array: Mbarriers) -> list[frozenset[int]] | None:
    """By rank of a CTA, the ranks of those whose warps that wait on an array access its memory;
    None if a rank is not known."""
    size = facts.kernel.cluster_size
    found: list[set[int]] = [set() for _ in range(size)]
    roles = {p.role for p in facts.using(array.name, fx.Waits)}
    for place in facts.ops:
        if place.role not in roles:
            continue
        for rank in range(size):
            if not executes(facts, place, rank):
                continue
            for reach in _memories(place.op):
                there = reached(*reach, rank, size)
                if there is None:
                    return None
                for cta in there:
                    found[cta].add(rank)
    return [frozenset(ranks) for ranks in found]


def _memories(op: Op) -> Iterator[tuple[Expr | None, Expr | None]]:
    """The shared memories that an instruction accesses: of which CTA (None: the own one), with
    the mask of a multicast."""
    mask = next((s.value for s in sites(op) if s.kind == "mask" and s.value is not None), None)
    for effect in op.effects():
        view = getattr(effect, "view", None)
        if isinstance(view, View) and view.space.startswith("shared"):
            written = isinstance(effect, fx.Writes | fx.RemoteStore)
            yield view.cta, mask if written else None


def _spelled(ranks: list[frozenset[int]]) -> Targets | None:
    """CTAs by rank as expressions that are the same in every CTA; None if there are none such, or
    each has to arrive at home alone."""
    size = len(ranks)
    known = {r: own for r, own in enumerate(ranks) if own}
    if not known or all(own == {r} for r, own in known.items()):
        return None
    if len(set(known.values())) == 1:
        return tuple(Const(n) for n in sorted(next(iter(known.values()))))
    for by in ("^", "+"):
        steps = [
            {n ^ r if by == "^" else (n - r) % size for n in own} for r, own in known.items()
        ]  # fmt: skip
        if all(step == steps[0] and max(step) < size for step in steps):
            return tuple(_stepped(by, n, size) for n in sorted(steps[0]))
    return None


def _stepped(by: str, step: int, size: int) -> Expr | None:
    if not step:
        return None
    return binary("^", RANK, step) if by == "^" else binary("%", binary("+", RANK, step), size)


# ------------------------------------------------------------------ the edits


def _on(mbar: Mbar, cta: Expr | None, like: MbarrierArrive) -> MbarrierArrive:
    """An arrival like another one, on the barrier of a CTA: of one at an address, as ``mapa`` has
    it."""
    if isinstance(mbar.array, AddressedMbarriers) and cta is not None:
        there = mbar_at(peer_address(mbar.array.address, cta), space="shared::cluster")
        return replace(like, mbar=there, scope="cluster")
    new = to_its_scope(changed(like, mbar=replace(mbar, cta=cta)))
    assert isinstance(new, MbarrierArrive)
    return new


def _instead(facts: Facts, places: list[Place], targets: Targets) -> Iterator[Edit]:
    """Arrivals on all targets in the place of those of a line, which keep their own target if it
    is one of them."""
    arrivals = [place.op for place in places if isinstance(place.op, MbarrierArrive)]
    there = {repr(op.mbar.cta) for op in arrivals}
    missing = [cta for cta in targets if repr(cta) not in there]
    if not missing:
        return
    stays = len(missing) < len(targets)
    further = [tuple(_on(op.mbar, cta, op) for cta in missing) for op in arrivals]
    new: list[tuple[Place, Instead]] = [
        (place, after(place, *more) if stays else more)
        for place, more in zip(places, further, strict=True)
    ]
    side = "as well" if stays else f"instead of {facts.shown(arrivals[0].mbar)}"
    yield of_places(f"{arrivals_text(facts, further[0])} {side}", new, 2 if stays else 1
    )  # fmt: skip


def _by_all(facts: Facts, places: list[Place], targets: Targets) -> Iterator[Edit]:
    """Where only some CTAs arrive, the others do so as well, all on the targets."""
    for place in places:
        if not place.within:
            continue
        region = facts.places[place.within[-1]]
        cond = region.what
        if not isinstance(cond, If) or cond.orelse or is_election(facts, cond.cond):
            continue
        ranks = [executes(facts, place, n) for n in range(facts.kernel.cluster_size)]
        op = place.op
        if all(ranks) or not any(ranks) or not isinstance(op, MbarrierArrive):
            continue
        arrivals = tuple(_on(op.mbar, cta, op) for cta in targets)
        what = f"{arrivals_text(facts, arrivals)} where {facts.shown(cond.cond)} does not hold"
        new = replace(cond, orelse=arrivals)
        yield of_places(what, [(region, (new,))], 1)
