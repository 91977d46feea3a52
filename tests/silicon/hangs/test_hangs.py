"""The campaign without a GPU: answers against `check`, scores, tables, limits of time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.blame.known import collection
from docs.generate_hangs import PAGE, RESULTS, TABLE, rows, section
from docs.regions import replaced
from tests.gpu import needs
from tests.ptx.test_cuda import compiled
from tests.silicon.hangs.answer import Answer, Barrier, Place, lines_of, marked
from tests.silicon.hangs.campaign import Campaign, Prepared, starts
from tests.silicon.hangs.emitted import task_of
from tests.silicon.hangs.facts import facts
from tests.silicon.hangs.hang import Limits, Undead, end_with, run
from tests.silicon.hangs.own import PROGRAMS, ROWS, STATES, Row
from tests.silicon.hangs.score import score
from tests.silicon.hangs.table import page, totals
from tests.silicon.hangs.task import (
    Task,
    answers_by,
    checked,
    copied_tasks,
    fixed,
    launches,
    named_by,
    own_tasks,
)
from tests.silicon.hangs.triton_task import TASKS
from tilesim.autopsy.pipeline import autopsy
from tilesim.capture.folder import Folder
from tilesim.capture.program import against_stub
from tilesim.kernels.registry import cases
from tilesim.ptx.parser import read

BY_NAME = {row.name: row for row in ROWS}
#: those that every run checks; the others are marked slow
FEW = {"bytes", "count", "lost", "named", "parity", "pool", "remote", "spin_on_word"}


def ptx_of(row: Row, *defines: str) -> str:
    """What NVRTC makes of a program."""
    nvrtc: Any = pytest.importorskip("cuda.bindings.nvrtc")
    head = (PROGRAMS.parents[2] / "ptx" / "cuda" / "head.cu").read_bytes()
    own = (PROGRAMS / "hang.cuh").read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(
        row.path.read_bytes(), row.path.name.encode(), 2, [head, own], [b"head.cu", b"hang.cuh"]
    )
    options = ["--gpu-architecture=compute_90a", "-lineinfo", "-std=c++17"]
    options += [f"-D{name}" for name in defines]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * max(size, 2)  # written in place, and b" " is one object
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    made = b" " * size
    nvrtc.nvrtcGetPTX(program, made)
    return str(made.rstrip(b"\0"), "utf-8")


def launched(row: Row, ptx: str, *, right: bool) -> dict[str, Any]:
    """Its launch, of the right twin or not."""
    document = json.loads(row.path.with_suffix(".launch.json").read_text())
    one = launches(fixed(document) if right else document)[0]
    return {"entry": read(ptx, "k.ptx").entries[0].name, **one}


def _every() -> list[Any]:
    rows = [row for row in ROWS if not row.unchecked]
    return [
        pytest.param(row, id=row.name, marks=() if row.name in FEW else pytest.mark.slow)
        for row in rows
    ]


@needs.compiler
@pytest.mark.parametrize("row", _every())
def test_answers_are_those_of_the_check(row: Row) -> None:
    """Each warp that the check says to wait does so in the table, at this line; and the twin is
    proved."""
    ptx = ptx_of(row, *row.defines)
    mir, report = checked(ptx, launched(row, ptx, right=False))
    if row.ends:
        assert report.verdict == "proved"
        return
    assert report.verdict == "failed"
    assert row.rule in report.rules
    if row.answer.culprits:
        assert named_by(report.findings[0]) & row.answer.culprits
    found = answers_by(mir, report, row.path.stem, frozenset())[0]
    places = row.answer.places
    for place in found.places:
        (cta,), (warp,) = place.ctas, place.warps
        same = [p for p in places if cta in p.ctas and warp in p.warps and p.on == place.on]
        if not same and place.on == "word":  # polls of an mbarrier by test_wait
            same = [p for p in places if cta in p.ctas and warp in p.warps]
        assert any(place.lines & p.lines for p in same), (place, places)
        assert all(place.id in (None, p.id) for p in same)
    if row.twin:
        right = ptx_of(row, "FIXED")
        assert checked(right, launched(row, right, right=True))[1].verdict == "proved"


def test_marks_are_where_the_table_says() -> None:
    said: dict[Path, set[str]] = {}
    for row in ROWS:
        said.setdefault(row.path, set()).update({row.culprit} & set(marked(row.path)))
        said[row.path].update(w.at for w in row.waits)
        assert row.ends or row.runs or row.answer.places
        assert row.answer.culprits or not row.source
    assert {path: set(marked(path)) for path in PROGRAMS.glob("*.cu")} == said
    assert len(STATES) == 20
    assert {task.name for task in TASKS if not task.answer.places} == set()


def test_tasks_of_the_table(tmp_path: Path) -> None:
    """Mistakes of one source are compiled one at a time, and their right twin once."""
    defines = {task.id: task.defines for task in own_tasks(tmp_path)}
    ring = {id: given for id, given in defines.items() if id.split("/")[1] in ("parity", "count")}
    assert ring == {
        "own/parity": ("PARITY",), "own/parity/fixed": ("FIXED",), "own/count": ("COUNT",),
    }  # fmt: skip
    assert defines["own/stale"] == ()


def test_a_folder_of_cases(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("__syncthreads();\nx = 1;\n__syncthreads(); y();\n")
    launch = {"grid": [1], "params": [], "fixed": {"grid": [2]}}
    (tmp_path / "a.launch.json").write_text(json.dumps(launch))
    (tmp_path / "lost.launch.json").write_text("{}")
    (tmp_path / "README.md").write_text(
        "| case | arch | rule | lines | said |\n| a | sm_90a | race/deadlock | x = ; y() | |\n"
    )
    buggy, right = copied_tasks(tmp_path, tmp_path / "work")
    assert (buggy.id, right.id) == ("bugs/a", "bugs/a/fixed")
    assert buggy.culprits == {"a.cu:2", "a.cu:3"}
    assert buggy.derived
    assert buggy.may_hang
    assert (right.ends, right.defines) == (True, ("FIXED",))
    assert buggy.launches == ({"grid": [1], "params": []},)
    assert right.launches == ({"grid": [2], "params": []},)
    assert (tmp_path / "work" / "a.cu").exists()


@pytest.mark.slow
def test_answers_of_tritons_kernels_are_those_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of Gluon deadlocks at the line of the table, and its right twin is proved."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tt = pytest.importorskip("tilesim.triton", reason="needs Triton", exc_type=ImportError)
    tl: Any = pytest.importorskip("triton.language")
    kernels: Any = pytest.importorskip("tests.silicon.hangs.triton_kernels")
    task = next(task for task in TASKS if task.name == "copied")
    gl: Any = pytest.importorskip("triton.experimental.gluon.language")
    hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
    where = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    x = hopper.TensorDescriptor.from_tensor(tt.empty((64, 64), tl.float16), [64, 64], where)
    y = tt.empty((64, 64), tl.float16)
    report = tt.check(kernels.copied[(1,)], x, y, BLOCK=64, PHASE=1, num_warps=4)
    places = report.findings[0].participants
    assert lines_of(p.loc for p in places) <= task.answer.places[0].lines
    assert named_by(report.findings[0]) & task.answer.culprits
    right = tt.check(kernels.copied[(1,)], x, y, BLOCK=64, PHASE=0, num_warps=4)
    assert right.verdict == "proved"


def test_launches_of_twins_with_several_kernels() -> None:
    document = json.loads(BY_NAME["two_kernels"].path.with_suffix(".launch.json").read_text())
    buggy, right = launches(document), launches(fixed(document))
    assert [one["grid"] for one in buggy] == [[132], [1]]
    assert [one["grid"] for one in right] == [[1], [1]]
    assert [one["entry"] for one in right] == ["waiting", "setting"]


# ---------------------------------------------------------------------- scores

ANSWER = Answer(
    (
        Place("k", (0, 1), (0, 1), "mbarrier", frozenset({"k.cu:5"}), Barrier(1, 4, 16)),
        Place("k", (0, 1), (2,), "named barrier", frozenset({"k.cu:9"}), id=3, threads=96),
    ),
    frozenset({"deadlock"}),
    frozenset({"k.cu:4"}),
)  # fmt: skip


def stated(**changes: Any) -> dict[str, Any]:
    """What an autopsy states that is right; ``changes`` of what it says of the mbarrier."""
    both = [
        stand
        for cta in (0, 1)
        for stand in (
            {"kernel": "k", "cta": cta, "warps": [0, 1], "on": "mbarrier", "lines": ["k.cu:5"],
             "barrier": [1, 4, 16], "certain": True, "passing": False, "lanes": 0xFFFFFFFF,
             **(changes if cta == 1 else {})},
            {"kernel": "k", "cta": cta, "warps": [2], "on": "named barrier", "lines": ["k.cu:9"],
             "id": None, "threads": None, "certain": False, "passing": False, "lanes": 0xFFFFFFFF},
        )
    ]  # fmt: skip
    return {"stands": both, "verdict": "same", "rules": ["deadlock"], "culprits": ["k.cu:4"]}


def test_what_is_right() -> None:
    found = score(ANSWER, stated(), with_ptx=True)
    assert (found.waiting, found.barrier, found.lines, found.culprit) == (True, True, True, True)
    assert not found.missed
    assert not found.wrong
    assert score(ANSWER, stated(), with_ptx=False).culprit is None
    assert score(ANSWER, stated(lines=[]), with_ptx=True).lines is True


@pytest.mark.parametrize(
    ("changes", "marks", "wrong"),
    [
        ({"on": "runs"}, (False, False, True), ""),
        ({"on": "cluster barrier"}, (True, False, True), "cluster barrier instead of mbarrier"),
        ({"on": "cluster barrier", "certain": False}, (True, False, True), ""),
        ({"barrier": [1, 4, 0]}, (True, False, True), "[1, 4, 0] instead of [1, 4, 16]"),
        ({"barrier": None}, (True, True, True), ""),
        ({"passing": True}, (False, False, True), "its wait is over"),
        ({"lines": ["k.cu:6"]}, (True, True, False), "at k.cu:6 instead of k.cu:5"),
        ({"lines": ["k.cu:6"], "certain": False}, (True, True, False), "at k.cu:6 instead of"),
        ({"warps": [0]}, (False, False, True), ""),
        ({"warps": [0, 1, 3]}, (False, True, True), "waits (mbarrier), and has ended"),
        ({"on": "lanes", "lanes": 0xFF}, (True, False, True), ""),
    ],
)  # fmt: skip
def test_what_is_not(changes: dict[str, Any], marks: tuple[bool, ...], wrong: str) -> None:
    found = score(ANSWER, stated(**changes), with_ptx=True)
    assert (found.waiting, found.barrier, found.lines) == marks
    assert bool(found.wrong) == bool(wrong)
    assert wrong in " ".join(found.wrong)


def test_another_culprit_is_missed_and_a_proof_is_wrong() -> None:
    found = score(ANSWER, {**stated(), "culprits": ["k.cu:5"]}, with_ptx=True)
    assert found.culprit is False
    assert found.missed == ("culprit k.cu:5 instead of k.cu:4",)
    found = score(ANSWER, {**stated(), "verdict": "proved"}, with_ptx=True)
    assert found.wrong == ("the kernel is said to be right",)


def test_of_a_part_of_the_warps_no_others_are_judged() -> None:
    part = Answer(ANSWER.places, ANSWER.rules, ANSWER.culprits, whole=False)
    found = score(part, stated(warps=[0, 1, 3]), with_ptx=True)
    assert found.waiting
    assert not found.wrong


def test_one_of_several_warps() -> None:
    """Which of the warps loads is not known: the others may stand elsewhere."""
    place = Place("k", (0, 1), (0, 1, 2), "mbarrier", frozenset({"k.cu:5"}), one=True)
    found = score(Answer((place,), ANSWER.rules), stated(), with_ptx=True)
    assert (found.waiting, found.barrier, found.lines) == (True, True, True)
    assert not found.wrong
    found = score(Answer((place,), ANSWER.rules), stated(on="word"), with_ptx=True)
    assert (found.waiting, found.barrier) == (True, False)


# ---------------------------------------------------------------------- tables

ROWS_MADE_UP = [
    {"id": "own/a lines", "state": "hung", "bytes": 1_400_000, "dump_seconds": 0.1, "seconds": 0.6,
     "ptx": "embedded", "score": {"waiting": True, "barrier": True, "lines": True, "culprit": True,
                                  "missed": [], "wrong": []}},
    {"id": "own/a plain", "state": "hung", "bytes": 1_300_000, "dump_seconds": 0.1, "seconds": 0.5,
     "ptx": "none", "score": {"waiting": True, "barrier": False, "lines": None, "culprit": None,
                              "missed": ["a|b"], "wrong": ["x"]}},
    {"id": "own/b lines", "state": "hung", "bytes": 1, "ptx": "embedded", "seconds": 60.0,
     "error": "the autopsy took more than 60 s"},
    {"id": "own/a/fixed lines", "state": "ended", "twin": True, "note": ""},
    {"id": "own/c lines", "state": "no dump", "note": "check: deadlock"},
]  # fmt: skip
MADE_UP = {
    "gpu": "a GPU", "driver": "1.2", "nvcc": "13.0", "tilesim": "0", "date": "2026-01-01",
    "seconds": 9, "rows": ROWS_MADE_UP,
}  # fmt: skip


def test_tables() -> None:
    said = totals(MADE_UP)
    assert "dumps that were read: 3, in 0.6 s (median), 60.0 s at most" in said
    assert "right culprit with PTX: 1 of 1 (100%)" in said
    assert "right waiting set and barrier without PTX: 0 of 1 (0%)" in said
    assert "wrong statements: 1" in said
    assert "could not be read: 1" in said
    text = page(MADE_UP)
    assert "| `own/a lines` | embedded | 1,400 | 0.1 | 0.6 | yes | yes | yes | yes |  |" in text
    assert "| yes | NO |  |  | x | a/b |" in text
    assert "1 of 1 right twins ended" in text
    assert "* own/c lines: no dump: check: deadlock" in text
    assert text in rows(MADE_UP)
    assert said in section(MADE_UP)


def test_page_and_rows_are_those_of_the_results() -> None:
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else None
    assert PAGE.read_text() == replaced(PAGE.read_text(), "hangs", section(document))
    assert TABLE.exists() == RESULTS.exists()
    if document is not None:
        assert TABLE.read_text() == rows(document)


# ---------------------------------------------------------------------- processes

_QUICK = Limits(start=5, hang=0.05, dump=2, kill=2)
_DRIVEN = """
import os, sys, time
pipe = os.environ["CUDA_COREDUMP_PIPE"]
os.mkfifo(pipe)
print("launched", flush=True)
assert open(pipe, "rb").read(1) == b"1"
open(os.environ["CUDA_COREDUMP_FILE"], "wb").write(b"a dump")
time.sleep({after})
sys.exit(1)
"""


def _python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_program_that_hangs_is_dumped(tmp_path: Path) -> None:
    found = run(_python(_DRIVEN.format(after=0)), tmp_path, limits=_QUICK)
    assert (found.state, found.dump) == ("hung", tmp_path / "core.nvcudmp")
    assert found.dump is not None
    assert found.dump.read_bytes() == b"a dump"


def test_a_driver_that_reads_more_than_a_byte_gets_it(tmp_path: Path) -> None:
    text = _DRIVEN.format(after=0).replace('.read(1) == b"1"', ".read(4096)")
    limits = Limits(start=5, hang=0.05, dump=2, kill=2)
    assert run(_python(text), tmp_path, limits=limits).state == "hung"


def test_programs_that_do_not_are_not(tmp_path: Path) -> None:
    ended = run(_python("print('launched')"), tmp_path / "a", limits=_QUICK)
    assert ended.state == "ended"
    failed = run(_python("print('launched'); 1 / 0"), tmp_path / "b", limits=_QUICK)
    assert failed.state == "failed"
    assert "ZeroDivisionError" in failed.output
    trapped = _DRIVEN.format(after=0).replace('assert open(pipe, "rb").read(1) == b"1"', "")
    assert run(_python(trapped), tmp_path / "c", limits=Limits(hang=5)).state == "excepted"


def test_everything_has_a_limit_of_time(tmp_path: Path) -> None:
    """A program that never launches, one whose driver is deaf, and one that does not end."""
    started = time.monotonic()
    limits = Limits(start=0.3, hang=0.05, dump=0.3, kill=2)
    silent = run(_python("import time; time.sleep(60)"), tmp_path / "a", limits=limits)
    assert silent.state == "failed"
    limits = Limits(start=5, hang=0.05, dump=0.3, kill=2)
    deaf = _python("import time; print('launched', flush=True); time.sleep(60)")
    assert run(deaf, tmp_path / "b", limits=limits).state == "no dump"
    limits = Limits(start=5, hang=0.05, dump=0.5, kill=2)
    text = "import os; print(os.getpid())\n" + _DRIVEN.format(after=60)
    stays = run(_python(text), tmp_path / "c", limits=limits)
    assert (stays.state, stays.dump is not None) == ("hung", True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(stays.output.split()[0]), 0)
    assert time.monotonic() - started < 15


def test_processes_are_found_by_an_argument_of_theirs(tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    process = subprocess.Popen([*_python("import time; time.sleep(60)"), plan])
    end_with(str(tmp_path / "plan"))
    assert process.poll() is None
    threading.Thread(target=process.wait).start()  # else it stays, as a process that has ended
    end_with(plan)
    assert process.wait(5) == -9


@needs.disassembler
def test_what_is_stated_of_a_dump() -> None:
    """The dump of the ring, which an H200 made: scored as it is right."""
    dump = Path(__file__).parents[2] / "autopsy" / "dumps" / "ring.nvcudmp.gz"
    kernel, ctas = "_Z4ringPKfPfii", (0, 1, 2)
    places = (
        Place(kernel, ctas, (0, 1, 2, 3), "mbarrier", frozenset({"ring.cu:21"}), Barrier(1, 1)),
        Place(kernel, ctas, (4,), "mbarrier", frozenset({"ring.cu:19"}), Barrier(4, 4)),
    )
    found = facts(autopsy(dump, check=False))
    result = score(Answer(places, frozenset({"deadlock"})), found, with_ptx=False)
    assert (result.waiting, result.barrier) == (True, True), result
    assert not result.wrong
    assert [launch["kernel"] for launch in found["launches"]] == [kernel]


def test_a_campaign(tmp_path: Path) -> None:
    """A program that leaves the ring's dump, one that ends, and one that could not be compiled."""
    ring = Path(__file__).parents[2] / "autopsy" / "dumps" / "ring.nvcudmp.gz"
    kernel = "_Z4ringPKfPfii"
    answer = Answer(
        (Place(kernel, (0, 1, 2), (0, 1, 2, 3), "mbarrier", frozenset({"ring.cu:21"})),
         Place(kernel, (0, 1, 2), (4,), "mbarrier", frozenset({"ring.cu:19"}))),
        frozenset({"deadlock"}), frozenset({"ring.cu:21"}),
    )  # fmt: skip
    hangs = Task("own/ring", tmp_path / "ring.cu", (), answer=answer)
    ends = Task("own/ring/fixed", tmp_path / "ring.cu", (), ends=True)
    every = [
        Prepared(hangs, tmp_path / "work" / "ring", (kernel,), (answer,)),
        Prepared(ends, tmp_path / "work" / "fixed", (kernel,)),
        Prepared(Task("own/other", tmp_path / "other.cu", ()), tmp_path, problem="refused"),
    ]
    text = _DRIVEN.format(after=0).replace('b"a dump"', f"open({str(ring)!r}, 'rb').read()")

    waits = [(0, 1, 2, 3), (4,)]
    printed = {
        "stands": [
            {"kernel": kernel, "cta": cta, "warps": warps, "on": "mbarrier", "lines": [],
             "certain": True, "passing": False, "lanes": 0xFFFFFFFF}
            for cta in range(3) for warps in waits
        ],
        "verdict": "", "rules": [], "culprits": [], "states": [], "text": "HANGS ring",
    }  # fmt: skip

    def reader(dump: Path, ptx: Any) -> list[str]:
        assert dump.stat().st_size > 20_000
        if any(path.endswith("kernel.ptx") for path in ptx):
            return _python("raise SystemExit('there is no PTX at that place')")
        return _python(f"print({json.dumps(printed)!r})")

    def command(start: Any) -> list[str]:
        return _python("print('launched')" if start.prepared.task.ends else text)

    out = tmp_path / "out"
    campaign = Campaign(
        out, tmp_path / "work", time.monotonic() + 100, command, _QUICK, lambda text: None, reader
    )
    assert [start.id for start in starts(every)] == ["own/ring lines", "own/ring plain"]
    campaign.run(every[:2], jobs=1)
    campaign.keep()
    rows = {(row["id"], row.get("ptx")): row for row in campaign.rows}
    assert [json.loads(row) for row in (out / "results.jsonl").read_text().splitlines()] == (
        campaign.rows
    )
    assert rows["own/ring/fixed lines", None]["state"] == "ended"
    alone = rows["own/ring plain", "none"]
    assert alone["state"] == "hung"
    assert alone["score"]["waiting"], alone
    assert not alone["score"]["wrong"], alone
    assert rows["own/ring plain", "given"]["error"] == "there is no PTX at that place"
    assert (out / "dumps.tar").stat().st_size > 20_000
    assert "HANGS ring" in (out / "reports.txt").read_text()
    campaign.clean()
    assert not (tmp_path / "work").exists()


