"""Repairs of PTX: the line of the text that changes, and a text that is proved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.ptx.test_check import ARRIVE, HEAD, INIT, WAIT
from tilesim.checker import Report, check
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.repair import Wanted

EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 32;\n"
PARTED = EXPECT.replace(" [%r1], 32;", "\n  [%r1] // bytes\n,\n  32;")
COMPLETE = "@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;\n"
NEXT = WAIT.replace("L", "NEXT")
TWO = INIT.replace("%r2, 1;", "%r2, 2;")
SHARED = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.s32 %r4, %r1, %r3;\n"
    "xor.b32 %r5, %r4, 128;\nst.shared.b32 [%r4], %r2;\n"
)
COMPUTED = "mov.u32 %r5, %ctaid.x; add.u32 %r5, %r5, 1;\n"
#: lanes that one of two conditions keeps from the arrival
KEPT = (
    "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p3, %r5, 7; setp.ne.u32 %p4, %r5, 3;\n"
    "or.pred %p5, %p3, %p4;\n@%p5 bra PAST;\n"
)

#: a text, what is suggested, the line, and the line in its place
TEXTS = (
    (TWO + ARRIVE + WAIT, "count", "[%r1], %r2;", "[%r1], 1;"),
    (INIT + EXPECT + COMPLETE + WAIT, "bytes 16 instead of 32", "[%r1], 32;", "[%r1], 16;"),
    (INIT + ARRIVE + WAIT + NEXT.replace(", 0;", ", 1;"), "phase", "[%r1], 1;", "[%r1], 0;"),
    (INIT + COMPUTED + ARRIVE + WAIT + NEXT.replace(", 0;", ", %r5;"), "phase",
     "[%r1], %r5;", "%repaired; }"),
    (INIT + ARRIVE + ARRIVE + WAIT, "once, not twice", ARRIVE[:-1], ""),
    (INIT + PARTED + COMPLETE + WAIT, "bytes 16 instead of 32", "\n  32;", "\n  16;"),
    (INIT + ARRIVE + ARRIVE.replace("_,", "\n_, // again\n  ") + WAIT, "once, not twice",
     "// again", ""),
    (INIT + KEPT + ARRIVE + "PAST:\n" + WAIT, "without", "@%p5 bra PAST;", "@%p3 bra PAST;"),
    (SHARED + "ld.shared.b32 %r6, [%r5];\n", "barrier.sync", "ld.shared",
     "barrier.sync.aligned 0;"),
)  # fmt: skip


def launch(body: str) -> Launch:
    """Of one warp, or two that share."""
    threads = 64 if body.startswith(SHARED) else 32
    return Launch("k", (1, 1, 1), (threads, 1, 1), (1, 1, 1), 4096)


def suggested(body: str, folder: Path) -> tuple[Report, Path]:
    """What is suggested for a text in a file."""
    place = folder / "k.ptx"
    place.write_text(f"{HEAD.format(params='')}{body}ret;\n}}\n")

    def program(text: str) -> Mir:
        module = read(text, str(place))
        return lower(module, module.entries[0], launch(body))

    wanted = Wanted(timedelta(minutes=10), read=program)
    return check(program(place.read_text()), suggest=wanted), place


@pytest.mark.parametrize(("body", "what", "old", "new"), TEXTS)
def test_a_line_of_the_text_is_patched_and_the_text_is_proved(
    body: str, what: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report, place = suggested(body, tmp_path)
    assert report.repairs is not None
    texts = []
    for repair in report.repairs.found:
        for change in repair.changes:
            assert not repair.what.endswith("by the elected lane")
            if change.patch is not None:
                texts.append((repair.what, *map("\n".join, (change.patch.old, change.patch.new))))
                lines = place.read_text().splitlines()
                lines[change.patch.first - 1 : change.patch.last] = change.patch.new
                module = read("\n".join(lines) + "\n", "k.ptx")
                assert check(lower(module, module.entries[0], launch(body))).verdict == "proved"
    assert any(what in said and old in was and new in now for said, was, now in texts), texts


@pytest.mark.parametrize("told", [None, (7, 8)])
def test_a_kernel_that_stores_to_a_buffer_of_the_launch(
    told: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Nobody needs to know what the buffer holds; what is stored there has to be stored still."""
    store = "ld.param.u64 %rd1, [out];\n@%p0 st.global.u32 [%rd1], 3;\nret;\n}\n"
    place = tmp_path / "k.ptx"
    place.write_text(f"{HEAD.format(params='.param .u64 out')}{TWO}{ARRIVE}{WAIT}{store}")
    contents = None if told is None else Contents("u32", told)
    params = (Pointer("out", 16, contents=contents),)

    def program(text: str) -> Mir:
        module = read(text, str(place))
        return lower(module, module.entries[0], replace(launch(""), params=params))

    report = check(program(place.read_text()), suggest=Wanted(timedelta(minutes=10), read=program))
    assert report.rules == {"deadlock"}
    assert report.repairs is not None
    assert report.repairs.found
    for repair in report.repairs.found:
        patches = [change.patch for change in repair.changes if change.patch is not None]
        assert not any("st.global" in line for patch in patches for line in patch.old)


def test_of_compiled_text_the_condition_that_goes_is_told_by_its_number() -> None:
    body = f"{INIT}.loc 1 5 3\n{KEPT}{ARRIVE}PAST:\n.loc 1 7 3\n{WAIT}"
    text = f'{HEAD.format(params="")}{body}ret;\n}}\n.file 1 "k.cu"\n'
    module = read(text, "k.ptx")
    program = lower(module, module.entries[0], launch(body))
    repairs = check(program, suggest=600.0).repairs
    assert repairs is not None
    first = repairs.found[0]
    assert first.what == "without one of the two conditions, the one that compares with 3"
    assert [(one.loc.file, one.loc.line) for one in first.changes] == [("k.cu", 5)]
