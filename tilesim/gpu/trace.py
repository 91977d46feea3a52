"""What a kernel did on a GPU, and when: the records of a traced launch as timelines.

What asynchronous operations of a traced launch must have done, from what warps have seen.

No warp sees a copy or a matrix product end. It ends at the latest when a wait for it passes, so its
slice lasts from its issue to the first wait that shows that it has ended, and says so. Operations
whose end no wait shows have no slice.

What a kernel did on a GPU, and when: the records of a traced launch as timelines.

The timelines are those of `tilesim.sim.observers.timeline`, with nanoseconds instead of cycles.
Warps are measured; operations of engines are inferred (`tilesim.gpu.trace`), states of barriers are
not recorded (`tilesim.conform.barriers`). Recording takes time itself: see docs/timeline.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.gpu.compile import Binary, compile_cubin
from tilesim.gpu.driver import DeviceInfo, probe
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.emit.trace import (
    AREA_WORDS,
    BUFFER_WORDS,
    COUNT,
    CTA,
    END,
    LOST,
    OTHERS,
    RECORD_WORDS,
    ROOM,
    START,
    barrier_of,
    blocks,
    is_traced,
    named_barrier_of,
)
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.watchdog import Execution, Executor, Hang
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ir.scalars import communicates
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.cta import cluster_ctas
from tilesim.sim.observers.timeline import (
    LIMIT,
    TENSOR_CORE,
    TMA,
    Flow,
    Instance,
    Slice,
    Timeline,
    Track,
    Unit,
)
from tilesim.transforms.lower import lower

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


#: words of the largest buffer
_MOST_WORDS = 1 << 24
#: the lower half of a word
_LOW = 0xFFFFFFFF
#: seconds after which a launch counts as hung: records have 32 bits for a time, in cycles
_LAUNCH_SECONDS = 1.5
#: how far a wait that never ends is drawn beyond the last event, as a part of all that is drawn
_STUCK_PART = 20


@dataclass(frozen=True)
class GpuRecording:
    """A traced launch: timelines per cluster, and how they were made.

    ``megahertz`` is the SM clock during the launch; None if it could not be measured, then times
    are cycles of each SM, and CTAs have no common start. ``lost`` counts records for which there
    was no room, ``hang`` is the report of a launch that did not end. ``times`` has when warps
    entered and left instructions that their lanes take together.
    """

    timelines: tuple[Timeline, ...]
    megahertz: float | None
    lost: int
    device: DeviceInfo
    hang: Hang | None = field(default=None, repr=False)
    times: Mapping[Instance, tuple[float, float]] = field(default_factory=dict, repr=False)


def record_gpu(
    program: Program,
    inputs: Mapping[str, NDArray[Any]],
    *,
    clusters: int = 1,
    limit: int = LIMIT,
    executor: Executor | None = None,
) -> GpuRecording:
    """Runs the whole grid on the GPU and records the first ``clusters`` clusters.

    A kernel that does not end in a second and a half is run once more under the watchdog, with its
    buffer in host memory, where it survives.

    Args:
        limit: slices per cluster; its warps share them equally.
        executor: runs the kernel; by default one that ends with the call.

    Raises:
        DeviceError: there is no driver or no GPU, or the launch failed.
        MissingExtra: the ``compile`` extra is not installed.
        InvalidProgram, EmitError, CompileError: the program cannot run.
    """
    probe()
    words = buffer(program, clusters, limit)
    if executor is None:
        with Executor() as own:
            source, execution = _execute(own, program, inputs, words)
    else:
        source, execution = _execute(executor, program, inputs, words)
    if execution.status == "error" or not execution.traces or execution.device is None:
        raise DeviceError(f"{program.name} failed on the GPU: {execution.detail}")
    return recording(source, execution.traces[0], execution.device, execution.hang)


def _execute(
    executor: Executor,
    program: Program,
    inputs: Mapping[str, NDArray[Any]],
    words: NDArray[np.uint64],
) -> tuple[Source, Execution]:
    plain = compile_cubin(emit(program, trace=True))
    execution = executor.execute(plain, inputs, timeout=_LAUNCH_SECONDS, trace=words)
    if execution.status == "done":
        return plain.source, execution
    watched: Binary = compile_cubin(emit(program, watchdog=True, trace=True))
    execution = executor.execute(
        watched, inputs, budget=_LAUNCH_SECONDS / 3, timeout=_LAUNCH_SECONDS, trace=words,
        trace_on_host=True,
    )  # fmt: skip
    return watched.source, execution


def buffer(program: Program, clusters: int, limit: int) -> NDArray[np.uint64]:
    """The buffer of a launch before it starts, see `tilesim.gpu.emit.trace`."""
    count = program.ctas // program.cluster_size
    recorded = count if communicates(lower(program)) else min(clusters, count)
    in_cluster = program.cluster_size * program.warps
    most = _MOST_WORDS // (recorded * in_cluster * 2 * RECORD_WORDS)
    room = max(OTHERS, min(-(-limit // in_cluster), most))
    area = _area_words(room)
    words = np.zeros(BUFFER_WORDS + recorded * in_cluster * area, dtype=np.uint64)
    words[:2] = recorded, room
    words[BUFFER_WORDS + ROOM :: area] = room
    return words


def _area_words(room: int) -> int:
    return AREA_WORDS + RECORD_WORDS * (room + room // OTHERS)


# ---------------------------------------------------------------------- from words to times


@dataclass(frozen=True)
class Area:
    """What one warp left: its anchors as (cycles, ns), None where it did not get there, and its
    records as (start, end, site, detail) by start."""

    cta: int
    warp: int
    first: tuple[int, int]
    last: tuple[int, int] | None
    records: tuple[tuple[int, int, int, int], ...]
    lost: int


def areas_of(source: Source, words: NDArray[np.uint64]) -> Iterator[Area]:
    """The areas of the warps that have started."""
    room = int(words[1])
    rows = words[BUFFER_WORDS:].reshape(-1, _area_words(room))
    for number, row in enumerate(rows):
        if not row[CTA]:
            continue
        first, last = (int(row[START]), int(row[START + 1])), (int(row[END]), int(row[END + 1]))
        pairs = row[AREA_WORDS:].reshape(-1, RECORD_WORDS)
        records = sorted(_record(first[0], int(a), int(b)) for a, b in pairs if b)
        lost = int(row[LOST]) + max(0, (int(row[COUNT]) & _LOW) - room // OTHERS)
        yield Area(
            int(row[CTA]) - 1, number % source.program.warps, first, last if last[0] else None,
            tuple(records), lost,
        )  # fmt: skip


def instances(source: Source, areas: Sequence[Area]) -> Iterator[tuple[Instance, int, int]]:
    """What warps executed, and the cycles at which they entered and left it; but for what lanes do
    apart from each other, of which one instruction leaves several records.
    """
    numbers = numbers_of(source)
    counts: Counter[tuple[int, int, int]] = Counter()
    for area in areas:
        for start, end, site, _ in area.records:
            if site not in source.apart:
                place = area.cta, area.warp, numbers[site]
                yield (*place, counts[place]), start, end
                counts[place] += 1


def numbers_of(source: Source) -> list[int]:
    """The numbers of the traced instructions in the machine's program.

    Raises:
        DeviceError: the records are not those of the program.
    """
    numbers = [op.number for op in lower(source.program).ops() if is_traced(op)]
    if len(numbers) != len(source.traced):
        raise DeviceError(f"{source.program.name}: the trace has other instructions")
    return numbers


def _record(origin: int, clocks: int, what: int) -> tuple[int, int, int, int]:
    """(start, end, site, detail) of a record of a warp that started at ``origin``."""
    start = origin + ((clocks >> 32) - origin & _LOW)
    end = start + ((clocks & _LOW) - start & _LOW)
    return start, end, (what >> 16) - 1, what & 0xFFFF


@dataclass(frozen=True)
class Clock:
    """Times of one CTA: ``origin`` cycles are ``start`` units after the beginning, give or take
    ``off`` if these are nanoseconds."""

    origin: int
    start: float
    per_cycle: float
    off: float = 0.0

    def time(self, cycles: int) -> float:
        """The time at which the SM's counter had this value."""
        return self.start + (cycles - self.origin) * self.per_cycle


