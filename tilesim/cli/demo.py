"""``tilesim demo``: a correct GEMM is simulated and proved, a real deadlock is explained."""

from __future__ import annotations

import sys
from dataclasses import replace

import click
import numpy as np

from tilesim.checker import check
from tilesim.cli.options import style_for
from tilesim.kernels.hopper import matmul_v5
from tilesim.kernels.nvfuser import printed
from tilesim.layout import Style
from tilesim.loader import load
from tilesim.report.compare import compare
from tilesim.report.result import Checked
from tilesim.report.text import headlines, result_text
from tilesim.sim.machine.simulate import simulate

_GEMM = f"{matmul_v5.__name__}::matmul"
_PRINTED = f"{printed.__name__}::printed"
_BARRIERS = f"{_PRINTED}[register_sharing=False]"
_BETWEEN = """\
Its padding warps execute the wrong setmaxnreg. With setmaxnreg left out, what remains is the
deadlock of its barriers: the copies of T1 are predicated away, so full[0] never gets its second
arrival."""


@click.command()
def command() -> None:
    """Simulate a Hopper GEMM, prove its barriers, and explain a deadlock from the field."""
    style = style_for(sys.stdout)
    for part in (gemm_text(style), proof_text(style), deadlock_text(style), next_text(style)):
        click.echo(part, color=style.colour)


def gemm_text(style: Style) -> str:
    """Step 1: the GEMM computes what NumPy computes."""
    (target,) = load(_GEMM)
    program = target.build()
    inputs = target.inputs(program, seed=0)
    run = simulate(program, inputs)
    product = inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32).T
    (result,) = compare(run.outputs, {"C": product.astype(run.outputs["C"].dtype)})
    m, n = result.shape
    return "\n".join(
        (
            style.bold("1. A warp-specialised Hopper GEMM, simulated and compared with NumPy"),
            "",
            f"  kernel    {_GEMM}",
            f"            C ({m}x{n}) = A @ B.T, {program.ctas} CTAs of {program.warps} warps: TMA "
            "producer, two wgmma consumers",
            f"  result    {result}",
            f"  cost      {run.stats.instructions:,} warp instructions, {run.stats.cycles:,} "
            "simulated cycles",
            "",
        )
    )


def proof_text(style: Style) -> str:
    """Step 2: its barriers work on every schedule."""
    return (
        style.bold("2. Its barrier protocol, on every schedule")
        + "\n\n"
        + result_text(_checked(_GEMM), style)
    )


def deadlock_text(style: Style) -> str:
    """Step 3: the kernel of nvFuser #5076, as printed in short and without setmaxnreg in full."""
    return "\n".join(
        (
            style.bold(
                "3. A kernel that hangs: two asynchronous warps, as printed in nvFuser #5076"
            ),
            "",
            headlines(_checked(_PRINTED), style),
            "",
            _BETWEEN,
            "",
            result_text(_checked(_BARRIERS), replace(style, verbose=True)),
        )
    )


def next_text(style: Style) -> str:
    """Where to go from here."""
    return "\n".join(
        (
            style.bold("What next"),
            "",
            "  tilesim explain deadlock          what the rule means, an example and its fix",
            "  tilesim check FILE.py             check your own kernel; exit 1 if it fails",
            "  tilesim run FILE.py::kernel       simulate it with numbers",
            "  tilesim doctor                    what is installed for compiling and running",
        )
    )


def _checked(text: str) -> Checked:
    (target,) = load(text)
    program = target.build()
    return Checked(target.id, program.target.name, check(program))
