"""`cp.async` in PTX is a copy of each lane: lanes that name one place all write it."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, program, report
from tilesim.ir.program import Strict
from tilesim.proof.check import certify
from tilesim.ptx.launch import Pointer

START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [g]; setp.eq.u32 %p2, %r2, 0; "
    "setp.ge.u32 %p3, %r2, 32; shl.b32 %r3, %r2, 2; setp.eq.u32 %p4, %r2, 32;\n"
    "@%p2 mbarrier.init.shared::cta.b64 [%r1], 1;\nbar.sync 0;\n@%p3 bra NEXT;\n"
)
COPY = "cp.async.ca.shared.global [{to}], [%rd1], 4;\n"
#: the other warp stores to the place when one lane has told that its copy is done
STORE = (
    "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];\ncp.async.wait_all;\nret;\n"
    "NEXT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra NEXT;\n"
    "@%p4 st.shared.u32 [%r1+64], 5;"
)
SEVERAL, ONE = COPY.format(to="%r1+64"), "@%p2 " + COPY.format(to="%r1+64")
WAIT, ONE_WAITS, MEET = "cp.async.wait_all;\n", "@%p2 cp.async.wait_all;\n", "bar.warp.sync -1;\n"


def _check(middle: str, strict: Strict) -> tuple[str, set[str], bool]:
    params, values = (".param .u64 g",), (Pointer("g", 4),)
    body = START + middle + STORE
    found = report(body, warps=2, params=params, values=values, strict=strict)
    answer = certify(program(body, warps=2, params=params, values=values), strict=strict)
    names = {leaning.name for leaning in found.leanings}
    assert found.verdict == "proved" or _is_at_the_copy(found.findings[0].participants)
    return found.verdict, names & {"H23"}, answer.verdict == "certified"


def _is_at_the_copy(participants: object) -> bool:
    assert isinstance(participants, tuple)
    return any(p.loc.line == FIRST + 4 for p in participants)


@pytest.mark.parametrize("wait", [WAIT, ONE_WAITS + WAIT])
def test_one_lane_speaks_for_the_copies_of_others(wait: str) -> None:
    assert _check(SEVERAL + wait, "practice") == ("failed", set(), False)
    assert _check(ONE + wait, "ptx") == ("proved", set(), True)


def test_each_lane_has_waited_for_its_own() -> None:
    """By the text nothing orders the copies, equal or not (H23)."""
    assert _check(SEVERAL + WAIT + MEET, "practice") == ("proved", {"H23"}, False)
    assert _check(SEVERAL + WAIT + MEET, "ptx") == ("failed", set(), False)


def test_copies_to_places_of_their_own() -> None:
    own = "add.u32 %r4, %r1, %r3; " + COPY.format(to="%r4+64")
    assert _check(own + WAIT + MEET, "ptx") == ("proved", set(), True)
