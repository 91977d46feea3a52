"""Waits for phases: the parity, the slot, the number of trips, what a wait acquires."""

from __future__ import annotations

from itertools import pairwise

from tilesim.analysis.uses_defs import mentions, sets
from tilesim.findings.finding import Iteration, Stated
from tilesim.ir import effects as fx
from tilesim.ir.expr import (
    Var,
    walk,
)
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch
from tilesim.ir.op import Op
from tilesim.mistakes.context import (
    array_of,
    branch_past,
    branches_past,
    effect_of,
    has,
    loops_around,
)
from tilesim.mistakes.history import Done, Touch, Waiting
from tilesim.mistakes.mistake import Case, Cause, setters_in_loop
from tilesim.mistakes.release_acquire_paths import at_once, starting_over, starts_over
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent
from tilesim.wording import count


def parity_of_a_wait(case: Case) -> Cause | None:
    """A wait for a phase after the next one of its warp, or one that no warp can start with."""
    history = case.history
    for stuck in history.waiting:
        on, want = stuck.on, _wanted(case, stuck)
        if stuck.phase > want and on.expected and history.credits(on) and (stuck.phase - want) % 2:
            return _phase_missed(case, stuck, want)
    fresh = [
        s for s in history.waiting
        if s.phase == 0 and not history.credits(s.on) and not history.passes(s.warp, s.on)
    ]  # fmt: skip
    for stuck in sorted(fresh, key=lambda s: not _copies(case, s)):
        if _fills(case, stuck) and history.suppliers(stuck.warp):
            return _never_released(case, stuck)
    return None


def _phase_missed(case: Case, stuck: Waiting, want: int) -> Cause:
    """A warp waits for a phase behind ``want``, the next one that it has to see."""
    history, warp, on = case.history, stuck.warp, stuck.on
    seen = history.passes(warp, on)
    what = f"{warp} waits for phase {stuck.phase} of {on.label} and has not waited for phase {want}"
    own = case.warp(warp, stuck.op, f"waits for phase {stuck.phase} of {on.label}", on)
    early = None if seen or not _fills(case, stuck) else history.credits(on)[0]
    if early is not None:
        before = [p for p in history.passes(early.warp) if p.at <= early.issued][-1:]
        same = before and history.number_of(before[0].on) == history.number_of(on)
        if early.warp is not warp and not same:
            return Cause(
                f"{on.label} is released to {warp} before {warp} has filled its slot: the arrival "
                f"names another slot than the one used, or comes too early",
                (case.arrives(early), own),
                "arrive on the barrier of the slot that was used, after its use",
            )
        if before and before[0].phase < 0 and history.supplies(warp, before[0].on):
            return at_once(case, before[0], f"{warp} has not filled its data yet")
    steps = _stepped_twice(case, stuck) or ([] if seen else _steps_of_parity(case, stuck))
    anew = None if steps else starts_over(case, warp, stuck.op)
    if anew is not None:
        return starting_over(case, on, own, anew, f"{what}: its parity")
    return Cause(
        what,
        (*(case.warp(warp, step, "changes its parity") for step in steps), own),
        f"wait for every phase of {on.label} in order: phase n has parity n & 1",
    )


def _never_released(case: Case, stuck: Waiting) -> Cause:
    """A producer waits for the first arrival on a barrier, which others make behind its copies."""
    history, warp, on = case.history, stuck.warp, stuck.on
    own = case.warp(warp, stuck.op, "waits before anything is filled")
    first = _first_of_others(case, stuck)
    if first is not None:
        before = case.of(first, f"arrives on {first.on.label} before anything is filled")
        return Cause(
            f"no first arrival is made on {on.label}; other barriers of its array have one",
            (before, own),
        )
    steps = _steps_of_parity(case, stuck)
    if steps:
        return Cause(
            f"{warp} waits for a first arrival on {on.label} and has not filled that slot: its "
            f"parity changes before all slots are used",
            (*(case.warp(warp, loc, "changes its parity") for loc in steps), own),
            "change the parity once per round of the slots, when the slot returns to 0",
        )
    other, release = history.suppliers(warp)[0]
    sides = [own, case.warp(other, release, "arrives only afterwards")]
    fix = f"start with parity 1 on {on.label}: that wait passes on a new barrier"
    loop = None if history.slots_of(on) > 1 else case.loop_of(release)
    if loop is not None:
        sides.append(case.warp(other, loop, "has made no arrival before this loop"))
        fix += f", or let {other} arrive once before its loop"
    what = "the buffer that it guards" if _has_filled(case, stuck) else "anything"
    return Cause(
        f"{warp} waits for the first arrival on {on.label} before it has filled {what}: the "
        "producer's first wait must use parity 1",
        tuple(sides), fix,
    )  # fmt: skip


