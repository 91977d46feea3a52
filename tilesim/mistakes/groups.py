"""Asynchronous operations: committed and waited for too late, and accesses handed on too early."""

from __future__ import annotations

from tilesim.findings.finding import Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, branch_past, effect_of, effects_of, has
from tilesim.mistakes.history import END, Done, Touch
from tilesim.mistakes.mistake import Case, Cause, Side
from tilesim.mistakes.ordering import has_gone_on, meet, same_group, tracked_by
from tilesim.mistakes.release_acquire_paths import (
    Link,
    directions,
    group_of,
    links,
    strong,
    writes,
)
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent
from tilesim.wording import count


def _pending(done: Done, group: str) -> int | None:
    """How many groups a wait_group lets go on."""
    wait = effect_of(done, fx.WaitsGroup, group=group)
    return None if wait is None else wait.pending


_GROUPS = ("wgmma", "bulk", "cp.async")


def no_fence_of_registers(case: Case) -> Cause | None:
    """A product without the wgmma.fence behind the last access to its registers."""
    side = case.sides[0]
    return Cause(
        "no wgmma.fence comes between the last access to the registers and this "
        f"{side.op.mnemonic}",
        (case.side(side, "comes without a fence"),),
    )


def unfinished_group(case: Case) -> Cause | None:
    """An asynchronous operation that is handed on while it is under way: the wait_group behind it
    waits for too little, the commit comes before it, or one of them is missing."""
    for side in reversed(case.sides):
        group = group_of(side.op)
        if side.done is None or group not in _GROUPS:
            continue
        if case.finding.rule == "race" and len(case.sides) > 1 and side is case.sides[0]:
            continue  # what comes second need not be over
        other = case.sides[0]
        together = case.loop_range(side.op) == case.loop_range(other.op) is not None
        if together and other.warp is not side.warp and has_gone_on(case, side, other):
            continue  # nor what is of a later turn than the other access
        release = _handed_on(case, side)
        end = case.made + 1 if release is None else release.issued
        if case.finding.rule.endswith(("exit", "group")):
            end = END
        elif release is None and any(other.warp is not side.warp for other in case.sides):
            met = _met(case, side)
            release, end = _released_for(case, side, met)
            if release is None and met == END:
                continue  # nothing hands it on
        cause = _waits_for_itself(case, side, group) or _in_flight(case, side, group, release, end)
        if cause is not None:
            return cause
    return None


def _handed_on(case: Case, side: Side) -> Touch | None:
    """The arrival by which a warp hands on what an operation uses, to the other side."""
    made = (t for link in links(case) for t in case.history.arrivals(side.warp, link.on))
    return next((t for t in made if t.issued > side.at), None)


def _met(case: Case, side: Side) -> int:
    """When a warp came to a barrier of threads, or set a flag in memory; `END` if it did not."""
    joins = (j.issued for j in case.history.joins if j.warp is side.warp and j.issued > side.at)
    after = case.history.between(side.warp, side.at, case.made + 1, fx.Writes)
    written = (d.at for d in after if strong(d.op, fx.Writes))
    return next(joins, next(written, END))


def _released_for(case: Case, side: Side, end: int) -> tuple[Touch | None, int]:
    """The arrival by which another warp of the group of a side hands on what it uses, and when the
    side has passed it, if that is before ``end``."""
    passed = [p for s in case.sides if s.warp is not side.warp for p in case.passed(s)]
    after = case.history.between(side.warp, side.at, end)
    for credit in case.history.arrivals(on=passed[-1].on) if passed else ():
        if same_group(credit.warp, side.warp) and credit.op.number > side.op.number:
            behind = next((d.at for d in after if d.op.number > credit.op.number), None)
            if behind is not None:
                return credit, behind
    return None, end


