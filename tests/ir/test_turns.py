"""State of Python's that a turn of a loop changes, and that what is recorded in it depends on."""

from __future__ import annotations

import inspect
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.checker import check
from tilesim.ir.declarations import Mbarriers

Body = Callable[[Builder], None]
WRONG: dict[str, tuple[str, Body]] = {}
RIGHT: dict[str, Body] = {}


def wrong(said: str) -> Callable[[Body], Body]:
    """``said``: how the message begins."""

    def note(body: Body) -> Body:
        WRONG[body.__name__] = said, body
        return body

    return note


def right(body: Body) -> Body:
    RIGHT[body.__name__] = body
    return body


def barriers(k: Builder) -> Mbarriers:
    """Two mbarriers for one arrival."""
    b = k.mbarriers("b", 2)
    with k.one_thread():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    return b


def turn(k: Builder, b: Mbarriers, phase: Any, index: Any = 0) -> None:
    k.mbarrier.arrive(b[index])
    k.mbarrier.wait(b[index], phase)  # here


class State:
    """What kernels keep in objects."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = 0

    def step(self) -> None:
        self.phase ^= 1


class Whole:
    """What they keep in classes."""

    count = 0


class Place(NamedTuple):
    stage: int
    phase: int


@dataclass(frozen=True)
class Frozen:
    phase: int = 0

    def next(self) -> Frozen:
        return replace(self, phase=self.phase ^ 1)


_global = 0


def bump() -> int:
    global _global
    _global += 1
    return _global


@wrong("st[0] is 0 before an iteration of the loop and 1 after it")
def an_element(k: Builder) -> None:
    b, st = barriers(k), [0]
    with k.one_thread(), k.loop(4):
        turn(k, b, st[0])
        st[0] ^= 1


@wrong("st['p'] is 0 before an iteration of the loop and 1 after it")
def an_entry(k: Builder) -> None:
    b, st = barriers(k), {"p": 0}
    with k.one_thread(), k.loop(4):
        turn(k, b, st["p"])
        st["p"] ^= 1


@wrong("st[0] is 0 before an iteration of the loop and 1 after it")
def an_array(k: Builder) -> None:
    b, st = barriers(k), np.zeros(1, np.int32)
    with k.one_thread(), k.loop(4):
        turn(k, b, int(st[0]))
        st[0] ^= 1


@wrong("st.phase is 0 before an iteration of the loop and 1 after it")
def an_attribute(k: Builder) -> None:
    b, st = barriers(k), State()
    with k.one_thread(), k.loop(4):
        turn(k, b, st.phase)
        st.step()


@wrong("Whole.count is 0 before an iteration of the loop and 1 after it")
def an_attribute_of_a_class(k: Builder) -> None:
    b = barriers(k)
    Whole.count = 0
    with k.one_thread(), k.loop(4):
        turn(k, b, Whole.count & 1)
        Whole.count += 1


@wrong("st.x[1]['a'] is 0 before an iteration of the loop and 1 after it")
def deep_down(k: Builder) -> None:
    b, st = barriers(k), SimpleNamespace(x=[0, {"a": 0}])
    with k.one_thread(), k.loop(4):
        turn(k, b, st.x[1]["a"])
        st.x[1]["a"] ^= 1


@wrong("st.phase is 0 before an iteration of the loop and 1 after it")
def another_object(k: Builder) -> None:
    b, st = barriers(k), Frozen()
    with k.one_thread(), k.loop(4):
        turn(k, b, st.phase)
        st = st.next()


@wrong("at is (0, 0) before an iteration of the loop and (0, 1) after it")
def another_tuple(k: Builder) -> None:
    b, at = barriers(k), (0, 0)
    with k.one_thread(), k.loop(4):
        turn(k, b, at[1], at[0])
        at = (at[0], at[1] ^ 1)


@wrong(
    "at is Place(stage=0, phase=0) before an iteration of the loop and Place(stage=0, phase=1) "
    "after"
)
def another_named_tuple(k: Builder) -> None:
    b, at = barriers(k), Place(0, 0)
    with k.one_thread(), k.loop(4):
        turn(k, b, at.phase, at.stage)
        at = at._replace(phase=at.phase ^ 1)


@wrong("n is 0 before an iteration of the loop and 1 after it")
def nonlocals(k: Builder) -> None:
    b, n = barriers(k), 0

    def following() -> int:
        nonlocal n
        n ^= 1
        return n ^ 1

    with k.one_thread(), k.loop(4):
        turn(k, b, following())


@wrong("_global is ")
def globals_of_the_module(k: Builder) -> None:
    b = barriers(k)
    with k.one_thread(), k.loop(4):
        turn(k, b, bump() & 1)


@wrong("an iteration of the loop advances the iterator it")
def cycled(k: Builder) -> None:
    b, it = barriers(k), itertools.cycle([0, 1])
    with k.one_thread(), k.loop(4):
        turn(k, b, next(it))


@wrong("an iteration of the loop advances the iterator it")
def generated(k: Builder) -> None:
    def phases() -> Iterator[int]:
        while True:
            yield from (0, 1)

    b, it = barriers(k), phases()
    with k.one_thread(), k.loop(4):
        turn(k, b, next(it))


@wrong("an iteration of the loop advances the iterator it")
def iterated(k: Builder) -> None:
    b, it = barriers(k), iter([0, 1, 0, 1])
    with k.one_thread(), k.loop(4):
        turn(k, b, next(it))


OTHER = "an iteration of the loop changes the numbers that {} gives next"
_rng = random.Random(0)


@wrong(OTHER.format("rng"))
def drawn(k: Builder) -> None:
    b, rng = barriers(k), random.Random(1)
    with k.one_thread(), k.loop(4):
        turn(k, b, rng.randrange(1 << 16))


@wrong(OTHER.format("_rng"))
def drawn_from_one_of_the_module(k: Builder) -> None:
    b = barriers(k)
    with k.one_thread(), k.loop(4):
        turn(k, b, _rng.randrange(1 << 16))


@wrong(OTHER.format("random"))
def drawn_from_pythons_own(k: Builder) -> None:
    b = barriers(k)
    random.seed(1)
    with k.one_thread(), k.loop(4):
        turn(k, b, random.randrange(1 << 16))


@wrong(OTHER.format("draw"))
def drawn_by_a_method(k: Builder) -> None:
    b, draw = barriers(k), random.Random(1).getrandbits
    with k.one_thread(), k.loop(4):
        turn(k, b, draw(16))


@wrong(OTHER.format("rng"))
def drawn_by_numpy(k: Builder) -> None:
    b, rng = barriers(k), np.random.default_rng(1)
    with k.one_thread(), k.loop(4):
        turn(k, b, int(rng.integers(1 << 16)))


@wrong(OTHER.format("rng"))
def drawn_by_numpys_older_one(k: Builder) -> None:
    b, rng = barriers(k), np.random.RandomState(1)
    with k.one_thread(), k.loop(4):
        turn(k, b, int(rng.randint(1 << 16)))


@wrong(OTHER.format("np"))
def drawn_from_numpys_own(k: Builder) -> None:
    b = barriers(k)
    np.random.seed(1)
    with k.one_thread(), k.loop(4):
        turn(k, b, int(np.random.randint(1 << 16)))


@wrong("an iteration of the loop advances the iterator it")
def counted(k: Builder) -> None:
    b, it = barriers(k), itertools.count()
    with k.one_thread(), k.loop(4):
        turn(k, b, next(it))


@wrong("st['p'] is 0 before an iteration of the loop and 1 after it")
def updated(k: Builder) -> None:
    b, st = barriers(k), {"p": 0}
    with k.one_thread(), k.loop(4):
        turn(k, b, st.setdefault("p", 0))
        st.update(p=1)


@wrong("todo[1] is 0 before an iteration of the loop and unset after it")
def taken_out(k: Builder) -> None:
    b, todo = barriers(k), [1, 0]
    with k.one_thread(), k.loop(4):
        turn(k, b, todo.pop())


@wrong("ring[0] is 0 before an iteration of the loop and 1 after it")
def rotated(k: Builder) -> None:
    b, ring = barriers(k), deque((0, 1))
    with k.one_thread(), k.loop(4) as i:
        turn(k, b, i & 1, ring[0])
        ring.rotate()


@wrong("now is Mbar b[0] before an iteration of the loop and Mbar b[1] after it")
def swapped(k: Builder) -> None:
    b = barriers(k)
    now, then = b[0], b[1]
    with k.one_thread(), k.loop(4) as i:
        k.mbarrier.arrive(now)  # the mbarrier differs already here
        k.mbarrier.wait(now, i & 1)
        now, then = then, now


@wrong("turns[0] is unset before an iteration of the loop and 1 after it")
def only_the_first_time(k: Builder) -> None:
    b, turns = barriers(k), list[int]()
    with k.one_thread(), k.loop(4) as i:
        if not turns:
            turn(k, b, i & 1)
        turns.append(1)


@wrong("st is (0, 5) before an iteration of the loop and (1, 5) after it")
def two_at_once(k: Builder) -> None:
    b, st, at = barriers(k), (0, 5), "a"
    with k.one_thread(), k.loop(4):
        turn(k, b, st[0] if at in "ab" else 7)
        st, at = (st[0] ^ 1, st[1]), "b"


@wrong("phase is 0 before an iteration of the loop and 1 after it")
def set_on_another_way_only(k: Builder) -> None:
    b, phase, ever = barriers(k), 0, list[int]()
    with k.one_thread(), k.loop(4):
        if ever:
            phase = 0
        turn(k, b, phase)
        phase = 1


@wrong("phase is unset before an iteration of the loop and 1 after it")
def set_in_the_first_turn_only(k: Builder) -> None:
    b, turns = barriers(k), list[int]()
    with k.one_thread(), k.loop(4):
        if not turns:
            phase = 0
        turn(k, b, phase)
        phase = 1
        turns.append(1)


@contextmanager
def looped(k: Builder, n: int) -> Iterator[Any]:
    with k.loop(n) as i:
        yield i


@wrong("st[0] is 0 before an iteration of the loop and 1 after it")
def in_a_loop_of_the_users(k: Builder) -> None:
    b, st = barriers(k), [0]
    with k.one_thread(), looped(k, 4):
        turn(k, b, st[0])
        st[0] ^= 1


@wrong("st[0] is 0 before an iteration of the loop and 1 after it")
def in_while(k: Builder) -> None:
    b, st = barriers(k), [0]
    n = k.var("n", 0)
    with k.one_thread(), k.while_(n < 4):
        turn(k, b, st[0])
        st[0] ^= 1
        n += 1


@wrong("st[0] is 0 before an iteration of the loop and 1 after it")
def of_the_outer_loop(k: Builder) -> None:
    b, st = barriers(k), [0]
    with k.one_thread(), k.loop(2):
        with k.loop(1):
            turn(k, b, st[0])
        st[0] ^= 1


@pytest.mark.parametrize("name", WRONG)
def test_what_another_turn_would_record_differently_is_an_error(name: str) -> None:
    said, body = WRONG[name]
    with pytest.raises(InvalidProgram) as caught:
        ts.kernel(warps=1)(body).build()
    (problem,) = caught.value.diagnostics
    assert problem.rule == "region"
    assert problem.message.startswith(said)
    assert "and this line depends on it: Python runs the body of a loop once" in problem.message
    if name not in ("only_the_first_time", "rotated", "swapped", "iterated", "taken_out"):
        lines, first = inspect.getsourcelines(turn)
        here = first + next(n for n, line in enumerate(lines) if "# here" in line)
        assert (problem.loc.line, problem.loc.function) == (here, "turn")
    if " is 0 before" in said:
        assert 'with `x = k.var("x", 0)` in its place' in problem.fix
    assert "compute it from the loop's variable" in problem.fix


@right
def kept_by_the_kernel(k: Builder) -> None:
    b, st = barriers(k), [k.var("phase", 0)]
    with k.one_thread(), k.loop(4):
        turn(k, b, st[0])
        st[0] ^= 1


@right
def counts_of_what_was_recorded(k: Builder) -> None:
    b, counts = barriers(k), {"turns": 0}
    with k.one_thread(), k.loop(4) as i:
        turn(k, b, i & 1)
        counts["turns"] += 1


@right
def drawn_before(k: Builder) -> None:
    b, rng = barriers(k), np.random.default_rng(1)
    with k.one_thread(), k.loop(4) as i:
        turn(k, b, i & 1)
        rng.integers(8)


@right
def names_counted_up(k: Builder) -> None:
    b, numbers = barriers(k), itertools.count()
    with k.one_thread(), k.loop(4) as i:
        register = k.var(f"register_{next(numbers)}", i)
        turn(k, b, register & 1)


@right
def unrolled_by_python(k: Builder) -> None:
    b, st = barriers(k), [0]
    with k.one_thread():
        with k.loop(2):
            for _ in range(2):
                turn(k, b, st[0])
                st[0] ^= 1
        for _ in range(4):
            turn(k, b, st[0], 1)
            st[0] ^= 1


@right
def collected(k: Builder) -> None:
    b, made = barriers(k), list[Any]()
    with k.one_thread(), k.loop(4) as i:
        made.append(k.var("x", i))
        turn(k, b, i & 1)
    for register in made:
        k.assign(register, 0)


@right
def declared_when_it_is_needed(k: Builder) -> None:
    b, have = barriers(k), dict[str, Any]()
    with k.one_thread(), k.loop(2) as i:
        if "v" not in have:
            have["v"] = k.var("v")
        k.assign(have["v"], i)
        turn(k, b, i & 1)


@right
def remembered(k: Builder) -> None:
    b, known = barriers(k), dict[int, int]()

    def twice(n: int) -> int:
        if n not in known:
            known[n] = 2 * n
        return known[n]

    with k.one_thread(), k.loop(4) as i:
        turn(k, b, (i + twice(4)) & 1)


@right
def set_before_it_is_used(k: Builder) -> None:
    b, st = barriers(k), State()
    st.phase = 7
    with k.one_thread(), k.loop(4) as i:
        st.phase = 0
        turn(k, b, (i + st.phase) & 1)
        st.phase = 3


@right
def names_that_are_taken(k: Builder) -> None:
    b, taken = barriers(k), set[str]()

    def take(name: str) -> None:
        assert name not in taken
        taken.add(name)

    with k.one_thread(), k.loop(4) as i:
        take("a")
        turn(k, b, i & 1)


@right
def an_unset_tuple(k: Builder) -> None:
    b, at = barriers(k), (0, 1)
    with k.one_thread(), k.loop(4) as i:
        at = (at[0] + 1, at[1])
        turn(k, b, i & at[1])


@pytest.mark.parametrize("name", RIGHT)
def test_what_every_turn_records_alike_is_proved(name: str) -> None:
    assert check(ts.kernel(warps=1)(RIGHT[name]).build()).verdict == "proved"


def test_names_for_findings_do_not_count() -> None:
    @ts.kernel(target="sm_100a")
    def labelled(k: Builder) -> None:
        numbers = itertools.count()
        address, value = k.var("address", 0, ts.u32), k.fragment("f", ts.f32, (128, 8), "warpgroup")
        with k.loop(2):
            d = k.tcgen05.tensor(address, ts.f32, (128, 8), name=f"d{next(numbers)}")
            k.tcgen05.ld(value, d)

    assert labelled.build()


def without_source(body: Body) -> Body:
    """The same function, where Python does not find its text."""
    names = {**globals(), **inspect.getclosurevars(body).nonlocals}
    text = inspect.getsource(body)
    exec(compile(text[text.index("def ") :], "<no file>", "exec"), names)
    found: Body = names[body.__name__]
    return found


@pytest.mark.parametrize("name", [name for name in WRONG if not name.startswith("global")])
def test_what_differs_is_found_without_source(name: str) -> None:
    said, body = WRONG[name]
    with pytest.raises(InvalidProgram) as caught:
        ts.kernel(warps=1)(without_source(body)).build()
    assert caught.value.diagnostics[0].message.startswith(said)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_alike_is_accepted_without_source(name: str) -> None:
    assert check(ts.kernel(warps=1)(without_source(RIGHT[name])).build()).verdict == "proved"


def test_a_debugger_keeps_its_trace_function() -> None:
    def trace(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(InvalidProgram):
            ts.kernel(warps=1)(another_tuple).build()
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


def test_what_a_kernel_prints_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.kernel(warps=1)
    def prints(k: Builder) -> None:
        b, counts = barriers(k), [0]
        with k.one_thread(), k.loop(4) as i:
            turn(k, b, i & 1)
            counts[0] += 1
        print("recorded")

    prints.build()
    assert capsys.readouterr().out == "recorded\n"
