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
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, has, loops_around
from tilesim.mistakes.history import Touch
from tilesim.mistakes.mistake import Case, Cause, Side, setters_in_loop, waits
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


def relaxed(case: Case) -> Cause | None:
    """A wait between the two that orders no memory, or an arrival whose scope is too small."""
    narrow = case.history.machine.options.ptx or case.finding.kind == "race/in-time-only"
    for link in links(case):
        effect = waits(link.wait.op)
        if effect is not None and effect.sem == "relaxed":
            return Cause(
                f"the wait on {link.on.label} is relaxed: it orders no accesses",
                (case.of(link.wait, f"waits on {link.on.label} with .relaxed"),),
                "let the wait acquire (the default)",
            )
        for credit in case.history.credits(link.on, link.first.warp):
            arrives = [e for e in credit.op.effects() if isinstance(e, fx.Arrives)]
            if any(e.sem == "relaxed" and not e.asynchronous for e in arrives):
                return Cause(
                    f"this arrival on {link.on.label} is relaxed: it hands nothing on",
                    (case.of(credit, f"arrives on {link.on.label} with .relaxed"),),
                    "let the arrival release (the default)",
                )
            if narrow and link.on.cta is not link.first.warp.cta and _scope(credit.op) == "cta":
                return Cause(
                    f"this arrival on {link.on.label} of another CTA releases to its own CTA only",
                    (case.of(credit, "arrives with scope cta"),
                     case.waits(link.wait)),
                    f"give this arrival and the wait on {link.on.label} the scope cluster",
                )  # fmt: skip
    return None


def _scope(op: Op) -> str:
    return next((e.scope for e in op.effects() if isinstance(e, fx.Arrives)), "")


def no_arrival(case: Case) -> Cause | None:
    """A wait for the phase before the first on a barrier on which no instruction arrives: it always
    passes, and guards nothing."""
    history = case.history
    for side in case.sides:
        for wait in history.passes(side.warp):
            on = wait.on
            if wait.at > side.at or wait.phase >= 0 or not isinstance(on, Mbarrier):
                continue
            if not any(history.supplies(warp, on) for warp in history.machine.warps):
                return Cause(
                    f"no instruction arrives on {on.label}: this wait passes at once, every time, "
                    "and guards nothing",
                    (case.of(wait, f"waits on {on.label} for the phase before the first"),
                     *case.inits(on)),
                    f"arrive on {on.label} where what this wait guards is done, and let the wait's "
                    "parity follow the uses",
                )  # fmt: skip
    return None


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
                seen = f"phase {wait.phase}" if wait.phase >= 0 else "no phase yet"
                what = f"this wait passes a second time on {label} with {seen} completed: its "
                what += "parity does not follow the uses of the barrier"
                again = case.of(wait, f"passes {label} again on the phase it has seen")
                steps = [
                    case.warp(warp, loc, "steps the slot, and nothing the parity")
                    for loc in _steps_slot_only(case, wait)
                ]
                anew = None if steps else starts_over(case, warp, wait.op)
                if anew is not None:
                    return starting_over(case, wait.on, again, anew, f"{what} but")
                fix = f"let the parity (and the slot) of the wait on {label} follow its uses"
                return Cause(what, (*steps, again), fix)
            last[key] = wait
    return None


def starting_over(case: Case, on: Mbarrier, wait: Participant, loop: Loc, what: str) -> Cause:
    """A wait whose parity starts over in each turn of a loop."""
    warp = case.history.warp(wait.cta, wait.warp)
    assert warp is not None
    return Cause(
        f"{what} starts over in each turn of the loop at {loop.short}",
        (wait, case.warp(warp, loop, "lets the parity start over")),
        f"carry what the parity of {on.label} is made of from turn to turn of the loop at "
        f"{loop.short}, instead of starting it over in each",
    )


