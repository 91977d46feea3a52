"""The inventory of machine code: what the source says must stand in it; a wrong twin differs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.gpu import needs
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.inventory import Answer, Inventory, MbarrierRow, Site, inventory
from tilesim.cubin.sass import Function

from . import compiled

pytestmark = [needs.compiler, needs.disassembler]

HEAD = """
#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) \\
    name(char *g, int n)
#define BARRIERS __shared__ alignas(16) char buffer[4096]; __shared__ unsigned long long b[8]; \\
    unsigned s = (unsigned)__cvta_generic_to_shared(b), t = threadIdx.x; \\
    unsigned d = (unsigned)__cvta_generic_to_shared(buffer)
#define INIT(i, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" \\
    :: "r"(s + 8 * (i)), "r"(n) : "memory")
#define ARRIVE(i) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" \\
    :: "r"(s + 8 * (i)) : "memory")
#define ARRIVE_N(i, n) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" \\
    :: "r"(s + 8 * (i)), "r"(n) : "memory")
#define EXPECT(i, n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" \\
    :: "r"(s + 8 * (i)), "r"(n) : "memory")
#define COPY(i, n) asm volatile("cp.async.bulk.shared::cluster.global" \\
    ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \\
    :: "r"(d), "l"(g), "r"(n), "r"(s + 8 * (i)) : "memory")
#define WAIT(i, parity) asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta" \\
    ".b64 p, [%0], %1; @!p bra again;}" :: "r"(s + 8 * (i)), "r"(parity) : "memory")