def _in_flight(case: Case, side: Side, group: str, release: Touch | None, end: int) -> Cause | None:
    """Why ``side`` is not complete at its release, at ``end``; None if it is."""
    history, op, warp = case.history, side.op, side.warp
    after = history.between(warp, side.at, end)
    own = case.warp(warp, op, f"is still under way ({group} group)")
    iteration = next((d.at for d in after if has(d, fx.Waits)), END)
    commits = [d for d in after if has(d, fx.Commits, group=group)]
    if not commits or commits[0].at > iteration:
        early = history.latest(warp, side.at, fx.Commits, group=group)
        if group == "cp.async" and early is None and release is not None:
            return Cause(
                f"this {release.op.mnemonic} does not wait for {op.mnemonic}: only "
                "cp.async.mbarrier.arrive does",
                (case.arrives(release), own),
                f"use cp.async.mbarrier.arrive.noinc instead of this {release.op.mnemonic}, or "
                f"wait for {op.mnemonic} before it",
            )
        return _uncommitted(case, side, group, end, early)
    committed, waited = 0, None
    for done in after:
        committed += has(done, fx.Commits, group=group)
        pending = _pending(done, group)
        if pending is not None and done.at >= commits[0].at:
            if committed > pending:
                return _only_read(case, side, done, own)
            waited = done
    if waited is not None:
        return _too_few(case, side, waited, own, release)
    commit = case.warp(warp, commits[0], "commits it")
    what = f"no wait_group follows this {op.mnemonic} before what it uses is released"
    if release is not None:
        kinds = (fx.WaitsGroup, fx.Issues)
        following = history.first(warp, release.issued, *kinds, group=group)
        if following is not None and _pending(following, group) is not None:
            late = case.of(release, f"arrives before {following.op.mnemonic}")
            return Cause(f"this arrival releases what {op.mnemonic} still uses", (late, own))
    sides = [] if release is None else [case.of(release, "releases what it uses")]
    foreign = _foreign_wait(case, side, group)
    if foreign is not None:
        return Cause(
            f"{foreign.warp} has committed no group: its wait_group waits for nothing",
            (case.warp(foreign.warp, foreign, "waits for groups of its own thread only"), own,
             commit, *sides),
            f"execute wait_group in the thread that commits the {op.mnemonic}",
        )  # fmt: skip
    return Cause(what, (commit, own, *sides) if group == "bulk" else (own, *sides, commit))


def _uncommitted(case: Case, side: Side, group: str, end: int, early: Done | None) -> Cause | None:
    """An operation that is in no group when what it uses is handed on, at ``end``: its commit is
    missing, comes after the wait for its group, or both come too late. ``early``: the commit before
    it."""
    op, warp = side.op, side.warp
    own = case.warp(warp, op, f"is still under way ({group} group)")
    later = case.history.between(warp, side.at)
    commit = case.history.first(warp, side.at, fx.Commits, group=group)
    waited = case.history.first(warp, side.at, fx.WaitsGroup, group=group)
    sides = [] if early is None else [case.warp(warp, early, "commits before it")]
    again = next((d for d in later if d.op in case.history.of_statement(op)), None)
    if commit is not None and again is not None and again.at < commit.at:
        return Cause(f"no commit_group follows this {op.mnemonic} before the next one",
                     (own, *sides))  # fmt: skip
    if commit is not None and (waited is None or commit.at <= waited.at):
        hands = next((d for d in later if d.at >= end), None)
        if hands is None:
            return None
        late = waited or commit
        return Cause(
            f"this {hands.op.mnemonic} releases what {op.mnemonic} still uses",
            (case.warp(warp, hands, f"comes before {late.op.mnemonic}"), own,
             case.warp(warp, late, "comes only afterwards")),
            f"execute commit_group and wait_group for {op.mnemonic} before this "
            f"{hands.op.mnemonic}",
        )  # fmt: skip
    if waited is None:
        return Cause(f"{op.mnemonic} is committed to no group, and no instruction waits for it",
                     (own, *sides))  # fmt: skip
    return Cause(f"{op.mnemonic} is not committed before the wait for its group",
                 (own, *sides))  # fmt: skip


def _only_read(case: Case, side: Side, waited: Done, own: Participant) -> Cause | None:
    """A wait_group.read that is to vouch for what an operation writes."""
    read = has(waited, fx.WaitsGroup, read_only=True)
    deed = case.deed(side)
    if not read or deed is None or deed.verb != "writes":
        return None
    return Cause(
        f"{waited.op.mnemonic}.read waits until {side.op.mnemonic} has read its source, not until "
        "it has written",
        (case.warp(side.warp, waited, "waits for the reads only"), own),
        f"use {waited.op.mnemonic} without .read",
    )


