"""What lies ahead of a warp in its control flow: arrivals, copies, barriers, stores.

An instruction lies ahead if it can be reached from where the warp stands, and its address is known
as far as the values of its registers are (`tilesim.cubin.value_sets`): as a set that holds at least
those that it can have.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Literal, NamedTuple

from tilesim.autopsy.core_dump import Cta
from tilesim.autopsy.recovered import dumped
from tilesim.autopsy.standing import SHARED_BITS, Launch, width
from tilesim.autopsy.waits import Group, lanes_of
from tilesim.cubin.arithmetic import Term, constant, read
from tilesim.cubin.operands import (
    Immediate,
    Memory,
    Register,
    mbarrier_operand,
    parse,
    written,
)
from tilesim.cubin.sass import Instruction
from tilesim.cubin.value_sets import ValueSets

Kind = Literal[
    "arrival", "bytes", "named", "bar.arrive", "cluster", "registers", "columns", "shared store",
    "global store",
]  # fmt: skip

#: bytes of a row of a matrix, which a lane of ``STSM`` stores
_MATRIX_ROW = 16
_SHARED_MASK = (1 << SHARED_BITS) - 1


class Names(NamedTuple):
    """What is waited for: an address in the shared memory of ``owner``, of some bytes; or the
    number of one of its named barriers."""

    owner: Cta
    address: int
    width: int = 8


#: answers by what they depend on: by names, by values
_Values = frozenset[int] | None
_Answers = dict[tuple[str, ...], dict[tuple[_Values, ...], Collection[int] | None]]


class _Threads:
    """A warp of a group: what is known of its threads from where they stand on.

    ``reached`` are the places ahead, ``writes`` what is written there: other registers stay as
    they are in the dump, at each of these places.
    """

    def __init__(
        self, launch: Launch, group: Group, warp: int, reached: frozenset[int],
        writes: frozenset[str],
    ) -> None:  # fmt: skip
        self.launch = launch
        self.group = group
        self.warp = next(one for one in group.cta.warps if one.number == warp)
        self.lanes = lanes_of(group.lanes)
        self.reached = reached
        self.writes = writes
        self.values: ValueSets | None = None
        self.used: dict[str, _Values] = {}

    def known(self, name: str, pc: int) -> Collection[int] | None:
        """What the values of registers are found from (`tilesim.cubin.value_sets`)."""
        fixed = name.startswith(("SR_", "c["))
        if not fixed and pc not in self.reached:
            return None
        return self.value(name)

    def value(self, name: str) -> _Values:
        """The values that something has in the threads, each time that it is read from now on."""
        if name not in self.used:
            self.used[name] = self._value(name)
        return self.used[name]

    def _value(self, name: str) -> _Values:
        if name.startswith("c[0x0]["):
            value = self.launch.constant(name)
            return None if value is None else frozenset((value,))
        if name in self.writes:
            return None
        if name.startswith("U") and len(self.lanes) < self.warp.valid.bit_count():
            return None  # other lanes of the warp may write it
        found = {dumped(self.group.cta, self.warp, lane, name) for lane in self.lanes}
        known = frozenset(value for value in found if value is not None)
        return known if len(known) == len(found) else None


class Ahead:
    """What lies ahead of the groups of a launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._reached: dict[int, frozenset[int]] = {}
        self._of: dict[tuple[int, Kind], tuple[Instruction, ...]] = {}
        self._writes: dict[int, frozenset[str]] = {}
        self._threads_of: dict[tuple[int, int], _Threads] = {}
        self._answers: dict[tuple[int, int, bool], _Answers] = {}

    @cached_property
    def _kinds(self) -> dict[Kind, tuple[Instruction, ...]]:
        found: dict[Kind, list[Instruction]] = {}
        for one in self.launch.function.code.values():
            for kind in _kinds(one):
                found.setdefault(kind, []).append(one)
        return {kind: tuple(members) for kind, members in found.items()}

    def any_of(self, group: Group, kind: Kind) -> bool:
        """Whether an instruction of a kind lies ahead of a group, as far as that is known."""
        return group.pc not in self.launch.function.code or bool(self._ahead(group.pc, kind))

    def reaches(self, group: Group, one: Instruction) -> bool:
        """Whether an instruction lies ahead of a group, as far as that is known."""
        outside = group.pc not in self.launch.function.code
        return outside or one.pc in self._from(group.pc)

    @cached_property
    def complete(self) -> bool:
        """Whether all that can follow is known: where each branch and each call leads."""
        code = self.launch.function.code
        calls = (one for one in code.values() if one.base == "CALL")
        inside = all(group.pc in code for group in self.launch.groups)
        known = not self.launch.function.unknown and all(one.target is not None for one in calls)
        return known and inside

    def may_name_barrier(self, kind: Kind, number: int) -> bool:
        """Whether the kernel has an instruction of a kind that may name a named barrier."""
        return any(self.number(one) in (number, None) for one in self._kinds.get(kind, ()))

    def barriers(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of the kernel that may come to a named barrier."""
        named = self._kinds.get("named", ())
        return tuple(one for one in named if self.number(one) in (number, None))

    def initialised(self, address: int) -> tuple[Instruction, ...]:
        """The instructions that initialise the mbarrier at an address, as far as it is known."""
        return tuple(one for one, places in self._inits if address in places)

    @cached_property
    def _inits(self) -> list[tuple[Instruction, set[int]]]:
        """The instructions that initialise mbarriers, and the places that are known of each."""
        found = []
        for one in self.launch.function.code.values():
            if one.base == "SYNCS" and "EXCH" in one.modifiers:
                known = self._values.address(one.pc) or ()
                found.append((one, {place & _SHARED_MASK for place in known}))
        return found

    def of(
        self, group: Group, warp: int, kind: Kind, names: Names | None
    ) -> tuple[tuple[Instruction, ...], tuple[Instruction, ...]]:
        """The instructions of a kind ahead of a warp of a group that name what is waited for, as
        far as it is known what they name; and those of which that is not known. Those that the warp
        cannot come to are left out: by the threads that it has, and the registers that nothing
        ahead of it writes. A group in a function that the kernel calls comes back to any place."""
        if group.pc not in self.launch.function.code:
            return (), self._kinds.get(kind, ())
        threads = self._threads(group, warp)
        certain: list[Instruction] = []
        possible: list[Instruction] = []
        for one in self._ahead(group.pc, kind):
            if names is None:
                named: bool | None = self._can_come(one, threads)
            else:
                named = self._names(one, kind, threads, names)
            if named is None:
                possible.append(one)
            elif named:
                certain.append(one)
        return tuple(certain), tuple(possible)

    def arrives(self, wait: Instruction) -> bool:
        """Whether each way to a wait for the cluster has an arrival since the wait before it."""
        if not self.complete:
            return False
        function = self.launch.function
        seen, left = set[int](), [wait.pc]
        while left:
            place = left.pop()
            before = [function.code[pc] for pc in function.predecessors[place]]
            if place == 0 or not before or any(one.base == "UCGABAR_WAIT" for one in before):
                return False
            ways = {one.pc for one in before if one.base != "UCGABAR_ARV" or one.guard}
            left += ways - seen
            seen |= ways
        return True

    def _ahead(self, pc: int, kind: Kind) -> tuple[Instruction, ...]:
        key = pc, kind
        if key not in self._of:
            reached = self._from(pc)
            self._of[key] = tuple(i for i in self._kinds.get(kind, ()) if i.pc in reached)
        return self._of[key]

    def _from(self, pc: int) -> frozenset[int]:
        if pc not in self._reached:
            self._reached[pc] = self.launch.function.reached([pc])
        return self._reached[pc]

    def _names(self, one: Instruction, kind: Kind, threads: _Threads, names: Names) -> bool | None:
        """Whether an instruction names what is waited for; None: that is not known."""
        if kind in ("named", "bar.arrive"):
            number = self.number(one)
            if number not in (None, names.address) or not self._can_come(one, threads):
                return False
            return None if number is None else True
        cta, far = threads.group.cta, _reaches_peers(one)
        if cta is not names.owner and not far:
            return False
        known = self._addresses(one, threads)
        if known is None:
            return None
        found = [place for place in known if self._hits(place & _SHARED_MASK, one, names)]
        if not found:
            return False
        if not far:
            return True
        if "MULTICAST" in one.modifiers:  # the same place in CTAs that a mask names
            return True if cta is names.owner else None
        return any(place >> SHARED_BITS == names.owner.rank for place in found)

    def _hits(self, place: int, one: Instruction, names: Names) -> bool:
        if mbarrier_operand(one) is not None:
            return place == names.address
        stored = _MATRIX_ROW if one.base == "STSM" else width(one)
        return names.address - stored < place < names.address + names.width

    # ------------------------------------------------------------------ values

    def _can_come(self, one: Instruction, threads: _Threads) -> bool:
        """Whether a warp can come to an instruction, as far as it is known."""
        return self._addresses(one, threads, nothing=True) != frozenset()

    def _addresses(
        self, one: Instruction, threads: _Threads, *, nothing: bool = False
    ) -> Collection[int] | None:
        """The shared addresses that an instruction can name in a warp, or ``nothing`` of them;
        empty if the warp cannot come to it, None if they are not known.

        Bits 24 and up are the rank of the CTA whose memory it is.
        """
        answers = self._answers.setdefault((threads.group.pc, one.pc, nothing), {})
        for names, by_values in answers.items():
            values = tuple([threads.value(name) for name in names])
            if values in by_values:
                return by_values[values]
        if threads.values is None:
            threads.values = ValueSets(self.launch.function, threads.known)
        found = self._find(one, threads.values, nothing)
        answers.setdefault(tuple(threads.used), {})[tuple(threads.used.values())] = found
        return found

    def _find(self, one: Instruction, values: ValueSets, nothing: bool) -> Collection[int] | None:
        if nothing:
            return values.term(constant(0), one.pc)
        if mbarrier_operand(one) is not None:
            return values.address(one.pc)
        memory = next((m for m in map(parse, one.operands) if isinstance(m, Memory)), None)
        if memory is None or memory.wide or any(scale != 1 for _, scale in memory.registers):
            return None
        parts = [read(name) for name, _ in memory.registers]
        return values.term(Term("add", (*parts, constant(memory.offset))), one.pc)

    def _threads(self, group: Group, warp: int) -> _Threads:
        key = id(group), warp
        if key not in self._threads_of:
            if group.pc not in self._writes:
                code = self.launch.function.code
                writes = (written(code[pc]) for pc in self._from(group.pc))
                self._writes[group.pc] = frozenset(name for names in writes for name in names)
            self._threads_of[key] = _Threads(
                self.launch, group, warp, self._from(group.pc), self._writes[group.pc]
            )
        return self._threads_of[key]

    @cached_property
    def _values(self) -> ValueSets:
        """The values of registers in any thread, addresses as of the first CTA of a cluster."""

        def known(name: str, _: int) -> Collection[int] | None:
            return (0,) if name == "SR_CgaCtaId" else None

        return ValueSets(self.launch.function, known)

    def number(self, one: Instruction) -> int | None:
        """The number of a named barrier; None if a register has it and is not known."""
        first = parse(one.operands[0]) if one.operands else None
        if isinstance(first, Immediate):
            return first.value
        if isinstance(first, Register):
            known = self._values.value(first.name, one.pc)
            numbers = {value & 0xF for value in known} if known is not None else set()
            return numbers.pop() if len(numbers) == 1 else None
        return None


def _kinds(one: Instruction) -> tuple[Kind, ...]:
    """What kinds an instruction is of."""
    modifiers = one.modifiers
    match one.base:
        case "SYNCS" if "ARRIVE" in modifiers:
            if "A0TX" in modifiers:
                return ("bytes",)
            # A0TR, A0T1: bytes are expected, nothing arrives
            return () if any(m.startswith("A0") for m in modifiers) else ("arrival",)
        case "ARRIVES" | "UTCBAR":
            return ("arrival",)
        case "UTMALDG" | "STAS" | "REDAS" | "UGETNEXTWORKID":
            return ("bytes",)
        case "UBLKCP" | "UBLKRED" if modifiers[:1] == ("S",):
            return ("bytes",)
        case "BAR":
            return ("named", "bar.arrive") if "ARV" in modifiers else ("named",)
        case "UCGABAR_ARV":
            return ("cluster",)
        case "USETMAXREG" if "DEALLOC" in modifiers:
            return ("registers",)
        case "UTCATOMSWS" if "AND" in modifiers:
            return ("columns",)
        case "STS" | "ATOMS" | "STSM" | "REDS":
            return ("shared store",)
        case "STG" | "REDG" | "ATOMG" | "UBLKRED" | "UTMASTG" | "UTMAREDG":
            return ("global store",)
        case "ST" | "RED" | "ATOM":
            return ("shared store", "global store")
        case "UBLKCP":
            return ("global store",)
        case _:
            return ()


def _reaches_peers(one: Instruction) -> bool:
    """Whether an instruction can name the shared memory of another CTA of the cluster."""
    if one.base == "SYNCS":
        return "RED" in one.modifiers
    return one.base not in ("ARRIVES", "STS", "ATOMS", "STSM", "REDS")
