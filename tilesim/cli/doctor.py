"""``tilesim doctor``: what is installed, and what to install for what."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import click

import tilesim
from tilesim.cubin import ptxas as compilers
from tilesim.cubin.disassembly import disassemble, nvdisasm
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image
from tilesim.cubin.ptxas import Ptxas
from tilesim.cubin.wrong_forms import WRONG_FORMS, WrongForm, known_wrong_forms
from tilesim.errors import TilesimError
from tilesim.gpu.errors import MissingExtra
from tilesim.loader.machine_code import kernels_of
from tilesim.records import dataclass
from tilesim.report.result import FINDINGS, OK, USAGE
from tilesim.translation import validate

_BASE = ("click", "numpy", "simpy", "ml_dtypes")
_COMPILE = ("cuda-core", "nvidia-cuda-nvrtc")
_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_PROBE_SECONDS = 20
#: asks the driver, not a library that may not be installed; a sick driver may hang, so it runs in
#: a process of its own
_PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
status = cuda.cuInit(0)
if status:
    raise SystemExit(f"cuInit failed with CUDA error {status}")
count, number, driver = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(driver))
cuda.cuDeviceGetCount(ctypes.byref(count))
print(f"{driver.value // 1000}.{driver.value % 1000 // 10}")
for index in range(count.value):
    name = ctypes.create_string_buffer(128)
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(number), index)
    cuda.cuDeviceGetName(name, 128, number)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, number)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, number)
    print(f"{name.value.decode()} (compute capability {major.value}.{minor.value})")
"""


@dataclass(frozen=True)
class Gpu:
    """What the driver says: its CUDA version, the devices, or why there are none."""

    driver: str = ""
    devices: tuple[str, ...] = ()
    problem: str = ""


#: what a compiler makes of the kernel that shows a form
_Made = Callable[[WrongForm], Image]
#: ``--ptxas`` without a PATH
_INSTALLED = "installed"


