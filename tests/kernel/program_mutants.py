"""A pytest plugin: mutants of the programs that tests check, judged by check and by the kernel.

    MUTANTS=FOLDER python -m pytest -p tests.kernel.program_mutants -n 16 tests/sim tests/ptx
    python -m tests.kernel.program_mutants FOLDER

Each program is changed in one place of its text (`.tile` or PTX): an instruction that synchronises
is deleted, is executed twice, by some lanes only, or by more of them, changes places with its
neighbour, promises less (`.relaxed`, `.cta`) or, if it is a poll, passes at once; an integer is
one more or less. Some mutants of each, others with another number as `MUTANTS_SEED`, are checked,
and given to the kernel. The second command counts the verdicts and prints the contradictions: what
is proved and refuted, or failed and certified, or ends with an error of Python; these two end it
with 1. Contradictions are defects of one of the two, or one of the disagreements that docs/trust.md
lists: the verdicts without the change are printed beside them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import tilesim.checker
import tilesim.ptx.parser
import tilesim.ptx.program
from tests.verdicts.recorded import level
from tests.verdicts.row import rechecked
from tilesim.checker.report import Report
from tilesim.dsl.kernel import Kernel
from tilesim.errors import TilesimError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.text import parse, to_text
from tilesim.ptx.launch import Launch
from tilesim.ptx.syntax import Function, Module

#: the environment's variables: the folder of rows, and a seed, which chooses among the mutants
FOLDER, SEED = "MUTANTS", "MUTANTS_SEED"
#: mutants of a program, seconds for all of them, and instructions that the kernel executes
MOST, SECONDS, STEPS = 12, 15.0, 3_000
#: arguments of checks whose reports are none of the program alone
_OTHERS = frozenset({"for_all", "time_limit", "progress", "frontier", "witness"})

_SYNCHRONISES = re.compile(
    r"mbarrier|fence|membar|bar\b|barrier|\bsync|wait|commit|griddepcontrol|setmaxnreg|dealloc"
)
_POLL = re.compile(r"mbarrier\.(?:try|test)_wait\S*\s+(?P<predicate>[\w%]+)\s*,")
#: guards of other statements of PTX that a statement gets, at most, and conditions in a `.tile`
_GUARDS = 3
_CONDITIONS = ("%lane_id == 1 nosync", "%lane_id < 16 nosync", "%warp_id == 1")
#: forms that promise more, and less, of PTX and of a `.tile`
_WEAKER = (
    (r"\.(release|acquire|acq_rel)\b", ".relaxed"),
    (r"\.(cluster|gpu|sys)\b(?!\.arrive|\.wait)", ".cta"),
    (r"(wait\.parity)(?=\.shared)", r"\1.relaxed.cta"),
    (r"(fence\.proxy\.async);", r"\1.global;"),
    (r"(wait_group)\b(?!\.read)", r"\1.read"),
    (r"\.sync\b(?!\.aligned|_restrict)", ".arrive"),
    (r"(?<=[^;])$", ", sem=relaxed"),
    (r"(?<=[^;])$", ", scope=cta"),
)
_INTEGER = re.compile(r"(?<![\w.%$\"])\d+(?![\w.\"])")
#: statements: lines of a `.tile` that open no block, and what ends with a semicolon in PTX
_LINE = re.compile(r"(?<=\n) +(?P<guard>)(?P<text>[^\s}{][^\n]*[^{\s])(?=\n)")
_STATEMENT = re.compile(
    r"(?:(?<=[;:{\n])|^)[ \t]*"
    r"(?P<text>(?P<guard>@!?%?[\w$]+[ \t]+)?[a-z][\w.:]*(?:[ \t][^;\n]*)?;)",
    re.MULTILINE,
)


class Mutant(NamedTuple):
    """A program with one change: what it is, the statement before it, and the new text."""

    change: str
    statement: str
    text: str


def mutants(text: str, statement: re.Pattern[str]) -> Iterator[Mutant]:
    """All programs that differ from ``text`` in one statement that synchronises.

    ``statement`` finds statements, each with its ``text`` and, in it, its ``guard``.
    """
    found = list(statement.finditer(text))
    guards = [*dict.fromkeys(one["guard"] for one in found if one["guard"])]
    for one, following in zip(found, [*found[1:], None], strict=True):
        old, start, end = one["text"], one.start("text"), one.end("text")
        synchronises = _SYNCHRONISES.search(old)
        for change, new in _changes(old, one["guard"], guards) if synchronises else ():
            yield Mutant(change, old, text[:start] + new + text[end:])
        if following is None or not _is_next(between := text[end : following.start("text")]):
            continue
        if synchronises or _SYNCHRONISES.search(following["text"]):
            new = following["text"] + between + old
            yield Mutant("swapped", old, text[:start] + new + text[following.end("text") :])


def _changes(old: str, guard: str | None, guards: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What a statement is changed to: a name for it, and the new text."""
    yield "deleted", ""
    yield "twice", f"{old}\n{old}"
    if guard:
        yield "without guard", old.removeprefix(guard)
    elif old.endswith(";"):
        yield from ((f"only {other.strip()}", other + old) for other in guards[:_GUARDS])
    else:
        yield from ((f"only {one}", f"if {one} {{\n{old}\n}}") for one in _CONDITIONS)
    if poll := _POLL.match(old.removeprefix(guard or "")):
        yield "passes", f"setp.eq.u32 {poll['predicate']}, 0, 0;"
    for pattern, weaker in _WEAKER:
        new = re.sub(pattern, weaker, old, count=1)
        if new != old:
            yield f"weaker: {new}", new
    for number in _INTEGER.finditer(old):
        for value in (int(number[0]) + 1, int(number[0]) - 1):
            if value >= 0:
                new = old[: number.start()] + str(value) + old[number.end() :]
                yield f"{number[0]} is {value}", new


