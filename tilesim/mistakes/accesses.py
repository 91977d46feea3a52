"""Accesses that are not over when they are handed on: tensor cores, arrivals too early."""

from __future__ import annotations

from tilesim.findings.finding import Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, branch_past, effects_of, has
from tilesim.mistakes.history import Done, Touch
from tilesim.mistakes.mistake import Case, Cause, Side
from tilesim.mistakes.ordering import tracked_by
from tilesim.mistakes.release_acquire_paths import Link, directions, group_of, links, writes
from tilesim.sim.machine.mbarrier import Mbarrier


def _accesses(op: Op) -> bool:
    """Whether an instruction reads or writes what others may."""
    return has(op, fx.Reads, fx.Writes, fx.UsesTmem)


def by_all_lanes(case: Case) -> Cause | None:
    """An operation that many lanes of a warp issue, each by itself."""
    lanes = case.finding.facts.lanes
    if not case.sides:
        return None
    side = case.sides[0]
    return Cause(
        f"all {lanes} lanes execute {side.op.mnemonic}: elect one",
        (case.warp(side.warp, side.op, f"is executed by {lanes} lanes"),),
        facts=Stated(lanes=lanes),
    )


def unwaited_tensor_memory(case: Case) -> Cause | None:
    """A tcgen05.ld or st whose warp does not wait for it before it goes on."""
    for side in reversed(case.sides):
        kind = next((e.kind for e in effects_of(side) if isinstance(e, fx.UsesTmem)), "")
        if side.done is None or kind not in ("ld", "st"):
            continue
        following, group = case.sides[0], f"tcgen05.{kind}"
        if following is not side and following.warp is side.warp:
            return Cause(
                f"no tcgen05.wait comes between this {side.op.mnemonic} and "
                f"{following.op.mnemonic}",
                (case.warp(side.warp, side.done, "is not waited for"),
                 case.side(following, "comes without a wait")),
                f"tcgen05.wait::{kind} between the two",
            )  # fmt: skip
        ends = (fx.WaitsGroup, fx.Arrives, fx.JoinsBarrier)
        for done in case.history.between(side.warp, side.at, case.made + 1, *ends):
            if has(done, fx.WaitsGroup, group=group):
                break
            if has(done, fx.Arrives, fx.JoinsBarrier):
                own = case.warp(side.warp, side.op, "is not waited for")
                late = _waited_after(case, done, group)
                if late is not None:
                    early = case.warp(side.warp, done, f"comes before {late.mnemonic}")
                    return Cause(
                        f"this {done.op.mnemonic} hands on what {side.op.mnemonic} still uses",
                        (early, own),
                    )
                return Cause(
                    f"no tcgen05.wait follows this {side.op.mnemonic} before its warp hands on",
                    (own,),
                )
    return None


def _waited_after(case: Case, done: Done, group: str) -> Op | None:
    """The wait for tensor memory that follows an instruction in its turn, before the next use."""
    following = (
        op for op in case.history.code_of(done.warp)
        if op.number > done.op.number and has(op, fx.WaitsGroup, fx.UsesTmem)
        and (has(op, fx.UsesTmem) or has(op, fx.WaitsGroup, group=group))
    )  # fmt: skip
    op = next(following, None)
    return op if has(op, fx.WaitsGroup, group=group) else None


def unfenced(case: Case) -> Cause | None:
    """An access that is complete and handed on, without the fence on one of the two sides."""
    if len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    kinds = (fx.Arrives, fx.JoinsBarrier, fx.JoinsCluster)
    hands = case.history.first(earlier.warp, earlier.at, *kinds, last=case.made)
    if hands is None or group_of(earlier.op) == "tcgen05" or later.warp is earlier.warp:
        return None
    if case.history.between(earlier.warp, earlier.at, hands.at, fx.OrdersTmem, before=True):
        return None
    return Cause(
        f"no tcgen05.fence::before_thread_sync comes between {earlier.op.mnemonic} and this "
        f"{hands.op.mnemonic}",
        (case.warp(earlier.warp, hands, "hands on without the fence"),
         case.warp(earlier.warp, earlier.op, "is what it hands on")),
    )  # fmt: skip


def commit_of_another_thread(case: Case) -> Cause | None:
    """A tcgen05.commit by a warp that has issued none of what it is to vouch for."""
    for first, second in directions(case):
        passed = case.passed(second)
        if group_of(first.op) != "tcgen05" or not passed:
            continue
        for credit in case.history.credits(passed[-1].on):
            done = case.history.between(credit.warp, 0, credit.issued)
            issues = any(group_of(d.op) == "tcgen05" for d in done)
            if has(credit, fx.Arrives, group="tcgen05") and not issues:
                return Cause(
                    f"{credit.op.mnemonic} of {credit.warp} vouches for what its own thread has "
                    f"issued, and {first.op.mnemonic} is issued by {first.warp}",
                    (case.of(credit, f"arrives on {credit.on.label}, and has issued nothing"),
                     case.warp(first.warp, first.op, "is vouched for by no commit")),
                    f"let {first.warp} execute this {credit.op.mnemonic}",
                )  # fmt: skip
    return None


