"""``tilesim capture``: runs a program without a GPU and records every kernel it would launch; or
any command, and keeps what its compilers hand to ptxas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from tilesim.capture.program import ended, run
from tilesim.capture.ptxas import run as keep_ptx
from tilesim.cli.options import FOLDER
from tilesim.errors import UsageError

_TARGETS = ("sm_90a", "sm_100a", "sm_103a")
#: exit code 0 where kernels can be captured
_PROBE = """
import sys
from importlib.util import find_spec
from tilesim.recording.host import ADAPTERS
def there(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        return False
sys.exit(not any(map(there, ADAPTERS)))
"""


@click.command("capture", context_settings={"ignore_unknown_options": True})
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the kernels.")
@click.option(
    "--target", type=click.Choice(_TARGETS), default="sm_90a", help="The GPU it is told it has."
)
@click.option(
    "--ptxas", is_flag=True, help="Keep the PTX of every ptxas that COMMAND runs; no launches."
)
@click.option(
    "--inductor", is_flag=True, help="torch.compile compiles, and its kernels are recorded."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context, output: Path, target: str, ptxas: bool, inductor: bool,
    command: tuple[str, ...],
) -> None:  # fmt: skip
    """Runs COMMAND without a GPU and records the kernels that it launches.

    COMMAND is a Python script with Triton kernels, or a program with CUDA kernels and their PTX
    (nvcc -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]' -lineinfo). Tensors of a script have
    shapes and no data; a script in which a value of one decides ends there (the environment has
    TILESIM_CAPTURE). A program has memory, and no kernel changes it. Each distinct kernel and
    launch is written as NAME.ptx and NAME.json, for `tilesim check FOLDER`.

    With --ptxas COMMAND is anything that compiles (make, a script, a test). It runs as always, and
    what its compilers hand to ptxas is kept, with launches to be filled in.
    """
    if any(output.glob("*.ptx")):
        raise UsageError(f"{output} has kernels already: name an empty folder, or delete them")
    if ptxas:
        if context.get_parameter_source("target") is ParameterSource.COMMANDLINE:
            raise UsageError("--target is for programs that launch: --ptxas keeps what is compiled")
        raise SystemExit(keep_ptx(command, output))
    program, *arguments = command
    if program.endswith(".py"):
        interpreter, arguments = sys.executable, [program, *arguments]
    elif Path(program).name.startswith("python") and arguments:
        interpreter = program
    else:
        if inductor:
            raise UsageError("--inductor is for Python scripts")
        raise SystemExit(run(command, output, target))
    _require_triton(interpreter)
    if inductor:
        arguments.insert(0, "--inductor")
    host = [interpreter, "-m", "tilesim.recording.host", str(output), target, *arguments]
    raise SystemExit(ended(subprocess.Popen(host)))


def _require_triton(interpreter: str) -> None:
    try:
        found = subprocess.run([interpreter, "-c", _PROBE], check=False).returncode == 0
    except OSError as error:
        raise UsageError(f"{interpreter} cannot be run: {error.strerror}") from error
    if not found:
        raise UsageError(
            f"{interpreter} has no compiler to record: pip install 'tilesim[triton]' there"
        )
