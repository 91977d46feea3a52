"""What is missing between two warps: an arrival, a wait, or any synchronisation at all."""

from __future__ import annotations

from tilesim.blame.barriers import about, inits, label_of
from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.places import branch_past, loop_of
from tilesim.blame.races import RULES, group_of, links, writes
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.machine.mbarrier import Mbarrier


@diagnosis(*RULES)
def never_handed_on(case: Case) -> Cause | None:
    """The first side never arrives on the barrier that the second one waits for, though others
    do: its condition keeps it from that, or it names the barrier of another CTA."""
    history = case.history
    for link in links(case):
        warp = link.first.warp
        if history.credits(link.on, warp) or group_of(link.first.op) == "mbarrier":
            continue
        if link.wait.phase < 0:
            continue
        other = next(
            (
                t for t in history.touches
                if t.kind == "credit" and t.warp is warp and t.arrivals > 0
                and isinstance(t.on, Mbarrier) and t.on.address == link.on.address
            ),
            None,
        )  # fmt: skip
        if other is not None:
            return Cause(
                f"{warp} arrives on {label_of(other)}, and {link.second.warp} waits on "
                f"{link.on.label}",
                (case.of(other, f"arrives on {label_of(other)}"),
                 case.of(link.wait, f"waits on {link.on.label}")),
            )  # fmt: skip
        ops = history.supplies(warp, link.on)
        if any(history.executions(warp, op.number) for op in ops) or link.on.init is None:
            continue
        where = branch_past(history.machine.loaded.mir, ops[0])
        sides = [case.who(warp, ops[0], f"is not executed by {warp}")]
        if where is not None:
            sides.append(case.who(warp, where, f"keeps {warp} from arriving"))
        return Cause(
            f"{warp} never arrives on {link.on.label}, whose count leaves it out",
            (*inits(case, link.on), *sides),
        )
    return None


@diagnosis(*RULES)
def no_wait(case: Case) -> Cause | None:
    """Nothing that the second side waits for is anything that the first one arrives on."""
    if len(case.sides) < 2:
        return None
    found = list(links(case))
    later, earlier = case.sides[:2]
    for first, second in ((earlier, later), (later, earlier)):
        if any(li.first is first and li.second is second for li in found):
            continue
        if first.warp is second.warp or not writes(first.op) or writes(second.op):
            continue
        arrives = any(
            t.kind == "credit" and t.warp is first.warp and isinstance(t.on, Mbarrier)
            for t in case.history.touches
        )
        if arrives:
            own = case.who(second.warp, second.op, "accesses without a wait for it")
            before = None if second.done is None else case.history.before(second.done)
            same = first.warp.role == second.warp.role
            if before is not None and (same or _is_wait(before.op)):
                wait = case.who(second.warp, before.op, "comes before, and waits for others")
                return Cause(f"{second.warp} waits for nothing that {first.warp} arrives on",
                             (wait, own))  # fmt: skip
            return Cause(f"{second.warp} waits for nothing that {first.warp} arrives on", (own,))
    return None


def _is_wait(op: Op) -> bool:
    return any(isinstance(e, fx.Waits) for e in op.effects())


@diagnosis(*RULES)
def gap(case: Case) -> Cause | None:
    """Two warps that nothing connects: what is missing belongs in front of the second access."""
    if len(case.sides) < 2:
        return None
    later, earlier = case.sides[:2]
    if later.warp is earlier.warp or any(li.second is later for li in links(case)):
        return None
    done = case.history.between(later.warp, 0, later.at)
    before = next((d for d in reversed(done) if _synchronises(d.op)), None)
    if before is None:
        return None
    sides = [case.who(later.warp, before.op, "is the last thing before the access that waits")]
    after = case.history.between(earlier.warp, earlier.at, case.made)
    if after:
        sides.append(case.who(earlier.warp, after[0].op, "is the first thing after the access"))
    return Cause(
        f"nothing that {later.warp} executes before its access makes it wait for {earlier.warp}",
        tuple(sides),
    )


def _synchronises(op: Op) -> bool:
    kinds = fx.JoinsBarrier | fx.JoinsCluster | fx.Waits | fx.WaitsGroup | fx.Elects
    return any(isinstance(e, kinds) for e in op.effects())


@diagnosis("async-at-exit")
def uneven(case: Case) -> Cause | None:
    """More copies are issued than are waited for: the loops of two roles differ."""
    history = case.history
    mir = history.machine.loaded.mir
    for on in about(case):
        waiting = [t for t in history.touches if t.kind == "pass" and t.on is on]
        for side in case.sides:
            issues = loop_of(mir, side.op)
            waits = loop_of(mir, waiting[-1].op) if waiting else None
            if issues is not None and waits is not None and issues != waits:
                times = len(history.executions(side.warp, side.op.number))
                return Cause(
                    f"{side.warp} issues {times} copies, more than {waiting[-1].warp} waits for",
                    (case.who(side.warp, issues, "issues one copy too many"),
                     case.who(waiting[-1].warp, waits, "waits once too few")),
                )  # fmt: skip
    return None