def commit_of_tensor_cores(case: Case) -> Cause | None:
    """Products that an arrival vouches for which is no tcgen05.commit, or comes before them."""
    for link in links(case):
        first, on = link.first, link.on
        if group_of(first.op) != "tcgen05" or first.done is None:
            continue
        made = [c for c in case.history.arrivals(first.warp, on) if c.tx <= 0]
        after = next((c for c in made if c.issued > first.at), None)
        before = next((c for c in reversed(made) if c.issued < first.at), None)
        for credit in (c for c in (before, after) if c is not None):
            own = case.warp(first.warp, credit.op, f"arrives on {on.label}", on)
            if not has(credit, fx.Arrives, asynchronous=True):
                return Cause(
                    f"this arrival on {on.label} does not wait for {first.op.mnemonic}: only "
                    "tcgen05.commit does",
                    (own,),
                    f"tcgen05.commit on {on.label} instead of this arrival",
                )
            cause = _committed_elsewhere(case, first.done, link)
            if cause is not None and case.finding.rule == "tcgen05-order":
                return cause
            # what the second side has waited for was committed before the first one was issued
            told = credit.phase == link.wait.phase and first.at < link.second.at
            done = case.history.executions(first.warp, credit.op.number)
            again = sum(d.at < first.at for d in done) > first.done.nth
            if credit is before and (again or told):
                return Cause(
                    f"this commit comes before {first.op.mnemonic}, which it is to vouch for",
                    (own,),
                    f"commit on {on.label} after the last {first.op.mnemonic} of this use",
                )
    return None


def _committed_elsewhere(case: Case, done: Done, link: Link) -> Cause | None:
    """The commit that vouches for a product in its turn of the loop is on another barrier of the
    array than the one that was waited on; either of the two is wrong."""
    history, second, on = case.history, link.second, link.on
    made = (t for t in history.arrivals(done.warp) if t.issued >= done.at)
    odd = next((t for t in made if array_of(t.on) == array_of(on)), None)
    if odd is None or odd.on is on or odd.on.cta is not on.cta:
        return None
    iterations = history.turns_at(odd)
    follows = _follows_its_wait(case, odd)
    if not iterations or iterations != done.iterations or follows is None:
        return None
    if follows:
        return Cause(
            f"{second.warp} accesses what {odd.on.label} vouches for, and has waited on {on.label}",
            (case.warp(second.warp, second.op, "accesses what is not complete"),
             case.waits(link.wait), case.arrives(odd)),
            f"access what goes with {on.label}, or wait on {odd.on.label}",
        )  # fmt: skip
    product = link.first.op.mnemonic
    return Cause(
        f"the commit behind {product} is on {odd.on.label}, and {second.warp} waits on {on.label}",
        (case.arrives(odd), case.waits(link.wait)),
        f"commit on {on.label} behind this {product}",
    )


def _follows_its_wait(case: Case, arrival: Touch) -> bool | None:
    """Whether an arrival names the slot for which its warp has waited last; None if the two arrays
    have different numbers of slots."""
    history = case.history
    passed = [p.on for p in history.passes(arrival.warp) if p.at <= arrival.issued]
    if not passed or history.slots_of(passed[-1]) != history.slots_of(arrival.on):
        return None
    return history.number_of(passed[-1]) == history.number_of(arrival.on)


def one_place(case: Case) -> Cause | None:
    """Two copies that complete one phase of a barrier and fill the same bytes: nothing can order
    them, one of them is to go elsewhere."""
    if len(case.sides) < 2 or any(group_of(s.op) != "mbarrier" for s in case.sides[:2]):
        return None
    second, first = case.sides[:2]
    landed = {(t.on, t.phase) for t in case.landed(second)}
    shared = [t.on for t in case.landed(first) if (t.on, t.phase) in landed]
    if first.done is second.done or not shared:
        return None
    return Cause(
        f"two copies that complete the same phase of {shared[0].label} fill the same bytes",
        tuple(case.side(s, "fills bytes that another copy fills") for s in (second, first)),
        "let each of the two copies fill its own part",
        facts=Stated((shared[0].named,)),
    )


