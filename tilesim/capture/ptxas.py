"""Runs a command, and keeps every PTX that a ``ptxas`` in it is given, with what it is told.

A small library (``preload/``, C, built on first use) is loaded into every process of the command.
In one that is a ``ptxas``, however it was started and found, it copies the input
before ``ptxas`` begins; nothing stands between the compiler and ``ptxas``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tilesim.capture.build import preload_built
from tilesim.capture.folder import file_stem, say
from tilesim.capture.program import ended, joined
from tilesim.errors import UsageError
from tilesim.files import read_regular, write_whole
from tilesim.ptx.description import as_text
from tilesim.ptx.launch_template import template
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import PtxError, target_of
from tilesim.records import dataclass
from tilesim.wording import count

#: the file that says how each PTX was compiled
MANIFEST = "ptxas.json"
SCHEMA = "tilesim.ptxas/1"
#: a PTX has at most so many bytes
_LARGEST = 256 << 20
#: compilers that would answer from what they compiled before, and run no ptxas
_NO_CACHES: Mapping[str, str] = {
    "CCACHE_RECACHE": "1", "CUDA_TILE_CACHE_DIR": "0", "CUTE_DSL_DISABLE_FILE_CACHING": "1",
    "SCCACHE_RECACHE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TRITON_ALWAYS_COMPILE": "1",
}  # fmt: skip
#: options whose value is the next argument, but for what names a file
_VALUES = {
    "-arch": "arch", "--gpu-name": "arch", "-maxrregcount": "registers",
    "--maxrregcount": "registers",
}  # fmt: skip
_TEXT = ("-ias", "--input-as-string")
_OUTPUT = ("-o", "--output-file")
_HOST = "--nv-host"
#: nvcc's temporary files are called ``tmpxft_NUMBERS-N_SOURCE.compute_90a.ptx``
_SOURCE = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(.+?)(?:\.compute_\w+)?\.ptx")
#: what cuTile adds to the names of kernels: the types of their arguments
KERNEL = re.compile(r"_Kt\d+_.*")
_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """A PTX as a ``ptxas`` was given it. ``input``: the file it was called; ``arch``, ``options``:
    what it was told; ``registers``: the most per thread, None: not said. ``code``: how it ended,
    None: killed. ``host``: the object file with code for the host that is linked with it (cuTile);
    empty: none. ``cubin``: what was made of it; empty: nothing."""

    ptx: str
    input: str
    arch: str
    registers: int | None
    options: tuple[str, ...]
    code: int | None
    host: bytes = b""
    cubin: bytes = b""

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its kernels."""
        return tuple(_ENTRY.findall(self.ptx))

    @property
    def stem(self) -> str:
        """A file name: that of its kernel, of several that of the source."""
        source = _SOURCE.fullmatch(Path(self.input).name)
        if len(self.entries) > 1 and source is not None:
            return file_stem(source[1])
        return file_stem(KERNEL.sub("", self.entries[0]))


