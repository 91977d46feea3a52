"""Kernels in CUDA C++ as people write them, compiled by NVRTC: each one beside its wrong twins."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import needs
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, Parameter, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

SOURCES = Path(__file__).parent / "cuda"
HEAD = (SOURCES / "head.cu").read_text()
#: by kernel, which is a file there: CTAs, and threads of each
GRID = {
    "pipeline": (1, 384),
    "multicast": (4, 96),
    "async_copies": (1, 128),
    "reduction": (4, 128),
    "tokens": (1, 128),
}


def compiled(text: str, *, debug: bool = False, arch: str = "90a") -> str:
    """PTX with line information, or as it is for a debugger, without optimisation."""
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"k.cu", 0, [], [])
    target = f"--gpu-architecture=compute_{arch}".encode()
    options = [target, b"-G" if debug else b"-lineinfo", b"-std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert int(status) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    made = b" " * size
    nvrtc.nvrtcGetPTX(program, made)
    return str(made.rstrip(b"\0"), "ascii")


def run(name: str, old: str = "", new: str = "", *, debug: bool = False) -> tuple[Report, set[str]]:
    """The report on a kernel in which one text stands for another, and the lines that it names."""
    source, (ctas, threads) = (SOURCES / f"{name}.cu").read_text(), GRID[name]
    assert old in source
    text = HEAD + source.replace(old, new, 1)
    values: tuple[Parameter, ...] = (
        Pointer("x", 1 << 14), Pointer("y", 1 << 12), Scalar("n", "s32", 7),
    )  # fmt: skip
    launch = Launch("f", (ctas, 1, 1), (threads, 1, 1), registers=168, params=values)
    return reported(text, compiled(text, debug=debug), launch)


def reported(
    text: str, ptx: str, launch: Launch, strict: Strict = "practice"
) -> tuple[Report, set[str]]:
    """The report on the PTX of a text, and the lines of the text that its first finding names."""
    module = read(ptx, "k.ptx")
    found = check(lower(module, module.entries[0], launch), strict=strict, schedules=8)
    lines = text.splitlines()
    named = found.findings[0].participants if found.findings else ()
    return found, {lines[p.loc.line - 1].strip() for p in named}


@needs.compiler
@pytest.mark.parametrize("name", GRID)
def test_right_ones_are_proved(name: str) -> None:
    assert run(name)[0].verdict == "proved"


#: by name: the kernel, what is written in it for what, the rule, and a line that is named
WRONG = {
    "parity": ("pipeline", "u32 parity = 1;", "u32 parity = 0;", "deadlock",
               "wait(empty + s, parity);"),
    "arrivals": ("pipeline", "init(empty + i, 8)", "init(empty + i, 9)", "deadlock",
                 "wait(empty + s, parity);"),
    "bytes": ("pipeline", "expect(full + s, 1024)", "expect(full + s, 1040)", "deadlock",
              "wait(full + s, parity);"),
    "no arrival on one path": ("pipeline", "if (t % 32 == 0) arrive",
                               "if (t % 32 == 0 && (i != 2 || t)) arrive", "deadlock",
                               "wait(empty + s, parity);"),
    "lanes that have not met": ("pipeline", "__syncwarp();", "", "race",
                                "sum += buf[s][t] + buf[s][255 - t];"),
    "one CTA's barrier alone": ("multicast", "if (lane < 2) arrive_at(empty + i % 2, lane);",
                                "if (lane < 2) arrive(empty + i % 2);", "race",
                                "multicast(&buf[i % 2][rank() * 128], x + (i * 2 + rank()) * 128, "
                                "512, full + i % 2, 3);"),
    "no cluster barrier at the end": ("multicast", "cluster_sync();  // end", "", "peer-exit", ""),
    "an arrival before the copy": ("async_copies", "cp_async_arrive(", "arrive(", "race",
                                   "cp_async(&buf[i % 2][t], x + i * 64 + t);"),
    "a token of another stage": ("tokens", "token = look(full + s, parity);  // next",
                                 "token = look(full + (s + 2) % 3, parity ^ (s == 0));", "race",
                                 "sum += buf[s][t];"),
    "a barrier of the CTA": ("reduction", "cluster_sync();  // end", "__syncthreads();", "race",
                             "if (t == 0) y[blockIdx.x] = all[0] + all[1] + all[2] + all[3];"),
}  # fmt: skip


@needs.compiler
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_fail_on_their_lines(name: str) -> None:
    kernel, old, new, rule, line = WRONG[name]
    found, named = run(kernel, old, new)
    assert found.verdict == "failed"
    assert rule in found.rules
    assert not line or line in named, named


@needs.compiler
@pytest.mark.parametrize("name", ["pipeline", "async_copies", "reduction"])
def test_right_ones_without_optimisation(name: str) -> None:
    """Functions are called and what polls need is computed anew in each turn."""
    assert run(name, debug=True)[0].verdict == "proved"


@needs.compiler
@pytest.mark.parametrize("name", ["arrivals", "an arrival before the copy", "a barrier of the CTA"])
def test_wrong_ones_without_optimisation(name: str) -> None:
    kernel, old, new, rule, _ = WRONG[name]
    assert rule in run(kernel, old, new, debug=True)[0].rules
