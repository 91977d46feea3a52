"""Accesses that are not over when they are handed on: operations under way, arrivals too early."""

from __future__ import annotations

import re

from tilesim.blame.barriers import label_of
from tilesim.blame.case import Case, Cause, Side, diagnosis, waits
from tilesim.blame.history import Done, Touch
from tilesim.blame.places import branch_past, loop_of, loop_range
from tilesim.blame.races import RULES, Link, directions, group_of, links, number_of, writes
from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.sim.findings import Participant
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.words import count


def _accesses(op: Op) -> bool:
    """Whether an instruction reads or writes what others may."""
    return any(isinstance(e, fx.Reads | fx.Writes | fx.UsesTmem) for e in op.effects())


def _has(done: Done, kind: type[object], group: str) -> bool:
    return any(
        isinstance(e, kind) and getattr(e, "group", None) == group for e in done.op.effects()
    )


def _pending(done: Done, group: str) -> int | None:
    """How many groups a wait_group lets go on."""
    return next(
        (e.pending for e in done.op.effects() if isinstance(e, fx.WaitsGroup) and e.group == group),
        None,
    )


_GROUPS = ("wgmma", "bulk", "cp.async")


@diagnosis(*RULES, "async-at-exit", "bulk-group")
def unfinished_group(case: Case) -> Cause | None:
    """An asynchronous operation that is handed on while it is under way: the wait_group behind it
    waits for too little, the commit comes before it, or one of them is missing."""
    for side in reversed(case.sides):
        group = group_of(side.op)
        if side.done is None or group not in _GROUPS:
            continue
        if case.finding.rule == "race" and len(case.sides) > 1 and side is case.sides[0]:
            continue  # what comes second need not be over
        release = _handed_on(case, side)
        others = {other.warp for other in case.sides} - {side.warp}
        at_exit = case.finding.rule.endswith(("exit", "group"))
        end = release.issued if release is not None else (1 << 62 if at_exit else case.made + 1)
        if release is None and others and not at_exit:
            met = _met(case, side) or _announced(case, side)
            if met is None:
                continue
            end = met
        cause = _in_flight(case, side, group, release, end)
        if cause is not None:
            return cause
    return None


def _handed_on(case: Case, side: Side) -> Touch | None:
    """The arrival by which a warp hands on what an operation uses, to the other side."""
    for link in links(case):
        if link.first.warp is side.warp and link.first.op is side.op:
            for credit in case.history.credits(link.on, side.warp):
                if credit.arrivals > 0 and credit.issued > side.at:
                    return credit
    return None


def _met(case: Case, side: Side) -> int | None:
    """When a warp came to the barrier of threads by which it hands on what an operation uses."""
    history = case.history
    met = next(
        (
            t for t in history.touches
            if t.kind == "join" and t.warp is side.warp and t.issued > side.at
        ),
        None,
    )  # fmt: skip
    return None if met is None else met.issued


def _announced(case: Case, side: Side) -> int | None:
    """When a warp set a flag in memory by which it hands on what an operation uses."""
    after = case.history.between(side.warp, side.at, case.made + 1)
    sets = (
        d.at for d in after
        if any(isinstance(e, fx.Writes) and e.sem in ("release", "acq_rel") for e in d.op.effects())
    )  # fmt: skip
    return next(sets, None)


