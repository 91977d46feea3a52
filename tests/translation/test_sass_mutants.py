"""Machine code with a mistake: validation sees it; the corpus and more kinds are in campaigns."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.cubin.compiled import image as by_nvrtc
from tests.cubin.compiled import kernels
from tests.gpu import needs
from tests.ptx.test_cuda import HEAD
from tests.translation.mutation import answer
from tests.translation.rewritten import reordered, with_words, word
from tests.translation.sass_mutants import Mutant, drawn
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.line_table import LineTable
from tilesim.cubin.sass import WIDTH
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.kernels.cluster import multicast
from tilesim.kernels.hopper import copy, matmul_v5
from tilesim.translation import parts, validate
from tilesim.translation.validate import translate

pytestmark = [needs.compiler, needs.disassembler]

KERNELS = {"copy": copy.tensor, "matmul": matmul_v5.matmul, "multicast": multicast.multicast}
#: a fence of the GPU follows
HARMLESS = {("multicast", "deleted", 1): "MEMBAR.ALL.CTA"}
DRAWS = [
    (name, kind, number) for name in KERNELS for number in range(2) for kind in ("deleted", "moved")
]


@cache
def compiled(name: str) -> tuple[Image, Symbol]:
    image = Image(compile_cubin(emit(KERNELS[name].build())).cubin, name)
    (symbol,) = kernels(image)
    return image, symbol


@pytest.mark.parametrize(("name", "kind", "number"), DRAWS)
def test_a_mistake_is_a_finding(name: str, kind: str, number: int) -> None:
    image, symbol = compiled(name)
    mutant = drawn(image, symbol, kind, random.Random(number))
    assert mutant is not None
    said = answer(image, symbol, mutant)
    harmless = HARMLESS.get((name, kind, number))
    assert mutant.what == (harmless or mutant.what)
    assert said["seen"] == ("unseen" if harmless else "finding"), (mutant.what, said)


def test_lines_of_the_ptx_move_with_their_instructions() -> None:
    image, symbol = compiled("copy")
    before = LineTable(image)
    places = range(0x100, 0x200, WIDTH)
    changed = reordered(image, symbol, [*reversed(places)])
    after = LineTable(changed)
    lines = [before.ptx(symbol.section, pc) for pc in range(0, symbol.size, WIDTH)]
    first, last = 0x100 // WIDTH, 0x200 // WIDTH
    assert len(set(lines[first:last])) > 3
    lines[first:last] = lines[first:last][::-1]
    assert [after.ptx(symbol.section, pc) for pc in range(0, symbol.size, WIDTH)] == lines
    assert word(changed, symbol, 0x100) == word(image, symbol, 0x1F0)


# The fence before a release, and the invalidation behind an acquire.

HANDED_ON = """
extern "C" __global__ void __cluster_dims__(2) f(u32 *x, u32 *y, int n) {
  __shared__ u64 bar;
  if (threadIdx.x == 0) init(&bar, 1);
  cluster_sync();
  if (threadIdx.x == 0) {
    x[rank()] = n;
    arrive_at(&bar, rank() ^ 1);
  }
  wait(&bar, 0);
  y[threadIdx.x + rank() * 32] = x[rank() ^ 1];
}
"""


def without(image: Image, symbol: Symbol, opcode: str, *, last: bool) -> Mutant:
    """The cubin without the first or last instruction of an opcode."""
    (function,) = disassemble(image, (symbol,))
    found = [one for one in function.code.values() if one.opcode == opcode]
    one = found[-1 if last else 0]
    bits = 0x7918 | word(image, symbol, one.pc) & 0xFFFFF << 105
    return Mutant("deleted", one.pc, str(one), with_words(image, symbol, {one.pc: bits}))


@cache
def handed_on() -> tuple[Image, Symbol]:
    made = by_nvrtc(HEAD + HANDED_ON)
    (symbol,) = kernels(made)
    return made, symbol


def test_a_right_translation_has_all_parts() -> None:
    image, symbol = handed_on()
    validation = validate(image, symbol, image.ptx or "")
    assert validation.findings == ()
    needed = [
        part
        for pair in translate(image, symbol, image.ptx or "").pairs
        for part in parts.needed(pair.step.opcode)
    ]
    assert len(needed) == 4  # barrier.cluster.arrive and wait, the arrival, the wait


@pytest.mark.parametrize(
    ("opcode", "last", "kind", "name"),
    [
        ("MEMBAR.ALL.GPU", True, "mbarrier.arrive", "MEMBAR of the release"),
        ("CCTL.IVALL", True, "mbarrier.wait", "CCTL.IVALL of the acquire"),
    ],
)
def test_a_part_that_is_missing_is_a_finding(opcode: str, last: bool, kind: str, name: str) -> None:
    image, symbol = handed_on()
    mutant = without(image, symbol, opcode, last=last)
    found = [
        one
        for one in validate(mutant.image, symbol, image.ptx or "").findings
        if one.kind == "part"
    ]
    assert found
    assert f"({kind}) is" in found[0].sentence
    assert f"without the {name}" in found[0].sentence


def test_a_write_behind_the_fence_is_not_handed_on() -> None:
    image, symbol = handed_on()
    (function,) = disassemble(image, (symbol,))
    code = list(function.code.values())
    fence = max(n for n, one in enumerate(code) if one.opcode == "MEMBAR.ALL.GPU")
    write = max(n for n, one in enumerate(code[:fence]) if one.base == "STG")
    order = [one.pc for one in [*code[write + 1 : fence + 1], code[write]]]
    changed = reordered(image, symbol, order)
    found = validate(changed, symbol, image.ptx or "").findings
    assert any(one.kind == "part" and "STG" in one.sentence for one in found)


def test_a_try_that_is_not_made_again_is_a_finding() -> None:
    image, symbol = handed_on()
    (function,) = disassemble(image, (symbol,))
    tries = [one.pc for one in function.code.values() if "PHASECHK" in one.opcode]
    assert len(tries) == 2  # the first, and that of the loop
    said = {
        False: "by a condition that no try before it has answered",
        True: "is not tried again before what follows at",
    }
    for last, what in said.items():
        mutant = without(image, symbol, "SYNCS.PHASECHK.TRANS64.TRYWAIT", last=last)
        assert mutant.pc == tries[last]
        found = validate(mutant.image, symbol, image.ptx or "").findings
        assert any(one.kind == "retry" and what in one.sentence for one in found)