def _first_of_others(case: Case, stuck: Waiting) -> Touch | None:
    """An arrival on another barrier of the array by a warp that has yet to wait for anything."""
    history, on = case.history, stuck.on
    others = (t for t in history.arrivals() if t.on is not on and array_of(t.on) == array_of(on))
    made = (t for t in others if t.warp is not stuck.warp)
    return next((t for t in made if all(p.at > t.issued for p in history.passes(t.warp))), None)


def _stepped_twice(case: Case, stuck: Waiting) -> list[Loc]:
    """What changes the register with the parity of a wait, after the condition on which it does, if
    it has done so more often than the wait was passed."""
    executions, mir = case.history.executions, case.mir
    loop, (names, steps) = case.loop_range(stuck.op), _steps(case, stuck.op)
    if loop is None or len(names) != 1 or len(steps) != 1 or _counts(case, stuck.op, steps[0]):
        return []
    passes = sum(p.op is stuck.op for p in case.history.passes(stuck.warp))
    if passes + 1 >= max((len(executions(stuck.warp, n)) for n in range(*loop)), default=0):
        return []
    step = mir.code[steps[0]].what
    where = branch_past(mir, step) if isinstance(step, Op) else None
    return [loc for loc in (where, step.loc) if loc is not None]


def _steps(case: Case, wait: Op) -> tuple[set[str], list[int]]:
    """The registers with the parity of a wait, and what changes them in its loop: it makes of what
    they hold what they are to hold."""
    effect, mir = effect_of(wait, fx.Waits), case.mir
    if effect is None or case.loop_range(wait) is None:
        return set(), []
    names = {p.name for p in walk(effect.phase) if isinstance(p, Var)}
    return names, [
        n for n in setters_in_loop(case, wait, [effect.phase])
        if not names.isdisjoint(mentions(mir)[n].used)
    ]  # fmt: skip


def _steps_of_parity(case: Case, stuck: Waiting) -> list[Loc]:
    """Where the register with the parity of a wait is changed, if its warp has come by there after
    it has waited on another barrier of the array."""
    if all(p.op is not stuck.op for p in case.history.passes(stuck.warp)):
        return []
    first = _steps(case, stuck.op)[1][:1]
    return [case.mir.code[n].loc for n in first if not _counts(case, stuck.op, n)]


def _counts(case: Case, wait: Op, step: int) -> bool:
    """Whether a step counts the turns of the loop around a wait: what decides whether the loop goes
    on is made of it. What the wait makes of the counter is wrong then, and not how that steps."""
    mir, loop = case.mir, case.loop_range(wait)
    if mir.code[step].counts or loop is None:
        return mir.code[step].counts
    own, asked = sets(mir, step), mentions(mir)[loop[1]].tested
    inside = [n for n in range(*loop) if n != step and not asked.isdisjoint(sets(mir, n))]
    return any(
        not own.isdisjoint(made) for made in (asked, *(mentions(mir)[n].used for n in inside))
    )


def _has_filled(case: Case, stuck: Waiting) -> bool:
    """Whether a warp has issued a copy or a product."""
    done = case.history.between(stuck.warp)
    return any(has(d, fx.Completes, fx.Issues) or has(d, fx.UsesTmem, write=True) for d in done)


def _copies(case: Case, stuck: Waiting) -> bool:
    """Whether a warp issues the copies that others wait for."""
    return any(has(op, fx.Completes) for op in case.history.code_of(stuck.warp))


def _fills(case: Case, stuck: Waiting) -> bool:
    """Whether a warp has the copies or products that others wait for."""
    return _copies(case, stuck) or any(
        (isinstance(e, fx.UsesTmem) and e.write and e.kind in ("mma", "cp"))
        or (isinstance(e, fx.Issues) and e.group == "cp.async")
        for op in case.history.code_of(stuck.warp) for e in op.effects()
    )  # fmt: skip


def _skipped_by(case: Case, warp: Agent, op: Op) -> Loc | None:
    """The condition in a loop that has kept a warp from an instruction in some of its turns."""
    loop, executions = case.loop_range(op), case.history.executions
    if loop is None:
        return None
    before, often = range(loop[0], op.number), len(executions(warp, op.number))
    if all(len(executions(warp, n)) <= often for n in before):
        return None
    past = branches_past(case.mir, op, loop[0])
    found = [branch.loc for _, branch in past if branch.target <= loop[1]]
    return found[-1] if found else None