def _in_flight(case: Case, side: Side, group: str, release: Touch | None, end: int) -> Cause | None:
    """Why ``side`` is not complete at its release, at ``end``; None if it is."""
    history, op, warp = case.history, side.op, side.warp
    after = history.between(warp, side.at, end)
    own = case.who(warp, op, f"is still under way ({group} group)")
    turn = next((d.at for d in after if waits(d.op) is not None), 1 << 62)
    commits = [d for d in after if _has(d, fx.Commits, group)]
    if not commits or commits[0].at > turn:
        earlier = history.between(warp, 0, side.at)
        early = next((d for d in reversed(earlier) if _has(d, fx.Commits, group)), None)
        unasked = not any(_pending(d, group) is not None for d in after)
        if group == "cp.async" and early is None and release is not None and unasked:
            return Cause(
                f"this {release.op.mnemonic} does not wait for {op.mnemonic}: only "
                "cp.async.mbarrier.arrive does",
                (case.of(release, f"arrives on {label_of(release)}"), own),
                f"cp.async.mbarrier.arrive.noinc instead of this {release.op.mnemonic}, or wait "
                f"for {op.mnemonic} before it",
            )
        sides = [] if early is None else [case.who(warp, early, "commits before it")]
        return Cause(f"{op.mnemonic} is not committed before its group is waited for",
                     (own, *sides))  # fmt: skip
    committed, waited = 0, None
    for done in after:
        committed += _has(done, fx.Commits, group)
        pending = _pending(done, group)
        if pending is not None and done.at >= commits[0].at:
            if committed > pending:
                return _only_read(case, side, done, own)
            waited = done
    if waited is not None:
        return _too_few(case, side, waited, own, release)
    commit = case.who(warp, commits[0], "commits it")
    then = [] if release is None else history.between(warp, release.issued, 1 << 62)
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
            (case.who(foreign.warp, foreign, "waits for groups of its own thread only"), own,
             commit, *sides),
            f"wait_group in the thread that has committed the {op.mnemonic}",
        )  # fmt: skip
    return Cause(what, (commit, own, *sides) if group == "bulk" else (own, *sides, commit))


def _only_read(case: Case, side: Side, waited: Done, own: Participant) -> Cause | None:
    """A wait_group.read that is to vouch for what an operation writes."""
    read = any(isinstance(e, fx.WaitsGroup) and e.read_only for e in waited.op.effects())
    said = [p.action for p in case.finding.participants if p.instruction == side.op.number]
    if not read or not said or not said[0].startswith("writes"):
        return None
    return Cause(
        f"{waited.op.mnemonic}.read waits until {side.op.mnemonic} has read its source, not until "
        "it has written",
        (case.who(side.warp, waited, "waits for the reads only"), own),
        f"{waited.op.mnemonic} without .read",
    )


def _foreign_wait(case: Case, side: Side, group: str) -> Done | None:
    """A wait for groups by another warp, which has none: it waits for nothing."""
    for warp in case.history.machine.warps:
        done = case.history.between(warp, 0, case.made)
        if warp is side.warp or any(_has(d, fx.Commits, group) for d in done):
            continue
        waits_ = [d for d in done if d.at > side.at and _pending(d, group) is not None]
        if waits_ and warp.cta is side.warp.cta:
            return waits_[0]
    return None


def _too_few(
    case: Case, side: Side, waited: Done, own: Participant, release: Touch | None
) -> Cause:
    """The last wait_group leaves the operation under way."""
    mir = case.history.machine.loaded.mir
    group = group_of(side.op) or ""
    left = _pending(waited, group)
    others = [s for s in case.sides if s.warp is side.warp and s.op is not side.op]
    loop = loop_of(mir, waited.op)
    if others and loop is not None and loop_of(mir, others[0].op) != loop and others[0].done:
        later = case.history.between(side.warp, waited.at, others[0].done.at)
        outside = [d for d in later if not _inside(mir, d.op, waited.op)]
        if outside:
            return Cause(
                f"no wait_group 0 follows the last {side.op.mnemonic}",
                (case.who(side.warp, outside[0], "comes first behind the loop"), own),
                f"wait_group 0 behind the loop, before what {side.op.mnemonic} uses is touched",
            )
    mine = case.history.between(side.warp, side.at, 1 << 62)
    since = max((d.at for d in mine if _has(d, fx.Commits, group)), default=side.at)
    lost = next((d for d in mine if d.at > since and group_of(d.op) == group), None)
    if lost is not None and lost.op is not side.op:
        return Cause(
            f"{lost.op.mnemonic} is never committed: {waited.op.mnemonic} {left} counts its group",
            (case.who(side.warp, lost, "is committed to no group"), own),
            f"commit_group after this {lost.op.mnemonic}",
        )
    return Cause(
        f"{waited.op.mnemonic} {left} does not wait for this {side.op.mnemonic}",
        (
            case.who(side.warp, waited, f"lets {count(left or 0, 'group')} go on"),
            own,
            *(() if release is None else (case.of(release, "hands on what it uses"),)),
        ),
        f"let {waited.op.mnemonic} leave fewer groups than {left} under way here, or commit a "
        "group in every turn",
    )


