"""The right answer to a hang: which warps of which CTAs wait for what, at which line, and the
line that has to be changed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from tilesim.records import dataclass

#: what a warp waits for, as the table spells it
On = Literal[
    "mbarrier", "named barrier", "cluster barrier", "word", "lanes", "registers", "earlier kernel",
    "sleep", "operations", "exception", "runs",
]  # fmt: skip
_MARK = re.compile(r"@(\w+)")


@dataclass(frozen=True)
class Barrier:
    """What an mbarrier holds: arrivals that are pending, those of a phase, bytes that lack."""

    pending: int
    expected: int
    tx: int = 0


@dataclass(frozen=True)
class Place:
    """Warps that wait for the same thing at the same line.

    ``warps`` and ``ctas`` are numbers. ``lines`` are as ``file.cu:12``: the wait's own line, one of
    them if there are several. ``barrier`` is the state of an mbarrier, ``id`` and ``threads`` are
    those of a named barrier; None: not said. ``one``: one of the warps does so, and of the others
    nothing is known.
    """

    kernel: str
    ctas: tuple[int, ...]
    warps: tuple[int, ...]
    on: On
    lines: frozenset[str]
    barrier: Barrier | None = None
    id: int | None = None
    threads: int | None = None
    one: bool = False


@dataclass(frozen=True)
class Answer:
    """What is right to say of a hang.

    ``whole``: each warp that is not in ``places`` has ended; otherwise nothing is known of it.
    ``hangs``: otherwise it runs on, and an autopsy may not say that it hangs.
    ``rules``: what `tilesim.check` finds, one of them. ``culprits``: lines one of which has to be
    changed; empty if there is no one line, or it is not known.
    """

    places: tuple[Place, ...]
    rules: frozenset[str]
    culprits: frozenset[str] = frozenset()
    whole: bool = True
    hangs: bool = True


def numbers(text: str) -> tuple[int, ...]:
    """``0-2,7`` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def marked(path: Path) -> dict[str, frozenset[str]]:
    """The lines of a source by the marks on them: ``// @name`` at the end."""
    found: dict[str, set[str]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for name in _MARK.findall(line.rpartition("//")[2]) if "// @" in line else ():
            found.setdefault(name, set()).add(f"{path.name}:{number}")
    return {name: frozenset(lines) for name, lines in found.items()}


def short(place: Any) -> str:
    """A line of a source without its folder; ``place`` has ``file`` and ``line``."""
    return f"{Path(place.file).name}:{place.line}"


def lines_of(places: Iterable[Any]) -> frozenset[str]:
    """Several of them."""
    return frozenset(short(place) for place in places)
