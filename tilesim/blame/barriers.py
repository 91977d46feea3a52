"""What is wrong with a barrier: its count, its bytes, who arrives and how often."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.history import Touch
from tilesim.blame.places import branch_past, loop_range
from tilesim.blame.races import links
from tilesim.ir import effects as fx
from tilesim.ir.expr import Special, walk
from tilesim.ir.memory import SharedTensor, View
from tilesim.ir.op import Op
from tilesim.sim.findings import Participant
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.mbarrier import Mbarrier

Maker = tuple[Agent, int]
_LANES = 32
#: instructions of all warps between an expectation and the copy that it is for, at most
_NEAR = 40
_LABEL = re.compile(r"(?:CTA \d+ )?[\w.:@]+\[\d+\]")
COUNTED = ("race", "tcgen05-order", "wgmma-order", "tmem-lifetime", "over-arrival", "deadlock",
           "tx-mismatch", "uninitialised-read", "async-at-exit")  # fmt: skip


def barriers(case: Case) -> Iterator[Mbarrier]:
    """The barriers that a finding is about: those that nobody can complete, those that waiters of a
    cycle wait for, the one that it names, those that connect the sides of a race."""
    graph = case.history.waits_for
    if case.finding.rule == "deadlock" and graph is not None:
        roots = [s for s in case.history.stuck if not graph.suppliers(s.warp)]
        first = [s for s in roots if isinstance(s.on, Mbarrier)]
        blocked = [s for s in case.history.stuck if isinstance(s.on, Mbarrier)]
        for stuck in (*first, *blocked) if first or not roots else ():
            assert isinstance(stuck.on, Mbarrier)
            yield stuck.on
    labels = set(_LABEL.findall(case.finding.message))
    yield from (on for on in case.history.objects() if on.label in labels)
    if case.finding.rule != "deadlock":
        yield from (link.on for link in links(case, group=True))
    if case.finding.rule == "over-arrival":
        for side in case.sides:
            passed = [p for p in case.history.passes(side.warp) if p.at <= case.made]
            yield from (p.on for p in passed[-1:] if isinstance(p.on, Mbarrier))


def about(case: Case) -> list[Mbarrier]:
    """They, each once."""
    return list(dict.fromkeys(barriers(case)))


def shares(
    credits: Iterable[Touch], *, bytes_: bool = False, once: bool = False
) -> dict[Maker, int]:
    """By warp and instruction: what one execution of it usually contributes; of ``bytes_``, what
    all that begin with one phase do, or ``once`` one of them."""
    made: dict[tuple[Agent, int, int], int] = defaultdict(int)
    phases: dict[tuple[Agent, int, int], int] = {}
    for credit in credits:
        # lanes of one instruction may belong to two phases
        key = credit.warp, credit.op.number, credit.issued
        made[key] += credit.tx if bytes_ else credit.arrivals
        phases.setdefault(key, credit.phase)
    if bytes_ and not once:
        together: dict[tuple[Agent, int, int], int] = defaultdict(int)
        for (warp, number, issued), value in made.items():
            together[warp, number, phases[warp, number, issued]] += value
        made = together
    seen: dict[Maker, Counter[int]] = defaultdict(Counter)
    for (warp, number, _), value in made.items():
        if value:
            seen[warp, number][value] += 1
    return {maker: counts.most_common(1)[0][0] for maker, counts in seen.items()}


@diagnosis("deadlock", "uninitialised-barrier")
def never_executed(case: Case) -> Cause | None:
    """An instruction that would help is there, and a condition lets nobody come to it."""
    history = case.history
    mir = history.machine.loaded.mir
    for on in about(case):
        for warp in history.machine.warps:
            for op in helpful(case, warp, on):
                copies = history.machine.plan.copies(op.number)
                if any(history.ever(n) or history.ahead(n) for n in copies):
                    continue
                where = branch_past(mir, op)
                last = history.last_of(warp)
                if not (warp.blocked or warp.exited) and (not last or last.op.number < op.number):
                    continue  # it has yet to come to it
                left = _left_by(case, warp, op)
                if left is not None:
                    return Cause(
                        f"{op.mnemonic} on {on.label} is never executed: {warp} exits before it",
                        (case.who(warp, left, "exits"),
                         case.who(warp, op, "is never executed")),
                        f"let {warp} arrive on {on.label} before it exits",
                    )  # fmt: skip
                if where is not None:
                    return Cause(
                        f"{op.mnemonic} on {on.label} is never executed: the condition before it "
                        "does not hold",
                        (case.who(warp, where, "is never true"),
                         case.who(warp, op, "is never executed")),
                        f"let {warp} come to this {op.mnemonic}, or do not wait for it",
                    )  # fmt: skip
    return None


def _left_by(case: Case, warp: Agent, op: Op) -> Op | None:
    """The exit by which a warp has ended without coming to an instruction behind it."""
    last = case.history.last_of(warp)
    if not warp.exited or last is None:
        return None
    exits = [
        own for number, own, effects in case.history.code_of(warp)
        if last.op.number <= number < op.number and any(isinstance(e, fx.Exits) for e in effects)
    ]  # fmt: skip
    return exits[0] if exits else None


@diagnosis(*COUNTED)
def slots(case: Case) -> Cause | None:
    """Arrivals, bytes and waits of one use that name different barriers of an array."""
    names = {on.name for on in about(case)}
    for on in (on for on in case.history.objects() if on.name in names):
        landed = [c for c in case.history.credits(on) if c.tx < 0]
        expected = [c for c in case.history.credits(on) if c.tx > 0 or c.arrivals > 0]
        if on.tx < 0 and landed and on.pending:
            owner = landed[-1].warp
            other = _expected_by(case, landed[-1])
            if other is not None and not any(c.tx > 0 for c in expected if c.phase == on.phase):
                expect = case.of(other, f"expects bytes on {label_of(other)}")
                copy = case.of(landed[-1], f"completes bytes on {on.label}")
                # other copies of this use go where the bytes are expected, or nobody waits here
                alone = not any(
                    c.tx < 0 and c.op is not landed[-1].op and c.issued > other.at
                    for c in case.history.credits(other.on, owner)
                )
                waited = any(t.kind == "pass" and t.on is on for t in case.history.touches)
                return Cause(
                    f"the bytes of this use complete on {on.label}, but are expected on "
                    f"{label_of(other)}",
                    (expect, copy) if alone and waited else (copy, expect),
                    "let the expectation and the copy of one use name one barrier",
                )
    return None


def _expected_by(case: Case, landing: Touch) -> Touch | None:
    """The expectation of bytes by its warp, next to the issue of a copy, if that is of another
    barrier of the array than the one on which the copy has landed."""
    assert isinstance(landing.on, Mbarrier)
    near = [
        t for t in case.history.touches
        if t.kind == "credit" and t.tx > 0 and t.warp is landing.warp
        and isinstance(t.on, Mbarrier) and t.on.name == landing.on.name
    ]  # fmt: skip
    best = min(near, key=lambda t: abs(t.at - landing.issued), default=None)
    if best is None or best.on is landing.on or abs(best.at - landing.issued) > _NEAR:
        return None
    # of a multicast, every CTA expects its own bytes
    assert isinstance(best.on, Mbarrier)
    return None if best.on.address == landing.on.address else best


@diagnosis(*COUNTED)
def bytes_of_a_phase(case: Case) -> Cause | None:
    """The bytes expected are not those that the copies complete."""
    for on in about(case):
        credits = case.history.credits(on)
        every = shares(credits, bytes_=True)
        totals = _unbalanced(case, every)
        far = all(n < 0 and warp.cta is not on.cta for (warp, _), n in totals.items())
        if far and any(n > 0 for n in every.values()):
            totals = every  # what other CTAs copy is to be expected as well
        credits = [c for c in credits if (c.warp, c.op.number) in totals or not c.tx]
        expected = {m: n for m, n in totals.items() if n > 0}
        completed = {m: -n for m, n in totals.items() if n < 0}
        if not completed and not expected:
            continue
        want, have = sum(expected.values()), sum(completed.values())
        if want == have or (case.finding.rule == "over-arrival" and not completed):
            continue
        if not completed and case.finding.rule == "deadlock" and _still_to_come(case, on):
            continue
        expects = [c for c in credits if c.tx > 0]
        copies = one_each(c for c in credits if c.tx < 0)
        astray = _astray(case, on) if expects and have < want else None
        if astray is not None:
            return Cause(
                f"bytes that are expected on {on.label} complete on {label_of(astray)}",
                (case.of(astray, f"completes {-astray.tx} bytes on {label_of(astray)}"),
                 *(case.of(c, f"expects {c.tx} bytes on {on.label}") for c in one_each(expects))),
            )  # fmt: skip
        others = [] if copies else elsewhere(case, on, bytes_=True)
        if others:
            return Cause(
                f"no copy completes the {want} bytes that are expected on {on.label}: where there "
                "is one, it names another barrier",
                (*(case.of(c, f"completes {-c.tx} bytes on {label_of(c)}") for c in others),
                 *(case.of(c, f"expects {c.tx} bytes on {on.label}") for c in one_each(expects))),
            )  # fmt: skip
        wrong = _of_another_array(case, expects) if expects and not copies else None
        if wrong is not None:
            return Cause(
                f"no copy completes the {want} bytes that are expected on {on.label}: this one "
                f"completes its bytes on {label_of(wrong)}",
                (case.of(wrong, f"completes {-wrong.tx} bytes on {label_of(wrong)}"),
                 *(case.of(c, f"expects {c.tx} bytes on {on.label}") for c in one_each(expects))),
                f"let the copy complete on {on.label}",
                "slots",
            )  # fmt: skip
        ctas = case.history.machine.program.cluster_size
        own = [c for c in copies if (ctas - 1) * -c.tx == want - have and _fills_a_part(c.op)]
        if expects and ctas > 1 and len(own) == 1:
            return Cause(
                f"{want} bytes are expected on {on.label} per phase and {have} completed: one copy "
                "is not multicast",
                (case.of(own[0], f"completes {-own[0].tx} bytes in its own CTA only"),
                 *(case.of(c, f"expects {c.tx} bytes on {on.label}") for c in one_each(expects))),
                f"let this copy name all {ctas} CTAs by a multicast mask, or expect {have} bytes",
            )  # fmt: skip
        if expects:
            first = one_each(expects)
            all_expected = {m: n for m, n in every.items() if n > 0}
            all_have = -sum(n for n in every.values() if n < 0)
            several = _by_several(case, first[0], expected, have) or _by_several(
                case, first[0], all_expected, all_have
            )
            if several is not None:
                return several
            if have == _LANES * want:
                return Cause(
                    f"all {_LANES} lanes execute {copies[0].op.mnemonic} on {on.label}: elect one",
                    (
                        case.of(copies[0], f"is executed by {_LANES} lanes"),
                        *(case.of(c, f"expects {c.tx} bytes on {on.label}") for c in first),
                    ),
                    "let one elected lane issue the copy",
                    "by_all_lanes",
                )
            sides = [case.of(c, f"expects {c.tx} bytes on {on.label}") for c in first]
            filling = [case.of(c, f"completes {-c.tx} bytes on {on.label}") for c in copies]
            empty = _never_filled(case) if have < want and copies else ""
            also = f", and nobody fills {empty}, which is read" if empty else ""
            return Cause(
                f"{want} bytes are expected on {on.label} per phase and {have} completed{also}",
                (*reversed(filling), *sides) if empty else (*sides, *filling),
                f"expect on {on.label} as many bytes as its copies complete in a phase: {have} "
                f"instead of {want} (or let them copy {want})",
            )
        # nothing tells the uses apart: phases end without these bytes
        have = -sum(n for m, n in shares(credits, bytes_=True, once=True).items() if m in completed)
        owners = {c.warp for c in copies}
        own = [c for c in credits if c.arrivals > 0 and c.warp in owners]
        arrivals = one_each(own or [c for c in credits if c.arrivals > 0])
        # of one execution each: nobody says which phase they belong to
        have = -sum(c.tx for c in copies)
        return Cause(
            f"nobody expects the {have} bytes that copies complete on {on.label}: its phase ends "
            "without them",
            (*(case.of(c, f"arrives on {on.label} and expects no bytes") for c in arrivals),
             *(case.of(c, f"completes {-c.tx} bytes on {on.label}") for c in copies)),
            f"expect the {have} bytes with the arrival: arrive.expect_tx on {on.label}",
        )  # fmt: skip
    return None


def _fills_a_part(op: Op) -> bool:
    """Whether a copy is not multicast, and fills a part of a tensor that follows from the rank of
    its CTA: the others' parts come from elsewhere."""
    effects = op.effects()
    offsets = [o for e in effects if isinstance(e, fx.Writes) for o in e.view.offsets]
    ranked = any(
        isinstance(p, Special) and p.name == "cluster_rank" for o in offsets for p in walk(o)
    )
    return ranked and not any(
        isinstance(e, fx.Completes) and e.multicast is not None for e in effects
    )


