"""How much more is done for PTX that is twice as long: counted in calls, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from tilesim.checker import check
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a) .reqntid 32
{
.reg .pred %p<3>; .reg .b32 %r<9>;
mov.u32 %r1, %tid.x;
"""


def branches(number: int) -> str:
    """Branches on which lanes part, one behind another."""
    ways = (f"setp.eq.u32 %p1, %r1, {i}; @%p1 bra L{i}; membar.cta; L{i}:\n" for i in range(number))
    return f"{HEAD}{''.join(ways)}ret;\n}}\n"


def checked(text: str) -> None:
    module = read(text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (32, 1, 1), params=(Pointer("a", 64),))
    assert check(lower(module, module.entries[0], launch)).verdict == "proved"


def calls(action: Callable[[], None]) -> int:
    """How many functions are called, those in C included."""
    made = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("make", [branches])
def test_twice_as_many_take_about_twice_as_much(make: Callable[[int], str]) -> None:
    checked(make(2))  # what is done once
    few, many = (calls(partial(checked, make(n))) for n in (100, 200))
    assert many < 2.1 * few
