"""The command line in a process of its own: what a tool of the server does.

A target is code of others. In a process of its own it cannot write into the protocol, leave a
module behind that a later call finds instead of the edited file, or keep the server from answering.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

#: a command that has been asked to stop reports what it has found; this is how long that may take
GRACE = 5.0
#: more is no report
MAX_OUTPUT = 64 << 20
#: what is kept of what is said on stderr
_KEPT = 64 << 10
_CHUNK = 1 << 16
_ERROR = "error: "


class CommandError(Exception):
    """A command that gives no report; the message says why, in the command line's words."""


class Children:
    """The processes that work for the server, so many at a time; none of them outlives it."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._groups: set[int] = set()
        #: the end of a pipe that they read; the other one is held here, and closed with the server
        self._read, self._held = os.pipe()

    async def run(
        self, arguments: Sequence[str], seconds: float, *, module: str = "tilesim",
        folder: Path | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The document that ``tilesim ARGUMENTS`` prints, or another ``module`` that is run; in
        ``folder``, of which no module is imported in place of an installed one (``-P``).

        After ``seconds`` it is interrupted, and killed if it has not ended `GRACE` seconds later:
        it, and all that it has started.

        Raises:
            CommandError: it prints none.
        """
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "tilesim.mcp.with_server", str(self._read), module,
                *arguments, start_new_session=True, pass_fds=(self._read,),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, cwd=folder,
            )  # fmt: skip
            self._groups.add(process.pid)
            try:
                return await _report(process, seconds)
            finally:
                _signal(process.pid, signal.SIGKILL)
                self._groups.discard(process.pid)

    def kill(self) -> None:
        """Ends all of them at once."""
        for group in self._groups:
            _signal(group, signal.SIGKILL)


async def _report(process: asyncio.subprocess.Process, seconds: float) -> dict[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    reading = asyncio.gather(
        _read(process.stdout, MAX_OUTPUT), _read(process.stderr, _KEPT), process.wait()
    )
    late = ""
    try:
        out, err, code = await asyncio.wait_for(asyncio.shield(reading), seconds)
    except TimeoutError:
        late = f"no answer within {seconds:g} s"
        _signal(process.pid, signal.SIGINT)
        try:
            out, err, code = await asyncio.wait_for(reading, GRACE)
        except TimeoutError:
            raise CommandError(late) from None
    except asyncio.CancelledError:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)  # else asyncio says that it failed
        raise
    try:
        document = json.loads(out)
    except ValueError:
        said = _error(err.decode(errors="replace"))
        raise CommandError(late or said or f"no report: the process ended with {code}") from None
    if not isinstance(document, dict):
        raise CommandError("no report: the target writes to standard output by itself")
    return document


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The end of a stream, ``limit`` bytes at least if it has as many."""
    kept = bytearray()
    while chunk := await stream.read(_CHUNK):
        kept += chunk
        if len(kept) > 2 * limit:
            del kept[:-limit]
    return bytes(kept)


def _error(said: str) -> str:
    """The message in what a command has said on stderr, behind what the target prints there."""
    start = max(said.rfind(f"\n{word}") + 1 for word in (_ERROR, "internal error: "))
    return said[start:].strip().removeprefix(_ERROR)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
