"""``tilesim sweep``: a kernel family at the parameter values where bugs hide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
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
    output_option,
    param_option,
    seed_option,
    strict_option,
)
from tilesim.errors import UsageError
from tilesim.fuzz.campaign import run
from tilesim.fuzz.cases import Case, Outcome, Params, Settings, Value, kernel_of, space
from tilesim.fuzz.counts import USUAL, counting, counts
from tilesim.fuzz.document import outcome_json, render
from tilesim.ir.kernel import Kernel
from tilesim.ir.program import Strict
from tilesim.report.result import FINDINGS, INCONCLUSIVE, INTERRUPTED, OK, USAGE
from tilesim.words import count

_MOST = 500
_OPEN = ("bounded", "unsupported")


@click.command()
@click.argument("target", shell_complete=completing.targets)
@click.option("--stages", metavar="NAME", help="The parameter that counts stages.")
@click.option("--trips", metavar="NAME", help="The parameter that counts trips of the main loop.")
@click.option("--tiles", metavar="NAME", help="The parameter that counts tiles per CTA.")
@jobs_option("check cases")
@dask_option
@strict_option
@case_budget_option
@click.option(
    "--time-limit",
    "seconds",
    type=Seconds(),
    help="Seconds after which no more cases are begun.",
)
@seed_option
@param_option
@format_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    stages: str | None,
    trips: str | None,
    tiles: str | None,
    jobs: int,
    dask: str | None,
    strict: Strict,
    budget: int,
    seconds: float | None,
    seed: int,
    params: dict[str, str],
    output_format: str,
    output: Path | None,
) -> None:
    """Check TARGET, a parametrised kernel, at its boundaries.

    Stages 1, 2 and the default S; trips 0, 1, S-1, S, S+1 and 2S+1, several trip counts unevenly;
    tiles 1 and 2. Parameters are recognised by name, or named with the options; --param NAME=1,2,4
    or NAME=1..8 sweeps any other one. Values that the kernel refuses are listed, and do not fail.

    Exit: 0 all proved, 1 findings, 2 usage or input error, 3 inconclusive, 130 interrupted.
    """
    executor, at_once = workers(jobs, dask)
    kernel = kernel_of(target)
    names = _names(kernel, {"stages": stages, "trips": trips, "tiles": tiles})
    if kernel.params and not params and not any(names.values()):
        known = ", ".join(kernel.params)
        raise UsageError(
            f"no parameter of kernel {kernel.name} has a usual name for stages, trips or tiles: "
            f"name one with --stages, --trips or --tiles, or give values with --param ({known})"
        )
    chosen = _configurations(kernel, names, params)
    settings = Settings(strict, 64, budget)
    cases = [Case(i, target, p, settings, seed) for i, p in enumerate(chosen)]
    progress = Progress()

    done: list[Outcome] = []

    def show(outcome: Outcome) -> None:
        done.append(outcome)
        progress.show(f"sweeping {target}: {progress.share(len(done), len(cases))}")

    campaign = run(cases, executor, workers=at_once, seconds=seconds, on_outcome=show)
    progress.clear()
    outcomes = campaign.sorted()
    if output_format == "json":
        report = render(_document(target, outcomes, len(cases)))
    else:
        report = table(outcomes) + "\n"
    deliver(report, output)
    if campaign.stopped:
        click.echo(f"stopped: {campaign.stopped}; what had been found is reported", err=True)
    late = len(outcomes) < len(cases) and not campaign.stopped and not campaign.interrupted
    if late:
        click.echo(f"time is up after {len(outcomes)} of {len(cases)} cases", err=True)
    if campaign.interrupted:
        click.echo(f"interrupted after {len(outcomes)} of {len(cases)} cases", err=True)
    code = _code(outcomes)
    if (campaign.stopped or late) and code != FINDINGS:
        code = INCONCLUSIVE
    ctx.exit(INTERRUPTED if campaign.interrupted else code)


def _names(kernel: Kernel, given: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Which parameters of the kernel count stages, trips and tiles."""
    result: dict[str, tuple[str, ...]] = {}
    for what in USUAL:
        name = given[what]
        if name is None:
            result[what] = counting(kernel.params, what)
        else:
            result[what] = tuple(_counting(kernel, what, n) for n in name.split(","))
    return result


