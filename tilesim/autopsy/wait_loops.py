"""Loops of machine code that do nothing but wait: they ask again and again until an answer changes.

A loop waits if one of its exits depends on what it asks (an mbarrier's phase, a word of memory, the
register pool, tensor memory) and else on nothing that changes from one turn to the next, and if it
does nothing that others see. Exits behind a counter or a clock are a watchdog's.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.cubin.operands import read, written
from tilesim.cubin.sass import Function, Instruction
from tilesim.records import dataclass

#: instructions of a loop that is taken for one that only waits, at most
MOST = 96
#: steps from a condition back to what it depends on, at most
_MOST_STEPS = 4096

#: what others see, or what a loop that only waits has no use for
_WORK = frozenset({
    "ST", "STG", "STS", "STSM", "RED", "REDG", "REDS", "STAS", "REDAS", "ARRIVES", "BAR",
    "UCGABAR_ARV", "UCGABAR_WAIT", "CALL", "RET", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG",
    "UTMAREDG", "LDGSTS", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA",
    "UTCIMMA", "UTCBAR", "UTCCP", "UTCSHIFT", "LDTM", "STTM", "UGETNEXTWORKID", "ACQBULK",
    "PREEXIT", "HMMA", "IMMA", "DMMA", "EXIT",
})  # fmt: skip
#: instructions that copy a value, and count nothing
_COPIES = frozenset({
    "MOV", "UMOV", "SEL", "USEL", "FSEL", "SHFL", "PLOP3", "UPLOP3", "VOTE", "VOTEU", "R2UR",
    "ISETP", "UISETP",
})  # fmt: skip
_CLOCKS = ("SR_CLOCK", "SR_GLOBALTIMER")


@dataclass(frozen=True)
class WaitLoop:
    """A loop that waits: its ``places``, what it ``asks``, and whether it also ends ``otherwise``:
    by a counter or a clock."""

    places: frozenset[int]
    asks: tuple[Instruction, ...]
    otherwise: bool


def wait_loops(function: Function) -> dict[int, WaitLoop]:
    """By place, the smallest loop around it that only waits."""
    bodies = set(_loops(function))
    found: dict[int, WaitLoop] = {}
    for body in sorted(bodies, key=lambda b: (len(b), min(b))):
        if (loop := _Loop(function, body).waits()) is not None:
            for place in body:
                found.setdefault(place, loop)
    return found


def _loops(function: Function) -> Iterator[frozenset[int]]:
    """The natural loops that are small, and the unions of those that share their head."""
    by_head: dict[int, list[frozenset[int]]] = {}
    for tail, head in _back(function):
        if (body := _body(function, head, tail)) is not None:
            by_head.setdefault(head, []).append(body)
    for bodies in by_head.values():
        yield from bodies
        whole = frozenset().union(*bodies)
        if len(whole) <= MOST:
            yield whole


def _back(function: Function) -> Iterator[tuple[int, int]]:
    """The edges that lead to a place on the way to them: those by which loops go round, also where
    the head of a loop does not lie before the rest of it."""
    seen: set[int] = set()
    for root in function.code:
        way, open_ = [], set[int]()
        if root not in seen:
            way.append((root, iter(function.successors[root])))
            seen.add(root)
            open_.add(root)
        while way:
            place, following = way[-1]
            after = next(following, None)
            if after is None:
                open_.discard(place)
                way.pop()
            elif after in open_:
                yield place, after
            elif after not in seen:
                seen.add(after)
                open_.add(after)
                way.append((after, iter(function.successors[after])))


def _body(function: Function, head: int, tail: int) -> frozenset[int] | None:
    """The loop of an edge back to ``head``; None if it is large, or is entered elsewhere too."""
    found, left = {head}, [tail]
    while left:
        place = left.pop()
        if place in found:
            continue
        found.add(place)
        before = function.predecessors[place]
        if not before or len(found) > MOST:
            return None
        left += before
    return frozenset(found)


def asks(one: Instruction) -> bool:
    """Whether an instruction asks for a state that others change."""
    modifiers = one.modifiers
    match one.base:
        case "SYNCS":
            return "PHASECHK" in modifiers
        case "LD" | "LDG" | "LDS":
            return one.operands[0] != "RZ" or one.guard != "!PT"
        case "ATOM" | "ATOMG" | "ATOMS":  # one that adds up is a step of its own
            return bool({"CAS", "EXCH"} & {*modifiers}) or one.operands[-1] in ("RZ", "URZ")
        case "USETMAXREG":
            return "TRY_ALLOC" in modifiers
        case "UTCATOMSWS":
            return "FIND_AND_SET" in modifiers
        case _:
            return False


class _Loop:
    def __init__(self, function: Function, body: frozenset[int]) -> None:
        self.function = function
        self.body = body
        self._steps = 0

    def waits(self) -> WaitLoop | None:
        code = [self.function.code[place] for place in sorted(self.body)]
        if any(_works(one) for one in code):
            return None
        found: set[Instruction] = set()
        otherwise = False
        for one in code:
            outside = [p for p in self.function.successors[one.pc] if p not in self.body]
            if not outside:
                continue
            conditions = read(one)
            first = self._first_asks(conditions, one.pc)
            if first and self._pure(conditions, one.pc, ()):
                found |= first
            elif not all(self.function.code[place].base == "BPT" for place in outside):  # a trap
                otherwise = True
        if not found:
            return None
        return WaitLoop(self.body, tuple(sorted(found, key=lambda i: i.pc)), otherwise)

    def _first_asks(self, registers: frozenset[str], at: int) -> set[Instruction]:
        """What is asked for the values of registers at a place, the last question before it."""
        found: set[Instruction] = set()
        seen: set[tuple[int, str]] = set()
        left = [(at, register) for register in registers]
        while left:
            item = left.pop()
            if item in seen:
                continue
            seen.add(item)
            for one in self._sources(*item):
                if asks(one):
                    found.add(one)
                else:
                    left += [(one.pc, register) for register in read(one)]
        return found

    def _pure(self, registers: frozenset[str], at: int, above: tuple[int, ...]) -> bool:
        """Whether registers depend on what is asked, and else on nothing that the loop changes."""
        for register in registers:
            for one in self._sources(at, register):
                self._steps += 1
                if self._steps > _MOST_STEPS or _is_clock(one):
                    return False
                if one.pc in above:
                    around = above[above.index(one.pc) :]
                    if not all(_copies(self.function.code[pc]) for pc in around):
                        return False
                elif not self._pure(read(one), one.pc, (*above, one.pc)):
                    return False
        return True

    def _sources(self, at: int, register: str) -> list[Instruction]:
        """The instructions of the loop from which a register may have its value before a place."""
        found, seen = [], set[int]()
        left = [*self.function.predecessors[at]]
        while left:
            place = left.pop()
            if place in seen or place not in self.body:
                continue
            seen.add(place)
            one = self.function.code[place]
            if register in written(one):
                found.append(one)
                if not one.guard:
                    continue
            left += self.function.predecessors[place]
        return sorted(found, key=lambda i: i.pc)


def _is_clock(one: Instruction) -> bool:
    return any(clock in operand for operand in one.operands for clock in _CLOCKS)


def _works(one: Instruction) -> bool:
    if one.base in ("SYNCS", "ATOM", "ATOMG", "ATOMS"):
        return not asks(one)
    return one.base in _WORK


def _copies(one: Instruction) -> bool:
    return one.base in _COPIES or one.opcode.startswith("IMAD.MOV") or asks(one)
