"""Dataclasses of `tilesim.records` are what those of `dataclasses` are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tilesim.records import dataclass, field, fields, replace


def numbers() -> list[int]:
    return [1, 2]


X, Y = ("x", int), ("y", str, "y")
MADE = ("made", list, {"default_factory": numbers, "compare": False})
#: by name: options of ``dataclass``, and its fields, with a default or what ``field`` takes
SHAPES: Mapping[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "simple": ({}, (X, Y, MADE)),
    "slots": ({"slots": True}, (X, Y, MADE)),
    "named": ({"kw_only": True}, (Y, X, MADE)),
    "partly": ({"slots": True}, (X, ("z", int, {"default": 3, "kw_only": True}), Y)),
    "each alone": ({"eq": False}, (X, Y)),
    "empty": ({}, ()),
    "words of records": (
        {}, (("own", int), ("known", int), ("missing", list, {"default_factory": numbers}),
             ("cls", int, 0), ("make_missing", int, 1), ("default_cls", int, 2)),
    ),
}  # fmt: skip


def made(shape: str, make: Any, **others: bool) -> type[Any]:
    """The class of one of the `SHAPES` that ``make``, a ``dataclass``, makes."""
    options, rows = SHAPES[shape]
    body: dict[str, Any] = {"__annotations__": {name: kind for name, kind, *_ in rows}}
    for name, _, *default in rows:
        for one in default:
            body[name] = field(**one) if isinstance(one, dict) else one
    found: type[Any] = make(**{"frozen": True, **options, **others})(type("Made", (), body))
    return found


def outcome(cls: type[Any], positional: tuple[Any, ...], named: Mapping[str, Any]) -> object:
    """The fields of what a call makes, or what its exception says."""
    try:
        result = cls(*positional, **named)
    except TypeError as exc:
        return str(exc)
    return [getattr(result, f.name) for f in fields(result)]


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {}),
    ((1, "b"), {}),
    ((1, "b", [3]), {}),
    ((1, "b"), {"z": 4}),
    ((1, 2, [3], 4, 5, 6), {}),
    ((1, 2), {"default_cls": 7}),
    ((), {"x": 1}),
    ((), {"y": "b", "x": 1}),
    ((), {"x": 1, "made": []}),
    ((1,), {"x": 1}),
    ((1, "b", [3], 4, 5, 6, 7), {}),
    ((1,), {"w": 2}),
    ((), {"w": 2, "y": "b"}),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_takes_and_refuses_the_same_arguments(shape: str) -> None:
    plain, own = made(shape, dataclasses.dataclass), made(shape, dataclass)
    assert own.__init__.__qualname__ == plain.__init__.__qualname__
    assert str(inspect.signature(own)) == str(inspect.signature(plain))
    assert own.__init__.__annotations__ == plain.__init__.__annotations__
    found = [outcome(own, *call) for call in CALLS]
    assert found == [outcome(plain, *call) for call in CALLS]
    assert any(isinstance(one, list) for one in found)
    assert all(one.startswith("Made.__init__() ") for one in found if isinstance(one, str))


def test_a_wrong_argument_is_named() -> None:
    own = made("simple", dataclass)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        own()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'w'"):
        own(1, w=2)


@pytest.mark.parametrize("shape", ["simple", "slots", "named", "partly", "each alone"])
def test_a_record_is_frozen_and_compares_as_before(shape: str) -> None:
    plain, own = made(shape, dataclasses.dataclass), made(shape, dataclass)
    one, same, other = own(x=1), own(x=1), own(x=2)
    assert repr(one) == repr(plain(x=1))
    assert (one == same) is (plain(x=1) == plain(x=1))
    assert one != other
    assert hash(one) == (object.__hash__(one) if shape == "each alone" else hash(same))
    for name in ("x", "w"):
        with pytest.raises((FrozenInstanceError, TypeError)):  # with slots: also no such field
            setattr(one, name, 3)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        one.x = 3
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del one.x
    assert one.x == 1
    assert hasattr(one, "__dict__") is not SHAPES[shape][0].get("slots", False)
    changed = replace(one, x=2, y="b")
    assert [changed.x, changed.y, type(changed)] == [2, "b", own]
    assert [repr(copy.copy(one)), repr(copy.deepcopy(one))] == [repr(one)] * 2


def test_a_default_is_made_for_each() -> None:
    own = made("slots", dataclass)
    assert own(1).made is not own(1).made
    given = [3]
    assert own(1, made=given).made is given


def test_a_class_that_inherits_fields_has_them_all() -> None:
    base = made("simple", dataclass)
    body = {"__annotations__": {"z": int}, "z": field(default=4, kw_only=True)}
    inherited: type[Any] = dataclass(frozen=True)(type("Inherited", (base,), body))
    assert repr(inherited(1, "b", z=5)) == "Inherited(x=1, y='b', made=[1, 2], z=5)"
    assert isinstance(inherited(1), base)
    assert inherited(1) != inherited(1, z=5)
    assert inherited(1) != base(1)


@pytest.mark.parametrize("slots", [False, True])
def test_one_that_is_not_frozen_takes_assignments_and_has_no_hash(slots: bool) -> None:
    plain, own = (
        made("simple", make, frozen=False, slots=slots)
        for make in (dataclasses.dataclass, dataclass)
    )
    for cls in (plain, own):
        one = cls(1)
        one.x = 2
        assert one == cls(2) != cls(1)
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)


@dataclass(frozen=True, slots=True)
class Pair:
    """Has methods of its own for what would be made, and checks what it is given."""

    x: int
    y: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        assert self.x >= 0

    def __repr__(self) -> str:
        return f"<{self.x}>"


def test_methods_of_the_class_stay_and_its_check_is_called() -> None:
    assert repr(Pair(3)) == "<3>"
    with pytest.raises(AssertionError):
        Pair(-1)
    assert Pair(3, 4) == Pair(3)
    assert hash(Pair(3, 4)) == hash(Pair(3)) != hash(Pair(4))
    assert [(one.x, one.y) for one in (pickle.loads(pickle.dumps(Pair(3, 4))),)] == [(3, 4)]


def test_methods_are_compiled_when_they_are_looked_up() -> None:
    own = made("simple", dataclass)
    assert not any(inspect.isfunction(vars(own)[name]) for name in ("__init__", "__eq__"))
    assert own(1) == own(1)
    assert inspect.isfunction(vars(own)["__init__"])
    assert inspect.isfunction(vars(own)["__eq__"])
    assert not inspect.isfunction(vars(own)["__hash__"])


def test_what_it_cannot_make_is_refused() -> None:
    """Nothing would set the second field."""
    body = {"__annotations__": {"x": int, "y": int}, "y": field(init=False)}
    left: Any = dataclass(frozen=True)(type("Left", (), body))
    with pytest.raises(AssertionError, match="y is not a parameter"):
        left(1)
