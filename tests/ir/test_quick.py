"""Frozen dataclasses with the ``__init__`` of `tilesim.ir.frozen` are what they are without it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field, fields, make_dataclass, replace
from typing import Any

import pytest

from tilesim.ir.frozen import quick


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
    "words of quick": (
        {}, (("own", int), ("known", int), ("missing", list, {"default_factory": numbers}),
             ("cls", int, 0), ("make_missing", int, 1), ("default_cls", int, 2)),
    ),
}  # fmt: skip


def made(shape: str) -> type[Any]:
    """A frozen dataclass of one of the `SHAPES`."""
    options, rows = SHAPES[shape]
    columns = [
        (name, kind, *(field(**d) if isinstance(d, dict) else d for d in default))
        for name, kind, *default in rows
    ]
    return make_dataclass("Made", columns, frozen=True, **options)


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
def test_a_quick_one_takes_and_refuses_the_same_arguments(shape: str) -> None:
    plain, own = made(shape), quick(made(shape))
    assert own.__init__.__qualname__ == plain.__init__.__qualname__
    assert list(inspect.signature(own).parameters) == list(inspect.signature(plain).parameters)
    assert own.__init__.__annotations__ == plain.__init__.__annotations__
    found = [outcome(own, *call) for call in CALLS]
    assert found == [outcome(plain, *call) for call in CALLS]
    assert any(isinstance(one, list) for one in found)
    assert all(one.startswith("Made.__init__() ") for one in found if isinstance(one, str))


def test_a_wrong_argument_is_named() -> None:
    own = quick(made("simple"))
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        own()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'w'"):
        own(1, w=2)


@pytest.mark.parametrize("shape", ["simple", "slots", "named", "partly", "each alone"])
def test_a_quick_one_is_frozen_and_compares_as_before(shape: str) -> None:
    plain, own = made(shape), quick(made(shape))
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
    own = quick(made("slots"))
    assert own(1).made is not own(1).made
    given = [3]
    assert own(1, made=given).made is given


def test_a_class_that_inherits_fields_has_them_all() -> None:
    base = quick(made("simple"))
    more = [("z", int, field(default=4, kw_only=True))]
    inherited: type[Any] = quick(make_dataclass("Inherited", more, bases=(base,), frozen=True))
    assert repr(inherited(1, "b", z=5)) == "Inherited(x=1, y='b', made=[1, 2], z=5)"
    assert isinstance(inherited(1), base)


def test_what_it_cannot_make_is_refused() -> None:
    """Nothing would call ``__post_init__``, and nothing would set the second field."""
    late = make_dataclass("Late", ["x"], frozen=True, namespace={"__post_init__": print})
    left = make_dataclass("Left", ["x", ("y", int, field(init=False))], frozen=True)
    for cls in (late, left):
        with pytest.raises(AssertionError):
            quick(cls)
