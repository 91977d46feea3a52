"""PTX with one mistake, compiled: its machine code against the PTX without.

``python -m tests.translation.ptx_mutants CORPUS --ptxas DIR``: each number draws a kernel of the
corpus, a kind of mistake and a synchronising instruction that has a line of its own. Lines keep
their numbers. What is said is compared as by `mutation`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tests.translation.campaign import kernels
from tests.translation.corpus import Member, assemble, assemblers, members
from tests.translation.mutation import by_producer, compared, table
from tilesim.cubin.image import Image
from tilesim.errors import TilesimError
from tilesim.translation import classes, validate

Lines = list[str]
Change = Callable[[Lines, int, random.Random], str]
_STATEMENT = re.compile(
    r"^\s*(@!?[%\w$]+\s+)?([a-z][\w:]*(?:\.[\w:]+)+)\s+?"
    r"([^;{}]*|[^;]*\{[^;{}]*\}[^;]*);\s*$"
)
_NUMBER = re.compile(r"(?<=[\s,+])(0x[0-9a-f]+|\d+)(?=\s*[,;\]])")
_APART = re.compile(r"^\s*(?:[\w$%]+:|@|bra|ret|\{|\})|\b(?:bra|ret|exit)\b")
#: lines between two that change places, at most
_FAR = 30
_TRIES = 40


def synchronising(line: str) -> bool:
    """Whether a line is one synchronising instruction, and no access."""
    kind = _kind(line)
    return kind is not None and not kind.access


def _kind(line: str) -> classes.Kind | None:
    found = _STATEMENT.match(line)
    return classes.of_ptx(found[2]) if found else None


def _deleted(lines: Lines, at: int, rng: random.Random) -> str:
    said, lines[at] = lines[at].strip(), ""
    return said


def _moved(lines: Lines, at: int, rng: random.Random) -> str:
    """Behind the next one of another kind, or the next access, on a straight line."""
    own = _kind(lines[at])
    for other in range(at + 1, min(at + _FAR, len(lines))):
        if _APART.search(lines[other]):
            return ""
        if _kind(lines[other]) not in (None, own):
            said = f"{lines[at].strip()} behind {lines[other].strip()}"
            lines[at], lines[other] = lines[other], lines[at]
            return said
    return ""


def _guarded(lines: Lines, at: int, rng: random.Random) -> str:
    line = lines[at]
    found = re.match(r"^(\s*)@(!?)([%\w$]+)(\s+)", line)
    if found is None:
        return ""
    rest = line[found.end() :]
    other = "" if found[2] else "!"
    lines[at] = rng.choice([f"{found[1]}@{other}{found[3]} {rest}", f"{found[1]}{rest}"])
    return f"{line.strip()} is {lines[at].strip()}"


def _numbered(lines: Lines, at: int, rng: random.Random) -> str:
    line = lines[at]
    found = [*_NUMBER.finditer(line)]
    if not found:
        return ""
    one = rng.choice(found)
    old = int(one[0], 0)
    new = rng.choice([old + 1, old + 8, old ^ 1])
    lines[at] = f"{line[: one.start()]}{new}{line[one.end() :]}"
    return f"{line.strip()}: {old} is {new}"


KINDS: Mapping[str, Change] = {
    "deleted": _deleted, "moved": _moved, "guard": _guarded, "number": _numbered,
}  # fmt: skip


def judged(
    number: int, corpus: Mapping[str, Sequence[Member]], ptxas: Mapping[str, Path],
    kinds: Sequence[str],
) -> Any:  # fmt: skip
    """What is said of the mutant of a number; None if there is none."""
    rng = random.Random(number)
    kind = kinds[number % len(kinds)]
    for _ in range(_TRIES):
        member = rng.choice(corpus[rng.choice(sorted(corpus))])
        original = Image(member.path.read_bytes(), member.path.name)
        symbols = kernels(original)
        lines = (member.path.parent / f"{member.kernel}.ptx").read_text().split("\n")
        places = [at for at, line in enumerate(lines) if synchronising(line)]
        if len(symbols) != 1 or not places:
            continue
        at = rng.choice(places)
        what = KINDS[kind](lines, at, rng)
        if not what:
            continue
        with TemporaryDirectory() as made:
            text, cubin = Path(made) / "k.ptx", Path(made) / "k.cubin"
            text.write_text("\n".join(lines))
            if assemble(ptxas[member.ptxas], text, cubin):
                continue
            image = Image(cubin.read_bytes(), "k.cubin")
        if image.contents(image.sections[kernels(image)[0].section]) == original.contents(
            original.sections[symbols[0].section]
        ):
            continue  # the same machine code
        head = {
            "number": number, "kind": kind, "producer": member.producer, "kernel": member.kernel,
            "ptxas": member.ptxas, "pc": f"line {at + 1}", "what": what,
        }  # fmt: skip
        ptx = original.ptx or ""
        try:
            before = validate(original, symbols[0], ptx)
            after = validate(image, kernels(image)[0], ptx)
        except TilesimError as error:
            return {**head, "seen": "refused", "by": str(error)[:200]}
        return {**head, **compared(before, after)}
    return None


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--ptxas", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--count", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first number.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]))
@click.option("--jsonl", type=click.Path(path_type=Path))
def main(
    corpus: Path, ptxas: Path, count: int, seed: int, kinds: Sequence[str], jsonl: Path | None
) -> None:
    """Draws mutants, and says which are seen."""
    chosen = by_producer(members(corpus))
    rows = []
    for number in range(seed, seed + count):
        row = judged(number, chosen, assemblers(ptxas), kinds or [*KINDS])
        if row is not None:
            rows.append(row)
            if row["seen"] != "finding":
                place = f"{row['producer']}/{row['kernel']} {row['ptxas']} {row['pc']}"
                click.echo(f"{number} {row['seen']} {row['kind']}: {place} {row['what']}")
    if jsonl:
        jsonl.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    click.echo(table(rows))


if __name__ == "__main__":
    main()
