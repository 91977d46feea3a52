"""Random programs with elections: what is certified at `ptx` is certified for each choice of lanes.

    python -m tests.kernel.random_elections [--seconds 60] [--seed 1]

Two warps hand words over by mbarriers. Around that, elected lanes, lanes named by their numbers
and all lanes access memory, fence, and commit and wait for bulk groups, with warp barriers here and
there. Each program is certified at `ptx`, and executed with some lanes as if these were named by
their numbers and not elected. The command ends with 1 if one is certified and refused for such a
choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tests.litmus.notation import begin, global_words, words
from tilesim import Builder
from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.proof.check import certify
from tilesim.proof.effects import EXECUTORS, Executor
from tilesim.proof.machine import Execution
from tilesim.proof.operands import LANES
from tilesim.transforms.lower import lower

#: choices that are tried for a program
CHOICES = 4


class Program:
    """A random program of two warps."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._k = k = Builder(f"p{seed}")
        k.launch(warps=2)
        self._x, self._y = words(k, "x", LANES), words(k, "y", 8)
        self._out, self._seen = global_words(k, "out", 8), k.var("seen")
        arrivals = [self._draw.choice(["elected"] * 3 + ["lane", "all"]) for _ in range(4)]
        bars = [k.mbarriers(f"b{i}") for i in range(self._draw.randint(1, 4))]
        counts = [LANES if how == "all" else 1 for how in arrivals]
        begin(k, *zip(bars, counts, strict=False), zero=[self._x, self._y])
        for n, (bar, how) in enumerate(zip(bars, arrivals, strict=False)):
            with k.role(f"from {n}", n % 2):
                self._some(3)
                self._maybe_sync()
                with self._lanes(how):
                    self._maybe(partial(self._act, alone=how != "all"))
                    k.mbarrier.arrive(bar, sem=self._draw.choice(["release", "relaxed"]))
                self._maybe(partial(self._some, 1))
            with k.role(f"to {n}", 1 - n % 2):
                with self._lanes(self._draw.choice(["all", "all", "elected", "lane"])):
                    k.mbarrier.wait(bar, 0, sem=self._draw.choice(["acquire", "relaxed"]))
                self._maybe_sync()
                self._some(2)

    def mir(self) -> Mir:
        """In machine form."""
        return lower(self._k.finish())

    def _maybe(self, act: Callable[[], object]) -> None:
        if self._draw.random() < 0.3:
            act()

    def _maybe_sync(self) -> None:
        if self._draw.random() < 0.5:
            self._k.sync_warp()

    @contextmanager
    def _lanes(self, how: str) -> Iterator[None]:
        if how == "all":
            yield
            return
        k, sync, lane = self._k, self._draw.random() < 0.5, self._draw.choice([0, 0, 3])
        with k.elected(sync=sync) if how == "elected" else k.if_(k.lane_id.eq(lane), sync=sync):
            yield

    def _some(self, most: int) -> None:
        for _ in range(self._draw.randint(0, most)):
            how = self._draw.choice(["elected", "elected", "lane", "all", "meet"])
            if how == "meet":
                self._k.sync_warp()
                continue
            with self._lanes(how):
                for _ in range(self._draw.randint(1, 2)):
                    self._act(alone=how != "all")

    def _act(self, *, alone: bool) -> None:
        k, own = self._k, self._draw.randrange(3)
        acts: list[Callable[[], object]] = [
            lambda: k.mem.load(self._seen, self._y[own]),
            lambda: k.mem.load(self._seen, self._x[own if alone else k.lane_id]),
            *[lambda: k.mem.store(self._y[own] if alone else self._x[k.lane_id], 1)] * 3,
            k.fence.proxy_async,
            lambda: k.fence.memory("acq_rel", "cta"),
            k.bulk.commit_group,
            lambda: k.bulk.wait_group(0),
        ]
        if alone:
            acts += [lambda: k.bulk.store(self._out, self._y), k.bulk.commit_group]
            acts += [
                lambda: k.sync_warp(1),
                lambda: k.mem.shuffle(self._seen, self._seen, 0, mask=1),
            ]
        self._draw.choice(acts)()


def chooses(draw: random.Random) -> Executor:
    """What executes elections of a run: each warp's lane is random, and named by its number."""
    lanes: dict[tuple[int, int], int] = {}

    def elects(x: Execution, e: fx.Elects) -> None:
        lane = lanes.setdefault((x.warp.rank, x.warp.number), draw.randrange(LANES))
        x.answers[id(e)] = [int(i == lane) for i in range(LANES)]

    return elects


def each_certified(mir: Mir, draw: random.Random, choices: int = CHOICES) -> bool:
    """Whether a program is certified for all of some choices."""
    known = EXECUTORS[fx.Elects]
    try:
        for _ in range(choices):
            EXECUTORS[fx.Elects] = chooses(draw)
            if certify(mir, strict="ptx").verdict != "certified":
                return False
    finally:
        EXECUTORS[fx.Elects] = known
    return True


def judged(number: int) -> Judged:
    """What the kernel says of a program at once, and of each choice."""
    mir = Program(number).mir()
    right = each_certified(mir, random.Random(number))
    return compared(certify(mir, strict="ptx"), "right" if right else "wrong")


@command
def main() -> Judge:
    """Compare what is certified at once with what is certified for each choice."""
    return judged


if __name__ == "__main__":
    main()
