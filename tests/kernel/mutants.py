"""Mutants of the proof kernel: how many of them its own tests kill.

    python -m tests.kernel.mutants [--mutants 300] [--seed 0] [--jobs 2] [--seconds 600]
    python -m tests.kernel.mutants --again FILE

A mutant is one change of a syntax tree of `tilesim/proof`. Each is tried, in a process of its own,
by the programs of the tests: pairs, programs with repetitions and claims of them, those that are
not covered, random ones, and litmus programs. A mutant that says something else of one than the
kernel is killed. One that none of them kills is tried by the other tests of the kernel. The command
prints what share of the mutants is killed, by module, and the others. With ``--again`` it tries the
mutants that an earlier output names as alive. Those of `harmless.json`, of which reading the code
says that they change no answer, are not counted.
"""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import click

from benchmarks.finder_mutants.mutate import Finder, Mutant, drawn, file_of, mutants
from tests.kernel.pairs import PAIRS
from tests.kernel.programs import Classes
from tests.kernel.programs_repetitions import REPEATED
from tests.kernel.test_litmus import PROGRAMS, SAID
from tests.kernel.test_not_covered import PROGRAMS as NOT_COVERED
from tests.litmus.table import STRICTNESS
from tests.sim.code_lanes import IllFormed
from tests.sim.generate import FAMILIES, sample
from tests.sim.small import translate
from tilesim import Builder
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.ir.verify import verify
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower

#: `tilesim.proof.check.certify`, of the kernel or a mutant
Certify: TypeAlias = "Callable[..., Answer]"
#: random programs that the kernel is tried on
RANDOM = 150
#: by module, and by line and change, why a mutant changes no answer
HARMLESS = Path(__file__).with_name("harmless.json")
#: seconds that the kernel takes at most for a program that is no pair
BRIEF = 0.1
#: seconds that a program may take, beside thirty times what it takes without a change
PATIENCE = 3.0
#: bytes of memory for a mutant
MEMORY = 4 << 30
_TESTS = """
import sys, pytest
from benchmarks.finder_mutants.mutate import Finder, Mutant
if sys.argv[1]:
    Finder.install(Mutant(sys.argv[1], int(sys.argv[2]), 0, ""))
slow = "tests/kernel/test_limits.py::test_classes_are_found_by_few_executions"
names = ("many", "written", "certificate", "repetitions", "limits", "not_covered", "elections")
files = [f"tests/kernel/test_{name}.py" for name in names]
sys.exit(pytest.main(["-qx", "-p", "no:cacheprovider", "--deselect", slow, *files]))
"""


@dataclass(frozen=True)
class Launch:
    """A launch, and a certificate of it; ``by``: what it comes from."""

    by: str
    mir: Mir
    classes: Classes | None = None
    left_out: Sequence[Sequence[Repetition]] | None = None
    strict: Strict = "practice"

    def judged(self, certify: Certify) -> tuple[str, str]:
        """The verdict and the rule of the kernel, or of a mutant of it."""
        answer = certify(self.mir, self.classes, self.left_out, strict=self.strict)
        return answer.verdict, answer.rule


@dataclass(frozen=True)
class Tried:
    """A launch of which the kernel says this in so many seconds."""

    launch: Launch
    says: tuple[str, str]
    seconds: float


class Slow(BaseException):
    """A program takes much longer than without the change."""


def _launches() -> Iterator[Launch]:
    for pair in PAIRS:
        for right in (False, True):
            mir, classes = pair.mir(right=right), pair.classes[right]
            yield Launch("pairs", mir, classes, strict=pair.strict)
            if pair.strict == "ptx":
                yield Launch("pairs", mir, classes)
    for one in REPEATED:
        for right in (False, True):
            mir = one.mir(right=right)
            for claim in one.claims:
                yield Launch("repetitions", mir, None, ((claim,),), one.strict)
    for program in (program for some in NOT_COVERED.values() for program in some):
        for covered in (False, True):
            program(k := Builder(program.__name__), covered)
            yield Launch("what is not covered", lower(k.finish()))
    for number in range(RANDOM):
        family = FAMILIES[number % len(FAMILIES)]
        try:
            random_program = translate(sample(random.Random(number).randrange, family)[1])
            verify(random_program)
            yield Launch("random programs", lower(random_program))
        except (IllFormed, InvalidProgram):
            continue
    for row in PROGRAMS:
        for strict in STRICTNESS:
            if row.id in SAID[strict]:
                yield Launch("litmus programs", lower(row.build()), strict=strict)


