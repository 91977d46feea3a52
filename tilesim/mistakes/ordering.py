"""What is missing between two accesses: what waits, what hands on, what keeps a target alive."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilesim.findings.finding import Kind, Named, Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.mistakes.context import LANES, array_of, branch_past, effect_of, has, loops_around
from tilesim.mistakes.history import END, STORES, Accessed, Done, Stuck, Touch, is_later
from tilesim.mistakes.mistake import Case, Cause, Side
from tilesim.mistakes.release_acquire_paths import (
    directions,
    flags,
    group_of,
    last_wait,
    links,
    strong,
    strong_accesses,
    word_of,
    writes,
)
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.register_pool import launch_registers
from tilesim.sim.machine.warp import Agent, names_of
from tilesim.wording import count

#: races between lanes of a warp, or that a lane of a warp hides which releases for others
LANES_APART: tuple[Kind, ...] = ("race/lanes", "race/released-by-lanes")


def no_barrier_before_release(case: Case) -> Cause | None:
    """One thread tells the other side for several warps, and has not waited for all of them: the
    barrier of threads before it is missing."""
    for first, second in directions(case):
        if first.done is None or not first.sure or group_of(first.op) is not None:
            continue
        for at, warp, op, arrival in _releases(case, first, second):
            lost = _unheard(case, first, warp, op, at)
            if lost is None or lost.done is None or lost.warp.cta is not warp.cta:
                continue  # another CTA has to arrive itself
            last = [
                d for d in case.history.between(lost.warp, lost.at, case.made)
                if lost.op.number < d.op.number < op.number
            ]  # fmt: skip
            own = last[0] if last else lost.done
            on = None if arrival is None else arrival.on
            where = "sets a flag" if on is None else f"arrives on {on.label}"
            return Cause(
                f"{warp} {where} for {lost.warp} as well, without a barrier of threads before",
                (case.warp(lost.warp, own, f"is not waited for by {warp}"),
                 case.warp(warp, op, f"{where} for all of them", on)),
                f"execute {bar_of(case, [warp, *sharing(case, lost)])} before the {op.mnemonic} "
                f"of {warp}",
            )  # fmt: skip
    return None


def _unheard(case: Case, first: Side, warp: Agent, op: Op, at: int) -> Side | None:
    """Whose access a warp hands on by an instruction without having met it: the side's; or, if it
    hands on for lanes of its own that it has not met either, that of others that do the same."""
    if warp is not first.warp:
        unmet = same_code(case, first, op) and not meet(case, first.warp, first.at, warp, at)
        return first if unmet else None
    nth = 0 if first.done is None else first.done.nth
    for other in sharing(case, first):
        for done in case.history.executions(other, first.op.number)[nth : nth + 1]:
            side = Side(other, first.op, done)
            if same_code(case, side, op) and not meet(case, other, side.at, warp, at):
                return side
    return None


def sharing(case: Case, side: Side) -> list[Agent]:
    """The warps of a side's CTA that execute its instruction."""
    copies = case.history.machine.plan.copies(side.op.number)
    return [
        w for w in case.history.peers(side.warp)
        if any(case.history.executions(w, n) for n in copies)
    ]  # fmt: skip


def bar_of(case: Case, warps: Collection[Agent]) -> str:
    """The barrier in which some warps of a CTA meet, in PTX's words."""
    numbers = sorted({w.number for w in warps})
    if set(numbers) == {w.number for w in case.history.peers(next(iter(warps)))}:
        return "bar.sync of the whole CTA"
    first = [n for n in numbers if n - 1 not in numbers]
    last = [n for n in numbers if n + 1 not in numbers]
    runs = ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(first, last, strict=True))
    return f"bar.sync of the {LANES * len(numbers)} threads of warps {runs}"


def _releases(
    case: Case, first: Side, second: Side
) -> Iterator[tuple[int, Agent, Op, Touch | None]]:
    """When, and by which warp, what the second side has waited for was announced: by flags in
    memory, and by the last barrier that it has waited for (the arrival)."""
    for write, _ in flags(case, first, second):
        yield write.at, write.warp, write.op, None
    wait = last_wait(case, second)
    for credit in counted(case, wait):
        yield credit.issued, credit.warp, credit.op, credit


def counted(case: Case, wait: Touch | None) -> list[Touch]:
    """The arrivals without bytes that have ended the phase that was waited for."""
    made = [] if wait is None else case.history.arrivals(on=wait.on)
    return [c for c in made if wait is not None and c.phase == wait.phase and not c.tx]


def same_code(case: Case, side: Side, op: Op) -> bool:
    """Whether a warp comes by an instruction that another one executes for it, and does not execute
    it: both are in one region, and in one loop."""
    plan = case.history.machine.plan
    together = plan.role_of(op) == plan.role_of(side.op)
    loops = case.loop_range(op) == case.loop_range(side.op)
    return together and loops and not case.history.executions(side.warp, op.number)


def meet(case: Case, first: Agent, after: int, second: Agent, before: int) -> bool:
    """Whether two warps are in one round of a barrier of threads, to which the first one comes
    after a time, and the second one before another; a warp that waits there may have come early."""
    joins = case.history.joins
    mine = {(j.on, j.phase) for j in joins if j.warp is first and j.issued > after}
    others = {(j.on, j.phase) for j in joins if j.warp is second and j.issued < before}
    return bool(mine & others)


def let_wait(case: Case, later: Side, earlier: Side) -> str:
    """What to do about two accesses of different warps that nothing connects; empty: what the
    finding says, if that is about the same order of the two."""
    if case.finding.rule != "race":
        return ""
    how, known = group_of(earlier.op), earlier is case.sides[1]
    if how in _WAITED:
        return (
            f"once {earlier.warp} has waited for its {earlier.op.mnemonic} "
            f"({_WAITED[how]}.commit_group and wait_group), let {later.warp} wait for "
            f"{earlier.warp}: a barrier of threads that both join, or an mbarrier"
        )
    if how is not None and known:
        return ""
    near = later.warp.cta is earlier.warp.cta
    if near:
        bar = bar_of(case, [*sharing(case, earlier), *sharing(case, later)])
    elif later.warp.cta.cluster is earlier.warp.cta.cluster:
        bar = "a barrier of the cluster"
    else:
        return ""
    return (
        f"let {later.warp} wait for {earlier.warp}'s {earlier.op.mnemonic} before its "
        f"{later.op.mnemonic}: {bar} in between, or an mbarrier"
    )


