"""Work spread over processes or a distributed engine: tasks in, results out, an interrupt kept.

A task is plain data and working on it a pure function, so any `concurrent.futures` executor will
do, and a lost worker loses nothing but the tasks it was busy with, which are tried again. What goes
from one process to another are bytes, which are made and read where an error is one of this task:
those of an executor end it with all that it was busy with.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from threading import Thread, current_thread, main_thread
from time import monotonic
from traceback import format_exception
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from tilesim.errors import TilesimError, UsageError
from tilesim.records import dataclass

#: times that Dask moves a task to another worker when one is lost
_RETRIES = 2
#: tasks that wait for a free worker, per worker: enough to keep it busy
_WINDOW = 3
_POLL_SECONDS = 0.2
#: how long a cluster may be without workers: one that dies is started again in a few seconds
_PATIENCE_SECONDS = 60.0
#: how long a scheduler may take to answer
_CONNECT_SECONDS = 10.0
#: why a task is lost of which processes die
DIES = "the worker process dies on it"

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """What is needed of an executor: that of `concurrent.futures`."""

    def submit(self, function: Callable[[T], R], task: T, /) -> futures.Future[R]:
        """Starts work on a task."""
        ...


@runtime_checkable
class Cluster(Executor, Protocol):
    """An executor whose workers come and go."""

    def workers(self) -> int:
        """How many there are now."""
        ...


class WorkersLost(TilesimError):
    """A cluster has no worker left, or does not answer any more."""


class Serial:
    """Works on each task at once, in this process."""

    def submit(self, function: Callable[[T], R], task: T, /) -> futures.Future[R]:
        """The finished future of ``function(task)``."""
        future: futures.Future[R] = futures.Future()
        future.set_result(function(task))
        return future


class NotData(Exception):
    """A task, or its result, is nothing that another process can be sent."""


def packed(what: str, value: object) -> bytes:
    """A value as bytes.

    Raises:
        NotData: it has no such form: a function inside of another one, an open file.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise NotData(f"{what} cannot be sent: {type(error).__name__}: {error}") from error


def unpacked(what: str, data: bytes) -> Any:
    """The value again.

    Raises:
        NotData: this process lacks what it is made of: a class of the user's file.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise NotData(f"{what} cannot be read: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class _Sent(Generic[T, R]):
    """A function as a process works with it, from bytes to bytes: what it raises gets back to the
    parent, where one that cannot be unpickled looks like the death of the process."""

    function: Callable[[T], R]

    def __call__(self, task: bytes, /) -> bytes:
        try:
            return packed("the result", self.function(unpacked("the task", task)))
        except Exception as error:
            if _travels(error):
                raise
            raise RuntimeError("".join(format_exception(error))) from None


def _travels(error: Exception) -> bool:
    """Whether an exception is the same after it was pickled."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _is_death(executor: Executor, error: BaseException) -> bool:
    """Whether it was the worker that failed, and not what it worked on: the process has died, was
    ended by the task, or there was no memory. Of a cluster it is unknown."""
    return not isinstance(executor, futures.ProcessPoolExecutor) or (
        isinstance(error, futures.BrokenExecutor | MemoryError) or not isinstance(error, Exception)
    )


#: opens an executor; called again if it breaks
Opener = Callable[[], AbstractContextManager[Executor]]


class _Interrupts:
    """Ctrl-C while others work: noted, and raised where nothing is half done.

    An exception in the midst of what an executor does with its locks may leave them closed, and the
    program waiting for itself when it ends. A second Ctrl-C is raised at once.
    """

    def __init__(self) -> None:
        self._seen = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes interrupts inside, as far as this thread gets them."""
        if current_thread() is not main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            raise KeyboardInterrupt
        self._seen = True

    def pending(self) -> None:
        """Raises the interrupt that was noted, if there is one."""
        if self._seen:
            raise KeyboardInterrupt


@contextmanager
def serial() -> Iterator[Executor]:
    """Everything in this process."""
    yield Serial()


def processes(jobs: int) -> Opener:
    """Opens a pool of ``jobs`` processes."""

    @contextmanager
    def open_() -> Iterator[Executor]:
        import multiprocessing  # most checks work in one process

        context = multiprocessing.get_context("spawn")
        pool = futures.ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)
        before = set(multiprocessing.active_children())
        try:
            yield pool
        finally:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            # its thread must not be at that while the interpreter ends and wakes it
            pool.shutdown(cancel_futures=True)

    return open_


def _begin_worker() -> None:
    """Ctrl-C goes to the parent, which reports what was found so far. A worker whose parent is
    killed ends: what it waits for, a task, would never come."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)  # at once, whatever the main thread is at


