"""A barrier on which nobody has arrived: of whom that is expected, and where."""

from __future__ import annotations

from itertools import pairwise

from tilesim.blame.barriers import about, elsewhere, inits, label_of, one_each
from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.history import Stuck, Touch
from tilesim.blame.places import branch_past, loop_range
from tilesim.ir import effects as fx
from tilesim.ir.expr import Var, walk
from tilesim.ir.op import Op
from tilesim.sim.findings import Participant, Stated
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.words import count

#: waits of a warp that show what it does after each
_TURNS = 3


@diagnosis("deadlock")
def not_every_time(case: Case) -> Cause | None:
    """A warp that has arrived in the turns before, and has gone through one without it: the last
    arrivals of a phase do not come."""
    history = case.history
    for on in about(case):
        if not 0 < on.pending < on.expected:
            continue
        now = {c.warp for c in history.credits(on) if c.arrivals > 0 and c.phase == on.phase}
        for stuck in history.stuck:
            warp = stuck.warp
            lost = None if warp in now else _turn_without(case, stuck, history.supplies(warp, on))
            if lost is None:
                continue
            wait, arrival = lost
            where = branch_past(history.machine.loaded.mir, arrival)
            sides = [case.who(warp, arrival, f"does not arrive on {on.label} after each wait", on)]
            if where is not None:
                sides.insert(
                    0, case.who(warp, where, f"skips the {arrival.mnemonic} by this condition")
                )
            return Cause(
                f"{warp} has not arrived on {on.label} after one of its waits, as it does after "
                f"others: {count(on.expected - on.pending, 'arrival')} of {on.expected} came",
                (*sides, case.of(wait, "is the wait after which it does not")),
                f"let {warp} arrive on {on.label} in every turn",
                facts=Stated(arrivals=(on.expected - on.pending,)),
            )
    return None


def _turn_without(case: Case, stuck: Stuck, arrivals: list[Op]) -> tuple[Touch, Op] | None:
    """The wait after which a warp has not arrived by any of some instructions, as it has between
    most of its waits; and the instruction by which it has."""
    mine = [t for t in case.history.touches if t.warp is stuck.warp and t.op in arrivals]
    made = [t for t in mine if t.kind == "credit" and t.arrivals > 0]
    # lanes that have parted pass one after another at one time
    passed = [*{p.at: p for p in case.history.passes(stuck.warp)}.values()]
    if not made or len(passed) < _TURNS or stuck.blocked.op not in {p.op for p in passed}:
        return None
    times = [*(p.at for p in passed), case.history.now]
    turns = [any(a < t.issued < b for t in made) for a, b in pairwise(times)]
    odd = [wait for wait, has in zip(passed, turns, strict=True) if not has]
    return (odd[0], made[-1].op) if len(odd) == 1 else None


@diagnosis("deadlock")
def nobody_arrives(case: Case) -> Cause | None:
    """A barrier on which no arrival has ever been made: it is expected of somebody, and where."""
    history = case.history
    for on in about(case):
        credits = history.credits(on)
        if not on.live or any(c.arrivals > 0 for c in credits) or not on.pending:
            continue
        others = [c for c in elsewhere(case, on) if _is_surplus(case, c)]
        if others:
            return Cause(
                f"no arrival comes on {on.label}: the one meant for it names another barrier",
                (*(case.of(c, f"arrives on {label_of(c)}") for c in others), *inits(case, on)),
                f"let an arrival name {on.label}",
            )
        waiters = [stuck.warp for stuck in history.stuck if stuck.on is on]
        if history.waits_for is None or any(map(history.waits_for.suppliers, waiters)):
            continue
        bare = one_each(c for c in credits if c.tx > 0)
        if bare:
            return Cause(
                f"nobody arrives on {on.label}: its bytes are expected without an arrival",
                (*(case.of(c, f"expects {c.tx} bytes and does not arrive") for c in bare),
                 *inits(case, on)),
                f"arrive on {on.label} as well: arrive.expect_tx",
            )  # fmt: skip
        starts = _starts_over(case, on)
        if starts is not None:
            return Cause(
                f"nobody arrives on {on.label}: the slot of who would starts over before it",
                (*starts, *inits(case, on)),
                "let the slot go through all that there are",
            )
        apart = _from_some_ctas(case, on)
        if apart is not None:
            return apart
        where = _last_use(case, on)
        if where is not None:
            return Cause(
                f"nobody arrives on {on.label}, which counts {count(on.expected, 'arrival')}",
                (where, *inits(case, on)),
                f"arrive on {on.label} after this, in every turn",
                facts=Stated(arrivals=(on.expected,)),
            )
        if waiters and not any(history.supplies(warp, on) for warp in history.machine.warps):
            return Cause(
                f"no instruction arrives on {on.label}, which counts "
                f"{count(on.expected, 'arrival')}",
                (*(case.who(s.warp, s.blocked.op or s.blocked.loc, f"waits on {on.label}", on)
                   for s in history.stuck if s.on is on), *inits(case, on)),
                f"arrive on {on.label} before this wait",
                facts=Stated(arrivals=(on.expected,)),
            )  # fmt: skip
    return None


