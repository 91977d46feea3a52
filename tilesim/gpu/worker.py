"""The process in which kernels run that may hang: `main` in a Python of its own.

It serves jobs from a pipe until the pipe closes. A kernel that hangs or traps leaves a context
that cannot be used again, so after such a job the worker reports, waits until the pipe closes, as
its kernel may be dumped before, and ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilesim.errors import TilesimError
from tilesim.gpu.compile import Binary, Resources
from tilesim.gpu.driver import DeviceInfo, Gpu
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.emit.watch import BLOCKED, RECORD_WORDS
from tilesim.gpu.launch import kernel_arguments, loaded
from tilesim.records import dataclass, field, replace

_POLL_SECONDS = 0.0005
#: how long a kernel that hangs may be dumped
_DUMP_SECONDS = 120.0


@dataclass(frozen=True)
class Job:
    """Launches of one kernel: per run a seed; all runs start from the same tensor contents.

    ``contents`` are the bytes of every tensor, ``budget`` of the watchdog and ``timeout`` of a
    launch are in seconds. ``trace`` is the buffer of a source emitted with ``trace``, as the kernel
    finds it; in host memory (``trace_on_host``) it survives a trap, but recording is slower.
    """

    source: Source
    cubin: bytes = field(repr=False)
    contents: dict[str, NDArray[np.uint8]] = field(repr=False)
    seeds: tuple[int, ...]
    budget: float
    timeout: float
    trace: NDArray[np.uint64] | None = field(repr=False, default=None)
    trace_on_host: bool = False


@dataclass(frozen=True)
class Answer:
    """What became of a job: the tensors' bytes after each run, up to the run that went wrong.

    ``records`` are the mailbox's, (warp of the grid, words); ``detail`` an error's name; ``traces``
    the buffers after the runs that recorded.
    """

    status: Literal["done", "hang", "error"]
    runs: tuple[dict[str, NDArray[np.uint8]], ...] = field(repr=False, default=())
    records: tuple[tuple[int, tuple[int, ...]], ...] = ()
    seconds: tuple[float, ...] = ()
    detail: str = ""
    device: DeviceInfo | None = None
    traces: tuple[NDArray[np.uint64], ...] = field(repr=False, default=())

    @property
    def running(self) -> bool:
        """Whether the kernel runs on, as the watchdog has not trapped: it can be dumped."""
        return self.detail == "running"


class _Trace:
    """The buffer of a job's trace where the kernel can write it; none if it records nothing."""

    def __init__(self, gpu: Gpu, job: Job) -> None:
        self._gpu, self._initial = gpu, job.trace
        self._host: NDArray[np.uint8] | None = None
        self.address = 0
        if job.trace is None:
            return
        if job.trace_on_host:
            self._host, self.address = gpu.pinned(job.trace.nbytes)
        else:
            self.address = gpu.allocate(job.trace.nbytes)

    def reset(self) -> None:
        """Empties the buffer."""
        if self._initial is None:
            return
        data = self._initial.view(np.uint8)
        if self._host is None:
            self._gpu.upload(self.address, data)
        else:
            self._host[:] = data

    def words(self) -> tuple[NDArray[np.uint64], ...]:
        """What the kernel has recorded; nothing if it does not."""
        if self._initial is None:
            return ()
        if self._host is not None:
            return (self._host.view(np.uint64).copy(),)
        words = np.empty_like(self._initial)
        self._gpu.download(self.address, words.view(np.uint8))
        return (words,)

    def free(self) -> None:
        """Releases the buffer."""
        if self._host is not None:
            self._gpu.free_pinned(self._host)
        elif self._initial is not None:
            self._gpu.free(self.address)


