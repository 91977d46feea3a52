"""Values that registers had at a place before the one at which lanes stand.

A register that nothing has written since then is read from the dump. One that was overwritten is
computed again, if all that it was made of is known: other registers, the launch, its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from tilesim.autopsy.core_dump import Warp
from tilesim.cubin.operands import written
from tilesim.cubin.sass import Function, Instruction

#: places between an instruction and the one at which lanes stand, at most; depth of what is
#: computed again
MOST_BETWEEN = 256
MOST_DEPTH = 8

_MASK = 0xFFFFFFFF
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
}  # fmt: skip


def between(
    function: Function, start: int, end: int, within: frozenset[int] | None = None
) -> frozenset[int] | None:
    """The places that are executed after ``start``, when it was executed last, and before ``end``.

    None if there are too many, or if ``end`` can be reached without ``start``. ``within``: places
    that are not left.
    """
    found: set[int] = set()
    left = [end]
    while left:
        for place in function.predecessors[left.pop()]:
            if place in (start, *found) or (within is not None and place not in within):
                continue
            if not function.predecessors[place] or len(found) > MOST_BETWEEN:
                return None
            found.add(place)
            left.append(place)
    # an end that comes back to itself is executed before itself
    return frozenset(found)


class Recovered:
    """Registers of a lane that stands at a place; ``constant`` has the words of constant bank 0."""

    def __init__(
        self, function: Function, warp: Warp, lane: int, pc: int,
        constant: Callable[[int], int | None],
    ) -> None:  # fmt: skip
        self.function = function
        self.warp = warp
        self.lane = lane
        self.pc = pc
        self.constant = constant

    def now(self, register: str) -> int | None:
        """A register, or a predicate as 0 or 1, as it is in the dump."""
        if register in ("RZ", "URZ"):
            return 0
        if register in ("PT", "UPT"):
            return 1
        kind = register.rstrip("0123456789")
        if kind not in ("R", "UR", "P", "UP") or kind == register:
            return None
        number = int(register[len(kind) :])
        if kind == "R":
            return self.warp.register(self.lane, number)
        if kind == "UR":
            return self.warp.uniform_register(number)
        flags = self.warp.predicates(self.lane) if kind == "P" else self.warp.uniform_predicates()
        return None if flags is None or number >= len(flags) else int(flags[number])

    def value(self, operand: str, at: int, depth: int = 0) -> int | None:
        """An operand before the instruction at ``at`` was executed last, as 32 bits."""
        if operand.startswith("!"):
            plain = self.value(operand[1:], at, depth)
            return None if plain is None else 1 - plain
        number = _number(operand)
        if number is not None:
            return number & _MASK
        if operand.startswith("c[0x0]["):
            return self._constant(operand)
        sign = -1 if operand.startswith("-") else 1
        register = operand.lstrip("-")
        if register in ("RZ", "URZ", "PT", "UPT"):
            return self.now(register)
        since = frozenset[int]() if at == self.pc else between(self.function, at, self.pc)
        if since is None or depth > MOST_DEPTH:
            return None
        done = since if at == self.pc else since | {at}
        if not any(register in written(self.function.code[place]) for place in done):
            found = self.now(register)
        else:
            found = self._again(register, at, since, depth)
        return None if found is None else sign * found & _MASK

    def _again(self, register: str, at: int, since: frozenset[int], depth: int) -> int | None:
        """A register from the one instruction that has written it before ``at``."""
        sources: set[int] = set()
        seen: set[int] = set()
        left = [at]
        while left:
            place = left.pop()
            before = self.function.predecessors[place]
            if not before or len(seen) > MOST_BETWEEN:
                return None
            for other in before:
                if other in seen:
                    continue
                seen.add(other)
                if register in written(self.function.code[other]):
                    sources.add(other)
                else:
                    left.append(other)
        if len(sources) != 1:
            return None
        one = self.function.code[sources.pop()]
        if one.pc in since or one.pc == at:
            return None
        if one.guard and self.value(one.guard, one.pc, depth + 1) != 1:
            return None
        return self._result(one, register, depth + 1)

    def _result(self, one: Instruction, register: str, depth: int) -> int | None:
        """What an instruction writes, of the few whose meaning is known here."""

        def of(operand: str) -> int | None:
            return self.value(operand, one.pc, depth)

        operands, name = one.operands, one.base.removeprefix("U")
        if name in ("LDC", "LDCU") and register in written(one)[:2]:
            offset = 0 if register == operands[0] else 4
            return self._constant(operands[1], offset)
        if register != operands[0]:
            return None
        if name in ("MOV", "R2UR") and len(operands) == 2:
            return of(operands[1])
        if one.opcode in ("IMAD.MOV.U32", "IMAD.MOV"):
            return of(operands[3])
        if name == "S2R" and operands[1].startswith("SR_TID."):
            thread = next(one.thread for one in self.warp.lanes if one.number == self.lane)
            axis = "XYZ".find(operands[1][-1])
            return thread[axis] if axis >= 0 else None
        if name == "ISETP" and operands[1] == "PT":
            return self._compared(one, of)
        values = [of(operand) for operand in operands[1:4]]
        if any(value is None for value in values):
            return None
        known = [value for value in values if value is not None]
        if name == "LOP3" and one.opcode.endswith("LOP3.LUT") and len(operands) > 4:
            table = _number(operands[4])
            return None if table is None or len(known) != 3 else _bits(table, *known)
        if name == "SHF" and len(known) == 3 and known[1] < 32:
            if one.opcode.startswith(("SHF.L.U32", "USHF.L.U32")) and ".HI" not in one.opcode:
                return known[0] << known[1] & _MASK
            if one.opcode in ("SHF.R.U32.HI", "USHF.R.U32.HI") and not known[0]:
                return known[2] >> known[1]
            if one.opcode in ("SHF.R.U32", "USHF.R.U32") and not known[2]:
                return known[0] >> known[1]
        if one.opcode in ("IADD3", "UIADD3", "VIADD", "IMAD.IADD") and "P" not in operands[1]:
            if one.opcode == "IMAD.IADD":
                return known[0] * known[1] + known[2] & _MASK
            return sum(known) & _MASK
        return None

    def _compared(self, one: Instruction, of: Callable[[str], int | None]) -> int | None:
        """What ``ISETP.NE.AND P0, PT, R6, RZ, PT`` finds."""
        _, how, *rest = one.opcode.split(".")
        if [*rest][-1:] != ["AND"] or "EX" in rest or one.operands[4:] != ("PT",):
            return None
        left, right = of(one.operands[2]), of(one.operands[3])
        if left is None or right is None or how not in _COMPARE:
            return None
        if "U32" not in rest:
            left, right = (value - (value >> 31 << 32) for value in (left, right))
        return int(_COMPARE[how](left, right))

    def _constant(self, operand: str, more: int = 0) -> int | None:
        """A word of constant bank 0: ``c[0x0][0x210]``."""
        text = operand.removeprefix("c[0x0][").removesuffix("]")
        offset = _number(text)
        return None if offset is None else self.constant(offset + more)


def _number(text: str) -> int | None:
    """``0x1f``, ``-0x1``, ``3`` as a number; None for anything else."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _bits(table: int, a: int, b: int, c: int) -> int:
    """A function of three bits, bit by bit: ``table`` has its values, ``a`` is the highest."""
    terms = [
        reduce(and_, (w if n >> k & 1 else ~w for w, k in ((a, 2), (b, 1), (c, 0))))
        for n in range(8)
        if table >> n & 1
    ]
    return reduce(or_, terms, 0) & _MASK
