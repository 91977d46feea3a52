"""Inventories of machine code that others ship: ``python -m tests.cubin.inventory_survey``.

Each source is ``NAME=PLACE``: a package with its version, and a file or a folder of machine code.
Of its kernels for sm_90 and newer that have mbarriers a sample is looked at, spread evenly. What
differs is printed, to be looked at by a person before it is said anywhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import click

from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.inventory import Inventory, inventory
from tilesim.errors import TargetError
from tilesim.loader.code_kind import kind_of
from tilesim.loader.machine_code import each_image, kernels_of

#: that a kernel may take: more than a user waits, as this runs beside other work
SECONDS = 200.0
_GOLDEN = (5**0.5 - 1) / 2
#: what is compared
KINDS = ("arrivals", "bytes", "named barriers", "registers")


def files(place: Path) -> list[Path]:
    """The files of machine code of a source, in order."""
    inside = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [one for one in inside if kind_of(one) in ("cubin", "fatbin", "program", "library")]


def of_interest(file: Path) -> Iterator[tuple[Image, Symbol]]:
    """The kernels of a file with mbarriers."""
    try:
        for image in each_image(file):
            if image.arch.startswith(("sm_9", "sm_1")):
                yield from ((image, s) for s in kernels_of(image) if image.info(s).mbarriers)
    except (TargetError, CubinError) as error:
        click.echo(f"{file.name}: {error}", err=True)


def sampled(place: Path, most: int) -> tuple[int, Iterator[tuple[Path, Image, Symbol]]]:
    """How many kernels a source has, or files if it has more of these than are looked at, and a
    sample of the kernels."""
    every = files(place)
    if len(every) > most:  # one kernel of each file
        chosen = [every[n * len(every) // most] for n in spread(most)]
        return len(every), ((f, *one) for f in chosen for one in [*of_interest(f)][:1])
    total = sum(1 for file in every for _ in of_interest(file))
    wanted = {n * total // min(most, total) for n in range(min(most, total))}
    numbered = enumerate((file, *one) for file in every for one in of_interest(file))
    return total, (one for number, one in numbered if number in wanted)


def spread(count: int) -> list[int]:
    """Numbers below ``count`` in an order of which each beginning is spread evenly."""
    return sorted(range(count), key=lambda number: number * _GOLDEN % 1)


def answers(found: Inventory) -> Iterator[tuple[str, str, int, str]]:
    """Kind, answer, for how many, and why, of each comparison."""
    for row in found.mbarriers:
        yield "arrivals", row.arrivals.answer, len(row.places), row.arrivals.why
        if row.bytes is not None:
            yield "bytes", row.bytes.answer, len(row.places), row.bytes.why
    for named in found.named_barriers:
        yield "named barriers", named.count.answer, 1, named.count.why
    if found.register_pool is not None:
        yield "registers", found.register_pool.answer, 1, found.register_pool.why


def surveyed(place: Path, most: int, minutes: float) -> dict[str, Any]:
    """The sums of a source; after so many minutes no further kernel is begun."""
    until = monotonic() + 60 * minutes
    total, kernels = sampled(place, most)
    counted: Counter[tuple[str, str]] = Counter()
    seconds: list[float] = []
    looked_at = errors = without_doubt = mbarriers = 0
    for file, image, symbol in kernels:
        if monotonic() > until:
            break
        begun = process_time()
        try:
            found = inventory(image, symbol, seconds=SECONDS)
        except CubinError as error:
            click.echo(f"{file.name} {symbol.name}: {error}", err=True)
            errors += 1
            continue
        seconds.append(process_time() - begun)
        looked_at += 1
        mbarriers += sum(len(row.places) for row in found.mbarriers)
        without_doubt += all(answer == "agrees" for _, answer, _, _ in answers(found))
        for kind, answer, many, why in answers(found):
            counted[kind, answer] += many
            if answer == "differs":
                click.echo(f"{file} {symbol.name} {image.arch}: {kind}: {why}", err=True)
    seconds.sort()
    answer_counts = {
        kind: {answer: counted[kind, answer] for answer in ("agrees", "differs", "not known")}
        for kind in KINDS
    }
    at = [round(seconds[int(part * len(seconds))], 2) for part in (0.5, 0.99) if seconds]
    return {
        "kernels": total, "looked at": looked_at, "errors": errors, "mbarriers": mbarriers,
        "all agree": without_doubt, **answer_counts, "seconds at 50, 99 %": at,
    }  # fmt: skip


@click.command(help=__doc__)
@click.argument("sources", nargs=-1, required=True)
@click.option("--most", default=300, show_default=True, help="Kernels of each source.")
@click.option("--minutes", default=600.0, help="What a source may take.")
@click.option("--out", type=click.Path(path_type=Path), help="Sums of sources are put in here.")
def main(sources: tuple[str, ...], most: int, minutes: float, out: Path | None) -> None:
    """Looks at samples of sources."""
    document: dict[str, Any] = {"sources": {}}
    if out is not None and out.exists():
        document = json.loads(out.read_text())
    for source in sources:
        name, _, place = source.partition("=/")
        document["sources"][name] = surveyed(Path(f"/{place}"), most, minutes)
        document["date"] = datetime.now(UTC).date().isoformat()
        click.echo(f"{name}: {json.dumps(document['sources'][name])}")
        if out is not None:
            out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
