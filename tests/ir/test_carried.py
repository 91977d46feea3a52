"""Python variables that change inside a loop of the kernel, and registers that do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.checker import check
from tilesim.ir.ops.scalar import Assign


def toggled(k: Builder) -> None:
    b, phase = barrier(k), 0
    with k.one_thread(), k.loop(4):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)
        phase ^= 1  # here


def assigned(k: Builder) -> None:
    b, phase = barrier(k), 0
    with k.one_thread(), k.loop(4):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)
        phase = 1 - phase  # here


def counted(k: Builder) -> None:
    n = k.var("n", 0)
    done = 0
    with k.while_(n < 4):
        n += 1
        done += 1  # here
    k.assign(n, done)


def of_a_register(k: Builder) -> None:
    b = barrier(k)
    phase: Any = k.var("phase", 0)
    with k.one_thread(), k.loop(4):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)
        phase = phase ^ 1  # here


def in_a_python_loop(k: Builder) -> None:
    b, phase = barrier(k), 0
    with k.one_thread(), k.loop(2):
        for _ in range(3):
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, phase)
            phase ^= 1  # here


def entered_by_a_stack(k: Builder) -> None:
    b, phase = barrier(k), 0
    with ExitStack() as stack:
        stack.enter_context(k.one_thread())
        stack.enter_context(k.loop(4))
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)
        phase ^= 1  # here


def closed_over(k: Builder) -> None:
    b, phase = barrier(k), 0

    def wait() -> None:
        k.mbarrier.wait(b, phase)

    with k.one_thread(), k.loop(4):
        k.mbarrier.arrive(b)
        wait()
        phase ^= 1  # here


def barrier(k: Builder) -> ts.Mbarriers:
    """One mbarrier for one arrival."""
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    return b


WRONG = (
    toggled, assigned, counted, of_a_register, in_a_python_loop, entered_by_a_stack, closed_over,
)  # fmt: skip


@pytest.mark.parametrize("body", WRONG)
def test_a_variable_that_changes_in_a_loop_is_an_error(body: Callable[[Builder], None]) -> None:
    with pytest.raises(InvalidProgram) as caught:
        body(Builder("wrong", warps=1))
    (problem,) = caught.value.diagnostics
    lines, first = inspect.getsourcelines(body)
    here = first + next(n for n, line in enumerate(lines) if "# here" in line)
    name = lines[here - first].split()[0]
    assert problem.rule == "region"
    assert problem.loc.line == here
    assert problem.loc.function == body.__name__
    assert problem.message.startswith(f"{name} is ")
    assert "in every turn of the loop: Python runs the body of a loop once" in problem.message
    keep = f"k.assign({name}" if body is of_a_register else f'`{name} = k.var("{name}", 0)`'
    assert keep in problem.fix


def carried(k: Builder) -> None:
    b, phase = barrier(k), k.var("phase", 0)
    with k.one_thread(), k.loop(4):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)
        phase ^= 1


def computed(k: Builder) -> None:
    b = barrier(k)
    phase: Any = 0
    with k.one_thread(), k.loop(4) as i:
        phase = i & 1
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, phase)


def the_same_in_all_turns(k: Builder) -> None:
    b, count = barrier(k), 7
    with k.one_thread(), k.loop(2) as i:
        count = 0
        for part in range(2):
            count += part
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, (i * 2 + part) & 1)


def of_python_loops(k: Builder) -> None:
    b, phase = barrier(k), 0
    with k.one_thread():
        for _ in range(4):
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, phase)
            phase ^= 1
        with k.loop(4):
            total = sum(phase for phase in range(3))
            k.assign(k.var("t"), total)


RIGHT = (carried, computed, the_same_in_all_turns, of_python_loops)


@pytest.mark.parametrize("body", RIGHT)
def test_what_is_carried_otherwise_is_proved(body: Callable[[Builder], None]) -> None:
    k = Builder("right", warps=1)
    body(k)
    assert check(k.finish()).verdict == "proved"


def test_a_body_that_raises_says_what_it_raises() -> None:
    k, phase = Builder("raises", warps=1), 0

    def body() -> None:
        nonlocal phase
        with k.loop(4):
            k.assign(k.var("x"), phase)
            phase ^= 1
            phase //= 0

    with pytest.raises(ZeroDivisionError):
        body()


# ------------------------------------------------------------------ registers in place

UPDATES: dict[str, Callable[[Any], Any]] = {
    "+": lambda v: v.__iadd__(3), "-": lambda v: v.__isub__(3), "*": lambda v: v.__imul__(3),
    "//": lambda v: v.__ifloordiv__(3), "%": lambda v: v.__imod__(3), "&": lambda v: v.__iand__(3),
    "|": lambda v: v.__ior__(3), "^": lambda v: v.__ixor__(3), "<<": lambda v: v.__ilshift__(3),
    ">>": lambda v: v.__irshift__(3),
}  # fmt: skip


@pytest.mark.parametrize("op", UPDATES)
def test_in_place_operators_set_the_register(op: str) -> None:
    k = Builder("updates", warps=1)
    v = k.var("v", 5)
    assert UPDATES[op](v) is v
    last = k.finish().body[-1]
    assert isinstance(last, Assign)
    assert (last.var, str(last.value)) == (v, f"(%v {op} 3)")


def test_the_variable_of_a_loop_is_not_set() -> None:
    k = Builder("updates", warps=1)
    with k.loop(4) as i:
        j: Any = i
        j += 1
        k.assign(k.var("x"), j)
    (loop,) = k.finish().body
    assert len(getattr(loop, "body", ())) == 1
    assert str(j) == "(%i + 1)"


def test_registers_of_two_builders_are_set_in_their_own() -> None:
    one, two = Builder("one", warps=1), Builder("two", warps=1)
    a, b = one.var("v", 0), two.var("v", 0)
    a += 1
    b += 2
    assert [len(k.finish().body) for k in (one, two)] == [2, 2]
