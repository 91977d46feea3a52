"""Grids that run beside a kernel: what they may access of what it accesses is an assumption.

Those that it lets start before it has completed, and those for which it waits.
"""

from __future__ import annotations

import inspect

import pytest

from tests.ptx.test_check import FIRST
from tests.ptx.test_check import report as ptx
from tests.sim.sites import BOTH
from tilesim import Builder, s32
from tilesim.checker import Report, check
from tilesim.checker.assumptions import Leaning
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer


def kernel(k: Builder, *, order: str) -> None:
    out = k.tensor("out", s32, (64,))
    for step in order.split():
        match step:
            case "store":
                k.mem.store(out[k.thread_id], 1)
            case "barrier":
                k.sync_threads()
            case "fence":
                k.fence.memory("acq_rel", "gpu")
            case "narrow":
                k.fence.memory("acq_rel", "cta")
            case "launch":
                k.griddep.launch_dependents()
            case "wait":
                k.griddep.wait()


def assumed(report: Report, name: str = "dependents") -> Leaning | None:
    assert report.verdict == "proved"
    return next((one for one in report.leanings if one.name == name), None)


def checked(order: str, strict: Strict, name: str = "dependents") -> Leaning | None:
    k = Builder("kernel", "sm_90a", warps=2)
    kernel(k, order=order)
    return assumed(check(k.finish(), strict=strict), name)


def places_of(found: Leaning | None) -> list[str]:
    """The lines of `kernel` that an assumption names."""
    assert found is not None
    assert found.kind == "assumption"
    lines, first = inspect.getsourcelines(kernel)
    return [lines[loc.line - first].strip() for loc in found.locs]


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize(
    "order",
    [
        "launch store", "wait launch store", "store barrier launch", "store fence launch",
        "store narrow barrier launch", "store fence barrier launch store",
        "barrier fence store launch", "launch store fence barrier",
    ],
)  # fmt: skip
def test_writes_that_may_come_after_it(order: str, strict: Strict) -> None:
    found = checked(order, strict)
    assert places_of(found) == ["k.griddep.launch_dependents()", "k.mem.store(out[k.thread_id], 1)"]


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize(
    "order",
    ["store fence barrier launch", "store barrier fence launch", "launch barrier", "store"],
)
def test_writes_that_are_performed_before_it(order: str, strict: Strict) -> None:
    assert checked(order, strict) is None


START = (
    "ld.param.b64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, smem; mul.wide.u32 %rd3, %r1, 4; "
    "add.u64 %rd4, %rd1, %rd3;\n"
)
STORE, LAUNCH = "st.global.u32 [%rd4], %r1;\n", "griddepcontrol.launch_dependents;\n"
COPY = (
    "mov.b32 %r3, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra N; st.shared.v4.b32 [%r2], "
    "{%r3,%r3,%r3,%r3}; fence.proxy.async;\n"
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 16;\n"
    "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nN:"
)


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (LAUNCH + STORE, [1, 2]),
        (f"{STORE}bar.sync 0;\n{LAUNCH}", [1, 3]),
        (f"{STORE}membar.gl; bar.sync 0;\n{LAUNCH}", []),
        (f"red.global.add.u32 [%rd4], 1;\n{LAUNCH}", [1, 2]),
        (f"{COPY}membar.gl; bar.sync 0;\n{LAUNCH}", [2, 5]),
        (f"st.shared.u32 [%r2], 1;\n{LAUNCH}".replace("st.", "@%p0 st."), []),
    ],
)
def test_in_ptx(body: str, places: list[int]) -> None:
    start = START.replace("mov.u32 %r1", "setp.ne.b32 %p0, 0, 0; mov.u32 %r1")
    found = assumed(
        ptx(start + body, params=(".param .b64 y",), values=(Pointer("y", 256),), warps=2)
    )
    assert ([] if found is None else sorted(loc.line - FIRST for loc in found.locs)) == places


@pytest.mark.parametrize("strict", BOTH)
def test_what_is_accessed_before_the_wait_for_earlier_grids(strict: Strict) -> None:
    for order in ("store wait", "store barrier wait store", "launch store wait store"):
        places = places_of(checked(order, strict, "earlier-grids"))
        assert places == ["k.griddep.wait()", "k.mem.store(out[k.thread_id], 1)"]
    for order in ("wait store", "wait barrier store", "store"):
        assert checked(order, strict, "earlier-grids") is None


WAIT, LOAD = "griddepcontrol.wait;\n", "ld.global.u32 %r4, [%rd4];\n"
SHARED = "shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r2; st.shared.u32 [%r5], 1;\n"


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (LOAD + WAIT, [1, 2]),
        (WAIT + LOAD, []),
        (f"{SHARED}{WAIT}{LOAD}", []),
        (f"setp.lt.u32 %p1, %r1, 32; @%p1 bra N;\n{WAIT}N:\n{STORE}", [2, 4]),
        (LOAD.replace("\n", " ") + WAIT, [1]),
    ],
)
def test_before_the_wait_in_ptx(body: str, places: list[int]) -> None:
    params, values = (".param .b64 y",), (Pointer("y", 256),)
    found = assumed(ptx(START + body, params=params, values=values, warps=2), "earlier-grids")
    assert ([] if found is None else sorted(loc.line - FIRST for loc in found.locs)) == places
