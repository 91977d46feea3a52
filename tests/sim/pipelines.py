"""Pipelines that are right in every schedule, and random changes that mostly make them wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sim import changes
from tests.sim import steps as s
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]


@dataclass(frozen=True)
class _Shape:
    """A ring of ``stages`` that ``consumers`` empty ``trips`` times; full barriers come first."""

    stages: int
    trips: int
    consumers: int
    full_warp: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Arrivals of the full and of the empty barriers."""
        each = 32 if self.full_warp else 1
        return (1,) * self.stages + (each * self.consumers,) * self.stages

    def wait(self, *, empty: bool) -> s.Wait:
        """The wait of one side."""
        return s.Wait(self.stages * empty, int(empty), carried=True, stages=self.stages)

    def release(self) -> s.Arrive:
        """What a consumer does when it is done with a stage."""
        return s.Arrive(self.stages, full=self.full_warp, stages=self.stages)

    def small(self, producer: Steps, *consumers: Steps, words: int = 0) -> Small:
        """The program of these loop bodies."""
        bodies = (producer, *consumers)
        warps = tuple((s.Loop(self.trips, body),) for body in bodies)
        return Small(warps, self.counts, words or self.stages)


def _shape(choose: Choose, *, most: int = 3) -> _Shape:
    stages = 1 + choose(2)
    return _Shape(stages, 1 + choose(most), 1 + choose(2), bool(choose(2)))


def _fill(choose: Choose, shape: _Shape) -> Steps:
    """Expectation and copy in one of the orders that are right."""
    n = shape.stages
    copy = s.Copy(0, 0, stages=n)
    expect, both = s.Expect(0, stages=n), s.ArriveExpect(0, stages=n)
    arrive = s.Arrive(0, stages=n)
    styles: tuple[Steps, ...] = (
        (both, copy), (both, copy), (copy, both), (expect, copy, arrive), (expect, arrive, copy),
        (copy, expect, arrive),
    )  # fmt: skip
    return styles[choose(len(styles))]


