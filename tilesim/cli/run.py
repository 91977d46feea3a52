"""``tilesim run``: execute kernels with numbers and compare the result with their reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from tilesim.cli.backend import Backend, backend_option, gpu_module
from tilesim.cli.group import internal_failure
from tilesim.cli.options import Progress, param_option, seed_option, strict_option, style_for
from tilesim.errors import InvalidProgram, TilesimError, UsageError
from tilesim.ir.program import Strict
from tilesim.loader import Target, load
from tilesim.report.compare import Comparison, compare
from tilesim.report.result import (
    FINDINGS,
    INCONCLUSIVE,
    INTERRUPTED,
    OK,
    Failure,
    Rejected,
    Result,
    worst,
)
from tilesim.report.text import Style, findings_text, result_text
from tilesim.sim.simulate import Run, simulate
from tilesim.words import count

#: more launches than this would only take time
MAX_PERTURB = 10_000


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@backend_option("Simulate, run on the GPU, or do both and compare.")
@click.option(
    "--perturb", metavar="N", type=click.IntRange(0, MAX_PERTURB),
    help="On the GPU, launch N times more with random delays before synchronising instructions "
    "(0 with --backend gpu, 4 with both).",
)  # fmt: skip
@strict_option
@seed_option
@param_option
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    backend: Backend,
    perturb: int | None,
    strict: Strict,
    seed: int,
    params: dict[str, str],
) -> None:
    """Run kernels on one schedule and compare what they compute with their reference.

    Inputs are the kernel's own, or small random integers from the seed. Exit: 0 equal (or nothing
    to compare with), 1 findings or a wrong result, 2 usage or input error, 3 unsupported, 130
    interrupted; the worst of several.
    """
    if backend != "sim":
        ctx.exit(_run_gpu(targets, params, backend, seed, perturb))
    if perturb is not None:
        raise UsageError(
            "--perturb delays warps of a GPU: add --backend gpu or both; "
            "tilesim check tries other schedules in the simulator"
        )
    runner = _Runner(ctx, params, strict, seed, style_for(sys.stdout), Progress())
    ctx.exit(worst(code for text in targets for code in runner.run_all(text)))


def _run_gpu(
    targets: tuple[str, ...],
    params: dict[str, str],
    backend: Backend,
    seed: int,
    perturb: int | None,
) -> int:
    """Hands over to ``run_gpu`` of the GPU backend, which prints its results and returns the exit
    code."""
    run_gpu = gpu_module("tilesim.cli.gpu", backend).run_gpu
    loaded = tuple(target for text in targets for target in load(text, params))
    code: int = run_gpu(loaded, backend=backend, seed=seed, perturb=perturb)
    return code


@dataclass(frozen=True)
class _Runner:
    """Runs targets one after another and prints each result."""

    ctx: click.Context
    params: dict[str, str]
    strict: Strict
    seed: int
    style: Style
    progress: Progress

    def run_all(self, text: str) -> Iterator[int]:
        """Runs every kernel of one target; exit codes."""
        loaded: tuple[Target, ...] = ()
        with self._reporting(text) as codes:
            loaded = load(text, self.params)
        yield from codes
        for target in loaded:
            with self._reporting(target.id) as codes:
                codes.append(self._run(target))
            yield from codes

    @contextmanager
    def _reporting(self, name: str) -> Iterator[list[int]]:
        """Prints what goes wrong with ``name`` and adds its exit code to the list."""
        self.progress.show(f"running {name}")
        codes: list[int] = []
        failed: Result | None = None
        try:
            yield codes
        except InvalidProgram as error:
            failed = Rejected(name, None, error.diagnostics)
        except TilesimError as error:
            failed = Failure(name, str(error))
        except KeyboardInterrupt:
            self.progress.clear()
            click.echo(f"interrupted while running {name}", err=True)
            self.ctx.exit(INTERRUPTED)
        except Exception as error:
            failed = internal_failure(self.ctx, name, error)
        self.progress.clear()
        if failed is not None:
            self._print(result_text(failed, self.style))
            codes.append(failed.code())

    def _run(self, target: Target) -> int:
        program = target.build()
        inputs = target.inputs(program, self.seed)
        run = simulate(program, inputs, strict=self.strict)
        expected = None if run.findings else target.expected(inputs)
        compared = None if expected is None else compare(run.outputs, expected)
        self.progress.clear()
        if run.findings:
            self._print(self._failed(target, run))
            only_unsupported = {f.rule for f in run.findings} == {"unsupported"}
            return INCONCLUSIVE if only_unsupported else FINDINGS
        wrong = any(not c.equal for c in compared or ())
        head = self.style.paint(*(("WRONG", "failed") if wrong else ("RAN", "proved")))
        lines = [f"{head} {self.style.bold(target.id)}", *_results(compared, run.outputs)]
        self._print("\n".join((*lines, _cost(run), "")))
        return FINDINGS if wrong else OK

    def _failed(self, target: Target, run: Run) -> str:
        head = f"{self.style.paint('FAILED', 'failed')} {self.style.bold(target.id)}"
        return "\n".join((head, "", findings_text(run.findings, self.style), _cost(run), ""))

    def _print(self, text: str) -> None:
        click.echo(text, nl=False, color=self.style.colour)


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
