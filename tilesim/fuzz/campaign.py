"""Campaigns: many cases, in this process, in several, or on a distributed engine.

A case is plain data and checking it a pure function, so any `concurrent.futures` executor will do,
and a lost worker loses nothing but the cases it was busy with, which are tried again.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Protocol

from tilesim.errors import UsageError
from tilesim.fuzz.cases import Case, Outcome, run_case

#: times that Dask moves a case to another worker when one is lost
_RETRIES = 2
#: cases that wait for a free worker, per worker: enough to keep it busy
_WINDOW = 3
_POLL_SECONDS = 0.2


class Executor(Protocol):
    """What a campaign needs of an executor: that of `concurrent.futures`."""

    def submit(self, function: Callable[[Case], Outcome], case: Case, /) -> Future[Outcome]:
        """Starts checking a case."""
        ...


class Serial:
    """Checks each case at once, in this process."""

    def submit(self, function: Callable[[Case], Outcome], case: Case, /) -> Future[Outcome]:
        """The finished future of ``function(case)``."""
        future: Future[Outcome] = Future()
        future.set_result(function(case))
        return future


#: opens an executor; called again if it breaks
Opener = Callable[[], AbstractContextManager[Executor]]


@contextmanager
def serial() -> Iterator[Executor]:
    """Everything in this process."""
    yield Serial()


def processes(jobs: int) -> Opener:
    """Opens a pool of ``jobs`` processes."""

    @contextmanager
    def open_() -> Iterator[Executor]:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_ignore_interrupts)
        before = set(multiprocessing.active_children())
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()

    return open_


def _ignore_interrupts() -> None:
    """Ctrl-C goes to the parent, which reports what was found so far."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def distributed(address: str) -> Opener:
    """Connects to a Dask scheduler, whose workers must have tilesim and the target's files.

    Raises:
        UsageError: Dask is not installed, or nothing answers at ``address``.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--scheduler needs Dask: pip install 'tilesim[dask]'") from error

    @contextmanager
    def open_() -> Iterator[Executor]:
        try:
            client = Client(address, timeout=10)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {address}: {error}") from error
        try:
            yield client.get_executor(pure=False, retries=_RETRIES)
        finally:
            client.close()

    return open_


def opener(jobs: int, scheduler: str | None = None) -> Opener:
    """The executor that the command line asks for."""
    if scheduler:
        return distributed(scheduler)
    return processes(jobs) if jobs > 1 else serial


@dataclass
class Campaign:
    """What has been done so far; ``interrupted`` by the user, or ended by the time limit."""

    outcomes: list[Outcome] = field(default_factory=list)
    interrupted: bool = False

    def sorted(self) -> list[Outcome]:
        """The outcomes in the order of the cases, whoever finished first."""
        return sorted(self.outcomes, key=lambda o: o.case.number)


def run(
    cases: Iterable[Case],
    opener: Opener = serial,
    *,
    workers: int = 1,
    seconds: float | None = None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> Campaign:
    """Checks ``cases`` until they end, ``seconds`` have passed, or the user interrupts."""
    campaign = Campaign()
    runner = _Runner(iter(cases), campaign, workers, seconds, on_outcome)
    try:
        while not runner.finished:
            with opener() as executor:
                runner.drive(executor)
    except KeyboardInterrupt:
        campaign.interrupted = True
    return campaign


class _Runner:
    """Feeds an executor and collects what it returns."""

    def __init__(
        self,
        cases: Iterator[Case],
        campaign: Campaign,
        workers: int,
        seconds: float | None,
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._cases = cases
        self._campaign = campaign
        self._window = max(1, workers * _WINDOW) if workers > 1 else 1
        self._deadline = None if seconds is None else monotonic() + seconds
        self._on_outcome = on_outcome
        #: cases during which a worker died: tried again, one at a time
        self._suspects: list[Case] = []
        self.finished = False

    def drive(self, executor: Executor) -> None:
        """Works until all is done, or until the executor breaks."""
        running: dict[Future[Outcome], Case] = {}
        while True:
            alone = bool(self._suspects)
            for case in islice(self._next(), max(0, (1 if alone else self._window) - len(running))):
                running[executor.submit(run_case, case)] = case
            if not running:
                self.finished = True
                return
            lost = self._wait(running, alone=alone)
            if lost and isinstance(executor, ProcessPoolExecutor):
                self._suspects += running.values()
                return

    def _wait(self, running: dict[Future[Outcome], Case], *, alone: bool) -> bool:
        """Collects what has finished; True if a worker died."""
        done: set[Future[Outcome]] = set()
        while not done and not self._expired():
            done, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        if self._expired():
            for future in running.keys() - done:
                future.cancel()
                running.pop(future)
        died = False
        for future in done:
            case = running.pop(future)
            if self._collect(future):
                continue
            died = True
            if alone:
                self._add(Outcome(case, "error", message="the worker process dies on this case"))
            else:
                self._suspects.append(case)
        return died

    def _next(self) -> Iterator[Case]:
        while not self._expired():
            case = self._suspects.pop() if self._suspects else next(self._cases, None)
            if case is None:
                return
            yield case

    def _expired(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline

    def _collect(self, future: Future[Outcome]) -> bool:
        """Takes a result; False if the worker died instead."""
        if future.exception() is not None:
            return False
        self._add(future.result())
        return True

    def _add(self, outcome: Outcome) -> None:
        self._campaign.outcomes.append(outcome)
        self._on_outcome(outcome)
