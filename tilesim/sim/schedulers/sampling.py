"""Schedules by chance: directed at failed conditions, and random ones, here or in processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.parallel import DIES, NotData, packed, processes, unpacked, work
from tilesim.records import dataclass
from tilesim.sim.machine.errors import TOO_LONG
from tilesim.sim.machine.result import Violation
from tilesim.sim.machine.schedule import Chooser, DirectedChooser, PctChooser, RandomChooser
from tilesim.sim.machine.simulate import Run, Simulation

#: makes the chooser of one cluster
Schedule = Callable[[int], Chooser]
#: schedules tried for each failed condition, and conditions tried
_PER_VIOLATION = 8
_VIOLATIONS = 6
#: where schedules do not differ in what is open, those that are run at least, and the warp
#: instructions of all of them, if they are more; each lane that acts apart executes one
_LEAST, _EFFORT = 4, 10_000
#: scheduling points after which a schedule by chance is cut off that goes on and on, and times the
#: instructions of the timed run, if that ends and this is more
_POINTS, _TIMES = 200_000, 20
#: schedules that a worker process runs at a time
_BATCH = 8


def directed(violations: list[Violation], schedules: int, seed: int) -> Iterator[Schedule]:
    """Schedules built to make failed conditions show (DETERMINACY theorem 2)."""
    plans = ((a, d) for a in range(_PER_VIOLATION) for d in violations[:_VIOLATIONS])
    for attempt, violation in islice(plans, schedules):
        yield partial(_directed, violation, attempt, seed)


def _directed(violation: Violation, attempt: int, seed: int, cluster: int) -> Chooser:
    early = violation.condition in ("A", "C1", "N", "I")
    if attempt % 4 == 3:
        early = not early
    number = seed * 1_000_003 + attempt * 97 + cluster
    # what may still come when a barrier is over
    late = violation.other if violation.condition == "I" and early else None
    return DirectedChooser(
        violation.past, violation.warp.index, early=early, seed=number, late=late
    )


def worthwhile(schedules: int, first: Run, violations: list[Violation]) -> int:
    """How many of so many random schedules are run after the timed one: all of them, unless what
    is left open is nothing that they decide.

    A number that is not known, an order that no move of the machine shows: others may still fail
    by something else, in what the timed one did not come to; but they cost as much as it did.
    """
    told = any(o.nondeterminism and o.explorable for o in first.outcomes)
    if told or violations:
        return schedules
    cost = first.stats.instructions + first.stats.by_parts
    return min(schedules, max(_LEAST, _EFFORT // max(cost, 1)))


def longest(first: Run) -> int:
    """After how many scheduling points schedules by chance are cut off, which may never end where
    the timed one does: a warp that looks at a clock may have come too late."""
    if _endless(first):
        return _POINTS
    return max(_POINTS, _TIMES * first.stats.instructions)


def _endless(first: Run) -> bool:
    """Whether the timed run was cut off as it went on and on, mostly in tries for what never comes:
    its instructions say nothing of how long others have to be."""
    return any(outcome.cut_off == TOO_LONG for outcome in first.outcomes)


def sampled(attempt: int, seed: int) -> Schedule:
    """The ``attempt``-th of the random and PCT schedules, which alternate."""
    return partial(_sampled, attempt, seed)


def _sampled(attempt: int, seed: int, cluster: int) -> Chooser:
    number = seed * 1_000_003 + attempt * 4099 + cluster
    if attempt % 2 == 0:
        return RandomChooser(number)
    return PctChooser(number, gives_up=attempt % 4 == 3)


# ------------------------------------------------------------------ in several processes


@dataclass(frozen=True)
class Batch:
    """Some of the random schedules; ``what`` is the pickled simulation to run (see `_opened`)."""

    what: bytes
    seed: int
    attempts: range


@dataclass
class Sampled:
    """What worker processes have found: schedules run, the first that fails, an interrupt, and
    whether the deadline came first."""

    done: int = 0
    late: bool = False
    failing: int | None = None
    interrupted: bool = False


def first_failing(
    simulation: Simulation,
    inputs: Mapping[str, NDArray[Any]],
    clusters: list[int],
    *,
    schedules: int,
    seed: int,
    jobs: int,
    progress: Callable[[int], None],
) -> Sampled:
    """Looks for the first failing one of ``schedules`` random schedules with ``jobs`` processes.

    The result does not depend on ``jobs``, unless the user interrupts. ``progress`` is called with
    the number of schedules done.

    Raises:
        UsageError: the worker processes die.
        NotData: no other process can be sent the program: its instructions, or values in it, are of
            classes that the user's file defines.
    """
    strict = "ptx" if simulation.options.ptx else "practice"
    options = simulation.options
    limits = options.deadline, options.max_steps
    what = packed("the program", (simulation.code.mir, strict, dict(inputs), clusters, limits))
    result = Sampled()

    def batches() -> Iterator[Batch]:
        for first in range(0, schedules, _BATCH):
            if result.failing is not None or result.late:
                return
            yield Batch(what, seed, range(first, min(first + _BATCH, schedules)))

    def add(ran: tuple[int, int | None, bool]) -> None:
        done, failing, late = ran
        result.done += done
        result.late |= late
        if failing is not None and (result.failing is None or failing < result.failing):
            result.failing = failing
        progress(result.done)

    result.interrupted = not work(
        run_batch, batches(), processes(jobs), workers=jobs, lost=_lost, on_result=add
    )
    return result


def run_batch(batch: Batch) -> tuple[int, int | None, bool]:
    """Runs schedules until one fails: how many were run, which one failed, and whether the deadline
    came first."""
    simulation, inputs, clusters = _opened(batch.what)
    for done, attempt in enumerate(batch.attempts):
        try:
            run = simulation.run(inputs, sampled(attempt, batch.seed), clusters)
        except KeyboardInterrupt:  # of the clock, during a run or before its machine is there
            return done, None, True
        if run.findings:
            return done + 1, attempt, False
    return len(batch.attempts), None, False


@lru_cache(maxsize=1)
def _opened(what: bytes) -> tuple[Simulation, dict[str, NDArray[Any]], list[int]]:
    """What a worker runs, compiled once. Only its own parent process writes ``what``."""
    program, strict, inputs, clusters, (deadline, steps) = unpacked("the program", what)
    simulation = Simulation(program, numbers=False, strict=strict)
    simulation.set_options(deadline=deadline)
    simulation.set_options(max_steps=steps)
    return simulation, inputs, clusters


def _lost(_batch: Batch, reason: str) -> tuple[int, int | None, bool]:
    if reason != DIES:
        raise NotData(reason)
    raise UsageError(
        "the processes that run schedules die; a script that calls check(jobs=...) must do so "
        "under if __name__ == '__main__'"
    )
