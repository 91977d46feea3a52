"""What instructions compute: nothing is said of a form that means something else."""

from __future__ import annotations

import pytest

from tilesim.cubin.arithmetic import computed, number
from tilesim.cubin.sass import Instruction

#: what each register of the operands holds
VALUES = {"R2": 0x0001_FFFF, "R3": 0x0000_0001, "R4": 0x8000_0000, "R5": 0x7000_0000, "P1": 1}


@pytest.mark.parametrize(
    ("opcode", "operands", "register", "value"),
    [
        ("VIADD", "R0, R2, 0x1", "R0", 0x0002_0000),
        ("VIADD.16x2", "R0, R2, 0x1", "R0", None),
        ("IADD3", "R0, P0, R2, R3, RZ", "R0", 0x0002_0000),
        ("IADD3", "R0, P0, R2, R3, RZ", "P0", 0),
        ("IADD3", "R0, P0, R4, R4, R3", "P0", 1),
        ("IADD3", "R0, P0, P2, R4, R4, R3", "P2", 0),
        ("IADD3", "R0, P0, R4, -R4, RZ", "P0", 1),
        ("IADD.64", "R0, R2, R4", "R1", 0x7000_0001),
        ("IADD3.X", "R0, R2, R3, RZ, P1, !PT", "R0", 0x0002_0001),
        ("ISETP.LT.U32.AND", "P0, PT, R3, R4, PT", "P0", 1),
        ("ISETP.LT.AND", "P0, PT, R3, R4, PT", "P0", 0),
        ("ISETP.LT.AND", "P0, P2, R3, R4, PT", "P2", 1),
        ("ISETP.LT.U64.AND", "P0, PT, R2, R4, PT", "P0", 1),
        ("ISETP.LT.U32.AND.EX", "P0, PT, R3, R4, PT, P1", "P0", 1),
        ("ISETP.LT.U32.AND.EX", "P0, PT, R3, R3, PT, P1", "P0", 1),
        ("ISETP.GT.AND.EX", "P0, PT, R3, R4, PT, !P1", "P0", 1),
        ("LEA", "R0, P0, R4, R2, 0x1", "P0", 0),
        ("SHF.R.U64", "R0, R2, 0x10, R3", "R0", 0x0001_0001),
        ("UPOPC", "UR0, R2", "UR0", 17),
        ("FLO.U32", "R0, R4", "R0", 31),
        ("IMAD.HI.U32", "R0, P0, R4, R4, RZ", "R0", 0x4000_0000),
        ("IMAD.HI.U32", "R0, P0, R4, R4, RZ", "P0", None),
        ("IMAD.WIDE", "R0, R4, 0x2, RZ", "R1", 0xFFFF_FFFF),
        ("IMAD.WIDE.U32", "R0, R4, 0x2, R4", "R1", 0x7000_0001),
        ("IMAD.WIDE.U32.X", "R0, R4, 0x2, RZ, P1", "R1", None),
        ("SHF.R.S32.HI", "R0, RZ, 0x1f, R4", "R0", 0xFFFF_FFFF),
        ("SHF.L.W.U32.HI", "R0, R4, 0x1, R4", "R0", 1),
        ("LEA.HI", "R0, R4, R3, RZ, 0x1", "R0", 2),
        ("LEA.HI.X", "R0, R4, R3, RZ, 0x1, P1", "R0", 3),
        ("LOP3.LUT", "P0, RZ, R2, 0x1, RZ, 0xc0, !PT", "P0", 1),
        ("LOP3.LUT", "P0, RZ, R2, 0x1, RZ, 0xc0, !P1", "P0", 1),
        ("LOP3.LUT", "P0, RZ, R3, 0x2, RZ, 0xc0, P1", "P0", 1),
        ("LOP3.LUT", "P0, RZ, R3, 0x2, RZ, 0xc0, !P1", "P0", 0),
        ("LOP3.LUT.PAND", "P0, RZ, R3, 0x2, RZ, 0xc0, P1", "P0", None),
        ("PLOP3.LUT", "P0, PT, P1, PT, PT, 0x8, 0x0", "P0", 0),
        ("SEL", "R0, R2, R3, !P1", "R0", 1),
        ("SEL.64", "R0, R2, R4, P1", "R0", None),
        ("SGXT", "R0, R2, 0x10", "R0", 0xFFFF_FFFF),
        ("SGXT.U32", "R0, R2, 0x10", "R0", 0xFFFF),
        ("SGXT.W", "R0, R2, 0x10", "R0", None),
        ("PRMT", "R0, R2, 0x5410, R3", "R0", 0x0001_FFFF),
        ("PRMT", "R0, R4, 0xb123, RZ", "R0", 0xFF00_0080),
        ("PRMT.F4E", "R0, R2, R3, R3", "R0", None),
        ("VIMNMX", "R0, R3, R4, PT", "R0", 0x8000_0000),
        ("VIMNMX.U32", "R0, R3, R4, PT", "R0", 1),
        ("VIMNMX", "R0, PT, PT, R3, R4, !PT", "R0", 1),
        ("VIMNMX", "R0, P0, P1, R3, R4, !PT", "R0", None),
        ("VIMNMX.S16x2", "R0, R3, R4, PT", "R0", None),
        ("VIADDMNMX.RELU", "R0, R2, R3, R4, !PT", "R0", None),
        ("R2UR", "UR0, R2", "UR0", 0x0001_FFFF),
        ("R2UR.OR", "P0, UR0, R2", "UR0", None),
    ],
)
def test_what_it_computes(opcode: str, operands: str, register: str, value: int | None) -> None:
    term = computed(Instruction(0, "", opcode, tuple(operands.split(", "))), register)
    assert (None if term is None else number(term, VALUES)) == value
