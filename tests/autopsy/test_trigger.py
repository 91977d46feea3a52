"""Names of pipes and dumps, a process that is dumped, and what is seen of progress."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.processes import MARKER, Family, parent_of, transfers
from tilesim.autopsy.progress import Load, Look, Nvml, Progress, look_at
from tilesim.autopsy.trigger import Limits, Names, dump_of, make_dumps, names_of, prepared
from tilesim.cli import main
from tilesim.records import replace

from .test_watch import LIMITS, PROGRAM, SHORT


def test_names_stand_for_host_process_and_time(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    for name in ("dump[1].7.100", "dump[1].8.100", "dump[1].7.x", "host/a.7"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "host" / "a.8")
    names = Names(("%h/a.%p",), ("dump[1].%p.%t", "%h/a.%p"), tmp_path)
    found = [str(p.relative_to(tmp_path)) for p in names.of(7).dumps()]
    assert found == ["dump[1].7.100", "dump[1].7.x", "host/a.7"]
    assert len(names.dumps()) == 4
    assert [p.name for p in names.pipes()] == ["a.8"]
    assert names.of(7).pipes() == ()


def test_a_pipe_that_nothing_reads_asks_for_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    made = make_dumps([Names(("pipe",), ("dump",), tmp_path)], LIMITS)
    assert (made.dumps, made.asked, made.problems) == ((), 0, ())


def test_what_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    patient = Limits(begin=60)
    names = Names(("pipe",), ("dump",), tmp_path)
    made = make_dumps([names], patient, alive=lambda: False)
    assert os.read(reader, 10) == b"1"
    os.close(reader)
    assert made.asked == 1
    assert "did not come in 0 s" in made.problems[0]


# ---------------------------------------------------------------------- a process that runs


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts the imitation with a driver; its number."""
    processes = []

    def run(*what: str) -> int:
        environment = prepared({}, Path("pipes"), tmp_path).environment
        (tmp_path / "pipes").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(PROGRAM), *what], env=environment, cwd=tmp_path
        )
        processes.append(process)
        while "quiet" not in what and not list((tmp_path / "pipes").glob("pipe*")):
            assert process.poll() is None
        return process.pid

    yield run
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_is_dumped(start: Callable[..., int], tmp_path: Path) -> None:
    pid = start()
    path = dump_of(pid, LIMITS)
    assert path.parent == tmp_path
    assert f".{pid}." in path.name


def test_the_command_dumps_a_process_and_reads_it(start: Callable[..., int]) -> None:
    pid = start()
    result = CliRunner().invoke(main, ["autopsy", "--no-check", "--pid", str(pid)])
    assert f"the dump of process {pid} is " in result.stderr
    assert "HANGS ring  grid 3, block 160" in result.stdout
    assert result.exit_code == 1


def test_a_process_that_cannot_be_dumped_says_why(
    start: Callable[..., int], tmp_path: Path
) -> None:
    with pytest.raises(DumpError, match="there is no process 999999999 here"):
        dump_of(999999999)
    text = "was started without CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1, as far as can be seen"
    with pytest.raises(DumpError, match=text):
        dump_of(os.getpid())
    pid = start("quiet")
    with pytest.raises(DumpError, match=rf"has no pipe for dumps \({tmp_path}/pipes/pipe.%h.{pid}"):
        dump_of(pid)
    with pytest.raises(DumpError, match="1 dump did not come"):
        dump_of(start("deaf"), SHORT)


