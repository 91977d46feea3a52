"""Named barriers: their counts, and who comes to them how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.history import Done, Stuck
from tilesim.blame.places import loop_of
from tilesim.blame.races import RULES
from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.op import Op
from tilesim.sim.findings import Participant
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.words import count

_LANES = 32


@diagnosis(*RULES, "proxy-fence")
def too_few_threads(case: Case) -> Cause | None:
    """A named barrier between the two sides that lets go on before the first one has come: its
    count is smaller than those who join it."""
    history = case.history
    if len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    for first, second in ((earlier, later), (later, earlier)):
        if first.warp is second.warp or first.warp.cta is not second.warp.cta:
            continue
        before = [d for d in history.between(second.warp, 0, second.at) if joined(d.op)]
        if not before or joined(before[-1].op) is None:
            continue
        last = before[-1]
        effect = joined(last.op)
        assert effect is not None
        threads = _said(effect)
        users = [
            w for w in history.machine.warps
            if w.cta is second.warp.cta and _comes_to(case, w, effect)
        ]  # fmt: skip
        if threads is None or first.warp not in users:
            continue
        if _LANES * len(users) > threads:
            own = case.who(second.warp, last, f"goes on with {threads} threads")
            stray = _rarest(case, users, effect)
            return Cause(
                f"{len(users)} warps join the named barrier, which goes on with {threads} threads",
                (own,) if stray is None else (stray, own),
                f"let the barrier count all {_LANES * len(users)} threads that come to it, or keep "
                "the others away",
            )
    return None


def _comes_to(case: Case, warp: Agent, effect: fx.JoinsBarrier) -> bool:
    """Whether a warp has joined a named barrier, or waits at it."""
    here = None if warp.blocked is None else warp.blocked.op
    return any(
        (own := joined(op)) is not None and own.id == effect.id
        and (op is here or bool(case.history.executions(warp, op.number)))
        for _, op, _ in case.history.code_of(warp)
    )  # fmt: skip


def _said(effect: fx.JoinsBarrier) -> int | None:
    """The number of threads that an instruction says; None: all of the CTA, or the run says it."""
    return None if effect.threads is None else constant(effect.threads)


def joined(op: Op) -> fx.JoinsBarrier | None:
    """The named barrier that an instruction joins."""
    return next((e for e in op.effects() if isinstance(e, fx.JoinsBarrier)), None)


def _rarest(case: Case, users: Sequence[Agent], effect: fx.JoinsBarrier) -> Participant | None:
    """Of the warps that come to a named barrier, one that does so less often than others."""
    times = {w: [*_joins(case, w, effect)] for w in users}
    least, most = min(map(len, times.values())), max(map(len, times.values()))
    if not least or least == most:
        return None
    warp, joins = next((w, joins) for w, joins in times.items() if len(joins) == least)
    return case.who(warp, joins[0], f"joins {count(least, 'time')}, others {most}")


def _joins(case: Case, warp: Agent, effect: fx.JoinsBarrier) -> Iterator[Done]:
    for _, op, _ in case.history.code_of(warp):
        own = joined(op)
        if own is not None and own.id == effect.id:
            yield from case.history.executions(warp, op.number)


@diagnosis("named-barrier")
def unequal_counts(case: Case) -> Cause | None:
    """Two that join a round with different counts: one of them is that of all who come."""
    if len(case.sides) < 2:
        return None
    found = [(side, effect) for side in case.sides if (effect := joined(side.op)) is not None]
    counts = {_said(effect) for _, effect in found}
    if len(counts) < 2 or None in counts:
        return None
    ident = found[0][1].id
    machine = case.history.machine
    users = [
        w for w in machine.warps if w.cta is found[0][0].warp.cta
        and any(j.id == ident for _, op, _ in case.history.code_of(w) if (j := joined(op)))
    ]  # fmt: skip
    right = _LANES * len(users)
    wrong = [(side, effect) for side, effect in found if _said(effect) != right]
    if len(wrong) != 1:
        return None
    ((side, effect),) = wrong
    other = next(s for s, e in found if _said(e) == right)
    return Cause(
        f"{count(len(users), 'warp')} come to the named barrier, {right} threads, and it is joined "
        f"here with {effect.threads}",
        (case.who(side.warp, side.op, f"joins with {effect.threads} threads"),
         case.who(other.warp, other.op, f"joins with {right}")),
        f"join with {right} threads",
    )  # fmt: skip


@diagnosis(*RULES, "named-barrier", first=True)
def nobody_waits_there(case: Case) -> Cause | None:
    """One side arrives at a named barrier at which nobody ever waits: the other one should."""
    if len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    code = [op for w in case.history.machine.warps for _, op, _ in case.history.code_of(w)]
    waited = {own.id for op in code if (own := joined(op)) is not None and own.waits}
    for first, second in ((earlier, later), (later, earlier)):
        if first.warp is second.warp or first.warp.cta is not second.warp.cta:
            continue
        for _, op, _ in case.history.code_of(first.warp):
            own = joined(op)
            done = case.history.executions(first.warp, op.number)
            if own is None or own.waits or own.id in waited or not done:
                continue
            return Cause(
                f"{first.warp} arrives at named barrier {own.id}, and nobody waits there",
                (case.who(second.warp, second.op, f"comes without a wait at barrier {own.id}"),
                 case.who(first.warp, done[0], f"arrives at named barrier {own.id}")),
                f"let {second.warp} join named barrier {own.id} with bar.sync before its access",
            )  # fmt: skip
    return None


@diagnosis("deadlock")
def other_counts(case: Case) -> Cause | None:
    """Who waits at a named barrier that others join with another count: their round has ended."""
    for stuck in case.history.stuck:
        op = stuck.blocked.op
        effect = None if op is None else joined(op)
        if op is None or effect is None or not isinstance(stuck.on, NamedBarrier):
            continue
        for warp in case.history.machine.warps:
            for _, other, _ in case.history.code_of(warp):
                own = joined(other)
                done = case.history.executions(warp, other.number)
                if warp.cta is not stuck.warp.cta or own is None or own.id != effect.id or not done:
                    continue
                if own.threads != effect.threads:
                    return Cause(
                        f"{stuck.on.label} is joined with {own.threads} threads, and "
                        f"{stuck.warp} waits there for {effect.threads}",
                        (case.who(warp, done[-1], f"joins with {own.threads} threads"),
                         case.who(stuck.warp, op, f"waits for {effect.threads} threads")),
                        f"join {stuck.on.label} with one count: that of all who come to it",
                    )  # fmt: skip
    return None


def _hopeless(case: Case) -> Iterator[tuple[Stuck, NamedBarrier, fx.JoinsBarrier]]:
    """Who waits at a named barrier to which nobody comes any more."""
    graph = case.history.waits_for
    for stuck in case.history.stuck:
        on, op = stuck.on, stuck.blocked.op
        effect = None if op is None else joined(op)
        if graph is None or graph.suppliers(stuck.warp) or effect is None:
            continue
        if isinstance(on, NamedBarrier):
            yield stuck, on, effect


@diagnosis("deadlock")
def rounds(case: Case) -> Cause | None:
    """A named barrier that counts more threads than come to it, or whose users come to it unequally
    often."""
    for stuck, on, effect in _hopeless(case):
        assert stuck.blocked.op is not None
        users = [
            w for w in case.history.machine.warps if w.cta is stuck.warp.cta
            and any(j.id == effect.id for _, op, _ in case.history.code_of(w) if (j := joined(op)))
        ]  # fmt: skip
        come = _LANES * len(users)
        own = case.who(stuck.warp, stuck.blocked.op, f"waits for {effect.threads} threads")
        threads = _said(effect)
        if threads is not None and len(users) > 1 and threads > come:
            return Cause(
                f"{on.label} counts {threads} threads, and only {len(users)} warps come to "
                f"it, {come} threads",
                (*_to_themselves(case, stuck), own),
            )
        times: dict[Agent, int] = {w: len([*_joins(case, w, effect)]) for w in users}
        rare = min((w for w in users if w is not stuck.warp), key=lambda w: times[w], default=None)
        mine = times[stuck.warp] + (not _counted(case, stuck))
        if rare is None or not times[rare] or times[rare] >= mine:
            continue
        mir = case.history.machine.loaded.mir
        last = [*_joins(case, rare, effect)][-1]
        theirs, ours = loop_of(mir, last.op), loop_of(mir, stuck.blocked.op)
        if theirs is None or ours is None or theirs == ours:
            continue
        return Cause(
            f"{rare} comes {count(times[rare], 'time')} to {on.label}, and {stuck.warp} waits "
            "there once more",
            (case.who(stuck.warp, ours, "goes on"),
             case.who(rare, theirs, f"comes {count(times[rare], 'time')}")),
            f"let both come to {on.label} equally often",
        )  # fmt: skip
    return None


def _to_themselves(case: Case, stuck: Stuck) -> Iterator[Participant]:
    """An arrival of another warp at a named barrier at which that warp waits itself: it may mean
    the one to which nobody comes."""
    for warp in case.history.machine.warps:
        ids = {j.id for _, op, _ in case.history.code_of(warp) if (j := joined(op)) and j.waits}
        for _, op, _ in case.history.code_of(warp):
            own = joined(op)
            if own is None or own.waits or own.id not in ids or warp.cta is not stuck.warp.cta:
                continue
            if case.history.executions(warp, op.number):
                yield case.who(warp, op, f"arrives at barrier {own.id}, where it waits itself")
                return


def _counted(case: Case, stuck: Stuck) -> bool:
    """Whether the join at which a warp waits is among its executions."""
    op = stuck.blocked.op
    done = [] if op is None else case.history.executions(stuck.warp, op.number)
    last = case.history.last_of(stuck.warp)
    return bool(done) and last is done[-1]


def _kept_away(case: Case, stuck: Stuck, effect: fx.JoinsBarrier) -> Iterator[Participant]:
    """The condition that keeps a warp from joining a barrier where another one does, by the same
    instruction."""
    history = case.history
    near = [w for w in history.machine.warps if w.cta is stuck.warp.cta]
    for warp in near:
        for _, op, _ in history.code_of(warp):
            own = joined(op)
            if own is None or own.id != effect.id or history.executions(warp, op.number):
                continue
            if op is stuck.blocked.op or not any(history.executions(w, op.number) for w in near):
                continue
            where = history.condition_past(warp, op)
            if where is not None:
                yield case.who(warp, where, f"skips the {op.mnemonic} by this condition")
                return


@diagnosis("deadlock")
def nobody_else(case: Case) -> Cause | None:
    """Who waits at a barrier of threads that nobody else will come to."""
    graph = case.history.waits_for
    for stuck, on, effect in _hopeless(case):
        others = [s for s in case.history.stuck if s.on is not on]
        if not others or graph is None or stuck.blocked.op is None:
            continue
        sides = [case.who(stuck.warp, stuck.blocked.op, f"waits at {on.label}", on)]
        sides[:0] = _kept_away(case, stuck, effect)
        for other in others:
            near = isinstance(other.on, NamedBarrier)
            if near and any(w is stuck.warp for w, _ in graph.suppliers(other.warp)):
                last = case.history.last_of(other.warp)
                own = None if last is None else joined(last.op)
                if last is not None and (own is None or own.id != effect.id):
                    sides.append(
                        case.who(other.warp, last, f"does not come to {on.label} then", on)
                    )
                break
        return Cause(
            f"nobody else comes to {on.label}",
            tuple(sides),
            f"let everybody whom {on.label} counts join it by this number, once per round"
            if any(named != on.named for named in case.finding.facts.named) else "",
        )  # fmt: skip
    return None
