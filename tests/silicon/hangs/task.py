"""A program to be hung: its source, its launches, and how it is made from them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.silicon.hangs.answer import Answer, On, Place, lines_of
from tests.silicon.hangs.own import PROGRAMS, ROWS
from tilesim.checker import Report, check
from tilesim.errors import TilesimError
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.mir import Mir
from tilesim.ptx.description import read as launch_of
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.records import dataclass, replace
from tilesim.sim.machine.simulate import simulate

#: seconds of one compilation, and of one check
_COMPILE, _CHECK = 120, 30
#: schedules whose deadlocks are answers as well
_SCHEDULES = 12
_HEADERS = Path(__file__).parents[2] / "ptx" / "cuda" / "head.cu"
STUCK = frozenset({"deadlock", "register-pool"})
#: what of a launch's file says nothing of the launch itself
_OTHER = ("fixed", "kernels")

#: with line tables and PTX in the cubin, or with neither
Variant = Literal["lines", "plain"]
VARIANTS: tuple[Variant, ...] = ("lines", "plain")


@dataclass(frozen=True)
class Task:
    """A program and what it is to do.

    ``source`` is CUDA C++ in a folder with all that it includes. ``launches`` are launch
    descriptions; an ``entry`` that is missing is the PTX's only kernel. ``answer`` is None for a
    program that is to end, and for one whose answer is what `tilesim.check` says of its PTX
    (``derived``). ``culprits`` are lines one of which is to be named, for these. ``may_hang``: it
    is started although its check finds no deadlock.
    """

    id: str
    source: Path
    launches: tuple[Mapping[str, Any], ...]
    defines: tuple[str, ...] = ()
    answer: Answer | None = None
    derived: bool = False
    ends: bool = False
    culprits: frozenset[str] = frozenset()
    may_hang: bool = False
    checked: bool = True
    about: str = ""


def fixed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The launch of the right twin."""
    own = {name: value for name, value in document.items() if name != "fixed"}
    given = dict(document.get("fixed", {}))
    if "kernels" in given:
        pairs = zip(own["kernels"], given.pop("kernels"), strict=True)
        own["kernels"] = [{**one, **other} for one, other in pairs]
    return {**own, **given}


def launches(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The launches that a file describes."""
    every = document.get("kernels") or [document]
    return tuple({k: v for k, v in one.items() if k not in _OTHER} for one in every)


def own_tasks(folder: Path) -> Iterator[Task]:
    """Those of the table, with their right twins; their sources are copied to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*PROGRAMS.glob("*.cu*"), _HEADERS):
        shutil.copy(path, folder)
    for row in ROWS:
        document = json.loads(row.path.with_suffix(".launch.json").read_text())
        source, checked = folder / row.path.name, not row.unchecked
        yield Task(
            f"own/{row.name}", source, launches(document), row.defines,
            None if row.ends else row.answer, ends=row.ends, checked=checked, about=row.shows,
        )  # fmt: skip
        if row.twin:
            yield Task(
                f"own/{row.name}/fixed", source, launches(fixed(document)), ("FIXED",),
                ends=True, checked=checked,
            )  # fmt: skip


