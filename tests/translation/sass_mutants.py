"""Machine code with one mistake that ptxas could make: an instruction of a cubin is deleted, moved,
guarded otherwise, has another number or another modifier, or does not wait for a scoreboard.

The bits of the cubin are changed, and its line table where instructions change places, so that all
of validation is tried. What was meant is compared with what nvdisasm prints: a mutant differs in
the one instruction, in the one way.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.translation.rewritten import relocated, reordered, with_words, word
from tilesim.cubin.control import controls
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import WIDTH, Function, Instruction

#: NOP without its control bits, which are those of the instruction that it stands for
_NOP, _CONTROL = 0x7918, 0xFFFFF << 105
_GUARD_AT, _GUARD_BITS, _NEGATED, _ALWAYS = 12, 0xF, 0x8, 0x7
#: instructions between two that change places, at most
_FAR = 40

#: SASS that waits, or orders accesses behind it
_ACQUIRES = re.compile(
    r"SYNCS\.PHASECHK|BAR\.(SYNC|RED)|DEPBAR\.LE|WARPGROUP\.DEPBAR|UCGABAR_WAIT|ACQBULK|MEMBAR|"
    r"FENCE\.VIEW\.ASYNC\.T|CCTL\.IVALL"
)
#: SASS that hands on what was done before it
_RELEASES = re.compile(
    r"SYNCS\.(ARRIVE|EXCH)|ARRIVES|BAR\.|UCGABAR_ARV|UTCBAR|MEMBAR|FENCE\.VIEW\.ASYNC|PREEXIT|"
    r"WARPGROUP\.ARRIVE|UTMACMDFLUSH|LDGDEPBAR"
)
_ACCESSES = re.compile(
    r"LDSM?\b|STSM?\b|LDG\b|STG\b|LDTM|STTM|[HQIB]GMMA|UTC\w*MMA|UTCCP|UTMALDG|UTMASTG|UTMAREDG|"
    r"UBLKCP|UBLKRED|LDGSTS|ATOM|RED"
)
_SYNCHRONISES = re.compile(
    r"SYNCS|ARRIVES|BAR\.|DEPBAR\.LE|LDGDEPBAR|UTMACMDFLUSH|WARPGROUP|UCGABAR|ACQBULK|PREEXIT|"
    r"MEMBAR|FENCE\.VIEW|CCTL\.IVALL|UTMALDG|UTMASTG|UTMAREDG|UBLKCP|UBLKRED|LDGSTS|[HQIB]GMMA|"
    r"UTC\w*MMA|UTCBAR|UTCCP|LDTM|STTM"
)
#: initialisations of mbarriers, and the fence that ptxas puts before them: in any order
_INITIALISES = ("SYNCS.EXCH", "FENCE.VIEW.ASYNC.S")
_JUMPS = frozenset(
    {"BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK",
     "WARPSYNC", "BPT", "KILL", "LEPC", "ELECT", "YIELD"}
)  # fmt: skip
#: branches of the program: ``BRA.U.ANY`` is of a loop over lanes that ptxas makes
_BRANCHES = ("BRA", "BRA.U")
#: by instruction: where a number of its stands, lowest bit and how many
_NUMBERS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "BAR": ((42, 12), (54, 4)), "DEPBAR": ((38, 6),), "WARPGROUP": ((38, 3),), "SYNCS": ((40, 24),),
    "MOV": ((32, 32),), "UMOV": ((32, 32),), "IMAD": ((32, 32),), "USETMAXREG": ((32, 8),),
    "ARRIVES": ((40, 24),), "LOP3": ((32, 32),), "ULOP3": ((32, 32),), "SEL": ((32, 32),),
}  # fmt: skip
_HEX = re.compile(r"-?0x[0-9a-f]+")
_REGISTER = re.compile(r"\bU?R\d+\b")


#: bits of modifiers, and where the scoreboards stand that are waited for
_MODIFIERS, _WAITS_AT = range(72, 105), 116
#: what raises a scoreboard that stands for a wait of the PTX
_RAISES = re.compile(r"LDTM|FENCE\.VIEW\.ASYNC")


class Mutant(NamedTuple):
    """A cubin with a mistake in the instruction at a place of the original."""

    kind: str
    pc: int
    what: str
    image: Image


Draw = Callable[[Image, Symbol, Function, random.Random], Iterator[Mutant]]


def drawn(image: Image, symbol: Symbol, kind: str, rng: random.Random) -> Mutant | None:
    """A mutant of a kind of a function; None if it has no place for one."""
    (function,) = disassemble(image, (symbol,))
    for mutant in KINDS[kind](image, symbol, function, rng):
        if _as_meant(mutant, symbol, function):
            return mutant
    return None


# ---------------------------------------------------------------------- kinds


def _deleted(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    for one in _shuffled(function, rng, lambda one: bool(_SYNCHRONISES.match(one.opcode))):
        nop = _NOP | word(image, symbol, one.pc) & _CONTROL
        yield Mutant("deleted", one.pc, str(one), with_words(image, symbol, {one.pc: nop}))


def _moved(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    """Instructions behind the next one, or before the last one, that they may not pass."""
    fixed = relocated(image, symbol)
    targets = {
        after
        for pc, following in function.successors.items()
        for after in following
        if after != pc + WIDTH
    }
    for one in _shuffled(function, rng, lambda one: _matters(one.opcode)):
        down = rng.random() < 0.5
        places = [one.pc]
        while len(places) < _FAR:
            pc = places[-1] + (WIDTH if down else -WIDTH)
            other = function.code.get(pc)
            if other is None or other.base in _JUMPS or pc in fixed:
                break
            if (pc if down else places[-1]) in targets:
                break
            places.append(pc)
            first, second = (one, other) if down else (other, one)
            if _ordered(first.opcode, second.opcode) and not _is_inert(other):
                order = sorted(places)
                order.remove(one.pc)
                order.insert(len(order) if down else 0, one.pc)
                what = f"{one} {'behind' if down else 'before'} {other}"
                yield Mutant("moved", one.pc, what, reordered(image, symbol, order))
                break


def _guarded(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    """Guards of synchronisation and of branches: negated, or left out."""
    for one in _shuffled(
        function, rng,
        lambda one: bool(one.guard)
        and (one.opcode in _BRANCHES or bool(_SYNCHRONISES.match(one.opcode))),
    ):  # fmt: skip
        bits = word(image, symbol, one.pc)
        if rng.random() < 0.5:
            changed, what = bits ^ _NEGATED << _GUARD_AT, "negated"
        else:
            cleared = bits & ~(_GUARD_BITS << _GUARD_AT)
            changed, what = cleared | _ALWAYS << _GUARD_AT, "left out"
        made = with_words(image, symbol, {one.pc: changed})
        yield Mutant("guard", one.pc, f"{one}: {what}", made)


def _numbered(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    """Numbers of synchronisation, and of what gives it a register: one bit, or one more."""
    for one in _shuffled(
        function, rng,
        lambda one: one.base == "USETMAXREG"
        or (one.base in _NUMBERS and bool(_SYNCHRONISES.match(one.opcode))),
    ):  # fmt: skip
        choices = [one, *_sources(function, one)]
        rng.shuffle(choices)
        for source in choices:
            bits = word(image, symbol, source.pc)
            for at, size in rng.sample(_NUMBERS[source.base], len(_NUMBERS[source.base])):
                old = bits >> at & (1 << size) - 1
                new = rng.choice([old + 1, old - 1, old ^ 8, old * 2]) & (1 << size) - 1
                if new == old:
                    continue
                changed = bits & ~((1 << size) - 1 << at) | new << at
                what = f"{source}: {old:#x} is {new:#x}" + (
                    f", for {one}" if source is not one else ""
                )
                yield Mutant(
                    "number", source.pc, what, with_words(image, symbol, {source.pc: changed})
                )


def _sources(function: Function, one: Instruction) -> Iterator[Instruction]:
    """Instructions on a straight line before one that put a number in a register of it."""
    wanted = {found for operand in one.operands for found in _REGISTER.findall(operand)}
    for pc in range(one.pc - WIDTH, max(-1, one.pc - _FAR * WIDTH), -WIDTH):
        other = function.code.get(pc)
        if other is None or other.base in _JUMPS or not wanted:
            return
        if other.operands and other.operands[0] in wanted:
            wanted.discard(other.operands[0])
            if other.base in _NUMBERS and _HEX.search(" ".join(other.operands)):
                yield other


def _modified(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    """Synchronisation with another modifier: one bit of the instruction, behind its operands."""
    for one in _shuffled(function, rng, lambda one: bool(_SYNCHRONISES.match(one.opcode))):
        bits = word(image, symbol, one.pc)
        for at in rng.sample(_MODIFIERS, len(_MODIFIERS)):
            made = with_words(image, symbol, {one.pc: bits ^ 1 << at})
            yield Mutant("modifier", one.pc, f"{one}: bit {at} is another one", made)


def _unwaited(
    image: Image, symbol: Symbol, function: Function, rng: random.Random
) -> Iterator[Mutant]:
    """What waits first for a load of tensor memory, or for a fence, and does not. The fence that
    ptxas puts before an initialisation stands for nothing in the PTX."""
    bits = controls(image, symbol)
    for one in _shuffled(function, rng, lambda one: bool(_RAISES.match(one.opcode))):
        raised = bits[one.pc].write
        pc = one.pc
        while raised is not None and len(function.successors[pc]) == 1:
            (pc,) = function.successors[pc]
            if bits[pc].waits >> raised & 1:
                if "EXCH" in function.code[pc].modifiers:
                    break
                without = word(image, symbol, pc) & ~(1 << _WAITS_AT + raised)
                what = f"{function.code[pc]} does not wait for {one} at {one.pc:#x}"
                yield Mutant("scoreboard", pc, what, with_words(image, symbol, {pc: without}))
                break


#: by kind, what draws mutants of it in some order
KINDS: Mapping[str, Draw] = {
    "deleted": _deleted, "moved": _moved, "guard": _guarded, "number": _numbered,
    "modifier": _modified, "scoreboard": _unwaited,
}  # fmt: skip


def _shuffled(
    function: Function, rng: random.Random, wanted: Callable[[Instruction], bool]
) -> list[Instruction]:
    reached = function.reached([min(function.code)])
    found = [
        one
        for pc, one in function.code.items()
        if pc in reached and wanted(one) and not _is_inert(one)
    ]
    rng.shuffle(found)
    return found


def _is_inert(one: Instruction) -> bool:
    """Whether an instruction is never executed, or waits for a scoreboard of its own thread."""
    waits = one.base == "DEPBAR" and one.operands[0] != "SB0"
    return waits or one.guard in ("!PT", "!UPT")


def _matters(opcode: str) -> bool:
    return any(kind.match(opcode) for kind in (_ACQUIRES, _RELEASES, _ACCESSES))


def _ordered(first: str, second: str) -> bool:
    """Whether one may not be executed behind the other."""
    if all(opcode.startswith(_INITIALISES) for opcode in (first, second)):
        return False
    if _ACQUIRES.match(first):
        return _matters(second)
    return bool(_RELEASES.match(second)) and _matters(first)


# ---------------------------------------------------------------------- what was meant


def _as_meant(mutant: Mutant, symbol: Symbol, original: Function) -> bool:
    """Whether nvdisasm prints what was meant."""
    try:
        (changed,) = disassemble(mutant.image, (symbol,))
    except CubinError:
        return False
    if mutant.kind == "moved":
        return sorted(map(str, changed.code.values())) == sorted(map(str, original.code.values()))
    if mutant.kind == "scoreboard":
        return all(str(changed.code.get(pc)) == str(one) for pc, one in original.code.items())
    differ = [pc for pc, one in original.code.items() if str(changed.code.get(pc)) != str(one)]
    if differ != [mutant.pc] or mutant.pc not in changed.code:
        return False
    old, new = original.code[mutant.pc], changed.code[mutant.pc]
    if mutant.kind == "deleted":
        return str(new) == "NOP"
    if mutant.kind == "modifier":
        same = (old.base, old.operands, old.guard) == (new.base, new.operands, new.guard)
        return same and "INVALID" not in new.opcode
    same = (old.opcode, old.operands) == (new.opcode, new.operands)
    if mutant.kind == "guard":
        return same and new.guard in ("", _negated(old.guard))
    shape = [_HEX.sub("#", f"{one.guard} {one.opcode} {one.operands}") for one in (old, new)]
    return shape[0] == shape[1]


def _negated(guard: str) -> str:
    return guard.removeprefix("!") if guard.startswith("!") else f"!{guard}"
