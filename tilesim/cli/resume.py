"""What explorations left to do, kept in a file between one ``tilesim check`` and the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilesim.cli.options import write_file
from tilesim.errors import UsageError

SCHEMA = 1
_MAX_BYTES = 256 * 1024 * 1024


class Unfinished:
    """The frontiers of the kernels whose exploration did not end, by target.

    Raises:
        UsageError: the file is there and cannot be read, or is not one that tilesim wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._frontiers = _read(path) if path.exists() else {}

    def of(self, target: str) -> Mapping[str, Any] | None:
        """Where the exploration of ``target`` goes on."""
        return self._frontiers.get(target)

    def keep(self, target: str, frontier: Mapping[str, Any] | None) -> None:
        """Saves what is left to explore of ``target``; None: nothing.

        The file goes when nothing is left of any target.
        """
        if frontier is None and target not in self._frontiers:
            return
        self._frontiers.pop(target, None)
        if frontier is not None:
            self._frontiers[target] = frontier
        if self._frontiers:
            document = {"schema": SCHEMA, "explorations": self._frontiers}
            write_file(self.path, json.dumps(document) + "\n")
        else:
            self.path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError(f"{path} does not hold tilesim explorations of schema {SCHEMA}")
    frontiers = data.get("explorations")
    if not isinstance(frontiers, dict) or not all(isinstance(v, dict) for v in frontiers.values()):
        raise UsageError(f"{path} holds no explorations by target")
    return frontiers
