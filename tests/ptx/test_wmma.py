"""Matrices of a warp in memory (`wmma`): accesses of all its lanes, which do not order anything."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer, Scalar

#: a matrix of 8 rows of 8 numbers of 64 bits, of which each lane has two
SUM = "sync.aligned.{order}.m8n8k4.shared.f64"
TWO = "{%rd8, %rd9}"


def sums(other: str = "row", plus: str = "", apart: str = "") -> Report:
    """One warp stores sums by rows, loads them, and stores them again, in another way or place."""
    rows = SUM.format(order="row")
    return report(
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u64 %rd8, 0; mov.u64 %rd9, 0;\n"
        f"{apart}\nwmma.store.d.{rows} [%r1], {TWO}, 8;\nwmma.load.c.{rows} {TWO}, [%r1], 8;\n"
        f"wmma.store.d.{SUM.format(order=other)} [%r1{plus}], {TWO}, 8;\n"
    )


APART = "setp.eq.u32 %p1, %r2, 3; @!%p1 bra A; fence.acq_rel.cta; A:"


@pytest.mark.parametrize("apart", ["", APART])
def test_each_lane_stores_the_sums_that_it_has_loaded(apart: str) -> None:
    """Sums are spread over lanes in one way, also where these have parted; not in another order."""
    assert sums(apart=apart).verdict == "proved"
    turned = sums("col", apart=apart)
    assert turned.rules == {"race"}
    assert 4 in lines(turned)
    shifted = sums(plus="+64", apart=apart)
    assert shifted.rules == {"race"}
    assert 4 in lines(shifted)


FORMS = [
    # 16 rows of 16 elements of 2 bytes, 64 bytes apart: the last one ends at 15 * 64 + 32
    ("a.sync.aligned.row.m16n16k16.global.f16", 8, 15 * 64 + 32),
    # 16 columns of 8 rows
    ("a.sync.aligned.col.m8n32k16.global.f16", 8, 15 * 64 + 16),
    # 32 columns of 16
    ("b.sync.aligned.col.m8n32k16.global.bf16", 8, 31 * 64 + 32),
    # 8 rows of 32 elements of 4 bits
    ("a.sync.aligned.row.m8n8k32.global.s4", 1, 7 * 16 + 16),
    ("b.sync.aligned.row.m8n8k4.f64", 1, 3 * 256 + 64),
    ("c.sync.aligned.col.m16n16k8.f32", 8, 15 * 128 + 64),
]


@pytest.mark.parametrize(("form", "registers", "last"), FORMS)
@pytest.mark.parametrize("stride", ["32", "%r6", "%r7"])
def test_a_matrix_is_read_up_to_its_last_byte(
    form: str, registers: int, last: int, stride: str
) -> None:
    """Another warp stores the byte behind it, or its last one; how far apart its rows lie may be
    known only when it runs."""
    into = ",".join(f"%r{10 + n}" for n in range(registers))
    into = "%rd9" if form.endswith("f64") else into
    body = (
        "ld.param.u64 %rd1, [a]; mov.u32 %r2, %tid.x; ld.param.u32 %r6, [s]; mov.u32 %r8, 0;\n"
        "shr.u32 %r7, %r2, 6; add.u32 %r7, %r7, %r6; setp.lt.u32 %p2, %r2, 32;\n"
        "setp.eq.u32 %p1, %r2, 32; @%p1 st.global.u8 [%rd1+LAST], %r8;\n"
        f"@!%p2 bra L;\nwmma.load.{form} {{{into}}}, [%rd1], {stride};\nL:"
    )
    params = (".param .u64 a", ".param .u32 s")
    values = (Pointer("a", 4096), Scalar("s", "u32", 32))
    wrong = report(body.replace("LAST", str(last - 1)), warps=2, params=params, values=values)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [2, 4]
    right = report(body.replace("LAST", str(last)), warps=2, params=params, values=values)
    assert right.verdict == "proved"


def test_what_was_known_of_memory_is_not_known_behind_a_store_of_a_matrix() -> None:
    body = (
        "mov.u32 %r1, smem; mov.u32 %r2, 7; mov.u64 %rd8, 0; mov.u64 %rd9, 0;\n"
        "st.shared.u32 [%r1+16], %r2;\nbar.sync 0;\nMATRIX\nbar.sync 0;\n"
        "ld.shared.u32 %r3, [%r1+16];\nsetp.eq.u32 %p1, %r3, 7;\n@%p1 bra L;\nbar.sync 1, 64;\nL:"
    )
    store = f"wmma.store.d.{SUM.format(order='row')} [%r1], {TWO}, 8;"
    found = report(body.replace("MATRIX", store))
    assert found.verdict == "bounded"
    assert "where wmma.store puts what a lane has" in found.reasons[0]
    assert report(body.replace("MATRIX", "")).verdict == "proved"


#: a matrix of 16 rows of 16 elements, by its address and how far apart its rows lie
OF_16 = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 " + "{{%r1, %r2, %r3, %r4, %r5, %r6, "
OF_16 += "%r7, %r8}}, [%rd1+{at}], {apart};"


@pytest.mark.parametrize("in_a_register", [False, True])
@pytest.mark.parametrize(
    ("at", "apart", "right"),
    [(0, 16, True), (16, 24, True), (4, 16, False), (0, 9, False), (0, 20, False), (8, 24, False)],
)
def test_rows_begin_at_multiples(at: int, apart: int, right: bool, in_a_register: bool) -> None:
    """Of the size of what a lane has of the matrix, or of 16 bytes, if that is less."""
    params, values = (".param .u64 g", ".param .u32 n"), (
        Pointer("g", 4096), Scalar("n", "u32", apart),
    )  # fmt: skip
    load = OF_16.format(at=at, apart="%r9" if in_a_register else apart)
    body = f"ld.param.u64 %rd1, [g]; ld.param.u32 %r9, [n];\n{load}"
    found = report(body, params=params, values=values)
    assert (found.verdict == "proved") is right
    if not right:
        assert found.rules == {"out-of-bounds"}
        assert "must be a multiple of 16" in found.findings[0].message