def early_arrival(case: Case) -> Cause | None:
    """An arrival that hands on what its warp still uses: before its access, for the same use."""
    history = case.history
    nearest: set[int] = set()
    for link in links(case, group=True):
        first, on = link.first, link.on
        if first.done is None or group_of(first.op) == "mbarrier" or not _accesses(first.op):
            continue
        if id(first) in nearest:
            continue  # what is waited for before that is about something else
        if any(c.warp.cta is first.warp.cta and c.warp.role == first.warp.role
               for c in history.credits(on)):  # fmt: skip
            nearest.add(id(first))
        for credit in history.arrivals(first.warp, on):
            op = credit.op
            if credit.tx > 0 or op.number > first.op.number:
                continue
            times = [d for d in history.executions(first.warp, op.number) if d.at < first.at]
            if times and history.between(first.warp, times[-1].at, first.at, fx.JoinsBarrier):
                continue  # they have met since
            together = case.loop_of(op) == case.loop_of(first.op)
            if (together and len(times) == first.done.nth + 1) or _around(case, times, first.done):
                return Cause(
                    f"this arrival on {on.label} hands on what {first.warp} uses only afterwards",
                    _arrival_and_condition(case, first, op, on),
                    f"arrive on {on.label} after the last access of this use",
                )
    return None


def _around(case: Case, times: list[Done], done: Done) -> bool:
    """Whether the last of these executions was in the turn of a loop in which another one is, in a
    loop of its own."""
    if not times or not times[-1].iterations or case.loop_range(times[-1].op) is None:
        return False
    depth = len(times[-1].iterations)
    return depth < len(done.iterations) and times[-1].iterations == done.iterations[:depth]


def _arrival_and_condition(case: Case, side: Side, op: Op, on: Mbarrier) -> tuple[Participant, ...]:
    """An arrival before an access of its warp, and the condition under which it is made."""
    ends = {case.mir.code[n].loc for n in case.loop_range(op) or ()}
    where = branch_past(case.mir, op)
    sides = (
        [] if where is None or where in ends else [case.warp(side.warp, where, "lets it arrive")]
    )
    own = case.warp(side.warp, op, f"arrives on {on.label} before its access", on)
    return (own, *sides, case.side(side, "accesses afterwards"))


def own_copy(case: Case) -> Cause | None:
    """A warp that accesses what a copy of its own moves, and no wait on the barrier on which
    that completes."""
    for first, second in directions(case):
        on = tracked_by(case, first)
        if first.warp is not second.warp or first.at > second.at or on is None:
            continue
        if on not in case.history.waited:
            return Cause(
                f"no warp waits on {on.label}, on which {first.op.mnemonic} of {first.warp} "
                "completes",
                (case.side(second, f"comes without a wait on {on.label}", on),
                 case.side(first, "is what it should wait for")),
                f"wait on {on.label} before this {second.op.mnemonic}",
            )  # fmt: skip
    return None


def arrival_before_its_wait(case: Case) -> Cause | None:
    """A warp that hands slots back, in its loop, before it has waited for what is put into them."""
    history = case.history
    for side in case.sides[:2]:
        fills = writes(side.op) or any(isinstance(e, fx.Arrives) and e.bytes is not None
                                       for e in effects_of(side))  # fmt: skip
        passed = case.passed(side)
        if not fills or not passed:
            continue
        on = passed[-1].on
        readers = dict.fromkeys(s.warp for s in case.sides if s.warp is not side.warp)
        for other in readers or [w for w in history.machine.warps if w is not side.warp]:
            made = [c for c in history.arrivals(other, on) if not c.tx]
            if not made:
                continue
            op = made[0].op
            waited = [
                p for p in history.passes(other)
                if history.supplies(side.warp, p.on)
                and case.loop_of(p.op) == case.loop_of(op) is not None
            ]  # fmt: skip
            first = history.executions(other, op.number)[0]
            begins = waited and waited[0].at > first.at and op.number < waited[0].op.number
            if begins or _before_its_slot(case, made[0], waited):
                return Cause(
                    f"{other} hands {on.label} back before it has waited for what is filled",
                    (case.of(made[0], f"arrives on {on.label} first"),),
                    f"arrive on {on.label} after the wait and the last access of each turn",
                )
    return None


def _before_its_slot(case: Case, arrival: Touch, waited: list[Touch]) -> bool:
    """Whether an arrival on a barrier of an array comes before the first wait on the barrier with
    its number, of another array of as many, and behind another wait in its turn."""
    history = case.history
    number, size = history.number_of(arrival.on), history.slots_of(arrival.on)
    own = [p for p in waited if history.number_of(p.on) == number]
    before = [p for p in waited if p.at < arrival.issued]
    if not own or not before or history.turns_at(arrival) != history.turns_at(before[-1]):
        return False
    return history.slots_of(own[0].on) == size and arrival.issued < own[0].at