class _Dask:
    """A Dask cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False, retries=_RETRIES)

    def submit(self, function: Callable[[T], R], task: T, /) -> futures.Future[R]:
        """Sends a task to the scheduler."""
        future: futures.Future[R] = self._executor.submit(function, task)
        return future

    def workers(self) -> int:
        """How many the scheduler knows; none if it does not answer."""
        try:
            return len(self._client.nthreads())
        except (OSError, TimeoutError):
            return 0


def distributed(address: str) -> Opener:
    """Connects to a Dask scheduler, whose workers must have tilesim and the target's files.

    Raises:
        UsageError: Dask is not installed, or nothing answers at ``address``.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--dask needs Dask: pip install 'tilesim[dask]'") from error

    connect: Any = Client  # its functions have no types

    @contextmanager
    def open_() -> Iterator[Executor]:
        try:
            client = connect(address, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {address}: {error}") from error
        with _without_tracebacks():
            try:
                yield _Dask(client)
            finally:
                client.close()

    return open_


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Keeps Dask from logging the exception of every task that a lost worker leaves behind."""
    import logging

    loggers = [logging.getLogger(name) for name in ("distributed.client", "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def opener(jobs: int, scheduler: str | None = None) -> Opener:
    """The executor that the command line asks for."""
    if scheduler:
        return distributed(scheduler)
    return processes(jobs) if jobs > 1 else serial


def work(
    function: Callable[[T], R],
    tasks: Iterable[T],
    opener: Opener = serial,
    *,
    workers: int = 1,
    seconds: float | None = None,
    lost: Callable[[T, str], R],
    on_result: Callable[[R], None],
) -> bool:
    """Works on ``tasks`` until they end, ``seconds`` have passed, or the user interrupts.

    ``function`` must be importable by name. ``on_result`` gets results in the order in which they
    are ready; ``lost`` makes one for a task that has none, and gets why: `DIES`, where worker
    processes die of it again and again, or that it, or its result, is no data. The other tasks
    go on. Returns False if the user interrupted.

    Raises:
        WorkersLost: a cluster has had no worker for a minute, or has cancelled its tasks.
        Exception: what ``function`` raises in this process or in one of a pool.
    """
    runner = _Runner(function, iter(tasks), workers, seconds, lost, on_result)
    try:
        while not runner.finished:
            with opener() as executor:
                runner.drive(executor)
    except KeyboardInterrupt:
        return False
    return True


class _Runner(Generic[T, R]):
    """Feeds an executor and collects what it returns."""

    def __init__(
        self,
        function: Callable[[T], R],
        tasks: Iterator[T],
        workers: int,
        seconds: float | None,
        lost: Callable[[T, str], R],
        on_result: Callable[[R], None],
    ) -> None:
        self._function = function
        self._tasks = tasks
        self._window = max(1, workers * _WINDOW) if workers > 1 else 1
        self._deadline = None if seconds is None else monotonic() + seconds
        self._lost = lost
        self._on_result = on_result
        #: tasks during which a worker died: tried again, one at a time
        self._suspects: list[T] = []
        #: when there was a worker for the last time
        self._alive = monotonic()
        self._interrupts = _Interrupts()
        self.finished = False

    def drive(self, executor: Executor) -> None:
        """Works until all is done, or until the executor breaks."""
        if isinstance(executor, Serial):
            self._drive(executor)
            return
        with self._interrupts.noted():
            self._drive(executor)

    def _drive(self, executor: Executor) -> None:
        running: dict[futures.Future[Any], T] = {}
        self._alive = monotonic()
        try:
            while not self.finished:
                alone = bool(self._suspects) and not running
                room = 1 if alone else 0 if self._suspects else self._window - len(running)
                for task in islice(self._next(), max(0, room)):
                    self._submit(executor, task, running)
                self.finished = not running
                broken = self._wait(executor, running, alone=alone)
                if broken and isinstance(executor, futures.ProcessPoolExecutor):
                    self._suspects += running.values()
                    return
        except WorkersLost:
            for future in running:
                future.cancel()
            raise

    def _submit(self, executor: Executor, task: T, running: dict[futures.Future[Any], T]) -> None:
        """Gives a task to the executor, here as it is, elsewhere as bytes."""
        if isinstance(executor, Serial):
            running[executor.submit(self._function, task)] = task
            return
        try:
            data = packed("the task", task)
        except NotData as error:
            self._on_result(self._lost(task, str(error)))
            return
        running[executor.submit(_Sent(self._function), data)] = task

    def _wait(
        self, executor: Executor, running: dict[futures.Future[Any], T], *, alone: bool
    ) -> bool:
        """Collects what has finished; True if a worker died."""
        done: set[futures.Future[Any]] = set()
        while running and not done and not self._expired():
            self._interrupts.pending()
            done, _ = futures.wait(
                running, timeout=_POLL_SECONDS, return_when=futures.FIRST_COMPLETED
            )
            if not done and isinstance(executor, Cluster):
                self._watch(executor, running, alone=alone)
        if self._expired():
            for future in running.keys() - done:
                future.cancel()
                running.pop(future)
        if done:
            self._alive = monotonic()
        ends = {future: running.pop(future) for future in done}
        died = False
        for future, task in ends.items():
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                try:
                    result = self._result(executor, future)
                except NotData as unread:
                    error = unread
                else:
                    self._on_result(result)
                    continue
            if isinstance(error, NotData):
                self._on_result(self._lost(task, str(error)))
                continue
            if not _is_death(executor, error):
                raise error
            died = True
            if alone:
                self._on_result(self._lost(task, DIES))
            else:
                self._suspects.append(task)
        if any(future.cancelled() for future in ends):
            raise WorkersLost("the cluster has cancelled its work: the scheduler is gone")
        return died

    @staticmethod
    def _result(executor: Executor, future: futures.Future[Any]) -> R:
        """What a task has come to.

        Raises:
            NotData: this process cannot read it.
        """
        found = future.result()
        if not isinstance(executor, Serial):
            found = unpacked("the result", found)
        result: R = found
        return result

    def _watch(
        self, cluster: Cluster, running: dict[futures.Future[Any], T], *, alone: bool
    ) -> None:
        """Gives up on a cluster that stays without workers."""
        if cluster.workers():
            self._alive = monotonic()
        elif monotonic() - self._alive > _PATIENCE_SECONDS:
            if alone:
                (task,) = running.values()
                self._on_result(self._lost(task, DIES))
            raise WorkersLost(f"the cluster has had no worker for {_PATIENCE_SECONDS:g} seconds")

    def _next(self) -> Iterator[T]:
        while not self._expired():
            if self._suspects:
                yield self._suspects.pop()
                continue
            try:
                task = next(self._tasks)
            except StopIteration:
                return
            yield task

    def _expired(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline
