"""Repetitions that a certificate leaves out: the state comes back, and all of them decide the same.

A certificate may say that from a round of the canonical schedule on a *period* of rounds repeats.
The kernel executes the period twice. By the first time it learns by how much registers grow. The
second one stands for all repetitions: each has registers of its own, as the clusters of a class
have (`tilesim.proof.operands`), and whatever decides has to be the same in all of them. Then each
repetition has to end with the registers with which the next one begins, and the state behind the
period has to be that before it (`tilesim.proof.state`). So each repetition executes as the one
before it, and the conditions that hold in one hold in all. What they do in global memory is
compared as that of different clusters is, which nothing orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.proof.certificate import Repetition
from tilesim.proof.forms import Cone, Form, Number, plus
from tilesim.proof.machine import MOST_SHADOWS, Machine, Shadow, Warp
from tilesim.proof.many import UNKNOWN, Many
from tilesim.proof.operands import (
    LANES,
    Address,
    Asked,
    Chosen,
    Differs,
    Scalar,
    Value,
    chosen,
    uniform,
    value_in,
)
from tilesim.proof.phases import Look, Token
from tilesim.proof.rules import NotCovered, rule

#: what a register holds in a warp and its shadows: each cluster's repetitions, one after another
Held: TypeAlias = "Many | list[Value]"
Registers: TypeAlias = "dict[str, Held]"


def leave_out(m: Machine, r: Repetition) -> None:
    """Executes two periods of a repetition, and goes on behind the last one.

    Raises: Refuted: a rule does not hold; NotCovered: the repetitions are not shown to be alike."""
    if m.operands.launches:
        raise NotCovered("repetitions of requests to launch control")
    if m.operands.family is not None:
        leave_out_in_all(m, r)
        return
    shadows = sum(len(w.each) for w in m.warps) * r.times
    _allowed(r.round >= m.rounds and r.period > 0 and 0 < shadows <= MOST_SHADOWS, r)
    m.rounds_until(r.round)
    earlier = [_registers(w) for w in m.warps]
    m.rounds_until(r.round + r.period)
    before, classes = m.state(), [[one.cluster for one in w.each] for w in m.warps]
    begins = [
        {n: _begins(was.get(n, UNKNOWN), x, r.times, len(w.each)) for n, x in _registers(w).items()}
        for w, was in zip(m.warps, earlier, strict=True)
    ]
    for w, clusters, begin in zip(m.warps, classes, begins, strict=True):
        each = [Shadow(w, c, turn) for c in clusters for turn in range(r.times + 1)]
        _set_all(w, each[1:], begin)
    m.rounds_until(r.round + 2 * r.period)
    _allowed(m.rounds == r.round + 2 * r.period, r)
    for w, clusters, begin in zip(m.warps, classes, begins, strict=True):
        ends = _registers(w)
        _goes_on(clusters, begin, ends, r.times)
        last = {name: _last(x, r.times) for name, x in ends.items()}
        _set_all(w, [Shadow(w, c) for c in clusters[1:]], last)
    m.state().comes_back(before)


def leave_out_in_all(m: Machine, r: Repetition) -> None:
    """The same of each program of a family: the k-th makes ``r.times`` * k repetitions more. Those
    that stand for all programs go through the second period for all its repetitions at once.

    Raises: Refuted: a rule does not hold; NotCovered: the repetitions are not shown to be alike."""
    v = m.operands
    assert v.family is not None
    _allowed(r.round >= m.rounds and r.period > 0 and r.times > 0, r)
    m.rounds_until(r.round)
    earlier = [registers(s) for w in m.warps for s in w.shadows if s.every]
    m.rounds_until(r.round + r.period)
    before, outside = m.state(), v.cone
    begins = [
        {n: _later(x, _step(was.get(n), x), Form(0, 1)) for n, x in registers(s).items()}
        for was, s in zip(earlier, (s for w in m.warps for s in w.shadows if s.every), strict=True)
    ]
    v.cone, m.repetitions = Cone(r.times, v.family.most), m.repetitions + 1
    m.within = (m.warps[0].cluster, m.repetitions, r.times)
    _set(m, begins)
    m.rounds_until(r.round + 2 * r.period)
    _allowed(m.rounds == r.round + 2 * r.period, r)
    every = [s for w in m.warps for s in w.shadows if s.every]
    ends = [registers(s) for s in every]
    for s, begin, end in zip(every, begins, ends, strict=True):
        for name in sorted({*begin, *end}):
            known = begin.get(name)
            if known is not None and _typed(_at(known, Form(1, 1))) != _typed(end.get(name)):
                raise Differs([(s.cluster, 1)], name)
    v.cone, m.within = outside, None
    _set(m, [{n: _at(x, Form(0, 0, r.times)) for n, x in end.items()} for end in ends])
    m.state().comes_back(before)


def _set(m: Machine, values: Iterable[dict[str, Value]]) -> None:
    """The registers of what stands for all programs."""
    left = iter(values)
    for w in m.warps:
        w.stands_for([Shadow(w, s.cluster, 0, next(left), every=True) if s.every else s
                      for s in w.shadows])  # fmt: skip


def _at(value: Any, iteration: Form) -> Any:
    """A register of which a turn decides, in the turn of that number."""
    match value:
        case list(row):
            return uniform([_at(x, iteration) for x in row])
        case Chosen() | Asked():
            return None
        case Form(base, by, more):
            return plus(Form(base, 0, more), iteration, by)
    return value


@rule("repetition", "a certificate names rounds that there are, in their order, and not too many")
def _allowed(holds: bool, r: Repetition) -> None:
    if not holds:
        raise NotCovered(f"no such repetition: {r}")


# ---------------------------------------------------------------------- registers of repetitions


def _registers(w: Warp) -> Registers:
    """What each register holds in a warp and its shadows."""
    return {name: w.held_by_all(name) for name in w.registers}


def _set_all(w: Warp, shadows: Sequence[Shadow], values: Registers) -> None:
    """It stands for these from now on, and holds that."""
    w.registers.clear()
    w.differing.clear()
    w.stands_for(shadows)
    for name, held in values.items():
        if isinstance(held, Many):
            w.hold_many(name, held)
        else:
            w.hold(name, held)


def _each(held: Held, number: int) -> list[Value]:
    """What each of so many holds."""
    return [value_in(held, n) for n in range(number)] if isinstance(held, Many) else held


def _begins(was: Held, now: Held, times: int, number: int) -> Held:
    """What a register of so many clusters holds at the beginning of each repetition: it grows as
    behind the period before."""
    if isinstance(now, Many) and isinstance(was, Many):
        found = _grown_many(was, now, times, number)
        if found is not None:
            return found
    pairs = zip(_each(was, number), _each(now, number), strict=True)
    steps = [(x, _step(p, x)) for p, x in pairs]
    return [_later(x, step, turn) for x, step in steps for turn in range(times + 1)]


def _grown_many(was: Many, now: Many, times: int, number: int) -> Many | None:
    """The same in an array; None: it could leave the numbers of arrays."""
    if now.numbers is None:
        return now
    step, both = np.zeros_like(now.numbers), was.lanes & now.lanes
    p, q = was.of(both), now.of(both)
    if p.numbers is not None and q.numbers is not None and p.base == q.base:
        ends = (*p.ends, *now.ends)
        if max(map(abs, ends)) + times * (max(ends) - min(ends)) >= 1 << 62:
            return None
        step = q.numbers - p.numbers
    if not step.any() and len(now.numbers) == 1:
        return now
    wide = np.broadcast_to(now.numbers + np.zeros_like(step), (number, *step.shape[1:]))
    turns = np.arange(times + 1)[:, None]
    grown = wide[:, None] + turns * np.broadcast_to(step, wide.shape)[:, None]
    return now._replace(numbers=grown.reshape(-1, wide.shape[1]))


def _last(held: Held, times: int) -> Held:
    """What is held in the last repetition."""
    if not isinstance(held, Many):
        return held[times :: times + 1]
    if held.numbers is None or len(held.numbers) == 1:
        return held
    return held._replace(numbers=held.numbers[times :: times + 1])


@rule("goes on", "a repetition ends with the registers with which the next one begins")
def _goes_on(clusters: Sequence[int], begins: Registers, ends: Registers, times: int) -> None:
    """Raises: Differs: the first one that does not."""
    apart = []
    for name in sorted({*begins, *ends}):
        begin, end = (some.get(name, UNKNOWN) for some in (begins, ends))
        found = _differ(begin, end, len(clusters), times)
        apart += [(turn, clusters[n], name) for n, turn in zip(*np.nonzero(found), strict=True)]
    if apart:
        turn, cluster, name = min(apart)
        raise Differs([(cluster, int(turn) + 1)], name)


def _differ(begin: Held, end: Held, number: int, times: int) -> NDArray[np.bool_]:
    """By cluster and repetition, whether that ends with something else than the next one begins
    with."""
    shape = number, times + 1
    if isinstance(begin, Many) and isinstance(end, Many) and begin[1:] == end[1:]:
        p, q = begin.numbers, end.numbers
        if p is not None and q is not None:
            p, q = (np.broadcast_to(x, (number * (times + 1), LANES)) for x in (p, q))
            p, q = (x.reshape(*shape, LANES) for x in (p, q))
            found: NDArray[np.bool_] = (p[:, 1:] != q[:, :-1]).any(2)
            return found
        if p is q:
            return np.zeros((number, times), bool)
    rows = [[*map(_typed, _each(held, number * (times + 1)))] for held in (begin, end)]
    apart = [p != q for p, q in zip(rows[0][1:], rows[1], strict=False)]
    return np.array([*apart, False]).reshape(shape)[:, :-1]


def _typed(value: Value) -> object:
    """A value, and what it is; tokens and polls are compared in the state."""
    if isinstance(value, list | Chosen | Asked):
        return type(value), [_typed(x) for x in value]
    return type(value), None if isinstance(value, Token | Look) else value


def registers(one: Shadow) -> dict[str, Value]:
    """All registers of what stands for all programs of a family."""
    names = {**one.warp.registers, **one.registers}
    return {name: one.registers.get(name) for name in names}


def _step(was: Value, now: Value) -> list[Any]:
    """By how much a register has grown in each lane, if by a number."""
    if type(was) is type(now) and was == now:
        return [0] * LANES
    p, q = (x if isinstance(x, list) else [x] * LANES for x in (was, now))
    return [*map(_growth, p, q)]


def _growth(p: Any, q: Any) -> Any:
    """None: it depends on the parameter."""
    if isinstance(p, Chosen) and isinstance(q, Chosen):
        return Chosen(_growth(p.leader, q.leader), _growth(p.rest, q.rest))
    if isinstance(p, Form) or isinstance(q, Form):
        return 0 if p == q else None
    return q - p if isinstance(p, int) and isinstance(q, int) and type(p) is type(q) else 0


def _later(value: Value, step: list[Any], iterations: Number) -> Value:
    """A register so many turns later, each of which lets it grow by as much."""
    if step == [0] * LANES:
        return value
    row = value if isinstance(value, list) else [value] * LANES
    return uniform([_grown(x, n, iterations) for x, n in zip(row, step, strict=True)])


def _grown(x: Scalar, n: Any, iterations: Number) -> Scalar:
    if isinstance(x, Chosen) and isinstance(n, Chosen):
        return chosen(_grown(x.leader, n.leader, iterations), _grown(x.rest, n.rest, iterations))
    if isinstance(x, Address) and n:
        return (
            Address(x + iterations * n, x.base, x.power, x.modulo)
            if isinstance(iterations, int)
            else None
        )
    if type(x) is int or isinstance(x, Form):
        return None if n is None else plus(x, iterations, n)
    return x
