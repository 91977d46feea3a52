"""Products with K = 96 of sm_103a: rows of 48 bytes, which go on at another address where they pass
the end of a row of the swizzle; and the scales' addresses, which say more than where they are."""

from __future__ import annotations

import pytest

from tests.ptx.test_tcgen05 import FREE, HEAD, LOAD, wait
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

#: rows of 128 bytes: A from byte 0 on, the next columns of it from 16384 on, B in its first rows
NEXT, PLACES = 16384, 32768
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; mov.b32 %r4, 0;\n"
    "shl.b32 %r5, %r2, 4; add.s32 %r5, %r5, %r1;\n"
    "Z: st.shared.v4.b32 [%r5], {0,0,0,0}; add.s32 %r5, %r5, 2048; add.s32 %r4, %r4, 1; "
    "setp.lt.u32 %p6, %r4, 16; @%p6 bra Z;\n"
    "setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r2, 0; fence.proxy.async.shared::cta;\n"
    f"@%p2 mbarrier.init.shared::cta.b64 [%r1+{PLACES + 8}], 1; bar.warp.sync -1;\n"
    f"add.s32 %r6, %r1, {PLACES}; @!%p1 bra ALLOCATED;\n"
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 32;\n"
    f"ALLOCATED: bar.sync 0; ld.shared.b32 %r9, [%r1+{PLACES}]; shl.b32 %r7, %r3, 21; "
    "add.s32 %r8, %r9, %r7; mov.pred %p4, 0;\n"
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {0,0,0,0,0,0,0,0}; "
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+24], {0,0,0,0,0,0,0,0};\n"
    "tcgen05.wait::st.sync.aligned; "
    "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n"
    "shr.u32 %r70, %r1, 4; and.b32 %r71, %r70, 16320; add.s32 %r72, %r71, {first};\n"
    f"add.s32 %r73, %r1, {NEXT}; shl.b32 %r74, %r73, 12; and.b32 %r75, %r74, 1073676288; "
    "or.b32 %r76, %r72, %r75; mov.b64 %rd3, {{low}, {form}};\n"
    "mov.u32 %r60, {kind}; add.s32 %r15, %r9, 16; or.b32 %r15, %r15, {id}; "
    "add.s32 %r16, %r9, 24; or.b32 %r16, %r16, {id};\n"
)
#: the upper half of descriptors: groups of rows 1024 bytes apart, swizzle of 128 bytes, an address
FORM = 1024 >> 4 | 1 << 14 | 1 << 20 | 2 << 29
#: e2m1, 128 x 8 x 96
KIND = 1 << 7 | 1 << 10 | 8 >> 3 << 17 | 1 << 27 | 1 << 31
MULTIPLY = (
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r9], %rd3, %rd3, %r60, "
    "[%r15], [%r16], %p4;\n"
)
COMMIT = (
    f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+{PLACES + 8}];\n"
)
DONE, READ = wait(PLACES + 8), f"{LOAD}tcgen05.wait::ld.sync.aligned;\n"


def report(
    first: int, between: str = "", behind: str = "", *, form: int = FORM, kind: int = KIND,
    sid: int = 0, product: str = MULTIPLY,
) -> tuple[Report, set[str]]:  # fmt: skip
    """On rows that begin at a byte, and the lines that the first finding names."""
    low = "%r76" if first + 48 > 128 else "%r72"
    start = START.replace("{low}", low).replace("{first}", str(first // 16))
    start = start.replace("{form}", str(form))
    start = start.replace("{kind}", str(kind)).replace("{id}", str(sid))
    issue = f"@!%p2 bra ISSUED;\n{product}{COMMIT}ISSUED: bar.warp.sync -1;\n"
    text = (
        HEAD.replace("sm_100a", "sm_103a") + start + issue + between + DONE + behind + READ + FREE
    )
    module = read(text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), PLACES + 64)
    found = check(lower(module, module.entries[0], launch), schedules=4, budget=0)
    parts = found.findings[0].participants if found.findings else ()
    return found, {text.splitlines()[p.loc.line - 1] for p in parts}


def store(byte: int) -> str:
    return f"@%p2 st.shared.b32 [%r1+{byte}], %r2;\n"


@pytest.mark.parametrize(
    ("first", "byte", "read_"),
    [
        (0, 44, True), (0, 48, False), (0, NEXT, False),
        (48, 44, False), (48, 92, True), (48, NEXT, False),
        (96, 92, False), (96, 124, True), (96, NEXT + 12, True), (96, NEXT + 16, False),
        (80, 124, True), (80, NEXT, False),
    ],
)  # fmt: skip
def test_rows_go_on_at_the_address(first: int, byte: int, read_: bool) -> None:
    """That a descriptor has two addresses, of which a part of one each decides, is not proved."""
    right = "proved" if first + 48 <= 128 else "bounded"
    assert report(first, behind=store(byte))[0].verdict == right
    found, lines = report(first, between=store(byte))
    if read_:
        assert found.rules == {"race"}
        assert lines == {MULTIPLY.strip(), store(byte).strip()}
    else:
        assert found.verdict == right


def test_six_scale_factors_take_two_words_of_each_column() -> None:
    """Those of 128 rows: columns 16 to 23; of 8: 24 and 25."""
    columns = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+{}], {{%r2}};\n"
    waited = "tcgen05.wait::st.sync.aligned;\n"
    for column, used in ((15, False), (20, True), (23, True), (25, True), (26, False)):
        line = columns.format(column)
        found, lines = report(0, between=line + waited)
        assert found.verdict == ("failed" if used else "proved"), column
        if used:
            assert found.rules == {"tcgen05-order"}
            assert lines == {MULTIPLY.strip(), line.strip()}


def test_upper_bits_of_a_scale_s_address_say_which_bytes() -> None:
    """CuTe's `tmem_sf_frg`: where in their columns scales are stands in bits that no lane needs."""
    assert report(0, sid=2 << 30)[0].verdict == "proved"
    short = MULTIPLY.replace("mxf4nvf4.block_scale.block16", "mxf4.block_scale.block32")
    kind = KIND & ~(1 << 31) | 1 << 23
    found, _ = report(0, sid=1 << 31, kind=kind, form=FORM & ~(1 << 20), product=short)
    assert found.verdict == "proved"


def test_what_is_not_read_says_so() -> None:
    with pytest.raises(Unsupported, match="cross the end of a row"):
        report(96, form=FORM & ~(1 << 20))
    with pytest.raises(Unsupported, match="another layout"):
        report(0, form=FORM & ~(7 << 29) | 4 << 29)
    three = MULTIPLY.replace("mxf4nvf4.block_scale.block16", "mxf4.block_scale.block32")
    with pytest.raises(Unsupported, match="three scale factors"):
        report(0, product=three)
