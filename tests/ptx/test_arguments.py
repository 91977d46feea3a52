"""What a function is called with: bytes of a ``.param`` variable, stored and loaded."""

from __future__ import annotations

import pytest

from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import PtxError, Unsupported

#: the function gives what it has loaded, and the kernel traps if that is another number. The
#: number is no constant of the text
CALL = """.version 9.4
.target sm_90a
.address_size 64
.func (.param .b32 out) f(.param .align 8 .b8 in[8])
{{ .reg .b32 %r<9>;
{load}
st.param.b32 [out], %r1; ret; }}
.visible .entry k()
{{ .reg .b32 %r<9>; .reg .b16 %rs<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
.param .align 8 .b8 a[8]; .param .b32 b;
mov.u32 %r2, %tid.x; and.b32 %r2, %r2, 0; add.u32 %r2, %r2, {number}; cvt.u16.u32 %rs1, %r2;
mov.b64 %rd1, {{%r2, %r2}};
{store}
call (b), f, (a);
ld.param.b32 %r3, [b];
setp.ne.s32 %p1, %r3, {wanted}; @%p1 trap;
ret; }}
"""


def run(number: int, store: str, load: str, wanted: int) -> Report:
    text = CALL.format(number=number, store=store, load=load, wanted=wanted)
    module = read(text, "k.ptx")
    return check(lower(module, module.entries[0], Launch("k", (1, 1, 1), (32, 1, 1))))


@pytest.mark.parametrize(
    ("store", "load", "wanted"),
    [
        ("st.param.b8 [a], %rs1;", "ld.param.u8 %r1, [in];", 254),
        ("st.param.b8 [a], %rs1;", "ld.param.s8 %r1, [in];", -2),
        ("st.param.b32 [a], %r2;", "ld.param.b8 %r1, [in];", 254),
        ("st.param.b32 [a], %r2;", "ld.param.s8 %r1, [in];", -2),
        ("st.param.b32 [a], %r2;", "ld.param.b8 %r1, [in+1];", 3),
        ("st.param.b32 [a+4], %r2;", "ld.param.s16 %r1, [in+4];", 1022),
        ("st.param.b64 [a], %rd1;", "ld.param.b32 %r1, [in+4];", 1022),
        ("st.param.b64 [a], %rd1;", "ld.param.s8 %r1, [in+4];", -2),
    ],
)
def test_a_part_of_what_was_stored_is_loaded(store: str, load: str, wanted: int) -> None:
    """As a Boolean in a ``.param .b32`` that LLVM loads as a byte; signed types fill the register
    with their sign."""
    assert run(1022, store, load, wanted).verdict == "proved"
    wrong = run(1022, store, load, wanted + 1)
    assert wrong.verdict == "unsupported"  # the trap
    assert "trap" in wrong.findings[0].message


def test_bytes_that_were_stored_apart_are_not_loaded_together() -> None:
    halves = "st.param.b16 [a], %rs1; st.param.b16 [a+2], %rs1;"
    with pytest.raises(Unsupported, match="not accessed as it was stored"):
        run(1022, halves, "ld.param.b32 %r1, [in];", 0)


def test_a_variable_of_an_argument_has_an_end() -> None:
    """Both have 8 bytes; behind them lies what is not said."""
    store, load = "st.param.b32 [a+{at}], %r2;", "ld.param.b32 %r1, [in+{at}];"
    assert run(1022, store.format(at=4), load.format(at=4), 1022).verdict == "proved"
    for end in (6, 8):
        what = rf"bytes {end} to {end + 3} of .*, which has 8 bytes"
        with pytest.raises(PtxError, match=rf"st\.param\.b32: {what}"):
            run(1022, store.format(at=end), load.format(at=4), 1022)
        with pytest.raises(PtxError, match=rf"ld\.param\.b32: {what}"):
            run(1022, store.format(at=4), load.format(at=end), 1022)
