"""Which registers hold different values at the same time: those cannot be one."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tilesim.ir.frozen import cached
from tilesim.ptx.constants import naming, operands_named, read_by, registers, set_by
from tilesim.ptx.inline import Items, Kernel, Register, Step, Target
from tilesim.ptx.syntax import Sink

#: after these control does not go on to the next instruction, unless a guard forbids them
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap"})
_JUMPS = frozenset({"bra", "brx"})


@cached
def entered(kernel: Kernel) -> frozenset[int]:
    """The instructions that some branch goes to."""
    return frozenset(n for step in kernel.code if step.base in _JUMPS for n in targets(step))


def targets(step: Step) -> list[int]:
    """The instructions that a branch may go to."""
    result: list[int] = []
    if step.base not in _JUMPS:
        return result
    for operand in step.operands:
        items = operand.items if isinstance(operand, Items) else (operand,)
        result += [item.number for item in items if isinstance(item, Target)]
    return result


def only_padding(kernel: Kernel, registers: Collection[Register]) -> frozenset[Register]:
    """Those of ``registers`` that are only packed with others (``mov.b64 whole, {part, register}``)
    for readers that all leave that part of the whole out (``mov.b64 {part, _}, whole``)."""
    numbers = naming(kernel).numbers

    def readers(name: str) -> list[Step]:
        return [step for n in numbers[name] if name in read_by(step := kernel.code[n])]

    def left_out(step: Step, register: Register) -> bool:
        match step.base, step.operands:
            case "mov", (Register(name=whole), Items(items)):
                parts = [k for k, item in enumerate(items) if item == register]
                return all(_leaves_out(r, parts, len(items)) for r in readers(whole))
            case _:
                return False

    return frozenset(r for r in registers if all(left_out(s, r) for s in readers(r.name)))


def _leaves_out(step: Step, parts: Collection[int], count: int) -> bool:
    """Whether an instruction takes a register apart into ``count`` items, without ``parts``."""
    match step.base, step.operands:
        case "mov", (Items(items), Register()) if len(items) == count:
            return all(items[part] == Sink() for part in parts)
        case _:
            return False


class _Masks(NamedTuple):
    """Registers as bits: set, used, and the one that a move copies."""

    sets: int
    uses: int
    copies: int
    kills: int


_NONE = _Masks(0, 0, 0, 0)


class Interference:
    """Per register of ``names``, as bits, those that hold a value which is still used when it is
    set, otherwise than by a move from them: it cannot be one with these, nor they with it.

    A product of wgmma reads registers of A while it runs, so each wait for products uses them."""

    def __init__(self, kernel: Kernel, names: Collection[str]) -> None:
        self.bit = {name: 1 << i for i, name in enumerate(names)}
        self._read_late = 0
        products = {n: step for n, step in enumerate(kernel.code) if step.base == "wgmma"}
        for step in products.values():
            if step.opcode.startswith("wgmma.mma_async") and isinstance(step.operands[1], Items):
                self._read_late |= self._bits(registers(step.operands[1]))
        masks = [_NONE] * len(kernel.code)
        for number in {*products}.union(*map(naming(kernel).numbers.__getitem__, names)):
            masks[number] = self._masks(kernel.code[number])
        after = _live_after(kernel, masks)
        self.of = dict.fromkeys(self.bit, 0)
        by_bit = {bit: name for name, bit in self.bit.items()}
        for mask, live in zip(masks, after, strict=True):
            one = mask.sets
            while one:
                low = one & -one
                one ^= low
                others = (live | mask.sets) & ~low & ~mask.copies
                self.of[by_bit[low]] |= others

    def _masks(self, step: Step) -> _Masks:
        if step.opcode.startswith("wgmma.wait_group"):
            return _Masks(0, self._read_late, 0, 0)
        results = set_by(step)
        sets = self._bits(results)
        first = {r.name for r in registers(step.operands[0])} if sets else set()
        uses = 0
        for position, found in enumerate(operands_named(step)):
            if found:
                uses |= self._bits(found if position else [r for r in found if r.name not in first])
        if step.base == "wgmma":
            uses |= sets
        moves = step.base == "mov" and isinstance(step.operands[1], Register)
        kills = sets if step.guard is None else 0
        return _Masks(sets, uses, uses if moves else 0, kills)

    def _bits(self, registers: Collection[Register]) -> int:
        result = 0
        for register in registers:
            result |= self.bit.get(register.name, 0)
        return result


def _live_after(kernel: Kernel, masks: list[_Masks]) -> list[int]:
    """Per instruction the registers whose values are used later."""
    code = kernel.code
    before, after = [0] * (len(code) + 1), [0] * len(code)
    changed = True
    while changed:
        changed = False
        for number in range(len(code) - 1, -1, -1):
            step, mask = code[number], masks[number]
            goes_on = step.base not in _ENDS or step.guard is not None
            live = before[number + 1] if goes_on else 0
            if step.base in _ENDS:
                for target in targets(step):
                    live |= before[target]
            after[number] = live
            live = live & ~mask.kills | mask.uses
            if live != before[number]:
                before[number] = live
                changed = True
    return after