def _ring(choose: Choose) -> Small:
    """Copies into a ring of stages."""
    shape = _shape(choose)
    producer = (shape.wait(empty=True), *_fill(choose, shape))
    consumer = (shape.wait(empty=False), s.Read(0, stages=shape.stages), shape.release())
    small = shape.small(producer, *[consumer] * shape.consumers)
    if shape.trips % 2 == 0 and choose(2):
        # the same as two nested loops: iterations count on
        nested = ((s.Loop(shape.trips // 2, (s.Loop(2, b),)),) for b in (producer, consumer))
        first, second = nested
        small = replace(small, warps=(first, *[second] * shape.consumers))
    return small


def _wide(choose: Choose) -> Small:
    """One stage of two words, filled and expected in parts."""
    shape = _Shape(1, 1 + choose(3), 1, False)
    styles: tuple[Steps, ...] = (
        (s.ArriveExpect(0, 2), s.Copy(0, 0, 2)),
        (s.ArriveExpect(0, 2), s.Copy(0, 0), s.Copy(0, 1)),
        (s.Expect(0), s.ArriveExpect(0), s.Copy(0, 0), s.Copy(0, 1)),
        # right, but only by the exact form of condition B
        (s.ArriveExpect(0), s.Expect(0), s.Copy(0, 0, 2)),
        (s.Copy(0, 0), s.ArriveExpect(0, 2), s.Copy(0, 1)),
    )
    producer = (shape.wait(empty=True), *styles[choose(len(styles))])
    consumer = (shape.wait(empty=False), s.Read(0), s.Read(1), shape.release())
    return shape.small(producer, consumer, words=2)


def _handoff(choose: Choose) -> Small:
    """Ordinary stores, handed over by arrivals (of one lane or of all)."""
    shape = _shape(choose)
    n = shape.stages
    producer = (shape.wait(empty=True), s.Write(0, stages=n), s.Arrive(0, full=True, stages=n))
    consumer = (shape.wait(empty=False), s.Read(0, stages=n), shape.release())
    small = shape.small(producer, *[consumer] * shape.consumers)
    return replace(small, counts=(32,) * n + small.counts[n:])


def _peeking(choose: Choose) -> Small:
    """Consumers that peek before they wait, right before or ahead of other work."""
    shape = _shape(choose)
    n = shape.stages
    wait = shape.wait(empty=False)
    peek = s.Peek(wait.barrier, wait.parity, carried=True, stages=n)
    unless = s.WaitUnless(wait.barrier, wait.parity, carried=True, stages=n)
    between = (s.Fence(),) if choose(2) else ()
    producer = (shape.wait(empty=True), *_fill(choose, shape))
    consumer = (peek, *between, unless, s.Read(0, stages=n), shape.release())
    return shape.small(producer, *[consumer] * shape.consumers)


def _taking_turns(choose: Choose) -> Small:
    """Two consumers, each with a stage of its own, in one loop; or in turns by named barriers."""
    if choose(2):
        shape = _Shape(2, 2 + choose(3), 1, bool(choose(2)))
        consumer = (shape.wait(empty=False), s.Read(0, stages=2), shape.release())
        producer = (shape.wait(empty=True), *_fill(choose, shape))
        arms = ((s.When(2, rest, consumer),) for rest in (0, 1))
        return shape.small(producer, *arms)
    trips = 1 + choose(3)
    first: list[Step] = []
    second: list[Step] = []
    for trip in range(trips):
        first += [*([s.Join(0, 2)] if trip else []), s.Write(0), s.Join(1, 2, waits=False)]
        second += [s.Join(1, 2), s.Write(0), *([s.Join(0, 2, False)] if trip < trips - 1 else [])]
    return Small((tuple(first), tuple(second)), (), 1)


def _stores(choose: Choose) -> Small:
    """A consumer that stores what it makes of a stage, reusing its buffer after wait_group."""
    shape = _Shape(1, 1 + choose(3), 1, bool(choose(2)))
    producer = (shape.wait(empty=True), *_fill(choose, shape))
    pending = choose(2)
    out = s.Write(1, stages=1 + pending)
    save = s.Store(1, 0, stages=1 + pending)
    consumer = (
        shape.wait(empty=False), s.Read(0), shape.release(),
        s.WaitGroup(pending, True), out, s.Fence(), replace(save, place=0),
        s.Commit(),
    )  # fmt: skip
    small = shape.small(producer, consumer, words=3)
    # every iteration stores to the same place: the write before must be over, not only its read
    waits = s.mapped(small.warps[1], lambda x: s.WaitGroup(0) if _reads_group(x) else x)
    return replace(small, warps=(small.warps[0], (*waits, s.WaitGroup(0, bool(choose(2))))))


def _reads_group(step: Step) -> bool:
    return isinstance(step, s.WaitGroup)


def _multicast(choose: Choose) -> Small:
    """Two CTAs, each of which copies one of two words into both."""
    trips, full = 1 + choose(2), bool(choose(2))
    warps: list[Steps] = []
    meet = (s.ClusterArrive(bool(choose(2))), s.ClusterWait())
    for cta in (0, 1):
        producer = (
            s.Wait(1, 1, carried=True), s.ArriveExpect(0, 2), s.Copy(0, cta, mask=3),
        )  # fmt: skip
        consumer = (
            s.Wait(0, 0, carried=True), s.Read(0), s.Read(1),
            s.Arrive(1, full=full, cta=0), s.Arrive(1, full=full, cta=1),
        )  # fmt: skip
        warps += [(s.Loop(trips, producer), *meet), (s.Loop(trips, consumer), *meet)]
    return Small(tuple(warps), (1, 64 if full else 2), 2, ctas=2)


def _remote(choose: Choose) -> Small:
    """Each CTA copies into its own word; the peer's warp lets it go on."""
    trips = 1 + choose(3)
    meet = (s.ClusterArrive(), s.ClusterWait())
    body = (
        s.ArriveExpect(0), s.Copy(0, 0), s.Wait(0, 0, carried=True), s.Read(0),
    )  # fmt: skip
    warps = tuple((s.Loop(trips, (*body, *_swap(cta))), *meet) for cta in (0, 1))
    return Small(warps, (1, 1, 1), 1, ctas=2)


def _swap(cta: int) -> Steps:
    """Each side lets the other go on; with one barrier a side could be lapped."""
    return s.Arrive(1, cta=1 - cta, stages=2), s.Wait(1, 0, carried=True, stages=2)


def _own_barriers(choose: Choose) -> Small:
    """A pipeline whose barriers are initialised, invalidated and perhaps used again."""
    shape = _Shape(1, 1 + choose(2), 1, False)
    inner = shape.small(
        (shape.wait(empty=True), *_fill(choose, shape)),
        (shape.wait(empty=False), s.Read(0), shape.release()),
    )
    rounds = 1 + choose(2)
    init = tuple(s.Init(i, n) for i, n in enumerate(inner.counts))
    inval = tuple(s.Inval(i) for i in range(len(inner.counts)))
    meet = (s.Join(0, 2),)
    first, second = inner.warps
    return Small(
        ((*init, *meet, *first, *meet, *inval) * rounds, (*meet, *second, *meet) * rounds),
        (0,) * len(inner.counts), inner.words,
    )  # fmt: skip


def _leaving(choose: Choose) -> Small:
    """A second consumer drops out after its first iteration."""
    trips = 2 + choose(2)
    shape = _Shape(1, trips, 2, False)
    stay = (shape.wait(empty=False), s.Read(0), shape.release())
    leave = (s.Wait(0, 0), s.Read(0), s.Arrive(1, drop=True))
    small = shape.small((shape.wait(empty=True), *_fill(choose, shape)), stay, ())
    return replace(small, warps=(*small.warps[:2], leave))


def _late(choose: Choose) -> Small:
    """A producer that signals by arrivals that come later."""
    shape = _shape(choose)
    n = shape.stages
    signal: Steps = (s.Later(0, stages=n),)
    if choose(2):
        signal = (s.Later(0, inc=True, stages=n), s.Arrive(0, stages=n))
    consumer = (shape.wait(empty=False), shape.release())
    producer = (shape.wait(empty=True), *signal)
    return shape.small(producer, *[consumer] * shape.consumers)


def _relay(choose: Choose) -> Small:
    """Copy, then a warp that works on the stage, then one that reads what it made."""
    trips, full = 1 + choose(2), bool(choose(2))
    first = (s.Wait(1, 1, carried=True), s.ArriveExpect(0), s.Copy(0, 0))
    middle = (
        s.Wait(0, 0, carried=True), s.Read(0), s.Wait(3, 1, carried=True), s.Write(1),
        s.Arrive(1, full=full), s.Arrive(2, full=full),
    )  # fmt: skip
    last = (s.Wait(2, 0, carried=True), s.Read(1), s.Arrive(3, full=full))
    each = 32 if full else 1
    warps = tuple((s.Loop(trips, body),) for body in (first, middle, last))
    return Small(warps, (1, each, each, each), 2)


#: how to make a pipeline that is right
STYLES: tuple[Callable[[Choose], Small], ...] = (
    _ring, _ring, _ring, _wide, _handoff, _peeking, _taking_turns, _stores, _multicast, _remote,
    _own_barriers, _leaving, _late, _relay,
)  # fmt: skip


def pipeline(choose: Choose) -> Small:
    """A program that is right in every schedule."""
    return STYLES[choose(len(STYLES))](choose)


# ------------------------------------------------------------------ changes


def mutated(choose: Choose, small: Small) -> Small:
    """The program with one thing changed: a step, or an arrival count."""
    if small.counts and not choose(8):
        at = choose(len(small.counts))
        n = small.counts[at] + (1 if choose(2) else -1)
        if n > 0:
            return replace(small, counts=(*small.counts[:at], n, *small.counts[at + 1 :]))
    sizes = [sum(1 for _ in s.every(steps)) for steps in small.warps]
    place = choose(sum(sizes)) if sum(sizes) else 0
    for warp, size in enumerate(sizes):
        if place < size:
            steps = _edited(choose, small, small.warps[warp], place)
            return replace(small, warps=(*small.warps[:warp], steps, *small.warps[warp + 1 :]))
        place -= size
    return small


def _edited(choose: Choose, small: Small, steps: Steps, place: int) -> Steps:
    """The steps with an edit at the step that comes ``place``-th, bodies included."""
    for i, step in enumerate(steps):
        if place == 0:
            return _edit(choose, small, steps, i)
        place -= 1
        bodies = list(s.parts(step))
        for which, body in enumerate(bodies):
            size = sum(1 for _ in s.every(body))
            if place < size:
                bodies[which] = _edited(choose, small, body, place)
                return (*steps[:i], s.with_parts(step, tuple(bodies)), *steps[i + 1 :])
            place -= size
    return steps


def _edit(choose: Choose, small: Small, steps: Steps, i: int) -> Steps:
    before, step, after = steps[:i], steps[i], steps[i + 1 :]
    if small.family != "mbarriers" and isinstance(step, (s.ClusterArrive, s.ClusterWait)):
        # an exit that takes the place of an arrival (D5) releases nothing: whether remote accesses
        # before it are over is not modelled
        return steps
    match choose(8):
        case 0 | 1:
            return before + after
        case 2:
            return (*before, step, step, *after)
        case 3 if after:
            return (*before, after[0], step, *after[1:])
        case 4:
            barriers = max(1, len(small.counts))
            extra: Steps = (
                s.Wait(choose(barriers), choose(2)), s.Arrive(choose(barriers)),
                s.Expect(choose(barriers)), s.Complete(choose(barriers)), s.Fence(),
                s.Write(choose(small.words)), s.Join(0, 2),
            )  # fmt: skip
            added = extra[choose(len(extra))]
            if not small.counts and hasattr(added, "barrier"):
                added = s.Fence()
            if small.family != "mbarriers" and choose(2):
                added = changes.added(choose, small) or added
            return (*before, added, step, *after)
        case _:
            return (*before, *_altered(choose, small, step), *after)


#: steps on a barrier, which may be one of a ring
_ON_BARRIER = (
    s.Arrive, s.ArriveExpect, s.Expect, s.Complete, s.Copy, s.Later, s.Wait, s.Peek, s.WaitUnless,
    s.Poll,
)  # fmt: skip


def _altered(choose: Choose, small: Small, step: Step) -> Steps:
    """The step with another operand, or in another form."""
    up = 1 if choose(2) else -1
    if isinstance(step, _ON_BARRIER) and small.counts and not choose(3):
        return (replace(step, barrier=choose(max(1, len(small.counts) - step.stages + 1))),)
    match step:
        case s.WgFence() | s.WgMma() | s.WgCommit() | s.WgWait() | s.WgUse():
            return changes.of_group(choose, small, step)
        case _ if small.family != "mbarriers" and isinstance(step, changes.OWN):
            return changes.altered(choose, small, step)
        case s.Wait(barrier=barrier, parity=parity, carried=carried, stages=stages):
            peek = s.Peek(barrier, parity, carried, stages)
            unless = s.WaitUnless(barrier, parity, carried, stages)
            poll = s.Poll(barrier, parity, (), (step,), carried=carried, stages=stages)
            flip = replace(step, parity=parity ^ 1)
            options: tuple[Steps, ...] = (
                (flip,), (replace(step, carried=not carried),), (peek, unless), (poll,),
                (replace(peek, parity=parity ^ 1), unless),
            )  # fmt: skip
            return options[choose(len(options))]
        case s.Arrive(count=n):
            local = replace(step, cta=None)
            changed: Steps = (
                replace(step, relaxed=not step.relaxed, partial=False, drop=False),
                replace(step, full=not step.full),
                replace(step, drop=not step.drop, relaxed=False, partial=False),
                replace(step, partial=True, drop=False, relaxed=False, cta=None),
                replace(step, count=n + 1), local,
            )  # fmt: skip
            return (changed[choose(len(changed))],)
        case s.ArriveExpect(barrier=barrier, words=words, stages=stages):
            apart: Steps = (s.Expect(barrier, words, stages), s.Arrive(barrier, stages=stages))
            both = (apart, apart[::-1], (replace(step, words=max(0, words + up)),))
            return both[choose(3)]
        case s.Expect(words=words) | s.Complete(words=words):
            return (replace(step, words=max(0, words + up)),)
        case s.Copy(barrier=barrier, mask=mask):
            if mask is not None and choose(2):
                return (replace(step, mask=None),)
            return (s.Complete(barrier, step.words, step.stages),)
        case s.Later(inc=inc):
            return (replace(step, inc=not inc),)
        case s.Join(waits=waits, warps=warps):
            return (
                replace(step, waits=not waits) if choose(2) else replace(step, warps=warps + up),
            )
        case s.WaitGroup(read=read, pending=pending):
            return (replace(step, read=not read) if choose(2) else s.WaitGroup(pending + 1, read),)
        case s.ClusterArrive(relaxed=relaxed):
            return (replace(step, relaxed=not relaxed),)
        case s.Fence():
            return (s.Fence(changes.SPACES[choose(len(changes.SPACES))]),)
        case s.Loop(trips=trips):
            return (replace(step, trips=max(1, trips + up)),)
        case s.When(rest=rest, modulus=modulus):
            return (replace(step, rest=(rest + 1) % modulus),)
        case s.Init(count=n):
            return (replace(step, count=n + 1),)
        case s.Read() | s.Write():
            return (replace(step, word=choose(max(1, small.words - step.stages + 1))),)
        case _:
            return ()
