"""Code that no lane comes to, as a pointer is null: what its addresses are decides nothing."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import report
from tilesim.ptx.launch import Pointer

START = "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r2, %tid.x; mov.u32 %r3, 1;\n"
STORE = "cvta.to.global.u64 %rd3, %rd2;\nst.global.u32 [%rd3], %r3;\nDONE:"
PARAMS = (".param .u64 a", ".param .u64 b")

TESTS = {
    # asked together with something else
    "or": "setp.ne.s32 %p1, %r2, 31; setp.eq.s64 %p2, %rd2, 0; or.pred %p3, %p1, %p2;\n"
    "@%p3 bra DONE;\n",
    "and": "setp.eq.s32 %p1, %r2, 31; setp.ne.s64 %p2, %rd2, 0; and.pred %p3, %p1, %p2;\n"
    "@!%p3 bra DONE;\n",
    # set in two places, to null in both
    "twice": "ld.global.u32 %r5, [%rd1+128]; setp.eq.s64 %p1, %rd1, 0; @%p1 bra A;\n"
    "mov.u64 %rd2, 0;\nA: setp.eq.s64 %p2, %rd2, 0; @%p2 bra DONE;\n",
}


@pytest.mark.parametrize("name", TESTS)
def test_a_store_behind_a_question_for_null(name: str) -> None:
    values = (Pointer("a", 256), Pointer("b", 0))
    body = START + TESTS[name] + STORE
    assert report(body, params=PARAMS, values=values).verdict == "proved"
    other = body.replace("setp.eq.s64 %p2, %rd2, 0", "setp.eq.s64 %p2, %rd2, 8").replace(
        "setp.ne.s64 %p2, %rd2, 0", "setp.ne.s64 %p2, %rd2, 8"
    )
    assert report(other, params=PARAMS, values=values).rules == {"out-of-bounds"}
