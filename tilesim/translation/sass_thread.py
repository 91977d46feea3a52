"""One thread of a kernel in SASS, executed with given inputs, as far as its values are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesim.cubin.arithmetic import computed, number, source
from tilesim.cubin.image import KernelInfo
from tilesim.cubin.operands import (
    WORD,
    Constant,
    Memory,
    Register,
    following,
    parse,
    written,
)
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.translation.float_words import FLOATING, word_of
from tilesim.translation.float_words import computed as floating
from tilesim.translation.inputs import OFFSET, SHARED_WINDOW, End, Inputs, Space, Waits
from tilesim.translation.inputs import Memory as Contents

#: special registers by the names that PTX has for them
_SPECIAL: Mapping[str, str] = {
    "SR_LANEID": "laneid", "SR_EQMASK": "lanemask_eq", "SR_LTMASK": "lanemask_lt",
    "SR_LEMASK": "lanemask_le", "SR_GTMASK": "lanemask_gt", "SR_GEMASK": "lanemask_ge",
    "SR_CgaCtaId": "cluster_ctarank",
    **{f"SR_TID.{axis.upper()}": f"tid.{axis}" for axis in "xyz"},
    **{f"SR_CTAID.{axis.upper()}": f"ctaid.{axis}" for axis in "xyz"},
}  # fmt: skip
#: words of constant bank 0 before the parameters, by where these begin: sm_90 and sm_100
_WORDS: Mapping[int, Mapping[int, str]] = {
    0x210: {
        0x0: "ntid.x", 0x4: "ntid.y", 0x8: "ntid.z",
        0xC: "nctaid.x", 0x10: "nctaid.y", 0x14: "nctaid.z",
        0x144: "cluster_nctaid.x", 0x148: "cluster_nctaid.y", 0x188: "cluster_nctarank",
        0x15C: "nclusterid.x", 0x160: "nclusterid.y",
    },
    0x380: {
        0x360: "ntid.x", 0x364: "ntid.y", 0x368: "ntid.z",
        0x370: "nctaid.x", 0x374: "nctaid.y", 0x378: "nctaid.z",
    },
}  # fmt: skip
#: sm_90: reciprocals of sizes of a cluster, as floating point
_RECIPROCALS = {0x154: "cluster_nctaid.y", 0x158: "cluster_nctaid.z"}
#: and whether a cluster is launched, and the end of the stack
_EXPLICIT = {0x210: 0x140, 0x380: 0x36C}
_STACK = {0x210: 0x28, 0x380: 0x37C}
_END_OF_STACK = 0xFFF000
#: bytes of a load or store, by its modifiers
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_LOADS: Mapping[str, Space | None] = {"LDS": "shared", "LDG": "global", "LDL": "local", "LD": None}
_STORES: Mapping[str, Space | None] = {"STS": "shared", "STG": "global", "STL": "local", "ST": None}
_ATOMICS: Mapping[str, Space | None] = {
    "ATOMS": "shared", "ATOMG": "global", "ATOM": None, "REDG": "global", "RED": None,
}  # fmt: skip


class SassThread:
    """A thread of a function; `run` executes it."""

    def __init__(
        self, function: Function, info: KernelInfo, inputs: Inputs, tables: bytes = b""
    ) -> None:
        """``tables``: constant bank 2, in which places of branches are."""
        self.function = function
        self._tables = tables
        self._inputs = inputs
        self._parameters_at = info.parameters_at or 0
        self._known = _State(self)
        self._memory = Contents(inputs)
        self.waits = Waits(inputs)
        #: mbarrier and parity of the last try
        self._tried: tuple[int | None, int | None] = None, None
        self._calls: list[int] = []
        self._meetings: dict[str, int] = {}
        self.end = End.UNKNOWN
        #: whether the steps were over before it was known how it ends
        self.bounded = False
        self.pc = 0
        #: the places of instructions whose guard was not known
        self.doubted: set[int] = set()
        self._named = inputs.named
        self._loops = _lane_loops(function)

    # ------------------------------------------------------------------ values

    def value(self, text: str) -> int | None:
        """What an operand is, as 32 bits; None: not known."""
        term = source(text)
        return None if term is None else number(term, self._known)

    def register(self, name: str) -> int | None:
        """What a register holds."""
        return 0 if name in ("RZ", "URZ") else self._known[name]

    def address(self, text: str) -> int | None:
        """The sum of registers and number in brackets, as 32 bits, or 64 if the first is a pair."""
        one = parse(text)
        if not isinstance(one, Memory):
            return None
        total = one.offset
        for place, (name, scale) in enumerate(one.registers):
            value = self.register(name)
            if value is None:
                return None
            if one.wide and not place:
                high = self.register(following(name, 2)[1])
                if high is None:
                    return None
                value |= high << 32
            total += value * scale
        return total & ((1 << 64) - 1 if one.wide else WORD)

    def special(self, name: str) -> int | None:
        """A special register, or a word of a constant bank."""
        if name.startswith("SR_"):
            if name == "SR_SWINHI":
                return SHARED_WINDOW
            return self._named.get(_SPECIAL.get(name, ""))
        one = parse(name)
        return self._constant(one.offset, 4) if isinstance(one, Constant) and not one.bank else None

    def _constant(self, offset: int, nbytes: int) -> int | None:
        at = self._parameters_at
        if offset >= at:
            return self._inputs.parameter(offset - at, nbytes)
        if offset == _EXPLICIT.get(at):
            return int(self._inputs.cluster != (1, 1, 1))
        if offset == _STACK.get(at):
            return _END_OF_STACK
        if at == 0x210 and offset in _RECIPROCALS:
            return word_of(1 / (self._named[_RECIPROCALS[offset]] or 1), "RP")
        return self._named.get(_WORDS.get(at, {}).get(offset, ""))

    def holds(self, text: str) -> bool | None:
        """Whether a guard or a predicate is true."""
        value = self.value(text)
        return None if value is None else bool(value & 1)

    # ------------------------------------------------------------------ execution

    def run(self, most: int) -> Iterator[Instruction]:
        """Executes at most so many instructions, and says each that takes effect before that is
        executed. It stops where it is not known how it goes on."""
        code = self.function.code
        for _ in range(most):
            one = code.get(self.pc)
            if one is None:
                return
            executed = self.holds(one.guard) if one.guard else True
            if executed is None and one.base in ("BRA", "EXIT", "CALL", "RET", "BRX", "BRXU"):
                return
            if executed:
                yield one
                self._execute(one)
            elif executed is None:
                self.doubted.add(one.pc)
                self._forget(one)
            place = self._following(one, bool(executed))
            if place is None:
                return
            self.pc = place
        self.bounded = True

    def _forget(self, one: Instruction) -> None:
        for name in written(one):
            self._known[name] = None

    def _following(self, one: Instruction, executed: bool) -> int | None:
        after = one.pc + WIDTH
        if not executed:
            return after
        match one.base:
            case "EXIT":
                ends = [self.holds(text) for text in one.operands]
                if None in ends:
                    return None
                if not all(ends):
                    return after
                self.end = End.EXIT
                return None
            case "BRA" | "JMP":
                if "DIV" in one.modifiers or "CONV" in one.modifiers:
                    return after
                taken = [self.holds(text) for text in one.operands[:-1]]
                return None if None in taken else one.target if all(taken) else after
            case "CALL" if one.target is not None:
                self._calls.append(after)
                return one.target
            case "RET":
                return self._calls.pop() if self._calls else None
            case "BRX" | "BRXU":
                return self._indirect(one)
            case "BPT" if "TRAP" in one.modifiers:
                self.end = End.TRAP
                return None
            case "CALL" | "BPT" | "JMX" | "JMXU":
                return None
            case "BSYNC":
                places = self.function.successors[one.pc]
                return places[0] if len(places) == 1 else self._meetings.get(one.operands[0])
        return after

    def _indirect(self, one: Instruction) -> int | None:
        """Where ``BRX R, number`` goes: so far behind the next place."""
        index, more = self.value(one.operands[0]), self.value(one.operands[-1])
        if index is None or more is None:
            return None
        place = one.pc + WIDTH + index + more & WORD
        return place if place in self.function.successors[one.pc] else None

    def _execute(self, one: Instruction) -> None:
        base = one.base
        if base == "BSSY" and one.target is not None:
            self._meetings[one.operands[0]] = one.target
            return
        if base in _LOADS:
            self._load(one, _LOADS[base])
            return
        if base in _STORES:
            self._store(one, _STORES[base])
            return
        if base in _ATOMICS:
            self._atomic(one, _ATOMICS[base])
            return
        if base in ("LDC", "ULDC", "LDCU"):
            self._load_constant(one)
            return
        new = self._of_warp(one)
        if new is None:
            new = {}
            for name in written(one):
                term = computed(one, name)
                new[name] = None if term is None else number(term, self._known)
            if len(new) == 1 and one.base in FLOATING and not one.operands[0].startswith("P"):
                words = [self.value(text) for text in one.operands[1:]]
                new[one.operands[0]] = floating(one.base, one.modifiers, words)
        self._known.update(new)

    def _of_warp(self, one: Instruction) -> dict[str, int | None] | None:
        """What is left by an instruction that is not of one thread alone, or always succeeds; None
        of others."""
        base, operands = one.base, one.operands
        forgotten: dict[str, int | None] = dict.fromkeys(written(one))
        lane = self._inputs.lane
        match base:
            case "ELECT":
                elected = one.pc in self._loops or lane == 0
                return forgotten | {operands[0]: int(elected)}
            case "SHFL":
                return {operands[1]: self.value(operands[2]), operands[0]: 1}
            case "VOTE" | "VOTEU":
                holds = self.holds(operands[-1])
                value = None if holds is None else int(holds)
                found = dict(forgotten)
                for name in forgotten:
                    mask = None if value is None else value << lane
                    found[name] = value if "P" in name else mask
                if "EQ" in one.modifiers:
                    return forgotten
                return found
            case "MATCH":
                return {n: 1 if "P" in n else 1 << lane for n in forgotten}
            case "REDUX" | "CREDUX":
                return forgotten | {operands[-2]: self.value(operands[-1])}
            case "SYNCS" if "PHASECHK" in one.modifiers:
                return {operands[0]: self._wait(one)}
            case "USETMAXREG" | "UTCATOMSWS":
                return {n: 1 if "P" in n else 0 for n in forgotten}
            case "P2R":
                return {operands[0]: self._predicates(one)}
            case "R2P":
                value, mask = self.value(operands[1]), self.value(operands[2])
                if mask is None or value is None:
                    return forgotten
                return {f"P{n}": value >> n & 1 for n in range(7) if mask >> n & 1}
        return None

    def _predicates(self, one: Instruction) -> int | None:
        """``P2R R, PR, R, mask``: predicates as bits of a register."""
        if one.modifiers or len(one.operands) != 4 or one.operands[1] != "PR":
            return None
        old, mask = self.value(one.operands[2]), self.value(one.operands[3])
        if old is None or mask is None:
            return None
        found = old & ~mask
        for n in range(7):
            if mask >> n & 1:
                value = self._known[f"P{n}"]
                if value is None:
                    return None
                found |= value << n
        return found

    def _wait(self, one: Instruction) -> int | None:
        """Whether a wait is over. One without ``TRYWAIT`` behind a pause goes on with a try of the
        same."""
        mbarrier, register = self.address(one.operands[1]), self.value(one.operands[2])
        parity = None if register is None else register >> 31
        place = None if mbarrier is None else mbarrier & OFFSET
        before = self.function.code.get(one.pc - WIDTH)
        paused = before is not None and before.base == "NANOSLEEP"
        if "TRYWAIT" not in one.modifiers and paused and self._tried == (place, parity):
            return self._known[one.operands[0]]
        self._tried = place, parity
        return int(self.waits.over(place, parity, one.pc))

    # ------------------------------------------------------------------ memory

    def _place(self, text: str, space: Space | None) -> tuple[int | None, Space]:
        """An address and its space; a generic one tells by its high word."""
        address = self.address(text)
        if space is None:
            if address is None or address >> 32 != SHARED_WINDOW:
                return address, "global"
            space = "shared"
        if space == "shared" and address is not None:
            address &= OFFSET
        return address, space

    def _load(self, one: Instruction, space: Space | None) -> None:
        memory = next((n for n, text in enumerate(one.operands) if text.endswith("]")), None)
        address = None
        if memory is not None:
            address, space = self._place(one.operands[memory], space)
        for name in written(one):
            self._known[name] = None
        if address is None or space is None or one.operands[0].startswith("P"):
            return
        size = next((_SIZES[m] for m in one.modifiers if m in _SIZES), 4)
        if {"S8", "S16"} & {*one.modifiers}:
            return
        first = parse(one.operands[0])
        if not isinstance(first, Register) or first.name == "RZ" or size > 16:
            return
        for n, name in enumerate(following(first.name, max(1, size // 4))):
            self._known[name] = self._memory.load(address + 4 * n, min(size, 4), space)

    def _store(self, one: Instruction, space: Space | None) -> None:
        address, space = self._place(one.operands[0], space)
        size = next((_SIZES[m] for m in one.modifiers if m in _SIZES), 4)
        data = parse(one.operands[1])
        if not isinstance(data, Register):
            self._memory.store(address, size, self.value(one.operands[1]), space)
            return
        names: tuple[str, ...] = (data.name,)
        if size > 4:
            names = following(data.name, size // 4) or names * (size // 4)
        for n, name in enumerate(names):
            at = None if address is None else address + 4 * n
            self._memory.store(at, min(size, 4), self.register(name), space)

    def _atomic(self, one: Instruction, space: Space | None) -> None:
        """What was there before is known, not what is there then. A try to change it succeeds."""
        memory = next((n for n, text in enumerate(one.operands) if text.endswith("]")), 0)
        address, space = self._place(one.operands[memory], space)
        old = self._memory.load(address, 4, space)
        wide = {"64", "128", "V2", "V4"} & {*one.modifiers}
        for name in written(one):
            self._known[name] = 1 if "P" in name else None
        target = next((text for text in one.operands[:memory] if "P" not in text), None)
        if target is not None and target != "RZ" and not wide:
            self._known[target] = old
        self._memory.store(address, 4, None, space)

    def _load_constant(self, one: Instruction) -> None:
        place = parse(one.operands[1])
        at_register = place.register if isinstance(place, Constant) else None
        index = 0 if at_register is None else self.register(at_register)
        for name in written(one):
            self._known[name] = None
        sizes = [m for m in one.modifiers if m in _SIZES]
        if not isinstance(place, Constant) or len(sizes) < len(one.modifiers):
            return
        if index is None or {"S8", "S16"} & {*sizes}:
            return
        size = _SIZES[sizes[0]] if sizes else 4
        for n, name in enumerate(following(one.operands[0], max(1, size // 4))):
            at = (place.offset + index + 4 * n) & WORD
            if place.bank == 2 and not place.sign and at + size <= len(self._tables):
                self._known[name] = int.from_bytes(self._tables[at : at + min(size, 4)], "little")
            elif not place.bank and at < 1 << 16:
                self._known[name] = self._constant(at, min(size, 4))


class _State(dict[str, int | None]):
    """What registers hold; special registers and constants as they are first read."""

    def __init__(self, thread: SassThread) -> None:
        super().__init__()
        self._thread = thread

    def __missing__(self, name: str) -> int | None:
        found = self._thread.special(name) if name.startswith(("SR_", "c[")) else None
        self[name] = found
        return found


def _lane_loops(function: Function) -> frozenset[int]:
    """The ``ELECT`` of loops in which each lane in turn is elected."""
    found: set[int] = set()
    for pc, one in function.code.items():
        if one.opcode == "BRA.U.ANY" and one.target is not None and one.guard:
            for at in range(one.target, pc, WIDTH):
                other = function.code.get(at)
                if other is not None and other.base == "ELECT" and other.guard == one.guard:
                    found.add(at)
    return frozenset(found)
