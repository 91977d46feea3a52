"""What Python takes though it cannot be meant: names that are not called, digits cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.checker import check

Given = tuple[Builder, Any, Any, Any, Any]


def built(body: Callable[[Given], object]) -> ts.Program:
    """A kernel in which ``body`` has an integer and a number, 32 words, and an mbarrier."""

    @ts.kernel(warps=1)
    def meant(k: Builder) -> None:
        v, x = k.var("v", 0), k.var("x", 1.5, ts.f32)
        words, b = k.shared("words", ts.s32, (32,)), k.mbarriers("b")
        with k.one_thread():
            k.mbarrier.init(b, 1)
        k.sync_threads()
        body((k, v, x, words, b))

    return meant.build()


NOT_CALLED = """
def body(given):
    k, v, x, words, b = given
    with k.role("all", [0]) as warps, k.loop(4):
        {statement}
        k.sync_warp()
        v.dtype
        k.lane_id
"""


@pytest.mark.parametrize(
    "statement",
    ["k.break_", "k.sync_threads", "k.mbarrier.wait", "warps.sync", "k.fence.proxy_async"],
)
def test_an_instruction_that_is_only_named_is_an_error(statement: str) -> None:
    assert check(body_of("k.sync_warp()")).verdict == "proved"
    with pytest.raises(InvalidProgram) as caught:
        body_of(statement)
    (problem,) = caught.value.diagnostics
    assert problem.rule == "operand"
    assert problem.message == (
        f"`{statement}` names an instruction, but does not call it: nothing is recorded"
    )
    assert problem.fix == f"write `{statement}(...)`"
    assert (problem.loc.line, problem.loc.function) == (5, "body")


def body_of(statement: str) -> ts.Program:
    """A kernel with this statement in a loop."""
    names: dict[str, Any] = {}
    exec(NOT_CALLED.format(statement=statement), names)
    return built(names["body"])


CUT_OFF: dict[str, Callable[[Given], object]] = {
    "mov: value 1.5 is a floating-point number, not an integer": lambda g: g[0].assign(g[1], 1.5),
    "mov: value (%v + 1.5) is a floating-point number, not an integer": lambda g: g[0].assign(
        g[1], g[1] + 1.5
    ),
    "mov: value (%v * 0.5) is a floating-point number, not an integer": lambda g: g[1].__imul__(
        0.5
    ),
    "mov: value select((%v < 1), 0.5, 1) is a floating-point number, not an integer": lambda g: g[
        0
    ].assign(g[1], ts.select(g[1] < 1, 0.5, 1)),
    "mov: value 0.25 is a floating-point number, not an integer": lambda g: g[0].var("y", 0.25),
    "st: value 1.5 is a floating-point number, not an integer": lambda g: g[0].mem.store(
        g[3][g[0].lane_id], 1.5
    ),
    "mbarrier.wait: phase 0.5 is a floating-point number, not an integer": lambda g: g[
        0
    ].mbarrier.wait(g[4], 0.5),
    "barrier.sync: id 1.5 is a floating-point number, not an integer": lambda g: g[0].bar.sync(
        1.5, 32
    ),
    "index (%v + 0.5) of words is not an integer": lambda g: g[0].mem.store(g[3][g[1] + 0.5], 1),
}


@pytest.mark.parametrize("said", CUT_OFF)
def test_digits_that_would_be_cut_off_are_an_error(said: str) -> None:
    with pytest.raises(InvalidProgram) as caught:
        built(CUT_OFF[said])
    (problem,) = caught.value.diagnostics
    assert problem.rule == "operand"
    assert problem.message.startswith(said)


NUMBERS: dict[str, Callable[[Given], object]] = {
    "an integer": lambda g: g[0].assign(g[1], 2),
    "whole": lambda g: g[0].assign(g[1], 2.0),
    "a number's register": lambda g: g[0].assign(g[2], g[2] + 1.5),
    "converted": lambda g: g[0].assign(g[1], g[2] * 0.5),
    "of a tile": lambda g: g[0].tile.fill(g[0].fragment("tile", ts.f32, (1, 32)), 0.18),
    "compared": lambda g: g[0].assign(g[1], g[1] < 1.5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_where_they_are_meant_are_proved(name: str) -> None:
    assert check(built(NUMBERS[name])).verdict == "proved"
