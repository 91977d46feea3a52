"""Runs the probes on a GPU: ``python -m benchmarks.calibration.run --json FILE``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import gemm
from benchmarks.calibration import probes
from tilesim.gpu.compile import Binary, compile_cubin
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program

#: a probe: its name and its parameters
Probe = tuple[str, dict[str, Any]]
#: cycles of the loop that reads the clock after a kernel
CLOCK_CYCLES = 40_000


def plan() -> Iterator[Probe]:
    """Every run of a probe."""
    for n in (8, 16, 32, 64, 96, 128, 192, 256):
        for groups in (1, 2):
            for turns in (32, 64):
                yield "products", {"n": n, "groups": groups, "turns": turns}
    for n in (64, 128, 256):
        for turns in (32, 64):
            yield "products", {"n": n, "turns": turns, "source": "registers"}
            yield "products", {"n": n, "turns": turns, "unit": "e4m3"}
            yield "products", {"n": n, "turns": turns, "unit": "e4m3", "groups": 2}
            for count in (1, 4, 8):
                yield "products", {"n": n, "turns": turns, "count": count, "wait": True}
    for rows in (8, 16, 32, 64, 128, 256):
        yield "copy_latency", {"rows": rows}
        yield "store_latency", {"rows": rows, "read": True}
        yield "store_latency", {"rows": rows, "read": False}
    for ctas in (1, 2, 4, 8, 16, 33, 66, 99, 132):
        for span in (1 << 17, 1 << 24):
            yield "stream", {"ctas": ctas, "span": span, "boxes": 512}
    for rows, stages in ((8, 16), (16, 16), (32, 16), (64, 8), (128, 2), (128, 4), (256, 4)):
        yield "stream", {"ctas": 1, "rows": rows, "stages": stages, "span": 1 << 17}
        yield "stream", {"ctas": 132, "rows": rows, "stages": stages, "span": 1 << 17}
    for together in (2, 4, 11, 33, 66, 132):
        yield "stream", {"span": 1 << 18, "together": together, "boxes": 512}
    for across in (2, 4, 8, 16, 32, 64):
        for stages in (4, 8):
            yield "stream", {
                "span": 1 << 20, "across": across, "boxes": 512, "stages": stages
            }  # fmt: skip
    for turns in (64, 128):
        yield "ping_pong", {"turns": turns}
        yield "far_ping_pong", {"turns": turns}
        for warps in (1, 2, 4, 8, 12, 16):
            yield "barriers", {"turns": turns, "warps": warps}
        for ctas in (2, 4, 8):
            yield "cluster_barriers", {"turns": turns, "ctas": ctas}
        for what in ("wait", "arrive", "fence", "release", "relaxed"):
            yield "waits", {"turns": turns, "what": what}
    for what in probes.TILES:
        for columns in (64,) if what == "swizzled" else (64, 128):
            for groups in (1, 2, 3):
                for turns in (16, 32):
                    yield "tile", {
                        "what": what, "turns": turns, "groups": groups, "columns": columns
                    }  # fmt: skip
    for turns in (16, 32, 64):
        yield "tile", {"what": "global", "turns": turns, "ctas": 132, "columns": 128}
    for ctas in (132, 264, 528):
        yield "waves", {"ctas": ctas, "turns": 4000}
    yield "waves", {"ctas": 1, "turns": CLOCK_CYCLES}


#: `probes.load`: (pause, boxes per 100 groups, rest) from tensor cores that are always busy on
LOADS: tuple[dict[str, int], ...] = tuple(
    {"turns": 3000, "pause": pause, "boxes": boxes, "rest": rest}
    for pause in (0, 100, 300, 600, 1200, 2400)
    for boxes, rest in ((0, 0), (4500, 600), (6000, 300), (9000, 100), (9000, 0))
)


#: launches that do next to nothing
EMPTY: tuple[Probe, ...] = (
    ("nothing", {}),
    ("stream", {"boxes": 1, "threads": 384, "stages": 12}),
    ("stream", {"boxes": 4, "threads": 384, "stages": 12}),
    ("stream", {"boxes": 1, "threads": 64, "stages": 1}),
    ("stream", {"boxes": 1, "threads": 64, "stages": 1, "ctas": 528}),
)


def program_of(probe: Probe) -> Program:
    """The program of a probe."""
    name, parameters = probe
    found: Program = getattr(probes, name).build(**parameters)
    return found


def arrays_of(torch: Any, program: Program) -> dict[str, Any]:
    """Normally distributed values for every tensor, zeros for integers."""
    kinds = {"bf16": torch.bfloat16, "f32": torch.float32, "s64": torch.int64,
             "e4m3": torch.float8_e4m3fn}  # fmt: skip
    found = {}
    for t in program.tensors:
        if t.dtype.kind == "float":
            values = torch.empty(t.shape, device="cuda", dtype=torch.bfloat16).normal_()
            found[t.name] = values.to(kinds[t.dtype.name])
        else:
            found[t.name] = torch.zeros(t.shape, device="cuda", dtype=kinds[t.dtype.name])
    return found


def warm(build: Callable[[Probe], Program], probe_list: Sequence[Probe], folder: Path) -> None:
    """Compiles what ``build`` makes of each on all cores, into a folder."""
    count = len(probe_list)
    with ProcessPoolExecutor() as pool:
        list(pool.map(_compile, [build] * count, probe_list, [folder] * count))


def _compile(build: Callable[[Probe], Program], probe: Probe, folder: Path) -> None:
    compile_cubin(emit(build(probe)), directory=folder)


class Device:
    """Runs probes."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self.torch = torch
        self.folder = folder

    def binary(self, program: Program) -> Binary:
        """What was compiled."""
        return compile_cubin(emit(program), directory=self.folder)

    def cycles(self, probe: Probe, times: int = 7) -> list[list[int]]:
        """``out`` of every launch after the first."""
        program = program_of(probe)
        arrays = arrays_of(self.torch, program)
        start = prepare(self.binary(program), arrays)
        found = []
        for _ in range(times + 1):
            start()
            self.torch.cuda.synchronize()
            found.append(arrays["out"].flatten().tolist())
        return found[1:] if probe[0] != "copy_latency" else found

    def megahertz(self, runs: Sequence[Any]) -> float:
        """The SM clock right after ``runs``: cycles of a loop and the timer around it."""
        program = program_of(("waves", {"ctas": 1, "turns": CLOCK_CYCLES}))
        arrays = arrays_of(self.torch, program)
        start = prepare(self.binary(program), arrays)
        for run in runs:
            run()
        start()
        self.torch.cuda.synchronize()
        first, last = arrays["out"].flatten().tolist()
        return 1e3 * CLOCK_CYCLES / float(last - first)

    def loaded(self, parameters: dict[str, int], seconds: float = 0.25) -> dict[str, float]:
        """What the SMs do under a load that has lasted so long, and at which clock."""
        program = program_of(("load", parameters))
        arrays = arrays_of(self.torch, program)
        start = prepare(self.binary(program), arrays)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(4):
                start()
            self.torch.cuda.synchronize()
        rows = arrays["out"].tolist()
        cycles, ns, copies = (median(row[i] for row in rows) for i in range(3))
        return {
            **parameters, "megahertz": 1e3 * cycles / ns,
            "duty": parameters["turns"] * 8 * 128 / cycles,
            "rate": parameters["boxes"] * 16384 / copies if parameters["boxes"] else 0.0,
            "copies": copies / cycles,
        }  # fmt: skip

    def watch(self) -> Callable[[], float]:
        """Starts to watch the clock beside what runs; what is returned says it in MHz."""
        program = program_of(("clock", {"cycles": 60_000_000}))
        arrays = arrays_of(self.torch, program)
        stream = self.torch.cuda.Stream()
        self.torch.cuda.synchronize()
        prepare(self.binary(program), arrays)(stream)

        def read() -> float:
            stream.synchronize()
            cycles, ns = arrays["out"].tolist()
            return 1e3 * float(cycles) / float(ns)

        return read