def test_without_time_nothing_is_started(tmp_path: Path) -> None:
    hangs = Task("own/ring", tmp_path / "ring.cu", ())
    every = [Prepared(hangs, tmp_path / "work", ("ring",))]
    campaign = Campaign(
        tmp_path / "out", tmp_path / "work", time.monotonic() - 1,
        lambda start: pytest.fail("it is started"), _QUICK, lambda text: None,
    )  # fmt: skip
    campaign.run(every, jobs=1)
    assert [(row["id"], row["state"]) for row in campaign.rows] == [("own/ring lines", "no time")]


def test_a_process_that_does_not_die_ends_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undead(*arguments: Any, **more: Any) -> None:
        raise Undead("process 1 does not end")

    monkeypatch.setattr("tests.silicon.hangs.campaign.run", undead)
    every = [Prepared(Task(f"own/{n}", tmp_path, ()), tmp_path, ("k",)) for n in range(3)]
    campaign = Campaign(
        tmp_path / "out",
        tmp_path,
        time.monotonic() + 9,
        lambda start: [],
        _QUICK,
        lambda text: None,
    )
    campaign.run(every, jobs=1)
    assert [row["state"] for row in campaign.rows] == ["ended early"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, for the stand-in")
def test_the_launcher_launches_what_the_plan_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Against the stand-in for the driver of `tilesim capture`: a tensor map, a struct, a scalar,
    buffers that two launches share, a cluster."""
    (tmp_path / "k.ptx").write_text(_PTX)
    plan = {"image": "k.ptx", "launches": _LAUNCHES}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [
        sys.executable, "-m", "tests.silicon.hangs.launcher", str(tmp_path / "plan.json")
    ]  # fmt: skip
    code = against_stub(command, "sm_90a", Folder(tmp_path / "captured"))
    assert code == 0
    assert "launched\nended" in capfd.readouterr().out
    found = {
        one["entry"]: one
        for path in (tmp_path / "captured").glob("*.json")
        if (one := json.loads(path.read_text()))
    }
    first, second = found["first"], found["second"]
    assert first["grid"] == [2, 1, 1]
    assert first["cluster"] == [2, 1, 1]
    assert first["dynamic_shared"] == 50000
    map_, flag, number = first["params"]
    assert (map_["kind"], map_["type"], map_["shape"], map_["box"], map_["swizzle"]) == (
        "map", "f16", [64, 128], [64, 32], 128
    )  # fmt: skip
    assert (flag["bytes"], flag["contents"]["values"][:2]) == (8, [7, 9])
    assert number["value"] == 5
    assert second["dependent"]
    assert second["params"][0]["bytes"] == 8


_PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry first(.param .align 64 .b8 m[128], .param .u64 flag, .param .u32 n) { ret; }
.visible .entry second(.param .u64 flag) { ret; }
"""
_FLAG = {
    "kind": "pointer", "name": "flag", "bytes": 8, "contents": {"type": "u32", "values": [7, 9]},
}  # fmt: skip
_LAUNCHES = [
    {
        "entry": "first", "grid": [2], "block": [64], "cluster": [2], "dynamic_shared": 50000,
        "params": [
            {"kind": "map", "name": "x", "type": "f16", "shape": [64, 128], "strides": [128],
             "box": [64, 32], "swizzle": 128},
            _FLAG,
            {"kind": "scalar", "type": "u32", "value": 5},
        ],
    },
    {"entry": "second", "grid": [1], "block": [32], "dependent": True, "params": [_FLAG]},
]  # fmt: skip


#: bugs of the collection that hang in one of two CTAs
_OF_ONE_CTA = ("cluster_arrivals::uneven_pair", "role_agreement::idle_cta[tiles=1]")


@needs.compiler
@pytest.mark.parametrize("name", _OF_ONE_CTA)
def test_culprits_of_what_is_emitted(name: str, tmp_path: Path) -> None:
    """The lines that are marked, and those of the right twin that differ; one of them is named."""
    case = next(c for c in cases() if c.target.endswith(f".{name}") and c.fails)
    known = next(k for k in collection() if k.name.endswith(f".{name}"))
    task = task_of(case, tmp_path, known)
    assert task is not None
    ptx = compiled(task.source.read_text())
    _, report = checked(ptx, task.launches[0])
    lines = {place.partition(":")[2] for place in named_by(report.findings[0])}
    assert lines & {place.partition(":")[2] for place in task.culprits}


def test_what_a_finding_names_first_is_the_culprit() -> None:
    row = BY_NAME["stale"]
    ptx = ptx_of(row)
    _, report = checked(ptx, launched(row, ptx, right=False))
    assert named_by(report.findings[0]) == row.answer.culprits
