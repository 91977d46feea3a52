"""The 32-bit instruction descriptors of emitted tcgen05.mma, field by field.

Widths and order of the fields are those of ``UMMA::InstrDescriptor`` and
``UMMA::InstrDescriptorBlockScaled`` in CUTLASS (``cute/arch/mma_sm100_desc.hpp``), which are those
of PTX ISA 9.7.16.4.2, Tables 42 to 44.
"""

from __future__ import annotations

import re

import pytest

from tilesim.gpu.emit import emit
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma, Tcgen05MmaSp, Tcgen05Product
from tilesim.ir.program import instructions

from .programs import PROGRAMS

#: (name, bits) from bit 0 on; a dash is reserved
PLAIN = [
    ("sparse_id", 2), ("sparse", 1), ("saturate", 1), ("c_format", 2), ("-", 1), ("a_format", 3),
    ("b_format", 3), ("a_negate", 1), ("b_negate", 1), ("a_major", 1), ("b_major", 1), ("n", 6),
    ("-", 1), ("m", 5), ("-", 1), ("max_shift", 2),
]  # fmt: skip
SCALED = [
    ("sparse_id", 2), ("sparse", 1), ("-", 1), ("b_scale_id", 2), ("-", 1), ("a_format", 3),
    ("b_format", 3), ("a_negate", 1), ("b_negate", 1), ("a_major", 1), ("b_major", 1), ("n", 6),
    ("scale_format", 1), ("m", 5), ("a_scale_id", 2), ("k_size", 1),
]  # fmt: skip
FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1,
           "e2m3": 3, "e3m2": 4, "e2m1": 5}  # fmt: skip
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
E2M1 = {"mxf4": 1, "mxf4nvf4": 1}
UE4M3, UE8M0 = 0, 1


def fields(value: int, layout: list[tuple[str, int]]) -> dict[str, int]:
    """The fields of a descriptor that are not 0."""
    assert sum(bits for _, bits in layout) == 32
    found = {}
    for name, bits in layout:
        part, value = value & (1 << bits) - 1, value >> bits
        if part:
            found[name] = part
    return found


def expected(op: Tcgen05Product) -> dict[str, int]:
    """What the descriptor of ``op`` says, but for fields that are 0."""
    m, n, _ = op.shape
    four_bits = E2M1.get(op.kind)
    said = {
        "sparse": int(isinstance(op, Tcgen05MmaSp)),
        "a_format": four_bits or FORMATS[op.a_type or op.a.dtype.name],
        "b_format": four_bits or FORMATS[op.b_type or op.b.dtype.name],
        "a_major": int(op.a_trans),
        "b_major": int(op.b_trans),
        "n": n // 8,
        "m": m // 16,
    }
    if isinstance(op, Tcgen05Mma) and op.block_scaled:
        said["scale_format"] = UE4M3 if op.scale_vec == 4 else UE8M0
        said["a_scale_id"] = said["b_scale_id"] = op.scale_id
    else:
        said["c_format"] = RESULTS[op.d.dtype.name]
    return {name: value for name, value in said.items() if value}


@pytest.mark.parametrize("name", ["tensor_memory", "products", "paired_products"])
def test_descriptors_say_what_the_instruction_is(name: str) -> None:
    source = emit(PROGRAMS[name])
    lines = [x for x in source.text.splitlines() if re.search(r"tcgen05\.mma[.\w:]* \[", x)]
    products = [op for op in instructions(PROGRAMS[name]) if isinstance(op, Tcgen05Product)]
    assert len(lines) == len(products)
    for op, line in zip(products, lines, strict=True):
        scaled = isinstance(op, Tcgen05Mma) and op.block_scaled
        after = line[line.rindex('"l"(') :]
        descriptor = re.search(r'"r"\((0x[0-9a-f]+)u', after)
        assert descriptor is not None
        assert fields(int(descriptor[1], 16), SCALED if scaled else PLAIN) == expected(op)


def test_the_selector_is_the_parity_of_the_metadata_column() -> None:
    """As in CUTLASS: the address of the pair of columns, and its low bit in the descriptor."""
    text = emit(PROGRAMS["products"]).text
    sparse = [line for line in text.splitlines() if "tcgen05.mma.sp." in line]
    picked = [line for line in sparse if "kind::i8" not in line]
    assert len(picked) == 3
    for line in picked:
        assert re.search(r'"r"\(\((.*?)\) & ~1u\), "r"\(0x[0-9a-f]+u \| \(\1\) & 1u\)', line)
    (integers,) = (line for line in sparse if "kind::i8" in line)
    assert "1u" not in integers.split('"r"')[2]
