"""Blackwell kernels in CUDA C++ with inline PTX, as people write them: each one beside its wrong
twins. A product through a ring of stages, one by a pair of CTAs, one whose operand lies in tensor
memory, one with scales, and CTAs that take over the tiles of others."""

from __future__ import annotations

from functools import cache

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import SOURCES, compiled, reported
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, Parameter, Pointer, Scalar

HEAD = "".join((SOURCES / name).read_text() for name in ("head.cu", "blackwell.cu"))
#: by kernel, which is a file there, how many CTAs of 128 threads
CTAS = {"product": 1, "pair": 2, "columns": 1, "scales": 1, "stealing": 2}


@cache
def ptx(text: str) -> str:
    """What NVRTC makes of it."""
    return compiled(text, arch="100a")


def run(
    name: str, old: str = "", new: str = "", strict: Strict = "practice"
) -> tuple[Report, set[str]]:
    """The report on a kernel in which one text stands for another, and the lines that the first
    finding names."""
    source = (SOURCES / f"{name}.cu").read_text()
    assert old in source
    text = HEAD + source.replace(old, new, 1)
    values: tuple[Parameter, ...] = (
        Pointer("x", 1 << 14), Pointer("y", 1 << 12), Scalar("n", "s32", 5),
    )  # fmt: skip
    launch = Launch("f", (CTAS[name], 1, 1), (128, 1, 1), params=values)
    return reported(text, ptx(text), launch, strict)


@needs.compiler
@pytest.mark.parametrize("name", CTAS)
def test_right_ones_are_proved(name: str) -> None:
    for strict in ("practice", "ptx"):
        assert run(name, strict=strict)[0].verdict == "proved"


#: the columns are summed without a wait, and freed before the sums are stored
LOADED = """    loaded();  // columns
    for (int i = 0; i < 4; i++) sum += __uint_as_float(v[i]);
  }
  y[threadIdx.x] = sum;
  before(); __syncthreads(); after();  // end
  if (w == 2) dealloc(tmem, 64);
"""
FREED = """    for (int i = 0; i < 4; i++) sum += __uint_as_float(v[i]);
  }
  before(); __syncthreads(); after();  // end
  if (w == 2) dealloc(tmem, 64);
  y[threadIdx.x] = sum;
"""
#: by name: the kernel, what is written in it for what, the rule, and a line that is named
WRONG = {
    "parity": ("product", "wait(empty + i % 2, i / 2 % 2 ^ 1);", "wait(empty + i % 2, i / 2 % 2);",
               "deadlock", "wait(empty + i % 2, i / 2 % 2);"),
    "no commit of a stage": ("product", "      commit(empty + i % 2);\n", "", "deadlock",
                             "wait(full + i % 2, i / 2 % 2);"),
    "another stage": ("product", "matrix(b[i % 2])", "matrix(b[(i + 1) % 2])", "race",
                      "copy(b[i % 2], x + 1024, 2048, full + i % 2);"),
    "no wait::ld": ("product", LOADED, FREED, "tmem-lifetime", "load4(tmem + (w << 21) + c, v);"),
    "freed early": ("product", "before(); __syncthreads(); after();  // end", "__syncwarp();",
                    "tmem-lifetime", "if (w == 2) dealloc(tmem, 64);"),
    "never freed": ("product", "if (w == 2) dealloc(tmem, 64);", "", "tmem-lifetime",
                    "if (w == 2) alloc(&place, 64);"),
    "commit to one CTA": ("pair", "commit_pair(&empty, 3)", "commit_pair(&empty, 1)", "deadlock",
                          "wait(&empty, i % 2 ^ 1);"),
    "no wait for the last commit": ("pair", "if (threadIdx.x == 0) wait(&empty, n - 1 & 1);", "",
                                    "peer-exit", "commit_pair(&empty, 3);"),
    "allocated before the peer is there": ("pair", "cluster_sync();  // both are there", "",
                                           "peer-exit", "if (w == 2) alloc_pair(&place, 128);"),
    "freed while the peer reads": ("pair", "cluster_sync(); after();  // end",
                                   "__syncthreads(); after();", "tmem-lifetime",
                                   "if (w == 2) dealloc_pair(tmem, 128);"),
    "each CTA's own barrier": ("pair", "there(&full, 0);", "there(&full, rank());", "deadlock",
                               "wait(&full, i % 2);"),
    "no wait::st": ("columns", "stored();  // a", "", "tcgen05-order",
                    "store4(mine + 64, threadIdx.x + i);  // a"),
    "warps that have not stored": ("columns", "before(); __syncthreads(); after();  // ready",
                                   "__syncwarp();", "tcgen05-order",
                                   "store4(mine + 64, threadIdx.x + i);  // a"),
    "always one parity": ("columns", "wait(&done, i % 2);", "wait(&done, 0);", "tcgen05-order",
                          "store4(mine + 64, threadIdx.x + i);  // a"),
    "too few columns": ("columns", "alloc(&place, 128)", "alloc(&place, 64)", "tmem-lifetime",
                        "if (w == 0) alloc(&place, 64);"),
    "product not awaited": ("scales", "wait(&done, i & 1);  // product", "", "race",
                            "copy(a, x, 4096, &full), copy(b, x, 2048, &full);"),
    "scales in each other's columns": ("scales", "scales(tmem + 68, sb);", "scales(tmem + 66, sb);",
                                       "tcgen05-order",
                                       "scales(tmem + 64, sa), scales(tmem + 66, sb);  // scales"),
    "one scale": ("scales", ", scales(tmem + 68, sb);", ";", "uninitialised-read", ""),
    "answer asked for too early": ("stealing", "__syncthreads();  // read", "", "race", ""),
    "the tile of no answer": ("stealing", '"@p clusterlaunchcontrol', '"clusterlaunchcontrol',
                              "launch-control", ""),
    "bytes of an answer": ("stealing", "expect(&full, 16);", "expect(&full, 8);", "deadlock",
                           "wait(&full, round & 1);"),
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
@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("product", "tmem + (w << 21) + c", "tmem + c", "out-of-bounds"),
        ("product", "loaded();  // columns", "", "tmem-lifetime"),
        ("stealing", 'asm volatile("fence.proxy.async', 'if (0) asm volatile("fence.proxy.async',
         "proxy-fence"),
    ],
    ids=["a quarter of the lanes", "no wait::ld, but a store", "no proxy fence"],
)  # fmt: skip
def test_what_practice_accepts(name: str, old: str, new: str, rule: str) -> None:
    assert run(name, old, new)[0].verdict == "proved"
    assert run(name, old, new, "ptx")[0].rules == {rule}
