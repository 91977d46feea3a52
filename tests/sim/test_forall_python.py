"""What a kernel's Python can ask of an open parameter: an integer, as far as anybody can see."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from inspect import getsourcelines
from typing import Any, cast

import numpy as np
import pytest

import tilesim as ts
from tests.sim.steady_programs import one_stage
from tilesim import Builder, kernel, s32
from tilesim.dsl.kernel import Kernel
from tilesim.ir.expr import ScalarParam, as_expr, walk
from tilesim.sim.affine.free_parameter import (
    Free,
    Refused,
    Scope,
    is_free,
    slope_of,
    value_of,
)

#: the value for which a kernel is wrong
FAULT = 157


class Mode(Enum):
    """A choice as kernels take it, by number."""

    FAULTY = 157


@dataclass(frozen=True)
class Config:
    """What a kernel may hand on."""

    trips: int


@lru_cache
def remembered(n: int) -> bool:
    return n == 157


def of(question: Callable[[Any], object]) -> Kernel:
    """The ring that is faulty where Python says so."""

    @kernel(warps=2)
    def asking(k: Builder, *, n: int = 40) -> None:
        one_stage(k, n, n, missing=bool(question(n)))

    return asking


def quietly(question: Callable[[Any], object]) -> Callable[[Any], object]:
    """A question whose refusal the kernel catches."""

    def asked(n: Any) -> object:
        try:
            return question(n)
        except Exception:
            return False

    return asked


#: questions that are answered as of an integer: the value that answers otherwise is found
ANSWERED: dict[str, Callable[[Any], object]] = {
    "unwrapped": lambda n: getattr(n, "value", n) == 157,
    "private": lambda n: getattr(n, "_value", n) == FAULT,
    "fields": lambda n: not hasattr(n, "__dict__") and not hasattr(n, "__slots__") and n == 157,
    "the type": lambda n: type(n) is int and n == 157,
    "its equal": lambda n: type(n) == int and n == 157,  # noqa: E721
    "its name": lambda n: type(n).__name__ == "int" and n == 157,
    "the class": lambda n: n.__class__ is int and n == 157,
    "one of types": lambda n: type(n) in (int, float) and n == 157,
    "instance": lambda n: isinstance(n, int) and not isinstance(n, bool) and n == 157,
    "real": lambda n: n.real == 157 and n.imag == 0 and n.denominator == 1,
    "bits": lambda n: n.bit_length() == 8 and n == 157,
    "inverted": lambda n: ~n == -158,
    "a list": lambda n: n in [157],
    "an array": lambda n: (np.array([1, 157]) == n).any(),
    "handed on": lambda n: Config(n).trips == 157,
    "divided": lambda n: divmod(n, 8) == (19, 5),
    "by an expression": lambda n: cast(Any, as_expr(n)).value == 157,
}
#: questions that no number answers that is not known: the kernel is not proved for all values
REFUSED: dict[str, Callable[[Any], object]] = {
    "index": lambda n: operator.index(n) == 157,
    "range": lambda n: len(range(n)) == 157,
    "a list of so many": lambda n: len([0] * n) == 157,
    "text": lambda n: str(n) == "157",
    "a formatted text": lambda n: f"{n:>5}" == "  157",
    "an old text": lambda n: "%d" % n == "157",  # noqa: UP031
    "repr": lambda n: repr(n) == "157",
    "the text of a dataclass": lambda n: "157" in repr(Config(n)),
    "the text of an expression": lambda n: "157" in str(as_expr(n) + 1),
    "hash": lambda n: hash(n) == hash(157),
    "a set": lambda n: n in {157},
    "a table": lambda n: {157: True}.get(n, False),
    "a table by dataclasses": lambda n: {Config(157): True}.get(Config(n), False),
    "a table by expressions": lambda n: {as_expr(157): True}.get(as_expr(n), False),
    "an enumeration": lambda n: Mode(n) is Mode.FAULTY,
    "a cache": remembered,
    "a root": lambda n: math.isqrt(n) == 12,
    "a float": lambda n: float(n) == 157.0,
    "a number of NumPy": lambda n: bool(np.int64(n) == 157),
    "pickled": lambda n: pickle.loads(pickle.dumps(n)) == 157,
    "its size": lambda n: sys.getsizeof(n) > 28,
    "copied": lambda n: copy.deepcopy(Config(n)).trips == 157,
    "a power": lambda n: n**2 == 157**2,
    "bytes": lambda n: n.to_bytes(4, "little")[0] == 0x9D,
}
#: questions to the object, not the number, which raise or answer otherwise: found by building the
#: kernel for the numbers that its code names
COMPARED: dict[str, Callable[[Any], object]] = {
    "by its method": lambda n: int.__add__(n, 0) == 157,
    "written by C": lambda n: json.dumps(n) == "157",
    "another name of type": lambda n: TYPE(n) is int and n == FAULT,
}
TYPE = type


#: of these, questions that are answered as of an integer only while a kernel is built; and another
BUILDING = ("the type", "its equal", "its name", "one of types", "handed on")


@pytest.mark.parametrize("name", [name for name in ANSWERED if name not in BUILDING[:-1]])
def test_what_an_integer_answers_is_answered_as_far_as_it_is_the_same(name: str) -> None:
    scope, first = Scope("n"), 40
    assert not ANSWERED[name](Free(first, Fraction(1), scope))
    assert FAULT - first > scope.last or (FAULT - first) % scope.modulus
    assert ANSWERED[name](FAULT)


@pytest.mark.parametrize("name", BUILDING)
def test_what_an_integer_answers_is_answered_and_kept(name: str) -> None:
    report = ts.check(of(ANSWERED[name]), for_all={"n": None})
    assert report.for_all is not None
    assert not report.for_all.proved
    assert report.for_all.at == FAULT
    assert report.verdict == "failed"
    assert report.rules == {"deadlock"}
    finding = report.findings[0]
    assert {p.role for p in finding.participants} == {"producer", "consumer"}
    lines, first = getsourcelines(one_stage)
    waits = {first + at for at, line in enumerate(lines) if "k.mbarrier.wait" in line}
    assert {p.loc.line for p in finding.participants} == waits


@pytest.mark.parametrize("name", ["the type", "handed on"])
def test_the_same_questions_about_no_value_that_is_asked_for(name: str) -> None:
    report = ts.check(of(ANSWERED[name]), for_all={"n": "1..156"})
    assert report.verdict == "proved"
    assert report.for_all is not None
    assert report.for_all.proved


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_number_is_refused(name: str) -> None:
    """Also if the kernel catches that."""
    report = ts.check(of(quietly(REFUSED[name])), for_all={"n": None})
    claim = report.for_all
    assert claim is not None
    assert not claim.proved
    assert str(claim.obstacle).startswith("n is ")
    assert __file__.endswith(claim.obstacle.loc.file) if claim.obstacle else False


@pytest.mark.parametrize("name", COMPARED)
def test_what_is_asked_of_the_object_is_compared_with_numbers(name: str) -> None:
    report = ts.check(of(quietly(COMPARED[name])), for_all={"n": None})
    assert report.for_all is not None
    assert not report.for_all.proved
    assert str(report.for_all.obstacle).startswith(
        "what the kernel makes of n = 157 differs from what it makes of an unknown number"
    )


def test_no_attribute_leads_to_the_number() -> None:
    scope = Scope("n")
    number = Free(24, Fraction(1), scope)
    assert is_free(number)
    assert value_of(number) == 24
    assert dir(number) == dir(24)
    for name in ("value", "slope", "scope", "_value", "__dict__", "__slots__", "__copy__"):
        assert not hasattr(number, name)
        with pytest.raises(AttributeError):
            object.__getattribute__(number, "value")
    with pytest.raises(AttributeError, match="'int' object has no attribute"):
        number.value = 5
    for name in dir(24):
        try:
            found = getattr(number, name)
        except Refused:
            continue
        assert found is number or found is int or callable(found) or name in (
            "imag", "denominator", "__doc__"
        )  # fmt: skip


def test_the_copy_of_an_expression_has_the_number_itself() -> None:
    """Loops that are recorded again restore expressions by copies."""
    number = Free(24, Fraction(1), Scope("n"))
    copied = copy.deepcopy(as_expr(number) + ScalarParam("count", number))
    assert all(leaf.value is number for leaf in walk(copied) if hasattr(leaf, "value"))


# ---------------------------------------------------------------------- computed from it


@kernel(warps=2)
def passed(k: Builder, *, n: int = 40, often: int = 1, fault: int = 0) -> None:
    """The consumer's number of turns is a number of the launch, computed from ``n``."""
    turns = k.scalar("turns", often * n + (n == fault))
    one_stage(k, often * n, turns)