class Worker:
    """Executes jobs on the first GPU, or on the one given."""

    def __init__(self, gpu: Gpu | None = None) -> None:
        self.gpu = Gpu() if gpu is None else gpu

    def execute(self, job: Job) -> Answer:
        """Runs a job to its end or to its first hang or error."""
        self.gpu.require(job.source.arch)
        binary = Binary(job.source, job.cubin, Resources(0, 0, 0, 0, 0))
        function = loaded(self.gpu, binary)
        addresses = {n: self.gpu.allocate(b.nbytes) for n, b in job.contents.items()}
        mailbox, mailbox_address = self._mailbox(job.source)
        trace = _Trace(self.gpu, job)
        runs: list[dict[str, NDArray[np.uint8]]] = []
        seconds: list[float] = []
        traces: list[NDArray[np.uint64]] = []
        for seed in job.seeds:
            for name, data in job.contents.items():
                self.gpu.upload(addresses[name], data)
            trace.reset()
            extra = {
                "mailbox": mailbox_address, "budget": int(job.budget * 1e9), "seed": seed,
                "trace": trace.address,
            }  # fmt: skip
            arguments = kernel_arguments(self.gpu, binary, addresses, {}, extra)
            source = job.source
            start = time.perf_counter()
            self.gpu.launch(
                function, source.grid, source.block, source.smem_bytes, arguments,
                cooperative=source.program.cooperative,
            )  # fmt: skip
            state = self._await(start + job.timeout)
            seconds.append(time.perf_counter() - start)
            if state != "done":
                failed = self._failed(state, mailbox, tuple(runs), tuple(seconds))
                return replace(failed, traces=trace.words() if job.trace_on_host else ())
            runs.append(self._results(job, addresses))
            traces += trace.words()
        for address in addresses.values():
            self.gpu.free(address)
        if mailbox.size:
            self.gpu.free_pinned(mailbox.view(np.uint8))
        trace.free()
        return Answer("done", tuple(runs), (), tuple(seconds), "", self.gpu.info, tuple(traces))

    def _mailbox(self, source: Source) -> tuple[NDArray[np.uint64], int]:
        if not any(p.kind == "mailbox" for p in source.params):
            return np.zeros(0, dtype=np.uint64), 0
        warps = source.program.ctas * source.program.warps
        array, address = self.gpu.pinned(8 * RECORD_WORDS * warps)
        return array.view(np.uint64), address

    def _await(self, deadline: float) -> str:
        while True:
            state = self.gpu.poll()
            if state != "running" or time.perf_counter() > deadline:
                return state
            time.sleep(_POLL_SECONDS)

    def _results(self, job: Job, addresses: dict[str, int]) -> dict[str, NDArray[np.uint8]]:
        results = {}
        for name, data in job.contents.items():
            results[name] = np.empty_like(data)
            self.gpu.download(addresses[name], results[name])
        return results

    def _failed(
        self, state: str, mailbox: NDArray[np.uint64],
        runs: tuple[dict[str, NDArray[np.uint8]], ...], seconds: tuple[float, ...],
    ) -> Answer:  # fmt: skip
        words = mailbox.copy().reshape(-1, RECORD_WORDS)
        records = tuple(
            (int(w), tuple(int(x) for x in words[w])) for w in np.flatnonzero(words[:, 0])
        )
        hangs = state == "running" or any(w[0] & 0xFFFFFFFF != BLOCKED for _, w in records)
        return Answer("hang" if hangs else "error", runs, records, seconds, state, self.gpu.info)


def serve(connection: Connection, start: Callable[[], Worker]) -> None:
    """Answers jobs until the pipe closes or a job spoils the context; ``start`` makes the worker
    when the first job comes."""
    worker: Worker | None = None
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            worker = worker or start()
            answer = worker.execute(job)
        except TilesimError as error:
            answer = Answer("error", detail=str(error))
        connection.send(answer)
        if answer.status != "done":
            with suppress(OSError):
                connection.poll(_DUMP_SECONDS)
            # a normal exit would wait for the kernel that hangs
            connection.close()
            os._exit(1)


def main(start: Callable[[], Worker] = Worker) -> None:
    """Serves the pipe whose descriptor is the only argument."""
    serve(Connection(int(sys.argv[1])), start)