#define BAR(id, n) asm volatile("bar.sync %0, %1;" :: "n"(id), "n"(n) : "memory")
#define BAR_ARRIVE(id, n) asm volatile("bar.arrive %0, %1;" :: "n"(id), "n"(n) : "memory")
"""

#: a ring of 4 stages: one thread of warp 4 copies, warps 0-3 read; counts and bytes are filled in
RING = """
BARRIERS;
if (t == 0) {
  for (int i = 0; i < 4; ++i) { INIT(i, FULL); INIT(4 + i, EMPTY); }
}
__syncthreads();
if (t / 32 == 4) {
  if (t == 128) {
    #pragma unroll 1
    for (int i = 0; i < n; ++i) {
      WAIT(4 + i % 4, i / 4 % 2 ^ 1);
      EXPECT(i % 4, BYTES);
      COPY(i % 4, 1024);
    }
  }
} else {
  #pragma unroll 1
  for (int i = 0; i < n; ++i) {
    WAIT(i % 4, i / 4 % 2);
    ARRIVE(4 + i % 4);
  }
}
"""


@cache
def each(*bodies: str, threads: int = 160, arch: str = "sm_90a") -> tuple[Inventory, ...]:
    """The inventories of kernels with bodies."""
    kernels = "".join(f"KERNEL(k{n}, {threads}) {{ {body} }}\n" for n, body in enumerate(bodies))
    image = compiled.image(f"{HEAD}{kernels}", arch, lines=False)
    of = {one.name: inventory(image, one) for one in compiled.kernels(image)}
    return tuple(of[f"k{n}"] for n in range(len(bodies)))


def found(body: str, threads: int = 160, arch: str = "sm_90a") -> Inventory:
    """The inventory of a kernel with a body."""
    (one,) = each(body, threads=threads, arch=arch)
    return one


def ring_body(full: int = 1, empty: int = 128, size: int = 1024) -> str:
    """The ring with counts and bytes."""
    body = RING
    for name, number in (("FULL", full), ("EMPTY", empty), ("BYTES", size)):
        body = body.replace(name, str(number))
    return body


def answers(rows: tuple[MbarrierRow, ...]) -> list[tuple[Answer, Answer | None]]:
    """What is said of arrivals and bytes."""
    return [(row.arrivals.answer, row.bytes.answer if row.bytes else None) for row in rows]


def of_kind(sites: tuple[Site, ...], kind: str) -> list[Site]:
    """The sites of a kind."""
    return [site for site in sites if site.kind == kind]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_ring_is_two_rows_that_agree(arch: str) -> None:
    one = found(ring_body(), arch=arch)
    assert (one.unknown, one.unplaced, one.block) == ((), (), (160, 1, 1))
    full, empty = one.mbarriers
    first = full.places[0]
    assert full.places == tuple(first + 8 * n for n in range(4))
    assert empty.places == tuple(first + 32 + 8 * n for n in range(4))
    assert (full.expected, empty.expected) == (1, 128)
    assert answers(one.mbarriers) == [("agrees", "agrees"), ("agrees", None)]
    (copy,) = of_kind(full.sites, "bulk copy")
    assert (copy.amount, copy.lanes(first)) == (1024, {4: 1})
    (expect,) = of_kind(full.sites, "arrive.expect_tx")
    assert (expect.amount, expect.warps()) == (1024, (4,))
    (arrive,) = of_kind(empty.sites, "arrive")
    assert arrive.lanes(first + 32) == dict.fromkeys(range(4), 32)
    assert {wait.warps() for wait in of_kind(empty.sites, "wait")} == {(4,)}
    (row,) = one.named_barriers
    assert (row.number, row.count.answer) == (0, "agrees")


def test_numbers_of_a_ring_that_nothing_makes_differ() -> None:
    counts = [({"full": 2}, 0), ({"empty": 129}, 1), ({"empty": 160}, 1), ({"empty": 4}, 1)]
    sizes = [1008, 2048]
    bodies = [ring_body(**wrong) for wrong, _ in counts]
    ones = each(*bodies, *(ring_body(size=size) for size in sizes))
    for (_, row), one in zip(counts, ones[: len(counts)], strict=True):
        assert [found.arrivals.answer for found in one.mbarriers] == [
            "differs" if number == row else "agrees" for number in (0, 1)
        ]
    for size, one in zip(sizes, ones[len(counts) :], strict=True):
        full, _ = one.mbarriers
        assert full.bytes is not None
        assert full.bytes.answer == "differs"
        assert str(size) in full.bytes.why


def test_warps_need_not_work_in_the_same_phase() -> None:
    # each of two groups of warps takes every other stage: 64 threads arrive, not 128
    body = (
        "BARRIERS; if (t == 0) for (int i = 0; i < 4; ++i) INIT(i, {}); __syncthreads();\n"
        "#pragma unroll 1\nfor (int i = t / 64; i < n; i += 2) {{ WAIT(4 + i % 4, 0); "
        "ARRIVE(i % 4); }} WAIT(0, 0);"
    )
    right, wrong = each(body.format(64), body.format(65), threads=128)
    assert {row.arrivals.answer for row in right.mbarriers} == {"not known"}
    assert {row.arrivals.answer for row in wrong.mbarriers} == {"differs"}


def test_what_depends_on_the_launch_is_not_known() -> None:
    one = found("BARRIERS; if (t == 0) INIT(0, n); __syncthreads(); ARRIVE(0); WAIT(0, 0);")
    (row,) = one.mbarriers
    assert row.expected is None
    assert row.arrivals.answer == "not known"
    assert {site.amount for site in of_kind(row.sites, "wait")} == {0}


def test_arrivals_count_as_often_as_they_say() -> None:
    body = (
        "BARRIERS; if (t == 0) INIT(0, {}); __syncthreads(); if (t < 2) ARRIVE_N(0, 3); WAIT(0, 0);"
    )
    right, wrong = (one.mbarriers[0] for one in each(body.format(6), body.format(7)))
    (site,) = of_kind(right.sites, "arrive n")
    assert (site.amount, site.lanes(right.places[0])) == (3, {0: 2})
    assert (right.arrivals.answer, wrong.arrivals.answer) == ("agrees", "differs")


def test_nothing_arrives() -> None:
    one = found("BARRIERS; if (t == 0) INIT(0, 1); __syncthreads(); WAIT(0, 0);").mbarriers[0]
    assert one.arrivals.answer == "differs"


def test_an_arrival_that_a_loaded_value_guards_is_not_known() -> None:
    body = "BARRIERS; if (t == 0) INIT(0, 1); __syncthreads(); if (g[t]) ARRIVE(0); WAIT(0, 0);"
    assert found(body).mbarriers[0].arrivals.answer == "not known"


def test_an_arrival_that_may_be_repeated_is_not_known() -> None:
    body = (
        "BARRIERS; if (t == 0) { INIT(0, 7);\n#pragma unroll 1\nfor (int i = 0; i < n; ++i)"
        " ARRIVE(0); } __syncthreads(); WAIT(0, 0);"
    )
    assert found(body).mbarriers[0].arrivals.answer == "not known"


def test_each_warp_has_a_barrier_of_its_own() -> None:
    body = (
        "BARRIERS; if (t == 0) for (int i = 0; i < 4; ++i) INIT(i, {}); __syncthreads();"
        " if (t < 128) ARRIVE(t / 32); WAIT(0, 0);"
    )
    right, wrong = (one.mbarriers for one in each(body.format(32), body.format(128)))
    assert {row.arrivals.answer for row in right} == {"agrees"}
    assert {row.arrivals.answer for row in wrong} == {"differs"}


def test_named_barriers() -> None:
    body = "if (threadIdx.x < 64) BAR(1, 96); else if (threadIdx.x < 96) BAR_ARRIVE(1, {});"
    bodies = body.format(96), body.format(128), "if (threadIdx.x < 64) BAR(1, 96);"
    right, wrong, few = (one.named_barriers[0] for one in each(*bodies))
    assert {(site.kind, site.amount, site.warps()) for site in right.sites} == {
        ("bar.sync", 96, (0, 1)),
        ("bar.arrive", 96, (2,)),
    }
    assert (right.count.answer, wrong.count.answer) == ("agrees", "differs")
    assert (few.count.answer, few.count.why) == (
        "differs",
        "it is of 96 threads, and 64 come to it",
    )


def test_registers_that_are_asked_for() -> None:
    body = (
        'if (threadIdx.x < 128) {{ asm volatile("setmaxnreg.dec.sync.aligned.u32 {};");'
        ' BAR(1, 128); }} else {{ asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");'
        " BAR(2, 256); }}"
    )
    right, wrong = each(body.format(24), body.format(40), threads=384)
    assert right.info.registers == wrong.info.registers == 168
    assert {(s.registers, s.warps) for s in right.register_sites} == {
        (24, (0, 1, 2, 3)),
        (240, (4, 5, 6, 7, 8, 9, 10, 11)),
    }
    assert [o and o.answer for o in (right.register_pool, wrong.register_pool)] == [
        "agrees",
        "differs",
    ]


def test_a_kernel_without_a_size_of_its_block() -> None:
    source = (
        HEAD + 'extern "C" __global__ void k(char *g, int n) { BARRIERS; INIT(0, 1); ARRIVE(0); }'
    )
    image = compiled.image(source, lines=False)
    one = inventory(image, compiled.kernels(image)[0])
    assert one.mbarriers[0].expected == 1
    assert one.mbarriers[0].arrivals.answer == "not known"
    assert any("size of the block" in why for why in one.unknown)


def test_no_time_is_said() -> None:
    image = compiled.image(f"{HEAD}KERNEL(k, 160) {{ {ring_body()} }}", lines=False)
    one = inventory(image, compiled.kernels(image)[0], seconds=0.0)
    assert any("took too long" in why for why in one.unknown)
    assert one.compared == ()
    assert one.unplaced


def test_registers_are_of_partitions() -> None:
    # all warps together ask for fewer than there are, those of partition 0 for more
    body = (
        'if (threadIdx.x / 32 % 4) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");'
        ' else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); BAR(1, 384);'
    )
    pool = found(body, 384).register_pool
    assert pool is not None
    assert (pool.answer, "partition 0" in pool.why) == ("differs", True)


def test_a_guard_is_known_or_not() -> None:
    guards: dict[str, Answer] = {
        "t % 32 == 0": "agrees",
        "n": "differs",  # all 160 threads, or none
        "g[t] == 1": "not known",
        "t < n": "not known",
    }
    body = "BARRIERS; if (t == 0) INIT(0, 5); __syncthreads(); if ({}) ARRIVE(0); WAIT(0, 0);"
    ones = each(*(body.format(guard) for guard in guards))
    assert [one.mbarriers[0].arrivals.answer for one in ones] == [*guards.values()]


def test_a_role_that_is_chosen_by_a_switch_is_known() -> None:
    body = (
        "BARRIERS; if (t == 0) { INIT(0, 64); INIT(1, 32); } __syncthreads(); "
        "switch (__shfl_sync(~0u, t / 32, 0)) { case 0: case 3: ARRIVE(0); break; "
        "case 1: ARRIVE(1); break; case 2: WAIT(0, 0); WAIT(1, 0); break; }"
    )
    assert answers(found(body).mbarriers) == [("agrees", None), ("agrees", None)]


def test_an_elected_thread_arrives_once_for_its_warp() -> None:
    elect = (
        'unsigned e; asm volatile("{.reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p;}"'
        ' : "=r"(e));'
    )
    body = (
        f"BARRIERS; if (t == 0) INIT(0, 5); __syncthreads(); {elect} if (e) ARRIVE(0); WAIT(0, 0);"
    )
    assert answers(found(body).mbarriers) == [("agrees", None)]


def test_what_an_elected_thread_brings_to_a_uniform_register_all_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # @P0 R2UR UR5, R2, then UTCBAR [UR5] without a guard: one arrival for the warp
    body = """
    BARRIERS; if (t == 0) for (int i = 0; i < 4; ++i) INIT(i, COUNT); __syncthreads();
    if (t < 32) {
      unsigned stage = g[t] & 3;
      #pragma unroll 1
      for (int i = 0; i < n; ++i) {
        WAIT(i & 3, i / 4 % 2 ^ 1);
        asm volatile("{.reg .pred p; elect.sync _|p, -1; @p tcgen05.commit.cta_group::1"
            ".mbarrier::arrive::one.shared::cluster.b64 [%0];}" :: "r"(s + 8 * stage) : "memory");
        stage = stage + 1 & 3;
      }
    }
    """
    counts: dict[int, Answer] = {1: "agrees", 2: "differs", 32: "differs"}
    kernels = "".join(f"KERNEL(k{n}, 160) {{ {body.replace('COUNT', str(n))} }}\n" for n in counts)
    image = compiled.image(f"{HEAD}{kernels}", "sm_100a", lines=False)

    def without_broadcast(image: Image, of: tuple[Symbol, ...]) -> tuple[Function, ...]:
        """As other versions of ptxas write it."""
        return tuple(
            replace(one, code={
                pc: replace(i, opcode="R2UR") if i.base == "R2UR" else i
                for pc, i in one.code.items()
            })
            for one in disassemble(image, of)
        )  # fmt: skip

    monkeypatch.setattr("tilesim.cubin.inventory.disassemble", without_broadcast)
    for kernel in compiled.kernels(image):
        (row,) = inventory(image, kernel).mbarriers
        (commit,) = of_kind(row.sites, "tcgen05.commit")
        assert commit.lanes(row.places[0]) == {0: 1}
        assert row.arrivals.answer == counts[int(kernel.name[1:])]


def test_arrivals_from_other_ctas_are_not_counted() -> None:
    remote = (
        'unsigned r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) '
        ': "r"(s), "r"({})); asm volatile('
        '"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(r) : "memory");'
    )
    body = "BARRIERS; if (t == 0) INIT(0, 320); __syncthreads(); {} WAIT(0, 0);"
    (row,) = found(body.format(remote.format("0"))).mbarriers
    assert row.arrivals.answer == "not known"
    assert "other CTAs" in row.arrivals.why


def test_an_address_that_is_not_known_leaves_all_counts_open() -> None:
    body = (
        "BARRIERS; if (t == 0) { INIT(0, 1); INIT(1, 160); } __syncthreads(); ARRIVE(1); "
        "ARRIVE(*(int *)g); WAIT(0, 0); WAIT(1, 0);"
    )
    one = found(body)
    assert len(one.unplaced) == 1
    assert [row.arrivals.answer for row in one.mbarriers] == ["not known", "not known"]


def test_a_wait_for_the_phase_before_the_first_needs_no_arrival() -> None:
    body = "BARRIERS; if (t == 0) INIT(0, 1); __syncthreads(); WAIT(0, 1);"
    assert found(body).mbarriers[0].arrivals.answer == "not known"