#: by group of operations for which the warp that issues them waits, what its instructions are named
_WAITED = {"bulk": "cp.async.bulk", "cp.async": "cp.async", "wgmma": "wgmma"}


def tracked_by(case: Case, side: Side) -> Mbarrier | None:
    """The barrier on which a copy completes: where it has landed, or else where its bytes are
    expected."""
    if not has(side, fx.Completes, asynchronous=True):
        return None
    mine = reversed(case.history.credits(warp=side.warp))
    expected = (t.on for t in mine if t.issued <= side.at and t.tx > 0)
    return next((t.on for t in case.landed(side)), None) or next(expected, None)


def never_handed_on(case: Case) -> Cause | None:
    """The first side never arrives on the barrier that the second one waits for, though others
    do: its condition keeps it from that."""
    history = case.history
    for link in links(case):
        warp, on = link.first.warp, link.on
        ops = history.supplies(warp, on)  # if there are none, another warp speaks for it
        if not ops or any(history.executions(warp, op.number) for op in ops):
            continue
        where = history.condition_past(warp, ops[0])
        sides = [case.warp(warp, ops[0], f"is not executed by {warp}")]
        if where is not None:
            sides.append(case.warp(warp, where, f"keeps {warp} from arriving"))
        return Cause(
            f"{warp} never arrives on {on.label}, and the count does not include it",
            (*case.inits(on), *sides),
            f"let {warp} arrive on {on.label} as well, and count it",
        )
    return None


def lanes_of_a_warp(case: Case) -> Cause | None:
    """Accesses of different lanes of one warp, between which these do not meet; or one that a lane
    hands on for others that it has not met."""
    later, earlier = case.sides[:2]
    hands = None if later.warp is earlier.warp else _hands_on(case, earlier)
    if hands is not None and case.finding.kind == "race/released-by-lanes":
        return Cause(
            f"the lanes of {earlier.warp} do not synchronise before one of them releases what all "
            f"have accessed",
            (case.warp(earlier.warp, hands, "releases for other lanes, without a bar.warp.sync"),
             case.side(earlier, "is the access of other lanes")),
        )  # fmt: skip
    others = _other_warps(case, later, earlier)
    if others:
        bar = bar_of(case, [later.warp, *sharing(case, later), *sharing(case, earlier), *others])
        return Cause(
            f"{names_of([later.warp, *others])} do not synchronise between the two accesses",
            (case.side(later, "comes without a wait for other threads"),
             case.side(earlier, "is the access of other threads")),
            f"put {bar} between the two accesses: threads of other warps race as well",
            "no_barrier_before_release",
        )  # fmt: skip
    return Cause(
        f"the lanes of {later.warp} do not synchronise between the two accesses",
        (case.side(later, "comes without a wait for other lanes"),
         case.side(earlier, "is the access of other lanes")),
    )  # fmt: skip


def _other_warps(case: Case, later: Side, earlier: Side) -> list[Agent]:
    """The warps that race with one of two sides, which are of one warp, at the same lines."""
    lines = {later.op.loc, earlier.op.loc}
    found: dict[Agent, None] = {}
    for finding in (*case.history.machine.outcome.findings, *case.history.repeated):
        sides = finding.participants[:2]
        if finding.rule != case.finding.rule or {p.loc for p in sides} != lines:
            continue
        for p in sides if len({(p.cta, p.warp) for p in sides}) > 1 else ():
            warp = case.history.warp(p.cta, p.warp)
            if warp is not None and warp is not later.warp and warp.cta is later.warp.cta:
                found[warp] = None
    return [*found]


def _hands_on(case: Case, side: Side) -> Done | None:
    """The first thing that a warp does after its access by which others may learn of it."""
    after = case.history.between(side.warp, side.at, case.made)
    return next((d for d in after if has(d, fx.Arrives) or strong(d.op, fx.Writes)), None)


def unobserved(case: Case) -> Cause | None:
    """The first side arrives on a barrier on which no warp waits: the second one should, where its
    turn begins."""
    history = case.history
    waited = {on.named for on in history.waited}
    arrays = {(named.cta, named.name) for named in waited}
    for first, second in directions(case):
        if first.warp is second.warp or second.done is None:
            continue
        made = history.arrivals(first.warp)
        lost = [t for t in made if (t.on.named.cta, t.on.named.name) not in arrays]
        if not lost:
            lost = _of_one_slot(made, first, waited)
        elif any(history.acts_on(op, lost[0].on, fx.Waits) for op in history.code_of(second.warp)):
            continue
        if not lost:
            continue
        on = lost[0].on
        wrong = _waits_again(case, second)
        if wrong is not None:
            return Cause(
                f"{second.warp} waits on {wrong.on.label} a second time, and {first.warp} arrives "
                f"on {on.label}",
                (case.waits(wrong), case.arrives(lost[0])),
                f"let {second.warp} wait for {on.label} before its access",
            )
        begin = _begin_of_iteration(case, second, len(lost))
        begin = _before_its_bytes(case, second, begin) or begin
        often = len(history.executions(second.warp, begin.number))
        before = _in_front_of_the_loop(case, second, len(lost)) if often != len(lost) else None
        return Cause(
            f"{lost[0].warp} arrives on {on.label}, and no warp waits for it",
            (case.warp(second.warp, before or begin, f"comes without a wait for {on.label}", on),
             case.arrives(lost[0])),
            f"let {second.warp} wait for {on.label} before its access",
        )  # fmt: skip
    return None


def _of_one_slot(made: list[Touch], first: Side, waited: set[Named]) -> list[Touch]:
    """The arrivals by which an access is handed on, if others of their array are waited for, and
    that one is not."""
    after = next((t for t in made if t.issued > first.at), None)
    if after is None or after.on.named in waited or after.tx > 0:
        return []
    return [t for t in made if t.on is after.on]


