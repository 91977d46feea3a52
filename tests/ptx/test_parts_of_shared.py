"""What tells parts of shared memory apart (`tilesim.analysis.pointer_table`): without a condition
of it, what an answer of hardware decides is not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.gpu import needs
from tests.ptx.test_check import HEAD, report
from tests.ptx.test_gallery import back, late_tile, tiles
from tilesim.analysis import pointer_table
from tilesim.analysis.pointer_table import Range
from tilesim.checker import Report, check
from tilesim.ir.addressed import PART
from tilesim.kernels.registry import Case
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.memory import Memory
from tilesim.sim.observers import accessed_bytes
from tilesim.sim.observers.accessed_bytes import Accessed

NOTE = Accessed.touch


def verdict(case: Case) -> str:
    return back(case)[1].verdict


def each_alone(accessed: Mapping[int, Iterable[Range]]) -> dict[int, str]:
    """Instructions are in parts of their own, whatever bytes they share."""
    return {number: f"{PART}{number}" for number in accessed}


def once(self: Accessed, memory: Memory, footprint: Footprint, access: Access) -> None:
    """What was found out first stays, whatever else is accessed."""
    graph, flow = self._graph, self._flow
    NOTE(self, memory, footprint, access)
    self._graph, self._flow = graph, flow


@needs.compiler
def test_instructions_that_share_a_byte_are_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"odd_ones": "left out", "own": "handed over"}
    case = Case(tiles, params, "bugs", "proved")
    assert verdict(case) == "bounded"
    monkeypatch.setattr(pointer_table, "parts_of_shared", each_alone)
    assert verdict(case) == "proved"


@needs.compiler
def test_what_is_accessed_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(late_tile, {"asks": 5}, "bugs", "proved")
    assert verdict(case) == "failed"
    monkeypatch.setattr(Accessed, "touch", once)
    assert verdict(case) == "proved"


#: a thread of each CTA takes over tiles. CTA 7 keeps the number of each in global memory, and waits
#: for what nobody does if one comes after a certain other one, which no run happens to show
TAKES_OVER = """
mov.u32 %r0, smem; mov.u32 %r1, %tid.x; add.u32 %r2, %r0, 16; add.u32 %r3, %r0, 24;
setp.ne.u32 %p0, %r1, 0;
@%p0 bra OUT;
mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.init.shared::cta.b64 [%r3], 1;
fence.mbarrier_init.release.cluster;
mov.u32 %r4, %ctaid.x; setp.eq.u32 %p4, %r4, 7; mov.u32 %r7, 0; mov.u32 %r5, 0;
st.shared.u32 [%r0+32], 0; cvta.shared.u64 %rd7, smem; add.u64 %rd7, %rd7, 32;
ld.param.u64 %rd1, [w]; cvta.to.global.u64 %rd3, %rd1; selp.b64 %rd8, %rd1, %rd7, %p4;
NEXT: mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r2];
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], %r5;
@!%p1 bra L;
xor.b32 %r5, %r5, 1;
ld.shared.v2.u64 {{%rd4, %rd5}}, [%r0]; fence.proxy.async.shared::cta;
mov.b128 %q, {{%rd4, %rd5}};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q;
@!%p2 bra OUT;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r6, %q;
mov.u32 %r8, %r7;
@%p4 st.global.u32 [%rd3], %r6;
{guard} ld.u32 %r7, [%rd8];
setp.eq.u32 %p3, %r7, 5; {before}
@!%p3 bra NEXT;
HANG: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;
@!%p1 bra HANG;
OUT: ret;
}}
"""


def takes_over(guard: str, before: str = "setp.eq.and.u32 %p3, %r8, 3, %p3;") -> str:
    head = HEAD.replace("sm_90a", "sm_100a").replace("{{", "{{\n.reg .b128 %q;")
    text = (head + TAKES_OVER).format(params=".param .u64 w", guard=guard, before=before)
    module = read(text, "k.ptx")
    params = (Pointer("w", 4),)
    launch = Launch("k", (10, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=params)
    mir = lower(module, module.entries[0], launch)
    return check(mir, schedules=0, budget=0).verdict


@pytest.mark.parametrize("guard", ["@%p4", ""])
def test_what_is_loaded_at_a_generic_address_may_be_global(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load accesses global memory only, or in other CTAs shared memory."""
    assert takes_over(guard, before="") == "failed"
    assert takes_over(guard) == "bounded"
    monkeypatch.setattr(accessed_bytes, "_is_generic", lambda op: False)
    assert takes_over(guard) == "proved"


#: the address of a buffer lies in shared memory, and a number that decides beside it or over it
BESIDE = """\
ld.param.u64 %rd1, [a]; mov.u32 %r1, smem; mov.u32 %r3, 5; mov.u32 %r2, %tid.x;
st.shared.u64 [%r1+FAR], %rd1;
st.shared.u32 [%r1+8], %r3;
bar.sync 0;
ld.shared.u64 %rd2, [%r1+FAR]; ld.shared.u32 %r4, [%r1+NEAR];
st.global.u32 [%rd2], %r3;
setp.eq.u32 %p1, %r4, 5; @%p1 bra DONE;
bar.sync 0;
DONE:
"""


def test_a_number_beside_an_address_is_none_of_it() -> None:
    """What addresses decide, which differ from launch to launch, is told by the bytes as well."""

    def run(body: str, near: int) -> Report:
        text = body.replace("FAR", "64").replace("NEAR", str(near))
        return report(text, params=(".param .u64 a",), values=(Pointer("a", 64),))

    assert run(BESIDE, 8).verdict == "proved"
    mixed = run(BESIDE, 64)
    assert mixed.verdict == "bounded"
    assert any("depends on the value of an address" in reason for reason in mixed.reasons)
