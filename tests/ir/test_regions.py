"""Regions are opened by ``with`` statements; anything else is an error at the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.checker import check
from tilesim.ir.verify import diagnose

BARE: dict[str, Callable[[Builder], AbstractContextManager[Any]]] = {
    "role": lambda k: k.role("p", 0),
    "loop": lambda k: k.loop(5),
    "if_": lambda k: k.if_(k.warp_id.eq(0)),
    "while_": lambda k: k.while_(k.warp_id > 5),
    "elected": lambda k: k.elected(),
    "one_thread": lambda k: k.one_thread(),
}


def body(k: Builder) -> None:
    """Warp 0's arrival, which every warp executes if the region before it is not entered."""
    k.sync_warp()


@pytest.mark.parametrize("name", BARE)
def test_region_that_nobody_enters_is_an_error_at_its_line(name: str) -> None:
    k = Builder("bare")
    BARE[name](k)
    body(k)
    with pytest.raises(InvalidProgram) as caught:
        k.finish()
    (problem,) = caught.value.diagnostics
    assert problem.rule == "region"
    assert problem.message.startswith(f"{name} opens a region, but no `with` statement enters it")
    assert problem.fix.startswith(f"write `with k.{name}(...):`")
    lines, first = inspect.getsourcelines(BARE[name])
    assert first <= problem.loc.line < first + len(lines)
    assert problem.loc.file.endswith("test_regions.py")


@pytest.mark.parametrize("name", BARE)
def test_region_that_is_entered_is_none(name: str) -> None:
    k = Builder("entered")
    with BARE[name](k):
        body(k)
    assert diagnose(k.finish()) == ()


def test_else_that_nobody_enters_is_an_error() -> None:
    k = Builder("bare")
    with k.if_(k.warp_id.eq(0)):
        body(k)
    k.else_()
    with pytest.raises(InvalidProgram, match="else_ opens a region"):
        k.finish()


def test_every_region_that_nobody_enters_is_named() -> None:
    k = Builder("bare")
    k.role("p", 0)
    k.elected()
    body(k)
    with pytest.raises(InvalidProgram) as caught:
        k.finish()
    assert [d.message.partition(" ")[0] for d in caught.value.diagnostics] == ["role", "elected"]


def test_region_entered_later_belongs_to_where_it_is_entered() -> None:
    k = Builder("later")
    first = k.role("first", 0)
    with k.role("second", 1):
        body(k)
    with first:
        body(k)
    assert [getattr(s, "name", "") for s in k.finish().body] == ["second", "first"]


def test_loop_is_no_python_iterable() -> None:
    k = Builder("iterated")
    with pytest.raises(InvalidProgram) as caught:
        for _ in k.loop(4):
            pass
    (problem,) = caught.value.diagnostics
    assert problem.rule == "region"
    assert problem.fix == "write `with k.loop(...) as i:`"
    assert problem.loc.function == "test_loop_is_no_python_iterable"


def test_run_time_value_is_no_python_integer() -> None:
    k = Builder("counted")
    n: Any = k.var("n", 4)
    with pytest.raises(TypeError, match=r"`%n` is only known when the kernel runs.*k\.loop"):
        range(n)


def test_run_time_value_does_not_stand_for_an_immediate() -> None:
    k = Builder("immediate")
    n: Any = k.var("n", 4)
    with pytest.raises(InvalidProgram, match="wait_group"):
        k.bulk.wait_group(n)


def test_kernel_without_instructions_is_an_error() -> None:
    @ts.kernel(warps=1)
    def nothing(k: Builder) -> None:
        k.mbarriers("b")
        with k.role("p", 0):
            pass

    with pytest.raises(InvalidProgram) as caught:
        check(nothing.build())
    (problem,) = caught.value.diagnostics
    assert (problem.rule, problem.message) == ("region", "kernel nothing has no instructions")


def test_kernel_with_one_instruction_is_none() -> None:
    k = Builder("something", warps=1)
    body(k)
    assert check(k.finish()).verdict == "proved"
