"""What a check has found, and what explorations left to do, in a file between one ``tilesim check``
and the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tilesim.checker import Report, Stats
from tilesim.checker.assumptions import Leaning
from tilesim.checker.report import Claim
from tilesim.cli.options import write_file, writing
from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.formats import read_object, require
from tilesim.ir.program import Verdict
from tilesim.loader import Target
from tilesim.ptx.description import dumps
from tilesim.repair import Change, Repair, Repairs
from tilesim.version import __version__

if TYPE_CHECKING:  # only proofs that are rechecked have one
    from tilesim.proof.certificate import Certificate

SCHEMA = 1
_MAX_BYTES = 256 * 1024 * 1024
#: what is kept of a report; the others are not asked for where reports are kept
_KEPT = (
    "kernel", "verdict", "covers", "findings", "reasons", "witness", "stats", "leanings",
    "rechecked", "recheck_trusts",
)  # fmt: skip
#: what is kept as well, of types that are not resolved before they are needed
_PARTS = ("for_all", "repairs")


class Unfinished:
    """The frontiers of the kernels whose exploration did not end, by target, and the reports on
    kernels of PTX that were checked meanwhile.

    Raises:
        UsageError: the file is there and cannot be read, or is not one that tilesim wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        document = _read(path) if path.exists() else {}
        self._frontiers: dict[str, Mapping[str, Any]] = dict(document.get("explorations", {}))
        self._reports: dict[str, Mapping[str, Any]] = dict(document.get("reports", {}))

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

    def report(self, target: str, digest: str) -> Report | None:
        """The report on a kernel that was checked; ``digest`` is of all that it depends on."""
        kept = self._reports.get(target, {})
        return _report(kept.get("report")) if kept.get("digest") == digest else None

    def add_report(self, target: str, digest: str, report: Report) -> None:
        """Saves the report on a kernel."""
        from msgspec import to_builtins  # only a check that is to be resumed needs it

        data = {name: to_builtins(getattr(report, name)) for name in (*_KEPT, *_PARTS)}
        if report.certificate is not None:
            from tilesim.checker.certificate_file import text_of  # few proofs are rechecked

            data["certificate"] = text_of(report.certificate)
        self._reports[target] = {"digest": digest, "report": data}
        self._write()

    def finish(self) -> None:
        """All kernels were checked: reports are kept only beside explorations that are left."""
        if not self._frontiers:
            self._reports.clear()
            self._write()

    def _write(self) -> None:
        if not self._frontiers and not self._reports:
            with writing(self.path):
                self.path.unlink(missing_ok=True)
            return
        document = {
            "schema": SCHEMA, "explorations": self._frontiers,
            **({"reports": self._reports} if self._reports else {}),
        }  # fmt: skip
        write_file(self.path, json.dumps(document) + "\n")


def _report(kept: Any) -> Report | None:
    """The report again; None if it is not one that was kept."""
    from msgspec import ValidationError, convert

    from tilesim.proof.rules import Answer

    types: tuple[Any, ...] = (
        str, Verdict, str, tuple[Finding, ...], tuple[str, ...], dict[str, Any] | None, Stats,
        tuple[Leaning, ...], Answer | None, str,
    )  # fmt: skip
    try:
        fields = {n: convert(kept[n], t) for n, t in zip(_KEPT, types, strict=True)}
        repairs, claim = _repairs(kept["repairs"]), _claim(kept["for_all"])
        certificate = _certificate(kept.get("certificate"))
        return Report(**fields, for_all=claim, repairs=repairs, certificate=certificate)
    except (KeyError, TypeError, ValidationError, UsageError):
        return None


def _certificate(kept: str | None) -> Certificate | None:
    """The certificate of a proof, again."""
    if kept is None:
        return None
    from tilesim.checker.certificate_file import read  # few proofs are rechecked

    return read(kept)


def _claim(kept: Any) -> Claim | None:
    """What is said of all values of parameters, again."""
    from msgspec import convert

    from tilesim.sim.affine.free_parameter import Obstacle

    if kept is None:
        return None
    types = get_type_hints(Claim, localns={"Obstacle": Obstacle})
    return Claim(**{name: convert(kept[name], of) for name, of in types.items()})


def _repairs(kept: Any) -> Repairs | None:
    """Repairs again, without the programs that they make."""
    from msgspec import convert

    if kept is None:
        return None
    found = tuple(
        Repair(
            convert(one["what"], str), convert(one["verdict"], Verdict),
            convert(one["changes"], tuple[Change, ...]), None,
        )
        for one in kept["found"]
    )  # fmt: skip
    return Repairs(
        found, convert(kept["tried"], int), convert(kept["seconds"], float),
        convert(kept["ended"], bool),
    )  # fmt: skip


def digest(target: Target, settings: str) -> str:
    """Of all that the report on a kernel of PTX depends on; empty for other kernels, whose files
    may import others."""
    if target.ptx is None:
        return ""
    from hashlib import sha256  # loads OpenSSL

    parts = (__version__, settings, dumps(target.ptx.launch), target.ptx.text())
    return sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    data = read_object(path, _MAX_BYTES, "tilesim explorations")
    what = f"a file of tilesim explorations ({path})"
    require(data.get("schema"), SCHEMA, what, "delete it to start again")
    frontiers = data.get("explorations")
    if not isinstance(frontiers, dict) or not all(isinstance(v, dict) for v in frontiers.values()):
        raise UsageError(f"{path} holds no explorations by target")
    reports = data.get("reports", {})
    if not isinstance(reports, dict) or not all(isinstance(v, dict) for v in reports.values()):
        raise UsageError(f"{path} holds no reports by target")
    return data
