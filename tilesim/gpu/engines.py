"""What asynchronous operations of a traced launch must have done, from what warps have seen.

No warp sees a copy or a matrix product end. It ends at the latest when a wait for it passes, so its
slice lasts from its issue to the first wait that shows that it has ended, and says so. Operations
whose end nobody waits for have no slice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilesim.gpu.emit.trace import barrier_of
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.recorder import TENSOR_CORE, TMA
from tilesim.sim.timeline import Flow, Slice, Track

#: the engine behind a group of a warp's operations
_ENGINES = {"bulk": TMA, "wgmma": TENSOR_CORE, "cp.async": "cp.async"}
#: what a group of wgmma is called, of which one record has all from its fence to its commit
WGMMA = "wgmma.mma_async ... commit_group"
_SEEN, _READ = "until seen", "until its source is read"


@dataclass(frozen=True)
class Executed:
    """An instruction that a warp executed, when, and its detail (`tilesim.gpu.emit.trace`)."""

    op: Op
    detail: int
    track: Track
    start: float
    end: float


@dataclass(frozen=True)
class _Operation:
    """An asynchronous operation: its issue, its engine, and what its end is inferred from."""

    issue: Executed
    engine: str
    end: float
    how: str


def operations(executed: Sequence[Executed]) -> tuple[list[Slice], tuple[Flow, ...]]:
    """The slices of the engines, and an arrow from each issue to its operation."""
    found = [*_copies(executed), *_grouped(executed)]
    found.sort(key=lambda o: (o.issue.start, str(o.issue.track)))
    lanes: dict[tuple[int, str], list[float]] = {}
    slices, flows = [], []
    for o in found:
        cta, start = o.issue.track.cta, o.issue.start
        ends = lanes.setdefault((cta, o.engine), [])
        lane = next((n for n, free in enumerate(ends) if free <= start), len(ends))
        ends[lane : lane + 1] = [o.end]
        track = Track(cta, o.engine, None, lane)
        name = f"{_name(o.issue.op)} ({o.how})"
        slices.append(Slice(track, "engine", name, start, o.end, o.issue.op.loc))
        flows.append(Flow("issue", o.issue.track, start, track, start))
    return slices, tuple(flows)


def _name(op: Op) -> str:
    return "wgmma.mma_async" if fx.Commits("wgmma") in op.effects() else op.mnemonic


# ---------------------------------------------------------------------- copies on an mbarrier


def _copies(executed: Sequence[Executed]) -> Iterator[_Operation]:
    """Copies that complete on an mbarrier of their own CTA, until its next wait passes."""
    waits: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for x in executed:
        if any(isinstance(effect, fx.Waits) for effect in x.op.effects()):
            waits[_barrier(x)].append(x.end)
    for x in executed:
        mbar = barrier_of(x.op)
        if mbar is None or mbar.cta is not None or not _is_copy(x.op):
            continue
        seen = [end for end in waits[_barrier(x)] if end > x.start]
        if seen:
            yield _Operation(x, TMA, min(seen), _SEEN)


def _barrier(x: Executed) -> tuple[int, str, int]:
    mbar = barrier_of(x.op)
    assert mbar is not None
    return x.track.cta, mbar.array.name, x.detail >> 1


def _is_copy(op: Op) -> bool:
    return op.mnemonic.startswith("cp.") and any(
        isinstance(effect, fx.Completes) for effect in op.effects()
    )


# ---------------------------------------------------------------------- operations in groups


@dataclass
class _Groups:
    """A warp's operations of one kind: those of the open group, and the committed groups."""

    opened: list[Executed] = field(default_factory=list)
    committed: list[list[Executed]] = field(default_factory=list)


def _grouped(executed: Sequence[Executed]) -> Iterator[_Operation]:
    """Operations that a warp commits in groups, until its wait for their group passes."""
    groups: dict[tuple[Track, str], _Groups] = defaultdict(_Groups)
    for x in sorted(executed, key=lambda x: x.start):
        kind = _group(x.op)
        if kind is not None:
            groups[x.track, kind].opened.append(x)
        for effect in x.op.effects():
            match effect:
                case fx.Commits(group=kind):
                    mine = groups[x.track, kind]
                    mine.committed.append(mine.opened)
                    mine.opened = []
                case fx.WaitsGroup(group=kind, pending=pending, read_only=read):
                    mine = groups[x.track, kind]
                    done = mine.committed[: max(0, len(mine.committed) - pending)]
                    del mine.committed[: len(done)]
                    for issue in (issue for group in done for issue in group):
                        if kind in _ENGINES and _leads(issue, kind):
                            yield _Operation(issue, _ENGINES[kind], x.end, _READ if read else _SEEN)
                case _:
                    pass


def _leads(issue: Executed, kind: str) -> bool:
    """One warp of a warpgroup stands for the four that execute a wgmma together."""
    warp = issue.track.warp
    return kind != "wgmma" or warp is None or warp % 4 == 0


def _group(op: Op) -> str | None:
    """The kind of group that collects an operation, if any."""
    if fx.Commits("wgmma") in op.effects():
        return "wgmma"
    if op.mnemonic == "cp.async":
        return "cp.async"
    bulk = op.mnemonic.startswith(("cp.async.bulk", "cp.reduce.async.bulk"))
    if bulk and any(getattr(effect, "asynchronous", False) for effect in op.effects()):
        return None if barrier_of(op) is not None else "bulk"
    return None
