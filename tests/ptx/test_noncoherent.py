"""Loads through the non-coherent cache of what the grid writes, and of what it does not (H25)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tests.sim.sites import BOTH, sites
from tilesim import Builder, Program, s32
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Parameter, Pointer

#: y, z and their elements of this thread; a number in %f1
START = (
    "ld.param.b64 %rd1, [y]; ld.param.b64 %rd2, [z]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; "
    "mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd3, %r4, 4; "
    "add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3; mov.f32 %f1, 0f3F800000;\n"
)
RESULT = "st.global.f32 [%rd5], %f2;"
#: turns over rows of 64 elements, each thread's at %rd6
LOOP = (
    "mov.u32 %r8, 0;\nT: mad.lo.u32 %r9, %r8, %r3, %r4; mul.wide.u32 %rd6, %r9, 4; "
    "add.u64 %rd6, %rd1, %rd6;\n{body}\nbar.sync 0; add.u32 %r8, %r8, 1; "
    "setp.lt.u32 %p1, %r8, 64; @%p1 bra T;\n"
)
STORE, LOAD = "st.global.f32 [%rd6], %f1;", "ld.global.nc.f32 %f2, [%rd6];"


def checked(
    body: str, *, grid: int = 1, strict: Strict = "practice", more: tuple[Parameter, ...] = ()
) -> Report:
    values = (Pointer("y", 1 << 21), Pointer("z", 1 << 21), *more)
    names = tuple(f".param .b64 {value.name}" for value in values)
    return report(START + body, warps=2, grid=grid, params=names, values=values, strict=strict)


#: what writes and loads, and the lines of both; those that only differ in the load are right
WRONG = {
    "behind a barrier": (
        "st.global.f32 [%rd4], %f1;\nbar.sync 0; xor.b32 %r5, %r4, 33; mul.wide.u32 %rd7, %r5, 4; "
        f"add.u64 %rd7, %rd1, %rd7;\nld.global.nc.f32 %f2, [%rd7];\n{RESULT}", [1, 3],
    ),
    "the thread's own": (f"st.global.f32 [%rd4], %f1;\nld.global.nc.f32 %f2, [%rd4];\n{RESULT}",
                         [1, 2]),
    "before the write": ("ld.global.nc.f32 %f2, [%rd4];\nst.global.f32 [%rd4], %f2;", [1, 2]),
    "beside a plain load": ("ld.global.nc.f32 %f2, [%rd4];\nld.global.f32 %f3, [%rd4]; bar.sync 0;"
                            "\nst.global.f32 [%rd4], %f2;", [1, 3]),
    "of an atomic": (f"red.global.add.f32 [%rd4], %f1;\nbar.sync 0;\nld.global.nc.f32 %f2, [%rd4];"
                     f"\n{RESULT}", [1, 3]),
    "of a vector": (
        "st.global.f32 [%rd4], %f1;\nbar.sync 0; and.b32 %r5, %r4, -4; mul.wide.u32 %rd7, %r5, 4; "
        "add.u64 %rd7, %rd1, %rd7;\n"
        f"ld.global.nc.L1::no_allocate.v4.f32 {{%f2,%f3,%f4,%f5}}, [%rd7];\n{RESULT}", [1, 3],
    ),
    "of a bulk copy": (
        "mov.u32 %r9, smem; shl.b32 %r10, %r1, 2; add.u32 %r10, %r10, %r9; "
        "st.shared.f32 [%r10], %f1; fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %r1, 0; "
        "@%p1 bra N;\ncp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r9], 256;\n"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nN: fence.proxy.async; "
        f"bar.sync 0;\nld.global.nc.f32 %f2, [%rd4];\n{RESULT}", [2, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize("what", WRONG)
def test_what_the_grid_writes(what: str, strict: Strict) -> None:
    body, places = WRONG[what]
    wrong = checked(body, strict=strict)
    assert wrong.rules == {"noncoherent-load"}
    assert lines(wrong) == places
    assert checked(body.replace(".nc", ""), strict=strict).verdict == "proved"
    # of clusters that take the same steps one is run
    assert checked(body, grid=1000).rules == {"noncoherent-load"}
    assert checked(body.replace(".nc", ""), grid=1000).verdict == "proved"


@pytest.mark.parametrize("strict", BOTH)
def test_other_bytes_may_be_written(strict: Strict) -> None:
    body = f"ld.global.nc.f32 %f2, [%rd4+65536];\nst.global.f32 [%rd4], %f2;\n{RESULT}"
    assert checked(body, strict=strict, grid=4).verdict == "proved"
    assert checked(body.replace("+65536", "+128"), strict=strict).verdict == "failed"


@pytest.mark.parametrize(
    "body",
    [
        f"{LOOP.format(body=STORE)}ld.global.nc.f32 %f2, [%rd4+8192];\n{RESULT}",
        f"ld.global.nc.f32 %f2, [%rd4+8192];\nbar.sync 0;\n{LOOP.format(body=STORE)}{RESULT}",
        f"{LOOP.format(body=LOAD)}st.global.f32 [%rd4+8192], %f2;",
        LOOP.format(body=f"{STORE.replace('%rd6', '%rd6+12288')} bar.sync 0; {LOAD}") + RESULT,
        "st.global.f32 [%rd4], %f1;" + LOOP.format(body="") + f"{LOAD[:-8]} [%rd4];\n{RESULT}",
    ],
)
def test_repetitions_that_are_left_out_hide_nothing(body: str) -> None:
    """One turn of 64 writes what is loaded, before, behind, or in a turn long after it."""
    wrong = checked(body)
    assert wrong.rules == {"noncoherent-load"}
    assert checked(body.replace(".nc", "")).verdict == "proved"
    apart = body.replace(STORE, STORE.replace("rd6", "rd6+65536")).replace("+12288", "+65536")
    apart = apart.replace("[%rd4+8192], %f2", "[%rd4+65536], %f2")
    if apart != body:
        assert checked(apart).verdict == "proved"


def test_the_ticket_of_the_last_block_orders_nothing_there() -> None:
    body = (
        "ld.param.b64 %rd9, [n]; st.global.f32 [%rd4], %f1;\nmembar.gl; bar.sync 0; "
        "mov.u32 %r9, smem; setp.ne.u32 %p1, %r1, 0; @%p1 bra N; "
        "atom.global.add.u32 %r12, [%rd9], 1; st.shared.u32 [%r9], %r12;\n"
        "N: bar.sync 0; ld.shared.u32 %r12, [%r9]; mov.u32 %r13, %nctaid.x; "
        "sub.u32 %r13, %r13, 1; setp.ne.u32 %p2, %r12, %r13; @%p2 ret; membar.gl; "
        "mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd1, %rd6; add.u64 %rd7, %rd2, %rd6; "
        "sub.u64 %rd7, %rd7, %rd1;\nld.global.nc.f32 %f2, [%rd6];\nst.global.f32 [%rd7], %f2;"
    )
    counter = (Pointer("n", 4, 0, Contents("u32", (0,))),)
    wrong = checked(body, grid=4, more=counter)
    assert wrong.rules == {"noncoherent-load"}
    assert lines(wrong) == [1, 4]
    assert checked(body.replace(".nc", ""), grid=4, more=counter).verdict == "proved"


def test_what_data_decides() -> None:
    """Where the load is, or whether there is a write: no proof, and no finding."""
    where = "ld.global.u32 %r5, [%rd5]; mul.wide.u32 %rd7, %r5, 4; add.u64 %rd7, %rd1, %rd7;\n"
    body = f"{where}st.global.f32 [%rd4], %f1; bar.sync 0; ld.global.nc.f32 %f2, [%rd7];"
    found = checked(body)
    assert found.verdict == "bounded"
    assert "noncoherent-load" in found.reasons[0]
    assert checked(body.replace("st.global.f32 [%rd4], %f1;", "")).verdict == "proved"


def neighbours(k: Builder, *, nc: bool, apart: int) -> None:
    y, z, value = k.tensor("y", s32, (128,)), k.tensor("z", s32, (64,)), k.var("value")
    k.mem.store(y[k.thread_id], k.thread_id)
    k.sync_threads()
    k.mem.load(value, y[(k.thread_id ^ 33) + apart], nc=nc)
    k.mem.store(z[k.thread_id], value)


def build(*, nc: bool, apart: int) -> Program:
    k = Builder("neighbours", "sm_90a", warps=2)
    neighbours(k, nc=nc, apart=apart)
    return k.finish()


@pytest.mark.parametrize("strict", BOTH)
def test_in_the_dsl(strict: Strict) -> None:
    load = "k.mem.load(value, y[(k.thread_id ^ 33) + apart], nc=nc)"
    store = "k.mem.store(y[k.thread_id], k.thread_id)"
    wrong = check(build(nc=True, apart=0), strict=strict)
    assert {rule for rule, _ in sites(wrong, neighbours)} == {"noncoherent-load"}
    assert {line for _, both in sites(wrong, neighbours) for _, line in both} == {load, store}
    for nc, apart in ((False, 0), (True, 64)):
        assert check(build(nc=nc, apart=apart), strict=strict).verdict == "proved"
