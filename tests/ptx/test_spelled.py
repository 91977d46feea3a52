"""Instructions that are read as they are spelled: operands, qualifiers in any order, synonyms."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, HEAD, report
from tilesim.ir.op import OPS, Op
from tilesim.ir.spelling import opcode
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported
from tilesim.ptx.templates import forms_of

SPELLED = sorted(cls.mnemonic for cls in OPS.values() if cls.ptx)


def ops(body: str) -> list[Op]:
    """What the instructions of a body become; the ``ret`` at the end, and what registers hold that
    none of them sets, are left out."""
    text = f"{HEAD.format(params='')}{body}\nret;\n}}\n"
    module = read(text, "k.ptx")
    mir = lower(module, module.entries[0], Launch("k", (1, 1, 1), (64, 1, 1), dynamic_shared=4096))
    return [i.what for i in mir.code if isinstance(i.what, Op) and i.what.ptx][:-1]


@pytest.mark.parametrize("mnemonic", SPELLED)
def test_every_spelling_is_prepared_for_reading(mnemonic: str) -> None:
    for form in forms_of(OPS[mnemonic]):
        assert form.slots == tuple(slot for slot in form.slots if slot.name in form.kinds)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("membar.gl;", "fence.sc.gpu"),
        ("fence.cluster;", "fence.acq_rel.cluster"),
        ("fence.proxy.async.shared::cta;", "fence.proxy.async.shared::cta"),
        (
            "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
            "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        ),
        ("bar.cta.sync 0;", "barrier.sync.aligned"),
        ("barrier.sync 1, 64;", "barrier.sync"),
        ("bar.red.popc.u32 %r3, 1, 64, !%p1;", "barrier.red.popc.aligned.u32"),
        ("barrier.cta.red.popc.aligned.u32 %r3, %r2, %p1;", "barrier.red.popc.aligned.u32"),
        ("barrier.cta.red.or.pred %p2, 1, 64, %p1;", "barrier.red.or.pred"),
        (
            "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r3}, [%r1];",
            "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64",
        ),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32 {%r3,%r4}, [%r1];",
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32",
        ),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r3,%r4}, [%r1];",
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
        ),
        ("barrier.cluster.arrive.aligned.relaxed;", "barrier.cluster.arrive.relaxed.aligned"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "mbarrier.arrive.release.cta.shared::cta.b64"),
        (
            "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1+8], 2;",
            "mbarrier.arrive.noComplete.release.cta.shared::cta.b64",
        ),
        (
            "mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [%r1], 64;",
            "mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64",
        ),
        (
            "mbarrier.arrive_drop.shared::cta.b64 _, [%r1], 64;",
            "mbarrier.arrive_drop.release.cta.shared::cta.b64",
        ),
        ("redux.sync.min.s32 %r3, %r2, -1;", "redux.sync.min.s32"),
        ("match.any.sync.b64 %r3, %rd1, -1;", "match.any.sync.b64"),
        ("match.all.sync.b32 %r3|%p1, %r2, -1;", "match.all.sync.b32"),
        ("match.all.sync.b32 %r3, %r2, -1;", "match.all.sync.b32"),
        ("ld.shared.v4.f32 {%f1,%f2,_,%f4}, [%r1];", "ld.weak.shared::cta.v4.b32"),
        ("st.global.L1::no_allocate.v2.b64 [%rd1], {%rd2,%rd3};", "st.weak.global.v2.b64"),
        ("ld.global.L1::evict_last.b32 {%r3}, [%rd1+0];", "ld.weak.global.b32"),
        ("st.global.b16 [%rd1+0], {%r3};", "st.weak.global.b32"),
        ("ld.volatile.shared.u32 %r3, [%r1];", "ld.relaxed.sys.shared::cta.b32"),
        ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.dec.sync.aligned.u32"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r1], %rd1, [%r2];",
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 "
            "[%r1], %r3, [%r2];",
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32",
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%rd1], [%r1], 256;",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16",
        ),
    ],
)
def test_it_is_read_as_the_instruction_that_prints_so(text: str, printed: str) -> None:
    (op,) = ops(text)
    assert opcode(op) == printed


@pytest.mark.parametrize(
    "text",
    ["fence.release.shared;", "barrier.arrive 1;", "mbarrier.arrive.expect_tx.shared.b64 _, [%r1];",
     "vote.sync.any.b32 %r3, %p1, -1;", "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3}, [%r1];",
     "fence.proxy.async::generic.acquire.sync_restrict::shared::cta.cluster;",
     "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", "redux.sync.add.b32 %r3;",
     "match.any.sync.b32 %r3, [%r2], -1;", "mbarrier.init.shared.b64 %r1, 1;",
     # rules of their own have the beginnings of these
     "barrier.cta.wait;", "bar.sync.relaxed 0;", "bar.red.xor.pred %p2, 0, %p1;",
     "elect.sync.any %r3|%p1, -1;", "redux.sync.add.u64 %rd2, %rd1, -1;",
     "cp.async.ca.shared.shared [%r1], [%r2], 16;",
     "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd1];",
     "tensormap.replace.tile.rank.shared::cta.b1024.b64 [%r1], 1;",
     "tensormap.replace.tile.global_stride.shared::cta.b1024.b32 [%r1], 0, 16;",
     "tensormap.replace.tile.rank.shared::cta.b512.b32 [%r1], 1;",
     "tensormap.replace.tile.rank.shared::cta.weak.b1024.b32 [%r1], 1;",
     "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 0, 1;",
     "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 1;"],
)  # fmt: skip
def test_what_is_spelled_otherwise_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        ops(f"mov.u32 %r2, %tid.x;\n{text}")
    assert caught.value.line == FIRST + 1


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("add.cc.TYPE %r3, %r2, 1;", "u32", "f32"), ("mul.lo.TYPE %r3, %r2, 1;", "s32", "f16x2"),
        ("setp.hi.TYPE %p1, %r2, 1;", "u32", "s32"), ("abs.TYPE %r3, %r2;", "s32", "u32"),
        ("mov.TYPE %r3, %r2;", "b32", "f16x2"), ("ld.shared.TYPE %r3, [%r1];", "b32", "s16x2"),
        ("atom.shared.add.TYPE %r3, [%r1], 1;", "s32", "b32"),
        ("atom.shared.inc.TYPE %r3, [%r1], 1;", "u32", "s32"),
        ("red.shared.and.TYPE [%r1], 1;", "b32", "u8"),
        ("redux.sync.xor.TYPE %r3, %r2, -1;", "b32", "u32"),
    ],
)  # fmt: skip
def test_types_that_no_compiler_takes_are_refused(text: str, right: str, wrong: str) -> None:
    start = "mov.u32 %r2, %tid.x; mov.u32 %r1, smem;\n"
    ops(start + text.replace("TYPE", right))
    with pytest.raises(Unsupported, match=rf"\.{wrong} is not modelled") as caught:
        ops(start + text.replace("TYPE", wrong))
    assert caught.value.line == FIRST + 1


def test_a_register_where_only_a_sink_is_promised_holds_what_nobody_knows() -> None:
    body = "elect.sync %r3|%p1, -1; setp.eq.u32 %p2, %r3, 0;\n@%p2 ret;\nmov.u32 %r1, 0;"
    found = report(body)
    assert found.verdict == "bounded"
    assert "elect.sync" in found.reasons[0]


@pytest.mark.parametrize(("threads", "verdict"), [("%r7", "proved"), ("%r8", "failed")])
def test_threads_of_a_barrier_are_those_of_the_launch(threads: str, verdict: str) -> None:
    """CUTLASS's prefetching products arrive for all threads of the CTA."""
    body = (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; mov.u32 %r5, %ntid.x;\n"
        "mov.u32 %r6, %ntid.y; "
        "mul.lo.s32 %r7, %r5, %r6; add.u32 %r8, %r7, 32;\n"
        f"@%p1 bar.arrive 1, {threads};\n@!%p1 bar.sync 1, {threads};"
    )
    assert report(body, warps=2).verdict == verdict
