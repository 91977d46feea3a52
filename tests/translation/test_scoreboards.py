"""Scoreboards: what is in flight is waited for before it is used, or handed on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.cubin.compiled import kernels
from tests.gpu import needs
from tests.translation.sass_mutants import drawn
from tilesim.cubin.control import Control
from tilesim.cubin.image import Image
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.kernels.blackwell import matmul_v1
from tilesim.translation import scoreboards, validate

from .small_kernels import compared

#: in SASS rows below: what an instruction raises, and what it waits for
_NOTHING = Control(None, None, 0)


def lacks(body: str, rows: str) -> list[str]:
    """What is said of SASS whose rows end in ``; W`` (raises W), ``; rW`` (when its operands are
    read) or ``; -W`` (waits for W)."""
    bits: dict[int, Control] = {}
    sass: list[str] = []
    place = 0
    for row in filter(None, map(str.strip, rows.splitlines())):
        text, *marks = [part.strip() for part in row.split(";")]
        sass.append(text)
        if text.endswith(":"):
            continue
        control = _NOTHING
        for mark in marks:
            number = int(mark.lstrip("-r"))
            if mark.startswith("-"):
                control = replace(control, waits=control.waits | 1 << number)
            elif mark.startswith("r"):
                control = replace(control, read=number)
            else:
                control = replace(control, write=number)
        bits[place] = control
        place += 16
    found = scoreboards.compare(compared(body, "\n".join(sass)), bits)
    return [one.sentence.partition(" at ")[2].partition(" ")[2] for one in found]


LOADED = """
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r2, %r3}, [%r1]; //load
tcgen05.wait::ld.sync.aligned;
mbarrier.arrive.shared::cta.b64 _, [%r6]; //arrive
st.global.u32 [%d1], %r3; //out
"""
LOAD, ARRIVE, OUT = (
    "load LDTM.x2 R2, tmem[UR4]",
    "arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ",
    "out STG.E desc[UR6][R8.64], R3",
)


@pytest.mark.parametrize(
    ("sass", "before"),
    [
        (f"{LOAD};0\n{ARRIVE};-0\n{OUT}\nEXIT", ""),
        (f"{LOAD};0\nNOP;-0\n{ARRIVE}\n{OUT}\nEXIT", ""),
        (f"{LOAD};0\nDEPBAR.LE SB0, 0x0\n{ARRIVE}\n{OUT}\nEXIT", ""),
        (f"{LOAD};0\nDEPBAR.LE SB0, 0x1\n{ARRIVE}\n{OUT}\nEXIT", "SYNCS"),
        (f"{LOAD};0\n{ARRIVE}\n{OUT};-0\nEXIT", "SYNCS"),
        (f"{LOAD};0\n{ARRIVE};-1\n{OUT};-0\nEXIT", "SYNCS"),
        (f"{LOAD}\n{ARRIVE};-0\n{OUT};-0\nEXIT", "SYNCS"),
        (f"{LOAD};0\n@P0 BRA L\nNOP;-0\nL:\n{ARRIVE}\n{OUT};-0\nEXIT", "SYNCS"),
    ],
)
def test_a_load_of_tensor_memory_is_waited_for_before_that_is_handed_on(
    sass: str, before: str
) -> None:
    said = lacks(LOADED, sass)
    assert len(said) == bool(before)
    assert all(f"is not waited for by its scoreboard before {before}" in one for one in said)


def test_bytes_are_expected_while_a_load_is_in_flight() -> None:
    expected = LOADED.replace("mbarrier.arrive.shared::cta.b64 _,", "mbarrier.expect_tx.b64")
    expected = expected.replace("[%r6]", "[%r6], 512")
    rows = f"{LOAD};0\narrive SYNCS.ARRIVE.TRANS64.A0TR RZ, [R6], R9\n{OUT};-0\nEXIT"
    assert lacks(expected, rows) == []
    assert len(lacks(LOADED, rows)) == 1


@pytest.mark.parametrize(
    ("use", "wrong"),
    [
        ("MOV R9, R3", True),  # a result is read
        ("MOV R2, R9", True),  # a result is overwritten
        ("MOV R9, R4", False),
        ("MOV R9, R3;-0", False),
    ],
)
def test_registers_are_there_when_they_are_used(use: str, wrong: bool) -> None:
    body = LOADED.replace("tcgen05.wait::ld.sync.aligned;\n", "")
    sass = f"{LOAD};0\n{ARRIVE}\n{use}\n{OUT};-0\nEXIT"
    assert bool(lacks(body, sass)) == wrong  # without a wait, the arrival may be before


def test_of_loads_in_a_row_the_last_one_raises_the_scoreboard() -> None:
    body = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r1]; //first\n" + LOADED
    rows = f"first LDTM.x2 R4, tmem[UR4]\n{LOAD};{{}}\nNOP;-2\n{ARRIVE}\n{OUT}\nEXIT"
    assert lacks(body, rows.format(2)) == []
    assert len(lacks(body, rows.format(1))) == 2


FENCED = "fence.proxy.async.shared::cta; //fence\nbar.sync 0; //bar"


def test_a_fence_is_waited_for_before_a_barrier() -> None:
    assert lacks(FENCED, "fence FENCE.VIEW.ASYNC.S;3\nbar BAR.SYNC 0x0;-3\nEXIT") == []
    assert lacks(FENCED, "fence FENCE.VIEW.ASYNC.S;3\nbar BAR.SYNC 0x0;-2\nEXIT")
    assert lacks(FENCED, "fence FENCE.VIEW.ASYNC.S\nbar BAR.SYNC 0x0;-3\nEXIT")


@pytest.mark.parametrize(
    ("ptx", "right", "wrong"),
    [
        ("cp.async.commit_group; //it", "it LDGDEPBAR;0", "it LDGDEPBAR;1"),
        ("cp.async.bulk.commit_group; //it", "it UTMACMDFLUSH;r0", "it UTMACMDFLUSH;r1"),
    ],
)
def test_a_commit_raises_the_scoreboard_that_its_wait_names(
    ptx: str, right: str, wrong: str
) -> None:
    assert lacks(ptx, f"{right}\nEXIT") == []
    assert lacks(ptx, f"{wrong}\nEXIT") == ["does not raise scoreboard 0"]


@needs.compiler
@needs.disassembler
def test_a_wait_that_is_taken_out_of_a_cubin_is_seen() -> None:
    image = Image(compile_cubin(emit(matmul_v1.matmul.build())).cubin, "matmul")
    (symbol,) = kernels(image)
    assert not validate(image, symbol, image.ptx or "").findings
    for number in range(3):
        mutant = drawn(image, symbol, "scoreboard", random.Random(number))
        assert mutant is not None
        found = validate(mutant.image, symbol, image.ptx or "").findings
        assert {one.kind for one in found} == {"scoreboard"}, mutant.what