def launches() -> list[Tried]:
    """What mutants are tried on: pairs first, of each kind the fast ones first."""
    found = []
    for one in _launches():
        begin = time.perf_counter()
        says = one.judged(certify)
        seconds = time.perf_counter() - begin
        if one.by == "pairs" or seconds < BRIEF:
            found.append(Tried(one, says, seconds))
    return sorted(found, key=lambda one: (one.launch.by != "pairs", one.seconds))


LAUNCHES: list[Tried] = []


def judged(mutant: Mutant) -> tuple[Mutant, str]:
    """What kills a mutant; "" if nothing does. For a forked process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_slow)
    for name in [name for name in sys.modules if f"{name}.".startswith("tilesim.proof.")]:
        del sys.modules[name]
    Finder.install(mutant)
    by = "import"
    try:
        from tilesim.proof.check import certify as changed

        for one in LAUNCHES:
            by = one.launch.by
            signal.setitimer(signal.ITIMER_PROF, PATIENCE + 30 * one.seconds)
            says = one.launch.judged(changed)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if says != one.says:
                return mutant, by
    except (Slow, Exception):
        return mutant, by
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return mutant, "" if _passes_tests(mutant.module, mutant.number) else "other tests"


def _passes_tests(module: str = "", number: int = 0) -> bool:
    """Whether the other tests of the kernel find nothing, of a mutant or the kernel itself."""
    command = [sys.executable, "-c", _TESTS, module, str(number)]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow


def harmless(mutant: Mutant) -> bool:
    """Whether reading says that a mutant changes no answer; lengths that `zip` compares are equal
    by construction."""
    line = file_of(mutant.module).read_text().splitlines()[mutant.line - 1].strip()
    known = json.loads(HARMLESS.read_text()).get(mutant.module, {})
    zips = "strict=True" in line and mutant.says == "True -> False"
    return zips or f"{line}: {mutant.says}" in known


def again(text: str) -> list[Mutant]:
    """The mutants that an output names as alive, of those that there still are: where a change is
    made at several places, those in the nearest line."""
    found: dict[Mutant, None] = {}
    for module, line, says in re.findall(r"^ALIVE (\S+):(\d+): (.*)$", text, re.MULTILINE):
        same = [mutant for mutant in mutants(module) if mutant.says == says]
        place = min((one.line for one in same), key=lambda n: abs(n - int(line)), default=0)
        found |= {mutant: None for mutant in same if mutant.line == place}
    return list(found)


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
@click.option("--again", "earlier", type=click.Path(exists=True, path_type=Path),
              help="An output, whose mutants that are alive are tried.")  # fmt: skip
def main(count: int, seed: int, jobs: int, seconds: float, only: str, earlier: Path | None) -> None:
    """Tries mutants of the proof kernel by its own tests."""
    end = time.monotonic() + seconds
    some = [m for m in modules() if m.endswith(only)]
    every = drawn(some, count, seed) if earlier is None else again(earlier.read_text())
    every = [one for one in every if one.module in some]
    known = [one for one in every if harmless(one)]
    every = [one for one in every if one not in known]
    if not _passes_tests():
        raise click.ClickException("without a change, the tests of the kernel fail")
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
            print(f"{tried.total()} of {len(every)}", end="\r", file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    left = Counter(mutant.module for mutant in alive)
    for module, n in sorted(tried.items()):
        print(f"{n - left[module]:5} of {n:4} {module}")
    for why, n in by.most_common():
        print(f"{n:5} by {why or 'nothing'}")
    share = 1 - len(alive) / max(tried.total(), 1)
    print(f"{len(known)} are harmless by reading")
    print(f"{share:.1%} of {tried.total()} others (seed {seed}) are killed")


if __name__ == "__main__":
    main()