def test_a_process_with_a_title_has_the_variables_of_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "mnt").symlink_to("mnt:[1]")
    for pid, parent, environment in (
        (1, 0, b""),
        (6, 1, b"CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1\0CUDA_COREDUMP_PIPE=/p.%p\0"),
        (7, 6, b"\0\0\0"),
        (8, 7, b"server: a title\0\0"),
        (9, 1, b"server: a title\0\0"),
    ):
        own = tmp_path / str(pid)
        (own / "ns").mkdir(parents=True)
        (own / "environ").write_bytes(environment)
        (own / "stat").write_text(f"{pid} (a (name)) S {parent} {pid} 0")
        (own / "status").write_text(f"NSpid:\t{pid}\n")
        (own / "cwd").symlink_to("/srv")
        (own / "ns" / "mnt").symlink_to("mnt:[1]")
    names = names_of(8, tmp_path)
    assert (names.pipe, names.folder) == (("/p.8",), Path("/srv"))
    with pytest.raises(DumpError, match="process 9 was started without"):
        names_of(9, tmp_path)
    monkeypatch.setenv("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1")
    monkeypatch.setenv("CUDA_COREDUMP_PIPE", "own.%p")
    assert names_of(9, tmp_path).pipe == ("own.9",)


def test_a_process_in_a_container_has_other_names(tmp_path: Path) -> None:
    own = tmp_path / "40"
    for folder in (own / "ns", own / "root" / "srv", tmp_path / "self" / "ns"):
        folder.mkdir(parents=True)
    (own / "environ").write_bytes(
        b"A=1\0CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1\0CUDA_COREDUMP_FILE=/srv/d.%p\0"
    )
    uid = os.getuid()
    status = f"Name:\tpython\nUid:\t9\t{uid}\t9\t9\nNSpid:\t40\t7\nThreads:\t1\n"
    (own / "status").write_text(status)
    (own / "cwd").symlink_to("/srv")
    (own / "ns" / "mnt").symlink_to("mnt:[2]")
    (tmp_path / "self" / "ns" / "mnt").symlink_to("mnt:[1]")
    os.mkfifo(own / "root" / "srv" / "corepipe_pod_7")
    (own / "root" / "srv" / "d.7").touch()
    names = names_of(40, tmp_path)
    assert names.pipes() == (own / "root" / "srv" / "corepipe_pod_7",)
    assert names.dumps() == (own / "root" / "srv" / "d.7",)
    # what a process names need not be its own
    assert replace(names, owner=uid + 1).pipes() == ()
    (own / "root" / "srv" / "corepipe.cuda.pod.7").symlink_to("corepipe_pod_7")
    assert len(names.pipes()) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "name a core dump, or a process with --pid P"),
        (["a.nvcudmp", "--pid", "3"], "name a core dump, or a process with --pid P"),
        (["--pid", "999999999"], "there is no process 999999999 here"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(main, ["autopsy", *arguments])
    assert (result.exit_code, result.output) == (2, f"error: {error}\n")


# ---------------------------------------------------------------------- progress

HUNG = Look((Load(0, 100, 0), Load(1, 0, 0)), frozenset({1, 2}), 9)


def test_a_gpu_that_is_busy_with_idle_memory_makes_no_progress() -> None:
    progress = Progress(10.0)
    assert progress.interval == 1.0
    said = [progress.stuck(float(n), HUNG) for n in range(11)]
    assert not any(said[:10])
    assert said[10].startswith("no progress for 10 s: GPU 0 is busy, no memory")
    assert [n for n in range(11, 35) if progress.stuck(float(n), HUNG)] == [20, 30]
    two = Look((Load(0, 99, 1), Load(1, 100, 0), Load(3, 100, 1)))
    progress = Progress(1.0)
    assert "GPUs 0-1, 3 are busy" in "".join(progress.stuck(n / 10, two) for n in range(12))


@pytest.mark.parametrize(
    "other",
    [
        Look((Load(0, 98, 0), Load(1, 0, 0)), frozenset({1, 2}), 9),  # no kernel for a moment
        Look((Load(0, 100, 0), Load(1, 0, 2)), frozenset({1, 2}), 9),  # a copy to another GPU
        Look((Load(0, 100, 0), Load(1, 0, 0)), frozenset({1}), 9),  # a process has ended
        Look((Load(0, 100, 0), Load(1, 0, 0)), frozenset({1, 2}), 10),  # a line was written
        Look((), frozenset({1, 2}), 9),
    ],
)
def test_what_counts_as_progress(other: Look) -> None:
    progress = Progress(1.0)
    looks = [HUNG] * 9 + [other] + [HUNG] * 10
    assert not any(progress.stuck(n / 10, look) for n, look in enumerate(looks))


def test_time_in_which_nothing_was_looked_at_does_not_count() -> None:
    progress = Progress(1.0)
    assert not progress.stuck(0.0, HUNG)
    assert not progress.stuck(100.0, HUNG)
    assert not progress.stuck(200.0, HUNG)


def test_reads_and_writes_of_a_process_are_counted(tmp_path: Path) -> None:
    before = transfers([os.getpid()])
    (tmp_path / "x").write_text("x")
    assert transfers([os.getpid(), 999999999]) > before > 0


def test_processes_of_a_command_are_found_by_mark_and_descent() -> None:
    # one in a session of its own, one whose environment cannot be seen, one without parents
    script = "setsid sleep 9 & env -i sleep 8 & (sleep 7 &) ; sleep 6"
    mark = {MARKER: f"ab{os.getpid()}", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["/bin/sh", "-c", script], env=mark, start_new_session=True) as process:
        family = Family(process, mark[MARKER])
        found: set[str] = set()
        while len(found) < 5:
            assert process.poll() is None
            found = {command_of(pid) for pid in family.members()} - {""}
        assert sorted(found)[1:] == ["sleep 6", "sleep 7", "sleep 8", "sleep 9"]
        pids = family.members()
        assert Family(process, "a").members() < pids
        family.end(5.0)
    assert process.returncode == -15
    assert not family.runs()
    assert not any(map(command_of, pids))


def test_what_has_ended_does_not_run_before_it_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "0"]) as process:
        assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) is not None
        assert Path(f"/proc/{process.pid}").exists()
        assert parent_of(process.pid) is None
    assert parent_of(os.getpid()) == os.getppid()


