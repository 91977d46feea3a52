#!/usr/bin/env python3
"""The gallery on a GPU: is what it does, and in which order, an execution of the machine?

    python -m benchmarks.conformance [--runs N] [--kernel TEXT] [--jobs N] [--markdown FILE]

Every row of the gallery that is right, runs on this GPU and does the same in every schedule is
launched with random delays and recorded (`tilesim conform`). The same recordings are compared with
machines that are wrong (`MUTANTS`): each claims an order that the real one does not have, and a
recording that contradicts it has seen hardware do otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
import numpy as np

from tilesim.conform.compare import Conformance, Times, compare
from tilesim.conform.order import Group, Instance, Order, order_of
from tilesim.conform.recorded import Recorded
from tilesim.errors import TilesimError
from tilesim.gpu.conform import record
from tilesim.gpu.crosscheck import random_inputs
from tilesim.kernels.registry import cases


@dataclass
class Facts:
    """A recording with the machine's order: who gives to a group, who waits for it."""

    order: Order
    times: dict[Instance, Times]
    off: dict[int, Times]
    givers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    issuers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    takers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(order: Order, recorded: Recorded) -> Facts:
        """The facts of all launches."""
        rows = (tuple(row) for row in recorded.instances.tolist())
        facts = Facts(
            order, dict(zip(rows, recorded.times, strict=True)),
            dict(zip(recorded.ctas.tolist(), recorded.off, strict=True)),
        )  # fmt: skip
        kinds = {"gives": facts.givers, "issues": facts.issuers, "takes": facts.takers}
        for what, instance, group in order.happenings:
            if group is not None:
                kinds[what][group].append(instance)
        return facts

    def contradicts(self, first: Instance, later: Instance, delay: float = 0.0) -> bool:
        """Whether a launch left ``later`` less than ``delay`` ns after it entered ``first``."""
        off = 0.0 if first[0] == later[0] else self.off[first[0]] + self.off[later[0]]
        return bool(np.any(self.times[later][1] + off < self.times[first][0] + delay))


#: an order that a wrong machine claims: this first, so many ns later that
Claim = tuple[Instance, Instance, float]
Mutant = Callable[[Facts], Iterator[Claim]]


def next_phase(facts: Facts) -> Iterator[Claim]:
    """A wait passes when the phase after its own is complete."""
    for group, takers in facts.takers.items():
        after = Group(group.object, group.number + 1, group.label)
        for giver in (*facts.givers.get(after, ()), *facts.issuers.get(after, ())):
            yield from ((giver, taker, 0.0) for taker in takers)


def other_barrier(facts: Facts) -> Iterator[Claim]:
    """A wait for a phase of a barrier waits for that phase of the next barrier, too."""
    for group, takers in facts.takers.items():
        if isinstance(group.object, int):
            beside = Group(group.object + 1, group.number, "")
            for giver in (*facts.givers.get(beside, ()), *facts.issuers.get(beside, ())):
                yield from ((giver, taker, 0.0) for taker in takers)


def slow_arrival(facts: Facts) -> Iterator[Claim]:
    """An arrival counts a microsecond after its instruction."""
    for group, takers in facts.takers.items():
        for giver in facts.givers.get(group, ()):
            yield from ((giver, taker, 1000.0) for taker in takers if taker != giver)


def slow_copy(facts: Facts) -> Iterator[Claim]:
    """A copy completes three microseconds after its issue."""
    for group, takers in facts.takers.items():
        for issuer in facts.issuers.get(group, ()):
            yield from ((issuer, taker, 3000.0) for taker in takers)


def together(facts: Facts) -> Iterator[Claim]:
    """Warps that wait for one phase come to the wait before any of them passes."""
    for takers in facts.takers.values():
        yield from ((a, b, 0.0) for a in takers for b in takers if a != b)


def acknowledged(facts: Facts) -> Iterator[Claim]:
    """Whoever arrives goes on when somebody has waited for the phase."""
    for group, takers in facts.takers.items():
        for giver in facts.givers.get(group, ()):
            yield from ((taker, giver, 0.0) for taker in takers if taker != giver)


MUTANTS: dict[str, Mutant] = {
    m.__name__: m
    for m in (next_phase, other_barrier, slow_arrival, slow_copy, together, acknowledged)
}


@dataclass(frozen=True)
class Row:
    """What became of a row of the gallery; ``refuted``: by mutant, None where it claims nothing."""

    target: str
    result: Conformance | None
    refuted: dict[str, bool | None]
    remark: str = ""

    def line(self) -> str:
        """The row of the table."""
        if self.result is None:
            return f"| {self.target} | | | | {self.remark} |"
        said = "conforms" if self.result.conforms else str(self.result.violations[0])
        claims = [r for r in self.refuted.values() if r is not None]
        return (
            f"| {self.target} | {self.result.launches} | {self.result.orders} | "
            f"{sum(claims)} of {len(claims)} | {said} |"
        )


def examine(number: int, runs: int) -> Row:
    """Records a row of the gallery in a process of its own and compares it."""
    case = cases()[number]
    try:
        program = case.build()
        given = {}
        if case.kernel.inputs is not None:
            rng = np.random.default_rng(0)
            given = case.kernel.inputs(rng, **{**case.kernel.params, **case.params})
        inputs = random_inputs(program, np.random.default_rng(0), given)
        order = order_of(program, inputs)
        recorded = record(program, inputs, runs)
    except TilesimError as error:
        return Row(case.target, None, {}, str(error).split("\n")[0])
    facts = Facts.of(order, recorded)
    refuted: dict[str, bool | None] = {}
    for name, mutant in MUTANTS.items():
        claims = list(mutant(facts))
        refuted[name] = any(facts.contradicts(*c) for c in claims) if claims else None
    return Row(case.target, compare(order, recorded), refuted)


def table(rows: list[Row]) -> str:
    """The results as Markdown."""
    lines = [
        "| kernel | launches | orders | wrong machines refuted | result |",
        "|---|--:|--:|---|---|",
    ]
    lines += [row.line() for row in rows]
    lines += ["", "| wrong machine | claims | refuted in |", "|---|---|---|"]
    for name, mutant in MUTANTS.items():
        claims = [row.refuted[name] for row in rows if row.refuted.get(name) is not None]
        said = (mutant.__doc__ or "").rstrip(".")
        lines.append(f"| {name} | {said} | {sum(map(bool, claims))} of {len(claims)} rows |")
    return "\n".join([*lines, ""])


@click.command()
@click.option("--runs", type=click.IntRange(1), default=200, show_default=True)
@click.option("--kernel", default="", help="Only rows whose name contains this.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path))
def main(runs: int, kernel: str, jobs: int, markdown: Path | None) -> None:
    """Compares the gallery with a GPU."""
    chosen = [
        number
        for number, case in enumerate(cases())
        if not case.fails and not case.kernel.target.startswith("sm_1") and kernel in case.target
    ]
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(partial(examine, runs=runs), chosen):
            rows.append(row)
            click.echo(row.line())
            if markdown is not None:
                markdown.write_text(table(rows))
    click.echo(table(rows))


if __name__ == "__main__":
    main()
