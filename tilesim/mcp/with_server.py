"""Runs a module as long as the server lives: ``python -m tilesim.mcp.with_server FD MODULE ...``.

A server that is killed ends none of its processes. Each of them reads a pipe, of which the server
alone has the other end, and into which nothing is written: it is at its end when the server is.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from threading import Thread


def _end_with(server: int) -> None:
    """Ends this process, and what it has started, when the pipe ``server`` does."""
    os.read(server, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    pipe, module = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(pipe, False)
    Thread(target=_end_with, args=(pipe,), daemon=True).start()
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
