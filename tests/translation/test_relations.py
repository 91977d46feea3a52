"""Relations that are shown hold in every execution of random graphs with guards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from tilesim.translation.conditions import Condition
from tilesim.translation.flow import Node, Text
from tilesim.translation.relations import Facts, Passing, numbers

_EVENTS = 5
_EVERY = (1 << _EVENTS) - 1
_PASSINGS: tuple[Passing, ...] = ("before", "between", "after")


def _text(random: Random, *, guards: bool) -> Text:
    size = random.randrange(5, 12)
    made = {
        value: frozenset(n for n in range(1, size) if random.random() < 0.2) for value in ("p", "q")
    }
    nodes: list[Node] = []
    events: list[tuple[int, ...]] = []
    certain: list[bool] = []
    conditions: dict[int, Condition] = {}
    taken: dict[int, int] = {}
    ends = {size - 1}
    for number in range(size):
        following = [number + 1] if number + 1 < size else []
        value = random.choice("pq")
        if following and random.random() < 0.35:
            goal = random.randrange(size)
            following.append(goal)
            taken[number] = goal
            if guards and random.random() < 0.7:
                conditions[number] = Condition(value, random.random() < 0.5, made[value])
            events.append(())
            certain.append(False)
        else:
            events.append((random.randrange(_EVENTS),) if random.random() < 0.7 else ())
            certain.append(random.random() < 0.7)
            if guards and random.random() < 0.4:
                conditions[number] = Condition(value, random.random() < 0.5, made[value])
                certain[-1] = False
                if random.random() < 0.1:
                    ends.add(number)
                    taken[number] = -1
        nodes.append(Node(number, tuple(sorted({*following}))))
    marked = frozenset(n for places in made.values() for n in places)
    return Text(nodes, events, conditions, certain, taken, frozenset(ends), marked)


_State = tuple[int, tuple[bool, bool]]
#: of p and q, before they are made
_VALUES = ((False, False), (False, True), (True, False), (True, True))


def _steps(text: Text, state: _State) -> Iterator[tuple[bool, _State | None]]:
    """Whether a node is executed, and what is next: None at the end."""
    node, values = state
    condition = text.conditions.get(node)
    now = dict(zip("pq", values, strict=True))
    if condition is not None:
        executed = [now[str(condition.value)] == condition.holds]
    else:
        executed = [True] if text.certain[node] else [True, False]
    for runs in executed:
        choices = [
            (False, True) if node in made else (now[value],)
            for value, made in _made(text).items()
        ]  # fmt: skip
        for after in product(choices[0], choices[1]):
            if node in text.ends and (runs or condition is None):
                yield runs, None
                if condition is not None:
                    continue
            following = text.nodes[node].successors
            if condition is not None and node in text.taken and text.taken[node] >= 0:
                others = [n for n in following if n != text.taken[node]] or [text.taken[node]]
                following = (text.taken[node],) if runs else tuple(others)
            for one in following:
                yield runs, (one, after)


def _values(text: Text) -> list[str]:
    return sorted({str(condition.value) for condition in text.conditions.values()})


def _made(text: Text) -> dict[str, frozenset[int]]:
    found = {"p": frozenset[int](), "q": frozenset[int]()}
    for condition in text.conditions.values():
        found[str(condition.value)] = condition.made
    return found


def _reached(text: Text) -> set[_State]:
    seen: set[_State] = set()
    todo: list[_State] = [(0, values) for values in _VALUES]
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo += [after for _, after in _steps(text, state) if after is not None]
    return seen


def _holds(text: Text, statement: Passing, first: int, second: int) -> bool:
    """Whether every execution is as a statement says."""
    if statement == "before":
        starts: list[_State] = [(0, values) for values in _VALUES]
    else:
        starts = []
        for state in _reached(text):
            if second in text.events[state[0]]:
                for runs, after in _steps(text, state):
                    if runs and after is None and statement == "after":
                        return False
                    if runs and after is not None:
                        starts.append(after)
    seen: set[_State] = set()
    while starts:
        state = starts.pop()
        if state in seen:
            continue
        seen.add(state)
        for runs, after in _steps(text, state):
            here = text.events[state[0]] if runs else ()
            if statement != "after" and second in here:
                return False
            if first in here:
                continue
            if after is None and statement == "after":
                return False
            if after is not None:
                starts.append(after)
    return True


@pytest.mark.parametrize("seed", range(150))
def test_what_is_shown_holds_on_every_path(seed: int) -> None:
    text = _text(Random(seed), guards=seed % 3 != 0)
    facts = Facts(text, _EVERY)
    shown = 0
    for second, statement in product(facts.copies, _PASSINGS):
        plain = facts.passed(statement, second)
        if plain is None:
            assert all(_holds(text, statement, first, second) for first in range(_EVENTS))
            continue
        by_cases = facts.passed_by_cases(statement, second, _values(text))
        for first in numbers((plain | by_cases) & ~(1 << second)):
            assert _holds(text, statement, first, second), (statement, first, second)
            shown += 1
        if seed % 3 == 0:  # without guards, all that holds is shown
            held = [f for f in range(_EVENTS) if f != second and _holds(text, statement, f, second)]
            assert held == [*numbers(plain & ~(1 << second))]
    assert shown >= 0


def test_guards_show_more() -> None:
    """Of the random graphs, some relations are shown by the cases of guards alone."""
    more = 0
    for seed in range(60):
        text = _text(Random(seed), guards=True)
        facts = Facts(text, _EVERY)
        values = _values(text)
        for second, statement in product(facts.copies, _PASSINGS):
            plain = facts.passed(statement, second)
            if plain is not None:
                more += (facts.passed_by_cases(statement, second, values) & ~plain).bit_count()
    assert more > 100


def _follows(text: Text, first: int, second: int) -> bool:
    """Whether some execution executes one event behind another one."""
    starts: list[_State] = []
    for state in _reached(text):
        if second in text.events[state[0]]:
            starts += [after for runs, after in _steps(text, state) if runs and after is not None]
    seen: set[_State] = set()
    while starts:
        state = starts.pop()
        if state in seen:
            continue
        seen.add(state)
        for runs, after in _steps(text, state):
            if runs and first in text.events[state[0]]:
                return True
            if after is not None:
                starts.append(after)
    return False


@pytest.mark.parametrize("seed", range(150))
def test_what_is_executed_behind_an_event_is_found(seed: int) -> None:
    text = _text(Random(seed), guards=seed % 3 != 0)
    facts = Facts(text, _EVERY)
    for second in facts.copies:
        found = [first for first in range(_EVENTS) if _follows(text, first, second)]
        behind = [*numbers(facts.behind(second))]
        assert {*found} <= {*behind}
        if seed % 3 == 0:  # without guards, nothing else
            assert found == behind
