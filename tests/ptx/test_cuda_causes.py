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
        "wait for every phase of f::full+8 in order",
    ),
    "all lanes arrive": (
        "if (t % 32 == 0) arrive", "arrive", "count_of_arrivals", "arrive(empty + s);",
        "let one lane of each warp arrive on f::empty+0",
    ),
    "no wait of who uses": (
        "      wait(full + s, parity);\n", "", "unobserved", "sum += buf[s][t] + buf[s][255 - t];",
        "let f (warp 4) wait for f::full+0 before its access",
    ),
    "no wait of who fills": (
        "        wait(empty + s, parity);\n", "", "again_without_a_wait", "expect(full + s, 1024);",
        "before the next arrival on f::full+0, wait",
    ),
    "no arrival in one turn": (
        "if (t % 32 == 0) arrive", "if (t % 32 == 0 && (i != 2 || t)) arrive", "left_out",
        "if (t % 32 == 0 && (i != 2 || t)) arrive(empty + s);",
        "let f (warp 4) arrive on f::empty in every iteration",
    ),
    "half of the users return in the middle of a turn": (
        "__syncwarp();", "if (group == 2 && i == 2) return;\n      __syncwarp();", "left_its_loop",
        "if (group == 2 && i == 2) return;",
        "let f (warp 8) arrive for the iterations that it leaves out",
    ),
    "a warp of the users leaves the loop": (
        "if (++s == 3) s = 0, parity ^= 1;\n    }\n    y[",
        "if (++s == 3) s = 0, parity ^= 1;\n"
        "      if (t / 32 == 1 && group == 1 && i == 1) break;\n    }\n    y[",
        "left_its_loop", "if (t / 32 == 1 && group == 1 && i == 1) break;",
        "let f (warp 5) arrive for the iterations that it leaves out",
    ),
    "no expectation in one turn": (
        "expect(full + s, 1024);", "if (i != 2) expect(full + s, 1024);", "bytes_of_a_phase",
        "if (i != 2) expect(full + s, 1024);",
        "expect the 1024 bytes with the arrival: arrive.expect_tx on f::full+16",
    ),
}  # fmt: skip
#: the same of the kernel of a cluster
OF_CLUSTERS = {
    "a mask that leaves the other CTA out": (
        "full + i % 2, 3)", "full + i % 2, 1 << rank())", "bytes_of_a_phase",
        "multicast(&buf[i % 2][rank() * 128], x + (i * 2 + rank()) * 128, 512, full + i % 2, "
        "1 << rank());",
        "let this copy name all 2 CTAs by a multicast mask",
    ),
    "all arrive at one CTA": (
        "arrive_at(empty + i % 2, lane)", "arrive_at(empty + i % 2, 0)", "count_of_arrivals",
        "if (lane < 2) arrive_at(empty + i % 2, 0);",
        "let the arrivals that are meant for CTA 1 f::empty+0 name it",
    ),
}  # fmt: skip
#: by kernel
EVERY = {"pipeline": MISTAKES, "multicast": OF_CLUSTERS}


@needs.compiler
@pytest.mark.parametrize(("kernel", "name"), [(k, name) for k in EVERY for name in EVERY[k]])
def test_the_line_to_change_comes_first(
    kernel: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    old, new, diagnosis, line, fix = EVERY[kernel][name]
    found, _ = run(kernel, old, new)
    text = (HEAD + (SOURCES / f"{kernel}.cu").read_text().replace(old, new, 1)).splitlines()
    finding = found.findings[0]
    assert found.verdict == "failed"
    assert finding.diagnosis == diagnosis
    assert text[finding.culprits[0].loc.line - 1].strip() == line
    assert finding.fix.startswith(fix)


#: a word that is polled, and what the other warp does: by name what stands for what, and what the
#: cause begins with, or the lines that are named without one
WORDS = {
    "another word": ("", "", "f (warp 0) polls f::words+8, to which no instruction stores again: "
                     "f (warp 1) stores to f::words+4"),
    "another word, and none before": (
        "words[2] = 0;", "", "f (warp 0) polls f::words+8, to which no instruction stores: "
        "f (warp 1) stores to f::words+4"),
    "another value": ("words[1] = 1;", "words[2] = 2;", "f (warp 0) polls f::words+8 for another "
    "value than it holds at the end"),
    "polls by an atomic": (
        "while (words[2] != 1)", "while (atomicAdd((int *)words + 2, 0) != 1)",
        "f (warp 0) polls f::words+8, to which no instruction stores again: f (warp 1) stores "
        "to "
        "f::words+4"),
    "a store that is still to come": (
        "words[1] = 1;", "{ words[1] = 1; while (words[3] == 0) {} words[2] = 1; }",
        "f (warp 0) polls f::words+8 for another value than it holds at the end"),
    "what is read as a flag": (
        "words[1] = 1;", "words[1] = 1; else while (words[1] == 0) {}",
        "f (warp 0) polls f::words+8 for another value than it holds at the end"),
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
    assert ("words[1] = 1;" in line) == ("to which no instruction" in cause)


_ARRIVALS = """
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 64) {
    y[threadIdx.x] = s[63 - threadIdx.x];
    asm volatile("bar.arrive 3, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 2, 128;" ::: "memory");
    y[threadIdx.x] = s[threadIdx.x - 64];
  }
}
"""


@needs.compiler
def test_an_arrival_at_a_named_barrier_at_which_nothing_waits() -> None:
    text = HEAD + _ARRIVALS
    launch = Launch(
        "f", (1, 1, 1), (128, 1, 1),
        params=(Pointer("x", 512), Pointer("y", 512), Scalar("n", "s32", 7)),
    )  # fmt: skip
    finding = reported(text, compiled(text), launch)[0].findings[0]
    assert finding.diagnosis == "rounds"
    line = text.splitlines()[finding.culprits[0].loc.line - 1]
    assert "bar.arrive 3" in line
    assert finding.culprits[0].action == "arrives at barrier 3, where no warp waits"
    right = text.replace("bar.arrive 3", "bar.arrive 2")
    assert reported(right, compiled(right), launch)[0].verdict == "proved"