@click.command()
@click.option(
    "--ptxas", "given", metavar="[PATH]", multiple=True, is_flag=False, flag_value=_INSTALLED,
    help="Say which forms of machine code that are known to be wrong this ptxas makes; without "
    "PATH each one that is installed, NVRTC too.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, given: tuple[str, ...]) -> None:
    """Show the versions of what tilesim uses, and what to install for the rest.

    Exit: 0 if everything for checking is there, 2 if not. With --ptxas: 0 if it makes no form that
    is known to be wrong, 1 if it does, 2 if there is no ptxas or nvdisasm.
    """
    if given:
        ctx.exit(FINDINGS if _wrong_forms(given) else OK)
    missing = [name for name in _BASE if installed(name) is None]
    click.echo("\n".join(_report(missing, probe())))
    ctx.exit(USAGE if missing else OK)


def _wrong_forms(given: Sequence[str]) -> bool:
    """Says of each ptxas which wrong forms it makes, and whether any does.

    Raises:
        CubinError: there is no ptxas, one cannot be run, or there is no nvdisasm.
    """
    nvdisasm()
    found = False
    for path in given:
        nvrtc = _nvrtc() if path == _INSTALLED else ""
        if nvrtc:
            found |= _said(nvrtc, _made_by_nvrtc)
        try:
            for ptxas in compilers.installed(None if path == _INSTALLED else path):
                found |= _said(str(ptxas), partial(_compiled, ptxas))
        except CubinError:
            if not nvrtc:
                raise
    return found


def _said(compiler: str, made: _Made) -> bool:
    """Says which wrong forms a compiler makes, and whether any."""
    click.echo(compiler)
    found = False
    for form in WRONG_FORMS:
        wrong, said = _made(made, form)
        found |= wrong
        click.echo(f"  {form.arch:10}{form.form}: {said}")
    return found


def _nvrtc() -> str:
    """NVRTC, which has a ptxas of its own, in words; empty if it is not installed."""
    from tilesim.gpu.compile import versions  # an extra

    try:
        return f"NVRTC {versions()['nvrtc']}"
    except MissingExtra:
        return ""


def _compiled(ptxas: Ptxas, form: WrongForm) -> Image:
    """What a ptxas makes of the kernel that shows a form."""
    return compilers.compile_ptx(ptxas, form.kernel, "the kernel that shows it", form.arch)


def _made_by_nvrtc(form: WrongForm) -> Image:
    """What NVRTC makes of it."""
    from tilesim.gpu.compile import cubin_of  # an extra

    return Image(cubin_of(form.cuda, form.arch), "what NVRTC makes")


def _made(makes: _Made, form: WrongForm) -> tuple[bool, str]:
    """Whether a compiler makes a wrong form, and what is said of it."""
    try:
        made = _seen(makes(form), form)
    except TilesimError as error:  # one refuses what it does not know yet
        return False, f"not known: {error}"
    if not made:
        return False, "not made"
    return True, f"WRONG: {made[0]}: {form.wrong}; {form.ask}"


def _seen(image: Image, form: WrongForm) -> list[str]:
    """Where the machine code of a kernel that shows a form has it."""
    if form.has is None:
        (symbol,) = kernels_of(image)
        return [one.sass for one in validate(image, symbol, image.ptx or "").findings]
    functions = disassemble(image, image.functions)
    found = (one for function in functions for one in known_wrong_forms(function))
    return [str(one.instruction) for one in found if one.form == form]


def installed(*names: str) -> str | None:
    """The version of the first of these distributions that is installed."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def probe() -> Gpu:
    """Asks the CUDA driver for devices, in another process and not for ever."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Gpu(problem=f"the driver does not answer within {_PROBE_SECONDS} s")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["unknown error"])[-1]
        missing = "libcuda.so.1" in last
        return Gpu(problem="no driver (libcuda.so.1 not found)" if missing else last)
    if len(lines) == 1:
        return Gpu(lines[0], problem="the driver sees no device")
    return Gpu(lines[0], tuple(lines[1:]))


def _report(missing: list[str], gpu: Gpu) -> Iterator[str]:
    yield _row("tilesim", tilesim.__version__)
    yield _row("python", f"{platform.python_version()} ({sys.platform} {platform.machine()})")
    for name in _BASE:
        yield _row(name, installed(name) or "missing")
    for name in _COMPILE:
        yield _row(name, installed(name) or "not installed")
    cupy = installed(*_CUPY)
    yield _row("cupy", cupy or "not installed")
    reader = _nvdisasm()
    yield _row("nvdisasm", reader or "not installed")
    yield _row("driver", f"CUDA {gpu.driver}" if gpu.driver else gpu.problem)
    for device in gpu.devices or (["none"] if gpu.driver else []):
        yield _row("GPU", device)
    yield ""
    yield from _advice(missing, cupy, gpu, reader)


def _nvdisasm() -> str | None:
    """Where what reads machine code is; None if it is not there."""
    try:
        return nvdisasm()
    except CubinError:
        return None


def _row(name: str, value: str) -> str:
    return f"{name:18}{value}"


def _advice(missing: list[str], cupy: str | None, gpu: Gpu, reader: str | None) -> Iterator[str]:
    if missing:
        yield f"check, run:  missing {', '.join(missing)}; pip install --force-reinstall tilesim"
    else:
        yield "check, run:  ready"
    compiler = all(installed(name) for name in _COMPILE)
    yield (
        "compile:     ready"
        if compiler
        else "compile:     to compile kernels without a GPU, pip install 'tilesim[compile]'"
    )
    if reader is None:
        yield "autopsy:     to read core dumps of GPUs, pip install 'tilesim[autopsy]'"
    else:
        yield "autopsy:     ready"
    if not gpu.devices:
        yield f"gpu:         to run kernels, use a machine with a GPU ({gpu.problem})"
    elif not (compiler and cupy):
        yield "gpu:         to run kernels on the GPU, pip install 'tilesim[gpu]'"
    else:
        yield "gpu:         ready"