def trips(case: Case) -> Cause | None:
    """The warp that should arrive has left its loop: the loops of two roles make different numbers
    of trips."""
    history = case.history
    for stuck in history.waiting:
        on, op = stuck.on, stuck.op
        often = len(history.executions(stuck.warp, op.number))
        if history.suppliers(stuck.warp) or often < on.phase:
            continue  # or there have been enough phases: it has missed one
        for warp in history.machine.warps:
            ops = {op.number: op for op in history.supplies(warp, on)}
            made = [c for c in history.credits(on, warp) if c.op.number in ops]
            if not made or made[-1].phase >= on.phase:
                continue
            theirs, ours = case.loop_of(made[-1].op), case.loop_of(op)
            if theirs is None and ours is None:
                continue
            times = len(history.executions(warp, made[-1].op.number))
            sides = []
            rarely = _skipped_by(case, warp, made[-1].op)
            if rarely is not None:
                sides.append(case.warp(warp, rarely, "does not hold every time"))
            if theirs is not None:
                sides.append(case.warp(warp, theirs, f"ends after {count(times, 'trip')}"))
            far = warp.cta is not stuck.warp.cta
            if far:
                sides.append(case.of(made[-1], f"counts for {on.label}, in another CTA"))
            if ours is not None and ours != theirs:
                sides.append(case.warp(stuck.warp, ours, "goes on"))
            what = count(times, "arrival") if made[-1].arrivals > 0 else f"{times} copies"
            return Cause(
                f"{warp} has made {'all its ' if times > 1 else 'its '}{what} "
                f"and {stuck.warp} waits for another phase of {on.label}",
                tuple(sides),
                "let both make the same number of trips"
                + (", or let each CTA depend on itself alone" if far else ""),
                facts=Stated(arrivals=(times,) if made[-1].arrivals > 0 else ()),
            )
    return None


def left_out(case: Case) -> Cause | None:
    """The warp that should arrive has been through a turn of its loop without: a condition kept it
    from that."""
    history = case.history
    for stuck in history.waiting:
        for warp, op in history.suppliers(stuck.warp):
            if case.same_role(warp, stuck.warp):
                continue
            iteration = _iteration_without(case, warp, op, stuck.on)
            where = _led_past(case, op, iteration) if iteration else None
            if where is None:
                continue
            array = history.array_name(stuck.on)
            bare = [d for d in iteration if history.acts_on(d, stuck.on, fx.Expects)]
            return Cause(
                f"{warp} executes an iteration of its loop without an arrival on {array}, and "
                f"{stuck.warp} waits for that arrival",
                (*(case.warp(warp, d, "expects bytes and does not arrive") for d in bare[:1]),
                 case.warp(warp, where, "is false in some iterations"),
                 case.warp(warp, op, "is not executed then")),
                f"let {warp} arrive on {array} in every iteration",
            )  # fmt: skip
    return None


def _led_past(case: Case, op: Op, iteration: list[Done]) -> Loc | None:
    """The outermost condition in the loop around ``op`` of which nothing was executed in a turn."""
    loop = case.loop_range(op)
    for number, branch in () if loop is None else branches_past(case.mir, op, loop[0]):
        if not any(number < done.op.number < branch.target for done in iteration):
            return branch.loc
    return None


def _iteration_without(case: Case, warp: Agent, op: Op, on: Mbarrier) -> list[Done]:
    """What a warp has executed in the turn of the loop around ``op`` after which its arrivals on
    the array of ``on`` have left out a slot; nothing if others than its role arrive there."""
    history, loop = case.history, case.loop_range(op)
    others = [w for w in history.peers(warp) if not case.same_role(w, warp)]
    if loop is None or any(history.supplies(w, on) for w in others):
        return []
    slots = history.slots_of(on)
    made = [t for t in history.arrivals(warp) if array_of(t.on) == array_of(on)]
    own = [d for t in made if (d := history.at(warp, t.op.number, t.issued)) is not None]
    numbers = [history.number_of(t.on) or 0 for t in made]
    gap = any(b != (a + 1) % slots for a, b in pairwise(numbers))
    if not own or (not gap and slots > 1):
        return []
    depth, arrived = len(own[0].iterations), {d.iterations for d in own}
    iterations: dict[tuple[Iteration, ...], list[Done]] = {}
    for done in history.between(warp, own[0].at):
        if loop[0] <= done.op.number <= loop[1]:
            iterations.setdefault(done.iterations[:depth], []).append(done)
    over = [*iterations.items()][:-1]
    return next((done for iteration, done in over if iteration not in arrived), [])


