"""Forms that ptxas is known to make wrongly: they are seen where they are, and nowhere else.

The cubins are what ptxas 12.8.93 makes of the kernels of the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cubin.compiled import kernels
from tests.gpu import needs
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Instruction
from tilesim.cubin.wrong_forms import WRONG_FORMS, known_wrong_forms
from tilesim.translation import validate

CUBINS = Path(__file__).with_name("wrong_forms")
#: by the cubin, the instruction
MADE = {
    "vimnmx_relu": "VIMNMX.RELU RZ, P0, P0, R2, 0x40, PT",
    "vimnmx3": "VIMNMX3 R5, R0, R0, R5, !PT",
}


@needs.disassembler
@pytest.mark.parametrize(("form", "name"), [*zip(WRONG_FORMS[:2], MADE, strict=True)])
def test_a_form_is_seen_in_what_shows_it(form: object, name: str) -> None:
    image = Image((CUBINS / f"{name}.cubin").read_bytes(), name)
    (function,) = disassemble(image, image.functions)
    (found,) = known_wrong_forms(function)
    assert found.form == form
    assert str(found.instruction) == MADE[name]
    assert found.sentence.startswith(MADE[name])


@pytest.mark.parametrize(
    ("opcode", "operands", "wrong"),
    [
        ("VIMNMX.RELU", "RZ, P0, P0, R2, 0x40, PT", True),
        ("VIMNMX.RELU", "R0, PT, P1, R2, 0x40, PT", True),
        ("VIMNMX.RELU", "R0, PT, PT, R2, 0x40, PT", False),
        ("VIMNMX.RELU", "R0, R2, 0x40, P1", False),
        ("VIMNMX", "R0, P0, P0, R2, 0x40, PT", False),
        ("VIMNMX3", "R5, R0, R0, R5, !PT", True),
        ("VIMNMX3.U32", "R5, R1, R2, R1, PT", True),
        ("VIMNMX3", "R5, R0, R6, R5, !PT", False),
        ("VIMNMX3", "R5, R0, RZ, RZ, !PT", False),
        ("VIMNMX3", "R5, R0, R6, 0x5, P0", False),
        ("IADD3", "R5, R0, R0, R5", False),
    ],
)
def test_forms(opcode: str, operands: str, wrong: bool) -> None:
    one = Instruction(0, "", opcode, tuple(operands.split(", ")))
    assert any(form.has(one) for form in WRONG_FORMS if form.has is not None) is wrong


@needs.disassembler
def test_an_order_that_is_lost_is_seen_by_translation_validation() -> None:
    image = Image((CUBINS / "wait_behind_branch.cubin").read_bytes(), "wait_behind_branch")
    (symbol,) = kernels(image)
    (lost,) = validate(image, symbol, image.ptx or "").findings
    assert (lost.kind, lost.sass) == ("scoreboard", "LDTM.x2 R6, tmem[UR4]")
    assert lost.text == "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r3];"
    (form,) = (one for one in WRONG_FORMS if one.has is None)
    assert lost.text in form.kernel
