"""What hands on a warp's accesses, and which warp does so for it: none, too early, or too quietly.

A slot may be given back, or a result announced, by one thread for many. What these do is in the
order that the other side sees only if that thread has waited for them.
"""

from __future__ import annotations

from tilesim.findings.finding import Named, Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, has
from tilesim.mistakes.history import Done
from tilesim.mistakes.mistake import Case, Cause, Side
from tilesim.mistakes.ordering import (
    counted,
    flags,
    last_wait,
    meet,
    same_code,
    strong,
    strong_accesses,
    word_of,
)
from tilesim.mistakes.release_acquire_paths import directions, group_of, slot_of, writes
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent

#: instructions of all warps between two arrivals of one turn, at most
_NEAR = 12
_REACH = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 2}


def unpublished(case: Case) -> Cause | None:
    """A flag in memory that is set or read without .release or .acquire, or in too small a
    scope."""
    for first, second in directions(case):
        far = first.warp.cta is not second.warp.cta
        near = first.warp.cta.cluster is second.warp.cta.cluster
        least = 0 if not far else 1 if near else 2
        for write, read in flags(case, first, second):
            if write.at < first.at:
                continue
            for done, kind, wanted in ((write, fx.Writes, "release"), (read, fx.Reads, "acquire")):
                effect = strong(done.op, kind)
                assert effect is not None
                between = (first.at, write.at) if done is write else (read.at, second.at)
                quiet = effect.sem not in (wanted, "acq_rel")
                fence = _fence(case, done.warp, wanted, between) if quiet else None
                reach = effect.scope
                if quiet and fence is None:
                    what = f"is {effect.sem}: it does not {wanted}"
                    fix = f"let this {done.op.mnemonic} {wanted}, or put a fence.acq_rel beside it"
                else:
                    if fence is not None and _REACH[fence[1]] < _REACH[reach]:
                        done, reach = fence
                    if _REACH[reach] >= least:
                        continue
                    what = f"has scope {reach}, and the other side is in another CTA"
                    fix = f"give this {done.op.mnemonic} a scope that both sides are in"
                tells = wanted == "release"
                other = read if tells else write
                own = "reads" if tells else "sets"
                return Cause(
                    f"this {done.op.mnemonic} {what}",
                    (case.warp(done.warp, done, "hands nothing on" if tells else
                              "learns of nothing"),
                     *(() if other.op is done.op else
                       (case.warp(other.warp, other, f"{own} the same word"),))),
                    fix,
                )  # fmt: skip
    return None


def another_value(case: Case) -> Cause | None:
    """A word that is polled for a value which is not the one that it is left with."""
    history = case.history
    for stuck in history.stuck:
        if not stuck.blocked.polling or stuck.blocked.on is not None:
            continue
        done = reversed(history.between(stuck.warp))
        asked = next((d for d in done if strong(d.op, fx.Reads)), None)
        word = None if asked is None else word_of(asked.op)
        told = [
            d for w in history.machine.warps for d in history.between(w)
            if strong(d.op, fx.Writes) and word_of(d.op) == word
        ]  # fmt: skip
        if word is None or not told:
            continue
        last = max(told, key=lambda d: d.at)
        return Cause(
            f"{stuck.warp} polls {word.name} for another value than it is left with",
            (case.warp(stuck.warp, stuck.blocked.loc, "polls for ever"),
             case.warp(last.warp, last, "is the last to change what it polls")),
            facts=Stated((Named(word.name, word.name),)),
        )  # fmt: skip
    return None


def too_narrow(case: Case) -> Cause | None:
    """Two strong accesses to one word from different CTAs, one of them with a scope that leaves the
    other CTA out."""
    if len(case.sides) < 2 or case.sides[0].warp.cta is case.sides[1].warp.cta:
        return None
    near = case.sides[0].warp.cta.cluster is case.sides[1].warp.cta.cluster
    found = [
        (side, strong(side.op, fx.Writes) or strong(side.op, fx.Reads)) for side in case.sides[:2]
    ]
    narrow = [(side, e.scope) for side, e in found if e is not None and _REACH[e.scope] < 2 - near]
    if any(effect is None for _, effect in found) or not narrow:
        return None
    side, scope = narrow[0]
    others = (other for other in case.sides[:2] if other.op is not side.op)
    return Cause(
        f"this {side.op.mnemonic} has scope {scope}, and the other side is in another CTA",
        (case.side(side, f"accesses the word with scope {scope}"),
         *(case.side(o, "accesses the same word") for o in others)),
        f"give this {side.op.mnemonic} a scope that both sides are in",
    )  # fmt: skip