def left_its_loop(case: Case) -> Cause | None:
    """Of the warps that arrive together, some have left the loop in which they do so in the middle
    of a turn, and no arrival but theirs is missing."""
    history = case.history
    for stuck in history.waiting:
        on = stuck.on
        made = [c for c in history.arrivals(on=on) if c.phase == stuck.phase]
        came = {c.warp for c in made} | {warp for warp, _ in history.suppliers(stuck.warp)}
        for credit in made[-1:]:
            left = {
                warp: where for warp in history.machine.warps
                if warp not in came and _has_arrived(case, warp, credit)
                and (where := _way_out(case, warp, credit)) is not None
            }  # fmt: skip
            if not left or on.pending != len(left) * credit.arrivals:
                continue
            warp, where = next(iter(left.items()))
            return Cause(
                f"{warp} leaves its loop before it arrives on {on.label}, for which {stuck.warp} "
                "waits",
                (case.warp(warp, where, "leaves its loop"),
                 case.warp(warp, credit.op, f"arrives on {history.array_name(on)} until then", on)),
                f"let {warp} arrive for the iterations that it leaves out, or stay in its loop",
            )  # fmt: skip
    return None


def _has_arrived(case: Case, warp: Agent, credit: Touch) -> bool:
    """Whether a warp has made an arrival on the same array, by the statement of another one's."""
    copies = {op.number for op in case.history.of_statement(credit.op)}
    return any(
        t.op.number in copies and array_of(t.on) == array_of(credit.on)
        for t in case.history.arrivals(warp)
    )


def _way_out(case: Case, warp: Agent, credit: Touch) -> Loc | Op | None:
    """Where a warp has left the outermost loop around the arrival of another one, which has come to
    that place more often and stayed."""
    times = case.history.times
    for first, last in loops_around(case.mir, credit.op)[-1:]:
        if not warp.exited and first <= warp.pc <= last:
            continue
        for number in range(first, last + 1):
            what = case.mir.code[number].what
            out = isinstance(what, Branch) and not first <= what.target <= last
            left = number == last or (
                (out or has(what, fx.Exits)) and times(warp, number) > times(warp, number + 1)
            )
            if left and times(credit.warp, number) > times(warp, number) > 0:
                return what if isinstance(what, Op) else what.loc
    return None


def without_a_peer(case: Case) -> Cause | None:
    """One of the warps that arrived together in the phase before has been led past its arrival in
    the phase that is waited for: a condition does not hold for it in this use."""
    history = case.history
    for stuck in history.waiting:
        on = stuck.on
        credits = [c for c in history.arrivals(on=on) if c.phase in (stuck.phase - 1, stuck.phase)]
        before = {c.warp for c in credits if c.phase < stuck.phase}
        now = {c.warp: c.op for c in credits if c.phase == stuck.phase}
        absent = [w for w in history.machine.warps if w in before and w not in now]
        if not now or not now.keys() <= before:
            continue
        for warp in absent:
            for peer, op in now.items():
                where = _passed_by(case, warp, peer, op)
                if where is not None:
                    return Cause(
                        f"{warp} does not arrive on {on.label} in phase {stuck.phase}; it did in "
                        f"the phase before, and {peer} does now",
                        (case.warp(warp, where, "is false in this iteration"),
                         case.warp(warp, op, "is not executed then", on)),
                        f"let {warp} arrive on {on.label} in every phase",
                    )  # fmt: skip
    return None


def _passed_by(case: Case, warp: Agent, peer: Agent, op: Op) -> Loc | None:
    """The innermost condition, in the loop around ``op``, that ``warp`` has come to as often as
    ``peer``, and that has led it past the instruction while the other one executed it."""
    times, loop = case.history.times, case.loop_range(op)
    if loop is None or times(warp, op.number) >= times(peer, op.number):
        return None
    held = None if warp.blocked is None or warp.blocked.op is None else warp.blocked.op.number
    past = [
        branch.loc for number, branch in branches_past(case.mir, op, loop[0])
        if times(warp, number) >= times(peer, number) > 0
        and not (held is not None and number < held < branch.target)
    ]  # fmt: skip
    return past[-1] if past else None


def to_itself(case: Case) -> Cause | None:
    """An arrival on a barrier for which only its own role waits, where another role waits for one
    of the same array on which no warp has arrived."""
    history = case.history
    for stuck in (s for s in history.waiting if not history.credits(s.on)):
        for credit in history.arrivals():
            on, other = stuck.on, credit.on
            if array_of(other) != array_of(on) or credit.warp.role == stuck.warp.role:
                continue
            if {w.role for w in history.waiters(other)} == {credit.warp.role}:
                return Cause(
                    f"{credit.warp} arrives on {other.label}, on which no other warp waits, and "
                    f"no instruction arrives on {on.label}",
                    (case.arrives(credit),
                     case.warp(stuck.warp, stuck.op, f"waits for {on.label}", on)),
                    f"let {credit.warp} arrive on {on.label}",
                )  # fmt: skip
    return None


