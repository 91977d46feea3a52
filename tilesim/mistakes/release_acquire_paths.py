"""Why two accesses are not ordered: the wait or the arrival between them that is wrong.

In a race one warp accesses first and another second. Some mbarrier is meant to order them: the
first one arrives on it afterwards (or its copy completes bytes of it), the second one waits for it
before. Which of the two comes first by rights is not known, so both directions are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.liveness import live_at
from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import mentioned
from tilesim.findings.finding import Participant
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbarriers, Tensor
from tilesim.ir.expr import Expr, Var, constant, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, effect_of, has, loops_around
from tilesim.mistakes.history import END, Done, Touch
from tilesim.mistakes.mistake import Case, Cause, Side, setters_in_loop
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent

RULES = ("race", "tcgen05-order", "wgmma-order", "tmem-lifetime", "uninitialised-read")


class Link(NamedTuple):
    """A barrier by which ``second`` would learn that ``first`` is done: the last wait before it."""

    first: Side
    second: Side
    on: Mbarrier
    wait: Touch


def links(case: Case, *, group: bool = False) -> Iterator[Link]:
    """The barriers that connect the two sides, in both directions, the last waits first; ``group``:
    also where other warps of a role speak for the first side."""
    for first, second in directions(case):
        seen: set[object] = set()
        for wait in reversed(case.history.passes(second.warp)):
            if wait.at > second.at or wait.on in seen:
                continue
            seen.add(wait.on)
            if _supplies(case, first.warp, wait.on, group=group) and _guards(case, wait, second):
                yield Link(first, second, wait.on, wait)


def _supplies(case: Case, warp: Agent, on: Mbarrier, *, group: bool) -> bool:
    """Whether a warp (or another one of its role) arrives on a barrier, or completes its bytes."""
    warps = case.history.machine.warps if group else (warp,)
    return any(
        bool(case.history.supplies(w, on)) for w in warps
        if w.cta is warp.cta and w.role == warp.role
    )  # fmt: skip


def _guards(case: Case, wait: Touch, side: Side) -> bool:
    """Whether a wait may be meant for what its warp does later: what frees tensor memory is in
    another role than the copies of its warp."""
    plan = case.history.machine.plan
    frees = has(side, fx.FreesTmem)
    return not frees or plan.role_of(wait.op) == plan.role_of(side.op)


def directions(case: Case) -> Iterator[tuple[Side, Side]]:
    """The two sides as first and second; one warp is its own second only where its operations are
    asynchronous. What frees tensor memory is second."""
    if len(case.sides) < 2:
        return
    later, earlier = case.sides[:2]
    for first, second in ((earlier, later), (later, earlier)):
        if has(first, fx.FreesTmem):
            continue
        if first.warp is not second.warp or group_of(first.op):
            yield first, second


def writes(op: Op) -> bool:
    """Whether an instruction writes what another one may read."""
    return has(op, fx.Writes, fx.RemoteStore) or has(op, fx.UsesTmem, write=True)


def group_of(op: Op) -> str | None:
    """The kind of group that an asynchronous operation belongs to, or ``mbarrier``."""
    for effect in op.effects():
        if isinstance(effect, fx.Issues):
            return effect.group
        if isinstance(effect, fx.Completes) and effect.asynchronous:
            return "mbarrier"
    return None


def strong(op: Op, kind: type[fx.Reads] | type[fx.Writes]) -> fx.Reads | fx.Writes | None:
    """What an instruction reads or writes as a flag: relaxed or stronger, or by an atomic."""
    return next((e for e in op.effects() if isinstance(e, kind) and e.sem != "weak"), None)


def flags(case: Case, first: Side, second: Side) -> Iterator[tuple[Done, Done]]:
    """By what words in memory the CTA of ``first`` tells that of ``second`` something before the
    access of the latter: what writes the word, and what reads it."""
    written = strong_accesses(case, first.warp, fx.Writes, case.made)
    for read in reversed(
        strong_accesses(case, second.warp, fx.Reads, min(second.at, case.made))
    ):  # fmt: skip
        for write in written:
            if write.at < read.at and word_of(write.op) == word_of(read.op):
                yield write, read
                break


def strong_accesses(
    case: Case, one: Agent, kind: type[fx.Reads] | type[fx.Writes], before: int = END
) -> list[Done]:
    """The reads or writes of flags by the warps of the CTA of one, in order."""
    every = (d for w in case.history.peers(one) for d in case.history.between(w, 0, before, kind))
    return sorted((d for d in every if strong(d.op, kind)), key=lambda d: d.at)


def word_of(op: Op) -> Tensor | None:
    effect = strong(op, fx.Reads) or strong(op, fx.Writes)
    return None if effect is None else effect.view.tensor


#: how far a scope reaches
_REACH = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 2}
#: an effect that releases or acquires
_Order = fx.Arrives | fx.Writes | fx.Waits | fx.Reads | fx.JoinsCluster


class HandOver(NamedTuple):
    """By which executions one side tells the other one that it is done; ``on`` an mbarrier."""

    first: Side
    second: Side
    release: Done
    acquire: Done
    on: Mbarrier | None = None


def hand_overs(case: Case) -> Iterator[HandOver]:
    """How the sides tell each other: by mbarriers, by the cluster barrier, by flags in memory."""
    history = case.history
    for first, second, on, wait in links(case):
        acquire = history.at(wait.warp, wait.op.number, wait.issued)
        for credit in history.credits(on, first.warp):
            release = history.at(credit.warp, credit.op.number, credit.issued)
            if acquire is not None and release is not None:
                yield HandOver(first, second, release, acquire, on)
    for first, second in directions(case):
        last = min(second.at, case.made)
        for release in history.between(first.warp, first.at, last, fx.JoinsCluster, arrives=True):
            kind = fx.JoinsCluster
            acquire = history.first(second.warp, release.at, kind, last=last, arrives=False)
            if acquire is not None:
                yield HandOver(first, second, release, acquire)
        for release, acquire in flags(case, first, second):
            if release.at > first.at:
                yield HandOver(first, second, release, acquire)


def weak(case: Case) -> Cause | None:
    """A release or an acquire that is relaxed, or has a scope that leaves the other side out."""
    for first, second, release, acquire, on in hand_overs(case):
        before, behind = (first.at, release.at), (acquire.at, second.at)
        for done, other, releases, between in (
            (release, acquire, True, before), (acquire, release, False, behind),
        ):  # fmt: skip
            effect = _order(done.op, releases=releases)
            if effect is None:
                continue
            quiet = effect.sem not in ("release" if releases else "acquire", "acq_rel")
            fence = _fence(case, done.warp, between, releases=releases) if quiet else None
            reach = getattr(effect, "scope", "cluster")
            if quiet and fence is None:
                what = "is relaxed: it releases nothing" if releases else (
                    "is relaxed: it orders no accesses"
                )  # fmt: skip
                fix = f"let this {done.op.mnemonic} {'release' if releases else 'acquire'}, or put "
                fix += "a fence.acq_rel beside it"
            else:
                if fence is not None and _REACH[fence[1]] < _REACH[reach]:
                    done, reach = fence
                if _REACH[reach] >= _apart(first.warp, second.warp) or not _matters(case, effect):
                    continue
                what = f"has scope {reach}, and the other side is in another CTA"
                fix = f"give this {done.op.mnemonic} a scope that includes both sides"
            sides = [
                case.warp(done.warp, done, f"{'releases' if releases else 'acquires'} nothing", on)
            ]
            if isinstance(effect, fx.Reads | fx.Writes) and other.op is not done.op:
                said = f"{'reads' if releases else 'sets'} the same word"
                sides.append(case.warp(other.warp, other, said))
            where = "" if on is None else f" on {on.label}"
            return Cause(f"this {done.op.mnemonic}{where} {what}", tuple(sides), fix)
    return None


def _order(op: Op, *, releases: bool) -> _Order | None:
    """The effect by which an instruction hands over, or takes over, at once."""
    kinds = (fx.Arrives, fx.Writes) if releases else (fx.Waits, fx.Reads)
    for effect in op.effects():
        later = isinstance(effect, fx.Arrives) and effect.asynchronous
        if isinstance(effect, kinds) and effect.sem != "weak" and not later:
            return effect
        if releases and isinstance(effect, fx.JoinsCluster):
            return effect
    return None


def _matters(case: Case, effect: _Order) -> bool:
    """Whether the scope of what hands over counts: that of mbarriers by the text of the PTX ISA, or
    where the finding says that all is ordered but for that."""
    by_text = case.history.machine.options.ptx or case.finding.kind == "race/in-time-only"
    return by_text or not isinstance(effect, fx.Arrives | fx.Waits)


def _apart(one: Agent, other: Agent) -> int:
    """How far the scope of two warps has to reach."""
    return 0 if one.cta is other.cta else 1 if one.cta.cluster is other.cta.cluster else 2


def _fence(
    case: Case, warp: Agent, between: tuple[int, int], *, releases: bool
) -> tuple[Done, fx.Scope] | None:
    """The fence that makes a relaxed operation of a warp release what came before, or acquire; of
    several the one of the widest scope. One for shared memory releases what is done to that of its
    CTA (H18).
    """
    memory = case.memory
    near = memory is not None and memory.mbarriers is not None
    near = near and (not releases or memory is warp.cta.memory)
    found = (
        (done, e.scope)
        for done in case.history.between(warp, *between) for e in done.op.effects()
        if isinstance(e, fx.Orders) and (near or not e.in_shared)
        and (e.releases if releases else e.acquires)
    )  # fmt: skip
    return max(found, key=lambda fence: _REACH[fence[1]], default=None)


def too_narrow(case: Case) -> Cause | None:
    """Two strong accesses to one word from different CTAs, one of them with a scope that leaves the
    other CTA out."""
    if len(case.sides) < 2 or case.sides[0].warp.cta is case.sides[1].warp.cta:
        return None
    least = _apart(case.sides[0].warp, case.sides[1].warp)
    found = [
        (side, strong(side.op, fx.Writes) or strong(side.op, fx.Reads)) for side in case.sides[:2]
    ]
    narrow = [(side, e.scope) for side, e in found if e is not None and _REACH[e.scope] < least]
    if any(effect is None for _, effect in found) or not narrow:
        return None
    side, scope = narrow[0]
    others = (other for other in case.sides[:2] if other.op is not side.op)
    return Cause(
        f"this {side.op.mnemonic} has scope {scope}, and the other side is in another CTA",
        (case.side(side, f"accesses the word with scope {scope}"),
         *(case.side(o, "accesses the same word") for o in others)),
        f"give this {side.op.mnemonic} a scope that includes both sides",
    )  # fmt: skip


def stale_wait(case: Case) -> Cause | None:
    """A wait that passes again on the phase that it has passed on before: its parity does not
    follow the barrier's phases."""
    for warp in dict.fromkeys(side.warp for side in case.sides):
        last: dict[tuple[object, Loc], Touch] = {}
        for wait in case.history.passes(warp):
            if wait.at > case.made:
                break
            key = (wait.on, wait.op.loc)
            before = last.get(key)
            if before is not None and before.phase == wait.phase and _worked(case, before, wait):
                label = wait.on.label
                if not any(case.history.supplies(w, wait.on) for w in case.history.machine.warps):
                    return _unsupplied(case, wait)
                seen = f"phase {wait.phase}" if wait.phase >= 0 else "no phase yet"
                what = f"this wait passes a second time on {label} with {seen} completed: its "
                what += "parity does not follow the uses of the barrier"
                again = case.of(wait, f"passes {label} again on the phase it has seen")
                steps = [
                    case.warp(warp, loc, "advances the slot, and no instruction changes the parity")
                    for loc in _steps_slot_only(case, wait)
                ]
                anew = None if steps else starts_over(case, warp, wait.op)
                if anew is not None:
                    return starting_over(case, wait.on, again, anew, f"{what} but")
                fix = f"let the parity (and the slot) of the wait on {label} follow its uses"
                return Cause(what, (*steps, again), fix)
            last[key] = wait
    return None


