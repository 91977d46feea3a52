"""Named barriers whose number and count of threads are in registers (E1), and `bar.arrive` beside
`bar.sync` (E5, U16)."""

from __future__ import annotations

from typing import get_args

import pytest

import tilesim as ts
from tests.gpu import needs
from tests.kernels.evidence import at, sites
from tests.ptx.campaign import back
from tests.ptx.test_check import lines, report
from tilesim import Builder
from tilesim.arith.types import u32
from tilesim.checker import Report
from tilesim.gpu.emit import emit
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Pointer, Scalar

STRICT = get_args(Strict)
#: thread and warp, and what thread 0 has put in shared memory, which is unknown before the run
START = (
    "mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; mov.u32 %r1, smem; mov.u32 %r4, {count};\n"
    "setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [%r1], %r4; bar.sync 0;\n"
    "ld.shared.u32 %r9, [%r1]; shr.u32 %r8, %r9, 5;\n"
)
#: warp 0 produces 32 words and goes on, warp 1 reads them and lets it write again
PAIR = (
    "shl.b32 %r5, %r2, 2; and.b32 %r5, %r5, 127; add.u32 %r6, %r1, %r5;\n"
    "setp.ne.u32 %p2, %r3, 0; @%p2 bra C;\n"
    "st.shared.u32 [%r6+128], %r2;\n"
    "bar.arrive {full}, {count};\n"
    "bar.sync {empty}, {count};\n"
    "st.shared.u32 [%r6+128], %r2; bra E;\n"
    "C: bar.sync {full}, {count};\n"
    "ld.shared.u32 %r7, [%r6+128];\n"
    "bar.arrive {empty}, {count};\nE:\n"
)
#: lines of a run of it
ARRIVES, WAITS, READS = 6, 9, 10