def _waits_again(case: Case, side: Side) -> Touch | None:
    """The last wait before an access, if its warp has passed the same phase before by another
    instruction: there is nothing to wait for."""
    passed = case.passed(side)
    for wait in passed[-1:]:
        same = (p for p in passed if p.on is wait.on and p.phase == wait.phase)
        if case.loop_of(wait.op) == case.loop_of(side.op) and any(
            p.op is not wait.op for p in same
        ):
            return wait
    return None


def _begin_of_iteration(case: Case, side: Side, uses: int) -> Op:
    """The first instruction of the turn of a loop around an access that is made as often as there
    are ``uses``."""

    def apart(op: Op) -> int:
        return abs(len(case.history.executions(side.warp, op.number)) - uses)

    best = side.op
    for first, last in sorted(loops_around(case.mir, side.op), key=lambda loop: loop[1]):
        inside = (o for o in case.history.code_of(side.warp) if first <= o.number <= last)
        done = next((op for op in inside if case.history.executions(side.warp, op.number)), None)
        if done is not None and apart(done) <= apart(best):
            best = done
    return _behind_fences(case, side) if best is side.op else best


def _before_its_bytes(case: Case, side: Side, begin: Op) -> Op | None:
    """Where the bytes of a copy are expected, if its turn does something else before that."""
    arrays = {e.mbar.array for e in side.op.effects() if isinstance(e, fx.Completes)}
    own = [
        (op, e) for op in case.history.code_of(side.warp)
        if begin.number <= op.number < side.op.number for e in op.effects()
    ]  # fmt: skip
    if all(not isinstance(e, fx.Completes) or e.mbar.array in arrays for _, e in own):
        return None
    expects = (op for op, e in own if isinstance(e, fx.Arrives | fx.Expects)
               and e.mbar.array in arrays)  # fmt: skip
    return next(expects, None)


def _behind_fences(case: Case, side: Side) -> Op:
    """The first of the fences that stand directly before an access; the access if there is none."""
    own = [op for op in case.history.code_of(side.warp) if op.number <= side.op.number]
    place = len(own) - 1
    while place > 0 and has(own[place - 1], fx.Orders, fx.OrdersTmem):
        place -= 1
    return own[place] if own else side.op


def _in_front_of_the_loop(case: Case, side: Side, uses: int) -> Loc | None:
    """The loop around an access that is begun as often as there are ``uses``, and goes round more
    often."""
    done = case.history.executions(side.warp, side.op.number)
    begun = [d for d in done if d.iterations and d.iterations[-1].number == 1]
    return case.loop_of(side.op) if len(begun) == uses < len(done) else None


def arrival_in_own_cta(case: Case) -> Cause | None:
    """An arrival on a barrier of the own CTA, on which no warp waits: one waits on the barrier at
    the same place of another CTA."""
    history, waited = case.history, case.history.waited
    for arrival, waiter, on in _arrivals_and_waits(case):
        own = arrival.on
        if own.address != on.address or own in waited or arrival.warp.cta is not own.cta:
            continue
        if own.cta is not on.cta:
            return Cause(
                f"{arrival.warp} arrives on {own.label}, on which no warp waits: {waiter} waits on "
                f"{on.label}",
                (case.arrives(arrival), *case.inits(own)),
                f"let {arrival.warp} arrive on the {history.array_name(own)} of CTA "
                f"{on.cta.number}, and count it there",
            )
    return None


def _arrivals_and_waits(case: Case) -> Iterator[tuple[Touch, Agent, Mbarrier]]:
    """The arrivals, each with warps that wait for others and with the barriers for which they do:
    in a deadlock those that lack some of their arrivals, else those of the two sides."""
    history = case.history
    if case.finding.rule == "deadlock":
        stuck = [s for s in history.waiting if s.on.pending and history.arrivals(on=s.on)]
        yield from ((arrival, s.warp, s.on) for s in stuck for arrival in history.arrivals())
        return
    for first, second in directions(case):
        made = [t for t in history.arrivals(first.warp) if t.issued > first.at]
        yield from (
            (arrival, second.warp, wait.on)
            for arrival in made for wait in history.passes(second.warp)
        )  # fmt: skip


def never_waited_for(case: Case) -> Cause | None:
    """Two copies into one place by one instruction, and no warp has waited for the first: its loop
    makes more turns than the one that waits."""
    history = case.history
    if len(case.sides) < 2:
        return None
    second, first = case.sides[:2]
    loop = case.loop_of(first.op)
    if first.op is not second.op or first.warp is not second.warp or loop is None:
        return None
    if group_of(first.op) != "mbarrier" or not (first.sure and second.sure):
        return None
    passed = history.passes()
    for on in (t.on for t in case.landed(first)):
        others = [
            p for p in passed if array_of(p.on) == array_of(on)
            and p.on is not on and history.number_of(p.on) != history.number_of(on)
        ]  # fmt: skip
        if others and not any(p.on is on and p.at < second.at for p in passed):
            sides = [case.warp(first.warp, loop, "makes more trips than the loop that waits")]
            waits = case.loop_of(others[-1].op)
            if waits is not None and waits != loop:
                sides.append(case.warp(others[-1].warp, waits, "waits for fewer copies"))
            return Cause(
                f"the next copy starts before a wait on {on.label} for this one",
                tuple(sides),
                f"wait on {on.label} before the next copy: let both loops make the same number of "
                "trips",
                facts=Stated((on.named,)),
            )
    return None


