"""What differs between the rows of a verdict file and those of today: better, worse, or changed.

A verdict gets worse where a program that failed is proved, where less is said of one that was
proved, or where one that is not decided is no longer found to fail. A rule of a finding that is
lost is worse, and so is a recheck that no longer certifies, or certifies what fails. Other lines,
other reasons and new programs are changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tests.verdicts.row import CERTIFIED, Row
from tilesim.ir.program import Strict

Kind = Literal["worse", "better", "changed"]
Rows = Mapping[tuple[str, Strict], Row]

#: how much is said of a program, if nothing is wrong with it
_CLAIMS = ("crash", "rejected", "unsupported", "failed", "bounded", "exhausted", "proved")
#: verdicts by which a program is wrong
_WRONG = ("failed", "rejected")


@dataclass(frozen=True)
class Difference:
    """What differs in a row; ``gravity``: the more, the worse."""

    kind: Kind
    row: tuple[str, Strict]
    what: str
    gravity: int = 0

    def __str__(self) -> str:
        program, level = self.row
        return f"{self.kind}: {program} at {level}: {self.what}"


def differences(old: Rows, new: Rows) -> tuple[Difference, ...]:
    """What differs, the worst first, then in the order of the names."""
    found = [d for key in old.keys() | new.keys() for d in _of(key, old.get(key), new.get(key))]
    order = ("worse", "changed", "better")
    return tuple(sorted(found, key=lambda d: (order.index(d.kind), -d.gravity, d.row, d.what)))


def _of(key: tuple[str, Strict], old: Row | None, new: Row | None) -> Iterator[Difference]:
    if new is None:
        yield Difference("worse", key, "there is no such program any more")
        return
    if new.verdict in _WRONG and new.recheck == CERTIFIED:
        yield Difference("worse", key, f"{new.verdict}, and the proof kernel certifies it", 2)
    if old is None:
        yield Difference("changed", key, f"a new program: {new.verdict}")
        return
    if old.verdict != new.verdict:
        yield _verdicts(old, new)
    else:
        yield from _findings(old, new)
    yield from _claims(old, new)
    if old.recheck != new.recheck:
        yield _rechecks(old, new)


def _verdicts(old: Row, new: Row) -> Difference:
    what = f"{old.verdict}, now {new.verdict}"
    was, now = (_CLAIMS.index(row.verdict.partition(":")[0]) for row in (old, new))
    if old.verdict in _WRONG:
        if new.verdict in _WRONG:
            return Difference("changed", old.key, what)
        return Difference(
            "worse", old.key, what, 3 if new.verdict in ("proved", "exhausted") else 1
        )
    if new.verdict in _WRONG and old.verdict in ("bounded", "unsupported"):
        return Difference("changed", old.key, f"{what}; is it wrong?")
    return Difference("better" if now > was else "worse", old.key, what)


def _findings(old: Row, new: Row) -> Iterator[Difference]:
    if lost := old.rules - new.rules:
        said = ", ".join(sorted(new.rules)) or "nothing"
        yield Difference("worse", old.key, f"no finding of {', '.join(sorted(lost))}, now {said}")
        return
    if more := new.rules - old.rules:
        yield Difference("changed", old.key, f"also finds {', '.join(sorted(more))}")
    if old.findings[:1] != new.findings[:1]:
        was, now = (row.findings[0] if row.findings else None for row in (old, new))
        yield Difference("changed", old.key, f"first finding {was}, now {now}")
    elif old.findings != new.findings:
        yield Difference("changed", old.key, "other findings behind the first one")


def _claims(old: Row, new: Row) -> Iterator[Difference]:
    was, now = set(old.leans), set(new.leans)
    if old.verdict == new.verdict and was != now:
        kind: Kind = "better" if now < was else "worse" if now > was else "changed"
        given = " and ".join(", ".join(some) or "nothing" for some in (old.leans, new.leans))
        yield Difference(kind, old.key, f"leans on {given.replace(' and ', ', now on ', 1)}")
    if old.values != new.values:
        yield Difference("changed", old.key, f"values: {old.values!r}, now {new.values!r}")


def _rechecks(old: Row, new: Row) -> Difference:
    what = f"rechecked: {old.recheck or 'not'}, now {new.recheck or 'not'}"
    if old.recheck == CERTIFIED:
        return Difference("worse", old.key, what, 1)
    if new.recheck.startswith("crash"):
        return Difference("worse", old.key, what)
    if new.recheck == CERTIFIED:
        return Difference("better", old.key, what)
    if new.recheck.startswith("refuted") and new.is_proved:
        return Difference("worse", old.key, what)
    return Difference("changed", old.key, what)
