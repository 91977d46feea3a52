"""Emitted sources to cubin or PTX with NVRTC: no GPU, no driver, no nvcc.

Errors of the compiler and of ptxas are reported at the kernel's lines. Results are cached by
source, options and versions, in memory and, if asked, in a directory.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.errors import CompileError, MissingExtra
from tilesim.records import dataclass, field

#: what the compiler is told that the text is called; no file of a user's has this name
FILE = "tilesim_kernel.cu"
#: every float operation is rounded by itself, as in the simulator; NVRTC's own cache, which it uses
#: where there is a driver, would lose the report of ptxas
_NVRTC_OPTIONS = ("--std=c++17", "--fmad=false", "--no-cache")
_CPP_ERROR = re.compile(rf"{re.escape(FILE)}\((\d+)\): (?:catastrophic )?error: (.*)")
_PTXAS_ERROR = re.compile(r"ptxas .*?, line (\d+); (?:error|fatal)\s*: (.*)")
#: line tables cost nothing at run time, and say in core dumps where warps stand
_CUBIN_OPTIONS = ("--ptxas-options=-v", "--generate-line-info")
_REGISTERS = re.compile(r"Used (\d+) registers")
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)(?:.*inlined_at\s+\d+\s+(\d+))?")


@dataclass(frozen=True)
class Resources:
    """What ptxas reports: per-thread registers and bytes of stack and spills, named barriers.

    ``warnings`` are its remarks, such as serialised wgmma (C7510) or ignored setmaxnreg (C7508).
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int
    warnings: tuple[str, ...] = ()

    @property
    def local_memory(self) -> int:
        """Bytes of local memory a thread uses: 0 if everything is in registers."""
        return self.stack + self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Binary:
    """Machine code of one source."""

    source: Source
    cubin: bytes = field(repr=False)
    resources: Resources
    log: str = field(repr=False, default="")


def compile_cubin(source: Source, *, directory: str | Path | None = None) -> Binary:
    """Machine code for ``source.arch``.

    Args:
        directory: also keep the result in this folder, for later processes.

    Raises:
        CompileError: the compiler rejects the source; the message names the kernel's lines.
        MissingExtra: cuda-bindings or NVRTC is not installed.
    """
    key = _key(source)
    known = _MEMORY.get(key) or _read(directory, key)
    if known is None:
        known = _compile(source)
        _write(directory, key, known)
    _MEMORY[key] = known
    cubin, log = known
    return Binary(source, cubin, _resources(log), log)


def compile_ptx(source: Source) -> str:
    """PTX text for ``source.arch``, with line numbers of the source in ``.loc`` directives."""
    versions()
    return _ptx(source)


#: (cubin, log) by key
_MEMORY: dict[str, tuple[bytes, str]] = {}


def cubin_of(text: str, arch: str) -> bytes:
    """Machine code of CUDA C++ that is no kernel of tilesim's.

    Raises:
        CompileError: the compiler rejects it.
        MissingExtra: cuda-bindings or NVRTC is not installed.
    """
    versions()
    cubin, log = _made(text, arch, _CUBIN_OPTIONS, "CUBIN")
    if cubin is None:
        raise CompileError(f"NVRTC rejects it: {' '.join(log.split())}")
    return cubin


