"""`python -m tests.sim.weak_campaign --cases N --seed S`: weak memory against PTX's axioms.

Every case is a random small program of strong accesses (`tests.sim.weak_shapes`): store buffering,
load buffering, IRIW, messages and what lies between, with fences and scopes at random. All its
executions by the axioms are enumerated (`tests.sim.weak_reference`). Where one has a race, `check`
must not say `proved` or `exhausted`; where none has, it must find nothing. With ``--barriers`` the
threads also arrive, peek and wait at an mbarrier (`tests.sim.weak_barriers`).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from tests.sim import weak_barriers
from tests.sim import weak_shapes as shapes
from tests.sim.weak_reference import Reference
from tests.sim.weak_shapes import Fence, Get, Meet, Set, Shape, Step, Swap, Thread, translate
from tilesim.checker import check
from tilesim.errors import InvalidProgram

#: executions of a shape, by what its reads may find, that are enumerated at most
_CANDIDATES = 30_000
#: seeds that a process takes at a time
_BLOCK = 50
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


def small(shape: Shape) -> bool:
    """Whether its executions can be enumerated in little time."""
    return candidates(Reference(shape)) <= _CANDIDATES


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


def compare(
    seeds: Iterable[int], kind: Kind = "threads"
) -> tuple[Counter[tuple[str, bool]], list[str]]:
    """How often `check` says what of right and wrong programs, and the contradictions."""
    seen: Counter[tuple[str, bool]] = Counter()
    contradictions = []
    for seed in seeds:
        shape, wrong = _judged(random.Random(seed), kind)
        if wrong is None:
            seen["too large", False] += 1
            continue
        strict: Any = "ptx" if seed % 2 else "practice"
        try:
            verdict: str = check(translate(shape), strict=strict, schedules=_SCHEDULES).verdict
        except InvalidProgram:
            verdict = "rejected"
        seen[verdict, wrong] += 1
        if wrong == (verdict in ("proved", "exhausted")) and verdict != "bounded":
            contradictions.append(f"seed {seed}: {verdict}, wrong: {wrong}: {shape}")
    return seen, contradictions


def _judged(rng: random.Random, kind: Kind) -> tuple[Shape, bool | None]:
    """A program, and whether it is wrong; None without a reference, or if that takes long."""
    if kind == "barriers":
        shape = weak_barriers.barriers(rng)
        largest = sum(map(candidates, weak_barriers.references(shape)))
        if largest > _CANDIDATES or weak_barriers.overfull(shape):
            return shape, None
        return shape, weak_barriers.wrong(shape)
    shape = (lanes if kind == "lanes" else sample)(rng)
    return shape, Reference(shape).wrong() if small(shape) else None


def main(arguments: list[str] | None = None) -> int:
    """Runs a campaign; 1 if anything was contradicted."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.weak_campaign", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="programs to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--lanes", action="store_true", help="threads are lanes of one warp")
    kinds.add_argument("--barriers", action="store_true", help="lanes or warps with an mbarrier")
    options = parser.parse_args(arguments)
    kind: Kind = "lanes" if options.lanes else "barriers" if options.barriers else "threads"
    end = options.seed + options.cases
    blocks = [range(at, min(at + _BLOCK, end)) for at in range(options.seed, end, _BLOCK)]
    seen: Counter[tuple[str, bool]] = Counter()
    contradictions: list[str] = []
    start = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        for part, wrong in pool.map(partial(compare, kind=kind), blocks):
            seen += part
            contradictions += wrong
            print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    for (verdict, wrong_by_axioms), number in sorted(seen.items()):
        print(f"{verdict:12} {'wrong' if wrong_by_axioms else 'right':6} {number:7,}")
    rate = seen.total() / (time.monotonic() - start)
    print(f"{seen.total():,} programs, {rate:.1f} per second; {len(contradictions)} contradictions")
    return 1 if contradictions else 0


if __name__ == "__main__":
    raise SystemExit(main())