def launches(device: Device, probe: Probe) -> float:
    """Microseconds of a launch within a graph of 64."""
    torch = device.torch
    program = program_of(probe)
    start = prepare(device.binary(program), arrays_of(torch, program))
    graph = torch.cuda.CUDAGraph()
    start()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(64):
            start(torch.cuda.current_stream())
    found = []
    for _ in range(20):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        found.append(a.elapsed_time(b) * 1e3 / 64)
    return float(median(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all probes; 2 if there is no GPU or no torch."""
    parser = argparse.ArgumentParser(prog="benchmarks.calibration.run")
    parser.add_argument("--json", type=Path, required=True, help="where to write the figures")
    parser.add_argument("--cubins", type=Path, default=Path("/tmp/cubins"))
    options = parser.parse_args(arguments)
    try:
        gemm.requirements()
    except (DeviceError, MissingExtra) as error:
        print(f"benchmarks.calibration: {error}", file=sys.stderr)
        return 2
    torch = import_module("torch")
    probe_list = list(plan())
    warm(program_of, [*probe_list, *(("load", p) for p in LOADS), *EMPTY], options.cubins)
    device = Device(torch, options.cubins)
    figures: dict[str, Any] = {"environment": gemm.environment(), "multiprocessors":
                               gpu().info.multiprocessors}  # fmt: skip
    rows: list[Mapping[str, Any]] = []
    for name, parameters in probe_list:
        found = device.cycles((name, parameters))
        rows.append({"probe": name, **parameters, "out": _short(name, found)})
    figures["probes"] = rows
    figures["launches"] = [
        {"probe": n, **p, "us": launches(device, (n, p)), "cycles": device.cycles((n, p))[-1][:4]}
        for n, p in EMPTY
    ]
    figures["loads"] = [device.loaded(p) for p in LOADS]
    options.json.write_text(json.dumps(figures) + "\n")
    for row in (*figures["loads"], *figures["launches"]):
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
    return 0


def _short(name: str, found: Sequence[Sequence[int]]) -> Any:
    """What is kept of the launches: all of the first and the last where places differ."""
    if name in ("copy_latency", "store_latency", "waves"):
        return [found[0], found[-1]]
    return [median(values) for values in found]


if __name__ == "__main__":
    raise SystemExit(main())
