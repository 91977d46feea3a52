"""The table of the programs in ``programs/``: what each leaves behind when it hangs.

A program is a ``.cu`` file; with ``-DFIXED`` it is its right twin. ``ring.cu`` is several: each has
a mistake that a macro of its name makes. Beside it, ``.launch.json`` has its launch, as
`tilesim check` reads it; ``fixed`` in it are the fields that the twin has otherwise, ``kernels``
the launches where there are several.
"""

from __future__ import annotations

from pathlib import Path

from tests.silicon.hangs.answer import Answer, Barrier, On, Place, marked, numbers
from tilesim.records import dataclass

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Waits:
    """One place of a table's row; ``at`` is a mark in the source."""

    warps: str
    on: On
    at: str
    barrier: Barrier | None = None
    ctas: str = "0"
    id: int | None = None
    threads: int | None = None
    kernel: str = ""


@dataclass(frozen=True)
class Row:
    """A program: what it leaves behind, and whether it has a right twin.

    ``shows`` says what is shown in it. ``ends``: it ends; ``runs``: it runs on. ``unchecked``: why
    `tilesim.check` has no verdict on it. ``source``: the source that makes its mistake among
    others; empty: it has one of its own.
    """

    name: str
    shows: str
    waits: tuple[Waits, ...] = ()
    rule: str = "deadlock"
    twin: bool = True
    ends: bool = False
    runs: bool = False
    unchecked: str = ""
    source: str = ""

    @property
    def path(self) -> Path:
        """Its source."""
        return PROGRAMS / f"{self.source or self.name}.cu"

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros that make its mistake."""
        return (self.name.upper(),) if self.source else ()

    @property
    def culprit(self) -> str:
        """The mark of the lines one of which is to be changed."""
        return self.name if self.source else "culprit"

    @property
    def answer(self) -> Answer:
        """What is right to say of it."""
        marks = marked(self.path)
        places = tuple(
            Place(
                w.kernel or self.path.stem, numbers(w.ctas), numbers(w.warps), w.on, marks[w.at],
                w.barrier, w.id, w.threads,
            )
            for w in self.waits
        )  # fmt: skip
        return Answer(
            places, frozenset({self.rule}), marks.get(self.culprit, frozenset()),
            whole=not self.runs, hangs=not self.runs,
        )  # fmt: skip


def _ring(name: str, shows: str, read: Barrier, fill: Barrier, *, twin: bool = False) -> Row:
    """Warps 0 to 3 read stages, warp 4 fills them. One of the mistakes has the twin of all."""
    return Row(
        name, shows,
        (Waits("0-3", "mbarrier", "read", read), Waits("4", "mbarrier", "fill", fill)),
        twin=twin, source="ring",
    )  # fmt: skip


#: the states of ``states.cu``, in its order: parity of the running phase, and the barrier
STATES: tuple[tuple[int, Barrier], ...] = (
    (0, Barrier(1, 1)),
    (0, Barrier(1048575, 1048575)),
    (0, Barrier(4, 5)),
    (0, Barrier(2, 5)),
    (1, Barrier(5, 5)),
    (0, Barrier(2, 2)),
    (0, Barrier(2, 2, 1)),
    (0, Barrier(2, 2, 1024)),
    (0, Barrier(2, 2, 1048575)),
    (0, Barrier(2, 2, -1)),
    (0, Barrier(2, 2, -1024)),
    (0, Barrier(2, 2, 768)),
    (0, Barrier(0, 1, 4096)),
    (1, Barrier(1, 1)),
    (0, Barrier(4, 4)),
    (1, Barrier(4, 4)),
    (0, Barrier(0, 2, 16)),
    (1, Barrier(2, 3)),
    (0, Barrier(0, 1, 16)),
    (0, Barrier(1, 2, 48)),
)

ROWS: tuple[Row, ...] = (
    _ring("parity", "a phase that nothing has begun", Barrier(1, 1), Barrier(4, 4), twin=True),
    _ring("count", "an arrival too many is counted", Barrier(1, 1), Barrier(1, 5)),
    _ring("bytes", "bytes that never come", Barrier(0, 1, 16), Barrier(4, 4)),
    _ring("lost", "an arrival is lost in a turn of a loop", Barrier(1, 1), Barrier(1, 4)),
    Row("stale", "a phase that comes after the last",
        (Waits("0-3", "mbarrier", "read", Barrier(1, 1)),)),
    Row("named", "a warp at another named barrier",
        (Waits("0-2", "named barrier", "one", id=1, threads=128),
         Waits("3", "named barrier", "two", id=2, threads=64))),
    Row("named_register", "a named barrier of a register's number",
        (Waits("0-2", "named barrier", "named", id=6, threads=128),
         Waits("3", "mbarrier", "wait", Barrier(3, 3)))),
    Row("reduce", "a named barrier that reduces",
        (Waits("0-1", "named barrier", "reduce", id=5, threads=96),
         Waits("2", "mbarrier", "wait", Barrier(2, 2)))),
    Row("cluster_barrier", "the barrier of a cluster, and an arrival behind it",
        (Waits("0-1", "cluster barrier", "cluster"),
         Waits("0-1", "mbarrier", "wait", Barrier(1, 1), ctas="1"))),
    Row("remote", "an arrival at another CTA's barrier is missing",
        (Waits("0", "mbarrier", "wait", Barrier(1, 2)),
         Waits("1", "cluster barrier", "cluster"),
         Waits("0-1", "cluster barrier", "cluster", ctas="1"))),
    Row("multicast_mask", "a copy to a cluster leaves out a CTA",
        (Waits("0-1", "cluster barrier", "cluster", ctas="0-2"),
         Waits("0-1", "mbarrier", "read", Barrier(0, 1, 1024), ctas="3"))),
    Row("one_of_many", "one of twelve CTAs",
        (Waits("0-1", "mbarrier", "wait", Barrier(1, 8), ctas="7"),)),
    Row("persistent", "a persistent kernel: two of four CTAs wait for a tile too many",
        (Waits("0-3", "mbarrier", "read", Barrier(1, 1), ctas="2-3"),)),
    Row("spin_on_word", "a word of global memory that is not written",
        (Waits("0", "word", "poll", ctas="1"),
         Waits("1", "named barrier", "barrier", ctas="1", id=0))),
    Row("grid_barrier", "a barrier of CTAs that do not all fit",
        (Waits("0", "word", "poll", ctas="0-131"),)),
    Row("pool", "registers that are not given back",
        (Waits("0-3", "named barrier", "barrier", id=1, threads=384),
         Waits("4-11", "registers", "pool")), rule="register-pool"),
    Row("lanes", "half of a warp polls, half waits for it",
        (Waits("1", "word", "poll"), Waits("1", "lanes", "meet"))),
    Row("backoff", "a word of shared memory is polled with sleeps",
        (Waits("0", "word", "poll"),)),
    Row("try_with_sleep", "tries with a limit of time, and sleeps",
        (Waits("0", "mbarrier", "wait", Barrier(1, 2)),)),
    Row("test_wait", "a poll with a token",
        (Waits("0-2", "mbarrier", "wait", Barrier(1, 96)),)),
    Row("ampere_copies", "arrivals of copies that do not count",
        (Waits("0-3", "mbarrier", "read", Barrier(128, 128)),)),
    Row("two_kernels", "a kernel that finds no room, and one that waits for it",
        (Waits("0", "word", "poll", ctas="0-131", kernel="waiting"),),
        unchecked="two launches at once"),
    Row("dependent", "a kernel that waits for the end of the one before",
        (Waits("0", "word", "poll", kernel="first"),
         Waits("0", "earlier kernel", "wait", kernel="second")),
        unchecked="two launches at once"),
    Row("in_flight", "copies without end: it runs on", runs=True, unchecked="it runs for ever"),
    Row("exited", "a CTA that has ended, and the barrier of its cluster", twin=False, ends=True),
    Row("trap", "a watchdog's trap",
        (Waits("0", "exception", "trap"), Waits("1", "mbarrier", "wait", Barrier(2, 3))),
        twin=False, unchecked="trap is not read"),
    Row("states", "barriers in known states",
        (Waits("0", "mbarrier", "wait", Barrier(1, 2, 48)),), twin=False),
    Row("ways", "every way to wait",
        (Waits("0", "named barrier", "named", ctas="0-1", id=3, threads=96),
         Waits("1", "mbarrier", "mbarrier", Barrier(3, 3), ctas="0-1"),
         Waits("2", "named barrier", "register", ctas="0-1", id=6, threads=64),
         Waits("3", "word", "lanes", ctas="0-1"),
         Waits("3", "lanes", "meet", ctas="0-1"),
         Waits("4", "word", "word", ctas="0-1"),
         Waits("5", "cluster barrier", "cluster", ctas="0-1"),
         Waits("6", "word", "sleep", ctas="0-1"),
         Waits("7", "named barrier", "reduce", ctas="0-1", id=5, threads=64),
         Waits("8", "mbarrier", "test", Barrier(3, 3), ctas="0-1"),
         Waits("9", "word", "atomic", ctas="0-1")), twin=False),
)  # fmt: skip
