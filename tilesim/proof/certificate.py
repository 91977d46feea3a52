"""Certificates: what a proof says of itself, which is believed in nothing.

A certificate names the program that was proved by a fingerprint, the level and the assumptions of
the proof, and hints that spare `certify` work: which clusters do the same. An altered one is
refused, or still true of its program. As a file it is `tilesim.checker.certificate_file`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from typing import Any

from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.proof.rules import rule
from tilesim.records import dataclass, fields


@dataclass(frozen=True)
class Repetition:
    """From ``round`` on, ``times`` more repetitions of a period of so many rounds than the two that
    are executed."""

    round: int
    period: int
    times: int


@dataclass(frozen=True)
class Value:
    """A value of a parameter, by its ``number`` from 0 on, and ``most`` more, each a period apart;
    the others are as a `Certificate` has them. Of ``repetitions``, each more value makes so many
    ``times`` more."""

    number: int
    most: int
    fingerprint: str
    classes: tuple[tuple[int, ...], ...] | None = None
    repetitions: tuple[tuple[Repetition, ...], ...] | None = None


@dataclass(frozen=True)
class Every:
    """The values ``first``, ``first + step``... of a ``parameter``, up to the one of number
    ``last``: those of ``values``, and more, each ``period`` of them apart."""

    parameter: str
    first: int
    step: int
    last: int
    period: int
    values: tuple[Value, ...]

    def at(self, number: int) -> int:
        """The value of a number."""
        return self.first + self.step * number

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.parameter} in {self.first}..{self.at(self.last)}{steps}"


@dataclass(frozen=True)
class Certificate:
    """A proof to be rechecked.

    ``kernel``: the program's name; ``target``: what a command line calls it, for messages only;
    ``inputs``: tensors, and the bytes that the proof takes them to hold; ``classes``: clusters that
    do the same, or None; ``repetitions``: of each class, or of each cluster, or None; ``together``:
    all clusters are executed together; ``every``: of a proof for values of a parameter, these."""

    kernel: str
    target: str
    fingerprint: str
    strict: Strict
    assumptions: tuple[str, ...] = ()
    inputs: tuple[tuple[str, bytes], ...] = ()
    classes: tuple[tuple[int, ...], ...] | None = None
    repetitions: tuple[tuple[Repetition, ...], ...] | None = None
    together: bool = False
    every: Every | None = None


@rule("fingerprint", "a certificate is one of the program that is rechecked")
def fingerprint(mir: Mir) -> str:
    """A digest of all that a program in machine form, and its launch, is."""
    import hashlib  # loads OpenSSL

    words, typing = list[str](), mir.typing
    whole = (mir.kernel, mir.code, mir.local, typing.tokens, typing.any_scalar)
    _tokens(whole, words.append)
    return hashlib.sha256("".join(f"{word}\0" for word in words).encode()).hexdigest()


def _tokens(x: Any, put: Callable[[str], None]) -> None:
    """A value in words that no other value has; what only messages use is left out."""
    kind: Any = type(x)
    if (names := _compared(kind)) is not None:
        put(f"({kind.__name__}")
        for name in names:
            _tokens(getattr(x, name), put)
        put(")")
    elif isinstance(x, tuple | list):
        put(f"[{len(x)}")
        for item in x:
            _tokens(item, put)
    elif isinstance(x, frozenset):
        _tokens(sorted(x, key=repr), put)
    else:
        put(f"{kind.__name__} {x!r}")


@cache
def _compared(kind: type) -> tuple[str, ...] | None:
    """The fields of a class that say whether two values are the same; None: it has no fields."""
    return tuple(f.name for f in fields(kind) if f.compare) if is_dataclass(kind) else None
