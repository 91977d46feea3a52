"""Products of two CTAs: what scopes say of tensor memory that is handed over between them (U4)."""

from __future__ import annotations

import pytest

from tests.ptx.test_tcgen05 import DESCRIPTOR, HEAD
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
#: f16, 256 x 32 x 16
FORM = 1 << 4 | (32 >> 3) << 17 | (256 >> 4) << 24
#: a thread of CTA 0 issues a product and tells both CTAs when it is complete; when both have read
#: it, another one
KERNEL = f"""mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; shl.b32 %r4, %r2, 6;
mov.u32 %r50, %cluster_ctarank; add.s32 %r5, %r1, %r4; mov.u32 %r51, 0; .reg .b16 %h1;
st.shared.v4.b32 [%r5], {{0,0,0,0}}; st.shared.v4.b32 [%r5+16], {{0,0,0,0}};
st.shared.v4.b32 [%r5+32], {{0,0,0,0}}; st.shared.v4.b32 [%r5+48], {{0,0,0,0}};
setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r2, 0; setp.eq.u32 %p3, %r50, 0;
and.pred %p7, %p2, %p3; fence.proxy.async.shared::cta; mov.pred %p4, 0;
@%p2 mbarrier.init.shared::cta.b64 [%r1+8200], 1;
@%p2 mbarrier.init.shared::cta.b64 [%r1+8208], 2;
fence.mbarrier_init.release.cluster; add.s32 %r6, %r1, 8192;
{MEET}@!%p1 bra ALLOCATED;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r6], 32;
ALLOCATED: bar.sync 0; ld.shared.b32 %r9, [%r1+8192]; shl.b32 %r7, %r3, 21;
add.s32 %r8, %r9, %r7; shr.u32 %r10, %r1, 4; cvt.u64.u32 %rd1, %r10; and.b64 %rd2, %rd1, 16383;
or.b64 %rd3, %rd2, {DESCRIPTOR}; mov.u32 %r60, {FORM}; mov.b32 %r70, 3; cvt.u16.u32 %h1, %r70;
{MEET}PRODUCT: @!%p7 bra ISSUED;
tcgen05.mma.cta_group::2.kind::f16 [%r9], %rd3, %rd3, %r60, %p4;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64
 [%r1+8200], %h1;
ISSUED: bar.warp.sync -1;
W: mbarrier.try_wait.parityWAITS.shared::cta.b64 %p6, [%r1+8200], %r51; @!%p6 bra W;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}}, [%r8];
tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;
tcgen05.fence::after_thread_sync; mapa.shared::cluster.u32 %r71, %r1, 0;
@%p2 mbarrier.arriveARRIVES.shared::cluster.b64 _, [%r71+8208];
@!%p7 bra READ;
V: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r1+8208], %r51; @!%p6 bra V;
tcgen05.fence::after_thread_sync;
READ: bar.warp.sync -1; add.u32 %r51, %r51, 1; setp.lt.u32 %p8, %r51, 2; @%p8 bra PRODUCT;
tcgen05.fence::before_thread_sync; {MEET}tcgen05.fence::after_thread_sync;
@!%p1 bra END;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r9, 32;
END: ret;
}}
"""


def found(
    strict: Strict, *, waits: str = ".acquire.cluster", arrives: str = ".release.cluster"
) -> Report:
    module = read(HEAD + KERNEL.replace("WAITS", waits).replace("ARRIVES", arrives), "k.ptx")
    launch = Launch("k", (2, 1, 1), (128, 1, 1), (2, 1, 1), 16384)
    return check(lower(module, module.entries[0], launch), strict=strict, budget=50, schedules=2)


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_scopes_that_include_both_ctas(strict: Strict) -> None:
    assert found(strict).verdict == "proved"
    assert found(strict, waits=".relaxed.cluster", arrives=".relaxed.cluster").verdict == "proved"


@pytest.mark.parametrize("waits", ["", ".relaxed.cta"])
def test_a_wait_of_scope_cta_for_a_commit_of_the_other_cta(waits: str) -> None:
    narrow = found("ptx", waits=waits)
    assert narrow.verdict == "bounded"
    assert (
        "whether scope .cta orders operations on tensor memory for other CTAs" in narrow.reasons[0]
    )
    assert found("practice", waits=waits).verdict == "proved"


@pytest.mark.parametrize("arrives", ["", ".relaxed.cta"])
def test_an_arrival_of_scope_cta_at_the_other_cta(arrives: str) -> None:
    assert found("ptx", arrives=arrives).verdict == "bounded"
    assert found("practice", arrives=arrives).verdict == "proved"
