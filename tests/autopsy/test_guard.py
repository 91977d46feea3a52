"""A process that watches its own tests, with an imitation of the driver (`fake_program`)."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilesim.autopsy import guard as module
from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.guard import Guard
from tilesim.autopsy.progress import Load

from .fake_program import drive
from .test_watch import LIMITS, PROGRAM

Start = Callable[..., Guard]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def start(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes guards whose reports are the names of dumps."""
    for name in [name for name in os.environ if name.startswith(("CUDA_", "TILESIM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(module, "nvml", lambda: None)
    monkeypatch.setattr(module, "autopsy", lambda path: path)
    monkeypatch.setattr(module, "render", lambda path: f"report of {path.name}\n")
    guards = []

    def start_(seconds: float = 0.1, grace: float = 60.0) -> Guard:
        guards.append(Guard(seconds, said.append, look=0.02, grace=grace, limits=LIMITS))
        return guards[-1]

    yield start_
    for one in reversed(guards):
        one.close()
    left = [name for name in os.environ if name.startswith(("CUDA_", "TILESIM_"))]
    assert not [name for name in left if not os.environ[name].startswith(("/", "skip"))]
    assert not list(tmp_path.iterdir())


def test_a_test_that_takes_longer_is_dumped_and_reported(start: Start, said: list[str]) -> None:
    guard = start()
    guard.begin("a::b")
    driver = drive()
    driver.join(5)
    assert not driver.is_alive()
    text = guard.report_of("a::b")
    guard.end()
    first, second = text.splitlines()
    assert first == "a::b takes longer than 0.1 s: its GPU is dumped"
    assert second.startswith("report of ")
    assert f".{os.getpid()}.nvcudmp" in second
    assert said == [text]
    assert guard.report_of("a::c") == ""


def test_processes_that_a_test_starts_are_dumped(start: Start, said: list[str]) -> None:
    guard = start()
    guard.begin("a::b")
    with subprocess.Popen([sys.executable, "-S", "-E", str(PROGRAM), "slow"]) as process:
        assert process.wait(5) == 3
    guard.end()
    assert f".{process.pid}.nvcudmp" in said[0]


def test_tests_that_are_fast_or_use_no_gpu_are_left_alone(start: Start, said: list[str]) -> None:
    guard = start()
    guard.begin("no GPU")
    wait_elsewhere(0.25)
    guard.end()
    driver = drive()
    for n in range(5):
        guard.begin(f"fast {n}")
        guard.end()
    wait_elsewhere(0.25)
    assert driver.is_alive()
    assert said == []


def wait_elsewhere(seconds: float) -> None:
    """Waits as a test does that is busy elsewhere."""
    subprocess.run(["sleep", str(seconds)], check=True)


def test_a_gpu_that_is_idle_is_not_dumped(
    start: Start, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = 40

    class Gpus:
        def loads(self, pids: object) -> tuple[Load, ...]:
            return (Load(0, busy, 3),)

    monkeypatch.setattr(module, "nvml", Gpus)
    guard = start()
    guard.begin("a::b")
    driver = drive()
    wait_elsewhere(0.25)
    assert driver.is_alive()
    assert said == []
    busy = 100
    driver.join(5)
    guard.end()
    assert "a::b takes longer" in said[0]


def test_a_guard_in_a_process_that_another_has_started_has_its_own_folder(start: Start) -> None:
    start(60.0)
    outer = os.environ["CUDA_COREDUMP_PIPE"]
    start(60.0)
    assert os.environ["CUDA_COREDUMP_PIPE"] != outer


@pytest.mark.parametrize(
    ("why", "says"),
    [
        (DumpError("it is damaged"), "error: it is damaged"),
        (ValueError("no such lane"), "error: a bug of tilesim, ValueError: no such lane"),
    ],
)
def test_a_dump_that_cannot_be_read_stays_and_the_process_ends(
    start: Start, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    why: Exception, says: str,
) -> None:  # fmt: skip
    def unread(path: Path) -> None:
        raise why

    ended: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr("os._exit", ended.put)
    monkeypatch.setattr(module, "autopsy", unread)
    guard = start(grace=0.05)
    guard.begin("a::b")
    drive()
    assert ended.get(timeout=10) == 1
    guard.close()
    _, error, kept = said[0].splitlines()
    assert error == says
    path = Path(kept.removeprefix("the dump is "))
    assert path.is_file()
    shutil.rmtree(path.parent)
    assert not list(tmp_path.iterdir())


def test_names_that_the_user_has_set_stay(
    start: Start, said: list[str], tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("CUDA_COREDUMP_PIPE", f"{folder}/pipe.%p")
    monkeypatch.setenv("CUDA_COREDUMP_FILE", f"{folder}/core.%p")
    monkeypatch.setenv("CUDA_COREDUMP_GENERATION_FLAGS", "skip_shared_memory")
    os.mkfifo(folder / "pipe.1")
    reader = os.open(folder / "pipe.1", os.O_RDONLY | os.O_NONBLOCK)
    guard = start()
    assert "skip_shared_memory is taken out" in guard.notes[0]
    guard.begin("a::b")
    drive().join(5)
    guard.end()
    assert f"the dump is {folder}/core.{os.getpid()}" in said[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_test_that_does_not_end_ends_the_process(
    start: Start, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr("os._exit", ended.put)
    guard = start(grace=0.05)
    guard.begin("a::b")
    drive()
    assert ended.get(timeout=10) == 1
    assert said[1] == "a::b has not ended 0.05 s after the dump: the process ends"
