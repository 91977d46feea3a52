"""What an instruction computes, as a term over what it reads; numbers and bits of terms.

A term is of 32 bits; predicates are 0 and 1. What is in no term here is not known: the value of
such a register can be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from tilesim.cubin.operands import (
    WORD,
    Constant,
    Immediate,
    Other,
    Register,
    following,
    half,
    parse,
)
from tilesim.cubin.sass import Instruction


class Term(NamedTuple):
    """An operation on terms: ``op`` names it, ``number`` is its constant (a LUT, a value), ``name``
    what a ``read`` reads: a register, a predicate, a special register or a word of a constant bank.
    """

    op: str
    of: tuple[Term, ...] = ()
    number: int = 0
    name: str = ""


def constant(value: int) -> Term:
    """A number."""
    return Term("constant", number=value & WORD)


def read(name: str) -> Term:
    """What a register, a special register or a word of a constant bank holds."""
    return Term("read", name=name)


def negated(predicate: Term) -> Term:
    """The opposite of a predicate."""
    return Term("lut", (predicate, constant(1), constant(0)), 0x3C)  # exclusive or


def both(one: Term, other: Term) -> Term:
    """Whether two predicates are true; of others the bits that both have."""
    return Term("lut", (one, other, constant(0)), 0xC0)


def _sum_of(*parts: Term) -> Term:
    """The sum of terms, without sums in it; numbers are added up and stand last."""
    flat = [one for part in parts for one in (part.of if part.op == "add" else (part,))]
    total = constant(sum(one.number for one in flat if one.op == "constant"))
    rest = tuple(one for one in flat if one.op != "constant")
    if not rest:
        return total
    if total.number:
        return Term("add", (*rest, total))
    return rest[0] if len(rest) == 1 else Term("add", rest)


def _product_of(one: Term, other: Term) -> Term:
    for a, b in ((one, other), (other, one)):
        if a.op == "constant" and a.number in (0, 1):
            return b if a.number else a
    return Term("mul", (one, other))


def signed(value: int) -> int:
    """A word as a number with a sign."""
    return value - (1 << 32) if value >> 31 else value


def _shift(value: int, by: int) -> int:
    """Left by ``by`` bits, right by ``-by``; nothing is left of 32."""
    if by >= 32 or by <= -32:
        return 0
    return value << by & WORD if by >= 0 else value >> -by


def _lut(a: int, b: int, c: int, table: int) -> int:
    """Bit by bit, the bit of ``table`` that those of a (4), b (2) and c (1) name."""
    found = 0
    for index in range(8):
        if table >> index & 1:
            found |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return found & WORD


def _permuted(low: int, selector: int, high: int) -> int:
    both = high << 32 | low
    found = 0
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = both >> 8 * (nibble & 7) & 255
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        found |= byte << 8 * place
    return found


def _compared(how: str, a: int, b: int) -> bool:
    return {
        "EQ": a == b, "NE": a != b, "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b,
    }[how]  # fmt: skip


#: each operation on numbers; the second argument is that of the term
_NUMBERS: Mapping[str, Callable[[tuple[int, ...], Term], int]] = {
    "add": lambda v, _: sum(v),
    "mul": lambda v, _: v[0] * v[1],
    "not": lambda v, _: ~v[0],
    "shl": lambda v, _: _shift(v[0], v[1]),
    "shr": lambda v, _: _shift(v[0], -v[1]),
    "sar": lambda v, _: signed(v[0]) >> min(v[1], 31),
    "lut": lambda v, t: _lut(v[0], v[1], v[2], t.number),
    "select": lambda v, _: v[1] if v[0] else v[2],
    # high half of a product, to which 64 bits were added
    "high": lambda v, _: v[0] * v[1] + (v[3] << 32 | v[2]) >> 32,
    "high_signed": lambda v, _: signed(v[0]) * signed(v[1]) + (v[3] << 32 | v[2]) >> 32,
    "min": lambda v, _: min(v),
    "max": lambda v, _: max(v),
    "min_signed": lambda v, _: min(v, key=signed),
    "max_signed": lambda v, _: max(v, key=signed),
    "abs": lambda v, _: abs(signed(v[0])),
    "permute": lambda v, _: _permuted(*v),
    "compare": lambda v, t: _compared(t.name, v[0], v[1]),
    "compare_signed": lambda v, t: _compared(t.name, signed(v[0]), signed(v[1])),
    "nonzero": lambda v, _: v[0] != 0,
    # whether a sum has at least so many carries
    "carry": lambda v, t: sum(v) >> 32 >= t.number,
    # a comparison of high words; where they are equal, the third is that of the low words
    "compare_high": lambda v, t: v[2] if v[0] == v[1] else _compared(t.name, v[0], v[1]),
    "compare_high_signed": lambda v, t: (
        v[2] if v[0] == v[1] else _compared(t.name, signed(v[0]), signed(v[1]))
    ),
    # words of the pair (low, high), shifted
    "pair_left_high": lambda v, _: (v[2] << 32 | v[0]) << min(v[1], 64) >> 32,
    "pair_right_low": lambda v, _: (v[2] << 32 | v[0]) >> min(v[1], 64),
    "pair_right_low_signed": lambda v, _: (signed(v[2]) << 32 | v[0]) >> min(v[1], 63),
    "count": lambda v, _: v[0].bit_count(),
    "reverse": lambda v, _: int(f"{v[0]:032b}"[::-1], 2),
    "highest": lambda v, _: v[0].bit_length() - 1,
}


def number(term: Term, values: Mapping[str, int | None]) -> int | None:
    """The value of a term, when what it reads has these values, of which None is not known; None
    if it is not known either."""
    if term.op == "constant":
        return term.number
    if term.op == "read":
        return values[term.name]
    if term.op == "select":
        chosen = number(term.of[0], values)
        return None if chosen is None else number(term.of[1 if chosen else 2], values)
    parts: list[int] = []
    for part in term.of:
        one = number(part, values)
        if one is None:
            return None
        parts.append(one)
    return int(_NUMBERS[term.op](tuple(parts), term)) & WORD


def reads(term: Term) -> tuple[str, ...]:
    """What a term reads, each once."""
    if term.op == "read":
        return (term.name,)
    return tuple(dict.fromkeys(name for part in term.of for name in reads(part)))


# ---------------------------------------------------------------------- bits


class Bits(NamedTuple):
    """What is known of a value: the bits that are 0, and those that are 1."""

    zeros: int
    ones: int

    @property
    def most(self) -> int:
        """The largest value, without a sign."""
        return ~self.zeros & WORD


ANY = Bits(0, 0)
BOOLEAN = Bits(WORD & ~1, 0)


def exactly(value: int) -> Bits:
    """All bits of a value."""
    return Bits(~value & WORD, value)


def below(limit: int) -> Bits:
    """Of a value less than ``limit``, which is at least 1."""
    return Bits(WORD & ~((1 << (limit - 1).bit_length()) - 1), 0)


def joined(one: Bits, other: Bits) -> Bits:
    """What is known of a value that is either."""
    return Bits(one.zeros & other.zeros, one.ones & other.ones)


def _sum(a: Bits, b: Bits) -> Bits:
    most = (~a.zeros & WORD) + (~b.zeros & WORD)
    least = a.ones + b.ones
    carries_zero = ~(most ^ a.zeros ^ b.zeros)
    carries_one = least ^ a.ones ^ b.ones
    known = (a.zeros | a.ones) & (b.zeros | b.ones) & (carries_zero | carries_one) & WORD
    return Bits(~most & known, least & known)


def _zeros_at_the_end(a: Bits) -> int:
    return min(32, (~a.zeros & (a.zeros + 1)).bit_length() - 1)


def _product(a: Bits, b: Bits) -> Bits:
    end = min(32, _zeros_at_the_end(a) + _zeros_at_the_end(b))
    low = (1 << end) - 1
    if a.most * b.most <= WORD:
        return Bits(below(a.most * b.most + 1).zeros | low, 0)
    return Bits(low, 0)


def bits(term: Term, values: Mapping[str, Bits]) -> Bits:
    """What is known of a term, when this is known of what it reads."""
    if term.op == "constant":
        return exactly(term.number)
    if term.op == "read":
        return values[term.name]
    of = [bits(part, values) for part in term.of]
    if all(one.zeros | one.ones == WORD for one in of):
        parts = tuple(one.ones for one in of)
        return exactly(int(_NUMBERS[term.op](parts, term)) & WORD)
    amount = of[1].ones if len(of) > 1 and of[1].zeros | of[1].ones == WORD else None
    a = of[0]
    match term.op:
        case "add":
            for other in of[1:]:
                a = _sum(a, other)
            return a
        case "mul":
            return _product(a, of[1])
        case "not":
            return Bits(a.ones, a.zeros)
        case "shl" if amount is not None:
            low = (1 << min(amount, 32)) - 1
            return Bits(_shift(a.zeros, amount) | low, _shift(a.ones, amount))
        case "shr" if amount is not None:
            high = WORD & ~_shift(WORD, -amount)
            return Bits(_shift(a.zeros, -amount) | high, _shift(a.ones, -amount))
        case "shr" | "min":
            return below(min(one.most for one in of) + 1) if term.op == "min" else below(a.most + 1)
        case "sar" if a.zeros >> 31:
            return below(a.most + 1) if amount is None else bits(
                Term("shr", (read("a"), constant(amount))), {"a": a}
            )  # fmt: skip
        case "max":
            return below(max(one.most for one in of) + 1)
        case "min_signed" | "max_signed" if all(one.zeros >> 31 for one in of):
            return bits(Term(term.op.removesuffix("_signed"), term.of, term.number), values)
        case "lut":
            return _lut_bits(of, term.number)
        case "select":
            if a.ones & 1:
                return of[1]
            return of[2] if a.zeros == WORD else joined(of[1], of[2])
        case "high" if not of[2].most and not of[3].most:
            return below((a.most * of[1].most >> 32) + 1)
        case "high_signed" if (
            not of[2].most and not of[3].most and a.zeros >> 31 and of[1].zeros >> 31
        ):
            return below((a.most * of[1].most >> 32) + 1)
        case (
            "carry"
            | "nonzero"
            | "compare"
            | "compare_signed"
            | ("compare_high" | "compare_high_signed")
        ):
            return BOOLEAN
    return ANY


def _lut_bits(of: list[Bits], table: int) -> Bits:
    can_be = {0: 0, 1: 0}
    for index in range(8):
        here = WORD
        for one, place in zip(of, (4, 2, 1), strict=True):
            here &= ~one.zeros if index & place else ~one.ones
        can_be[table >> index & 1] |= here & WORD
    return Bits(~can_be[1] & WORD, ~can_be[0] & WORD)


# ---------------------------------------------------------------------- instructions


def source(text: str) -> Term | None:
    """The value of an operand or a guard; None if it is of a kind that is not known."""
    one = parse(text)
    if isinstance(one, Immediate):
        return None if one.value is None else constant(one.value)
    if isinstance(one, Constant):
        if one.register is not None:
            return None
        return _with_sign(read(f"c[{one.bank:#x}][{one.offset:#x}]"), one.sign)
    if isinstance(one, Register):
        if one.part:
            return None
        fixed = {"RZ": 0, "URZ": 0, "PT": 1, "UPT": 1}.get(one.name)
        return _with_sign(read(one.name) if fixed is None else constant(fixed), one.sign)
    return None


def _with_sign(term: Term, sign: str) -> Term:
    match sign:
        case "-":
            return (
                constant(0) if term == constant(0) else _sum_of(Term("not", (term,)), constant(1))
            )
        case "~":
            return Term("not", (term,))
        case "|":
            return Term("abs", (term,))
        case "!":
            return negated(term)
    return term


@lru_cache(maxsize=1 << 14)
def _computed(opcode: str, operands: tuple[str, ...], register: str) -> Term | None:
    base, *modifiers = opcode.split(".")
    known = _RULES.get(base.removeprefix("U") if base in _UNIFORM else base)
    if known is None or not operands:
        return None
    rule, modifiers_known = known
    return None if {*modifiers} - modifiers_known else rule({*modifiers}, operands, register)


def computed(instruction: Instruction, register: str) -> Term | None:
    """What an instruction writes into a register or predicate, without its guard; None if that is
    not known."""
    return _computed(instruction.opcode, instruction.operands, register)


Modifiers = set[str]


def _parts(operands: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Predicates and register that are written first, then what is read: values, predicates."""
    written: list[str] = []
    rest = list(operands)
    while rest and isinstance(one := parse(rest[0]), Register):
        if "P" not in one.name:
            written.append(rest.pop(0))
            break
        written.append(rest.pop(0))
    while rest and isinstance(one := parse(rest[0]), Register) and "P" in one.name:
        written.append(rest.pop(0))  # carries
    values: list[str] = []
    predicates: list[str] = []
    for text in rest:
        one = parse(text)
        into = predicates if isinstance(one, Register) and "P" in one.name else values
        into.append(text)
    return written, values, predicates


