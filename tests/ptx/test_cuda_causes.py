"""What a report says is wrong with a CUDA kernel, in which all warps have one role: the line to
change, and what to do about it. The kernels without the mistake: `test_cuda`."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import HEAD, SOURCES, run
from tilesim.mistakes import diagnose as explain

#: by name: what is written in the pipeline for what, the diagnosis, its first line, and the fix
MISTAKES = {
    "who fills starts with the other parity": (
        "u32 parity = 1;", "u32 parity = 0;", "parity_of_a_wait", "wait(empty + s, parity);",
        "start with parity 1 on f::empty+0",
    ),
    "who uses starts with the other parity": (
        "u32 parity = 0; float", "u32 parity = 1; float", "early_wait", "wait(full + s, parity);",
        "the consumer's first wait on f::full+0 must use parity 0",
    ),
    "a parity that turns with every slot": (
        "if (++s == 3) s = 0, parity ^= 1;\n    }\n    y[", "if (++s == 3) s = 0; parity ^= 1;\n"
        "    }\n    y[", "parity_of_a_wait", "if (++s == 3) s = 0; parity ^= 1;",
        "wait for the phases of f::full+8 in turn",
    ),
    "all lanes arrive": (
        "if (t % 32 == 0) arrive", "arrive", "count_of_arrivals", "arrive(empty + s);",
        "let one lane of each warp arrive on f::empty+0",
    ),
    "no wait of who uses": (
        "      wait(full + s, parity);\n", "", "unobserved", "sum += buf[s][t] + buf[s][255 - t];",
        "let f (warp 4) wait for f::full+0 before it",
    ),
    "no wait of who fills": (
        "        wait(empty + s, parity);\n", "", "again_without_a_wait", "expect(full + s, 1024);",
        "wait before the next arrival on f::full+0",
    ),
    "no arrival in one turn": (
        "if (t % 32 == 0) arrive", "if (t % 32 == 0 && (i != 2 || t)) arrive", "left_out",
        "if (t % 32 == 0 && (i != 2 || t)) arrive(empty + s);",
        "let f (warp 4) arrive on f::empty in every turn",
    ),
}  # fmt: skip


@needs.compiler
@pytest.mark.parametrize("name", MISTAKES)
def test_the_line_to_change_comes_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    old, new, diagnosis, line, fix = MISTAKES[name]
    found, _ = run("pipeline", old, new)
    text = (HEAD + (SOURCES / "pipeline.cu").read_text().replace(old, new, 1)).splitlines()
    finding = found.findings[0]
    assert found.verdict == "failed"
    assert finding.diagnosis == diagnosis
    assert text[finding.culprits[0].loc.line - 1].strip() == line
    assert finding.fix.startswith(fix)
