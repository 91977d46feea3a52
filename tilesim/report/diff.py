"""Repairs as a unified diff of the files that they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from tilesim.files import source_lines
from tilesim.records import dataclass, field
from tilesim.repair import Repair
from tilesim.report.result import Checked, Rejected, Result
from tilesim.transforms.rewrite import Patch
from tilesim.wording import count, printable


@dataclass
class Diff:
    """The first repair of each kernel that fails, of those that are patches and do not touch what
    another kernel's repair changes. ``notes`` say what was chosen, or that there is none."""

    notes: list[str] = field(default_factory=list)
    _patches: dict[str, list[Patch]] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[Result]) -> Diff:
        """What mends these kernels."""
        diff = cls()
        for result in results:
            repairs = _repairs(result)
            if repairs is not None:
                diff.notes.append(printable(f"{result.kernel}: {diff._choose(repairs)}", ""))
        return diff

    def text(self) -> str:
        """The diff, for ``patch -p1`` or ``git apply``; empty if nothing is to be changed."""
        lines = (line for file, own in self._patches.items() for line in _unified(file, own))
        return "".join(f"{line}\n" for line in lines)

    def _choose(self, repairs: Sequence[Repair]) -> str:
        patched = [repair for repair in repairs if repair.patches]
        for repair in patched:
            if all(map(self._fits, repair.patches)):
                self._take(repair.patches)
                return f"{repair.what} ({repair.verdict})"
        if patched:
            return f"{patched[0].what}: not in the diff, which changes these lines already"
        if repairs:
            return f"{count(len(repairs), 'repair')}, none of which is a patch of lines"
        return "no repair found"

    def _fits(self, patch: Patch) -> bool:
        """Whether the patch is there already, or changes lines that no other one does."""
        return all(
            patch == other or patch.last < other.first or patch.first > other.last
            for other in self._patches.get(patch.file, ())
        )

    def _take(self, patches: Sequence[Patch]) -> None:
        for patch in patches:
            own = self._patches.setdefault(patch.file, [])
            if patch not in own:
                own.append(patch)


def _repairs(result: Result) -> tuple[Repair, ...] | None:
    """The repairs of a kernel for which some were looked for."""
    match result:
        case Checked(report=report) if report.repairs is not None:
            return report.repairs.found
        case Rejected(repairs=repairs) if repairs is not None:
            return repairs.found
        case _:
            return None


def _unified(file: str, patches: Sequence[Patch]) -> Iterator[str]:
    old = source_lines(file)
    new = list(old)
    for patch in sorted(patches, key=lambda patch: -patch.first):
        new[patch.first - 1 : patch.last] = patch.new
    if old and not old[-1]:  # behind the end of the last line
        del new[-1]
        old = old[:-1]
    name = printable(file, "").lstrip("/")
    lines = unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
    return (printable(line, "\t") for line in lines)
