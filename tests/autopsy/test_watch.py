"""Commands under watch, with an imitation of the driver (`fake_program`)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from socket import gethostname
from time import sleep

import pytest
from click.testing import CliRunner

from tilesim.autopsy import autopsy
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.processes import MARKER
from tilesim.autopsy.progress import Load, Look
from tilesim.autopsy.trigger import Limits
from tilesim.autopsy.watch import HUNG, Watch
from tilesim.cli import main
from tilesim.errors import UsageError

PROGRAM = Path(__file__).parent / "fake_program.py"
RING = Path(__file__).parent / "dumps" / "ring.nvcudmp.gz"
LIMITS = Limits(begin=10, stall=10, again=0.1, look=0.01, settle=0.05)
#: of a driver that makes no dump
SHORT = Limits(begin=0.2, stall=0.2, again=0.1, look=0.01, settle=0.05)


class Watched:
    """A watch whose reports and lines are kept."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder
        self.reports: list[Path] = []
        self.lines: list[str] = []
        self.tells = True

    def report(self, path: Path) -> bool:
        assert len(CoreDump(path).ctas) == 3
        self.reports.append(path)
        return self.tells

    def run(
        self, *what: str, after: float | None = None, grace: float = 5.0,
        folder: Path | None = None, look: Callable[[frozenset[int]], Look] | None = None,
        no_progress: float | None = None, limits: Limits = LIMITS,
    ) -> int:  # fmt: skip
        watch = Watch(
            self.report, self.lines.append, after=after, grace=grace, folder=folder, limits=limits,
            look=look, no_progress=no_progress,
        )  # fmt: skip
        return watch.run([sys.executable, "-S", "-E", str(PROGRAM), *what])


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    mark = f"of-{os.getpid()}"  # tests in other processes have others
    monkeypatch.setattr("secrets.token_hex", lambda size: mark)
    yield Watched(folder)
    marked = subprocess.run(
        ["grep", "-lz", f"{MARKER}={mark}", *map(str, Path("/proc").glob("[0-9]*/environ"))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert marked.stdout == ""


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGQUIT"])
def test_a_signal_asks_for_the_dump_which_is_reported(watched: Watched, name: str) -> None:
    assert watched.run(name) == HUNG
    assert len(watched.reports) == 1
    assert watched.lines == [
        f"{name} asks for a dump: its GPU is dumped",
        "1 dump deleted; --dump-dir DIR keeps dumps, for `tilesim autopsy`",
    ]
    assert not list(watched.temporary.iterdir())


def test_a_command_that_runs_too_long_is_dumped_and_ended(watched: Watched) -> None:
    watch = Watch(watched.report, watched.lines.append, after=0.2, limits=SHORT)
    assert watch.run(["/bin/sh", "-c", "sleep 30 & sleep 30"]) == HUNG
    assert watched.lines == [
        "it runs for more than 0.2 s: its GPU is dumped",
        "no process of the command has a pipe for dumps: none has a CUDA context yet, or its driver"
        " makes none",
    ]
    assert not list(watched.temporary.iterdir())


def test_a_command_that_ends_has_its_own_exit_code(watched: Watched) -> None:
    assert watched.run("quiet") == 5
    watch = Watch(watched.report, watched.lines.append)
    assert watch.run(["/bin/sh", "-c", "exit 0"]) == 0
    assert watch.run(["/bin/sh", "-c", "kill -9 $$"]) == 137
    assert (watched.lines, watched.reports) == ([], [])
    assert not list(watched.temporary.iterdir())


def test_a_command_that_cannot_be_started_is_a_usage_error(watched: Watched) -> None:
    watch = Watch(watched.report, watched.lines.append)
    with pytest.raises(UsageError, match=r"^no-such cannot be run: No such file or directory$"):
        watch.run(["no-such"])
    assert not list(watched.temporary.iterdir())


def test_a_dump_that_never_comes_is_said(watched: Watched) -> None:
    assert watched.run("deaf", "SIGUSR1", limits=SHORT) == HUNG
    assert "1 dump did not come in 0 s, although the driver was asked" in watched.lines[1]
    assert not watched.reports
    assert not list(watched.temporary.iterdir())


def test_a_command_that_ends_before_it_is_dumped_has_its_own_exit_code(watched: Watched) -> None:
    assert watched.run("early", "SIGUSR1") == 6
    assert watched.lines == [
        "SIGUSR1 asks for a dump: its GPU is dumped",
        "it has ended before it was dumped",
    ]


def test_a_driver_may_read_many_bytes_at_a_time(watched: Watched) -> None:
    assert watched.run("SIGUSR1", "buffered") == HUNG
    assert len(watched.reports) == 1


def test_each_process_is_dumped_also_in_a_session_of_its_own(watched: Watched) -> None:
    assert watched.run("SIGUSR1", "two", "slow") == HUNG
    assert len(set(watched.reports)) == 2
    assert [line.partition(":")[0] for line in watched.lines[1:3]] == ["dump 1 of 2", "dump 2 of 2"]
    assert "2 dumps deleted" in watched.lines[3]


def test_a_dump_is_read_when_it_is_whole(watched: Watched) -> None:
    assert watched.run("SIGUSR1", "slow", "stay", grace=0.1) == HUNG
    assert len(watched.reports) == 1


def test_a_dump_that_is_cut_is_kept(watched: Watched) -> None:
    assert watched.run("SIGUSR1", "cut") == HUNG
    assert not watched.reports
    assert "was it cut?" in watched.lines[1]
    assert watched.lines[2].startswith("the dump is ")
    assert Path(watched.lines[2].removeprefix("the dump is ")).exists()


def test_a_dump_whose_report_tells_no_hang_is_kept(watched: Watched) -> None:
    watched.tells = False
    assert watched.run("SIGUSR1") == HUNG
    assert watched.lines[1] == f"the dump is {watched.reports[0]}"
    assert watched.reports[0].exists()


def test_a_dump_that_cannot_be_read_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bool:
        raise DumpError("no nvdisasm")

    monkeypatch.setattr(watched, "report", fail)
    assert watched.run("SIGUSR1") == HUNG
    assert watched.lines[1] == "error: no nvdisasm"
    assert Path(watched.lines[2].removeprefix("the dump is ")).exists()


def test_dumps_are_kept_in_the_folder_that_is_named(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_COREDUMP_FILE", str(tmp_path / "elsewhere"))
    kept = tmp_path / "new" / "dumps"
    assert watched.run("SIGUSR1", folder=kept) == HUNG
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert [path.parent for path in watched.reports] == [kept]
    assert watched.lines[1:] == [f"the dump is {watched.reports[0]}"]
    assert [p.name for p in kept.iterdir()] == [watched.reports[0].name]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file cannot be made: File exists"):
        watched.run(folder=tmp_path / "file")


def test_a_command_that_ignores_term_is_killed(watched: Watched) -> None:
    assert watched.run("SIGUSR1", "two", "stay", grace=0.1) == HUNG
    assert len(watched.reports) == 2


def test_a_dump_at_an_exception_is_reported_when_the_command_has_ended(watched: Watched) -> None:
    assert watched.run("trap") == 4
    assert len(watched.reports) == 1


def test_commands_that_are_watched_at_once_have_dumps_of_their_own_in_one_folder(
    watched: Watched, tmp_path: Path
) -> None:
    command = [sys.executable, "-S", "-E", str(PROGRAM), "SIGUSR1"]
    other = Watched(watched.temporary)

    def report(path: Path) -> bool:
        if not other.reports:
            watch = Watch(other.report, other.lines.append, folder=tmp_path, limits=LIMITS)
            assert watch.run(command) == HUNG
        return watched.report(path)

    watch = Watch(report, watched.lines.append, folder=tmp_path, limits=LIMITS)
    assert watch.run(command) == HUNG
    assert len({*watched.reports, *other.reports}) == 2
    assert watched.lines[1:] == [f"the dump is {watched.reports[0]}"]
    assert other.lines[1:] == [f"the dump is {other.reports[0]}"]


def test_dumps_of_other_programs_are_not_reported(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is named for all jobs of a machine gets theirs meanwhile."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("CUDA_COREDUMP_FILE", str(shared / "core.%h.%p"))
    foreign = shared / f"core.{gethostname()}.{os.getpid()}"
    foreign.touch()
    own = Watched.report

    def report(self: Watched, path: Path) -> bool:
        assert path != foreign
        return own(self, path)

    monkeypatch.setattr(Watched, "report", report)
    command = f"gzip -dc {RING} > {foreign}; exec {sys.executable} -S -E {PROGRAM} trap"
    watch = Watch(watched.report, watched.lines.append, limits=LIMITS)
    assert watch.run(["/bin/sh", "-c", command]) == 4
    (path,) = watched.reports
    assert path.parent == shared
    assert watched.lines == [
        f"{foreign} is not reported: its name is that of a dump of another program",
        f"the dump is {path}",
    ]


# ---------------------------------------------------------------------- signals


def test_without_a_pipe_the_signal_is_answered_and_the_command_goes_on(watched: Watched) -> None:
    assert watched.run("quiet", "SIGQUIT") == 5
    assert watched.lines == [
        "SIGQUIT asks for a dump: its GPU is dumped",
        "no process of the command has a pipe for dumps: none has a CUDA context yet, or its driver"
        " makes none; it goes on",
    ]


def test_an_interrupt_is_passed_on_and_a_second_one_kills(watched: Watched) -> None:
    assert watched.run("stay", "SIGINT", "again") == 128 + signal.SIGKILL
    assert watched.lines == [
        "SIGINT is passed on; if nothing happens, Ctrl-\\ dumps the GPU, and a second Ctrl-C kills"
    ]
    assert watched.run("SIGINT") == 128 + signal.SIGINT
    assert not watched.reports


def test_term_is_passed_on(watched: Watched) -> None:
    assert watched.run("gentle", "SIGTERM") == 7
    assert not watched.lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_the_watch_while_it_reads_ends_the_command_and_keeps_the_dump(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def read(path: Path) -> bool:
        os.kill(os.getpid(), signal.SIGQUIT)  # nothing more is asked for
        os.kill(os.getpid(), number)
        raise AssertionError

    monkeypatch.setattr(watched, "report", read)
    with pytest.raises(SystemExit) as end:
        watched.run("stay", "SIGUSR1")
    assert end.value.code == 128 + number
    assert watched.lines[1].startswith("the dump is ")
    assert Path(watched.lines[1].removeprefix("the dump is ")).exists()


def test_a_signal_that_is_ignored_is_ignored_by_the_command_too(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under nohup, or behind ``&`` in a script."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        script = "kill -HUP $PPID; sleep 0.1; kill -HUP $$; exit 5"
        assert Watch(watched.report, watched.lines.append).run(["/bin/sh", "-c", script]) == 5
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_time_in_which_the_command_is_stopped_does_not_count(watched: Watched) -> None:
    script = (
        "import sys; from tilesim.autopsy.watch import Watch\n"
        "sys.exit(Watch(bool, print, after=1.0).run(sys.argv[1:]))"
    )
    command = "kill -TSTP $PPID; sleep 0.1; exit 5"
    with subprocess.Popen([sys.executable, "-c", script, "/bin/sh", "-c", command]) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        sleep(1.1)
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 5


def test_handlers_of_signals_are_as_before(watched: Watched) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGUSR1)
    watched.run("quiet")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGUSR1)) == before


# ---------------------------------------------------------------------- no progress


def test_a_command_without_progress_is_dumped(watched: Watched) -> None:
    hung = Look((Load(0, 100, 0),), frozenset({1}), 5)
    numbers = count()

    def look(pids: frozenset[int]) -> Look:
        ready = list(watched.temporary.glob("*/pipe*"))
        return hung if ready else Look((), frozenset(), next(numbers))

    assert watched.run(no_progress=0.1, look=look) == HUNG
    assert watched.lines[0] == (
        "no progress for 0.1 s: GPU 0 is busy, no memory of GPUs is accessed, and no process of "
        "the command reads or writes: its GPU is dumped"
    )
    assert len(watched.reports) == 1


def test_a_command_without_a_context_goes_on_when_a_gpu_makes_no_progress(
    watched: Watched,
) -> None:
    """NVML may tell of GPUs that other programs use."""

    def look(pids: frozenset[int]) -> Look:
        return Look((Load(0, 100, 0),), frozenset({1}), 5)

    assert watched.run("quiet", no_progress=0.25, look=look) == 5
    assert len(watched.lines) == 2
    assert watched.lines[1].endswith("makes none; it goes on")


def test_progress_that_cannot_be_seen_any_longer_is_said_and_the_command_goes_on(
    watched: Watched,
) -> None:
    def look(pids: frozenset[int]) -> Look:
        raise OSError("nvmlDeviceGetUtilizationRates of NVML answers 15")

    assert watched.run("quiet", no_progress=0.1, look=look) == 5
    assert watched.lines == [
        "progress is not watched any longer: nvmlDeviceGetUtilizationRates of NVML answers 15"
    ]


# ---------------------------------------------------------------------- variables of the user


def test_variables_that_the_user_has_set_stay(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("CUDA_COREDUMP_PIPE", f"{own}/pipe-%p")
    monkeypatch.setenv("CUDA_COREDUMP_FILE", f"{own}/core-%t-%h-%p")
    # of another program: it must not be dumped
    os.mkfifo(own / "pipe-1")
    reader = os.open(own / "pipe-1", os.O_RDONLY | os.O_NONBLOCK)
    (own / "core-0-host-1").write_text("an old one")
    assert watched.run("SIGUSR1") == HUNG
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert len(watched.reports) == 1
    assert watched.reports[0].name.startswith("core-1")
    assert watched.lines[1:] == [f"the dump is {watched.reports[0]}"]
    # the pipe of a program that is ended while its driver removes it may be left
    names = {p.name for p in own.iterdir() if p.name == "pipe-1" or not p.name.startswith("pipe-")}
    assert names == {"core-0-host-1", "pipe-1", watched.reports[0].name}


def test_flags_that_leave_out_shared_memory_are_taken_out(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "CUDA_COREDUMP_GENERATION_FLAGS", "skip_global_memory, skip_shared_memory,skip_abort"
    )
    monkeypatch.setenv("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "1")
    script = (
        'test "$CUDA_COREDUMP_GENERATION_FLAGS" = skip_global_memory,skip_abort '
        '&& test "$CUDA_ENABLE_LIGHTWEIGHT_COREDUMP" = 0 '
        '&& test "$CUDA_ENABLE_USER_TRIGGERED_COREDUMP" = 1 '
        '&& test "$CUDA_ENABLE_COREDUMP_ON_EXCEPTION" = 1'
    )
    assert Watch(watched.report, watched.lines.append).run(["/bin/sh", "-c", script]) == 0
    assert watched.lines == [
        "skip_shared_memory is taken out of CUDA_COREDUMP_GENERATION_FLAGS: mbarriers are in shared"
        " memory",
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP is set to 0: mbarriers are in shared memory",
    ]


# ---------------------------------------------------------------------- the command


def test_the_command_reports_and_leaves_input_and_output_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tilesim.cli.watch.autopsy", partial(autopsy, check=False))
    (tmp_path / "input").write_text("a line\n")
    script = f"read line; echo $line; exec {sys.executable} -S -E {PROGRAM} SIGUSR1"
    before = os.dup(0)
    with (tmp_path / "input").open() as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(SystemExit) as end:
            main(["watch", "--dump-dir", str(tmp_path / "dumps"), "--", "/bin/sh", "-c", script])
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert end.value.code == HUNG
    output, said = capfd.readouterr()
    assert output == "a line\n"
    assert "tilesim watch: SIGUSR1 asks for a dump: its GPU is dumped\n" in said
    assert "HANGS ring  grid 3, block 160, sm_90; 3 of 3 CTAs resident" in said
    assert f"tilesim watch: the dump is {tmp_path}/dumps/" in said


def test_the_command_inherits_descriptors(watched: Watched) -> None:
    """As of ``watch -- program <(...)``."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    watch = Watch(watched.report, watched.lines.append)
    assert watch.run(["/bin/sh", "-c", f"echo line > /dev/fd/{writer}"]) == 0
    os.close(writer)
    with os.fdopen(reader) as file:
        assert file.read() == "line\n"


@pytest.mark.parametrize(("what", "code"), [("quiet SIGUSR1", 5), ("trap", 4)])
def test_lines_that_nothing_reads_cost_neither_exit_code_nor_dump(
    watched: Watched, what: str, code: int
) -> None:
    command = [sys.executable, "-S", "-E", str(PROGRAM), *what.split()]
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "TMPDIR": str(watched.temporary)}
    process = subprocess.run(
        [sys.executable, "-m", "tilesim", "watch", "--", *command], env=environment, check=False,
        stderr=writer,
    )  # fmt: skip
    os.close(writer)
    assert process.returncode == code
    assert len(list(watched.temporary.glob("*/*.nvcudmp"))) == (what == "trap")


def test_progress_cannot_be_watched_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.cli.watch.nvml", lambda: None)
    result = CliRunner().invoke(main, ["watch", "--no-progress", "5s", "--", "true"])
    assert result.exit_code == 2
    assert result.output == (
        "error: --no-progress: the management library of NVIDIA's driver (NVML) reports nothing "
        "here; use --after TIME, or Ctrl-\\ when it hangs\n"
    )
    result = CliRunner().invoke(main, ["watch", "--", "false"])
    assert result.exit_code == 1
    assert "progress is not watched, Ctrl-\\ asks for a dump\n" in result.output
