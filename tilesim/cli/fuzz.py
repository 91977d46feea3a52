"""``tilesim fuzz``: random parameters (or random faults) of a kernel family, many at a time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from shlex import quote

import click

from tilesim.checker import DEFAULT_BUDGET, MAX_SCHEDULES
from tilesim.cli.options import Progress, param_option, seed_option, strict_option, style_for
from tilesim.errors import InvalidProgram, UsageError
from tilesim.fuzz.campaign import Campaign, opener, run
from tilesim.fuzz.cases import (
    Case,
    Outcome,
    Settings,
    Value,
    checked,
    generate,
    kernel_of,
    shrink,
    space,
)
from tilesim.fuzz.code import builder_code
from tilesim.report.result import FINDINGS, INCONCLUSIVE, INTERRUPTED, OK, Checked
from tilesim.report.text import result_text
from tilesim.sim.simulate import Strict

#: cases tried when neither --cases nor --time is given
_CASES = 100
#: different defects that are shown in full
_SHOWN = 5
_FAILING = ("failed", "error")


@click.command()
@click.argument("target")
@click.option("--cases", type=click.IntRange(1), help="How many cases to try.  [default: 100]")
@click.option(
    "--time", "seconds", type=click.FloatRange(0, min_open=True),
    help="Seconds to go on for (instead of, or as a limit on, --cases).",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1, 512), default=1, show_default=True,
    help="Processes that check cases.",
)  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Check cases on this Dask cluster instead.")
@click.option(
    "--mutate", is_flag=True,
    help="Inject one fault per case, and report which kinds are found.",
)  # fmt: skip
@strict_option
@click.option(
    "--schedules", type=click.IntRange(0, MAX_SCHEDULES), default=64, show_default=True,
    help="Further schedules to try where one run proves nothing.",
)  # fmt: skip
@click.option(
    "--budget", type=click.IntRange(0), default=DEFAULT_BUDGET, show_default=True,
    help="Warp instructions to execute at most per case when exploring all schedules.",
)  # fmt: skip
@seed_option
@param_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    cases: int | None,
    seconds: float | None,
    jobs: int,
    scheduler: str | None,
    mutate: bool,
    strict: Strict,
    schedules: int,
    budget: int,
    seed: int,
    params: dict[str, str],
) -> None:
    """Check TARGET, a parametrised kernel, with random parameters.

    Values are drawn around the defaults, or from --param NAME=1..8 and --param NAME=1,2,4. The same
    seed and number of cases give the same report, whatever the number of jobs.

    Exit: 0 nothing found, 1 findings, 2 usage or input error, 3 inconclusive, 130 interrupted.
    """
    if jobs > 1 and scheduler:
        raise UsageError("--jobs and --scheduler exclude each other")
    domain = space(kernel_of(target), params)
    settings = Settings(strict, schedules, budget)
    stream: Iterable[Case] = generate(target, domain, settings, seed, mutate=mutate)
    limit = cases if cases is not None else None if seconds is not None else _CASES
    watch = _Watch(target, limit)
    campaign = run(
        islice(stream, limit), opener(jobs, scheduler), workers=64 if scheduler else jobs,
        seconds=seconds, on_outcome=watch.add,
    )  # fmt: skip
    watch.progress.clear()
    outcomes = campaign.sorted()
    click.echo("\n".join(_score(outcomes) if mutate else _report(outcomes, domain)))
    click.echo(_summary(target, campaign, seed))
    ctx.exit(INTERRUPTED if campaign.interrupted else _code(outcomes, mutate=mutate))


class _Watch:
    """The progress line."""

    def __init__(self, target: str, limit: int | None) -> None:
        self.progress = Progress()
        self._target = target
        self._limit = "" if limit is None else f" of {limit}"
        self._counts: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One more case is done."""
        self._counts[outcome.verdict] += 1
        done = self._counts.total()
        self.progress.show(
            f"fuzzing {self._target}: {done}{self._limit} cases, {_counts(self._counts)}"
        )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))


def _code(outcomes: list[Outcome], *, mutate: bool) -> int:
    verdicts = {o.verdict for o in outcomes}
    if "error" in verdicts or (not mutate and "failed" in verdicts):
        return FINDINGS
    return INCONCLUSIVE if verdicts & {"bounded", "unsupported"} else OK


def _summary(target: str, campaign: Campaign, seed: int) -> str:
    counts = Counter(o.verdict for o in campaign.outcomes)
    state = "interrupted after " if campaign.interrupted else ""
    done = f"{state}{counts.total()} case{'' if counts.total() == 1 else 's'} (seed {seed})"
    return f"{target}: {done}: {_counts(counts) or 'nothing was checked'}"


# ------------------------------------------------------------------ what was found


def _report(outcomes: list[Outcome], domain: Mapping[str, tuple[Value, ...]]) -> Iterator[str]:
    """Every different defect once, in its simplest case, with what repeats it."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict in _FAILING:
            key = (outcome.verdict, outcome.rules[:1], outcome.lines[:1], outcome.message[:40])
            groups.setdefault(key[:3] if outcome.rules else key, []).append(outcome)
    for number, group in enumerate(groups.values()):
        if number == _SHOWN:
            yield f"... and {len(groups) - _SHOWN} more\n"
            return
        first = group[0]
        simplest = shrink(first.case, first, domain) if first.verdict == "failed" else first
        yield from _defect(simplest, len(group))


def _defect(outcome: Outcome, times: int) -> Iterator[str]:
    case = outcome.case
    name = f"{case.target}[{','.join(f'{n}={v}' for n, v in case.params)}]"
    if outcome.verdict == "error":
        yield f"ERROR {name}\n  {outcome.message}\n"
        return
    program, report, _ = checked(case)
    yield result_text(Checked(name, program.target.name, report))
    options = "".join(f" --param {quote(f'{n}={v}')}" for n, v in case.params)
    options += f" --seed {case.seed}" if case.seed else ""
    options += f" --strict {case.settings.strict}" if case.settings.strict != "practice" else ""
    yield f"  again     tilesim check {quote(case.target)}{options}"
    yield f"  seen in {times} case{'' if times == 1 else 's'}\n"


def _score(outcomes: list[Outcome]) -> Iterator[str]:
    """Per kind of fault: found, proved harmless, open; the open ones as builder code."""
    rows: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if outcome.fault:
            rows.setdefault(outcome.fault, Counter())[_class(outcome)] += 1
    width = max((len(name) for name in rows), default=0)
    yield f"{'fault':{width}}  found  harmless  open"
    for name, row in sorted(rows.items()):
        yield f"{name:{width}}  {row['found']:5}  {row['harmless']:8}  {row['open']:4}"
    yield ""
    style = style_for(sys.stdout)
    for outcome in [o for o in outcomes if o.fault and _class(o) == "open"][:_SHOWN]:
        params = ",".join(f"{n}={v}" for n, v in outcome.case.params)
        yield style.bold(f"open: {outcome.where} [{params}]")
        try:
            program, report, _ = checked(outcome.case)
        except InvalidProgram:
            continue
        yield from (f"  because {reason}" for reason in report.reasons)
        yield builder_code(program)


def _class(outcome: Outcome) -> str:
    """``harmless``: proved, so the fault changes nothing that a schedule could show."""
    if outcome.verdict in ("failed", "rejected"):
        return "found"
    return "harmless" if outcome.verdict in ("proved", "exhausted") else "open"
