"""Whether a program still makes progress, as far as can be seen without touching it.

A host thread that waits for a GPU spins, and launches are no system calls: neither CPU time nor the
absence of calls says anything. What is looked at: how busy GPUs and their memory are (NVML), and
whether a process of the program reads or writes. A kernel that hangs in its barriers keeps the GPU
busy and its memory idle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any, NamedTuple

from tilesim.autopsy.processes import transfers
from tilesim.records import dataclass
from tilesim.wording import ranges

#: percent of a sample period of NVML (up to 1 s) in which a kernel runs, at least, and in which
#: memory of the GPU is accessed, at most
BUSY, IDLE = 99, 1


class Load(NamedTuple):
    """Percent of the last sample period in which a GPU ran a kernel, and accessed its memory."""

    gpu: int
    busy: int
    memory: int


@dataclass(frozen=True)
class Look:
    """What is seen at a moment: the GPUs of the program, its processes, their reads and writes."""

    loads: tuple[Load, ...]
    processes: frozenset[int] = frozenset()
    transfers: int = 0


class Progress:
    """Looks at a program in turn; ``limit`` in seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        #: seconds between two looks
        self.interval = min(2.0, limit / 10)
        self._without = 0.0
        self._last: tuple[float, Look] | None = None

    def stuck(self, now: float, look: Look) -> str:
        """Why the program makes no progress, "" as long as it may make some.

        It makes none if for the whole limit at least one GPU is busy, none accesses its memory, and
        no process reads, writes, begins or ends. Time in which nothing was looked at (the machine
        slept, the program was stopped) does not count.
        """
        last, self._last = self._last, (now, look)
        still = any(load.busy >= BUSY for load in look.loads) and all(
            load.memory <= IDLE for load in look.loads
        )
        if not still or last is None or not _same(last[1], look):
            self._without = 0.0
            return ""
        self._without += min(now - last[0], 2 * self.interval)
        if self._without < self.limit:
            return ""
        self._without = 0.0  # it is said once in each limit
        busy = [load.gpu for load in look.loads if load.busy >= BUSY]
        gpus = f"GPU {busy[0]} is" if len(busy) == 1 else f"GPUs {ranges(busy)} are"
        return (
            f"no progress for {self.limit:g} s: {gpus} busy, no memory of GPUs is accessed, and no "
            "process of the command reads or writes"
        )


def _same(one: Look, other: Look) -> bool:
    return (one.processes, one.transfers) == (other.processes, other.transfers)


# ------------------------------------------------------------------ GPUs


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Running(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )  # fmt: skip


_MOST_PROCESSES = 1024


class Nvml:
    """The GPUs of this machine, by NVIDIA's management library."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("nvmlInit_v2")
        number = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        self._handles = []
        for gpu in range(number.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(gpu), ctypes.byref(handle))
            self._handles.append(handle)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise OSError(f"{name} of NVML answers {code}")

    def loads(self, pids: Collection[int]) -> tuple[Load, ...]:
        """The GPUs on which one of the processes runs; all if none is known to run on any, as in a
        container, where NVML has other numbers for processes.

        Raises:
            OSError: it does not say, as for a part of a GPU (MIG).
        """
        loads, own = [], []
        for gpu, handle in enumerate(self._handles):
            use = _Utilization()
            self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(use))
            loads.append(Load(gpu, use.gpu, use.memory))
            own.append(not self._running(handle).isdisjoint(pids))
        return tuple(x for x, is_own in zip(loads, own, strict=True) if is_own or not any(own))

    def _running(self, handle: Any) -> frozenset[int]:
        number = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Running * _MOST_PROCESSES)()
        try:
            self._call(
                "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(number), found
            )
        except (AttributeError, OSError):
            return frozenset()
        return frozenset(found[n].pid for n in range(number.value))


def nvml() -> Nvml | None:
    """The GPUs here; None if nothing is known of any."""
    try:
        found = Nvml(ctypes.CDLL("libnvidia-ml.so.1"))
        found.loads(())
    except (OSError, AttributeError):
        return None
    return found


def look_at(gpus: Nvml, pids: frozenset[int]) -> Look:
    """What is seen of processes now.

    Raises:
        OSError: as `Nvml.loads`.
    """
    return Look(gpus.loads(pids), pids, transfers(pids))
