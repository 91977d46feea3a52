"""``python -m benchmarks.repair``: how often ``--suggest`` finds a repair, and if it is the fix.

The wrong programs are those of `benchmarks.blame`: pairs of the bug collection, mutants of the
gallery. Counted apart are those whose right twin differs in one or two lines, none of them a
declaration: bugs that one or two edits mend. A repair is the fix if it makes a program that
executes what the twin does, changes one of the lines in which the two differ, or leaves each role
with the same kinds of instructions as the twin has, and the wrong program not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from time import process_time

import click

from benchmarks.blame.culprits import changed_lines
from benchmarks.blame.known import Known, collection, mutants
from benchmarks.mutation_score.tables import Rows, markdown, text
from tilesim.checker import check
from tilesim.cli.examine import reference
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ir.text.mir import fingerprint
from tilesim.repair import Repair, Repairs, Wanted
from tilesim.transforms.lower import lower

#: edits that mend a bug at most, to be counted as one that can be mended
_EDITS = 2


@dataclass(frozen=True)
class Mended:
    """What was found for a wrong program: ``needed`` lines change in its fix, None: declarations.

    ``seconds`` of the processor; ``fix`` says what the first repair is: ``same`` program as a twin,
    a change of the same ``line``, the same ``kind`` of instructions put in or taken out, ``other``,
    or nothing.
    """

    known: Known
    needed: int | None
    repairs: Repairs
    fix: str
    seconds: float

    @property
    def simple(self) -> bool:
        """Whether one or two edits mend it."""
        return self.needed is not None and self.needed <= _EDITS


def mended(known: Known, seconds: float) -> Mended | None:
    """What is suggested for a wrong program; None if it does not fail."""
    program = known.make()
    with_reference = {} if known.target is None else reference(known.target, program, 0)
    wanted = Wanted(timedelta(seconds=seconds), **with_reference)
    start = process_time()
    try:
        plain = check(program, strict=known.strict, inputs=known.inputs)
        base = process_time()
        if plain.verdict != "failed":
            return None
        report = check(program, strict=known.strict, inputs=known.inputs, suggest=wanted)
    except InvalidProgram:
        return None
    spent = process_time() - base - (base - start)
    assert report.repairs is not None
    fix = _fix(known, report.repairs.found[0]) if report.repairs.found else ""
    return Mended(known, needed(known), report.repairs, fix, max(0.0, spent))


def needed(known: Known) -> int | None:
    """In how many lines the nearest twin differs; None if every twin declares something else."""
    found = [changed_lines(known.make(), twin()) for twin in known.twins]
    return min((len(lines) for lines in found if lines is not None), default=None)


def _fix(known: Known, first: Repair) -> str:
    mended = _executed(first.program)
    if any(_executed(twin()) == mended for twin in known.twins):
        return "same"
    if any(c.loc in known.culprits for c in first.changes):
        return "line"
    wrong = _kinds(known.make())
    twins = [_kinds(twin()) for twin in known.twins]
    return "kind" if _kinds(first.program) in twins and wrong not in twins else "other"


def _kinds(program: Program | Mir) -> Counter[tuple[str, str]]:
    """How many instructions of each kind the roles have."""
    mir = lower(program) if isinstance(program, Program) else program
    ops = ((i.role, i.what) for i in mir.code if not i.counts)
    return Counter((role, op.mnemonic) for role, op in ops if isinstance(op, Op))


def _executed(program: Program | Mir) -> str:
    return fingerprint(lower(program) if isinstance(program, Program) else program)


def table(results: Iterable[Mended], label: str) -> Rows:
    """A row per group and one for all, of the bugs that one or two edits mend."""
    rows: Rows = [(label, "bugs", "repaired", "by the fix", "median s")]
    groups: dict[str, list[Mended]] = {}
    every = [r for r in results if r.simple]
    for result in every:
        groups.setdefault(result.known.group, []).append(result)
    return rows + [(name, *_shares(group)) for name, group in (*groups.items(), ("all", every))]


def _shares(group: list[Mended]) -> tuple[str, ...]:
    number = len(group)
    found = sum(bool(r.fix) for r in group)
    fixes = sum(r.fix in ("same", "line", "kind") for r in group)
    seconds = f"{median(r.seconds for r in group):.1f}" if group else ""
    return str(number), _share(found, number), _share(fixes, number), seconds


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "0"


def to_look_at(results: Iterable[Mended]) -> Iterator[str]:
    """Those without a repair, and those whose first repair is another one."""
    for result in results:
        if not result.fix:
            size = "declarations" if result.needed is None else f"{result.needed} lines"
            yield f"none   {result.known.name} ({size}): {result.repairs}"
    for result in results:
        if result.fix == "other":
            yield f"other  {result.known.name}: {result.repairs.found[0].what}"


@click.command()
@click.argument("name", default="")
@click.option("--mutants", "sample", type=click.IntRange(0), default=0, help="Mutants per fault.")
@click.option("--seconds", default=10.0, show_default=True, help="For each program.")
@click.option("--first", default=0, help="Leave out so many programs.")
@click.option("--most", default=10_000, help="Look at no more programs.")
@click.option("--markdown", "in_markdown", is_flag=True, help="Tables as Markdown.")
def main(name: str, sample: int, seconds: float, first: int, most: int, in_markdown: bool) -> None:
    """How often a repair is found, of programs whose name contains NAME."""
    wrong = list(mutants(sample)) if sample else list(collection())
    chosen = [k for k in wrong if name in k.name or name in k.group][first : first + most]
    results = []
    for known in chosen:
        result = mended(known, seconds)
        if result is not None:
            results.append(result)
            what = result.repairs.found[0].what if result.fix else "nothing"
            click.echo(
                f"{result.fix or 'none':5} {result.needed} {result.seconds:5.1f} s "
                f"{result.repairs.tried:4} {known.group} {known.name}: {what}", err=True,
            )  # fmt: skip
    rows = table(results, "fault" if sample else "bug")
    click.echo(markdown(rows) if in_markdown else text(rows))
    for line in to_look_at(results):
        click.echo(line)


if __name__ == "__main__":
    sys.exit(main())
