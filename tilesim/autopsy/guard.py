"""This process under its own watch: when one of its tests hangs on the GPU, that is dumped.

A thread looks at the time. It can act while the main thread waits for the GPU, as long as that has
released the interpreter's lock, which bindings of CUDA do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from threading import Condition, Thread
from time import monotonic

from tilesim.autopsy.pipeline import autopsy
from tilesim.autopsy.progress import BUSY, Nvml, nvml
from tilesim.autopsy.text import render
from tilesim.autopsy.trigger import DEFAULT_LIMITS, FILE, PIPE, Limits, make_dumps, prepared
from tilesim.errors import TilesimError

#: exit code of a process whose test does not end after its GPU was dumped
HUNG = 1
#: the folder of the guard of a process that has started this one, for a guard of its own
_OUTER = "TILESIM_GUARD"
#: seconds between looks at a test that takes longer
_LOOK = 1.0
#: seconds in which a test has to end after its GPU was dumped
_GRACE = 30.0


class Guard:
    """Dumps the GPU when a test takes longer than so many seconds.

    Made before CUDA starts in this process: variables of the environment are set until `close`.
    ``say`` prints lines. A test that does not end after the dump ends the process.
    """

    def __init__(
        self,
        seconds: float,
        say: Callable[[str], None],
        *,
        look: float = _LOOK,
        grace: float = _GRACE,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._seconds, self._say = seconds, say
        self._look, self._grace, self._limits = look, grace, limits
        self._reports: dict[str, str] = {}
        self._unread = False
        self._folder = mkdtemp(prefix="tilesim-guard-")
        outer = os.environ.get(_OUTER)
        given = {
            name: value for name, value in os.environ.items()
            if not (outer and name in (PIPE, FILE) and value.startswith(outer))
        }  # fmt: skip
        self._ready = prepared(given, Path(self._folder), Path(self._folder))
        #: what of the variables that were set has been changed
        self.notes = self._ready.notes
        wanted = {**self._ready.environment, _OUTER: self._folder}
        self._before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        self._gpus: Nvml | None = nvml()
        self._changed = Condition()
        self._test: tuple[str, float] | None = None
        self._closed = False
        self._thread = Thread(target=self._watch, name="tilesim-watch", daemon=True)
        self._thread.start()

    def begin(self, test: str) -> None:
        """A test begins."""
        with self._changed:
            self._test = test, monotonic() + self._seconds
            self._changed.notify()

    def end(self) -> None:
        """It has ended."""
        with self._changed:
            self._test = None
            self._changed.notify()

    def report_of(self, test: str) -> str:
        """What was dumped while a test ran; "" if nothing was. Waits for a dump that is made."""
        with self._changed:
            return self._reports.get(test, "")

    def close(self) -> None:
        """Ends the watch; variables are as before."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._remove_folder()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    # ------------------------------------------------------------------ the thread

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                if self._test is None:
                    self._changed.wait()
                    continue
                current = self._test
                left = current[1] - monotonic()
                if left > 0:
                    self._changed.wait(left)
                elif self._is_dumped(current[0]):
                    self._await_end(current)
                else:
                    self._changed.wait(self._look)

    def _is_dumped(self, test: str) -> bool:
        """Dumps the GPU, if a process of the test uses one and it is busy; whether it did."""
        names = self._ready.names if self._ready.own else self._ready.names.of(os.getpid())
        if self._is_idle() or not names.pipes():
            return False
        made = make_dumps([names], self._limits)
        if not made.asked:
            return False
        parts = [f"{test} takes longer than {self._seconds:g} s: its GPU is dumped", *made.problems]
        for path in made.dumps:
            try:
                parts.append(render(autopsy(path)).rstrip("\n"))
            except Exception as error:  # the test is to end, and the dump to stay
                bug = f"a bug of tilesim, {type(error).__name__}: "
                parts.append(f"error: {'' if isinstance(error, TilesimError) else bug}{error}")
                self._unread = True
            if self._unread or path.parent != Path(self._folder):
                parts.append(f"the dump is {path}")
        self._reports[test] = "\n".join(parts)
        self._say(self._reports[test])
        return True

    def _is_idle(self) -> bool:
        """Whether no GPU is busy, as far as that is known."""
        try:
            loads = () if self._gpus is None else self._gpus.loads((os.getpid(),))
        except OSError:
            loads = ()
        return bool(loads) and all(load.busy < BUSY for load in loads)

    def _await_end(self, current: tuple[str, float]) -> None:
        """Ends the process unless the test ends."""
        if self._changed.wait_for(lambda: self._test is not current, self._grace):
            return
        self._say(f"{current[0]} has not ended {self._grace:g} s after the dump: the process ends")
        self._remove_folder()
        os._exit(HUNG)

    def _remove_folder(self) -> None:
        """Removes the dumps, unless one could not be read."""
        if not self._unread:
            shutil.rmtree(self._folder, ignore_errors=True)
