"""``tilesim run``: execute kernels with numbers and compare the result with their reference."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from tilesim.checker.witness import Witness, compute, replay
from tilesim.cli import completing
from tilesim.cli.backend import Backend, backend_option, gpu_module
from tilesim.cli.examine import read_witness, require_parameters
from tilesim.cli.group import debugging, internal_failure, show_traceback
from tilesim.cli.options import (
    FILE,
    Progress,
    say,
    seed_option,
    strict_option,
    style_for,
    target_options,
)
from tilesim.cli.streams import OutputError
from tilesim.errors import TilesimError, UsageError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.layout import Style, labelled
from tilesim.loader import Given, Target, load
from tilesim.records import dataclass
from tilesim.report.compare import Comparison, compare
from tilesim.report.result import (
    FINDINGS,
    INCONCLUSIVE,
    INTERRUPTED,
    OK,
    Result,
    worst,
)
from tilesim.report.text import (
    Modelled,
    findings_text,
    modelled,
    refused,
    result_text,
)
from tilesim.sim.machine.simulate import Run, kernel_of, simulate
from tilesim.wording import count, printable

_PROTOCOL = ("  result    the protocol ran to its end; elements are not computed from PTX",)
#: more launches than this would only take time
MAX_PERTURB = 10_000


@click.command()
@click.argument(
    "targets", nargs=-1, required=True, metavar="TARGET...", shell_complete=completing.targets
)
@backend_option("Simulate, run on the GPU, or do both and compare.")
@click.option(
    "--perturb", metavar="N", type=click.IntRange(0, MAX_PERTURB),
    help="On the GPU, launch N times more with random delays before synchronising instructions "
    "(0 with --backend gpu, 4 with both).",
)  # fmt: skip
@click.option(
    "--replay", "witness_path", type=FILE,
    help="Run the schedule of a witness instead of the timed one, at the witness's strictness.",
)  # fmt: skip
@strict_option
@seed_option
@target_options
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    backend: Backend,
    perturb: int | None,
    witness_path: Path | None,
    strict: Strict,
    seed: int,
    given: Given,
) -> None:
    """Run kernels on one schedule and compare what they compute with their reference.

    Inputs are the kernel's own, or small random integers from the seed. Exit: 0 equal (or nothing
    to compare with), 1 findings or a wrong result, 2 usage or input error, 3 unsupported, 130
    interrupted; the worst of several.
    """
    if witness_path is not None and backend != "sim":
        raise UsageError("--replay repeats a simulated schedule: leave out --backend")
    if backend != "sim":
        ctx.exit(_run_gpu(targets, given, backend, seed, perturb))
    if perturb is not None:
        raise UsageError(
            "--perturb delays warps of a GPU: add --backend gpu or both; "
            "tilesim check tries other schedules in the simulator"
        )
    witness = None if witness_path is None else (witness_path, read_witness(witness_path))
    runner = _Runner(ctx, given, strict, seed, style_for(sys.stdout), Progress(), witness)
    ctx.exit(worst(code for text in targets for code in runner.run_all(text)))


def _run_gpu(
    targets: tuple[str, ...],
    given: Given,
    backend: Backend,
    seed: int,
    perturb: int | None,
) -> int:
    """Hands over to ``run_gpu`` of the GPU backend, which prints its results and returns the exit
    code."""
    run_gpu = gpu_module("tilesim.cli.gpu", backend).run_gpu
    loaded = tuple(target for text in targets for target in load(text, given))
    code: int = run_gpu(loaded, backend=backend, seed=seed, perturb=perturb)
    return code


@dataclass(frozen=True)
class _Runner:
    """Runs targets one after another and prints each result."""

    ctx: click.Context
    given: Given
    strict: Strict
    seed: int
    style: Style
    progress: Progress
    #: whose schedule is repeated, and the file it is from
    witness: tuple[Path, Witness] | None

    def run_all(self, text: str) -> Iterator[int]:
        """Runs every kernel of one target; exit codes."""
        loaded: tuple[Target, ...] = ()
        with self._reporting(Target(text, "")) as codes:
            loaded = load(text, self.given)
        yield from codes
        for target in loaded:
            with self._reporting(target) as codes:
                codes.append(self._run(target))
            yield from codes

    @contextmanager
    def _reporting(self, target: Target) -> Iterator[list[int]]:
        """Prints what goes wrong with ``target`` and adds its exit code to the list."""
        self.progress.show(f"running {target.id}")
        codes: list[int] = []
        failed: Result | None = None
        try:
            yield codes
        except OutputError:
            raise
        except TilesimError as error:
            show_traceback(error, debug=debugging(self.ctx))
            failed = refused(target, error)
        except KeyboardInterrupt:
            self.progress.clear()
            say(f"interrupted while running {target.id}", err=True)
            self.ctx.exit(INTERRUPTED)
        except Exception as error:
            failed = internal_failure(target.id, error, debug=debugging(self.ctx))
        self.progress.clear()
        if failed is not None:
            self._print(result_text(failed, self.style))
            codes.append(failed.code())

    def _run(self, target: Target) -> int:
        """Of PTX the protocol runs; what it computes is not known."""
        program = target.form()
        if self.witness is not None:
            return self._again(target, program, *self.witness)
        numbers = target.ptx is None
        inputs = target.inputs(kernel_of(program), self.seed)
        run = simulate(program, inputs, strict=self.strict, numbers=numbers)
        about = modelled(target, program, "the timed schedule", self.strict, self.seed)
        if run.findings:
            return self._failed(target, run, (), about)
        compared = self._compared(target, run, inputs)
        return self._ran(target, run, compared, numbers, about)

    def _again(self, target: Target, program: Program | Mir, path: Path, witness: Witness) -> int:
        """The schedule of a witness; also its numbers, unless they would be those of half a run."""
        require_parameters(target, witness, path)
        inputs = target.inputs(kernel_of(program), self.seed)
        computed: Run | None = None
        try:
            run = replay(program, witness, target.own_inputs(program, self.seed))
            if target.ptx is None and all(f.rule != "deadlock" for f in run.findings):
                computed = compute(program, witness, inputs)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        compared = None if computed is None else self._compared(target, computed, inputs)
        what = f"the schedule of {path}"
        about = modelled(target, program, what, witness.strict, self.seed)
        if run.findings:
            return self._failed(target, run, _results(compared, {}) if compared else (), about)
        if computed is None:
            return self._ran(target, run, None, False, about)
        return self._ran(target, computed, compared, True, about)

    def _compared(
        self, target: Target, run: Run, inputs: dict[str, NDArray[Any]]
    ) -> tuple[Comparison, ...] | None:
        expected = target.expected(inputs)
        return None if expected is None else compare(run.outputs, expected)

    def _ran(
        self, target: Target, run: Run, compared: tuple[Comparison, ...] | None, numbers: bool,
        about: Modelled,
    ) -> int:  # fmt: skip
        wrong = any(not c.equal for c in compared or ())
        head = self.style.paint(*(("WRONG", "failed") if wrong else ("RAN", "proved")))
        results = _results(compared, run.outputs) if numbers else _PROTOCOL
        self._lines(f"{head} {self._name(target)}", *results, *self._about(about), _cost(run))
        return FINDINGS if wrong else OK

    def _failed(self, target: Target, run: Run, results: Iterable[str], about: Modelled) -> int:
        head = f"{self.style.paint('FAILED', 'failed')} {self._name(target)}"
        found = findings_text(run.findings, self.style)
        self._lines(head, "", found, *results, *self._about(about), _cost(run))
        only_unsupported = {f.rule for f in run.findings} == {"unsupported"}
        return INCONCLUSIVE if only_unsupported else FINDINGS

    def _about(self, about: Modelled) -> Iterator[str]:
        yield from labelled("modelled", about.done, self.style)
        yield from labelled("not", about.left_out, self.style)

    def _lines(self, *lines: str) -> None:
        self.progress.clear()
        self._print("\n".join((*lines, "")))

    def _print(self, text: str) -> None:
        say(text, colour=self.style.colour)

    def _name(self, target: Target) -> str:
        return self.style.bold(printable(target.id, ""))


def _results(
    compared: tuple[Comparison, ...] | None, outputs: dict[str, NDArray[np.generic]]
) -> Iterator[str]:
    if compared is None:
        yield f"  result    no reference to compare with (tensors: {', '.join(outputs) or 'none'})"
        return
    for comparison in compared:
        yield f"  result    {comparison}"


def _cost(run: Run) -> str:
    stats = run.stats
    parts = (stats.instructions, "warp instruction"), (stats.cycles, "cycle"), (stats.ctas, "CTA")
    return "  cost      " + ", ".join(count(number, what) for number, what in parts)
