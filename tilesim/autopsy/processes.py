"""Processes of a command: found, counted, and ended."""

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


class Family:
    """The processes of a command: its first one, those that descend from it, and those that have
    inherited the mark, as some have no living parent.

    One that has neither, as it has cleared its environment and lost its parents, is not found.
    """

    def __init__(self, leader: subprocess.Popen[bytes], mark: str) -> None:
        self._leader = leader
        self._wanted = f"\0{MARKER}={mark}\0".encode()
        self._known: frozenset[int] = frozenset()
        #: all that were found so far
        self.seen: frozenset[int] = frozenset()

    def members(self) -> frozenset[int]:
        """Those that run."""
        children: dict[int, list[int]] = {}
        parents = {pid: parent for pid in running() if (parent := parent_of(pid)) is not None}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        found: set[int] = set()
        new = [pid for pid in parents if pid == self._leader.pid or self._is_marked(pid)]
        while new:
            pid = new.pop()
            if pid not in found:
                found.add(pid)
                new += children.get(pid, [])
        self._known = frozenset(found)
        self.seen |= self._known
        return self._known

    def _is_marked(self, pid: int) -> bool:
        try:
            with (_PROC / str(pid) / "environ").open("rb") as file:
                return self._wanted in b"\0" + file.read(_MOST_ENVIRONMENT) + b"\0"
        except OSError:
            return False

    def runs(self) -> bool:
        """Whether any runs."""
        return any(parent_of(pid) is not None for pid in self._known) or bool(self.members())

    def send(self, number: int) -> None:
        """Sends all a signal."""
        # until it is waited for, no other group has its number
        if self._leader.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._leader.pid, number)
        for pid in self.members():
            with suppress(OSError):
                os.kill(pid, number)

    def end(self, grace: float) -> None:
        """Ends all: TERM, after ``grace`` seconds KILL."""
        try:
            self.send(signal.SIGTERM)
            deadline = monotonic() + grace
            while self.runs() and monotonic() < deadline:
                sleep(_LOOK)
        finally:
            self.send(signal.SIGKILL)
            self._leader.wait()


def running() -> frozenset[int]:
    """All processes that there are."""
    return frozenset(int(one.name) for one in os.scandir(_PROC) if one.name.isdecimal())


def parent_of(pid: int, proc: Path = _PROC) -> int | None:
    """The parent of a process; None if it does not run."""
    try:
        # the name, in brackets, may have any characters
        state, parent = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(parent)


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
