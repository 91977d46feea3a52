"""``python -m tilesim.kernels``: checks the whole gallery against the expected verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size

import click

from tilesim.cli.group import Command
from tilesim.errors import UsageError
from tilesim.kernels.outcome import Outcome, run
from tilesim.kernels.registry import Case, cases

_PREFIX = "tilesim.kernels."
_HEADER = ("kernel", "target", "family", "expected", "verdict", "findings", "ok", "seconds")


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--family", metavar="NAME", help="Check one family only: hopper, nvfuser, bugs...")
def main(as_json: bool, family: str | None) -> None:
    """Check every kernel of the gallery; exit 1 if a verdict is not the expected one."""
    try:
        selected = cases(family)
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    outcomes = list(_checked(selected))
    if as_json:
        click.echo(json.dumps({"results": [outcome.json() for outcome in outcomes]}, indent=2))
    else:
        click.echo(table(outcomes))
    sys.exit(0 if all(outcome.ok for outcome in outcomes) else 1)


def _checked(selected: tuple[Case, ...]) -> Iterator[Outcome]:
    """Checks one case after the other, showing on a terminal which one is running."""
    show = sys.stderr.isatty()
    width = get_terminal_size().columns - 1
    for number, case in enumerate(selected, 1):
        if show:
            line = f"[{number}/{len(selected)}] {case.target.removeprefix(_PREFIX)}"
            click.echo(f"\r\x1b[K{line[:width]}", err=True, nl=False)
        yield run(case)
    if show:
        click.echo("\r\x1b[K", err=True, nl=False)


def table(outcomes: Iterable[Outcome]) -> str:
    """The outcomes as an aligned table with a summary line."""
    done = tuple(outcomes)
    rows = [_HEADER, *(_row(outcome) for outcome in done)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    wrong = sum(not outcome.ok for outcome in done)
    seconds = sum(outcome.seconds for outcome in done)
    lines.append(f"{len(done)} kernels, {wrong} not as expected, {seconds:.1f} s")
    return "\n".join(lines)


def _row(outcome: Outcome) -> tuple[str, ...]:
    case = outcome.case
    return (
        case.target.removeprefix(_PREFIX),
        outcome.target,
        case.family,
        case.expected,
        outcome.verdict,
        " ".join(outcome.rules) or "-",
        "ok" if outcome.ok else "MISMATCH",
        f"{outcome.seconds:.2f}",
    )


if __name__ == "__main__":
    main(prog_name="python -m tilesim.kernels")
