"""What is left of an exploration: the state of the search as data, as JSON, and back.

Loading one runs no code. A frontier fits one program: a digest of it is compared, as is one of
the file's own contents, since a damaged file could make an exploration look finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast, get_args

from tilesim.errors import UsageError
from tilesim.records import dataclass, field
from tilesim.sim.machine.events import Key, Kind, Sleep, Touch

#: schedules to explore at most unless told otherwise
MAX_SCHEDULES = 1_000_000

SCHEMA = 2
_FIELDS = frozenset({"schema", "program", "preemptions", "cluster", "explored", "path", "sleep"})
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """How far to explore: warp instructions (or time), schedules, and preemptions in each of them.

    A preemption is a move of one agent although the one that moved last could go on. Where a limit
    in time stops the search depends on the machine; all else about it does not.
    """

    budget: int | timedelta
    schedules: int = MAX_SCHEDULES
    preemptions: int | None = None


@dataclass(slots=True)
class Node:
    """A state of the search: what can move, what was tried, what must be tried.

    ``sleep`` are agents whose move from here leads only to what was explored already; their touches
    tell when that stops being true. ``last`` made the move before, after ``preemptions`` of them.
    """

    enabled: tuple[Key, ...]
    chosen: Key
    sleep: Sleep
    backtrack: set[Key] = field(default_factory=set)
    done: Sleep = field(default_factory=dict)
    last: Key | None = None
    preemptions: int = 0

    def cost(self, agent: Key) -> int:
        """Preemptions up to and including a move of ``agent``: the one that moved last could go
        on."""
        return self.preemptions + (self.last in self.enabled and agent != self.last)


@dataclass(frozen=True)
class Explored:
    """What an exploration has done: schedules run and the warp instructions they took.

    ``exact``: no run was cut off, no try_wait asked to give up, and no schedule left out because
    of its preemptions. ``weak``: what PTX allows that no schedule shows, a sentence.
    """

    schedules: int = 0
    instructions: int = 0
    exact: bool = True
    weak: str = ""


@dataclass(frozen=True)
class Frontier:
    """Where an exploration stopped: the path to the next schedule to run.

    ``program`` is the `digest` of what is explored, ``preemptions`` the bound it is explored
    under, ``cluster`` the cluster at which the search is; ``explored`` counts those before it, too.
    """

    program: str
    preemptions: int | None
    cluster: int
    explored: Explored
    path: tuple[Node, ...]
    sleep: Sleep

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        done = self.explored
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "program": self.program,
            "preemptions": self.preemptions,
            "cluster": self.cluster,
            "explored": [done.schedules, done.instructions, done.exact, done.weak],
            "path": [_node_json(node) for node in self.path],
            "sleep": _sleep_json(self.sleep),
        }
        return {**body, "contents": _checksum(body)}

    @staticmethod
    def from_dict(data: object) -> Frontier:
        """The frontier in a JSON object.

        Raises:
            UsageError: it is not one, or it is damaged.
        """
        from tilesim.formats import require

        if not isinstance(data, Mapping):
            raise UsageError("this is not what a tilesim exploration left")
        remedy = "delete the file to start again"
        require(data.get("schema"), SCHEMA, "a tilesim exploration", remedy)
        body = {key: value for key, value in data.items() if key != "contents"}
        if set(body) != _FIELDS or data.get("contents") != _checksum(body):
            raise UsageError("what the exploration left is damaged; delete the file to start again")
        try:
            return _parsed(body)
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(f"what the exploration left is malformed: {error}") from None


def digest(text: str, values: Iterable[tuple[str, bytes]]) -> str:
    """A digest of a program's text and of the named values it is explored with."""
    from hashlib import sha256  # loads OpenSSL

    hashed = sha256(text.encode())
    for name, value in values:
        hashed.update(f"\0{name}\0{len(value)}\0".encode())
        hashed.update(value)
    return hashed.hexdigest()


def _checksum(body: Mapping[str, Any]) -> str:
    from hashlib import sha256

    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------ JSON


def _node_json(node: Node) -> list[Any]:
    return [
        [list(key) for key in node.enabled], list(node.chosen), _sleep_json(node.sleep),
        [list(key) for key in sorted(node.backtrack)], _sleep_json(node.done),
        None if node.last is None else list(node.last), node.preemptions,
    ]  # fmt: skip


def _sleep_json(sleep: Sleep) -> list[Any]:
    return [
        [list(key), [[e.kind, _plain(e.object), e.phase, e.loose] for e in events]]
        for key, events in sleep.items()
    ]


def _plain(touched: Hashable) -> object:
    """A synchronisation object's name: a number, or a tuple of words and numbers."""
    return list(touched) if isinstance(touched, tuple) else touched


def _parsed(body: Mapping[str, Any]) -> Frontier:
    schedules, instructions, exact, weak = _list(body["explored"])
    preemptions = body["preemptions"]
    return Frontier(
        _is(str, body["program"]),
        None if preemptions is None else _count(preemptions),
        _count(body["cluster"]),
        Explored(
            _count(schedules),
            _count(instructions),
            _is(bool, exact),
            _is(str, weak),
        ),
        tuple(map(_node, _list(body["path"]))),
        _sleep(body["sleep"]),
    )


def _node(value: object) -> Node:
    enabled, chosen, sleep, backtrack, done, last, preemptions = _list(value)
    node = Node(
        _each(_key, enabled), _key(chosen), _sleep(sleep), set(_each(_key, backtrack)),
        _sleep(done), None if last is None else _key(last), _count(preemptions),
    )  # fmt: skip
    if node.chosen not in node.enabled:
        raise ValueError("an agent moves that cannot")
    return node


def _sleep(value: object) -> Sleep:
    pairs = [_list(item) for item in _list(value)]
    return {_key(key): _each(_touch, events) for key, events in pairs}


def _touch(value: object) -> Touch:
    kind, touched, phase, loose = _list(value)
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r} is not a kind of access")
    return Touch(cast(Kind, kind), _object(touched), _is(int, phase), _is(bool, loose))


def _object(value: object) -> Hashable:
    if isinstance(value, list):
        return tuple(part if isinstance(part, str) else _is(int, part) for part in value)
    return _is(int, value)


def _key(value: object) -> Key:
    warp, number = _list(value)
    return _count(warp), _count(number)


def _each(parse: Callable[[object], T], value: object) -> tuple[T, ...]:
    return tuple(parse(item) for item in _list(value))


def _list(value: object) -> list[Any]:
    return _is(list, value)


def _count(value: object) -> int:
    if _is(int, value) < 0:
        raise ValueError(f"{value} is negative")
    return cast(int, value)


def _is(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
