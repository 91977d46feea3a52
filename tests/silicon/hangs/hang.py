"""A program is started, and when it hangs, its GPU is dumped.

Everything has a limit of time, and the program is in a session of its own, which is killed at the
end. A process that a SIGKILL does not end is `Undead`: nothing more is started then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tilesim.autopsy.trigger import DEFAULT_FLAGS
from tilesim.records import dataclass

#: what is left out of a dump, as `tilesim watch` does
SMALL = DEFAULT_FLAGS
#: the line by which a program says that its kernels are under way
LAUNCHED = "launched"
_POLL = 0.02
_MORE = b"1" * (1 << 12)
#: seconds in which a dump that is being written grows
_STILL = 1.5


class Undead(Exception):
    """A process that does not die: the GPU may be spoilt."""


@dataclass(frozen=True)
class Limits:
    """Seconds: until a program has launched, until it counts as hung, until its dump is whole, and
    until a killed process is gone."""

    start: float = 60.0
    hang: float = 1.0
    dump: float = 30.0
    kill: float = 15.0


@dataclass(frozen=True)
class Run:
    """What became of a program.

    ``hung``: it was dumped while it ran. ``excepted``: it was dumped by an exception of its own.
    ``seconds``: what the dump took. ``output``: what it printed, its end.
    """

    state: Literal["ended", "hung", "excepted", "failed", "no dump"]
    output: str
    dump: Path | None = None
    seconds: float = 0.0


def environment(folder: Path, flags: str, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables under which the driver makes a dump when it is asked to, or at an exception."""
    return {
        **base,
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_COREDUMP_PIPE": str(folder / "pipe"),
        "CUDA_COREDUMP_FILE": str(folder / "core.nvcudmp"),
        "CUDA_COREDUMP_GENERATION_FLAGS": flags,
    }


def run(
    command: Sequence[str], folder: Path, *, flags: str = SMALL, limits: Limits | None = None,
    env: Mapping[str, str] = os.environ,
) -> Run:  # fmt: skip
    """Runs a program, which prints ``launched``, until it ends or hangs; a hung one is dumped.

    Raises:
        Undead: it cannot be killed.
    """
    limits = limits or Limits()
    folder.mkdir(parents=True, exist_ok=True)
    output, dump = folder / "output.txt", folder / "core.nvcudmp"
    with output.open("wb") as file:
        process = subprocess.Popen(
            list(command), stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment(folder, flags, env), start_new_session=True,
        )  # fmt: skip
    try:
        state, seconds = _watched(process, folder, output, limits)
    finally:
        _kill(process, limits.kill)
    text = output.read_text(errors="replace")[-2000:]
    if state == "hung" and not dump.exists():
        text += f"\nfiles there: {', '.join(sorted(p.name for p in folder.iterdir()))}"
    if dump.is_file() and dump.stat().st_size:
        return Run("hung" if state == "hung" else "excepted", text, dump, seconds)
    if state == "hung":
        return Run("no dump", text, None, seconds)
    # a process that has not launched in time was killed
    return Run("ended" if process.returncode == 0 else "failed", text)


def _watched(
    process: subprocess.Popen[bytes], folder: Path, output: Path, limits: Limits
) -> tuple[str, float]:
    """Whether it hung (otherwise it has ended, or did not launch), and what the dump took."""

    def until(seconds: float, there: Callable[[], bool] = lambda: False) -> bool:
        """Whether it has ended after so long, or by the time that something is there."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end and not there():
            time.sleep(_POLL)
        return process.poll() is not None

    def launched() -> bool:
        return LAUNCHED in output.read_text(errors="replace")

    if until(limits.start, launched) or not launched() or until(limits.hang):
        return "ended", 0.0
    started = time.monotonic()
    whole = _Whole(folder / "core.nvcudmp")
    if _trigger(folder / "pipe", limits.dump, b"1") and not until(limits.dump / 4, whole.begun):
        # none has begun: a driver that reads more than one byte at a time waits for them
        if not whole.begun():
            _trigger(folder / "pipe", limits.dump / 4, _MORE)
        until(limits.dump - (time.monotonic() - started), whole)
    return "hung", time.monotonic() - started


class _Whole:
    """Whether a dump has not grown for a while. A process that ends after its dump is faster."""

    def __init__(self, dump: Path) -> None:
        self._dump, self._size, self._since = dump, 0, time.monotonic()

    def begun(self) -> bool:
        """Whether there is something of it."""
        return self._dump.exists() and self._dump.stat().st_size > 0

    def __call__(self) -> bool:
        size = self._dump.stat().st_size if self._dump.exists() else 0
        if size != self._size:
            self._size, self._since = size, time.monotonic()
        return size > 0 and time.monotonic() - self._since > _STILL


def _trigger(pipe: Path, seconds: float, data: bytes) -> bool:
    """Writes to the driver's pipe; whether the driver was there to read it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            return True
        time.sleep(_POLL)
    return False


def _kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise Undead(f"process {process.pid} does not end") from error


def end_with(argument: str, seconds: float = 15.0) -> None:
    """Kills the processes that have an argument, such as a plan's path, which is of no other use.

    Raises:
        Undead: one of them does not end.
    """
    end = time.monotonic() + seconds
    while found := [pid for pid in _with(argument) if pid != os.getpid()]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise Undead(f"processes {found} do not end")
        time.sleep(_POLL)


def _with(argument: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
