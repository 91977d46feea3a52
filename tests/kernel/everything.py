"""Everything that the tests check, once more through the proof kernel, and what it says beside it.

    python -m benchmarks.finder_mutants collect corpus -m "not slow" tests/litmus tests/kernels ...
    python -m tests.kernel.everything corpus [--jobs 2] [--limit 20]

A program of which a check says `failed` and the kernel says *certified* is a defect of one of the
two, and the command ends with 1. One that is proved and that the kernel refutes is one as well, and
is listed; one that it does not cover is counted by what it lacks.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.finder_mutants.corpus import SUFFIX, Check, PtxSource, read
from tilesim.ir.kernel import Kernel
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.search.certificates import classes_of

#: arguments of a check that do not change what is asked: how long it looks, and where
_SAME = frozenset({"budget", "schedules", "time_limit", "seed", "witness", "policy"})


@dataclass(frozen=True)
class Row:
    """What a check says of a program, what the kernel says, and the kernel's seconds."""

    name: str
    program: str
    verdict: str
    rules: tuple[str, ...]
    answer: Answer
    seconds: float


class _Late(BaseException):
    """The time is over."""


def machine_program(check: Check) -> Mir | None:
    """What the check has run, in machine form; None: more than one launch, or another level."""
    asked = {name: value for name, value in check.arguments.items() if name not in _SAME}
    if asked.pop("strict", "practice") != "practice" or asked:
        return None
    program: Any = check.program
    if isinstance(program, PtxSource):
        return program.program()
    if isinstance(program, Kernel):
        program = program.build()
    if isinstance(program, Program):
        verify(program)
        return lower(program)
    return program if isinstance(program, Mir) else None


def judged(path: Path, limit: float) -> Row | None:
    """What the kernel says of the program of a check, within so many seconds."""
    check = read(path)
    try:
        mir = machine_program(check)
    except Exception:  # it is refused before anything runs
        return None
    if mir is None:
        return None

    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    start = time.perf_counter()
    try:
        clusters = mir.kernel.ctas // mir.kernel.cluster_size
        answer = certify(mir, classes_of(mir) if clusters > 1 else None)
    except _Late:
        answer = Answer("not covered", what="time")
    except Exception as error:  # a crash is what is looked for
        answer = Answer("not covered", "crash", f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.perf_counter() - start
    result = check.result
    return Row(path.stem, mir.kernel.name, result.verdict, result.rules, answer, seconds)


def kind(text: str) -> str:
    """A reason without its numbers and names."""
    text = re.sub(r"instruction \d+ \(([^)]*)\) of warp \d+ of CTA \d+", r"\1", text)
    return re.sub(r"\d+", "N", text)[:60]


@click.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--jobs", default=2, show_default=True)
@click.option("--limit", default=20.0, show_default=True, help="Seconds for a program.")
@click.option("--list", "listed", default=40, show_default=True, help="Refuted proofs to list.")
def main(corpus: Path, jobs: int, limit: float, listed: int) -> None:
    """Compares what the kernel says with what checks said."""
    paths = sorted(corpus.glob(f"*{SUFFIX}"))
    with ProcessPoolExecutor(jobs) as pool:
        rows = [r for r in pool.map(partial(judged, limit=limit), paths, chunksize=4) if r]
    table = Counter((r.verdict.split(",")[0], r.answer.verdict) for r in rows)
    for (verdict, answer), n in sorted(table.items()):
        print(f"{n:6} {verdict:12} {answer}")
    wrong = [r for r in rows if r.verdict == "failed" and r.answer.verdict == "certified"]
    refuted = [r for r in rows if r.verdict.startswith("proved") and r.answer.verdict == "refuted"]
    crashed = [r for r in rows if r.answer.rule == "crash"]
    for title, some in (("CERTIFIED", wrong), ("refuted", refuted), ("crash", crashed)):
        for r in some[:listed]:
            print(f"{title}: {r.name} {r.program} {r.verdict} {','.join(r.rules)}: {r.answer}")
    missed = [r for r in rows if r.verdict.startswith("proved")]
    lacks = Counter(kind(r.answer.what) for r in missed if r.answer.verdict == "not covered")
    for what, n in lacks.most_common(30):
        print(f"{n:6} {what}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
