"""The stub, and what is loaded into compilers, built by the system's compiler when first needed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tilesim.errors import UsageError

_SOURCES = Path(__file__).parent / "stub"
_PRELOAD = Path(__file__).parent / "preload"
_COMPILERS = ("cc", "gcc", "clang")
_SHARED = ("-std=gnu11", "-shared", "-fPIC", "-o")
_LIBRARIES = ("-ldl", "-lpthread")
_LIBRARY = "libtilesim_cuda.so"
_KEEPER = "libtilesim_ptxas.so"
#: the driver, to be loaded and to be linked with
_DRIVER = ("libcuda.so.1", "libcuda.so")
#: the runtime's libraries: programs want these to be there, with a version of their own name, and
#: find the functions in `_LIBRARY`, which is loaded before
_RUNTIMES = ("libcudart.so.12", "libcudart.so.13")


def built() -> Path:
    """The library; beside it lie others with the names of CUDA's.

    Raises:
        UsageError: there is no compiler, or it fails.
    """
    return _cached(_SOURCES, "cuda-stub", _LIBRARY, _build_stub)


def preload_built() -> Path:
    """The library that is loaded into the processes of a command (`tilesim.capture.ptxas`).

    Raises:
        UsageError: there is no compiler, or it fails.
    """
    return _cached(_PRELOAD, "ptxas", _KEEPER, _build_preload)


def _cached(
    folder: Path, name: str, library: str, build: Callable[[list[str], list[Path], Path], None]
) -> Path:
    """A library of the sources in a folder; ``build(compiler, sources, made)`` makes it, and what
    belongs to it, in an empty folder."""
    if not sys.platform.startswith("linux"):
        raise UsageError("tilesim capture runs programs on Linux only")
    sources = sorted(folder.glob("*.c"))
    compiler = _compiler()
    files = [*sources, *folder.glob("*.h"), Path(__file__)]
    text = b"\0".join(p.read_bytes() for p in files)
    key = sha256(text + shlex.join(compiler).encode()).hexdigest()[:16]
    kept = _cache() / f"{name}-{key}"
    if not (kept / library).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept.parent) as temporary:
            made = Path(temporary) / name
            made.mkdir()
            build(compiler, sources, made)
            try:
                made.rename(kept)
            except OSError:
                if not (kept / library).exists():  # another process was not faster
                    raise
    return kept / library


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilesim"


def _compiler() -> list[str]:
    chosen = os.environ.get("CC")
    if chosen:
        return shlex.split(chosen)
    for name in _COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise UsageError(
        "tilesim capture needs a C compiler once, to build what it runs programs with: install "
        "gcc or clang, or set CC"
    )


def _build_preload(compiler: list[str], sources: list[Path], made: Path) -> None:
    _run([*compiler, "-O1", *_SHARED, str(made / _KEEPER), *map(str, sources)])


def _build_stub(compiler: list[str], sources: list[Path], made: Path) -> None:
    _run([*compiler, "-O1", *_SHARED, str(made / _LIBRARY), *map(str, sources), *_LIBRARIES])
    for name in _DRIVER:
        (made / name).symlink_to(_LIBRARY)
    with TemporaryDirectory() as temporary:
        empty, versions = Path(temporary) / "empty.c", Path(temporary) / "versions"
        empty.touch()
        for name in _RUNTIMES:
            versions.write_text(f"{name} {{ }};\n")
            version = f"-Wl,--version-script={versions},-soname={name}"
            _run([*compiler, *_SHARED, str(made / name), str(empty), version])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise UsageError(f"{shlex.join(command)} fails:\n{done.stderr.strip()}")
