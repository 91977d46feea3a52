"""Atomics on floating-point numbers and on vectors: what they add up to, who they race with."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, report
from tilesim.ptx.launch import Contents, Pointer
from tilesim.ptx.syntax import PtxError, Unsupported

START = "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;\n"


@pytest.mark.parametrize(
    "text",
    ["red.shared.max.noftz.v2.bf16 [%r1], {%r2, %r3};", "red.shared.add.v2.f32 [%r1], {%f1};",
     "atom.shared.exch.f32 %f1, [%r1], %f2;", "red.shared.v2.u32.add [%r1], {%r2, %r2};"],
)  # fmt: skip
def test_what_is_not_modelled_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        report(f"mov.u32 %r1, smem;\n{text}")
    assert caught.value.line == FIRST + 1


@pytest.mark.parametrize("late", [0, 1])
def test_lanes_that_each_draw_from_a_word_of_their_own(late: int) -> None:
    """Whether the lanes of warp ``late`` find 1, and wait for ever, the order of draws says."""
    body = (
        "ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; and.b32 %r5, %r4, 31; shr.u32 %r6, %r4, 5;\n"
        "mul.wide.u32 %rd2, %r5, 4; add.s64 %rd2, %rd1, %rd2; atom.global.add.u32 %r7, [%rd2], 1;\n"
        f"xor.b32 %r6, %r6, {1 - late}; and.b32 %r7, %r7, %r6; setp.eq.u32 %p2, %r7, 1;\n"
        "@%p2 bar.sync 1, 64;"
    )
    zero = Pointer("a", 4096, 0, Contents("u32", (0,) * 1024))
    found = report(body, params=(".param .u64 a",), values=(zero,), warps=2)
    assert found.verdict in ("failed", "bounded")
    alone = report(body, params=(".param .u64 a",), values=(zero,), warps=1)
    assert alone.verdict == "bounded"
    assert "the result of atom.add on a may depend on the schedule" in alone.reasons[0]


#: each lane adds to the word whose number it has loaded, and uses what it finds there
FOUND = """.shared .align 4 .b8 ranks[256];
ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, 4; ld.param.u64 %rd3, [b];
add.s64 %rd3, %rd3, %rd2; add.s64 %rd2, %rd1, %rd2; ld.global.u32 %r5, [%rd2];
shl.b32 %r5, %r5, 2; mov.u32 %r6, ranks; add.u32 %r7, %r6, %r5;
shl.b32 %r8, %r4, 2; add.u32 %r8, %r6, %r8; mov.u32 %r9, 0; st.shared.u32 [%r8], %r9;
bar.sync 0;
atom.shared.add.u32 %r10, [%r7], 1;
"""


@pytest.mark.parametrize(
    ("use", "meet", "verdicts"),
    [
        ("st.global.u32 [%rd3], %r10;", True, {"proved"}),
        ("st.global.u32 [%rd3], %r10;", False, {"failed"}),
        ("setp.eq.u32 %p2, %r10, 7; @%p2 bar.sync 1, 96;", True, {"bounded", "failed"}),
        ("shl.b32 %r10, %r10, 2; add.u32 %r10, %r6, %r10; st.shared.u32 [%r10], %r4;", True,
         {"bounded", "failed"}),
    ],
)  # fmt: skip
def test_what_an_atomic_finds_matters_where_it_decides(
    use: str, meet: bool, verdicts: set[str]
) -> None:
    """Which of two lanes comes first at a word is open; a number that is only stored may be."""
    words = Pointer("a", 256, 0, Contents("u32", tuple(i // 2 for i in range(64))))
    body = FOUND if meet else FOUND.replace("bar.sync 0;\n", "")
    params, values = (".param .u64 a", ".param .u64 b"), (words, Pointer("b", 256))
    found = report(body + use, params=params, values=values, warps=2)
    assert found.verdict in verdicts


def test_a_number_of_128_bits_is_not_modelled() -> None:
    with pytest.raises(Unsupported, match="atomics on b128"):
        report(
            ".reg .b128 %q<3>; mov.b64 %rd1, 1; mov.b128 %q2, {%rd1, %rd1};\n"
            "atom.relaxed.gpu.shared.exch.b128 %q1, [%r1], %q2;"
        )


def test_a_load_has_a_type() -> None:
    with pytest.raises(PtxError, match=r"ld\.shared\.loc does not end with a type"):
        report("ld.shared.loc %r1, [%r2];")