def _unsupplied(case: Case, wait: Touch) -> Cause:
    """A wait on a barrier on which no instruction arrives."""
    label = wait.on.label
    return Cause(
        f"no instruction arrives on {label}: this wait always passes at once",
        (case.of(wait, f"waits on {label}, of which no phase completes"), *case.inits(wait.on)),
        f"arrive on {label} after the work that this wait must follow, and let the parity of the "
        f"wait follow the uses",
    )


def starting_over(case: Case, on: Mbarrier, wait: Participant, loop: Loc, what: str) -> Cause:
    """A wait whose parity starts over in each turn of a loop."""
    warp = case.history.warp(wait.cta, wait.warp)
    assert warp is not None
    return Cause(
        f"{what} starts over in each iteration of the loop at {loop.short}",
        (wait, case.warp(warp, loop, "lets the parity start over")),
        f"carry the parity of {on.label} from iteration to iteration of the loop at {loop.short}",
    )


def starts_over(case: Case, warp: Agent, op: Op) -> Loc | None:
    """Where a loop ends in each turn of which the parity of a wait starts over: none of the
    registers that it is made of is carried from one turn to the next; only if the warp has made
    several turns, in which it waits for several phases.
    """
    times, phase = case.history.times, getattr(effect_of(op, fx.Waits), "phase", None)
    for first, last in loops_around(case.mir, op):
        several = 0 < times(warp, last) < times(warp, op.number)
        loop = range(first, last + 1)
        if several and (_begins_anew(case.mir, phase, loop) or _is_unrolled(case.mir, op, loop)):
            return case.mir.code[last].loc
    return None