def not_in_this_iteration(case: Case) -> Cause | None:
    """An access for which its warp has waited in earlier turns of its loop, and not in this one."""
    history, mir = case.history, case.mir
    for link in links(case):
        first, second, wait = link.first, link.second, link.wait
        done = history.at(second.warp, wait.op.number, wait.issued)
        if first.warp is second.warp or done is None or second.done is None:
            continue
        if group_of(first.op) is not None or case.loop_of(wait.op) != case.loop_of(second.op):
            continue
        now, then = second.done.iterations, done.iterations
        if not second.sure or not now or not then or now[-1] == then[-1]:
            continue
        between = history.between(second.warp, wait.at, second.at)
        if any(
            d.iterations[-1:] == now[-1:] and history.acts_on(d, link.on, fx.Waits) for d in between
        ):
            continue
        where, array = branch_past(mir, second.op), history.array_name(link.on)
        sides = (
            []
            if where is None
            else [case.warp(second.warp, where, "skips the wait by this condition")]
        )
        return Cause(
            f"{second.warp} has not waited for {array} in this iteration of its loop",
            (case.warp(second.warp, second.done, f"comes without a wait for {array}", link.on),
             *sides, case.of(wait, "is the last such wait")),
            f"let {second.warp} wait for {array} in every iteration with an access",
        )  # fmt: skip
    return None


def refilled(case: Case) -> Cause | None:
    """A copy into memory that another warp still uses, for a later use of its own: what tells that
    it is through is a barrier that the copy's warp waits for too late.

    The other side has waited for the copy before this one, and not for this one; the first arrival
    after its access, by its warp or one that has met it, is on a barrier for whose phase this copy
    has not waited.
    """
    history = case.history
    for user, copy in directions(case):
        if group_of(copy.op) != "mbarrier" or group_of(user.op) is not None:
            continue
        full = tracked_by(case, copy)
        if copy.warp is user.warp or full is None or copy.done is None:
            continue
        expects = [t for t in history.credits(full, copy.warp) if t.tx > 0 and t.issued <= copy.at]
        phase = expects[-1].phase if expects else None
        seen = history.passes(user.warp, full)
        if phase is None or any(p.phase >= phase and p.at <= user.at for p in seen):
            continue
        if not any(p.phase == phase - 1 and p.at <= user.at for p in seen):
            continue  # it has used nothing there before
        due = next((p.at for p in seen if p.phase >= phase), history.now)
        credit = _first_arrival(case, user, due)
        if credit is None or credit.on is full:
            continue
        passed = history.passes(copy.warp, credit.on)
        if any(p.phase >= credit.phase and p.at <= copy.at for p in passed):
            continue
        late = next((p for p in passed if p.at > copy.at), None)
        if late is None:
            continue
        return Cause(
            f"{copy.warp} fills what {user.warp} still uses: it waits for {credit.on.label} only "
            "afterwards",
            (case.of(late, f"waits for {credit.on.label}, too late"),
             case.warp(copy.warp, copy.done, "fills it before that"),
             case.of(credit, f"arrives on {credit.on.label} after the use")),
            f"let {copy.warp} wait for {credit.on.label} before this {copy.op.mnemonic}",
        )  # fmt: skip
    return None


def _first_arrival(case: Case, user: Side, due: int) -> Touch | None:
    """The first arrival after an access by its warp, or by another one of its CTA that its warp has
    met since: in the same turns of loops, or before ``due``."""
    made = [
        t for t in case.history.arrivals()
        if not t.tx and user.at < t.issued and t.warp.cta is user.warp.cta
        and (t.warp is user.warp or meet(case, user.warp, user.at, t.warp, t.issued))
    ]  # fmt: skip
    iterations = () if user.done is None else user.done.iterations
    own = (t for t in made if case.history.turns_at(t)[: len(iterations)] == iterations)
    return next(own, next((t for t in made if t.issued < due), None))


def no_wait(case: Case) -> Cause | None:
    """Nothing that the second side waits for is anything that the first one arrives on."""
    connected = {(id(link.first), id(link.second)) for link in links(case)}
    for first, second in directions(case):
        if (id(first), id(second)) in connected or first.warp is second.warp:
            continue
        if not case.history.credits(warp=first.warp):
            continue
        if not writes(first.op) or writes(second.op):
            continue
        sides = [case.warp(second.warp, second.op, "accesses without a wait for it")]
        before = None if second.done is None else case.history.latest(second.warp, second.at)
        # in PTX all warps have one role, and what comes before may be far away
        same = first.warp.role == second.warp.role and len(set(case.roles)) > 1
        if before is not None and (same or has(before, fx.Waits)):
            what = "and waits for another barrier" if has(before, fx.Waits) else "without a barrier"
            sides.insert(0, case.warp(second.warp, before, f"comes before, {what}"))
        on = tracked_by(case, first)
        fix = "" if on is None else (
            f"let {second.warp} wait on {on.label}, on which {first.op.mnemonic} completes, before "
            f"its {second.op.mnemonic}"
        )  # fmt: skip
        what = f"{second.warp} waits on no barrier on which {first.warp} arrives"
        return Cause(what, tuple(sides), fix)
    return None


def gap(case: Case) -> Cause | None:
    """Two warps that nothing connects: what is missing belongs in front of the second access."""
    if len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    if has(earlier, fx.FreesTmem):
        later, earlier = earlier, later
    if later.warp is earlier.warp or any(
        li.second is later and not (li.first.sure and li.wait.at < li.first.at)
        for li in links(case)
    ):
        return None
    behind = case.finding.rule in _OF_THREADS and has_gone_on(case, earlier, later)
    if behind:  # both have met, and then one of them went on: that one has to wait
        later, earlier = earlier, later
    before = case.history.latest(later.warp, later.at, *_SYNCHRONISE)
    if before is None:
        return _no_synchronisation(case, later, earlier)
    sides = [case.warp(later.warp, before, "is the last instruction before the access that waits")]
    if before.op.number < later.op.number and behind:
        sides.insert(0, case.side(later, "comes without a barrier"))
    elif before.op.number < later.op.number and later.op.loc.behind is not None:
        # compilers move instructions: what is the last thing before may be far from the gap
        sides.insert(0, case.side(later, "comes without a wait"))
    if before.op.number > later.op.number:
        own = case.side(later, "comes in the next iteration, without a wait")
        sides.insert(0 if earlier.op.number > before.op.number else 1, own)
    if has(later, fx.FreesTmem):
        sides.append(case.warp(later.warp, later.op, "frees without having waited"))
    after = next(iter(case.history.between(earlier.warp, earlier.at, case.made)), None)
    if after is not None:
        sides.append(case.warp(earlier.warp, after, "is the first instruction after the access"))
    return Cause(
        f"no instruction before the access of {later.warp} makes it wait for {earlier.warp}",
        tuple(sides),
        let_wait(case, later, earlier),
    )


