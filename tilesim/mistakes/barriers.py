"""Barriers of threads, of the CTA and of the cluster; where lives begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilesim.findings.finding import Participant
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar, Mbarriers
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarArrive, BarSync, SyncWarp
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.ir.ops.mbarrier import FenceMbarrierInit, MbarrierInit, MbarrierInval
from tilesim.ir.ops.tcgen05 import Tcgen05Dealloc
from tilesim.mistakes.context import LANES, Facts, Focus, Place, effect_of, has, mbars, shared
from tilesim.mistakes.edits import Edit, after, before, by_line, changed, family, of_places
from tilesim.mistakes.fences import inserted, statements_near
from tilesim.mistakes.history import Done
from tilesim.mistakes.mistake import Case, Cause
from tilesim.mistakes.operands import free_id
from tilesim.mistakes.release_acquire_paths import directions
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.warp import Agent
from tilesim.transforms.rewrite import Instead
from tilesim.wording import count


def too_few_threads(case: Case) -> Cause | None:
    """A named barrier between the two sides that lets go on before the first one has come: its
    count is smaller than the threads that join it."""
    history = case.history
    for first, second in directions(case):
        last = history.latest(second.warp, second.at, fx.JoinsBarrier)
        effect = effect_of(last, fx.JoinsBarrier)
        if last is None or effect is None or first.warp is second.warp:
            continue
        if first.warp.cta is not second.warp.cta:
            continue
        users = [w for w in history.peers(second.warp) if _comes_to(case, w, effect.id)]
        threads = _said(effect)
        if threads is None or first.warp not in users or LANES * len(users) <= threads:
            continue
        own = case.warp(second.warp, last, f"completes with {threads} threads")
        stray = _rarest(case, users, effect.id)
        return Cause(
            f"{len(users)} warps join the named barrier, which completes with {threads} threads",
            (own,) if stray is None else (stray, own),
            f"let the barrier count all {LANES * len(users)} threads that join it, or keep the "
            f"other warps from joining",
        )
    return None


def _uses(case: Case, warp: Agent, ident: object = None) -> Iterator[tuple[Op, fx.JoinsBarrier]]:
    """The instructions of a warp that join a named barrier (with this number)."""
    for op in case.history.code_of(warp):
        effect = effect_of(op, fx.JoinsBarrier)
        if effect is not None and ident in (None, effect.id):
            yield op, effect


def _users(case: Case, one: Agent, ident: object) -> list[Agent]:
    """The warps of the CTA of one that have instructions which join a named barrier."""
    return [w for w in case.history.peers(one) if any(_uses(case, w, ident))]


def _comes_to(case: Case, warp: Agent, ident: object) -> bool:
    """Whether a warp has joined a named barrier, or waits at it."""
    here = None if warp.blocked is None else warp.blocked.op
    uses = _uses(case, warp, ident)
    return any(op is here or bool(case.history.executions(warp, op.number)) for op, _ in uses)


def _said(effect: fx.JoinsBarrier) -> int | None:
    """The number of threads that an instruction says; None: all of the CTA, or the run says it."""
    return None if effect.threads is None else constant(effect.threads)


def _rarest(case: Case, users: Sequence[Agent], ident: object) -> Participant | None:
    """Of the warps that come to a named barrier, one that does so less often than others."""
    times = {w: _joins(case, w, ident) for w in users}
    warp, most = min(users, key=lambda w: len(times[w])), max(map(len, times.values()))
    least = len(times[warp])
    if not least or least == most:
        return None
    return case.warp(warp, times[warp][0], f"joins {count(least, 'time')}, others {most}")


def _joins(case: Case, warp: Agent, ident: object) -> list[Done]:
    """When a warp has joined a named barrier, by each of its instructions."""
    return [
        d for op, _ in _uses(case, warp, ident) for d in case.history.executions(warp, op.number)
    ]


def unequal_counts(case: Case) -> Cause | None:
    """Two that join a round with different counts: one of them is that of all that come."""
    found = [
        (side, effect)
        for side in case.sides
        if (effect := effect_of(side.op, fx.JoinsBarrier)) is not None
    ]
    counts = {_said(effect) for _, effect in found}
    if len(counts) < 2 or None in counts:
        return None
    users = _users(case, found[0][0].warp, found[0][1].id)
    right = LANES * len(users)
    wrong = [(side, effect) for side, effect in found if _said(effect) != right]
    if len(wrong) != 1:
        return None
    ((side, effect),) = wrong
    other = next(s for s, e in found if _said(e) == right)
    return Cause(
        f"{count(len(users), 'warp')} join the named barrier, {right} threads in all, and here it "
        f"is joined with {effect.threads}",
        (case.warp(side.warp, side.op, f"joins with {effect.threads} threads"),
         case.warp(other.warp, other.op, f"joins with {right}")),
        f"join with {right} threads",
    )  # fmt: skip


def no_wait_there(case: Case) -> Cause | None:
    """One side arrives at a named barrier at which no warp ever waits: the other one should."""
    every = (effect for w in case.history.machine.warps for _, effect in _uses(case, w))
    waited = {effect.id for effect in every if effect.waits}
    for first, second in directions(case):
        if first.warp is second.warp or first.warp.cta is not second.warp.cta:
            continue
        for op, own in _uses(case, first.warp):
            done = case.history.executions(first.warp, op.number)
            if own.waits or own.id in waited or not done:
                continue
            return Cause(
                f"{first.warp} arrives at named barrier {own.id}, and no warp waits there",
                (case.warp(second.warp, second.op, f"comes without a wait at barrier {own.id}"),
                 case.warp(first.warp, done[0], f"arrives at named barrier {own.id}")),
                f"let {second.warp} join named barrier {own.id} with bar.sync before its access",
            )  # fmt: skip
    return None


def other_counts(case: Case) -> Cause | None:
    """A wait at a named barrier that others join with another count: their round has ended."""
    for stuck in case.history.stuck:
        on, op, effect = stuck.on, stuck.blocked.op, effect_of(stuck.blocked.op, fx.JoinsBarrier)
        if op is None or effect is None or not isinstance(on, NamedBarrier):
            continue
        for warp in case.history.peers(stuck.warp):
            for other, own in _uses(case, warp, effect.id):
                done = case.history.executions(warp, other.number)
                if done and own.threads != effect.threads:
                    return Cause(
                        f"{on.label} is joined with {own.threads} threads, and {stuck.warp} waits "
                        f"there for {effect.threads}",
                        (case.warp(warp, done[-1], f"joins with {own.threads} threads"),
                         case.warp(stuck.warp, op, f"waits for {effect.threads} threads")),
                        f"join {on.label} with one count: that of all threads that join it",
                    )  # fmt: skip
    return None


def _hopeless(case: Case) -> Iterator[tuple[Agent, Op, NamedBarrier, fx.JoinsBarrier]]:
    """The warps that wait at a named barrier to which no other comes any more: where, and how."""
    for stuck in case.history.stuck:
        on, op, effect = stuck.on, stuck.blocked.op, effect_of(stuck.blocked.op, fx.JoinsBarrier)
        if op is None or effect is None or case.history.suppliers(stuck.warp):
            continue
        if isinstance(on, NamedBarrier):
            yield stuck.warp, op, on, effect


def rounds(case: Case) -> Cause | None:
    """A named barrier that counts more threads than come to it, or whose users come to it unequally
    often."""
    for waiter, op, on, effect in _hopeless(case):
        users, threads = _users(case, waiter, effect.id), _said(effect)
        come = LANES * len(users)
        if threads is not None and len(users) > 1 and threads > come:
            return Cause(
                f"{on.label} counts {threads} threads, and only {len(users)} warps join it, "
                f"{come} threads",
                (*_to_none(case, waiter, threads), *_to_themselves(case, waiter),
                 *_at_others(case, waiter, on),
                 case.warp(waiter, op, f"waits for {effect.threads} threads")),
            )  # fmt: skip
        joins = {w: _joins(case, w, effect.id) for w in users}
        others = (w for w in users if w is not waiter)
        rare = min(others, key=lambda w: len(joins[w]), default=None)
        # the join at which it waits may be among its executions
        done = case.history.executions(waiter, op.number)
        counted = bool(done) and case.history.latest(waiter) is done[-1]
        if (
            rare is None
            or not joins[rare]
            or len(joins[rare]) >= len(joins[waiter]) + (not counted)
        ):
            continue
        theirs, ours = case.loop_of(joins[rare][-1].op), case.loop_of(op)
        if theirs is None or ours is None or theirs == ours:
            continue
        times = count(len(joins[rare]), "time")
        return Cause(
            f"{rare} joins {on.label} {times}, and {waiter} waits there once more",
            (case.warp(waiter, ours, "goes on"), case.warp(rare, theirs, f"joins {times}")),
            f"let both join {on.label} equally often",
        )
    return None


def _to_none(case: Case, waiter: Agent, threads: int) -> Iterator[Participant]:
    """An arrival of another warp, with as many threads, at a named barrier at which no warp waits:
    it may mean the one to which too few come."""
    uses = [(w, op, own) for w in case.history.peers(waiter) for op, own in _uses(case, w)]
    waited = {own.id for _, _, own in uses if own.waits}
    if any(constant(ident) is None for ident in waited):
        return
    for warp, op, own in uses:
        arrives = not own.waits and own.id not in waited and _said(own) == threads
        if arrives and constant(own.id) is not None and case.history.executions(warp, op.number):
            yield case.warp(warp, op, f"arrives at barrier {own.id}, where no warp waits")
            return


def _to_themselves(case: Case, waiter: Agent) -> Iterator[Participant]:
    """An arrival of another warp at a named barrier at which that warp waits itself: it may mean
    the one to which no warp comes."""
    for warp in case.history.peers(waiter):
        ids = {effect.id for _, effect in _uses(case, warp) if effect.waits}
        for op, own in _uses(case, warp):
            arrives = not own.waits and own.id in ids
            if arrives and case.history.executions(warp, op.number):
                yield case.warp(warp, op, f"arrives at barrier {own.id}, where it waits itself")
                return


def _at_others(case: Case, waiter: Agent, on: NamedBarrier) -> Iterator[Participant]:
    """A warp that waits alone at another named barrier of the CTA: it may mean this one."""
    found = [(s, s.on) for s in case.history.stuck if isinstance(s.on, NamedBarrier)]
    for stuck, other in found:
        alone = sum(there is other for _, there in found) == 1
        op = stuck.blocked.op
        if alone and other is not on and other.of_cta and op and stuck.warp.cta is waiter.cta:
            yield case.warp(stuck.warp, op, f"waits alone at {other.label}", other)
            return


def no_other_warp(case: Case) -> Cause | None:
    """A warp that waits at a barrier of threads to which no other will come."""
    for waiter, op, on, effect in _hopeless(case):
        others = [s for s in case.history.stuck if s.on is not on]
        if not others:
            continue
        sides = [case.warp(waiter, op, f"waits at {on.label}", on)]
        before = (
            s.warp for s in others if isinstance(s.on, NamedBarrier)
            and any(w is waiter for w, _ in case.history.suppliers(s.warp))
        )  # fmt: skip
        last = next(map(case.history.latest, before), None)
        own = None if last is None else effect_of(last.op, fx.JoinsBarrier)
        if last is not None and (own is None or own.id != effect.id):
            sides.append(case.warp(last.warp, last, f"does not join {on.label} then", on))
        return Cause(
            f"no other warp joins {on.label}",
            tuple(sides),
            f"let all threads that {on.label} counts join it by this number, once per round"
            if any(named != on.named for named in case.finding.facts.named) else "",
        )  # fmt: skip
    return None


@family("meeting")
def _meeting(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """bar.sync of all warps where no role is, of a role's warps next to what takes part."""
    close = [p for p in statements_near(facts, focus, 1) if not p.one]
    all_warps = facts.kernel.warps
    common = [p for p in facts.places if len(p.warps) == all_warps and not p.within and not p.one]
    yield from inserted((BarSync(id=Const(0)),), common)
    for size in sorted({len(p.warps) for p in close} - {0, 1}):
        named = BarSync(id=Const(free_id(facts)), threads=Const(32 * size))
        own = [p for p in close if len(p.warps) == size]
        for late in (False, True):
            yield from inserted((named,), own, late=late)
    for places in by_line(close):
        if len({p.role for p in places}) < 2:
            continue  # as a Python loop over roles makes them
        threads = Const(32 * len({w for p in places for w in p.warps}))
        named = BarSync(id=Const(free_id(facts)), threads=threads, aligned=False)
        for late in (False, True):
            yield from inserted((named,), places, late=late)


