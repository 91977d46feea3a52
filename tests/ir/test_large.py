"""Expressions that Python makes in few steps, and nobody can go through, are errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.ir.expr import Expr, fraction
from tilesim.ir.large import MAX_LEVELS, MAX_PARTS, too_large
from tilesim.ir.text import parse, to_text

BILLIONS = f"is an expression with billions of operators and operands, {MAX_PARTS:,} at most"


def doubled(times: int) -> Expr:
    """An expression with 2^times operands."""
    x: Expr = ts.Builder.lane_id
    for _ in range(times):
        x = x + x
    return x


def nested(levels: int) -> Expr:
    """An expression that many levels deep."""
    x: Expr = ts.Builder.lane_id
    for n in range(1, levels):
        x = x - n
    return x


def region(entered: ts.dsl.region.Region[object]) -> None:
    with entered:
        pass


#: what a kernel does with an expression -> how the error calls that
USES: dict[str, tuple[Callable[[Builder, Expr], object], str]] = {
    "stored": (lambda k, x: k.mem.store(tensor(k)[0], x), "value of st"),
    "an index": (lambda k, x: k.mem.store(tensor(k)[x], 1), "dst of st"),
    "a slice": (lambda k, x: k.mem.store(tensor(k)[ts.ds(x, 4)], 1), "dst of st"),
    "a barrier": (lambda k, x: k.mbarrier.arrive(k.mbarriers("b", 4)[x]), "mbar of mbarrier."),
    "a phase": (lambda k, x: k.mbarrier.wait(k.mbarriers("b"), x & 1), "phase of mbarrier.wait"),
    "a register": (lambda k, x: k.var("v", x), "value of mov"),
    "a condition": (lambda k, x: region(k.if_(x > 3)), "the condition"),
    "a loop": (lambda k, x: region(k.while_(x > 3)), "the condition"),
    "a bound": (lambda k, x: region(k.loop(x)), "a bound of the loop"),
}  # fmt: skip


def tensor(k: Builder) -> ts.ir.declarations.GlobalTensor:
    return k.tensor("Y", ts.s32, (64,))


@pytest.mark.parametrize("use", USES)
def test_billions_of_parts_are_refused_where_they_are_used(use: str) -> None:
    body, what = USES[use]

    @ts.kernel(warps=1)
    def huge(k: Builder) -> None:
        body(k, doubled(60))

    with pytest.raises(InvalidProgram) as caught:
        huge.build()
    (problem,) = caught.value.diagnostics
    assert problem.message.startswith(what)
    assert problem.message.endswith(BILLIONS)
    assert problem.loc.file.endswith("test_large.py")
    assert "register" in problem.fix


def test_the_largest_that_is_taken_can_be_shown_and_read() -> None:
    @ts.kernel(warps=1)
    def large(k: Builder, *, levels: int = MAX_LEVELS) -> None:
        k.mem.store(tensor(k)[k.lane_id], nested(levels))
        k.mem.store(tensor_of(k)[k.lane_id], doubled(12))

    def tensor_of(k: Builder) -> ts.ir.declarations.GlobalTensor:
        return k.tensor("Z", ts.s32, (64,))

    program = large.build()
    assert ts.check(program).verdict == "proved"
    assert parse(to_text(program)) == program
    with pytest.raises(InvalidProgram, match="with 201 levels, 200 at most"):
        large.build(levels=MAX_LEVELS + 1)


def test_parts_are_counted_as_often_as_they_are_shared() -> None:
    assert not too_large(doubled(12))
    assert too_large(doubled(13)) == f"16,383 operators and operands, {MAX_PARTS:,} at most"
    assert too_large(ts.select(doubled(60) > 1, 0, 1)).startswith("billions of")
    assert too_large(-nested(100_000)) == f"100,001 levels, {MAX_LEVELS} at most"


def test_an_error_that_names_one_shows_its_beginning() -> None:
    with pytest.raises(TypeError, match=r"the value of `\(\(.*\.\.\.` is only known") as caught:
        bool(doubled(60))
    assert len(str(caught.value)) < 50_000


def test_fractions_are_found_where_parts_are_shared() -> None:
    assert fraction(doubled(60)) is None
    half = fraction(doubled(60) + 0.5)
    assert half is not None
    assert half.value == 0.5
