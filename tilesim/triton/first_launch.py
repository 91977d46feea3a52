"""``TILESIM=1 python train.py``: every Triton kernel is checked as it is launched first.

The program runs as always, on its GPU. A kernel that Triton has loaded is kept with its first
launch and checked in another process; what is not proved is said when the program ends. With
``TILESIM=proved`` Triton's autotuners measure no configuration that is not proved. Whatever goes
wrong here is said, and leaves the program alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from triton.compiler.compiler import CompiledKernel
from triton.knobs import runtime
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

from tilesim.capture.folder import Folder, say
from tilesim.errors import UsageError
from tilesim.ptx.launch import Triple
from tilesim.recording import MULTIPROCESSORS
from tilesim.recording.background import TIME_LIMIT, Answer, Background
from tilesim.triton.driver import launched
from tilesim.wording import count

#: seconds that the end of the program waits for checks
_PATIENCE = 60
_VALUES = ("1", "proved")


class FirstLaunches:
    """The kernels of this process, and their checks."""

    def __init__(self, *, only_proved: bool) -> None:
        self._only_proved = only_proved
        self._process = os.getpid()
        self._lock = Lock()
        self._folder = Folder(Path(tempfile.mkdtemp(prefix="tilesim-")))
        self._background = Background(self._folder.path, _failed)
        #: PTX by function, until its first launch
        self._loaded: dict[int, Path] = {}
        #: what an autotuner is told of functions that are not proved
        self._refused: dict[int, str] = {}
        #: those that are launched after it was told of all
        self._anyway: dict[str, None] = {}
        self._left_out: dict[str, None] = {}
        #: autotuners that are measuring
        self._measuring = 0
        self._skipped = 0

    def loaded(
        self, module: object, function: Any, name: str, group: dict[str, str], key: str
    ) -> None:
        """Triton's hook: a kernel has been compiled to the files of ``group`` and loaded."""
        self._refused.pop(function, None)  # the number of one that was unloaded
        for file, path in group.items():
            if file.endswith(".ptx"):
                self._loaded[function] = Path(path)

    def run(self, kernel: Any) -> Callable[..., Any]:
        """What launches a kernel: Triton's own launcher, but for the first time."""
        if kernel._run is None:
            kernel._init_handles()
        own: Callable[..., Any] = kernel._run
        function = kernel.function
        if function in self._refused and not self._measuring:
            self._anyway[self._refused[function]] = None
        if function not in self._loaded and not (self._measuring and function in self._refused):
            return own

        def first(*args: Any, **options: Any) -> Any:
            if function in self._loaded:  # Inductor keeps what it was given for the first launch
                self._check(kernel, function, args)
            if self._measuring and function in self._refused:
                self._skipped += 1
                # what autotuners expect of a configuration that does not fit
                raise OutOfResources(1, 0, f"a proof ({self._refused[function]})")
            return own(*args, **options)

        return first

    def _check(self, kernel: Any, function: Any, args: Sequence[Any]) -> None:
        """Sends a kernel with its launch to be checked; waits for the answer if it decides."""
        x, y, z = args[:3]
        if os.getpid() != self._process or not x * y * z:
            return  # a child has no background of its own; CUDA launches nothing
        with self._lock:
            path = self._loaded.pop(function, None)
            if path is None:
                return
            name, why = self._submitted(path, kernel, (x, y, z), args[9:])
        if self._only_proved and self._measuring:
            if not why:
                answer = self._background.wait(name, TIME_LIMIT * len(self._background.open))
                if answer is None:
                    why = f"{name}: not checked in time"
                elif not answer.proved:
                    why = answer.line
            if why:
                self._refused[function] = why

    def _submitted(
        self, path: Path, kernel: Any, grid: Triple, values: Sequence[Any]
    ) -> tuple[str, str]:
        """The name of a launch that is being checked, or why it is not."""
        about = kernel.metadata
        target = f"sm_{about.target.arch}a"
        try:
            if target in MULTIPROCESSORS:
                found = launched(path.read_text(), kernel.src, about, grid, values)
                name = self._folder.write(found.ptx, found.launch)
                self._background.submit(name)
                return name, ""
            why = f"{about.name}: {target[:-1]} is not modelled"
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            why = f"{about.name}: {reason}"
        self._left_out[why] = None
        return "", why

    def bench(self, tuner: Any, own: Callable[..., Any], args: Any, options: Any) -> Any:
        """An autotuner measures one configuration."""
        self._measuring += 1
        try:
            return own(tuner, *args, **options)
        finally:
            self._measuring -= 1

    def summary(self) -> None:
        """Says what was found; the kernels that are not proved are kept."""
        if os.getpid() != self._process:
            return
        waiting = self._background.open
        if waiting:
            say(f"tilesim: {count(len(waiting), 'check')} to go (at most {_PATIENCE} s, or Ctrl-C)")
        try:
            self._background.finish(_PATIENCE)
        except KeyboardInterrupt:
            say("tilesim: interrupted")
        answers = self._background.answers
        bad = [answer for answer in answers.values() if not answer.proved]
        say(
            f"tilesim: {count(len(answers), 'kernel')} checked as first launched, "
            f"{len(answers) - len(bad)} proved"
        )
        for answer in bad:
            say(f"  {answer.line}")
        if self._skipped:
            say(f"  {count(self._skipped, 'configuration')} not measured: not proved")
        for line in self._anyway:
            say(f"  launched all the same, as no configuration is proved: {line}")
        for name in self._background.open:
            say(f"  not checked in time: {name}")
        for line in self._left_out:
            say(f"  not checked: {line}")
        if bad or self._background.open:
            say(f"  more: tilesim check {self._folder.path}")
        else:
            shutil.rmtree(self._folder.path, ignore_errors=True)


def _failed(answer: Answer) -> None:
    """A kernel that is wrong is said at once: the program may not come to its end."""
    if answer.verdict == "failed":
        say(f"tilesim: {answer.line}")


def begin(value: str, first: tuple[Any, ...]) -> None:
    """From now on kernels are checked; ``first`` is what Triton's hook was told of the first one.

    Raises:
        UsageError: the value of TILESIM is not known.
    """
    if value not in _VALUES:
        raise UsageError(f"TILESIM is 1 or proved, not {value!r}")
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # another process of this machine launches the same kernels
    launches = FirstLaunches(only_proved=value == "proved")
    launches.loaded(*first)
    runtime.kernel_load_end_hook.add(launches.loaded)
    CompiledKernel.run = property(launches.run)
    measured = Autotuner._bench

    def bench(tuner: Any, *args: Any, **options: Any) -> Any:
        return launches.bench(tuner, measured, args, options)

    Autotuner._bench = bench
    atexit.register(launches.summary)
