"""One thread, alone in its warp, executed by itself: what is not known is drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from tilesim.cubin.arithmetic import computed, number, reads, source
from tilesim.cubin.operands import mbarrier_operand, written
from tilesim.cubin.sass import WIDTH, Function, Instruction

#: registers that no instruction changes
LIMITS = {"SR_TID.X": 1024, "SR_TID.Y": 1024, "SR_TID.Z": 64, "SR_LANEID": 32, "SR_CgaCtaId": 1}


class Thread:
    """A thread in a kernel; ``given`` are words of constant banks and special registers."""

    def __init__(self, function: Function, random: Random, given: Mapping[str, int]) -> None:
        self.function = function
        self.random = random
        self.values = dict(given)
        self.calls: list[int] = []
        self.pc: int | None = 0

    def drawn(self, name: str) -> int:
        """A value of something that is not known."""
        if name.startswith(("P", "UP")):
            return self.random.randrange(2)
        if name in LIMITS:
            return self.random.randrange(LIMITS[name])
        return self.random.choice(
            [self.random.randrange(12), self.random.randrange(1 << 32), (1 << 32) - 1]
        )

    def value(self, name: str) -> int:
        """What a register holds; drawn when it is first read."""
        if name not in self.values:
            self.values[name] = self.drawn(name)
        return self.values[name]

    def holds(self, text: str) -> bool:
        """Whether a predicate is true."""
        term = source(text)
        assert term is not None
        return bool(number(term, {name: self.value(name) for name in reads(term)}))

    def run(self, steps: int) -> Iterator[tuple[int, int]]:
        """The mbarrier instructions that are executed, with their addresses."""
        for _ in range(steps):
            if self.pc is None or self.pc not in self.function.code:
                return
            one = self.function.code[self.pc]
            executed = not one.guard or self.holds(one.guard)
            operand = mbarrier_operand(one)
            if executed and operand is not None:
                total = sum(self.value(name) for name in operand.registers) + operand.offset
                yield one.pc, total & 0xFFFFFFFF
            if executed:
                self.write(one)
            self.pc = self.following(one, executed)

    def write(self, one: Instruction) -> None:
        new: dict[str, int] = {}
        for name in written(one):
            term = computed(one, name)
            if one.opcode == "ELECT":
                new[name] = 1
            elif one.base in ("VOTE", "VOTEU") and name == one.operands[0] and "P" in name:
                new[name] = int(self.holds(one.operands[1]))
            elif one.base == "SHFL" and name == one.operands[1]:
                term = source(one.operands[2])
            if name not in new:
                known = None if term is None else {n: self.value(n) for n in reads(term)}
                value = None if term is None or known is None else number(term, {**known})
                new[name] = self.drawn("P" if "P" in name else "") if value is None else value
        self.values |= new

    def following(self, one: Instruction, executed: bool) -> int | None:
        """The place at which it goes on."""
        if one.base == "CALL" and executed and one.target is not None:
            self.calls.append(one.pc + WIDTH)
            return one.target
        if one.base == "RET" and executed:
            return self.calls.pop() if self.calls else None
        if one.base == "EXIT":
            executed &= all(self.holds(text) for text in one.operands)
            return None if executed else one.pc + WIDTH
        if one.base == "BRA" and "DIV" in one.modifiers:
            return one.pc + WIDTH
        if one.base == "BRA":
            taken = executed and all(self.holds(text) for text in one.operands[:-1])
            return one.target if taken else one.pc + WIDTH
        after = self.function.successors[one.pc]
        if one.base.startswith("BRX") and executed:
            return self.random.choice(after)
        return one.pc + WIDTH if one.pc + WIDTH in after else next(iter(after), None)
