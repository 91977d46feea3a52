"""Launches with random delays, recorded for `tilesim.conform`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.conform.recorded import About, Recorded
from tilesim.gpu.compile import Binary, compile_cubin
from tilesim.gpu.driver import DeviceInfo, probe
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.emit.trace import OTHERS
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.trace import areas_of, buffer, clocks_of, instances, numbers_of, rate_of
from tilesim.gpu.watchdog import Executor
from tilesim.ir.program import Program
from tilesim.ir.text.mir import fingerprint
from tilesim.records import dataclass
from tilesim.sim.observers.timeline import Instance
from tilesim.transforms.lower import lower

#: records of a cluster that a launch may leave
LIMIT = 50_000
#: seconds after which a launch counts as hung
_SECONDS = 1.5

#: launches whose results are in memory together
_BATCH = 50


@dataclass(frozen=True)
class Launch:
    """When instructions were entered and left, and how far the clock of a CTA may be off, in ns."""

    times: Mapping[Instance, tuple[float, float]]
    off: Mapping[int, float]


def record(
    program: Program,
    inputs: Mapping[str, NDArray[Any]],
    launches: int,
    *,
    seed: int = 0,
    clusters: int = 1,
    executor: Executor | None = None,
    after: Callable[[int], None] = lambda done: None,
) -> Recorded:
    """Launches the kernel so often, the first time without delays, and keeps when the first
    ``clusters`` clusters entered and left their instructions; calls ``after`` each launch.

    Raises:
        DeviceError: there is no GPU, or a launch fails, hangs, or leaves too many records.
        MissingExtra: the ``compile`` extra is not installed.
        InvalidProgram, EmitError, CompileError: the program cannot run.
    """
    probe()
    if executor is None:
        with Executor() as own:
            return record(
                program, inputs, launches, seed=seed, clusters=clusters, executor=own,
                after=after,
            )  # fmt: skip
    plain = compile_cubin(emit(program, trace=True))
    device, found = _launches(executor, plain, inputs, [0], buffer(program, clusters, LIMIT))
    after(1)
    if launches > 1:
        delayed = compile_cubin(emit(program, trace=True, perturb=True))
        words = buffer(program, clusters, _room(program, found[0]))
        seeds = np.random.default_rng(seed).integers(1, 1 << 31, launches - 1).tolist()
        for first in range(0, len(seeds), _BATCH):
            some = seeds[first : first + _BATCH]
            found += _launches(executor, delayed, inputs, some, words)[1]
            after(len(found))
    about = About(program.name, fingerprint(lower(program)), device.name, device.driver, seed)
    numbers = numbers_of(plain.source)
    return _together(about, found, [numbers[site] for site in sorted(plain.source.apart)])


def _launches(
    executor: Executor,
    binary: Binary,
    inputs: Mapping[str, NDArray[Any]],
    seeds: Sequence[int],
    words: NDArray[np.uint64],
) -> tuple[DeviceInfo, list[Launch]]:
    """A launch per seed, each with its own records."""
    execute = partial(
        executor.execute, binary, dict(inputs), seeds=seeds, timeout=_SECONDS, trace=words
    )
    execution = execute()
    if execution.status == "hang":
        again = execute(dump=True)  # the times do not matter any more
        execution = execution if again.status == "done" else again
    if execution.status != "done" or execution.device is None:
        name = binary.source.program.name
        raise DeviceError(f"{name} on the GPU: {execution.hang or execution.detail}")
    return execution.device, [_launch(binary.source, trace) for trace in execution.traces]


def _room(program: Program, launch: Launch) -> int:
    """Records of a cluster for which there must be room, if a launch needed what this one did;
    lanes that act on their own have room for a part only."""
    most = max(Counter(instance[:2] for instance in launch.times).values(), default=0)
    return program.cluster_size * program.warps * (OTHERS + 1) * (most + OTHERS)


def _launch(source: Source, words: NDArray[np.uint64]) -> Launch:
    areas = list(areas_of(source, words))
    if not areas:
        raise DeviceError(f"{source.program.name} has left no trace")
    if any(area.lost for area in areas):
        raise DeviceError(f"{source.program.name} executes too much to be recorded")
    rate = rate_of(areas)
    if rate is None:
        raise DeviceError(f"{source.program.name} is too short to measure the clock")
    clocks = clocks_of(areas, rate)
    times = {
        instance: (clocks[instance[0]].time(start), clocks[instance[0]].time(end))
        for instance, start, end in instances(source, areas)
    }
    return Launch(times, {cta: clock.off for cta, clock in clocks.items()})


def _together(about: About, found: Sequence[Launch], apart: Sequence[int]) -> Recorded:
    """All launches as arrays."""
    instances = sorted({i for launch in found for i in launch.times})
    ctas = sorted({cta for launch in found for cta in launch.off})
    times = np.full((len(instances), 2, len(found)), np.nan)
    for number, launch in enumerate(found):
        for place, instance in enumerate(instances):
            times[place, :, number] = launch.times.get(instance, (np.nan, np.nan))
    off = np.array([[launch.off.get(cta, np.nan) for launch in found] for cta in ctas])
    return Recorded(
        about, np.array(instances, dtype=np.int64).reshape(-1, 4), times, np.array(ctas), off,
        np.array(apart, dtype=np.int64),
    )  # fmt: skip
