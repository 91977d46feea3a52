"""Certificates: what a proof says of itself, as a file that is believed in nothing.

A certificate names the program that was proved by a fingerprint, the level and the assumptions of
the proof, and hints that spare `certify` work: which clusters do the same. An altered one is
refused, or still true of its program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tilesim.errors import UsageError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.proof.rules import rule

#: the version of the format
VERSION = 3
#: characters of a certificate
MOST_TEXT = 1 << 24
#: characters of one of its names
MOST_NAME = 1 << 14
#: clusters that a certificate may name
MOST_CLUSTERS = 1 << 20
#: values of a parameter that it names
MOST_VALUES = 1 << 12
_LEVELS = ("practice", "ptx")
_KEYS = frozenset({"tilesim-certificate", "kernel", "target", "fingerprint", "strict",
                   "assumptions", "inputs", "classes", "repetitions", "together",
                   "every"})  # fmt: skip


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

    def document(self) -> dict[str, object]:
        """It, as JSON has it."""
        return {
            "parameter": self.parameter, "first": self.first, "step": self.step, "last": self.last,
            "period": self.period, "values": [
                [v.number, v.most, v.fingerprint, _in_ranges(v.classes), _in_threes(v.repetitions)]
                for v in self.values
            ],
        }  # fmt: skip


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

    def text(self) -> str:
        """The file: JSON, the same bytes for the same certificate."""
        document = {
            "tilesim-certificate": VERSION, "kernel": self.kernel, "target": self.target,
            "fingerprint": self.fingerprint, "strict": self.strict,
            "assumptions": sorted(self.assumptions),
            "inputs": {name: data.hex() for name, data in sorted(self.inputs)},
            "classes": _in_ranges(self.classes), "repetitions": _in_threes(self.repetitions),
            "together": self.together,
            "every": None if self.every is None else self.every.document(),
        }  # fmt: skip
        return json.dumps(document) + "\n"


@rule("fingerprint", "a certificate is one of the program that is rechecked")
def fingerprint(mir: Mir) -> str:
    """A digest of all that a program in machine form, and its launch, is."""
    digest = hashlib.sha256()
    typing = mir.typing
    for part in _tokens((mir.kernel, mir.code, mir.local, typing.tokens, typing.any_scalar)):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _tokens(x: Any) -> Iterator[str]:
    """A value in words that no other value has; what only messages use is left out."""
    if is_dataclass(x) and not isinstance(x, type):
        yield f"({type(x).__name__}"
        for field in fields(x):
            if field.compare:
                yield from _tokens(getattr(x, field.name))
        yield ")"
    elif isinstance(x, tuple | list):
        yield f"[{len(x)}"
        for item in x:
            yield from _tokens(item)
    elif isinstance(x, Mapping):
        yield f"{{{len(x)}"
        for key in sorted(x, key=repr):
            yield from _tokens((key, x[key]))
    elif isinstance(x, frozenset):
        yield from _tokens(sorted(x, key=repr))
    else:
        yield f"{type(x).__name__} {x!r}"


def _in_ranges(classes: tuple[tuple[int, ...], ...] | None) -> object:
    return None if classes is None else [_ranges(some) for some in classes]


def _in_threes(repetitions: tuple[tuple[Repetition, ...], ...] | None) -> object:
    if repetitions is None:
        return None
    return [[[r.round, r.period, r.times] for r in some] for some in repetitions]


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """First and last of each run of consecutive numbers."""
    found: list[list[int]] = []
    for n in sorted(numbers):
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found


def read(text: str) -> Certificate:
    """The certificate of a file.

    Raises:
        UsageError: it is none, is altered so that none can be read, or is too large.
    """
    if len(text) > MOST_TEXT:
        raise UsageError(f"a certificate has at most {MOST_TEXT} characters")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no certificate: {error}") from error
    if not isinstance(document, dict) or "tilesim-certificate" not in document:
        raise UsageError("no certificate: it has no key tilesim-certificate")
    if document["tilesim-certificate"] != VERSION:
        raise UsageError(f"a certificate of another version than {VERSION}")
    if document.keys() != _KEYS:
        wrong = sorted(map(str, document.keys() ^ _KEYS))
        raise UsageError(f"no certificate: missing or unknown keys {', '.join(wrong)}")
    words = [document[key] for key in ("kernel", "target", "fingerprint", "strict")]
    if not all(isinstance(word, str) for word in words) or document["strict"] not in _LEVELS:
        raise UsageError("no certificate: kernel, target, fingerprint and strict are words")
    if any(len(word) > MOST_NAME for word in words):
        raise UsageError(f"no certificate: a name of more than {MOST_NAME} characters")
    given = document["assumptions"]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise UsageError("no certificate: its assumptions are no list of names")
    kernel, target, digest, _ = words
    strict: Strict = "ptx" if document["strict"] == "ptx" else "practice"
    known, repeated = _classes(document["classes"]), _repetitions(document["repetitions"])
    inputs, every = _inputs(document["inputs"]), _every(document["every"])
    together = document["together"]
    if not isinstance(together, bool):
        raise UsageError("no certificate: together is true or false")
    return Certificate(
        kernel, target, digest, strict, tuple(given), inputs, known, repeated, together, every
    )


def _every(document: Any) -> Every | None:
    wrong = UsageError("no certificate: what it says of every value is no range with its values")
    if document is None:
        return None
    try:
        name, values = document["parameter"], document["values"]
        numbers = [document[key] for key in ("first", "step", "last", "period")]
        some = [(*row[:3], _classes(row[3]), _repetitions(row[4])) for row in values]
        if len(document) != 6 or {len(row) for row in values} != {5} or type(name) is not str:
            raise wrong
    except (TypeError, KeyError, IndexError) as error:
        raise wrong from error
    numbers += [n for row in some for n in row[:2]]
    words = [name, *(row[2] for row in some)]
    if not all(type(n) is int for n in numbers) or min(numbers[1:]) < 0 or len(some) > MOST_VALUES:
        raise wrong
    if not all(isinstance(word, str) and len(word) <= MOST_NAME for word in words):
        raise wrong
    first, step, last, period = numbers[:4]
    return Every(name, first, step, last, period, tuple(Value(*row) for row in some))


def _inputs(document: Any) -> tuple[tuple[str, bytes], ...]:
    try:
        return tuple((name, bytes.fromhex(data)) for name, data in sorted(document.items()))
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError("no certificate: its inputs are no tensors with their bytes") from error


def _repetitions(document: Any) -> tuple[tuple[Repetition, ...], ...] | None:
    wrong = UsageError("no certificate: its repetitions are no lists of three numbers")
    if document is None:
        return None
    if not isinstance(document, list) or not all(isinstance(some, list) for some in document):
        raise wrong
    for three in (one for some in document for one in some):
        if not isinstance(three, list) or [type(n) for n in three] != [int] * 3 or min(three) < 0:
            raise wrong
    return tuple(tuple(Repetition(*three) for three in some) for some in document)


def _classes(document: Any) -> tuple[tuple[int, ...], ...] | None:
    wrong = UsageError("no certificate: its classes are no lists of ranges of clusters")
    found, left = [], MOST_CLUSTERS
    if document is None:
        return None
    if not isinstance(document, list):
        raise wrong
    for some in document:
        numbers: list[int] = []
        for pair in some if isinstance(some, list) else (None,):
            if not isinstance(pair, list) or len(pair) != 2 or {type(n) for n in pair} != {int}:
                raise wrong
            first, last = pair
            left -= last - first + 1
            if not 0 <= first <= last or left < 0:
                raise wrong
            numbers += range(first, last + 1)
        found.append(tuple(numbers))
    return tuple(found)
