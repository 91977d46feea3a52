"""Certificates for every value of a parameter, and kernels that are wrong for some values only.

What is claimed of a right kernel is claimed of wrong ones, too, which are right for small values:
it must not be believed of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesim as ts
from tilesim import Builder, f32, minimum, s32, select
from tilesim.checker.certificate_file import read, text_of
from tilesim.checker.certificates import FORM, Proof, certified, every_value, for_others, made_by
from tilesim.cli import main
from tilesim.errors import UsageError
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Mir
from tilesim.proof import moving
from tilesim.proof.certificate import Certificate, Every, Value, fingerprint
from tilesim.proof.check import certify, recheck
from tilesim.proof.forms import Cone, Form, Number, family, formed
from tilesim.proof.operands import _OPERATORS
from tilesim.proof.rules import Answer, NotCovered

SOURCE = """
import tilesim as ts

@ts.kernel(warps=2)
def ring(k, *, n: int = 8):
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full[0], 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(n) as i:
        k.mbarrier.arrive(full[0])
        k.mbarrier.wait(full[0], i & 1)
"""

STAGES, PERIOD, FIRST, LAST = 2, 4, 20, 100_000
#: a condition on a lane, an iteration, and the number of iterations
Fault = Callable[[Expr, Expr, Any], Expr]
#: those that hold late, or for some values, and their nearest twins that never hold
FAULTS: dict[str, tuple[Fault, Fault]] = {
    "one iteration": (lambda lane, i, n: i.eq(61), lambda lane, i, n: i.eq(-1)),
    "from an iteration on": (lambda lane, i, n: i >= 500, lambda lane, i, n: i >= 8 * LAST),
    "an iteration that is far from the last": (
        lambda lane, i, n: (n - i).eq(1_000), lambda lane, i, n: (n - i).eq(0),
    ),
    "odd values from some on": (
        lambda lane, i, n: (lane * 0 + n).eq(71), lambda lane, i, n: (lane * 0 + n).eq(0),
    ),
    "powers of two": (
        lambda lane, i, n: ((lane * 0 + n) & (lane * 0 + n - 1)).eq(0) & i.eq(32),
        lambda lane, i, n: ((lane * 0 + n) & 0).eq(1),
    ),
    "a square": (lambda lane, i, n: (i * i).eq(10_000), lambda lane, i, n: (i * 3).eq(-9)),
    "a number that wraps": (
        lambda lane, i, n: (i << 22).eq(-(1 << 31)), lambda lane, i, n: (i << 2).eq(-(1 << 31)),
    ),
    "a long remainder": (
        lambda lane, i, n: (i % 1009).eq(1000), lambda lane, i, n: (i % 4).eq(5),
    ),
    "low bits": (lambda lane, i, n: (i & 1023).eq(1023), lambda lane, i, n: (i & 3).eq(4)),
    "a quotient": (lambda lane, i, n: (i // 700).eq(1), lambda lane, i, n: (i // 4).eq(-1)),
    "a minimum": (
        lambda lane, i, n: minimum(i, 300).eq(300), lambda lane, i, n: minimum(i, -2).eq(-1),
    ),
    "a lane of its own": (
        lambda lane, i, n: (i - 40).eq(lane + 60), lambda lane, i, n: (i + 40).eq(lane),
    ),
    "other bits": (lambda lane, i, n: (i ^ 64).eq(1), lambda lane, i, n: (~i).eq(1)),
}  # fmt: skip


def ring(fault: Fault | None = None) -> ts.Kernel:
    """A ring of two stages, of which one is given back twice in an iteration with a fault."""

    @ts.kernel(warps=2)
    def ring(k: Builder, *, n: int = 8) -> None:
        full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
        s, x = k.shared("s", s32, (STAGES, 32)), k.var("x", 0, s32)
        with k.one_thread():
            for stage in range(STAGES):
                k.mbarrier.init(full[stage], 32)
                k.mbarrier.init(empty[stage], 32)
        k.sync_threads()
        with k.role("producer", 0), k.loop(n) as i:
            k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
            k.mem.store(s[i % STAGES, k.lane_id], 1)
            k.mbarrier.arrive(full[i % STAGES])
        with k.role("consumer", 1), k.loop(n) as i:
            k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1)
            k.mem.load(x, s[i % STAGES, k.lane_id])
            k.mbarrier.arrive(empty[i % STAGES])
            if fault is not None:
                with k.if_(fault(k.lane_id, i, n)):
                    k.mbarrier.arrive(empty[i % STAGES])

    return ring


def programs_of(kernel: ts.Kernel) -> Callable[[int], Mir]:
    """The program of each value."""
    return cache(made_by(kernel.build, {}, "n"))


def value_of(kernel: ts.Kernel) -> Value | None:
    """A value that is found to stand for others."""
    programs = programs_of(kernel)
    return for_others(programs, FIRST, PERIOD, LAST, Proof())


def said(kernel: ts.Kernel, value: Value | None, most: int = LAST) -> Answer:
    """What the kernel says where it is claimed that a value stands for so many others."""
    assert value is not None
    programs = programs_of(kernel)
    try:
        mir, second, last = (programs(FIRST + k * PERIOD) for k in (0, 1, most))
        of_all = family((mir, second, last), most)
    except NotCovered as why:
        return Answer("not covered", what=why.what)
    return certify(mir, value.classes, value.repetitions, of_all=of_all)


RING = ring()


@cache
def of_ring() -> Value | None:
    """That of the ring without a fault."""
    return value_of(RING)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_some_values_is_found(name: str) -> None:
    wrong, right = map(ring, FAULTS[name])
    found = value_of(right)
    assert str(said(right, found)) == "certified"
    answer = said(wrong, found)
    assert (answer.verdict, " differs in " in answer.what) == ("not covered", True), answer


def test_a_fault_in_the_last_iterations_is_found() -> None:
    """In those of all values, also of the first one."""
    wrong = ring(lambda lane, i, n: (n - i).eq(3))
    assert said(wrong, of_ring()).verdict == "refuted"


@pytest.mark.parametrize(
    ("more", "why"),
    [(0, "differs in"), (2, "differs in"), (1 << 40, "differs in")],
)
def test_each_value_makes_so_many_repetitions_more(more: int, why: str) -> None:
    found = of_ring()
    assert found is not None
    assert found.repetitions is not None
    ((one,),) = found.repetitions
    assert one.times == 1
    wrong = ((replace(one, times=more),),) if more else ((),)
    answer = said(RING, replace(found, repetitions=wrong))
    assert answer.verdict == "not covered"
    assert why in answer.what


def test_a_number_wraps_somewhere() -> None:
    """Up to where iterations are counted in 32 bits, no further."""
    found, most = of_ring(), ((1 << 31) - 1 - FIRST) // PERIOD
    assert str(said(RING, found, most - 1)) == "certified"
    assert said(RING, found, most + 1).verdict == "not covered"


# ---------------------------------------------------------------------- global memory


def rows(row: Callable[[Expr, Expr], Expr], size: Callable[[int], int], ctas: int = 2) -> ts.Kernel:
    """Each iteration of each CTA stores a row of its own."""

    @ts.kernel
    def rows(k: Builder, *, n: int = 8) -> None:
        k.launch(warps=1, grid=ctas)
        out = k.tensor("out", s32, (size(n), 32))
        with k.loop(n) as i:
            k.mem.store(out[row(k.cta_x, i), k.lane_id], 1)

    return rows


def _twice(n: int) -> int:
    return 2 * n + 64


ITERATIONS = rows(lambda cta, i: 2 * i + cta, _twice)


@cache
def of_iterations() -> Value | None:
    """That of rows that lie apart."""
    return value_of(ITERATIONS)


@pytest.mark.parametrize(
    ("kernel", "right"),
    [
        (ITERATIONS, True),
        (rows(lambda cta, i: 2 * i + 1 - cta, _twice), True),
        (rows(lambda cta, i: i + cta * (1 << 20), lambda n: 1 << 21), True),
        (rows(lambda cta, i: i + cta * (1 << 10), lambda n: 1 << 21), False),
        (rows(lambda cta, i: 2 * i + 64 * cta, _twice), False),
        (rows(lambda cta, i: 2 * i + 3 * cta, _twice), True),
        (rows(lambda cta, i: 2 * i + cta, lambda n: 2 * n), True),
        (rows(lambda cta, i: 2 * i + cta, lambda n: 4096), False),
        (rows(lambda cta, i: 2 * i + cta, lambda n: n + 64), False),
        (rows(lambda cta, i: 2 * (i & 1023) + cta, _twice), False),
        (rows(lambda cta, i: (1 << 20) - 2 - 2 * i + cta, lambda n: 1 << 20), True),
        (rows(lambda cta, i: 5000 - 2 * i + cta, lambda n: 5002), False),
    ],
)
def test_what_is_stored_lies_apart_in_all_programs(kernel: ts.Kernel, right: bool) -> None:
    answer = said(kernel, of_iterations())
    assert (answer.verdict == "certified") is right, answer


def test_rows_that_lie_further_apart_in_larger_programs() -> None:
    """The row of an iteration grows with the number of columns, which the value decides."""

    def columns(wide: int) -> ts.Kernel:
        @ts.kernel(warps=1)
        def columns(k: Builder, *, n: int = 8) -> None:
            out = k.tensor("out", s32, (4, 32 * n))
            with k.loop(n) as i:
                k.mem.store(out[2, 32 * i + k.lane_id], 1)
                k.mem.store(out[3, wide * i + k.lane_id], 1)

        return columns

    found = value_of(columns(32))
    assert str(said(columns(32), found)) == "certified"
    assert said(columns(16), found).verdict == "not covered"


# ---------------------------------------------------------------------- numbers


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_computed_is_what_each_iteration_computes(data: st.DataObject) -> None:
    """Of each iteration of each program; what is not known may be anything."""
    cone = Cone(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 4)))
    small = st.integers(-40, 40)

    def drawn() -> Number:
        step = data.draw(st.sampled_from([1, 1, 2, 4, 8]))
        x = Form(data.draw(small), step * data.draw(st.integers(-3, 3)), step * data.draw(small))
        return x if (x.iteration and cone.iterations) or x.more else x.base

    op = data.draw(st.sampled_from([*_OPERATORS]))
    xs = [drawn(), drawn() if data.draw(st.booleans()) else data.draw(st.integers(-2, 64))]
    found = cone.computed(op, xs)
    for k in range(cone.most + 1):
        for j in range(cone.iterations * k + 1):
            a, b = (formed(x).at(j, k) for x in xs)
            if found is not None and not (op in ("//", "%") and b == 0):
                assert formed(found).at(j, k) == _OPERATORS[op](a, b), (op, xs, found, j, k)
    low, high = cone.limits(xs[0])
    every = [
        formed(xs[0]).at(j, k) for k in range(cone.most + 1) for j in range(cone.iterations * k + 1)
    ]
    assert (low, high) == (min(every), max(every))


def test_some_of_it_is_known() -> None:
    cone, x = Cone(2, 10), Form(3, 4, 8)
    known = {
        ("+", 5): Form(8, 4, 8), ("*", -2): Form(-6, -8, -16), ("//", 4): Form(0, 1, 2),
        ("%", 4): 3, ("&", 3): 3, (">>", 2): Form(0, 1, 2), ("<<", 1): Form(6, 8, 16),
        ("<", 3): 0, (">=", 3): 1, ("==", 2): 0, ("min", 3): 3, ("max", 3): x, ("and", 0): 0,
        ("or", 0): 1, ("%", 8): None, ("//", 3): None, ("<", 4): None, ("==", 3): None,
        ("^", 1): None, ("|", 1): None, ("&", 2): None, ("//", 0): None, ("<<", -1): None,
    }  # fmt: skip
    assert {(op, n): cone.computed(op, [x, n]) for op, n in known} == known
    assert cone.computed("-", [x]) == Form(-3, -4, -8)
    assert cone.computed("~", [x]) == Form(-4, -4, -8)
    assert cone.within(Form(250, 1, 0), -6, -128, 127) == Form(-6, 1, 0)
    assert cone.within(Form(250, 1, 14), -6, -128, 127) is None


# ---------------------------------------------------------------------- what is in no number


def of_all(kernel: ts.Kernel, first: int, period: int, most: int) -> Answer:
    """What the kernel says of values of a kernel of one cluster without repetitions."""
    programs = programs_of(kernel)
    try:
        made = [programs(first + k * period) for k in (0, 1, most)]
        return certify(made[0], ((0,),), of_all=family(made, most))
    except NotCovered as why:
        return Answer("not covered", what=why.what)


@pytest.mark.parametrize(
    ("period", "why"), [(4, ""), (1 << 31, "a literal whose type the parameter decides")]
)
def test_a_literal_decides_of_which_type_that_is_of_which_it_is_a_part(
    period: int, why: str
) -> None:
    """In 32 bits the 1 is shifted into the sign, in 64 it is not: the last value deadlocks."""

    @ts.kernel(warps=1)
    def wide(k: Builder, *, n: int = 8) -> None:
        full = k.mbarriers("full")
        with k.one_thread():
            k.mbarrier.init(full[0], 32)
        k.sync_threads()
        with k.if_((select(k.lane_id >= 0, 1, n) << 31) > 0):
            k.mbarrier.wait(full[0], 0)

    assert certify(programs_of(wide)(20 + period)).verdict == ("refuted" if why else "certified")
    answer = of_all(wide, 20, period, 1)
    assert answer == Answer("not covered" if why else "certified", what=why)


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (lambda lane, n: (n * n).eq(100 * 100) * lane, "which may differ between lanes"),
        (lambda lane, n: n * 2, ""),
        (lambda lane, n: lane * 0.5, "which may differ between lanes"),
    ],
)
def test_an_operand_that_lanes_share_in_some_programs_only(
    by: Callable[[Expr, Expr], Expr], why: str
) -> None:
    """Of 100 its lanes have several numbers, or always."""

    @ts.kernel(warps=1)
    def tiles(k: Builder, *, n: int = 8) -> None:
        tile = k.fragment("tile", f32, (1, 32))
        k.tile.fill(tile, 1)
        k.tile.zip(tile, "mul", tile, by(k.lane_id, k.lane_id * 0 + n))

    answer = of_all(tiles, 20, 4, 20)
    assert answer.verdict == ("not covered" if why else "certified")
    assert why in answer.what


def test_a_tensor_of_more_dimensions_is_no_larger_one() -> None:
    @ts.kernel(warps=1)
    def ranks(k: Builder, *, n: int = 20) -> None:
        k.tensor("t", s32, (8,) * (n // 20))
        k.sync_threads()

    assert of_all(ranks, 20, 20, 1).what == "a program that the parameter decides"


@pytest.mark.parametrize(("most", "verdict"), [(4, "certified"), (3, "not covered")])
def test_places_of_all_classes_are_counted(
    most: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pairs of them are compared."""

    @ts.kernel
    def places(k: Builder, *, n: int = 8) -> None:
        k.launch(warps=1, grid=2)
        out = k.tensor("out", s32, (4, 32 * n))
        for row in range(2):
            k.mem.store(out[2 * k.cta_x + row, k.lane_id], 1)

    monkeypatch.setattr(moving, "MOST_BOXES", most)
    made = [programs_of(places)(n) for n in (2, 3, 3)]
    assert certify(made[0], ((0,), (1,)), of_all=family(made, 1)).verdict == verdict


