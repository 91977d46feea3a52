"""How many mistakes in machine code are seen: ``python -m tests.translation.mutation CORPUS``.

Each number draws a producer, a kernel of it, a kind of mistake and a place (`sass_mutants`); the
mutant is validated against the PTX of the original. ``finding``: there is a finding that the
original has not. ``stronger``: the mutant waits for more, and that is said. ``undecided``: what was
shown of the original is said to be undecided. ``explained``: a relation is said to hold in another
way. ``unseen``: nothing differs.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import click

from tests.translation.campaign import kernels
from tests.translation.corpus import Member, members
from tests.translation.sass_mutants import KINDS, Mutant, drawn
from tilesim.cubin.image import Image, Symbol
from tilesim.errors import TilesimError
from tilesim.translation import validate
from tilesim.translation.validation import Validation

Row = dict[str, Any]
Corpus = Mapping[str, Sequence[Member]]
#: kernels that are drawn for one number until one has a place
_TRIES = 20


def by_producer(every: Iterator[Member]) -> Corpus:
    """Cubins of each producer."""
    found: dict[str, list[Member]] = {}
    for one in every:
        found.setdefault(one.producer, []).append(one)
    return found


def judged(number: int, corpus: Corpus, kinds: Sequence[str]) -> Row | None:
    """What is said of the mutant of a number; None if there is none."""
    rng = random.Random(number)
    kind = kinds[number % len(kinds)]
    for _ in range(_TRIES):
        member = rng.choice(corpus[rng.choice(sorted(corpus))])
        image = Image(member.path.read_bytes(), member.path.name)
        symbols = kernels(image)
        if not symbols:
            continue
        symbol = rng.choice(symbols)
        mutant = drawn(image, symbol, kind, rng)
        if mutant is None:
            continue
        head: Row = {
            "number": number, "kind": kind, "producer": member.producer, "kernel": member.kernel,
            "ptxas": member.ptxas, "entry": symbol.name, "pc": hex(mutant.pc), "what": mutant.what,
        }  # fmt: skip
        return {**head, **answer(image, symbol, mutant)}
    return None


def answer(image: Image, symbol: Symbol, mutant: Mutant) -> Row:
    """Whether validation sees a mutant, and by what."""
    try:
        before = _validated(image, symbol)
        after = validate(mutant.image, symbol, image.ptx or "")
    except TilesimError as error:
        return {"seen": "refused", "by": str(error)[:200]}
    return compared(before, after)


@lru_cache(maxsize=16)
def _validated(image: Image, symbol: Symbol) -> Validation:
    return validate(image, symbol, image.ptx or "")


def compared(before: Validation, after: Validation) -> Row:
    """What the second says that the first does not."""
    known = Counter((one.effect, one.kind, one.line) for one in before.differences)
    new = [one for one in after.differences if not _take(known, (one.effect, one.kind, one.line))]
    for effect, seen in (("weaker", "finding"), ("stronger", "stronger")):
        found = [one for one in new if one.effect == effect]
        if found:
            rules = sorted({f"{one.kind} ({one.rule})" for one in found})
            return {"seen": seen, "by": "; ".join(rules), "sentence": found[0].sentence[:300]}
    old = Counter((one.kind, one.line, one.why) for one in before.undecided)
    doubts = [one for one in after.undecided if not _take(old, (one.kind, one.line, one.why))]
    if doubts or sum(r.undecided for r in after.relations.values()) > sum(
        r.undecided for r in before.relations.values()
    ):
        return {"seen": "undecided", "by": doubts[0].why if doubts else "relations"}
    explained = [sum(r.explained for r in one.relations.values()) for one in (before, after)]
    if explained[0] < explained[1]:
        return {"seen": "explained", "by": "; ".join(sorted({one.rule for one in new}))}
    said = [(one.kind, one.line, one.outcome) for one in after.instructions]
    if said != [(one.kind, one.line, one.outcome) for one in before.instructions] or new:
        return {"seen": "outcome", "by": new[0].sentence[:300] if new else "outcomes differ"}
    if len(before.inserted) != len(after.inserted):
        return {"seen": "outcome", "by": "inserted"}
    return {"seen": "unseen", "by": ""}


def _take(known: Counter[Any], key: object) -> bool:
    if not known[key]:
        return False
    known[key] -= 1
    return True


def table(rows: Sequence[Row]) -> str:
    """How many mutants of each kind are seen, and by what."""
    seen = ("finding", "stronger", "undecided", "explained", "outcome", "unseen", "refused")
    count = Counter((row["kind"], row["seen"]) for row in rows)
    lines = [f"{'':<10}" + "".join(f"{name:>11}" for name in seen) + f"{'all':>8}"]
    for kind in KINDS:
        numbers = [count[kind, name] for name in seen]
        lines.append(f"{kind:<10}" + "".join(f"{n:>11}" for n in numbers) + f"{sum(numbers):>8}")
    return "\n".join(lines)


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--count", default=600, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first number.")
@click.option("--ptxas", "versions", multiple=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]))
@click.option("--jobs", default=1, show_default=True)
@click.option("--jsonl", type=click.Path(path_type=Path))
def main(
    corpus: Path,
    count: int,
    seed: int,
    versions: Sequence[str],
    kinds: Sequence[str],
    jobs: int,
    jsonl: Path | None,
) -> None:
    """Draws mutants, and says which are seen."""
    chosen = by_producer(one for one in members(corpus) if not versions or one.ptxas in versions)
    rows: list[Row] = []
    numbers = range(seed, seed + count)
    work = partial(judged, corpus=chosen, kinds=kinds or [*KINDS])
    lines = jsonl.open("w") if jsonl else None
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(work, numbers) if jobs > 1 else map(work, numbers):
            if row is None:
                continue
            rows.append(row)
            if lines:
                lines.write(json.dumps(row) + "\n")
                lines.flush()
            if row["seen"] in ("unseen", "refused", "undecided", "outcome", "explained"):
                place = f"{row['producer']}/{row['kernel']} {row['ptxas']} {row['pc']}"
                click.echo(f"{row['number']} {row['seen']} {row['kind']}: {place} {row['what']}")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
