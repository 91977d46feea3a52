"""What the emitter writes: every instruction, roles, control flow, the golden text."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tilesim import Builder, InvalidProgram, Program, bf16, f32, s32, select
from tilesim.checker import check
from tilesim.gpu.emit import EMIT, emit
from tilesim.gpu.errors import EmitError
from tilesim.ir import ops
from tilesim.ir.op import OPS
from tilesim.ir.program import instructions
from tilesim.ir.spelling import spelling
from tilesim.kernels.hopper.copy import vector

from .programs import PROGRAMS

GOLDEN = Path(__file__).parent / "golden" / "vector.cu"


def build(warps: int = 4, registers: int | None = None) -> Builder:
    k = Builder("kernel", "sm_90a", warps)
    k.launch(registers=registers)
    return k


def body(program: Program, *, perturb: bool = False) -> str:
    """The emitted kernel without source comments."""
    text = emit(program, perturb=perturb).text
    return re.sub(r"  // .*", "", text[text.index('extern "C"') :])


#: what kernels are written with; PTX that is read has instructions of its own
OWN = {m for m, cls in OPS.items() if cls.__module__.split(".")[-1] in ops.__all__}


def test_every_instruction_has_a_rule_or_a_spelling() -> None:
    missing = [m for m in EMIT.missing() if m in OWN]
    assert [m for m in missing if not OPS[m].ptx] == []
    assert all(spelling(OPS[m]) for m in missing)


def test_the_test_programs_contain_every_instruction() -> None:
    used = {op.mnemonic for p in PROGRAMS.values() for op in instructions(p)}
    assert OWN - used == set()


def test_golden_text() -> None:
    """Without the lines of the kernel, which other changes may move."""
    text = re.sub(r"(// |from )\S+:\d+ ?", r"\1", emit(vector.build()).text)
    if os.environ.get("TILESIM_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "run with TILESIM_UPDATE_GOLDEN=1 if this is intended"


def test_every_instruction_is_one_commented_statement() -> None:
    source = emit(vector.build())
    for op in instructions(source.program):
        assert f"// {op.loc} {op.mnemonic}\n" in source.text


def test_lines_map_to_the_kernel() -> None:
    source = emit(vector.build())
    lines = source.text.split("\n")
    number = next(n for n, line in enumerate(lines, 1) if "cp.async.bulk.shared::cluster" in line)
    loc = source.loc(number)
    assert loc is not None
    assert str(loc) in lines[number - 1]


def test_roles_without_a_common_warp_become_one_chain() -> None:
    k = build(warps=12, registers=168)
    out = k.tensor("out", s32, (1,))
    for name, warps in (("a", range(4)), ("b", range(4, 8)), ("c", (8, 9, 11))):
        with k.role(name, warps):
            k.mem.store(out[0], 1)
    with k.role("again", 0):
        k.mem.store(out[0], 2)
    text = body(k.finish())
    assert text.count("} else if (") == 2
    assert "if (warp_id <= 3) {" in text
    assert "} else if (warp_id >= 4 && warp_id <= 7) {" in text
    assert "} else if (0xb00u >> warp_id & 1) {" in text
    assert "  if (warp_id == 0) {" in text


def test_lanes_meet_after_a_divergent_branch_only() -> None:
    k = build()
    out, x = k.tensor("out", s32, (32,)), k.var("x", 1)
    with k.if_(k.lane_id < 3):
        k.mem.store(out[0], 1)
    divergent = body(k.finish())
    k = build()
    out, x = k.tensor("out", s32, (32,)), k.var("x", 1)
    with k.if_(x < 3):
        k.mem.store(out[0], 1)
    assert "__syncwarp();" in divergent
    assert "__syncwarp();" not in body(k.finish())
    k = build()
    out = k.tensor("out", s32, (32,))
    with k.if_(k.lane_id < 3, sync=False):
        k.mem.store(out[0], 1)
    assert "__syncwarp();" not in body(k.finish())


@pytest.mark.parametrize("sync", [True, False])
def test_lanes_of_loops_meet_behind_them_or_not(sync: bool) -> None:
    k = build()
    x = k.var("x", 0)
    with k.while_(x < k.lane_id, sync=sync):
        x += 1
    repeated = body(k.finish())
    k = build()
    with k.loop(32, sync=sync) as i, k.if_(i.eq(k.lane_id), sync=False):
        k.break_()
    assert ["__syncwarp();" in text for text in (repeated, body(k.finish()))] == [sync, sync]


def test_lanes_that_leave_do_not_meet() -> None:
    k = build()
    with k.if_(k.lane_id < 3):
        k.exit()
    assert "__syncwarp();" not in body(k.finish())


def test_division_rounds_down() -> None:
    k = build()
    x, y = k.var("x", 7), k.var("y", 0)
    k.mem.load(x, k.tensor("T", s32, (1,))[0])
    k.assign(y, x // 3)
    k.assign(y, x % 8)
    with k.loop(10) as i:
        k.assign(y, i // 3)
    text = body(k.finish())
    assert "y = floor_div<s32>(x, 3);" in text
    assert "y = x & 7;" in text
    assert "y = i / 3;" in text


def test_what_may_overflow_is_unsigned_and_nothing_else() -> None:
    k = build()
    x, y, z = k.var("x", 7), k.var("y", 0), k.var("z", 1.5, dtype=f32)
    stage, n = k.var("stage", 0), k.scalar("n", 4)
    k.mem.load(x, k.tensor("T", s32, (1,))[0])
    k.assign(y, (x + 1) * 3)
    k.assign(y, -x)
    k.assign(y, x << 3)
    k.assign(y, 1 << x)
    k.assign(y, n * 3)
    k.assign(z, z * 3.25 + 0.1)
    with k.loop(k.cta_x, n, step=k.grid_x) as i:
        k.assign(y, i * 2)
    with k.loop(10) as j:
        k.assign(y, j * 3 + 1)
        k.assign(stage, select(stage.eq(2), 0, stage + 1))
        k.assign(y, stage * 64)
    text = body(k.finish())
    for line in (
        "y = (s32)(((u32)x + 1) * 3);",
        "y = (s32)(0u - (u32)x);",
        "y = (s32)((u32)x << 3);",
        "y = (s32)shift_left<u32>((u32)1u, (s64)x);",
        "y = (s32)((u32)n * 3);",
        "z = __fadd_rn(__fmul_rn(z, 3.25f), 0.1f);",
        "y = (s32)((u32)i * 2);",
        "y = (i_1 * 3) + 1;",
        "stage = ((stage == 2) ? 0 : (stage + 1));",
        "y = stage * 64;",
    ):
        assert line in text, line


def test_a_counter_that_is_read_after_its_loop_keeps_the_last_value() -> None:
    k = build()
    out = k.tensor("out", s32, (1,))
    with k.loop(5) as i:
        k.sync_warp()
    k.mem.store(out[0], i)
    text = body(k.finish())
    assert "for (s32 i_ = 0; i_ < 5; ++i_) {" in text
    assert "i = i_;" in text


def test_names_that_the_code_uses_itself_are_changed() -> None:
    k = build()
    out = k.tensor("float", f32, (1,))
    smem, ours = k.var("smem", 1), k.var("i_", 2)
    k.mem.store(out[0], smem + ours)
    text = body(k.finish())
    assert "f32* float_u" in text
    assert "s32 smem_u = 0;" in text
    assert "s32 i__u = 0;" in text


def test_shared_addresses_are_those_of_the_placement() -> None:
    k = build()
    k.shared("first", f32, (100,))
    second = k.shared("second", bf16, (2, 8, 64), swizzle=128)
    bar = k.mbarriers("bar", 2)
    tensor = k.tensor("T", bf16, (8, 64))
    box = k.tensor_map(tensor, (8, 64), swizzle=128)
    with k.one_thread():
        k.mbarrier.init(bar[1], 1)
        k.tma.load(box, second[1], (0, 0), bar[1])
    program = k.finish()
    text = body(program)
    assert program.placement["second"] == 1024
    assert '"r"(smem + 2048)' in text
    assert f"const u32 bar = smem + {program.placement['bar']};" in text
    assert emit(program).smem_bytes == program.smem_used


def test_the_watchdog_bounds_waits_and_marks_hardware_barriers() -> None:
    k = build()
    bar = k.mbarriers("bar", 2)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
        k.mbarrier.init(bar[1], 1)
    k.sync_threads()
    k.mbarrier.arrive(bar[1])
    with k.role("waiter", range(4)):
        k.mbarrier.wait(bar[1], 0)
    program = k.finish()
    plain, watched = emit(program), emit(program, watchdog=True)
    assert "watchdog" not in plain.text
    assert "watchdog.poll(1, (u64)0, 1);" in watched.text
    assert [(s.what, s.role) for s in watched.sites] == [("named barrier 0", ""), ("bar", "waiter")]
    assert [p.kind for p in watched.params][-2:] == ["mailbox", "budget"]


def test_random_delays_stand_before_synchronising_instructions() -> None:
    k = build()
    k.sync_threads()
    k.assign(k.var("x", 1), 2)
    text = body(k.finish(), perturb=True)
    assert text.count("perturb(perturb_seed, perturb_warp, perturb_calls);") == 1
    assert "u32 perturb_seed) {" in text


def test_a_warp_has_one_answer_from_a_poll() -> None:
    k = build()
    bar, done = k.mbarriers("bar"), k.var("done", 0)
    x = k.fragment("x", f32, (1, 32))
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    k.mbarrier.test_wait(done, bar, 0)
    with k.if_(done.ne(0)):
        k.tile.fill(x, 0)
    assert "done = __all_sync(0xffffffff, mbarrier_test_wait_parity" in body(k.finish())


def test_a_tile_instruction_needs_the_whole_warp() -> None:
    k = build()
    x = k.fragment("x", f32, (1, 32))
    with k.elected():
        k.tile.fill(x, 0)
    with pytest.raises(EmitError, match=r"test_emit.py:\d+: tile.fill: the whole warp must"):
        emit(k.finish())


@pytest.mark.parametrize(("swizzle", "error"), [(0, EmitError), (32, InvalidProgram)])
def test_operands_without_a_descriptor_are_named(swizzle: Any, error: type[Exception]) -> None:
    k = build()
    a = k.shared("a", bf16, (64, 2, 16), swizzle=swizzle)
    b = k.shared("b", bf16, (64, 16), swizzle=32)
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[:, 0], b)
    with pytest.raises(error, match=rf"test_emit.py:\d+: .*a has rows of 64 bytes.* {swizzle};"):
        emit(k.finish())
    if swizzle:
        with pytest.raises(error, match="a has rows of 64 bytes"):
            check(k.finish())


def test_a_condition_that_all_lanes_of_a_warp_meet_is_no_reason_to_refuse() -> None:
    """Whether the lanes part is what a check tells: what is proved can be emitted."""
    k = build(2)
    x, y = k.shared("x", f32, (1, 32)), k.fragment("y", f32, (1, 32))
    with k.if_(k.thread_id < 32):
        k.tile.fill(y, 0)
        k.tile.store(x, y)
    program = k.finish()
    assert check(program).verdict == "proved"
    assert "thread_id < 32" in emit(program).text


@pytest.mark.parametrize(
    ("rows", "distribution", "register"),
    [
        (64, "warpgroup", "x[2 * i_ + 32]"),
        (128, "warpgroup", "x[(2 * i_) / 32 * 64 + (2 * i_) % 32 + 32]"),
        (8, "warp", "x[(r_ * 2 + c_) / 2 * 4 + (r_ * 2 + c_) % 2 + 2]"),
    ],
)
def test_a_part_of_a_fragment_is_in_these_registers(
    rows: int, distribution: Any, register: str
) -> None:
    k = build()
    x = k.fragment("x", f32, (rows, 128), distribution)
    out = k.tensor("out", f32, (rows, 64))
    with k.role("all", range(4) if distribution == "warpgroup" else 0):
        k.tile.fill(x, 0)
        k.tile.store(out, x, column=64)
    assert register in body(k.finish())
