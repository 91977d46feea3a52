"""Control-flow graphs: dominators, loops and reaching definitions, also where nothing is nested."""

from __future__ import annotations

import random

import pytest

from tilesim import Builder
from tilesim.analysis.cfg import FlowGraph, known
from tilesim.analysis.ssa import reaching
from tilesim.arith.types import s32
from tilesim.ir.expr import Const, Special, Var
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.ops.bar import Exit
from tilesim.ir.ops.scalar import Assign
from tilesim.transforms.lower import lower

X, COND = Var("x", s32), Var("c", s32)


def program(*code: Branch | Assign | Exit, warps: int = 1) -> Mir:
    """These instructions as a program of so many warps."""
    frame = lower(Builder("graph", warps=warps).finish())
    return Mir(frame.kernel, tuple(map(Instruction, code)), frame.roles, frame.typing)


def jump(target: int) -> Branch:
    return Branch(target=target)


def branch(target: int) -> Branch:
    return Branch(target=target, cond=COND)


def put(value: int) -> Assign:
    return Assign(var=X, value=Const(value))


#: two loops into which one branch leads in the middle, then an early end
IRREDUCIBLE = program(branch(3), put(1), put(2), put(3), branch(2), branch(7), Exit(), put(4))


def test_blocks_begin_where_jumps_lead_and_after_them() -> None:
    graph = FlowGraph(IRREDUCIBLE)
    assert [list(b) for b in graph.blocks] == [
        [0], [1], [2], [3, 4], [5], [6], [7], [],
    ]  # fmt: skip
    assert graph.successors == [(1, 3), (2,), (3,), (2, 4), (5, 6), (7,), (7,), ()]


def test_a_loop_with_two_entries_has_no_head_and_ends_by_exit_do_not_count() -> None:
    graph = FlowGraph(IRREDUCIBLE)
    assert not graph.loops
    assert graph.dominators == [None, 0, 0, 0, 3, 4, 4, 4]
    assert graph.post_dominators == [3, 2, 3, 4, 6, 7, 7, None]


def test_where_all_ways_end_by_exit_these_are_the_end() -> None:
    """The one end stands in the middle, and what is written behind it leads back there."""
    both = program(branch(3), branch(5), Exit(), put(1), jump(1), put(2), jump(2))
    assert FlowGraph(both).post_dominators == [1, 2, 5, 1, 2, None]
    two = program(branch(2), Exit(), put(1), branch(5), put(2), Exit(), put(3))
    assert FlowGraph(two).post_dominators == [6, 6, 4, 4, 6, 6, None]


def test_every_way_back_of_a_loop_is_found() -> None:
    graph = FlowGraph(program(put(1), branch(0), branch(0), put(2)))
    assert [(x.head, x.tail, sorted(x.blocks)) for x in graph.loops] == [
        (0, 0, [0]),
        (0, 1, [0, 1]),
    ]


def test_a_loop_without_an_end_has_post_dominators_all_the_same() -> None:
    graph = FlowGraph(program(branch(3), put(1), jump(1), put(2)))
    assert graph.post_dominators == [2, 3, 3, None]


def test_what_an_instruction_sees_is_what_some_way_to_it_has_set() -> None:
    setters = reaching(FlowGraph(IRREDUCIBLE)).setters
    assert setters(2, "x") == (1, 3)
    assert setters(4, "x") == (3,)
    assert setters(7, "x") == (3,)


def test_an_instruction_with_a_guard_may_leave_what_was_there() -> None:
    mir = program(put(1), put(2), put(3))
    code = (mir.code[0], Instruction(put(2), COND), mir.code[2])
    setters = reaching(FlowGraph(Mir(mir.kernel, code, mir.roles, mir.typing))).setters
    assert setters(2, "x") == (0, 1)


def test_what_needs_more_than_the_number_of_the_warp_is_not_known() -> None:
    warp = Special("warp_id")
    assert known((warp >> 1) & 1, 6) == 1
    assert known(warp % 0, 1) is None
    assert known(warp + X, 1) is None


@pytest.mark.parametrize("seed", range(40))
def test_dominators_are_what_no_way_can_avoid(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(3, 12)
    code: list[Branch | Assign | Exit] = []
    for n in range(count):
        target = rng.randrange(count + 1)
        makes: tuple[Branch | Assign, ...] = (put(n), branch(target), jump(target))
        code.append(rng.choice(makes))
    graph = FlowGraph(program(*code))
    for block in graph.order:
        avoidable = [b for b in graph.order if b != block and block in _reach(graph, 0, b)]
        every = {*graph.order} - {*avoidable, block}
        assert {b for b in graph.order if graph.dominates(b, block)} == every | {block}
    numbers = [*graph.reached()]
    for number in numbers:
        after = _above(graph.post_dominators, graph.block_of[number])
        for other in numbers:
            if graph.block_of[other] != graph.block_of[number]:
                follows = graph.block_of[other] in after
                assert graph.must_follow(number, other) == follows


def _above(parents: list[int | None], node: int) -> set[int]:
    above: set[int] = set()
    at = parents[node]
    while at is not None:
        above.add(at)
        at = parents[at]
    return above


def _reach(graph: FlowGraph, start: int, without: int) -> set[int]:
    found: set[int] = set()
    new = [start]
    while new:
        block = new.pop()
        if block not in found and block != without:
            found.add(block)
            new += graph.successors[block]
    return found
