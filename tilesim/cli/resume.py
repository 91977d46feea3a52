"""What explorations left to do, kept in a file between one ``tilesim check`` and the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilesim.checker import Report, Stats
from tilesim.checker.assumptions import Leaning
from tilesim.cli.options import write_file
from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.ir.loc import Loc
from tilesim.loader import Target
from tilesim.loader.text import read_file
from tilesim.ptx.description import dumps
from tilesim.version import __version__

SCHEMA = 1
_MAX_BYTES = 256 * 1024 * 1024
_PROVED = ("proved", "exhausted")


class Unfinished:
    """The frontiers of the kernels whose exploration did not end, by target, and which kernels of
    PTX were proved meanwhile.

    Raises:
        UsageError: the file is there and cannot be read, or is not one that tilesim wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        document = _read(path) if path.exists() else {}
        self._frontiers: dict[str, Mapping[str, Any]] = dict(document.get("explorations", {}))
        self._proved: dict[str, Mapping[str, Any]] = dict(document.get("proved", {}))

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
        self._write()

    def proof(self, target: str, digest: str) -> Report | None:
        """The report on a kernel that was proved; ``digest`` is of all that it depends on."""
        kept = self._proved.get(target, {})
        if kept.get("digest") != digest or kept.get("verdict") not in _PROVED:
            return None
        try:
            numbers = Stats(*(int(n) for n in kept["stats"]))
            leanings = tuple(
                Leaning(name, text, tuple(Loc(str(f), int(n)) for f, n in places), kind)
                for name, text, kind, places in kept["leanings"]
            )
            return Report(
                str(kept["kernel"]), kept["verdict"], str(kept["covers"]), stats=numbers,
                leanings=leanings,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return None

    def add_proof(self, target: str, digest: str, report: Report) -> None:
        """Saves that a kernel was proved."""
        stats = report.stats
        self._proved[target] = {
            "digest": digest, "kernel": report.kernel, "verdict": report.verdict,
            "covers": report.covers, "stats": [stats.instructions, stats.schedules, stats.ctas],
            "leanings": [
                [one.name, one.text, one.kind, [[loc.file, loc.line] for loc in one.locs]]
                for one in report.leanings
            ],
        }  # fmt: skip
        self._write()

    def finish(self) -> None:
        """All kernels were checked: proofs are kept only beside explorations that are left."""
        if not self._frontiers:
            self._proved.clear()
            self._write()

    def _write(self) -> None:
        if not self._frontiers and not self._proved:
            self.path.unlink(missing_ok=True)
            return
        document = {
            "schema": SCHEMA, "explorations": self._frontiers,
            **({"proved": self._proved} if self._proved else {}),
        }  # fmt: skip
        write_file(self.path, json.dumps(document) + "\n")


def digest(target: Target, settings: str) -> str:
    """Of all that the report on a kernel of PTX depends on; empty for other kernels, whose files
    may import others."""
    if target.ptx is None:
        return ""
    from hashlib import sha256  # loads OpenSSL

    parts = (__version__, settings, dumps(target.ptx.launch), read_file(Path(target.ptx.place)))
    return sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_regular(path, _MAX_BYTES))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError(f"{path} does not hold tilesim explorations of schema {SCHEMA}")
    frontiers = data.get("explorations")
    if not isinstance(frontiers, dict) or not all(isinstance(v, dict) for v in frontiers.values()):
        raise UsageError(f"{path} holds no explorations by target")
    proved = data.get("proved", {})
    if not isinstance(proved, dict) or not all(isinstance(v, dict) for v in proved.values()):
        raise UsageError(f"{path} holds no proofs by target")
    return data
