"""What is known behind code that data leads through, told apart from what is not.

Unknown data decides branches, guards and turns. Behind them a kernel compares what is
known all the same with what it has to be. The right kernel arrives where all of it is the same; the
wrong one leaves its arrival out just there: whatever takes a result for another number, or for one
that is not known, does not find that it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_check import FIRST, HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower


@dataclass(frozen=True)
class Row:
    """Instructions behind which %v is known to be a number in each thread of the CTA or, if
    ``lane`` is one, in that one."""

    text: str
    result: int
    lane: int | None = None


#: %r2 is the thread, %r5 data, %d whether that is below 7, %s an own word of shared memory
REGISTERS = ".reg .pred %d, %e, %bad, %here, %ok, %q; .reg .b32 %v, %w, %s, %i, %z, %y;\n"
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p0, %r2, 0;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], {threads};\nbar.sync 0;\n"
    "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %r2, 4;\n"
    "add.s64 %rd1, %rd1, %rd2; ld.global.u32 %r5, [%rd1]; setp.lt.u32 %d, %r5, 7;\n"
    "ld.param.u64 %rd5, [b]; cvta.to.global.u64 %rd5, %rd5; add.s64 %rd5, %rd5, %rd2;\n"
    "mov.u32 %r8, %ctaid.x; mul.wide.u32 %rd6, %r8, 256; add.s64 %rd5, %rd5, %rd6;\n"
    "shl.b32 %s, %r2, 4; add.u32 %s, %s, %r1; add.u32 %s, %s, 64;\n"
)

#: by family
ROWS: dict[str, tuple[Row, ...]] = {
    "arms": (
        Row("mov.u32 %v, 3; @%d bra A; mov.u32 %w, %r5; bra.uni B; A: mov.u32 %w, 4; B:", 3),
        Row("mov.u32 %v, 3; @!%d bra B; mov.u32 %w, 4; B:", 3),
        Row("mov.u32 %v, 3; @%d mov.u32 %v, 4; mov.u32 %v, 5;", 5),
        Row("and.b32 %v, %r5, 0;", 0),
        Row("mov.u32 %w, 0; and.b32 %v, %w, %r5; add.u32 %v, %v, 3;", 3),
        Row("setp.ne.u32 %e, %r2, %r2; mov.u32 %v, 4; @%e mov.u32 %v, %r5;", 4),
        Row("mov.u32 %v, %r2; @!%d bra B; st.shared.u32 [%s], 1; mov.u32 %w, %r2; B:"
            " add.u32 %v, %v, %v;", 10, 5),
    ),
    "computed": (
        Row("{ .reg .b32 %t, %u; .reg .f32 %f; ex2.approx.f32 %f, 0f3F800000;"
            " cvt.rzi.u32.f32 %t, %f; popc.b32 %u, %t; st.shared.u32 [%s], %u; mov.u32 %u, 8;"
            " @%d bra A; st.shared.u32 [%s+4], 1; A: popc.b32 %v, %u; }", 1),
        Row("{ .reg .b32 %t, %u; .reg .f32 %f; mov.u32 %t, 8; ex2.approx.f32 %f, 0f3F800000;"
            " @%d bra A; st.shared.u32 [%s+4], 1; A: popc.b32 %v, %t; cvt.rzi.u32.f32 %t, %f;"
            " popc.b32 %u, %t; st.shared.u32 [%s], %u; }", 1),
        Row("{ .reg .b32 %t, %u; .reg .f32 %f; ex2.approx.f32 %f, 0f3F800000;"
            " cvt.rzi.u32.f32 %t, %f; bfe.u32 %u, %t, 3, 0; @%d bra A; st.shared.u32 [%s+4], 1;"
            " A: add.u32 %v, %u, 2; }", 2),
        Row("{ .reg .b32 %u; popc.b32 %u, %r5; st.shared.u32 [%s], %u; mov.u32 %u, 8; @%d bra A;"
            " st.shared.u32 [%s+4], 1; A: popc.b32 %v, %u; }", 1),
        Row("{ .reg .b32 %u; ld.shared.u32 %u, [%s]; st.shared.u32 [%s], %u; mov.u32 %u, 8;"
            " @%d bra A; st.shared.u32 [%s+4], 1; A: clz.b32 %v, %u; }", 28),
        Row("{ .reg .b32 %u; mov.u32 %u, 8; @%d bra A; st.shared.u32 [%s+4], 1; A:"
            " popc.b32 %v, %u; popc.b32 %u, %r5; st.shared.u32 [%s], %u; }", 1),
        Row("{ .reg .b32 %u; popc.b32 %u, %r5; bfe.u32 %u, %u, 3, 0; @%d bra A;"
            " st.shared.u32 [%s+4], 1; A: add.u32 %v, %u, 2; }", 2),
    ),
    "arms in arms": (
        Row("mov.u32 %v, 3; mov.u32 %w, 9; @%d bra B; setp.eq.u32 %e, %r2, 4; @%e bra C;"
            " mov.u32 %w, 5; st.global.u32 [%rd5], 1; bra.uni B; C: mov.u32 %w, 6; B:", 3),
        Row("mov.u32 %v, 3; @%d bra B; setp.eq.u32 %e, %r5, 9; @%e bra C;"
            " st.shared.u32 [%s], 1; bra.uni B; C: st.shared.u32 [%s+4], 1; B:", 3),
        Row("mov.u32 %v, 3; @%d bra B; setp.eq.u32 %e, %r2, %r2; @%e bra C; mov.u32 %v, 5;"
            " st.shared.u32 [%s], 1; C: st.shared.u32 [%s+4], 1; B:", 3),
        Row("mov.u32 %v, 3; @%d bra B; setp.ne.u32 %e, %r2, %r2; @%e bra C;"
            " st.shared.u32 [%s+4], 1; bra.uni B; C: mov.u32 %v, 5; st.shared.u32 [%s], 1; B:", 3),
        Row("mov.u32 %v, 3; setp.eq.u32 %e, %r2, 4; @%e bra C; @%d bra C; st.shared.u32 [%s], 1;"
            " C: add.u32 %v, %v, 1;", 4),
    ),
    "ways": (
        Row("mov.u32 %v, 3; @!%d bra B; mov.u32 %v, 4; setp.eq.u32 %e, %r5, 2; @%e bra C;"
            " st.shared.u32 [%s], 1; C: mov.u32 %v, 3; B:", 3),
        Row("@%d bra A; mov.u32 %v, 3; setp.eq.u32 %e, %r5, 9; @%e bra B; st.shared.u32 [%s], 1;"
            " bra.uni B; A: mov.u32 %v, 3; st.shared.u32 [%s+4], 1; B: add.u32 %v, %v, 1;", 4),
        Row("mov.u32 %v, %r2; @!%d bra B; add.u32 %v, %r2, 0; setp.eq.u32 %e, %r5, 2; @%e bra B;"
            " st.shared.u32 [%s], 1; B:", 5, 5),
        Row("mov.u32 %w, 9; @!%d bra B; mov.u32 %w, 8; setp.eq.u32 %e, %r5, 2; @%e bra B;"
            " st.shared.u32 [%s], 1; mov.u32 %w, 9; B: mov.u32 %v, 3; @%d mov.u32 %w, 2;", 3),
        Row("mov.u32 %v, 3; sub.s32 %z, %r2, 3; @!%d bra B; div.s32 %w, 7, %z;"
            " setp.eq.u32 %e, %r5, 2; @%e bra B; st.shared.u32 [%s], 1; B: add.u32 %v, %v, 1;", 4),
        Row("mov.u32 %v, 3; sub.s32 %z, %r2, 3; div.s32 %w, 7, %z; @!%d bra B; add.u32 %v, %v, 0;"
            " setp.eq.u32 %e, %r5, 2; @%e bra B; st.shared.u32 [%s], 1; B: setp.eq.u32 %e, %r2, 3;"
            " selp.b32 %v, 4, %w, %e; add.u32 %v, %v, 1;", 8, 4),
    ),
    "ways that set the same": (
        Row("shl.b32 %w, %r2, 10; @%d bra A; setp.eq.u32 %e, %r5, 9; @%e bra C;"
            " st.shared.u32 [%s], 1; C: add.u32 %v, %w, 1000; bra.uni B; A: or.b32 %v, %w, 1000;"
            " st.shared.u32 [%s+4], 1; B: add.u32 %v, %v, 0;", 6120, 5),
        Row("setp.lt.u32 %q, %r2, 4; @%d bra A; setp.eq.u32 %e, %r5, 9; @%e bra C;"
            " st.shared.u32 [%s], 1; C: setp.le.u32 %q, %r2, 3; bra.uni B;"
            " A: setp.gt.u32 %q, 4, %r2; st.shared.u32 [%s+4], 1; B: selp.b32 %v, 7, 8, %q;", 7, 3),
        Row("mov.u32 %v, 3; @%d bra B; setp.lt.u32 %e, %r2, 5; @%e bra C; st.shared.u32 [%s], 1;"
            " bra.uni B; C: setp.eq.u32 %e, %r5, 9; @%e bra B; st.shared.u32 [%s+4], 1; B:", 3),
    ),
    "another number in each CTA": (
        Row("mov.u32 %i, %ctaid.x; st.shared.u32 [%s+8], %i; ld.shared.u32 %y, [%s+8];"
            " @!%d bra B; setp.eq.u32 %e, %r5, 2; @%e bra B; st.shared.u32 [%s], 1;"
            " B: sub.u32 %v, %y, %i;", 0),
        Row("mov.u32 %i, %ctaid.x; st.shared.u32 [%s+8], %i; @%d bra A; ld.shared.u32 %y, [%s+8];"
            " setp.eq.u32 %e, %r5, 2; @%e bra B; st.shared.u32 [%s], 1; bra.uni B;"
            " A: mov.u32 %y, 3; B: mov.u32 %v, %i; sub.u32 %v, %v, %i;", 0),
    ),
    "looked at": (
        Row("ld.relaxed.gpu.global.u32 %w, [%rd5+32768]; mov.u32 %v, 3;"
            " @%d st.shared.u32 [%s], 1;", 3),
        Row("mov.u32 %v, 3; @!%d bra B; setp.eq.u32 %e, %r5, 2; @%e bra B; st.shared.u32 [%s], 1;"
            " red.relaxed.gpu.global.add.u32 [%rd5], 1; B: add.u32 %v, %v, 1;", 4),
        Row("@%d red.relaxed.gpu.global.add.u32 [%rd5+4096], 1; mov.u32 %v, 3;", 3),
    ),
    "turns": (
        Row("mov.u32 %v, 3; mov.u32 %i, 0; @%d bra B; T: setp.eq.u32 %e, %r5, 9; @%e bra C;"
            " st.shared.u32 [%s], %i; C: add.u32 %i, %i, 1; setp.lt.u32 %e, %i, 5; @%e bra T;"
            " sub.u32 %v, %i, 2; B: add.u32 %v, %v, 1;", 4),
        Row("mov.u32 %i, 0; mov.u32 %v, 8; T: st.shared.u32 [%s], %i; add.u32 %i, %i, 1;"
            " setp.lt.u32 %e, %i, %r5; @%e bra T;", 8),
        Row("mov.u32 %i, 0; @%d bra B; T: st.shared.u32 [%s], %i; add.u32 %i, %i, 1;"
            " setp.lt.u32 %e, %i, 5; @%e bra T; B: mov.u32 %v, 6;", 6),
        Row("mov.u32 %i, 0; mov.u32 %v, 5; @%d bra B; T: st.shared.u32 [%s], %i; add.u32 %i, %i, 1;"
            " setp.lt.u32 %e, %i, %v; @%e bra T; mov.u32 %i, 0; B: add.u32 %v, %v, %i;", 5),
        Row("mov.u32 %v, 1; mov.u32 %i, 0; T: add.u32 %i, %i, 1; st.shared.u32 [%s+4], %v;"
            " mov.u32 %v, 2; setp.lt.u32 %e, %i, %r5; @%e bra T;", 2),
        Row("mov.u32 %i, 0; T: st.shared.u32 [%s], %i; setp.eq.u32 %e, %r5, 9; @%e bra B;"
            " st.shared.u32 [%s+4], %i; @%d bra B; add.u32 %i, %i, 1; setp.lt.u32 %e, %i, 5;"
            " @%e bra T; B: mov.u32 %v, 6;", 6),
    ),
    "memory": (
        Row("st.shared.u32 [%s], 3; st.shared.u32 [%s+4], %r5; ld.shared.u32 %v, [%s];", 3),
        Row("st.shared.u32 [%s+4], %r5; st.shared.u32 [%s+4], 4; ld.shared.u32 %v, [%s+4];", 4),
        Row("st.shared.u32 [%s], 3; @%d st.shared.u32 [%s+4], 7; ld.shared.u32 %v, [%s];", 3),
        Row("st.global.u32 [%rd5], %r5; st.global.u32 [%rd5], 9; ld.global.u32 %v, [%rd5];", 9),
        Row("st.global.u32 [%rd5], 9; ld.global.u32 %v, [%rd5];", 9),
        Row("st.shared.u32 [%s], %r5; st.shared.u8 [%s+1], 9; ld.shared.u8 %v, [%s+1];", 9),
        Row("st.shared.u32 [%s], 3; @!%d bra B; st.shared.u32 [%s+4], 1; ld.shared.u32 %w, [%s];"
            " B: ld.shared.u32 %v, [%s];", 3),
        Row("st.shared.u32 [%s+4], 3; @!%d bra B; st.shared.u32 [%s], 1; B:"
            " ld.shared.u32 %v, [%s+4];", 3),
        Row("@%d st.shared.u32 [%s], 1; st.shared.u32 [%s], 2; ld.shared.u32 %v, [%s];", 2),
        Row("st.shared.u32 [%s], 3; @%d ld.shared.u32 %w, [%s]; ld.shared.u32 %v, [%s];", 3),
    ),
    "traps": (
        Row("mov.u32 %v, 3; @!%d bra B; trap; B: mov.u32 %v, 4;", 4),
        Row("mov.u32 %v, 3; @!%d bra B; st.shared.u32 [%s], 1; trap; B: mov.u32 %v, 4;", 4),
        Row("mov.u32 %v, 3; @!%d bra B; setp.lt.u32 %e, %r5, 4; @!%e bra B; st.shared.u32 [%s], 1;"
            " trap; B: mov.u32 %v, 4;", 4),
        Row("mov.u32 %v, 3; @!%d bra B; setp.eq.u32 %e, %r2, 4; @!%e bra C; trap;"
            " C: st.shared.u32 [%s], 1; B: mov.u32 %v, 4;", 4),
        Row("mov.u32 %v, 3; @%d trap; mov.u32 %v, 4;", 4),
        Row("setp.lt.u32 %e, %r2, 5; @%e bra A; st.shared.u32 [%s], 1; bra.uni B;"
            " A: st.shared.u32 [%s+4], 1; B: mov.u32 %v, 3; @!%d bra C; st.shared.u32 [%s], 2;"
            " trap; C: mov.u32 %v, 4;", 4),
    ),
    "quotients": (
        Row("sub.s32 %z, %r2, 3; div.s32 %w, 7, %z; mov.u32 %v, 2; setp.eq.u32 %e, %r2, 3;"
            " @!%e mov.u32 %v, 2;", 2),
        Row("sub.s32 %z, %r2, 3; div.s32 %w, 70, %z; setp.eq.u32 %e, %r2, 3;"
            " selp.b32 %v, 9, %w, %e;", 35, 5),
        Row("sub.s32 %z, %r2, 3; rem.s32 %w, 7, %z; add.u32 %y, %w, 1; setp.eq.u32 %e, %r2, 3;"
            " mov.u32 %v, 4; @!%e mov.u32 %v, %y;", 4, 3),
        Row("sub.s32 %z, %r2, 3; div.s32 %w, 7, %z; mov.u32 %w, 4; add.u32 %v, %w, 1;", 5),
        Row("div.u32 %w, 7, %r5; mov.u32 %v, 4;", 4),
        Row("div.u32 %w, 7, %r5; st.global.u32 [%rd5], %w; mov.u32 %v, 4;", 4),
        Row("sub.s32 %z, %r2, 3; div.s32 %w, 7, %z; setp.eq.u32 %e, %r2, 3; @%e bra B;"
            " st.global.u32 [%rd5], %w; B: mov.u32 %v, 4;", 4),
    ),
}  # fmt: skip


def _labelled(text: str, number: int) -> str:
    """The same with labels of its own."""
    for label in "ABCT":
        text = text.replace(f" {label};", f" {label}{number};").replace(
            f"{label}:", f"{label}{number}:"
        )
    return text + "\n"


def _text(rows: tuple[Row, ...], wrong: bool, threads: int, grid: int) -> str:
    bad = "or.pred %bad, %bad, %q;\n"
    compared = "".join(
        _labelled(row.text, number)
        + f"setp.ne.u32 %q, %v, {row.result}; "
        + ("" if row.lane is None else f"setp.eq.u32 %e, %r2, {row.lane}; and.pred %q, %q, %e; ")
        + bad
        for number, row in enumerate(rows)
    )
    fails = "not.pred %q, %bad;" if wrong else "and.pred %q, %bad, %bad;"
    here = f"mov.u32 %r8, %ctaid.x; setp.eq.u32 %here, %r8, {grid // 2}; and.pred %q, %here, %q;\n"
    one = "setp.eq.u32 %here, %r2, 0; and.pred %q, %here, %q; not.pred %ok, %q;\n"
    return (
        f"{REGISTERS}{START.format(threads=threads)}setp.ne.u32 %bad, %r2, %r2;\n{compared}"
        f"{fails}{here}{one}@%ok mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
        "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra L;\n"
    )


def run(rows: tuple[Row, ...], *, wrong: bool, threads: int, grid: int) -> tuple[Report, int]:
    """The report, and the line of the wait."""
    params = ".param .u64 a, .param .u64 b"
    text = f"{HEAD.format(params=params)}{_text(rows, wrong, threads, grid)}ret;\n}}\n"
    # bytes of a large buffer are told apart only once something known is stored there
    values = (Pointer("a", 4096), Pointer("b", (1 << 16) * min(grid, 2)))
    launch = Launch("k", (grid, 1, 1), (threads, 1, 1), (1, 1, 1), 4096, params=values)
    module = read(text, "k.ptx")
    at = next(k for k, line in enumerate(text.splitlines(), 1) if line.startswith("L: "))
    assert at > FIRST
    return check(lower(module, module.entries[0], launch)), at


#: threads of a CTA, and CTAs
SIZES = ((32, 1), (64, 1), (32, 8))


@pytest.mark.parametrize(("threads", "grid"), SIZES)
@pytest.mark.parametrize("family", ROWS)
def test_an_arrival_behind_what_data_decides(family: str, threads: int, grid: int) -> None:
    right, _ = run(ROWS[family], wrong=False, threads=threads, grid=grid)
    assert right.verdict == "proved", right
    found, at = run(ROWS[family], wrong=True, threads=threads, grid=grid)
    assert found.verdict == "failed", found
    assert found.rules == {"deadlock"}
    participants = found.findings[0].participants
    assert {p.loc.line for p in participants} == {at}
    assert {p.cta for p in participants} == {grid // 2}
