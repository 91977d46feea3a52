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
from typing import Any

from tilesim.proof.certificate import Repetition
from tilesim.proof.forms import Cone, Form, Number, plus
from tilesim.proof.machine import MOST_SHADOWS, Machine, Shadow, Warp
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
)
from tilesim.proof.phases import Look, Token
from tilesim.proof.rules import NotCovered, rule


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
    earlier = [[registers(one) for one in w.each] for w in m.warps]
    m.rounds_until(r.round + r.period)
    before, classes = m.state(), [w.shadows for w in m.warps]
    begins = [
        [_begins(was, registers(one), r.times) for was, one in zip(some, w.each, strict=True)]
        for w, some in zip(m.warps, earlier, strict=True)
    ]
    for w, each in zip(m.warps, begins, strict=True):
        w.stands_for([
            Shadow(w, one.cluster, number, values)
            for one, some in zip(w.each, each, strict=True)
            for number, values in enumerate(some)
            if number or one is not w
        ])  # fmt: skip
    m.rounds_until(r.round + 2 * r.period)
    _allowed(m.rounds == r.round + 2 * r.period, r)
    for w, each, of_class in zip(m.warps, begins, classes, strict=True):
        ends = [registers(one) for one in w.each]
        clusters = [w.cluster, *(s.cluster for s in of_class)]
        for n, some in enumerate(each):
            _goes_on(clusters[n], some, ends[n * (r.times + 1) : (n + 1) * (r.times + 1)])
        last = ends[r.times :: r.times + 1]
        w.registers.clear()
        w.registers |= last[0]
        w.differing.clear()
        w.stands_for([Shadow(w, c, 0, end) for c, end in zip(clusters, last, strict=True)][1:])
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
        _later(registers(s), _steps(was, registers(s)), Form(0, 1))
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


@rule("goes on", "a repetition ends with the registers with which the next one begins")
def _goes_on(cluster: int, begins: Sequence[Any], ends: Sequence[Any]) -> None:
    for number, (begin, end) in enumerate(zip(begins[1:], ends, strict=False)):
        for name in sorted({*begin, *end}):
            one, other = begin.get(name), end.get(name)
            if one is not other and _typed(one) != _typed(other):
                raise Differs([(cluster, number + 1)], name)


def _typed(value: Value) -> object:
    """A value, and what it is; tokens and polls are compared in the state."""
    if isinstance(value, list | Chosen | Asked):
        return type(value), [_typed(x) for x in value]
    return type(value), None if isinstance(value, Token | Look) else value


def registers(one: Warp | Shadow) -> dict[str, Value]:
    """All registers of a warp, or of what stands for it elsewhere."""
    names = {**one.warp.registers, **one.registers} if isinstance(one, Shadow) else one.registers
    return {name: one.registers.get(name) for name in names}


def _begins(was: dict[str, Value], now: dict[str, Value], times: int) -> list[dict[str, Value]]:
    """The registers with which each repetition begins: they grow as behind the period before."""
    steps = _steps(was, now)
    return [_later(now, steps, number) for number in range(times + 1)]


def _steps(was: dict[str, Value], now: dict[str, Value]) -> dict[str, list[Any]]:
    """By how much each register that changes has grown in each lane, if by a number."""
    rows = {
        name: [x if isinstance(x, list) else [x] * LANES for x in (was.get(name), value)]
        for name, value in now.items() if was.get(name) != value
    }  # fmt: skip
    steps = {name: [*map(_growth, *pair)] for name, pair in rows.items()}
    return {name: step for name, step in steps.items() if step != [0] * LANES}


def _growth(p: Any, q: Any) -> Any:
    """None: it depends on the parameter."""
    if isinstance(p, Chosen) and isinstance(q, Chosen):
        return Chosen(_growth(p.leader, q.leader), _growth(p.rest, q.rest))
    if isinstance(p, Form) or isinstance(q, Form):
        return None
    return q - p if isinstance(p, int) and isinstance(q, int) and type(p) is type(q) else 0


def _later(
    now: dict[str, Value], steps: dict[str, list[Any]], iterations: Number
) -> dict[str, Value]:
    """Registers so many turns later, each of which lets them grow by as much."""
    found = {**now}
    for name, step in steps.items():
        value = now[name]
        row = value if isinstance(value, list) else [value] * LANES
        found[name] = uniform([_grown(x, n, iterations) for x, n in zip(row, step, strict=True)])
    return found


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
