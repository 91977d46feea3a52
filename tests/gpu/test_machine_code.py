"""SM100 and SM103: every Blackwell kernel compiles, to the instructions that were intended."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilesim import Program
from tilesim.gpu.compile import Binary, compile_cubin
from tilesim.gpu.emit import emit
from tilesim.ir.op import Op
from tilesim.ir.ops.clc import ClcTryCancel
from tilesim.ir.ops.tcgen05 import (
    Tcgen05Alloc,
    Tcgen05Commit,
    Tcgen05Cp,
    Tcgen05Dealloc,
    Tcgen05Ld,
    Tcgen05Shift,
    Tcgen05St,
)
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma, Tcgen05MmaWs, Tcgen05Product
from tilesim.ir.ops.tma import TmaLoad, TmaStore
from tilesim.ir.program import instructions
from tilesim.kernels.registry import Case, cases

from . import needs
from .programs import PROGRAMS

pytestmark = needs.compiler

ARCHITECTURES = ("sm_100a", "sm_103a")
#: the unit that multiplies, by kind
UNITS = {
    "f16": "UTCHMMA", "tf32": "UTCHMMA", "f8f6f4": "UTCQMMA", "mxf8f6f4": "UTCQMMA",
    "i8": "UTCIMMA", "mxf4": "UTCOMMA", "mxf4nvf4": "UTCOMMA",
}  # fmt: skip
#: tcgen05.cp and ld/st: the modifier of a shape (None is written without one)
COPIES = {
    "128x256b": "", "4x256b": ".4dp256bit", "128x128b": ".128dp128bit",
    "64x128b": ".2x64dp128bit", "32x128b": ".4x32dp128bit",
}  # fmt: skip
MOVES = {
    "32x32b": "", "16x64b": ".16dp64bit", "16x128b": ".16dp128bit", "16x256b": ".16dp256bit",
    "16x32bx2": ".16dp32bit_t0_t15",
}  # fmt: skip
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
#: the families of instructions that only tensor memory and tensor copies have
_TENSOR = re.compile(r"UTC|LDTM|STTM|UTMALDG|UTMASTG|UGETNEXTWORKID")


def kernels() -> list[Case]:
    """The first row of every Blackwell kernel."""
    return list({case.kernel.function: case for case in reversed(cases("blackwell"))}.values())


def intended(op: Op) -> str | None:
    """What ``op`` becomes, as the start of a pattern; None: nothing of the tensor families."""
    match op:
        case Tcgen05Product(kind=kind, cta_group=group):
            form = ".WS" if isinstance(op, Tcgen05MmaWs) else ""
            blocks = r"(\.4X)?" if isinstance(op, Tcgen05Mma) and op.scale_vec == 4 else ""
            return rf"{UNITS[kind]}{form}{_pair(group)}{blocks}$"
        case Tcgen05Commit(cta_group=group, multicast=mask):
            return rf"UTCBAR{_pair(group)}{'' if mask is None else '.MULTICAST'}$"
        case Tcgen05Cp(cta_group=group, shape=shape):
            return rf"UTCCP\.T\.S{_pair(group)}{COPIES[shape]}"
        case Tcgen05Shift(cta_group=group):
            return rf"UTCSHIFT{_pair(group)}\.DOWN$"
        case Tcgen05Ld(shape=shape, src=view):
            return rf"LDTM{MOVES[shape]}(\.x\d+)?{'' if view.packed else '.PACK16BIT'}$"
        case Tcgen05St(shape=shape, dst=view):
            return rf"STTM{MOVES[shape]}(\.x\d+)?{'' if view.packed else '.EXPAND16BIT'}$"
        case Tcgen05Alloc(cta_group=group):
            return rf"UTCATOMSWS{_pair(group)}\.FIND_AND_SET"
        case Tcgen05Dealloc():
            return r"UTCATOMSWS\.AND$"
        case TmaLoad(cta_group=group):
            return rf"UTMALDG.*{_pair(2) if group == 2 else ''}"
        case TmaStore():
            return "UTMASTG"
        case ClcTryCancel(multicast=multicast):
            return rf"UGETNEXTWORKID\.{'BROADCAST' if multicast else 'SELFCAST'}"
        case _:
            return None


def _pair(group: int | None) -> str:
    return r"\.2CTA" if group == 2 else ""


def program_of(name: str) -> Program:
    """A program of this module by its name."""
    if name in PROGRAMS:
        return PROGRAMS[name]
    return next(case.build() for case in kernels() if case.target == name)


GALLERY = [case.target for case in kernels()]
TESTED = [(name, arch) for name in GALLERY for arch in ARCHITECTURES] + [
    ("tensor_memory", "sm_100a"), ("tensor_memory", "sm_103a"), ("products", "sm_100a"),
    ("paired_products", "sm_103a"),
]  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """A kernel of the gallery or of the test programs, and its machine code."""

    program: Program
    binary: Binary


@pytest.fixture(scope="module", params=TESTED, ids="-".join)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """Made once for all tests of one kernel, which follow each other."""
    name, arch = request.param
    program = program_of(name)
    return Compiled(program, compile_cubin(emit(program, arch=arch)))


def test_blackwell_compiles_without_local_memory(compiled: Compiled) -> None:
    binary = compiled.binary
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.resources.local_memory == 0
    assert binary.resources.warnings == ()


@needs.disassembler
def test_machine_code_has_the_intended_instructions(compiled: Compiled, tmp_path: Path) -> None:
    """Each tensor instruction of the program is there, and none that the program does not have."""
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.binary.cubin)
    assert needs.NVDISASM is not None
    listing = subprocess.run(
        [needs.NVDISASM, "-c", cubin], capture_output=True, text=True, check=True
    ).stdout
    found = {mnemonic for mnemonic in _INSTRUCTION.findall(listing) if _TENSOR.match(mnemonic)}
    patterns = {p: op for op in instructions(compiled.program) if (p := intended(op)) is not None}
    for pattern, op in patterns.items():
        assert any(re.match(pattern, m) for m in found), (op, pattern, found)
    halves = {m.replace("_t0_t15", "_t16_t31") for m in found if "_t0_t15" in m}
    for mnemonic in found - halves:
        assert any(re.match(pattern, mnemonic) for pattern in patterns), (mnemonic, patterns)
