"""What instructions read and write."""

from __future__ import annotations

import pytest

from tilesim.cubin.operands import read, written
from tilesim.cubin.sass import Instruction


@pytest.mark.parametrize(
    ("opcode", "operands", "reads", "writes"),
    [
        ("PLOP3.LUT", "P0, PT, P0, PT, PT, 0x8, 0x0", {"P0"}, {"P0"}),
        ("PLOP3.LUT", "P1, PT, P1, P0, PT, 0xa2, 0x0", {"P0", "P1"}, {"P1"}),
        ("UPLOP3.LUT", "UP0, UPT, UP1, UP0, UPT, 0x80, 0x0", {"UP0", "UP1"}, {"UP0"}),
        ("VOTE.ANY", "P0, P0", {"P0"}, {"P0"}),
        ("VOTE.ANY", "R2, PT, P0", {"P0"}, {"R2"}),
        ("ISETP.NE.AND", "P0, PT, R5, RZ, P0", {"R5", "P0"}, {"P0"}),
        ("IADD3", "R4, P0, R4, R5, RZ", {"R4", "R5"}, {"R4", "P0"}),
        ("MOV", "R4, R4", {"R4"}, {"R4"}),
    ],
)
def test_a_result_that_is_read_too(
    opcode: str, operands: str, reads: set[str], writes: set[str]
) -> None:
    one = Instruction(0, "", opcode, tuple(operands.split(", ")))
    assert read(one) == reads
    assert set(written(one)) == writes
