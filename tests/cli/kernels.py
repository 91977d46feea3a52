"""Kernel files that the tests write to a folder and name on the command line."""

from __future__ import annotations

from tests.report.programs import file, rare
from tilesim.findings.rules import RULE_DOCS

HEAD = "import tilesim as ts\n\n\n"

GOOD = (
    HEAD
    + """
@ts.kernel(warps=2)
def handshake(k, *, rounds=2, scale=1.0, name="x", parity=True):
    out = k.tensor("out", ts.s32, (1,))
    x = k.shared("x", ts.s32, (1,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    value = k.var("value")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(rounds) as i:
        k.mbarrier.wait(empty, (i & 1) ^ int(parity))
        k.mem.store(x[0], i)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.elected(), k.loop(rounds) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(value, x[0])
        k.mem.store(out[0], value)
        k.mbarrier.arrive(empty)
"""
)

#: fails: the producer waits for a release that nobody has made
BAD = GOOD.replace("parity=True", "parity=False")

#: never proved: how often it loops depends on a tensor whose contents are not known
OPEN = (
    HEAD
    + """
@ts.kernel(warps=1)
def unknown_count(k):
    counts = k.tensor("counts", ts.s32, (1,))
    n = k.var("n")
    k.mem.load(n, counts[0])
    with k.loop(n):
        k.sync_warp()
"""
)

#: only some schedules fail
RARE = file(rare)

UNSUPPORTED = RULE_DOCS["unsupported"].buggy

#: the same defect in each of four CTAs
FOUR_CTAS = (
    HEAD
    + """
@ts.kernel(warps=1)
def stuck(k):
    k.launch(grid=4)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
"""
)

#: sends SIGINT to its own process while it is built; one in the background ignores it at first
INTERRUPTING = (
    HEAD
    + """
import os
import signal


@ts.kernel(warps=1)
def first(k):
    k.sync_threads()


@ts.kernel(warps=1)
def second(k):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**9):
        pass


@ts.kernel(warps=1)
def third(k):
    k.sync_threads()
"""
)


def rejected(body: str, *, warps: int = 4, setup: str = "") -> str:
    """A file with one kernel whose last line (marked ``# here``) is refused."""
    lines = "".join(f"    {line}\n" for line in (*setup.splitlines(), *body.splitlines()) if line)
    return f"{HEAD}@ts.kernel(warps={warps})\ndef bad(k):\n{lines}"
