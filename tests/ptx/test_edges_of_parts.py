"""What an answer of hardware decides that lies in shared memory, at each edge of what it is mixed
with there.

Parts of shared memory are told apart by the bytes that instructions access
(`tilesim.sim.observers.accessed_bytes`). A right kernel decides by a word beside the answer; of its
twin that decides by the answer nothing is proved; and one that decides otherwise by the word beside
it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_parts_of_shared import TAKES_OVER
from tests.ptx.test_tcgen05 import HEAD
from tilesim import checker
from tilesim.checker import Report
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: an address of tensor memory lies at %r1, a barrier at 8, and 5 at 16 and beyond
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0; setp.ne.u32 %p3, %r2, %r2;\n"
    "@%p2 mbarrier.init.shared::cta.b64 [%r1+8], 1;\n"
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n"
    "@%p2 st.shared.u32 [%r1+4], 5; @%p2 st.shared.v4.u32 [%r1+16], {5, 5, 5, 5};\n"
    "@%p2 st.shared.v4.u32 [%r1+32], {5, 5, 5, 5};\n"
    "bar.warp.sync -1; cvta.shared.u64 %rd1, smem;\n"
)
#: a thread that finds %p3 does not arrive at what all wait for
END = (
    "@%p3 bra ON;\n@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1+8];\n"
    "ON: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1+8], 0;\n@!%p6 bra ON;\n"
    "ld.shared.b32 %r9, [%r1];\n"
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\nret;\n}\n"
)
#: the line of that wait
LINE = (HEAD + START).count("\n") + 4


@dataclass(frozen=True)
class Reads:
    """What reads a word of shared memory into %p3 and compares it with 6: where one beside the
    answer is named in it, and what the answer is named by instead."""

    text: str
    beside: str
    answer: str


READS = {
    "a load": Reads("ld.shared.u32 %r9, [%r1+16]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0"),
    "a generic load": Reads("ld.u32 %r9, [%rd1+16]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0"),
    "a load of a part": Reads(
        "ld.shared.u16 %r9, [%r1+16]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0"
    ),
    "a load of several": Reads(
        "ld.shared.v2.u32 {%r9, %r10}, [%r1+16]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0"
    ),
    "a load under a guard": Reads(
        "mov.u32 %r9, 0; @%p2 ld.shared.u32 %r9, [%r1+16]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0"
    ),
    "a later turn": Reads(
        "mov.u32 %r3, 32; T: add.u32 %r4, %r1, %r3; ld.shared.u32 %r9, [%r4];"
        "setp.eq.or.u32 %p3, %r9, 6, %p3; sub.u32 %r3, %r3, 16; setp.gt.s32 %p4, %r3, 15;"
        "@%p4 bra T;", "%r3, 15", "%r3, -1",
    ),
    "what a store has copied": Reads(
        "ld.shared.u32 %r9, [%r1+16]; @%p2 st.shared.u32 [%r1+64], %r9; bar.warp.sync -1;"
        "ld.shared.u32 %r9, [%r1+64]; setp.eq.u32 %p3, %r9, 6;", "+16", "+0",
    ),
}  # fmt: skip


def _check(text: str) -> Report:
    module = read(f"{HEAD}{START}{text}\n{END}", "k.ptx")
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 8192)
    return checker.check(lower(module, module.entries[0], launch), schedules=1, max_schedules=1)


@pytest.mark.parametrize("name", READS)
def test_what_the_address_of_an_allocation_decides(name: str) -> None:
    reads = READS[name]
    assert _check(reads.text).verdict == "proved"
    hangs = _check(reads.text.replace(", 6", ", 5"))
    assert hangs.rules == {"deadlock"}
    assert {p.loc.line for p in hangs.findings[0].participants} == {LINE}
    decides = _check(reads.text.replace(reads.beside, reads.answer))
    assert decides.verdict == "bounded"
    assert "the address that tcgen05.alloc returns may depend" in decides.reasons[0]


def _takes_over(guard: str, place: str, *, after: int, tile: int) -> Report:
    """CTA 1 of four stores the numbers of the tiles that it takes over to global memory. Those CTAs
    that ``guard`` lets then load a word at ``place``: a CTA that finds ``tile`` there behind
    ``after`` waits for an arrival that is never made."""
    head = HEAD.replace("()\n{", "(.param .u64 w)\n{\n.reg .b128 %q;")
    text = TAKES_OVER.replace("%p4, %r4, 7;", "%p4, %r4, 1;").replace("%r7, 5;", f"%r7, {tile};")
    text = text.replace("selp.b64 %rd8, %rd1, %rd7, %p4", f"selp.b64 %rd8, {place}, %rd7, %p4")
    before = f"setp.eq.and.u32 %p3, %r8, {after}, %p3;"
    module = read(head + text.format(guard=guard, before=before), "k.ptx")
    launch = Launch("k", (4, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=(Pointer("w", 4),))
    return checker.check(lower(module, module.entries[0], launch), schedules=0, budget=0)


@pytest.mark.parametrize("guard", ["@%p4", ""])
def test_what_the_number_of_a_tile_decides_at_a_generic_address(guard: str) -> None:
    """One that has been stored to global memory, or what shared memory holds: no run happens to
    take over 2 behind 3."""
    assert _takes_over(guard, "%rd7", after=3, tile=2).verdict == "proved"
    assert _takes_over(guard, "%rd1", after=3, tile=2).verdict == "bounded"
    hangs = _takes_over(guard, "%rd1", after=0, tile=2)
    assert hangs.rules == {"deadlock"}
    assert {p.cta for p in hangs.findings[0].participants} == {1}