def starts_over(case: Case, warp: Agent, op: Op) -> Loc | None:
    """Where a loop ends in each turn of which the parity of a wait starts over: none of the
    registers that it is made of is carried from one turn to the next; only if the warp has made
    several turns, in which it waits for several phases.
    """
    times, phase = case.history.times, getattr(waits(op), "phase", None)
    for first, last in loops_around(case.mir, op):
        several = 0 < times(warp, last) < times(warp, op.number)
        if several and _begins_anew(case.mir, phase, range(first, last + 1)):
            return case.mir.code[last].loc
    return None


def _begins_anew(mir: Mir, phase: object, loop: range) -> bool:
    """Whether a value changes in a loop, and nothing that it is made of is left in a register by an
    earlier turn. What the loop sets in one place only, from what is the same in all turns, stands
    still."""

    def setters(name: str) -> list[int]:
        return [n for n in mir.setters.get(name, ()) if n in loop]

    def made_of(name: str) -> Iterator[str]:
        for effect in (e for n in setters(name) for e in mir.effects[n]):
            if isinstance(effect, fx.Defines) and effect.var.name == name:
                value = effect.value  # "": no register
                yield from mentioned(value) if isinstance(value, Expr) else ("",)

    made = closure(mentioned(phase) if isinstance(phase, Expr) else (), made_of)
    kept = (name for name in live_at(graph_of(mir), loop[0]) if setters(name))
    return any(len(setters(name)) > 1 for name in made) and made.isdisjoint(("", *kept))


def _steps_slot_only(case: Case, wait: Touch) -> list[Loc]:
    """Where the register is changed with the slot of a wait, in its loop, if nothing there changes
    the one with its parity."""
    effect = waits(wait.op)
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
            return at_once(case, first, f"{link.first.warp} has yet to fill what it guards")
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
    seen: set[object] = set()
    for link in links(case):
        if array_of(link.on) in seen:
            continue
        seen.add(array_of(link.on))
        odd = _odd_slot(case, link)
        if odd is not None:
            return odd
    return None


def _odd_slot(case: Case, link: Link) -> Cause | None:
    """Whose slot is another one than what it goes with: the copy's or the reader's."""
    first, second, wait = link.first, link.second, link.wait
    landing = next((t.on for t in case.landed(first)), None)
    if landing is None or array_of(landing) != array_of(link.on) or not writes(first.op):
        return None
    if not (first.sure and second.sure) or group_of(second.op) == "mbarrier":
        return None
    filled, read = (slot_of(case, side) for side in (first, second))
    tracked, waited = case.history.number_of(landing), case.history.number_of(link.on)
    every = (on for on in case.history.objects() if array_of(on) == array_of(landing))
    slots = {case.history.number_of(on) for on in every}
    if filled in slots and tracked != filled:
        return Cause(
            f"the copy fills slot {filled} and completes its bytes on {landing.label}",
            (case.warp(first.warp, first.op, f"completes its bytes on {landing.label}", landing),),
            f"let the copy fill the slot of the barrier that tracks it, {tracked}, or name the "
            f"barrier of slot {filled}",
        )
    if read in slots and waited != read:
        release = _released(case, second, link.on)
        alone = read == tracked and not case.history.passes(on=landing)
        own = case.warp(second.warp, second.op, f"accesses slot {read}")
        its = case.of(wait, f"waits on {link.on.label}")
        return Cause(
            f"slot {read} is accessed after a wait on {link.on.label}",
            (its, own) if release == read or alone else (own, its),
            f"wait for the barrier of slot {read}, or access slot {waited}",
        )
    return None


def slot_of(case: Case, side: Side) -> int | None:
    """The first index of what a side accesses."""
    deed = case.deed(side)
    return None if deed is None or deed.on is None else deed.on.slot


def _released(case: Case, side: Side, but: Mbarrier) -> int | None:
    """The slot of the first arrival of a warp after its access, on barriers of another array."""
    credits = case.history.credits(warp=side.warp)
    later = (t.on for t in credits if t.issued > side.at and array_of(t.on) != array_of(but))
    return next((case.history.number_of(on) for on in later), None)
