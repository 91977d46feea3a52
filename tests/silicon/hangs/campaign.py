"""The campaign: everything is compiled and checked first, then each program is run, one at a time,
and its dump is read by other processes meanwhile.

Results are written as they come, a line of JSON each: an end before the time leaves what was found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from multiprocessing import Pool
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from tests.autopsy.scrub import packed, scrubbed
from tests.autopsy.scrub import read as dump_bytes
from tests.silicon.hangs.answer import Answer
from tests.silicon.hangs.hang import SMALL, Limits, Run, Undead, end_with, run
from tests.silicon.hangs.own import STATES
from tests.silicon.hangs.program_task import ProgramTask
from tests.silicon.hangs.score import score
from tests.silicon.hangs.task import (
    STUCK,
    VARIANTS,
    NotCompiled,
    Task,
    Variant,
    answers_by,
    checked,
    compiled,
    described,
)
from tests.silicon.hangs.triton_task import TritonTask
from tilesim.errors import TilesimError, UsageError
from tilesim.records import dataclass, replace

Row = dict[str, Any]
#: seconds that the autopsy of one dump may take
AUTOPSY = 60
#: bytes of a dump that is kept, scrubbed and compressed, and of all that are
KEPT, KEPT_ALL = 200_000, 14_000_000
#: bytes of a dump that is read in order to be kept
_READ = 64 << 20
#: characters of the data of a report, and of all reports
_DATA, _REPORTS = 100_000, 15_000_000
#: seconds that are left for the tables
TAIL = 20
#: the part of the time in which programs are compiled and checked, at most
_PREPARE = 0.4
_TWINS_AT_ONCE = 4


@dataclass(frozen=True)
class Prepared:
    """A program that can be started: what it is, its folder, the right answers: one of them
    is right, if the schedule decides which.

    ``hangs``: it is started to be dumped. ``problem``: why it cannot be started, or what its check
    said that it should not.
    """

    task: Task
    folder: Path
    kernels: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    hangs: bool = True
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class Start:
    """One start of a program: ``variant`` is how it was compiled; ``flags`` what a dump lacks."""

    prepared: Prepared
    variant: Variant
    flags: str = SMALL
    name: str = ""

    @property
    def id(self) -> str:
        """Its name in the results."""
        parts = (self.prepared.task.id, self.variant, self.name)
        return " ".join(part for part in parts if part)

    @property
    def folder(self) -> Path:
        """Where it leaves its files."""
        return self.prepared.folder / "-".join(filter(None, (self.variant, self.name)))


def prepare(task: Task, folder: Path) -> Prepared:
    """Compiles a program, checks it, and writes down its launches."""
    own = folder / task.id.replace("/", "+")
    try:
        ptx = compiled(task, "ptx", own).read_text()
        for kind in ("lines", "plain"):
            compiled(task, kind, own)
        launches = described(task, ptx)
        kernels = tuple(launch["entry"] for launch in launches)
        for kind in ("lines", "plain"):
            plan = {"image": f"{kind}.cubin", "launches": launches, "ends": task.ends}
            (own / f"{kind}.json").write_text(json.dumps(plan))
        answers = () if task.answer is None else (task.answer,)
        made = Prepared(task, own, kernels, answers, not task.ends, note=task.about)
        return _with_answer(made, ptx, launches)
    except (NotCompiled, TilesimError) as error:
        return Prepared(task, own, problem=str(error))


def _with_answer(made: Prepared, ptx: str, launches: Sequence[Mapping[str, Any]]) -> Prepared:
    task = made.task
    if not task.checked:
        return made
    mir, report = checked(ptx, launches[0])
    found = ", ".join(sorted(report.rules)) or report.verdict
    note = f"{task.about}; check: {found}" if task.about else f"check: {found}"
    if task.ends:
        right = report.verdict in ("proved", "exhausted", "bounded")
        return replace(made, note=note, problem="" if right or task.derived else note)
    if task.derived:
        answers = answers_by(mir, report, made.kernels[0], task.culprits)
        return replace(
            made, note=note, answers=answers, hangs=task.may_hang or bool(report.rules & STUCK)
        )
    right = any(report.rules & answer.rules for answer in made.answers)
    return replace(made, note=note, problem="" if right else f"{note}: not as in the table")


def starts(every: Iterable[Prepared]) -> Iterator[Start]:
    """What is started, in order: what says most comes first, should time run out."""
    fit = [one for one in every if one.kernels]
    hanging = [one for one in fit if one.hangs and not one.task.ends]
    own = [one for one in hanging if one.task.id.startswith("own/")]
    other = [one for one in hanging if one not in own]
    for variant in VARIANTS:
        yield from (Start(one, variant) for one in own)
        yield from (Start(one, variant) for one in other)
        if variant == "lines":
            yield from _flags(own)


#: as a recipe has them that is copied widely; and others that change what is in a dump
_RECIPE = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"
    "skip_constbank_memory"
)
_FLAGS = (
    ("no-shared", "own/count", _RECIPE),
    ("constants", "own/count", SMALL.replace("skip_constbank_memory,", "")),
    ("gzip", "own/count", f"{SMALL},gzip_compress"),
    ("global", "own/spin_on_word", "skip_local_memory,skip_abort"),
    ("everything", "own/ways", ""),
)


#: with which options of `tilesim watch`
_WATCHED = (
    ("own/count", ("--after", "5s")),
    ("own/spin_on_word", ("--no-progress", "5s", "--after", "40s")),
)


def _flags(own: Iterable[Prepared]) -> Iterator[Start]:
    by_id = {one.task.id: one for one in own}
    for name, id, flags in _FLAGS:
        if id in by_id:
            yield Start(by_id[id], "lines", flags, name)


def twins(every: Iterable[Prepared]) -> list[Start]:
    """The programs that are to end."""
    return [Start(one, "lines") for one in every if one.kernels and one.task.ends]


def _excepts(answers: Sequence[Answer]) -> bool:
    return any(place.on == "exception" for answer in answers for place in answer.places)


#: programs that are no kernel with a launch
Other = TritonTask | ProgramTask
#: the command of a start
Command = Callable[[Start], Sequence[str]]


def launcher(start: Start) -> Sequence[str]:
    """That on a GPU."""
    plan = start.prepared.folder / f"{start.variant}.json"
    return [sys.executable, "-m", "tests.silicon.hangs.launcher", str(plan)]


#: the command that reads a dump, and prints what `tests.silicon.hangs.facts` does; with the PTX
Reader = Callable[[Path, Sequence[str]], Sequence[str]]


def reader(dump: Path, ptx: Sequence[str]) -> Sequence[str]:
    """The autopsy."""
    return [sys.executable, "-m", "tests.silicon.hangs.facts", str(dump), *ptx]


def imitation(start: Start) -> Sequence[str]:
    """What stands for it where there is none."""
    plan = start.prepared.folder / f"{start.variant}.json"
    return [sys.executable, "-m", "tests.silicon.hangs.imitation", str(plan)]


class Campaign:
    """One run of all; ``out`` gets its files, ``folder`` those that are not kept."""

    def __init__(
        self, out: Path, folder: Path, deadline: float, command: Command = launcher,
        limits: Limits | None = None, say: Callable[[str], None] = print, reader: Reader = reader,
    ) -> None:  # fmt: skip
        self._out, self._folder, self._deadline = out, folder, deadline
        self._command, self._limits, self._say = command, limits or Limits(), say
        self._reader = reader
        self.rows: list[Row] = []
        self._texts: list[str] = []
        self._dumps: list[tuple[Path, str, tuple[str, ...]]] = []
        out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        """Seconds until the tables are written."""
        return self._deadline - time.monotonic()

    # ------------------------------------------------------------------ before the GPU

    def prepared(self, tasks: Sequence[Task], jobs: int) -> list[Prepared]:
        """All programs, compiled and checked in several processes."""
        end = time.monotonic() + _PREPARE * self.left()
        with Pool(jobs) as pool:  # which ends its processes, also those that are at work
            results = [pool.apply_async(prepare, (task, self._folder)) for task in tasks]
            found = [self._prepared(t, r, end) for t, r in zip(tasks, results, strict=True)]
        for one in found:
            if one.problem:
                self._row({"id": one.task.id, "state": "not as expected", "note": one.problem})
        return found

    def _prepared(self, task: Task, result: AsyncResult[Prepared], end: float) -> Prepared:
        try:
            return result.get(timeout=max(1.0, end - time.monotonic()))
        except Exception as error:  # of one program: the others go on
            return Prepared(task, self._folder, problem=f"{type(error).__name__}: {error}"[:500])

    # ------------------------------------------------------------------ on the GPU

    def run(self, every: Sequence[Prepared], others: Sequence[Other] = (), jobs: int = 4) -> None:
        """Hangs them, and reads what they leave; ends early if a process cannot be killed."""
        with ThreadPoolExecutor(jobs) as readers:
            try:
                for start in starts(every):
                    if not self._more(start.id):
                        break
                    self._guarded(start.id, self._one, start, readers)
                for task in others:
                    if not self._more(task.id):
                        break
                    self._guarded(task.id, self._other, task, readers)
                self._watched(every)
                self._twins(every)
            except Undead as error:
                self._row({"id": "campaign", "state": "ended early", "note": str(error)})

    def _guarded(self, id: str, part: Callable[..., None], *arguments: Any) -> None:
        """Does a part; if it fails, the others go on."""
        try:
            part(*arguments)
        except Undead:
            raise
        except Exception as error:
            self._row({"id": id, "state": "failed", "note": f"{type(error).__name__}: {error}"})

    def _more(self, id: str) -> bool:
        if self.left() > 0:
            return True
        self._row({"id": id, "state": "no time", "note": "this and what comes after it"})
        return False

    def _one(self, start: Start, readers: ThreadPoolExecutor) -> None:
        one = start.prepared
        found = run(self._command(start), start.folder, flags=start.flags, limits=self._limits)
        row = self._started(start.id, one.note, found)
        if found.dump is None:
            self._row(row)
            return
        answers = one.answers
        if found.state == "excepted" and not _excepts(answers):
            answers, row["note"] = (), f"{one.note}; it ended in an exception before it hung"
        ptx = str(one.folder / "kernel.ptx")
        reads = {"embedded": ()} if start.variant == "lines" else {"none": ("-",), "given": (ptx,)}
        for how, given in reads.items():
            own = {**row, "ptx": how}
            readers.submit(self._read, own, found.dump, given, answers, os.environ)
        self._dumps.append((found.dump, start.id, one.kernels))

    def _other(self, task: Other, readers: ThreadPoolExecutor) -> None:
        cache = self._folder / "triton" / task.name
        env = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
        limits = replace(self._limits, start=min(90.0, max(5.0, self.left())))
        found = run(task.command, cache.parent / f"{task.name}-run", limits=limits, env=env)
        row = self._started(task.id, "", found)
        if found.dump is None:
            self._row(row)
            return
        how = {**row, "ptx": task.ptx}
        readers.submit(self._read, how, found.dump, (), (task.answer,), env)
        self._dumps.append((found.dump, task.id, (task.kernel,)))

    def _watched(self, every: Sequence[Prepared]) -> None:
        """Programs under `tilesim watch`, as users run it."""
        by_id = {one.task.id: one for one in every if one.kernels}
        for id, options in _WATCHED:
            if id not in by_id or not self._more(f"watch {id}"):
                continue
            command = self._command(Start(by_id[id], "lines"))
            watch = [sys.executable, "-m", "tilesim", "watch", *options, "--", *command]
            started = time.monotonic()
            try:
                done = subprocess.run(watch, capture_output=True, text=True, timeout=AUTOPSY)
            except subprocess.TimeoutExpired:
                self._row({"id": f"watch {id}", "state": "took too long"})
                continue
            finally:
                end_with(command[-1])
            seconds = round(time.monotonic() - started, 1)
            text = f"exit code {done.returncode} after {seconds} s: {' '.join(options)}"
            hangs = done.returncode == 1 and "HANGS" in done.stdout + done.stderr
            state = "reported" if hangs else "not reported"
            self._row({"id": f"watch {id}", "state": state, "note": text})
            self._texts.append(f"===== watch {id}: {text}\n{done.stdout}\n{done.stderr}\n")

    def _twins(self, every: Sequence[Prepared]) -> None:
        def one(start: Start) -> None:
            if self.left() > 0:
                limits = replace(self._limits, hang=self._limits.hang * 10)
                found = run(self._command(start), start.folder, limits=limits)
                row = self._started(start.id, start.prepared.note, found)
                self._row({**row, "twin": True})

        with ThreadPoolExecutor(_TWINS_AT_ONCE) as pool:
            list(pool.map(one, twins(every)))

    def _started(self, id: str, note: str, found: Run) -> Row:
        row: Row = {"id": id, "state": found.state, "note": note}
        if found.dump is not None:
            row |= {"bytes": found.dump.stat().st_size, "dump_seconds": round(found.seconds, 2)}
        elif found.state != "ended":
            row["output"] = found.output[-400:]
        return row

    def _read(
        self, row: Row, dump: Path, ptx: Sequence[str], answers: Sequence[Answer],
        env: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Reads a dump and scores what is said of it."""
        try:
            self._row({**row, **self._scored(row, dump, ptx, answers, env)})
        except Exception as error:  # of one dump: the others go on
            self._row({**row, "error": f"{type(error).__name__}: {error}"[:500]})

    def _scored(
        self, row: Row, dump: Path, ptx: Sequence[str], answers: Sequence[Answer],
        env: Mapping[str, str],
    ) -> Row:  # fmt: skip
        command = list(self._reader(dump, ptx))
        started = time.monotonic()
        limit = min(AUTOPSY, self.left() + TAIL / 2)
        if limit <= 0:
            return {"error": "there was no time to read it"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=dict(env), timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"error": f"the autopsy took more than {limit:.0f} s"}
        seconds = round(time.monotonic() - started, 2)
        title = f"===== {row['id']}, PTX: {row['ptx']}"
        if done.returncode:
            self._texts.append(f"{title}\n{done.stderr[-3000:]}\n")
            last = (done.stderr.strip().splitlines() or [""])[-1]
            return {"error": last[:500], "seconds": seconds}
        stated = json.loads(done.stdout)
        found: Row = {"seconds": seconds, "verdict": stated["verdict"], "rules": stated["rules"]}
        if stated["states"]:
            right = sum(
                tuple(w) == (p, b.pending, b.expected, b.tx)
                for w, (p, b) in zip(stated["states"], STATES, strict=True)
            )
            found["note"] = f"{right} of {len(STATES)} barriers are in their known states"
        if answers:
            with_ptx = row["ptx"] != "none"
            results = [score(answer, stated, with_ptx=with_ptx) for answer in answers]
            found["score"] = max(results, key=lambda s: (s.waiting, s.barrier, not s.wrong)).json()
        text = stated.pop("text")
        data = json.dumps(stated)[:_DATA]
        self._texts.append(f"{title}\n{json.dumps(found)}\n{text}\nstated: {data}\n")
        return found

    # ------------------------------------------------------------------ what is kept

    def _row(self, row: Row) -> None:
        self.rows.append(row)
        with (self._out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        marks = row.get("score") or {}
        said = " ".join(k for k in ("waiting", "barrier", "lines", "culprit") if marks.get(k))
        wrong = f" WRONG {marks['wrong']}" if marks.get("wrong") else ""
        error = row.get("error") or ""
        self._say(f"{row['id']} [{row.get('ptx', '')}] {row['state']}: {said}{wrong} {error}")

    def keep(self) -> None:
        """Writes the reports, and the smallest dumps without what is the machine's."""
        (self._out / "reports.txt").write_text("\n".join(self._texts)[:_REPORTS])
        small = sorted(
            (one for one in self._dumps if one[0].stat().st_size <= _READ),
            key=lambda one: one[0].stat().st_size,
        )
        size = 0
        with tarfile.open(self._out / "dumps.tar", "w") as tar:
            for dump, id, kernels in small:
                if self.left() < -TAIL:
                    break
                data = self._scrubbed(dump, kernels)
                if len(data) > KEPT or size + len(data) > KEPT_ALL:
                    continue
                size += len(data)
                entry = tarfile.TarInfo(id.replace("/", "+").replace(" ", "-") + ".nvcudmp.gz")
                entry.size = len(data)
                tar.addfile(entry, BytesIO(data))

    def _scrubbed(self, dump: Path, kernels: tuple[str, ...]) -> bytes:
        paths = {
            str(self._folder.resolve()): "/hangs", str(Path.cwd()): "/tilesim",
            str(Path.home()): "/home",
        }  # fmt: skip
        usable = {old: new for old, new in paths.items() if len(new) <= len(old)}
        try:
            return packed(scrubbed(dump_bytes(dump), kernels, usable))
        except (OSError, UsageError) as error:
            self._texts.append(f"{dump} is not kept: {error}\n")
            return bytes(KEPT + 1)

    def clean(self) -> None:
        """Deletes what is not kept."""
        shutil.rmtree(self._folder, ignore_errors=True)
