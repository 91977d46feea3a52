"""A program with a ``main``, made by nvcc and started as users start theirs: with the runtime, a
fat binary, and code that is loaded when it is launched."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.silicon.hangs.answer import Answer, Barrier, Place
from tests.silicon.hangs.task import NotCompiled
from tilesim.records import dataclass

_SOURCE = Path(__file__).parents[2] / "autopsy" / "dumps" / "ring.cu"
_KERNEL = "_Z4ringPKfPfii"
_CTAS = (0, 1, 2)


@dataclass(frozen=True)
class ProgramTask:
    """The ring whose dump is among those of the tests: its readers wait for the parity of their own
    loop counter. It prints ``launched``."""

    folder: Path
    name: str = "ring"
    kernel: str = _KERNEL
    ptx: str = "embedded"

    @property
    def id(self) -> str:
        """Its name in the results."""
        return f"program/{self.name}"

    @property
    def command(self) -> Sequence[str]:
        """Starts it."""
        return [str(self.folder / self.name), "bad"]

    @property
    def answer(self) -> Answer:
        """What an H200 was seen to do."""
        return Answer(
            (
                Place(_KERNEL, _CTAS, (0, 1, 2, 3), "mbarrier", frozenset({"ring.cu:21"}),
                      Barrier(1, 1)),
                Place(_KERNEL, _CTAS, (4,), "mbarrier", frozenset({"ring.cu:19"}), Barrier(4, 4)),
            ),
            frozenset({"deadlock"}), frozenset({"ring.cu:21"}),
        )  # fmt: skip

    def compile(self) -> None:
        """Makes the program.

        Raises:
            NotCompiled: nvcc refuses it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["nvcc", "-arch=sm_90a", "-lineinfo", "-std=c++17", str(_SOURCE)]
        command += ["-o", str(self.folder / self.name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise NotCompiled(f"{self.id}: {(done.stderr or done.stdout).strip()[:500]}")
