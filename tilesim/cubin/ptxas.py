"""Compiling PTX to cubins by ptxas: which one there is, its version, and what it makes of a text.

It is a process for each text, bounded in time and in what is read of its messages.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image
from tilesim.records import dataclass

#: seconds that ptxas may take, bytes of its messages that are read, and bytes of a cubin
MOST_SECONDS = 120
MOST_SAID = 1 << 16
MOST_CODE = 256 << 20
_NAME = "ptxas.exe" if sys.platform == "win32" else "ptxas"
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")
#: how it says what is wrong with a text
_ERROR = re.compile(r"^ptxas .*?(?:error|fatal)\s*: *(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Ptxas:
    """A ptxas: its file and its version, as ``13.0.88``."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"ptxas {self.version} ({self.path})"


def installed(given: str | Path | None = None) -> Iterator[Ptxas]:
    """The ptxas that is ``given``, else those on the PATH, in a CUDA toolkit, in NVIDIA's wheel
    ``nvidia-cuda-nvcc`` and in Triton, in this order, each once.

    Raises:
        CubinError: there is none, or it cannot be run.
    """
    if given is not None:
        yield at(given)
        return
    places = [path for path in _places() if os.path.isfile(path)]
    if not places:
        raise CubinError(
            "there is no ptxas: install the CUDA toolkit, or pip install nvidia-cuda-nvcc, or name "
            "one with --ptxas PATH"
        )
    found: list[Ptxas] = []
    for ptxas in map(at, dict.fromkeys(map(os.path.realpath, places))):
        if not any(_is_copy(ptxas, other) for other in found):
            found.append(ptxas)
            yield ptxas


def compiled(
    text: str, name: str, arch: str, registers: int | None = None, given: str | Path | None = None
) -> tuple[Image, Ptxas]:
    """What ptxas makes of a PTX text, as `compile_ptx`, and which one: the first of those
    `installed` that does not refuse it, as older ones do what is newer.

    Raises:
        CubinError: there is none, or all refuse it: what the first one says.
    """
    first: CubinError | None = None
    for ptxas in installed(given):
        try:
            return compile_ptx(ptxas, text, name, arch, registers), ptxas
        except CubinError as error:
            first = first or error
    assert first is not None
    raise first


def _is_copy(one: Ptxas, other: Ptxas) -> bool:
    """Whether two files are the same program."""
    return one.version == other.version and filecmp.cmp(one.path, other.path, shallow=False)


def _places() -> Iterator[str]:
    on_path = shutil.which(_NAME)
    if on_path is not None:
        yield on_path
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield os.path.join(home, "bin", _NAME)
    packages = Path(sysconfig.get_path("platlib"))
    for pattern in (f"nvidia/*/bin/{_NAME}", f"triton/backends/nvidia/bin/{_NAME}"):
        yield from map(str, sorted(packages.glob(pattern), reverse=True))


def at(path: str | Path) -> Ptxas:
    """The ptxas at a path, or in the toolkit at a path.

    Raises:
        CubinError: there is none, it cannot be run, or it is another program.
    """
    if os.path.isdir(path):
        names = _NAME, os.path.join("bin", _NAME)
        inside = [os.path.join(path, name) for name in names]
        if not any(map(os.path.isfile, inside)):
            raise CubinError(f"{path} has no {' and no '.join(names)}: name a ptxas or its toolkit")
        path = next(filter(os.path.isfile, inside))
    # a bare name of a file here would be looked for on the PATH
    return _at(os.path.abspath(path) if os.path.isfile(path) else str(path))


@lru_cache(maxsize=16)
def _at(path: str) -> Ptxas:
    code, said = _run([path, "--version"])
    found = _VERSION.search(said)
    if code != 0 or found is None:
        raise CubinError(f"{path} cannot be run as ptxas: it does not say its version")
    return Ptxas(path, found[1])


@lru_cache(maxsize=4)
def compile_ptx(
    ptxas: Ptxas, text: str, name: str, arch: str, registers: int | None = None
) -> Image:
    """The cubin of a PTX text, with its text and line tables (``-lineinfo``).

    Args:
        name: what messages call the text.
        arch: for which target, as ``sm_90a``.
        registers: the most of a thread, None: what ptxas chooses.

    Raises:
        CubinError: ptxas refuses the text, or takes too long.
    """
    limit = [] if registers is None else [f"--maxrregcount={registers}"]
    with tempfile.TemporaryDirectory() as folder:
        source, made = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        Path(source).write_text(text)
        command = [ptxas.path, f"-arch={arch}", "-lineinfo", *limit, source, "-o", made]
        code, said = _run(command)
        if code != 0 or not os.path.isfile(made):
            found = _ERROR.search(said)
            why = found[1] if found else f"exit code {code}"
            raise CubinError(f"{name}: ptxas {ptxas.version} refuses the PTX: {why}")
        if os.path.getsize(made) > MOST_CODE:
            raise CubinError(f"{name}: the cubin has more than {MOST_CODE >> 20} MiB")
        return Image(Path(made).read_bytes(), f"{name}, compiled by ptxas {ptxas.version}")


def _run(command: Sequence[str]) -> tuple[int, str]:
    """How a command ends, and what it prints."""
    with tempfile.TemporaryFile() as said:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=MOST_SECONDS,
                check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise CubinError(f"{command[0]} took longer than {MOST_SECONDS} s") from error
        except OSError as error:
            raise CubinError(f"{command[0]} cannot be run: {error.strerror}") from error
        said.seek(0)
        return code, said.read(MOST_SAID).decode(errors="replace")
