"""Small programs of strong accesses to words: their outcome decides which threads store to data.

Each thread is a lane of a warp, or of a CTA, of its own: it makes its steps, and then stores weakly
to the one data word if all that it compares holds. Two that do are a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilesim import Builder, Program, s32
from tilesim.ir.expr import Var, all_of
from tilesim.ir.ops.fence import FenceScope

Fencing = Literal["acq_rel", "sc"]


@dataclass(frozen=True)
class Set:
    """A strong store."""

    word: str
    value: int = 1
    sem: Literal["relaxed", "release"] = "relaxed"
    scope: FenceScope = "gpu"


@dataclass(frozen=True)
class Get:
    """A strong load into a register."""

    into: str
    word: str
    sem: Literal["relaxed", "acquire"] = "relaxed"
    scope: FenceScope = "gpu"


@dataclass(frozen=True)
class Swap:
    """A read-modify-write into a register: an exchange, or an addition."""

    into: str
    word: str
    value: int = 1
    sem: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed"
    adds: bool = False
    scope: FenceScope = "gpu"


@dataclass(frozen=True)
class Fence:
    """A fence of the thread."""

    sem: Fencing
    scope: FenceScope = "gpu"


@dataclass(frozen=True)
class Meet:
    """The threads, lanes of one warp, wait for each other: all have as many of these."""


@dataclass(frozen=True)
class Touch:
    """A weak store to the data word."""


@dataclass(frozen=True)
class Arrive:
    """An arrival at an mbarrier, of which each counts one."""

    word: str


@dataclass(frozen=True)
class Peek:
    """`test_wait` for the first phase of an mbarrier, into a register."""

    into: str
    word: str


@dataclass(frozen=True)
class Wait:
    """A wait for the first phase of an mbarrier."""

    word: str


@dataclass(frozen=True)
class Guard:
    """A step of those that find that a register holds ``value``."""

    into: str
    value: int
    step: Touch | Arrive


#: what the axioms are about; `tests.sim.weak_barriers` has the others made of these
Plain: TypeAlias = Set | Get | Swap | Fence | Meet | Touch
Step: TypeAlias = Plain | Arrive | Peek | Wait | Guard


@dataclass(frozen=True)
class Thread:
    """Steps, and what registers must hold for the thread to enter; None: it does not."""

    steps: tuple[Step, ...]
    enters: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True)
class Shape:
    """Threads of one CTA and words in its shared memory, or CTAs and words in global memory.

    The threads of a CTA are of a warp each, or ``lanes`` of one, in regions that order nothing, one
    after the other in the text. ``counts``: mbarriers, and how many arrivals they are for.
    """

    threads: tuple[Thread, ...]
    grid: bool = False
    lanes: bool = False
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> list[str]:
        """The words that are accessed, all of them 0 at the start."""
        steps = [step for thread in self.threads for step in thread.steps]
        return sorted({step.word for step in steps if isinstance(step, Set | Get | Swap)})


def translate(shape: Shape) -> Program:
    """The program as the simulator takes it."""
    k = Builder("weak", warps=1 if shape.grid or shape.lanes else len(shape.threads))
    if shape.grid:
        k.launch(grid=len(shape.threads), cooperative=True)
    declare: Any = k.tensor if shape.grid else k.shared
    words = {word: declare(word, s32, (1,))[0] for word in shape.words}
    data = declare("data", s32, (1,))[0]
    barriers = {name: k.mbarriers(name)[0] for name, _ in shape.counts}
    words |= barriers
    if not shape.grid:
        with k.one_thread():
            for name in shape.words:
                k.mem.store(words[name], 0)
            for name, count in shape.counts:
                k.mbarrier.init(barriers[name], count)
        k.sync_threads()
    if shape.lanes:
        _lanes(k, shape, words, data)
        return k.finish()
    for number, thread in enumerate(shape.threads):
        held: dict[str, Var] = {}
        if shape.grid:
            with k.if_(k.cta_x.eq(number)), k.one_thread():
                _steps(k, number, thread.steps, words | {"": data}, held)
                _enter(k, number, thread, data, held)
        else:
            with k.role(f"T{number}", number), k.one_thread(number):
                _steps(k, number, thread.steps, words | {"": data}, held)
                _enter(k, number, thread, data, held)
    return k.finish()


def _lanes(k: Builder, shape: Shape, words: dict[str, Any], data: Any) -> None:
    """Lane by lane, up to where they meet; then the rest."""
    parts = [_parted(thread.steps) for thread in shape.threads]
    held: list[dict[str, Var]] = [{} for _ in parts]
    last = len(parts[0]) - 1
    for n in range(last + 1):
        if n:
            k.sync_warp()
        for lane, thread in enumerate(shape.threads):
            with k.if_(k.lane_id.eq(lane), sync=False):
                _steps(k, lane, parts[lane][n], words | {"": data}, held[lane])
                if n == last:
                    _enter(k, lane, thread, data, held[lane])


def _parted(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps between meetings."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, Meet):
            parts.append([])
        else:
            parts[-1].append(step)
    return parts


def _steps(
    k: Builder, number: int, steps: Sequence[Step], words: dict[str, Any], held: dict[str, Var]
) -> None:
    for step in steps:
        match step:
            case Set(word, value, sem, scope):
                k.mem.store(words[word], value, sem=sem, scope=scope)
            case Get(into, word, get, scope):
                held[into] = k.var(f"{into}_{number}", 0)
                k.mem.load(held[into], words[word], sem=get, scope=scope)
            case Swap(into, word, value, swap, adds, scope):
                held[into] = k.var(f"{into}_{number}", 0)
                how: Any = "add" if adds else "exch"
                k.mem.atomic(words[word], how, value, result=held[into], sem=swap, scope=scope)
            case Fence(fencing, scope):
                k.fence.memory(fencing, scope=scope)
            case Touch():
                k.mem.store(words[""], number)
            case Arrive(word):
                k.mbarrier.arrive(words[word])
            case Peek(into, word):
                held[into] = k.var(f"{into}_{number}", 0)
                k.mbarrier.test_wait(held[into], words[word], 0)
            case Wait(word):
                k.mbarrier.wait(words[word], 0)
            case Guard(into, value, guarded):
                with k.if_(held[into].eq(value), sync=False):
                    _steps(k, number, (guarded,), words, held)
            case Meet():
                raise TypeError("only lanes meet")


def _enter(k: Builder, number: int, thread: Thread, data: Any, held: dict[str, Var]) -> None:
    if thread.enters is None:
        return
    if not thread.enters:
        k.mem.store(data, number)
        return
    compared = all_of(*(held[into].eq(value) for into, value in thread.enters))
    with k.if_(compared, sync=False):
        k.mem.store(data, number)


def fenced(steps: Sequence[Step], fence: Fence | None) -> tuple[Step, ...]:
    """The steps with a fence between each and the next."""

    def between() -> Iterator[Step]:
        for n, step in enumerate(steps):
            if n and fence is not None:
                yield fence
            yield step

    return tuple(between())


def store_buffering(
    fence: Fence | None = None, *, strong: bool = False, grid: bool = False
) -> Shape:
    """Each of two threads sets its word and enters if the other's is not set (Dekker's entry)."""
    return Shape(
        tuple(
            Thread(
                fenced([
                    Set(mine, sem="release" if strong else "relaxed"),
                    Get("r", other, "acquire" if strong else "relaxed"),
                ], fence),
                (("r", 0),),
            )
            for mine, other in ("xy", "yx")
        ),
        grid,
    )  # fmt: skip


def load_buffering(
    fence: Fence | None = None, *, acquires: bool = False, releases: bool = False
) -> Shape:
    """Each of two threads looks at its word, sets the other's, and enters if its own was set."""
    return Shape(
        tuple(
            Thread(
                fenced([
                    Get("r", mine, "acquire" if acquires else "relaxed"),
                    Set(other, sem="release" if releases else "relaxed"),
                ], fence),
                (("r", 1),),
            )
            for mine, other in ("xy", "yx")
        )
    )  # fmt: skip


