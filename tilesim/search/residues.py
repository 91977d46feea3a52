"""What is known of the values of a parameter, put together from runs for some of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilesim.sim.forall.free import UNBOUNDED, Obstacle
from tilesim.sim.forall.trace import Limit, Traced

if TYPE_CHECKING:
    from tilesim.verdict import Report

#: how many values are enough where a type, or what is allowed, ends them
_LARGE = 1 << 18
#: verdicts that leave nothing open
RIGHT = ("proved", "exhausted")


@dataclass(frozen=True)
class Run:
    """The run for the value of a number. It stands for ``steps`` more; ``limit`` is why not for
    others. ``report`` is None if the kernel refuses the value, and ``steps`` more."""

    number: int
    steps: int
    limit: Limit | None
    report: Report | None
    modulus: int
    traced: Traced | None
    #: its report is that of a whole check
    settled: bool = False

    @property
    def proved(self) -> bool:
        """Whether a check of this program says so."""
        return self.report is not None and self.report.verdict in RIGHT


@dataclass
class Residue:
    """What is known of the values of one residue: all before number ``left``, None: all of them;
    from number ``ends`` on they are refused."""

    left: int | None
    taken: bool = False
    ends: int | None = None
    why: Obstacle | None = None


@dataclass
class Cover:
    """What is known of all values, by residue."""

    residues: list[Residue]
    alone: int = 0
    refused: list[int] = field(default_factory=list)

    def next(self) -> int | None:
        """The least number of a value of which nothing is known; None: there is none."""
        left = [r.left for r in self.residues if r.left is not None]
        return min(left, default=None)

    def add(self, run: Run) -> None:
        """A value is proved, or refused, and more with it."""
        step = len(self.residues)
        residue = self.residues[run.number % step]
        following = run.number + (run.steps + 1) * step
        if run.report is None:
            self.refused.append(run.number)
            if residue.taken and residue.ends is None:
                residue.ends = run.number - step
                residue.why = run.limit.obstacle if run.limit is not None else None
            residue.left = None if run.steps == UNBOUNDED else following
            return
        residue.taken, residue.ends = True, None
        self.alone += not run.steps
        residue.why = None if run.traced is None else run.traced.why
        if residue.why is None and run.limit is not None:
            residue.why = run.limit.obstacle
        residue.left = following
        if run.limit is None:
            residue.left = None
        elif run.limit.fits and following - step >= _LARGE:
            residue.left, residue.ends = None, following - step
            residue.why = run.limit.obstacle

    def refine(self, step: int) -> None:
        """The same for residues of a multiple of the step."""
        coarse = len(self.residues)
        fine = [replace(self.residues[number % coarse]) for number in range(step)]
        for number, residue in enumerate(fine):
            if residue.left is not None:
                residue.left += (number - residue.left) % step
        self.residues = fine

    def limit(self) -> tuple[int, Obstacle] | None:
        """The number of the last value of which something is known, and why."""
        ends = [(r.ends, r.why) for r in self.residues if r.ends is not None and r.why is not None]
        return min(ends, key=lambda end: end[0], default=None)
