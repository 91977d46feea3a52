"""A program whose driver is an imitation: it makes the pipe, and the dump when it is asked.

``python fake_program.py [WHAT...]`` hangs until it is dumped, then ends with exit code 3, as after
a CUDA error. Words change that:

* ``stay``: it ends neither after the dump nor at INT and TERM. ``gentle``: it ends at TERM with 7.
* ``slow``: the dump is written in two parts. ``cut``: only the first is written. ``deaf``: none is.
  ``early``: it ends with 6 as it is asked for the dump, and makes none.
* ``buffered``: the driver reads 4,096 bytes, not one.
* ``trap``: it makes a dump by itself and ends with exit code 4.
* ``two``: it starts a second program, in a session of its own, which hangs until it is dumped, and
  does the rest when that has its pipe.
* ``quiet``: it makes no pipe, as a program without CUDA, and ends after 0.4 s with exit code 5.
* a name of a signal: it sends that to its parent when the pipe is there; ``again``: twice.
"""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path

RING = Path(__file__).parent / "dumps" / "ring.nvcudmp.gz"


def named(variable: str) -> Path:
    """The path that a driver makes of a variable, in this process."""
    name = os.environ[variable]
    stands = {"%h": socket.gethostname(), "%p": str(os.getpid()), "%t": str(int(time.time()))}
    for key, value in stands.items():
        name = name.replace(key, value)
    return Path(name)


def write_dump(what: Collection[str] = ()) -> None:
    """Writes a dump."""
    data = gzip.decompress(RING.read_bytes())
    with named("CUDA_COREDUMP_FILE").open("wb") as file:
        half = len(data) // 2
        file.write(data[:half])
        if "cut" in what:
            return
        if "slow" in what:
            file.flush()
            time.sleep(0.3)
        file.write(data[half:])


def drive(what: Collection[str] = ()) -> threading.Thread:
    """The driver's thread: it ends when it has made a dump."""
    pipe = named("CUDA_COREDUMP_PIPE")
    # it has its name when it is read
    made = pipe.with_name(f"made-{os.getpid()}")
    os.mkfifo(made)
    reader = os.open(made, os.O_RDWR)
    made.rename(pipe)

    def wait() -> None:
        left = 4096 if "buffered" in what else 1
        while left > 0:
            left -= len(os.read(reader, left))
        if "early" in what:
            os._exit(6)
        if "deaf" not in what:
            write_dump(what)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def main(arguments: list[str]) -> int:
    """What the arguments say; the exit code."""
    what = set(arguments)
    if "stay" in what:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "gentle" in what:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    if "two" in what:
        stays = sorted(what & {"stay"})
        subprocess.Popen([sys.executable, __file__, *stays], start_new_session=True)
        pipes = named("CUDA_COREDUMP_PIPE").parent
        while not list(pipes.glob("pipe*")):
            time.sleep(0.01)
    if "trap" in what:
        write_dump(what)
        return 4
    driver = None if "quiet" in what else drive(what)
    for name in what & set(signal.Signals.__members__):
        for _ in range(1 + ("again" in what)):
            os.kill(os.getppid(), signal.Signals[name])
            time.sleep(0.1)
    if driver is None:
        time.sleep(0.4)
        return 5
    driver.join()
    if what & {"stay", "deaf"}:
        time.sleep(60)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
