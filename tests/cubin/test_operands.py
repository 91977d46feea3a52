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
        ("VOTEU.ANY", "UR4, UP0, P0", {"P0"}, {"UR4", "UP0"}),
        ("UFSETP.GT.AND", "UP0, UPT, UR4, UR5, UPT", {"UR4", "UR5"}, {"UP0"}),
    ],
)
def test_a_result_that_is_read_too(
    opcode: str, operands: str, reads: set[str], writes: set[str]
) -> None:
    one = Instruction(0, "", opcode, tuple(operands.split(", ")))
    assert read(one) == reads
    assert set(written(one)) == writes


@pytest.mark.parametrize(
    ("opcode", "operands"),
    [
        ("LDG.E.ENL2.256", "R12, R8, desc[UR4][R2.64]"),
        ("TEX.LL", "R12, R8, R4, R6, UR4, 2D"),
    ],
)
def test_results_in_two_groups_of_registers(opcode: str, operands: str) -> None:
    one = Instruction(0, "", opcode, tuple(operands.split(", ")))
    assert {f"R{n}" for n in range(8, 16)} <= {*written(one)}


@pytest.mark.parametrize(
    ("opcode", "count"),
    [
        ("LDTM.x8", 8), ("LDTM.x32.PACK16BIT", 32), ("LDTM.16dp128bit.x8.PACK16BIT", 16),
        ("LDTM.16dp256bit", 4), ("LDTM.16dp32bit_t16_t31.x8", 8),
    ],
)  # fmt: skip
def test_registers_of_a_load_of_tensor_memory(opcode: str, count: int) -> None:
    one = Instruction(0, "", opcode, ("R4", "tmem[UR4]"))
    assert set(written(one)) == {f"R{4 + n}" for n in range(count)}
