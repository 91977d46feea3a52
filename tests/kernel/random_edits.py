"""Machine programs of the litmus programs, and of those that the kernel's rules are tested with,
altered at random: what the kernel certifies, no check finds to fail.

    python -m tests.kernel.random_edits --seconds 300 [--seed 1] [--keep FOLDER]

In the text of a program (`tilesim show --mir`) some numbers become others, and lines are left out
or change places. What is still a program goes through the kernel, at one of both levels and with
the certificate that is made for it, and what it covers through `check`. The command ends with 1 if
a check says `failed` of one that is certified, or if the kernel or a check ends with an error of
its own; these are printed, and those that are proved and refuted, and ``--keep`` writes them as
``.mir`` files.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from tests.campaign import Judge, Judged, command
from tests.kernel.pairs import PAIRS
from tests.litmus.sections import all_rows
from tests.litmus.table import STRICTNESS, Rejected
from tilesim.checker import check
from tilesim.checker.certificates import certified, machine_form
from tilesim.errors import TilesimError
from tilesim.ir.program import Strict
from tilesim.ir.text.mir import to_text
from tilesim.loader.text import parse_mir
from tilesim.transforms.lower import lower

#: numbers that are often at the edge of something
EDGES = (0, 1, 2, 3, 5, 16, 31, 32, 33, 64, 100, 255, 1 << 20, 1 << 31, 1 << 32, 1 << 63)
#: the lines before the first instruction that stay as they are
_HEAD = 3
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")
_LABEL = re.compile(r" *\d+:")
#: what is printed besides: one of the two is wrong, or stricter
DISAGREE = "refuted, proved"
#: how long the kernel and a check may take for one, in seconds
_KERNEL_SECONDS, _CHECK_SECONDS = 5.0, 10.0
#: what the kernel may take for granted, as a check does
_ASSUMED = ("in-bounds", "zero-state")


class Source(NamedTuple):
    """The text of a program, and what its tensors hold."""

    text: str
    inputs: Mapping[str, NDArray[Any]]


#: right twins of which a check says `failed`: it is the stricter one (docs/trust.md)
STRICTER = (
    "a_word_that_is_stored_in_between_in_another_cluster",
    "a_register_that_is_set_again_by_some_lanes",
)


@cache
def sources() -> list[Source]:
    """Programs to alter: those of the litmus table that are not refused, and the right twins of the
    pairs by which the kernel's rules are tested."""
    rows = [row for row in all_rows() if not isinstance(row.practice, Rejected)]
    return [Source(to_text(lower(row.build())), {}) for row in rows] + [
        Source(
            to_text(pair.mir(right=True)),
            {name: np.array(held, np.int32) for name, held in pair.inputs.items()},
        )
        for pair in PAIRS
        if pair.program.__name__ not in STRICTER
    ]


def altered(text: str, draw: random.Random) -> str:
    """The text with one to three changes."""
    for _ in range(draw.randint(1, 3)):
        lines = text.splitlines()
        numbers = [found for found in _NUMBER.finditer(text) if not _is_label(text, found)]
        what = draw.random()
        if what < 0.6 and numbers:
            at = draw.choice(numbers)
            n = int(at[0], 0)
            new = draw.choice((*EDGES, n + 1, max(n - 1, 0), 2 * n, n // 2))
            text = f"{text[: at.start()]}{new}{text[at.end() :]}"
        elif len(lines) > 2 * _HEAD:
            first, second = (draw.randrange(_HEAD, len(lines)) for _ in range(2))
            if what < 0.8:
                del lines[first]
            else:
                lines[first], lines[second] = lines[second], lines[first]
            text = "\n".join(lines) + "\n"
    return text


def _is_label(text: str, found: re.Match[str]) -> bool:
    """Whether a number is that of its instruction."""
    begin = text.rfind("\n", 0, found.start()) + 1
    return _LABEL.fullmatch(text[begin : found.end() + 1]) is not None


def judged(text: str, strict: Strict, inputs: Mapping[str, NDArray[Any]]) -> str:
    """What the kernel says of a text at a level, and, where it is sure, what a check says."""
    try:
        mir = machine_form(parse_mir(text, "edited.mir"))
        _, answer = certified(mir, strict, _ASSUMED, time.monotonic() + _KERNEL_SECONDS, inputs)
    except TilesimError:
        return "refused"
    except Exception as error:  # what is looked for
        return f"CRASH: {type(error).__name__}: {error}"
    if answer.verdict == "not covered":
        return answer.verdict
    try:
        report = check(
            mir, strict=strict, schedules=4, budget=2000, time_limit=_CHECK_SECONDS, inputs=inputs
        )
    except TilesimError as error:
        return f"{answer.verdict}, refused by a check: {type(error).__name__}"
    except Exception as error:
        return f"CRASH OF A CHECK: {type(error).__name__}: {error}"
    if answer.verdict == "certified" and report.verdict == "failed":
        return f"CERTIFIED AND WRONG: {report.findings[0].rule}: {report.findings[0].message}"
    said = f"{answer.verdict}, {report.verdict}"
    return f"{said}: {answer.rule}: {answer.what}" if said == DISAGREE else said


def edited(number: int, keep: Path | None) -> Judged:
    """Alters a program, and compares; what is to be looked at is kept in a folder, if there is."""
    draw = random.Random(number)
    source, strict = draw.choice(sources()), draw.choice(STRICTNESS)
    text = altered(source.text, draw)
    said = judged(text, strict, source.inputs)
    short = said.partition(":")[0]
    wrong, disagree = short.isupper(), said.startswith(DISAGREE)
    if keep is not None and (wrong or disagree):
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{number}-{strict}.mir").write_text(text)
    at = f"{strict}: {said}"
    return Judged(short, at if wrong else "", at if disagree else "")


@command
@click.option("--keep", type=click.Path(path_type=Path), help="Where programs are written to.")
def main(keep: Path | None) -> Judge:
    """Compare what the kernel certifies with what a check says."""
    return partial(edited, keep=keep)


if __name__ == "__main__":
    main()
