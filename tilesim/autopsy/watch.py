"""A command under watch: when it hangs, its GPU is dumped, and each dump is reported.

The command runs in a session of its own: what is pressed on the terminal comes to the watch. It
inherits input and output, and can use them.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic
from typing import NamedTuple

from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.processes import MARKER, Family, running
from tilesim.autopsy.progress import Look, Progress
from tilesim.autopsy.trigger import (
    DEFAULT_LIMITS,
    FILE,
    Limits,
    Made,
    Names,
    Prepared,
    States,
    make_dumps,
    names_of,
    prepared,
)
from tilesim.errors import TilesimError, UsageError
from tilesim.records import dataclass, replace
from tilesim.wording import count

#: exit code of a command that hung
HUNG = 1
#: ask for dumps
_ASK = frozenset({signal.SIGQUIT, signal.SIGUSR1})
#: ask to end
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
        look: ... what looks at its processes; None if nothing can be seen.
        folder: where dumps are kept; None for a temporary folder, which is deleted.
        grace: how long the command may take to end when it is asked to.
    """

    report: Callable[[Path], bool]
    say: Callable[[str], None]
    after: float | None = None
    no_progress: float | None = None
    look: Callable[[frozenset[int]], Look] | None = None
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
        temporary, kept = None, False
        if self.folder is None:
            temporary = dumps = Path(mkdtemp(prefix="tilesim-dumps-"))
        else:
            given.pop(FILE, None)
            dumps = _made(self.folder)
        try:
            with TemporaryDirectory(prefix="tilesim-watch-") as pipes, _Signals() as signals:
                ready = prepared(given, Path(pipes), dumps)
                for note in ready.notes:
                    self.say(note)
                run = _Run(self, ready, command)
                try:
                    return run.code(signals)
                finally:
                    kept = run.report_kept_dumps(temporary)
        finally:
            if temporary is not None and not kept:
                shutil.rmtree(temporary, ignore_errors=True)


