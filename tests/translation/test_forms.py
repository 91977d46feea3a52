"""What SASS opcodes and their neighbours say is what the PTX asks for."""

from __future__ import annotations

import pytest

from tilesim.translation import forms, parts

from .small_kernels import compared

#: PTX, SASS of it, and SASS that does something else
OPCODES = [
    ("mbarrier.arrive.shared::cta.b64 _, [%r1]", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R1], RZ",
     "SYNCS.ARRIVE.TRANS64 RZ, [R1], RZ"),
    ("mbarrier.arrive.shared::cta.b64 _, [%r1]", "SYNCS.ARRIVE.TRANS64.ART0 RZ, [R1], RZ",
     "SYNCS.ARRIVE.TRANS64.OPTOUT.A1T0 RZ, [R1], RZ"),
    ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1]",
     "SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R1], RZ", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R1], RZ"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8", "SYNCS.ARRIVE.TRANS64 RZ, [R1], R2",
     "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [R1], R2"),
    ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 8",
     "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [R1], R2", "SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [R1], R2"),
    ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1]", "ARRIVES.LDGSTSBAR.64.ARVCNT [UR4]",
     "ARRIVES.LDGSTSBAR.64.TRANSCNT [UR4]"),
    ("fence.sc.gpu", "MEMBAR.SC.GPU", "MEMBAR.ALL.GPU"),
    ("fence.sc.gpu", "MEMBAR.SC.SYS", "MEMBAR.SC.CTA"),
    ("fence.acq_rel.cluster", "MEMBAR.ALL.GPU", "MEMBAR.ALL.CTA"),
    ("fence.acq_rel.sys", "MEMBAR.SC.SYS", "MEMBAR.SC.GPU"),
    ("membar.gl", "MEMBAR.SC.GPU", "MEMBAR.ALL.GPU"),
    ("ld.acquire.gpu.global.u32 %r3, [%d1]", "LDG.E.STRONG.GPU R3, desc[UR4][R4.64]",
     "LDG.E R3, desc[UR4][R4.64]"),
    ("atom.acq_rel.sys.global.add.u32 %r3, [%d1], %r2",
     "ATOMG.E.ADD.STRONG.SYS PT, R3, [R4.64], R2", "ATOMG.E.ADD.STRONG.GPU PT, R3, [R4.64], R2"),
    ("atom.acquire.gpu.global.cas.b32 %r3, [%d1], %r2, %r1",
     "ATOMG.E.CAS.STRONG.GPU PT, R3, [R4.64], R2", "ATOMG.E.EXCH.STRONG.GPU PT, R3, [R4.64], R2"),
    ("ld.relaxed.gpu.global.u32 %r3, [%d1]", "LDG.E.STRONG.GPU R3, desc[UR4][R4.64]",
     "LDG.E.STRONG.SM R3, desc[UR4][R4.64]"),
    ("barrier.red.popc.u32 %r3, 1, %p1", "BAR.RED.POPC.DEFER_BLOCKING 0x1, P0",
     "BAR.RED.OR.DEFER_BLOCKING 0x1, P0"),
    ("bar.sync 1", "BAR.SYNC.DEFER_BLOCKING 0x1", "BAR.RED.POPC.DEFER_BLOCKING 0x1, P0"),
    ("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
     "[%r1], %h1", "UTCBAR.2CTA.MULTICAST [UR4], URZ, UR5", "UTCBAR.2CTA [UR4], URZ"),
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1]",
     "UTCBAR [UR4], URZ", "UTCBAR.2CTA [UR4], URZ"),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
     ".multicast::cluster [%r1], [%d1, {%r2, %r3}], [%r4], %h1",
     "UTMALDG.2D.MULTICAST [UR8], [UR4], UR6", "UTMALDG.2D [UR8], [UR4]"),
    ("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%d1, {%r2}], [%r1]",
     "UTMAREDG.1D.ADD [UR8], [UR4]", "UTMASTG.1D [UR8], [UR4]"),
    ("setmaxnreg.inc.sync.aligned.u32 240", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",
     "USETMAXREG.DEALLOC.CTAPOOL 0xf0"),
    ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r3]", "LDTM.x2 R4, tmem[UR4]",
     "LDTM R4, tmem[UR4]"),
]  # fmt: skip


