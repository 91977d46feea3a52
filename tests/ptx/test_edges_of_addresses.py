"""A kernel is wrong from one value of a parameter on, as an address in a register moves with it.

What is read there is known to none, so the address may move: as long as it stays inside of the
buffer, and a multiple of what the instruction needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilesim as ts
from tests.ptx.test_check import FIRST, program
from tilesim.checker import Report
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Pointer, Scalar

Number = Any
BODY = """ld.param.u64 %rd1, [x]; ld.param.u32 %r9, [n]; ld.param.u64 %rd2, [first];
cvta.to.global.u64 %rd1, %rd1; add.u64 %rd1, %rd1, %rd2; mov.u32 %r10, 0;
T: bar.sync 0;
ld.global.u32 %r5, [%rd1];
add.u64 %rd1, %rd1, EACH; add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, %r9;
@%p4 bra T;
"""
#: the line that reads
READ = FIRST + 3


def _reads(n: Number, size: int, each: int = 0, first: Number = 0) -> Mir:
    """In each of ``n`` turns a word is read, ``each`` bytes further, of a buffer of that size."""
    return program(
        BODY.replace("EACH", str(each)),
        params=(".param .u32 n", ".param .u64 x", ".param .u64 first"),
        values=(Scalar("n", "u32", n), Pointer("x", size), Scalar("first", "u64", first)),
    )  # fmt: skip


#: by how an address moves: the values asked for, the least wrong one with its rule, the kernel, and
#: its right twin
MOVES: dict[str, tuple[str, int, str, Callable[[Number], Mir], Callable[[Number], Mir]]] = {
    "in turns": (
        "1..90", 28, "out-of-bounds", lambda n: _reads(n, 16 * 27, 16),
        lambda n: _reads(n, 16 * 90, 16),
    ),
    "in turns, downwards": (
        "1..90", 28, "out-of-bounds", lambda n: _reads(n, 2048, -16, 16 * 26),
        lambda n: _reads(n, 2048, -16, 16 * 89),
    ),
    "with the parameter": (
        "1..90", 28, "out-of-bounds", lambda n: _reads(n, 4 * 28, first=4 * n),
        lambda n: _reads(n, 4 * 91, first=4 * n),
    ),
    "by less than a word": (
        "40..200", 70, "out-of-bounds", lambda n: _reads(n, 512, first=16 + 2 * ((n - 40) // 30)),
        lambda n: _reads(n, 512, first=16 + 16 * ((n - 40) // 30)),
    ),
}  # fmt: skip


def _claimed(build: Callable[[Number], Mir], asked: str) -> Report:
    return ts.check(build, for_all={"n": asked}, schedules=0)


@pytest.mark.parametrize("name", MOVES)
def test_an_address_that_moves_too_far(name: str) -> None:
    asked, least, rule, wrong, right = MOVES[name]
    proved = _claimed(right, asked)
    assert proved.for_all is not None
    assert proved.for_all.proved, proved.for_all
    found = _claimed(wrong, asked)
    assert found.verdict == "failed", found.for_all
    assert found.rules == {rule}
    assert found.covers.startswith(f"n = {least};")
    assert {p.loc.line for p in found.findings[0].participants} == {READ}