def _made(folder: Path) -> Path:
    """The folder, which is this user's alone if it is new."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    return folder.resolve()


class _Signals:
    """Signals that are looked at in turn, instead of interrupting."""

    def __enter__(self) -> _Signals:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # what is ignored, as SIGHUP under nohup, the command is to ignore as well
        looked_at = [
            number for number in _ALL
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        ]  # fmt: skip
        self._before = {number: signal.signal(number, lambda *_: None) for number in looked_at}
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

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Those that ask to end do so at once, as an exception."""

        def stop(number: int, frame: object) -> None:
            raise SystemExit(128 + number)

        before = {number: signal.signal(number, stop) for number in _END & self._before.keys()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Reason(NamedTuple):
    """Why a command is dumped; ``ends``: it is ended, even if it cannot be dumped."""

    text: str
    ends: bool = False


class _Run:
    """One run of a command."""

    def __init__(self, watch: Watch, ready: Prepared, command: Sequence[str]) -> None:
        self._watch, self._ready = watch, ready
        self._states = States([ready.names])
        self._unread = self._interrupted = False
        self._pipes: set[Path] = set()
        self._progress = Progress(watch.no_progress) if watch.no_progress and watch.look else None
        self._started = monotonic()
        self._others = running()
        mark = secrets.token_hex(8)
        try:
            self._process = subprocess.Popen(
                list(command), env={**ready.environment, MARKER: mark}, start_new_session=True,
                close_fds=False,  # it inherits those that are not of this process alone
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
        self._family = Family(self._process, mark)

    def code(self, signals: _Signals) -> int:
        """Its exit code, when it has ended, or hung and was ended."""
        grace = 0.0
        try:
            while (reason := self._reason(signals)) is not None:
                with signals.interrupting():
                    if self._dumped(reason):
                        grace = self._watch.grace
                        return HUNG
            code = self._process.wait()
            with signals.interrupting():
                self._report(self._made())
            return code if code >= 0 else 128 - code
        except BaseException:
            self._unread = True
            raise
        finally:
            if self._process.returncode is None:
                self._end(grace)

    def _end(self, grace: float) -> None:
        self._names()  # and their pipes
        self._family.end(grace)
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.unlink()

    # ------------------------------------------------------------------ until it hangs

    def _reason(self, signals: _Signals) -> _Reason | None:
        """Why it is to be dumped; None when it has ended."""
        watch = self._watch
        while self._process.poll() is None:
            end = math.inf if watch.after is None else self._started + watch.after
            now = monotonic()
            if now >= end:
                return _Reason(f"it runs for more than {watch.after:g} s", ends=True)
            why = self._stuck(now)
            if why:
                return _Reason(why)
            longest = _LONGEST if self._progress is None else self._progress.interval
            for number in signals.next(min(longest, end - now)):
                if number in _ASK:
                    return _Reason(f"{number.name} asks for a dump")
                self._pass_on(number)
        return None

    def _stuck(self, now: float) -> str:
        """Why it makes no progress, as far as that is watched."""
        if self._progress is None or self._watch.look is None:
            return ""
        try:
            return self._progress.stuck(now, self._watch.look(self._family.members()))
        except OSError as error:
            self._watch.say(f"progress is not watched any longer: {error}")
            self._progress = None
            return ""

    def _pass_on(self, number: signal.Signals) -> None:
        group = self._process.pid
        if number == signal.SIGINT:
            if self._interrupted:
                self._family.send(signal.SIGKILL)
                return
            self._interrupted = True
            self._watch.say(
                "SIGINT is passed on; if nothing happens, Ctrl-\\ dumps the GPU, and a second "
                "Ctrl-C kills"
            )
        with suppress(ProcessLookupError):
            if number == signal.SIGTSTP:
                os.killpg(group, signal.SIGSTOP)
                stopped = monotonic()
                os.kill(os.getpid(), signal.SIGSTOP)
                self._started += monotonic() - stopped
                os.killpg(group, signal.SIGCONT)
            elif number in _PASSED_ON:
                os.killpg(group, number)

    # ------------------------------------------------------------------ dumps

    def _names(self) -> list[Names]:
        """Of pipes and dumps of this command, and of no other; its pipes are to go with it."""
        if self._ready.own:
            return [self._ready.names]
        found = []
        for pid in sorted(self._family.members()):
            with suppress(DumpError):
                found.append(names_of(pid))
                self._pipes.update(found[-1].pipes())
        return found

    def _dumped(self, reason: _Reason) -> bool:
        """Dumps and reports it; whether it is over with it."""
        say = self._watch.say
        say(f"{reason.text}: its GPU is dumped")
        made = make_dumps(self._names(), self._watch.limits, self._family.runs)
        if self._process.poll() is not None and not self._states.changed():
            say("it has ended before it was dumped")
            return False
        if not made.asked:
            say(
                "no process of the command has a pipe for dumps: none has a CUDA context yet, or "
                f"its driver makes none{'' if reason.ends else '; it goes on'}"
            )
        if made.asked or reason.ends:
            # those that exceptions have made before, too
            self._report(Made(self._made().dumps, made.asked, made.problems))
            return True
        return False

    def _made(self) -> Made:
        """Dumps that have come of this command."""
        made = self._states.made()
        foreign = self._foreign(made.dumps)
        for path in foreign:
            self._watch.say(
                f"{path} is not reported: its name is that of a dump of another program"
            )
        return replace(made, dumps=tuple(path for path in made.dumps if path not in foreign))

    def _foreign(self, paths: Iterable[Path]) -> set[Path]:
        """Those of processes that ran before the command, or run and are none of it."""
        if not self._ready.shared:
            return set()
        of = {path: self._ready.names.process_of(path) for path in paths}
        members = self._family.members() if any(of.values()) else frozenset()
        others = (self._others | running()) - members - self._family.seen
        return {path for path, pid in of.items() if pid in others}

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

    def report_kept_dumps(self, temporary: Path | None) -> bool:
        """Says where dumps are; whether those in the temporary folder, if there is one, stay, as
        one has not been read."""
        watch, paths = self._watch, {*self._states.changed()}
        paths -= self._foreign(paths)
        kept = [path for path in sorted(paths) if self._unread or path.parent != temporary]
        for path in kept:
            watch.say(f"the dump is {path}")
        if len(kept) < len(paths):
            watch.say(
                f"{count(len(paths), 'dump')} deleted; --dump-dir DIR keeps dumps, for "
                "`tilesim autopsy`"
            )
        return self._unread and bool(kept)
