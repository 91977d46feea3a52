"""``tilesim check``: check kernels on every schedule, or as many as needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from tilesim.checker import INTERRUPTED as INTERRUPTED_REASON
from tilesim.checker import MAX_SCHEDULES
from tilesim.cli import completing
from tilesim.cli import last_failed as last_failed_names
from tilesim.cli.campaign import dask_option, jobs_option, workers
from tilesim.cli.examine import Examination, Examine, Replay, read_witness
from tilesim.cli.group import debugging
from tilesim.cli.lines import writing_lines
from tilesim.cli.options import (
    FILE,
    FOLDER,
    Decorator,
    Place,
    Progress,
    budget_option,
    deliver,
    deny_option,
    for_all_option,
    output_option,
    say,
    say_withheld,
    schedules_option,
    seed_option,
    skip_option,
    strict_option,
    style_for,
    suggest_option,
    target_options,
    time_limit_option,
    write_file,
)
from tilesim.cli.resume import Unfinished
from tilesim.cli.session import Session, say_interrupted
from tilesim.errors import UsageError
from tilesim.layout import PLAIN, Style
from tilesim.loader import Given
from tilesim.records import dataclass, replace
from tilesim.repair import DEFAULT_TIME
from tilesim.report import ci
from tilesim.report import json as json_report
from tilesim.report import text as text_report
from tilesim.report.diff import Diff
from tilesim.report.document import Interrupted
from tilesim.report.result import (
    INCONCLUSIVE,
    INTERRUPTED,
    OK,
    Accept,
    Checked,
    Result,
    exit_code,
    worst,
)
from tilesim.wording import count, printable


def _file_option(name: str, text: str) -> Decorator:
    return click.option(f"--{name}", metavar="FILE", type=FILE, help=text)


@click.command()
@click.argument(
    "targets", nargs=-1, required=True, metavar="TARGET...", shell_complete=completing.targets
)
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", "jsonl", *ci.FORMATS]),
    default="text", show_default=True, help="How to report.",
)  # fmt: skip
@output_option
@_file_option("html", "Also write a page with diagrams and timelines to a file.")
@_file_option("sarif", "Also write SARIF to a file.")
@_file_option("junit", "Also write JUnit XML to a file.")
@_file_option("jsonl", "Also write a line of JSON to a file as each kernel is done.")
@click.option(
    "--times", is_flag=True,
    help="Say in JSON and JUnit how many seconds each kernel took.",
)  # fmt: skip
@strict_option
@deny_option
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
@click.option(
    "--recheck", is_flag=True,
    help="Recheck each proof with the proof kernel, which shares no code with what finds them.",
)  # fmt: skip
@_file_option("certificate", "Write the certificate of a kernel's proof to a file; --recheck it.")
@click.option(
    "--sass", is_flag=True,
    help="Compare the machine code with the PTX: of the target, beside it, or by ptxas.",
)  # fmt: skip
@click.option(
    "--ptxas", type=Place(path_type=Path), metavar="PATH",
    help="Compile PTX for --sass by this ptxas, or by that of this toolkit.",
)  # fmt: skip
@_file_option(
    "resume", "Go on with what an earlier check left in a file; keep there what is left now."
)
@jobs_option("check kernels or, of a single kernel, run the random schedules")
@dask_option
@seed_option
@click.option(
    "--accept", type=click.Choice(["bounded"]),
    help="Exit 0 also for kernels that are not proved but failed on no schedule tried.",
)  # fmt: skip
@target_options
@click.option(
    "--skip-empty", is_flag=True, help="Pass over files without kernels (for pre-commit).",
)  # fmt: skip
@click.option(
    "--python", is_flag=True,
    help="Of folders, also run the Python files in them that import tilesim.",
)  # fmt: skip
@suggest_option
@click.option(
    "--diff", is_flag=True,
    help="Write the repairs as a unified diff, for `patch -p1`, and nothing else to stdout; they "
    "are looked for as with --suggest.",
)  # fmt: skip
@skip_option
@click.option("-v", "--verbose", is_flag=True, help="Show all of reports longer than a screen.")
@click.option(
    "-q", "--quiet", is_flag=True,
    help="Report in a line each what keeps kernels from being proved, and nothing of others.",
)  # fmt: skip
@click.option(
    "--last-failed", is_flag=True,
    help="Check only those kernels of the targets that were not proved when last checked with "
    f"this option; all, if all were. {last_failed_names.FILE} keeps their names.",
)  # fmt: skip
@for_all_option
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
    jsonl: Path | None,
    times: bool,
    accept: Accept,
    given: Given,
    skip_empty: bool,
    python: bool,
    witness_path: Path | None,
    resume: Path | None,
    jobs: int,
    dask: str | None,
    deny: frozenset[str],
    diff: bool,
    verbose: bool,
    quiet: bool,
    last_failed: bool,
    certificate: Path | None,
    sass: bool,
    ptxas: Path | None,
    **search: Any,
) -> None:
    """Check kernels for deadlocks, races and misuse of barriers.

    A folder stands for the .ptx, .tile, .mir and .cubin files in it, - for standard input; a
    program, a library, a cubin or a core dump of a GPU for its kernels with PTX. Exit: 0 every
    kernel proved or exhausted, 1 findings, 2 usage or input error, 3 inconclusive or unsupported,
    130 interrupted; the worst of several.
    """
    if witness_path is not None and (resume is not None or search["shrink"] or search["suggest"]):
        raise UsageError(
            "--replay repeats one schedule: leave out --resume, --shrink and --suggest"
        )
    if quiet and (output_format != "text" or diff or verbose):
        raise UsageError(
            "--quiet shortens the report as text: leave out --format, --diff and --verbose"
        )
    if diff and (output_format != "text" or witness_path is not None):
        raise UsageError("--diff prints a patch as the report: leave out --format and --replay")
    search["recheck"] |= certificate is not None
    if search["recheck"] and witness_path is not None:
        raise UsageError("--recheck checks proofs again: leave out --replay")
    if ptxas is not None and not sass:
        raise UsageError("--ptxas compiles for --sass: add --sass")
    if sass and witness_path is not None:
        raise UsageError("--sass compares the machine code in a check: leave out --replay")
    if sass and search["for_all"]:
        raise UsageError("--sass compares the machine code of one program: leave out --for-all")
    if sass:
        from tilesim.cli.sass import Sass  # most checks look at no machine code

        search["sass"] = Sass.by(ptxas)
    if diff and search["suggest"] is None:
        search["suggest"] = DEFAULT_TIME
    opener, at_once = workers(jobs, dask)
    pictures, progress = html is not None, Progress()
    alone: Examine
    among: Examine
    keeping = None
    if witness_path is not None:
        witness = read_witness(witness_path)
        alone = among = Replay(witness_path, witness, search["seed"], pictures)
    else:
        among = Examination(pictures, resume=resume, jobs=1, **search)
        alone = replace(among, jobs=jobs, progress=progress)
        keeping = among if among.settings is not None else None
    stream = output_format == "text" and output is None and not diff
    style = style_for(sys.stdout) if output is None else PLAIN
    style = replace(style, verbose=verbose)
    shown = _Shown(style, quiet, accept)
    only = last_failed_names.names(targets) if last_failed else None

    def show(result: Result) -> None:
        if stream:
            click.echo(shown.next(result), nl=False, color=style.colour)

    places = [*([] if jsonl is None else [jsonl]), *([output] if output_format == "jsonl" else [])]
    with writing_lines(*places) as add_line:
        session = Session(
            targets, given, alone, among, progress, show, add_line,
            None if resume is None else Unfinished(resume), keeping, skip_empty, python,
            debugging(ctx), opener, at_once, spread=dask is not None, deny=deny, timed=times,
            only=only,
        )  # fmt: skip
        session.check_all()
        session.progress.clear()
    if given.kernels and not session.results and session.interrupted_at is None:
        raise UsageError(f"no target has a kernel {', '.join(given.kernels)}")
    results = session.results
    if only is not None:
        said = count(session.left_out, "kernel")
        click.echo(f"--last-failed: {said} left out, proved when last checked", err=True)
    reports: list[Callable[[], None]] = []
    if diff:
        reports.append(partial(_diff, session, output, style_for(sys.stderr)))
    else:
        reports.append(partial(_report, session, output_format, output, stream, shown))
    if html is not None:
        reports.append(partial(_page, html, results))
    for path, name in ((sarif, "sarif"), (junit, "junit")):
        if path is not None:
            reports.append(partial(_beside, path, name, results))
    if certificate is not None:
        reports.append(partial(_certify, results, certificate))
    finished = session.interrupted_at is None and not session.stopped
    if last_failed and finished:
        open_ = (result.kernel for result in results if result.code(accept) != OK)
        reports.append(partial(last_failed_names.keep, targets, open_))
    _all_of(reports)
    if only is not None and finished and not results:
        raise UsageError("no kernel that failed last is left: all are checked again")
    say_withheld()
    ctx.exit(_code(session, accept))


@dataclass
class _Shown:
    """What becomes of results as text: reports, or with ``quiet`` a line for each that is not
    accepted, and at the end how many there are."""

    style: Style
    quiet: bool
    accept: Accept
    number: int = 0

    def next(self, result: Result) -> str:
        """What is printed of a result as soon as it is there."""
        if self.quiet:
            return "" if result.code(self.accept) == OK else text_report.brief(result)
        self.number += 1
        gap = "\n" if self.number > 1 else ""
        return gap + text_report.result_text(result, self.style)

    def end(self, results: Sequence[Result]) -> str:
        """What is printed when all are."""
        if len(results) < 2:
            return ""
        if self.quiet:
            return text_report.summary(results)
        return f"\n{text_report.closing(results, self.style)}"


def _all_of(steps: Iterable[Callable[[], None]]) -> None:
    """Writes every report; one that cannot be written hides no other.

    Raises:
        UsageError: one cannot be written.
    """
    failed = []
    for step in steps:
        try:
            step()
        except UsageError as error:
            failed.append(str(error))
    if failed:
        raise UsageError("; ".join(failed))


def _page(path: Path, results: Sequence[Result]) -> None:
    from tilesim.report.html import render  # what only a page needs

    write_file(path, render(results))


def _beside(path: Path, name: str, results: Sequence[Result]) -> None:
    write_file(path, ci.render(name, results))


def _certify(results: Sequence[Result], path: Path) -> None:
    """Writes the certificate of the only kernel, if it is proved; else says that there is none.

    Raises:
        UsageError: there are several kernels.
    """
    if len(results) > 1:
        raise UsageError(
            f"--certificate {path} is for one kernel, {len(results)} were checked: name one"
        )
    for result in results:
        if isinstance(result, Checked) and result.report.certificate is not None:
            from tilesim.checker.certificate_file import text_of

            write_file(path, text_of(result.report.certificate))
            return
    interrupted = any(
        isinstance(r, Checked) and INTERRUPTED_REASON in r.report.reasons for r in results
    )
    why = "the check was interrupted" if interrupted else "nothing is proved"
    say(f"no certificate is written to {path}: {why}", err=True)


def _code(session: Session, accept: Accept) -> int:
    """The exit code; says on stderr what kept the command from finishing."""
    code = exit_code(session.results, accept)
    if session.interrupted_at is not None:
        say_interrupted(session)
        return INTERRUPTED
    if session.stopped:
        click.echo(f"stopped: {session.stopped}; what had been found is reported", err=True)
        return worst((code, INCONCLUSIVE))
    return code


def _diff(session: Session, output: Path | None, style: Style) -> None:
    """The repairs on stdout or in a file; verdicts and what was chosen on stderr."""
    diff = Diff.of(session.results)
    deliver(diff.text(), output)
    said = [text_report.closing(session.results, style), *(f"{note}\n" for note in diff.notes)]
    click.echo(printable("".join(said)), err=True, nl=False)


def _report(
    session: Session,
    output_format: str,
    output: Path | None,
    stream: bool,
    shown: _Shown,
) -> None:
    if output_format == "jsonl":
        return  # each line is written already
    if output_format == "json":
        interrupted = None
        if session.interrupted_at is not None:
            interrupted = Interrupted(
                kernel=session.interrupted_at, not_started=session.not_started
            )
        document = json_report.render(session.results, interrupted)
    elif output_format in ci.FORMATS:
        document = ci.render(output_format, session.results)
    else:
        begun = () if stream else session.results
        document = "".join(map(shown.next, begun)) + shown.end(session.results)
    deliver(document, output)
