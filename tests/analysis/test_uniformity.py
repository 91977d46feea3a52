"""What all threads of a CTA agree on, and what differs between the lanes of a warp."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.pointer_table import located
from tilesim.analysis.uniformity import diverging, uniform_branches
from tilesim.ir.mir import condition
from tilesim.ptx.launch import Pointer

#: %r1 is the thread, %r4 its word of x, %r5 the first one, %rd3 where its word of y is
START = """ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2; ld.global.u32 %r4, [%rd3]; ld.global.u32 %r5, [%rd1];
ld.param.u64 %rd4, [y]; add.u64 %rd3, %rd4, %rd2;
"""
#: the last branch is by %r9
ASK = "setp.eq.u32 %p8, %r9, 5;\n@%p8 bra END;\nst.global.u32 [%rd3+4096], %r9;\nEND:"
#: branches that the threads of two warps take alike, and their twins that they do not
TWINS = {
    "words": ("mov.u32 %r9, %r5;", "mov.u32 %r9, %r4;"),
    "strong loads": ("ld.global.u32 %r9, [%rd1+8];", "ld.volatile.global.u32 %r9, [%rd1+8];"),
    "written words": ("ld.global.u32 %r9, [%rd1+8];", "ld.global.u32 %r9, [%rd4+8];"),
    "warps": ("mov.u32 %r9, %ctaid.x;", "shr.u32 %r9, %r1, 5;"),
    "lanes": ("mov.u32 %r9, %laneid; shr.u32 %r9, %r9, 5;", "mov.u32 %r9, %laneid;"),
    "counts": (
        "setp.gt.u32 %p1, %r4, 3; bar.red.popc.u32 %r9, 1, 64, %p1;",
        "setp.gt.u32 %p1, %r4, 3; bar.red.popc.u32 %r9, 1, 32, %p1;",
    ),
    "barriers": (
        "setp.gt.u32 %p1, %r4, 3; bar.red.popc.u32 %r9, 1, 64, %p1;",
        "setp.gt.u32 %p1, %r4, 3; shr.u32 %r3, %r1, 5; bar.red.popc.u32 %r9, %r3, 64, %p1;",
    ),
    "shuffles": (
        "shfl.sync.idx.b32 %r3, %r5, 0, 31, -1; mov.u32 %r9, %r5;",
        "shfl.sync.idx.b32 %r9, %r4, 0, 31, -1;",
    ),
    "ways": (
        "mov.u32 %r9, %r5; setp.gt.u32 %p1, %r5, 9;\n@%p1 bra L;\nmov.u32 %r9, 3;\nL:",
        "mov.u32 %r9, %r5; setp.gt.u32 %p1, %r4, 9;\n@%p1 bra L;\nmov.u32 %r9, 3;\nL:",
    ),
    "guards": (
        "mov.u32 %r9, 7; setp.gt.u32 %p1, %r5, 9; @%p1 ld.global.u32 %r9, [%rd1+8];",
        "mov.u32 %r9, 7; setp.gt.u32 %p1, %r4, 9; @%p1 ld.global.u32 %r9, [%rd1+8];",
    ),
    "turns": (
        "mov.u32 %r9, 0;\nL: add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r5;\n@%p1 bra L;\n",
        "mov.u32 %r9, 0;\nL: add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r4;\n@%p1 bra L;\n",
    ),
    "a register with two values": (
        "mov.u32 %r9, %r4; st.global.u32 [%rd3+8192], %r9; mov.u32 %r9, %r5;",
        "mov.u32 %r9, %r5; st.global.u32 [%rd3+8192], %r9; mov.u32 %r9, %r4;",
    ),
    "where only some come": (
        "mov.u32 %r9, %r5; setp.gt.u32 %p1, %r5, 9;\n@%p1 bra END;\n",
        "mov.u32 %r9, %r5; setp.gt.u32 %p1, %r1, 9;\n@%p1 bra END;\n",
    ),
}  # fmt: skip


def asked(body: str) -> FlowGraph:
    """A kernel of two warps that does this before the last branch."""
    values, params = (
        (Pointer("x", 1 << 16), Pointer("y", 1 << 16)),
        (".param .u64 x", ".param .u64 y"),
    )
    mir = program(f"{START}{body}{ASK}", warps=2, params=params, values=values)
    return graph_of(located(mir).mir)


def last(body: str) -> bool:
    """Whether all threads go the same way at the last branch."""
    graph = asked(body)
    (*_, number) = (n for n, i in enumerate(graph.mir.code) if condition(i) is not None)
    return number in uniform_branches(graph)


@pytest.mark.parametrize("name", TWINS)
def test_threads_of_a_cta_agree(name: str) -> None:
    right, wrong = TWINS[name]
    assert last(right)
    assert not last(wrong)


@pytest.mark.parametrize(
    ("value", "differs"),
    [
        ("shr.u32 %r9, %r1, 5;", False), ("shr.u32 %r9, %r1, 4;", True),
        ("and.b32 %r9, %r1, 96;", False), ("and.b32 %r9, %r1, 112;", True),
        ("mov.u32 %r9, %r5;", False), ("mov.u32 %r9, %r4;", True),
    ],
)  # fmt: skip
def test_lanes_of_a_warp_differ(value: str, differs: bool) -> None:
    assert bool(diverging(asked(value)).splits) is differs
