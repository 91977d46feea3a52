"""Words of mbarriers against the states into which a program brought them on an H200."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.mbarrier_word import MOST, Mbarrier, decode, evidence

DUMPS = Path(__file__).parent / "dumps"
SM_90 = (9, 0)

#: what each state of `states.cu` is by PTX's rules: parity, pending, expected, tx-count
STATES = [
    (0, 1, 1, 0),  # new, count 1
    (0, MOST, MOST, 0),  # new, the greatest count
    (0, 4, 5, 0),  # one of 5 has arrived
    (0, 2, 5, 0),  # three of 5
    (1, 5, 5, 0),  # all: the phase is complete
    (0, 2, 2, 0),  # two phases are complete
    (0, 2, 2, 1),  # expect_tx
    (0, 2, 2, 1024),
    (0, 2, 2, MOST),
    (0, 2, 2, -1),  # complete_tx before expect_tx
    (0, 2, 2, -1024),
    (0, 2, 2, 768),  # expect_tx 1024, complete_tx 256
    (0, 0, 1, 4096),  # all have arrived, bytes lack
    (1, 1, 1, 0),  # and have come
    (0, 4, 4, 0),  # one of 5 has dropped out
    (1, 4, 4, 0),  # and the other 4 have arrived
    (0, 3, 5, 0),  # arrive.noComplete of 2
    (0, 3, 3, 0),  # inval: the word stays
    (0, 0, 2, 16),  # arrive.expect_tx, arrive: bytes lack
]


@pytest.fixture(scope="module")
def words() -> tuple[int, ...]:
    """The words of the 19 barriers: they begin at 1024 in shared memory."""
    shared = CoreDump(DUMPS / "states.nvcudmp.gz").ctas[0].shared
    assert shared is not None
    return struct.unpack_from("<19Q", shared, 1024)


def test_the_program_has_as_many_states() -> None:
    numbers = re.findall(r"// (\d+): ", (DUMPS / "states.cu").read_text())
    assert [int(n) for n in numbers] == list(range(len(STATES)))


@pytest.mark.parametrize("number", range(19))
def test_a_state_of_an_h200(words: tuple[int, ...], number: int) -> None:
    assert decode(words[number], SM_90) == Mbarrier(*STATES[number])


def _new(count: int) -> int:
    """What ptxas of CUDA 13.0 writes for mbarrier.init, for sm_90 to sm_121."""
    low = ((1 << 20) - count) << 1 & 0xFFFFFFFF
    high = ((1 << 20) - count) << 11 & 0xFFFFFFFF
    return high << 32 | low


@pytest.mark.parametrize("arch", [(9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)])
@pytest.mark.parametrize("count", [1, 2, 128, MOST])
def test_a_new_barrier_as_ptxas_writes_it(arch: tuple[int, int], count: int) -> None:
    assert decode(_new(count), arch) == Mbarrier(0, count, count, 0)


def test_what_the_layout_rests_on_is_said() -> None:
    assert "H200" in (evidence((9, 0)) or "")
    assert (evidence((10, 0)) or "").startswith("inferred")


@pytest.mark.parametrize("arch", [(8, 0), (8, 9), (9, 1), (13, 0), (0, 0)])
def test_an_architecture_that_is_not_known(arch: tuple[int, int]) -> None:
    assert decode(_new(1), arch) is None
    assert evidence(arch) is None


@pytest.mark.parametrize(
    "word",
    [
        0,  # never initialised
        (1 << 64) - 1,
        _new(1) | 1,
        _new(1) | 1 << 42,
        _new(4) & ~(0xFFFFF << 43) | (-5 % (1 << 20)) << 43,  # 5 pending of 4
        _new(1) | 1 << 41,  # tx-count -2^20, beyond PTX's range
        -1,
        1 << 64,
    ],
)
def test_a_word_that_is_no_mbarrier(word: int) -> None:
    assert decode(word, SM_90) is None
