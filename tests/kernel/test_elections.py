"""What is certified at `ptx` is certified whichever lanes are elected (E12).

The kernel executes a program once for all choices of elect.sync. Here it executes some of them one
by one, as if the elected lane were named by its number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.kernel.programs_counters import PAIRS
from tests.kernel.random_elections import Program, each_certified
from tests.kernel.test_litmus import PROGRAMS
from tilesim.ir import effects as fx
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.proof.check import certify

#: choices of lanes that are tried for a program
TRIED = 3


def elections(mir: Mir) -> bool:
    """Whether a program elects."""
    return any(isinstance(e.value, fx.Elects) for _, e in mir.all_of(fx.Defines))


def programs() -> Iterator[tuple[str, Mir]]:
    """Programs of the pairs and litmus rows that elect."""
    for pair in PAIRS:
        for right in (True, False):
            yield f"{pair.program.__name__}-{right}", pair.mir(right=right)
    for row in PROGRAMS:
        yield row.id, lower(row.build())


CERTIFIED = {
    name: mir
    for name, mir in programs()
    if elections(mir) and certify(mir, strict="ptx").verdict == "certified"
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_each_choice_is_certified(name: str) -> None:
    assert each_certified(CERTIFIED[name], random.Random(name), TRIED)


def test_that_is_tried_of_enough_programs() -> None:
    assert len(CERTIFIED) > 200


@pytest.mark.parametrize("seed", range(2, 40))
def test_random_programs(seed: int) -> None:
    mir = Program(seed).mir()
    if certify(mir, strict="ptx").verdict == "certified":
        assert each_certified(mir, random.Random(seed), TRIED)
