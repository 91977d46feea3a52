"""Standard output and standard error that are full, or closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import kernels
from .conftest import ROOT, Write

NO_ROOM = "No space left on device\n"
FULL = f"error: cannot write to standard output: {NO_ROOM}"


def shell(command: str) -> tuple[int, str]:
    """Exit code, and what is on standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILESIM": f"{sys.executable} -m tilesim"}
    done = subprocess.run(
        command, shell=True, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("$TILESIM check good.py >/dev/full", FULL),
        ("PYTHONUNBUFFERED=1 $TILESIM check good.py --format json >/dev/full", FULL),
        ("$TILESIM --version >/dev/full", FULL),
        ("$TILESIM run good.py >/dev/full", FULL),
        ("$TILESIM check - <&-", ""),
        (
            "$TILESIM check good.py --jsonl /dev/full >/dev/null",
            "error: cannot write /dev/full: No space left on device\n",
        ),
        ("$TILESIM check good.py >&-", "error: cannot write to standard output: it is closed\n"),
        (
            "$TILESIM check good.py --jsonl /dev/full -o x",
            f"error: cannot write /dev/full: {NO_ROOM}",
        ),
        ("$TILESIM chek 2>/dev/full", ""),
        ("$TILESIM check gone.py >&- 2>&-", ""),
    ],
)
def test_what_cannot_be_printed_is_an_error(command: str, said: str, write: Write) -> None:
    write("good.py", kernels.GOOD)
    assert shell(command) == (2, said)


def test_a_report_in_a_file_needs_no_standard_output(write: Write) -> None:
    write("good.py", kernels.GOOD)
    assert shell("$TILESIM check good.py -o report.txt >&-") == (0, "")
    assert Path("report.txt").read_text().startswith("PROVED good.py::handshake\n")