def heard_for(case: Case) -> Cause | None:
    """One thread waits for a flag for several warps, which do not wait for it: the barrier of
    threads behind it is missing."""
    for first, second in directions(case):
        if not writes(first.op) or writes(second.op) or second.done is None:
            continue
        if first.warp.cta is second.warp.cta:
            continue
        words = {word_of(d.op) for d in strong_accesses(case, first.warp, fx.Writes)}
        for warp in case.history.peers(second.warp):
            if warp is second.warp:
                continue
            for op in case.history.code_of(warp):
                flag = strong(op, fx.Reads)
                if flag is None or flag.view.tensor not in words or op.number > second.op.number:
                    continue
                asked = case.history.executions(warp, op.number)
                if not asked or not same_code(case, second, op):
                    continue
                last = max((d for d in asked if d.iterations[:1] == second.done.iterations[:1]),
                           key=lambda d: d.at, default=asked[-1])  # fmt: skip
                if meet(case, warp, last.at, second.warp, second.at):
                    continue
                return Cause(
                    f"{warp} waits for a flag for {second.warp} as well, and no barrier of threads "
                    "lies behind that",
                    (case.warp(second.warp, second.done, f"does not wait for {warp}"),
                     case.warp(warp, last, "waits for all of them")),
                    f"a barrier of the threads for which {warp} waits, behind its {op.mnemonic}",
                )  # fmt: skip
    return None


def _fence(
    case: Case, warp: Agent, wanted: str, between: tuple[int, int]
) -> tuple[Done, fx.Scope] | None:
    """The fence that makes a relaxed operation of a warp release what came before, or acquire; of
    several the one of the widest scope."""
    found = (
        (done, e.scope)
        for done in case.history.between(warp, *between) for e in done.op.effects()
        if isinstance(e, fx.Orders) and (e.releases if wanted == "release" else e.acquires)
    )  # fmt: skip
    return max(found, key=lambda fence: _REACH[fence[1]], default=None)


def landed(case: Case) -> Cause | None:
    """Bytes that complete a barrier say that they have landed, and nothing of what was done before
    they were sent (A28)."""
    for first, second in directions(case):
        wait = last_wait(case, second)
        if wait is None:
            continue
        sent = [
            c for c in case.history.credits(wait.on)
            if c.phase == wait.phase and c.issued > first.at and not c.arrivals
            and has(c, fx.Completes)
        ]  # fmt: skip
        if sent and not counted(case, wait):
            return Cause(
                f"the bytes that {sent[-1].op.mnemonic} completes on {wait.on.label} hand over "
                "themselves, and nothing that was done before they were sent (A28)",
                (case.of(sent[-1], "sends the bytes that were waited for"),
                 case.waits(wait)),
                f"let {first.warp} arrive at a barrier after its access, and {second.warp} wait "
                "for that",
            )  # fmt: skip
    return None


def not_asked(case: Case) -> Cause | None:
    """A warp that uses a slot again waits until others have read it, not for the first side, which
    reads it too."""
    history = case.history
    for first, second in directions(case):
        wait = last_wait(case, second)
        on = None if wait is None else wait.on
        if wait is None or not isinstance(on, Mbarrier) or first.done is None:
            continue
        made = counted(case, wait)
        others = [c for c in made if _reads_as(case, c.warp, first.op)]
        if not made or not others or any(c.warp is first.warp for c in history.credits(on)):
            continue
        if group_of(first.op) == "mbarrier" or _reads(first.op) is None or _speaks(case, first, on):
            continue
        own = [
            t for t in history.credits()
            if t.issued > first.at and t.on.address == on.address and t.on.cta is first.warp.cta
            and _same_group(case, t.warp, first.warp)
        ]  # fmt: skip
        if own:
            last = max(own[:2], key=lambda t: (t.issued - own[0].issued < _NEAR, t.op.number))
            sides = [case.of(last, f"arrives on {last.on.label} only")]
        else:
            sides = [_after(case, first, on)]
        return Cause(
            f"{second.warp} waits on {on.label} until "
            f"{others[0].warp} has read, "
            f"and not until {first.warp} has",
            (*sides, case.of(others[0], f"arrives on {on.label}"), *case.inits(on),
             case.of(wait, f"waits on {on.label}")),
            f"let {first.warp} arrive on {on.label} as well, and count it",
        )  # fmt: skip
    return None


def slot_of_another_wait(case: Case) -> Cause | None:
    """An access to a slot behind a wait on the barrier of another one, where the other side
    accesses the slot of its own."""
    found = [(side, last_wait(case, side), slot_of(case, side)) for side in case.sides[:2]]
    if len(found) < 2 or found[0][0].warp is found[1][0].warp:
        return None
    odd = [
        (side, wait, slot) for side, wait, slot in found
        if wait is not None and slot is not None and case.history.number_of(wait.on) != slot
    ]  # fmt: skip
    if len(odd) != 1 or any(wait is None or slot is None for _, wait, slot in found):
        return None
    ((side, wait, slot),) = odd
    sizes = {
        case.history.slots_of(w.on)
        for _, w, _ in found
        if w is not None and isinstance(w.on, Mbarrier)
    }
    if wait is None or len(sizes) != 1 or group_of(side.op) is not None:
        return None
    return Cause(
        f"slot {slot} is accessed after a wait on {wait.on.label}",
        (case.side(side, f"accesses slot {slot}"),
         case.waits(wait)),
        f"wait for the barrier of slot {slot}, or access slot {case.history.number_of(wait.on)}",
    )  # fmt: skip


