"""Launches with random delays, recorded for `tilesim.conform`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.conform.order import Instance
from tilesim.conform.recorded import About, Recorded
from tilesim.errors import UsageError
from tilesim.gpu.compile import Binary, compile_cubin
from tilesim.gpu.driver import probe
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.source import Source
from tilesim.gpu.emit.trace import is_traced
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.trace import areas_of, buffer, clocks_of, rate_of
from tilesim.gpu.watchdog import Executor
from tilesim.ir.lower import lower
from tilesim.ir.program import Program
from tilesim.ir.text.mir import fingerprint

#: records of a cluster that a launch may leave
LIMIT = 50_000
#: seconds after which a launch counts as hung
_SECONDS = 1.5

Launch = dict[Instance, tuple[float, float]]


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
    delayed = compile_cubin(emit(program, trace=True, perturb=True))
    seeds = np.random.default_rng(seed).integers(1, 1 << 31, launches)
    words, found, device = buffer(program, clusters, LIMIT), [], None
    for number, own_seed in enumerate(seeds):
        binary: Binary = delayed if number else plain
        execution = executor.execute(
            binary, inputs, seeds=(int(own_seed),), timeout=_SECONDS, trace=words
        )
        if execution.status != "done" or execution.trace is None or execution.device is None:
            raise DeviceError(f"launch {number} of {program.name}: {execution.status}")
        device = execution.device
        found.append(_launch(binary.source, execution.trace))
        after(number + 1)
    if device is None:
        raise UsageError("no launches were asked for")
    about = About(program.name, fingerprint(lower(program)), device.name, device.driver, seed)
    return _together(about, found)


def _launch(source: Source, words: NDArray[np.uint64]) -> tuple[Launch, dict[int, float]]:
    """When each instruction was entered and left in ns, and how far each CTA's clock may be off."""
    areas = list(areas_of(source, words))
    if not areas:
        raise DeviceError(f"{source.program.name} has left no trace")
    if any(area.lost for area in areas):
        raise DeviceError(f"{source.program.name} executes too much to be recorded")
    rate = rate_of(areas)
    if rate is None:
        raise DeviceError(f"{source.program.name} is too short to measure the clock")
    clocks = clocks_of(areas, rate)
    numbers = [op.number for op in lower(source.program).ops() if is_traced(op)]
    if len(numbers) != len(source.traced):
        raise DeviceError(f"{source.program.name}: the trace has other instructions")
    counts: Counter[tuple[int, int, int]] = Counter()
    launch: Launch = {}
    for area in areas:
        time = clocks[area.cta].time
        for start, end, site, _ in area.records:
            place = area.cta, area.warp, numbers[site]
            launch[*place, counts[place]] = time(start), time(end)
            counts[place] += 1
    return launch, {cta: clock.off for cta, clock in clocks.items()}


def _together(about: About, found: list[tuple[Launch, dict[int, float]]]) -> Recorded:
    """All launches as arrays."""
    instances = sorted({i for launch, _ in found for i in launch})
    ctas = sorted({cta for _, off in found for cta in off})
    times = np.full((len(instances), 2, len(found)), np.nan)
    for number, (launch, _) in enumerate(found):
        for place, instance in enumerate(instances):
            times[place, :, number] = launch.get(instance, (np.nan, np.nan))
    off = np.array([[o.get(cta, np.nan) for _, o in found] for cta in ctas])
    return Recorded(
        about, np.array(instances, dtype=np.int64).reshape(-1, 4), times, np.array(ctas), off
    )