def _inside(mir: Mir, op: Op, other: Op) -> bool:
    """Whether an instruction is in the innermost loop of another one."""
    found = loop_range(mir, other)
    return found is not None and found[0] <= op.number <= found[1]


@diagnosis("tcgen05-order", first=True)
def by_all_lanes(case: Case) -> Cause | None:
    """An operation that many lanes of a warp issue, each by itself."""
    said = re.match(r"(\d+) lanes of .* execute", case.finding.message)
    if said is None or not case.sides:
        return None
    side = case.sides[0]
    return Cause(
        f"all {said[1]} lanes execute {side.op.mnemonic}: elect one",
        (case.who(side.warp, side.op, f"is executed by {said[1]} lanes"),),
    )


@diagnosis("tcgen05-order", "tmem-lifetime", "race")
def unwaited_tensor_memory(case: Case) -> Cause | None:
    """A tcgen05.ld or st whose warp does not wait for it before it goes on."""
    for side in reversed(case.sides):
        kinds = [e.kind for e in side.op.effects() if isinstance(e, fx.UsesTmem)]
        if side.done is None or not {"ld", "st"} & {*kinds}:
            continue
        group = f"tcgen05.{kinds[0]}"
        for done in case.history.between(side.warp, side.at, case.made + 1):
            if any(isinstance(e, fx.WaitsGroup) and e.group == group for e in done.op.effects()):
                break
            if any(isinstance(e, fx.Arrives | fx.JoinsBarrier) for e in done.op.effects()):
                own = case.who(side.warp, side.op, "is not waited for")
                late = _waited_after(case, done, group)
                if late is not None:
                    early = case.who(side.warp, done, f"comes before {late.mnemonic}")
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
    for op in (op for n, op, _ in case.history.code_of(done.warp) if n > done.op.number):
        if any(isinstance(e, fx.WaitsGroup) and e.group == group for e in op.effects()):
            return op
        if any(isinstance(e, fx.UsesTmem) for e in op.effects()):
            return None
    return None


@diagnosis(*RULES)
def commit_of_another_thread(case: Case) -> Cause | None:
    """A tcgen05.commit by a warp that has issued none of what it is to vouch for."""
    for first, second in directions(case):
        passed = [p for p in case.history.passes(second.warp) if p.at <= second.at]
        if group_of(first.op) != "tcgen05" or not passed:
            continue
        for credit in case.history.credits(passed[-1].on):
            commits = any(
                isinstance(e, fx.Arrives) and e.group == "tcgen05" for e in credit.op.effects()
            )
            done = case.history.between(credit.warp, 0, credit.issued)
            if commits and not any(group_of(d.op) == "tcgen05" for d in done):
                return Cause(
                    f"{credit.op.mnemonic} of {credit.warp} vouches for what its own thread has "
                    f"issued, and {first.op.mnemonic} is issued by {first.warp}",
                    (case.of(credit, f"arrives on {label_of(credit)}, and has issued nothing"),
                     case.who(first.warp, first.op, "is vouched for by nobody")),
                    f"let {first.warp} execute this {credit.op.mnemonic}",
                )  # fmt: skip
    return None


