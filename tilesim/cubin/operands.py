"""Operands of instructions: what their texts name, and which registers an instruction writes.

A register is named as nvdisasm prints it: ``R5``, ``UR4`` (of the warp), ``P0``, ``UP0``
(predicates). ``RZ``, ``URZ`` are 0, ``PT``, ``UPT`` are true.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Literal

from tilesim.cubin.sass import Instruction
from tilesim.records import dataclass

WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Register:
    """A register, or a predicate. ``sign``: ``-`` (minus), ``~`` or ``!`` (not), ``|`` (absolute
    value), or nothing. ``part``: what stands behind it (``64``, ``H1_H1``, ``B1``)."""

    name: str
    sign: str = ""
    part: str = ""


@dataclass(frozen=True)
class Immediate:
    """A number, as 32 bits; None of a floating-point number, whose bits depend on the opcode."""

    value: int | None
    text: str = ""


@dataclass(frozen=True)
class Constant:
    """A word of a constant bank: ``c[bank][register+offset]``."""

    bank: int
    offset: int
    register: str | None = None
    sign: str = ""


@dataclass(frozen=True)
class Memory:
    """An address: the sum of registers, each scaled, and a number.

    ``space``: what stands before the brackets (``desc``, ``gdesc``, ``tmem``), or nothing.
    ``wide``: the first register is the low half of a pair, an address of 64 bits.
    """

    registers: tuple[tuple[str, int], ...]
    offset: int
    space: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Other:
    """A special register (``SR_TID.X``), a barrier of convergence, a label, a list."""

    text: str


Operand = Register | Immediate | Constant | Memory | Other

_REGISTER = re.compile(r"([-~!|]?)(U?R(?:\d+|Z)|U?P(?:\d|T))(?:\.([\w.]+))?(\|?)$")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
_FLOAT = re.compile(r"[-+]?(?:\d[\d.e+-]*|INF|QNAN|SNAN)(?:\.\w+)?$")
_CONSTANT = re.compile(r"([-~]?)c\[(0x[0-9a-f]+)\]\[(?:(U?R(?:\d+|Z))\+?)?(-?0x[0-9a-f]+)?\]$")
_MEMORY = re.compile(r"(?:(\w+)?(?:\[(U?R\w+)\])?)?\[([^\[\]]*)\]$")
_TERM = re.compile(r"(U?R(?:\d+|Z))((?:\.\w+)*)$")


@lru_cache(maxsize=1 << 14)
def parse(text: str) -> Operand:
    """What an operand's text names."""
    if found := _REGISTER.match(text):
        if (found[1] == "|") == bool(found[4]):
            return Register(found[2], found[1], found[3] or "")
        return Other(text)
    if _NUMBER.match(text):
        return Immediate(int(text, 0) & WORD, text)
    if found := _CONSTANT.match(text):
        register = found[3] if found[3] not in (None, "RZ", "URZ") else None
        return Constant(int(found[2], 16), int(found[4] or "0", 16), register, found[1])
    if text.endswith("]"):
        return _memory(text) or Other(text)
    if _FLOAT.match(text):
        return Immediate(None, text)
    return Other(text)


def _memory(text: str) -> Memory | None:
    found = _MEMORY.match(text)
    if not found:
        return None
    registers: list[tuple[str, int]] = []
    offset, wide = 0, False
    for term in found[3].replace("+-", "+0-").replace("-", "+-").split("+"):
        if _NUMBER.match(term):
            offset += int(term, 0)
            continue
        one = _TERM.match(term)
        if not one:
            if term in ("", "0"):
                continue
            return None
        scale = 1
        for part in one[2].split(".")[1:]:
            if part == "64":
                wide = True
            elif part.startswith("X") and part[1:].isdecimal():
                scale = int(part[1:])
            elif part not in ("U32", "S32"):
                return None
        if one[1] not in ("RZ", "URZ"):
            registers.append((one[1], scale))
    return Memory(tuple(registers), offset, found[1] or "", wide)


def half(value: str) -> int | None:
    """The bits of a floating-point number of 16 bits, as nvdisasm prints it; None of others."""
    try:
        return int(struct.unpack("<H", struct.pack("<e", float(value)))[0])
    except (ValueError, OverflowError):
        return None


def following(name: str, count: int) -> tuple[str, ...]:
    """``count`` registers from one on: ``R4``, ``R5``, ..."""
    found = re.match(r"(U?R)(\d+)$", name)
    if not found:
        return ()
    return tuple(f"{found[1]}{int(found[2]) + n}" for n in range(count))