@pytest.mark.parametrize(("ptx", "right", "wrong"), OPCODES)
def test_an_opcode_does_what_its_qualifiers_ask_for(ptx: str, right: str, wrong: str) -> None:
    body = f".reg .b16 %h1;\n{ptx}; //it\n"
    assert [*forms.compare(compared(body, f"it {right}\nEXIT").translation)] == []
    (found,) = forms.compare(compared(body, f"it {wrong}\nEXIT").translation)
    opcode = wrong.split()[0]
    assert (found.effect, found.kind, opcode in found.sentence) == ("weaker", "form", True)


def missing(body: str, sass: str) -> list[str]:
    """What copies lack."""
    return [
        one.sentence.partition(" the ")[2].partition(":")[0]
        for one in parts.compare(compared(body, f"{sass}\nEXIT").translation)
    ]


HALF = "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r3}, [%r1], 1; //it"
FIRST = "it LDTM.16dp32bit_t0_t15 R3, tmem[UR4]\n"
SECOND = "it LDTM.16dp32bit_t16_t31 R3, tmem[UR4+0x1]\n"


def test_no_half_of_a_load_is_missing() -> None:
    assert missing(HALF, FIRST + SECOND) == []
    assert missing(HALF, FIRST)
    assert missing(HALF, SECOND)
    assert missing(HALF, f"{FIRST}@P0 BRA L\n{SECOND}L:")


COUNT = "it SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [R1], RZ\n"
ARRIVES = "it ARRIVES.LDGSTSBAR.64.TRANSCNT [UR4]\n"


def test_an_arrival_of_cp_async_is_counted_as_pending() -> None:
    body = "cp.async.mbarrier.arrive.shared::cta.b64 [%r1]; //it"
    assert missing(body, COUNT + ARRIVES) == []
    assert missing(body, ARRIVES)
    assert missing(body, COUNT)
    noinc = body.replace("arrive.", "arrive.noinc.")
    assert missing(noinc, ARRIVES.replace("TRANSCNT", "ARVCNT")) == []


RELEASE = """
bar.sync 0; //bar
mbarrier.arrive.release.{}.shared::cluster.b64 _, [%r1]; //it
"""


@pytest.mark.parametrize(
    ("scope", "fence", "lacks"),
    [
        ("cluster", "MEMBAR.ALL.GPU", []),
        ("cluster", "MEMBAR.ALL.CTA", ["MEMBAR of the release"]),
        ("cluster", "NOP", ["MEMBAR of the release"]),
        ("sys", "MEMBAR.ALL.GPU", ["MEMBAR of the release to the system"]),
        ("sys", "MEMBAR.ALL.SYS", []),
    ],
)
def test_a_release_hands_on_what_a_barrier_made_visible(
    scope: str, fence: str, lacks: list[str]
) -> None:
    """The thread itself has written nothing: what is released are the writes of the others."""
    sass = f"bar BAR.SYNC 0x0\nit {fence}\nit SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R1], RZ"
    assert missing(RELEASE.format(scope), sass) == lacks


def test_the_fence_of_a_proxy_reaches_as_far_as_it() -> None:
    sass = "store STS [R1], R2\nit {}\nit FENCE.VIEW.ASYNC.S"
    body = "st.shared.u32 [%r1], %r2; //store\nfence.proxy.async{}; //it"
    assert missing(body.format(".shared::cta"), sass.format("MEMBAR.ALL.CTA")) == []
    assert missing(body.format(""), sass.format("MEMBAR.ALL.GPU")) == []
    assert missing(body.format(""), sass.format("MEMBAR.ALL.CTA")) == [
        "MEMBAR of the proxy fence beyond the CTA"
    ]


def test_an_acquire_of_the_gpu_invalidates_before_a_barrier() -> None:
    """Other threads load through the same cache behind that barrier."""
    body = "fence.acquire.gpu; //it\nbar.sync 0; //bar"
    drop, bar = "it CCTL.IVALL\n", "bar BAR.SYNC 0x0\n"
    load = "ld.acquire.gpu.global.u32 %r3, [%d1]; //load\nbar.sync 0; //bar"
    loaded = "load LDG.E.STRONG.GPU R3, desc[UR4][R4.64]\n"
    assert compared(body, drop + bar + "EXIT").instructions[0].outcome == "kept"
    assert compared(body, bar + "EXIT").instructions[0].outcome == "lost"
    assert missing(load, f"{loaded}load CCTL.IVALL\n{bar}") == []
    assert missing(load, f"{loaded}load CCTL.IVALLP\n{bar}") == ["CCTL.IVALL of the acquire"]
    assert missing(load, f"{loaded}{bar}load CCTL.IVALL") == ["CCTL.IVALL of the acquire"]
