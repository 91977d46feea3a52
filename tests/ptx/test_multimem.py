"""multimem in PTX: accesses to memory that several devices hold, through an address."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, INIT, WAIT, lines, report
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer


def run(body: str, *, warps: int = 1) -> Report:
    start = (
        "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r2, %tid.x;\n"
        "mul.wide.u32 %rd3, %r2, 8; add.s64 %rd4, %rd2, %rd3; mov.f32 %f1, 0f3FC00000;\n"
    )
    return report(
        start + body, params=(".param .u64 a",), values=(Pointer("a", 4096),), warps=warps
    )


def test_what_other_devices_hold_leaves_the_verdict_open() -> None:
    body = (
        "multimem.st.weak.global.v2.f32 [%rd4], {%f1, %f1};\n"
        "multimem.ld_reduce.relaxed.sys.global.add.v2.f32 {%f2, %f3}, [%rd4];\n"
        "setp.gt.f32 %p2, %f3, %f1;\n"
    )
    assert run(body).verdict == "proved"
    assert run(f"{body}@%p2 ret;\nmov.u32 %r1, 0;").verdict == "bounded"


@pytest.mark.parametrize(
    ("copy", "number"),
    [("multimem.cp.async.bulk.global.shared::cta.bulk_group", 6),
     ("multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", 7)],
)  # fmt: skip
def test_what_is_in_shared_memory_is_copied_to_all_devices(copy: str, number: int) -> None:
    put = (
        "setp.ne.u32 %p1, %r2, 0; @%p1 ret;\nmov.u32 %r1, smem; mov.u32 %r4, 6; mov.u32 %r5, 1;\n"
        "st.shared.v4.b32 [%r1+64], {%r4, %r4, %r4, %r4};"
        "st.global.v4.b32 [%rd2], {%r5, %r5, %r5, %r5};\n"
        "fence.proxy.async;\n"
    )
    body = f"{put}{copy} [%rd2], [%r1+64], 16;\ncp.async.bulk.commit_group;\n"
    test = "ld.global.b32 %r3, [%rd2];\nsetp.eq.b32 %p3, %r3, NUMBER;\n@%p3 ret;\n" + INIT + WAIT
    waits = "cp.async.bulk.wait_group 0;\n"
    assert run((body + waits + test).replace("NUMBER", str(number))).verdict == "proved"
    assert run((body + waits + test).replace("NUMBER", "8")).rules == {"deadlock"}
    early = run((body + test + waits).replace("NUMBER", str(number)))
    assert early.rules == {"race", "async-at-exit"}
    assert lines(early)[:2] == [6, 8]


def test_the_launch_says_that_a_multicast_address_is_one_of_a_buffer() -> None:
    """Two pointers with one name: what goes to all devices goes to this one's memory as well."""
    body = (
        "ld.param.u64 %rd1, [m]; ld.param.u64 %rd2, [a]; mov.u32 %r2, %tid.x;\n"
        "setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 32;\n"
        "@%p1 multimem.red.relaxed.sys.global.add.u32 [%rd1], 1;\nBARRIER\n"
        "@%p2 ld.global.u32 %r5, [%rd2];"
    )
    params = (".param .u64 m", ".param .u64 a")
    one = (Pointer("a", 4096), Pointer("a", 4096))
    wrong = report(body.replace("BARRIER", ""), params=params, values=one, warps=2)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [2, 4]
    right = report(body.replace("BARRIER", "bar.sync 0;"), params=params, values=one, warps=2)
    assert right.verdict == "proved"
    two = (Pointer("m", 4096), Pointer("a", 4096))
    apart = report(body.replace("BARRIER", ""), params=params, values=two, warps=2)
    assert apart.verdict == "proved"


MULTIMEM = "multimem.red.relaxed.sys.global.add.u32 [%rd4], 1;\n"


def test_memory_with_two_addresses_is_an_assumption() -> None:
    report = run(MULTIMEM + "st.global.u32 [%rd4+4], 7;\n")
    (found,) = (one for one in report.leanings if one.name == "aliases")
    assert (report.verdict, found.kind) == ("proved", "assumption")
    assert [loc.line - FIRST for loc in found.locs] == [2, 3]
    assert found.text in report.covers


@pytest.mark.parametrize("body", [MULTIMEM, "st.global.u32 [%rd4+4], 7;\n"])
def test_one_kind_of_address_is_none(body: str) -> None:
    report = run(body)
    assert report.verdict == "proved"
    assert all(one.name != "aliases" for one in report.leanings)
