"""Tensor maps that a kernel in PTX makes itself: published, acquired, and copied by."""

from __future__ import annotations

import pytest

from tests.ptx import test_check
from tests.ptx.test_check import FIRST, lines, report
from tilesim.checker import Report
from tilesim.errors import InvalidProgram
from tilesim.ptx.launch import Address, Contents, Map, Pointer
from tilesim.ptx.syntax import Unsupported

#: warp 0 makes a map of a in shared memory and leaves it in m; then everybody may use it
MAKE = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, 0; ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [m]; setp.lt.u32 %p1, %r2, 32; setp.eq.u32 %p2, %r2, 0; mov.u32 %r9, {box};
mad.lo.u32 %r4, %r2, 4, %r1; @%p1 st.shared.b32 [%r4], %r3; add.u32 %r8, %r1, 256;
bar.warp.sync -1; @%p2 mbarrier.init.shared.b64 [%r8], 1;
@!%p2 bra MADE;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %rd1;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 0x1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 0x0, %r9;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 0x1, 8;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 0x0, 64;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 0x1, {rows};
tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 0x0, 128;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 0x0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 0x1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], 0x6;
MADE: bar.warp.sync -1;
@%p1 {publish}
{acquire}
{barrier}
"""
#: thread 32 copies a box of 64 by 8 elements of two bytes
USE = """setp.eq.u32 %p3, %r2, {user};
@%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+256], {nbytes};
@%p3 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+1024], """
USE += """[%rd2, {{%r3, {row}}}], [%r1+256];
L: mbarrier.try_wait.parity.shared.b64 %p4, [%r1+256], 0;
@!%p4 bra L;"""
RIGHT = {
    "box": "64", "rows": "32", "row": "0", "barrier": "bar.sync 0;", "user": "32", "nbytes": "1024",
    "publish": "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
    ".aligned [%rd2], [%r1], 0x80;",
    "acquire": "fence.proxy.tensormap::generic.acquire.gpu [%rd2], 0x80;",
}  # fmt: skip


def made(body: str = MAKE + USE, **change: str) -> Report:
    values = (
        Pointer("a", int(change.pop("size", "4096"))),
        Pointer("m", 128),
        Pointer("n", 4, 0, Contents("u32", ())),
    )
    params = tuple(f".param .u64 {value.name}" for value in values)
    text = body.format(**{**RIGHT, **change})
    return report(text, params=params, values=values, warps=2)


def test_a_map_is_published_and_acquired() -> None:
    assert made(acquire="", barrier=f"bar.sync 0; {RIGHT['acquire']}").verdict == "proved"
    wrong = made(acquire="", barrier="bar.sync 0;")
    assert wrong.verdict == "failed"
    assert wrong.rules == {"proxy-fence"}
    assert lines(wrong) == [16, 21]


def test_a_map_of_a_buffer_of_no_bytes() -> None:
    null = made(acquire="", barrier=f"bar.sync 0; {RIGHT['acquire']}", size="0")
    assert null.rules == {"out-of-bounds"}
    assert lines(null) == [21]
    assert "global_address 0x0 is in no tensor" in str(null)


def test_a_map_in_shared_memory_is_not_acquired() -> None:
    """The address of the fence is generic, and one of global memory (PTX 9.7.13.4)."""
    body = "ld.param.u64 %rd1, [m]; mov.u64 %rd2, smem; cvta.shared.u64 %rd2, %rd2;\n{};"
    acquire = "fence.proxy.tensormap::generic.acquire.gpu [%rd{}], 0x80"
    found = [
        report(
            body.format(acquire.format(number)), params=(".param .u64 m",),
            values=(Pointer("m", 128),),
        )
        for number in (1, 2)
    ]  # fmt: skip
    assert found[0].verdict == "proved"
    assert found[1].rules == {"out-of-bounds"}
    assert lines(found[1]) == [1]


def test_a_prefetch_reads_the_map_as_well() -> None:
    """It has no effect, but where the map is not published yet it may read from anywhere (B14)."""
    early = "@%p2 cp.async.bulk.prefetch.tensor.2d.L2.global [%rd2, {{%r3, %r3}}];\n@%p1 {publish}"
    with pytest.raises(Unsupported, match="a prefetch by a map that the kernel makes"):
        made(MAKE.replace("@%p1 {publish}", early) + USE)


def test_what_is_copied_is_what_the_map_says() -> None:
    after = {"acquire": "", "barrier": f"bar.sync 0; {RIGHT['acquire']}"}
    assert made(**after, box="32", nbytes="512").verdict == "proved"
    assert made(**after, box="32").rules == {"deadlock"}
    assert made(**after, rows="64").verdict == "proved"  # what is not copied need not be there
    beyond = made(**after, rows="64", row="28")
    assert beyond.rules == {"out-of-bounds"}
    assert lines(beyond) == [21]


def test_a_box_that_nobody_knows() -> None:
    after = {"acquire": "", "barrier": f"bar.sync 0; {RIGHT['acquire']}"}
    box = "0; ld.param.u64 %rd5, [n]; ld.global.u32 %r9, [%rd5]"
    found = made(**after, box=box)
    assert found.verdict == "bounded"
    assert f"k.ptx:{FIRST + 21} depends on a value that is not known" in found.reasons[0]
    assert "the contents of n" in found.reasons[0]


def test_a_map_that_the_kernel_did_not_make() -> None:
    unknown = made(MAKE + USE.replace("[%rd2, ", "[%rd1, "))
    assert unknown.verdict == "bounded"
    assert "the contents of a" in unknown.reasons[0]
    chosen = MAKE.replace("[%r1], %rd1;", "[%r1], %rd7;", 1)
    chosen = chosen.replace("bar.warp", "selp.b64 %rd7, %rd1, %rd2, %p2; bar.warp", 1)
    after = {"acquire": "", "barrier": f"bar.sync 0; {RIGHT['acquire']}"}
    assert made(chosen + USE, **after).verdict == "proved"


def test_a_map_of_packed_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 elements of 4 bits in 32 bytes a row, which no target before sm_100a has."""
    code = "elemtype.shared::cta.b1024.b32 [%r1], "
    body = (MAKE + USE).replace(f"{code}0x6", f"{code}0xd")
    after = {"acquire": "", "barrier": f"bar.sync 0; {RIGHT['acquire']}"}
    with pytest.raises(InvalidProgram, match=r"sm_90a has no tensormap.replace \(tma.sub_byte\)"):
        made(body, **after, nbytes="256")
    monkeypatch.setattr(test_check, "HEAD", test_check.HEAD.replace("sm_90a", "sm_100a"))
    assert made(body, **after, nbytes="256").verdict == "proved"
    assert made(body, **after, nbytes="512").rules == {"deadlock"}
    assert made(body.replace("{{%r3", "{{1"), **after).rules == {"out-of-bounds"}


