"""Which of the two sides of a finding is the one to change, where the rule itself says that."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.mistakes.barrier_use import about
from tilesim.mistakes.context import array_of, branch_past, has
from tilesim.mistakes.history import END, Done
from tilesim.mistakes.mistake import Case, Cause, Side
from tilesim.mistakes.release_acquire_paths import group_of
from tilesim.wording import count

#: instructions between two initialisations that belong together, at most
_NEAR = 12


def after_the_init(case: Case) -> Cause | None:
    """The initialisation is not handed on: what is missing stands behind the last one."""
    for side in reversed(case.sides):
        if has(side, fx.InitsMbarrier):
            over = _invalidated(case, side)
            if over is not None:
                return _unawaited(case, over)
            last = side.op
            for op in case.history.code_of(side.warp):
                near = 0 < op.number - last.number < _NEAR
                if near and (has(op, fx.InitsMbarrier) or has(op, fx.Orders, inits=True)):
                    last = op
            return Cause(
                "nothing hands the initialisation on to the warps that use the barrier",
                (case.warp(side.warp, last, "is the last to initialise"),),
            )
    return None


def no_free_registers(case: Case) -> Cause | None:
    """The instruction that wants more registers than there are."""
    for stuck in case.history.stuck:
        op = stuck.blocked.op
        if op is not None and has(op, fx.Registers, increase=True):
            return Cause(f"setmaxnreg.inc of {stuck.warp} blocks: no warp releases registers",
                         (case.warp(stuck.warp, op, "waits for registers"),))  # fmt: skip
    return None


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
    what = "the warps of one group are led to different instructions"
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
    odd = next(
        (m for m, o in zip(mine, other, strict=False) if m.op is not o.op), mine[-1]
    )  # fmt: skip
    where = branch_past(mir, odd.op)
    sides = [] if where is None else [case.warp(ending[0], where, "leaves a round out")]
    return Cause(
        f"{ending[0]} comes {count(len(other), 'time')} to the cluster barrier, and "
        f"{case.sides[0].warp} {count(len(mine), 'time')}",
        (*sides, case.warp(ending[0], other[-1], "ends after this round"),
         case.warp(odd.warp, odd, "is in the same round")),
        "let every CTA of the cluster come to its barrier equally often",
    )  # fmt: skip


def uneven(case: Case) -> Cause | None:
    """More copies are issued than are waited for: the loops of two roles differ."""
    history = case.history
    for on in about(case):
        waiting = history.passes(on=on)
        for side in case.sides:
            issues = case.loop_of(side.op)
            waits = case.loop_of(waiting[-1].op) if waiting else None
            if issues is not None and waits is not None and issues != waits:
                times = len(history.executions(side.warp, side.op.number))
                return Cause(
                    f"{side.warp} issues {times} copies, more than {waiting[-1].warp} waits for",
                    (case.warp(side.warp, issues, "issues one copy too many"),
                     case.warp(waiting[-1].warp, waits, "waits once too few")),
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
            sides = [case.warp(done.warp, done, "is the last thing that it does")]
            ops = list(history.code_of(done.warp))
            if ops[-1] is not done.op:
                sides.append(case.warp(done.warp, ops[-1], "is the end of the kernel"))
            return Cause(f"nothing keeps CTA {cta} alive behind its last instruction",
                         tuple(sides))  # fmt: skip
    return None


def start_of_the_target(case: Case) -> Cause | None:
    """A CTA that may not have begun when another one accesses its memory."""
    for side in case.sides:
        history, own = case.history, case.side(side, "comes without a cluster barrier before it")
        if history.between(side.warp, 0, side.at, fx.JoinsCluster, arrives=False):
            continue  # it has waited: what is wrong there is another thing
        told = history.latest(side.warp, side.at, fx.JoinsCluster)
        if told is not None:
            return Cause(
                f"nothing waits for the cluster barrier between this {told.op.mnemonic} and the "
                "first remote access",
                (case.warp(side.warp, told, "arrives at it only"), own),
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
            if len(case.sides) > 1 and all(has(s, fx.InvalidatesMbarrier) for s in case.sides):
                return Cause(
                    "a barrier is invalidated twice",
                    (case.warp(side.warp, side.op, "names a barrier that is invalid already"),),
                )
            return None if side.done is None else _unawaited(case, side.done)
    return None


def _invalidated(case: Case, side: Side) -> Done | None:
    """The last invalidation of a barrier before the warp of a side has initialised it again."""
    arrays = [e.mbar.array for e in side.op.effects() if isinstance(e, fx.InitsMbarrier)]
    done = case.history.between(side.warp, 0, side.at)
    return next(
        (
            d for d in reversed(done) for e in d.op.effects()
            if isinstance(e, fx.InvalidatesMbarrier) and e.mbar.array in arrays
        ),
        None,
    )  # fmt: skip


def _unawaited(case: Case, invalidation: Done) -> Cause | None:
    """A warp that invalidates a barrier without waiting for its users: what it does before that."""
    for done in reversed(case.history.between(invalidation.warp, 0, invalidation.at)):
        if not has(done, fx.InvalidatesMbarrier, fx.Elects):
            return Cause(
                "nothing makes the warp wait for all users before it invalidates",
                (case.warp(invalidation.warp, done, "is the last thing before mbarrier.inval"),),
                "let it wait until no warp uses the barrier any more, then invalidate it",
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
            f"nothing makes {waiting} wait for earlier grids",
            (case.side(side, "comes without a wait for them"),),
        )
    return Cause(
        f"this {waits[0].mnemonic} comes after what it is for",
        (case.warp(side.warp, waits[0], "comes too late"),
         case.side(side, "comes before it")),
        f"{waits[0].mnemonic} before the first use of what earlier grids produce",
    )  # fmt: skip