def copied_tasks(cases: Path, folder: Path) -> Iterator[Task]:
    """Those of a folder of CUDA sources with launches; a ``README.md`` there may say lines.

    Which of them hang is what their check says, or that file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(cases.glob("*.cu*")):
        shutil.copy(path, folder)
    said = _said(cases / "README.md")
    for path in sorted(cases.glob("*.launch.json")):
        name = path.name.removesuffix(".launch.json")
        source = folder / f"{name}.cu"
        if not source.exists():
            continue
        document = json.loads(path.read_text())
        may_hang, texts = said.get(name, (False, ()))
        lines = frozenset(
            f"{source.name}:{number}"
            for number, line in enumerate(source.read_text().splitlines(), 1)
            if any(text in line for text in texts)
        )
        yield Task(
            f"bugs/{name}", source, launches(document), derived=True, culprits=lines,
            may_hang=may_hang,
        )  # fmt: skip
        yield Task(f"bugs/{name}/fixed", source, launches(fixed(document)), ("FIXED",), ends=True)


def _said(readme: Path) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """By case, whether it may hang, and texts of the lines to be named: the third and the fourth
    column of a table."""
    if not readme.exists():
        return {}
    found = {}
    for row in readme.read_text().splitlines():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        if len(cells) > 3:
            texts = tuple(text.strip() for text in cells[3].split(" ; ") if text.strip())
            found[cells[0]] = "deadlock" in cells[2], texts
    return found


# ---------------------------------------------------------------------- compiling


class NotCompiled(TilesimError):
    """nvcc refuses a program."""


def compiled(task: Task, kind: Literal["ptx", "lines", "plain"], folder: Path) -> Path:
    """PTX, or a cubin with or without lines, by nvcc.

    Raises:
        NotCompiled: it is refused, or takes too long.
    """
    target = folder / ("kernel.ptx" if kind == "ptx" else f"{kind}.cubin")
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        "nvcc", "-ptx" if kind == "ptx" else "-cubin", "-arch=sm_90a", "-std=c++17",
        *(("-lineinfo",) if kind != "plain" else ()), *(f"-D{name}" for name in task.defines),
        task.source.name, "-o", str(target.resolve()),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=task.source.parent, capture_output=True, text=True, timeout=_COMPILE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCompiled(f"{task.id}: nvcc: {error}") from error
    if done.returncode:
        raise NotCompiled(f"{task.id}: {(done.stderr or done.stdout).strip()[:500]}")
    return target


def described(task: Task, ptx: str) -> tuple[dict[str, Any], ...]:
    """The launches, each with its kernel's name.

    Raises:
        PtxError: the PTX cannot be read.
    """
    only = read(ptx, "kernel.ptx").entries[0].name
    return tuple({"entry": only, **launch} for launch in task.launches)


# ---------------------------------------------------------------------- what check says


def checked(ptx: str, launch: Mapping[str, Any]) -> tuple[Mir, Report]:
    """A kernel with its launch, as the machine runs it, and what `tilesim.check` says of it.

    Raises:
        TilesimError: it cannot be read.
    """
    module = read(ptx, "kernel.ptx")
    entry = next((e for e in module.entries if e.name == launch["entry"]), None)
    if entry is None:
        raise NotCompiled(f"there is no kernel {launch['entry']}")
    mir = lower(module, entry, launch_of(dict(launch)))
    return mir, check(mir, time_limit=_CHECK)


def answers_by(
    mir: Mir, report: Report, kernel: str, culprits: frozenset[str]
) -> tuple[Answer, ...]:
    """The answers that a check gives: none if it finds no deadlock, or other faults as well.

    Which one it is may depend on the schedule, so those of others are added. An answer names a warp
    of each group, so it is not whole. ``culprits`` are lines that are known from elsewhere: those
    of the check would be compared with themselves.
    """
    if {f.rule for f in report.findings} - STUCK:
        return ()
    runs = [simulate(mir, policy="random", seed=seed) for seed in range(_SCHEDULES)]
    every = (report.findings, *(run.findings for run in runs))
    found = [_answer_by(findings, kernel, culprits) for findings in every]
    return tuple(dict.fromkeys(answer for answer in found if answer is not None))


def _answer_by(
    findings: Sequence[Finding], kernel: str, culprits: frozenset[str]
) -> Answer | None:  # fmt: skip
    stuck = [f for f in findings if f.rule in STUCK]
    places = [
        Place(kernel, (p.cta,), (p.warp,), on, lines_of([p.loc]), id=_id(p))
        for finding in stuck
        for p in finding.participants
        if p.warp is not None and (on := _on(p)) is not None
    ]
    rules = frozenset(f.rule for f in stuck)
    if pool := [place for place in places if place.on == "registers"]:
        # to which warps the GPU gives registers is its choice, and what others wait for depends
        # on it
        warps = tuple(warp for place in pool for warp in place.warps)
        places = [replace(pool[0], warps=warps, one=True)]
    return Answer(tuple(places), rules, culprits, whole=False) if places else None


def _on(participant: Participant) -> On | None:
    action = participant.action
    if "setmaxnreg" in action:
        return "registers"
    if action.startswith("is in a loop"):
        return "word"
    named = participant.deed.on if participant.deed else None
    if named is None:
        return None
    if "named barrier" in named.label:
        return "named barrier"
    return "cluster barrier" if "cluster barrier" in named.label else "mbarrier"


def _id(participant: Participant) -> int | None:
    named = participant.deed.on if participant.deed else None
    last = named.label.rpartition("named barrier ")[2] if named is not None else ""
    return int(last) if last.isdecimal() else None


def named_by(finding: Finding) -> frozenset[str]:
    """The lines that a finding says are to be changed: its culprits', else its participants'."""
    return lines_of(p.loc for p in (finding.culprits or finding.participants))