def _is_next(between: str) -> bool:
    """Whether no label and no end of a block stands between two statements."""
    return not re.search(r"[{}:]", between)


class Judge:
    """Makes mutants of each program that a test checks, and writes what is said of them."""

    def __init__(self, folder: Path) -> None:
        self._rows = folder / f"{os.getpid()}.jsonl"
        self._check, self._read = tilesim.checker.check, tilesim.ptx.parser.read
        self._lower = tilesim.ptx.program.lower
        self._texts: dict[int, tuple[str, Module]] = {}
        self._lowered: dict[int, tuple[str, int, Launch, Mir]] = {}
        self._seen: set[tuple[str, Any]] = set()
        self.test = ""

    def install(self) -> None:
        """Puts itself before what tests call."""
        tilesim.checker.check = self.check
        tilesim.ptx.parser.read = self.read
        tilesim.ptx.program.lower = self.lower

    def read(self, text: str, file: str = "kernel.ptx") -> Module:
        """Reads PTX, and remembers its text."""
        module = self._read(text, file)
        self._texts[id(module)] = text, module
        return module

    def lower(self, module: Module, entry: Function, launch: Launch) -> Mir:
        """Lowers PTX, and remembers of what text."""
        mir = self._lower(module, entry, launch)
        if id(module) in self._texts:
            number = module.entries.index(entry)
            self._lowered[id(mir)] = self._texts[id(module)][0], number, launch, mir
        return mir

    def check(self, program: Any, **arguments: Any) -> Report:
        """Checks a program for a test, and then mutants of it."""
        report = self._check(program, **arguments)
        if not self.test or _OTHERS & arguments.keys():
            return report
        strict = {k: v for k, v in arguments.items() if k != "params"}
        if id(program) in self._lowered:
            text, entry, launch, _ = self._lowered[id(program)]

            def from_ptx(text: str) -> Mir:
                module = self._read(text, "k.ptx")
                return self._lower(module, module.entries[entry], launch)

            self._judge(program, text, from_ptx, _STATEMENT, strict)
            return report
        if isinstance(program, Kernel):
            program = program.build(**arguments.get("params") or {})
        if isinstance(program, Program):
            self._judge(program, to_text(program), parse, _LINE, strict)
        return report

    def _judge(
        self, program: Program | Mir, text: str, made: Callable[[str], Program | Mir],
        statement: re.Pattern[str], arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        key = text, level(arguments)
        if key in self._seen:
            return
        self._seen.add(key)
        every, stop, base = [*mutants(text, statement)], time.monotonic() + SECONDS, None
        Random(os.environ.get(SEED, "") + text).shuffle(every)
        rows = []
        for mutant in every[:MOST]:
            if time.monotonic() > stop:
                break
            try:
                said = self._said(made(mutant.text), arguments)
            except TilesimError:
                continue
            row: dict[str, Any] = {"said": said}
            if contradict(said):
                base = base or self._said(program, arguments)
                row |= {"test": self.test, "level": level(arguments), "base": base}
                row |= mutant._asdict()
            rows.append(json.dumps(row))
        with self._rows.open("a", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in rows)

    def _said(self, program: Program | Mir, arguments: dict[str, Any]) -> tuple[str, str]:
        """The verdicts of the check and of the kernel."""
        try:
            report, strict = self._check(program, **arguments), level(arguments)
        except TilesimError:
            raise
        except Exception as error:  # it is written, and the test goes on
            return "crash", repr(error)
        if report.verdict not in ("proved", "failed"):
            return report.verdict, ""
        return report.verdict, rechecked(program, (strict,), STEPS)[strict]


def contradict(said: Sequence[str]) -> bool:
    """Whether the check and the kernel cannot both be right, or one ends with an error."""
    verdict, recheck = said
    return (
        verdict == "crash"
        or (verdict == "proved" and recheck.startswith("refuted"))
        or (verdict == "failed" and recheck == "certified")
    )


_judge: Judge | None = None
if _path := os.environ.get(FOLDER):
    Path(_path).mkdir(parents=True, exist_ok=True)
    _judge = Judge(Path(_path))
    _judge.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Any:
    """Names the programs of a test by it."""
    if _judge is not None:
        _judge.test = item.nodeid.removeprefix("tests/")
    result = yield
    if _judge is not None:
        _judge.test = ""
    return result


def main(folder: str) -> None:
    """Prints what the rows of a folder say; ends with 1 if one is certified that fails, or a check
    has ended with an error."""
    counts: Counter[str] = Counter()
    for file in sorted(Path(folder).glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            verdict, recheck = row["said"]
            recheck = "" if verdict == "crash" else recheck.partition(":")[0]
            counts[f"{verdict}, {recheck}".rstrip(", ")] += 1
            if contradict(row["said"]):
                print(f"{row['test']} at {row['level']}: {row['statement'].strip()}")
                print(f"  {row['change']}: {' but '.join(row['said'])}")
                print(f"  without the change: {', '.join(row['base'])}")
    for name, count in sorted(counts.items()):
        print(f"{count:>7,} {name}")
    sys.exit(counts["failed, certified"] + counts["crash"] > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