def _counting(kernel: Kernel, what: str, name: str) -> str:
    """``name``, a parameter that ``--what`` gives.

    Raises:
        UsageError: the kernel has no such parameter, or it is no number.
    """
    if name not in kernel.params:
        raise UsageError(
            f"--{what}: kernel {kernel.name} has no parameter {name!r}; it has "
            f"{', '.join(kernel.params) or 'none'}"
        )
    if not counts(kernel.params[name]):
        default = kernel.params[name]
        raise UsageError(f"--{what}: {name} counts nothing, its default is {default!r}")
    return name


def _configurations(
    kernel: Kernel, names: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> list[Params]:
    """Every combination of boundary values, without repetition."""
    domain = space(kernel, given)
    fixed: dict[str, tuple[Value, ...]] = {
        n: domain[n] if n in given else (default,) for n, default in kernel.params.items()
    }
    usual = {n: _around(kernel.params[n]) for n in names["stages"]}
    stages = _values(given, domain, usual)
    found: dict[Params, None] = {}
    for chosen in _product(stages):
        ring = max((int(v) for v in chosen.values() if isinstance(v, int)), default=2)
        trips = _values(given, domain, dict.fromkeys(names["trips"], _boundary(ring)))
        tiles = _values(given, domain, dict.fromkeys(names["tiles"], (1, 2)))
        rest = {n: v for n, v in fixed.items() if n not in {**stages, **trips, **tiles}}
        for other in _product({**trips, **tiles, **rest}):
            merged: dict[str, Any] = {**chosen, **other}
            found.setdefault(tuple((n, merged[n]) for n in kernel.params))
    if len(found) > _MOST:
        raise UsageError(
            f"{len(found)} configurations are too many (at most {_MOST}): fix some parameters with "
            "--param, or use tilesim fuzz"
        )
    return list(found)


def _values(
    given: Mapping[str, str],
    domain: Mapping[str, tuple[Value, ...]],
    boundary: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter of ``boundary``: those given, else those at its boundaries."""
    return {n: domain[n] if n in given else values for n, values in boundary.items()}


def _around(default: int) -> tuple[int, ...]:
    """Stages: one, two, and what the kernel is used with."""
    return tuple(sorted({1, 2, default}))


def _boundary(stages: int) -> tuple[int, ...]:
    """Trips: none, one, and around one and two rounds of the ring."""
    return tuple(sorted({0, 1, stages - 1, stages, stages + 1, 2 * stages + 1}))


def _product(values: Mapping[str, tuple[Value, ...]]) -> Iterable[dict[str, Value]]:
    for choice in product(*values.values()):
        yield dict(zip(values, choice, strict=True))


def _code(outcomes: Sequence[Outcome]) -> int:
    verdicts = {o.verdict for o in outcomes}
    if verdicts & {"failed", "error"}:
        return FINDINGS
    if verdicts & set(_OPEN):
        return INCONCLUSIVE
    return OK if verdicts & {"proved", "exhausted"} else USAGE


def _document(target: str, outcomes: Sequence[Outcome], wanted: int) -> dict[str, Any]:
    """The JSON report; ``interrupted`` if not all configurations were checked."""
    document: dict[str, Any] = {"target": target, "cases": [outcome_json(o) for o in outcomes]}
    if len(outcomes) < wanted:
        document["interrupted"] = {"done": len(outcomes), "not_done": wanted - len(outcomes)}
    return document


def table(outcomes: Sequence[Outcome]) -> str:
    """One row per configuration: the parameters that vary, the verdict, the first finding."""
    if not outcomes:
        return "nothing was checked"
    columns = [dict(o.case.params) for o in outcomes]
    varying = [n for n in columns[0] if len({c[n] for c in columns}) > 1]
    rows = [[*varying, "verdict", "finding"]]
    for outcome, values in zip(outcomes, columns, strict=True):
        rows.append([*(str(values[n]) for n in varying), outcome.verdict, _detail(outcome)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    good = sum(o.verdict in ("proved", "exhausted") for o in outcomes)
    lines.append(f"{count(len(outcomes), 'configuration')}, {good} proved")
    return "\n".join(lines)


def _detail(outcome: Outcome) -> str:
    if outcome.rules:
        return (
            f"{', '.join(outcome.rules)} ({outcome.lines[0]})"
            if outcome.lines
            else outcome.rules[0]
        )
    return outcome.message.splitlines()[0][:60] if outcome.message else ""