#: opcodes of which no operand is written
_WRITE_NOTHING = frozenset(
    {
        "ACQBULK", "ARRIVES", "BAR", "BPT", "BRA", "BREAK", "BRX", "BRXU", "BSSY", "BSYNC", "CCTL",
        "CCTLL", "CGAERRBAR", "DEPBAR", "ERRBAR", "EXIT", "FENCE", "JMP", "JMX", "JMXU", "KILL",
        "LDGDEPBAR", "LDGSTS", "MEMBAR", "NANOSLEEP", "NOP", "PREEXIT", "RED", "REDAS", "REDG",
        "RET", "ST", "STAS", "STG", "STL", "STS", "STSM", "STTM", "SUST", "UBLKCP", "UBLKPF",
        "UBLKRED", "UCGABAR_ARV", "UCGABAR_WAIT", "UGETNEXTWORKID", "UTCBAR", "UTCCP", "UTCHMMA",
        "UTCIMMA", "UTCOMMA", "UTCQMMA", "UTCSHIFT", "UTMACCTL", "UTMACMDFLUSH", "UTMALDG",
        "UTMAPF", "UTMAREDG", "UTMASTG", "WARPGROUP", "WARPSYNC", "YIELD",
    }
)  # fmt: skip
#: opcodes that write one register, where their modifiers do not say more
_WRITE_ONE = frozenset(
    {
        "ATOM", "ATOMG", "ATOMS", "B2R", "BMSK", "BREV", "CREDUX", "ELECT", "F2F", "F2FP", "F2I",
        "FADD", "FFMA", "FLO", "FMNMX", "FMNMX3", "FMUL", "FRND", "FSEL", "FSET", "HADD2", "HFMA2",
        "HMNMX2", "HMUL2", "HSET2", "I2F", "I2FP", "IABS", "IADD", "IADD3", "IDP", "IMAD", "LD",
        "LDC", "LDCU", "LDG", "LDL", "LDS", "LEA", "LEPC", "LOP3", "MATCH", "MOV", "MOV32I", "MUFU",
        "P2R", "POPC", "PRMT", "R2UR", "REDUX", "S2R", "S2UR", "SEL", "SGXT", "SHF", "SHFL",
        "SYNCS", "UBMSK", "UBREV", "UFLO", "UIABS", "UIADD3", "UIMAD", "ULDC", "ULEA", "ULOP3",
        "UMOV", "UP2UR", "UPOPC", "UPRMT", "UR2UP", "USEL", "USETMAXREG", "USGXT", "USHF",
        "UTCATOMSWS", "UVIADD",
        "UVIMNMX", "UVIMNMX3", "VIADD", "VIADDMNMX", "VIMNMX", "VIMNMX3", "VOTE", "VOTEU",
    }
)  # fmt: skip
#: opcodes that write predicates alone, and how many of their operands
_WRITE_PREDICATES = {
    "ISETP": 2, "UISETP": 2, "FSETP": 2, "DSETP": 2, "HSETP2": 2, "PLOP3": 2, "UPLOP3": 2,
    "UFSETP": 2, "FCHK": 1, "PSETP": 2,
}  # fmt: skip
#: shapes of ``LDTM`` of which ``x1`` writes one register; the first is written without a name
_ONE_REGISTER = ("32dp32bit", "16dp64bit", "16dp32bit_t0_t15", "16dp32bit_t16_t31")
#: opcodes whose results lie in two groups of registers, as those of loads of 256 bits (``ENL2``)
_TEXTURES = frozenset({"TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ"})
_ALL_PREDICATES = tuple(f"P{n}" for n in range(7))
_ALL_UNIFORM_PREDICATES = tuple(f"UP{n}" for n in range(7))
#: of what an opcode writes that is not listed: registers from its first one on
_UNLISTED = 8


def _results(base: str, operands: tuple[str, ...]) -> int:
    """How many of its operands, from the first one on, can be results, as far as its name says."""
    if base in ("VOTE", "VOTEU"):
        return 1 if operands[:1] and "P" in operands[0] else 2
    return _WRITE_PREDICATES.get(base, len(operands))


