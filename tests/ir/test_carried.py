"""Python variables that change inside a loop of the kernel, and registers that do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
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


def behind_many_loops(k: Builder) -> None:
    n, done = k.var("n", 0), 0
    for _ in range(70):
        with k.loop(2):
            n += 1
    with k.loop(4):
        done += 1  # here
    k.assign(n, done)


def barrier(k: Builder) -> ts.Mbarriers:
    """One mbarrier for one arrival."""
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    return b


WRONG = (
    toggled, assigned, counted, of_a_register, in_a_python_loop, entered_by_a_stack, closed_over,
    behind_many_loops,
)  # fmt: skip


@pytest.mark.parametrize("body", WRONG)
def test_a_variable_that_changes_in_a_loop_is_an_error(body: Callable[[Builder], None]) -> None:
    with pytest.raises(InvalidProgram) as caught:
        body(Builder("wrong", warps=1))
    (problem,) = caught.value.diagnostics
    lines, first = inspect.getsourcelines(body)
    here = first + next(n for n, line in enumerate(lines) if "# here" in line)
    name = lines[here - first].partition("): ")[2] or lines[here - first]
    name = name.split()[0]
    assert problem.rule == "region"
    assert problem.loc.line == here
    assert problem.loc.function == body.__name__
    assert problem.message.startswith(f"{name} is ")
    assert "in every iteration of the loop: Python runs the body of a loop once" in problem.message
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


def named_like_a_bound(k: Builder) -> None:
    b, count = barrier(k), 2
    with k.one_thread(), k.loop(count) as i:
        for count in range(2):
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, (i * 2 + count) & 1)


RIGHT = (carried, computed, the_same_in_all_turns, of_python_loops, named_like_a_bound)


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


# ------------------------------------------------------------------ all ways to set a variable

#: how Python sets ``phase`` to 1, whatever it is
SETS = (
    "phase = 1", "phase, other = 1, 2", "[*_, phase] = 0, 1", "phase: int = 1", "(phase := 1)",
    "for phase in (0, 1): pass", "with nullcontext(1) as phase: pass",
    "match 1:\n            case phase: pass", "match [1]:\n            case [*_, phase]: pass",
    "if phase is not None: phase = 1", "phase += 1 - phase", "phase = (lambda phase: phase)(1)",
)  # fmt: skip
TEXT = """
from contextlib import nullcontext

def body(k, b):
    phase = 0
    with k.one_thread(), k.loop(4) as i:
        {first}
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, (i + phase) & 1)
        {then}
"""


def written(tmp_path: Path, text: str) -> Callable[[Builder, ts.Mbarriers], None]:
    """The function ``body`` of a module with this text in a file."""
    file = tmp_path / "module.py"
    file.write_text(text)
    names: dict[str, Any] = {"__name__": "module"}
    exec(compile(text, str(file), "exec"), names)
    function: Callable[[Builder, ts.Mbarriers], None] = names["body"]
    return function


def test_a_loop_on_one_line(tmp_path: Path) -> None:
    text = "def body(k, b):\n    n, done = k.var('n', 0), 0\n    with k.loop(4): done += 1\n"
    body, k = written(tmp_path, text), Builder("wrong", warps=1)
    with pytest.raises(InvalidProgram, match=r"done is 0 before .* and 1 after") as caught:
        body(k, barrier(k))
    assert caught.value.diagnostics[0].loc.line == 3


@pytest.mark.parametrize("sets", SETS)
def test_every_way_to_set_what_was_read_is_an_error(tmp_path: Path, sets: str) -> None:
    k = Builder("wrong", warps=1)
    body = written(tmp_path, TEXT.format(first="pass", then=sets))
    with pytest.raises(InvalidProgram, match=r"phase is 0 before .* and 1 after") as caught:
        body(k, barrier(k))
    line = 10 + ("\n" in sets)
    assert caught.value.diagnostics[0].loc.line == line


@pytest.mark.parametrize("sets", SETS[:-3])
def test_what_is_set_before_it_is_read_is_right(tmp_path: Path, sets: str) -> None:
    k = Builder("right", warps=1)
    body = written(tmp_path, TEXT.format(first=sets, then="phase = 1"))
    body(k, barrier(k))
    k.finish()


#: how Python reads ``phase``, if ``phase`` is also the name of another variable
READS = (
    "other = lambda phase=phase: phase", "other = [phase for phase in (phase, 1)]",
    "def other(*, phase=phase): pass", "other = lambda: phase", "other = [phase for _ in (0, 1)]",
)  # fmt: skip


@pytest.mark.parametrize("reads", READS)
def test_every_way_to_read_what_is_set_then_is_an_error(tmp_path: Path, reads: str) -> None:
    k = Builder("wrong", warps=1)
    body = written(tmp_path, TEXT.format(first=reads, then="phase = 1"))
    with pytest.raises(InvalidProgram, match=r"phase is 0 before .* and 1 after"):
        body(k, barrier(k))


OTHERS = (
    "other = lambda phase: phase", "other = [phase for phase in (0, 1)]", "other = {'phase': 0}",
    "def other(phase): return phase", "other = k.loop.phase if 0 else 1", "other = dict(phase=0)",
)  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_variables_of_the_same_name_are_others(tmp_path: Path, other: str) -> None:
    k = Builder("right", warps=1)
    text = TEXT.format(first=other, then="pass").replace("(i + phase)", "(i)")
    body = written(tmp_path, text.replace("pass", "phase = 1"))
    body(k, barrier(k))
    k.finish()


@pytest.mark.parametrize("then", ["phase ^= 1", "phase = 1"])
def test_without_source_a_number_that_changes_is_an_error(then: str) -> None:
    names: dict[str, Any] = {}
    exec(TEXT.format(first="b", then=then), names)
    k = Builder("wrong", warps=1)
    with pytest.raises(InvalidProgram, match=r"phase is 0 before .* and 1 after") as caught:
        names["body"](k, barrier(k))
    (problem,) = caught.value.diagnostics
    assert problem.loc.line == 6
    assert '`phase = k.var("phase", 0)` before the loop' in problem.fix


@pytest.mark.parametrize("then", ["phase = 0", "phase = False"])
def test_without_source_a_number_that_does_not_change_is_none(then: str) -> None:
    names: dict[str, Any] = {}
    exec(TEXT.format(first="b", then=then), names)
    k = Builder("right", warps=1)
    names["body"](k, barrier(k))
    k.finish()


def test_a_source_that_was_changed_is_not_trusted(tmp_path: Path) -> None:
    body = written(tmp_path, TEXT.format(first="pass", then="phase ^= 1"))
    written(tmp_path, TEXT.format(first="pass", then="pass"))
    k = Builder("wrong", warps=1)
    with pytest.raises(InvalidProgram, match=r"phase is 0 before .* and 1 after"):
        body(k, barrier(k))


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
