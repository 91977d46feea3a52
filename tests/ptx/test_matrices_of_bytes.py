"""`ldmatrix` and `stmatrix` of bytes and smaller elements: which rows they access (E25)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: how many rows of 16 bytes, of lane after lane
FORMS = {
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r10,%r11}, [%r3];": 16,
    "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r10,%r11,%r12,%r13}, [%r3];": 32,
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r10}, [%r3];": 8,
    "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%r10,%r11}, [%r3];": 16,
    "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r3], {%r2};": 8,
    "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r3], {%r2,%r2};": 16,
}
#: one warp accesses the matrices, the other one a word
KERNEL = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r2, 16, %r1;
setp.lt.u32 %p1, %r2, 32; setp.eq.u32 %p2, %r2, 32; mov.u32 %r4, 0;
@%p1 st.shared.v4.u32 [%r3], {{%r4,%r4,%r4,%r4}};
bar.sync 0;
@!%p1 bra OTHER;
{matrices}
bra.uni END;
OTHER: @%p2 st.shared.u32 [%r1+{byte}], %r4;
END: ret;
}}
"""


def found(matrices: str, byte: int) -> Report:
    text = HEAD.format(params="").replace("sm_90a", "sm_100a")
    module = read(text + KERNEL.format(matrices=matrices, byte=byte), "k.ptx")
    return check(
        lower(module, module.entries[0], Launch("k", (1, 1, 1), (64, 1, 1), (1,) * 3, 4096))
    )


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_accessed(form: str) -> None:
    rows = FORMS[form]
    assert found(form, 16 * rows).verdict == "proved"
    for row in (0, rows - 1):
        assert found(form, 16 * row).rules == {"race"}
