"""The processes that do the work of a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

ROOT = Path(__file__).parents[2]
#: says over and over that it is there
CHILD = """
import time

while True:
    with open("beats", "a") as file:
        file.write(".")
    time.sleep(0.02)
"""
SERVER = """
import asyncio
from tilesim.mcp.child import Children

asyncio.run(Children(1).run((), 60, module="beating"))
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs groups of processes")
def test_a_process_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "beating.py").write_text(CHILD)
    beats = tmp_path / "beats"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))},
    ) as server:  # fmt: skip
        for _ in range(3000):
            if beats.exists():
                break
            sleep(0.02)
        server.send_signal(signal.SIGKILL)
    size = -1
    for _ in range(20):
        before, size = size, beats.stat().st_size
        if size == before:
            break
        sleep(0.2)
    assert size == before
