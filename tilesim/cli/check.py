"""``tilesim check``: check kernels on every schedule, or as many as needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from json import dumps
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import click
from numpy.typing import NDArray

from tilesim.checker import INTERRUPTED as INTERRUPTED_REASON
from tilesim.checker import MAX_SCHEDULES, Report, Stats, check
from tilesim.cli.group import internal_failure
from tilesim.cli.options import (
    FILE,
    FOLDER,
    Decorator,
    Progress,
    budget_option,
    deliver,
    output_option,
    param_option,
    schedules_option,
    seed_option,
    strict_option,
    style_for,
    time_limit_option,
    write_file,
)
from tilesim.cli.ptx import is_ptx, load_ptx
from tilesim.cli.resume import Unfinished
from tilesim.cli.smallest import changed, in_words, smallest
from tilesim.errors import InvalidProgram, NoKernelError, TilesimError, UsageError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.loader import Target, load
from tilesim.parallel import MAX_JOBS
from tilesim.report import ci
from tilesim.report import html as page
from tilesim.report import json as json_report
from tilesim.report import text as text_report
from tilesim.report.result import (
    INTERRUPTED,
    Accept,
    Checked,
    Failure,
    Rejected,
    Result,
    exit_code,
)
from tilesim.sim.record import Recording, record
from tilesim.sim.simulate import kernel_of
from tilesim.witness import Witness, replay, retrace
from tilesim.witness import load as load_witness
from tilesim.words import count

Examine = Callable[[Target], Checked]


@dataclass
class _Session:
    """The kernels named on the command line, and what became of them so far."""

    ctx: click.Context
    examine: Examine
    progress: Progress
    on_result: Callable[[Result], None]
    skip_empty: bool = False
    launch: Path | None = None
    results: list[Result] = field(default_factory=list)
    interrupted_at: str | None = None
    not_started: int = 0

    def check_all(self, texts: tuple[str, ...], params: dict[str, str]) -> None:
        """Checks everything; a bad target does not hide the others, an interrupt stops."""
        todo = list(texts)
        current = ""
        waiting: list[Target] = []
        try:
            while todo:
                current = todo.pop(0)
                waiting = self._load(current, params)
                while waiting:
                    target = waiting.pop(0)
                    current = target.id
                    if self._check(target):
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.interrupted_at = current
            self.not_started = len(waiting) + len(todo)

    def _load(self, text: str, params: dict[str, str]) -> list[Target]:
        try:
            if not is_ptx(text):
                return list(load(text, params))
            found = load_ptx(text, self.launch)
            if isinstance(found, Target):
                return [found]
            self._add(found)
        except InvalidProgram as error:
            self._add(Rejected(text, None, error.diagnostics))
        except TilesimError as error:
            if not (self.skip_empty and isinstance(error, NoKernelError)):
                self._add(Failure(text, str(error)))
        return []

    def _check(self, target: Target) -> bool:
        """Checks one kernel; True if the user interrupted the search for failing schedules."""
        self.progress.show(f"checking {target.id}")
        try:
            result: Result = self.examine(target)
        except InvalidProgram as error:
            arch = target.kernel.target if target.kernel else None
            result = Rejected(target.id, arch, error.diagnostics)
        except TilesimError as error:
            result = Failure(target.id, str(error))
        except Exception as error:
            result = internal_failure(self.ctx, target.id, error)
        self._add(result)
        return isinstance(result, Checked) and INTERRUPTED_REASON in result.report.reasons

    def _add(self, result: Result) -> None:
        self.progress.clear()
        self.results.append(result)
        self.on_result(result)


def _file_option(name: str, text: str) -> Decorator:
    return click.option(f"--{name}", metavar="FILE", type=FILE, help=text)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", *ci.FORMATS]), default="text",
    show_default=True, help="How to report.",
)  # fmt: skip
@output_option
@_file_option("html", "Also write a page with diagrams and timelines to a file.")
@_file_option("sarif", "Also write SARIF to a file.")
@_file_option("junit", "Also write JUnit XML to a file.")
@strict_option
@schedules_option
@budget_option
@time_limit_option
@click.option(
    "--max-schedules", type=click.IntRange(0, MAX_SCHEDULES), default=MAX_SCHEDULES,
    show_default=True, help="Schedules to explore at most.",
)  # fmt: skip
@click.option(
    "--preemptions", type=click.IntRange(0, MAX_SCHEDULES), metavar="N",
    help="Explore only schedules in which an agent that could go on is left at most N times.",
)  # fmt: skip
@_file_option("resume", "Go on with the explorations left in a file; keep there what is left now.")
@click.option(
    "--jobs", type=click.IntRange(1, MAX_JOBS), default=1, show_default=True,
    help="Processes that run the random schedules.",
)  # fmt: skip
@seed_option
@click.option(
    "--accept", type=click.Choice(["bounded"]),
    help="Exit 0 also for kernels that are not proved but failed on no schedule tried.",
)  # fmt: skip
@param_option
@_file_option(
    "launch", "The launch description of a PTX kernel; the .json file beside it if not given."
)
@click.option(
    "--skip-empty", is_flag=True, help="Pass over files without kernels (for pre-commit).",
)  # fmt: skip
@click.option(
    "--shrink", is_flag=True,
    help="Report a failing kernel with the smallest parameters found that fail in the same way.",
)  # fmt: skip
@click.option(
    "--witness-dir", type=FOLDER,
    help="Write the failing schedule of each failed kernel into this folder.",
)  # fmt: skip
@click.option(
    "--replay", "witness_path", type=FILE,
    help="Repeat the schedule of a witness instead of checking.",
)  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    output_format: str,
    output: Path | None,
    html: Path | None,
    sarif: Path | None,
    junit: Path | None,
    accept: Accept,
    params: dict[str, str],
    skip_empty: bool,
    launch: Path | None,
    witness_path: Path | None,
    resume: Path | None,
    **search: Any,
) -> None:
    """Check kernels for deadlocks, races and misuse of barriers.

    Exit: 0 every kernel proved or exhausted, 1 findings, 2 usage or input error, 3 inconclusive
    or unsupported, 130 interrupted; the worst of several.
    """
    progress = Progress()
    pictures = html is not None
    if witness_path is not None:
        if resume is not None or search["shrink"]:
            raise UsageError("--replay repeats one schedule, without --resume and --shrink")
        examine = _replayer(witness_path, search["seed"], pictures)
    else:
        unfinished = None if resume is None else Unfinished(resume)
        examine = _Examination(progress, pictures, unfinished, **search)

    stream = output_format == "text" and output is None
    style = style_for(sys.stdout) if output is None else text_report.PLAIN
    shown = iter(range(sys.maxsize))

    def show(result: Result) -> None:
        if stream:
            gap = "\n" if next(shown) else ""
            click.echo(gap + text_report.result_text(result, style), nl=False, color=style.colour)

    session = _Session(ctx, examine, progress, show, skip_empty, launch)
    session.check_all(targets, params)
    progress.clear()
    _report(session, output_format, output, stream)
    for path, renderer in ((html, page.render), (sarif, ci.sarif.render), (junit, ci.junit.render)):
        if path is not None:
            write_file(path, renderer(session.results))
    if session.interrupted_at is not None:
        _say_interrupted(session)
        ctx.exit(INTERRUPTED)
    ctx.exit(exit_code(session.results, accept))


@dataclass(frozen=True)
class _Examination:
    """How kernels are checked: the command's options (see there)."""

    progress: Progress
    pictures: bool
    unfinished: Unfinished | None
    strict: Strict
    schedules: int
    budget: int | timedelta
    time_limit: timedelta | None
    max_schedules: int
    preemptions: int | None
    jobs: int
    seed: int
    shrink: bool
    witness_dir: Path | None

    def __call__(self, target: Target) -> Checked:
        """Checks one kernel, and with ``shrink`` a smaller one that fails in the same way."""
        report = self._check(target)
        if self.unfinished is not None:
            report = _keep(self.unfinished, target, report)
        if self.shrink and report.verdict == "failed":
            self.progress.show(f"shrinking {target.id}")
            target, report = self._smaller(target, report)
        return self._result(target, report)

    def _check(self, target: Target) -> Report:
        program = target.form()
        unfinished = self.unfinished
        try:
            return check(
                program,
                strict=self.strict,
                schedules=self.schedules,
                budget=self.budget,
                time_limit=self.time_limit,
                max_schedules=self.max_schedules,
                preemptions=self.preemptions,
                jobs=self.jobs,
                seed=self.seed,
                inputs=_own_inputs(target, program, self.seed),
                frontier=None if unfinished is None else unfinished.of(target.id),
                progress=lambda n: self.progress.show(f"checking {target.id}: {n} schedules"),
            )
        except UsageError as error:
            if unfinished is None or unfinished.of(target.id) is None:
                raise
            raise UsageError(f"{unfinished.path}: {error}") from error

    def _smaller(self, target: Target, report: Report) -> tuple[Target, Report]:
        """The kernel with the smallest parameters that fail by the same rule, and its report."""
        rule = report.findings[0].rule
        try:
            less = smallest(target, rule, self.strict, self.schedules, self.seed)
            params = changed(target, less)
            again = self._check(less) if params else report
        except KeyboardInterrupt:
            return target, replace(report, reasons=(INTERRUPTED_REASON, *report.reasons))
        if not params or again.witness is None or again.findings[0].rule != rule:
            return target, report
        witness = replace(Witness.from_dict(again.witness), params=params).to_dict()
        covers = f"{again.covers}; {in_words(target, params)}"
        return less, replace(again, covers=covers, witness=witness)

    def _result(self, target: Target, report: Report) -> Checked:
        """The report with what it shows of the failing schedule; its witness is written."""
        self.progress.show(f"reporting {target.id}")
        program = target.form()
        own = _own_inputs(target, program, self.seed)
        recording = _record(program, report.witness, own, self.strict, self.pictures)
        checked = _checked(target, program, report, recording)
        if self.witness_dir is None or report.witness is None:
            return checked
        name = re.sub(r"[^A-Za-z0-9.=-]+", "_", target.id).strip("_")
        path = self.witness_dir / f"{name}.json"
        write_file(path, dumps(report.witness, indent=2) + "\n")
        again = f"tilesim check {quote(target.id)} --replay {quote(str(path))}"
        return replace(checked, replay=again + (f" --seed {self.seed}" if self.seed else ""))


