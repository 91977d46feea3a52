"""A number that a kernel in PTX takes by value, for every value: ``tilesim check --for-all``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import main
from tilesim.sim.affine.loop_skipping import Skipper

#: two warps: in each of ``n`` turns a thread stores what it has read in one half of shared memory
#: and reads what the other warp has stored; ``{before}`` is what thread 0 does first alone, and
#: where ``{late}`` holds nobody waits behind the read
TEXT = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 a, .param .{type} n)
.maxntid 64
{{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;
.shared .align 128 .b8 smem[2048];
.shared .align 8 .b8 bar[8];
ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, 16;
ld.param.{type} %r20, [n];
cvta.to.global.u64 %rd1, %rd1; add.s64 %rd3, %rd1, %rd2; mov.u32 %r10, 0;
mov.u32 %r1, smem; mad.lo.u32 %r2, %r4, 16, %r1; xor.b32 %r3, %r2, 512;
setp.ne.u32 %p4, %r4, 0;
@%p4 bra TOGETHER;
{before}
TOGETHER:
bar.sync 0;
TURN:
ld.global.u32 %r7, [%rd3];
st.shared.u32 [%r2], %r7;
bar.sync 0;
ld.shared.u32 %r6, [%r3];
{late}
@%p5 bra NOBODY;
bar.sync 0;
NOBODY:
add.s32 %r10, %r10, 1; add.s64 %rd3, %rd3, 1024;
setp.lt.s32 %p2, %r10, %r20;
@%p2 bra TURN;
ret;
}}
"""
NEVER = "setp.eq.u32 %p5, %r10, -1;"
GUARDED = (
    "mov.u32 %r31, {}; setp.gt.u32 %p6, %r4, 1000; @%p6 mov.u32 %r31, 5; setp.eq.u32 %p5, %r31, 90;"
)
FIRST = "mov.u32 %r30, bar; mbarrier.init.shared.b64 [%r30], 1;"


def said(
    folder: Path, *options: str, late: str = NEVER, before: str = "", kind: str = "u32",
    nbytes: int = 1 << 32,
) -> tuple[int, str]:  # fmt: skip
    """The exit code and the output, in one line, of a check with n = 7."""
    (folder / "f.ptx").write_text(TEXT.format(late=late, before=before, type=kind))
    pointer = {"kind": "pointer", "name": "a", "bytes": nbytes}
    scalar = {"kind": "scalar", "type": kind, "value": 7}
    launch = {"schema": "tilesim.launch/1", "entry": "f", "grid": [1], "block": [64]}
    described = {**launch, "params": [pointer, {**scalar, "name": "trips"}]}
    (folder / "f.json").write_text(json.dumps(described))
    result = CliRunner().invoke(main, ["check", str(folder / "f.ptx"), *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(("kind", "before"), [("u32", ""), ("s32", FIRST)])
def test_every_trip_count_is_proved_up_to_where_the_buffer_ends(
    tmp_path: Path, kind: str, before: str
) -> None:
    code, text = said(tmp_path, "--for-all", "trips", kind=kind, before=before)
    assert code == 0, text
    assert f"every trips >= 1 up to {(1 << 32) // 1024} (then: `ld r7" in text


@pytest.mark.parametrize(
    ("late", "first"),
    [
        ("setp.eq.u32 %p5, %r10, 90;", 92),
        ("sub.u32 %r31, %r20, 40; setp.eq.u32 %p5, %r10, %r31;", 40),
        ("setp.gt.u32 %p5, %r20, 120;", 121),
        # no lane sets what holds the turn, or the number of turns
        (GUARDED.format("%r10"), 92),
        (GUARDED.format("%r20"), 90),
    ],
)
def test_a_trip_count_that_fails_is_found(tmp_path: Path, late: str, first: int) -> None:
    """Nobody waits before shared memory is written again, in some turn of that many."""
    code, text = said(tmp_path, "--for-all", "trips", late=late)
    assert code == 1, text
    assert f"covers trips = {first}; " in text
    assert "race" in text


def test_a_buffer_that_is_too_small_is_found(tmp_path: Path) -> None:
    code, text = said(tmp_path, "--for-all", "trips", nbytes=100 * 1024)
    assert code == 1, text
    assert "covers trips = 101; " in text
    assert said(tmp_path, "--for-all", "trips=1..100", nbytes=100 * 1024)[0] == 0


def test_names_that_are_no_scalars_are_refused(tmp_path: Path) -> None:
    code, text = said(tmp_path, "--for-all", "depth")
    assert code == 2
    assert "--for-all: kernel f has no parameter depth; it has trips" in text


def test_lanes_that_have_parted_once_do_not_end_skipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of their ways is the same in each turn; the report is, too."""
    monkeypatch.setattr(Skipper, "thrifty", False)
    plain = said(tmp_path, "--no-skip", before=FIRST)
    assert said(tmp_path, before=FIRST) == plain


#: one lane each of two warps, as nvcc compiles `if (tid == 0) {...} else if (tid == 32) {...}`
EITHER = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 a, .param .u32 n)
.maxntid 64
{{
.reg .pred %p<9>; .reg .b32 %r<40>;
.shared .align 8 .b8 bar[16];
ld.param.u32 %r20, [n]; mov.u32 %r4, %tid.x; mov.u32 %r1, bar; setp.ne.u32 %p0, %r4, 0;
@%p0 bra MADE;
mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1;
MADE: bar.sync 0; mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 1;
@!%p0 bra ONE;
setp.ne.u32 %p1, %r4, {other}; @%p1 bra END;
OTHER: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r11; @!%p2 bra OTHER;
setp.eq.u32 %p4, %r10, {turn}; @%p4 bra SKIP;
mbarrier.arrive.shared::cta.b64 _, [%r1+8];
SKIP: xor.b32 %r11, %r11, 1; add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, %r20; @%p3 bra OTHER;
bra.uni END;
ONE: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], %r12; @!%p2 bra ONE;
mbarrier.arrive.shared::cta.b64 _, [%r1];
xor.b32 %r12, %r12, 1; add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, %r20; @%p3 bra ONE;
END: ret;
}}
"""


@pytest.mark.parametrize(("other", "wrong"), [(32, 90), (1, 25)])
def test_lanes_of_which_one_alone_has_something_to_do(
    tmp_path: Path, other: int, wrong: int
) -> None:
    """The others of its warp go to the end, past what lanes of another warp do; where they do not,
    as there is one among them that waits as well, lanes are agents of their own, and turns are not
    left out."""
    pointer = {"kind": "pointer", "name": "a", "bytes": 64}
    scalar = {"kind": "scalar", "type": "u32", "value": 7, "name": "trips"}
    described = {
        "schema": "tilesim.launch/1", "entry": "f", "grid": [1], "block": [64],
        "params": [pointer, scalar],
    }  # fmt: skip
    (tmp_path / "f.json").write_text(json.dumps(described))

    def judged(turn: int) -> tuple[int, str]:
        (tmp_path / "f.ptx").write_text(EITHER.format(other=other, turn=turn))
        options = ["check", str(tmp_path / "f.ptx"), "--for-all", "trips"]
        result = CliRunner().invoke(main, options)
        return result.exit_code, " ".join(result.output.split())

    code, text = judged(-1)
    assert code == (0 if other == 32 else 3), text
    assert ("every trips >= 1 up to" in text) is (other == 32)
    code, text = judged(wrong)
    assert code == 1, text
    assert f"FAILED for trips = {wrong + 2}: deadlock" in text
    assert f"covers trips = {wrong + 2}; " in text
