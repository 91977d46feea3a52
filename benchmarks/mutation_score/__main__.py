"""``python -m benchmarks.mutation_score``: the mutation score of the gallery.

Every fault of the catalogue is injected at every place of every correct kernel where it applies;
each mutant is checked at the default settings (see `tilesim.fuzz.judge`). The command measures
tilesim, not a user's kernel (that is ``tilesim fuzz --mutate``), so it is no subcommand.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import click

from benchmarks.mutation_score import named, tables
from benchmarks.mutation_score.gallery import cases, rows
from tilesim import __version__
from tilesim.cli.campaign import jobs_option
from tilesim.cli.group import Command
from tilesim.cli.options import Progress, deliver, format_option, output_option, write_file
from tilesim.errors import TilesimError
from tilesim.fuzz.campaign import Site, opener, outcome_json, render, run, sites
from tilesim.fuzz.cases import Outcome
from tilesim.fuzz.judge import judge, kind
from tilesim.report.result import FINDINGS, INTERRUPTED, OK, USAGE
from tilesim.wording import count

#: parts of the page that `--page` writes
_SUMMARY, _BY_FAULT, _BY_KERNEL, _LISTED, _NAMES = (
    "summary", "by fault", "by kernel", "to look at", "names",
)  # fmt: skip


@click.command(cls=Command)
@click.option("--kernel", default="", metavar="TEXT", help="Only kernels whose name contains TEXT.")
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="Only this kind of fault.")
@click.option("--sample", type=click.IntRange(1), help="At most so many mutants of each fault.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the sample.")
@jobs_option("check cases")
@format_option
@output_option
@click.option(
    "--page", type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Also write the tables into this page (benchmarks/mutation_score/README.md).",
)  # fmt: skip
def main(
    kernel: str,
    faults: tuple[str, ...],
    sample: int | None,
    seed: int,
    jobs: int,
    output_format: str,
    output: Path | None,
    page: Path | None,
) -> None:
    """Inject every fault into every correct kernel of the gallery, and count what is found.

    Exit: 0 every mutant is found (by check, or by run as a wrong result) or equivalent, 1 some are
    not, 2 usage error, 130 interrupted.
    """
    try:
        sys.exit(_main(kernel, faults, sample, seed, jobs, output_format, output, page))
    except TilesimError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(USAGE)


def _main(
    kernel: str,
    faults: tuple[str, ...],
    sample: int | None,
    seed: int,
    jobs: int,
    output_format: str,
    output: Path | None,
    page: Path | None,
) -> int:
    todo = list(cases(rows(kernel), faults, sample=sample, seed=seed))
    watch = _Watch(len(todo))
    campaign = run(todo, opener(jobs), workers=jobs, on_outcome=watch.add, check=judge)
    watch.progress.clear()
    outcomes = campaign.sorted()
    found = sites(outcomes)
    if output_format == "json":
        document: dict[str, Any] = {"version": __version__}
        document["mutants"] = [_json(outcome) for outcome in outcomes]
        if campaign.interrupted:
            document["interrupted"] = {"not_done": len(todo) - len(outcomes)}
        report = render(document)
    else:
        report = "\n\n".join(_text(found, outcomes)) + "\n"
        if campaign.interrupted:
            report += f"interrupted after {len(outcomes)} of {len(todo)} mutants\n"
    deliver(report, output)
    if page is not None and not campaign.interrupted:
        write_file(page, _page(page.read_text(encoding="utf-8"), found, outcomes))
    if campaign.interrupted:
        return INTERRUPTED
    return FINDINGS if any(tables.to_look_at(found)) else OK


class _Watch:
    """The progress line."""

    def __init__(self, total: int) -> None:
        self.progress = Progress()
        self._total = total
        self._kinds: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One more mutant is judged."""
        self._kinds[kind(outcome)] += 1
        kinds = ", ".join(f"{n} {name}" for name, n in sorted(self._kinds.items()))
        self.progress.show(f"{self._kinds.total()} of {self._total} mutants: {kinds}")


def _text(found: Sequence[Site], outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield tables.text(tables.by_fault(found))
    yield tables.text(tables.by_kernel(found))
    listed = "\n".join(_line(site) for site in tables.to_look_at(found))
    if listed:
        yield listed
    yield _summary(found, outcomes)


def _line(site: Site) -> str:
    outcome = site.decisive
    params = ",".join(f"{name}={value}" for name, value in outcome.case.params)
    detail = outcome.numbers if site.kind == "contradicted" else outcome.message
    shown = f": {detail.partition(';')[0]}" if detail else ""
    return f"{site.kind}: {site.kernel}[{params}]: {outcome.where}{shown}"


def _summary(found: Sequence[Site], outcomes: Sequence[Outcome]) -> str:
    kinds = Counter(site.kind for site in found)
    parts = ", ".join(f"{number} {name}" for name, number in kinds.most_common())
    kernels = count(len({site.target for site in found}), "kernel")
    return (
        f"{count(len(found), 'fault')} at their places in {kernels} "
        f"({count(len(outcomes), 'mutant')} with all parameters): {parts or 'none'}; "
        f"check finds {tables.score(found):.1f} % of those that are not equivalent, "
        f"{tables.score(found, ran=True):.1f} % with what run finds"
    )


def _page(text: str, found: Sequence[Site], outcomes: Sequence[Outcome]) -> str:
    """The page with its generated parts."""
    listed = [f"* `{_line(site)}`" for site in tables.to_look_at(found)]
    head = f"tilesim {__version__}, {date.today().isoformat()}: {_summary(found, outcomes)}."
    text = tables.with_part(text, _SUMMARY, head)
    text = tables.with_part(text, _BY_FAULT, tables.markdown(tables.by_fault(found)))
    text = tables.with_part(text, _BY_KERNEL, tables.markdown(tables.by_kernel(found)))
    text = tables.with_part(text, _NAMES, tables.markdown(named.table()))
    return tables.with_part(text, _LISTED, "\n".join(listed) or "None.")


def _json(outcome: Outcome) -> dict[str, object]:
    return {"kind": kind(outcome), **outcome_json(outcome)}


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.mutation_score")
