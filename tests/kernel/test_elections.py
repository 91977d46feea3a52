"""What is certified at `ptx` is certified whichever lanes are elected (E12).

The kernel executes a program once for all choices of elect.sync. Here it executes some of them one
by one, as if the elected lane were named by its number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pytest

from tests.kernel.pairs import PAIRS
from tests.kernel.random_elections import Program, each_certified
from tests.kernel.test_litmus import PROGRAMS
from tests.litmus.table import Row
from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

#: choices of lanes that are tried for a program that is written, and for one that is random
TRIED, TRIED_OF_RANDOM = 1, 3
#: the programs are tried in so many tests, of which some are no campaign: which of them elect and
#: are certified takes making them
PARTS, QUICK = 7, 2


def elections(mir: Mir) -> bool:
    """Whether a program elects."""
    return any(isinstance(e.value, fx.Elects) for _, e in mir.all_of(fx.Defines))


def programs() -> Iterator[tuple[str, Callable[[], Mir]]]:
    """Programs of the pairs and litmus rows, which make their machine form."""
    for pair in PAIRS:
        for right in (True, False):
            yield f"{pair.program.__name__}-{right}", partial(pair.mir, right=right)
    for row in PROGRAMS:
        yield row.id, partial(_of_row, row)


def _of_row(row: Row) -> Mir:
    return lower(row.build())


@pytest.mark.parametrize(
    "part", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, PARTS))]
)
def test_each_choice_is_certified(part: int) -> None:
    tried = 0
    for name, made in islice(programs(), part, None, PARTS):
        mir = made()
        if elections(mir) and certify(mir, strict="ptx").verdict == "certified":
            assert each_certified(mir, random.Random(name), TRIED), name
            tried += 1
    assert tried > 200 // PARTS


@pytest.mark.parametrize("seed", range(2, 40))
def test_random_programs(seed: int) -> None:
    mir = Program(seed).mir()
    if certify(mir, strict="ptx").verdict == "certified":
        assert each_certified(mir, random.Random(seed), TRIED_OF_RANDOM)
