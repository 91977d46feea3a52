"""Random programs with launch control: what the proof kernel certifies is right in every execution.

    python -m tests.kernel.random_launch_control --cases 2000 [--seed 1] [--jobs 2] [--seconds 100]

All clusters of a program execute the same: they ask for others, by one warp or through a ring of
answers, with changes that are drawn. The exhaustive reference of the tests lets launch control
cancel, for any CTA that asks, any cluster that has not started, or none. The command ends with 1 if
a program that is certified is wrong there.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tests.sim import steps as s
from tests.sim.code_lanes import IllFormed
from tests.sim.generate import Choose
from tests.sim.grid_changes import changed_grid
from tests.sim.reference import TooLarge
from tests.sim.reference_grid import explore
from tests.sim.small_grid import translate_grid
from tests.sim.steps import Small, Step
from tilesim.errors import InvalidProgram
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower


def sample(choose: Choose) -> Small:
    """A program of which all clusters execute the same, changed up to twice."""
    clusters, n = 2 + choose(2), 1 + choose(2)
    work: tuple[Step, ...] = (s.Put(0, by=True), s.Get(choose(2), by=True))[: 1 + choose(2)]
    asks = (s.ArriveExpect(0, stages=n), s.Cancel(0, 0, n))
    reads = (s.Wait(0, 0, carried=True, stages=n), s.Query(0, n))
    if choose(2):
        alone = (*(asks if choose(2) else asks[::-1]), *reads, s.Leave(), *work)
        warps: tuple[tuple[Step, ...], ...] = ((s.Forever(alone),),)
        counts = (1,) * n
    else:
        empty = s.Wait(n, 1, carried=True, stages=n)
        worker = (*reads, s.Arrive(n, stages=n), s.Leave(), *work)
        warps = ((s.Forever((empty, *asks, *reads, s.Leave())),), (s.Forever(worker),))
        counts = (1,) * 2 * n
    one = Small(warps, counts, flags=1, family="grids", clusters=1)
    for _ in range(choose(3)):
        one = changed_grid(choose, one)
    return replace(one, clusters=clusters, warps=one.warps * clusters)


def judged(number: int) -> Judged:
    """What is said of one program."""
    try:
        small = sample(random.Random(number).randrange)
        program = translate_grid(small)
        verify(program)
        answer = certify(lower(program))
        if answer.verdict == "not covered":
            return compared(answer, "")
        return compared(answer, "right" if explore(small).clean else "wrong")
    except (IllFormed, InvalidProgram):
        return Judged("refused")
    except TooLarge:
        return Judged(f"{answer.verdict}, too large")


@command
def main() -> Judge:
    """Compare what the kernel says of random programs with an exhaustive reference."""
    return judged


if __name__ == "__main__":
    main()