@diagnosis(*RULES)
def commit_of_tensor_cores(case: Case) -> Cause | None:
    """Products that an arrival vouches for which is no tcgen05.commit, or comes before them."""
    for link in links(case):
        first = link.first
        if group_of(first.op) != "tcgen05" or first.done is None:
            continue
        made = [c for c in case.history.credits(link.on, first.warp) if c.arrivals > 0]
        after = next((c for c in made if c.issued > first.at), None)
        before = next((c for c in reversed(made) if c.issued < first.at), None)
        for credit in (before, after):
            if credit is None:
                continue
            plain = not any(
                isinstance(e, fx.Arrives) and e.asynchronous for e in credit.op.effects()
            )
            times = [
                d for d in case.history.executions(first.warp, credit.op.number) if d.at < first.at
            ]
            action = f"arrives on {link.on.label}"
            if plain:
                return Cause(
                    f"this arrival on {link.on.label} does not wait for {first.op.mnemonic}: only "
                    "tcgen05.commit does",
                    (case.who(first.warp, credit.op, action),),
                    f"tcgen05.commit on {link.on.label} instead of this arrival",
                )
            odd = _committed_elsewhere(case, first.done, link)
            if case.finding.rule != "tcgen05-order":
                odd = None
            if odd is not None and not _follows_its_wait(case, odd):
                return Cause(
                    f"the commit behind {first.op.mnemonic} is on {label_of(odd)}, and "
                    f"{link.second.warp} waits on {link.on.label}",
                    (case.of(odd, f"arrives on {label_of(odd)}"),
                     case.of(link.wait, f"waits on {link.on.label}")),
                    f"commit on {link.on.label} behind this {first.op.mnemonic}",
                )  # fmt: skip
            if odd is not None and _follows_its_wait(case, odd):
                return Cause(
                    f"{link.second.warp} accesses what {label_of(odd)} vouches for, and has waited "
                    f"on {link.on.label}",
                    (case.who(link.second.warp, link.second.op, "accesses what is not complete"),
                     case.of(link.wait, f"waits on {link.on.label}"),
                     case.of(odd, f"arrives on {label_of(odd)}")),
                    f"access what goes with {link.on.label}, or wait on {label_of(odd)}",
                )  # fmt: skip
            # what the second side has waited for was committed before the first one was issued
            told = credit.phase == link.wait.phase and first.at < link.second.at
            if credit is before and (len(times) > first.done.nth or told):
                return Cause(
                    f"this commit comes before {first.op.mnemonic}, which it is to vouch for",
                    (case.who(first.warp, credit.op, action),),
                    f"commit on {link.on.label} after the last {first.op.mnemonic} of this use",
                )
    return None


def _committed_elsewhere(case: Case, done: Done, link: Link) -> Touch | None:
    """The commit that vouches for a product in its turn of the loop, on another barrier of the
    array than the one that was waited on."""
    history = case.history
    for touch in history.touches:
        on = touch.on
        if touch.kind != "credit" or touch.warp is not done.warp or touch.issued < done.at:
            continue
        if isinstance(on, Mbarrier) and touch.arrivals > 0 and on.name == link.on.name:
            made = history.at(touch.warp, touch.op.number, touch.issued)
            same = made is not None and made.turns and made.turns == done.turns
            return touch if same and on is not link.on and on.cta is link.on.cta else None
    return None


def _follows_its_wait(case: Case, arrival: Touch) -> bool:
    """Whether an arrival names the slot for which its warp has waited last."""
    passed = [p for p in case.history.passes(arrival.warp) if p.at <= arrival.issued]
    return bool(passed) and number_of(passed[-1].on) == number_of(arrival.on)