def _of_another_array(case: Case, expects: list[Touch]) -> Touch | None:
    """The next copy that a warp issues behind an expectation, if that completes more bytes than
    are expected on a barrier of another array."""
    expect = expects[0]
    copies = [
        t for t in case.history.touches
        if t.kind == "credit" and t.tx < 0 and t.warp is expect.warp and t.issued > expect.at
    ]  # fmt: skip
    copy = min(copies, key=lambda t: t.issued, default=None)
    if copy is None or copy.issued - expect.at > _NEAR:
        return None
    over = sum(c.tx for c in case.history.credits(copy.on)) < 0
    arrays = {on.name for on in (copy.on, expect.on) if isinstance(on, Mbarrier)}
    return copy if over and len(arrays) > 1 else None


def _astray(case: Case, on: Mbarrier) -> Touch | None:
    """A copy that lands on another barrier of the array than the one on which its bytes are
    expected."""
    for touch in case.history.touches:
        other = touch.on
        if touch.kind != "credit" or touch.tx >= 0 or not isinstance(other, Mbarrier):
            continue
        if other.name == on.name and other is not on:
            expected = _expected_by(case, touch)
            over = sum(c.tx for c in case.history.credits(other)) < 0
            if over and expected is not None and expected.on is on:
                return touch
    return None


