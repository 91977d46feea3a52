"""What opcodes of sm_90 and sm_100 do, for `tests.autopsy.sass_machine`.

`OPCODES` has them by their names without modifiers. Each is given the lanes that stand at the
instruction, and those of them for which its guard holds; it says whether lanes go back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.autopsy.sass_machine import (
    ALL,
    LANES,
    PARAMETERS,
    UNKNOWN,
    WINDOW,
    WORD,
    Buffer,
    Constant,
    Cta,
    Execute,
    Machine,
    Number,
    Operand,
    Place,
    Predicate,
    Register,
    Unsupported,
    Values,
    Warp,
    bits_of,
    lanes_of,
    of_lane,
    parse,
    signed,
)
from tilesim.autopsy.mbarrier_word import decode
from tilesim.cubin.sass import Instruction
from tilesim.sim.machine.register_pool import PARTITIONS

OPCODES: dict[str, Execute] = {}


def _opcode(*names: str) -> Callable[[Execute], Execute]:
    def note(execute: Execute) -> Execute:
        for name in names:
            OPCODES[name] = execute
        return execute

    return note


def _operands(one: Instruction) -> list[Operand]:
    return [parse(text) for text in one.operands]


def _split(one: Instruction) -> tuple[Operand, list[Operand], list[Operand], list[Operand]]:
    """The result, predicates that are results, sources, predicates behind these."""
    first, *rest = _operands(one)
    results: list[Operand] = []
    while rest and isinstance(rest[0], Predicate):
        results.append(rest.pop(0))
    given: list[Operand] = []
    while rest and isinstance(rest[-1], Predicate):
        given.insert(0, rest.pop())
    return first, results, rest, given


def _known(*values: Values) -> NDArray[np.bool_]:
    found = values[0] >= 0
    for one in values[1:]:
        found = found & (one >= 0)
    return found


def _only(known: NDArray[np.bool_], values: Any) -> Values:
    return np.where(known, values, UNKNOWN).astype(np.int64)


_ORDER = """
NOP YIELD FENCE MEMBAR ERRBAR CGAERRBAR CCTL CCTLL DEPBAR LDGDEPBAR WARPGROUP UTMACMDFLUSH UTMAPF
UTMACCTL PREEXIT NANOSLEEP UTMASTG UTMAREDG UBLKRED UBLKPF STTM UTCHMMA UTCQMMA UTCIMMA UTCOMMA
UTCCP UVIRTCOUNT ACQBULK LDGSTS PMTRIG STL UTCSHIFT
"""
_DATA = """
FADD FMUL FFMA FMNMX F2FP MUFU HADD2 HMUL2 I2F I2FP F2F F2I LDSM MOVM HMMA IMMA QMMA LDTM HGMMA
QGMMA IGMMA FADD2 FMUL2 FFMA2 FSWZADD HMNMX2 LDL FMNMX3 DMUL DADD
"""


@_opcode(*_ORDER.split())
def _nothing(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    """Orders what is in order here, or concerns data only."""


def _compute(count: int) -> Callable[[Callable[..., Any]], Execute]:
    """An opcode with a result and ``count`` sources, all 32 bits."""

    def of(function: Callable[..., Any]) -> Execute:
        def execute(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
            result, _, sources, _ = _split(one)
            values = [m.value(w, s) for s in sources[:count]]
            m.set(w, result, _only(_known(*values), function(*values) & WORD), guard)

        return execute

    return of


OPCODES["MOV"] = OPCODES["UMOV"] = _compute(1)(lambda a: a)
OPCODES["VIADD"] = OPCODES["UVIADD"] = _compute(2)(lambda a, b: a + b)


@_opcode("IMAD", "UIMAD")
def _imad(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, sources, given = _split(one)
    wide, high = "WIDE" in one.modifiers, "HI" in one.modifiers
    with_sign = "U32" not in one.modifiers
    a, b = m.value(w, sources[0]), m.value(w, sources[1])
    if not wide and not high:
        if one.modifiers[:1] == ("MOV",):
            c = m.value(w, sources[2])
            m.set(w, result, c, guard)
            return
        c = m.value(w, sources[2])
        carry = (
            m.predicate(w, given[0]) if given and "X" in one.modifiers else np.zeros(1, np.int64)
        )
        known = _known(a, b, c, carry)
        product = np.where(known, (_low_product(a, b) + c + carry) & WORD, UNKNOWN)
        m.set(w, result, product, guard)
        return
    c64 = m.wide(w, sources[2]) if len(sources) > 2 else [0]
    size = max(len(a), len(b), len(c64))
    low, upper = np.full(size, UNKNOWN, np.int64), np.full(size, UNKNOWN, np.int64)
    for n in range(size):
        x, y, z = int(a[n % len(a)]), int(b[n % len(b)]), c64[n % len(c64)]
        if x < 0 or y < 0 or z < 0:
            continue
        if with_sign:
            x, y = x - (x >> 31 << 32), y - (y >> 31 << 32)
        total = x * y + z & (1 << 64) - 1
        low[n], upper[n] = total & WORD, total >> 32
    if high:
        m.set(w, result, upper, guard)
    else:
        m.set(w, result, low, guard)
        m.set(w, result, upper, guard, 1)


def _low_product(a: Values, b: Values) -> Values:
    return ((a & 0xFFFF) * b + (((a >> 16) * (b & 0xFFFF)) << 16)) & WORD


@_opcode("IADD3", "UIADD3", "IADD", "UIADD")
def _iadd(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, carries, sources, given = _split(one)
    extended = "X" in one.modifiers
    total: Any = np.zeros(1, np.int64)
    known = np.ones(1, bool)
    for source in sources:
        assert isinstance(source, Register | Number | Constant), source
        if isinstance(source, Number):
            sign, values = "", m.value(w, source)
        else:
            sign, values = source.sign, m.value(w, source._replace(sign=""))
        known = known & (values >= 0)
        if sign == "-":
            values = (~values & WORD) + (0 if extended else 1)
        elif sign == "~":
            values = ~values & WORD
        total = total + values
    if extended:
        for predicate in given:
            value = m.predicate(w, predicate)
            known = known & (value >= 0)
            total = total + value
    m.set(w, result, _only(known, total & WORD), guard)
    for n, carry in enumerate(carries):
        m.set(w, carry, _only(known, total >> 32 > n), guard)


@_opcode("LEA", "ULEA")
def _lea(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, carries, sources, given = _split(one)
    shift = sources[-1]
    assert isinstance(shift, Number), one
    n = shift.value
    high, sx = "HI" in one.modifiers, "SX32" in one.modifiers
    a, b = m.value(w, sources[0]), m.value(w, sources[1])
    known = _known(a, b)
    if high:
        if sx:
            shifted = (signed(a) >> 32 - n) & WORD
        else:
            upper = m.value(w, sources[2])
            known = known & (upper >= 0)
            shifted = ((upper << n) | (a >> 32 - n)) & WORD
    else:
        shifted = (a << n) & WORD
    carry = m.predicate(w, given[0]) if given and "X" in one.modifiers else np.zeros(1, np.int64)
    total = shifted + b + carry
    known = known & (carry >= 0)
    m.set(w, result, _only(known, total & WORD), guard)
    for place in carries[:1]:
        m.set(w, place, _only(known, total >> 32 > 0), guard)


def _lut(table: int, values: list[Values], ones: int) -> Values:
    a, b, c = values
    found = a & 0
    for n in range(8):
        if table >> n & 1:
            x = a if n & 4 else ~a & ones
            y = b if n & 2 else ~b & ones
            z = c if n & 1 else ~c & ones
            found = found | (x & y & z)
    return found


@_opcode("LOP3", "ULOP3", "PLOP3", "UPLOP3")
def _lop(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    operands = _operands(one)
    if one.base.endswith("PLOP3"):
        values = [m.predicate(w, p) for p in operands[2:5]]
        for n in (0, 1):
            table = operands[5 + n]
            assert isinstance(table, Number)
            m.set(w, operands[n], _lut_known(table.value, values, 1), guard)
        return
    places = [] if not isinstance(operands[0], Predicate) else [operands.pop(0)]
    result, a, b, c, table, *_ = operands
    assert isinstance(table, Number)
    found = _lut_known(table.value, [m.value(w, x) for x in (a, b, c)], WORD)
    m.set(w, result, found, guard)
    for place in places:
        m.set(w, place, np.where(found < 0, UNKNOWN, found != 0), guard)


def _lut_known(table: int, values: list[Values], ones: int) -> Values:
    """A function of bits, where its result is the same whatever is not known."""
    size = max(map(len, values))
    wide = [np.broadcast_to(v, size) for v in values]
    unknown = [v < 0 for v in wide]
    low = [np.where(u, 0, v) for u, v in zip(unknown, wide, strict=True)]
    first = _lut(table, low, ones)
    sure = np.ones(size, bool)
    for n in range(3):
        if unknown[n].any():
            other = [np.where(unknown[k], ones, v) if k == n else v for k, v in enumerate(low)]
            sure &= ~unknown[n] | (_lut(table, other, ones) == first)
    several = np.sum(unknown, axis=0) > 1
    return _only(sure & ~several, first)


@_opcode("SHF", "USHF")
def _shf(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, (a, n, c), _ = _split(one)
    low, count, high = m.value(w, a), m.value(w, n), m.value(w, c)
    left, upper = "L" in one.modifiers, "HI" in one.modifiers
    wide = bool({"U64", "S64"} & set(one.modifiers))
    most = 63 if wide else 32
    shift = (count & (most if "W" in one.modifiers and wide else 31)
             if "W" in one.modifiers else np.minimum(count, most))  # fmt: skip
    size = max(len(low), len(count), len(high))
    found = np.full(size, UNKNOWN, np.int64)
    with_sign = bool({"S32", "S64"} & set(one.modifiers))
    for k in range(size):
        x, s, y = int(low[k % len(low)]), int(shift[k % len(shift)]), int(high[k % len(high)])
        if x < 0 or y < 0 or int(count[k % len(count)]) < 0:
            continue
        if left:
            both = (y << 32 | x) << s
            found[k] = both >> 32 & WORD if upper else both & WORD
        else:
            top = y - (y >> 31 << 32) if with_sign else y
            both = (top << 32 | x) >> s
            found[k] = (top >> s) & WORD if upper else both & WORD
    m.set(w, result, found, guard)


_COMPARED: Mapping[str, Callable[[Values, Values], Any]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal,
}  # fmt: skip


@_opcode("ISETP", "UISETP")
def _isetp(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    first, second, left, right, *given = _operands(one)
    a, b = m.value(w, left), m.value(w, right)
    known = _known(a, b)
    if "U32" not in one.modifiers:
        a, b = signed(a), signed(b)
    compare = one.modifiers[0]
    found: Any = _COMPARED[compare](a, b)
    if "EX" in one.modifiers:
        low = m.predicate(w, given[1])
        known = known & (low >= 0)
        same = a == b
        if compare == "NE":
            found = ~same | (low > 0)
        elif compare == "EQ":
            found = same & (low > 0)
        else:
            found = np.where(same, low > 0, found)
    values = _only(known, found)
    other = np.where(values < 0, UNKNOWN, 1 - values)
    with_ = m.predicate(w, given[0])
    kind = "OR" if "OR" in one.modifiers else "XOR" if "XOR" in one.modifiers else "AND"
    table = {"AND": 0b11000000, "OR": 0b11111100, "XOR": 0b00111100}[kind]
    zero = np.zeros(1, np.int64)
    m.set(w, first, _lut_known(table, [values, with_, zero], 1), guard)
    m.set(w, second, _lut_known(table, [other, with_, zero], 1), guard)


@_opcode("SEL", "USEL", "FSEL")
def _sel(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, a, b, p = _operands(one)
    x, y, which = m.value(w, a), m.value(w, b), m.predicate(w, p)
    found = np.where(which < 0, np.where(x == y, x, UNKNOWN), np.where(which > 0, x, y))
    m.set(w, result, found, guard)


@_opcode("VIMNMX", "IMNMX", "UIMNMX", "VIADDMNMX", "UVIMNMX")
def _minmax(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, sources, given = _split(one)
    values = [m.value(w, s) for s in sources]
    known = _known(*values)
    if one.base == "VIADDMNMX":
        values = [(values[0] + values[1]) & WORD, values[2]]
    a, b = values
    least = m.predicate(w, given[0])
    known = known & (least >= 0)
    if "U32" not in one.modifiers:
        a, b = signed(a), signed(b)
    found = np.where(least > 0, np.minimum(a, b), np.maximum(a, b))
    if "RELU" in one.modifiers:
        found = np.maximum(found, 0)
    m.set(w, result, _only(known, found & WORD), guard)


@_opcode("PRMT", "UPRMT")
def _prmt(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, (a, selector, b), _ = _split(one)
    x, s, y = m.value(w, a), m.value(w, selector), m.value(w, b)
    known = _known(x, s, y)
    both = (np.where(y < 0, 0, y) << 32) | np.where(x < 0, 0, x)
    found: Any = np.zeros(1, np.int64)
    for n in range(4):
        nibble = s >> 4 * n & 0xF
        byte = both >> 8 * (nibble & 7) & 0xFF
        byte = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        found = found | byte << 8 * n
    m.set(w, result, _only(known, found & WORD), guard)


@_opcode(
    "POPC", "UPOPC", "FLO", "UFLO", "BREV", "UBREV", "IABS", "R2P", "SGXT", "BMSK", "UBMSK", "USGXT"
)
def _bit_function(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, sources, _ = _split(one)
    values = m.value(w, sources[0])

    def of(x: int) -> int:
        match one.base.removeprefix("U"):
            case "POPC":
                return x.bit_count()
            case "FLO":
                top = x.bit_length() - 1
                return (31 - top if "SH" in one.modifiers else top) & WORD
            case "BREV":
                return int(f"{x:032b}"[::-1], 2)
            case "IABS":
                return abs(x - (x >> 31 << 32))
            case "SGXT" if one.modifiers == ("U32",) and isinstance(sources[1], Number):
                return x & (1 << sources[1].value) - 1
        raise Unsupported(one.opcode)

    found = np.array([UNKNOWN if x < 0 else of(int(x)) for x in values], np.int64)
    m.set(w, result, found, guard)


@_opcode("HFMA2")
def _half_constant(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    """Two halves of zero times zero and a constant: how ptxas spells some constants."""
    operands = one.operands
    found = UNKNOWN
    if len(operands) == 5 and operands[1].lstrip("-") == operands[2] == "RZ":
        halves = [np.frombuffer(np.float16(float(x)).tobytes(), np.uint16)[0] for x in operands[3:]]
        found = int(halves[0]) << 16 | int(halves[1])
    m.set(w, parse(operands[0]), np.array([found]), guard)


@_opcode("S2R", "S2UR", "CS2R")
def _special(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, name = one.operands
    lanes = np.arange(LANES)
    thread = w.number * LANES + lanes
    bx, by, _ = m.launch.block
    cta = w.cta
    values: Mapping[str, Any] = {
        "SR_TID.X": thread % bx, "SR_TID.Y": thread // bx % by, "SR_TID.Z": thread // (bx * by),
        "SR_TID": (thread % bx) | (thread // bx % by) << 16 | (thread // (bx * by)) << 26,
        "SR_CTAID.X": cta.index[0], "SR_CTAID.Y": cta.index[1], "SR_CTAID.Z": cta.index[2],
        "SR_LANEID": lanes, "SR_CgaCtaId": cta.rank, "SRZ": 0, "SR_LTMASK": (1 << lanes) - 1,
        "SR_LEMASK": (2 << lanes) - 1, "SR_EQMASK": 1 << lanes, "SR_CgaSize": len(cta.cluster.ctas),
        "SR_SWINHI": WINDOW,
    }  # fmt: skip
    found = np.atleast_1d(np.array(values.get(name, UNKNOWN), np.int64))
    m.set(w, parse(result), found, guard)
    if one.base == "CS2R" and "32" not in one.modifiers:
        m.set(w, parse(result), found if name == "SRZ" else np.array([UNKNOWN]), guard, 1)


@_opcode("LDC", "ULDC", "LDCU")
def _constant(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, source = _operands(one)
    assert isinstance(source, Constant)
    words = 4 if "128" in one.modifiers else 2 if "64" in one.modifiers else 1
    index = None if source.register is None else m.value(w, source.register)
    for n in range(words):
        if index is None:
            found = m.value(w, source, n)
        else:
            found = np.array(
                [
                    UNKNOWN if i < 0 else m.constants.get(source.offset + int(i) + 4 * n, UNKNOWN)
                    for i in index
                ]
            )
        for size, bits in (("U8", 8), ("U16", 16)):
            if size in one.modifiers:
                found = np.where(found < 0, UNKNOWN, found & (1 << bits) - 1)
        m.set(w, result, found, guard, n)


@_opcode("R2UR")
def _to_uniform(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    *others, result, source = _operands(one)[:3]
    values = np.broadcast_to(m.value(w, source), LANES)
    m.set(w, result, values, guard)
    if others and guard:  # the lanes that have another value than the one which is taken
        first = values[lanes_of(guard)[0]]
        m.set(w, others[0], np.where((values < 0) | (first < 0), UNKNOWN, values != first), guard)


@_opcode("SHFL")
def _shuffle(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    inside, result, source, which, limit = _operands(one)
    values = np.broadcast_to(m.value(w, source), LANES)
    other, bound = (
        np.broadcast_to(m.value(w, which), LANES),
        np.broadcast_to(m.value(w, limit), LANES),
    )
    found, valid = np.full(LANES, UNKNOWN, np.int64), np.zeros(LANES, np.int64)
    kind = one.modifiers[0]
    for lane in lanes_of(guard):
        if other[lane] < 0 or bound[lane] < 0:
            valid[lane] = UNKNOWN
            continue
        n, clamp, segment = int(other[lane]) & 31, int(bound[lane]) & 31, int(bound[lane]) >> 8 & 31
        low, high = lane & segment, (lane & segment) | (clamp & ~segment)
        place = {"IDX": low | (n & ~segment), "UP": lane - n, "DOWN": lane + n, "BFLY": lane ^ n}[
            kind
        ]
        ok = place >= high if kind == "UP" else place <= high
        valid[lane] = ok
        found[lane] = values[place if ok else lane]
    m.set(w, result, found, guard)
    m.set(w, inside, valid, guard)


@_opcode("VOTE", "VOTEU")
def _vote(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    *results, source = _operands(one)
    values = np.broadcast_to(m.predicate(w, source), LANES)
    active = [int(values[n]) for n in lanes_of(guard)]
    known = UNKNOWN not in active
    ballot = sum(1 << n for n in lanes_of(guard) if values[n] > 0)
    kind = one.modifiers[0]
    holds = {"ANY": any(active), "ALL": all(active), "EQ": len(set(active)) < 2}[kind]
    for place in results:
        found = int(holds) if isinstance(place, Predicate) else ballot
        m.set(w, place, np.array([found if known else UNKNOWN]), guard)


@_opcode("REDUX", "CREDUX")
def _reduce(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, _, sources, _ = _split(one)
    values = np.broadcast_to(m.value(w, sources[0]), LANES)
    active = [int(values[n]) for n in lanes_of(guard)]
    found = (
        active[0] if active and len(set(active)) == 1 and "SUM" not in one.modifiers else UNKNOWN
    )
    m.set(w, result, np.array([found]), guard)


@_opcode("ELECT")
def _elect(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    chosen, leader, among = _operands(one)
    values = np.broadcast_to(m.predicate(w, among), LANES)
    able = [n for n in lanes_of(guard) if values[n] > 0]
    if not guard:
        return
    found = np.zeros(LANES, np.int64)
    if able:
        found[able[0]] = 1
    m.set(w, chosen, found, guard)
    m.set(w, leader, np.array([able[0] if able else 0]), guard)


# ------------------------------------------------------------------ control flow


@_opcode("BRA", "JMP")
def _branch(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> bool:
    if "DIV" in one.modifiers:
        return False  # lanes that stand together are together here
    taken = _where(m, w, one, guard)
    if "ANY" in one.modifiers and taken:
        taken = mask
    if one.target is None:
        raise Unsupported(f"{one} goes where is not known")
    for lane in lanes_of(taken):
        w.pc[lane] = one.target
    return bool(taken) and one.target <= one.pc


def _where(m: Machine, w: Warp, one: Instruction, guard: int) -> int:
    """The lanes for which the predicates hold that a branch or an end has as operands."""
    for operand in _operands(one):
        if isinstance(operand, Predicate):
            values = np.broadcast_to(m.predicate(w, operand), LANES)
            if any(values[n] < 0 for n in lanes_of(guard)):
                raise Unsupported(f"where {one} at {one.pc:#x} goes is not known")
            guard &= bits_of(values > 0)
    return guard


@_opcode("CALL")
def _call(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if one.target is None:
        raise Unsupported(f"{one} goes where is not known")
    for lane in lanes_of(guard):
        w.pc[lane] = one.target


@_opcode("RET")
def _return(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    """Goes where a register says, which ptxas has set before the call."""
    places = np.broadcast_to(m.value(w, _operands(one)[0]), LANES)
    for lane in lanes_of(guard):
        if places[lane] < 0:
            raise Unsupported(f"{one} at {one.pc:#x} goes where is not known")
        w.pc[lane] = int(places[lane])


@_opcode("EXIT")
def _exit(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    m.end(w, _where(m, w, one, guard))


@_opcode("BSSY")
def _open(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    w.convergence[_barrier(one)] = mask


@_opcode("BREAK")
def _break(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    w.convergence[_barrier(one)] &= ~guard
    m.release_lanes(w)


def _barrier(one: Instruction) -> int:
    return int(next(text for text in one.operands if re.fullmatch(r"B\d+", text))[1:])


@_opcode("BSYNC")
def _meet(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    number = _barrier(one)
    for lane in lanes_of(guard):
        if w.convergence[number] >> lane & 1:
            w.waits[lane] = f"sync {number}"
    m.release_lanes(w)


@_opcode("WARPSYNC")
def _warpsync(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if "COLLECTIVE" in one.modifiers:
        raise Unsupported(one.opcode)
    wanted = ALL
    if "ALL" not in one.modifiers:
        values = m.value(w, parse(one.operands[0]))
        value = of_lane(values, lanes_of(guard)[0]) if guard else 0
        if value < 0:
            raise Unsupported("lanes of a mask that is not known")
        wanted = value
    for lane in lanes_of(guard):
        w.waits[lane] = f"warp {wanted}"
    m.release_lanes(w)


# ------------------------------------------------------------------ barriers


@_opcode("BAR")
def _bar(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    operands = _operands(one)
    votes = 0
    if "RED" in one.modifiers:
        predicate = np.broadcast_to(m.predicate(w, operands.pop()), LANES)
        active = [int(predicate[n]) for n in lanes_of(guard)]
        votes = sum(active) if UNKNOWN not in active else 0
    if not guard:
        return
    first = lanes_of(guard)[0]

    def read(operand: Operand) -> int:
        value = of_lane(m.value(w, operand), first)
        if value < 0:
            raise Unsupported("a named barrier that is not known")
        return value

    number = read(operands[0])
    threads: int | None = None
    if isinstance(operands[0], Register):
        whole, number = number, number & 0xF
        if len(operands) < 2:
            threads = whole >> 16 & 0xFFF or None
    if len(operands) > 1:
        threads = read(operands[1])
        if isinstance(operands[1], Register):
            threads = threads >> 16 & 0xFFF
    m.join(w, number, threads, guard, "ARV" not in one.modifiers, votes)


@_opcode("B2R")
def _result(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    m.set(w, parse(one.operands[0]), np.array([w.votes]), guard)


@_opcode("UCGABAR_ARV")
def _cluster_arrive(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    arrived, key = w.cta.cluster.arrived, (w.cta.rank, w.number)
    w.cluster_round = w.cta.cluster.round
    arrived[key] = arrived.get(key, 0) | guard
    m.version += 1
    m.complete_cluster(w.cta.cluster)


@_opcode("UCGABAR_WAIT")
def _cluster_wait(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if w.cluster_round == w.cta.cluster.round:
        for lane in lanes_of(guard):
            w.waits[lane] = "cluster"


@_opcode("SYNCS")
def _syncs(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    kinds = one.modifiers
    operands = _operands(one)
    if not guard:
        return
    if kinds[0] == "EXCH":
        lane = lanes_of(guard)[0]
        cta, at = m.owner(w.cta, m.address(w, operands[1], lane))
        (word,) = m.wide(w, operands[2])[:1]
        if word < 0 or decode(word, m.arch) is None:
            raise Unsupported(f"{one} stores no mbarrier")
        cta.shared[at : at + 8] = word.to_bytes(8, "little")
        cta.known[at : at + 8] = b"\1" * 8
        cta.mbarriers.add(at)
        m.initialised[cta.number, at] = one.ptx or 0
        m.version += 1
    elif kinds[0] == "CCTL":
        cta, at = m.owner(w.cta, m.address(w, operands[0], lanes_of(guard)[0]))
        cta.mbarriers.discard(at)
        m.version += 1
    elif kinds[0] == "PHASECHK":
        result, place, parity = operands
        found = np.zeros(LANES, np.int64)
        values = np.broadcast_to(m.value(w, parity), LANES)
        for lane in lanes_of(guard):
            cta, at = m.owner(w.cta, m.address(w, place, lane))
            if values[lane] < 0:
                raise Unsupported("a parity that is not known")
            found[lane] = m.state(cta, at).parity != int(values[lane]) >> 31
        m.set(w, result, found, guard)
    elif kinds[0] == "ARRIVE":
        result, place, source = operands
        counts = np.broadcast_to(m.value(w, source), LANES)
        for lane in lanes_of(guard):
            cta, at = m.owner(w.cta, m.address(w, place, lane))
            word, count = m.word(cta, at), int(counts[lane])
            if count < 0:
                raise Unsupported("a count that is not known")
            if not isinstance(result, Register) or result.number != 255:
                for n in (0, 1):
                    m.set(w, result, np.array([word >> 32 * n & WORD]), 1 << lane, n)
            drop = int("OPTOUT" in kinds)
            if "A1T0" in kinds:
                m.arrive(cta, at, 1, drop=drop)
            elif "ART0" in kinds:
                m.arrive(cta, at, count, drop=drop * count)
            elif "A0TR" in kinds:
                m.arrive(cta, at, 0, count)
            elif "A0TX" in kinds:
                m.arrive(cta, at, 0, -count)
            elif "A0T1" in kinds:
                m.arrive(cta, at, -1)
            elif not set(kinds[2:]) - {"RED", "OPTOUT"}:
                m.arrive(cta, at, 1, count, drop)
            else:
                raise Unsupported(one.opcode)
    else:
        raise Unsupported(one.opcode)


@_opcode("ARRIVES")
def _copies_arrive(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    for lane in lanes_of(guard):
        m.arrive(*m.owner(w.cta, m.address(w, parse(one.operands[0]), lane)), 1)


def _uniform(m: Machine, w: Warp, operand: Operand, at: int = 0) -> int:
    if isinstance(operand, Place):
        operand = operand.registers[0]
    found = int(m.value(w, operand, at)[0])
    if found < 0:
        raise Unsupported("an operand of a copy that is not known")
    return found


def _landed(m: Machine, w: Warp, mbar: int, size: int, ranks: int | None) -> None:
    """A copy has landed: its bytes complete, in one CTA or in several."""
    cta, at = m.owner(w.cta, mbar)
    ctas = [cta] if ranks is None else [c for c in cta.cluster.ctas if ranks >> c.rank & 1]
    for one in ctas:
        m.arrive(one, at, 0, -size)


@_opcode("UBLKCP")
def _bulk(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if not guard or one.modifiers[0] == "G":
        return
    to, _, size = _operands(one)
    several = "MULTICAST" in one.modifiers
    amount = _uniform(m, w, size)
    ranks = amount >> 16 if several else None
    _landed(m, w, _uniform(m, w, to, 1), 16 * (amount & 0xFFFF), ranks)


@_opcode("UTMALDG")
def _tensor(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if not guard:
        return
    to, source, *rest = _operands(one)
    address = _uniform(m, w, source) | _uniform(m, w, source, 1) << 32
    found = m.memory.maps.get(address - PARAMETERS)
    if found is None:
        raise Unsupported(f"there is no tensor map at {address:#x}")
    ranks = _uniform(m, w, rest[0]) >> 16 if "MULTICAST" in one.modifiers else None
    _landed(m, w, _uniform(m, w, to, 1), found.box_bytes, ranks)


@_opcode("UTCBAR")
def _commit(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    if not guard:
        return
    place, *rest = _operands(one)
    cta, at = m.owner(w.cta, _uniform(m, w, place))
    ranks = _uniform(m, w, rest[0]) if "MULTICAST" in one.modifiers else 1 << cta.rank
    for other in cta.cluster.ctas:
        if ranks >> other.rank & 1:
            m.arrive(other, at, 1)


@_opcode("STAS", "REDAS")
def _remote_store(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    place, _ = _operands(one)
    assert isinstance(place, Place)
    size = 16 if "128" in one.modifiers else 8 if "64" in one.modifiers else 4
    mbars = np.broadcast_to(m.value(w, place.registers[0], 1), LANES)
    for lane in lanes_of(guard):
        cta, at = m.owner(w.cta, int(mbars[lane]))
        m.arrive(cta, at, 0, -size)


@_opcode("USETMAXREG")
def _registers(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    wanted = int(one.operands[-1], 16)
    if "DEALLOC" in one.modifiers:
        w.cta.pools[w.number % PARTITIONS] += w.registers_held - wanted
        w.registers_held = wanted
        m.version += 1
        return
    more = wanted - w.registers_held
    enough = more <= w.cta.pools[w.number % PARTITIONS]
    m.set(w, parse(one.operands[0]), np.array([int(enough)]), mask)
    if enough:
        w.cta.pools[w.number % PARTITIONS] -= more
        w.registers_held = wanted
        m.version += 1


@_opcode("UTCATOMSWS")
def _columns(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    """Allocates columns of tensor memory: there are always enough."""
    if one.modifiers[0] == "FIND_AND_SET":
        success, result, _ = _operands(one)
        m.set(w, success, np.array([1]), mask)
        m.set(w, result, np.array([0]), mask)


# ------------------------------------------------------------------ memory


def _size(one: Instruction) -> tuple[int, bool]:
    for name, size in (("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2), ("64", 8), ("128", 16)):
        if name in one.modifiers:
            return size, name[0] == "S"
    return 4, False


def _loaded(m: Machine, w: Warp, one: Instruction, result: Operand, guard: int,
            read: Callable[[int], bytes | None]) -> None:  # fmt: skip
    size, with_sign = _size(one)
    for lane in lanes_of(guard):
        data = read(lane)
        for n in range(max(1, size // 4)):
            value = UNKNOWN
            if data is not None:
                part = data[4 * n : 4 * n + 4]
                value = int.from_bytes(part, "little", signed=with_sign) & WORD
            m.set(w, result, np.array([value]), 1 << lane, n)


@_opcode("LDS")
def _load_shared(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, place = _operands(one)
    size, _ = _size(one)

    def read(lane: int) -> bytes | None:
        address = m.address(w, place, lane)
        return None if address < 0 else _bytes(*m.owner(w.cta, address), size)

    _loaded(m, w, one, result, guard, read)


def _bytes(cta: Cta, at: int, size: int) -> bytes | None:
    if not all(cta.known[at : at + size]) or any(b in cta.mbarriers for b in range(at - 7, at + 8)):
        return None
    return bytes(cta.shared[at : at + size])


@_opcode("LDG", "LD")
def _load_global(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    result, place = _operands(one)[-2:]
    size, _ = _size(one)

    def read(lane: int) -> bytes | None:
        assert isinstance(place, Place)
        address = m.generic(w, place, lane)
        if address < 0:
            return None
        if address >> 32 == WINDOW:
            return _bytes(*m.owner(w.cta, address & WORD), size)
        found = m.memory.find(address, size)
        if found is None:
            raise Unsupported(f"a load at {address:#x}")
        buffer, at = found
        return bytes(buffer.data[at : at + size]) if _all_known(buffer, at, size) else None

    _loaded(m, w, one, result, guard, read)


def _all_known(buffer: Buffer, at: int, size: int) -> bool:
    known = buffer.known[at : at + size]
    return len(known) == size and all(known)


def _stored(m: Machine, w: Warp, one: Instruction, source: Operand, lane: int) -> bytes | None:
    size, _ = _size(one)
    data = b""
    for n in range(max(1, size // 4)):
        value = of_lane(m.value(w, source, n if not isinstance(source, Number) else 0), lane)
        if value < 0:
            return None
        data += value.to_bytes(4, "little")
    return data[:size]


def _put(
    m: Machine, data: bytearray, known: bytearray, at: int, value: bytes | None, size: int
) -> None:
    """Stores bytes, or that they are not known; a change is noted."""
    before = bytes(data[at : at + size]), bytes(known[at : at + size])
    if len(before[0]) < size:
        return
    if value is None:
        known[at : at + size] = bytes(size)
    else:
        data[at : at + size], known[at : at + size] = value, b"\1" * size
    if before != (bytes(data[at : at + size]), bytes(known[at : at + size])):
        m.version += 1


@_opcode("STS")
def _store_shared(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    place, source = _operands(one)
    for lane in lanes_of(guard):
        _store(m, w, one, source, lane, m.address(w, place, lane))


def _store(
    m: Machine, w: Warp, one: Instruction, source: Operand, lane: int, address: int
) -> None:  # fmt: skip
    if address < 0:
        raise Unsupported("a store to shared memory at an address that is not known")
    cta, at = m.owner(w.cta, address)
    _put(m, cta.shared, cta.known, at, _stored(m, w, one, source, lane), _size(one)[0])


@_opcode("STG", "ST")
def _store_global(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    place, source = _operands(one)
    assert isinstance(place, Place)
    for lane in lanes_of(guard):
        address = m.generic(w, place, lane)
        if address < 0:
            raise Unsupported("a store at an address that is not known")
        if address >> 32 == WINDOW:
            _store(m, w, one, source, lane, address & WORD)
            continue
        found = m.memory.find(address, _size(one)[0])
        if found is None:
            raise Unsupported(f"a store at {address:#x}")
        buffer, at = found
        _put(m, buffer.data, buffer.known, at, _stored(m, w, one, source, lane), _size(one)[0])


@_opcode("ATOMG", "REDG", "RED", "ATOMS", "ATOM")
def _atomic(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    operands = _operands(one)
    place = next(p for p in operands if isinstance(p, Place))
    at_place = operands.index(place)
    results = [p for p in operands[:at_place] if isinstance(p, Register)]
    sources = operands[at_place + 1 :]
    size = 8 if "64" in one.modifiers else 4
    kind = next((k for k in one.modifiers if k in _ATOMICS), None)
    for lane in lanes_of(guard):
        own = one.base == "ATOMS"
        address = m.address(w, place, lane) if own else m.generic(w, place, lane)
        if address < 0:
            raise Unsupported("an atomic at an address that is not known")
        if own or address >> 32 == WINDOW:
            cta, at = m.owner(w.cta, address & WORD)
            data, known = cta.shared, cta.known
        else:
            found = m.memory.find(address, size)
            if found is None:
                raise Unsupported(f"an atomic at {address:#x}")
            data, known, at = found[0].data, found[0].known, found[1]
        values = [of_lane(m.value(w, s), lane) for s in sources if not isinstance(s, Predicate)]
        before = None
        if len(known[at : at + size]) == size and all(known[at : at + size]):
            before = int.from_bytes(data[at : at + size], "little")
        after: int | None = None
        if before is not None and kind is not None and UNKNOWN not in values and size == 4:
            after = _ATOMICS[kind](before, *values) & WORD
        for result in results:
            m.set(w, result, np.array([UNKNOWN if before is None else before & WORD]), 1 << lane)
        _put(m, data, known, at, None if after is None else after.to_bytes(size, "little"), size)


_ATOMICS: dict[str, Callable[..., int]] = {
    "ADD": lambda a, b: a + b, "EXCH": lambda a, b: b, "OR": lambda a, b: a | b,
    "AND": lambda a, b: a & b, "XOR": lambda a, b: a ^ b, "MAX": max, "MIN": min,
    "CAS": lambda a, b, c: c if a == b else a,
}  # fmt: skip


@_opcode(*_DATA.split())
def _data(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    """Data, which is not known."""
    result = parse(one.operands[0])
    count = 4 if {"M88", "HMMA", "IMMA"} & {one.base, *one.modifiers} or one.base == "LDSM" else 2
    for text in (*one.modifiers,):
        if found := re.fullmatch(r"x(\d+)", text):
            count = int(found[1])
        elif found := re.fullmatch(r"64x(\d+)x\d+", text):
            count = int(found[1]) // 2
    if one.base[0] == "F" or one.base in ("MUFU", "I2FP", "HADD2", "HMUL2", "I2F", "F2I"):
        count = 2 if one.base.endswith("2") and one.base[:2] == "FF" else 1
    if isinstance(result, Register) and result.number != 255:
        for n in range(min(count, 255 - result.number)):
            m.set(w, result, np.array([UNKNOWN]), guard, n)


@_opcode("FSETP", "HSETP2", "FCHK", "DSETP", "FSET")
def _float_compare(m: Machine, w: Warp, one: Instruction, mask: int, guard: int) -> None:
    for operand in _operands(one)[:2]:
        if isinstance(operand, Predicate):
            m.set(w, operand, np.array([UNKNOWN]), guard)