def _no_synchronisation(case: Case, later: Side, earlier: Side) -> Cause:
    """Neither waits for anything: what stands further down is to wait for the other."""
    if earlier.op.number > later.op.number:
        later, earlier = earlier, later
    return Cause(
        f"no instruction before the access of {later.warp} makes it wait for {earlier.warp}",
        (case.side(later, "comes without a wait"),),
        let_wait(case, later, earlier),
    )


#: by these it does not matter which of two accesses was made first
_OF_THREADS = ("race", "tcgen05-order")


def has_gone_on(case: Case, one: Side, other: Side) -> bool:
    """Whether two warps have met, and ``one`` made its access further on from there than ``other``:
    in a later turn of a loop, or, where they met at one place, further down."""
    met = [case.history.latest(side.warp, side.at, *_MEETS) for side in (one, other)]
    if met[0] is None or met[1] is None or one.done is None or other.done is None:
        return False
    if met[0].op is met[1].op and met[0].iterations == met[1].iterations:
        mine, theirs = one.done.iterations, other.done.iterations
        together = all(a.loc == b.loc for a, b in zip(mine, theirs, strict=False))
        return is_later(mine, theirs, together and _further_down(case, one, other))
    rounds = [case.history.joined(m) for m in met if m is not None]
    later = [
        is_later(side.iterations, m.iterations)
        for side, m in ((one.done, met[0]), (other.done, met[1]))
    ]
    return rounds[0] is not None and rounds[0] == rounds[1] and later == [True, False]


def _further_down(case: Case, one: Side, other: Side) -> bool:
    """Whether an access stands behind another one; where a loop of Python makes the code of both
    warps, in its lines."""
    lines = [{op.loc for op in case.history.code_of(s.warp)} for s in (one, other)]
    if one.op.loc.behind is not None:
        return one.op.number > other.op.number  # all warps have one code, and loops are rotated
    if other.op.loc in lines[0] and one.op.loc in lines[1] and one.op.loc != other.op.loc:
        return one.op.loc.line > other.op.loc.line
    return one.op.number > other.op.number


_MEETS = (fx.JoinsBarrier, fx.JoinsCluster)
_SYNCHRONISE = (*_MEETS, fx.Waits, fx.WaitsGroup, fx.Elects)


#: instructions of one warp, or of all between two arrivals, that belong together, at most
_MOST_BETWEEN = 12


def another_value(case: Case) -> Cause | None:
    """A word that is polled for a value which is not the one that it is left with, or to which
    nothing stores: what was meant to goes to another word of its allocation."""
    for stuck in case.history.stuck:
        polls = _polls(case, stuck)
        if not polls:
            continue
        word = polls[-1].footprint
        changes = [a for a in _stores(case) if any(_meet(a, poll) for poll in polls)]
        if not changes or changes[-1].at < polls[0].at:
            missed = _missed(case, stuck, polls, changes[-1].at if changes else 0)
            if missed is not None:
                once = " again" if changes else ""
                return Cause(
                    f"{stuck.warp} polls {word.name}, to which no instruction stores{once}: "
                    f"{missed.access.warp.origin} stores to {missed.footprint.name}",
                    (_stored(case, missed, f"stores to {missed.footprint.name}"),
                     case.warp(stuck.warp, polls[-1].access.op, f"polls {word.name} for ever")),
                    f"store to {word.name}, or poll {missed.footprint.name}",
                    facts=Stated((word.named, missed.footprint.named)),
                )  # fmt: skip
        if changes:
            word = next(a.footprint for a in reversed(polls) if _meet(a, changes[-1]))
            return Cause(
                f"{stuck.warp} polls {word.name} for another value than it holds at the end",
                (case.warp(stuck.warp, stuck.blocked.loc, "polls for ever"),
                 _stored(case, changes[-1], "is the last change of what it polls")),
                facts=Stated((word.named,)),
            )  # fmt: skip
    return None


def _polls(case: Case, stuck: Stuck) -> list[Accessed]:
    """The reads of flags in the loop in which a warp polls for ever, all of them of the same bytes
    as the last ones, in order; none if it polls none."""
    if not stuck.blocked.polling or stuck.blocked.on is not None:
        return []
    loop = _loop_at(case, stuck.warp)
    reads = [
        a for a in case.history.accesses
        if a.access.warp.origin is stuck.warp and a.access.op.number in loop
        and strong(a.access.op, fx.Reads)
    ]  # fmt: skip
    last = {a.access.op.number: a for a in reads}
    return [a for a in reads if _meet(a, last[a.access.op.number])]


def _loop_at(case: Case, warp: Agent) -> set[int]:
    """The instructions of the loops at whose head a warp is."""
    graph = case.history.machine.plan.graph
    head = graph.block_of[warp.pc]
    blocks = {block for loop in graph.loops if loop.head == head for block in loop.blocks}
    return {number for block in blocks for number in graph.blocks[block]}


def _meet(one: Accessed, other: Accessed) -> bool:
    """Whether two accesses have a byte in common."""
    return one.memory is other.memory and one.footprint.bytes.meets(other.footprint.bytes)


def _stores(case: Case) -> list[Accessed]:
    """What has stored anything, in order, but for the loops that poll for ever: what these leave is
    what was there before."""
    spin = {
        s.warp: _loop_at(case, s.warp) for s in case.history.stuck
        if s.blocked.polling and s.blocked.on is None
    }  # fmt: skip
    return [
        a for a in case.history.accesses
        if a.access.write and a.access.op.number not in spin.get(a.access.warp.origin, ())
    ]  # fmt: skip