def used_up(case: Case) -> Cause | None:
    """The warp that waits for a phase after the last one that is to come; if all could be released,
    the one that waits before it does what the next one waits for."""
    history, graph = case.history, case.history.waits_for
    if graph is None:
        return None
    for stuck in history.waiting:
        on, made = stuck.on, history.arrivals(on=stuck.on)
        if graph.suppliers(stuck.warp) or not made or made[-1].phase >= stuck.phase:
            continue
        if on.pending == on.expected:
            what = f"waits for phase {stuck.phase} of {on.label}"
            return _too_late(case, stuck) or Cause(
                f"{stuck.warp} {what}, and the last arrival counted for phase {made[-1].phase}",
                (case.warp(stuck.warp, stuck.op, what, on),
                 case.of(made[-1], f"makes the last arrival on {on.label}")),
            )  # fmt: skip
    cycle = graph.cycle([s.warp for s in history.stuck])
    inside = [s for s in history.waiting if s.warp in cycle]
    late = (_too_late(case, s, in_cycle=True) for s in inside)
    cause = next((cause for cause in late if cause is not None), None)
    if cause is not None or len(cycle) < 2:
        return cause
    missed = {s.warp for s in inside if s.phase > _wanted(case, s)}
    first = next((n for n, warp in enumerate(cycle) if warp in missed), 0)
    return _each_before(case, [*cycle[first:], *cycle[:first]])


def _too_late(case: Case, stuck: Waiting, *, in_cycle: bool = False) -> Cause | None:
    """A warp that waits for a phase that is over, because another one has arrived again without
    waiting until it has seen it; ``in_cycle``: the other may bring one more about."""
    on, late = stuck.on, _missed(case, stuck)
    again = [
        c for c in case.history.arrivals(on=on)
        if c.phase - 1 == late and c.warp is not stuck.warp
    ]  # fmt: skip
    if not again or (in_cycle and _let_on(case, again[-1], stuck.warp)):
        return None
    other = again[-1]
    return Cause(
        f"{stuck.warp} waits for phase {late} of {on.label} too late: phase {other.phase} is "
        f"over, as {other.warp} does not wait for {stuck.warp}",
        (case.of(other, f"arrives on {on.label} again"),
         case.warp(stuck.warp, stuck.op, f"waits for phase {late} too late")),
        f"let {other.warp} wait for {stuck.warp} before it arrives again",
    )  # fmt: skip


def _missed(case: Case, stuck: Waiting) -> int | None:
    """The first phase for which a warp has taken a later one of the same parity; -1: the one before
    the first, with which producers start."""
    seen = [*(t.phase for t in case.history.passes(stuck.warp, stuck.on)), stuck.phase]
    start = -1 - seen[0] % 2
    return next((a + 1 for a, b in pairwise([start, *seen]) if b - a > 1 and (b - a) % 2), None)


def _wanted(case: Case, stuck: Waiting) -> int:
    """The next phase of a barrier that a warp has to see."""
    seen = [t.phase for t in case.history.passes(stuck.warp, stuck.on)]
    return seen[-1] + 1 if seen else 0


def _let_on(case: Case, again: Touch, warp: Agent) -> bool:
    """Whether the warp that arrives again has waited until others than ``warp`` let it:
    ``warp`` may well ask for a use that is not its own."""
    passed = [p for p in case.history.passes(again.warp) if p.at < again.issued and p.phase >= 0]
    if not passed:
        return False
    by = [c.warp for c in case.history.credits(passed[-1].on) if c.phase == passed[-1].phase]
    return bool(by) and all(w is not warp and w.role != warp.role for w in by)


def _each_before(case: Case, cycle: list[Agent]) -> Cause | None:
    """Warps of which each waits for what the next one would do after its own wait."""
    sides = []
    for warp, before in zip(cycle, [cycle[-1], *cycle], strict=False):
        op = warp.blocked.op if warp.blocked is not None else None
        mine = (op for other, op in case.history.suppliers(before) if other is warp)
        release = next(mine, None)
        if op is None or release is None or release.number < op.number:
            return None
        what = f"waits before its {release.mnemonic} at line {release.loc.line}"
        sides.append(case.warp(warp, op, what))
    return Cause(
        "each of these warps waits before the instruction that the previous one waits for",
        tuple(sides),
        "" if case.finding.kind == "deadlock/joins-too-early" else "let one of them arrive first",
    )
