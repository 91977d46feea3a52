"""What a search for repairs is asked, and what it finds: plain data, which loads no search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import combinations, takewhile
from typing import TYPE_CHECKING

from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.ir.loc import Loc
from tilesim.records import dataclass, field, replace
from tilesim.transforms.rewrite import Patch

if TYPE_CHECKING:
    from tilesim.findings.finding import Finding
    from tilesim.ir.mir import Mir
    from tilesim.ir.program import Program, Verdict
    from tilesim.repair.preservation import Arrays

#: how long repairs are looked for, if nothing else is said
DEFAULT_TIME = timedelta(seconds=10)


@dataclass(frozen=True)
class Trial:
    """What a check says of a program."""

    verdict: str
    findings: tuple[Finding | Diagnostic, ...] = ()
    instructions: int = 0
    #: it was ended at its share of the work
    cut_off: bool = False


@dataclass(frozen=True)
class Change:
    """What is different at one line: instructions before and after, as text; and how the source
    line changes, where that can be said (for all that it makes)."""

    loc: Loc
    before: tuple[str, ...]
    after: tuple[str, ...]
    patch: Patch | None = None

    @property
    def place(self) -> Loc:
        """What is to be changed: of PTX that is patched, its line."""
        return self.loc if self.patch is None else Loc(self.patch.file, self.patch.first)

    @property
    def old(self) -> tuple[str, ...]:
        """What a report shows: the source lines, or else the instructions."""
        return self.before if self.patch is None else _dedented(self.patch.old, self.patch)

    @property
    def new(self) -> tuple[str, ...]:
        """The same as it should be."""
        return self.after if self.patch is None else _dedented(self.patch.new, self.patch)

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What a report shows of both, line by line: ``-`` and one that goes, ``+`` and one that
        comes, a blank and one at the beginning or the end that stays."""
        old, new = self.old, self.new
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        parts = (
            (" ", old[:head]),
            ("-", old[head : len(old) - tail]),
            ("+", new[head : len(new) - tail]),
            (" ", old[len(old) - tail :]),
        )
        return tuple((mark, line) for mark, own in parts for line in own)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """With how many equal lines both begin."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _dedented(lines: tuple[str, ...], patch: Patch) -> tuple[str, ...]:
    margin = min(len(t) - len(t.lstrip()) for t in (*patch.old, *patch.new) if t.strip())
    return tuple(line[margin:] for line in lines)


@dataclass(frozen=True)
class Repair:
    """Changes that together mend the program: what they are in words, and the verdict of the
    program with them. ``made`` is that program, without which results go to other processes."""

    what: str
    verdict: Verdict
    changes: tuple[Change, ...]
    made: Program | Mir | None = field(repr=False)

    @property
    def program(self) -> Program | Mir:
        """The program with the changes, where it was mended."""
        assert self.made is not None
        return self.made

    @property
    def patches(self) -> tuple[Patch, ...]:
        """Its patches, if they are all of it: every change is one of text, each of other lines."""
        found = tuple(dict.fromkeys(c.patch for c in self.changes if c.patch is not None))
        if any(change.patch is None for change in self.changes) or any(
            one.file == other.file and one.first <= other.last and other.first <= one.last
            for one, other in combinations(found, 2)
        ):
            return ()
        return found


@dataclass(frozen=True)
class Repairs:
    """What was found, the best first; ``tried`` edits were, within ``seconds``.

    ``ended``: nothing was left to try, or enough was found; else time ran out, or the user has
    ``interrupted`` it.
    """

    found: tuple[Repair, ...]
    tried: int
    seconds: float
    ended: bool
    interrupted: bool = False

    def without_programs(self) -> Repairs:
        """What there is to show of them: plain data."""
        return replace(self, found=tuple(replace(one, made=None) for one in self.found))

    def __str__(self) -> str:
        what = f"{self.tried} edit{'s' if self.tried != 1 else ''} tried"
        if self.interrupted:
            return f"{what}, interrupted by the user"
        return what if self.ended else f"{what}, all that there was time for in {self.seconds:g} s"


class Mendable(InvalidProgram):
    """A program is rejected, and repairs have been looked for."""

    def __init__(self, diagnostics: Iterable[Diagnostic], repairs: Repairs) -> None:
        super().__init__(diagnostics)
        self.repairs = repairs


@dataclass(frozen=True)
class Wanted:
    """How repairs are looked for: how long, and what tells that one still does the kernel's work.

    ``same`` says of what a program computes from ``numbers`` whether it is right; without it a
    program does the work if it stores what this one would. ``progress`` is called with the numbers
    of edits tried and repairs found.
    """

    time: timedelta = DEFAULT_TIME
    numbers: Arrays | None = None
    same: Callable[[Arrays], bool] | None = None
    #: reads a PTX text in place of the one that the program was made of
    read: Callable[[str], Mir] | None = None
    progress: Callable[[int, int], None] = lambda tried, found: None
