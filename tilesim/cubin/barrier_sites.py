"""Instructions of machine code that work on barriers: on which, by how much, by which threads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from time import monotonic
from typing import Literal

from tilesim.cubin.arithmetic import Term, both, constant, read, source
from tilesim.cubin.image import Triple
from tilesim.cubin.operands import Immediate, MbarrierOperand, Register, mbarrier_operand, parse
from tilesim.cubin.sass import Function, Instruction
from tilesim.cubin.thread_sets import ThreadSets
from tilesim.cubin.value_graph import ValueGraph
from tilesim.cubin.value_sets import ValueSets
from tilesim.records import dataclass

#: what an instruction does with an mbarrier
Kind = Literal[
    "init", "inval", "wait", "arrive", "arrive n", "arrive.expect_tx", "expect_tx", "complete_tx",
    "arrive_drop", "arrive_drop.expect_tx", "arrive.noComplete", "cp.async.mbarrier.arrive",
    "cp.async.mbarrier.arrive.noinc", "tcgen05.commit", "bulk copy", "tensor copy", "st.async",
    "red.async", "try_cancel",
]  # fmt: skip

#: those that take one from what a phase still lacks, or as many as their amount says
ARRIVES: frozenset[Kind] = frozenset({
    "arrive", "arrive n", "arrive.expect_tx", "arrive_drop", "arrive_drop.expect_tx",
    "arrive.noComplete", "cp.async.mbarrier.arrive.noinc", "tcgen05.commit",
})  # fmt: skip
#: of these the amount is how many arrivals each thread makes; of the others one
COUNTED: frozenset[Kind] = frozenset({"arrive n", "arrive_drop", "arrive.noComplete"})
#: those that expect bytes, and those that complete some
EXPECTS: frozenset[Kind] = frozenset({"arrive.expect_tx", "arrive_drop.expect_tx", "expect_tx"})
COMPLETES: frozenset[Kind] = frozenset({
    "complete_tx", "bulk copy", "tensor copy", "st.async", "red.async", "try_cancel",
})  # fmt: skip

#: bits of a shared address that count bytes; those above are the CTA's place in its cluster
_SHARED = (1 << 24) - 1
#: places in the cluster for which addresses are found: what names its own CTA is of each of them
_RANKS = frozenset({0, 1})
#: bits of the word that initialises an mbarrier: minus what it expects, from bit 1 on
_COUNT_BITS = (1 << 20) - 1
#: bytes that ``clusterlaunchcontrol.try_cancel`` writes
_ANSWER = 16
#: of the register of ``UBLKCP``: bytes / 16; those above are the mask of a multicast
_SIXTEENTHS = (1 << 16) - 1
#: of the register of ``BAR`` that has the number and the count
_NUMBER_BITS, _COUNT_FROM, _COUNT_OF_BAR = 0xF, 16, 0xFFF


@dataclass(frozen=True)
class Site:
    """An instruction that works on an mbarrier.

    ``pc`` counts bytes from the function's beginning. ``addresses``: bytes in the shared memory of
    a CTA, at least all those that it can name; None is not known. ``remote``: it may be the memory
    of another CTA of the cluster. ``amounts``: the values that its number can have: the count of an
    ``init``, the parity of a ``wait``, arrivals (of one thread), bytes of what expects, completes
    or copies; None is not known, as of a tensor copy, whose box is in the tensor map. ``warps``:
    those that can come to it; ``threads``: how many execute it, once each. None cannot be told.
    """

    pc: int
    instruction: str
    kind: Kind
    addresses: tuple[int, ...] | None
    remote: bool
    amounts: tuple[int, ...] | None
    warps: tuple[int, ...] | None
    threads: int | None


@dataclass(frozen=True)
class Work:
    """A site, with its threads.

    ``threads`` is the mask of those that execute it, ``exact`` whether all of these do so each time
    that one of them does; ``repeats``: it can be executed again before a wait. ``by_address``: the
    threads by what they name, where that differs between them; empty if it is not known then.
    """

    site: Site
    threads: int
    exact: bool
    repeats: bool
    by_address: Mapping[int, int] | None

    def at(self, address: int) -> int | None:
        """The threads that work on the mbarrier at an address; None cannot be told."""
        if self.by_address is None:
            return self.threads
        return self.by_address.get(address, 0) if self.by_address else None


@dataclass(frozen=True)
class NamedSite:
    """An instruction that comes to a named barrier: ``sync``, ``arrive`` (does not wait) or
    ``red``. ``numbers``, ``counts`` (of threads) hold at least all that it can name; None is not
    known. ``whole``: it is of all threads of the CTA, and names no count. ``warps`` can come to it;
    None cannot be told. ``by_number``: these warps by what they name, where that differs between
    them and is known. ``exact``: no branch that differs between threads leads to it but those that
    `warps` come from."""

    pc: int
    instruction: str
    kind: Literal["sync", "arrive", "red"]
    numbers: tuple[int, ...] | None
    counts: tuple[int, ...] | None
    whole: bool
    warps: tuple[int, ...] | None
    by_number: Mapping[int, tuple[int, ...]] | None
    exact: bool

    @property
    def may_be_another(self) -> bool:
        """Whether it can name another barrier than one of `numbers`, in the same warps."""
        return self.by_number is None and self.numbers is not None and len(self.numbers) > 1


@dataclass(frozen=True)
class RegisterSite:
    """A ``setmaxnreg``: the registers that a thread has behind it; ``warps`` can come to it."""

    pc: int
    kind: Literal["inc", "dec"]
    registers: int | None
    warps: tuple[int, ...] | None


class BarrierSites:
    """What a function does with barriers; ``block`` is None if that is not known.

    After ``until`` (`time.monotonic`) no further address is looked for: ``late`` says so then.
    """

    def __init__(
        self, function: Function, block: Triple | None, tables: bytes, until: float
    ) -> None:
        self.function = function
        self._until = until
        self.late = False
        self._graph = ValueGraph(function)
        decided = block is not None and not function.unknown
        self.threads = (
            ThreadSets(function, block, self._graph, tables) if block and decided else None
        )
        self._sets = ValueSets(function, self._known)
        self._reached = function.reached([0])

    def _known(self, name: str, _: int) -> Collection[int] | None:
        if name == "SR_CgaCtaId":
            return _RANKS
        if self.threads is not None and name.startswith("SR_TID."):
            return range(self.threads.block["XYZ".index(name[-1])])
        return None

    def _values(self, term: Term, pc: int) -> tuple[int, ...] | None:
        """The values of a term at a place, in order."""
        if monotonic() > self._until:
            self.late = True
            return None
        found = self._sets.term(term, pc)
        return None if found is None else tuple(sorted(found))

    def _of_register(self, text: str, pc: int) -> tuple[int, ...] | None:
        term = source(text)
        return None if term is None else self._values(term, pc)

    # ------------------------------------------------------------------ mbarriers

    def mbarriers(self) -> Iterator[Work]:
        """The instructions on mbarriers that can be executed, in the order of the code."""
        for one in self.function.code.values():
            operand = mbarrier_operand(one) if one.pc in self._reached else None
            kind = None if operand is None else _kind(one, operand)
            if operand is None or kind is None or one.guard in ("!PT", "!UPT"):
                continue
            work = self._work(one, operand, kind)
            if work.site.addresses != ():  # else its branches exclude each other
                yield work

    def _work(self, one: Instruction, operand: MbarrierOperand, kind: Kind) -> Work:
        parts = [*map(read, operand.registers), constant(operand.offset)]
        sum_ = Term("add", tuple(parts)) if len(parts) > 1 else parts[0]
        address = both(sum_, constant(_SHARED))
        addresses = self._values(address, one.pc)
        remote = False
        if kind not in ("init", "inval", "wait"):
            remote = self._is_remote(one, sum_, kind)
        mask, exact, by_address = 0, False, None
        repeats = False
        if self.threads is not None:
            mask, exact = self.threads.issuing(one.pc), self.threads.is_exact(one.pc)
            if kind not in ("init", "inval", "wait") and self.threads.varies(address, one.pc):
                by_address = self._by_value(address, one.pc, mask)
        if kind in ARRIVES | EXPECTS | COMPLETES:
            repeats = self._repeats(one.pc)
        known = self.threads is not None and exact
        site = Site(
            one.pc, str(one), kind, addresses, remote, self._amounts(one, kind),
            self.threads.warps_of(mask) if self.threads else None,
            mask.bit_count() if known else None,
        )  # fmt: skip
        return Work(site, mask, exact, repeats, by_address)

    def _is_remote(self, one: Instruction, address: Term, kind: Kind) -> bool:
        """Whether an mbarrier may be that of another CTA: its address is not that of each place in
        the cluster for the CTA with that place."""
        if "MULTICAST" in one.modifiers or "2CTA" in one.modifiers:
            return kind != "tcgen05.commit"
        far = one.base not in ("SYNCS", "ARRIVES") or "RED" in one.modifiers
        if not far:
            return False
        ranks = self._values(Term("shr", (address, constant(24))), one.pc)
        if ranks is not None and {*ranks} == {0}:  # its own, if the place is not cut off
            return self._graph.depends_on(address, one.pc, "SR_CgaCtaId")
        return ranks is None or {*ranks} != _RANKS

    def _by_value(self, term: Term, pc: int, mask: int) -> dict[int, int]:
        """Threads by the value that a term has in them; empty if it is not known."""
        assert self.threads is not None
        found: dict[int, int] = {}
        for thread, value in (self.threads.values(term, pc) or {}).items():
            if mask >> thread & 1:
                found[value] = found.get(value, 0) | 1 << thread
        return found

    def _amounts(self, one: Instruction, kind: Kind) -> tuple[int, ...] | None:
        """The values of the number of an instruction, see `Site`."""
        last = one.operands[-1]
        match kind:
            case "init":
                word = self._of_register(last, one.pc)
                if word is None:
                    return None
                return tuple(sorted({-(value >> 1) & _COUNT_BITS for value in word}))
            case "wait":
                term = source(last)
                return None if term is None else self._values(
                    Term("shr", (term, constant(31))), one.pc
                )  # fmt: skip
            case "arrive" | "tcgen05.commit" | "cp.async.mbarrier.arrive.noinc":
                return (1,)
            case "arrive_drop" if "A1T0" in one.modifiers:
                return (1,)
            case "bulk copy":
                found = next((o for o in one.operands[2:] if not o.startswith("desc")), "")
                term = source(found) if found else None
                if term is None:
                    return None
                count = both(term, constant(_SIXTEENTHS))
                sixteenths = self._values(count, one.pc)
                return None if sixteenths is None else tuple(16 * n for n in sixteenths)
            case "st.async" | "red.async":
                return (next((int(m) // 8 for m in one.modifiers if m in ("64", "128")), 4),)
            case "try_cancel":
                return (_ANSWER,)
            case "tensor copy" | "inval" | "cp.async.mbarrier.arrive":
                return None
            case _:
                return self._of_register(last, one.pc)

    def _repeats(self, pc: int) -> bool:
        """Whether an instruction can be executed again before any wait."""
        seen: set[int] = set()
        todo = [*self.function.successors[pc]]
        while todo:
            place = todo.pop()
            if place == pc:
                return True
            if place in seen or _waits(self.function.code[place]):
                continue
            seen.add(place)
            # a loop over threads is one execution of what is in it, for each of them
            one = self.function.code[place]
            todo += [
                after for after in self.function.successors[place]
                if not (one.opcode == "BRA.U.ANY" and after == one.target)
            ]  # fmt: skip
        return False

    # ------------------------------------------------------------------ named barriers, registers

    def named(self) -> Iterator[NamedSite]:
        """The instructions on named barriers that can be executed, in the order of the code."""
        for one in self.function.code.values():
            if (
                one.base == "BAR"
                and one.pc in self._reached
                and {"SYNC", "ARV", "RED"} & {*one.modifiers}
            ):
                yield self._named(one)

    def _named(self, one: Instruction) -> NamedSite:
        kind: Literal["sync", "arrive", "red"] = "sync"
        if "ARV" in one.modifiers:
            kind = "arrive"
        elif "RED" in one.modifiers:
            kind = "red"
        operands = [o for o in one.operands if not _is_predicate(o)]
        number = source(operands[0]) if operands else constant(0)
        in_register = bool(operands) and isinstance(parse(operands[0]), Register)
        if number is not None and in_register:
            number = both(number, constant(_NUMBER_BITS))
        numbers = None if number is None else self._values(number, one.pc)
        if numbers is not None and len(numbers) > _NUMBER_BITS:  # any
            numbers = None
        counts: tuple[int, ...] | None = None
        if len(operands) > 1:
            count = source(operands[1])
            if count is not None and isinstance(parse(operands[1]), Register):
                shifted = Term("shr", (count, constant(_COUNT_FROM)))
                count = both(shifted, constant(_COUNT_OF_BAR))
            counts = None if count is None else self._values(count, one.pc)
        warps: tuple[int, ...] | None = None
        by_number: dict[int, tuple[int, ...]] | None = None
        exact = False
        if self.threads is not None:
            mask, exact = self.threads.executing(one.pc), self.threads.is_exact(one.pc)
            warps = self.threads.warps_of(mask)
            if number is not None and self.threads.varies(number, one.pc):
                by_number = {
                    n: self.threads.warps_of(threads)
                    for n, threads in self._by_value(number, one.pc, mask).items()
                }
                numbers = tuple(sorted(by_number)) if by_number else numbers
                by_number = by_number or None
        return NamedSite(
            one.pc, str(one), kind, numbers, counts, len(operands) < 2, warps, by_number, exact
        )

    def registers(self) -> Iterator[RegisterSite]:
        """The instructions that change the registers of threads, in the order of the code."""
        for one in self.function.code.values():
            if one.base != "USETMAXREG" or one.pc not in self._reached:
                continue
            number = parse(one.operands[-1])
            warps = None
            if self.threads is not None:
                warps = self.threads.warps_of(self.threads.executing(one.pc))
            yield RegisterSite(
                one.pc, "dec" if "DEALLOC" in one.modifiers else "inc",
                number.value if isinstance(number, Immediate) else None, warps,
            )  # fmt: skip

    def places(self, *bases: str) -> tuple[int, ...]:
        """The places of instructions of some opcodes that can be executed."""
        code = self.function.code
        return tuple(pc for pc in code if code[pc].base in bases and pc in self._reached)


def _is_predicate(text: str) -> bool:
    one = parse(text)
    return isinstance(one, Register) and "P" in one.name


def _waits(one: Instruction) -> bool:
    """Whether an instruction waits for others of its CTA or cluster."""
    if one.base == "SYNCS":
        return "PHASECHK" in one.modifiers
    return (one.base == "BAR" and "ARV" not in one.modifiers) or one.base == "UCGABAR_WAIT"


#: what of an ``ARRIVE`` arrives, and what of bytes it does: of ``A1T0`` one arrives
_ARRIVAL = re.compile(r"A([01R])T([01RX])$")


def _kind(one: Instruction, operand: MbarrierOperand) -> Kind | None:
    """What an instruction does with its mbarrier; None if it is a part of another one."""
    modifiers = one.modifiers
    if operand.does in ("init", "wait"):
        return "init" if operand.does == "init" else "wait"
    match one.base:
        case "ARRIVES":
            noinc = "ARVCNT" in modifiers
            return "cp.async.mbarrier.arrive.noinc" if noinc else "cp.async.mbarrier.arrive"
        case "UTCBAR":
            return "tcgen05.commit"
        case "UBLKCP" | "UBLKRED":
            return "bulk copy"
        case "UTMALDG":
            return "tensor copy"
        case "STAS":
            return "st.async"
        case "REDAS":
            return "red.async"
        case "UGETNEXTWORKID":
            return "try_cancel"
    if operand.does != "arrive":
        return "inval"
    form = next((found for m in modifiers if (found := _ARRIVAL.match(m))), None)
    drops = "OPTOUT" in modifiers
    if form is None:
        return "arrive_drop.expect_tx" if drops else "arrive.expect_tx"
    arrives, expects = form.groups()
    if arrives == "0":
        # A0T1 goes before ARRIVES, which is the instruction: the arrival that it makes later
        if expects == "R":
            return "expect_tx"
        return "complete_tx" if expects == "X" else None
    if drops:
        return "arrive_drop"
    if "TMASK" in modifiers:
        return "arrive.noComplete"
    return "arrive" if arrives == "1" else "arrive n"
