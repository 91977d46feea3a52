"""What the sides of a finding did, in words, and in which turns of the loops around it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.findings.finding import Iteration, Participant
from tilesim.layout import line_of

#: the name that a line of Python gives to a loop's variable, and the mark of one of several
_AS = re.compile(r"\bas (\w+)")
_COPY = re.compile(r"_\d+$")


def side_text(p: Participant, *, several: bool) -> str:
    """``producer (warp 4): waits on empty[0] parity 0``; the CTA only if there are several."""
    place = [] if p.warp is None or p.role == f"warp {p.warp}" else [f"warp {p.warp}"]
    if several or p.cta:
        place.insert(0, f"CTA {p.cta}")
    return f"{p.role} ({', '.join(place)}): {doing(p)}" if place else f"{p.role}: {doing(p)}"


def doing(p: Participant) -> str:
    """What a participant did, and in which turns of the loops around it."""
    return ", ".join((p.action, *_iterations(p)))


def _iterations(p: Participant) -> Iterator[str]:
    """``in iteration 2 of the loop at :38 (tile=5)``, ``3 of that at :41 (i=2)``; where that
    is not counted, ``i=2 in the loop at :41``."""
    begin, loop = "in iteration ", "the loop"
    for iteration, name in zip(p.iterations, names_of(p.iterations), strict=True):
        file = "" if iteration.loc.file == p.loc.file else iteration.loc.file.rpartition("/")[2]
        where = f"{file}:{iteration.loc.line}"
        value = f"{name}={iteration.value}" if iteration.value is not None else ""
        if iteration.number is None:
            yield f"{value} in {loop} at {where}"
        else:
            yield f"{begin}{iteration.number} of {loop} at {where}{f' ({value})' if value else ''}"
            begin = ""
        loop = "that"


def names_of(iterations: tuple[Iteration, ...]) -> list[str]:
    """What the source calls the variables of loops; several of them may be in one line."""
    return [
        _name_of(iteration, [t for t in iterations if t.loc == iteration.loc])
        for iteration in iterations
    ]


def _name_of(iteration: Iteration, same_line: list[Iteration]) -> str:
    names = _AS.findall(line_of(iteration.loc))
    if len(names) == len(same_line):
        name: str = names[same_line.index(iteration)]
        return name
    return _COPY.sub("", iteration.variable)