@diagnosis(*RULES)
def early_arrival(case: Case) -> Cause | None:
    """An arrival that hands on what its warp still uses: before its access, for the same use."""
    history = case.history
    mir = history.machine.loaded.mir
    for link in links(case):
        first = link.first
        if first.done is None or group_of(first.op) == "mbarrier" or not _accesses(first.op):
            continue
        for credit in history.credits(link.on, first.warp):
            op = credit.op
            if credit.arrivals <= 0 or credit.tx > 0 or op.number > first.op.number:
                continue
            times = [d for d in history.executions(first.warp, op.number) if d.at < first.at]
            if times and any(
                isinstance(e, fx.JoinsBarrier)
                for d in history.between(first.warp, times[-1].at, first.at)
                for e in d.op.effects()
            ):
                continue  # they have met since
            if loop_of(mir, op) == loop_of(mir, first.op) and len(times) == first.done.nth + 1:
                return Cause(
                    f"this arrival on {link.on.label} hands on what {first.warp} uses only "
                    "afterwards",
                    _arrival_and_condition(case, first, op, link.on.label),
                    f"arrive on {link.on.label} after the last access of this use",
                )
    return None


def _arrival_and_condition(case: Case, side: Side, op: Op, label: str) -> tuple[Participant, ...]:
    """An arrival before an access of its warp, and the condition under which it is made."""
    mir = case.history.machine.loaded.mir
    loop, where = loop_range(mir, op), branch_past(mir, op)
    own = case.who(side.warp, op, f"arrives on {label} before its access")
    inside = where is not None and where not in {
        mir.code[n].loc for n in (loop or ()) if 0 <= n < len(mir.code)
    }
    sides = [case.who(side.warp, where, "lets it arrive")] if where and inside else []
    return (own, *sides, case.who(side.warp, side.done or side.op, "accesses afterwards"))


@diagnosis(*RULES)
def completed_before(case: Case) -> Cause | None:
    """What the reader waits for is complete before the writer writes: it is another barrier that
    says that."""
    history = case.history
    for link in links(case):
        first = link.first
        if not writes(first.op) or writes(link.second.op) or group_of(first.op) is not None:
            continue
        between = history.between(link.second.warp, link.wait.at, link.second.at)
        if any(isinstance(e, fx.JoinsBarrier) for d in between for e in d.op.effects()):
            continue
        mine = {op.number for op in history.supplies(first.warp, link.on)}
        if mine and max(mine) < first.op.number and link.wait.phase >= 0:
            arrival = next(iter(history.credits(link.on, first.warp)), None)
            sides = [] if arrival is None else [case.of(arrival, "arrives before it has written")]
            return Cause(
                f"{link.on.label} is completed before {first.warp} has written what is read",
                (case.of(link.wait, f"waits on {link.on.label}"), *sides),
            )
    return None


@diagnosis(*RULES, "over-arrival")
def arrival_before_its_wait(case: Case) -> Cause | None:
    """A warp that hands slots back, in its loop, before it has waited for what is put into them."""
    history = case.history
    mir = history.machine.loaded.mir
    for side in case.sides[:2]:
        fills = writes(side.op) or any(isinstance(e, fx.Arrives) and e.bytes is not None
                                       for e in side.op.effects())  # fmt: skip
        passed = [p for p in history.passes(side.warp) if p.at <= side.at]
        if not fills or not passed or not isinstance(passed[-1].on, Mbarrier):
            continue
        on = passed[-1].on
        readers = {s.warp for s in case.sides if s.warp is not side.warp}
        for other in readers or {*history.machine.warps} - {side.warp}:
            made = [c for c in history.credits(on, other) if c.arrivals > 0 and not c.tx]
            if not made:
                continue
            op = made[0].op
            waited = [
                p for p in history.passes(other)
                if isinstance(p.on, Mbarrier) and history.supplies(side.warp, p.on)
                and loop_of(mir, p.op) == loop_of(mir, op) is not None
            ]  # fmt: skip
            first = history.executions(other, op.number)[0]
            if waited and waited[0].at > first.at and op.number < waited[0].op.number:
                return Cause(
                    f"{other} hands {on.label} back before it has waited for what is filled",
                    (case.of(made[0], f"arrives on {on.label} first"),),
                    f"arrive on {on.label} after the wait and the last access of each turn",
                )
    return None