def last_phase(case: Case) -> Cause | None:
    """Tensor memory that is freed while the last product is under way: of the phases that its
    commits complete, the loop that waits for them leaves out the last."""
    history = case.history
    for side in case.sides:
        if group_of(side.op) != "tcgen05":
            continue
        loop = case.loop_of(side.op)
        for told in reversed(history.credits(warp=side.warp)):
            on = told.on
            seen = [t for t in history.passes()
                    if t.warp is not side.warp and array_of(t.on) == array_of(on)]  # fmt: skip
            waits = case.loop_of(seen[-1].op) if seen else None
            if any(p.on is on and p.phase == told.phase for p in seen):
                continue
            if waits is None or loop is None or waits == loop:
                continue
            return Cause(
                f"{seen[-1].warp} does not wait for phase {told.phase} of {on.label}, the last one",
                (case.warp(seen[-1].warp, waits, "waits once too few"),
                 case.warp(side.warp, loop, "goes on")),
                "let both loops make the same number of trips",
            )  # fmt: skip
    return None


def _reads(op: Op) -> object:
    """The tensor of which an instruction reads, in shared memory."""
    return next(
        (e.view.tensor for e in op.effects()
         if isinstance(e, fx.Reads) and e.view.space == "shared"), None,
    )  # fmt: skip


def _reads_as(case: Case, warp: Agent, op: Op) -> bool:
    """Whether a warp or one of its group reads of the tensor of which an instruction does."""
    read = _reads(op)
    return read is not None and any(
        _reads(other) == read and case.history.executions(warp, other.number)
        for other in case.history.code_of(warp)
    )


def _speaks(case: Case, side: Side, on: Mbarrier) -> bool:
    """Whether a warp of the group of a side arrives on a barrier, for all of them."""
    return any(
        c.warp is not side.warp and c.warp.cta is side.warp.cta
        and _same_group(case, c.warp, side.warp) for c in case.history.credits(on)
    )  # fmt: skip


def _same_group(case: Case, warp: Agent, other: Agent) -> bool:
    return warp.cta is other.cta and warp.role == other.role


def _after(case: Case, side: Side, on: Mbarrier) -> Participant:
    """The place behind an access at which its warp should arrive: the last barrier of threads
    before its next wait, where it has met its group, or the access."""
    history = case.history
    assert side.done is not None
    following = (p.issued for p in history.passes(side.warp) if p.issued > side.at)
    iteration = history.between(side.warp, side.at, next(following))
    place = next((d for d in reversed(iteration) if has(d, fx.JoinsBarrier)), side.done)
    return case.warp(side.warp, place, f"does not arrive on {on.label} afterwards", on)


def quiet_round(case: Case) -> Cause | None:
    """A cluster barrier between the two, at which the first side arrives without releasing."""
    quiet = case.finding.rule != "tmem-lifetime" or case.finding.kind == "tmem-lifetime/no-fence"
    for first, second in directions(case):
        if first.warp.cta.cluster is not second.warp.cta.cluster:
            continue
        told = _rounds(case, first.warp, first.at, min(second.at, case.made))
        arrivals = [(done, effect) for done, effect in told if effect.arrives]
        if not arrivals or any(effect.sem != "relaxed" for _, effect in arrivals):
            continue
        done, _ = arrivals[0]
        if not quiet and not _waited(case, first, done):
            continue
        if any(not effect.arrives for _, effect in _rounds(case, second.warp, done.at, second.at)):
            return Cause(
                f"this {done.op.mnemonic} is relaxed: it hands nothing on",
                (case.warp(first.warp, done, "arrives at the cluster barrier with .relaxed"),),
                "let the arrival release (the default)",
            )
    return None


def _rounds(case: Case, warp: Agent, first: int, last: int) -> list[tuple[Done, fx.JoinsCluster]]:
    """What a warp does at its cluster barrier between two moments."""
    return [
        (done, effect) for done in case.history.between(warp, first, last)
        for effect in done.op.effects() if isinstance(effect, fx.JoinsCluster)
    ]  # fmt: skip


def _waited(case: Case, side: Side, done: Done) -> bool:
    """Whether the warp of a side has waited itself for what it does before ``done``."""
    return bool(case.history.between(side.warp, side.at, done.at, fx.WaitsGroup))
