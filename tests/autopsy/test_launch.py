"""The launch of a kernel, rebuilt from what a dump has of it."""

from __future__ import annotations

import random
from pathlib import Path
from struct import pack

import pytest

from tests.autopsy import dump_writer as writer
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.find_ptx import FoundPtx, Loaded, Missing
from tilesim.autopsy.launch import (
    ASSUMED_BYTES,
    ASSUMED_HELD,
    Rebuilt,
    extent,
    is_map,
    rebuild,
    with_contents,
    with_zeros,
)
from tilesim.cubin.image import KernelParameter
from tilesim.ptx.launch import Contents, Field, Launch, Map, Pointer, Scalar, Struct
from tilesim.ptx.parser import read
from tilesim.ptx.tensormap import encode
from tilesim.records import replace

from .test_find_ptx import RING, kernel

__all__ = ["kernel"]

NEAR = 0x7F12_0000_0000
TENSOR, PART, OTHER, FAR = NEAR, NEAR + 0x100, NEAR + 0x40_0000, 0x3_0000_0000
PTX = """
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 pool[];
.global .align 4 .u32 counter;
.visible .entry f(
    .param .align 64 .b8 f_param_0[128],
    .param .u64 .ptr .global .align 1 f_param_1,
    .param .u64 f_param_2,
    .param .f32 f_param_3,
    .param .s32 f_param_4,
    .param .align 8 .b8 f_param_5[24],
    .param .u64 f_param_6
)
.maxnreg 40
{
    .reg .b64 %rd<12>;
    .reg .b32 %r<9>;
    .shared .align 8 .b8 bar[8];
    ld.param.u64 %rd1, [f_param_6];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [f_param_5+16];
    ld.param.u64 %rd4, [f_param_2];
    ld.global.u32 %r1, [%rd2];
    // a place behind the pointer, as far as a number says
    mul.lo.s64 %rd5, %rd4, 8;
    add.s64 %rd6, %rd3, 16;
    add.s64 %rd7, %rd6, %rd5;
    st.global.u32 [%rd7], %r1;
    // of two numbers, neither is taken to be the address
    add.s64 %rd8, %rd4, %rd6;
    st.global.u32 [%rd8], %r1;
    // a register that holds something else now
    add.s64 %rd9, %rd4, 8;
    mul.lo.s64 %rd9, %rd9, 2;
    st.global.u32 [%rd9], %r1;
    add.s64 %rd10, %rd4, 8;
    add.s64 %rd10, %rd4, %rd6;
    st.global.u32 [%rd10], %r1;
    ld.global.u32 %r2, [counter];
    mov.u32 %r3, pool;
    mov.u32 %r4, bar;
    griddepcontrol.wait;
    ret;
}
"""
MAP = Map("arg0", "bf16", (64, 32), (256,), (64, 8), swizzle=128)


def found(text: str) -> FoundPtx:
    module = read(text, "f.ptx")
    return FoundPtx(text, "f.ptx", "", True, "", (), module, module.entries[0])


def data() -> bytes:
    made = bytes(48) + encode(MAP, TENSOR, 2)
    made += pack("<QQfi", PART, 1 << 33, 2.5, -3)
    return made + pack("<QQQ", OTHER, 77, FAR) + pack("<Q", FAR + 4096)


