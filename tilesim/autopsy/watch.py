"""A command under watch: when it hangs, its GPU is dumped, and each dump is reported.

The command runs in a session of its own: what is pressed on the terminal comes to the watch. It
inherits input and output, and can use them.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic

from tilesim.autopsy.processes import MARKER, end, members, send
from tilesim.autopsy.progress import Look, Progress
from tilesim.autopsy.trigger import (
    DEFAULT_LIMITS,
    FILE,
    Limits,
    Made,
    Prepared,
    States,
    make_dumps,
    prepared,
)
from tilesim.errors import TilesimError, UsageError
from tilesim.records import dataclass
from tilesim.wording import count

#: exit code of a command that hung
HUNG = 1
#: ask for dumps
_ASK = frozenset({signal.SIGQUIT, signal.SIGUSR1})
#: ask the command to end; if it does not, it hangs
_END = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_PASSED_ON = _END | {signal.SIGUSR2, signal.SIGWINCH}
_ALL = _ASK | _PASSED_ON | {signal.SIGCHLD, signal.SIGTSTP}
#: seconds between looks at whether the command has ended, should a signal get lost
_LONGEST = 1.0


@dataclass(frozen=True)
class Watch:
    """How a command is watched; times in seconds.

    Attributes:
        report: reports a dump; whether that says why it hangs, so that the dump may be deleted.
        say: prints a line.
        after: how long the command may run at all.
        no_progress: for how long it may make no progress (`Progress`), as seen by ...
        looks: ... what looks at the processes with a mark; None if nothing can be seen.
        folder: where dumps are kept; None for a temporary folder, which is deleted.
        grace: how long the command may take to end when it is asked to.
    """

    report: Callable[[Path], bool]
    say: Callable[[str], None]
    after: float | None = None
    no_progress: float | None = None
    looks: Callable[[str], Callable[[], Look]] | None = None
    folder: Path | None = None
    grace: float = 10.0
    limits: Limits = DEFAULT_LIMITS

    def run(self, command: Sequence[str]) -> int:
        """Runs a command to its end, or until it hangs; a hung one is ended.

        Returns:
            Its exit code (128 + N if signal N has ended it); `HUNG` if it hung.

        Raises:
            UsageError: it cannot be started, or the folder cannot be made.
        """
        given = dict(os.environ)
        with TemporaryDirectory(prefix="tilesim-watch-") as pipes:
            if self.folder is not None:
                given.pop(FILE, None)
                with _writing(self.folder):
                    self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                dumps = self.folder.resolve()
            else:
                dumps = Path(mkdtemp(prefix="tilesim-dumps-"))
            ready = prepared(given, Path(pipes), dumps)
            for note in ready.notes:
                self.say(note)
            run = _Run(self, ready)
            try:
                return run.code(command)
            finally:
                run.tell_where_dumps_are(temporary=None if self.folder else dumps)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error


class _Signals:
    """Signals that are looked at in turn, instead of interrupting."""

    def __enter__(self) -> _Signals:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in _ALL}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._reader)
        os.close(self._writer)

    def next(self, seconds: float) -> list[signal.Signals]:
        """The signals that have come, after at most so long."""
        if not select.select([self._reader], [], [], max(0.0, seconds))[0]:
            return []
        return [signal.Signals(number) for number in os.read(self._reader, 64)]


class _Run:
    """One run of a command."""

    def __init__(self, watch: Watch, ready: Prepared) -> None:
        self._watch, self._ready = watch, ready
        self._mark = secrets.token_hex(8)
        self._states = States(ready.names)
        self._unread = False
        self._asked_to_end: tuple[float, str] | None = None
        self._progress: Progress | None = None
        self._look: Callable[[], Look] | None = None
        if watch.no_progress is not None and watch.looks is not None:
            self._progress, self._look = Progress(watch.no_progress), watch.looks(self._mark)

    def code(self, command: Sequence[str]) -> int:
        """Runs the command; its exit code."""
        watch = self._watch
        with _Signals() as signals:
            try:
                process = subprocess.Popen(
                    list(command), env={**self._ready.environment, MARKER: self._mark},
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
            try:
                why = self._hangs(process, signals)
            except BaseException:
                end(self._mark, process, watch.grace)
                raise
        if not why:
            code = process.wait()
            self._report(self._states.made())
            return code if code >= 0 else 128 - code
        pipes = () if self._ready.own else self._pipes()
        try:
            self._dump(why)
        finally:
            end(self._mark, process, watch.grace)
            for pipe in pipes:
                with suppress(OSError):
                    pipe.unlink()
        return HUNG

    def _pipes(self) -> tuple[Path, ...]:
        return tuple(p for pid in members(self._mark) for p in self._ready.names.pipes(pid))

    # ------------------------------------------------------------------ until it hangs

    def _hangs(self, process: subprocess.Popen[bytes], signals: _Signals) -> str:
        """Why it is said to hang; "" when it has ended."""
        started = monotonic()
        while process.poll() is None:
            now = monotonic()
            limits = list(self._time_limits(started))
            for moment, why in limits:
                if now >= moment:
                    return why
            why = self._stuck(now)
            if why:
                return why
            longest = _LONGEST if self._progress is None else self._progress.interval
            for number in signals.next(min([longest, *(moment - now for moment, _ in limits)])):
                if number in _ASK and self._can_be_dumped(number):
                    return f"{number.name} asks for a dump"
                self._pass_on(process.pid, number)
        return ""

    def _time_limits(self, started: float) -> Iterator[tuple[float, str]]:
        watch = self._watch
        if watch.after is not None:
            yield started + watch.after, f"it runs for more than {watch.after:g} s"
        if self._asked_to_end is not None:
            asked, name = self._asked_to_end
            yield asked + watch.grace, f"it has not ended {watch.grace:g} s after {name}"

    def _stuck(self, now: float) -> str:
        """Why it makes no progress, as far as that is watched."""
        if self._progress is None or self._look is None:
            return ""
        try:
            return self._progress.stuck(now, self._look())
        except OSError as error:
            self._watch.say(f"progress is not watched any longer: {error}")
            self._progress = None
            return ""

    def _can_be_dumped(self, number: signal.Signals) -> bool:
        pipes = self._ready.names.pipes() if self._ready.own else self._pipes()
        if not pipes:
            self._watch.say(f"{number.name} asks for a dump, but {_NO_PIPE}")
        return bool(pipes)

    def _pass_on(self, group: int, number: signal.Signals) -> None:
        if number in _END:
            if self._asked_to_end is not None and number == signal.SIGINT:
                send(members(self._mark), signal.SIGKILL)
                return
            self._asked_to_end = self._asked_to_end or (monotonic(), number.name)
        with suppress(ProcessLookupError):
            if number == signal.SIGTSTP:
                os.killpg(group, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
                os.killpg(group, signal.SIGCONT)
            elif number in _PASSED_ON:
                os.killpg(group, number)

    # ------------------------------------------------------------------ dumps

    def _dump(self, why: str) -> None:
        say, ready = self._watch.say, self._ready
        say(f"{why}: its GPU is dumped")
        made = make_dumps(
            ready.names,
            (None,) if ready.own else sorted(members(self._mark)),
            self._watch.limits,
            alive=lambda: bool(members(self._mark)),
        )
        if not made.asked:
            say(_NO_PIPE)
        # those that exceptions have made before, too
        self._report(Made(self._states.made().dumps, made.asked, made.problems))

    def _report(self, made: Made) -> None:
        watch = self._watch
        for problem in made.problems:
            watch.say(problem)
            self._unread = True
        for number, path in enumerate(made.dumps, 1):
            if len(made.dumps) > 1:
                watch.say(f"dump {number} of {len(made.dumps)}: {path.name}")
            try:
                self._unread = not watch.report(path) or self._unread
            except TilesimError as error:
                watch.say(f"error: {error}")
                self._unread = True

    def tell_where_dumps_are(self, temporary: Path | None) -> None:
        """Says where dumps are; deletes those in a temporary folder, unless one was not read."""
        watch, paths = self._watch, self._states.changed()
        kept = [p for p in paths if temporary is None or p.parent != temporary or self._unread]
        for path in kept:
            watch.say(f"the dump is {path}")
        if kept and self._unread:
            return
        if len(paths) > len(kept):
            watch.say(
                f"{count(len(paths), 'dump')} deleted; --dump-dir DIR keeps dumps, for "
                "`tilesim autopsy`"
            )
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


_NO_PIPE = (
    "no process of the command has a pipe for dumps: none has a CUDA context yet, or its driver "
    "makes none"
)
