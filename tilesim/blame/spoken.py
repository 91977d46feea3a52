"""One thread that speaks for many: what it hands on, and where all of them have to meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilesim.blame.case import Case, Cause, Side, diagnosis
from tilesim.blame.history import Done, Touch
from tilesim.blame.places import loop_range
from tilesim.blame.races import RULES, directions, group_of
from tilesim.ir import effects as fx
from tilesim.ir.memory import Tensor
from tilesim.ir.op import Op
from tilesim.sim.findings import Kind
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.mbarrier import Mbarrier

_LANES = 32
#: races between lanes of a warp, or that a lane of a warp hides which releases for others
LANES_APART: tuple[Kind, ...] = ("race/lanes", "race/released-by-lanes")


def strong(op: Op, kind: type[fx.Reads] | type[fx.Writes]) -> fx.Reads | fx.Writes | None:
    """What an instruction reads or writes as a flag: relaxed or stronger, or by an atomic."""
    return next((e for e in op.effects() if isinstance(e, kind) and e.sem != "weak"), None)


def flags(case: Case, first: Side, second: Side) -> Iterator[tuple[Done, Done]]:
    """By what words in memory the CTA of ``first`` tells that of ``second`` something before the
    access of the latter: what writes the word, and what reads it."""
    machine, history = case.history.machine, case.history
    told = sorted(
        (d for w in machine.warps if w.cta is first.warp.cta
         for d in history.between(w, 0, case.made) if strong(d.op, fx.Writes)),
        key=lambda d: d.at,
    )  # fmt: skip
    asked = sorted(
        (d for w in machine.warps if w.cta is second.warp.cta
         for d in history.between(w, 0, min(second.at, case.made)) if strong(d.op, fx.Reads)),
        key=lambda d: -d.at,
    )  # fmt: skip
    for read in asked:
        for write in told:
            if write.at < read.at and word_of(write.op) == word_of(read.op):
                yield write, read
                break


def word_of(op: Op) -> Tensor | None:
    effect = strong(op, fx.Reads) or strong(op, fx.Writes)
    return None if effect is None else effect.view.tensor


@diagnosis(*RULES, first=True)
def spoken_for(case: Case) -> Cause | None:
    """One thread tells the other side for several warps, and has not waited for all of them: the
    barrier of threads before it is missing."""
    for first, second in directions(case):
        if first.done is None or not first.sure or group_of(first.op) is not None:
            continue
        for at, warp, op, arrival in _releases(case, first, second):
            lost = _unheard(case, first, warp, op, at)
            if lost is None or lost.done is None or lost.warp.cta is not warp.cta:
                continue  # another CTA has to arrive itself
            last = [
                d for d in case.history.between(lost.warp, lost.at, case.made)
                if lost.op.number < d.op.number < op.number
            ]  # fmt: skip
            own = last[0] if last else lost.done
            on = None if arrival is None else arrival.on
            where = "sets a flag" if on is None else f"arrives on {on.label}"
            return Cause(
                f"{warp} {where} for {lost.warp} as well, and no barrier of threads lies between",
                (case.who(lost.warp, own, f"is not waited for by {warp}"),
                 case.who(warp, op, f"{where} for all of them", on)),
                f"a barrier of the threads for which {warp} speaks, "
                f"{bar_of(case, [warp, *sharing(case, lost)])}, before its {op.mnemonic}",
            )  # fmt: skip
    return None


def _unheard(case: Case, first: Side, warp: Agent, op: Op, at: int) -> Side | None:
    """Whose access a warp hands on by an instruction without having met it: the side's; or, if it
    hands on for lanes of its own that it has not met either, that of others who do the same."""
    if warp is not first.warp:
        unmet = same_code(case, first, op) and not meet(case, first.warp, first.at, warp, at)
        return first if unmet else None
    if case.finding.kind not in LANES_APART:
        return None
    assert first.done is not None
    for other in sharing(case, first):
        done = case.history.executions(other, first.op.number)[first.done.nth :][:1]
        side = Side(other, first.op, done[0] if done else None)
        if other is warp or not done or not same_code(case, side, op):
            continue
        if not meet(case, other, side.at, warp, at):
            return side
    return None


def sharing(case: Case, side: Side) -> list[Agent]:
    """The warps of a side's CTA that execute its instruction."""
    copies = case.history.machine.plan.copies(side.op.number)
    return [
        w for w in case.history.machine.warps
        if w.cta is side.warp.cta and any(case.history.executions(w, n) for n in copies)
    ]  # fmt: skip