def dumped(folder: Path, *, params: bytes | None, shared: int = 1024 + 8 + 8 + 500) -> CoreDump:
    """A dump in which one of two CTAs of a kernel runs."""
    lane = writer.Lane(0, 0x5000, (0, 0, 0))
    grid = writer.Grid(1, NEAR + 0x1000, (2, 1, 1), (32, 1, 1), params=params, registers=48)
    cta = writer.Cta(1, (0, 0, 0), [writer.Warp([lane])], shared=bytes(-(-shared // 128) * 128))
    memory = [writer.Memory(OTHER, pack("<4I", 1, 2, 3, 4))]
    dump = writer.Dump([writer.Device([grid], [cta])], memory)
    return CoreDump(dump.write(folder / "core"))


def of_f(kernel: Loaded) -> Loaded:
    """The kernel of `PTX`, as a cubin has it: the second one begins at a multiple of 64 in the
    constant bank, in which the parameters begin at 0x210."""
    sizes = ((0, 48, 128), (1, 176, 8), (2, 184, 8), (3, 192, 4), (4, 196, 4), (5, 200, 24),
             (6, 224, 8))  # fmt: skip
    parameters = tuple(KernelParameter(*one) for one in sizes)
    return replace(kernel, info=replace(kernel.info, parameters=parameters))


def rebuilt(dump: CoreDump, kernel: Loaded, text: str = PTX) -> Rebuilt:
    own = of_f(kernel) if text == PTX else kernel
    made = rebuild(dump, dump.grids[0], own, found(text))
    assert isinstance(made, Rebuilt), made
    return made


def test_the_ring(kernel: Loaded) -> None:
    dump = CoreDump(RING)
    assert kernel.image.ptx is not None
    made = rebuilt(dump, kernel, kernel.image.ptx)
    assert made.launch == Launch(
        "_Z4ringPKfPfii", (3, 1, 1), (160, 1, 1), registers=32, cooperative=True,
        params=(
            Pointer("arg0", ASSUMED_BYTES), Pointer("arg1", ASSUMED_BYTES),
            Scalar("arg2", "u32", 8), Scalar("arg3", "u32", 1),
        ),
    )  # fmt: skip
    assert [one.name for one in made.assumed] == ["residency", "buffer sizes"]
    assert made.addresses == {"arg0": 0x7FD5FFE00000, "arg1": 0x7FD5FFF00000}


def test_parameters_of_each_kind(kernel: Loaded, tmp_path: Path) -> None:
    made = rebuilt(dumped(tmp_path, params=data()), kernel)
    whole, part, number, *others = made.launch.params
    assert whole == Struct("arg0", 128, (Field(0, MAP),), bytes(128)) or whole == MAP
    # it points into the tensor of the map
    assert part == Pointer("arg0", extent(MAP), PART - TENSOR)
    assert number == Scalar("arg2", "u64", 1 << 33)
    assert others == [
        Scalar("arg3", "f32", 2.5),
        Scalar("arg4", "s32", -3),
        Struct(
            "arg5", 24,
            (
                Field(0, Pointer("arg5+0", ASSUMED_BYTES)),
                # far from all others, and the PTX uses it as an address
                Field(16, Pointer("arg5+16", ASSUMED_BYTES)),
            ),
            pack("<QQQ", 0, 77, 0),
        ),
        Pointer("arg6", ASSUMED_BYTES),
    ]  # fmt: skip
    assert made.addresses["arg6"] == FAR + 4096
    assert made.addresses["arg0"] == TENSOR
    assert (made.launch.registers, made.launch.cooperative) == (40, False)


def test_what_the_dump_does_not_say_has_a_name(kernel: Loaded, tmp_path: Path) -> None:
    made = rebuilt(dumped(tmp_path, params=data()), kernel)
    said = {one.name: one.text for one in made.assumed}
    assert said["dynamic shared memory"].startswith(
        "its dynamic shared memory has 497 to 624 bytes"
    )
    assert made.launch.dynamic_shared == 624 - 0
    assert said["residency"] == (
        "1 of 2 CTAs are running: whether the others have ended or have not begun is not in the "
        "dump"
    )
    assert said["dependent"].endswith("is not in the dump: no")
    assert said["variables"].startswith("variables of the module (counter)")
    assert said["buffer sizes"].startswith("how large arg5+0, arg5+16, arg6 are is not in the dump")
    assert len(said) == 5


def test_without_its_parameters_there_is_no_launch(kernel: Loaded, tmp_path: Path) -> None:
    dump = dumped(tmp_path, params=None)
    one = rebuild(dump, dump.grids[0], of_f(kernel), found(PTX))
    assert isinstance(one, Missing)
    assert "parameters are not in the dump" in one.why
    dump = dumped(tmp_path, params=data()[:100])
    one = rebuild(dump, dump.grids[0], of_f(kernel), found(PTX))
    # one more in the PTX than in the cubin
    few = rebuild(dump, dump.grids[0], kernel, found(PTX))
    assert few == Missing("the PTX has 7 parameters, and the cubin in the dump names 4")
    assert one == Missing("the parameters take 232 bytes, and the dump has 100 of them")


def test_buffers_that_steer_and_are_never_written_hold_what_they_held(
    kernel: Loaded, tmp_path: Path
) -> None:
    dump = dumped(tmp_path, params=data())
    made = rebuilt(dump, kernel)
    given = with_contents(made, dump, frozenset(), lambda name: name == "arg5+0")
    struct = given.launch.params[5]
    assert isinstance(struct, Struct)
    assert struct.fields[0].value == Pointer(
        "arg5+0", ASSUMED_HELD, contents=Contents("u32", (1, 2, 3, 4))
    )
    assert given.assumed[-1].name == "contents"
    written = with_contents(made, dump, frozenset({"arg5+0"}), lambda name: name == "arg5+0")
    struct = written.launch.params[5]
    assert isinstance(struct, Struct)
    assert struct.fields[0].value == Pointer("arg5+0", ASSUMED_HELD)
    assert with_contents(made, dump, frozenset(), lambda name: False) is made


def test_zeros_fit_their_buffers(kernel: Loaded, tmp_path: Path) -> None:
    zeros = with_zeros(rebuilt(dumped(tmp_path, params=data()), kernel))
    part = zeros.launch.params[1]
    assert isinstance(part, Pointer)
    assert part.contents is not None
    assert len(part.contents.values) == extent(MAP) // 4
    assert zeros.assumed[-1].text.startswith("what arg0, arg5+0, arg5+16, arg6 held at the start")


def test_bytes_that_no_driver_writes_are_no_map() -> None:
    made = encode(MAP, TENSOR, 2)
    assert is_map(made)
    assert not is_map(bytes(128))
    assert not is_map(encode(MAP, 16, 0))  # an address that no allocation has
    draw = random.Random(7)
    assert not any(is_map(pack("<Q", TENSOR) + draw.randbytes(120)) for _ in range(200))
    for size in (127, 129):
        assert not is_map(made.ljust(129, b"\0")[:size])


@pytest.mark.parametrize(
    ("shape", "strides", "size"), [((64, 32), (256,), 31 * 256 + 128), ((9,), (), 18)]
)
def test_how_far_a_tensor_reaches(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int
) -> None:
    assert extent(Map("x", "bf16", shape, strides, shape)) == size
