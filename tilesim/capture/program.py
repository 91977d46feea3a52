"""Runs a program against the stub."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tilesim.capture.build import built
from tilesim.capture.folder import Folder, say
from tilesim.capture.server import Server
from tilesim.errors import UsageError


def run(command: Sequence[str], output: Path, target: str) -> int:
    """Runs a program as if there were a GPU for ``target``; what it would launch goes to the folder
    ``output``. Its exit code; 1 if it succeeds and nothing is captured.

    Raises:
        UsageError: the stub cannot be built, or the program cannot be started.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} cannot be run: there is no such program")
    folder = Folder(output)
    code = against_stub(command, target, folder)
    folder.summary()
    if code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        say(f"the program ended with {how}: kernels are not run, so what tests their results fails")
    elif not folder.written:
        say("the program launched no kernel that could be captured")
        return 1
    return code if code >= 0 else 128 - code


def against_stub(command: Sequence[str], target: str, folder: Folder) -> int:
    """Runs a program as if there were a GPU for ``target``; ``folder`` gets what it would launch.
    Its exit code, negative after a signal.

    Raises:
        UsageError: the stub cannot be built, or the program cannot be started.
    """
    library = built()
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "socket"
        with Server(path, target, folder):
            environment = {
                **os.environ, "TILESIM_CAPTURE": str(path),
                "LD_PRELOAD": joined(str(library), "LD_PRELOAD"),
                "LD_LIBRARY_PATH": joined(str(library.parent), "LD_LIBRARY_PATH"),
            }  # fmt: skip
            try:
                process = subprocess.Popen(list(command), env=environment)
            except OSError as error:
                raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
            return ended(process)


def joined(first: str, name: str) -> str:
    """A variable of the environment that lists files, with another one at its head."""
    rest = os.environ.get(name)
    return f"{first}:{rest}" if rest else first


def ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code; Ctrl-C is the program's."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
