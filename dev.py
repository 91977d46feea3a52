#!/usr/bin/env python3
"""Sets up a virtual environment in ``.venv`` and works in it; needs only Python 3.11 and pip.

python3 dev.py demo         what tilesim does, in one minute
python3 dev.py test         lint, types and all tests, as CI runs them
python3 dev.py run ...      any ``tilesim`` command
python3 dev.py lint         ruff and mypy only
python3 dev.py docs         build the documentation into docs/_build
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


def install(*extras: str) -> None:
    """Makes the environment hold tilesim with ``extras``; does nothing if it already does."""
    wanted = (ROOT / "pyproject.toml").read_bytes() + ",".join(extras).encode()
    stamp = VENV / f".installed-{'-'.join(extras) or 'base'}"
    digest = hashlib.sha256(wanted).hexdigest()
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == digest:
        return
    if not PYTHON.exists():
        print(f"creating {VENV.name}", flush=True)
        venv.create(VENV, with_pip=True)
    what = f".[{','.join(extras)}]" if extras else "."
    print(f"installing {what}", flush=True)
    run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", what)
    stamp.write_text(digest)


def run(*arguments: str, folder: Path = ROOT) -> None:
    """Runs the environment's Python in a folder; ends this program if it fails."""
    status = subprocess.run([str(PYTHON), *arguments], cwd=folder, check=False).returncode
    if status:
        sys.exit(status)


def lint() -> None:
    """Style, formatting and types."""
    style()
    run("-m", "mypy")


def style() -> None:
    """Style and formatting."""
    install("docs", "test")
    run("-m", "ruff", "check", ".")
    run("-m", "ruff", "format", "--check", ".")


def test(arguments: list[str]) -> None:
    """Everything CI runs; with arguments, pytest with those."""
    if arguments:
        install("docs", "test")
        run("-m", "pytest", *arguments)
        return
    style()
    # types take one process more than a minute, in which the tests run as well
    types = subprocess.Popen([str(PYTHON), "-m", "mypy"], cwd=ROOT)
    # many tests start a process of their own, which may have been told to write no bytecode
    run("-m", "compileall", "-q", "_tilesim_pytest.py", "_tilesim_triton", "tilesim", "benchmarks")
    processes = str(min(4, os.cpu_count() or 1))
    # each process goes through files from their beginning: what a file prepares is prepared once
    command = ("-m", "pytest", "-q", "-n", processes, "--dist", "worksteal", "-m", "not slow")
    # a process is a core: threads of NumPy's in each of them would wait for each other
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    failed = subprocess.run([str(PYTHON), *command], cwd=ROOT, env=alone, check=False).returncode
    if status := types.wait() or failed:
        sys.exit(status)


def docs() -> None:
    """The documentation as HTML; warnings are errors."""
    install("docs")
    run("-m", "sphinx", "-W", "-q", "-b", "html", "docs", "docs/_build/html")
    print("docs/_build/html/index.html")


def main() -> None:
    """Runs the command named on the command line."""
    if sys.version_info < (3, 11):
        sys.exit(f"tilesim needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    command, *rest = sys.argv[1:] or ["help"]
    match command:
        case "demo":
            install()
            run("-m", "tilesim", "demo", *rest)
        case "test":
            test(rest)
        case "lint":
            lint()
        case "run":
            install()
            run("-m", "tilesim", *rest, folder=Path.cwd())
        case "docs":
            docs()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