def _is_unrolled(mir: Mir, op: Op, loop: range) -> bool:
    """Whether a wait is one of several in a loop that a compiler has made of one in the source, and
    the parity of each is a number, of some 0 and of some 1: it is counted within a turn only."""
    waits = [w for n in loop for w in mir.effects[n] if isinstance(w, fx.Waits)
             and mir.code[n].what.loc.written == op.loc.written]  # fmt: skip
    return {parity for wait in waits for parity in _numbers(mir, wait.phase)} == {0, 1}


def _numbers(mir: Mir, value: object) -> set[int | None]:
    """What a value may be if it is a number or a register that is set to numbers only; None for
    anything else."""
    if isinstance(value, Var):
        given = [e.value for n in mir.setters.get(value.name, ()) for e in mir.effects[n]
                 if isinstance(e, fx.Defines) and e.var.name == value.name]  # fmt: skip
        return {constant(v) if isinstance(v, Expr) else None for v in given} or {None}
    return {constant(value) if isinstance(value, Expr) else None}


def _begins_anew(mir: Mir, phase: object, loop: range) -> bool:
    """Whether a value changes in a loop, and nothing that it is made of is left in a register by an
    earlier turn. What the loop sets in one place only, from what is the same in all turns, stands
    still."""

    def setters(name: str) -> list[int]:
        return [n for n in mir.setters.get(name, ()) if n in loop]

    def sources_of(name: str) -> Iterator[str]:
        for effect in (e for n in setters(name) for e in mir.effects[n]):
            if isinstance(effect, fx.Defines) and effect.var.name == name:
                value = effect.value  # "": no register
                yield from mentioned(value) if isinstance(value, Expr) else ("",)

    made = closure(mentioned(phase) if isinstance(phase, Expr) else (), sources_of)
    left = (name for name in live_at(graph_of(mir), loop[0]) if setters(name))
    return any(len(setters(name)) > 1 for name in made) and made.isdisjoint(("", *left))