def rate_of(areas: Sequence[Area]) -> float | None:
    """Nanoseconds per cycle, from all warps together; None if no warp saw the timer advance.

    ``%globaltimer`` advances in steps; over many warps their effect averages out.
    """
    pairs = [(a.first, a.last) for a in areas if a.last is not None]
    cycles = sum(last[0] - first[0] for first, last in pairs)
    ns = sum(last[1] - first[1] for first, last in pairs)
    return ns / cycles if ns > 0 and cycles > 0 else None


def clocks_of(areas: Sequence[Area], rate: float | None) -> dict[int, Clock]:
    """The clock of every CTA; the first warp that starts does so at time 0."""
    zero = min(a.first[1] for a in areas)
    clocks: dict[int, Clock] = {}
    for cta in dict.fromkeys(a.cta for a in areas):
        anchors = [x for a in areas if a.cta == cta for x in (a.first, a.last) if x is not None]
        origin = min(cycles for cycles, _ in anchors)
        if rate is None:
            clocks[cta] = Clock(origin, 0.0, 1.0)
            continue
        offsets = [ns - zero - (cycles - origin) * rate for cycles, ns in anchors]
        mean = sum(offsets) / len(offsets)
        off = max(abs(offset - mean) for offset in offsets)
        clocks[cta] = Clock(origin, mean, rate, off)
    start = min(clock.start for clock in clocks.values())
    return {cta: replace(clock, start=clock.start - start) for cta, clock in clocks.items()}