# ---------------------------------------------------------------------- certificates


@cache
def certificate(last: int) -> Certificate:
    """Of the ring, for so many values."""
    made, answer = certified(RING.build(), "practice", (), None)
    assert str(answer) == "certified"
    wanted = Every("n", 1, 1, last - 1, PERIOD, ())
    return replace(made, every=every_value(wanted, programs_of(RING), Proof()))


def rechecked(kernel: ts.Kernel, claim: Certificate) -> Answer:
    """What the kernel says where the same is claimed of another kernel's programs."""
    every, programs = claim.every, programs_of(kernel)
    assert every is not None
    some = tuple(
        replace(v, fingerprint=fingerprint(programs(every.at(v.number)))) for v in every.values
    )
    made = replace(claim, fingerprint=fingerprint(programs(8)), every=replace(every, values=some))
    return recheck(made, programs(8), programs=programs)


def test_each_value_is_certified_or_stands_behind_one() -> None:
    claim = certificate(1000)
    every = claim.every
    assert every is not None
    assert str(every) == "n in 1..1000"
    assert sum(v.most > 0 for v in every.values) == PERIOD
    assert read(text_of(claim)) == claim
    assert str(ts.recheck(claim, RING)) == "certified"
    assert ts.recheck(claim, RING.build()).what.startswith("programs of other values")
    for n in (0, 9, len(every.values) - 1):
        left = every.values[:n] + every.values[n + 1 :]
        answer = ts.recheck(replace(claim, every=replace(every, values=left)), RING)
        assert answer.what == "a value of the parameter that the certificate leaves out"


