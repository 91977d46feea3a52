"""Loops that read data which nobody knows: their repetitions are skipped, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.test_check import lines, program
from tests.sim.timed import timed
from tilesim.arith.sums import Sums
from tilesim.checker import Report, check
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Contents, Pointer, Scalar
from tilesim.sim.affine.loop_skipping import Skipper
from tilesim.sim.machine.simulate import Simulation

TURNS = 120
#: two warps: each thread stores what it has read in the first half of shared memory, and reads what
#: the other warp has stored; ``%r10`` counts the turns, ``%rd3`` moves by 256 bytes
LOOP = """ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, {each};
mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd4, %r5, {row}; add.s64 %rd2, %rd2, %rd4;
cvta.to.global.u64 %rd1, %rd1; add.s64 %rd3, %rd1, %rd2; mov.u32 %r10, {start};
mov.u32 %r1, smem; mad.lo.u32 %r2, %r4, 16, %r1; xor.b32 %r3, %r2, 512;
TURN:
{read}
bar.sync 0;
ld.shared.u32 %r6, [%r3];
setp.eq.u32 %p1, %r10, {missing};
@!%p1 bar.sync 0;
add.s32 %r10, %r10, 1; add.s64 %rd3, %rd3, 1024;
setp.lt.s32 %p2, %r10, {end};
@%p2 bra TURN;
"""
READS = {
    "a word": "ld.global.u32 %r7, [%rd3]; st.shared.u32 [%r2], %r7;",
    "a vector": "ld.global.v4.b32 {%r7, %r8, %r9, %r11}, [%rd3];"
                " st.shared.v4.b32 [%r2], {%r7, %r8, %r9, %r11};",
    "a copy": "cp.async.cg.shared.global [%r2], [%rd3], 16; cp.async.wait_all;",
    "arithmetic": "ld.global.f32 %f1, [%rd3]; fma.rn.f32 %f2, %f1, %f1, %f1;"
                  " st.shared.f32 [%r2], %f2;",
}  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also runs are looked at that are too short for it to be worth it."""
    monkeypatch.setattr(Skipper, "thrifty", False)


def loop(
    read: str = "a word", *, missing: int = 1 << 30, start: int = 0, grid: int = 1,
    room: int = TURNS, values: tuple[int, ...] = (), after: str = "",
) -> Mir:  # fmt: skip
    body = LOOP.format(
        each=16, row=1024 * TURNS, read=READS.get(read, read), missing=missing & 0xFFFFFFFF,
        start=start, end=start + TURNS,
    )  # fmt: skip
    known = Contents("u32", values) if values else None
    given = (Pointer("a", 1024 * (room + TURNS * (grid - 1)), 0, known), Pointer("c", 4096))
    params = (".param .u64 a", ".param .u64 c")
    return program(body + after, warps=2, grid=grid, params=params, values=given)


def both(mir: Mir) -> Report:
    """The report, which is the same if nothing is skipped."""
    found = check(mir, schedules=0, budget=0)
    assert found == check(mir, schedules=0, budget=0, skip=False)
    return found


def skipped(mir: Mir) -> int:
    """Instructions that the timed run of the first CTA has skipped."""
    return timed(mir).stats.skipped


@pytest.mark.parametrize("read", READS)
def test_reads_of_what_nobody_knows_move_from_turn_to_turn(read: str) -> None:
    right = loop(read)
    assert skipped(right) > 1_000
    assert both(right).verdict == "proved"
    wrong = both(loop(read, missing=110))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5, 7]


