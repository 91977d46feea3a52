"""``tilesim trace``: the timeline of one run, simulated or on a GPU, for ui.perfetto.dev."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from numpy.typing import NDArray

from tilesim.checker.witness import Witness, replay, retrace, timed
from tilesim.cli import completing
from tilesim.cli.backend import Backend, backend_option, gpu_module
from tilesim.cli.examine import read_witness, require_parameters
from tilesim.cli.options import (
    FILE,
    Progress,
    format_option,
    say,
    seed_option,
    strict_option,
    style_for,
    target_options,
    write_file,
)
from tilesim.conform.barriers import with_barriers
from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.layout import PLAIN, Style
from tilesim.loader import Given, Target, load_one
from tilesim.predict.predict import Prediction, predict, prediction_json
from tilesim.records import dataclass, replace
from tilesim.report.document import SCHEMA
from tilesim.report.json import finding_json
from tilesim.report.result import FINDINGS, OK
from tilesim.report.text import findings_text
from tilesim.report.timeline import TraceSource, parts_json, strips
from tilesim.sim.machine.simulate import kernel_of
from tilesim.sim.observers.timeline import LIMIT, Recording, Timeline, record
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.gpu.trace import GpuRecording

_MICRO = 1e-3


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completing.targets)
@click.option(
    "-o", "--output", type=FILE, default="trace.json", show_default=True,
    help="Where to write the trace.",
)  # fmt: skip
@backend_option("Record a simulated run, one on the GPU, or both in one file.")
@click.option(
    "--clusters", type=click.IntRange(1, 1024), default=1, show_default=True,
    help="How many clusters to record.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(1, 10_000_000), default=LIMIT, show_default=True,
    help="Events to keep at most per cluster.",
)  # fmt: skip
@click.option(
    "--replay", "witness_path", type=FILE,
    help="Record the schedule of a witness instead of the timed one.",
)  # fmt: skip
@click.option("--text", is_flag=True, help="Also draw the timeline in the terminal.")
@click.option(
    "--predict", "predicted", is_flag=True,
    help="Also estimate how long the kernel takes on an H200: a prediction, no verdict.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Write what repeats itself once, and how often it does.")
@format_option
@strict_option
@seed_option
@target_options
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    output: Path,
    backend: Backend,
    clusters: int,
    limit: int,
    witness_path: Path | None,
    text: bool,
    predicted: bool,
    once: bool,
    output_format: str,
    strict: Strict,
    seed: int,
    given: Given,
) -> None:
    """Run a kernel and write its timeline as Chrome JSON, which ui.perfetto.dev opens.

    Exit: 0, 1 if the run has findings or hangs (the trace is written all the same), 2 usage or
    input error, or nothing to run on.
    """
    found = load_one(target, given)
    progress = Progress()
    progress.show(f"running {found.id}")
    program = found.build() if backend != "sim" else found.form()
    kernel = kernel_of(program)
    if witness_path is None:
        runs = _record(program, found.inputs(kernel, seed), backend, strict, clusters, limit)
    elif backend != "sim":
        raise UsageError("--replay repeats a simulated schedule: leave out --backend")
    else:
        runs = _Runs(_replayed(found, program, witness_path, seed, limit), None)
    if predicted:
        progress.show(f"predicting {found.id}")
        runs = replace(runs, prediction=_prediction(program))
    parts = [replace(part, once=once) for part in runs.parts()]
    write_file(output, parts_json(parts, kernel.name))
    progress.clear()
    if output_format == "json":
        click.echo(json.dumps(runs.document(found.id, output), indent=2))
    else:
        runs.say(output, text)
    ctx.exit(FINDINGS if runs.findings or (runs.gpu and runs.gpu.hang) else OK)


def _prediction(program: Program | Mir) -> Prediction:
    """How long the kernel takes on the GPU that has been measured."""
    if not isinstance(program, Program):
        raise UsageError("--predict is for kernels written in the DSL")
    return predict(program)


def _record(
    program: Program | Mir,
    inputs: Mapping[str, NDArray[Any]],
    backend: Backend,
    strict: Strict,
    clusters: int,
    limit: int,
) -> _Runs:
    """The runs that ``backend`` asks for; the GPU first, which may be missing."""
    gpu: GpuRecording | None = None
    simulated: Recording | None = None
    without = ""
    if backend != "sim":
        record_gpu = gpu_module("tilesim.gpu.trace", backend).record_gpu
        gpu = record_gpu(program, inputs, clusters=clusters, limit=limit)
        gpu, without = _with_barriers(gpu, program, inputs)
    if backend != "gpu":
        simulated = record(program, inputs, strict=strict, clusters=clusters, limit=limit)
        if simulated.findings:
            simulated = _with_causes(simulated, program, timed(program, strict, clusters), inputs)
    return _Runs(simulated, gpu, without)


def _with_causes(
    recording: Recording,
    program: Program | Mir,
    witness: Witness | Mapping[str, Any],
    inputs: Mapping[str, NDArray[Any]] | None,
) -> Recording:
    """The findings as `tilesim check` has them of the same schedule."""
    if not recording.findings:
        return recording
    return replace(recording, findings=replay(program, witness, inputs).findings)


def _with_barriers(
    gpu: GpuRecording, program: Program | Mir, inputs: Mapping[str, NDArray[Any]]
) -> tuple[GpuRecording, str]:
    """The launch with the counters of barriers, and why there are none."""
    if gpu.hang is not None:
        return gpu, "the kernel hangs"
    if gpu.lost:
        return gpu, "records are missing"
    try:
        timelines = with_barriers(gpu.timelines, program, inputs, gpu.times)
    except UsageError as error:
        return gpu, str(error)
    return replace(gpu, timelines=timelines), ""


def _replayed(
    found: Target, program: Program | Mir, path: Path, seed: int, limit: int
) -> Recording:
    """The schedule of a witness, with the inputs that ``tilesim check`` has."""
    witness = read_witness(path)
    require_parameters(found, witness, path)
    inputs = found.own_inputs(program, seed)
    try:
        recording = retrace(program, witness, inputs, limit=limit)
        return _with_causes(recording, program, witness, inputs)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


@dataclass(frozen=True)
class _Runs:
    """What was recorded: at least one of the two; why the GPU's is ``without`` counters."""

    simulated: Recording | None
    gpu: GpuRecording | None
    without: str = ""
    prediction: Prediction | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong in the simulated run."""
        return self.simulated.findings if self.simulated else ()

    def say(self, output: Path, text: bool) -> None:
        """Prints what was found and written, with ``text`` the timeline, too."""
        style = style_for(sys.stdout)
        if self.findings:
            click.echo(findings_text(self.findings, style), color=style.colour)
        if self.gpu and self.gpu.hang:
            say(str(self.gpu.hang))
        if text:
            say("\n\n".join("\n".join(strip) for strip in self._strips(style)) + "\n")
        say("\n".join(self.summary(output)))

    def document(self, kernel: str, output: Path) -> dict[str, Any]:
        """What ``say`` prints, for ``--format json``; ``text``: the lines of each cluster."""
        return {
            "schema": SCHEMA,
            "kernel": kernel,
            "output": str(output),
            "findings": [finding_json(finding, None) for finding in self.findings],
            "hang": str(self.gpu.hang) if self.gpu and self.gpu.hang else None,
            "truncated": any(t.truncated for part in self.parts() for t in part.timelines),
            "text": self._strips(PLAIN),
            "without_counters": self.without or None,
            "prediction": None if self.prediction is None else prediction_json(self.prediction),
        }

    def _strips(self, style: Style) -> list[list[str]]:
        drawn = [timeline for part in self.parts() for timeline in part.timelines]
        return [list(strips(timeline, style)) for timeline in drawn]

    def parts(self) -> list[TraceSource]:
        """The parts of the trace.

        A simulated cycle is one microsecond of the trace, and a nanosecond of a GPU a thousandth;
        beside a GPU a simulated cycle takes as long as one of the GPU did.
        """
        parts = []
        clock = self.gpu.megahertz if self.gpu else None
        if self.simulated:
            about: dict[str, Any] = {"source": "simulator"}
            if clock:
                about["clock_mhz"] = round(clock, 1)
            title = " (simulator)" if self.gpu else ""
            scale = 1 / clock if clock else 1.0
            parts.append(TraceSource(self.simulated.timelines, scale, about, title))
        if self.gpu:
            about = {
                "source": "gpu", "gpu": self.gpu.device.name, "driver": self.gpu.device.driver,
                "clock_mhz": None if clock is None else round(clock, 1), "lost": self.gpu.lost,
            }  # fmt: skip
            title = " (GPU)" if self.simulated else ""
            parts.append(TraceSource(self.gpu.timelines, _MICRO if clock else 1.0, about, title))
        return parts

    def summary(self, output: Path) -> list[str]:
        """What was written, for the terminal."""
        what = []
        if self.simulated:
            what.append(_extent(self.simulated.timelines, self._unit, ""))
        if self.gpu:
            unit = "ns" if self.gpu.megahertz else "cycle"
            what.append(_extent(self.gpu.timelines, unit, f" on {self.gpu.device.name}"))
        lines = [f"wrote {output}: {'; '.join(what)}"]
        if self.simulated and any(t.truncated for t in self.simulated.timelines):
            lines.append("  cut       the limit was reached; --limit keeps more")
        if self.gpu and self.gpu.lost:
            lost = count(self.gpu.lost, "record")
            lines.append(f"  cut       {lost} on the GPU found no room; --limit keeps more")
        if self.without:
            lines.append(f"  counters  none of barriers, nor arrows to waits: {self.without}")
        if self.prediction:
            lines.append(f"  predicted {self.prediction}")
        lines.append(f"  open      https://ui.perfetto.dev{self._note()}")
        return lines

    @property
    def _unit(self) -> str:
        """What simulated time is counted in."""
        return self.simulated.timelines[0].unit if self.simulated else "cycle"

    def _note(self) -> str:
        clock = self.gpu.megahertz if self.gpu else None
        if clock is None:
            return f" (one {self._unit} is shown as one microsecond)"
        return f" (one simulated cycle is shown as {1e3 / clock:.3f} ns)" if self.simulated else ""


def _extent(timelines: tuple[Timeline, ...], unit: str, where: str) -> str:
    slices = sum(len(t.slices) for t in timelines)
    ctas = sum(len(t.ctas) for t in timelines)
    end = int(max((t.end for t in timelines), default=0))
    length = f"{end:,} ns" if unit == "ns" else count(end, unit)
    return f"{length}{where}, {count(ctas, 'CTA')}, {count(slices, 'slice')}"
