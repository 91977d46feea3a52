"""Arguments that functions of the API do not take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tilesim
from docs.generate_api import public
from tilesim import strategies
from tilesim.errors import UsageError

#: functions of the API; those with ``**options`` hand them on, and `render` has a style alone
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: thing
    for name, thing in (
        *public(),
        ("tilesim.recheck", tilesim.recheck),
        *((f"strategies.{n}", getattr(strategies, n)) for n in strategies.__all__),
    )
    if inspect.isfunction(thing) and not name.endswith((".render", ".mark.check", ".pipeline"))
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_option_is_said_with_those_there_are(name: str) -> None:
    function = FUNCTIONS[name]
    with pytest.raises(UsageError) as error:
        function(zzz=True)
    known = [p.name for p in inspect.signature(function).parameters.values()]
    named = [n for n in known if n != "function"]  # what a decorator is given has no name
    last = name.rpartition(".")[2]
    said = f"{last} has no option zzz; it has {', '.join(named) or 'none'}"
    assert str(error.value) == said


def test_what_is_meant_is_said() -> None:
    with pytest.raises(UsageError, match=r"no option schedule \(did you mean schedules"):
        FUNCTIONS["tilesim.check"](3, schedule=4)
    with pytest.raises(UsageError, match="takes no more than 2 without a name, 3 were"):
        FUNCTIONS["tilesim.simulate"](3, {}, "ptx")
