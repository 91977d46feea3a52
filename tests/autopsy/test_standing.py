"""What a warp waits for, by the place at which it stands: each place of kernels of every wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.autopsy.standing_warps import (
    REGISTER,
    Block,
    Stand,
    cubin,
    dump_of,
    functions,
    graph_of,
)
from tests.gpu import needs
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.wait_for import wait_for
from tilesim.autopsy.waits import (
    AsyncGroupWait,
    ClusterBarrierWait,
    EndlessLoop,
    GridDependencyWait,
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Running,
    Sleep,
    TensorAllocWait,
    Trap,
    WarpWait,
)
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Function, Instruction

DUMPS = Path(__file__).parent / "dumps"

HOPPER = r"""
#define KERNEL extern "C" __global__ void
#define BEGIN __shared__ u64 b[4]; if (threadIdx.x == 0) init(b, 1); __syncthreads();
KERNEL loops(int* o, int p) { BEGIN wait(b, p); o[0] = 1; }
KERNEL hints(int* o, int p) { BEGIN asm volatile("{.reg .pred P; W:"
  " mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1, 10000; @P bra D; bra W; D: }"
  :: "r"(at(b)), "r"(p) : "memory"); o[0] = 1; }
KERNEL acquires(int* o, int p) { BEGIN asm volatile("{.reg .pred P; W:"
  " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [%0], %1; @!P bra W; }"
  :: "r"(at(b)), "r"(p) : "memory"); o[0] = 1; }
KERNEL sleeps(int* o, int p) { BEGIN u32 ns = 8;
  while (!test(b, p)) { __nanosleep(ns); if (ns < 256) ns *= 2; } o[0] = 1; }
KERNEL spins(int* o, int p) { BEGIN while (!test(b, p)); o[0] = 1; }
KERNEL tokens(int* o) { BEGIN u64 t; u32 d = 0;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory");
  while (!d) asm volatile("{.reg .pred P; mbarrier.try_wait.shared::cta.b64 P, [%1], %2;"
    " selp.u32 %0, 1, 0, P;}" : "=r"(d) : "r"(at(b)), "l"(t) : "memory"); o[0] = 1; }
KERNEL watches_time(int* o, int p) { BEGIN long long t = clock64();
  while (!attempt(b, p)) if (clock64() - t > 1000000000ll) asm volatile("trap;"); o[0] = 1; }
KERNEL watches_turns(int* o, int p) { BEGIN
  for (int i = 0; !attempt(b, p); i++) if (i == 1 << 24) asm volatile("trap;"); o[0] = 1; }
KERNEL peeks(int* o, int n) { __shared__ u64 f[4], e[4]; __shared__ float buf[4][128];
  if (threadIdx.x == 0) for (int i = 0; i < 4; i++) { init(f + i, 1); init(e + i, 1); }
  __syncthreads(); int st = 0, ph = 0; float acc = 0; bool d = attempt(f, 0);
  for (int i = 0; i < n; i++) {
    if (!d) wait(f + st, ph);
    acc += buf[st][threadIdx.x] * buf[st][threadIdx.x ^ 1]; arrive(e + st);
    if (++st == 4) { st = 0; ph ^= 1; }
    d = true; if (i + 1 < n) d = attempt(f + st, ph); }
  o[threadIdx.x] = acc; }
KERNEL polls_acquire(int* o, int p) { int v; do asm volatile(
  "ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(o + p) : "memory"); while (v != 3);
  o[0] = 1; }
KERNEL polls_volatile(volatile int* o, int p) { while (o[p] == 0); o[0] = 1; }
KERNEL polls_wide(u64* o, int p) { u64 v; do asm volatile("ld.acquire.sys.global.b64 %0, [%1];"
  : "=l"(v) : "l"(o + p) : "memory"); while (v < 77); o[0] = 1; }
KERNEL polls_shared(int* o, int p) { __shared__ volatile int w[8]; w[threadIdx.x & 7] = 0;
  __syncthreads(); while (w[p] == 0) __nanosleep(20); o[0] = 1; }
KERNEL polls_lock(int* o, int p) { while (atomicCAS(o + p, 0, 1) != 0); o[0] = 1;
  __threadfence(); atomicExch(o + p, 0); }
KERNEL polls_lock_and_sleeps(int* o, int p) { u32 ns = 8;
  while (atomicCAS(o + p, 0, 1) != 0) { __nanosleep(ns); if (ns < 256) ns *= 2; } o[0] = 1; }
KERNEL polls_atomic(int* o, int p) { while (atomicAdd(o + p, 0) < 8); o[0] = 1; }
KERNEL polls_some_turns(int* o, int p) { int n = 0;
  while (((volatile int*)o)[p] == 0) if (++n > 1000000) break; o[0] = n; }
KERNEL polls_grid(u32* o) { __syncthreads(); if (threadIdx.x == 0) {
  u32 add = blockIdx.x ? 1 : 0x80000000u - (gridDim.x - 1); __threadfence();
  u32 old = atomicAdd(o, add); while ((((old ^ *(volatile u32*)o) & 0x80000000u) == 0)); }
  __syncthreads(); o[2] = 1; }
KERNEL __launch_bounds__(384, 1) pool(int* o, int p) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); o[threadIdx.x] = p; }
KERNEL named(int* o, int p) {
  if (p == 1) asm volatile("bar.sync 1;" ::: "memory");
  if (p == 2) asm volatile("bar.sync 2, 64;" ::: "memory");
  if (p == 3) asm volatile("bar.sync %0, 128;" :: "r"(o[3]) : "memory");
  o[5] = __syncthreads_count(o[4]); asm volatile("bar.arrive 5, 96;" ::: "memory");
  asm volatile("barrier.sync 6, 96;" ::: "memory"); o[1] = 2; }
KERNEL cluster(int* o) { o[0] = 1; asm volatile("barrier.cluster.arrive.release;"
  "barrier.cluster.wait.acquire;" ::: "memory"); o[1] = o[2]; }
KERNEL depends(int* o, int p) { asm volatile("griddepcontrol.wait;" ::: "memory"); o[0] = p; }
KERNEL copies(int* o, int p) { __shared__ int b[128];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;"
    "cp.async.wait_group 0;" :: "r"(at(b + threadIdx.x)), "l"(o) : "memory"); o[1] = b[p]; }
KERNEL only_sleeps(int* o) { for (;;) __nanosleep(100); }
KERNEL counts(int* o, int n) { int s = 0; for (int i = 0; i < n; i++) s += o[i] * o[n - i];
  o[0] = s; }
KERNEL searches(volatile int* o) { int i = 0; while (o[i] != 7) i++; o[0] = i; }
KERNEL tickets(int* o, int n) { int i; while ((i = atomicAdd(o, 1)) < n) o[i + 1] = 3; }
KERNEL draws(int* o, int n) { while (atomicAdd(o, 1) < n); }
KERNEL works(volatile int* o, int n) { int s = 0; do { o[1] = s; s += n; } while (o[0] == 0); }
KERNEL adds(int* o, volatile int* n) { int s = 0; while (*n == 0) s += atomicAdd(o, 1); o[0] = s; }
KERNEL stores(volatile int* o, int n) { __shared__ int w[64]; while (*o == 0) asm volatile(
  "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(at(w)), "r"(n) : "memory");
  o[1] = w[n]; }
KERNEL follows(volatile int* o, volatile int* n) { int s = 0; while (s < *n) s += 2; o[0] = s; }
"""

BLACKWELL = r"""
extern "C" __global__ void columns(int* o) { __shared__ u32 t; if (threadIdx.x < 32)
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;"
    :: "r"(at(&t)) : "memory");
  __syncthreads(); o[threadIdx.x] = t; }
"""

#: by kernel: the class, and the instruction that asks
LOOPS = {
    "loops": (MbarrierWait, "SYNCS.PHASECHK"),
    "hints": (MbarrierWait, "SYNCS.PHASECHK"),
    "acquires": (MbarrierWait, "SYNCS.PHASECHK"),
    "sleeps": (MbarrierWait, "SYNCS.PHASECHK"),
    "spins": (MbarrierWait, "SYNCS.PHASECHK"),
    "tokens": (MbarrierWait, "SYNCS.PHASECHK"),
    "watches_time": (MbarrierWait, "SYNCS.PHASECHK"),
    "watches_turns": (MbarrierWait, "SYNCS.PHASECHK"),
    "peeks": (MbarrierWait, "SYNCS.PHASECHK"),
    "polls_acquire": (Poll, "LDG"),
    "polls_volatile": (Poll, "LDG"),
    "polls_wide": (Poll, "LDG"),
    "polls_shared": (Poll, "LDS"),
    "polls_lock": (Poll, "ATOMG"),
    "polls_lock_and_sleeps": (Poll, "ATOMG"),
    "polls_atomic": (Poll, "ATOMG"),
    "polls_some_turns": (Poll, "LDG"),
    "polls_grid": (Poll, "LDG.E.STRONG"),
    "pool": (RegisterPoolWait, "USETMAXREG.TRY"),
    "columns": (TensorAllocWait, "UTCATOMSWS"),
}
#: at the instruction itself
AT = {
    "UCGABAR_WAIT": ClusterBarrierWait, "ACQBULK": GridDependencyWait, "DEPBAR": AsyncGroupWait,
    "BPT": Trap, "BAR": NamedBarrierWait, "NANOSLEEP": Sleep,
}  # fmt: skip
#: they wait in none of their loops
BUSY = ("counts", "searches", "tickets", "draws", "works", "adds", "stores", "follows")


@cache
def at_each_place(name: str) -> tuple[Function, list[Group]]:
    """A kernel, and what a warp waits for at each of its places."""
    text, arch = (BLACKWELL, "100a") if name == "columns" else (HOPPER, "90a")
    function = functions(text, arch)[name]
    places = [pc for pc in function.code if function.predecessors[pc] or not pc]
    blocks = [
        Block([Stand(n, pc, 1) for n, pc in enumerate(places[start : start + 32])],
              index=(start // 32, 0, 0), sm=start // 32)
        for start in range(0, len(places), 32)
    ]  # fmt: skip
    with TemporaryDirectory() as folder:
        dump = dump_of(
            Path(folder) / name, cubin(text, arch), name, blocks, block=1024, grid=len(blocks),
            arch=(10, 0) if name == "columns" else (9, 0),
        )  # fmt: skip
        groups = sorted(graph_of(dump, function).groups, key=lambda group: group.pc)
    assert [group.pc for group in groups] == places
    return function, groups


def loops(function: Function, ask: str) -> Iterator[tuple[range, list[Instruction]]]:
    """The code from the target of a branch back to the branch, where nothing but one question is
    asked; ptxas puts a loop in one piece."""
    for tail, following in function.successors.items():
        for head in following:
            code = [function.code[pc] for pc in range(head, tail + 16, 16)]
            asked = [one for one in code if one.opcode.startswith(ask)]
            if head < tail and asked and len(code) < 20 and not any(
                one.base in ("EXIT", "BAR") or "ARRIVE" in one.opcode for one in code
            ):  # fmt: skip
                yield range(head, tail + 16, 16), asked


def named(ask: Instruction) -> int:
    """The address of a question, of the registers that a dump here has."""
    text = next(operand for operand in ask.operands if operand.endswith("]"))
    inner = text[text.rindex("[") :]
    found = sum(REGISTER + int(n) for n in re.findall(r"\bU?R(\d+)", inner))
    found += sum(int(n, 16) for n in re.findall(r"\+(0x[0-9a-f]+)", inner))
    if ask.base in ("LDG", "ATOMG"):
        (register,) = re.findall(r"\bR(\d+)", inner)
        found += REGISTER + int(register) + 1 << 32
    return found


@needs.compiler
@pytest.mark.parametrize("name", LOOPS)
def test_each_place_of_a_loop_that_waits(name: str) -> None:
    kind, ask = LOOPS[name]
    function, groups = at_each_place(name)
    inside: dict[int, list[Instruction]] = {}
    for places, asked in loops(function, ask):
        inside |= dict.fromkeys(places, asked)
    assert inside
    for group in groups:
        wait = group.wait
        if group.pc not in inside:
            continue
        assert type(wait) is kind, f"{group.pc:#x}: {wait}"
        assert wait.instruction is not None
        assert wait.instruction.pc in {one.pc for one in inside[group.pc]}
        if isinstance(wait, MbarrierWait | Poll):
            # where a copy of the address is made next, the old copy was overwritten
            unread = name == "polls_lock_and_sleeps" and group.pc == min(inside)
            assert wait.address == (None if unread else named(inside[group.pc][0]))
    assert {group.pc for group in groups} >= {*inside}


@needs.compiler
@pytest.mark.parametrize(
    "name", [*LOOPS, *BUSY, "named", "cluster", "depends", "copies", "only_sleeps"]
)
def test_no_other_place_is_taken_for_a_wait(name: str) -> None:
    function, groups = at_each_place(name)
    ask = LOOPS.get(name, (Running, "nothing"))[1]
    behind = reached_from_a_barrier(function)
    inside = {pc for places, _ in loops(function, ask) for pc in places}
    for group in groups:
        one, wait = function.code[group.pc], group.wait
        near = [function.code.get(group.pc - 16 * n) for n in range(1, 13)]
        if isinstance(wait, MbarrierWait) and group.pc not in inside:
            assert any(b and "TRYWAIT" in b.modifiers for b in near), f"{group.pc:#x}: {wait}"
            uses = bool({*one.operands, one.guard[-2:]} & answers(near))
            # behind a barrier it is certain where it has used the result of a later arrival
            assert wait.certain is uses or (group.pc in behind and name != "tokens")
        elif isinstance(wait, NamedBarrierWait):
            assert not wait.certain
            assert one.base == "BAR" or group.pc in behind, f"{group.pc:#x}: {wait}"
        elif isinstance(wait, EndlessLoop):
            ahead = function.reached([group.pc])
            assert name == "only_sleeps"
            assert not any(function.code[place].base == "EXIT" for place in ahead)
        elif isinstance(wait, Trap):
            assert "BPT" in (one.base, near[0] and near[0].base)
        elif group.pc not in inside:
            expected = AT.get(one.base, Running)
            if one.base == "BAR" and "ARV" in one.modifiers:
                expected = Running
            assert type(wait) is expected, f"{group.pc:#x} {one}: {wait}"


def answers(near: list[Instruction | None]) -> set[str]:
    """The predicates of the first question before a place."""
    one = next(b for b in near if b and "TRYWAIT" in b.modifiers)
    return {one.operands[0], f"!{one.operands[0]}"}


def reached_from_a_barrier(function: Function) -> set[int]:
    """The places that are at most four steps behind a named barrier."""
    found = {one.pc for one in function.code.values() if one.base == "BAR"}
    for _ in range(4):
        found |= {pc for place in found for pc in function.successors[place]}
    return found


# ---------------------------------------------------------------------- dumps of an H200


def groups_of(name: str) -> list[Group]:
    """The groups of a dump of an H200."""
    dump = CoreDump(DUMPS / f"{name}.nvcudmp.gz")
    (grid,) = dump.grids
    image = dump.image_of(grid)
    assert image is not None
    function = function_at(Image(image.data), grid.entry)
    assert function is not None
    return list(wait_for(dump, {grid: function}).groups)


def test_eight_ways_to_wait() -> None:
    found = groups_of("waits")
    assert [group.cta.number for group in found] == [0] * 9 + [1] * 9
    for cta in (0, 1):
        of = {(g.warps, g.lanes): g.wait for g in found if g.cta.number == cta}
        whole = 0xFFFFFFFF
        bar = of[(0,), whole]
        assert isinstance(bar, NamedBarrierWait)
        # its guard, P1, is overwritten by then
        assert (bar.id, bar.threads, bar.whole, bar.issued, bar.certain) == (
            3,
            96,
            False,
            True,
            False,
        )
        assert bar.evidence.endswith("unless it has just passed")
        mbarrier = of[(1,), whole]
        assert isinstance(mbarrier, MbarrierWait)
        assert (mbarrier.address, mbarrier.rank, mbarrier.parity) == (0x400, None, 0)
        assert mbarrier.certain
        # id and count are parameters of the launch, in a register that is overwritten by then
        register = of[(2,), whole]
        assert isinstance(register, NamedBarrierWait)
        assert (register.id, register.threads, register.certain) == (6, 64, False)
        lanes = of[(3,), 0xFFFF]
        assert isinstance(lanes, WarpWait)
        assert (lanes.expected, lanes.missing) == (whole, 0xFFFF0000)
        poll = of[(3,), 0xFFFF0000]
        assert isinstance(poll, Poll)
        assert (poll.space, poll.address, poll.width) == ("global", 0x7F86B7E00004, 4)
        assert not poll.acquire
        assert poll.value is None
        acquire = of[(4,), whole]
        assert isinstance(acquire, Poll)
        assert (acquire.address, acquire.acquire) == (0x7F86B7E00000, True)
        assert type(of[(5,), whole]) is ClusterBarrierWait
        shared = of[(6,), whole]
        assert isinstance(shared, Poll)
        assert (shared.space, shared.address, shared.value) == ("shared", 0x408, 0)
        red = of[(7,), whole]
        assert isinstance(red, NamedBarrierWait)
        assert (red.id, red.threads, red.issued) == (5, 64, True)


def test_a_ring_waits_for_two_mbarriers() -> None:
    found = [(g.cta.number, g.warps, g.lanes, str(g.wait)) for g in groups_of("ring")]
    assert found == [
        one for cta in (0, 1, 2) for one in (
            (cta, (0, 1, 2, 3), 0xFFFFFFFF, "waits for mbarrier 0xc08, parity 1"),
            (cta, (4,), 1, "waits for mbarrier 0xc18, parity 0"),
        )
    ]  # fmt: skip


def test_a_trap_is_no_wait() -> None:
    (group,) = groups_of("states")
    assert isinstance(group.wait, Trap)
    assert group.wait.instruction is not None
    assert group.wait.instruction.opcode == "BPT.TRAP"
