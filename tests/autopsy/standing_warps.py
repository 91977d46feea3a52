"""Kernels compiled by NVRTC, and dumps in which warps stand at given places of their code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.autopsy import dump_writer
from tests.autopsy.dump_writer import (
    Cta,
    Device,
    Dump,
    Grid,
    Lane,
    Module,
    Triple,
    Warp,
    load,
)
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.wait_for import WaitFor, wait_for
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image
from tilesim.cubin.operands import Memory, parse
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.records import dataclass, field

ALL = 0xFFFFFFFF
#: where kernels lie on the device, and the PTX functions that they use
ADDRESS = 0x7F0000000000
HEAD = """
typedef unsigned u32; typedef unsigned long long u64;
#define DEVICE static __device__ __forceinline__
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init(u64* b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory"); }
DEVICE void arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(b)) : "memory"); }
DEVICE void expect(u64* b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    :: "r"(at(b)), "r"(n) : "memory"); }
DEVICE void copy(void* to, const void* from, u32 n, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%0], [%1], %2, [%3];" :: "r"(at(to)), "l"(from), "r"(n), "r"(at(b)) : "memory"); }
DEVICE bool test(u64* b, u32 p) { u32 d;
  asm volatile("{.reg .pred P; mbarrier.test_wait.parity.shared::cta.b64 P, [%1], %2;"
    " selp.u32 %0, 1, 0, P;}" : "=r"(d) : "r"(at(b)), "r"(p) : "memory"); return d; }
DEVICE bool attempt(u64* b, u32 p) { u32 d;
  asm volatile("{.reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2;"
    " selp.u32 %0, 1, 0, P;}" : "=r"(d) : "r"(at(b)), "r"(p) : "memory"); return d; }
DEVICE void wait(u64* b, u32 p) {
  asm volatile("{.reg .pred P; L: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;"
    " @!P bra L;}" :: "r"(at(b)), "r"(p) : "memory"); }