def _missed(case: Case, stuck: Stuck, polls: list[Accessed], after: int) -> Accessed | None:
    """The last store of a flag by another warp, after a time, to the allocation of a word that is
    polled, at which nothing looks; None if a warp may still store to that allocation."""
    memory, (array, _) = polls[-1].memory, polls[-1].footprint.place
    others = [w for w in case.history.machine.warps if w is not stuck.warp and not w.exited]
    if any(_may_store(case, w, array, memory) for w in others):
        return None
    looks = [
        a for a in case.history.accesses
        if a.at > after and strong(a.access.op, fx.Reads)
    ]  # fmt: skip
    found = (
        a for a in reversed(_stores(case))
        if a.at > after and a.memory is memory and a.footprint.place[0] == array
        and a.access.warp.origin is not stuck.warp and strong(a.access.op, fx.Writes)
        and not any(_meet(a, look) for look in looks if look is not a)
    )  # fmt: skip
    return next(found, None)


def _may_store(case: Case, warp: Agent, array: str, memory: Memory) -> bool:
    """Whether a warp may come to a store that may be to an array: by its name, or into no array
    that is known."""
    graph = case.history.machine.plan.graph
    stores = (store for kind in STORES for store in case.mir.all_of(kind))
    for number, effect in stores:
        to = effect.map if isinstance(effect, fx.WritesMap) else effect.view
        name = to.tensor.name
        maybe = name in (array, memory.label) or name.startswith(".")
        if maybe and graph.reaches(warp.pc, number):
            return True
    return False


def _stored(case: Case, accessed: Accessed, action: str) -> Participant:
    """What has made an access, as one side of a cause."""
    warp = accessed.access.warp.origin
    return case.warp(warp, case.history.made_by(accessed) or accessed.access.op, action)


def no_barrier_after_acquire(case: Case) -> Cause | None:
    """One thread waits for a flag for several warps, which do not wait for it: the barrier of
    threads behind it is missing."""
    for first, second in directions(case):
        if not writes(first.op) or writes(second.op) or second.done is None:
            continue
        if first.warp.cta is second.warp.cta:
            continue
        words = {word_of(d.op) for d in strong_accesses(case, first.warp, fx.Writes)}
        for warp in case.history.peers(second.warp):
            if warp is second.warp:
                continue
            for op in case.history.code_of(warp):
                flag = strong(op, fx.Reads)
                if flag is None or flag.view.tensor not in words or op.number > second.op.number:
                    continue
                asked = case.history.executions(warp, op.number)
                if not asked or not same_code(case, second, op):
                    continue
                same = [d for d in asked if d.iterations[:1] == second.done.iterations[:1]]
                last = (same or asked)[-1]
                if meet(case, warp, last.at, second.warp, second.at):
                    continue
                return Cause(
                    f"{warp} waits for a flag for {second.warp} as well, without a barrier of "
                    f"threads after it",
                    (case.warp(second.warp, second.done, f"does not wait for {warp}"),
                     case.warp(warp, last, "waits for all of them")),
                    f"put a barrier of the threads for which {warp} waits after its {op.mnemonic}",
                )  # fmt: skip
    return None


def landed(case: Case) -> Cause | None:
    """Bytes that complete a barrier say that they have landed, and nothing of what was done before
    they were sent (A28)."""
    for first, second in directions(case):
        wait = last_wait(case, second)
        if wait is None:
            continue
        sent = [
            c for c in case.history.credits(wait.on)
            if c.phase == wait.phase and c.issued > first.at and not c.arrivals
            and has(c, fx.Completes)
        ]  # fmt: skip
        if sent and not counted(case, wait):
            return Cause(
                f"the completion of {sent[-1].op.mnemonic} on {wait.on.label} publishes its own "
                f"bytes, and no earlier access (A28)",
                (case.of(sent[-1], "sends the bytes that the wait is for"),
                 case.waits(wait)),
                f"let {first.warp} arrive at a barrier after its access, and {second.warp} wait "
                "for that",
            )  # fmt: skip
    return None


def not_asked(case: Case) -> Cause | None:
    """A warp that uses a slot again waits until others have read it, not for the first side, which
    reads it too."""
    history = case.history
    for first, second in directions(case):
        wait = last_wait(case, second)
        if wait is None or first.done is None:
            continue
        on = wait.on
        others = [c for c in counted(case, wait) if _reads_as(case, c.warp, first.op)]
        if not others:
            continue
        if group_of(first.op) == "mbarrier" or _reads(first.op) is None:
            continue
        if any(same_group(c.warp, first.warp) for c in history.credits(on)):
            continue
        own = [
            t for t in history.credits()
            if t.issued > first.at and t.on.address == on.address and t.on.cta is first.warp.cta
            and same_group(t.warp, first.warp)
        ]  # fmt: skip
        if own:
            last = max(
                own[:2], key=lambda t: (t.issued - own[0].issued < _MOST_BETWEEN, t.op.number)
            )
            sides = [case.of(last, f"arrives on {last.on.label} only")]
        else:
            sides = [_after(case, first, on)]
        return Cause(
            f"{second.warp} waits on {on.label} until {others[0].warp} has read, not until "
            f"{first.warp} has",
            (*sides, case.of(others[0], f"arrives on {on.label}"), *case.inits(on),
             case.of(wait, f"waits on {on.label}")),
            f"let {first.warp} arrive on {on.label} as well, and count it",
        )  # fmt: skip
    return None


def _reads(op: Op) -> object:
    """The tensor of which an instruction reads, in shared memory."""
    return next(
        (e.view.tensor for e in op.effects()
         if isinstance(e, fx.Reads) and e.view.space == "shared"), None,
    )  # fmt: skip


def _reads_as(case: Case, warp: Agent, op: Op) -> bool:
    """Whether a warp or one of its group reads of the tensor of which an instruction does."""
    read = _reads(op)
    return read is not None and any(
        _reads(other) == read and case.history.executions(warp, other.number)
        for other in case.history.code_of(warp)
    )


def same_group(warp: Agent, other: Agent) -> bool:
    """Whether two warps are of one role of a CTA."""
    return warp.cta is other.cta and warp.role == other.role


