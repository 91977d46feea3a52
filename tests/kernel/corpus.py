"""All programs that the tests check: what the proof kernel says beside what the check said.

    python -m benchmarks.finder_mutants collect corpus -m "not slow" tests/litmus tests/kernels ...
    python -m tests.kernel.corpus corpus [--jobs 2] [--limit 20]
    python -m tests.kernel.corpus --gallery [--strict ptx]

The second one takes the gallery (`tilesim.kernels.registry`), which it checks itself. A program
of which a check says `failed` and the kernel says *certified* is a defect of one of the two, and
the command ends with 1. One that is proved and that the kernel refutes is one as well; these and
crashes are printed as they come. One that it does not cover is counted by what it lacks.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.finder_mutants.corpus import SUFFIX, Check, PtxSource, read
from tests.verdicts.row import said
from tests.verdicts.tables import summary
from tilesim.checker import check as checked
from tilesim.checker.certificates import certified
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ir.verify import verify
from tilesim.kernels.outcome import inputs_of
from tilesim.kernels.registry import cases
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower

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

    @property
    def proved(self) -> bool:
        """Whether the check proves it."""
        return self.verdict.startswith("proved")

    @property
    def title(self) -> str:
        """What is to be looked at; "" if the two agree, or the kernel does not cover it."""
        if self.answer.rule == "crash":
            return "crash"
        if self.verdict == "failed" and self.answer.verdict == "certified":
            return "CERTIFIED"
        return "refuted" if self.proved and self.answer.verdict == "refuted" else ""


class _Late(BaseException):
    """The time is over."""


def machine_program(check: Check) -> Mir | None:
    """What the check has run, in machine form; None: more than one launch, or another level."""
    asked = {name: value for name, value in check.arguments.items() if name not in _SAME}
    asked.pop("inputs", None)
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
    answer, seconds = answered(mir, limit, inputs=check.arguments.get("inputs"))
    result = check.result
    return Row(path.stem, mir.kernel.name, result.verdict, result.rules, answer, seconds)


def judged_case(number: int, limit: float, strict: Strict) -> Row | None:
    """What a check and the kernel say of a row of the gallery at a level; None: it is refused
    before both, or is about the level ptx only."""
    case = cases()[number]
    if strict == "practice" and case.strict != strict:
        return None
    try:
        program = case.build()
        inputs = inputs_of(case)
        report = checked(program, inputs=inputs, strict=strict)
    except InvalidProgram:
        return None
    answer, seconds = answered(lower(program), limit, strict, inputs)
    name = case.target.removeprefix("tilesim.kernels.")
    return Row(name, program.name, report.verdict, tuple(report.rules), answer, seconds)


def answered(
    mir: Mir, limit: float, strict: Strict = "practice", inputs: Mapping[str, Any] | None = None
) -> tuple[Answer, float]:
    """What the kernel says within so many seconds, with what tensors hold, and how many it took."""

    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    start = time.perf_counter()
    try:
        answer = certified(mir, strict, (), None, inputs)[1]
    except _Late:
        answer = Answer("not covered", what="time")
    except Exception as error:  # a crash is what is looked for
        answer = Answer("not covered", "crash", f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return answer, time.perf_counter() - start


def judged_so_far(rows: Iterable[Row | None], *, every: bool) -> Iterator[Row]:
    """The rows, each printed as it comes, ``every`` one or those that are to be looked at."""
    for row in rows:
        if row is None:
            continue
        if every or row.title:
            said = " ".join((row.name, row.program, row.verdict, ",".join(row.rules)))
            print(f"{row.title or 'row'}: {said}: {row.answer} ({row.seconds:.2f} s)", flush=True)
        yield row


@click.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--gallery", is_flag=True, help="Instead of a corpus: the gallery, row by row.")
@click.option("--strict", type=click.Choice(["practice", "ptx"]), default="practice")
@click.option("--jobs", default=2, show_default=True)
@click.option("--limit", default=20.0, show_default=True, help="Seconds for a program.")
@click.option("--part", default="0/1", show_default=True, help="I/N: every Nth program, from I on.")
def main(
    corpus: Path | None, gallery: bool, strict: Strict, jobs: int, limit: float, part: str
) -> None:
    """Compares what the kernel says with what checks said."""
    if (corpus is None) != gallery:
        raise click.UsageError("name a corpus, or --gallery")
    judge: Any = partial(judged, limit=limit)
    if gallery:
        judge = partial(judged_case, limit=limit, strict=strict)
    programs: list[Any] = sorted(corpus.glob(f"*{SUFFIX}")) if corpus else [*range(len(cases()))]
    first, step = map(int, part.split("/"))
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(judge, programs[first::step])
        rows = list(judged_so_far(found, every=gallery))
    print("\n".join(summary((r.verdict.split(",")[0], said(r.answer)) for r in rows)))
    sys.exit(any(row.title == "CERTIFIED" for row in rows))


if __name__ == "__main__":
    main()
