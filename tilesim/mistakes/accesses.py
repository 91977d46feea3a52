"""Accesses that are not over when they are handed on: tensor cores, arrivals too early."""

from __future__ import annotations

from tilesim.findings.finding import Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, branch_past, has
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
    if case.finding.kind != "tcgen05-order/lanes" or not case.sides:
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
        kinds = [e.kind for e in side.op.effects() if isinstance(e, fx.UsesTmem)]
        if side.done is None or not {"ld", "st"} & {*kinds}:
            continue
        group = f"tcgen05.{kinds[0]}"
        next_ = case.sides[0]
        if next_ is not side and next_.warp is side.warp:
            return Cause(
                f"no tcgen05.wait comes between this {side.op.mnemonic} and {next_.op.mnemonic}",
                (case.warp(side.warp, side.done, "is not waited for"),
                 case.side(next_, "comes without a wait")),
                f"tcgen05.wait::{kinds[0]} between the two",
            )  # fmt: skip
        for done in case.history.between(side.warp, side.at, case.made + 1):
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
    for op in (o for o in case.history.code_of(done.warp) if o.number > done.op.number):
        if has(op, fx.WaitsGroup, group=group):
            return op
        if has(op, fx.UsesTmem):
            return None
    return None


def unfenced(case: Case) -> Cause | None:
    """An access that is complete and handed on, without the fence on one of the two sides."""
    if case.finding.kind != "tcgen05-order/no-fence" or len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    hands = next(
        (
            d for d in case.history.between(earlier.warp, earlier.at, case.made)
            if has(d, fx.Arrives, fx.JoinsBarrier, fx.JoinsCluster)
        ), None,
    )  # fmt: skip
    if hands is None or group_of(earlier.op) == "tcgen05" or later.warp is earlier.warp:
        return None
    between = case.history.between(earlier.warp, earlier.at, hands.at)
    if any(has(d, fx.OrdersTmem, before=True) for d in between):
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
            commits = has(credit, fx.Arrives, group="tcgen05")
            done = case.history.between(credit.warp, 0, credit.issued)
            if commits and not any(group_of(d.op) == "tcgen05" for d in done):
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
        first = link.first
        if group_of(first.op) != "tcgen05" or first.done is None:
            continue
        made = [
            c for c in case.history.credits(link.on, first.warp) if c.arrivals > 0 and c.tx <= 0
        ]
        after = next((c for c in made if c.issued > first.at), None)
        before = next((c for c in reversed(made) if c.issued < first.at), None)
        for credit in (before, after):
            if credit is None:
                continue
            plain = not has(credit, fx.Arrives, asynchronous=True)
            times = [
                d for d in case.history.executions(first.warp, credit.op.number) if d.at < first.at
            ]
            action = f"arrives on {link.on.label}"
            if plain:
                return Cause(
                    f"this arrival on {link.on.label} does not wait for {first.op.mnemonic}: only "
                    "tcgen05.commit does",
                    (case.warp(first.warp, credit.op, action, link.on),),
                    f"tcgen05.commit on {link.on.label} instead of this arrival",
                )
            odd = _committed_elsewhere(case, first.done, link)
            if case.finding.rule != "tcgen05-order":
                odd = None
            follows = None if odd is None else _follows_its_wait(case, odd)
            if odd is not None and follows is False:
                return Cause(
                    f"the commit behind {first.op.mnemonic} is on {odd.on.label}, and "
                    f"{link.second.warp} waits on {link.on.label}",
                    (case.arrives(odd),
                     case.waits(link.wait)),
                    f"commit on {link.on.label} behind this {first.op.mnemonic}",
                )  # fmt: skip
            if odd is not None and follows:
                return Cause(
                    f"{link.second.warp} accesses what {odd.on.label} vouches for, and has waited "
                    f"on {link.on.label}",
                    (case.warp(link.second.warp, link.second.op, "accesses what is not complete"),
                     case.waits(link.wait),
                     case.arrives(odd)),
                    f"access what goes with {link.on.label}, or wait on {odd.on.label}",
                )  # fmt: skip
            # what the second side has waited for was committed before the first one was issued
            told = credit.phase == link.wait.phase and first.at < link.second.at
            if credit is before and (len(times) > first.done.nth or told):
                return Cause(
                    f"this commit comes before {first.op.mnemonic}, which it is to vouch for",
                    (case.warp(first.warp, credit.op, action, link.on),),
                    f"commit on {link.on.label} after the last {first.op.mnemonic} of this use",
                )
    return None


