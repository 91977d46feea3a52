"""Mutants of the proof kernel: whether its own tests tell each of them from the kernel.

    python -m tests.kernel.mutants [--mutants 300] [--seed 0] [--jobs 2] [--seconds 600]

A mutant is one change of a syntax tree of `tilesim/proof`. Each is tried, in a process of its own,
by the pairs of `tests.kernel.programs`, by some random programs, and by litmus programs, of which
the kernel has to say what it says without the change; what none of them tells apart, by the tests
of certificates if they are about its module. The command prints what share of the mutants is told
apart, by module, and the others.
"""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import click

from benchmarks.finder_mutants.mutate import Finder, Mutant, drawn
from tests.kernel.programs import Classes
from tests.kernel.programs_ptx import PAIRS
from tests.kernel.test_litmus import PROGRAMS, SAID
from tests.litmus.table import STRICTNESS
from tests.sim.code_lanes import IllFormed
from tests.sim.generate import FAMILIES, sample
from tests.sim.small import translate
from tilesim.errors import InvalidProgram
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.ir.verify import verify
from tilesim.proof.check import certify

#: random programs that the kernel is tried on
RANDOM = 150
#: modules that the tests of certificates are about
CERTIFICATES = ("tilesim.proof.certificate", "tilesim.proof.check")
#: seconds that the kernel takes at most for a program that is no pair
BRIEF = 0.1
#: seconds that a program may take, beside thirty times what it takes without a change
PATIENCE = 3.0
#: bytes of memory for a mutant
MEMORY = 4 << 30
_TESTS = """
import sys, pytest
from benchmarks.finder_mutants.mutate import Finder, Mutant
Finder.install(Mutant(sys.argv[1], int(sys.argv[2]), 0, ""))
sys.exit(pytest.main(["-qx", "-p", "no:cacheprovider", "tests/kernel/test_certificate.py"]))
"""


@dataclass(frozen=True)
class Tried:
    """A launch, and what the kernel says of it in so many seconds; ``by``: what it comes from."""

    by: str
    mir: Mir
    classes: Classes | None
    strict: Strict
    verdict: str
    rule: str
    seconds: float


class Slow(BaseException):
    """A program takes much longer than without the change."""


def _launches() -> Iterator[tuple[str, Mir, Classes | None, Strict]]:
    for pair in PAIRS:
        for right in (False, True):
            yield "pairs", pair.mir(right=right), pair.classes[right], pair.strict
    for number in range(RANDOM):
        family = FAMILIES[number % len(FAMILIES)]
        try:
            program = translate(sample(random.Random(number).randrange, family)[1])
            verify(program)
            yield "random programs", lower(program), None, "practice"
        except (IllFormed, InvalidProgram):
            continue
    for row in PROGRAMS:
        for strict in STRICTNESS:
            if row.id in SAID[strict]:
                yield "litmus programs", lower(row.build()), None, strict


def launches() -> list[Tried]:
    """What mutants are tried on: pairs first, of each kind the fast ones first."""
    found = []
    for by, mir, classes, strict in _launches():
        begin = time.perf_counter()
        answer = certify(mir, classes, strict=strict)
        seconds = time.perf_counter() - begin
        if by == "pairs" or seconds < BRIEF:
            found.append(Tried(by, mir, classes, strict, answer.verdict, answer.rule, seconds))
    return sorted(found, key=lambda one: (one.by != "pairs", one.seconds))


LAUNCHES: list[Tried] = []


def judged(mutant: Mutant) -> tuple[Mutant, str]:
    """What tells a mutant from the kernel; "" if nothing does. For a forked process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_slow)
    for name in [name for name in sys.modules if f"{name}.".startswith("tilesim.proof.")]:
        del sys.modules[name]
    Finder.install(mutant)
    by = "import"
    try:
        from tilesim.proof.check import certify as changed

        for one in LAUNCHES:
            by = one.by
            signal.setitimer(signal.ITIMER_PROF, PATIENCE + 30 * one.seconds)
            answer = changed(one.mir, one.classes, strict=one.strict)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if (answer.verdict, answer.rule) != (one.verdict, one.rule):
                return mutant, by
    except (Slow, Exception):
        return mutant, by
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if mutant.module in CERTIFICATES:
        command = [sys.executable, "-c", _TESTS, mutant.module, str(mutant.number)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return mutant, "tests of certificates"
    return mutant, ""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow


def modules() -> list[str]:
    """Those of the proof kernel."""
    return [
        f"tilesim.proof.{path.stem}" for path in sorted(Path("tilesim/proof").glob("[a-z]*.py"))
    ]


@click.command()
@click.option("--mutants", "count", default=300, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--seconds", default=1e9, help="Stop after so long.")
@click.option("--only", default="", help="Mutants of this module only.")
def main(count: int, seed: int, jobs: int, seconds: float, only: str) -> None:
    """Tries mutants of the proof kernel by its own tests."""
    some = [m for m in modules() if m.endswith(only)]
    every = drawn(some, count, seed)
    end = time.monotonic() + seconds
    LAUNCHES.extend(launches())
    tried: Counter[str] = Counter()
    by: Counter[str] = Counter()
    alive = []
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for mutant, why in pool.imap_unordered(judged, every):
            tried[mutant.module] += 1
            by[why] += 1
            if not why:
                alive.append(mutant)
                print(f"ALIVE {mutant}", flush=True)
            if time.monotonic() > end:
                break
    left = Counter(mutant.module for mutant in alive)
    for module, n in sorted(tried.items()):
        print(f"{n - left[module]:5} of {n:4} {module}")
    for why, n in by.most_common():
        print(f"{n:5} by {why or 'nothing'}")
    share = 1 - len(alive) / max(tried.total(), 1)
    print(f"{share:.1%} of {tried.total()} mutants (seed {seed}) are told from the kernel")


if __name__ == "__main__":
    main()