"""


@cache
def cubin(text: str, arch: str = "90a") -> bytes:
    """The cubin of kernels in CUDA C++, behind `HEAD`."""
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram((HEAD + text).encode(), b"k.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{arch}".encode(), b"-lineinfo", b"-std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * max(size, 2)  # written in place, and b" " is one object
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    made = b" " * size
    nvrtc.nvrtcGetCUBIN(program, made)
    return bytes(made)


@cache
def functions(text: str, arch: str = "90a") -> Mapping[str, Function]:
    """The kernels of a text by name, at address 0."""
    image = Image(cubin(text, arch))
    return {one.name: one for one in disassemble(image, image.functions)}


#: what registers hold that are not given: this, and their number. R4 and UR4 are equal: one is
#: a copy of the other in places
REGISTER = 0x5000


def words(values: Mapping[int, int], count: int) -> list[int]:
    """Registers: those that are given, and others."""
    return [values.get(n, REGISTER + n) for n in range(count)]


@dataclass(frozen=True)
class Stand:
    """Lanes of a warp that stand at a place, which counts from the beginning of the kernel."""

    warp: int
    pc: int
    lanes: int = ALL
    registers: Mapping[int, int] = field(default_factory=dict)
    uniform: Mapping[int, int] = field(default_factory=dict)
    predicates: Sequence[bool] = (False,) * 8
    #: the register that holds the number of the thread
    thread: int | None = None


@dataclass(frozen=True)
class Block:
    """A CTA: where its warps stand, and its shared memory."""

    stands: Sequence[Stand]
    shared: bytes | None = bytes(4096)
    index: Triple = (0, 0, 0)
    sm: int = 0


def dump_of(
    path: Path, image: bytes, kernel: str, blocks: Sequence[Block], *, block: int = 128,
    called: Mapping[str, int] | None = None,
    grid: int = 1, cluster: int = 0, params: bytes = bytes(64),
    memory: Sequence[dump_writer.Memory] = (),
    release: tuple[int, int] = (580, 159), barriers: Mapping[int, tuple[int, int]] | None = None,
    convergence: Mapping[int, int] | None = None, arch: tuple[int, int] = (9, 0),
) -> CoreDump:  # fmt: skip
    """A dump of one launch of a kernel; ``called``: functions by name, and where they lie from the
    kernel's beginning; ``barriers`` are rows of drivers from r590 on, by warp."""
    ctas = []
    for one in blocks:
        warps = []
        for number in sorted({stand.warp for stand in one.stands}):
            lanes, uniform = [], dict[int, int]()
            for stand in (s for s in one.stands if s.warp == number):
                uniform |= stand.uniform
                for n in (n for n in range(32) if stand.lanes >> n & 1):
                    thread = 32 * number + n
                    own = {} if stand.thread is None else {stand.thread: thread}
                    held = words({**stand.registers, **own}, 64)
                    lanes.append(
                        Lane(n, ADDRESS + stand.pc, (thread, 0, 0), held, tuple(stand.predicates))
                    )
            warps.append(
                Warp(
                    sorted(lanes, key=lambda lane: lane.number), slot=number,
                    uniform_registers=words(uniform, 63),
                    barrier=(barriers or {}).get(number, (0, 0)),
                    convergence_barriers=[(convergence or {}).get(n, 0) for n in range(16)],
                )
            )  # fmt: skip
        size = (cluster or 1, 1, 1) if cluster else (0, 0, 0)
        at = (one.index[0] // cluster, 0, 0) if cluster else (0, 0, 0)
        ctas.append(Cta(1, one.index, warps, one.sm, one.shared, at, size))
    module = Module(
        load(image, {name: ADDRESS + at for name, at in {kernel: 0, **(called or {})}.items()}),
        image,
    )
    launch = Grid(
        1, ADDRESS, (grid, 1, 1), (block, 1, 1), (cluster, 1, 1) if cluster else (0, 0, 0), params
    )
    device = Device([launch], ctas, [[module]], arch, sms=8)
    return CoreDump(Dump([device], memory, release).write(path))


def graph_of(dump: CoreDump, function: Function) -> WaitFor:
    """The wait-for graph of a dump whose kernel is a function at address 0."""
    placed = Function(
        function.name, ADDRESS, function.size, function.code, function.successors,
        function.predecessors, function.unknown,
    )  # fmt: skip
    return wait_for(dump, dict.fromkeys(dump.grids, placed))


def word(parity: int, pending: int, expected: int, tx: int = 0) -> int:
    """The word of an mbarrier (`tilesim.autopsy.mbarrier_word`)."""
    low = (-tx & 0x1FFFFF) << 21 | (-expected & 0xFFFFF) << 1
    return parity << 63 | (-pending & 0xFFFFF) << 43 | low


def shared(*mbarriers: tuple[int, int]) -> bytes:
    """Shared memory with words at addresses."""
    memory = bytearray(4096)
    for address, value in mbarriers:
        memory[address : address + 8] = value.to_bytes(8, "little")
    return bytes(memory)


def found(text: str, function: Function, line: str, opcode: str, n: int = 0) -> Instruction:
    """The ``n``-th instruction of an opcode that comes from the line that has some words."""
    number = next(k for k, one in enumerate((HEAD + text).splitlines(), 1) if line in one)
    alike = [
        one
        for one in function.code.values()
        if one.opcode.startswith(opcode) and one.lines and one.lines[-1].line == number
    ]
    return alike[n]


def again(text: str, function: Function, line: str) -> Instruction:
    """The question of a loop for an mbarrier that comes from a line: not the one before the loop,
    which is asked once. Where the loop lies behind the rest, ptxas gives it the lines of the code
    before it: the line of the PTX shows it, or, if NVRTC has made two instructions of the question
    (13.0), the line of the source; and its operands."""
    first = found(text, function, line, "SYNCS.PHASECHK")
    return next(
        one
        for one in function.code.values()
        if (one.opcode, one.operands) == (first.opcode, first.operands)
        and (one.ptx == first.ptx or one.lines == first.lines)
        and any(place <= one.pc for place in function.successors[one.pc + WIDTH])
    )


def waiting(
    warp: int, ask: Instruction, address: int, parity: int, lanes: int = ALL,
    thread: int | None = None,
) -> Stand:  # fmt: skip
    """Lanes that wait for an mbarrier: behind the question, with registers that name it."""
    memory = parse(ask.operands[1])
    assert isinstance(memory, Memory)
    values = dict.fromkeys((name for name, _ in memory.registers), 0)
    values[memory.registers[0][0]] = address - memory.offset
    values[ask.operands[2]] = parity << 31
    return Stand(
        warp, ask.pc + WIDTH, lanes,
        {int(name[1:]): value for name, value in values.items() if name[0] == "R"},
        {int(name[2:]): value for name, value in values.items() if name[0] == "U"},
        thread=thread,
    )  # fmt: skip