def _committed_elsewhere(case: Case, done: Done, link: Link) -> Touch | None:
    """The commit that vouches for a product in its turn of the loop, on another barrier of the
    array than the one that was waited on."""
    for touch in case.history.arrivals(done.warp):
        if touch.issued >= done.at and array_of(touch.on) == array_of(link.on):
            made = case.history.at(touch.warp, touch.op.number, touch.issued)
            same = made is not None and made.turns and made.turns == done.turns
            other = touch.on is not link.on and touch.on.cta is link.on.cta
            return touch if same and other else None
    return None


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
        first = link.first
        if first.done is None or group_of(first.op) == "mbarrier" or not _accesses(first.op):
            continue
        if id(first) in nearest:
            continue  # what is waited for before that is about something else
        if any(c.warp.cta is first.warp.cta and c.warp.role == first.warp.role
               for c in history.credits(link.on)):  # fmt: skip
            nearest.add(id(first))
        for credit in history.credits(link.on, first.warp):
            op = credit.op
            if credit.arrivals <= 0 or credit.tx > 0 or op.number > first.op.number:
                continue
            times = [d for d in history.executions(first.warp, op.number) if d.at < first.at]
            if times and any(
                has(d, fx.JoinsBarrier) for d in history.between(first.warp, times[-1].at, first.at)
            ):
                continue  # they have met since
            together = case.loop_of(op) == case.loop_of(first.op)
            if (together and len(times) == first.done.nth + 1) or _around(case, times, first.done):
                return Cause(
                    f"this arrival on {link.on.label} hands on what {first.warp} uses only "
                    "afterwards",
                    _arrival_and_condition(case, first, op, link.on),
                    f"arrive on {link.on.label} after the last access of this use",
                )
    return None


def _around(case: Case, times: list[Done], done: Done) -> bool:
    """Whether the last of these executions was in the turn of a loop in which another one is, in a
    loop of its own."""
    if not times or not times[-1].turns or case.loop_range(times[-1].op) is None:
        return False
    depth = len(times[-1].turns)
    return depth < len(done.turns) and times[-1].turns == done.turns[:depth]


def _arrival_and_condition(case: Case, side: Side, op: Op, on: Mbarrier) -> tuple[Participant, ...]:
    """An arrival before an access of its warp, and the condition under which it is made."""
    mir = case.mir
    loop, where = case.loop_range(op), branch_past(mir, op)
    own = case.warp(side.warp, op, f"arrives on {on.label} before its access", on)
    inside = where is not None and where not in {
        mir.code[n].loc for n in (loop or ()) if 0 <= n < len(mir.code)
    }
    sides = [case.warp(side.warp, where, "lets it arrive")] if where and inside else []
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


def completed_before(case: Case) -> Cause | None:
    """What the reader waits for is complete before the writer writes: it is another barrier that
    says that."""
    history = case.history
    for link in links(case):
        first, second, wait = link.first, link.second, link.wait
        if not writes(first.op) or writes(second.op) or group_of(first.op) is not None:
            continue
        if any(has(d, fx.JoinsBarrier) for d in history.between(second.warp, wait.at, second.at)):
            continue
        # an arrival that expects bytes speaks for the copies that bring them
        ops = (o for o in history.supplies(first.warp, link.on) if has(o, fx.Arrives, bytes=None))
        if max((o.number for o in ops), default=first.op.number) < first.op.number:
            made = [c for c in history.credits(link.on, first.warp) if c.phase == wait.phase]
            if wait.phase < 0 or any(c.issued > first.at for c in made):
                continue  # it has arrived after its access, in an earlier place of the code
            return Cause(
                f"{link.on.label} is completed before {first.warp} has written what is read",
                (case.waits(wait),
                 *(case.of(c, "arrives before it has written") for c in made[:1])),
            )  # fmt: skip
    return None


def arrival_before_its_wait(case: Case) -> Cause | None:
    """A warp that hands slots back, in its loop, before it has waited for what is put into them."""
    history = case.history
    for side in case.sides[:2]:
        fills = writes(side.op) or any(isinstance(e, fx.Arrives) and e.bytes is not None
                                       for e in side.op.effects())  # fmt: skip
        passed = case.passed(side)
        if not fills or not passed:
            continue
        on = passed[-1].on
        readers = dict.fromkeys(s.warp for s in case.sides if s.warp is not side.warp)
        for other in readers or [w for w in history.machine.warps if w is not side.warp]:
            made = [c for c in history.credits(on, other) if c.arrivals > 0 and not c.tx]
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
    its number, of another array of as many."""
    history = case.history
    number, size = history.number_of(arrival.on), history.slots_of(arrival.on)
    own = [p for p in waited if history.number_of(p.on) == number]
    before = [p for p in waited if p.at < arrival.issued]
    turns = [
        None if done is None else done.turns for done in (
            history.at(t.warp, t.op.number, t.issued) for t in (arrival, *before[-1:])
        )
    ]  # fmt: skip
    if len(turns) < 2 or turns[0] != turns[1]:
        return False  # it has waited for nothing in this turn
    return bool(own) and history.slots_of(own[0].on) == size and arrival.issued < own[0].at