def _after(case: Case, side: Side, on: Mbarrier) -> Participant:
    """The place behind an access at which its warp should arrive: the last barrier of threads
    before its next wait, where it has met its group, or the access."""
    history = case.history
    assert side.done is not None
    following = next((p.issued for p in history.passes(side.warp) if p.issued > side.at), END)
    met = history.latest(side.warp, following, fx.JoinsBarrier, first=side.at)
    return case.warp(side.warp, met or side.done, f"does not arrive on {on.label} afterwards", on)


def after_the_init(case: Case) -> Cause | None:
    """The initialisation is not handed on: what is missing stands behind the last one."""
    for side in reversed(case.sides):
        if has(side, fx.InitsMbarrier):
            over = case.history.latest(side.warp, side.at, fx.InvalidatesMbarrier)
            if over is not None:
                return _unawaited(case, over)
            last = side.op
            for op in case.history.code_of(side.warp):
                inits = has(op, fx.InitsMbarrier) or has(op, fx.Orders, inits=True)
                if inits and 0 < op.number - last.number < _MOST_BETWEEN:
                    last = op
            return Cause(
                "the initialisation is not ordered before the uses by other warps",
                (case.warp(side.warp, last, "is the last initialisation"),),
            )
    return None


def no_free_registers(case: Case) -> Cause | None:
    """The instruction that wants more registers than there are."""
    for stuck in case.history.stuck:
        op = stuck.blocked.op
        if op is not None and has(op, fx.Registers, increase=True):
            return Cause(f"setmaxnreg.inc of {stuck.warp} blocks: no warp releases registers",
                         (*_releases_none(case),
                          case.warp(stuck.warp, op, "waits for registers")))  # fmt: skip
    return None


def _releases_none(case: Case) -> Iterator[Participant]:
    """The first setmaxnreg.dec that has left a warp as many registers as it had."""
    history = case.history
    for warp in history.machine.warps:
        has_now = launch_registers(case.mir)
        for op in history.code_of(warp):
            change = effect_of(op, fx.Registers)
            if change is None or not history.times(warp, op.number):
                continue
            if not change.increase and change.count == has_now:
                yield case.warp(warp, op, f"releases none: it has {has_now} already")
                return
            has_now = change.count


def fence_of_maps(case: Case) -> Cause | None:
    """A map in memory that is used without the fence which hands it over, or which takes it."""
    fence = case.finding.facts.fence
    if not fence or len(case.sides) < 2:
        return None
    user, writer = case.sides[:2]
    taken = case.finding.kind == "proxy-fence/map-acquire"
    side = user if taken else writer
    place = "comes before this use of the map" if taken else "follows this write of the map"
    return Cause(
        f"no {fence} {place}",
        (case.side(side, f"comes without {fence}"),),
    )


def generic_side(case: Case) -> Cause | None:
    """The fence belongs behind the access of the generic proxy."""
    for side in case.sides:
        effects = side.op.effects()
        generic = any(isinstance(e, fx.Reads | fx.Writes) and e.proxy == "generic" for e in effects)
        asynchronous = any(
            isinstance(e, fx.Reads | fx.Writes) and e.proxy == "async" for e in effects
        )
        if generic and not asynchronous:
            own = case.warp(side.warp, side.op, "accesses through the generic proxy")
            # what it waits with for the copies of an instruction, behind which the fence belongs
            over = case.history.first(
                side.warp, side.at, fx.WaitsGroup, last=case.made, group=group_of(side.op)
            )
            sides = [] if over is None else [case.warp(side.warp, over, "completes it")]
            return Cause(
                "no fence.proxy.async follows this access of the generic proxy", (*sides, own)
            )
    return None


def split_group(case: Case) -> Cause | None:
    """Warps of one group that execute different instructions: the regions they are in split it."""
    mir = case.mir
    if len({side.op.number for side in case.sides}) < 2 or not all(
        has(side, fx.Registers) for side in case.sides
    ):
        return None
    found = [(side, branch_past(mir, side.op)) for side in case.sides]
    sides = tuple(
        case.warp(side.warp, where, f"leads {side.warp} to {side.op.mnemonic}")
        for side, where in found if where is not None
    )  # fmt: skip
    what = "the warps of one group execute different instructions"
    return Cause(what, sides) if sides else None


def uneven_rounds(case: Case) -> Cause | None:
    """The CTAs of a cluster come to its barrier unequally often: the last round of one that can end
    is an earlier one of another."""
    history = case.history
    ends = case.finding.facts.cta
    ending = [w for w in history.machine.warps if w.cta.number == ends]
    if not ending or not case.sides:
        return None
    mine, other = (
        history.between(w, 0, END, fx.JoinsCluster, arrives=True)
        for w in (case.sides[0].warp, ending[0])
    )
    if not other or len(mine) <= len(other) or mine[len(other) - 1].op is other[-1].op:
        return None
    mir = case.mir
    odd = next(m for m, o in zip(mine, other, strict=False) if m.op is not o.op)
    where = branch_past(mir, odd.op)
    sides = [] if where is None else [case.warp(ending[0], where, "leaves a round out")]
    return Cause(
        f"{ending[0]} joins the cluster barrier {count(len(other), 'time')}, and "
        f"{case.sides[0].warp} {count(len(mine), 'time')}",
        (*sides, case.warp(ending[0], other[-1], "ends after this round"),
         case.warp(odd.warp, odd, "is in the same round")),
        "let every CTA of the cluster join the cluster barrier equally often",
    )  # fmt: skip


def uneven(case: Case) -> Cause | None:
    """Copies or products that are under way at the end: of the phases that they complete, the loop
    that waits for them leaves out the last."""
    history = case.history
    for side in case.sides:
        group = group_of(side.op)
        if group not in ("tcgen05", "mbarrier"):
            continue
        loop = case.loop_of(side.op)
        for credit in reversed(history.credits(warp=side.warp)):
            on = credit.on
            seen = [t for t in history.passes()
                    if t.warp is not side.warp and array_of(t.on) == array_of(on)]  # fmt: skip
            waits = case.loop_of(seen[-1].op) if seen else None
            if any(p.on is on and p.phase == credit.phase for p in seen):
                continue
            if waits is None or loop is None or waits == loop:
                continue
            sides = (
                case.warp(side.warp, loop, "makes one more trip"),
                case.warp(seen[-1].warp, waits, "waits one time too few"),
            )
            return Cause(
                f"{seen[-1].warp} does not wait for phase {credit.phase} of {on.label}, the last "
                "one",
                sides if group == "mbarrier" else sides[::-1],  # no product is one too many
                "let both loops make the same number of trips",
            )  # fmt: skip
    return None


