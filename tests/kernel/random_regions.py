"""Random kernels with regions that data decides: what is certified is so whatever the data is.

    python -m tests.kernel.random_regions [--cases 200] [--seed 0] [--words 4]

Each kernel (`tests.ptx.data_campaign`, without memory that threads have for themselves) goes
through the proof kernel in its plain form, without what its words are. One that is certified is
certified with words that are given, too, with which no region is left to data; and a check of it
with some of them does not fail. The command ends with 1 if one is not.
"""

from __future__ import annotations

import random
import re
from functools import partial

import click
import numpy as np

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tests.ptx.data_campaign import SETUP, _Kernel, contents, verdict
from tests.ptx.test_check import program
from tilesim.ir.mir import Mir
from tilesim.proof.check import certify
from tilesim.ptx.launch import Contents, Pointer
from tilesim.ptx.plain import plain

ASSUMED = ("loops-end", "no-trap")
#: without the threads' own memory
BEGIN = SETUP[: SETUP.index(".local")]


class Kernel(_Kernel):
    """One random kernel; more of its statements than of the others are branches and accesses."""

    def _local(self, depth: int) -> None:
        self._access(depth)

    def _access(self, depth: int) -> None:
        super()._access(depth)  # numbers that differ between threads (H23)
        self.lines[-1] = re.sub(r"^(st.*), (7|%r10);", r"\1, %r4;", self.lines[-1])

    def _barrier(self, depth: int) -> None:
        # not in a branch, where other lanes of the warp may be about to end
        if depth == 0:
            super()._barrier(depth)
        else:
            self._access(depth)

    def _agree(self, depth: int) -> None:
        self._compute(depth)

    def _compute(self, depth: int) -> None:
        super()._compute(depth)
        if self._chance.random() < 0.3:  # what data says of a lane, under a predicate
            self.lines[-1] = (
                f"and.b32 %r21, %r5, 1; setp.eq.u32 %p4, %r21, 0; @%p4 {self.lines[-1]}"
            )


def body(seed: int) -> str:
    """The text of a random kernel."""
    lines = (*Kernel(random.Random(seed)).lines, "OUT: mov.u32 %r22, 3;")
    return BEGIN + "\n".join(lines)


def machine_form(text: str) -> Mir:
    """Its plain form."""
    values = (Pointer("a", 4 * 65, 0, None), Pointer("b", 1024, 0, Contents("u32", (0,) * 256)))
    params = (".param .u64 a", ".param .u64 b")
    return program(text, params=params, values=values, warps=2, by=plain)


def judged(number: int, words: int) -> Judged:
    """What the kernel says, and, if that is wrong, with which words."""
    text = body(number)
    mir = machine_form(text)
    answer = certify(mir, assumed=ASSUMED)
    if answer.verdict != "certified":
        return compared(answer, "not compared")
    every = [*contents(number, words)]
    for some in every:
        held = {"a": np.array([*some, some[0]], np.uint32).tobytes()}
        known = certify(mir, inputs=held, assumed=ASSUMED)
        if known.verdict != "certified" and known.rule != "trap":
            return Judged("certified", f"with {some}: {known}")
    some = every[number % len(every)]
    found = verdict(text, some)
    if found.verdict == "failed" and found.rules != {"trap"}:
        return Judged("certified", f"with {some}: {found.findings[0].message}")
    return Judged("certified")


@command
@click.option("--words", default=4, show_default=True, help="Random words of a kernel.")
def main(words: int) -> Judge:
    """Compare what is certified without data with what is so with some."""
    return partial(judged, words=words)


if __name__ == "__main__":
    main()
