"""``python -m benchmarks.blame``: does a report name the line to change?

For every wrong program with a known culprit (`benchmarks.blame.known`): whether the first line of
the first finding is among the culprit's, and whether one of the first three lines is. What passes,
or is refused before it runs, is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

import click

from benchmarks.blame.known import Known, collection, mutants
from benchmarks.mutation_score.tables import Rows, markdown, text
from tilesim.checker import Report, check
from tilesim.errors import InvalidProgram
from tilesim.ir.loc import Loc
from tilesim.mistakes import diagnose as explain

#: locations of a report that are looked at
_FIRST = 3


@dataclass(frozen=True)
class Blamed:
    """The first lines of a report, and which of them is the culprit's (None: none of them)."""

    known: Known
    rule: str
    lines: tuple[Loc, ...]
    place: int | None
    seconds: float


def blamed(known: Known) -> Blamed | None:
    """What the report on a wrong program names; None if there is no finding."""
    start = perf_counter()
    try:
        report = check(known.make(), strict=known.strict, inputs=known.inputs)
    except InvalidProgram:
        return None
    if report.verdict != "failed":
        return None
    lines = first_lines(report)
    place = next((n for n, loc in enumerate(lines) if loc in known.culprits), None)
    return Blamed(known, report.findings[0].rule, lines, place, perf_counter() - start)


def first_lines(report: Report) -> tuple[Loc, ...]:
    """The first three lines that the report names."""
    named = dict.fromkeys(loc for finding in report.findings for loc in finding.locations)
    return tuple(named)[:_FIRST]


def table(results: Iterable[Blamed], label: str) -> Rows:
    """A row per group and one for all: how many, the shares in percent of the first line and of the
    first three."""
    rows: Rows = [(label, "bugs", "first line", "first three")]
    groups: dict[str, list[Blamed]] = {}
    every: list[Blamed] = []
    for result in results:
        groups.setdefault(result.known.group, []).append(result)
        every.append(result)
    return rows + [(name, *_shares(group)) for name, group in (*groups.items(), ("all", every))]


def _shares(group: list[Blamed]) -> tuple[str, ...]:
    first = sum(r.place == 0 for r in group)
    among = sum(r.place is not None for r in group)
    number = len(group)
    return str(number), _share(first, number), _share(among, number)


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "0"


def missed(results: Iterable[Blamed]) -> Iterator[str]:
    """The ones whose first line is another one: what it names, and what it should."""
    for r in results:
        if r.place != 0:
            named = ", ".join(_short(loc) for loc in r.lines)
            real = ", ".join(sorted(_short(loc) for loc in r.known.culprits)[:8])
            mark = "second" if r.place is not None else "missed"
            yield f"{mark}: {r.known.group} {r.known.name}: {r.rule} at {named}; is {real}"


def _short(loc: Loc) -> str:
    return f"{loc.file.rsplit('/', 1)[-1]}:{loc.line}"


@click.command()
@click.option("--pairs/--no-pairs", default=True, help="The pairs of the bug collection.")
@click.option("--sample", default=6, show_default=True, help="Mutants of each fault.")
@click.option("--seed", default=0, show_default=True, help="Seed of the sample.")
@click.option("--only", default="", metavar="TEXT", help="Those whose name or group has TEXT.")
@click.option("--as-markdown", is_flag=True, help="Tables in Markdown.")
def main(pairs: bool, sample: int, seed: int, only: str, as_markdown: bool) -> None:
    """Counts how often a report names the line to change first, or among the first three."""
    shown = markdown if as_markdown else text
    explain.RAISES = True
    for label, every in (
        ("entry", collection() if pairs else ()),
        ("fault", mutants(sample, seed) if sample else ()),
    ):
        done = [blamed(known) for known in every if only in f"{known.group} {known.name}"]
        results = [result for result in done if result is not None]
        if results:
            click.echo("\n".join((shown(table(results, label)), "", *missed(results), "")))


if __name__ == "__main__":
    sys.exit(main())