@kernel(warps=1)
def sized(k: Builder, *, n: int = 40, short: int = 0) -> None:
    """Each turn stores a row of a tensor of ``n`` rows, or of fewer for some ``n``."""
    rows = k.tensor("rows", s32, (n - (n == short), 32))
    count = k.scalar("count", n)
    with k.loop(count) as i:
        k.mem.store(rows[i, k.lane_id], 1)
        k.bar.sync(1, 32)


@kernel(warps=1)
def shared(k: Builder, *, n: int = 4) -> None:
    """So much shared memory."""
    data = k.shared("data", s32, (n, 32))
    k.mem.store(data[0, k.lane_id], 1)


@pytest.mark.parametrize("often", [1, 3])
def test_numbers_of_the_launch_follow_the_parameter(often: int) -> None:
    report = ts.check(passed, for_all={"n": None}, params={"often": often})
    assert report.verdict == "proved", report.reasons
    assert report.for_all is not None
    assert report.for_all.proved
    wrong = ts.check(passed, for_all={"n": None}, params={"often": often, "fault": FAULT})
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}
    assert wrong.for_all is not None
    assert wrong.for_all.at == FAULT


def test_numbers_of_the_launch_that_are_given_stay() -> None:
    report = ts.check(passed, for_all={"n": None}, params={"turns": 40})
    assert report.for_all is not None
    assert report.for_all.at == 1


