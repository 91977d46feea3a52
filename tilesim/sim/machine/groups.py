"""What a warp has issued and committed: groups of asynchronous operations, initialisations."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesim.ir.op import Op


@dataclass(slots=True)
class Groups:
    """Committed groups of one kind of asynchronous operation.

    ``opened`` counts operations issued, ``committed`` holds the operation count at each commit and
    ``done`` how many operations are known complete; ``component`` publishes that count.
    """

    component: int
    opened: int = 0
    committed: list[int] = field(default_factory=list)
    done: int = 0
    finish: float = 0.0

    def issue(self) -> int:
        """The sequence number of a new operation in the open group."""
        self.opened += 1
        return self.opened

    def commit(self) -> None:
        """Closes the open group (which may be empty)."""
        self.committed.append(self.opened)

    def wait(self, pending: int) -> int:
        """How many operations are complete once at most ``pending`` groups remain."""
        if pending < len(self.committed):
            self.done = max(self.done, self.committed[len(self.committed) - 1 - pending])
            if pending:
                del self.committed[:-pending]
            else:
                self.committed.clear()
        return self.done


@dataclass(slots=True)
class FragmentUse:
    """A wgmma that uses a fragment: its number, and how many wgmma.fence came before it.

    ``accumulator`` is the shape of the instruction if the fragment is D, None if it is A.
    """

    sequence: int
    op: Op
    accumulator: tuple[int, int, int] | None
    fenced: int


class Inits:
    """The mbarrier.init of a warp, which fence.mbarrier_init hands over without its other writes.

    ``component`` publishes how many were made.
    """

    __slots__ = ("_lanes", "component")

    def __init__(self, component: int) -> None:
        self.component = component
        self._lanes: list[int] = []

    def add(self, lanes: int) -> int:
        """An init by ``lanes``; returns its number, from 1."""
        self._lanes.append(lanes)
        return len(self._lanes)

    def made_by(self, lanes: int) -> int:
        """How many, from the first on, are all of ``lanes``: a fence covers its own thread's."""
        others = (n for n, mask in enumerate(self._lanes) if mask & ~lanes)
        return next(others, len(self._lanes))