#: one lane of the warp that publishes is elsewhere before it, as in CUTLASS's grouped products;
#: then an elected lane copies by the map
APART = (
    MAKE[: MAKE.index("@%p1 {publish}")] + """@!%p1 bra END;
@!%p2 bra APART;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
APART: {publish}
{acquire}
elect.sync _|%p5, -1;
@!%p5 bra AROUND;
mbarrier.arrive.expect_tx.shared.b64 _, [%r1+256], {nbytes};
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+1024], """
    """[%rd2, {{%r3, {row}}}], [%r1+256];
AROUND: mov.u32 %r10, 0;
L: mbarrier.try_wait.parity.shared.b64 %p4, [%r1+256], 0;
@!%p4 bra L;
END:
"""
)


def test_a_map_is_published_by_its_warp_also_where_lanes_have_parted() -> None:
    """One copy of all lanes, of which each knows all (B14)."""
    assert made(APART).verdict == "proved"
    wrong = made(APART, acquire="")
    assert wrong.rules == {"proxy-fence"}
    assert lines(wrong) == [19, 24]


def test_a_null_pointer_is_no_map_to_acquire() -> None:
    """CUTLASS's grouped products do so in warps that copy by no map; the text forbids it."""
    null = RIGHT["acquire"].replace("%rd2", "%rd9")
    after = f"bar.sync 0; {RIGHT['acquire']} mov.u64 %rd9, 0; "
    right = made(acquire="", barrier=after + null)
    assert right.verdict == "proved"
    assert [leaning.name for leaning in right.leanings if leaning.kind == "practice"] == ["B14"]
    nowhere = made(acquire="", barrier=after + "add.u64 %rd9, %rd9, 8;" + null)
    assert nowhere.rules == {"out-of-bounds"}
    assert lines(nowhere) == [18]
    not_acquired = made(acquire="", barrier="bar.sync 0; mov.u64 %rd9, 0; " + null)
    assert not_acquired.rules == {"proxy-fence"}


