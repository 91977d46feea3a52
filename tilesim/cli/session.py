"""The kernels named on the command line of ``tilesim check``, and what became of them so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any

from tilesim.checker import INTERRUPTED as INTERRUPTED_REASON
from tilesim.checker import Report
from tilesim.checker.assumptions import denied
from tilesim.cli.examine import Examination, Examine
from tilesim.cli.group import internal_failure, show_traceback
from tilesim.cli.options import Progress, say
from tilesim.cli.resume import Unfinished, digest
from tilesim.errors import InvalidProgram, NoKernelError, TilesimError, UsageError
from tilesim.files import files_not_shown
from tilesim.loader import STDIN, Given, Target, files, load, load_one
from tilesim.parallel import DIES, Opener, WorkersLost, serial, work
from tilesim.records import dataclass, field, replace
from tilesim.report.result import Checked, Failure, Rejected, Result, as_data
from tilesim.report.text import counted, refused
from tilesim.wording import count


@dataclass(frozen=True)
class Task:
    """The ``number``-th kernel to check, as plain data that a worker can be sent.

    ``target`` is None in what is sent: the worker loads the kernel by its name. ``debug``: show
    where tilesim itself fails. ``known``: the report, if only what is shown with it is to be made.
    """

    number: int
    name: str
    given: Given
    examine: Examine
    target: Target | None
    frontier: Mapping[str, Any] | None
    debug: bool
    known: Report | None = None
    timed: bool = False


@dataclass(frozen=True)
class Done:
    """What became of a task."""

    number: int
    name: str
    result: Result


def check_one(task: Task) -> Done:
    """Checks one kernel; whatever goes wrong becomes a result."""
    start = monotonic()
    target = task.target
    result: Result
    try:
        if target is None:
            target = load_one(task.name, task.given)
        result = task.examine(target, task.frontier, task.known)
    except TilesimError as error:
        show_traceback(error, debug=task.debug)
        known = target if target is not None else Target(task.name, "")
        result = refused(known, error)
    except Exception as error:
        result = internal_failure(task.name, error, debug=task.debug)
    if task.timed:
        result = replace(result, seconds=monotonic() - start)
    return Done(task.number, task.name, as_data(result))


def _lost(task: Task, reason: str) -> Done:
    why = f"{reason}: killed, no memory left, or a bug in tilesim" if reason == DIES else reason
    return Done(task.number, task.name, Failure(task.name, f"not checked: {why}", internal=True))


@dataclass
class Session:
    """Checks kernels one after another in this process or, if ``opener`` opens ``workers`` others,
    several at a time.

    ``alone`` checks a kernel in this process, which may spread what one kernel takes; ``among`` one
    of several. ``spread``: also a single kernel is sent away. A bad target does not hide the
    others; an interrupt stops. ``on_done`` gets each result at once; ``on_result`` in the order of
    the command line, which is that of `results`, as soon as those before it are known.
    """

    texts: tuple[str, ...]
    given: Given
    alone: Examine
    among: Examine
    progress: Progress
    on_result: Callable[[Result], None]
    on_done: Callable[[Done], None]
    unfinished: Unfinished | None = None
    #: how the kernels are checked of which reports are kept there; None: none are
    keeping: Examination | None = None
    skip_empty: bool = False
    #: of folders, Python files are run as well
    python: bool = False
    debug: bool = False
    opener: Opener = serial
    workers: int = 1
    spread: bool = False
    #: names of what proofs may not lean on
    deny: frozenset[str] = frozenset()
    #: results say how long the checks took
    timed: bool = False
    #: names of kernels, or of targets, that are checked; None: all of them
    only: frozenset[str] | None = None
    #: kernels that are not
    left_out: int = 0
    interrupted_at: str | None = None
    #: why no worker is left
    stopped: str = ""
    _here: bool = True
    _done: dict[int, Result] = field(default_factory=dict)
    #: results for which earlier ones are not known yet
    _held: set[int] = field(default_factory=set)
    _todo: list[str] = field(default_factory=list)
    _waiting: list[tuple[int, Target]] = field(default_factory=list)
    _current: dict[int, str] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _next: int = 0

    @property
    def results(self) -> list[Result]:
        """The results so far, in the order of the targets."""
        return [result for _, result in sorted(self._done.items(), key=lambda item: item[0])]

    @property
    def not_started(self) -> int:
        """Kernels, or targets whose kernels are not known yet, that are not begun."""
        begun_too = max(0, len(self._current) - 1)
        return begun_too + len(self._waiting) + len(self._todo)

    def check_all(self) -> None:
        """Checks everything, until the user interrupts or no worker is left."""
        files_not_shown()  # what others in this process asked for before is not this session's
        try:
            self._check_all()
        finally:
            self._show(self._held)

    def _check_all(self) -> None:
        try:
            self._load()
            finished = work(
                check_one, self._tasks(), serial if self._here else self.opener,
                workers=1 if self._here else self.workers, lost=_lost, on_result=self._add,
            )  # fmt: skip
        except WorkersLost as error:
            self.stopped = str(error)
            return
        except KeyboardInterrupt:
            finished = False
        if finished and self.unfinished is not None:
            self.unfinished.finish()
        if not finished and self.interrupted_at is None:
            self.interrupted_at = self._current[min(self._current)] if self._current else ""

    def _load(self) -> None:
        """Names the kernels; all of them before the first is checked if others could help."""
        self._todo = [file for text in self.texts for file in self._files(text)]
        while self._todo and (self.spread or self.workers > 1):
            self._load_next()
        if STDIN in self.texts and (self.spread or (self.workers > 1 and self.kernels > 1)):
            raise UsageError(
                "kernels of standard input are checked by one process: leave out --jobs"
            )
        self._here = not self.spread and (self.workers == 1 or self.kernels == 1)

    @property
    def kernels(self) -> int:
        """How many kernels are known so far, finished or not."""
        return len(self._done) + len(self._current) + len(self._waiting)

    def _files(self, text: str) -> tuple[str, ...]:
        try:
            return files(text, python=self.python)
        except TilesimError:
            return (text,)  # loading it says what is wrong

    def _tasks(self) -> Iterator[Task]:
        while self._waiting or self._todo:
            if not self._waiting:
                self._load_next()
                continue
            number, target = self._waiting.pop(0)
            self._current[number] = target.id
            known = self._known(target)
            if known is not None and self._is_all(number, target, known):
                continue
            self._say_doing(target.id)
            if not self._here and target.ptx is not None and target.ptx.embedded is not None:
                target.ptx.embedded.show_lines()  # it is read where the kernel is checked
            yield Task(
                number, target.id, self.given, self.alone if self._here else self.among,
                target if self._here else None,
                None if self.unfinished is None else self.unfinished.of(target.id), self.debug,
                known, self.timed,
            )  # fmt: skip

    def _is_all(self, number: int, target: Target, known: Report) -> bool:
        """Whether the report of an earlier run is the result, as no schedule is shown with it."""
        if self.keeping is None or target.ptx is None or self.keeping.shows(known):
            return False
        result = Checked(target.id, target.ptx.target, known, configuration=target.configuration)
        self._add(Done(number, target.id, result))
        return True

    def _known(self, target: Target) -> Report | None:
        """The report of an earlier run on a kernel of PTX as it is now."""
        if self.unfinished is None or self.keeping is None or self.keeping.settings is None:
            return None
        if target.ptx is None:
            return None
        try:
            self._digests[target.id] = digest(target, self.keeping.settings)
        except TilesimError:
            return None  # checking it says what is wrong
        return self.unfinished.report(target.id, self._digests[target.id])

    @property
    def _passes_over(self) -> bool:
        """Whether what has no kernel (of the names that are looked for) is no mistake: of several
        files some may have none."""
        several = len(self._todo) + self._next > 1 and bool(self.given.kernels)
        return self.skip_empty or self.python or several

    def _say_doing(self, name: str) -> None:
        known = self.kernels + len(self._todo)
        if known > 1:
            share = self.progress.share(len(self._done), known)
            self.progress.before = f"checked {share}{counted(self._done.values())}; "
        self.progress.show(f"checking {name}")

    def _is_wanted(self, text: str, target: Target) -> bool:
        return self.only is None or text in self.only or target.id in self.only

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _load_next(self) -> None:
        """The kernels of the next target; what is wrong with it is a result."""
        text = self._todo.pop(0)
        number = self._number()
        self._current[number] = text
        self.progress.show(f"reading {text}")
        failed: Result | None = None
        try:
            loaded = load(text, self.given)
            wanted = [t for t in loaded if self._is_wanted(text, t)]
            self.left_out += len(loaded) - len(wanted)
            self._waiting += [(self._number(), target) for target in wanted]
        except InvalidProgram as error:
            failed = Rejected(text, None, error.diagnostics)
        except TilesimError as error:
            if not (self._passes_over and isinstance(error, NoKernelError)):
                show_traceback(error, debug=self.debug)
                failed = Failure(text, str(error), places=error.places)
        if failed is None:
            self._current.pop(number)
        else:
            self._add(Done(number, text, failed))

    def _add(self, done: Done) -> None:
        result = done.result
        if self.unfinished is not None and isinstance(result, Checked):
            result = self._keep(self.unfinished, done.name, result)
            known = self._digests.pop(done.name, None)
            if known and self.keeping is not None and self.keeping.keeps(result.report):
                self.unfinished.add_report(done.name, known, result.report)
        if isinstance(result, Checked) and self.deny:
            result = replace(result, denied=denied(result.report.leanings, self.deny))
        self._current.pop(done.number, None)
        self._done[done.number] = result
        self._held.add(done.number)
        self.progress.clear()
        self.on_done(Done(done.number, done.name, result))
        before = min([*self._current, *(number for number, _ in self._waiting[:1])], default=None)
        self._show(n for n in self._held if before is None or n < before)
        if isinstance(result, Checked) and INTERRUPTED_REASON in result.report.reasons:
            self.interrupted_at = done.name
            raise KeyboardInterrupt
        if self._current:
            self._say_doing(self._current[min(self._current)])

    def _show(self, numbers: Iterable[int]) -> None:
        """Shows results that were held, in order."""
        for number in sorted(numbers):
            self._held.remove(number)
            self.on_result(self._done[number])

    @staticmethod
    def _keep(unfinished: Unfinished, name: str, result: Checked) -> Checked:
        """Saves what is left to explore, and says so."""
        report = result.report
        unfinished.keep(name, report.frontier)
        if report.frontier is None:
            return result
        said = f"what is left to explore is in {unfinished.path}: the same command goes on with it"
        return replace(result, report=replace(report, reasons=(*report.reasons, said)))


def say_interrupted(session: Session) -> None:
    """Says on stderr where it stopped."""
    left = session.not_started
    rest = f"; {count(left, 'kernel')} not started" if left else ""
    say(f"interrupted while checking {session.interrupted_at}{rest}", err=True)
