"""``tilesim check``: check kernels on every schedule, or as many as needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import dumps
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import click
from numpy.typing import NDArray

from tilesim.checker import DEFAULT_BUDGET, MAX_SCHEDULES, Report, Stats, check
from tilesim.cli.group import internal_failure
from tilesim.cli.options import (
    Decorator,
    Progress,
    param_option,
    seed_option,
    strict_option,
    style_for,
    write_file,
)
from tilesim.errors import InvalidProgram, NoKernelError, TilesimError, UsageError
from tilesim.ir.program import Program
from tilesim.loader import Target, load
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
from tilesim.sim.timeline import Recording, record
from tilesim.witness import Witness, replay, retrace
from tilesim.witness import load as load_witness

#: what `tilesim.checker.check` gives as a reason when it was interrupted while exploring
_INTERRUPTED_REASON = "interrupted by the user"
MAX_BUDGET = 10**12

Examine = Callable[[Target], Checked]


@dataclass
class _Session:
    """The kernels named on the command line, and what became of them so far."""

    ctx: click.Context
    examine: Examine
    progress: Progress
    on_result: Callable[[Result], None]
    skip_empty: bool = False
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
            return list(load(text, params))
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
        return isinstance(result, Checked) and _INTERRUPTED_REASON in result.report.reasons

    def _add(self, result: Result) -> None:
        self.progress.clear()
        self.results.append(result)
        self.on_result(result)


def _file_option(name: str, text: str) -> Decorator:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(f"--{name}", metavar="FILE", type=kind, help=text)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", *ci.FORMATS]), default="text",
    show_default=True, help="How to report.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report to a file instead of stdout.",
)  # fmt: skip
@_file_option("html", "Also write a page with diagrams and timelines to a file.")
@_file_option("sarif", "Also write SARIF to a file.")
@_file_option("junit", "Also write JUnit XML to a file.")
@strict_option
@click.option(
    "--schedules", type=click.IntRange(0, MAX_SCHEDULES), default=64, show_default=True,
    help="Further schedules to try where one run proves nothing.",
)  # fmt: skip
@click.option(
    "--budget", type=click.IntRange(0, MAX_BUDGET), default=DEFAULT_BUDGET, show_default=True,
    help="Warp instructions to execute at most when exploring all schedules.",
)  # fmt: skip
@seed_option
@click.option(
    "--accept", type=click.Choice(["bounded"]),
    help="Exit 0 also for kernels that are not proved but failed on no schedule tried.",
)  # fmt: skip
@param_option
@click.option(
    "--skip-empty", is_flag=True, help="Pass over files without kernels (for pre-commit).",
)  # fmt: skip
@click.option(
    "--witness-dir", type=click.Path(file_okay=False, path_type=Path),
    help="Write the failing schedule of each failed kernel into this folder.",
)  # fmt: skip
@click.option(
    "--replay", "witness_path", type=click.Path(dir_okay=False, path_type=Path),
    help="Repeat the schedule of a witness instead of checking.",
)  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    output_format: str,
    output: Path | None,
    html: Path | None,
    sarif: Path | None,
    junit: Path | None,
    strict: Literal["ptx", "practice"],
    schedules: int,
    budget: int,
    seed: int,
    accept: Accept,
    params: dict[str, str],
    skip_empty: bool,
    witness_dir: Path | None,
    witness_path: Path | None,
) -> None:
    """Check kernels for deadlocks, races and misuse of barriers.

    Exit: 0 every kernel proved or exhausted, 1 findings, 2 usage or input error, 3 inconclusive
    or unsupported, 130 interrupted; the worst of several.
    """
    progress = Progress()
    pictures = html is not None
    if witness_path is not None:
        examine = _replayer(witness_path, seed, pictures)
    else:

        def examine(target: Target) -> Checked:
            return _examine(
                target, strict, schedules, budget, seed, witness_dir, progress, pictures
            )

    stream = output_format == "text" and output is None
    style = style_for(sys.stdout) if output is None else text_report.PLAIN
    shown = iter(range(sys.maxsize))

    def show(result: Result) -> None:
        if stream:
            gap = "\n" if next(shown) else ""
            click.echo(gap + text_report.result_text(result, style), nl=False, color=style.colour)

    session = _Session(ctx, examine, progress, show, skip_empty)
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


def _examine(
    target: Target,
    strict: Literal["ptx", "practice"],
    schedules: int,
    budget: int,
    seed: int,
    witness_dir: Path | None,
    progress: Progress,
    pictures: bool,
) -> Checked:
    program = target.build()
    own = _own_inputs(target, program, seed)
    report = check(
        program,
        strict=strict,
        schedules=schedules,
        budget=budget,
        seed=seed,
        inputs=own,
        progress=lambda done: progress.show(f"checking {target.id}: {done} schedules"),
    )
    progress.show(f"reporting {target.id}")
    recording = _record(program, report.witness, own, strict, pictures)
    checked = Checked(target.id, program.target.name, report, "", program, recording)
    if witness_dir is None or report.witness is None:
        return checked
    path = witness_dir / f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', target.id).strip('_')}.json"
    write_file(path, dumps(report.witness, indent=2) + "\n")
    again = f"tilesim check {quote(target.id)} --replay {quote(str(path))}"
    return replace(checked, replay=again + (f" --seed {seed}" if seed else ""))


def _record(
    program: Program,
    witness: Mapping[str, Any] | None,
    inputs: dict[str, NDArray[Any]] | None,
    strict: Literal["ptx", "practice"],
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
        program = target.build()
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
        report = Report(program.name, verdict, covers, run.findings, reasons, None, stats)
        return Checked(target.id, program.target.name, report, "", program, recording)

    return examine


def _own_inputs(target: Target, program: Program, seed: int) -> dict[str, NDArray[Any]] | None:
    """The inputs that the kernel itself supplies, because its control flow depends on them."""
    own = target.kernel is not None and target.kernel.inputs is not None
    return target.inputs(program, seed) if own else None


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
    if output is not None:
        write_file(output, document)
    else:
        click.echo(document, nl=False)


def _closing(session: _Session) -> Iterator[str]:
    if len(session.results) > 1:
        yield "\n" + text_report.summary(session.results)


def _say_interrupted(session: _Session) -> None:
    left = session.not_started
    rest = f"; {left} kernel{'' if left == 1 else 's'} not started" if left else ""
    click.echo(f"interrupted while checking {session.interrupted_at}{rest}", err=True)
