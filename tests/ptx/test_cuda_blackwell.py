"""Blackwell kernels in CUDA C++ with inline PTX, as people write them: each one beside its wrong
twins. A product through a ring of stages, one by a pair of CTAs, one whose operand lies in tensor
memory, one with scales, CTAs that take over the tiles of others, and warps that store one tile in
two buffers while the next one is computed."""

from __future__ import annotations

from functools import cache

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import SOURCES, compiled, reported
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, Map, Parameter, Pointer, Scalar

HEAD = "".join((SOURCES / name).read_text() for name in ("head.cu", "blackwell.cu"))
#: by kernel, which is a file there, how many CTAs; how many threads they have, if not 128
CTAS = {"product": 1, "pair": 2, "columns": 1, "scales": 1, "stealing": 2, "epilogue": 1}
THREADS = {"epilogue": 192}
#: what is multiplied, if that is no one tensor
OPERANDS: dict[str, tuple[Parameter, ...]] = {
    "pair": (
        Map("x", "f32", (64, 64), (256,), (64, 16)), Map("z", "f32", (64, 64), (256,), (64, 8)),
    ),
}  # fmt: skip


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
    results: tuple[Parameter, ...] = Pointer("y", 1 << 14), Scalar("n", "s32", 5)
    values = (*OPERANDS.get(name, (Pointer("x", 1 << 14),)), *results)
    launch = Launch("f", (CTAS[name], 1, 1), (THREADS.get(name, 128), 1, 1), params=values)
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
                                           "peer-start", "if (w == 2) alloc_pair(&place, 128);"),
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
    "accumulator given back before it is read": (
        "epilogue", "loaded();  // ld", "", "tcgen05-order",
        "load4(tmem + t % 2 * 64 + (q << 21), v);"),
    "accumulator not waited for": ("epilogue", "wait(acce + t % 2, t / 2 % 2 ^ 1);  // free", "",
                                   "tcgen05-order", "load4(tmem + t % 2 * 64 + (q << 21), v);"),
    "tile of another stage": ("epilogue", "wait(accf + t % 2, t / 2 % 2);  // tile",
                              "wait(accf, t % 2);", "deadlock", "wait(accf, t % 2);"),
    "commit before the last product": (
        "epilogue", "        mma(tmem + t % 2 * 64",
        "        if (k == 1) commit(accf + t % 2);\n        mma(tmem + t % 2 * 64",
        "tcgen05-order", "load4(tmem + t % 2 * 64 + (q << 21), v);"),
    "stage given back by an arrival": ("epilogue", "commit(empty + i % 2);  // stage",
                                       "arrive(empty + i % 2);", "race",
                                       "copy(a[i % 2], x, 4096, full + i % 2);"),
    "buffer of a store under way": ("epilogue", "wait_group.read 1;", "wait_group.read 2;", "race",
                                    ""),
    "another thread waits for the store": ("epilogue", "if (threadIdx.x == 64) asm",
                                           "if (threadIdx.x == 65) asm", "race", ""),
    "nobody waits for the thread that waits": ("epilogue", "sync4();  // slot", "", "race", ""),
    "stored before all have written": ("epilogue", "sync4();  // out", "", "race", ""),
    "stored without a proxy fence": ("epilogue", "proxy();  // out", "", "proxy-fence", ""),
    "the last store is not waited for": ("epilogue", "wait_group 0;", "wait_group 1;",
                                         "async-at-exit", ""),
    "lanes of another warp": ("epilogue", "int q = w % 4, row", "int q = w - 2, row",
                              "out-of-bounds", "load4(tmem + t % 2 * 64 + (q << 21), v);"),
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