def bar_of(case: Case, warps: Collection[Agent]) -> str:
    """The barrier in which some warps of a CTA meet, in PTX's words."""
    numbers = sorted({w.number for w in warps})
    cta = next(iter(warps)).cta
    every = {w.number for w in case.history.machine.warps if w.cta is cta}
    if len(numbers) == 1:
        return "bar.warp.sync"
    if set(numbers) == every:
        return "bar.sync of the whole CTA"
    first = [n for n in numbers if n - 1 not in numbers]
    last = [n for n in numbers if n + 1 not in numbers]
    runs = ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(first, last, strict=True))
    return f"bar.sync of the {_LANES * len(numbers)} threads of warps {runs}"


def _releases(
    case: Case, first: Side, second: Side
) -> Iterator[tuple[int, Agent, Op, Touch | None]]:
    """When and by whom the second side was told something that it has waited for: by flags in
    memory, and by the last barrier that it has waited for (the arrival)."""
    for write, _ in flags(case, first, second):
        yield write.at, write.warp, write.op, None
    wait = last_wait(case, second)
    for credit in counted(case, wait):
        yield credit.issued, credit.warp, credit.op, credit


def last_wait(case: Case, side: Side) -> Touch | None:
    """The last wait for a phase of an mbarrier before an access."""
    passed = [p for p in case.history.passes(side.warp) if p.at <= side.at]
    return passed[-1] if passed and passed[-1].phase >= 0 else None


def counted(case: Case, wait: Touch | None) -> list[Touch]:
    """The arrivals without bytes that have ended the phase that was waited for."""
    if wait is None:
        return []
    return [
        c for c in case.history.credits(wait.on)
        if c.phase == wait.phase and c.arrivals > 0 and not c.tx
    ]  # fmt: skip


def same_code(case: Case, side: Side, op: Op) -> bool:
    """Whether a warp comes by an instruction that another one executes for it, and does not execute
    it: both are in one region, and in one loop."""
    plan, mir = case.history.machine.plan, case.history.machine.loaded.mir
    together = plan.role_of(op) == plan.role_of(side.op)
    loops = loop_range(mir, op) == loop_range(mir, side.op)
    return together and loops and not case.history.executions(side.warp, op.number)


def meet(case: Case, first: Agent, after: int, second: Agent, before: int) -> bool:
    """Whether two warps are in one round of a barrier of threads, to which the first one comes
    after a time, and the second one before another; who waits there may have come early."""
    rounds = [
        {(t.on, t.phase) for t in case.history.touches if t.kind == "join" and t.warp is warp
         and (t.issued > after if warp is first else t.issued < before)}
        for warp in (first, second)
    ]  # fmt: skip
    return bool(rounds[0] & rounds[1])


def let_wait(case: Case, later: Side, earlier: Side) -> str:
    """What to do about two accesses of different warps that nothing connects; empty: what the
    finding says, if that is about the same order of the two."""
    if case.finding.rule != "race":
        return ""
    how, known = group_of(earlier.op), earlier is case.sides[1]
    if how in _WAITED:
        return (
            f"once {earlier.warp} has waited for its {earlier.op.mnemonic} "
            f"({_WAITED[how]}.commit_group and wait_group), let {later.warp} wait for "
            f"{earlier.warp}: a barrier of threads that both join, or an mbarrier"
        )
    if how is not None and known:
        return ""
    near = later.warp.cta is earlier.warp.cta
    if near:
        bar = bar_of(case, [*sharing(case, earlier), *sharing(case, later)])
    elif later.warp.cta.cluster is earlier.warp.cta.cluster:
        bar = "a barrier of the cluster"
    else:
        return ""
    begin = f"let {later.warp} wait for {earlier.warp}'s {earlier.op.mnemonic}"
    if how is not None:
        return f"{begin} before its {later.op.mnemonic}: on the mbarrier that it completes"
    return f"{begin} before its {later.op.mnemonic}: {bar} in between, or an mbarrier"


#: by group of operations for which the warp that issues them waits, what its instructions are named
_WAITED = {"bulk": "cp.async.bulk", "cp.async": "cp.async", "wgmma": "wgmma"}


def tracked_by(case: Case, side: Side) -> Mbarrier | None:
    """The barrier on which a copy completes: where it has landed, or else where its bytes are
    expected."""
    mine = [t for t in case.history.touches if t.kind == "credit" and t.warp is side.warp]
    landed = (t.on for t in mine if t.issued == side.at and t.tx < 0)
    expected = (t.on for t in reversed(mine) if t.issued <= side.at and t.tx > 0)
    on = next(landed, None) or next(expected, None)
    copies = any(isinstance(e, fx.Completes) and e.asynchronous for e in side.op.effects())
    return on if copies and isinstance(on, Mbarrier) else None
