"""What ``tilesim check --format json`` says, as notes at lines of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tilesim.lsp.captures import is_source
from tilesim.lsp.text import Text
from tilesim.records import dataclass, replace
from tilesim.transforms.rewrite import Patch
from tilesim.wording import printable

Json = Mapping[str, Any]
ERROR, WARNING, INFORMATION = 1, 2, 3  # as the protocol numbers them
#: places beside a note, repairs, and kernels that are named
_RELATED, _REPAIRS, _NAMED = 32, 5, 3
#: how an error of a target begins that has a line
_AT = re.compile(r"(?P<file>[^\n]+?):(?P<line>\d+): ")


@dataclass(frozen=True)
class Place:
    """A line of a file, whose path is absolute and has no links in it."""

    path: str
    line: int


@dataclass(frozen=True)
class Fix:
    """A repair whose changes are all of text: what it is, and the patches."""

    title: str
    patches: tuple[Patch, ...]


@dataclass(frozen=True)
class Note:
    """What is shown at a line: ``rule`` is empty if no rule is about it; ``kernels`` have it."""

    place: Place
    severity: int
    rule: str
    text: str
    related: tuple[tuple[Place, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The text, and the names of the kernels."""
        named = ", ".join(self.kernels[:_NAMED])
        more = len(self.kernels) - _NAMED
        also = f" and {more} more" if more > 0 else ""
        return printable(f"{self.text}\nkernel: {named}{also}" if named else self.text)


@dataclass(frozen=True)
class Files:
    """Where the files are that a report names: relative to ``folder``, in which the check ran.
    ``owner`` is the file that is checked, ``roots`` the folders that are worked in."""

    owner: str
    folder: str
    roots: tuple[str, ...]

    def place(self, loc: Json) -> Place | None:
        """Where to show what is said of a line: in the file that is checked, if a line of it is
        among that and those behind it, else in the first file below the roots."""
        found = [Place(self.path(place["file"]), place["line"]) for place in _chain(loc)]
        own = (place for place in found if place.path == self.owner)
        there = (p for p in found if self.is_inside(p.path) and os.path.isfile(p.path))
        return next(own, None) or next(there, None)

    def path(self, name: str) -> str:
        """The path of a file that a report names."""
        if is_source(name, Path(self.folder), self.owner):
            return self.owner
        return os.path.realpath(os.path.join(self.folder, name))

    def is_inside(self, path: str) -> bool:
        """Whether a file is below one of the folders that are worked in, and none that is hidden or
        of installed packages."""
        for root in self.roots:
            if path.startswith(os.path.join(root, "")):
                parts = Path(os.path.relpath(path, root)).parts
                return not any(p.startswith(".") or p == "site-packages" for p in parts)
        return False


def _chain(loc: Json) -> Iterator[Json]:
    place: Json | None = loc
    while place is not None:
        yield place
        place = place.get("behind")


def kernel_name(target: str) -> str:
    """The name of a kernel in the name of a target."""
    return target.rpartition("::")[2] if "::" in target else os.path.basename(target)


def kernel_line(text: Text, target: str) -> int:
    """The line that defines a kernel, or the first that has its name; 1 if none does."""
    words = re.findall(r"\w+", re.split(r"[\[<(]", kernel_name(target))[0])
    if not words:
        return 1
    word = rf"\b{words[-1]}\b"
    for pattern in (rf"(?:\bdef|\.entry|\bvoid|\bkernel)\s+{word}", rf"^\s*{word}\s*=", word):
        for number, line in enumerate(text.lines, 1):
            if re.search(pattern, line):
                return number
    return 1


def notes(results: Iterable[Json], files: Files, text: Text) -> list[Note]:
    """The notes about the kernels of a file, whose text is ``text``; what several have in common is
    one."""
    found: dict[tuple[object, ...], Note] = {}
    for result in results:
        for note in _of_result(result, files, text):
            key = note.place, note.severity, note.rule, note.text
            known = found.get(key, note)
            kernels = dict.fromkeys((*known.kernels, kernel_name(result["kernel"])))
            named = () if result["error"] else tuple(kernels)
            found[key] = replace(known, kernels=named)
    return list(found.values())


