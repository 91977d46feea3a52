"""Mbarriers are called as the source calls them where it initialises them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.checker import check
from tilesim.files import files_not_shown
from tilesim.findings.source_names import barrier_name
from tilesim.ir.loc import Loc
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: a helper that is nothing but the instruction, on the line before
ASM = '#define init(b, n) asm("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(b)))\n'
LOOP = "for (int i = 0; i < 4; ++i) "


@pytest.mark.parametrize(
    ("text", "number", "name"),
    [
        (f"{LOOP}init(&s.full[i], 1);", 2, "s.full[2]"),
        (f"{LOOP}\n  init(&s->full[i], 1);", 0, "s->full[0]"),
        (f"{LOOP}{{ init(&p.full[i], 1); init(&p.empty[i], 4); }}", 3, "p.empty[1]"),
        (f"{LOOP}init(&stage[i].full, 1);", 1, "stage[1].full"),
        (f"{LOOP}pipe.full[i].init(128);", 1, "pipe.full[1]"),
        (f"{LOOP}init(reinterpret_cast<uint64_t *>(&full[i]), 1);", 1, "full[1]"),
        (f"{LOOP}init((uint64_t *)(&full[i]), f(1, 2));", 1, "full[1]"),
        (f'{LOOP}asm volatile("mbarrier.init.shared.b64 [%0], 1;"\n  :: "r"(at(&full[i])));', 1,
         "full[1]"),
        (f"{LOOP}new (&full[i]) barrier(128);", 1, "full[1]"),
        (f"{ASM}init(&bars[W][0], 1);", 0, "bars[W][0]"),
        (f"{ASM}init(&bar, 1);", 0, "bar"),
        (f"{ASM}if (t == 0) init(&full, 1), init(&empty, 4), init_fence();", 1, "empty"),
        ('asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&bar)));', 0, "bar"),
        # which one it is cannot be told
        (f"{ASM}init(&bar, 1);", 1, None),
        ("init(&bar, 1);", 0, None),
        ("auto pipe = cuda::make_pipeline(block, &state);", 0, None),
        ("init(&bars[w], 1);", 0, None),
        ("for (int i = 1; i < 4; ++i) init(&bars[i], 1);", 0, None),
        (f"{LOOP}init(&bars[i + 1], 1);", 0, None),
        (f"{LOOP}for (int j = 0; j < 2; ++j) init(&bars[i][j], 1);", 0, None),
        (f"{LOOP}{{ init(&full[i], 1); init_more(&empty[i], 1); }}", 0, None),
        (f"{LOOP}start(&full[i]);", 0, None),
        ("// init(&bar, 1);", 0, None),
    ],
)  # fmt: skip
def test_a_call(
    text: str, number: int, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(f"// a kernel\n{text}\n")
    line = 2 + text.startswith((ASM, f"{LOOP}\n"))
    behind = Loc("k.ptx", 9)
    if text.startswith(ASM):
        Path("k.cuh").write_text("D void init(B *b, int n) {\n" + ASM.partition(" n) ")[2] + "}\n")
        behind = Loc("k.cuh", 2, behind=behind)
    assert barrier_name(Loc("k.cu", line, behind=behind), number) == name


@pytest.mark.parametrize(
    ("above", "text", "number", "name"),
    [
        ("for i in gl.static_range(N):", "    mbarrier.init(full.index(i), count=1)", 1,
         "full.index(1)"),
        ("", "mbarrier.init(bar, count=1)", 0, "bar"),
        ("", "hopper.mbarrier.init(bars.index(3), count=1)", 0, "bars.index(3)"),
        ("for i in range(1, N):", "    mbarrier.init(full.index(i), count=1)", 1, None),
        ("", "mbarrier.init(bar, count=1)", 1, None),
        ("", "start(bar)", 0, None),
    ],
)  # fmt: skip
def test_a_line_of_gluon(
    above: str, text: str, number: int, name: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(f"{above}\n{text}\n")
    assert barrier_name(Loc("k.py", 2, behind=Loc("k.ptx", 9)), number) == name


def test_a_helper_has_its_call_and_a_file_that_is_not_at_hand_hides_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(
        'D void init(uint64_t *b) { asm("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(b))); }\n'
        "init(&s.full);\n"
        "pipe.start();\n"
    )
    ptx = Loc("k.ptx", 9)
    helper = Loc("k.cu", 1, behind=ptx)
    assert barrier_name(Loc("k.cu", 2, behind=helper), 0) == "s.full"
    # all functions around it, of which reports show some
    Path("k.cu").write_text("for (int i = 0; i < 4; ++i) init(full[i]);\nring.start();\n")
    kernel = Loc("k.cu", 2, behind=ptx, inlined=(("k.cu", 2), ("k.cu", 1), ("/usr/b.h", 7)))
    assert barrier_name(kernel, 3) == "full[3]"
    assert not files_not_shown()
    away = Loc("/usr/include/pipe.h", 7, behind=ptx)
    assert barrier_name(Loc("k.cu", 3, behind=away), 0) is None


@pytest.mark.parametrize("written", [True, False])
def test_a_report(written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the source it is the line that initialises it."""
    monkeypatch.chdir(tmp_path)
    if written:
        Path("k.cu").write_text(f"{LOOP}init(&s.full[i], 1);\nwait(&s.full[1], 0);\n")
    module = read(
        '.version 9.4\n.target sm_90a\n.address_size 64\n.file 1 "k.cu"\n'
        ".extern .shared .align 128 .b8 smem[];\n.visible .entry k()\n{\n"
        ".reg .pred %p<3>; .reg .b32 %r<9>;\n"
        "mov.u32 %r1, smem;\nadd.u32 %r2, %r1, 8;\nelect.sync _|%p0, -1;\n.loc 1 1 5\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n.loc 1 2 5\nbar.warp.sync -1;\n"
        "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n@!%p1 bra L;\nret;\n}\n",
        "k.ptx",
    )
    launch = Launch("k", (1, 1, 1), (32, 1, 1), dynamic_shared=1024)
    (finding,) = check(lower(module, module.entries[0], launch)).findings
    name, number = ("s.full[1]", "") if written else ("mbarrier 1 of k.cu:1", "number 1 of 2, ")
    assert f"waits on {name} parity 0" in str(finding)
    assert f"{name} is at smem+8, {number}" in str(finding)
