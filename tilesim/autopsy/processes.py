"""Processes of a command: found by a variable that all of them inherit, counted, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

#: the variable that marks the processes of a command
MARKER = "TILESIM_WATCH"
_PROC = Path("/proc")
_MOST_ENVIRONMENT = 1 << 21
_LOOK = 0.02


def members(mark: str) -> frozenset[int]:
    """Processes that were started with the mark, also those in sessions of their own.

    One that has cleared its environment is not found; it has no pipe for dumps either.
    """
    wanted = f"\0{MARKER}={mark}\0".encode()
    found = set()
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            with suppress(OSError), (_PROC / entry.name / "environ").open("rb") as file:
                if wanted in b"\0" + file.read(_MOST_ENVIRONMENT) + b"\0":
                    found.add(int(entry.name))
    return frozenset(found)


def transfers(pids: Iterable[int]) -> int:
    """How many system calls that read or write the processes have made (``/proc/PID/io``)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in (_PROC / str(pid) / "io").read_text().splitlines():
                name, _, number = line.partition(":")
                if name in ("syscr", "syscw"):
                    total += int(number)
    return total


def send(pids: Iterable[int], number: int) -> None:
    """Sends a signal to those that still run."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def end(mark: str, leader: subprocess.Popen[bytes], grace: float) -> None:
    """Ends a command, ``leader`` of a group and all that have the mark: TERM, after ``grace``
    seconds KILL."""
    _send_all(mark, leader, signal.SIGTERM)
    deadline = monotonic() + grace
    while members(mark) and monotonic() < deadline:
        sleep(_LOOK)
    _send_all(mark, leader, signal.SIGKILL)
    leader.wait()


def _send_all(mark: str, leader: subprocess.Popen[bytes], number: int) -> None:
    # until it is waited for, no other group has its number
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, number)
    send(members(mark), number)