def _still_to_come(case: Case, on: Mbarrier) -> bool:
    """Whether a warp that waits for something else would complete bytes of a barrier."""
    effects = case.history.machine.loaded.mir.effects
    return any(
        isinstance(e, fx.Completes) and case.history.ahead(number, on)
        for number, own in enumerate(effects) for e in own
    )  # fmt: skip


def _never_filled(case: Case) -> str:
    """A named shared tensor that somebody reads and nobody writes."""
    read: dict[str, None] = {}
    written = set()
    for effects in case.history.machine.loaded.mir.effects:
        for effect in effects:
            match effect:
                case fx.Reads(view=View(tensor=SharedTensor(name=name))):
                    read[name] = None
                case (
                    fx.Writes(view=View(tensor=SharedTensor(name=name)))
                    | fx.RemoteStore(view=View(tensor=SharedTensor(name=name)))
                ):
                    written.add(name)
                case _:
                    pass
    return next((name for name in read if name not in written), "")


def _unbalanced(case: Case, totals: dict[Maker, int]) -> dict[Maker, int]:
    """The bytes of each warp and instruction, without those of loops that balance by themselves."""
    mir = case.history.machine.loaded.mir
    groups: dict[object, int] = defaultdict(int)
    key = {m: (m[0], loop_range(mir, mir.code[m[1]].what)) for m in totals}
    for maker, nbytes in totals.items():
        groups[key[maker]] += nbytes
    return {maker: nbytes for maker, nbytes in totals.items() if groups[key[maker]]}


