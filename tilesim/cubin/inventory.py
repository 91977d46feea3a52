"""The inventory of a kernel's machine code: its barriers, what works on them, what it needs.

It is no proof. It says what stands in the code, and compares numbers that stand there: what an
mbarrier expects with what arrives, bytes that are expected with bytes that are copied, the count of
a named barrier with the warps that come to it, registers that are asked for with those there are.

Each comparison *agrees*, *differs* or is *not known*. It differs only if no number of executions
that the code allows makes the numbers agree: of each warp all threads that can come to an
instruction execute it, or none; in a phase once, where a wait stands on each way back to it. Warps
need not work in the same phase. What is not certain is not known: an address, a count, a guard or a
branch that may differ between threads, arrivals from other CTAs, boxes of tensor maps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Literal

from tilesim.cubin.arithmetic import Term, both, constant, read, reads, source
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, KernelInfo, Symbol, Triple
from tilesim.cubin.operands import Immediate, MbarrierOperand, Register, mbarrier_operand, parse
from tilesim.cubin.sass import Function, Instruction
from tilesim.cubin.thread_values import LANES, RANK, ThreadValues, numbers_of
from tilesim.cubin.value_sets import ValueSets
from tilesim.records import dataclass
from tilesim.wording import count

#: what two numbers of a kernel say of each other
Answer = Literal["agrees", "differs", "not known"]
#: seconds that the inventory of a kernel may take
SECONDS = 20.0
#: the parts of an SM that have registers of their own: a warp is on that of its number modulo 4
PARTITIONS = 4
#: bits of a shared address that count bytes; those above are the CTA's place in its cluster
_SHARED = (1 << 24) - 1
#: bits of the word that initialises an mbarrier: minus what it expects, from bit 1 on
_COUNT_BITS = (1 << 20) - 1
#: of the register of ``UBLKCP``: bytes / 16; those above are the mask of a multicast
_SIXTEENTHS = (1 << 16) - 1
#: of the register of ``BAR`` that has the number and the count
_NUMBER_BITS, _COUNT_FROM, _COUNT_OF_BAR = 0xF, 16, 0xFFF
#: a place in the cluster that an address by mistake does not have
_OTHER_RANK = 5
#: bytes that ``clusterlaunchcontrol.try_cancel`` writes
_ANSWER = 16
#: sums that are looked at
_MOST_SUMS = 1 << 12
#: opcodes of what works on barriers or changes the number of registers
_BASES = frozenset({
    "SYNCS", "ARRIVES", "UTCBAR", "UGETNEXTWORKID", "UBLKCP", "UBLKRED", "UTMALDG", "STAS",
    "REDAS", "BAR", "USETMAXREG",
})  # fmt: skip
#: executed once for a warp, all others once for each thread
_ONCE_A_WARP = frozenset({"UTMALDG", "UBLKCP", "UBLKRED", "UTCBAR", "UGETNEXTWORKID"})
#: what of an ``ARRIVE`` arrives, and what of bytes it does: of ``A1T0`` one arrives
_ARRIVAL = re.compile(r"A([01R])T([01RX])$")


@dataclass(frozen=True)
class Compared:
    """What two numbers say of each other, and why, in a sentence."""

    answer: Answer
    why: str


@dataclass(frozen=True)
class Site:
    """An instruction on an mbarrier or a named barrier, and what it does.

    ``pc`` counts bytes from the function's beginning. ``kind`` is in the words of PTX.
    ``places``: of an mbarrier bytes in the shared memory of a CTA, of a named barrier its number:
    at least all those that it can name; None is not known. ``amount``: the parity of a wait, the
    count of an ``init`` or a named barrier, arrivals of each thread, bytes that are expected,
    completed or copied; None is not known. ``threads``: a mask of at least those that execute it,
    by what they name; ``certain``: of each warp all do so, or none. ``repeats``: again before any
    wait. ``remote``: what it names may be in another CTA.
    """

    pc: int
    instruction: str
    kind: str
    places: tuple[int, ...] | None
    amount: int | None
    arrives: bool
    expects: bool
    completes: bool
    threads: Mapping[int, int]
    certain: bool
    repeats: bool
    remote: bool

    def lanes(self, place: int) -> Counter[int]:
        """How many threads of each warp name a place."""
        return Counter(thread // LANES for thread in numbers_of(self.threads[place]))

    def warps(self) -> tuple[int, ...]:
        """The warps that can come to it."""
        found = {n // LANES for mask in self.threads.values() for n in numbers_of(mask)}
        return tuple(sorted(found))


@dataclass(frozen=True)
class MbarrierRow:
    """Mbarriers of which the same is said: ``places`` are bytes of the CTA's shared memory, in
    order, ``expected`` the arrivals of a phase (None is not known). ``sites`` are the instructions
    that may work on the first of them. ``bytes`` is None where there are none."""

    places: tuple[int, ...]
    expected: int | None
    sites: tuple[Site, ...]
    arrivals: Compared
    bytes: Compared | None


@dataclass(frozen=True)
class NamedBarrierRow:
    """A named barrier, by its number, and what comes to it."""

    number: int
    sites: tuple[Site, ...]
    count: Compared


@dataclass(frozen=True)
class RegisterSite:
    """A ``setmaxnreg``: the registers that a thread has behind it; None is not known."""

    pc: int
    registers: int | None
    warps: tuple[int, ...]
    certain: bool


@dataclass(frozen=True)
class Inventory:
    """What stands in the machine code of a kernel; no proof of anything.

    ``block`` is the size for which threads were counted: that which is required, or the largest;
    None: neither is said. ``unplaced``: instructions on mbarriers of which it is not known on
    which, ``unnumbered`` those on named barriers. ``register_pool`` is None without ``setmaxnreg``.
    ``unknown``: why some of it is not known, each a sentence.
    """

    kernel: str
    arch: str
    info: KernelInfo
    block: Triple | None
    mbarriers: tuple[MbarrierRow, ...]
    unplaced: tuple[Site, ...]
    named_barriers: tuple[NamedBarrierRow, ...]
    unnumbered: tuple[Site, ...]
    register_sites: tuple[RegisterSite, ...]
    register_pool: Compared | None
    unknown: tuple[str, ...]

    @property
    def compared(self) -> tuple[Compared, ...]:
        """All comparisons, in the order of the rows."""
        of_mbarriers = [one for row in self.mbarriers for one in (row.arrivals, row.bytes)]
        of_named = [row.count for row in self.named_barriers]
        found = (*of_mbarriers, *of_named, self.register_pool)
        return tuple(one for one in found if one is not None)


def inventory(image: Image, function: Symbol, *, seconds: float = SECONDS) -> Inventory:
    """What stands in the machine code of a kernel; after ``seconds`` all else is not known.

    Raises:
        CubinError: the cubin is damaged, or nvdisasm is not there or cannot read it.
    """
    until = monotonic() + seconds
    info = image.info(function)
    (code,) = disassemble(image, (function,))
    block = info.block or info.most_threads
    values = None
    if block is not None and not code.unknown:
        questions = {pc for pc, one in code.code.items() if one.base in _BASES}
        tables = image.tables(function)
        values = ThreadValues(code, block, info.parameters_at, tables, questions, until)
        values = values if values.complete else None
    sites = _Sites(code, values, until)
    of_mbarriers, named = tuple(sites.mbarriers()), tuple(sites.named())
    registers = tuple(sites.registers())
    unknown = [*_unknown(code, block, values, until)]
    known = block is not None and not unknown
    return Inventory(
        kernel=function.name,
        arch=image.arch,
        info=info,
        block=block,
        mbarriers=tuple(_mbarrier_rows(of_mbarriers, known)),
        unplaced=tuple(one for one in of_mbarriers if one.places is None),
        named_barriers=tuple(_named_rows(named, known)),
        unnumbered=tuple(one for one in named if one.places is None),
        register_sites=registers,
        register_pool=_register_pool(registers, info, values) if registers else None,
        unknown=tuple(unknown),
    )


def _unknown(
    code: Function, block: Triple | None, values: ThreadValues | None, until: float
) -> Iterator[str]:
    if code.unknown:
        yield f"where {count(len(code.unknown), 'branch', 'branches')} can lead is not known"
    outside = sum(one.base == "CALL" and one.target is None for one in code.code.values())
    if outside:
        yield f"what {count(outside, 'call')} by address does is not known"
    if block is None:
        yield "the size of the block is not in the cubin: how many threads arrive is not known"
    elif monotonic() > until or (values is None and not code.unknown):
        yield "it took too long to find which threads come to which instruction"


# ---------------------------------------------------------------------- instructions


class _Sites:
    """What a function does with barriers."""

    def __init__(self, function: Function, values: ThreadValues | None, until: float) -> None:
        self.function = function
        self._values = values
        self._until = until
        self._sets = ValueSets(function, partial(self._known, 0))
        self._other_sets = ValueSets(function, partial(self._known, _OTHER_RANK))
        self._reached = function.reached([0])

    def _known(self, rank: int, name: str, pc: int) -> Collection[int] | None:
        """What may be read at a place by the threads that come to it, in a CTA of a cluster."""
        if name == RANK:
            return (rank,)
        if self._values is None:
            return None
        if name.startswith("SR_TID."):
            return range(self._values.block["XYZ".index(name[-1])])
        if rank or name.startswith("c["):
            return None
        found = self._values.read(name, pc)
        of = {*found} if isinstance(found, tuple) else {found}
        value = of.pop()
        # of several values it would be lost which of them go together
        return None if of or value is None or value < 0 else (value,)

    def _all(self) -> Iterator[Instruction]:
        """The instructions of interest that can be executed, in the order of the code."""
        for one in self.function.code.values():
            if one.base not in _BASES:
                continue
            executed = self._values is None or self._values.executing(one.pc)
            if one.pc in self._reached and one.guard not in ("!PT", "!UPT") and executed:
                yield one

    def _threads(self, one: Instruction) -> int:
        """The threads that may execute an instruction; of what is executed once a warp the first
        one, if a loop does not take each lane in its turn."""
        if self._values is None:
            return 0
        found = self._values.executing(one.pc)
        if one.base not in _ONCE_A_WARP or one.pc in self._values.lane_loops:
            return found
        first = 0
        for start in range(0, self._values.count, LANES):
            of_warp = found & ((1 << LANES) - 1) << start
            first |= of_warp & -of_warp
        return first

    def _agree_in_warps(self, one: Instruction, place: Term | None) -> bool:
        """Whether each uniform register that an instruction reads is the same in all threads of a
        warp that execute it, as it is in hardware; a loop over lanes makes it that of each."""
        if self._values is None:
            return True
        if one.pc in self._values.lane_loops:
            return self._values.takes_each_lane(one.pc)
        executing = self._values.executing(one.pc)
        names = {name for text in one.operands for name in re.findall(r"UR\d+", text)}
        names |= {name for name in reads(place) if name.startswith("UR")} if place else set()
        for values in (self._values.value(name, one.pc) for name in sorted(names)):
            if not isinstance(values, tuple):
                continue
            for start in range(0, self._values.count, LANES):
                of_warp = numbers_of(executing & ((1 << LANES) - 1) << start)
                if len({values[thread] for thread in of_warp}) > 1:
                    return False
        return True

    def _places(
        self, term: Term, pc: int, threads: int
    ) -> tuple[Collection[int] | None, dict[int, int]]:
        """The values of a term, and the threads by those that they have: all of them have each of
        its values, where it is not known which."""
        if self._values is not None:
            found = self._values.term(term, pc)
            each = found if isinstance(found, tuple) else (found,) * self._values.count
            of: dict[int, int] = {}
            for thread in numbers_of(threads):
                value = each[thread]
                if value is None or value < 0:
                    break
                of[value] = of.get(value, 0) | 1 << thread
            else:
                return sorted(of), of
        if monotonic() > self._until:
            return None, {}
        values = self._sets.term(term, pc)
        if not values:  # also if it seems that it is never executed
            return None, {}
        return sorted(values), dict.fromkeys(values, threads)

    def _only(self, text: str, pc: int, threads: int, change: Term | None = None) -> int | None:
        """The only value of an operand; None if there are more, or it is not known."""
        term = source(text)
        if term is None:
            return None
        values, _ = self._places(term, pc, threads)
        return min(values) if values is not None and len(values) == 1 else None

    def _site(
        self, one: Instruction, kind: str, place: Term | None, amount: int | None, *,
        threads: int, arrives: bool = False, expects: bool = False, completes: bool = False,
        remote: bool = False,
    ) -> Site:  # fmt: skip
        places, of = (None, {}) if place is None else self._places(place, one.pc, threads)
        certain = (
            self._values is not None
            and self._agree_in_warps(one, place)
            and all(self._values.in_step(one.pc, mask) for mask in of.values())
        )
        return Site(
            one.pc, str(one), kind, None if places is None else tuple(places), amount, arrives,
            expects, completes, of if of else {-1: threads}, certain,
            (arrives or expects or completes) and self._repeats(one.pc), remote,
        )  # fmt: skip

    def mbarriers(self) -> Iterator[Site]:
        """The instructions on mbarriers that can be executed, in the order of the code."""
        for one in self._all():
            operand = mbarrier_operand(one)
            kind = None if operand is None else _kind(one, operand)
            if operand is None or kind is None:
                continue
            threads = self._threads(one)
            parts = [*map(read, operand.registers), constant(operand.offset)]
            whole = Term("add", tuple(parts)) if len(parts) > 1 else parts[0]
            arrives, expects = kind in _ARRIVES, kind.endswith("expect_tx")
            completes = kind in _COMPLETES
            amount = self._amount(one, kind, threads)
            if kind.startswith("arrive_drop"):
                amount = None
            yield self._site(
                one, kind, both(whole, constant(_SHARED)), amount, threads=threads,
                arrives=arrives, expects=expects, completes=completes,
                remote=(arrives or expects or completes) and self._is_remote(one, whole),
            )  # fmt: skip

    def _is_remote(self, one: Instruction, address: Term) -> bool:
        """Whether an mbarrier may be that of another CTA: the address is not that of the CTA with
        the place in the cluster that this one is taken to have."""
        if "MULTICAST" in one.modifiers or "2CTA" in one.modifiers:
            return True
        if one.base in ("SYNCS", "ARRIVES") and "RED" not in one.modifiers:
            return False
        rank = Term("shr", (address, constant(24)))
        return any(
            {*(sets.term(rank, one.pc) or ())} != {own}
            for sets, own in ((self._sets, 0), (self._other_sets, _OTHER_RANK))
        )

    def _amount(self, one: Instruction, kind: str, threads: int) -> int | None:
        """The number of an instruction, see `Site`."""
        last = one.operands[-1]
        if kind in ("arrive", "tcgen05.commit", "cp.async.mbarrier.arrive.noinc"):
            return 1
        if kind == "wait":
            word = None if self._values is None else self._values.value(last, one.pc)
            return word >> 31 if isinstance(word, int) and word >= 0 else None
        if kind == "init":
            word = self._only(last, one.pc, threads)
            return None if word is None else -(word >> 1) & _COUNT_BITS
        if kind == "bulk copy":
            text = next((o for o in one.operands[2:] if not o.startswith("desc")), "")
            term = source(text) if text else None
            if term is None:
                return None
            values, _ = self._places(both(term, constant(_SIXTEENTHS)), one.pc, threads)
            return 16 * min(values) if values is not None and len(values) == 1 else None
        if kind in ("st.async", "red.async"):
            return next((int(m) // 8 for m in one.modifiers if m in ("64", "128")), 4)
        if kind == "try_cancel":
            return _ANSWER
        if kind in ("arrive n", "arrive.expect_tx", "expect_tx", "complete_tx"):
            return self._only(last, one.pc, threads)
        return None

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
            # a loop over lanes is one execution of what is in it, for each of them
            one = self.function.code[place]
            todo += [
                after for after in self.function.successors[place]
                if not (one.opcode == "BRA.U.ANY" and after == one.target)
            ]  # fmt: skip
        return False

    def named(self) -> Iterator[Site]:
        """The instructions on named barriers that can be executed, in the order of the code."""
        for one in self._all():
            does = {"SYNC", "ARV", "RED"} & {*one.modifiers}
            if one.base != "BAR" or not does:
                continue
            threads = self._threads(one)
            kind = {"SYNC": "bar.sync", "ARV": "bar.arrive", "RED": "bar.red"}[min(does)]
            operands = [o for o in one.operands if not _is_predicate(o)]
            number = source(operands[0]) if operands else constant(0)
            if number is not None and operands and isinstance(parse(operands[0]), Register):
                number = both(number, constant(_NUMBER_BITS))
            amount = None
            if len(operands) > 1:
                amount = self._only(operands[1], one.pc, threads)
                if amount is not None and isinstance(parse(operands[1]), Register):
                    amount = amount >> _COUNT_FROM & _COUNT_OF_BAR
            elif self._values is not None:
                amount = -(-self._values.count // LANES) * LANES
            yield self._site(one, kind, number, amount, threads=threads)

    def registers(self) -> Iterator[RegisterSite]:
        """The instructions that change the registers of threads, in the order of the code."""
        for one in self._all():
            if one.base != "USETMAXREG":
                continue
            number = parse(one.operands[-1])
            threads = self._threads(one)
            warps = sorted({n // LANES for n in numbers_of(threads)})
            yield RegisterSite(
                one.pc, number.value if isinstance(number, Immediate) else None, tuple(warps),
                self._values is not None and self._values.in_step(one.pc, threads),
            )  # fmt: skip


def _is_predicate(text: str) -> bool:
    one = parse(text)
    return isinstance(one, Register) and "P" in one.name


def _waits(one: Instruction) -> bool:
    """Whether an instruction waits for others of its CTA or cluster."""
    if one.base == "SYNCS":
        return "PHASECHK" in one.modifiers
    return (one.base == "BAR" and "ARV" not in one.modifiers) or one.base == "UCGABAR_WAIT"


#: kinds that take from what a phase still lacks, and those that complete bytes
_ARRIVES = frozenset({
    "arrive", "arrive n", "arrive.expect_tx", "arrive_drop", "arrive_drop.expect_tx",
    "arrive.noComplete", "cp.async.mbarrier.arrive.noinc", "tcgen05.commit",
})  # fmt: skip
_COMPLETES = frozenset({
    "complete_tx", "bulk copy", "tensor copy", "st.async", "red.async", "try_cancel",
})  # fmt: skip
_OF_BASES = {
    "UTCBAR": "tcgen05.commit", "UBLKCP": "bulk copy", "UBLKRED": "bulk copy",
    "UTMALDG": "tensor copy", "STAS": "st.async", "REDAS": "red.async",
    "UGETNEXTWORKID": "try_cancel",
}  # fmt: skip


def _kind(one: Instruction, operand: MbarrierOperand) -> str | None:
    """What an instruction does with its mbarrier; None if it is a part of another one."""
    if operand.does in ("init", "wait"):
        return operand.does
    if one.base == "ARRIVES":
        noinc = "ARVCNT" in one.modifiers
        return "cp.async.mbarrier.arrive.noinc" if noinc else "cp.async.mbarrier.arrive"
    if one.base in _OF_BASES:
        return _OF_BASES[one.base]
    if operand.does != "arrive":
        return "inval"
    form = next((found for m in one.modifiers if (found := _ARRIVAL.match(m))), None)
    drops = "OPTOUT" in one.modifiers
    if form is None:
        return "arrive_drop.expect_tx" if drops else "arrive.expect_tx"
    arrives, expects = form.groups()
    if arrives == "0":
        # A0T1 goes before ARRIVES, which is the instruction: the arrival that it makes later
        return {"R": "expect_tx", "X": "complete_tx"}.get(expects)
    if drops:
        return "arrive_drop"
    if "TMASK" in one.modifiers:
        return "arrive.noComplete"
    return "arrive" if arrives == "1" else "arrive n"


# ---------------------------------------------------------------------- comparisons


def _mbarrier_rows(sites: Sequence[Site], known: bool) -> Iterator[MbarrierRow]:
    """The mbarriers that are initialised, those of which the same is said together."""
    unplaced = [one for one in sites if one.places is None]
    found: dict[tuple[object, ...], list[MbarrierRow]] = {}
    made = {place for one in sites if one.kind == "init" for place in one.places or ()}
    if not made or any(one.kind == "init" for one in unplaced):
        made = {place for one in sites for place in one.places or ()}
    for place in sorted(made):
        of = tuple(one for one in sites if place in (one.places or ()))
        row = MbarrierRow(
            (place,), _expected(of, unplaced), of,
            _arrivals(of, unplaced, place, known), _bytes(of, unplaced, place, known),
        )  # fmt: skip
        key = tuple((one.kind, one.amount, one.warps()) for one in of)
        found.setdefault((key, row.expected, row.arrivals, row.bytes), []).append(row)
    for rows in found.values():
        first = rows[0]
        places = tuple(place for row in rows for place in row.places)
        yield MbarrierRow(places, first.expected, first.sites, first.arrivals, first.bytes)


def _expected(sites: Sequence[Site], unplaced: Sequence[Site]) -> int | None:
    """The count that an mbarrier is initialised with; None is not known."""
    inits = {one.amount for one in sites if one.kind == "init"}
    if len(inits) != 1 or any(one.kind == "init" for one in unplaced):
        return None
    return inits.pop()


def _not_known(why: str) -> Compared:
    return Compared("not known", why)


def _doubt(sites: Iterable[Site], unplaced: Iterable[Site], what: str) -> Compared | None:
    """Why a sum over instructions is not known; None if it is."""
    far = [one for one in unplaced if one.arrives or one.expects or one.completes]
    if far:
        return _not_known(f"the mbarrier of {count(len(far), 'instruction')} is not known")
    for one in sites:
        if one.kind == "tensor copy":
            return _not_known("the boxes of tensor copies are in tensor maps")
        if one.amount is None and not (what == "arrivals" and one.expects):
            return _not_known(f"the number of {one.kind} at {one.pc:#x} is not known")
        if one.remote:
            return _not_known(f"{what} may come from other CTAs of the cluster, or go there")
        if not one.certain:
            return _not_known(f"the threads that execute {one.kind} at {one.pc:#x} are not known")
        if one.repeats:
            return _not_known(f"{one.kind} at {one.pc:#x} may be repeated in a phase")
    return None


def _arrivals(sites: Sequence[Site], unplaced: Sequence[Site], place: int, known: bool) -> Compared:
    """What an mbarrier expects against what arrives on it in a phase."""
    expected = _expected(sites, unplaced)
    if not known:
        return _not_known("which threads come to which instruction is not known")
    if expected is None:
        return _not_known("the count that it is initialised with is not known")
    arriving = [one for one in sites if one.arrives]
    doubt = _doubt(arriving, unplaced, "arrivals")
    if doubt is not None:
        return doubt
    waits = [one for one in sites if one.kind == "wait" and one.places == (place,)]
    if not arriving and not any(one.amount == 0 for one in waits):
        return _not_known("nothing arrives on it, and it may be that nothing waits for it")
    by_warp: dict[int, list[int]] = {}
    for one in arriving:
        # bytes that an arrival expects are another number
        each = 1 if one.expects else one.amount or 0
        for warp, lanes in one.lanes(place).items():
            by_warp.setdefault(warp, []).append(lanes * each)
    amounts = [amount for of in by_warp.values() for amount in of]
    for way in (min, max, sum):  # alternatives, or one after the other
        if expected == sum(map(way, by_warp.values())):
            return Compared("agrees", f"it expects {expected}, and {expected} arrive")
    most = f"at most {sum(amounts)}" if len(arriving) > 1 else str(sum(amounts))
    if expected in _sums(amounts):
        return _not_known(f"it expects {expected}, and {most} arrive, or fewer")
    return Compared("differs", f"it expects {expected}, and {most} arrive")


def _sums(of: Iterable[int]) -> Collection[int]:
    """All sums of some of the numbers; all numbers if these are too many."""
    found = {0}
    for one in of:
        found |= {value + one for value in found}
        if len(found) > _MOST_SUMS:
            return range(1 << 30)
    return found - {0}


def _bytes(
    sites: Sequence[Site], unplaced: Sequence[Site], place: int, known: bool
) -> Compared | None:
    """The bytes that an mbarrier expects against those that complete on it; None without any."""
    expecting = [one for one in sites if one.expects]
    completing = [one for one in sites if one.completes]
    if not expecting and not completing:
        return None
    if not known:
        return _not_known("which threads come to which instruction is not known")
    doubt = _doubt((*expecting, *completing), unplaced, "bytes")
    if doubt is not None:
        return doubt
    wanted, given = _amounts(expecting, place), _amounts(completing, place)
    if sum(wanted) == sum(given) or (len({*wanted}) == 1 and sum(given) == wanted[0]):
        return Compared("agrees", f"it expects {sum(given)} bytes, and these are copied")
    text = f"it expects {_either(wanted)} bytes, and {sum(given)} are copied"
    if {*_sums(wanted)} & {*_sums(given)}:
        return _not_known(f"{text}, or a part")
    return Compared("differs", text)


def _amounts(sites: Iterable[Site], place: int) -> list[int]:
    """What each warp adds up to at each of some instructions."""
    found = [lanes * (one.amount or 0) for one in sites for lanes in one.lanes(place).values()]
    return [amount for amount in found if amount]


def _either(values: Sequence[int]) -> str:
    return " or ".join(str(value) for value in sorted({*values})) or "0"


def _named_rows(sites: Sequence[Site], known: bool) -> Iterator[NamedBarrierRow]:
    for number in sorted({n for one in sites for n in one.places or ()}):
        of = tuple(one for one in sites if number in (one.places or ()))
        others = sum(one.places is None for one in sites)
        yield NamedBarrierRow(number, of, _count(number, of, others, known))


def _count(number: int, sites: Sequence[Site], others: int, known: bool) -> Compared:
    """The count of a named barrier against the warps that come to it."""
    if not known:
        return _not_known("which threads come to which instruction is not known")
    if others:
        return _not_known(f"the number of {count(others, 'other instruction')} is not known")
    warps: dict[int, set[int]] = {}
    for one in sites:
        if one.amount is None:
            return _not_known(f"how many threads {one.kind} at {one.pc:#x} names is not known")
        warps.setdefault(one.amount, set()).update(one.lanes(number))
    for counted, coming in warps.items():
        if LANES * len(coming) < counted:
            return Compared(
                "differs", f"it is of {counted} threads, and {LANES * len(coming)} come to it"
            )
    if any(LANES * len(coming) > counted for counted, coming in warps.items()):
        return _not_known(f"it is of {_either([*warps])} threads, and more can come to it")
    if not all(one.certain for one in sites):
        return _not_known("a branch that is not known decides which threads come to it")
    listed = _either([*warps])
    return Compared("agrees", f"it is of {listed} threads, and these come to it")


def _register_pool(
    sites: Sequence[RegisterSite], info: KernelInfo, values: ThreadValues | None
) -> Compared:
    """The registers that warps have behind ``setmaxnreg`` against those that their CTA was
    launched with, in each partition of the SM."""
    if info.registers is None or values is None:
        return _not_known("the registers or the warps of a CTA are not known")
    of: dict[int, set[int]] = {}
    for one in sites:
        if one.registers is None or not one.certain:
            return _not_known(f"the warps or the registers of that at {one.pc:#x} are not known")
        for warp in one.warps:
            of.setdefault(warp, set()).add(one.registers)
    if any(len(each) > 1 for each in of.values()):
        return _not_known("a warp has more than one setmaxnreg")
    warps = -(-values.count // LANES)
    for partition in range(min(PARTITIONS, warps)):
        here = range(partition, warps, PARTITIONS)
        asked = LANES * sum(min(of.get(warp, {info.registers})) for warp in here)
        launched = LANES * info.registers * len(here)
        if asked > launched:
            return Compared(
                "differs",
                f"warps of partition {partition} ask for {asked} registers, and are launched with "
                f"{launched}",
            )
    return Compared("agrees", "warps ask for no more registers than their CTA is launched with")
