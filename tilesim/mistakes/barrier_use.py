"""What is wrong with a barrier: its count, its bytes, what arrives and how often."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.ir.program import If, children, walk
from tilesim.ir.sites import sites
from tilesim.mistakes.context import Facts, Place, array_of, at_rank, has
from tilesim.mistakes.edits import Edit, changed
from tilesim.mistakes.history import Touch
from tilesim.mistakes.mistake import Case, Cause
from tilesim.mistakes.release_acquire_paths import RULES, links
from tilesim.records import replace
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.warp import Agent
from tilesim.transforms.rewrite import Instead

Maker = tuple[Agent, int]
#: instructions of all warps between an expectation and the copy that it is for, at most
MOST_BETWEEN = 40
#: rules that a barrier's count or bytes may break
COUNTED_RULES = (*RULES, "over-arrival", "deadlock", "tx-mismatch", "async-at-exit")


def barriers(case: Case) -> Iterator[Mbarrier]:
    """The barriers that a finding is about: those that no warp can complete, that waiters of a
    cycle wait for, the one that it names, those that connect the sides of a race."""
    graph = case.history.waits_for
    if case.finding.rule == "deadlock" and graph is not None:
        roots = [s for s in case.history.stuck if not graph.suppliers(s.warp)]
        first = [s for s in roots if isinstance(s.on, Mbarrier)]
        blocked = [s for s in case.history.stuck if isinstance(s.on, Mbarrier)]
        for stuck in (*first, *blocked) if first or not roots else ():
            assert isinstance(stuck.on, Mbarrier)
            yield stuck.on
    labels = {named.label for named in case.finding.facts.named}
    yield from (on for on in case.history.objects() if on.label in labels)
    if case.finding.rule != "deadlock":
        yield from (link.on for link in links(case, group=True))
    if case.finding.rule == "over-arrival":
        for side in case.sides:
            yield from [p.on for p in case.history.passes(side.warp) if p.at <= case.made][-1:]


def about(case: Case) -> list[Mbarrier]:
    """They, each once."""
    return list(dict.fromkeys(barriers(case)))


def shares(credits: Iterable[Touch], *, bytes_: bool = False) -> dict[Maker, int]:
    """By warp and instruction: what one execution of it usually contributes; of ``bytes_``, what
    all that begin with one phase do."""
    made: dict[tuple[Agent, int, int], int] = defaultdict(int)
    phases: dict[tuple[Agent, int, int], int] = {}
    for credit in credits:
        # lanes of one instruction may belong to two phases
        key = credit.warp, credit.op.number, credit.issued
        made[key] += credit.tx if bytes_ else credit.arrivals
        phases.setdefault(key, credit.phase)
    if bytes_:
        together: dict[tuple[Agent, int, int], int] = defaultdict(int)
        for (warp, number, issued), value in made.items():
            together[warp, number, phases[warp, number, issued]] += value
        made = together
    seen: dict[Maker, Counter[int]] = defaultdict(Counter)
    for (warp, number, _), value in made.items():
        if value:
            seen[warp, number][value] += 1
    return {maker: counts.most_common(1)[0][0] for maker, counts in seen.items()}


def never_executed(case: Case) -> Cause | None:
    """An instruction that would help is there, and a condition lets no warp come to it.

    It can name the barrier, no warp has executed it or will, and its warp has executed no other one
    of its statement that can.
    """
    history = case.history
    for on in about(case):
        for warp in history.machine.warps:
            for op in helpful(case, warp, on):
                if not helps(case, warp, op, on) or executed(case, warp, op, on):
                    continue
                last = history.latest(warp)
                if not (warp.blocked or warp.exited) and (not last or last.op.number < op.number):
                    continue  # it has yet to come to it
                left = _left_by(case, warp, op)
                if left is not None:
                    return Cause(
                        f"{op.mnemonic} on {on.label} is never executed: {warp} exits before it",
                        (case.warp(warp, left, "exits"),
                         case.warp(warp, op, "is never executed", on)),
                        f"let {warp} arrive on {on.label} before it exits",
                    )  # fmt: skip
                op, where = _nearest(case, warp, op, on)
                if where is not None:
                    looped = case.loop_range(op) is not None
                    waiting = (
                        w for w in history.waiting
                        if looped and w.on is on and case.loop_range(w.op) is None
                    )  # fmt: skip
                    return Cause(
                        f"{op.mnemonic} on {on.label} is never executed: the condition before it "
                        "does not hold",
                        (case.warp(warp, where, "is never true"),
                         case.warp(warp, op, "is never executed", on),
                         *(case.warp(w.warp, w.op, f"waits for {on.label}, outside of any loop", on)
                           for w in islice(waiting, 1))),
                        f"let {warp} execute this {op.mnemonic}, or remove the wait for it",
                    )  # fmt: skip
    return None


def _nearest(case: Case, warp: Agent, op: Op, on: Mbarrier) -> tuple[Op, Loc | None]:
    """Of the instructions of one statement, none of which is executed, the one that its condition
    stands next to, and that: others may be in copies of a loop to which a warp does not come."""
    history = case.history
    copies = [o for o in history.of_statement(op) if helps(case, warp, o, on)]
    found = [(o, history.condition_past(warp, o)) for o in copies]
    own = ((o, where) for o, where in found if where is not None and where == o.loc)
    return next(own, (op, history.condition_past(warp, op)))


def helps(case: Case, warp: Agent, op: Op, on: Mbarrier) -> bool:
    """Whether an instruction can name the very barrier that is waited for, or initialise it."""
    return case.history.names(warp, op, on, _helping(on))


def executed(case: Case, warp: Agent, op: Op, on: Mbarrier) -> bool:
    """Whether a warp has executed an instruction, or would still come to it; or another one of its
    statement that can name the barrier, which this one has executed or would come to."""
    history = case.history
    copies = history.machine.plan.copies(op.number)
    if any(history.ever(n) or history.ahead(n) for n in copies):
        return True
    return any(
        (history.comes_to(warp, other.number) or bool(history.executions(warp, other.number)))
        and helps(case, warp, other, on)
        for other in history.of_statement(op)
    )


def _left_by(case: Case, warp: Agent, op: Op) -> Op | None:
    """The exit by which a warp has ended without coming to an instruction behind it."""
    exits = (o for o in case.history.code_of(warp) if o.number < op.number and has(o, fx.Exits))
    taken = (o for o in exits if warp.exited and case.history.times(warp, o.number))
    return next(taken, None)


def slots(case: Case) -> Cause | None:
    """Arrivals, bytes and waits of one use that name different barriers of an array."""
    arrays = {array_of(on) for on in about(case)}
    for on in (on for on in case.history.objects() if on.tx < 0 and array_of(on) in arrays):
        astray = (
            (c, other) for c in reversed(case.history.credits(on))
            if c.tx < 0 and (other := expected_by(case, c)) is not None
            and other.on.cta is on.cta and (on.pending or other.on.tx > 0)
        )  # fmt: skip
        landed, other = next(astray, (None, None))
        if landed is None or other is None:
            continue
        expect = case.of(other, f"expects bytes on {other.on.label}")
        copy = case.of(landed, f"completes bytes on {on.label}")
        # other copies of this use go where the bytes are expected, or no warp waits here
        alone = not any(
            c.tx < 0 and c.op is not landed.op and c.issued > other.at
            for c in case.history.credits(other.on, landed.warp)
        )
        return Cause(
            f"the bytes of this use complete on {on.label}, but are expected on {other.on.label}",
            (expect, copy) if alone and case.history.passes(on=on) else (copy, expect),
            "let the expectation and the copy of one use name one barrier",
        )
    return None


def expected_by(case: Case, landing: Touch) -> Touch | None:
    """The expectation of bytes by its warp, next to the issue of a copy, if that is of another
    barrier of the array than the one on which the copy has landed."""
    near = [
        t for t in case.history.touches_around(landing.issued, MOST_BETWEEN)
        if t.tx > 0 and t.warp is landing.warp and array_of(t.on) == array_of(landing.on)
    ]  # fmt: skip
    best = min(near, key=lambda t: abs(t.at - landing.issued), default=None)
    if best is None or best.on is landing.on or _of_other_turns(case, best, landing):
        return None
    # of a multicast, every CTA expects its own bytes
    return None if best.on.address == landing.on.address else best


def _of_other_turns(case: Case, one: Touch, other: Touch) -> bool:
    """Whether two instructions of one loop were executed in different turns of it."""
    loops = {case.loop_range(one.op), case.loop_range(other.op)}
    turns = (case.history.turns_at(one), case.history.turns_at(other))
    return len(loops) == 1 and None not in loops and turns[0] != turns[1]


def elsewhere(case: Case, on: Mbarrier, *, bytes_: bool = False) -> list[Touch]:
    """Credits by instructions that name barriers of the same array, made on the barrier at the
    same place of another CTA."""
    return first_per_instruction(
        t for t in case.history.credits()
        if t.on is not on and t.on.address == on.address
        and (t.tx < 0 if bytes_ else t.arrivals > 0) and not case.history.credits(on, t.warp)
    )  # fmt: skip


def first_per_instruction(credits: Iterable[Touch]) -> list[Touch]:
    """Of the credits by one instruction only the first."""
    found: dict[int, Touch] = {}
    for credit in credits:
        found.setdefault(credit.op.number, credit)
    return list(found.values())


def no_init(case: Case) -> Cause | None:
    """Barriers are initialised, but not this one: it belongs to the others."""
    history = case.history
    if _is_coming(case):
        return None
    inits = [t for t in history.touched("life") if t.at <= case.made]
    return None if not inits else Cause(
        "the initialisation of the barriers leaves this one out",
        (case.of(inits[-1], f"initialises {inits[-1].on.label}"),),
    )  # fmt: skip


def _is_coming(case: Case) -> bool:
    """Whether a warp has begun to initialise barriers, and goes on to the one that was used."""
    history, mine = case.history, [on for on in about(case) if not on.live]
    return any(
        history.acts_on(op, on, fx.InitsMbarrier) and not history.ever(op.number)
        for on in mine for op in case.mir.ops()
    )  # fmt: skip


def used_before_the_init(case: Case) -> Cause | None:
    """A barrier that another warp has yet to initialise: nothing makes its user wait for that."""
    if not case.sides or not _is_coming(case):
        return None
    side, history = case.sides[0], case.history
    before = history.latest(side.warp, side.at)
    coming = [
        (warp, op) for warp in history.peers(side.warp) for op in history.code_of(warp)
        if has(op, fx.InitsMbarrier) and not history.ever(op.number)
    ]  # fmt: skip
    sides = [case.warp(warp, op, "initialises barriers") for warp, op in coming[-1:]]
    if before is not None:
        sides.append(case.warp(side.warp, before, "is the last instruction before the use"))
    return Cause(
        f"{side.warp} does not wait for the initialisation of the barriers",
        tuple(sides),
        "put a barrier of threads between the initialisation and the first use",
    )


def helpful(case: Case, warp: Agent, on: Mbarrier) -> Iterator[Op]:
    """The instructions of a warp that can name a barrier, or another one of its array, and arrive
    on it or complete its bytes; that initialise it, if it is not live."""
    kinds = _helping(on)
    return (op for op in case.history.code_of(warp) if case.history.acts_on(op, on, *kinds))


def _helping(on: Mbarrier) -> tuple[type[fx.Arrives | fx.Completes | fx.InitsMbarrier], ...]:
    return (fx.Arrives, fx.Completes) if on.live else (fx.InitsMbarrier,)


#: families that change which warps arrive
COUNTED_FAMILIES = frozenset({
    "rank", "slot", "condition", "participants", "one lane", "missing arrival", "arrival too many",
    "repeated", "other side", "peer arrival",
})  # fmt: skip


def arriving(facts: Facts, array: str) -> dict[tuple[Loc, str, str], tuple[int, tuple[int, ...]]]:
    """By line, role and CTA that is named, how many arrivals of a CTA a phase of a barrier of an
    array may have; and how many of those the barrier of each CTA of the cluster gets."""
    size = facts.kernel.cluster_size
    found: dict[tuple[Loc, str, str], tuple[int, tuple[int, ...]]] = {}
    for place in facts.using(array, fx.Arrives):
        for effect in place.op.effects():
            if isinstance(effect, fx.Arrives) and effect.mbar.array.name == array:
                lanes = 1 if effect.group == "tcgen05" else place.arrivals
                made = (constant(effect.count) or 1) * lanes
                got = [0] * size
                for rank in range(size):
                    there = reached(effect.mbar.cta, effect.multicast, rank, size)
                    if executes(facts, place, rank):
                        for cta in {rank} if there is None else there:
                            got[cta] += made
                found[place.loc, place.role, str(effect.mbar.cta)] = made, tuple(got)
    return found


def reached(
    cta: Expr | None, multicast: Expr | None, rank: int, size: int
) -> frozenset[int] | None:
    """The CTAs whose memory or barrier an instruction of CTA ``rank`` names, by the operand that
    says which (None: its own) and the mask of a multicast; None if that is not known."""
    if multicast is not None:
        mask = constant(at_rank(multicast, rank))
        return None if mask is None else frozenset(n for n in range(size) if mask >> n & 1)
    known = rank if cta is None else constant(at_rank(cta, rank))
    return frozenset({known}) if known is not None and 0 <= known < size else None


def executes(facts: Facts, place: Place, rank: int) -> bool:
    """Whether CTA ``rank`` may execute a statement: no condition on the rank around it excludes
    it."""
    for number in place.within:
        region = facts.places[number].what
        if isinstance(region, If):
            holds = constant(at_rank(region.cond, rank))
            other = place.number > number + sum(1 for _ in walk(region.then))
            if holds is not None and bool(holds) == other:
                return False
    return True


def counted(facts: Facts, edit: Edit) -> Edit | None:
    """An edit with the counts of the barriers on which others arrive after it; None if these stay:
    those that it changes by as many, or what then arrives if it is not known how many it changes.
    """
    arrays = {
        e.mbar.array.name
        for number, new in edit.instead.items()
        for op in (*_ops(facts, number), *_new(new))
        for e in op.effects() if isinstance(e, fx.Arrives)
    }  # fmt: skip
    if not arrays:
        return None
    after = Facts(edit.of(facts.program))
    inits: list[tuple[Place, int, int]] = []
    for array in sorted(arrays):
        by = total(after, array) - total(facts, array)
        for place in facts.using(array, fx.InitsMbarrier):
            counts = [constant(s.value) for s in sites(place.op) if s.kind == "count"]
            known = counts[0] if counts else None
            if known is None or place.number in edit.instead:
                return None
            inits.append((place, known, known + by if by else total(after, array)))
    wrong = [(place, known, count) for place, known, count in inits if count not in (0, known)]
    if not wrong or any(count < 0 for _, _, count in wrong):
        return None
    instead = {p.number: (changed(p.op, count=Const(count)),) for p, _, count in wrong}
    lines = dict.fromkeys(p.loc for p, _, _ in wrong)
    said = dict.fromkeys(
        f"count {count} instead of {known} in {p.op.mnemonic}" for p, known, count in wrong
    )
    return replace(
        edit, what="; ".join((edit.what, *said)), instead={**edit.instead, **instead},
        size=edit.size + len(lines), lines=tuple(dict.fromkeys((*edit.lines, *lines))),
    )  # fmt: skip


def total(facts: Facts, array: str) -> int:
    """How many arrivals a phase of a barrier of an array has, in the CTA where it has most."""
    each = [got for _, got in arriving(facts, array).values()]
    return max(map(sum, zip(*each, strict=True)), default=0)


def _ops(facts: Facts, number: int) -> Iterator[Op]:
    """The instructions at a statement: itself, or those in a region."""
    what = facts.places[number].what
    if isinstance(what, Op):
        yield what
    yield from (p.op for p in facts.inside(number) if isinstance(p.what, Op))


def _new(block: Instead) -> Iterator[Op]:
    for what in block:
        if isinstance(what, Op):
            yield what
        elif not isinstance(what, Control):
            for region in children(what):
                yield from _new(region)