def _keep(unfinished: Unfinished, target: Target, report: Report) -> Report:
    """Saves what is left to explore, and says so."""
    unfinished.keep(target.id, report.frontier)
    if report.frontier is None:
        return report
    said = f"what is left to explore is in {unfinished.path}: the same command goes on with it"
    return replace(report, reasons=(*report.reasons, said))


def _record(
    program: Program | Mir,
    witness: Mapping[str, Any] | None,
    inputs: dict[str, NDArray[Any]] | None,
    strict: Strict,
    pictures: bool,
) -> Recording | None:
    """The failing schedule if it is a special one; with ``pictures`` any schedule."""
    if witness is not None and (pictures or witness["policy"] != "timed"):
        return retrace(program, witness, inputs)
    return record(program, inputs, strict=strict) if pictures else None


def _read_witness(path: Path) -> Witness:
    try:
        return load_witness(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _replayer(path: Path, seed: int, pictures: bool) -> Examine:
    witness = _read_witness(path)

    def examine(target: Target) -> Checked:
        wrong = {n: v for n, v in witness.params.items() if target.arguments.get(n) != v}
        if wrong:
            values = ",".join(f"{name}={value}" for name, value in wrong.items())
            raise UsageError(
                f"{path} is a witness of parameters that {target.id} has not: {values}"
            )
        program = target.form()
        own = _own_inputs(target, program, seed)
        try:
            run = replay(program, witness, own)
            recording = _record(program, witness.to_dict(), own, witness.strict, pictures)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        stats = Stats(run.stats.instructions, 1, run.stats.ctas)
        covers = f"the schedule of {path}; strictness {witness.strict}"
        reasons = () if run.findings else ("this schedule shows no finding (any more)",)
        verdict: Literal["failed", "bounded"] = "failed" if run.findings else "bounded"
        name = kernel_of(program).name
        report = Report(name, verdict, covers, run.findings, reasons, None, stats)
        return _checked(target, program, report, recording)

    return examine


def _checked(
    target: Target, program: Program | Mir, report: Report, recording: Recording | None
) -> Checked:
    """The result; only a program with a tree has a diagram."""
    tree = program if isinstance(program, Program) else None
    return Checked(target.id, kernel_of(program).target.name, report, "", tree, recording)


def _own_inputs(
    target: Target, program: Program | Mir, seed: int
) -> dict[str, NDArray[Any]] | None:
    """The inputs that the kernel itself supplies, because its control flow depends on them."""
    own = target.kernel is not None and target.kernel.inputs is not None
    return target.inputs(kernel_of(program), seed) if own else None


def _report(session: _Session, output_format: str, output: Path | None, stream: bool) -> None:
    if output_format == "json":
        interrupted = None
        if session.interrupted_at is not None:
            interrupted = {"kernel": session.interrupted_at, "not_started": session.not_started}
        document = json_report.render(session.results, interrupted)
    elif output_format in ci.FORMATS:
        document = ci.render(output_format, session.results)
    elif stream:
        document = "".join(_closing(session))
    else:
        document = text_report.render(session.results)
    deliver(document, output)


def _closing(session: _Session) -> Iterator[str]:
    if len(session.results) > 1:
        yield "\n" + text_report.summary(session.results)


def _say_interrupted(session: _Session) -> None:
    left = session.not_started
    rest = f"; {count(left, 'kernel')} not started" if left else ""
    click.echo(f"interrupted while checking {session.interrupted_at}{rest}", err=True)