def test_the_programs_are_those_of_the_certificate() -> None:
    assert ts.recheck(certificate(1000), ring(FAULTS["one iteration"][1])).rule == "fingerprint"


def test_a_check_makes_a_certificate_of_every_value(tmp_path: Path) -> None:
    """Also on the command line, where `tilesim recheck` builds the programs again."""
    report = ts.check(RING, for_all={"n": "1..400"}, certificate=True)
    assert (report.verdict, str(report.rechecked), report.recheck_trusts) == (
        "proved", "certified", FORM,
    )  # fmt: skip
    assert report.certificate is not None
    assert str(report.certificate.every) == "n in 1..400"
    code, made = tmp_path / "ring.py", tmp_path / "every.json"
    code.write_text(SOURCE)
    run = CliRunner().invoke
    said = run(main, ["check", f"{code}", "--for-all", "n=1..200", "--certificate", f"{made}"])
    assert "PROVED" in said.stdout
    assert "for every n in 1..200, rechecked" in said.stdout
    said = run(main, ["recheck", f"{made}", f"{code}::ring"])
    assert said.exit_code == 0, said.output
    assert "certified; strictness practice; for n in 1..200; trusts that" in said.stdout
    said = run(main, ["recheck", f"{made}", f"{code}::ring", "--param", "n=9"])
    assert "refuted: fingerprint" in said.stdout