def _waits_for_itself(case: Case, side: Side, group: str) -> Cause | None:
    """The warp of an operation makes the other side's access as well, in the same turn, and has
    waited for the operation before that: only the other side has not."""
    history, other = case.history, case.sides[0]
    if other.warp is side.warp or other.done is None:
        return None
    mine = (d for d in history.executions(side.warp, other.op.number) if d.at > side.at)
    own = next((d for d in mine if d.iterations == other.done.iterations), None)
    committed = 0
    for done in () if own is None else history.between(side.warp, side.at, own.at):
        committed += has(done, fx.Commits, group=group)
        pending = _pending(done, group)
        if pending is not None and committed > pending:
            return _alone(case, side, done)
    return None


def _alone(case: Case, side: Side, waited: Done) -> Cause | None:
    """The warp of an operation waits for it, and the other side does not wait for that."""
    other = case.sides[0]
    if meet(case, side.warp, waited.at, other.warp, other.at):
        return None
    if meet(case, side.warp, side.at, other.warp, other.at):
        hands = _just_before(case, side, waited)
        if hands is not None:
            return Cause(
                f"this {hands.op.mnemonic} releases what {side.op.mnemonic} still uses: "
                f"{side.warp} waits for it only afterwards",
                (case.warp(side.warp, hands, f"comes before {waited.op.mnemonic}"),
                 case.warp(side.warp, waited, "comes only afterwards"),
                 case.side(side, "is still under way")),
                f"wait for {side.op.mnemonic} before this {hands.op.mnemonic}, or put a "
                f"barrier of threads after this {waited.op.mnemonic}",
                "no_barrier_before_release",
            )  # fmt: skip
    return Cause(
        f"{side.warp} waits for {side.op.mnemonic}, and {other.warp} does not wait for {side.warp}",
        (case.side(other, "comes without a barrier of threads"),
         case.warp(side.warp, waited, "waits alone")),
        f"put a barrier of threads between this {waited.op.mnemonic} and the access",
        "no_barrier_before_release",
    )  # fmt: skip


def _just_before(case: Case, side: Side, waited: Done) -> Done | None:
    """The barrier of threads that a wait has changed places with: between the two the warp does
    nothing. A barrier of an earlier step, with work behind it, is not meant for what is waited for.
    """
    kinds = (fx.JoinsBarrier, fx.Arrives, fx.Writes, fx.Reads, fx.Issues)
    last = case.history.latest(side.warp, waited.at, *kinds, first=side.at)
    return last if last is not None and has(last, fx.JoinsBarrier) else None


def _foreign_wait(case: Case, side: Side, group: str) -> Done | None:
    """A wait for groups by another warp, which has none: it waits for nothing."""
    for warp in case.history.peers(side.warp):
        if case.history.first(warp, 0, fx.Commits, last=case.made, group=group) is None:
            waited = case.history.first(warp, side.at, fx.WaitsGroup, last=case.made, group=group)
            if waited is not None:
                return waited
    return None


def _too_few(
    case: Case, side: Side, waited: Done, own: Participant, release: Touch | None
) -> Cause:
    """The last wait_group leaves the operation under way."""
    group = group_of(side.op) or ""
    left = _pending(waited, group)
    uses = (s.done for s in case.sides if s.warp is side.warp and s.op is not side.op)
    used, loop = next(uses, None), case.loop_range(waited.op)
    if used is not None and loop is not None and case.loop_range(used.op) != loop:
        later = case.history.between(side.warp, waited.at, used.at)
        outside = [d for d in later if not loop[0] <= d.op.number <= loop[1]]
        # a race in the run: they are waited for too late in their loop as well
        findings = case.history.machine.outcome.findings
        if not outside and all(finding.rule != "race" for finding in findings):
            outside = [used]
        if outside:
            return Cause(
                f"no wait_group 0 follows the last {side.op.mnemonic}",
                (case.warp(side.warp, outside[0], "is the first access after the loop"), own),
                f"execute wait_group 0 after the loop, before an access to what "
                f"{side.op.mnemonic} uses",
                "no_fence_of_registers" if group == "wgmma" else "",
            )
    commit = case.history.latest(side.warp, END, fx.Commits, first=side.at, group=group)
    since = case.history.between(side.warp, side.at if commit is None else commit.at)
    lost = next((d for d in since if group_of(d.op) == group), None)
    if lost is not None and lost.op is not side.op:
        return Cause(
            f"{lost.op.mnemonic} is never committed: {waited.op.mnemonic} {left} counts its group",
            (case.warp(side.warp, lost, "is committed to no group"), own),
            f"execute commit_group after this {lost.op.mnemonic}",
        )
    seldom = _commits_seldom(case, side.warp, waited, group)
    if seldom is not None:
        return Cause(
            f"some iterations do not execute {seldom.op.mnemonic}: {waited.op.mnemonic} {left} "
            f"counts groups",
            (case.warp(side.warp, seldom.op, "is not executed in every iteration"),
             case.warp(side.warp, waited, f"lets {count(left or 0, 'group')} go on"), own),
            "commit a group in every iteration, also an empty one",
        )  # fmt: skip
    return Cause(
        f"{waited.op.mnemonic} {left} does not wait for this {side.op.mnemonic}",
        (
            case.warp(side.warp, waited, f"lets {count(left or 0, 'group')} go on"),
            own,
            *(() if release is None else (case.of(release, "releases what it uses"),)),
        ),
        f"let {waited.op.mnemonic} leave fewer groups than {left} under way here, or commit a "
        f"group in every iteration",
    )


