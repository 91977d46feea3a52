"""``tilesim sweep``: a kernel family at the parameter values where bugs hide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count as count_up
from itertools import product
from pathlib import Path
from time import monotonic
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
from tilesim.dsl.kernel import Kernel
from tilesim.errors import UsageError
from tilesim.fuzz.campaign import outcome_json, render, run
from tilesim.fuzz.cases import (
    USUAL,
    Case,
    Outcome,
    Params,
    Settings,
    Value,
    counting,
    counts,
    kernel_of,
    scalars_of,
    space,
)
from tilesim.fuzz.sweep import EveryResult, asked, prove_all
from tilesim.ir.program import Strict
from tilesim.parallel import Opener, WorkersLost
from tilesim.report.result import FINDINGS, INCONCLUSIVE, INTERRUPTED, OK, USAGE
from tilesim.wording import count, did_you_mean

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
@click.option(
    "--for-all/--no-for-all",
    "for_all",
    default=True,
    help="Also look for a proof for every trip count.  [default: for-all]",
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
    for_all: bool,
    seed: int,
    params: dict[str, str],
    output_format: str,
    output: Path | None,
) -> None:
    """Check TARGET, a parametrised kernel, at its boundaries.

    Stages 1, 2 and the default S; trips 0, 1, S-1, S, S+1 and 2S+1, several trip counts unevenly;
    tiles 1 and 2. Parameters are recognised by name, or named with the options; --param NAME=1,2,4
    or NAME=1..8 sweeps any other one. Values that the kernel refuses are listed, and do not fail.

    Where all trip counts are proved, a proof for every one from 1 on is looked for, unless their
    values are given or several parameters count them.

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
    sweep = _Sweep(target, cases, executor, at_once, seconds)
    sweep.check()
    counted = names["trips"] or names["tiles"]
    if for_all and len(counted) == 1 and counted[0] not in params:
        sweep.prove(counted[0])
    if output_format == "json":
        report = render(_document(target, sweep.outcomes, sweep.every, len(cases)))
    else:
        report = table(sweep.outcomes, sweep.every) + "\n"
    deliver(report, output)
    for line in sweep.ended:
        click.echo(line, err=True)
    code = _code(sweep.outcomes, sweep.every)
    if sweep.ended and code != FINDINGS:
        code = INCONCLUSIVE
    ctx.exit(INTERRUPTED if sweep.interrupted else code)


class _Sweep:
    """What is checked one by one, and then for every trip count; ``ended`` says what was not."""

    def __init__(
        self, target: str, cases: Sequence[Case], opener: Opener, workers: int,
        seconds: float | None,
    ) -> None:  # fmt: skip
        self.outcomes: list[Outcome] = []
        self.every: list[EveryResult] = []
        self.interrupted = False
        self.ended: list[str] = []
        self._target, self._cases = target, cases
        self._opener, self._workers = opener, workers
        self._until = None if seconds is None else monotonic() + seconds
        self._progress = Progress()

    @property
    def _left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - monotonic())

    def check(self) -> None:
        """Checks the cases."""
        done, wanted = count_up(1), len(self._cases)

        def show(outcome: Outcome) -> None:
            share = self._progress.share(next(done), wanted)
            self._progress.show(f"sweeping {self._target}: {share}")

        campaign = run(
            self._cases, self._opener, workers=self._workers, seconds=self._left, on_outcome=show
        )
        self._progress.clear()
        self.outcomes, self.interrupted = campaign.sorted(), campaign.interrupted
        if campaign.stopped:
            self._stopped(campaign.stopped)
        else:
            self._note(len(self.outcomes), wanted, "cases")

    def prove(self, name: str) -> None:
        """Looks for proofs for every value of a parameter."""
        if self.ended:
            return
        wanted, done = asked(self.outcomes, name), count_up(1)

        def show(said: EveryResult) -> None:
            share = self._progress.share(next(done), len(wanted))
            self._progress.show(f"proving {self._target} for every {name}: {share}")

        try:
            self.every, whole = prove_all(
                wanted, self._opener, workers=self._workers, seconds=self._left, on_result=show
            )
        except WorkersLost as error:
            self._progress.clear()
            self._stopped(str(error))
            return
        self._progress.clear()
        self.interrupted = not whole
        self._note(len(self.every), len(wanted), f"proofs for every {name}")

    def _stopped(self, why: str) -> None:
        self.ended.append(f"stopped: {why}; what had been found is reported")

    def _note(self, done: int, wanted: int, what: str) -> None:
        if self.interrupted:
            self.ended.append(f"interrupted after {done} of {wanted} {what}")
        elif done < wanted:
            self.ended.append(f"time is up after {done} of {wanted} {what}")


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
    known = {**scalars_of(kernel), **kernel.params}
    if name not in known:
        raise UsageError(
            f"--{what}: kernel {kernel.name} has no parameter {name!r}{did_you_mean(name, known)}; "
            f"it has {', '.join(known) or 'none'}"
        )
    default = known[name]
    if not counts(default):
        raise UsageError(f"--{what}: parameter {name} is not a number, its default is {default!r}")
    return name


