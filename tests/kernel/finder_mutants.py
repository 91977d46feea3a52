"""Mutants of the code that finds proofs: whether the kernel certifies a wrong program under any.

    python -m benchmarks.finder_mutants collect corpus -m "not slow" tests/litmus tests/kernels ...
    python -m tests.kernel.finder_mutants run corpus [--mutants 300] [--seed 0] [--jobs 2]

A mutant is one change of a syntax tree of the code that finds proofs and proposes certificates, of
none that the kernel trusts. Under each, programs of the corpus that fail are checked once more, in
an order that the mutant's number draws, as many as its time allows. Whatever the changed code says
of them, the kernel gets each with the certificate that the changed code makes; of a kernel in PTX
its plain form. The command prints of how many a proof was claimed, and what the kernel says of all
and of these; one that is certified ends it with 1. First the programs are tried without a change.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import click

from benchmarks.finder_mutants.__main__ import PARTS, modules
from benchmarks.finder_mutants.corpus import SUFFIX, Check, PtxSource, read
from benchmarks.finder_mutants.mutate import Finder, Mutant, drawn, mutants
from tests.kernel.test_contract import DEFINITIONS, PLAIN_DEFINITIONS, SHARED, of_plain

#: what proposes certificates, which nothing trusts either
PROPOSES = (
    "tilesim.checker.certificates", "tilesim.analysis.cfg", "tilesim.analysis.solver",
    "tilesim.analysis.ssa", "tilesim.analysis.taint", "tilesim.analysis.uses_defs",
)  # fmt: skip
#: seconds of a processor for a program, and bytes of memory for all of a mutant
PATIENCE, MEMORY = 6.0, 6 << 30
#: seconds that the kernel may take for a program
BRIEF = 4.0


class Slow(BaseException):
    """A program takes longer than it may."""


@dataclass(frozen=True)
class Tried:
    """A program under a mutant: whether it was said to be proved, and what the kernel says."""

    program: str
    proved: bool
    kernel: str


def untrusted() -> dict[str, list[str]]:
    """What is mutated, by part: modules that a proof which is rechecked does not rest on."""
    trusted = of_plain() | DEFINITIONS | PLAIN_DEFINITIONS
    found = {part: modules(part) for part in PARTS} | {"certificates": [*PROPOSES]}
    return {
        part: [m for m in some if m not in trusted and not SHARED.fullmatch(m)]
        for part, some in found.items()
    }


def form_of(check: Check) -> tuple[Any, str]:
    """What the kernel is given of a check, a kernel in PTX in its plain form; and the level."""
    program, strict = check.program, check.arguments.get("strict", "practice")
    if isinstance(program, PtxSource):
        module = import_module("tilesim.ptx.parser").read(program.text, program.file)
        (entry,) = (e for e in module.entries if e.name == program.entry)
        return import_module("tilesim.ptx.plain").plain(module, entry, program.launch), strict
    return (program.build() if hasattr(program, "build") else program), strict


def tried(path: Path) -> Tried:
    """What is said of a program now; "error" in place of what the kernel says: it has none."""
    certified = import_module("tilesim.checker.certificates").certified
    check = read(path)
    proved, kernel = False, "error"
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        proved = check.again().is_claim
        form, strict = form_of(check)
        until = time.monotonic() + BRIEF
        simulate = import_module("tilesim.sim.machine.simulate")
        given = check.arguments.get("inputs") or {}
        inputs = simulate.check_inputs(simulate.kernel_of(form), given)
        kernel = certified(form, strict, (), until, inputs)[1].verdict
    except (Slow, Exception) as why:
        kernel = "time" if isinstance(why, Slow) else "error"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Tried(path.stem, proved, kernel)


def fails(path: Path) -> bool:
    """Whether a check has found a fault, of the launch as it is given."""
    check = read(path)
    return check.result.verdict.startswith("failed") and not check.arguments.get("for_all")


@click.group()
def main() -> None:
    """Mutants of what finds proofs, and the proof kernel."""


@main.command(hidden=True)
@click.argument("module")
@click.argument("number", type=int)
def one(module: str, number: int) -> None:
    """Tries the programs that standard input names under a mutant; prints what is said of each."""
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_slow)
    if module:
        Finder.install(mutants(module)[number])
    end = time.monotonic() + asked["limit"]
    for name in asked["programs"]:
        if time.monotonic() > end:
            break
        said = tried(Path(name))
        print(json.dumps([said.program, said.proved, said.kernel]), flush=True)


def under(mutant: Mutant | None, programs: Sequence[Path], limit: float, seed: int) -> list[Tried]:
    """What is said of programs under a mutant, or none, in a process of its own."""
    order = [str(path) for path in Random(seed).sample(programs, len(programs))]
    which = ("", "0") if mutant is None else (mutant.module, str(mutant.number))
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.finder_mutants", "one", *which],
        input=json.dumps({"programs": order, "limit": limit}), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return [Tried(*json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


@main.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--mutants", "count", default=300, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--limit", default=30.0, show_default=True, help="Seconds for a mutant.")
@click.option("--part", "parts", multiple=True, help="Only mutants of these parts.")
def run(
    corpus: Path, count: int, seed: int, jobs: int, limit: float, parts: tuple[str, ...]
) -> None:
    """Draws mutants, and says what the kernel makes of programs that fail under them."""
    programs = [path for path in sorted(corpus.glob(f"*{SUFFIX}")) if fails(path)]
    wanted = {part: some for part, some in untrusted().items() if not parts or part in parts}
    each = -(-count // len(wanted))
    every = [one for some in wanted.values() for one in drawn(some, each, seed)]
    every = Random(seed).sample(every, len(every))
    with ThreadPoolExecutor(jobs) as pool:
        plain = [pool.submit(under, None, programs[n::jobs], limit, seed) for n in range(jobs)]
        right = {t.program for f in plain for t in f.result() if t.kernel == "certified"}
        for name in sorted(right):
            print(f"CERTIFIED without a change: {name}", flush=True)
        left = [path for path in programs if path.stem not in right]
        print(f"{len(left)} programs that fail, {len(every)} mutants", flush=True)
        futures = {pool.submit(under, m, left, limit, n): m for n, m in enumerate(every)}
        said, proved, without, wrong = Counter[str](), Counter[str](), 0, len(right)
        claiming = 0
        for future in as_completed(futures):
            found, mutant = future.result(), futures[future]
            without += not found
            said.update(t.kernel for t in found)
            proved.update(t.kernel for t in found if t.proved)
            claiming += any(t.proved for t in found)
            for t in found:
                if t.kernel == "certified":
                    wrong += 1
                    print(f"CERTIFIED {t.program} under {mutant}", flush=True)
    print(f"{without} mutants end with an error before any program, {claiming} prove some")
    for what, counted in (("all", said), ("proved", proved)):
        row = ", ".join(f"{kernel} {n}" for kernel, n in counted.most_common())
        print(f"{what}: {counted.total()} programs: {row}")
    sys.exit(bool(wrong))


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow


if __name__ == "__main__":
    main()