def _is_surplus(case: Case, arrival: Touch) -> bool:
    """Whether a barrier has got more arrivals than the waits on it need: one of them may be
    meant for another barrier."""
    on = arrival.on
    assert isinstance(on, Mbarrier)
    passed = [t.phase for t in case.history.touches if t.kind == "pass" and t.on is on]
    stuck = [s.phase for s in case.history.stuck if s.on is on]
    uses = max((*passed, *stuck), default=-1) + 1
    made = sum(c.arrivals for c in case.history.credits(on))
    return made > on.expected * uses


def _from_some_ctas(case: Case, on: Mbarrier) -> Cause | None:
    """A warp that does not execute what the same warp of another CTA does, by which it would arrive
    on the barrier."""
    history = case.history
    for told in elsewhere(case, on):
        for warp in history.machine.warps:
            if warp.number != told.warp.number or warp.cta is told.warp.cta:
                continue
            if history.executions(warp, told.op.number):
                continue
            if not history.names(warp, told.op, on, (fx.Arrives,)):
                continue
            where = history.condition_past(warp, told.op)
            if where is None:
                continue
            return Cause(
                f"no arrival comes on {on.label}: {warp} does not execute the "
                f"{told.op.mnemonic} by which {told.warp} arrives on {label_of(told)}",
                (case.who(warp, where, f"skips that {told.op.mnemonic} by this condition"),
                 case.of(told, f"arrives on {label_of(told)}"), *inits(case, on)),
                f"let {warp} arrive on {on.label}",
            )  # fmt: skip
    return None


def _starts_over(case: Case, on: Mbarrier) -> tuple[Participant, ...] | None:
    """Where a register with the slot is set of arrivals on a barrier's array that have gone back to
    the first slot without a use of this one."""
    history, mir = case.history, case.history.machine.loaded.mir
    for warp in history.machine.warps:
        for op in history.supplies(warp, on):
            made = [case.history.number_of(t.on) or 0 for t in history.touches if t.kind == "credit"
                    and t.warp is warp and t.op is op and t.arrivals > 0]  # fmt: skip
            back = any(b < a < (case.history.number_of(on) or 0) for a, b in pairwise(made))
            indices = [e.mbar.index for e in op.effects() if isinstance(e, fx.Arrives)]
            names = {p.name for index in indices for p in walk(index) if isinstance(p, Var)}
            loop = loop_range(mir, op)
            steps = [
                mir.code[n] for name in names for n in mir.setters.get(name, ())
                if loop is not None and loop[0] <= n <= loop[1] and not mir.code[n].counts
            ]  # fmt: skip
            if back and steps and isinstance(steps[-1].what, Op):
                last = steps[-1].what
                where = branch_past(mir, last)
                return tuple(
                    case.who(warp, loc, "lets its slot start over")
                    for loc in (where, last.loc) if loc is not None
                )  # fmt: skip
    return None


def _last_use(case: Case, on: Mbarrier) -> Participant | None:
    """The last thing that a warp does which those who wait for ``on`` have let go on: it should
    arrive."""
    history = case.history
    waiters = {s.warp for s in history.stuck if s.on is on}
    for stuck in history.stuck:
        if stuck.warp in waiters:
            continue
        passes = [
            p for p in history.passes(stuck.warp)
            if isinstance(p.on, Mbarrier) and any(history.supplies(w, p.on) for w in waiters)
        ]  # fmt: skip
        done = history.between(stuck.warp, passes[-1].at, 1 << 62) if passes else []
        begun = history.at(stuck.warp, passes[-1].op.number, passes[-1].issued) if passes else None
        turn = [d for d in done if begun is not None and d.turns == begun.turns]
        arrivals = [d for d in turn if any(isinstance(e, fx.Arrives) for e in d.op.effects())]
        done = arrivals or turn or done
        if done:
            return case.who(stuck.warp, done[-1], f"does not arrive on {on.label} afterwards", on)
    return None
