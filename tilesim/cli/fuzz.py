"""``tilesim fuzz``: random parameters (or random faults) of a kernel family, many at a time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import click

from tilesim.cli import completing
from tilesim.cli.campaign import (
    case_budget_option,
    dask_option,
    jobs_option,
    workers,
)
from tilesim.cli.options import (
    Progress,
    Seconds,
    deliver,
    format_option,
    launch_option,
    output_option,
    param_option,
    schedules_option,
    seed_option,
    strict_option,
    style_for,
)
from tilesim.dsl.to_python import builder_code
from tilesim.errors import InvalidProgram, UsageError
from tilesim.fuzz.campaign import Campaign, outcome_json, render, run
from tilesim.fuzz.cases import (
    Case,
    Outcome,
    Settings,
    Value,
    checked,
    configurations,
    every_mutant,
    generate,
    kernel_of,
    plain,
    shrink,
    space,
)
from tilesim.ir.program import Program, Strict
from tilesim.layout import PLAIN, Style
from tilesim.loader import Given, is_ptx, load_one
from tilesim.records import dataclass
from tilesim.report.json import result_json
from tilesim.report.result import FINDINGS, INCONCLUSIVE, INTERRUPTED, OK, Checked
from tilesim.report.text import result_text
from tilesim.wording import count

#: cases tried when neither --cases nor --time is given
_CASES = 100
#: harmless mutants that are named
_LISTED = 20
#: different defects that are shown in full
_SHOWN = 5
_FAILING = ("failed", "error")
_UNFINISHED = (
    "what had been found is reported; if a case kills its worker, --jobs 2 instead of --dask "
    "says which"
)


@click.command()
@click.argument("target", shell_complete=completing.targets)
@click.option("--cases", type=click.IntRange(1), help="How many cases to try.  [default: 100]")
@click.option(
    "--time", "--time-limit", "seconds", type=Seconds(),
    help="Seconds to go on for (instead of, or as a limit on, --cases).",
)  # fmt: skip
@jobs_option("check cases")
@dask_option
@click.option(
    "--mutate", is_flag=True,
    help="Inject one fault per case, and report which kinds are found.",
)  # fmt: skip
@click.option(
    "--every", is_flag=True,
    help="With --mutate: every fault at every place once, of the default parameters or --param.",
)  # fmt: skip
@strict_option
@schedules_option
@case_budget_option
@seed_option
@param_option
@launch_option
@format_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    cases: int | None,
    seconds: float | None,
    jobs: int,
    dask: str | None,
    mutate: bool,
    every: bool,
    strict: Strict,
    schedules: int,
    budget: int,
    seed: int,
    params: dict[str, str],
    launches: tuple[Path, ...],
    output_format: str,
    output: Path | None,
) -> None:
    """Check TARGET, a parametrised kernel, with random parameters.

    Values are drawn around the defaults, for trip counts also around one and two rounds of the
    stages, or from --param NAME=1..8 and --param NAME=1,2,4; no configuration is checked twice. The
    same seed and number of cases give the same report, whatever the number of jobs. A PTX kernel
    has no parameters: with --mutate each of its mutants is checked once.

    Exit: 0 nothing found, 1 findings, 2 usage or input error, 3 inconclusive, 130 interrupted.
    """
    executor, at_once = workers(jobs, dask)
    settings = Settings(strict, schedules, budget)
    domain: dict[str, tuple[Value, ...]] = {}
    stream: Iterable[Case]
    if every and not mutate:
        raise UsageError("--every is for mutants: add --mutate")
    if mutate and is_ptx(target):
        load_one(target, Given(params, launches))
        stream = every_mutant(target, tuple(map(str, launches)), settings, seed)
    else:
        if launches:
            raise UsageError("--launch is for mutants of a PTX kernel: add --mutate")
        kernel = kernel_of(target)
        domain = space(kernel, params)
        if every:
            rest = {n: v for n, v in kernel.params.items() if n not in params}
            domain |= {n: (v,) for n, v in rest.items() if plain(v)}
            stream = every_mutant(target, (), settings, seed, domain)
        else:
            stream = generate(target, domain, settings, seed, mutate=mutate)
    limit = cases if cases is not None else None if seconds is not None or every else _CASES
    possible = None if mutate else configurations(domain)
    if possible is not None:
        limit = possible if limit is None else min(limit, possible)
    watch = _Watch(target, limit)
    campaign = run(
        islice(stream, limit), executor, workers=at_once,
        seconds=seconds, on_outcome=watch.add,
    )  # fmt: skip
    watch.progress.clear()
    outcomes = campaign.sorted()
    defects = () if mutate else tuple(_defects(outcomes, domain))
    if output_format == "json":
        report = render(_document(target, campaign, seed, defects, possible))
    else:
        style = style_for(sys.stdout) if output is None else PLAIN
        lines = _score(outcomes, style) if mutate else _report(defects)
        summary = _summary(target, campaign, seed, possible)
        report = "\n".join((*lines, "", summary, "")).lstrip("\n")
    deliver(report, output)
    if campaign.stopped:
        click.echo(f"stopped: {campaign.stopped}; {_UNFINISHED}", err=True)
    ctx.exit(_code(campaign, mutate=mutate))


class _Watch:
    """The progress line."""

    def __init__(self, target: str, limit: int | None) -> None:
        self.progress = Progress()
        self._target = target
        self._limit = limit
        self._counts: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One more case is done."""
        self._counts[outcome.verdict] += 1
        done = self._counts.total()
        share = str(done) if self._limit is None else self.progress.share(done, self._limit)
        self.progress.show(f"fuzzing {self._target}: {share} cases, {_counts(self._counts)}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))


def _code(campaign: Campaign, *, mutate: bool) -> int:
    if campaign.interrupted:
        return INTERRUPTED
    verdicts = {o.verdict for o in campaign.outcomes}
    if "error" in verdicts or (not mutate and "failed" in verdicts):
        return FINDINGS
    return INCONCLUSIVE if campaign.stopped or verdicts & {"bounded", "unsupported"} else OK


def _summary(target: str, campaign: Campaign, seed: int, possible: int | None) -> str:
    """What was done, of how many ``possible`` configurations; None for mutants."""
    counts = Counter(o.verdict for o in campaign.outcomes)
    state = "interrupted after " if campaign.interrupted else ""
    state = "stopped after " if campaign.stopped else state
    done = f"{state}{count(counts.total(), 'case')} (seed {seed})"
    line = f"{target}: {done}: {_counts(counts) or 'nothing was checked'}"
    if possible == 1:
        return f"{line}; nothing varies: give values with --param NAME=1..8"
    if possible is not None:
        every = "all of them" if counts.total() >= possible else f"of {possible:,}"
        return f"{line}; {count(counts.total(), 'configuration')}, {every}"
    return line


# ------------------------------------------------------------------ what was found


@dataclass(frozen=True)
class _Defect:
    """One defect: its simplest case, and in how many cases it was seen."""

    outcome: Outcome
    times: int

    @property
    def name(self) -> str:
        """The kernel with the parameters of the case."""
        case = self.outcome.case
        return f"{case.target}[{','.join(f'{n}={v}' for n, v in case.params)}]"

    @property
    def again(self) -> str:
        """The command that shows it again."""
        case = self.outcome.case
        options = "".join(f" --param {quote(f'{n}={v}')}" for n, v in case.params)
        options += f" --seed {case.seed}" if case.seed else ""
        strict = case.settings.strict
        options += f" --strict {strict}" if strict != "practice" else ""
        return f"tilesim check {quote(case.target)}{options}"

    def checked(self) -> Checked:
        """The report of its simplest case."""
        program, report = checked(self.outcome.case)
        assert isinstance(program, Program)
        return Checked(self.name, program.target.name, report)


def _defects(outcomes: list[Outcome], domain: Mapping[str, tuple[Value, ...]]) -> Iterator[_Defect]:
    """Every different defect once, in its simplest case."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict in _FAILING:
            key = (outcome.verdict, outcome.rules[:1], outcome.lines[:1], outcome.message[:40])
            groups.setdefault(key[:3] if outcome.rules else key, []).append(outcome)
    for number, group in enumerate(groups.values()):
        first = group[0]
        simplify = first.verdict == "failed" and number < _SHOWN
        yield _Defect(shrink(first.case, first, domain) if simplify else first, len(group))


def _report(defects: tuple[_Defect, ...]) -> Iterator[str]:
    """The first defects in full, with what repeats them."""
    for defect in defects[:_SHOWN]:
        if defect.outcome.verdict == "error":
            yield f"ERROR {defect.name}\n  {defect.outcome.message}\n"
            continue
        yield result_text(defect.checked())
        yield f"  again     {defect.again}"
        yield f"  seen in {count(defect.times, 'case')}\n"
    if len(defects) > _SHOWN:
        yield f"... and {len(defects) - _SHOWN} more\n"


def _document(
    target: str, campaign: Campaign, seed: int, defects: tuple[_Defect, ...], possible: int | None
) -> dict[str, Any]:
    """The JSON report: the cases, and the different defects or the score per kind of fault (of
    mutants, for which ``possible`` is None)."""
    outcomes = campaign.sorted()
    document: dict[str, Any] = {
        "target": target,
        "seed": seed,
        "configurations": {"checked": _different(outcomes), "of": possible},
        "cases": [outcome_json(outcome) for outcome in outcomes],
        "defects": [_defect_json(defect) for defect in defects],
        "faults": {name: dict(row) for name, row in _rows(outcomes)} if possible is None else None,
    }
    if campaign.interrupted:
        document["interrupted"] = {"done": len(outcomes)}
    if campaign.stopped:
        document["stopped"] = {"done": len(outcomes), "reason": campaign.stopped}
    return document


def _different(outcomes: list[Outcome]) -> int:
    return len({outcome.case.params for outcome in outcomes})


def _defect_json(defect: _Defect) -> dict[str, Any]:
    failed = defect.outcome.verdict == "failed"
    return {
        "cases": defect.times,
        "again": defect.again,
        "result": result_json(defect.checked()) if failed else None,
        "error": None if failed else defect.outcome.message,
    }


def _rows(outcomes: list[Outcome]) -> Iterator[tuple[str, Counter[str]]]:
    """Per kind of fault: found, proved harmless, open."""
    rows: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if outcome.fault:
            rows.setdefault(outcome.fault, Counter(dict.fromkeys(_CLASSES, 0)))[
                _class(outcome)
            ] += 1
    yield from sorted(rows.items())


def _score(outcomes: list[Outcome], style: Style) -> Iterator[str]:
    """The score as a table; the harmless mutants by place, the open ones as builder code."""
    rows = list(_rows(outcomes))
    width = max((len(name) for name, _ in rows), default=0)
    yield f"{'fault':{width}}  found  harmless  open"
    for name, row in rows:
        yield f"{name:{width}}  {row['found']:5}  {row['harmless']:8}  {row['open']:4}"
    found, _, left = (sum(row[name] for _, row in rows) for name in _CLASSES)
    if found + left:
        share = 100 * found / (found + left)
        of = count(found + left, "mutant")
        yield f"\nscore: {share:.1f} % of {of} that are not harmless are found"
    yield from _harmless([_mutant(o) for o in outcomes if o.fault and _class(o) == "harmless"])
    for outcome in [o for o in outcomes if o.fault and _class(o) == "open"][:_SHOWN]:
        yield "\n" + style.bold(f"open: {_mutant(outcome)}")
        try:
            program, report = checked(outcome.case)
        except InvalidProgram:
            continue
        yield from (f"  because {reason}" for reason in report.reasons)
        if isinstance(program, Program):
            yield builder_code(program)


def _mutant(outcome: Outcome) -> str:
    """The fault, its place, and the parameters of the kernel."""
    params = ",".join(f"{n}={v}" for n, v in outcome.case.params)
    return f"{outcome.where}{f' [{params}]' if params else ''}"


def _harmless(mutants: list[str]) -> Iterator[str]:
    """Each harmless mutant once: what the kernel does not need, or what tilesim should look at."""
    different = list(dict.fromkeys(mutants))
    if different:
        yield "\nharmless: no schedule shows the fault"
    yield from (f"  {mutant}" for mutant in different[:_LISTED])
    if len(different) > _LISTED:
        yield f"  ... and {len(different) - _LISTED} more; --format json has all"


_CLASSES = ("found", "harmless", "open")


def _class(outcome: Outcome) -> str:
    """``harmless``: proved, so the fault changes nothing that a schedule could show."""
    if outcome.verdict in ("failed", "rejected"):
        return "found"
    return "harmless" if outcome.verdict in ("proved", "exhausted") else "open"