def run(body: str, count: int = 64, strict: Strict = "practice", warps: int = 2) -> Report:
    return report(START.format(count=count) + body, warps=warps, strict=strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("form", ["bar.sync", "barrier.sync", "barrier.cta.sync.aligned"])
def test_a_count_in_a_register(form: str, strict: Strict) -> None:
    for number in ("3", "%r8"):
        assert run(f"{form} {number}, %r9;\n", strict=strict).verdict == "proved"
    wrong = run(f"{form} 3, %r9;\n", 96, strict)
    assert wrong.rules == {"named-barrier"}
    assert "joined with 96 threads, the CTA has 64" in wrong.findings[0].message
    assert lines(wrong) == [3]
    odd = run(f"{form} 3, %r9;\n", 33, strict)
    assert odd.rules == {"named-barrier"}
    assert "33 threads, which is not a multiple of 32" in odd.findings[0].message


@pytest.mark.parametrize("strict", STRICT)
def test_a_count_that_too_few_come_to(strict: Strict) -> None:
    half = "setp.gt.u32 %p3, %r3, 1; @%p3 bra F;\nbarrier.sync 3, %r9;\nF:\n"
    assert run(half, 64, strict, warps=3).verdict == "proved"
    wrong = run(half, 96, strict, warps=3)
    assert wrong.rules == {"deadlock"}
    assert lines(wrong) == [4]


@pytest.mark.parametrize("strict", STRICT)
def test_counts_that_differ(strict: Strict) -> None:
    """Each warp names a count of its own, which one round does not have."""
    own = "add.u32 %r7, %r3, 1; shl.b32 %r7, %r7, 5; barrier.sync 3, %r7;\n"
    wrong = run(own, strict=strict)
    assert wrong.rules & {"named-barrier", "deadlock"}
    assert lines(wrong) == [3]
    same = own.replace("add.u32 %r7, %r3, 1;", "mov.u32 %r7, 2;")
    assert run(same, strict=strict).verdict == "proved"


def test_a_reduction_with_a_count_in_a_register() -> None:
    """Who finds another number of votes than 64 waits for ever."""
    body = (
        "setp.lt.u32 %p3, %r2, {voters}; barrier.red.popc.u32 %r7, %r8, %r9, %p3;\n"
        "setp.eq.u32 %p4, %r7, 64; @%p4 bra E;\nbar.sync 5, 96;\nE:\n"
    )
    assert run(body.format(voters=64), warps=3).verdict != "proved"  # the third warp does not vote
    assert run(body.format(voters=64)).verdict == "proved"
    assert run(body.format(voters=63)).rules == {"named-barrier"}


@pytest.mark.parametrize("value", [64, 96, None])
def test_a_count_that_the_launch_gives(value: int | None) -> None:
    loads = "ld.param.u32 %r9, [n]; barrier.sync 1, %r9;\n"
    found = report(loads, warps=2, params=(".param .u32 n",), values=(Scalar("n", "u32", value),))
    expected = {64: "proved", 96: "failed", None: "bounded"}
    assert found.verdict == expected[value], found.reasons
    contents = None if value is None else Contents("u32", (value,))
    loads = "ld.param.u64 %rd1, [x]; ld.global.u32 %r9, [%rd1]; barrier.sync 1, %r9;\n"
    pointer = Pointer("x", 4, contents=contents)
    found = report(loads, warps=2, params=(".param .u64 x",), values=(pointer,))
    assert found.verdict == expected[value], found.reasons
    if value is None:
        assert "the contents of x" in found.reasons[0]


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize(("full", "empty", "count"), [("0", "1", "64"), ("%r8", "3", "%r9")])
def test_the_example_of_the_text(full: str, empty: str, count: str, strict: Strict) -> None:
    """PTX 9.7.13.1: the producer arrives and goes on, the consumer syncs, and the other way."""
    pair = PAIR.format(full=full, empty=empty, count=count)
    right = run(pair, strict=strict)
    assert right.verdict == "proved", right.findings
    assert "U16" not in {leaning.name for leaning in right.leanings}
    swapped = pair.split("\n")
    swapped[2], swapped[3] = swapped[3], swapped[2]  # it arrives before it has written
    early = run("\n".join(swapped), strict=strict)
    assert early.rules == {"race"}
    assert lines(early) == [ARRIVES, READS]
    unasked = run(pair.replace(f"bar.sync {empty}, {count};", "\n", 1), strict=strict)
    assert "race" in unasked.rules
    unread = run(pair.replace(f"bar.arrive {full}, {count};", ""), strict=strict)
    assert unread.rules == {"deadlock"}
    assert WAITS in lines(unread)


def test_two_places_that_wait_for_one_round() -> None:
    """Of `bar.sync` in two branches the text says that all threads execute the same one."""
    body = "setp.ne.u32 %p2, %r3, 0; @%p2 bra C;\n{0} 1, 64;\nbra E;\nC: {0} 1, 64;\nE:\n"
    wrong = run(body.format("bar.sync"), strict="ptx")
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [4, 6]
    assert "U16" in {leaning.name for leaning in run(body.format("bar.sync")).leanings}
    assert run(body.format("barrier.sync"), strict="ptx").verdict == "proved"


@ts.kernel(warps=3)
def counted(k: Builder, *, come: int = 2, said: int = 64) -> None:
    """So many warps come to a barrier, and count what one thread has stored."""
    word, count = k.shared("word", u32, (1,)), k.var("count", 0)
    with k.one_thread():
        k.mem.store(word[0], said)
    k.sync_threads()
    k.mem.load(count, word[0])
    with k.if_(k.warp_id < come):
        k.bar.sync(count >> 5, count, aligned=False)  # joined


@needs.compiler
@pytest.mark.parametrize(
    ("come", "said", "rules"),
    [(2, 64, set()), (3, 96, set()), (2, 96, {"deadlock"}), (2, 128, {"named-barrier"})],
)
def test_the_same_in_the_dsl(come: int, said: int, rules: set[str]) -> None:
    program = counted.build(come=come, said=said)
    for own in (program, back(emit(program))):
        found = ts.check(own)
        assert found.verdict == ("failed" if rules else "proved")
        assert found.rules == rules
    if rules:
        (finding,) = ts.check(program).findings
        assert {line for _, line in sites(finding)} == {at(counted, "# joined")}