def command_of(pid: int) -> str:
    """The command line of a process; "" if it has ended."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    words = line.decode().split("\0")
    return " ".join(words[:2]) if words[0].endswith(("sleep", "sh")) else ""


def library(running: dict[int, list[int]], code: int = 0) -> Any:
    """NVML with two GPUs; functions answer as they do in C."""

    def count_of(number: Any) -> int:
        number._obj.value = 2
        return 0

    def handle_of(gpu: Any, handle: Any) -> int:
        handle._obj.value = gpu.value + 1
        return 0

    def utilization(handle: Any, use: Any) -> int:
        use._obj.gpu, use._obj.memory = 90 + handle.value, handle.value
        return code

    def processes(handle: Any, number: Any, found: Any) -> int:
        pids = running.get(handle.value, [])
        for place, pid in enumerate(pids):
            found[place].pid = pid
        number._obj.value = len(pids)
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=count_of,
        nvmlDeviceGetHandleByIndex_v2=handle_of,
        nvmlDeviceGetUtilizationRates=utilization,
        nvmlDeviceGetComputeRunningProcesses_v3=processes,
    )


def test_gpus_are_those_on_which_the_processes_run() -> None:
    gpus = Nvml(library({1: [5], 2: [7, 8]}))
    assert gpus.loads({8, 9}) == (Load(1, 92, 2),)
    assert gpus.loads({5, 7}) == (Load(0, 91, 1), Load(1, 92, 2))
    assert gpus.loads({9}) == (Load(0, 91, 1), Load(1, 92, 2))
    look = look_at(gpus, frozenset({5}))
    assert look == Look((Load(0, 91, 1),), frozenset({5}), transfers([5]))


def test_a_gpu_that_tells_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match="nvmlDeviceGetUtilizationRates of NVML answers 3"):
        Nvml(library({}, code=3)).loads(())