def package(name: str) -> Any:
    """A module of the ``compile`` extra, imported now.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(
            f"{name} is not installed, which compiling and running on a GPU needs: "
            "pip install 'tilesim[compile]'"
        ) from error


@cache
def versions() -> dict[str, str]:
    """Versions of what decides the machine code."""
    nvrtc = _nvrtc()
    try:
        major, minor = _checked(nvrtc, *nvrtc.nvrtcVersion())
    except RuntimeError as error:
        if type(error).__name__ != "DynamicLibNotFoundError":
            raise
        raise MissingExtra(
            "NVRTC is not installed, which compiling needs: pip install 'tilesim[compile]'"
        ) from error
    return {"nvrtc": f"{major}.{minor}"}


def _key(source: Source) -> str:
    options = (*_NVRTC_OPTIONS, *_CUBIN_OPTIONS)
    parts = (source.text, source.arch, *options, json.dumps(versions(), sort_keys=True))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(directory: str | Path | None, key: str) -> tuple[bytes, str] | None:
    if directory is None:
        return None
    cubin, log = Path(directory) / f"{key}.cubin", Path(directory) / f"{key}.log"
    if not (cubin.exists() and log.exists()):
        return None
    return cubin.read_bytes(), log.read_text()


def _write(directory: str | Path | None, key: str, result: tuple[bytes, str]) -> None:
    if directory is None:
        return
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.log").write_text(result[1])
    # several threads or processes may compile the same source: each renames a file of its own
    with NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as partial:
        partial.write(result[0])
    Path(partial.name).replace(folder / f"{key}.cubin")


def _compile(source: Source) -> tuple[bytes, str]:
    cubin, log = _run(source, source.arch, _CUBIN_OPTIONS, "CUBIN")
    if not _REGISTERS.search(log):
        raise CompileError(f"{source.program.name}: ptxas reported no resources: {log.strip()!r}")
    return cubin, log


def _resources(log: str) -> Resources:
    def number(pattern: str | re.Pattern[str]) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    warnings = tuple(
        line.strip()
        for line in log.splitlines()
        if line.startswith("ptxas") and ("warning" in line or "(C7" in line)
    )
    return Resources(
        number(_REGISTERS),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"used (\d+) barriers"),
        warnings,
    )


# ---------------------------------------------------------------------- errors


def _explain(source: Source, log: str) -> CompileError:
    """The compiler's errors at the kernel's lines."""
    messages = [
        _at(source, int(line), text) for line, text in dict.fromkeys(_CPP_ERROR.findall(log))
    ]
    ptxas = list(dict.fromkeys(_PTXAS_ERROR.findall(log)))
    if ptxas:
        positions = _ptx_lines(source)
        messages += [_at(source, positions(int(line)), text) for line, text in ptxas]
    if not messages:
        messages = [log.strip()]
    head = f"{source.program.name} does not compile for {source.arch}:"
    return CompileError("\n".join([head, *messages]))


def _at(source: Source, line: int, text: str) -> str:
    loc = source.loc(line)
    code = source.text.split("\n")[line - 1].strip() if line else ""
    return f"{loc or source.program.loc}: {text.strip()}\n    {FILE}:{line}: {code}"


def _ptx_lines(source: Source) -> Any:
    """A function from a line of the PTX to the line of the source it came from."""
    try:
        text = _ptx(source, located=False).split("\n")
        located = _ptx(source).split("\n")
    except CompileError:
        return lambda line: 0
    # the same instructions in both texts; only one has .loc directives in between
    positions, current = [0], 0
    plain = iter(text)
    for line in located:
        found = _LOC.match(line)
        if found:
            current = int(found[2] or found[1])
            continue
        if _is_code(line) and _advance(plain, line, positions, current):
            continue

    def position(line: int) -> int:
        return positions[min(line, len(positions) - 1)]

    return position


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith((".file", ".section", "//"))


def _advance(plain: Any, wanted: str, positions: list[int], current: int) -> bool:
    """Moves on in the text without line numbers to ``wanted``, recording where lines came from."""
    for line in plain:
        positions.append(current)
        if line == wanted:
            return True
    return False


def _nvrtc() -> Any:
    return package("cuda.bindings.nvrtc")


def _checked(nvrtc: Any, status: Any, *values: Any) -> Any:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if len(values) == 1 else values


def _ptx(source: Source, *, located: bool = True) -> str:
    options = ("--generate-line-info",) if located else ()
    text, _ = _run(source, source.arch.replace("sm_", "compute_"), options, "PTX")
    return text.rstrip(b"\0").decode()


def _run(source: Source, arch: str, options: tuple[str, ...], result: str) -> tuple[bytes, str]:
    """One run of NVRTC: its ``CUBIN`` or ``PTX``, and its log."""
    made, log = _made(source.text, arch, options, result)
    if made is None:
        raise _explain(source, log)
    return made, log


def _made(text: str, arch: str, options: tuple[str, ...], result: str) -> tuple[bytes | None, str]:
    """What NVRTC makes of a text, None if it rejects it; and its log."""
    nvrtc = _nvrtc()
    arguments = [f"--gpu-architecture={arch}", *_NVRTC_OPTIONS, *options]
    program = _checked(nvrtc, *nvrtc.nvrtcCreateProgram(text.encode(), FILE.encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(arguments), [a.encode() for a in arguments]
        )
        log = _text(nvrtc, program, "ProgramLog").decode(errors="replace").rstrip("\0 ")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, log
        return _text(nvrtc, program, result), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(nvrtc: Any, program: Any, what: str) -> bytes:
    """A result of a compilation: NVRTC asks for the size first."""
    size = int(_checked(nvrtc, *getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    # it is written in place: not into bytes of length 1, of which Python has one object each
    data = b" " * max(size, 2)
    getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    return data[:size]
