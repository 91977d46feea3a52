"""Checks in another process, while the program that launches the kernels goes on.

``python -m tilesim.recording.background FOLDER`` is that process: it is told names of captured
kernels, a line each, and answers a line of JSON each. It ends when the program does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from time import monotonic

from tilesim.ptx.description import loads
from tilesim.recording import Launched, check_launched
from tilesim.records import dataclass
from tilesim.report.result import Checked
from tilesim.report.text import table

#: seconds that one check may take
TIME_LIMIT = 120
_PROVED = ("proved", "exhausted")
#: how much the program comes first
_NICE = 10


@dataclass(frozen=True)
class Answer:
    """What a check says: the verdict, and a line for the user."""

    verdict: str
    line: str

    @property
    def proved(self) -> bool:
        """Whether the launch is proved."""
        return self.verdict in _PROVED


class Background:
    """A process that checks kernels of a folder, one after another, in the order of `submit`.

    ``tell`` is called with each answer, by another thread.
    """

    def __init__(self, folder: Path, tell: Callable[[Answer], None]) -> None:
        self._tell = tell
        self._changed = Condition()
        self._waiting: list[str] = []
        #: answers by name, in the order in which they came
        self.answers: dict[str, Answer] = {}
        #: why there will be no more
        self.ended = ""
        environment = {k: v for k, v in os.environ.items() if k not in ("TILESIM", "LD_PRELOAD")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        Thread(target=self._read, daemon=True).start()

    def submit(self, name: str) -> None:
        """A kernel ``NAME.ptx`` of the folder is to be checked."""
        with self._changed:
            self._waiting.append(name)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which the other end says
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()

    @property
    def open(self) -> tuple[str, ...]:
        """What is not answered."""
        with self._changed:
            return tuple(self._waiting)

    def wait(self, name: str, seconds: float) -> Answer | None:
        """The answer for a kernel, within so much time; None: there is none."""
        with self._changed:
            self._changed.wait_for(lambda: name in self.answers or self.ended, seconds)
            return self.answers.get(name)

    def finish(self, seconds: float) -> None:
        """Waits for what is open, at most so long, and ends the process."""
        deadline = monotonic() + seconds
        try:
            with self._changed:
                self._changed.wait_for(
                    lambda: not self._waiting or self.ended, max(0.0, deadline - monotonic())
                )
        finally:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            row = json.loads(line)
            answer = Answer(row["verdict"], row["line"])
            self._tell(answer)
            with self._changed:
                self.answers[row["name"]] = answer
                self._waiting.remove(row["name"])
                self._changed.notify_all()
        with self._changed:
            self.ended = "the process that checks has ended"
            self._changed.notify_all()


def main(folder: Path) -> None:
    """See the module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the program
    os.nice(_NICE)
    for line in sys.stdin:
        name = line.rstrip("\n")
        answer = _checked(folder, name)
        row = {"name": name, "verdict": answer.verdict, "line": answer.line}
        print(json.dumps(row), flush=True)


def _checked(folder: Path, name: str) -> Answer:
    """The answer for one kernel; what goes wrong in a check is one as well."""
    try:
        text = (folder / f"{name}.ptx").read_text()
        launch = loads((folder / f"{name}.json").read_text())
        report = check_launched(Launched(text, launch), time_limit=TIME_LIMIT)
    except Exception as error:
        return Answer("error", f"error  {name}  {' '.join(str(error).split())}")
    line = table([Checked(name, "", report)]).splitlines()[0]
    return Answer(report.verdict, f"{line}  {launch.about}".rstrip())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