def _commits_seldom(case: Case, warp: Agent, waited: Done, group: str) -> Done | None:
    """A commit in the loop of a wait_group that is executed more rarely than that."""
    history, loop = case.history, case.loop_range(waited.op)
    for op in history.code_of(warp):
        if loop and loop[0] <= op.number <= loop[1] and has(op, fx.Commits, group=group):
            done = history.executions(warp, op.number)
            often = len(history.executions(warp, waited.op.number))
            return done[-1] if done and len(done) + 1 < often else None
    return None


def by_all_lanes(case: Case) -> Cause | None:
    """An operation that many lanes of a warp issue, each by itself."""
    lanes, side = case.finding.facts.lanes, case.sides[0]
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
                f"execute tcgen05.wait::{kind} between the two",
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
                        f"this {done.op.mnemonic} releases what {side.op.mnemonic} still uses",
                        (early, own),
                    )
                return Cause(
                    f"no tcgen05.wait follows this {side.op.mnemonic} before its warp arrives",
                    (own,),
                )
    return None


def _waited_after(case: Case, done: Done, group: str) -> Op | None:
    """The wait for tensor memory that follows an instruction in its turn, before the next use."""
    later = (op for op in case.history.code_of(done.warp) if op.number > done.op.number)
    op = next((op for op in later if has(op, fx.WaitsGroup, fx.UsesTmem)), None)
    return op if has(op, fx.WaitsGroup, group=group) else None


def unfenced(case: Case) -> Cause | None:
    """An access that is complete and handed on, without the fence on one of the two sides."""
    later, earlier = case.sides[:2]
    kinds = (fx.Arrives, fx.JoinsBarrier, fx.JoinsCluster)
    hands = case.history.first(earlier.warp, earlier.at, *kinds, last=case.made)
    if hands is None or group_of(earlier.op) == "tcgen05" or later.warp is earlier.warp:
        return None
    return Cause(
        f"no tcgen05.fence::before_thread_sync comes between {earlier.op.mnemonic} and this "
        f"{hands.op.mnemonic}",
        (case.warp(earlier.warp, hands, "releases without the fence"),
         case.warp(earlier.warp, earlier.op, "is what it releases")),
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
                    f"{credit.op.mnemonic} of {credit.warp} covers only operations of its own "
                    f"thread, and {first.op.mnemonic} is issued by {first.warp}",
                    (case.of(credit, f"arrives on {credit.on.label}, and has issued nothing"),
                     case.warp(first.warp, first.op, "is covered by no commit")),
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
                    f"use tcgen05.commit on {on.label} instead of this arrival",
                )
            cause = _committed_elsewhere(case, first.done, link)
            if cause is not None and case.finding.rule == "tcgen05-order":
                return cause
            # what the second side has waited for was committed before the first one was issued
            if credit is before and first.at < link.second.at:
                return Cause(
                    f"this commit comes before {first.op.mnemonic}, which it must cover",
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
    if not iterations or iterations != done.iterations:
        return None
    if _follows_its_wait(case, odd):
        return Cause(
            f"{second.warp} accesses what completes on {odd.on.label}, and has waited on "
            f"{on.label}",
            (case.warp(second.warp, second.op, "accesses what is not complete"),
             case.waits(link.wait), case.arrives(odd)),
            f"access what completes on {on.label}, or wait on {odd.on.label}",
        )  # fmt: skip
    product = link.first.op.mnemonic
    return Cause(
        f"the commit after {product} is on {odd.on.label}, and {second.warp} waits on {on.label}",
        (case.arrives(odd), case.waits(link.wait)),
        f"commit on {on.label} after this {product}",
    )


def _follows_its_wait(case: Case, arrival: Touch) -> bool:
    """Whether an arrival names the slot for which its warp has waited last."""
    passed = [p.on for p in case.history.passes(arrival.warp) if p.at <= arrival.issued]
    numbers = {case.history.number_of(on) for on in (*passed[-1:], arrival.on)}
    return bool(passed) and len(numbers) == 1


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
        "let each of the two copies fill bytes of its own",
        facts=Stated((shared[0].named,)),
    )