#: values from 64 on are wrong
LATE = ring(lambda lane, i, n: i.eq(61))


@pytest.mark.parametrize("seed", range(5))
def test_an_altered_certificate_is_refused_or_true(seed: int) -> None:
    """One of values that are right, of a kernel of which larger ones are wrong."""
    draw = random.Random(seed)
    document = json.loads(text_of(certificate(1000)))
    every = document["every"]
    some = every["values"]
    every["last"] = draw.choice([30, 50, 57, 60, 61, 62, 63, 70, 200])
    for row in some:
        if row[1]:
            row[1] = max((draw.choice([61, 61, 62, 63, 64, 80]) - 1 - row[0]) // PERIOD, 0)
    for _ in range(draw.randrange(3)):
        match draw.randrange(5):
            case 0:
                every[draw.choice(["first", "step", "last", "period"])] += draw.choice([-1, 1])
            case 1:
                draw.choice(some)[draw.randrange(2)] += draw.choice([-1, 1, 4, 40])
            case 2:
                del some[draw.randrange(len(some))]
            case 3:
                some.append(draw.choice(some))
            case 4:
                draw.choice(some[12:])[4] = [[[draw.randrange(20), draw.randrange(12), 1]]]
    try:
        claim = read(json.dumps(document))
        answer = rechecked(LATE, claim)
    except (UsageError, ts.InvalidProgram, ValueError):
        return
    assert claim.every is not None
    largest = claim.every.at(claim.every.last)
    assert answer.verdict != "certified" or largest <= 62, (claim.every, answer)


@pytest.mark.parametrize(
    "wrong",
    [
        5, [], {}, {"parameter": "n"}, {"parameter": 5, "first": 1, "step": 1, "last": 9,
         "period": 1, "values": []},
        {"parameter": "n", "first": 1, "step": 1, "last": 9, "period": 1, "values": [[0, 1]]},
        {"parameter": "n", "first": 1, "step": 1, "last": 9, "period": 1, "values": [5]},
        {"parameter": "n", "first": "1", "step": 1, "last": 9, "period": 1, "values": []},
        {"parameter": "n", "first": 1, "step": -1, "last": 9, "period": 1, "values": []},
        {"parameter": "n", "first": 1, "step": 1, "last": 9, "period": 1,
         "values": [[0, 0, "f", None, None]] * 5000},
    ],
)  # fmt: skip
def test_hostile_values_are_refused(wrong: Any) -> None:
    document = json.loads(text_of(certificate(1000))) | {"every": wrong}
    with pytest.raises(UsageError, match=r"at `\$\.every"):
        read(json.dumps(document))


@pytest.mark.parametrize("change", [{"step": 0}, {"period": 0}, {"last": 1 << 60}])
def test_ranges_that_are_none_are_refused(change: Any) -> None:
    claim = certificate(1000)
    assert claim.every is not None
    altered = replace(claim, every=replace(claim.every, **change))
    assert ts.recheck(altered, RING).verdict == "not covered"