def not_drained(case: Case) -> Cause | None:
    """Arrivals that land in a CTA whose waiter has left its loop: it does not wait for the last
    ones."""
    history = case.history
    ends = case.finding.facts.cta
    if ends is None or not case.sides:
        return None
    side = case.sides[0]
    for touch in history.credits():
        on = touch.on
        if touch.op is not side.op or touch.at == touch.issued or on.cta.number != ends:
            continue
        names = [t for t in history.passes()
                 if t.warp.cta is on.cta and array_of(t.on) == array_of(on)]  # fmt: skip
        loop = case.loop_range(names[-1].op) if names else None
        if loop is None:
            continue
        waiter = names[-1].warp
        last = [d for d in history.between(waiter, names[-1].at)
                if loop[0] <= d.op.number <= loop[1]]  # fmt: skip
        place, array = last[-1] if last else names[-1].op, case.history.array_name(on)
        return Cause(
            f"{waiter} does not wait for the last arrivals on {array} before its CTA can end",
            (case.warp(waiter, place, "is the last thing in its loop"),
             case.of(names[-1], f"waits on {array} for the last time")),
            f"let {waiter} wait behind its loop until every arrival on {array} has come",
        )  # fmt: skip
    return None


def _meets(op: Op) -> bool:
    """Whether an instruction only lets lanes meet, as lowering puts one behind a branch."""
    return all(isinstance(e, fx.Gathers) and e.orders for e in op.effects())


def end_of_the_target(case: Case) -> Cause | None:
    """A CTA that can end while another one accesses its memory."""
    history = case.history
    cta = case.finding.facts.cta
    if cta is not None:
        last = (
            next((d for d in reversed(history.between(w)) if not _meets(d.op)), None)
            for w in history.machine.warps if w.cta.number == cta
        )  # fmt: skip
        done = max((d for d in last if d is not None), key=lambda d: d.at, default=None)
        if done is not None:
            sides = [case.warp(done.warp, done, "is its last instruction")]
            ops = list(history.code_of(done.warp))
            if ops[-1] is not done.op:
                sides.append(case.warp(done.warp, ops[-1], "is the end of the kernel"))
            return Cause(f"CTA {cta} can exit after its last instruction: it does not wait for "
            f"accesses of its peers",
                         tuple(sides))  # fmt: skip
    return None


def start_of_the_target(case: Case) -> Cause | None:
    """A CTA that may not have begun when another one accesses its memory."""
    for side in case.sides:
        history, own = case.history, case.side(side, "comes without a cluster barrier before it")
        if history.between(side.warp, 0, side.at, fx.JoinsCluster, arrives=False):
            continue  # it has waited: what is wrong there is another thing
        joined = history.latest(side.warp, side.at, fx.JoinsCluster)
        if joined is not None:
            return Cause(
                f"no barrier.cluster.wait comes between this {joined.op.mnemonic} and the first "
                f"remote access",
                (case.warp(side.warp, joined, "only arrives"), own),
            )
        before = reversed(history.between(side.warp, 0, side.at))
        last = next((d for d in before if has(d, fx.JoinsBarrier, fx.InitsMbarrier)
                     or has(d, fx.Orders, inits=True)), None)  # fmt: skip
        sides = [] if last is None else [
            case.warp(side.warp, last, "comes last before the remote access")
        ]  # fmt: skip
        return Cause("no cluster barrier comes before the first remote access", (*sides, own))
    return None


def never_freed(case: Case) -> Cause | None:
    """Columns that are allocated and not freed: at the end of the warp that has them."""
    for side in case.sides:
        kinds = (fx.JoinsBarrier, fx.RelinquishesTmem)
        done = case.history.latest(side.warp, END, *kinds, first=side.at)
        if done is not None:
            return Cause(
                "no warp frees the columns at the end",
                (case.warp(side.warp, done, "is followed by no tcgen05.dealloc"),),
                f"let {side.warp} execute tcgen05.dealloc at the end, after all uses",
            )
    return None


def before_the_inval(case: Case) -> Cause | None:
    """A barrier that is invalidated before its last use: the invalidating warp does not wait."""
    for side in case.sides:
        if has(side, fx.InvalidatesMbarrier):
            return None if side.done is None else _unawaited(case, side.done)
    return None


def _unawaited(case: Case, invalidation: Done) -> Cause | None:
    """A warp that invalidates a barrier without waiting for its users: what it does before that."""
    for done in reversed(case.history.between(invalidation.warp, 0, invalidation.at)):
        if not has(done, fx.InvalidatesMbarrier, fx.Elects):
            return Cause(
                "the warp does not wait for all users before mbarrier.inval",
                (
                    case.warp(
                        invalidation.warp, done, "is the last instruction before mbarrier.inval"
                    ),
                ),
                "wait for the last use of the barrier, then invalidate it",
            )
    return None


def before_the_grids(case: Case) -> Cause | None:
    """What earlier grids may still use is accessed without, or before, griddepcontrol.wait."""
    if not case.sides:
        return None
    side, history = case.sides[0], case.history
    waits = [op for op in history.code_of(side.warp) if has(op, fx.WaitsGrids)]
    if not waits:
        elsewhere = any(has(op, fx.WaitsGrids) for op in case.mir.ops())
        waiting = str(side.warp.role) if elsewhere else "the kernel"
        return Cause(
            f"{waiting} does not wait for earlier grids",
            (case.side(side, "comes without a wait for them"),),
        )
    return Cause(
        f"this {waits[0].mnemonic} comes after the access that needs it",
        (case.warp(side.warp, waits[0], "comes too late"),
         case.side(side, "comes before it")),
        f"execute {waits[0].mnemonic} before the first use of what earlier grids produce",
    )  # fmt: skip