def _configurations(
    kernel: Kernel, names: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> list[Params]:
    """Every combination of boundary values, without repetition."""
    domain = space(kernel, given, [n for counted in names.values() for n in counted])
    defaults = {**scalars_of(kernel), **kernel.params}
    fixed: dict[str, tuple[Value, ...]] = {
        n: values if n in given else (defaults[n],) for n, values in domain.items()
    }
    usual = {n: _around(defaults[n]) for n in names["stages"]}
    stages = _values(given, domain, usual)
    found: dict[Params, None] = {}
    for chosen in _product(stages):
        ring = max((int(v) for v in chosen.values() if isinstance(v, int)), default=2)
        trips = _values(given, domain, dict.fromkeys(names["trips"], _boundary(ring)))
        tiles = _values(given, domain, dict.fromkeys(names["tiles"], (1, 2)))
        rest = {n: v for n, v in fixed.items() if n not in {**stages, **trips, **tiles}}
        for other in _product({**trips, **tiles, **rest}):
            merged: dict[str, Any] = {**chosen, **other}
            found.setdefault(tuple((n, merged[n]) for n in domain))
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


def _code(outcomes: Sequence[Outcome], every: Sequence[EveryResult]) -> int:
    """The exit code; that there is no proof for every trip count is no reason to fail."""
    verdicts = {o.verdict for o in outcomes} | {s.verdict for s in every}
    if verdicts & {"failed", "error"}:
        return FINDINGS
    if verdicts & set(_OPEN):
        return INCONCLUSIVE
    return OK if verdicts & {"proved", "exhausted"} else USAGE


def _document(
    target: str, outcomes: Sequence[Outcome], every: Sequence[EveryResult], wanted: int
) -> dict[str, Any]:  # fmt: skip
    """The JSON report; ``interrupted`` if not all configurations were checked."""
    document: dict[str, Any] = {"target": target, "cases": [outcome_json(o) for o in outcomes]}
    if every:
        document["for_all"] = [said.json() for said in every]
    if len(outcomes) < wanted:
        document["interrupted"] = {"done": len(outcomes), "not_done": wanted - len(outcomes)}
    return document


def table(outcomes: Sequence[Outcome], every: Sequence[EveryResult] = ()) -> str:
    """One row per configuration: the parameters that vary, the verdict, the first finding; and one
    per proof for ``every`` value of a parameter, ``1..`` there."""
    if not outcomes:
        return "nothing was checked"
    columns = [dict(o.case.params) for o in outcomes]
    varying = [n for n in columns[0] if len({c[n] for c in columns}) > 1]
    rows = [[*varying, "verdict", "finding"]]
    for outcome, values in zip(outcomes, columns, strict=True):
        rows.append([*(str(values[n]) for n in varying), outcome.verdict, _detail(outcome)])
    for said in every:
        known: dict[str, object] = {**dict(said.every.params), said.every.name: "1.."}
        rows.append([*(str(known[n]) for n in varying), said.verdict, said.text])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    good = sum(o.verdict in ("proved", "exhausted") for o in outcomes)
    lines.append(f"{count(len(outcomes), 'configuration')}, {good} proved")
    if every:
        whole = sum(said.verdict == "proved" for said in every)
        lines[-1] += f"; {whole} of {len(every)} for every {every[0].every.name}"
    return "\n".join(lines)


def _detail(outcome: Outcome) -> str:
    if outcome.rules:
        return (
            f"{', '.join(outcome.rules)} ({outcome.lines[0]})"
            if outcome.lines
            else outcome.rules[0]
        )
    return outcome.message.splitlines()[0][:60] if outcome.message else ""
