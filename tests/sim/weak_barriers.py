"""Strong accesses and mbarriers by the axioms: tickets steer arrivals, and peeks what follows.

An mbarrier whose first phase is all that a program has is a word that counts: each arrival is a
releasing read-modify-write of it, a `test_wait` a load that tells whether all have arrived, and
acquires if so (PTX 9.7.13.15). What depends on a register is there or not: each combination is a
shape of plain steps (`tests.sim.weak_reference`), whose executions count in which the registers
hold what was taken. A wait passes like a peek that says yes, or its thread ends there, which is a
deadlock if so many arrivals have not been made when all others are at their ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tests.sim.weak_reference import Reference
from tests.sim.weak_shapes import (
    Arrive,
    Fence,
    Get,
    Guard,
    Meet,
    Peek,
    Plain,
    Set,
    Shape,
    Step,
    Swap,
    Thread,
    Touch,
    Wait,
)

_BARRIER = "m"


@dataclass
class _Plain:
    """One combination: the threads so far, and what must hold in an execution of it: what
    registers hold, or do not; whether an mbarrier had all arrivals; how many are missing."""

    threads: list[Thread] = field(default_factory=list)
    held: list[tuple[int, str, int, bool]] = field(default_factory=list)
    full: list[tuple[int, str, str, bool]] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


def references(shape: Shape) -> list[Reference]:
    """What is enumerated of it."""
    return [Reference(Shape(tuple(plain.threads), lanes=shape.lanes)) for plain in _plain(shape)]


def overfull(shape: Shape) -> bool:
    """Whether more may arrive than a barrier is for: this has no reference."""
    return any(
        _arrivals(reference.shape, word) > count
        for reference, _, _ in _combinations(shape) for word, count in shape.counts
    )  # fmt: skip


def wrong(shape: Shape) -> bool:
    """Whether some execution has a race, or one of its threads waits forever."""
    return any(
        stuck or reference.races(causes, values)
        for reference, found, stuck in _combinations(shape) for causes, values in found
    )  # fmt: skip


def _combinations(shape: Shape) -> Iterator[tuple[Reference, list[Any], bool]]:
    """Each that has executions, with these, and whether threads end at waits in them."""
    counts = dict(shape.counts)
    for plain in _plain(shape):
        reference = Reference(Shape(tuple(plain.threads), lanes=shape.lanes))
        arrived = {word: _arrivals(reference.shape, word) for word in counts}
        if any(arrived[word] >= counts[word] for word in plain.stuck):
            continue
        found = [
            (causes, values) for causes, values in reference.executions()
            if _holds(plain, reference, values, counts)
        ]  # fmt: skip
        if found:
            yield reference, found, bool(plain.stuck)


def _arrivals(shape: Shape, word: str) -> int:
    return sum(
        isinstance(step, Swap) and step.word == word for t in shape.threads for step in t.steps
    )


def _holds(
    plain: _Plain, reference: Reference, values: dict[int, int], counts: dict[str, int]
) -> bool:
    """Whether registers hold in an execution what the combination says."""
    registers = {
        (e.thread, e.step.into): values[e.number] for e in reference.reads
        if isinstance(e.step, Get | Swap)
    }  # fmt: skip
    return all(
        (registers[thread, into] == value) == so for thread, into, value, so in plain.held
    ) and all(
        (registers[thread, into] >= counts[word]) == so for thread, into, word, so in plain.full
    )


def _plain(shape: Shape) -> Iterator[_Plain]:
    """All combinations of what each guard, peek and wait comes to."""
    choices = [
        (number, place) for number, thread in enumerate(shape.threads)
        for place, step in enumerate(thread.steps) if isinstance(step, Guard | Peek | Wait)
    ]  # fmt: skip
    for chosen in product((False, True), repeat=len(choices)):
        answers = dict(zip(choices, chosen, strict=True))
        plain = _Plain()
        if all(_resolve(plain, n, thread, answers) for n, thread in enumerate(shape.threads)):
            yield plain


def _resolve(
    plain: _Plain, number: int, thread: Thread, answers: dict[tuple[int, int], bool]
) -> bool:
    """Adds a thread made of plain steps; False if the answers contradict each other."""
    steps: list[Plain] = []
    peeked: dict[str, int] = {}
    enters = thread.enters
    for place, step in enumerate(thread.steps):
        match step:
            case Guard(into, value, guarded):
                taken = answers[number, place]
                if into in peeked:
                    if (peeked[into] == value) != taken:
                        return False
                else:
                    plain.held.append((number, into, value, taken))
                if taken:
                    steps.append(_counted(guarded, place))
            case Peek(into, word):
                said = answers[number, place]
                peeked[into] = int(said)
                steps.append(Get(into, word, "acquire" if said else "relaxed"))
                plain.full.append((number, into, word, said))
            case Wait(word):
                if not answers[number, place]:
                    plain.stuck.append(word)
                    enters = None
                    break
                steps.append(Get(f"w{place}", word, "acquire"))
                plain.full.append((number, f"w{place}", word, True))
            case _:
                steps.append(_counted(step, place))
    if enters is not None:
        if any(into in peeked and peeked[into] != value for into, value in enters):
            enters = None
        else:
            enters = tuple(pair for pair in enters if pair[0] not in peeked)
    plain.threads.append(Thread(tuple(steps), enters))
    return True


def _counted(step: Plain | Arrive, place: int) -> Plain:
    """An arrival as what it does to the count."""
    if isinstance(step, Arrive):
        return Swap(f"a{place}", step.word, 1, "release", adds=True)
    return step


# ---------------------------------------------------------------------- programs


def barriers(rng: random.Random) -> Shape:
    """Threads that draw tickets, arrive, peek and wait: lanes of a warp, or one of each warp."""
    threads = [_thread(rng, n, rng.random() < 0.6) for n in range(rng.choice((2, 2, 3)))]
    shape = Shape(tuple(threads), lanes=rng.random() < 0.75)
    if shape.lanes and rng.random() < 0.6:
        shape = replace(shape, threads=tuple(_met(rng, thread) for thread in threads))
    most = sum(
        isinstance(step, Arrive) or (isinstance(step, Guard) and isinstance(step.step, Arrive))
        for thread in threads for step in thread.steps
    )  # fmt: skip
    return replace(shape, counts=((_BARRIER, rng.randint(1, max(1, most))),))


def _met(rng: random.Random, thread: Thread) -> Thread:
    """With a bar.warp.sync somewhere before it waits."""
    waits = [n for n, step in enumerate(thread.steps) if isinstance(step, Wait)]
    at = rng.randint(0, waits[0] if waits else len(thread.steps))
    return replace(thread, steps=(*thread.steps[:at], Meet(), *thread.steps[at:]))


def _thread(rng: random.Random, number: int, produces: bool) -> Thread:
    """Mostly one that stores and then arrives, or one that asks and then stores."""
    steps: list[Step] = []
    sem: Any
    if produces:
        if rng.random() < 0.6:
            steps.append(Touch())
        arrival: Step = Arrive(_BARRIER)
        if rng.random() < 0.7:
            sem = rng.choice(("relaxed", "acq_rel", "acq_rel", "release"))
            steps.append(Swap("t", "x", 1, sem, rng.random() < 0.8))
            if rng.random() < 0.7:
                arrival = Guard("t", rng.choice((0, 1)), Arrive(_BARRIER))
            if rng.random() < 0.3:
                steps.append(Guard("t", rng.choice((0, 1)), Touch()))
        steps.append(arrival)
        if rng.random() < 0.1:
            steps.insert(rng.randrange(len(steps)), Fence(rng.choice(("sc", "acq_rel"))))
        return Thread(tuple(steps), () if rng.random() < 0.1 else None)
    if rng.random() < 0.4:
        sem = rng.choice(("relaxed", "acquire"))
        steps.append(Get("g", "x", sem))
    elif rng.random() < 0.2:
        steps.append(Set("x", 1, rng.choice(("relaxed", "release"))))
    got = tuple((step.into, rng.choice((0, 1))) for step in steps if isinstance(step, Get))
    if rng.random() < 0.6:
        steps.append(Peek("p", _BARRIER))
        got += (("p", 1 if rng.random() < 0.8 else 0),)
        if rng.random() < 0.2:
            steps.append(Guard("p", rng.choice((0, 1)), rng.choice((Touch(), Arrive(_BARRIER)))))
    else:
        steps.append(Wait(_BARRIER))
    if rng.random() < 0.3:
        sem = rng.choice(("relaxed", "acquire"))
        steps.append(Get("h", "x", sem))
        got += (("h", rng.choice((0, 1, 2))),)
    return Thread(tuple(steps), tuple(pair for pair in got if rng.random() < 0.7))
