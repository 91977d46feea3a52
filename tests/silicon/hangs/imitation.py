"""What stands for a program on a GPU where there is none: ``python -m tests.silicon.hangs.imitation
PLAN``.

It makes the driver's pipe and waits; a byte makes it write a dump and end. A program that is to end
ends. The dump is one of a ring that hangs, whatever the program: what an autopsy says of it is
known to be about another kernel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.autopsy.fake_program import dump, make_pipe


def main(plan: Path) -> int:
    """Imitates the launcher."""
    document = json.loads(plan.read_text())
    if document.get("ends"):
        print("launched\nended", flush=True)
        return 0
    pipe = make_pipe()
    print("launched", flush=True)
    pipe.open("rb").read(1)
    dump(set())
    pipe.unlink()
    print("failed: the context is lost", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
