"""Certificates as files: JSON of one line, read within bounds and believed in nothing.

What a certificate says is `tilesim.proof.certificate`. Whatever this module makes of a file, the
proof kernel holds against the program, so nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import DecodeError, Meta, Struct, json

from tilesim.errors import UsageError
from tilesim.formats import require
from tilesim.proof.certificate import Certificate, Every, Repetition, Value

#: the version of the format
VERSION = 4
#: characters of a certificate
MOST_TEXT = 1 << 24
#: characters of one of its names
MOST_NAME = 1 << 14
#: clusters that a certificate may name
MOST_CLUSTERS = 1 << 20
#: values of a parameter that it names
MOST_VALUES = 1 << 12

Name: TypeAlias = Annotated[str, Meta(max_length=MOST_NAME)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
#: of each class of clusters the first and last of consecutive numbers
Ranges: TypeAlias = tuple[tuple[tuple[Count, Count], ...], ...]
#: of each class of clusters round, period and times
Threes: TypeAlias = tuple[tuple[tuple[Count, Count, Count], ...], ...]


class _Value(Struct, array_like=True, forbid_unknown_fields=True):
    number: Count
    most: Count
    fingerprint: Name
    classes: Ranges | None
    repetitions: Threes | None


class _Every(Struct, forbid_unknown_fields=True):
    parameter: Name
    first: Annotated[int, Meta(ge=-(1 << 62), lt=1 << 62)]
    step: Count
    last: Count
    period: Count
    values: Annotated[tuple[_Value, ...], Meta(max_length=MOST_VALUES)]


class _File(Struct, forbid_unknown_fields=True, rename={"version": "tilesim-certificate"}):
    version: int
    kernel: Name
    target: Name
    fingerprint: Name
    strict: Literal["practice", "ptx"]
    assumptions: tuple[Name, ...]
    inputs: dict[Name, bytes]
    classes: Ranges | None
    repetitions: Threes | None
    together: bool
    every: _Every | None


class _Version(Struct, rename={"version": "tilesim-certificate"}):
    version: int


def text_of(c: Certificate) -> str:
    """The file: the same bytes for the same certificate."""
    every = None if c.every is None else _Every(
        c.every.parameter, c.every.first, c.every.step, c.every.last, c.every.period,
        tuple(_Value(v.number, v.most, v.fingerprint, _ranges(v.classes), _threes(v.repetitions))
              for v in c.every.values),
    )  # fmt: skip
    file = _File(
        VERSION, c.kernel, c.target, c.fingerprint, c.strict, tuple(sorted(c.assumptions)),
        dict(sorted(c.inputs)), _ranges(c.classes), _threes(c.repetitions), c.together, every,
    )  # fmt: skip
    return json.encode(file).decode() + "\n"


def read(text: str) -> Certificate:
    """The certificate of a file.

    Raises:
        UsageError: it is none, is of another version, is altered so that none can be read, or is
            too large.
    """
    if len(text) > MOST_TEXT:
        raise UsageError(f"a certificate has at most {MOST_TEXT} characters")
    try:
        found = json.decode(text, type=_Version).version
        require(found, VERSION, "a certificate", "`tilesim check --certificate` writes it again")
        f = json.decode(text, type=_File)
    except (DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise UsageError(f"this is not a certificate: {error}") from error
    every = None if f.every is None else Every(
        f.every.parameter, f.every.first, f.every.step, f.every.last, f.every.period,
        tuple(Value(v.number, v.most, v.fingerprint, _classes(v.classes), _repeated(v.repetitions))
              for v in f.every.values),
    )  # fmt: skip
    return Certificate(
        f.kernel, f.target, f.fingerprint, f.strict, f.assumptions, tuple(sorted(f.inputs.items())),
        _classes(f.classes), _repeated(f.repetitions), f.together, every,
    )  # fmt: skip


def _threes(repetitions: tuple[tuple[Repetition, ...], ...] | None) -> Threes | None:
    if repetitions is None:
        return None
    return tuple(tuple((r.round, r.period, r.times) for r in some) for some in repetitions)


def _repeated(threes: Threes | None) -> tuple[tuple[Repetition, ...], ...] | None:
    if threes is None:
        return None
    return tuple(tuple(Repetition(*three) for three in some) for some in threes)


def _ranges(classes: tuple[tuple[int, ...], ...] | None) -> Ranges | None:
    return None if classes is None else tuple(map(_runs, classes))


def _runs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """First and last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if found and found[-1][1] == n - 1:
            found[-1] = found[-1][0], n
        else:
            found.append((n, n))
    return tuple(found)


def _classes(ranges: Ranges | None) -> tuple[tuple[int, ...], ...] | None:
    """Raises: UsageError: a range is backwards, or they have too many clusters together."""
    if ranges is None:
        return None
    every = [last - first + 1 for some in ranges for first, last in some]
    if min(every, default=1) < 1 or sum(every) > MOST_CLUSTERS:
        raise UsageError(
            "this is not a certificate: a range of clusters runs backwards, or has over "
            f"{MOST_CLUSTERS}"
        )
    return tuple(tuple(n for a, z in some for n in range(a, z + 1)) for some in ranges)
