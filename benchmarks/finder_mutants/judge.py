"""What collected programs execute, and what they say under one mutant."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from benchmarks.finder_mutants.corpus import SUFFIX, Result, read
from benchmarks.finder_mutants.mutate import Finder, Mutant, file_of

#: seconds of a processor that a program may take under a mutant, beside thirty times its own
PATIENCE = 5.0
#: bytes of memory that the programs may take under a mutant
MEMORY = 6 << 30


@dataclass(frozen=True)
class Executed:
    """A program that gets its verdict outside of its test, too: what is said of it there, the
    seconds that takes, and the lines of the mutated modules that it executes."""

    name: str
    result: Result
    seconds: float
    lines: dict[str, list[int]]


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant.

    ``kind`` is ``false proof``, ``unearned claim`` (of a program in which nothing is wrong, where
    nothing was proved, or a proof leans on something), ``other verdict``, ``other rule``, ``other
    finding``, ``error`` or ``hang`` if a program exposes it (``program``, with what it ``says``);
    ``alive`` if none of the ``tried`` ones does, ``not executed`` if no program executes its line,
    and ``cut off`` if there was no time for all of them. ``less`` and ``more`` are how many of
    those executed fewer and more instructions than without the mutant.
    """

    module: str
    number: int
    line: int
    change: str
    wrong: bool
    kind: str
    tried: int
    program: str = ""
    says: str = ""
    less: int = 0
    more: int = 0


class Slow(BaseException):
    """A program takes much longer than it may; no handler of the checker is to catch it."""


class Lines:
    """Records which lines of some modules are executed.

    Args:
        modules: their names.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = {str(file_of(module).resolve()): module for module in modules}
        self.found: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        """A trace function of Python: follows the functions of these modules only."""
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        seen = self.found.setdefault(module, set())
        seen.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            seen.add(frame.f_lineno)
            return line

        return line


def execute(path: Path, modules: Iterable[str], *, right: bool = True) -> Executed | None:
    """The program of a file with what it executes; none if it gets another verdict here, or is
    right and right ones are not asked for (``right``). One of which nothing is claimed counts as
    wrong there: most are the wrong twins of proved ones in tests of what data decides."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        check = read(path)
        if check.result.is_claim and not right:
            return None
        begin = perf_counter()
        result = check.again()
        if (result.verdict, result.rules) != (check.result.verdict, check.result.rules):
            return None
        seconds = perf_counter() - begin
        lines = Lines(modules)
        sys.settrace(lines)
        try:
            read(path).again()  # nothing that has been found out of it is kept
        finally:
            sys.settrace(None)
    except (Slow, Exception):  # also a program that needs what its test has set up
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    found = {module: sorted(seen) for module, seen in sorted(lines.found.items())}
    return Executed(path.stem, result, seconds, found)


def judge(
    mutant: Mutant, folder: Path, programs: Sequence[Executed], limit: float, *, wrong: bool
) -> Outcome:
    """The first of these programs that exposes a mutant, those that are fast first.

    Args:
        mutant: imported by this process from here on.
        folder: the corpus.
        programs: those that execute the mutant's line.
        limit: seconds for all of them.
        wrong: whether they are wrong ones.

    Raises:
        RuntimeError: the mutant's module has been imported already.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    Finder.install(mutant)
    try:
        import_module("tilesim.checker")
    except Exception as error:
        return Outcome(
            mutant.module, mutant.number, mutant.line, mutant.says, wrong, "error", 0, "",
            f"{type(error).__name__} on import",
        )  # fmt: skip
    end = perf_counter() + limit
    signal.signal(signal.SIGPROF, _too_slow)

    less = more = 0

    def outcome(kind: str, tried: int, program: str = "", says: str = "") -> Outcome:
        return Outcome(
            mutant.module, mutant.number, mutant.line, mutant.says, wrong, kind, tried, program,
            says, less, more,
        )  # fmt: skip

    # of those that are not wrong, first the ones of which too much may be claimed
    ranked = sorted(programs, key=lambda p: (p.result.is_claim, p.seconds, p.name))
    for tried, program in enumerate(ranked, start=1):
        if perf_counter() > end:
            return outcome("cut off", tried - 1)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE + 30 * program.seconds)
        try:
            result = read(folder / f"{program.name}{SUFFIX}").again()
        except Slow:
            return outcome("hang", tried, program.name)
        except Exception as error:
            return outcome("error", tried, program.name, f"{type(error).__name__}: {error}"[:200])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        was = program.result
        if result.verdict != was.verdict:
            kind = "other verdict"
            if wrong and result.is_claim:
                kind = "false proof"
            elif not wrong and _claims_more(result, was):
                kind = "unearned claim"
            return outcome(kind, tried, program.name, result.verdict)
        if result.rules != was.rules:
            return outcome("other rule", tried, program.name, ", ".join(result.rules))
        if result.findings != was.findings:
            (first, *_) = sorted(set(result.findings) ^ set(was.findings)) or ["how often one is"]
            return outcome("other finding", tried, program.name, first[:200])
        less += result.work < was.work
        more += result.work > was.work
    return outcome("alive", len(programs))


def _claims_more(result: Result, was: Result) -> bool:
    """Whether ``result`` claims what ``was`` does not, or that without what it leans on."""
    if not was.is_claim:
        return result.is_claim
    return result.is_unconditional and not was.is_unconditional


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow
