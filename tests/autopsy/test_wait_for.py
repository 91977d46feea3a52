"""The wait-for graph of dumps: what lacks, what could release it, cycles, folding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from tests.autopsy.dump_writer import Memory
from tests.autopsy.standing_warps import (
    ALL,
    HEAD,
    Block,
    Stand,
    again,
    cubin,
    dump_of,
    found,
    functions,
    graph_of,
    shared,
    waiting,
    word,
)
from tests.gpu import needs
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.mbarrier_word import Mbarrier
from tilesim.autopsy.wait_for import Entry, Supply, WaitFor, wait_for
from tilesim.autopsy.waits import (
    ClusterBarrierWait,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Running,
    WarpWait,
)
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Function, Instruction

DUMPS = Path(__file__).parent / "dumps"

KERNELS = r"""
#define KERNEL extern "C" __global__ void
KERNEL pair(const float* x, float* y, int n) {
  __shared__ alignas(128) float buf[256]; __shared__ u64 full, empty;
  if (threadIdx.x == 0) { init(&full, 1); init(&empty, 96); }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int i = 0; i < n; i++) {
        wait(&empty, (i & 1) ^ 1);
        expect(&full, 1024);
        copy(buf, x + 256 * i, 1024, &full); } }
  } else {
#pragma unroll 1
    for (int i = 0; i < n; i++) {
      wait(&full, i & 1);
      y[i * 96 + threadIdx.x] = buf[threadIdx.x];
      arrive(&empty); } }
}
KERNEL parts(int* o, int n) { __shared__ u64 b; if (threadIdx.x == 0) init(&b, 1);
  __syncthreads();
  if (threadIdx.x >= 64) wait(&b, 0);
  asm volatile("barrier.sync 3, 96;" ::: "memory");
  o[threadIdx.x] = n; arrive(&b); }
KERNEL turns(int* o, int n) { __shared__ u64 b; if (threadIdx.x == 0) init(&b, 1);
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    asm volatile("barrier.sync 4;" ::: "memory");
    if (threadIdx.x >= 64) wait(&b, i & 1);
    o[threadIdx.x + i] = n; } }
KERNEL chosen(int* o, int n) { __shared__ u64 b[2];
  if (threadIdx.x == 0) { init(&b[0], 1); init(&b[1], 1); }
  __syncthreads();
  if (threadIdx.x >= 96) { wait(&b[1], 0); arrive(&b[0]); }
  else { wait(&b[0], 0); o[threadIdx.x] = n; if (threadIdx.x / 32 == 1) arrive(&b[1]); } }
KERNEL __cluster_dims__(2, 1, 1) peers(int* o, int n) { __shared__ u64 b;
  if (threadIdx.x == 0) init(&b, 1);
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (rank == 0) wait(&b, 0);
  else { while (((volatile int*)o)[n] == 0); asm volatile("{.reg .b32 r;"
    " mapa.shared::cluster.u32 r, %0, 0; mbarrier.arrive.shared::cluster.b64 _, [r];}"
    :: "r"(at(&b)) : "memory"); }
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory"); }
KERNEL __launch_bounds__(384, 1) registers(int* o, int n) {
  if (threadIdx.x < 128) { while (((volatile int*)o)[n] == 0);
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  o[threadIdx.x] = n; }
KERNEL word_of_peer(int* o, int n) { __shared__ volatile int w[4];
  if (threadIdx.x < 32) { while (w[1] == 0); }
  else { while (((volatile int*)o)[n] == 0); w[1] = n; }
  o[threadIdx.x] = n; }
KERNEL __cluster_dims__(2, 1, 1) late(int* o, int n) {
  if (threadIdx.x >= 32) asm volatile("barrier.cluster.arrive;" ::: "memory");
  asm volatile("barrier.cluster.wait;" ::: "memory"); o[threadIdx.x] = n; }
KERNEL whole_grid(unsigned* o, int n) { atomicAdd(o, 1);
  while (*(volatile unsigned*)o < gridDim.x); }
KERNEL first(int* o, int n) { __shared__ int s[128]; s[threadIdx.x] = n;
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("st.global.u32 [%0], 7; fence.proxy.async;" :: "l"(o));
  o[threadIdx.x + 1] = s[threadIdx.x ^ 1]; }
"""
#: addresses of the mbarriers of `pair`, as a recent NVRTC lays them out
FULL, EMPTY = 0x800, 0x808
CONSUMER, PRODUCER = "wait(&full, i & 1);", "wait(&empty, (i & 1) ^ 1);"


def function(name: str) -> Function:
    """A kernel above, at address 0."""
    return functions(KERNELS)[name]


def question(name: str, line: str) -> Instruction:
    """What the loop of a wait asks, which stands on a line of a kernel above."""
    return again(KERNELS, function(name), line)


class Rest(TypedDict, total=False):
    """What else `dump_of` is given."""

    block: int
    called: Mapping[str, int]
    grid: int
    cluster: int
    memory: Sequence[Memory]
    release: tuple[int, int]
    barriers: Mapping[int, tuple[int, int]]
    convergence: Mapping[int, int]
    arch: tuple[int, int]


def graph(folder: Path, name: str, blocks: Sequence[Block], **rest: Unpack[Rest]) -> WaitFor:
    """The graph of a dump of a kernel above."""
    dump = dump_of(folder / "dump", cubin(KERNELS), name, blocks, **rest)
    return graph_of(dump, function(name))


def pair(
    folder: Path, full: int, empty: int, *, producer: bool = True, ctas: int = 1,
    memory: bool = True,
) -> WaitFor:  # fmt: skip
    """Consumers (warps 1-3) that wait for ``full``, parity 0, and the producer for ``empty``,
    parity 0, if it is alive; the words of both."""
    consumer, own = question("pair", CONSUMER), question("pair", PRODUCER)
    stands = [waiting(n, consumer, FULL, 0) for n in (1, 2, 3)]
    if producer:
        stands.append(waiting(0, own, EMPTY, 0, 1))
    bytes_ = shared((FULL, full), (EMPTY, empty)) if memory else None
    blocks = [Block(stands, bytes_, (n, 0, 0), n) for n in range(ctas)]
    return graph(folder, "pair", blocks, grid=ctas)


def line(words: str) -> int:
    """The line with some words."""
    return next(n for n, one in enumerate((HEAD + KERNELS).splitlines(), 1) if words in one)


def entry(found: WaitFor, *warps: int) -> Entry:
    """The entry of some warps."""
    (one,) = (e for e in found.entries if e.groups[0].warps == warps)
    return one


def supplies(one: Entry) -> list[tuple[tuple[int, ...], set[str], bool]]:
    """What could release a wait: warps, opcodes, whether it is certain."""

    def of(supply: Supply) -> tuple[tuple[int, ...], set[str], bool]:
        warps = tuple(w for group in supply.groups for w in group.warps)
        return warps, {i.opcode for i in supply.instructions}, supply.certain

    return [of(supply) for supply in one.supplies]


# ---------------------------------------------------------------------- mbarriers


@needs.compiler
def test_an_arrival_that_a_warp_would_make_which_has_ended(tmp_path: Path) -> None:
    found = pair(tmp_path, word(0, 1, 1), word(0, 96, 96), producer=False)
    one = entry(found, 1, 2, 3)
    assert str(one.wait) == "waits for mbarrier 0x800, parity 0"
    assert one.mbarrier == Mbarrier(0, 1, 1, 0)
    assert not one.supplies
    assert not one.passing
    (init,) = one.initialised
    assert init.opcode == "SYNCS.EXCH.64"
    assert one.state == (
        "mbarrier 0x800 is in a phase of parity 0: 1 of 1 arrivals pending",
        "no live warp has an arrival on it ahead",
        "warp 0 of its CTA has ended",
    )
    assert found.cycle == ()


@needs.recent_compiler
def test_warps_that_wait_for_each_other(tmp_path: Path) -> None:
    found = pair(tmp_path, word(0, 1, 1), word(0, 64, 96))
    assert supplies(entry(found, 1, 2, 3)) == [((0,), {"SYNCS.ARRIVE.TRANS64"}, True)]
    assert supplies(entry(found, 0)) == [((1, 2, 3), {"SYNCS.ARRIVE.TRANS64.A1T0"}, True)]
    assert all(s.waits for one in found.entries for s in one.supplies)
    assert [group.warps for group in found.cycle] == [(0,), (1, 2, 3)]
    assert entry(found, 0).groups[0].lanes == 1


@needs.recent_compiler
def test_what_runs_may_release_the_others(tmp_path: Path) -> None:
    """Of the consumers one runs: the producer waits for all of them, but in no cycle."""
    consumer, own = question("pair", CONSUMER), question("pair", PRODUCER)
    code = function("pair")
    busy = found(KERNELS, code, "y[i * 96 + threadIdx.x] = buf[threadIdx.x];", "STG")
    stands = [waiting(0, own, EMPTY, 0, 1), *(waiting(n, consumer, FULL, 0) for n in (1, 2))]
    memory = shared((FULL, word(0, 1, 1)), (EMPTY, word(0, 64, 96)))
    graph_ = graph(tmp_path, "pair", [Block([*stands, Stand(3, busy.pc)], memory)])
    assert [(s[0], s[2]) for s in supplies(entry(graph_, 0))] == [((1, 2), True), ((3,), True)]
    assert [s.waits for s in entry(graph_, 0).supplies] == [True, False]
    assert isinstance(entry(graph_, 3).wait, Running)
    assert graph_.cycle == ()


@needs.recent_compiler
def test_bytes_that_are_missing(tmp_path: Path) -> None:
    one = entry(pair(tmp_path, word(0, 0, 1, 512), word(0, 96, 96)), 1, 2, 3)
    assert "0 of 1 arrivals pending, 512 bytes outstanding" in one.state[0]
    assert supplies(one) == [((0,), {"UBLKCP.S.G"}, True)]
    ended = entry(pair(tmp_path, word(0, 0, 1, 512), word(0, 96, 96), producer=False), 1, 2, 3)
    assert ended.state[1:] == (
        "no live warp has a copy for it ahead: a copy that was issued must bring them",
        "warp 0 of its CTA has ended",
    )


@needs.recent_compiler
def test_a_phase_that_is_complete_lets_its_waiters_go(tmp_path: Path) -> None:
    found = pair(tmp_path, word(1, 1, 1), word(0, 96, 96))
    one = entry(found, 1, 2, 3)
    assert one.passing
    assert one.state[-1] == "the phase of parity 0 is complete: the wait is about to pass"
    assert not one.supplies
    # the producer waits for warps that go on: no cycle
    assert supplies(entry(found, 0)) == [((1, 2, 3), {"SYNCS.ARRIVE.TRANS64.A1T0"}, True)]
    assert found.cycle == ()


@needs.compiler
@pytest.mark.parametrize(
    ("arch", "reason"),
    [
        ((9, 0), "it is not an mbarrier: none was initialised there, or it was overwritten"),
        ((8, 0), "the layout on sm_80 is not known"),
    ],
)
def test_a_word_that_is_no_mbarrier(tmp_path: Path, arch: tuple[int, int], reason: str) -> None:
    stands = [waiting(1, question("pair", CONSUMER), FULL, 0)]
    block = Block(stands, shared((FULL, 0x123)))
    one = entry(graph(tmp_path, "pair", [block], arch=arch), 1)
    assert one.state[0] == f"its word is 0x0000000000000123: {reason}"
    assert one.mbarrier is None
    assert not one.passing


@needs.compiler
def test_an_address_of_a_cta_that_is_not_there(tmp_path: Path) -> None:
    stands = [waiting(1, question("pair", CONSUMER), FULL + (255 << 24), 0)]
    one = entry(graph(tmp_path, "pair", [Block(stands)]), 1)
    assert one.state == ("there is no CTA 255",)


@needs.recent_compiler
def test_a_dump_without_shared_memory(tmp_path: Path) -> None:
    found = pair(tmp_path, 0, 0, memory=False)
    one = entry(found, 1, 2, 3)
    assert str(one.wait) == "waits for mbarrier 0x800, parity 0"
    assert one.state[0] == "its state is not known: the dump has no shared memory"
    assert not one.passing
    assert ((0,), {"SYNCS.ARRIVE.TRANS64"}, True) in supplies(one)
    assert found.cycle == ()


@needs.compiler
def test_ctas_that_say_the_same_are_one_entry(tmp_path: Path) -> None:
    same = pair(tmp_path, word(0, 1, 1), word(0, 64, 96), ctas=3)
    assert [e.ctas for e in same.entries] == [(0, 1, 2)] * 2
    assert [len(e.groups) for e in same.entries] == [3, 3]
    consumer = question("pair", CONSUMER)
    stands = [waiting(n, consumer, FULL, 0) for n in (1, 2, 3)]
    full, none = shared((FULL, word(0, 1, 1))), shared((FULL, word(1, 1, 1)))
    blocks = [Block(stands, m, (n, 0, 0), n) for n, m in enumerate((full, none, full))]
    found = graph(tmp_path, "pair", blocks, grid=3)
    assert [(e.ctas, e.passing) for e in found.entries] == [((0, 2), False), ((1,), True)]


@needs.compiler
@pytest.mark.parametrize("owner", [0, 1])
def test_an_arrival_of_a_peer(tmp_path: Path, owner: int) -> None:
    """CTA 1 arrives on the mbarrier of CTA 0 (mapa), and on none of its own."""
    code = function("peers")
    ask = question("peers", "if (rank == 0) wait(&b, 0);")
    poll = found(KERNELS, code, "while (((volatile int*)o)[n] == 0); asm", "LDG")
    waits = waiting(0, ask, 0x400 + (owner << 24), 0)
    polls = Stand(0, poll.pc, registers={2: 0x100, 3: 0x7})
    memory = shared((0x400, word(0, 1, 1)))
    blocks = [Block([waits], memory, (0, 0, 0), 0), Block([polls], memory, (1, 0, 0), 1)]
    graph_ = graph(tmp_path, "peers", blocks, block=32, grid=2, cluster=2)
    one = next(e for e in graph_.entries if isinstance(e.wait, MbarrierWait))
    if owner == 0:
        assert str(one.wait) == "waits for mbarrier 0x400, parity 0"
        (supply,) = one.supplies
        assert supply.certain
        assert [group.cta.rank for group in supply.groups] == [1]
        assert [i.opcode for i in supply.instructions] == ["SYNCS.ARRIVE.TRANS64.RED.A1T0"]
    else:
        assert str(one.wait) == "waits for mbarrier 0x400 of the cluster's CTA 1, parity 0"
        assert not one.supplies
        assert "no live warp has an arrival on it ahead" in one.state


@needs.recent_compiler
def test_only_warps_that_come_to_an_arrival_could_make_it(tmp_path: Path) -> None:
    """Two warps wait at one place; one of them has the arrival that is missing behind it."""
    ask = question("chosen", "wait(&b[0], 0);")
    (tid,) = (one for one in function("chosen").code.values() if "SR_TID.X" in one.operands)
    thread = int(tid.operands[0].lstrip("R"))
    stands = [waiting(n, ask, 0x400, 0, thread=thread) for n in (0, 1, 2)]
    other = question("chosen", "wait(&b[1], 0);")
    stands.append(waiting(3, other, 0x408, 0))
    memory = shared((0x400, word(0, 1, 1)), (0x408, word(0, 1, 1)))
    graph_ = graph(tmp_path, "chosen", [Block(stands, memory)], block=128)
    # the loop of warp 3 lies behind that of the others: it has its own line all the same
    lines = [e.wait.instruction.lines[-1].line for e in graph_.entries if e.wait.instruction]
    assert lines == [line("wait(&b[0], 0);"), line("wait(&b[1], 0);")]
    assert supplies(entry(graph_, 3)) == [((1,), {"SYNCS.ARRIVE.TRANS64.A1T0"}, True)]
    assert supplies(entry(graph_, 0, 1, 2)) == [((3,), {"SYNCS.ARRIVE.TRANS64.A1T0"}, True)]
    assert [group.warps for group in graph_.cycle] == [(0, 1, 2), (3,)]


# ---------------------------------------------------------------------- other barriers


@needs.compiler
def test_a_named_barrier_that_lacks_a_warp(tmp_path: Path) -> None:
    code, ask = function("parts"), question("parts", "if (threadIdx.x >= 64) wait(&b, 0);")
    bar = found(KERNELS, code, 'asm volatile("barrier.sync 3, 96;"', "BAR")
    stands = [Stand(0, bar.pc + 32), Stand(1, bar.pc + 48), waiting(2, ask, 0x400, 0)]
    graph_ = graph(tmp_path, "parts", [Block(stands, shared((0x400, word(0, 1, 1))))], block=96)
    (one,) = (e for e in graph_.entries if isinstance(e.wait, NamedBarrierWait))
    assert [group.warps for group in one.groups] == [(0,), (1,)]  # they stand apart
    assert one.state[0] == "64 of 96 threads have come, as far as it shows: warps 0-1"
    assert supplies(one) == [((2,), {"BAR.SYNC.DEFER_BLOCKING"}, True)]
    assert not one.passing
    assert not one.wait.certain
    # each waits for what the other does behind its wait
    other = entry(graph_, 2)
    assert [s[0] for s in supplies(other)] == [(0, 1), (2,)]
    assert {w for group in graph_.cycle for w in group.warps} == {0, 2}


@needs.compiler
def test_a_named_barrier_to_which_half_of_a_warp_has_come(tmp_path: Path) -> None:
    code, ask = function("parts"), question("parts", "if (threadIdx.x >= 64) wait(&b, 0);")
    bar = found(KERNELS, code, 'asm volatile("barrier.sync 3, 96;"', "BAR")
    stands = [Stand(n, bar.pc + 32) for n in (0, 1)]
    stands += [Stand(2, bar.pc + 32, 0xFFFF), waiting(2, ask, 0x400, 0, 0xFFFF0000)]
    memory = shared((0x400, word(0, 1, 1)))
    graph_ = graph(tmp_path, "parts", [Block(stands, memory)], block=96)
    one = entry(graph_, 0, 1)
    assert one.state[0] == "80 of 96 threads have come, as far as it shows: warps 0-2"
    assert not one.passing
    assert [s.groups[0].lanes for s in one.supplies] == [0xFFFF0000]
    ended = [*stands[:2], Stand(2, bar.pc + 32, 0xFFFF)]  # with the other half of warp 2
    released = graph(tmp_path, "parts", [Block(ended)], block=96)
    assert {type(one.wait) for one in released.entries} == {Running}


@needs.compiler
def test_a_barrier_that_another_warp_has_passed(tmp_path: Path) -> None:
    """The warp that stands behind it has passed it, too: each round takes all warps."""
    code, ask = function("pair"), question("pair", CONSUMER)
    bar = next(one for one in code.code.values() if one.base == "BAR")
    stands = [Stand(0, bar.pc + 16), *(waiting(n, ask, FULL, 0) for n in (1, 2, 3))]
    memory = shared((FULL, word(0, 1, 1)), (EMPTY, word(0, 96, 96)))
    graph_ = graph(tmp_path, "pair", [Block(stands, memory)])
    wait = entry(graph_, 0).wait
    assert isinstance(wait, Running)
    assert wait.evidence == (
        "has passed BAR.SYNC.DEFER_BLOCKING 0x0 just before: warp 1 of its CTA has passed as many "
        "rounds of it"
    )
    (supply,) = entry(graph_, 1, 2, 3).supplies
    assert [group.warps for group in supply.groups] == [(0,)]
    assert not supply.waits


@needs.compiler
def test_a_barrier_that_only_some_have_come_to(tmp_path: Path) -> None:
    """No warp has passed it: those that stand behind it wait."""
    bar = next(one for one in function("pair").code.values() if one.base == "BAR")
    stands = [Stand(0, bar.pc - 16), *(Stand(n, bar.pc + 16) for n in (1, 2, 3))]
    one = entry(graph(tmp_path, "pair", [Block(stands)]), 1, 2, 3)
    assert isinstance(one.wait, NamedBarrierWait)


@needs.compiler
def test_a_barrier_of_a_loop_that_another_warp_has_passed(tmp_path: Path) -> None:
    """In which turn the warps are is not known: it may be a later round."""
    code, ask = function("turns"), question("turns", "wait(&b, i & 1)")
    bar = next(one for one in code.code.values() if one.base == "BAR")
    stands = [Stand(0, bar.pc + 16), Stand(1, bar.pc + 16), waiting(2, ask, 0x400, 0)]
    one = entry(graph(tmp_path, "turns", [Block(stands)], block=96), 0, 1)
    assert isinstance(one.wait, NamedBarrierWait)
    assert not one.passing
    stands[2] = Stand(2, bar.pc + 16)
    whole = entry(graph(tmp_path, "turns", [Block(stands)], block=96), 0, 1, 2)
    assert whole.passing
    assert whole.state[-1] == "all that it counts have come: the wait is about to pass"


@needs.compiler
def test_a_barrier_to_which_all_have_come_and_behind_which_lanes_part(tmp_path: Path) -> None:
    """Lane 0 stores, the others of its warp are where they meet it: no thread waits any more."""
    code = function("first")
    bar = next(one for one in code.code.values() if one.base == "BAR")
    store = found(KERNELS, code, "if (threadIdx.x == 0) asm volatile", "STG")
    meeting = next(one for one in code.code.values() if one.base == "BSYNC" and one.pc > bar.pc)
    warp0 = [Stand(0, store.pc - 32, 1), Stand(0, meeting.pc, ALL - 1)]
    rest = [Stand(n, bar.pc + 16) for n in (1, 2, 3)]

    def waits(stands: Sequence[Stand]) -> dict[tuple[int, ...], type]:
        graph_ = graph(tmp_path, "first", [Block(stands)], convergence={0: ALL})
        return {g.warps: type(g.wait) for g in graph_.groups if g.lanes & 1}

    assert waits([*warp0, *rest]) == {(0,): Running, (1, 2, 3): Running}
    # one has not come to it, or may have ended before it
    assert waits([*warp0, *rest[:2], Stand(3, bar.pc)])[(0,)] is NamedBarrierWait
    assert waits([*warp0, *rest[:2]])[(0,)] is NamedBarrierWait


@needs.compiler
def test_a_named_barrier_that_counts_warps_which_have_ended(tmp_path: Path) -> None:
    bar = found(KERNELS, function("parts"), 'asm volatile("barrier.sync 3, 96;"', "BAR")
    stands = [Stand(0, bar.pc + 32), Stand(1, bar.pc + 32)]
    graph_ = graph(tmp_path, "parts", [Block(stands)], block=96)
    one = entry(graph_, 0, 1)
    assert one.state == (
        "64 of 96 threads have come, as far as it shows: warps 0-1",
        "warp 2 has ended, and the count has them or others in it",
    )
    assert not one.supplies


@needs.compiler
@pytest.mark.parametrize(
    ("release", "barrier", "kind", "certain"),
    [
        (580, (0, 0), NamedBarrierWait, False),
        (590, (0, 0), Running, False),
        (590, (3, 0), NamedBarrierWait, True),
    ],
)
def test_what_the_driver_says_of_a_barrier(
    tmp_path: Path, release: int, barrier: tuple[int, int], kind: type, certain: bool
) -> None:
    bar = found(KERNELS, function("parts"), 'asm volatile("barrier.sync 3, 96;"', "BAR")
    block = Block([Stand(0, bar.pc + 32)])
    graph_ = graph(
        tmp_path, "parts", [block], block=32, release=(release, 1), barriers={0: barrier}
    )
    ((group,),) = [e.groups for e in graph_.entries]
    assert type(group.wait) is kind
    assert group.wait.certain is certain


@needs.compiler
def test_a_barrier_that_only_the_driver_shows(tmp_path: Path) -> None:
    code = function("parts")
    graph_ = graph(
        tmp_path, "parts", [Block([Stand(0, 0)])], block=32, release=(590, 1),
        barriers={0: (4, 0x55)},
    )  # fmt: skip
    assert code.code[0].base == "LDC"
    ((group,),) = [e.groups for e in graph_.entries]
    assert isinstance(group.wait, ClusterBarrierWait)
    assert not group.wait.certain
    assert (
        "the driver says that it waits for a barrier of the cluster (0x55)" in group.wait.evidence
    )


@needs.compiler
def test_a_cluster_of_which_a_cta_has_ended(tmp_path: Path) -> None:
    code = function("peers")
    wait = found(KERNELS, code, "barrier.cluster.arrive.relaxed", "UCGABAR_WAIT")
    ask = question("peers", "if (rank == 0) wait(&b, 0);")
    stands = [Stand(0, wait.pc), waiting(1, ask, 0x400, 0)]
    memory = shared((0x400, word(0, 1, 1)))
    graph_ = graph(tmp_path, "peers", [Block(stands, memory)], block=64, grid=2, cluster=2)
    one = entry(graph_, 0)
    assert one.state == (
        "CTA 0 of the cluster: warp 0 waits there, warp 1 does not",
        "CTA 1 of the cluster has ended: that counts as come",
    )
    assert supplies(one) == [((1,), {"UCGABAR_ARV"}, True)]
    assert not one.passing
    # an arrival of the CTA that has ended was to come
    assert "no live warp has an arrival on it ahead" in entry(graph_, 1).state


@needs.compiler
@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("peers", "all that have not ended are there: the wait is about to pass"),
        (
            "late",
            "all that have not ended are there; the code may lead there past the arrival, and a "
            "warp that came so has not arrived",
        ),
    ],
)
def test_a_cluster_all_of_whose_warps_wait(tmp_path: Path, name: str, last: str) -> None:
    """It is held by a warp that waits and has not arrived: an arrival that only some make."""
    wait = next(one for one in function(name).code.values() if one.base == "UCGABAR_WAIT")
    stands = [Stand(0, wait.pc), Stand(1, wait.pc)]
    blocks = [Block(stands, index=(n, 0, 0), sm=n) for n in (0, 1)]
    (one,) = graph(tmp_path, name, blocks, block=64, grid=2, cluster=2).entries
    assert one.state[2:] == (last,)
    assert one.passing is (name == "peers")


@needs.compiler
def test_registers_that_no_warp_gives_back(tmp_path: Path) -> None:
    code = function("registers")
    pool = found(KERNELS, code, 'else asm volatile("setmaxnreg.inc', "USETMAXREG")
    poll = found(KERNELS, code, "if (threadIdx.x < 128) { while", "LDG")
    waits = [Stand(n, pool.pc + 16) for n in range(4, 12)]
    running = [Stand(n, poll.pc, registers={2: 0x1000, 3: 0x7}) for n in range(4)]
    memory = [Memory(0x700001000, (5).to_bytes(4, "little"))]
    whole = graph(tmp_path, "registers", [Block(waits + running)], block=384, memory=memory)
    one = entry(whole, *range(4, 12))
    assert isinstance(one.wait, RegisterPoolWait)
    assert supplies(one) == [((0, 1, 2, 3), {"USETMAXREG.DEALLOC.CTAPOOL"}, True)]
    poll_ = entry(whole, 0, 1, 2, 3)
    assert isinstance(poll_.wait, Poll)
    assert (poll_.wait.address, poll_.wait.value) == (0x700001000, 5)
    assert poll_.state == (
        "warps 4-11 of its CTA have stores to global memory ahead, which may be to it",
    )
    alone = entry(graph(tmp_path, "registers", [Block(waits)], block=384), *range(4, 12))
    assert alone.state == ("no live warp of its partition of the SM can still release registers",)


@needs.compiler
def test_ctas_that_poll_words_of_their_own(tmp_path: Path) -> None:
    poll = found(KERNELS, function("registers"), "if (threadIdx.x < 128) { while", "LDG")
    blocks = [
        Block([Stand(0, poll.pc, registers={2: 0x1000 + 4 * n, 3: 0x7})], None, (n, 0, 0), n)
        for n in range(3)
    ]
    (one,) = graph(tmp_path, "registers", blocks, block=32, grid=3).entries
    assert one.ctas == (0, 1, 2)
    assert str(one.wait) == "polls the global word 0x700001000"
    assert one.state[0] == "they poll 3 words, from 0x700001000 to 0x700001008"


@needs.compiler
@pytest.mark.parametrize(("grid", "begins"), [(1, ""), (9, "a CTA that has not begun (8 may not")])
def test_a_global_word_that_no_warp_is_to_store(tmp_path: Path, grid: int, begins: str) -> None:
    """A barrier of the grid for which not all of its CTAs are on the device."""
    poll = found(KERNELS, function("whole_grid"), "gridDim.x", "LDG")
    (one,) = graph(
        tmp_path, "whole_grid", [Block([Stand(0, poll.pc)])], block=32, grid=grid
    ).entries
    assert one.state[-1] == (
        "no other live warp of this kernel has a store to global memory ahead: it takes "
        f"{begins and begins + ' have), '}another kernel, the host or a copy that is under way"
    )


@needs.compiler
def test_a_word_of_shared_memory_that_a_warp_is_to_store(tmp_path: Path) -> None:
    code = function("word_of_peer")
    poll = found(KERNELS, code, "while (w[1] == 0);", "LDS")
    other = found(KERNELS, code, "else { while (((volatile int*)o)[n] == 0); w[1]", "LDG")
    operand = poll.operands[1]
    register = int(operand.strip("[]UR").split("+")[0])
    offset = 4 if "+0x4" in operand else 0

    def polls(address: int) -> Stand:
        held = {register: address - offset}
        if "UR" in operand:
            return Stand(0, poll.pc, uniform=held)
        return Stand(0, poll.pc, registers=held)

    stands = [polls(0x404), Stand(1, other.pc)]
    graph_ = graph(tmp_path, "word_of_peer", [Block(stands)], block=64)
    one = entry(graph_, 0)
    assert isinstance(one.wait, Poll)
    assert (one.wait.space, one.wait.address, one.wait.value) == ("shared", 0x404, 0)
    assert supplies(one) == [((1,), {"STS"}, True)]
    for beside in (0x400, 0x408):
        stands[0] = polls(beside)
        graph_ = graph(tmp_path, "word_of_peer", [Block(stands)], block=64)
        assert supplies(entry(graph_, 0)) == []
    alone = graph(tmp_path, "word_of_peer", [Block(stands[:1])], block=64)
    assert entry(alone, 0).state == ("no live warp has a store to it ahead",)


@needs.compiler
def test_lanes_apart(tmp_path: Path) -> None:
    """Half of a warp waits at a meeting of all of it, the others for an mbarrier before it."""
    code, ask = function("parts"), question("parts", "if (threadIdx.x >= 64) wait(&b, 0);")
    meeting = found(KERNELS, code, 'asm volatile("barrier.sync 3, 96;"', "WARPSYNC")
    stands = [Stand(2, meeting.pc, 0xFFFF), waiting(2, ask, 0x400, 0, 0xFFFF0000)]
    graph_ = graph(tmp_path, "parts", [Block(stands, shared((0x400, word(0, 1, 1))))], block=96)
    one = next(e for e in graph_.entries if isinstance(e.wait, WarpWait))
    assert one.groups[0].lanes == 0xFFFF
    assert str(one.wait) == "waits for lanes 16-31 of its warp"
    (supply,) = one.supplies
    assert (supply.groups[0].lanes, supply.certain, supply.waits) == (0xFFFF0000, True, True)
    whole = graph(tmp_path, "parts", [Block([Stand(2, meeting.pc, ALL)])], block=96)
    assert not isinstance(whole.entries[0].wait, WarpWait)


@needs.compiler
def test_lanes_that_meet_behind_a_branch(tmp_path: Path) -> None:
    """BSYNC waits for the lanes of its convergence barrier, but for those that have ended."""
    code = function("pair")
    (meeting,) = (one for one in code.code.values() if one.base == "BSYNC")
    branch = next(one for one in code.code.values() if one.base == "FENCE")
    half, rest = Stand(0, meeting.pc, 0xFFFE), Stand(0, branch.pc, 1)
    apart = graph(tmp_path, "pair", [Block([half, rest])], convergence={0: ALL})
    one = next(e for e in apart.entries if isinstance(e.wait, WarpWait))
    assert str(one.wait) == "waits for lane 0 of its warp"
    assert [(s.groups[0].lanes, s.waits) for s in one.supplies] == [(1, False)]
    alone = graph(tmp_path, "pair", [Block([half])], convergence={0: ALL})
    assert isinstance(alone.entries[0].wait, Running)


@needs.compiler
def test_a_wait_in_a_function_that_is_called(tmp_path: Path) -> None:
    """A function that was compiled for itself lies elsewhere on the device."""
    ask = question("pair", CONSUMER)
    own = waiting(0, ask, 0x400, 0)
    stand = Stand(0, 0x8000 + own.pc, 1, own.registers, own.uniform)
    graph_ = graph(
        tmp_path, "parts", [Block([stand], shared((0x400, word(0, 1, 1))))], block=32,
        called={"pair": 0x8000},
    )  # fmt: skip
    (one,) = graph_.entries
    assert str(one.wait) == "waits for mbarrier 0x400, parity 0"
    assert one.wait.instruction == ask
    # it comes back to any place of the kernel
    assert supplies(one) == [((0,), {"SYNCS.ARRIVE.TRANS64.A1T0"}, False)]


# ---------------------------------------------------------------------- dumps of an H200


def of_an_h200(name: str) -> WaitFor:
    """The graph of a dump of an H200."""
    dump = CoreDump(DUMPS / f"{name}.nvcudmp.gz")
    (grid,) = dump.grids
    image = dump.image_of(grid)
    assert image is not None
    code = function_at(Image(image.data), grid.entry)
    assert code is not None
    return wait_for(dump, {grid: code})


def test_the_cycle_of_a_ring() -> None:
    graph_ = of_an_h200("ring")
    full, empty = graph_.entries
    assert (full.ctas, empty.ctas) == ((0, 1, 2), (0, 1, 2))
    assert full.mbarrier == Mbarrier(1, 1, 1, 0)
    assert empty.mbarrier == Mbarrier(0, 4, 4, 0)
    assert supplies(full) == [((4,), {"SYNCS.ARRIVE.TRANS64"}, True)]
    assert supplies(empty) == [((0, 1, 2, 3), {"SYNCS.ARRIVE.TRANS64.A1T0"}, True)]
    assert [(g.cta.number, g.warps) for g in graph_.cycle] == [(0, (0, 1, 2, 3)), (0, (4,))]
    assert [i.lines[-1].line for i in full.initialised] == [15]


def test_waits_of_a_cluster() -> None:
    graph_ = of_an_h200("waits")
    assert {e.ctas for e in graph_.entries} == {(0, 1)}
    by = {type(e.wait).__name__: e for e in graph_.entries if e.groups[0].warps != (3,)}
    assert by["MbarrierWait"].state == (
        "mbarrier 0x400 is in a phase of parity 0: 3 of 3 arrivals pending",
        "no live warp has an arrival on it ahead",
    )
    assert by["ClusterBarrierWait"].state == (
        "CTA 0 of the cluster: warp 5 waits there, warps 0-4, 6-7 do not",
        "CTA 1 of the cluster: warp 5 waits there, warps 0-4, 6-7 do not",
        # each warp has a branch of its own
        "no other warp has an arrival on it ahead: it has arrived, or does not reach it",
    )
    lanes = next(e for e in graph_.entries if isinstance(e.wait, WarpWait))
    assert lanes.state == ("lanes 16-31 cannot reach it from where they stand",)
    assert graph_.cycle == ()