def _register_of(written: list[str]) -> str:
    return next((name for name in written if "P" not in name), "")


def _sources(texts: list[str]) -> list[Term] | None:
    found = [source(text) for text in texts]
    return None if None in found else [one for one in found if one is not None]


def _move(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    if operands[0] != register or len(operands) not in (2, 3):
        return None
    return source(operands[-1] if len(operands) == 2 else operands[1])


def _read_special(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    special = isinstance(parse(operands[1]), Other) and operands[0] == register
    return read(operands[1]) if special else None


def _read_special_pair(
    modifiers: Modifiers, operands: tuple[str, ...], register: str
) -> Term | None:
    if operands[1] == "SRZ":
        return constant(0)
    return read(operands[1]) if "32" in modifiers and operands[0] == register else None


def _load_constant(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    one = parse(operands[1])
    if not isinstance(one, Constant) or one.register:
        return None
    shift = int(register.lstrip("UR")) - int(operands[0].lstrip("UR"))
    return read(f"c[{one.bank:#x}][{one.offset + 4 * shift:#x}]")


def _carries(parts: list[Term], written: list[str], register: str) -> Term | None:
    """The predicate behind the register that is written: the first and the second carry."""
    flat = [one for part in parts for one in (part.of if part.op == "add" else (part,))]
    carries = written[written.index(_register_of(written)) + 1 :]
    return Term("carry", tuple(flat), 1 + carries.index(register)) if register in carries else None


def _add(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    written, values, predicates = _parts(operands)
    found = _sources([*values, *predicates] if "X" in modifiers else values)
    if found is None or len(found) < 2 or (predicates and "X" not in modifiers):
        return None
    if _register_of(written) == register:
        return _sum_of(*found)
    if "64" not in modifiers:
        return _carries(found, written, register)
    high = _sources([_high_word(text) for text in values])
    signs = any(text.startswith("-") for text in values)
    if high is None or signs or register != _high_word(_register_of(written)):
        return None
    return _sum_of(*high, *(Term("carry", tuple(found), count) for count in (1, 2)))


def _high_word(text: str) -> str:
    """The second register of a pair; of a small number 0; what is not known of others."""
    one = parse(text)
    if isinstance(one, Register) and one.name in ("RZ", "URZ"):
        return one.name
    if isinstance(one, Register) and not one.sign and not one.part:
        return following(one.name, 2)[1]
    if isinstance(one, Immediate) and one.value is not None and not one.value >> 31:
        return "RZ"
    return "?"


def _multiply(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    written, values, predicates = _parts(operands)
    found = _sources(values)
    first = _register_of(written)
    if found is None or len(found) != 3:
        return None
    a, b, c = found
    if modifiers & {"HI", "WIDE"} and "X" in modifiers:
        return None
    if modifiers & {"HI", "WIDE"}:
        high = constant(0)
        pair = parse(values[2])
        if isinstance(pair, Register) and pair.name not in ("RZ", "URZ"):
            if pair.sign:
                return None
            high = read(following(pair.name, 2)[1])
        elif c != high:
            return None
        if register == first if "HI" in modifiers else register in following(first, 2)[1:]:
            return Term("high" if "U32" in modifiers else "high_signed", (a, b, c, high))
    if register != first or "HI" in modifiers:
        return None
    carry = _sources(predicates) if "X" in modifiers else []
    return None if carry is None else _sum_of(_product_of(a, b), c, *carry)


def _load_effective(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    written, values, predicates = _parts(operands)
    found, carry = _sources(values), _sources(predicates)
    if found is None or carry is None or len(found) < 3 or found[-1].op != "constant":
        return None
    if ("X" in modifiers) != bool(carry):
        return None
    if "HI" in modifiers:  # the high half of the pair (c, a), shifted
        if "SX32" in modifiers:
            found = [*found[:2], Term("sar", (found[0], constant(31))), found[-1]]
        if len(found) != 4 or _register_of(written) != register:
            return None
        if found[2] == constant(0):
            shifted = Term("shr", (found[0], constant(32 - found[3].number)))
        else:
            shifted = Term("pair_left_high", (found[0], found[3], found[2]))
        return _sum_of(shifted, found[1], *carry)
    parts = [Term("shl", (found[0], found[-1])), found[1]]
    if _register_of(written) != register:
        return None if carry else _carries(parts, written, register)
    return _sum_of(*parts, *carry)


def _funnel(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    if operands[0] != register or len(operands) != 4:
        return None
    found = _sources(list(operands[1:]))
    if found is None:
        return None
    low, by, high = found
    if "W" in modifiers:
        by = both(by, constant(31))
    if "L" in modifiers and "HI" not in modifiers:
        return Term("shl", (low, by)) if high == constant(0) else None
    if "R" in modifiers and "HI" in modifiers:
        return Term("sar" if modifiers & {"S32", "S64"} else "shr", (high, by))
    if "R" in modifiers and "U32" in modifiers and high == constant(0):
        return Term("shr", (low, by))
    if modifiers >= {"L", "HI"} and modifiers & {"U32", "U64"}:
        return Term("pair_left_high", (low, by, high))
    if modifiers >= {"R", "U64"}:
        return Term("pair_right_low", (low, by, high))
    if modifiers >= {"R", "S64"}:
        return Term("pair_right_low_signed", (low, by, high))
    return None


def _logic(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    written, values, predicates = _parts(operands)
    found = _sources(values)
    if found is None or len(found) != 4 or found[3].op != "constant":
        return None
    result = Term("lut", tuple(found[:3]), found[3].number)
    if _register_of(written) == register:
        return result
    also = _sources(predicates)
    if written[0] == register and also is not None and len(also) == 1 and "PAND" not in modifiers:
        nonzero = Term("nonzero", (result,))
        if predicates in (["!PT"], ["!UPT"]):
            return nonzero
        return Term("lut", (nonzero, also[0], constant(0)), 0xFC)  # or
    return None


def _predicates(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """``PLOP3.LUT P, Q, a, b, c, for P, for Q``."""
    if len(operands) != 7 or register not in operands[:2]:
        return None
    found = _sources([*operands[2:5], operands[5 if register == operands[0] else 6]])
    if found is None or found[3].op != "constant":
        return None
    # the bits above the first one are cut
    inner = Term("lut", tuple(found[:3]), found[3].number)
    return both(inner, constant(1))


def _packed(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """``P2R R, PR, old, mask``: predicates as bits of a register."""
    found = _sources(list(operands[2:]))
    if operands[:2] != (register, "PR") or found is None or len(found) != 2:
        return None
    old, mask = found
    if mask.op != "constant":
        return None
    named = [n for n in range(_PREDICATES) if mask.number >> n & 1]
    bits_of = [Term("shl", (read(f"P{n}"), constant(n))) for n in named]
    return _sum_of(both(old, constant(~mask.number)), *bits_of)


def _unpacked(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """``R2P PR, R, mask``: bits of a register as predicates; others stay what they are."""
    found = _sources(list(operands[1:]))
    if operands[0] != "PR" or found is None or len(found) != 2 or found[1].op != "constant":
        return None
    bit = 1 << int(register.removeprefix("P"))
    if not found[1].number & bit:
        return read(register)
    return Term("nonzero", (both(found[0], constant(bit)),))


def _compare(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    how, joins = modifiers & _COMPARISONS, modifiers & _JOINS.keys()
    if len(operands) != 5 + ("EX" in modifiers) or len(how) != 1 or len(joins) != 1:
        return None
    found = _sources(list(operands[2:]))
    if found is None or register not in operands[:2]:
        return None
    sign, name = "" if modifiers & {"U32", "U64"} else "_signed", how.pop()
    if "EX" in modifiers:
        result = Term(f"compare_high{sign}", (found[0], found[1], found[3]), name=name)
    elif modifiers & {"U64", "S64"}:
        high = _sources([_high_word(text) for text in operands[2:4]])
        if high is None:
            return None
        low = Term("compare", tuple(found[:2]), name=name)
        result = Term(f"compare_high{sign}", (*high, low), name=name)
    else:
        result = Term(f"compare{sign}", tuple(found[:2]), name=name)
    if register != operands[0]:
        result = negated(result)
    return Term("lut", (result, found[2], constant(0)), _JOINS[joins.pop()])


def _select(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    found = _sources(list(operands[1:]))
    if operands[0] != register or found is None or len(found) != 3:
        return None
    return Term("select", (found[2], found[0], found[1]))


def _least(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    if len(operands) == 6 and operands[1:3] in (("PT", "PT"), ("UPT", "UPT")):
        operands = (operands[0], *operands[3:])  # of sm_100, which also names two predicates
    if operands[0] != register or len(operands) != 4:
        return None
    found = _sources(list(operands[1:]))
    if found is None:
        return None
    sign = "" if "U32" in modifiers else "_signed"
    return Term(
        "select",
        (found[2], Term("min" + sign, tuple(found[:2])), Term("max" + sign, tuple(found[:2]))),
    )


def _add_least(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    if operands[0] != register or len(operands) != 5:
        return None
    found = _sources(list(operands[1:]))
    if found is None:
        return None
    sign = "" if "U32" in modifiers else "_signed"
    two = _sum_of(*found[:2]), found[2]
    return Term("select", (found[3], Term("min" + sign, two), Term("max" + sign, two)))


def _permute(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    found = _sources(list(operands[1:]))
    if operands[0] != register or found is None or len(found) != 3:
        return None
    if found[1] == constant(_CTA_OVER_ADDRESS):
        return _sum_of(both(found[2], constant(0xFFFFFF)), Term("shl", (found[0], constant(24))))
    return Term("permute", tuple(found))


def _absolute(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    found = source(operands[1])
    if operands[0] != register or found is None:
        return None
    return Term("abs", (found,))


def _halves(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """``HFMA2 R, -RZ, RZ, high, low``: how ptxas moves a number."""
    if operands[:3] != (register, "-RZ", "RZ") or len(operands) != 5:
        return None
    high, low = half(operands[3]), half(operands[4])
    return None if high is None or low is None else constant(high << 16 | low)


def _extended(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """``SGXT R, a, n``: the lowest ``n`` bits, with the sign or (``U32``) without."""
    found = _sources(list(operands[1:]))
    if operands[0] != register or found is None or len(found) != 2:
        return None
    value, width = found
    if width.op != "constant" or not 0 < width.number < 32:
        return None
    if "U32" in modifiers:
        return both(value, constant((1 << width.number) - 1))
    unused = constant(32 - width.number)
    return Term("sar", (Term("shl", (value, unused)), unused))


def _counted(op: str) -> Callable[[Modifiers, tuple[str, ...], str], Term | None]:
    """The rule of an opcode that counts the bits of one value, or turns them round."""

    def rule(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
        found = source(operands[-1])
        if operands[0] != register or len(operands) != 2 or found is None:
            return None
        return Term(op, (found,))

    return rule


def _to_uniform(modifiers: Modifiers, operands: tuple[str, ...], register: str) -> Term | None:
    """The value of a lane; of the one that is looked at, as PTX has no registers of warps."""
    return source(operands[-1]) if register in operands and "P" not in register else None


#: selects bits 0-7 of the first operand over bits 0-23 of the last one: ``mapa``
_CTA_OVER_ADDRESS = 0x654
#: predicates of a thread
_PREDICATES = 7
_COMPARISONS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
#: the LUTs by which the result of a comparison and a predicate are joined
_JOINS = {"AND": 0xC0, "OR": 0xFC, "XOR": 0x3C}
_NONE: frozenset[str] = frozenset()
_SIGNS = frozenset({"U32", "S32"})
_SIZES = frozenset({"32", "64", "128"})
#: what computes the results of an opcode, and the modifiers with which it does: any other one may
#: mean something else (``VIADD.16x2``, ``ISETP.GE.U64.AND``, carries: ``IADD3.X``)
_RULES: Mapping[
    str, tuple[Callable[[Modifiers, tuple[str, ...], str], Term | None], frozenset[str]]
] = {
    "MOV": (_move, frozenset({"SPILL"})),
    "S2R": (_read_special, _NONE),
    "S2UR": (_read_special, _NONE),
    "CS2R": (_read_special_pair, frozenset({"32"})),
    "LDC": (_load_constant, _SIZES),
    "ULDC": (_load_constant, _SIZES),
    "LDCU": (_load_constant, _SIZES),
    "IADD": (_add, frozenset({"64"})),
    "IADD3": (_add, frozenset({"64", "X"})),
    "VIADD": (_add, _NONE),
    "IMAD": (_multiply, _SIGNS | {"HI", "WIDE", "MOV", "SHL", "IADD", "X"}),
    "LEA": (_load_effective, frozenset({"HI", "X", "SX32"})),
    "SHF": (_funnel, _SIGNS | {"L", "R", "W", "U64", "S64", "HI"}),
    "LOP3": (_logic, frozenset({"LUT", "PAND"})),
    "P2R": (_packed, _NONE),
    "R2P": (_unpacked, _NONE),
    "PLOP3": (_predicates, frozenset({"LUT"})),
    "ISETP": (_compare, _SIGNS | {"U64", "S64", "EX"} | _COMPARISONS | _JOINS.keys()),
    "POPC": (_counted("count"), _NONE),
    "BREV": (_counted("reverse"), _NONE),
    "FLO": (_counted("highest"), frozenset({"U32"})),
    "SEL": (_select, _NONE),
    "SGXT": (_extended, frozenset({"U32"})),
    "VIMNMX": (_least, _SIGNS),
    "VIADDMNMX": (_add_least, _SIGNS),
    "PRMT": (_permute, _NONE),
    "IABS": (_absolute, _NONE),
    "HFMA2": (_halves, frozenset({"MMA"})),
    "R2UR": (_to_uniform, frozenset({"FILL"})),
}
#: those that are the same on registers of the warp, with a U before their names
_UNIFORM = frozenset(
    {
        "UMOV", "UIADD3", "UVIADD", "UIMAD", "ULEA", "USHF", "ULOP3", "UPLOP3", "UISETP", "USEL",
        "USGXT", "UVIMNMX", "UPRMT", "UIABS", "UPOPC", "UBREV", "UFLO",
    }
)  # fmt: skip