@pytest.mark.parametrize("start", [-TURNS - 7, -TURNS // 2, (1 << 31) - 1 - TURNS])
def test_numbers_with_a_sign_are_compared(start: int) -> None:
    """A comparison turns the sign; where the number itself changes it, no more is skipped."""
    right = loop(start=start)
    assert skipped(right)
    assert both(right).verdict == "proved"
    wrong = both(loop(start=start, missing=start + 110))
    assert lines(wrong) == [5, 7]


def test_the_turn_that_leaves_the_buffer_is_found() -> None:
    assert both(loop(room=TURNS)).verdict == "proved"
    wrong = both(loop(room=TURNS - 1))
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [5]


def test_words_that_are_known_are_not_skipped_over() -> None:
    """One word of those that are read decides whether the warps meet."""
    read = f"{READS['a word']} setp.eq.u32 %p3, %r7, 7; @%p3 ret;"
    values = [0] * (256 * TURNS)
    assert both(loop(read, values=tuple(values))).verdict == "proved"
    values[256 * 110] = 7
    wrong = both(loop(read, values=tuple(values)))
    assert wrong.verdict == "failed"


def test_ctas_that_add_to_one_word_after_their_loops() -> None:
    """What CTAs access one after another are accesses of different runs, skipped or not."""
    add = "ld.param.u64 %rd5, [c];\n{} [%rd5], 1;\n"
    right = loop(grid=3, after=add.format("red.global.gpu.add.u32"))
    assert both(right).verdict == "proved"
    wrong = both(loop(grid=3, after=add.format("st.global.u32").replace(", 1;", ", %r5;")))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [14]


#: the first warp hands turns to the second one, with a parity as compilers take it
PARITY = """mov.u32 %r1, smem; mov.u32 %r4, %tid.x; setp.lt.u32 %p3, %r4, 32; mov.u32 %r10, 0;
setp.eq.u32 %p4, %r4, 0; setp.eq.u32 %p5, %r4, 32; mov.u32 %r2, 1;
@%p4 mbarrier.init.shared::cta.b64 [%r1], %r2;
@%p4 mbarrier.init.shared::cta.b64 [%r1+8], %r2;
bar.sync 0;
@!%p3 bra TAKE;
GIVE: shr.u32 %r11, %r10, 0; not.b32 %r12, %r11; and.b32 %r13, %r12, 1;
FREE: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], %r13; @!%p1 bra FREE;
bar.warp.sync -1; @%p4 mbarrier.arrive.shared::cta.b64 _, [%r1];
add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 400;
@%p2 bra GIVE;
ret;
TAKE: and.b32 %r13, %r10, 1;
FULL: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r13; @!%p1 bra FULL;
bar.warp.sync -1; @%p5 mbarrier.arrive.shared::cta.b64 _, [%r1+8];
add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, {taken};
@%p2 bra TAKE;
"""


def test_a_parity_that_is_the_last_bit_of_what_is_not() -> None:
    """The bits above it, which never repeat, do not matter."""
    right = program(PARITY.format(taken=400), warps=2)
    assert skipped(right) > 1_000
    assert both(right).verdict == "proved"
    wrong = both(program(PARITY.format(taken=401), warps=2))
    assert wrong.rules == {"deadlock"}
    assert lines(wrong) == [13]


@pytest.mark.parametrize("several", [0, 1 << 8])
@pytest.mark.parametrize("missing", [1 << 30, 110])
def test_ctas_whose_rows_are_sums_repeat_alike(
    several: int, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CTAs hold is a number of the CTA and one of the lane, or one for each of both."""
    monkeypatch.setattr("tilesim.sim.affine.cluster_values.SEVERAL", several)
    found = both(loop(grid=5, missing=missing))
    assert found.verdict == ("failed" if missing == 110 else "proved")
    assert not found.findings or lines(found) == [5, 7]
    simulation = Simulation(loop(grid=5), numbers=False, strict="practice")
    simulation.skips = True
    follower = simulation.follow(np.arange(5), simulation.plans({}))
    run = simulation.run({}, lambda cluster: None, [0])
    assert run.stats.skipped > 1_000
    assert follower.same.all()
    kept = {type(v) for m in follower.mirrors.values() for v in m.registers.differing.values()}
    assert kept == ({Sums} if several == 0 else {np.ndarray})


ROWS = """ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, 16;
mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd4, %r5, 1024; add.s64 %rd2, %rd2, %rd4;
cvta.to.global.u64 %rd1, %rd1; add.s64 %rd3, %rd1, %rd2; mov.u32 %r10, 0;
TURN: ld.global.u32 %r7, [%rd3];
bar.sync 0; add.s32 %r10, %r10, 1; add.s64 %rd3, %rd3, {row}; setp.lt.s32 %p2, %r10, 120;
@%p2 bra TURN;
st.global.u32 [%rd3], %r10;
"""


@pytest.mark.parametrize("several", [0, 1 << 8])
def test_where_the_last_cta_stores_behind_its_loop(
    several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTAs read row by row, all of them in each turn; what the first one skips the others do."""
    monkeypatch.setattr("tilesim.sim.affine.cluster_values.SEVERAL", several)
    ctas = 100
    rows = 1024 * ctas * TURNS

    def stored(room: int) -> Mir:
        given = (Pointer("a", rows + room),)
        text = ROWS.format(row=1024 * ctas)
        return program(text, warps=2, grid=ctas, params=(".param .u64 a",), values=given)

    right = stored(1024 * ctas)
    assert skipped(right) > 500
    assert check(right, schedules=0, budget=0).verdict == "proved"
    wrong = both(stored(1024 * ctas - 512))
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [6]
    assert {p.cta for p in wrong.findings[0].participants} == {ctas - 1}


#: a loop of a few turns, and behind it one of many with other numbers in each lane
TWO_LOOPS = """\
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, 3;
mov.u32 %r9, 128; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r3, 64, %r1;
FIRST: cvt.s64.s32 %rd3, %r1; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.u8 %r5, [%rd5]; st.global.u8 [%rd4], %r5;
add.u32 %r1, %r1, %r9; add.s32 %r2, %r2, -1; setp.ne.s32 %p1, %r2, 0;
@%p1 bra FIRST;
NEXT: cvt.s64.s32 %rd3, %r1; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.u8 %r5, [%rd5]; st.global.u8 [%rd4], %r5;
add.u32 %r1, %r1, %r9; setp.lt.s32 %p2, %r1, 60000;
@%p2 bra NEXT;
"""


def test_registers_that_a_loop_before_has_left() -> None:
    """What they held when its last turn began is not needed, where that turn did something."""

    def stored(room: int) -> Mir:
        given = (Pointer("a", room), Pointer("b", 60_000))
        params = (".param .u64 a", ".param .u64 b")
        return program(TWO_LOOPS, warps=2, grid=2, params=params, values=given)

    right = stored(60_000)
    assert skipped(right) > 500
    assert both(right).verdict == "proved"
    wrong = both(stored(59_999))
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [7]


#: in every turn the lanes of ``%p6`` set %r6, which decides whether they arrive and else holds the
#: number of the turn
GUARDED = """mov.u32 %r1, smem; mov.u32 %r4, %tid.x; ld.param.u32 %r20, [n]; ld.param.u32 %r21, [c];
setp.eq.u32 %p0, %r4, 0; @%p0 mbarrier.init.shared::cta.b64 [%r1], 32;
@%p0 st.shared.u32 [%r1+64], 5; bar.sync 0; setp.{lanes};
mov.u32 %r10, 0; mov.u32 %r6, 0; mov.u32 %r9, 5;
TURN:
{sets}
setp.eq.u32 %p3, %r6, %r21; @%p3 bra SKIP;
mbarrier.arrive.shared::cta.b64 _, [%r1];
SKIP: and.b32 %r7, %r10, 1;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], %r7; @!%p4 bra WAIT;
add.u32 %r10, %r10, 1; mov.u32 %r6, %r10; setp.lt.u32 %p5, %r10, %r20; @%p5 bra TURN;
"""
#: lanes that set it: none, the first half, all
NO_LANE, HALF, EVERY = "gt.u32 %p6, %r4, 1000", "lt.u32 %p6, %r4, 16", "lt.u32 %p6, %r4, 1000"
#: ways to set it where the predicate holds, and not where it does not
SETS = {
    "mov": "@%p6 mov.u32 %r6, 5;",
    "not": "not.pred %p7, %p6; @!%p7 mov.u32 %r6, 5;",
    "a register": "@%p6 mov.u32 %r6, %r9;",
    "selp": "selp.u32 %r6, 5, %r6, %p6;",
    "a load": "@%p6 ld.shared.u32 %r6, [%r1+64];",
    "an atomic": "@%p6 atom.shared.max.u32 %r6, [%r1+64], 5;",
    "a region": "@!%p6 bra NONE; mov.u32 %r6, 5; NONE:",
    "two arms": "@%p6 bra ARM; mov.u32 %r8, %r6; bra MET;"
                " ARM: mov.u32 %r8, 5; MET: mov.u32 %r6, %r8;",
    "a joined predicate": "setp.lt.and.u32 %p7, %r4, 1000, %p6; @%p7 mov.u32 %r6, 5;",
    "a shuffle": "@%p6 mov.u32 %r6, 5; shfl.sync.idx.b32 %r6, %r6, %r4, 31, -1;",
}  # fmt: skip
#: what is not followed where it moves, so that nothing is left out
NOT_FOLLOWED = {"an atomic", "a shuffle"}


def guarded(sets: str, lanes: str, *, turns: int = 200, missing: int = 150) -> Mir:
    body = GUARDED.format(lanes=lanes, sets=SETS[sets])
    params = (".param .u32 n", ".param .u32 c")
    values = (Scalar("n", "u32", turns), Scalar("c", "u32", missing))
    return program(body, params=params, values=values)


@pytest.mark.parametrize("lanes", [NO_LANE, HALF])
@pytest.mark.parametrize("sets", SETS)
def test_lanes_whose_predicate_does_not_hold_keep_what_moves(sets: str, lanes: str) -> None:
    """A register that some lanes set, or none, moves in the others as it did."""
    wrong = both(guarded(sets, lanes))
    assert wrong.rules == {"deadlock"}
    assert lines(wrong) == [9]
    assert {(p.warp, p.cta) for p in wrong.findings[0].participants} == {(0, 0)}
    right = guarded(sets, lanes, turns=150)
    drawn = sets == "an atomic" and lanes != NO_LANE  # which lane gets what is not known
    assert both(right).verdict == ("bounded" if drawn else "proved")
    assert skipped(right) or sets in NOT_FOLLOWED


@pytest.mark.parametrize("sets", SETS)
def test_lanes_whose_predicate_holds_set_what_does_not_move(sets: str) -> None:
    right = guarded(sets, EVERY)
    assert both(right).verdict == ("bounded" if sets == "an atomic" else "proved")
    assert skipped(right) or sets in NOT_FOLLOWED
    assert both(guarded(sets, EVERY, missing=5)).rules == {"deadlock"}
