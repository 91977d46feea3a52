"""The names of kernels that were not proved, in a file between one ``tilesim check`` and the
next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilesim.cli.options import write_file
from tilesim.errors import UsageError
from tilesim.formats import read_object, require

FILE = ".tilesim-last-failed.json"
SCHEMA = 1
_MAX_BYTES = 16 * 1024 * 1024
_REMEDY = "delete it to check all"


def names(targets: Sequence[str]) -> frozenset[str] | None:
    """The kernels of these targets, or targets that could not be loaded, that were not proved; None
    if that is not known, or all were.

    Raises:
        UsageError: the file cannot be read, or is another one.
    """
    if not Path(FILE).exists():
        return None
    data = read_object(Path(FILE), _MAX_BYTES, "names of kernels", _REMEDY)
    require(data.get("schema"), SCHEMA, f"a file of names of kernels ({FILE})", _REMEDY)
    failed = data.get("failed")
    if not isinstance(failed, list) or not all(isinstance(name, str) for name in failed):
        raise UsageError(f"{FILE} does not hold names of kernels; {_REMEDY}")
    return frozenset(failed) if failed and data.get("targets") == [*targets] else None


def keep(targets: Sequence[str], failed: Iterable[str]) -> None:
    """Writes the names for the next time; without any the file goes.

    Raises:
        UsageError: it cannot be written.
    """
    every = [*failed]
    if every:
        document = {"schema": SCHEMA, "targets": [*targets], "failed": every}
        write_file(Path(FILE), json.dumps(document, indent=1) + "\n")
    else:
        Path(FILE).unlink(missing_ok=True)