def test_a_number_of_the_launch_may_be_asked_for_itself() -> None:
    report = ts.check(passed, for_all={"turns": None})
    assert report.for_all is not None
    assert report.for_all.at == 1


def test_sizes_follow_the_parameter() -> None:
    report = ts.check(sized, for_all={"n": None})
    assert report.verdict == "proved", report.reasons
    assert report.for_all is not None
    assert report.for_all.proved
    wrong = ts.check(sized, for_all={"n": None}, params={"short": FAULT})
    assert wrong.rules == {"out-of-bounds"}
    assert wrong.for_all is not None
    assert wrong.for_all.at == FAULT
    claim = ts.check(shared, for_all={"n": None}).for_all
    assert claim is not None
    assert not claim.proved


_kept: dict[str, int] = {}


def test_a_number_that_is_kept_from_another_call_is_noticed() -> None:
    @kernel(warps=2)
    def keeping(k: Builder, *, n: int = 40) -> None:
        one_stage(k, n, _kept.setdefault("n", n))

    _kept.clear()
    claim = ts.check(lambda n: keeping.build(n=n), for_all={"n": None}).for_all
    assert claim is not None
    assert not claim.proved


def _function(draw: random.Random, depth: int) -> str:
    """What Python may make of an integer ``n``."""
    if not depth or draw.random() < 0.12:
        return draw.choice(["n", "n", "n", str(draw.randrange(-700, 2_000))])
    a, b, c = (_function(draw, depth - 1) for _ in range(3))
    few = draw.choice([1, 2, 3, 5, 8, 64, 100, 601, -3])
    mask = draw.choice([1, 7, 15, -2, -8, 0, 12, 124, -1])
    forms = [
        f"({a} + {b})", f"({a} - {b})", f"({a} * {few})", f"({a} // {few})", f"({a} % {few})",
        f"(-{a})", f"(~{a})", f"abs({a})", f"max({a}, {b})", f"min({a}, {b}, {c})",
        f"({a} << {draw.randrange(4)})", f"({a} >> {draw.randrange(5)})", f"({a} & {mask})",
        f"({a} if {a} {draw.choice(['<', '<=', '==', '!='])} {b} else {c})", f"({b} or {c})",
        f"({a}).bit_length()", f"sum(divmod({a}, {few}))", f"sorted([{a}, {b}, {c}])[1]",
        f"(1 if {a} in [{b}, {c}] else 0)",
    ]  # fmt: skip
    return draw.choice(forms)


def test_what_is_answered_holds_as_far_as_it_is_said_to() -> None:
    """Random functions of a number that is not known are those of the numbers themselves."""
    compared = 0
    for seed in range(250):
        draw = random.Random(seed)
        text, first = _function(draw, draw.choice([2, 3])), draw.choice([1, 5, 40, 100, 500])
        function, by = eval(f"lambda n: {text}"), draw.choice([1, 1, 3, 64, -1])
        scope = Scope("n")
        try:
            found = function(Free(first, Fraction(by), scope))
        except Refused:
            continue
        value, slope = (value_of(found), slope_of(found)) if is_free(found) else (found, 0)
        last = min(scope.last, 3_000 * scope.modulus)
        steps = range(0, last + 1, scope.modulus)
        for u in {0, steps[-1], *draw.sample(steps, min(len(steps), 100))}:
            compared += 1
            assert function(first + by * u) == value + slope * u, f"{text} of {first} + {by} * {u}"
    assert compared > 10_000