def test_a_pointer_to_a_map_is_null_in_warps_that_use_none() -> None:
    """A warp that has no map holds a null pointer where others have the address of theirs."""
    body = (
        MAKE + "setp.lt.u32 %p7, %r2, 32; mov.u64 %rd9, 0;\n@%p7 bra NONE;\nmov.u64 %rd9, %rd2;\n"
    )
    used = USE.replace("[%rd2, ", "[%rd9, ")
    after = {"acquire": "", "barrier": f"bar.sync 0; {RIGHT['acquire']}"}
    assert made(body + "NONE:\n" + used, **after).verdict == "proved"
    wrong = made(body + "NONE:\n" + used, **after, user="0")
    assert wrong.rules == {"out-of-bounds"}


@pytest.mark.parametrize("stride", [0, 16, 64])
def test_rows_of_a_map_may_lie_at_one_place(stride: int) -> None:
    """The driver takes a stride of 0: CUTLASS's grouped products begin with such maps (B16)."""
    body = """mov.u32 %r1, smem; mov.u32 %r3, 0; elect.sync _|%p0, -1;
@%p0 mbarrier.init.shared.b64 [%r1+1024], 1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+1024], 512;
@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], """
    body += "[m, {%r3, %r3}], [%r1+1024];\nbar.warp.sync -1;\n"
    body += "L: mbarrier.try_wait.parity.shared.b64 %p4, [%r1+1024], 0;\n@!%p4 bra L;"
    map_ = Map("a", "f16", (32, 8), (stride,), (32, 8))
    found = report(body, params=(".param .align 64 .b8 m[128]",), values=(map_,))
    assert found.verdict == "proved"


def test_a_map_of_the_table_that_it_is_begun_with() -> None:
    """A map of one byte of a table of pointers, which the kernel loads: CUTLASS's grouped products
    copy it and change the copy."""
    body = "ld.param.u64 %rd1, [t]; mov.u32 %r1, smem; mov.u32 %r3, 0;\n"
    body += "ld.global.u64 %rd2, [%rd1+8];\nst.global.u32 [%rd2], %r3;\n"
    table = Contents("u64", (Address("a"), Address("a", 16)))
    values = (Map("t", "u8", (1, 1), (0,), (16, 1)), Pointer("t", 16, 0, table), Pointer("a", 64))
    params = (".param .align 64 .b8 m[128]", ".param .u64 t", ".param .u64 a")
    assert report(body, params=params, values=values).verdict == "proved"
    load = (
        "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
    )
    with pytest.raises(Unsupported, match="covers less of its buffer"):
        report(body + load + "[m, {%r3, %r3}], [%r1+1024];", params=params, values=values)
    beyond = body.replace("+8]", "+16]")
    assert report(beyond, params=params, values=values).rules == {"out-of-bounds"}
