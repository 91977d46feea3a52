"""`python -m tests.sim.weak_campaign --cases N --seed S`: weak memory against PTX's axioms.

Every case is a random small program of strong accesses (`tests.sim.weak_shapes`): store buffering,
load buffering, IRIW, messages and what lies between, with fences and scopes at random. All its
executions by the axioms are enumerated (`tests.sim.weak_reference`). Where one has a race, `check`
must not say `proved` or `exhausted`; where none has, it must find nothing. With ``--barriers`` the
threads also arrive, peek and wait at an mbarrier (`tests.sim.weak_barriers`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import click

from tests.campaign import Judge, Judged, command
from tests.sim import weak_barriers
from tests.sim import weak_shapes as shapes
from tests.sim.weak_reference import Reference
from tests.sim.weak_shapes import Fence, Get, Meet, Set, Shape, Step, Swap, Thread, translate
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.program import Strict

#: executions of a shape, by what its reads may find, that are enumerated at most
_CANDIDATES = 30_000
#: the threads: warps or CTAs; lanes; lanes or warps with an mbarrier
Kind = Literal["threads", "lanes", "barriers"]
#: random schedules of a case, beside those that are explored
_SCHEDULES = 8


#: the classical shapes, each with a fence between the accesses of each thread
_CLASSICAL: tuple[Callable[[Fence | None], Shape], ...] = (
    shapes.store_buffering, shapes.store_buffering, shapes.exchanges, shapes.load_buffering,
    shapes.independent_reads, shapes.chain, shapes.stores_and_loads, shapes.reads_and_writes,
    shapes.write_to_read,
)  # fmt: skip


def sample(rng: random.Random) -> Shape:
    """A classical shape with something changed, or anything."""
    return _blind(rng) if rng.random() < 0.3 else _classical(rng)


def lanes(rng: random.Random) -> Shape:
    """The same by lanes of one warp, which may wait for each other somewhere."""
    shape = sample(rng)
    shape = replace(shape, grid=False, lanes=True)
    if rng.random() < 0.5:
        return shape

    def met(thread: Thread) -> Thread:
        at = rng.randrange(len(thread.steps) + 1)
        return replace(thread, steps=(*thread.steps[:at], Meet(), *thread.steps[at:]))

    return replace(shape, threads=tuple(map(met, shape.threads)))


def _classical(rng: random.Random) -> Shape:
    """A shape with fences, of which some are left out or become others, and orders at random."""
    shape = rng.choice(_CLASSICAL)(Fence(rng.choice(("sc", "sc", "acq_rel"))))
    shape = replace(shape, grid=rng.random() < 0.3)
    strong, loses, scope = rng.choice((0.0, 0.5, 1.0)), rng.choice((0.0, 0.2, 1.0)), _scope(shape)

    def change(step: Step) -> Step | None:
        if isinstance(step, Fence):
            if rng.random() < loses:
                return None
            return Fence("acq_rel" if rng.random() < 0.15 else step.sem, scope(rng))
        ordered = rng.random() < strong
        if isinstance(step, Get):
            return replace(step, sem="acquire" if ordered else "relaxed", scope=scope(rng))
        if isinstance(step, Set):
            return replace(step, sem="release" if ordered else "relaxed", scope=scope(rng))
        if isinstance(step, Swap):
            return replace(step, sem="acq_rel" if ordered else "relaxed", scope=scope(rng))
        return step

    def changed(thread: Thread) -> Thread:
        return replace(thread, steps=tuple(filter(None, map(change, thread.steps))))

    return replace(shape, threads=tuple(map(changed, shape.threads)))


def _scope(shape: Shape) -> Callable[[random.Random], Any]:
    """Draws scopes: in a grid seldom one that is too narrow."""
    narrow = 0.03 if shape.grid else 0.4
    return lambda rng: "cta" if rng.random() < narrow else rng.choice(("gpu", "sys"))


def _blind(rng: random.Random) -> Shape:
    """Two or three threads with two or three words, of which two or more are used by several."""
    threads = rng.choice((2, 2, 2, 3))
    words = "xyz"[: rng.choice((2, 2, 3))]
    grid = rng.random() < 0.3
    draw = _scope(Shape((), grid))
    scope: Callable[[], Any] = partial(draw, rng)
    strong = rng.random()

    def fence() -> Fence:
        return Fence(rng.choice(("acq_rel", "sc", "sc")), scope())

    def step(n: int) -> Step:
        word = rng.choice(words)
        kind = rng.random()
        if kind < 0.45:
            sem: Any = "acquire" if rng.random() < strong else "relaxed"
            return Get(f"r{n}", word, sem, scope())
        if kind < 0.9:
            sem = "release" if rng.random() < strong else "relaxed"
            return Set(word, rng.choice((1, 1, 2)), sem, scope())
        sem = "acq_rel" if rng.random() < strong else "relaxed"
        return Swap(f"r{n}", word, rng.choice((1, 2)), sem, rng.random() < 0.5, scope())

    fences = rng.choice((0.0, 0.5, 1.0))
    bodies = []
    for _ in range(threads):
        steps: list[Step] = []
        for n in range(rng.choice((1, 2, 2, 2, 3) if threads > 2 else (2, 2, 3))):
            if steps and rng.random() < fences:
                steps.append(fence())
            steps.append(step(n))
        found = [s.into for s in steps if isinstance(s, Get | Swap)]
        compared = tuple((into, rng.choice((0, 0, 1, 1, 2))) for into in found)
        bodies.append(Thread(tuple(steps), compared if found or rng.random() < 0.1 else None))
    return Shape(tuple(bodies), grid)


def candidates(reference: Reference) -> int:
    """How many there are, by what reads may find, and orders."""
    found = 1
    for read in reference.reads:
        found *= len(reference.writes[read.word])
    for writes in reference.writes.values():
        for n in range(1, len(writes)):
            found *= n
    fences = sum(isinstance(e.step, Fence) and e.step.sem == "sc" for e in reference.events)
    for n in range(1, fences + 1):
        found *= n
    return found


def judged(number: int, kind: Kind = "threads") -> Judged:
    """Compares on a program, at one of the two levels: what `check` says, and what is so."""
    shape = shape_of(random.Random(number), kind)
    wrong = wrong_by_axioms(shape, kind)
    if wrong is None:
        return Judged("too large")
    strict: Strict = "ptx" if number % 2 else "practice"
    try:
        verdict: str = check(translate(shape), strict=strict, schedules=_SCHEDULES).verdict
    except InvalidProgram:
        verdict = "rejected"
    said = f"{verdict}, {'wrong' if wrong else 'right'}"
    contradicts = verdict != "bounded" and wrong == (verdict in ("proved", "exhausted"))
    return Judged(said, f"{strict}: {shape}" if contradicts else "")


def shape_of(rng: random.Random, kind: Kind) -> Shape:
    """A random program of a kind."""
    draws = {"threads": sample, "lanes": lanes, "barriers": weak_barriers.barriers}
    return draws[kind](rng)


def wrong_by_axioms(shape: Shape, kind: Kind) -> bool | None:
    """Whether a program is wrong; None without a reference, or if that takes long."""
    if kind != "barriers":
        reference = Reference(shape)
        return reference.wrong() if candidates(reference) <= _CANDIDATES else None
    largest = sum(map(candidates, weak_barriers.references(shape)))
    if largest > _CANDIDATES or weak_barriers.overfull(shape):
        return None
    return weak_barriers.wrong(shape)


@command
@click.option("--lanes", "kind", flag_value="lanes", help="Threads are lanes of one warp.")
@click.option("--barriers", "kind", flag_value="barriers", help="They have an mbarrier.")
def main(kind: Kind | None) -> Judge:
    """Compare `check` with PTX's axioms on random programs of strong accesses."""
    return partial(judged, kind=kind or "threads")


if __name__ == "__main__":
    main()
