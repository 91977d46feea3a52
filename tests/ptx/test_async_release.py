"""``st.async`` and ``red.async`` to global memory, which release (D14), as PTX spells them."""

from __future__ import annotations

import pytest

from tilesim.checker import Report, check
from tilesim.ir.mir import Mir
from tilesim.ir.ops.scalar import RedAsyncRelease, StAsyncRelease
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

TEXT = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 f)
{
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %h<3>; .reg .b8 %b; .reg .pred %p<9>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [f];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, 1;
setp.ne.u32 %p1, %r2, 0; @%p1 bra END;
setp.ne.u32 %p2, %r1, 0; @%p2 bra C;
st.global.u32 [%rd1], %r3;
SEND
bra END;
C:
LOOK
setp.eq.u32 %p3, %r4, 0; @%p3 bra C;
ld.global.u32 %r5, [%rd1];
END: ret;
}
"""
#: the lines of the store, of what sends and of the load behind the poll
STORE, SEND, LOAD = 11, 12, 17
STORED = "st.async.release.gpu.global.u32 [%rd2], %r3;"
ACQUIRED = "ld.acquire.gpu.global.u32 %r4, [%rd2];"


def _program(send: str, look: str = ACQUIRED) -> Mir:
    module = read(TEXT.replace("SEND", send).replace("LOOK", look), "k.ptx")
    pointers = Pointer("x", 4), Pointer("f", 8, contents=Contents("u64", (0,)))
    launch = Launch("k", (2, 1, 1), (32, 1, 1), (1, 1, 1), 0, params=pointers, cooperative=True)
    return lower(module, module.entries[0], launch)


def _report(send: str, look: str = ACQUIRED, *, strict: Strict = "practice") -> Report:
    return check(_program(send, look), strict=strict)


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    "send",
    [
        STORED,
        "st.async.release.sys.b32 [%rd2], %r3;",
        "st.async.mmio.release.sys.global.s32 [%rd2], %r3;",
        "red.async.release.gpu.global.add.u32 [%rd2], %r3;",
        "red.async.mmio.release.sys.global.add.s32 [%rd2], %r3;",
        "red.async.release.gpu.add.u32 [%rd2], %r3;",
    ],
)
def test_an_acquire_that_finds_it_comes_after_what_its_thread_did(
    send: str, strict: Strict
) -> None:
    assert _report(send, strict=strict).verdict == "proved"
    wrong = _report(send, ACQUIRED.replace("acquire", "relaxed"), strict=strict)
    (race,) = wrong.findings
    assert race.rule == "race"
    assert {(p.cta, p.loc.line) for p in race.participants} == {(0, STORE), (1, LOAD)}


def test_a_read_by_its_own_thread_races_with_it() -> None:
    back = f"{STORED} ld.global.u32 %r6, [%rd2];"
    (race,) = _report(back).findings
    assert race.rule == "race"
    assert [(p.cta, p.loc.line) for p in race.participants] == [(0, SEND)] * 2


@pytest.mark.parametrize(
    ("text", "scope", "bits"),
    [
        ("st.async.release.gpu.global.u16 [%rd2], %h1;", "gpu", 16),
        ("st.async.release.gpu.global.u8 [%rd2], %b;", "gpu", 8),
        ("st.async.mmio.release.sys.global.f64 [%rd2], %rd1;", "sys", 64),
        ("red.async.release.sys.global.add.s64 [%rd2], %rd1;", "sys", 64),
    ],
)
def test_every_type_is_read(text: str, scope: str, bits: int) -> None:
    code = [i.what for i in _program(text).code]
    (op,) = [w for w in code if isinstance(w, StAsyncRelease | RedAsyncRelease)]
    assert (op.scope, op.dst.dtype.bits) == (scope, bits)


@pytest.mark.parametrize(
    "text",
    [
        "red.async.release.gpu.global.max.u32 [%rd2], %r3;",  # ptxas takes it, PTX has only .add
        "red.async.release.cluster.global.add.u32 [%rd2], %r3;",
        "st.async.release.cta.global.u32 [%rd2], %r3;",
        "st.async.release.gpu.global.v2.u32 [%rd2], {%r3, %r3};",
    ],
)
def test_what_ptx_does_not_have_is_not_read(text: str) -> None:
    with pytest.raises(Unsupported):
        _program(text)
