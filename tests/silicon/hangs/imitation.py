"""What stands for a program on a GPU where there is none: ``python -m tests.silicon.hangs.imitation
PLAN``.

It makes the driver's pipe and waits; a byte makes it write a dump and end. A program that is to end
ends. The dump is what `tests.autopsy.simulated_hang` makes of the program, where it can. What such
dumps show is said there; they are no evidence of what hardware does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.autopsy.fake_program import named
from tests.autopsy.simulated_hang import Hang, Kernel
from tilesim.ptx.description import read

#: that a program may take to hang in the machine, after which this process is ended
_SECONDS = 40


def simulated(folder: Path, document: dict[str, Any]) -> bytes:
    """The dump of a program that hangs."""
    cubin = (folder / document["image"]).read_bytes()
    launch = read(document["launches"][0])
    return Hang(Kernel(launch.entry, cubin, "sm_90a", launch)).dump().to_bytes()


def main(plan: Path) -> int:
    """Imitates the launcher."""
    document = json.loads(plan.read_text())
    if document["ends"]:
        print("launched\nended", flush=True)
        return 0
    signal.alarm(_SECONDS)
    pipe, data = named("CUDA_COREDUMP_PIPE"), simulated(plan.parent, document)
    signal.alarm(0)
    os.mkfifo(pipe)
    print("launched", flush=True)
    with pipe.open("rb") as reader:
        reader.read(1)
    named("CUDA_COREDUMP_FILE").write_bytes(data)
    print("failed: the context is lost", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
