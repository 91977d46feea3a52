"""Waits by tokens of lanes that have arrived in two arms of a branch and not met since, as CUDA's
guide writes its copies: `if (thread == 0) { copy; arrive_tx } else { arrive }; wait(token)`."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tilesim import checker
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer

INIT = """mov.u32 %r1, smem; mov.u32 %r2, 64; mov.u32 %r4, %tid.x; setp.ne.u32 %p0, %r4, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;
@!%p0 fence.proxy.async.shared::cta;
bar.sync 0;
mul.lo.u32 %r3, %r4, 4; add.u32 %r3, %r3, %r1; mov.u32 %r5, 256;
"""
#: a copy that thread 0 asks for, into the bytes that all threads read when they have waited
ROUND = """@%p0 bra OTHERS{n};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+{at}], [%rd1], %r5, [%r1];
mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd{token}, [%r1], %r5;
bra.uni POLL{n};
OTHERS{n}: mbarrier.arrive.shared::cta.b64 %rd{token}, [%r1];
POLL{n}: mov.u32 %r6, 0;
mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %rd{token}; selp.b32 %r8, 1, 0, %p1;
setp.ne.s32 %p3, %r8, 0; @%p3 bra DONE{n};
AGAIN{n}: setp.lt.s32 %p4, %r6, 16; @%p4 bra MORE{n}; bra.uni SLEEP{n};
MORE{n}: add.s32 %r6, %r6, 1; bra.uni LAST{n};
SLEEP{n}: nanosleep.u32 20;
LAST{n}: mbarrier.try_wait.shared::cta.b64 %p6, [%r1], %rd{token}; selp.b32 %r10, 1, 0, %p6;
setp.eq.s32 %p7, %r10, 0; @%p7 bra AGAIN{n};
DONE{n}: ld.shared.u32 %r7, [%r3+{at}];
"""


def body(rounds: int) -> str:
    """Each round into bytes of its own, with a token of its own."""
    load = "ld.param.u64 %rd1, [x];\n"
    return load + INIT + "".join(
        ROUND.format(n=n, at=1024 * (n + 1), token=20 + n) for n in range(rounds)
    )  # fmt: skip


def check(text: str) -> Report:
    kernel = program(text, warps=2, params=(".param .u64 x",), values=(Pointer("x", 1024),))
    return checker.check(kernel, schedules=0, budget=0)


def test_lanes_that_have_arrived_in_two_arms_wait_for_all() -> None:
    found = check(body(1))
    assert found.verdict == "proved", found


def test_a_loop_of_them() -> None:
    text = ROUND.format(n=0, at=1024, token=20)
    loop = f"mov.u32 %r20, 0;\nHEAD: {text}bar.sync 0;\nadd.u32 %r20, %r20, 1;\n"
    back = "setp.lt.u32 %p5, %r20, 5; @%p5 bra HEAD;\n"
    prologue = body(0)
    assert check(prologue + loop + back).verdict == "proved"
    assert check(prologue + loop.replace("bar.sync 0;", "") + back).verdict == "failed"


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("[%r1], %rd21; selp.b32", "[%r1], %rd20; selp.b32", "race"),
        ("%rd21, [%r1], %r5;", "%rd21, [%r1], 512;", "deadlock"),
        ("bra.uni POLL1;\nOTHERS1:", "OTHERS1:", "over-arrival"),
    ],
)
def test_mistakes_of_the_second_round(right: str, wrong: str, rule: str) -> None:
    text = body(2)
    assert right in text
    found = check(text.replace(right, wrong))
    assert found.verdict == "failed", found
    assert rule in found.rules, found.rules