def _steps_slot_only(case: Case, wait: Touch) -> list[Loc]:
    """Where the register is changed with the slot of a wait, in its loop, if nothing there changes
    the one with its parity."""
    effect = effect_of(wait, fx.Waits)
    if effect is None or not isinstance(effect.mbar.array, Mbarriers):
        return []
    phase = isinstance(effect.phase, Expr) and any(isinstance(p, Var) for p in walk(effect.phase))
    if not phase or setters_in_loop(case, wait.op, [effect.phase]):
        return []
    steps = setters_in_loop(case, wait.op, [effect.mbar.index])[:1]
    return [case.mir.code[n].loc for n in steps if not case.mir.code[n].counts]


def _worked(case: Case, before: Touch, after: Touch) -> bool:
    """Whether the warp did something between two waits that the second one is meant to allow."""
    kinds = (fx.Arrives, fx.Writes, fx.Reads, fx.Issues)
    return bool(case.history.between(after.warp, before.at, after.at, *kinds))


def early_wait(case: Case) -> Cause | None:
    """A consumer's wait that passes at once on a fresh barrier: parity 1 instead of 0."""
    nearest: dict[int, Link] = {}
    for link in links(case):
        nearest.setdefault(id(link.second), link)
    for link in nearest.values():
        if not writes(link.first.op) or not _reads(case, link.second):
            continue
        first = next(iter(case.history.passes(link.second.warp, link.on)), None)
        if first is not None and first.phase < 0:
            return at_once(case, first, f"{link.first.warp} has not filled its data yet")
    return None


def at_once(case: Case, wait: Touch, although: str) -> Cause:
    """A consumer's wait that passes on a fresh barrier."""
    label = wait.on.label
    return Cause(
        f"this wait passes at once: parity 1 on {label}, of which no phase has completed, although "
        f"{although}",
        (case.of(wait, f"passes {label} before any phase has completed"),),
        f"the consumer's first wait on {label} must use parity 0",
    )


def _reads(case: Case, side: Side) -> bool:
    """Whether a side only reads what the finding is about."""
    deed = case.deed(side)
    return not writes(side.op) or (deed is not None and deed.verb == "reads")


def other_slot(case: Case) -> Cause | None:
    """A copy, its bytes, its reader and the wait of that name different slots of the arrays."""
    found = [
        (side, on, slot) for side in case.sides[:2]
        if (on := _slot_by(case, side)) is not None and (slot := slot_of(case, side)) is not None
        and slot < case.history.slots_of(on)
    ]  # fmt: skip
    odd = [one for one in found if case.history.number_of(one[1]) != one[2]]
    if len(found) < 2 or len(odd) != 1 or found[0][0].warp is found[1][0].warp:
        return None
    copies = [one for one in found if group_of(one[0].op) == "mbarrier"]
    ((side, on, slot),) = odd
    certain = all(one.sure for one, _, _ in found) if copies else group_of(side.op) is None
    if not certain or len({case.history.slots_of(on) for _, on, _ in found}) > 1:
        return None
    tracked = case.history.number_of(on)
    if group_of(side.op) == "mbarrier":
        return Cause(
            f"the copy fills slot {slot} and completes its bytes on {on.label}",
            (case.warp(side.warp, side.op, f"completes its bytes on {on.label}", on),),
            f"let the copy fill the slot of the barrier that tracks it, {tracked}, or name the "
            f"barrier of slot {slot}",
        )
    own = case.side(side, f"accesses slot {slot}")
    its = case.waits(next(t for t in reversed(case.passed(side)) if t.on is on))
    # no warp waits for the copy of this slot: the wait is the one that names another one
    unread = any(not case.history.passes(on=copied) for _, copied, _ in copies)
    return Cause(
        f"slot {slot} is accessed after a wait on {on.label}",
        (its, own) if unread or _released(case, side, on) == slot else (own, its),
        f"wait for the barrier of slot {slot}, or access slot {tracked}",
    )


def _slot_by(case: Case, side: Side) -> Mbarrier | None:
    """The barrier that says which slot a side is meant to access: the one on which its copy
    completes, or for which it has waited last, of the array on which the other side's copy does."""
    copied = {s: t.on for s in case.sides[:2] if group_of(s.op) == "mbarrier"
              for t in case.landed(s)[:1]}  # fmt: skip
    if group_of(side.op) == "mbarrier":
        return copied.get(side)
    arrays = {array_of(on) for on in copied.values()}
    waits = [t for t in case.passed(side) if not arrays or array_of(t.on) in arrays][-1:]
    return waits[0].on if waits and waits[0].phase >= 0 else None


def last_wait(case: Case, side: Side) -> Touch | None:
    """The last wait for a phase of an mbarrier before an access."""
    passed = case.passed(side)
    return passed[-1] if passed and passed[-1].phase >= 0 else None


def slot_of(case: Case, side: Side) -> int | None:
    """The first index of what a side accesses."""
    deed = case.deed(side)
    return None if deed is None or deed.on is None else deed.on.slot


def _released(case: Case, side: Side, but: Mbarrier) -> int | None:
    """The slot of the first arrival of a warp after its access, on barriers of another array."""
    credits = case.history.credits(warp=side.warp)
    later = (t.on for t in credits if t.issued > side.at and array_of(t.on) != array_of(but))
    return next((case.history.number_of(on) for on in later), None)