def independent_reads(fence: Fence | None = None, *, strong: bool = False) -> Shape:
    """Two threads set a word each; two others see them in different orders (IRIW)."""
    acquire: Any = "acquire" if strong else "relaxed"
    looks = [[Get("r", one, acquire), Get("s", two, acquire)] for one, two in ("xy", "yx")]
    readers = [Thread(fenced(look, fence), (("r", 1), ("s", 0))) for look in looks]
    writers = [Thread((Set(w, sem="release" if strong else "relaxed"),)) for w in "xy"]
    return Shape((*writers, *readers))


def message(*, releases: bool, acquires: bool, fence: Fence | None = None) -> Shape:
    """A word behind a flag, both strong: who sees the flag sees the word."""
    writer = fenced([Set("x"), Set("y", sem="release" if releases else "relaxed")], fence)
    reader = fenced([Get("r", "y", "acquire" if acquires else "relaxed"), Get("s", "x")], fence)
    return Shape((Thread(writer, ()), Thread(reader, (("r", 1), ("s", 0)))))


def coherent_reads() -> Shape:
    """Who has seen a store does not find what was before it (CoRR)."""
    reader = (Get("r", "x"), Get("s", "x"))
    return Shape((Thread((Set("x"),), ()), Thread(reader, (("r", 1), ("s", 0)))))


def write_to_read(fence: Fence | None = None) -> Shape:
    """One thread sets x, another sees that and sets y, a third sees that and not x (WRC): y holds
    what the second has seen."""
    return Shape((
        Thread((Set("x"),)),
        Thread(fenced([Get("r", "x"), Set("y")], fence), (("r", 1),)),
        Thread(fenced([Get("s", "y"), Get("t", "x")], fence), (("s", 1), ("t", 0))),
    ))  # fmt: skip


def chain(fence: Fence | None = None) -> Shape:
    """x, a flag, another one: who sees the second does not find x as it was (ISA2)."""
    return Shape((
        Thread(fenced([Set("x"), Set("y")], fence)),
        Thread(fenced([Get("r", "y"), Set("z")], fence), (("r", 1),)),
        Thread(fenced([Get("s", "z"), Get("t", "x")], fence), (("s", 1), ("t", 0))),
    ))  # fmt: skip


def stores_and_loads(fence: Fence | None = None) -> Shape:
    """Two stores; a store after a look at the second, and who looks at the order (S)."""
    return Shape((
        Thread(fenced([Set("x", 2), Set("y")], fence)),
        Thread(fenced([Get("r", "y"), Set("x", 1)], fence), (("r", 1),)),
        Thread((Get("s", "x"), Get("t", "x")), (("s", 1), ("t", 2))),
    ))  # fmt: skip


def reads_and_writes(fence: Fence | None = None) -> Shape:
    """Who has written y last, and has not seen x (R)."""
    return Shape((
        Thread(fenced([Set("x"), Set("y", 1)], fence)),
        Thread(fenced([Set("y", 2), Get("r", "x")], fence), (("r", 0),)),
        Thread((Get("s", "y"), Get("t", "y")), (("s", 1), ("t", 2))),
    ))  # fmt: skip


def exchanges(fence: Fence | None = None) -> Shape:
    """Dekker's entry by exchanges of the own word."""
    return Shape(
        tuple(
            Thread(fenced([Swap("q", mine), Get("r", other)], fence), (("r", 0),))
            for mine, other in ("xy", "yx")
        )
    )
