"""Random programs whose warps store to one place in no order: a certified one stores equal data.

    python -m tests.kernel.random_equal_stores [--cases 500] [--seed 1] [--seconds 100]

All warps execute the same steps: loads of a tensor and of shared memory, arithmetic, exchanges,
with guards and a loop, and at the end stores that nothing orders (H23). A small interpreter
executes them with random numbers: where such stores leave different numbers at a place, the program
is wrong. The command ends with 1 if one of these is certified.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tilesim import Builder, pred, u32
from tilesim.ir.expr import Const, Expr, Var, as_expr
from tilesim.ir.ops.compute import Data, Exchange
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

WARPS, LANES, REGISTERS, WORDS = 2, 32, 3, 128
#: what steps do; some do so more often
KINDS = ("load", "load", "find", "find", "store", "store", "make", "make", "add", "exchange")
#: inputs by which it is tried whether stores are equal
TRIES = 3


@dataclass(frozen=True)
class At:
    """A number that a thread computes: multiples of its lane (``cluster``: by which cluster it is),
    its warp, the iteration."""

    lane: int
    warp: int
    cluster: int
    iteration: int
    first: int

    def built(self, k: Builder, iteration: Expr) -> Expr:
        """The expression."""
        found = as_expr(self.first) + self.lane * k.lane_id + self.warp * k.warp_id
        return (found + self.cluster * k.cta_x * k.lane_id + self.iteration * iteration) % WORDS

    def number(self, cluster: int, warp: int, lane: int, iteration: int) -> int:
        """What it is."""
        found = self.first + self.lane * lane + self.warp * warp
        return (found + self.cluster * cluster * lane + self.iteration * iteration) % WORDS


@dataclass(frozen=True)
class Do:
    """One step: what it does, to which register, of which others, where; ``lanes``: the first ones
    that execute it; ``one_warp``: in each iteration another one does."""

    what: str
    to: int
    of: tuple[int, int]
    at: At
    lanes: int
    one_warp: bool

    def guard(self, k: Builder, iteration: Expr) -> Expr:
        """Whether a thread executes it."""
        return (k.lane_id < self.lanes) & (k.warp_id.eq(iteration) | int(not self.one_warp))

    def by(self, warp: int, lane: int, iteration: int) -> bool:
        """The same."""
        return lane < self.lanes and (warp == iteration or not self.one_warp)


@dataclass(frozen=True)
class Drawn:
    """A program: steps, how often they are repeated, where it stores which register at the end."""

    steps: tuple[Do, ...]
    iterations: int
    clusters: int
    to: At

    def built(self) -> Builder:
        """The program."""
        k = Builder("equal")
        k.launch(warps=WARPS, grid=self.clusters)
        g, w, s = k.tensor("g", u32, (WORDS,)), *(k.shared(n, u32, (WORDS,)) for n in "ws")
        r = [k.var(f"r{n}", dtype=u32) for n in range(REGISTERS)]
        inside, seen = k.var("inside", dtype=pred), k.var("seen", dtype=u32)
        for part in range(WORDS // LANES // WARPS):
            k.mem.store(w[k.thread_id + part * LANES * WARPS], 7)
        for register in r:
            k.mem.load(register, g[0])
        k.sync_threads()
        with k.loop(self.iterations) as iteration:
            for do in self.steps:
                with k.if_(do.guard(k, iteration)):
                    _build(k, do, r, (g, w, inside), iteration)
                k.sync_threads()
        k.mem.store(s[self.to.built(k, as_expr(0))], r[0])
        k.sync_threads()
        k.mem.load(seen, s[self.to.built(k, as_expr(0))])
        return k

    def equal(self, choose: random.Random) -> bool:
        """Whether stores to one place leave one number, of some numbers in the tensor."""
        g = [choose.randrange(1 << 32) for _ in range(WORDS)]
        return all(self._equal(g, cluster) for cluster in range(self.clusters))

    def _equal(self, g: Sequence[int], cluster: int) -> bool:
        threads = [(warp, lane) for warp in range(WARPS) for lane in range(LANES)]
        r = {thread: [g[0]] * REGISTERS for thread in threads}
        w = [7] * WORDS
        for iteration in range(self.iterations):
            for do in self.steps:
                some = [t for t in threads if do.by(*t, iteration)]
                _execute(do, some, r, g, w, cluster, iteration)
        left: dict[int, set[int]] = {}
        for thread in threads:
            left.setdefault(self.to.number(cluster, *thread, 0), set()).add(r[thread][0])
        return all(len(numbers) == 1 for numbers in left.values())


def _build(k: Builder, do: Do, r: Sequence[Var], places: Any, iteration: Expr) -> None:
    g, w, inside = places
    a, b = r[do.of[0]], r[do.of[1]]
    match do.what:
        case "load":
            k.mem.load(r[do.to], g[do.at.built(k, iteration)])
        case "find":
            k.mem.load(r[do.to], w[do.at.built(k, iteration)])
        case "store":
            with k.if_((k.lane_id.eq(0)) & k.warp_id.eq(0)):
                k.mem.store(w[do.at.built(k, iteration)], a)
        case "make":
            k.emit(Data(opcode="fma.rn.f32", results=(r[do.to],), sources=(a, b)))
        case "add":
            k.assign(r[do.to], a + do.at.built(k, iteration))
        case "exchange":
            lane = do.at.built(k, iteration) & 31
            k.emit(Exchange(result=r[do.to], inside=inside, value=a, mode="bfly", clamp=Const(31),
                            lane=lane, mask=Const(0xFFFFFFFF)))  # fmt: skip


def _execute(
    do: Do, threads: Sequence[tuple[int, int]], r: dict[tuple[int, int], list[int]],
    g: Sequence[int], w: list[int], cluster: int, iteration: int,
) -> None:  # fmt: skip
    before = {thread: list(row) for thread, row in r.items()}
    for t in threads:
        at, (a, b) = do.at.number(cluster, *t, iteration), (before[t][n] for n in do.of)
        match do.what:
            case "load":
                r[t][do.to] = g[at]
            case "find":
                r[t][do.to] = w[at]
            case "store" if t == (0, 0):
                w[at] = a
            case "make":
                r[t][do.to] = hash((a, b)) % (1 << 32)
            case "add":
                r[t][do.to] = (a + at) % (1 << 32)
            case "exchange":
                r[t][do.to] = before[t[0], t[1] ^ at & 31][do.of[0]]


def drawn(choose: random.Random) -> Drawn:
    """A program, of which most store what is equal in many lanes."""

    def at() -> At:
        lane, warp, cluster, iteration = (int(choose.random() < p) for p in (0.5, 0.15, 0.2, 0.3))
        return At(lane, warp * choose.choice((1, 32)), cluster, iteration, choose.randrange(3))

    steps = []
    for _ in range(1 + choose.randrange(6)):
        what = choose.choice(KINDS)
        lanes = LANES if what == "exchange" else choose.choice((16, LANES, LANES, LANES))
        of = choose.randrange(REGISTERS), choose.randrange(REGISTERS)
        one_warp = choose.random() < 0.3
        steps.append(Do(what, choose.randrange(REGISTERS), of, at(), lanes, one_warp))
    to = At(int(choose.random() < 0.7), 0, 0, 0, 0)
    return Drawn(tuple(steps), 1 + choose.randrange(2), 1 + choose.randrange(2), to)


def judged(number: int) -> Judged:
    """What the kernel says of a program, and whether its stores are equal."""
    choose = random.Random(number)
    one = drawn(choose)
    answer = certify(lower(one.built().finish()), [range(one.clusters)])
    equal = all(one.equal(choose) for _ in range(TRIES))
    return compared(answer, "right" if equal else "wrong")


@command
def main() -> Judge:
    """Compare what the kernel says of stores to one place with what they leave."""
    return judged


if __name__ == "__main__":
    main()
