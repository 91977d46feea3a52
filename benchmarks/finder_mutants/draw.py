"""Programs that are drawn, beside those of the tests: there are some for each part that is mutated.

Each source makes a program of a number and checks it, while `collect` looks on. What `check` says
of it as tilesim is counts as the truth: `tests.sim.campaign` and its neighbours compare that with
references.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from functools import cache
from types import FrameType
from typing import Any

from benchmarks.finder_mutants import collect  # first: it stands in for what the others import
from benchmarks.finder_mutants.judge import Slow
from tests.ptx import data_campaign
from tests.ptx.campaign import back
from tests.sim import steady_campaign
from tests.sim.forall_clusters import clusters
from tests.sim.forall_pipelines import pipeline
from tests.sim.forall_places import places
from tests.sim.forall_programs import RandomProgram, rings
from tests.sim.forall_wrong import Wrong, all_wrong
from tests.sim.generate import MIXTURE, sample
from tests.sim.small import translate
from tilesim.checker import check
from tilesim.errors import TilesimError
from tilesim.gpu.emit import emit
from tilesim.ir.program import Program
from tilesim.kernels.registry import Case, cases
from tilesim.mistakes.table import mutants

#: seconds of a processor for one program
PATIENCE = 8.0
#: what a check of a drawn program may cost
BRIEF: Mapping[str, Any] = {"schedules": 16, "budget": 5_000}


def _both(program: Program, number: int) -> None:
    """Checks a program; every second one as PTX."""
    check(back(emit(program)) if number % 2 else program, **BRIEF)


def families(number: int) -> None:
    """A program of the campaign's families."""
    _, small = sample(random.Random(number).randrange, MIXTURE[number // 2 % len(MIXTURE)])
    _both(translate(small), number)


def repetitions(number: int) -> None:
    """A loop with many turns."""
    program = steady_campaign.program(random.Random(number))
    if program is not None:
        _both(program, number)


@cache
def _rows() -> tuple[Case, ...]:
    return tuple(case for case in cases() if not case.fails)


def gallery(number: int) -> None:
    """A kernel of the gallery with a fault."""
    oracle = random.Random(number)
    every = list(mutants(oracle.choice(_rows()).build()))
    if every:
        _both(oracle.choice(every).program, number)


def parameters(number: int) -> None:
    """A program for all values of a parameter."""
    make = (rings, pipeline, clusters, places)[number % 4]
    fixed = {"m": (1, 2, 3, 5)[number // 4 % 4]} if make in (clusters, places) else {}
    check(RandomProgram(number, make), for_all={"n": None}, params=fixed, schedules=0)


@cache
def _wrong() -> tuple[Wrong, ...]:
    return tuple(all_wrong())


def wrong_values(number: int) -> None:
    """A program that is wrong for one value of its parameter."""
    check(_wrong()[number % len(_wrong())].build, for_all={"n": None}, schedules=0)


def data(number: int) -> None:
    """A kernel that branches on data that is not known."""
    data_campaign.verdict(data_campaign.kernel(number), ctas=number % 2 + 1)


#: what is drawn, and the share of it
SOURCES: Mapping[Callable[[int], None], int] = {
    families: 5, repetitions: 4, gallery: 4, parameters: 4, wrong_values: 1, data: 2,
}  # fmt: skip


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow


def draw(number: int) -> None:
    """Checks the program of a number; one that is refused, or takes too long, is left out."""
    sources = [source for source, share in SOURCES.items() for _ in range(share)]
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        sources[number % len(sources)](number // len(sources))
    except (TilesimError, ValueError, AssertionError, Slow):
        return
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        collect.pytest_runtest_teardown(None)
