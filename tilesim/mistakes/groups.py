"""Asynchronous operations and their groups: commits and waits, missing, too early, or too few."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from tilesim.findings.finding import Participant
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, binary
from tilesim.ir.op import Op
from tilesim.ir.program import Stmt
from tilesim.mistakes.context import effect_of, effects_of, has
from tilesim.mistakes.edits import (
    Block,
    Move,
    changed,
    dropped,
    moving_fault,
    statement_fault,
    with_effect,
)
from tilesim.mistakes.history import END, Done, Touch
from tilesim.mistakes.mistake import Case, Cause, Side, waits
from tilesim.mistakes.ordering import has_gone_on, meet
from tilesim.mistakes.release_acquire_paths import group_of, links
from tilesim.sim.machine.warp import Agent
from tilesim.wording import count


def _pending(done: Done, group: str) -> int | None:
    """How many groups a wait_group lets go on."""
    wait = effect_of(done, fx.WaitsGroup, group=group)
    return None if wait is None else wait.pending


_GROUPS = ("wgmma", "bulk", "cp.async")


def no_fence_of_registers(case: Case) -> Cause | None:
    """A product without the wgmma.fence behind the last access to its registers."""
    if not case.sides:
        return None
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
        if case.finding.rule == "uninitialised-read" and len(case.sides) < 2:
            continue  # the reader is not what should have written
        if case.finding.rule == "race" and len(case.sides) > 1 and side is case.sides[0]:
            continue  # what comes second need not be over
        if case.finding.rule == "race" and _came_too_soon(case, side):
            continue
        release = _handed_on(case, side)
        others = {other.warp for other in case.sides} - {side.warp}
        at_exit = case.finding.rule.endswith(("exit", "group"))
        end = release.issued if release is not None else (END if at_exit else case.made + 1)
        if release is None and others and not at_exit:
            joins = (j.issued for j in case.history.joins if j.warp is side.warp)
            met = next((at for at in joins if at > side.at), None) or _announced(case, side)
            release, end = _spoken_for(case, side, END if met is None else met)
            if release is None and met is None:
                continue
        cause = _waits_for_itself(case, side, group) or _in_flight(case, side, group, release, end)
        if cause is not None:
            return cause
    return None


def _came_too_soon(case: Case, side: Side) -> bool:
    """Whether an operation is of a later turn of the loop that the other access is in as well: it
    should have waited for that, and need not be over before it."""
    other = case.sides[0]
    loop = case.loop_range(side.op)
    together = loop is not None and loop == case.loop_range(other.op)
    return together and other.warp is not side.warp and has_gone_on(case, side, other)


def _handed_on(case: Case, side: Side) -> Touch | None:
    """The arrival by which a warp hands on what an operation uses, to the other side."""
    return next(
        (
            t for link in links(case) if link.first.warp is side.warp and link.first.op is side.op
            for t in case.history.arrivals(side.warp, link.on) if t.issued > side.at
        ), None,
    )  # fmt: skip


def _spoken_for(case: Case, side: Side, end: int) -> tuple[Touch | None, int]:
    """The arrival by which another warp of the group of a side hands on what it uses, and when the
    side has passed it, if that is before ``end``."""
    passed = [p for s in case.sides if s.warp is not side.warp for p in case.passed(s)]
    after = case.history.between(side.warp, side.at, end)
    for credit in case.history.arrivals(on=passed[-1].on) if passed else ():
        mine = credit.warp.cta is side.warp.cta and credit.warp.role == side.warp.role
        if mine and credit.warp is not side.warp and not credit.tx:
            behind = next((d.at for d in after if d.op.number > credit.op.number), None)
            if behind is not None and credit.op.number > side.op.number:
                return credit, behind
    return None, end


def _announced(case: Case, side: Side) -> int | None:
    """When a warp set a flag in memory by which it hands on what an operation uses: by a release,
    or behind a fence."""
    fenced = False
    for done in case.history.between(side.warp, side.at, case.made + 1, fx.Orders, fx.Writes):
        fenced = fenced or has(done, fx.Orders, releases=True)
        strong = [e.sem for e in effects_of(done) if isinstance(e, fx.Writes) and e.sem != "weak"]
        if any(sem in ("release", "acq_rel") or (sem == "relaxed" and fenced) for sem in strong):
            return done.at
    return None


def _in_flight(case: Case, side: Side, group: str, release: Touch | None, end: int) -> Cause | None:
    """Why ``side`` is not complete at its release, at ``end``; None if it is."""
    history, op, warp = case.history, side.op, side.warp
    after = history.between(warp, side.at, end)
    own = case.warp(warp, op, f"is still under way ({group} group)")
    iteration = next((d.at for d in after if waits(d.op) is not None), END)
    commits = [d for d in after if has(d, fx.Commits, group=group)]
    if not commits or commits[0].at > iteration:
        early = history.latest(warp, side.at, fx.Commits, group=group)
        unasked = not any(_pending(d, group) is not None for d in after)
        if group == "cp.async" and early is None and release is not None and unasked:
            return Cause(
                f"this {release.op.mnemonic} does not wait for {op.mnemonic}: only "
                "cp.async.mbarrier.arrive does",
                (case.arrives(release), own),
                f"cp.async.mbarrier.arrive.noinc instead of this {release.op.mnemonic}, or wait "
                f"for {op.mnemonic} before it",
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
    then = [] if release is None else history.between(warp, release.issued)
    following = next((d for d in then if group_of(d.op) == group or _pending(d, group) is not None),
                     None)  # fmt: skip
    what = f"no wait_group follows this {op.mnemonic} before what it uses is handed on"
    if release is not None and following is not None and _pending(following, group) is not None:
        late = case.of(release, f"arrives before {following.op.mnemonic}")
        return Cause(f"this arrival hands on what {op.mnemonic} still uses", (late, own))
    sides = [] if release is None else [case.of(release, "hands on what it uses")]
    foreign = None if group == "wgmma" else _foreign_wait(case, side, group)
    if foreign is not None:
        return Cause(
            f"{foreign.warp} waits for groups that it has not committed: it waits for nothing",
            (case.warp(foreign.warp, foreign, "waits for groups of its own thread only"), own,
             commit, *sides),
            f"wait_group in the thread that has committed the {op.mnemonic}",
        )  # fmt: skip
    alone = _waited_alone(case, side, group, end)
    if alone is not None:
        return alone
    hands = next((d for d in history.between(warp, side.at) if d.at >= end), None)
    if group == "cp.async" and release is None and hands is not None:
        # what is missing stands before it: the copy may be far up, before a loop
        return Cause(what, (case.warp(warp, hands, "hands on what it uses"), own, commit))
    return Cause(what, (commit, own, *sides) if group == "bulk" else (own, *sides, commit))


def _uncommitted(case: Case, side: Side, group: str, end: int, early: Done | None) -> Cause | None:
    """An operation that is in no group when what it uses is handed on, at ``end``: its commit is
    missing, comes after the wait for its group, or both come too late. ``early``: the commit before
    it."""
    op, warp = side.op, side.warp
    assert side.done is not None
    own = case.warp(warp, op, f"is still under way ({group} group)")
    later = case.history.between(warp, side.at)
    commit = case.history.first(warp, side.at, fx.Commits, group=group)
    waited = case.history.first(warp, side.at, fx.WaitsGroup, group=group)
    sides = [] if early is None else [case.warp(warp, early, "commits before it")]
    alike = case.history.of_statement(op)
    again = next((d for d in later if d.op in alike and d.iterations != side.done.iterations), None)
    if commit is not None and again is not None and again.at < commit.at:
        return Cause(f"no commit_group follows this {op.mnemonic} before the next one",
                     (own, *sides))  # fmt: skip
    if commit is not None and (waited is None or commit.at <= waited.at):
        hands = next((d for d in later if d.at >= end), None)
        if hands is None or commit.at < end:
            return None
        late = commit if waited is None else waited
        return Cause(
            f"this {hands.op.mnemonic} hands on what {op.mnemonic} still uses",
            (case.warp(warp, hands, f"comes before {late.op.mnemonic}"), own,
             case.warp(warp, late, "comes only afterwards")),
            f"commit_group and wait_group for {op.mnemonic} before this {hands.op.mnemonic}",
        )  # fmt: skip
    if waited is None:
        return Cause(f"{op.mnemonic} is committed to no group, and nothing waits for it",
                     (own, *sides))  # fmt: skip
    return Cause(f"{op.mnemonic} is not committed before its group is waited for",
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
        f"{waited.op.mnemonic} without .read",
    )


def _waits_for_itself(case: Case, side: Side, group: str) -> Cause | None:
    """The warp of an operation makes the other side's access as well, in the same turn, and has
    waited for the operation before that: only the other side has not."""
    history, other = case.history, case.sides[0]
    if other.warp is side.warp or other.warp.cta is not side.warp.cta or other.done is None:
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
                f"this {hands.op.mnemonic} hands on what {side.op.mnemonic} still uses: "
                f"{side.warp} waits for that only afterwards",
                (case.warp(side.warp, hands, f"comes before {waited.op.mnemonic}"),
                 case.warp(side.warp, waited, "comes only afterwards"),
                 case.side(side, "is still under way")),
                f"wait for {side.op.mnemonic} before this {hands.op.mnemonic}, or put a "
                f"barrier of threads after this {waited.op.mnemonic}",
                "spoken_for",
            )  # fmt: skip
    return Cause(
        f"{side.warp} waits for {side.op.mnemonic}, and nothing makes {other.warp} wait for that",
        (case.side(other, "comes without a barrier of threads"),
         case.warp(side.warp, waited, "waits alone")),
        f"a barrier of threads between this {waited.op.mnemonic} and the access",
        "spoken_for",
    )  # fmt: skip


def _just_before(case: Case, side: Side, waited: Done) -> Done | None:
    """The barrier of threads that a wait has changed places with: between the two the warp does
    nothing. A barrier of an earlier step, with work behind it, is not meant for what is waited for.
    """
    kinds = (fx.JoinsBarrier, fx.Arrives, fx.Writes, fx.Reads, fx.Issues)
    last = case.history.latest(side.warp, waited.at, *kinds, first=side.at)
    return last if last is not None and has(last, fx.JoinsBarrier) else None


def _waited_alone(case: Case, side: Side, group: str, end: int) -> Cause | None:
    """The wait for an operation is there, later, and the other side does not wait for that."""
    other = case.sides[0]
    if other.warp is side.warp or other.warp.cta is not side.warp.cta:
        return None
    loop = case.loop_range(other.op)
    later = case.history.between(side.warp, end)
    own = (d for d in later if _pending(d, group) == 0 and case.loop_range(d.op) == loop)
    waited = next(own, None)
    return None if waited is None else _alone(case, side, waited)


def _foreign_wait(case: Case, side: Side, group: str) -> Done | None:
    """A wait for groups by another warp, which has none: it waits for nothing."""
    for warp in case.history.peers(side.warp):
        commits = case.history.first(warp, 0, fx.Commits, last=case.made, group=group)
        waited = case.history.first(warp, side.at, fx.WaitsGroup, last=case.made, group=group)
        if warp is not side.warp and commits is None and waited is not None:
            return waited
    return None


def _too_few(
    case: Case, side: Side, waited: Done, own: Participant, release: Touch | None
) -> Cause:
    """The last wait_group leaves the operation under way."""
    group = group_of(side.op) or ""
    left = _pending(waited, group)
    others = [s for s in case.sides if s.warp is side.warp and s.op is not side.op]
    loop = case.loop_of(waited.op)
    if others and loop is not None and case.loop_of(others[0].op) != loop and others[0].done:
        later = case.history.between(side.warp, waited.at, others[0].done.at)
        first, last = case.loop_range(waited.op) or (0, -1)
        outside = [d for d in later if not first <= d.op.number <= last]
        # a race in the run: they are waited for too late in their loop as well
        findings = case.history.machine.outcome.findings
        if not outside and all(finding.rule != "race" for finding in findings):
            outside = [others[0].done]
        if outside:
            return Cause(
                f"no wait_group 0 follows the last {side.op.mnemonic}",
                (case.warp(side.warp, outside[0], "comes first behind the loop"), own),
                f"wait_group 0 behind the loop, before what {side.op.mnemonic} uses is touched",
                "no_fence_of_registers" if group == "wgmma" else "",
            )
    commit = case.history.latest(side.warp, END, fx.Commits, first=side.at, group=group)
    since = case.history.between(side.warp, side.at if commit is None else commit.at)
    lost = next((d for d in since if group_of(d.op) == group), None)
    if lost is not None and lost.op is not side.op:
        return Cause(
            f"{lost.op.mnemonic} is never committed: {waited.op.mnemonic} {left} counts its group",
            (case.warp(side.warp, lost, "is committed to no group"), own),
            f"commit_group after this {lost.op.mnemonic}",
        )
    seldom = _commits_seldom(case, side.warp, waited, group)
    if seldom is not None:
        return Cause(
            f"{seldom.op.mnemonic} is left out in some turns: {waited.op.mnemonic} {left} counts "
            "groups",
            (case.warp(side.warp, seldom.op, "is not executed in every turn"),
             case.warp(side.warp, waited, f"lets {count(left or 0, 'group')} go on"), own),
            "commit a group in every turn, also where it is empty",
        )  # fmt: skip
    return Cause(
        f"{waited.op.mnemonic} {left} does not wait for this {side.op.mnemonic}",
        (
            case.warp(side.warp, waited, f"lets {count(left or 0, 'group')} go on"),
            own,
            *(() if release is None else (case.of(release, "hands on what it uses"),)),
        ),
        f"let {waited.op.mnemonic} leave fewer groups than {left} under way here, or commit a "
        "group in every turn",
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


dropped("copy dropped", "a copy whose bytes are expected is not issued",
        lambda op: has(op, fx.Completes) and has(op, fx.Writes, fx.RemoteStore))  # fmt: skip


@statement_fault("wrong multicast mask", "a multicast reaches another set of CTAs")
def _mask(op: Op) -> Iterator[tuple[str, Block]]:
    mask = getattr(op, "multicast", None)
    if isinstance(mask, Expr):
        wrong = binary("^", mask, 1)
        yield "rank 0 toggled in the mask", (changed(op, multicast=wrong),)
        yield "no mask: the own CTA only", (changed(op, multicast=None),)


#: the faults of leaving out one instruction that has them as its `Op.fault`, and what is missing
for _fault, _what in {
    "proxy fence dropped": "fence.proxy.async or fence.proxy.async::generic",
    "mbarrier_init fence dropped": "fence.mbarrier_init",
    "tcgen05 fence dropped": "tcgen05.fence",
    "wgmma fence dropped": "wgmma.fence",
    "memory fence dropped": "fence",
}.items():
    dropped(_fault, f"{_what} is missing", partial(lambda fault, op: op.fault == fault, _fault))
#: those of groups that are not waited for
for _fault, *_groups in (
    ("store not awaited", "bulk"),
    ("wgmma wait dropped", "wgmma"),
    ("cp.async wait dropped", "cp.async"),
    ("tcgen05 wait dropped", "tcgen05.ld", "tcgen05.st"),
):
    dropped(
        _fault, f"no instruction waits for operations of {' or '.join(_groups)}",
        partial(lambda groups, op: any(has(op, fx.WaitsGroup, group=g) for g in groups), _groups),
    )  # fmt: skip


@statement_fault("wrong group count", "a wait leaves one more group pending")
def _group(op: Op) -> Iterator[tuple[str, Block]]:
    pending = getattr(op, "pending", None)
    if has(op, fx.WaitsGroup) and isinstance(pending, int):
        yield f"{pending + 1} groups may be pending", (changed(op, pending=pending + 1),)


@statement_fault("only reads awaited", "a store's result is not awaited, only its source")
def _reads_only(op: Op) -> Iterator[tuple[str, Block]]:
    waits = [e for e in op.effects() if isinstance(e, fx.WaitsGroup)]
    if any(e.group == "bulk" and not e.read_only for e in waits):
        yield "wait_group.read instead of wait_group", (changed(op, read=True),)


def _closes_group(stmt: Stmt) -> bool:
    return has(stmt, fx.Commits) and not has(stmt, fx.Arrives, fx.WaitsGroup)


dropped("group commit dropped", "operations are never put into a group", _closes_group)


@moving_fault("group commit too early", "operations are issued after the commit of their group")
def _early_commit(units: list[Block]) -> Iterator[Move]:
    for place, (before, stmt) in enumerate(pairwise(unit[0] for unit in units), 1):
        starts = any(getattr(e, "asynchronous", False) for e in effects_of(before))
        if _closes_group(stmt) and starts and isinstance(before, Op):
            yield place, place - 1, f"before the last {before.mnemonic}"


dropped("columns not freed", "tensor memory is kept at the end", with_effect(fx.FreesTmem))
