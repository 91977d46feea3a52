"""The smallest parameters of a kernel with which a check still fails in the same way."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.checker import DEFAULT_BUDGET
from tilesim.fuzz.cases import Case, Settings, Value, run_case, shrink
from tilesim.ir.program import Strict
from tilesim.loader import Target, load

#: values up to this are counts, of which all smaller ones are tried; larger ones are halved
_COUNTS = 16


def smallest(target: Target, rule: str, strict: Strict, schedules: int, seed: int) -> Target:
    """``target`` with smaller integer parameters, as long as the first finding is of ``rule``.

    One parameter at a time, in their order, as long as that helps; the number of checks is bounded
    and each has the default budget of instructions, so the result is the same on every machine.
    """
    if target.kernel is None:
        return target
    name = _without_parameters(target.id)
    params = target.arguments
    settings = Settings(strict, schedules, DEFAULT_BUDGET)
    outcome = run_case(Case(0, name, tuple(params.items()), settings, seed))
    if outcome.verdict != "failed" or outcome.rules[:1] != (rule,):
        return target
    domain = {name: values_below(value) for name, value in params.items()}
    found = dict(shrink(outcome.case, outcome, domain).case.params)
    given = {n: str(v) for n, v in found.items() if n in target.params or v != params[n]}
    return load(name, given)[0]


def changed(before: Target, after: Target) -> dict[str, int]:
    """The parameters that `smallest` made smaller."""
    old, new = before.arguments, after.arguments
    return {name: value for name, value in new.items() if value != old[name]}


def values_below(value: Value) -> tuple[Value, ...]:
    """The values to try for a parameter, the smallest first, and ``value`` itself."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return (value,)
    if value <= _COUNTS:
        return tuple(range(1, value + 1))
    return tuple(value >> shift for shift in reversed(range(value.bit_length())))


def in_words(before: Target, params: Mapping[str, int]) -> str:
    """What `covers` says about the parameters that were made smaller."""
    asked = before.arguments
    smaller = ", ".join(f"{name}={value} (of {asked[name]})" for name, value in params.items())
    return f"the smallest parameters found that fail like this: {smaller}"


def _without_parameters(target: str) -> str:
    """``place::name`` of ``place::name[a=1]``."""
    place, colons, name = target.rpartition("::")
    return place + colons + name.partition("[")[0]
