"""What stands for a program on a GPU where there is none: ``python -m tests.silicon.hangs.imitation
PLAN``.

It makes the driver's pipe and waits; a byte makes it write a dump and end. A program that is to end
ends. The dump is the one that lies beside the plan, else one of a ring that hangs, whatever the
program: what an autopsy says of that is known to be about another kernel.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

from tests.autopsy.fake_program import RING, named


def main(plan: Path) -> int:
    """Imitates the launcher."""
    if json.loads(plan.read_text())["ends"]:
        print("launched\nended", flush=True)
        return 0
    pipe, own = named("CUDA_COREDUMP_PIPE"), plan.with_suffix(".nvcudmp")
    os.mkfifo(pipe)
    print("launched", flush=True)
    with pipe.open("rb") as reader:
        reader.read(1)
    data = own.read_bytes() if own.exists() else gzip.decompress(RING.read_bytes())
    named("CUDA_COREDUMP_FILE").write_bytes(data)
    print("failed: the context is lost", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