def run(command: Sequence[str], output: Path) -> int:
    """Runs a command; what its ``ptxas`` were given goes to the folder ``output``, each PTX once,
    as ``NAME.ptx`` with the launch to be filled in as ``NAME.json`` and the machine code that was
    made of it as ``NAME.cubin``. Its exit code.

    Raises:
        UsageError: the library cannot be built, or the command cannot be started.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} cannot be run: there is no such program")
    preload_built()
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        kept, dumped = Path(temporary) / "ptxas", Path(temporary) / "dumped"
        kept.mkdir()
        dumped.mkdir()
        # CuTe DSL compiles PTX by a library that is part of it, and writes it if it is told so
        own = {"CUTE_DSL_KEEP": "ptx", "CUTE_DSL_DUMP_DIR": str(dumped)}
        if own.keys() & os.environ.keys():
            own = {}
        environment = {**_NO_CACHES, **os.environ, **own, **keeping(kept)}
        try:
            process = subprocess.Popen(list(command), env=environment)
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
        code = ended(process)
        found = [*compiled(kept), *_dumped(dumped)]
        lost = sum(not (folder / "command").exists() for folder in kept.iterdir())
    _write(found, output)
    if lost:
        say(f"the PTX of {count(lost, 'run')} of ptxas could not be copied")
    return code if code >= 0 else 128 - code


def keeping(folder: Path) -> dict[str, str]:
    """The environment in which what ``ptxas`` is given is kept in a folder, for `compiled`.

    Raises:
        UsageError: the library cannot be built.
    """
    return {
        "TILESIM_PTXAS": str(folder), "LD_PRELOAD": joined(str(preload_built()), "LD_PRELOAD"),
    }  # fmt: skip


def compiled(folder: Path) -> Iterator[Compiled]:
    """What each run of ``ptxas`` was given."""
    for run_ in sorted(folder.iterdir()):
        yield from _compiled(run_)


def _compiled(folder: Path) -> Iterator[Compiled]:
    """What one run of ``ptxas`` was given: of a run without an input, such as for its version,
    nothing."""
    try:
        arguments = [os.fsdecode(a) for a in (folder / "command").read_bytes().split(b"\0")[:-1]]
        code = _number(folder / "exit")
    except OSError:
        return
    texts: list[tuple[str, str]] = []
    said: dict[str, str] = {}
    options: list[str] = []
    host = b""
    before = ""
    for number, argument in enumerate(arguments[1:], 1):
        name, equals, value = argument.partition("=")
        text = argument if before in _TEXT else value if name in _TEXT else ""
        kept = folder / str(number)
        if name == _HOST and kept.exists():
            host = kept.read_bytes()
        elif not text and kept.exists() and name not in _OUTPUT:
            data = kept.read_bytes()
            text = data.decode(errors="replace") if len(data) <= _LARGEST else ""
        if before in _VALUES or (equals and name in _VALUES):
            said[_VALUES[before if before in _VALUES else name]] = value or argument
        if ".version" in text:
            texts.append((argument if before not in _TEXT else "", text))
        elif before not in _OUTPUT and name not in (*_OUTPUT, *_TEXT):
            options.append(argument)
        before = argument
    registers = said.get("registers", "")
    made = _made(folder / "made")
    for place, text in texts:
        yield Compiled(
            text, place, said.get("arch", ""), int(registers) if registers.isdecimal() else None,
            tuple(options), code, host, made if len(texts) == 1 else b"",
        )  # fmt: skip


def _made(file: Path) -> bytes:
    """The cubin that a run has made; empty without one."""
    try:
        return read_regular(file, _LARGEST)
    except OSError:
        return b""


def _number(file: Path) -> int | None:
    return int(file.read_text()) if file.exists() else None


def _dumped(folder: Path) -> Iterator[Compiled]:
    """PTX that a compiler has written by itself."""
    for file in sorted(folder.rglob("*.ptx")):
        text = file.read_text(errors="replace").rstrip("\0")
        yield Compiled(text, file.name, target_of(text), None, (), 0)


def _write(found: Iterable[Compiled], output: Path) -> None:
    """Writes each PTX once, by name and contents, and says what there is."""
    times: Counter[tuple[str, str, int | None]] = Counter()
    first: dict[tuple[str, str, int | None], Compiled] = {}
    without = 0
    for one in found:
        if not one.entries:
            without += 1
            continue
        key = one.ptx, one.arch, one.registers
        times[key] += 1
        if key not in first or first[key].code != 0:
            first[key] = one
    kept = [one for one in first.values() if not _only_parsed(one, first.values())]
    kept.sort(key=lambda one: (one.stem, sha256(one.ptx.encode()).digest(), one.arch))
    names: Counter[str] = Counter()
    rows = []
    for one in kept:
        number = names[one.stem]
        names[one.stem] += 1
        name = f"{one.stem}_{number}" if number else one.stem
        compiled = times[one.ptx, one.arch, one.registers]
        rows.append(_row(name, one, compiled))
        write_whole(output / f"{name}.ptx", one.ptx)
        _describe(one, output / f"{name}.json")
        if one.cubin:
            write_whole(output / f"{name}.cubin", one.cubin)
        failed = "" if one.code == 0 else ", ptxas failed"
        again = f", compiled {compiled} times" if compiled > 1 else ""
        kernels = f", {len(one.entries)} kernels" if len(one.entries) > 1 else ""
        say(f"captured {name}: {one.arch or 'no -arch'}{kernels}{again}{failed}")
    write_whole(output / MANIFEST, as_text({"schema": SCHEMA, "compiled": rows}))
    say(f"captured {count(len(kept), 'PTX file')} into {output}")
    if without:
        say(f"{count(without, 'PTX file')} without a kernel left out")
    if kept:
        say("launches are not known: replace FILL_IN in the .json files, then tilesim check")
    elif not without:
        say(
            "no ptxas was run, or none that the library could be loaded into: compilers that link "
            "one (NVRTC, nvJitLink, nvPTXCompiler) and compile servers run none of their own"
        )


def _only_parsed(one: Compiled, others: Iterable[Compiled]) -> bool:
    """Whether ``ptxas`` has made no code of it, and has of the same kernels elsewhere."""
    return one.arch.startswith("compute_") and any(
        other.entries == one.entries and not other.arch.startswith("compute_") for other in others
    )


def _row(name: str, one: Compiled, times: int) -> dict[str, object]:
    return {
        "file": f"{name}.ptx", "kernels": list(one.entries), "input": one.input, "arch": one.arch,
        "maxrregcount": one.registers, "options": list(one.options), "exit": one.code,
        "times": times,
    }  # fmt: skip


def _describe(one: Compiled, file: Path) -> None:
    """Writes the launch of a PTX, to be filled in; not of one that is not read."""
    try:
        module = read(one.ptx, file.with_suffix(".ptx").name)
    except PtxError as error:
        say(f"{error}: no launch description is written")
        return
    write_whole(file, template(module, module.entries, registers=one.registers))
