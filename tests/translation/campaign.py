"""Validates the translation of a corpus: ``python -m tests.translation.campaign CORPUS``.

CORPUS is a folder that `tests.translation.corpus` has made. A row of results is of a kernel and a
ptxas. ``--jsonl`` gets a row as each comes, with every finding and all that is undecided; ``--out``
a table by producer and ptxas, and a row for each kernel.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click

from tests.translation.corpus import Member, members
from tilesim.cubin.image import Image, Symbol
from tilesim.errors import TilesimError
from tilesim.translation import validate
from tilesim.translation.validation import Difference, Validation

Row = dict[str, Any]


def kernels(image: Image) -> list[Symbol]:
    """The functions of a cubin that can be launched: those with constants of their own."""
    return [one for one in image.functions if image.section(f".nv.constant0.{one.name}")]


def validated(member: Member) -> list[Row]:
    """What validation says of each kernel of a cubin."""
    image = Image(member.path.read_bytes(), member.path.name)
    found = []
    for symbol in kernels(image):
        head: Row = {"producer": member.producer, "kernel": member.kernel, "ptxas": member.ptxas,
                     "entry": symbol.name}  # fmt: skip
        start = time.process_time()
        wall = time.perf_counter()
        try:
            said = row_of(validate(image, symbol, image.ptx or ""))
        except TilesimError as error:
            said = {"error": str(error)}
        except Exception as error:  # a defect, which is a row
            said = {"error": f"{type(error).__name__}: {error}"}
        seconds = {"seconds": round(time.perf_counter() - wall, 3)}
        seconds["cpu"] = round(time.process_time() - start, 3)
        found.append({**head, **seconds, **said})
    return found


def row_of(validation: Validation) -> Row:
    """The numbers of a validation, its findings, and what is undecided."""
    relations = {
        kind: [one.shown, one.explained, one.lost, one.undecided]
        for kind, one in validation.relations.items()
    }
    return {
        "arch": validation.arch,
        "instructions": len(validation.instructions),
        "outcomes": dict(sorted(validation.outcomes.items())),
        "relations": relations,
        "inserted": len(validation.inserted),
        "differences": dict(
            Counter(f"{one.effect}: {one.kind} ({one.rule})" for one in validation.differences)
        ),
        "findings": [_finding(one) for one in validation.findings],
        "undecided": dict(Counter(f"{one.kind}: {one.why}" for one in validation.undecided)),
    }


def _finding(one: Difference) -> str:
    place = f" / {one.pc:#x} {one.sass}" if one.pc is not None else ""
    return f"{one.kind} ({one.rule}) line {one.line} {one.text}{place}: {one.sentence}"


# ---------------------------------------------------------------------- tables


def totals(rows: Iterable[Row]) -> Row:
    """Sums over rows."""
    outcomes: Counter[str] = Counter()
    relations: dict[str, list[int]] = {}
    done = []
    errors = lost = undecided = clean = instructions = 0
    for row in rows:
        if "error" in row:
            errors += 1
            continue
        done.append(row["cpu"])
        instructions += row["instructions"]
        outcomes.update(row["outcomes"])
        for kind, numbers in row["relations"].items():
            before = relations.get(kind, [0] * 4)
            relations[kind] = [a + b for a, b in zip(before, numbers, strict=True)]
        lost += bool(row["findings"])
        undecided += bool(row["undecided"])
        clean += not row["findings"] and not row["undecided"]
    done.sort()
    return {
        "kernels": len(done), "errors": errors, "instructions": instructions,
        "outcomes": dict(sorted(outcomes.items())), "relations": relations,
        "with findings": lost, "with undecided": undecided, "all shown or explained": clean,
        "seconds": round(sum(done), 1),
        "at 50, 90, 99 %": [done[len(done) * part // 100] for part in (50, 90, 99) if done],
    }  # fmt: skip


def document(rows: Sequence[Row]) -> Row:
    """Sums by producer and ptxas, and all of them."""
    producers = sorted({row["producer"] for row in rows})
    versions = sorted({row["ptxas"] for row in rows})
    return {
        "all": totals(rows),
        "by ptxas": {
            version: totals(row for row in rows if row["ptxas"] == version) for version in versions
        },
        "by producer": {
            producer: totals(row for row in rows if row["producer"] == producer)
            for producer in producers
        },
        "kernels": _compact(rows),
    }


def _compact(rows: Iterable[Row]) -> Row:
    """By producer and kernel: outcomes and relations, by the ptxas of which they are the same."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        name = f"{row['producer']}/{row['kernel']}"
        if "error" in row:
            said = row["error"]
        else:
            outcomes = ", ".join(f"{n} {what}" for what, n in row["outcomes"].items())
            relations = ", ".join(
                f"{k} {'/'.join(map(str, v))}" for k, v in row["relations"].items()
            )
            said = "; ".join(
                [outcomes, relations, *(f"LOST: {one}" for one in row["findings"][:3])]
            )
        found.setdefault(name, {}).setdefault(said, []).append(row["ptxas"])
    return {
        name: {" ".join(versions): said for said, versions in each.items()}
        for name, each in sorted(found.items())
    }


def run(chosen: Sequence[Member], jobs: int) -> Iterator[Row]:
    """The rows, as they come."""
    if jobs == 1:
        for member in chosen:
            yield from validated(member)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(validated, chosen, chunksize=4):
            yield from found


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--jsonl", type=click.Path(path_type=Path))
@click.option("--producer", "producers", multiple=True)
@click.option("--ptxas", "versions", multiple=True)
@click.option("--only", default="", help="Kernels whose name has this in it.")
@click.option("--sample", default=0, help="So many cubins, drawn.")
@click.option("--jobs", default=1, show_default=True)
def main(
    corpus: Path, out: Path | None, jsonl: Path | None, producers: Sequence[str],
    versions: Sequence[str], only: str, sample: int, jobs: int,
) -> None:  # fmt: skip
    """Runs the campaign."""
    chosen = [
        one
        for one in members(corpus)
        if (not producers or one.producer in producers)
        and (not versions or one.ptxas in versions)
        and only in one.kernel
    ]
    if sample:
        chosen = sorted(random.Random(1).sample(chosen, min(sample, len(chosen))))
    rows: list[Row] = []
    lines = jsonl.open("w") if jsonl else None
    for row in run(chosen, jobs):
        rows.append(row)
        if lines:
            lines.write(json.dumps(row) + "\n")
            lines.flush()
        if row.get("findings") or "error" in row:
            said = row.get("error") or row["findings"][0]
            click.echo(f"{row['producer']}/{row['kernel']} {row['ptxas']}: {said}"[:400])
    made = document(rows)
    if out:
        out.write_text(json.dumps(made, indent=1) + "\n")
    click.echo(json.dumps(made["all"], indent=1))
    sys.exit(bool(made["all"]["with findings"]))


if __name__ == "__main__":
    main()