# ---------------------------------------------------------------------- timelines


def recording(
    source: Source, words: NDArray[np.uint64], device: DeviceInfo, hang: Hang | None = None
) -> GpuRecording:
    """The timelines of a launch from the words in its buffer.

    Raises:
        DeviceError: no warp has recorded anything.
    """
    program = source.program
    areas = list(areas_of(source, words))
    if not areas:
        raise DeviceError(f"{program.name} failed on the GPU: no warp has left a trace")
    rate = rate_of(areas)
    clocks = clocks_of(areas, rate)
    unit: Unit = "cycle" if rate is None else "ns"
    count = program.ctas // program.cluster_size
    groups = [cluster_ctas(program, index) for index in range(int(words[0]))]
    if communicates(lower(program)):
        groups = [tuple(cta for index in range(count) for cta in cluster_ctas(program, index))]
    timelines = tuple(
        _timeline(source, group, [a for a in areas if a.cta in group], clocks, unit, hang)
        for group in groups
    )
    times = {
        instance: (clocks[instance[0]].time(start), clocks[instance[0]].time(end))
        for instance, start, end in instances(source, areas)
    }
    lost = sum(a.lost for a in areas)
    return GpuRecording(timelines, None if rate is None else 1e3 / rate, lost, device, hang, times)


def _timeline(
    source: Source,
    ctas: tuple[int, ...],
    areas: Sequence[Area],
    clocks: Mapping[int, Clock],
    unit: Unit,
    hang: Hang | None,
) -> Timeline:
    program = source.program
    executed = [x for a in areas for x in _executed(source, a, clocks[a.cta])]
    engines, flows = operations(executed)
    slices = [_slice(x) for x in executed] + engines
    ends = {_track(program, a): clocks[a.cta].time(a.first[0]) for a in areas}
    for s in slices:
        if s.track.warp is not None:
            ends[s.track] = max(ends[s.track], s.end)
    end = max([*ends.values(), *(s.end for s in slices), 0.0])
    if hang is not None:
        stuck = list(_stuck(program, hang, ends, end + max(1.0, end / _STUCK_PART)))
        slices += stuck
        end = max([end, *(s.end for s in stuck)])
    tracks = sorted({*ends, *(s.track for s in slices)}, key=lambda t: _place(program, t))
    return Timeline(
        unit, ctas, tuple(tracks), tuple(sorted(slices, key=lambda s: s.start)), (), flows, (), (),
        end, any(a.lost for a in areas),
    )  # fmt: skip


def _executed(source: Source, area: Area, clock: Clock) -> Iterator[Executed]:
    """What a warp executed. Lanes on different paths may overlap; a track shows one at a time."""
    track = _track(source.program, area)
    free = clock.time(area.first[0])
    for start, end, site, detail in area.records:
        began = max(free, clock.time(start))
        free = max(began, clock.time(end))
        yield Executed(source.traced[site], detail, track, began, free)


def _track(program: Program, area: Area) -> Track:
    return Track(area.cta, program.role_of(area.warp), area.warp)


def _slice(x: Executed) -> Slice:
    waits = blocks(x.op)
    name = _waits_for(x.op, x.detail) if waits else _title(x.op)
    return Slice(x.track, "wait" if waits else "run", name, x.start, x.end, x.op.loc)


def _title(op: Op) -> str:
    return WGMMA if fx.Commits("wgmma") in op.effects() else op.mnemonic


def _waits_for(op: Op, detail: int) -> str:
    """What a wait is called, as in the simulator's timelines."""
    mbar = barrier_of(op)
    if mbar is not None:
        what = f"waits on {mbar.array.name}[{detail >> 1}]"
        return f"{what} parity {detail & 1}" if getattr(op, "parity", False) else what
    if named_barrier_of(op) is not None:
        return f"waits at named barrier {detail}"
    if any(isinstance(effect, fx.JoinsCluster) for effect in op.effects()):
        return "waits at cluster barrier"
    return f"waits in {op.mnemonic}"


def _stuck(
    program: Program, hang: Hang, ends: Mapping[Track, float], until: float
) -> Iterator[Slice]:
    """The waits of a hang: each since the warp's last record."""
    for waiter in hang.waiters:
        track = Track(waiter.cta, program.role_of(waiter.warp), waiter.warp)
        if track in ends:
            yield Slice(track, "wait", waiter.action, ends[track], until, waiter.loc, stuck=True)


def _place(program: Program, track: Track) -> tuple[int, bool, int, str, int, int]:
    """Orders tracks as the simulator's: by CTA, roles by their first warp, then engines."""
    if track.warp is None:
        return track.cta, True, 0, track.role, 0, track.lane
    roles = [program.role_of(warp) for warp in range(program.warps)]
    return track.cta, False, roles.index(track.role), "", track.warp, 0
