"""A program whose driver is an imitation: it makes the pipe, and the dump when it is asked.

``python fake_program.py [WHAT...]``; what it does:

* ``hang``: runs until it is dumped, and ends with exit code 3 as after a CUDA error.
* ``stay``: does not end after the dump, nor at SIGTERM.
* ``slow``: writes the dump in two parts.
* ``deaf``: reads the pipe and makes no dump. ``cut``: makes one that is cut.
* ``trap``: makes a dump by itself and ends with exit code 4.
* ``two``: starts a second program that does the rest, in a session of its own, before its own.
* ``quiet``: makes no pipe, as a program without CUDA.
"""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

RING = Path(__file__).parent / "dumps" / "ring.nvcudmp.gz"


def named(variable: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The path that a driver makes of a variable, in this process."""
    name = environment[variable]
    stands = {"%h": socket.gethostname(), "%p": str(os.getpid()), "%t": str(int(time.time()))}
    for key, value in stands.items():
        name = name.replace(key, value)
    return Path(name)


def make_pipe(environment: Mapping[str, str] = os.environ) -> Path:
    """The pipe, as the driver makes it with the first context."""
    pipe = named("CUDA_COREDUMP_PIPE", environment)
    os.mkfifo(pipe)
    return pipe


def dump(what: set[str]) -> None:
    """Writes a dump."""
    data = gzip.decompress(RING.read_bytes())
    with named("CUDA_COREDUMP_FILE").open("wb") as file:
        half = len(data) // 2
        file.write(data[:half])
        if "cut" in what:
            return
        if "slow" in what:
            file.flush()
            time.sleep(0.4)
        file.write(data[half:])


def main(arguments: list[str]) -> int:
    """What the arguments say; the exit code."""
    what = set(arguments)
    if "stay" in what:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "two" in what:
        rest = [argument for argument in arguments if argument != "two"]
        subprocess.Popen([sys.executable, __file__, *rest], start_new_session=True)
    if "trap" in what:
        dump(what)
        return 4
    if "quiet" in what:
        time.sleep(60)
    pipe = make_pipe()
    print("ready", flush=True)
    pipe.open("rb").read(1)
    if "deaf" not in what:
        dump(what)
    if "stay" in what or "deaf" in what:
        time.sleep(60)
    pipe.unlink()
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