def _of_result(result: Json, files: Files, text: Text) -> Iterator[Note]:
    kernel = Place(files.owner, kernel_line(text, result["kernel"]))
    fixes = tuple(_fixes(result, files))
    for finding in result["findings"]:
        yield _finding(finding, files, kernel, fixes)
    for diagnostic in result["diagnostics"]:
        first, *others = _places(diagnostic["locations"], files) or [kernel]
        said = _said(diagnostic["message"], None, diagnostic["fix"])
        also = tuple((place, "also") for place in others)
        yield Note(first, ERROR, diagnostic["rule"], said, also, fixes)
    for leaning in result["leanings"]:
        if leaning["denied"] or leaning["kind"] == "practice":
            first, *others = _places(leaning["locations"], files) or [kernel]
            said = f"{result['verdict']} only by leaning on {leaning['name']}: {leaning['text']}"
            severity = ERROR if leaning["denied"] else WARNING
            also = tuple((place, "also") for place in others[:_RELATED])
            yield Note(first, severity, leaning["name"], said, also)
    if result["verdict"] in ("bounded", "unsupported"):
        said = "\n".join((f"{result['verdict']}: no proof", *result["reasons"]))
        yield Note(kernel, INFORMATION, "", said)
    if result["error"]:
        yield _error(result["error"], files)


def _error(message: str, files: Files) -> Note:
    """An error at the line that it names, or at the first of the file."""
    at = _AT.match(message)
    place = files.place({"file": at["file"], "line": int(at["line"])}) if at else None
    said = message[at.end() :] if at and place else message
    severity = INFORMATION if message.startswith("internal error") else ERROR
    return Note(place or Place(files.owner, 1), severity, "", said)


def _finding(finding: Json, files: Files, kernel: Place, fixes: tuple[Fix, ...]) -> Note:
    first = next(iter(_places(finding["locations"], files)), kernel)
    related: dict[tuple[Place, str], None] = {}
    for side in (*finding["culprits"], *finding["participants"]):
        for place in _places([side], files):
            warp = "" if side["warp"] is None else f" (warp {side['warp']})"
            related[place, f"{side['role']}{warp} {side['action']}"] = None
    said = _said(finding["message"], finding["cause"], finding["fix"])
    if finding["rule"] == "unsupported":
        return Note(first, INFORMATION, finding["rule"], said, tuple(related)[:_RELATED])
    return Note(first, ERROR, finding["rule"], said, tuple(related)[:_RELATED], fixes)


def _places(locs: Iterable[Json], files: Files) -> list[Place]:
    found = (files.place(loc) for loc in locs)
    return list(dict.fromkeys(place for place in found if place is not None))


def _said(message: str, cause: str | None, fix: str | None) -> str:
    lines = [message, f"cause: {cause}" * bool(cause), f"fix: {fix}" * bool(fix)]
    return "\n".join(filter(None, lines))


def _fixes(result: Json, files: Files) -> Iterator[Fix]:
    """The repairs that are all of text of files that are worked in: PTX is edited only if it is
    what is checked, for elsewhere a compiler writes it."""
    for repair in result.get("repairs", {}).get("found", ())[:_REPAIRS]:
        patches = [_patch(change["patch"], files) for change in repair["changes"]]
        if patches and all(patches):
            whole = tuple(dict.fromkeys(patch for patch in patches if patch is not None))
            in_order = sorted(whole, key=lambda p: (p.file, p.first))
            if all(a.file != b.file or a.last < b.first for a, b in pairwise(in_order)):
                yield Fix(f"{repair['what']} ({repair['verdict']})", tuple(in_order))


def _patch(patch: Json | None, files: Files) -> Patch | None:
    if patch is None:
        return None
    path = files.path(patch["file"])
    if path != files.owner and (path.endswith(".ptx") or not files.is_inside(path)):
        return None
    return Patch(path, patch["first"], patch["last"], tuple(patch["old"]), tuple(patch["new"]))