@lru_cache(maxsize=1 << 14)
def _written(opcode: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    base, *modifiers = opcode.split(".")
    if base in _WRITE_NOTHING:
        return ()
    if base == "R2P":
        return _ALL_PREDICATES
    if base == "UR2UP":
        return _ALL_UNIFORM_PREDICATES
    found: list[str] = []
    left = 2 if base in _TEXTURES or "ENL2" in modifiers else 1
    for text in operands[: _results(base, operands)]:
        one = parse(text)
        if not isinstance(one, Register) or one.sign:
            break
        if "P" in one.name:
            found.append(one.name)
            continue
        if not left:
            break
        left -= 1
        if one.name in ("RZ", "URZ"):
            found.append(one.name)
        else:
            found += following(one.name, _width(base, modifiers, operands))
    return tuple(name for name in found if name not in ("RZ", "URZ", "PT", "UPT"))


def written(instruction: Instruction) -> tuple[str, ...]:
    """The registers and predicates that an instruction can write: at least all those that it does.

    A call of another function, which can write all, is not seen here.
    """
    return _written(instruction.opcode, instruction.operands)


def _width(base: str, modifiers: list[str], operands: tuple[str, ...]) -> int:
    """How many registers it writes from the first one on."""
    if base in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        shape = re.match(r"(\d+)x(\d+)x", modifiers[0]) if modifiers else None
        return int(shape[2]) // 2 if shape else 256
    if base == "LDTM":
        count = next((int(m[1:]) for m in modifiers if re.match(r"x\d+$", m)), 1)
        # 16x256b.x1 takes 4, 16x128b 2, 16x64b and 32x32b 1; what else there is is not known
        widths = {"16dp256bit": 4, "16dp128bit": 2, **dict.fromkeys(_ONE_REGISTER, 1)}
        # packed values are in as many registers
        named = [m for m in modifiers if not re.match(r"x\d+$", m) and m != "PACK16BIT"]
        shapes = named or [_ONE_REGISTER[0]]
        return count * max(widths.get(shape, 4) for shape in shapes)
    if base == "LDSM":
        return next((int(one) for one in modifiers if one in ("2", "4")), 1)
    if base == "CS2R":
        return 1 if "32" in modifiers else 2
    if base in ("LEPC", "SYNCS", "FADD2", "FMUL2", "FFMA2"):
        return 2
    sizes = {"64": 2, "96": 3, "128": 4, "256": 8, "WIDE": 2, "F64": 2, "S64": 2, "U64": 2}
    most = max((sizes.get(one, 1) for one in modifiers), default=1)
    return max(most, 1 if base in _WRITE_ONE else _UNLISTED)


@dataclass(frozen=True)
class MbarrierOperand:
    """The address of an mbarrier in an instruction: the sum of registers and a number, of which
    bits 0-23 are the place in shared memory, those above the CTA of the cluster.

    ``does``: ``init``, ``wait``, ``arrive`` (arrivals, with ``expect_tx`` or not), ``complete`` (a
    copy or an MMA completes on it), ``other`` (``mbarrier.inval``).
    """

    registers: tuple[str, ...]
    offset: int
    does: Literal["init", "wait", "arrive", "complete", "other"]


def mbarrier_operand(instruction: Instruction) -> MbarrierOperand | None:
    """The mbarrier that an instruction works on; None if it works on none.

    Of ``STAS`` and ``REDAS`` (``st.async``, ``red.async``) the second register has it.
    """
    base, modifiers = instruction.base, instruction.modifiers
    memories = [m for m in map(parse, instruction.operands) if isinstance(m, Memory)]
    if not memories:
        return None
    first = memories[0]
    names = tuple(name for name, _ in first.registers)
    if base == "SYNCS":
        if "EXCH" in modifiers:
            return MbarrierOperand(names, first.offset, "init")
        if "PHASECHK" in modifiers:
            return MbarrierOperand(names, first.offset, "wait")
        if "ARRIVE" in modifiers:
            return MbarrierOperand(names, first.offset, "arrive")
        return MbarrierOperand(names, first.offset, "other")
    if base == "ARRIVES":
        return MbarrierOperand(names, first.offset, "arrive")
    if base == "UTCBAR":
        return MbarrierOperand(names, first.offset, "complete")
    if base == "UGETNEXTWORKID" and len(memories) > 1:
        second = memories[1]
        return MbarrierOperand(
            tuple(name for name, _ in second.registers), second.offset, "complete"
        )
    bulk = base in ("UBLKCP", "UBLKRED") and modifiers[:1] == ("S",)
    to_shared = base == "UTMALDG" or bulk
    if to_shared and len(names) == 1:
        return MbarrierOperand(following(names[0], 2)[1:], 0, "complete")
    if base in ("STAS", "REDAS") and len(names) == 1:
        return MbarrierOperand(following(names[0], 2)[1:], 0, "complete")
    return None


@lru_cache(maxsize=1 << 14)
def _read(opcode: str, guard: str, operands: tuple[str, ...]) -> frozenset[str]:
    base = opcode.partition(".")[0]
    results = {*_written(opcode, operands), "RZ", "URZ", "PT", "UPT"}
    most = _results(base, operands)
    found = {guard.lstrip("!")} if guard else set()
    written_none = base in _WRITE_NOTHING
    register = begun = False  # a register was a result already; the results are over
    for n, text in enumerate(operands):
        one = parse(text)
        begun |= n >= most
        if isinstance(one, Register):
            predicate = "P" in one.name
            begun |= bool(one.sign) or one.name not in results or (register and not predicate)
            register |= not predicate
            if begun or written_none:
                found |= {one.name, *(following(one.name, 2) if one.part == "64" else ())}
            continue
        begun = True
        if isinstance(one, Constant) and one.register:
            found.add(one.register)
        elif isinstance(one, Memory):
            found |= {name for name, _ in one.registers}
            if one.wide and one.registers:
                found |= {*following(one.registers[0][0], 2)}
            if text.startswith("desc["):
                found |= {*following(text[5 : text.index("]")], 2)}
    return frozenset(found - {"RZ", "URZ", "PT", "UPT"})


def read(instruction: Instruction) -> frozenset[str]:
    """The registers and predicates that an instruction reads, its guard included: those that its
    operands name, of a value wider than 32 bits that is no address the first one only."""
    return _read(instruction.opcode, instruction.guard, instruction.operands)
