"""Kernel files that are tests: comments on their lines say what is found, and what mends it.

``# ok`` on a line: it stands in the right program alone. ``# wrong``: in the wrong one alone.
``# error: RULE``: the wrong program has a finding of this rule that names the line; ``by ROLE``
behind the rule says which role of it does so, or ``by warp 1`` which warp. Marks of one line stand
behind each other, with commas between. ``ok 2``, ``wrong 2`` and ``error 2: RULE`` are of a second
wrong program, which has nothing of the first one; ``ok 1 2`` is of both. In PTX comments begin with
``//``.

The right program is proved, or what ``right=`` above the kernel says. A wrong one fails, with these
rules and no others, and the lines of a rule's findings are those that are marked with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tilesim.checker.report import Report
from tilesim.dsl.kernel import Kernel
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ptx.launch import Launch, Parameter, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Variable

FOLDER = Path(__file__).parent / "kernels"
_MARK = r"(?:(?:ok|wrong)(?: \d+)*|error(?: \d+)*: [\w-]+(?: by [\w ]+)?)"
_MARKS = re.compile(rf"\s*(?:#|//) ({_MARK}(?:, {_MARK})*)$")
_PARTS = re.compile(r"(ok|wrong|error)((?: \d+)*)(?:: ([\w-]+)(?: by ([\w ]+))?)?$")
#: where the kernels of a file begin, each with its name: the options of PTX are written above
_ENTRY = {
    ".py": re.compile(r"^def (?P<name>\w+)\(k: Builder"),
    ".ptx": re.compile(r"^\.visible \.entry (?P<name>\w+)\("),
}
_OPTIONS = re.compile(r"(?:#|//) (\w+=\S+(?: \w+=\S+)*)$")


@dataclass(frozen=True)
class Expected:
    """A participant: the rule of its finding, its line, and its role where that is said."""

    rule: str
    line: int
    role: str = ""


@dataclass
class Marked:
    """A kernel of a file.

    ``options``: what the comment above it says: ``strict``, ``right``, and of PTX the launch:
    ``threads``, ``grid``, ``cluster``, and by parameters how large their buffers or their values
    are. ``errors``: by the number of a wrong program, what is found in it.
    """

    path: Path
    name: str
    options: Mapping[str, str]
    errors: dict[int, set[Expected]] = field(default_factory=lambda: defaultdict(set))

    def __str__(self) -> str:
        return f"{self.path.name}::{self.name}"

    @property
    def levels(self) -> tuple[Strict, ...]:
        """At which strictness it is checked; at both, if nothing is said."""
        match self.options.get("strict"):
            case "practice":
                return ("practice",)
            case "ptx":
                return ("ptx",)
            case _:
                return ("practice", "ptx")

    def form(self, number: int) -> Program | Mir:
        """The right program, which is number 0, or a wrong one."""
        text = _written(self.path, number)
        if self.path.suffix == ".py":
            return _kernels(self.path, text)[self.name].build()
        module = read(text, str(self.path))
        entry = next(entry for entry in module.entries if entry.name == self.name)
        given = {
            name: int(value)
            for name, value in self.options.items()
            if name not in ("strict", "right")
        }
        cluster, params = given.get("cluster", 1), [_given(p, given) for p in entry.params]
        launch = Launch(
            self.name, (given.get("grid", cluster), 1, 1), (given.get("threads", 32), 1, 1),
            (cluster, 1, 1), 4096, params=tuple(params),
        )  # fmt: skip
        return lower(module, entry, launch)


def marked(path: Path) -> list[Marked]:
    """The kernels of a file, in its order."""
    found: list[Marked] = []
    options: dict[str, str] = {}
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if begins := _ENTRY[path.suffix].match(text):
            found.append(Marked(path, begins["name"], options))
            options = {}
        elif said := _OPTIONS.match(text):
            options = dict(part.split("=") for part in said[1].split())
        for what, program, rule, role in _marks(text):
            of_it = found[-1].errors[program]
            if what == "error":
                of_it.add(Expected(rule, number, role))
    return found


def told(report: Report, expected: set[Expected]) -> set[Expected]:
    """The participants of all findings; with their roles on lines of which the role is expected."""
    roles = defaultdict(set)
    for e in expected:
        roles[e.rule, e.line].add(e.role)
    found = set()
    for finding in report.findings:
        for p in finding.participants:
            said = roles.get((finding.rule, p.loc.line), {""})
            role = next((r for r in (p.role, f"warp {p.warp}", "") if r in said), p.role)
            found.add(Expected(finding.rule, p.loc.line, role))
    return found


def _marks(text: str) -> Iterator[tuple[str, int, str, str]]:
    """The marks of a line: what, of which wrong program, rule and role of an error."""
    if found := _MARKS.search(text):
        for mark in found[1].split(", "):
            parts = _PARTS.match(mark)
            assert parts, mark
            for number in parts[2].split() or ["1"]:
                yield parts[1], int(number), parts[3] or "", parts[4] or ""


@cache
def _written(path: Path, program: int) -> str:
    """A file with the lines of one of its programs, at the places where they stand."""
    lines = []
    for text in path.read_text().splitlines():
        only = {(what, number) for what, number, *_ in _marks(text) if what != "error"}
        stays = ("ok", program) not in only
        if any(what == "wrong" for what, _ in only):
            stays = ("wrong", program) in only
        indent = text[: len(text) - len(text.lstrip())]
        lines.append(text if stays else f"{indent}pass" if path.suffix == ".py" else "")
    return "\n".join(lines) + "\n"


@cache
def _kernels(path: Path, text: str) -> dict[str, Kernel]:
    """The kernels of a Python file that has this text."""
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), names)
    return {name: value for name, value in names.items() if isinstance(value, Kernel)}


def _given(parameter: Variable, given: Mapping[str, int]) -> Parameter:
    """What the launch gives for a parameter: the size of a buffer in bytes, or a number."""
    if parameter.type == "u64":
        return Pointer(parameter.name, given[parameter.name])
    return Scalar(parameter.name, parameter.type, given[parameter.name])