@family("lanes")
def _lanes(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """bar.warp.sync next to what takes part."""
    close = [p for p in statements_near(facts, focus, 1) if not p.one]
    for late in (False, True):
        yield from inserted((SyncWarp(),), close, late=late)


@family("hand-over")
def _hand_over(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A named barrier between two roles: one arrives behind its access, the other waits before its
    own; or both wait."""
    close = [p for p in facts.ops if focus.distance(p) == 0 and not p.one]
    if isinstance(facts.program, Mir):  # copies of one line stand for each other
        close = [*{(p.loc, type(p.what), p.warps): p for p in reversed(close)}.values()][::-1]
    number = Const(free_id(facts))
    for first in close:
        for second in close:
            if set(first.warps) & set(second.warps) or not first.warps or not second.warps:
                continue
            threads = Const(32 * (len(first.warps) + len(second.warps)))
            wait = BarSync(id=number, threads=threads, aligned=False)
            for early in (BarArrive(id=number, threads=threads, aligned=False), wait):
                for behind in _ends(facts, first):
                    new: list[tuple[Place, Instead]] = [
                        (behind, after(behind, changed(early, loc=behind.loc))),
                        (second, before(second, changed(wait, loc=second.loc))),
                    ]
                    what = f"{early.mnemonic} after {first.op.mnemonic} of {first.role or 'others'}"
                    what += f", {wait.mnemonic} before {second.op.mnemonic}"
                    yield of_places(f"{what} of {second.role or 'others'}", new, 2)


def _ends(facts: Facts, place: Place) -> Iterator[Place]:
    """An instruction and the regions around it, up to its role."""
    yield place
    for number in reversed(place.within):
        region = facts.places[number]
        if region.role:
            yield region


@family("cluster barrier")
def _cluster(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The cluster barrier behind all roles, or behind the inits."""
    if facts.kernel.cluster_size == 1:
        return
    ends = _top(facts)
    both = (ClusterArrive(), ClusterWait())
    for place in reversed(ends):
        here = tuple(changed(op, loc=place.loc) for op in both)
        what = "barrier.cluster.arrive and wait"
        last = place is ends[-1]
        new = before(place, *here) if has(place, fx.Exits) else after(place, *here)
        yield of_places(f"{what} at the end" if last else what,
                        [(place, new)], 2)  # fmt: skip
    inits = [p for p in facts.ops if has(p, fx.InitsMbarrier)]
    machine = isinstance(facts.program, Mir)
    for place in [p for p in ends if p.number > inits[-1].number][:2] if machine and inits else (
        ends[:2]
    ):  # fmt: skip
        fence = changed(FenceMbarrierInit(), loc=place.loc)
        here = tuple(changed(op, loc=place.loc) for op in both)
        what = "fence.mbarrier_init, barrier.cluster.arrive and wait"
        yield of_places(what, [(place, after(place, fence, *here))], 3)


def _top(facts: Facts) -> list[Place]:
    """The statements that all warps come to."""
    if isinstance(facts.program, Mir):  # the first of each line, and where the warps end
        every = tuple(range(facts.kernel.warps))
        common = [p for p in facts.ops if p.warps == every and not p.one]
        return [*{p.loc: p for p in reversed(common)}.values()][::-1]
    return [p for p in facts.places if not p.within]


@family("missing init")
def _init(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """mbarrier.init, behind others, of slots that have none: of all arrays that lack some, the ones
    that a finding names first."""
    inits = [p for p in facts.ops if isinstance(p.what, MbarrierInit)]
    slots = {p.number: (m.array, constant(m.index)) for p in inits for m in mbars(p.op)}
    used = {m.array for p in facts.ops for m in mbars(p.op)}
    arrays = [a for a in facts.kernel.shared if isinstance(a, Mbarriers)]
    for array in sorted(arrays, key=lambda a: a.name not in focus.names):
        own = {slot for owner, slot in slots.values() if owner == array}
        missing = [n for n in range(array.count) if n not in own]
        if None in own or not missing or array not in used:
            continue
        for expected in _counts(facts, array, inits):
            what = f"mbarrier.init of {array.name} with count {facts.shown(expected)}"
            for places in _behind(inits, slots, missing):
                new = [
                    (p, after(p, *(
                        MbarrierInit(mbar=Mbar(array, Const(n)), count=expected, loc=p.loc)
                        for n in ns
                    )))
                    for p, ns in places
                ]  # fmt: skip
                yield of_places(what, new, 2)


def _behind(
    inits: list[Place], slots: Mapping[int, tuple[object, int | None]], missing: list[int]
) -> Iterator[list[tuple[Place, list[int]]]]:
    """Inits, and the slots that are initialised behind each: the same ones of another array, as a
    line of Python in a loop makes them, or all behind the last init of a block."""
    lines: dict[object, list[Place]] = {}
    for place in inits:
        if place.number in slots and slots[place.number][1] in missing:
            lines.setdefault((place.loc, slots[place.number][0]), []).append(place)
    for places in reversed(lines.values()):
        found = {slots[p.number][1] for p in places}
        if found.issuperset(missing) and len(places) == len(missing):
            yield [(p, [n for n in missing if n == slots[p.number][1]]) for p in places]
    for place in inits[-1:]:
        yield [(place, missing)]


def _counts(facts: Facts, array: Mbarriers, inits: list[Place]) -> Iterator[Expr]:
    """The counts that an array may be meant to have: that of its other slots, the number of those
    that arrive, counts of others."""
    arrive = dict.fromkeys((p.loc, p.role, p.arrivals) for p in facts.using(array.name, fx.Arrives))
    counts = [(p.op.mbar.array, p.op.count) for p in inits if isinstance(p.op, MbarrierInit)]
    own = [count for owner, count in counts if owner == array]
    numbers = [sum(n for _, _, n in arrive), *(n for _, _, n in arrive), 1]
    others = [count for _, count in counts]
    yield from dict.fromkeys((*own, *(Const(n) for n in numbers if n), *others))


@family("invalidate")
def _invalidate(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """mbarrier.inval before what reuses the bytes of a barrier."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    ends: dict[str, list[Mbar]] = {}
    for array in arrays:
        ends[array.name] = [Mbar(array, Const(n)) for n in range(array.count)]
    for place in facts.ops:
        if focus.distance(place) > 2:
            continue
        for name in sorted(focus.names & ends.keys()):
            ops = tuple(changed(MbarrierInval(mbar=m), loc=place.loc) for m in ends[name])
            what = f"mbarrier.inval of {name} before {place.op.mnemonic}"
            yield of_places(what, [(place, before(place, *ops))], 2)


@family("allocation")
def _allocation(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Columns freed at the end."""
    freed = {e.columns for p in facts.ops for e in p.op.effects() if isinstance(e, fx.FreesTmem)}
    for place in facts.ops:
        for effect in place.op.effects():
            if isinstance(effect, fx.AllocatesTmem) and effect.columns not in freed:
                yield from _freed(facts, place, effect)


def _freed(facts: Facts, owner: Place, effect: fx.AllocatesTmem) -> Iterator[Edit]:
    """The columns of an allocation given back by a register that has been loaded from where their
    address is, at the end of a block of the role that has allocated them or has that register."""
    slots = {v.tensor.name for _, v in shared(owner.op)}
    known = [
        (p, e.var)
        for p in facts.ops if slots.intersection(v.tensor.name for _, v in shared(p.op))
        for e in p.op.effects() if isinstance(e, fx.Defines)
    ]  # fmt: skip
    for first, var in known:
        for block in facts.blocks:
            if not block or block[-1].role not in (first.role, owner.role) or block[-1].one:
                continue
            last = block[-1]
            op = Tcgen05Dealloc(
                address=var, columns=effect.columns, cta_group=2 if effect.pair else 1,
                loc=last.loc,
            )  # fmt: skip
            what = f"{op.mnemonic} of {effect.columns} columns"
            yield of_places(what, [(last, after(last, op))], 2)
