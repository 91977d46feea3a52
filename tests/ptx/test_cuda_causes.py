"""What a report says is wrong with a CUDA kernel, in which all warps have one role: the line to
change, and what to do about it. The kernels without the mistake: `test_cuda`."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import HEAD, SOURCES, compiled, reported, run
from tilesim.mistakes import diagnose as explain
from tilesim.ptx.launch import Launch, Pointer, Scalar

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


#: a word that is polled, and what the other warp does: by name what stands for what, and what the
#: cause begins with, or the lines that are named without one
WORDS = {
    "another word": ("", "", "f (warp 0) polls f::words+8, to which nothing stores any more: "
                     "f (warp 1) stores to f::words+4"),
    "another word, and none before": (
        "words[2] = 0;", "", "f (warp 0) polls f::words+8, to which nothing stores: "
        "f (warp 1) stores to f::words+4"),
    "another value": ("words[1] = 1;", "words[2] = 2;", "f (warp 0) polls f::words+8 for another "
                      "value than it is left with"),
    "a store that is still to come": (
        "words[1] = 1;", "{ words[1] = 1; while (words[3] == 0) {} words[2] = 1; }",
        "f (warp 0) polls f::words+8 for another value than it is left with"),
    "what is read as a flag": (
        "words[1] = 1;", "words[1] = 1; else while (words[1] == 0) {}",
        "f (warp 0) polls f::words+8 for another value than it is left with"),
}  # fmt: skip
_WORDS = """
extern "C" __global__ void f(int *x, int *y, int n) {
  __shared__ volatile int words[4];
  if (threadIdx.x == 0) {
    words[2] = 0;
    words[1] = words[3] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 32) words[1] = 1;
  if (threadIdx.x == 0)
    while (words[2] != 1) {}
}
"""


@needs.compiler
@pytest.mark.parametrize("name", WORDS)
def test_what_is_stored_to_another_word_than_the_polled_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    old, new, cause = WORDS[name]
    text = HEAD + _WORDS.replace(old, new, 1)
    launch = Launch(
        "f", (1, 1, 1), (96, 1, 1),
        params=(Pointer("x", 4), Pointer("y", 4), Scalar("n", "s32", 7)),
    )  # fmt: skip
    found, _ = reported(text, compiled(text), launch)
    finding = found.findings[0]
    assert finding.diagnosis == "another_value"
    assert finding.cause.startswith(cause)
    line = text.splitlines()[finding.culprits[0].loc.line - 1]
    assert ("words[1] = 1;" in line) == ("to which nothing" in cause)