def _by_several(case: Case, expect: Touch, expected: dict[Maker, int], have: int) -> Cause | None:
    """One expectation that is right, executed by more warps or lanes than are meant."""
    shares_ = [n for (_, number), n in expected.items() if number == expect.op.number]
    lanes = expect.arrivals
    times = len(shares_) if len(shares_) > 1 and shares_[0] == have else lanes
    if times < 2 or sum(expected.values()) != times * have:
        return None
    who = "warps" if times == len(shares_) else "lanes"
    where = branch_past(case.history.machine.loaded.mir, expect.op)
    own = case.of(expect, f"is executed by {times} {who}")
    sides = [] if where is None else [case.who(expect.warp, where, f"lets {times} {who} in")]
    return Cause(
        f"{times} {who} execute {expect.op.mnemonic} on {label_of(expect)}, where one is meant",
        (*sides, own) if who == "warps" else (own, *sides),
        f"let one elected lane of one warp execute {expect.op.mnemonic}",
    )


def label_of(touch: Touch) -> str:
    return touch.on.label


def elsewhere(case: Case, on: Mbarrier, *, bytes_: bool = False) -> list[Touch]:
    """Credits by instructions that name barriers of the same array, made on the barrier at the
    same place of another CTA."""
    return one_each(
        t for t in case.history.touches
        if t.kind == "credit" and isinstance(t.on, Mbarrier) and t.on is not on
        and t.on.address == on.address and (t.tx < 0 if bytes_ else t.arrivals > 0)
        and not case.history.credits(on, t.warp)
    )  # fmt: skip


def one_each(credits: Iterable[Touch]) -> list[Touch]:
    found: dict[int, Touch] = {}
    for credit in credits:
        found.setdefault(credit.op.number, credit)
    return list(found.values())


@diagnosis("uninitialised-barrier")
def no_init(case: Case) -> Cause | None:
    """Barriers are initialised, but not this one: it belongs to the others."""
    history = case.history
    inits = [t for t in history.touches if t.kind == "life" and t.at <= case.made]
    if not inits:
        return None
    last = inits[-1]
    return Cause("the barriers that are initialised leave this one out",
                 (case.of(last, f"initialises {last.on.label}"),))  # fmt: skip


def helpful(case: Case, warp: Agent, on: Mbarrier) -> Iterator[Op]:
    for _, op, effects in case.history.code_of(warp):
        for effect in effects:
            match effect:
                case fx.Arrives(mbar=mbar) | fx.Completes(mbar=mbar) if on.live:
                    if case.history.may_name(mbar.array, on):
                        yield op
                        break
                case fx.InitsMbarrier(mbar=mbar) if not on.live:
                    if case.history.may_name(mbar.array, on):
                        yield op
                        break
                case _:
                    pass


def inits(case: Case, on: Mbarrier) -> list[Participant]:
    init = case.init(on)
    return [] if init is None else [init]
