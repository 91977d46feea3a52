"""What instructions compute, exchange and leave in memory, as tables of numbers by lane.

The arithmetic of single numbers is in `test_arithmetic.py`; what of an instruction is wrong, stands
with its family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest

from tests.ptx.evaluate import evaluate
from tests.ptx.test_check import HEAD
from tilesim.ptx.launch import Contents, Pointer

#: the number of all lanes, that of each, or of single lanes
Numbers: TypeAlias = int | Callable[[int], int] | dict[int, int] | None
Rows: TypeAlias = Sequence[tuple[str, Numbers]]
LANE = "mov.u32 %r2, %tid.x; mov.u32 %r1, smem;\n"
#: each lane names the eight of its own tile, as cooperative groups do
TILES = (
    f"{LANE}and.b32 %r5, %r2, 24; mov.u32 %r6, 255; shl.b32 %r7, %r6, %r5;\n"
    "and.b32 %r8, %r2, 7; shr.u32 %r9, %r2, 3; setp.eq.u32 %p4, %r8, 2;\n"
)
EXCHANGED: Rows = [
    ("shfl.sync.down.b32 %r3, %r2, 4, 0x181f, -1;", lambda n: n + 4 if n % 8 < 4 else n),
    ("shfl.sync.idx.b32 %r3|%p4, %r2, 5, 0x181f, -1;", lambda n: n // 8 * 8 + 5),
    ("shfl.sync.up.b32 %r3|%p4, %r2, 1, 0, -1;", lambda n: max(n - 1, 0)),
    ("shfl.sync.up.b32 %r5|%p4, %r2, 1, 0, -1; selp.b32 %r3, 1, 0, %p4;", lambda n: int(n > 0)),
    ("mov.u32 %r6, 16; shfl.sync.bfly.b32 %r3, %r2, %r6, 31, -1;", lambda n: n ^ 16),
    ("mov.u32 %r3, %lanemask_gt;", lambda n: -2 << n & 0xFFFF_FFFF),
    ("mov.u32 %r3, %lanemask_le;", lambda n: (2 << n) - 1),
    ("redux.sync.add.u32 %r3, %r2, -1;", 496),
    ("redux.sync.max.s32 %r3, %r2, -1;", 31),
    ("redux.sync.max.f32 %r3, %r2, -1;", None),
    ("match.any.sync.b32 %r3, 7, -1;", 0xFFFF_FFFF),
    ("match.all.sync.b32 %r3|%p3, %r2, -1;", 0),
]  # fmt: skip
EXCHANGED_IN_TILES: Rows = [
    ("shfl.sync.down.b32 %r3, %r2, 4, 0x181f, %r7;", lambda n: n + 4 if n % 8 < 4 else n),
    ("shfl.sync.idx.b32 %r3|%p5, %r2, 3, 0x181f, %r7;", lambda n: n // 8 * 8 + 3),
    ("vote.sync.ballot.b32 %r3, %p4, %r7;", lambda n: 4 << n // 8 * 8),
    ("vote.sync.any.pred %p5, %p4, %r7; selp.b32 %r3, 1, 0, %p5;", 1),
    ("redux.sync.add.u32 %r3, %r9, %r7;", lambda n: n // 8 * 8),
    ("match.any.sync.b32 %r3, %r8, %r7;", lambda n: 1 << n),
    ("match.all.sync.b32 %r3|%p5, %r9, %r7;", lambda n: 255 << n // 8 * 8),
]
#: eight bytes of each lane's own
WORDS = (
    f"{LANE}shl.b32 %r4, %r2, 3; add.s32 %r5, %r1, %r4;\n"
    "mov.b32 %r6, 0x04030201; mov.b32 %r7, 0x08070605; st.shared.v2.b32 [%r5], {%r6, %r7};\n"
)
VECTORS: Rows = [
    ("ld.shared.v2.u16 {%r3, %r8}, [%r5+4];", 0x0605),
    ("ld.shared.v4.u8 {_, %r8, _, %r3}, [%r5];", 4),
    ("ld.relaxed.cta.shared.v2.u32 {%r8, %r3}, [%r5];", 0x08070605),
    ("ld.volatile.shared.v2.b32 {%r5, %r3}, [%r5];", 0x08070605),
    ("st.shared.v2.b16 [%r5+4], {%r2, 9}; ld.shared.u16 %r3, [%r5+6];", 9),
    ("st.shared.v4.b8 [%r5+4], {1, 2, 3, 4}; ld.shared.u32 %r3, [%r5+4];", 0x04030201),
]
#: lane 0 alone adds to a word
ADDENDS = (
    f"{LANE}setp.ne.u32 %p1, %r2, 0; @%p1 ret; mov.b32 %r7, 0x40003C00; mov.b32 %r8, 0x3F803F80;\n"
    "mov.f32 %f3, 0f3F800000; mov.f32 %f4, 0f40000000; mov.b64 %rd1, 0;\n"
)
#: what the word was, the atomic, and the word behind it, or what the atomic gives
ATOMICS: Rows = [
    ("st.shared.f32 [%r1], 0f3FC00000; red.shared.add.f32 [%r1], 0f40000000; "
     "ld.shared.b32 %r3, [%r1];", {0: 0x40600000}),
    ("st.shared.b32 [%r1], 0x3C004000; red.relaxed.cta.shared::cta.add.noftz.f16x2 [%r1], %r7; "
     "ld.shared.b32 %r3, [%r1];", {0: 0x42004200}),
    ("st.shared.b32 [%r1], 0x3F80C000; atom.shared.add.noftz.bf16x2 %r3, [%r1], %r8;",
     {0: 0x3F80C000}),
    ("st.shared.v2.b32 [%r1], {0, 0x3F800000}; red.shared.v2.f32.add [%r1], {%f3, %f4}; "
     "ld.shared.b32 %r3, [%r1+4];", {0: 0x40400000}),
    ("st.shared.v2.b32 [%r1], {0, 0x3F800000}; "
     "atom.shared.L2::cache_hint.v2.f32.add {_, %r3}, [%r1], {%f3, %f4}, %rd1;", {0: 0x3F800000}),
    ("st.shared.u32 [%r1], 0x40003C00; atom.shared.inc.u32 %r3, [%r1], %r7; "
     "ld.shared.u32 %r3, [%r1];", {0: 0}),
    ("st.shared.u32 [%r1], 0; red.release.gpu.shared.dec.u32 [%r1], %r7; "
     "ld.shared.u32 %r3, [%r1];", {0: 0x40003C00}),
]  # fmt: skip
#: numbers that are known; `max` and `min` of three
FLOATS = "mov.b32 %r2, 0f3F800000; mov.b32 %r5, 0f40400000; mov.b32 %r4, 0f40000000;\n"
OF_THREE: Rows = [
    ("max.f32 %r3, %r2, %r5, %r4;", 0x40400000),
    ("max.f32 %r3, %r4, %r2, %r5;", 0x40400000),
    ("mov.b32 %r3, %r5; max.f32 %r3, %r2, %r4, %r3;", 0x40400000),
    ("mov.b32 %r3, %r5; min.f32 %r3, %r2, %r3, %r4;", 0x3F800000),
]
GENERIC = f"{LANE}cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd2, %rd1;\n"
#: what the launch of `evaluate` says
LAUNCHED: Rows = [
    ("mov.u32 %r3, %dynamic_smem_size;", 4096),
    ("mov.u32 %r3, %total_smem_size;", 4096 + 128),  # the static byte takes a whole unit
]
SPACES: Rows = [
    ("isspacep.shared::cta %p2, %rd2; selp.b32 %r3, 1, 0, %p2;", 1),
    ("isspacep.global %p2, %rd2; selp.b32 %r3, 1, 0, %p2;", 0),
]


def evaluates(text: str, numbers: Numbers, **how: Any) -> None:
    """Fails where a lane holds another number in %r3."""
    held = evaluate(text, **how)
    if isinstance(numbers, dict):
        assert {lane: held[lane] for lane in numbers} == numbers
    else:
        assert held == [numbers(n) if callable(numbers) else numbers for n in range(len(held))]


@pytest.mark.parametrize(
    ("start", "rows"),
    [(LANE, EXCHANGED), (TILES, EXCHANGED_IN_TILES), (WORDS, VECTORS), (ADDENDS, ATOMICS),
     (FLOATS, OF_THREE), (GENERIC, SPACES)],
)  # fmt: skip
def test_registers(start: str, rows: Rows) -> None:
    for text, numbers in rows:
        evaluates(start + text, numbers)


def test_what_the_launch_says() -> None:
    """Shared memory is given to CTAs in units of 128 bytes; a cluster may be of one CTA."""
    own = ".shared .align 1 .b8 own[1];\nmov.u32 %r4, own; st.shared.u8 [%r4], 1;\n"
    for text, numbers in LAUNCHED:
        evaluates(own + text, numbers)
    explicit = HEAD.replace("{{", "\n.explicitcluster\n{{", 1)
    evaluates("mov.u32 %r3, %is_explicit_cluster;", 1, head=explicit)
    evaluates("mov.u32 %r3, %is_explicit_cluster;", None)


@pytest.mark.parametrize(
    ("kind", "first", "more", "total"),
    [("u64", 5, -1, 4), ("s64", -(1 << 63), -1, (1 << 63) - 1)],
)
def test_sums_of_64_bits_wrap(kind: str, first: int, more: int, total: int) -> None:
    """What cuda::latch counts down: the greatest number is added to a u64."""
    text = (
        f"mov.b64 %rd2, {first}; st.shared.b64 [%r1], %rd2; mov.b64 %rd3, {more};\n"
        f"atom.shared.add.u64 %rd4, [%r1], %rd3; ld.shared.{kind} %rd5, [%r1];"
    )
    assert evaluate(ADDENDS + text, "%rd5")[0] == total


BUFFER = {"params": (".param .u64 a",), "values": (Pointer("a", 4096),)}
#: eight bytes of each lane's own in global memory
ON_DEVICES = (
    f"{LANE}ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1;\n"
    "mul.wide.u32 %rd3, %r2, 8; add.s64 %rd4, %rd2, %rd3; mov.f32 %f1, 0f3FC00000;\n"
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("multimem.st.weak.global.f32 [%rd4], %f1;", 0x3FC00000),
        ("multimem.st.relaxed.sys.global.v2.f32 [%rd4], {%f1, %f1};", 0x3FC00000),
        ("st.global.f32 [%rd4], %f1; multimem.red.relaxed.sys.global.add.f32 [%rd4], %f1;",
         0x40400000),
        ("st.global.b32 [%rd4], 7; multimem.red.release.gpu.global.and.b32 [%rd4], 3;", 3),
        ("st.global.b32 [%rd4], 0x3C003C00; mov.b32 %r4, 0x3C003C00;"
         "multimem.red.relaxed.sys.global.add.f16x2 [%rd4], %r4;", 0x40004000),
    ],
)  # fmt: skip
def test_memory_of_several_devices(text: str, number: int) -> None:
    evaluates(f"{ON_DEVICES}{text}\nld.global.b32 %r3, [%rd4];", number, **BUFFER)


#: a constant, two variables and a function
MODULE = (
    ".const .align 4 .b8 table[8] = {{1, 0, 0, 0, 7, 0, 0, 0}};\n.global .align 4 .u32 counter;\n"
    ".func (.param .b32 r) twice(.param .b32 a)\n{{\n.reg .b32 %r<3>;\n"
    "ld.param.b32 %r1, [a]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2;\nret;\n}}\n.visible"
)
IN_MODULE = HEAD.replace(".visible", MODULE)
OWN = ".local .align 8 .b8 depot[8];\nmov.u64 %rd1, depot; "


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("ld.const.u32 %r3, [table+4];", 7),
        ("mov.u64 %rd1, table; ld.const.b32 {%r3}, [%rd1+4];", 7),
        ("ld.const.v2.u32 {_, %r3}, [table];", 7),
        ("mov.u64 %rd1, table; cvta.const.u64 %rd2, %rd1; add.s64 %rd3, %rd2, 4; "
         "ld.u32 %r3, [%rd3];", 7),
        ("{ .param .b32 x; .param .b32 y; st.param.b32 [x], 21; call.uni (y), twice, (x);\n"
         "ld.param.b32 %r3, [y]; }", 42),
        (f"{OWN}cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+4], %r2; bar.sync 0;\n"
         "ld.local.u32 %r3, [depot+4];", lambda n: n),
        (f"{OWN}st.local.u32 [%rd1+4], %r2; bar.sync 0; ld.local.u32 %r3, [depot+4];",
         lambda n: n),
    ],
)  # fmt: skip
def test_variables_and_functions_of_a_module(text: str, numbers: Numbers) -> None:
    evaluates(LANE + text, numbers, head=IN_MODULE, warps=2)


@pytest.mark.parametrize(
    ("load", "name", "said", "number"),
    [
        ("ld.const.u32 %r3, [table+4];", "table", Contents("u32", (0, 8)), 8),
        ("ld.const.u32 %r3, [table+4];", "table", Contents("u8", (0, 0, 0, 0, 9, 0, 0, 0)), 9),
        ("ld.const.u32 %r3, [table+4];", "table", None, None),
        ("ld.global.u32 %r3, [counter];", "counter", Contents("s32", (7,)), 7),
    ],
)
def test_the_launch_says_what_the_host_puts_into_a_variable(
    load: str, name: str, said: Contents | None, number: int | None
) -> None:
    evaluates(load, number, head=IN_MODULE, variables=((name, said),))


@pytest.mark.parametrize("total", ["add.u32 %r3, %r3, %r7", "mov.u32 %r3, %r7"])
@pytest.mark.parametrize("on", ["add.u32 %r5, %r5, 4", "add.u32 %r8, %r8, 4"])
def test_a_loop_that_adds_what_it_sees_or_goes_on_is_no_look(total: str, on: str) -> None:
    """It does nothing but look, so often as it says: of fewer turns the sum is another."""
    text = (
        f"{LANE}shl.b32 %r5, %r2, 2; add.u32 %r5, %r5, %r1; st.shared.u32 [%r5], 1; bar.sync 0;\n"
        "mov.u32 %r4, 0; mov.u32 %r5, %r1; mov.u32 %r3, 0; mov.u32 %r8, 0;\n"
        f"ON: ld.volatile.shared.u32 %r7, [%r5]; {total}; {on}; add.u32 %r4, %r4, 1;\n"
        "setp.lt.u32 %p2, %r4, 40; @%p2 bra ON;"
    )
    evaluates(text, 40 if "add" in total else 1, warps=2)