def early_arrival(case: Case) -> Cause | None:
    """An arrival that hands on what its warp still uses: before its access, for the same use."""
    history = case.history
    nearest: set[int] = set()
    for link in links(case, group=True):
        first, on = link.first, link.on
        if first.done is None or group_of(first.op) == "mbarrier":
            continue
        if id(first) in nearest:
            continue  # what is waited for before that is about something else
        if any(same_group(c.warp, first.warp) for c in history.credits(on)):
            nearest.add(id(first))
        for credit in history.arrivals(first.warp, on):
            op = credit.op
            if credit.tx > 0 or op.number > first.op.number:
                continue
            times = [d for d in history.executions(first.warp, op.number) if d.at < first.at]
            if not times or history.between(first.warp, times[-1].at, first.at, fx.JoinsBarrier):
                continue  # or they have met since
            outer, inner = times[-1].iterations, first.done.iterations
            around = 0 < len(outer) < len(inner) and inner[: len(outer)] == outer
            together = case.loop_of(op) == case.loop_of(first.op)
            if around or (together and len(times) == first.done.nth + 1):
                return Cause(
                    f"this arrival on {on.label} releases what {first.warp} uses only afterwards",
                    _arrival_and_condition(case, first, op, on),
                    f"arrive on {on.label} after the last access of this use",
                )
    return None


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
        passed = case.passed(side)
        if not passed or not _fills(side.op):
            continue
        on = passed[-1].on
        readers = dict.fromkeys(s.warp for s in case.sides if s.warp is not side.warp)
        for other in readers or history.machine.warps:
            made = [c for c in history.arrivals(other, on) if not c.tx]
            passes = [
                p for p in history.passes(other) if made and history.supplies(side.warp, p.on)
            ]
            waited = [
                p for p in passes if case.loop_of(p.op) == case.loop_of(made[0].op) is not None
            ]
            if waited and (
                waited[0].at > made[0].issued or _before_its_slot(case, made[0], waited, passes)
            ):
                return Cause(
                    f"{other} arrives on {on.label} before it has waited for the data",
                    (case.of(made[0], f"arrives on {on.label} first"),),
                    f"arrive on {on.label} after the wait and the last access of each iteration",
                )
    return None


def _fills(op: Op) -> bool:
    """Whether an instruction writes what others read, or expects the bytes of what does."""
    arrives = effect_of(op, fx.Arrives)
    return writes(op) or (arrives is not None and arrives.bytes is not None)


def _before_its_slot(case: Case, arrival: Touch, waited: list[Touch], passes: list[Touch]) -> bool:
    """Whether an arrival on a barrier of an array comes before the first of ``passes`` that waits
    on the barrier with its number, of another array of as many, and in its turn behind another wait
    of its loop (``waited``)."""
    history = case.history
    number, size = history.number_of(arrival.on), history.slots_of(arrival.on)
    own = [p for p in passes if history.number_of(p.on) == number]
    before = [p for p in waited if p.at < arrival.issued]
    if not own or history.turns_at(arrival) != history.turns_at(before[-1]):
        return False
    return history.slots_of(own[0].on) == size and arrival.issued < own[0].at
