"""What a synchronising instruction does: its numbers and addresses, in PTX and in SASS.

Each kind of `tilesim.translation.classes` has quantities that both sides name: an mbarrier, how
many arrive, how many bytes are expected. Both are functions of what operands hold, as far as that
is known. The layout of the mbarrier's word, of barrier registers and of ``UBLKCP`` is not
documented by NVIDIA; it is that of ptxas 12.9 to 13.5, and of dumps of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tilesim.cubin.operands import Memory, Register, following, parse
from tilesim.cubin.sass import Instruction
from tilesim.ptx.inline import At, Flat, Step
from tilesim.translation.inputs import OFFSET
from tilesim.translation.validation import Effect

#: quantities by name; None is not known
Quantities = Mapping[str, int | None]

MBARRIER, DESTINATION, SOURCE = "mbarrier", "destination", "source"
PARITY, ARRIVALS, BYTES, EXPECTED = "parity", "arrivals", "bytes", "expected arrivals"
BARRIER, THREADS, LEFT, REGISTERS = "barrier", "threads of a barrier", "wait count", "registers"

#: named barriers of a CTA
BARRIERS = 16
#: what an mbarrier's word counts down from
_COUNTED_FROM = 1 << 20


def differing(ptx: Quantities, sass: Quantities) -> list[str]:
    """The quantities that are known of both and differ."""
    return [
        name
        for name, value in ptx.items()
        if value is not None and sass.get(name) not in (None, value)
    ]


def effect_of(name: str, ptx: Quantities, sass: Quantities) -> Effect:
    """What a difference means: a wait that leaves fewer groups waits for more."""
    was, now = ptx[name], sass[name]
    fewer = name == LEFT and was is not None and now is not None and now < was
    return "stronger" if fewer else "weaker"


def said(name: str, ptx: Quantities, sass: Quantities) -> str:
    """A difference in words."""
    return f"{name}: {ptx[name]} in the PTX, {sass[name]} in the SASS"


class PtxValues(Protocol):
    """What operands of PTX hold."""

    def value(self, operand: Flat, /) -> int | None:
        """A number; None: not known."""

    def address(self, operand: Flat, /) -> int | None:
        """The address in brackets."""


class SassValues(Protocol):
    """What operands of SASS hold."""

    def value(self, text: str, /) -> int | None:
        """The value of an operand."""

    def register(self, name: str, /) -> int | None:
        """What a register holds."""

    def address(self, text: str, /) -> int | None:
        """The sum of registers and number in brackets."""


# ---------------------------------------------------------------------- PTX


def of_ptx(kind: str, step: Step, values: PtxValues, block: int | None) -> Quantities:
    """The quantities of a step; ``block`` is how many threads a block has, None if any."""
    rule = _PTX.get(kind)
    return {} if rule is None else rule(step, values, block)


def _shared(step: Step, values: PtxValues, place: int) -> int | None:
    """The place in shared memory that an operand names."""
    if place >= len(step.operands) or not isinstance(step.operands[place], At):
        return None
    address = values.address(step.operands[place])
    return None if address is None else address & OFFSET


def _init(step: Step, values: PtxValues, block: int | None) -> Quantities:
    return {MBARRIER: _shared(step, values, 0), EXPECTED: values.value(step.operands[1])}


def _wait(step: Step, values: PtxValues, block: int | None) -> Quantities:
    parity = values.value(step.operands[2]) if "parity" in step.qualifiers else None
    return {MBARRIER: _shared(step, values, 1), PARITY: None if parity is None else parity & 1}


def _arrive(step: Step, values: PtxValues, block: int | None) -> Quantities:
    names = step.qualifiers
    if step.base == "cp":
        return {MBARRIER: _shared(step, values, 0)}
    first = next(n for n, one in enumerate(step.operands) if isinstance(one, At))
    more = [*step.operands[first + 1 :]]
    number = _word(values.value(more[0])) if more else 1
    found: dict[str, int | None] = {MBARRIER: _shared(step, values, first)}
    if "complete_tx" in names:
        return found | {ARRIVALS: 0, BYTES: None if number is None else -number}
    if "expect_tx" in names:
        return found | {ARRIVALS: int(names[0] != "expect_tx"), BYTES: number}
    return found | {ARRIVALS: number, BYTES: 0}


def _word(value: int | None) -> int | None:
    return None if value is None else value & 0xFFFFFFFF


def _barrier(step: Step, values: PtxValues, block: int | None) -> Quantities:
    operands = [*step.operands]
    if "red" in step.qualifiers:
        operands = operands[1:-1]
    threads = _word(values.value(operands[1])) if len(operands) > 1 else block
    number = _word(values.value(operands[0]))
    if number is not None and number >= BARRIERS:
        number = None  # a number that no barrier has, from an input that was drawn
    return {BARRIER: number, THREADS: threads}


def _load(step: Step, values: PtxValues, block: int | None) -> Quantities:
    tensor = "tensor" in step.qualifiers
    found = {
        DESTINATION: _shared(step, values, 0),
        MBARRIER: _shared(step, values, 2 if tensor else 3),
    }
    return found if tensor else found | {BYTES: _word(values.value(step.operands[2]))}


def _store(step: Step, values: PtxValues, block: int | None) -> Quantities:
    if "tensor" in step.qualifiers:
        return {SOURCE: _shared(step, values, 1)}
    return {SOURCE: _shared(step, values, 1), BYTES: _word(values.value(step.operands[2]))}


def _commit(step: Step, values: PtxValues, block: int | None) -> Quantities:
    return {MBARRIER: _shared(step, values, 0)}


def _left(step: Step, values: PtxValues, block: int | None) -> Quantities:
    return {LEFT: values.value(step.operands[0]) if step.operands else 0}


def _registers(step: Step, values: PtxValues, block: int | None) -> Quantities:
    return {REGISTERS: values.value(step.operands[0])}


def _asynchronous(step: Step, values: PtxValues, block: int | None) -> Quantities:
    return {DESTINATION: _shared(step, values, 0), MBARRIER: _shared(step, values, -1)}


_PtxRule = Callable[[Step, PtxValues, int | None], Quantities]
_PTX: Mapping[str, _PtxRule] = {
    "mbarrier.init": _init,
    "mbarrier.inval": _commit,
    "mbarrier.wait": _wait,
    "mbarrier.arrive": _arrive,
    "bar": _barrier,
    "bar.arrive": _barrier,
    "bulk.load": _load,
    "bulk.peer": _load,
    "bulk.store": _store,
    "bulk.reduce": _store,
    "tcgen05.commit": _commit,
    "bulk.wait": _left,
    "cp.async.wait": _left,
    "wgmma.wait": _left,
    "setmaxnreg": _registers,
    "clusterlaunchcontrol": lambda step, values, _: {
        DESTINATION: _shared(step, values, 0), MBARRIER: _shared(step, values, 1),
    },
}  # fmt: skip


# ---------------------------------------------------------------------- SASS


def of_sass(kind: str, one: Instruction, values: SassValues, block: int | None) -> Quantities:
    """The quantities of an instruction that is a copy of one of a kind."""
    rule = _SASS.get(kind)
    return {} if rule is None else rule(one, values, block)


def _brackets(one: Instruction) -> list[str]:
    return [text for text in one.operands if isinstance(parse(text), Memory)]


def _place(one: Instruction, values: SassValues, number: int) -> int | None:
    """The place in shared memory that brackets name."""
    texts = _brackets(one)
    address = values.address(texts[number]) if number < len(texts) else None
    return None if address is None else address & OFFSET


def _in_register(one: Instruction, values: SassValues, number: int, behind: int) -> int | None:
    """The place in shared memory in a register behind that in the brackets."""
    texts = _brackets(one)
    memory = parse(texts[number]) if number < len(texts) else None
    if not isinstance(memory, Memory) or len(memory.registers) != 1:
        return None
    names = following(memory.registers[0][0], behind + 1)
    address = values.register(names[behind]) if names else None
    return None if address is None else address & OFFSET


def _init_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    """The word of a new mbarrier: minus the arrivals that are pending, and expected."""
    pair = parse(one.operands[-1])
    found: dict[str, int | None] = {MBARRIER: _place(one, values, 0), EXPECTED: None}
    if not isinstance(pair, Register) or "EXCH" not in one.modifiers:
        return found
    zero = pair.name in ("RZ", "URZ")
    low, high = (
        values.register(name) for name in (("RZ",) * 2 if zero else following(pair.name, 2))
    )
    expected = None if low is None else _COUNTED_FROM - (low >> 1)
    if low is not None and low & 1:
        expected = -1
    if high is not None and expected is not None and high != (_COUNTED_FROM - expected) << 11:
        expected = -1  # the two disagree
    return found | {EXPECTED: expected}


def _wait_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    register = values.value(one.operands[-1])
    parity = None if register is None else register >> 31
    return {MBARRIER: _place(one, values, 0), PARITY: parity}


def _arrive_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    found: dict[str, int | None] = {MBARRIER: _place(one, values, 0)}
    if one.base != "SYNCS" or "ARRIVE" not in one.modifiers:
        return found
    number = values.value(one.operands[-1])
    for name in one.modifiers:
        match name:
            case "A1T0":
                return found | {ARRIVALS: 1, BYTES: 0}
            case "ART0":
                return found | {ARRIVALS: number, BYTES: 0}
            case "A0TR":
                return found | {ARRIVALS: 0, BYTES: number}
            case "A0TX":
                return found | {ARRIVALS: 0, BYTES: None if number is None else -number}
            case "A0T1":
                return found | {ARRIVALS: 0, BYTES: 1}
    return found | {ARRIVALS: 1, BYTES: number}


def _barrier_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    texts = [text for text in one.operands if "P" not in text]
    if not texts:
        return {BARRIER: None, THREADS: None}
    number = values.value(texts[0])
    if number is not None and isinstance(parse(texts[0]), Register):
        number %= BARRIERS
    if len(texts) == 1:
        return {BARRIER: number, THREADS: block}
    threads = values.value(texts[1])
    if threads is not None and isinstance(parse(texts[1]), Register):
        threads = threads >> 16 & 0xFFF
    return {BARRIER: number, THREADS: threads}


def _load_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    found = {
        DESTINATION: _in_register(one, values, 0, 0),
        MBARRIER: _in_register(one, values, 0, 1),
    }
    return found if one.base == "UTMALDG" else found | {BYTES: _bytes(one, values)}


def _bytes(one: Instruction, values: SassValues) -> int | None:
    """``UBLKCP [..], [..], UR``: units of 16 bytes; beside a mask the register holds that, too."""
    if any("MASK" in name or name == "MULTICAST" for name in one.modifiers):
        return None
    units = values.value(one.operands[2]) if len(one.operands) > 2 else None
    return None if units is None else units << 4 & 0xFFFFFFFF


def _store_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    if one.base.startswith("UTMA"):
        return {SOURCE: _in_register(one, values, 0, 0)}
    return {SOURCE: _in_register(one, values, 1, 0), BYTES: _bytes(one, values)}


def _at(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    return {MBARRIER: _place(one, values, 0)}


def _left_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    return {LEFT: values.value(one.operands[-1]) if one.base != "LDGDEPBAR" else None}


def _registers_of_sass(one: Instruction, values: SassValues, block: int | None) -> Quantities:
    return {REGISTERS: values.value(one.operands[-1])}


_SassRule = Callable[[Instruction, SassValues, int | None], Quantities]
_SASS: Mapping[str, _SassRule] = {
    "mbarrier.init": _init_of_sass,
    "mbarrier.inval": _at,
    "mbarrier.wait": _wait_of_sass,
    "mbarrier.arrive": _arrive_of_sass,
    "bar": _barrier_of_sass,
    "bar.arrive": _barrier_of_sass,
    "bulk.load": _load_of_sass,
    "bulk.peer": _load_of_sass,
    "bulk.store": _store_of_sass,
    "bulk.reduce": _store_of_sass,
    "tcgen05.commit": _at,
    "bulk.wait": _left_of_sass,
    "cp.async.wait": _left_of_sass,
    "wgmma.wait": _left_of_sass,
    "setmaxnreg": _registers_of_sass,
    "clusterlaunchcontrol": lambda one, values, _: {
        DESTINATION: _in_register(one, values, 0, 0), MBARRIER: _in_register(one, values, 1, 0),
    },
}  # fmt: skip

#: the kinds that have quantities
KINDS = frozenset(_PTX) & frozenset(_SASS)
