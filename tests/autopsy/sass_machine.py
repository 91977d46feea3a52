"""Machine code of small kernels executed, warp by warp, until nothing can move any more.

It is what simulated dumps are made from: registers, predicates, shared memory with the words of
mbarriers, and where each lane stands. What opcodes do is in `tests.autopsy.sass_opcodes`: about a
hundred of sm_90 and sm_100, as far as they compute addresses, counts and branches. Data is
*unknown*, and a branch on it ends the execution (`Unsupported`). Copies land at once.

What instructions mean here is inferred from what ptxas makes of PTX; no GPU has confirmed it. So
its end is compared with that of tilesim's simulator, which executes the PTX
(`tests.autopsy.simulated_hang`).

Values are arrays of 32 lanes (one number for uniform registers) of 64-bit integers: 32-bit words,
or -1 where they are not known. Predicates are 0, 1 or -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.autopsy.mbarrier_word import Mbarrier, decode
from tilesim.cubin.image import KernelInfo
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.ptx.launch import (
    Launch,
    Map,
    Parameter,
    Pointer,
    Scalar,
    Struct,
    bytes_of,
    contents_of,
)
from tilesim.ptx.tensormap import encode
from tilesim.records import dataclass, field
from tilesim.sim.machine.register_pool import PARTITIONS

Values = NDArray[np.int64]

LANES = 32
ALL = (1 << LANES) - 1
WORD = 0xFFFFFFFF
#: generic address of the parameters, and of the first buffer
PARAMETERS = 0x7F10_0000_0000
BUFFERS = 0x7F20_0000_0000
#: upper word of the generic addresses of shared memory
WINDOW = 0x7F40
#: instructions of all warps together, at most
MOST_STEPS = 3_000_000
UNKNOWN = -1


class Unsupported(Exception):
    """What this machine cannot execute."""


# ------------------------------------------------------------------ operands


class Register(NamedTuple):
    """``R5``, ``UR4``: ``sign`` is ``-``, ``~``, ``|`` or empty; ``wide``: it names a pair."""

    number: int
    uniform: bool
    sign: str


class Predicate(NamedTuple):
    """``P0``, ``!UP1``; number 7 is always true."""

    number: int
    uniform: bool
    negated: bool


class Constant(NamedTuple):
    """``c[0x0][R4+0x210]``."""

    bank: int
    offset: int
    register: Register | None
    sign: str


class Place(NamedTuple):
    """``[R8+UR4+0x10]``, ``desc[UR6][R2.64+0x4]``; ``wide``: the register is a pair."""

    registers: tuple[Register, ...]
    offset: int
    wide: bool


class Number(NamedTuple):
    """An immediate, as 32 bits."""

    value: int


class Name(NamedTuple):
    """``SR_TID.X``, ``B0``, ``SB0``, and what is not looked at."""

    text: str


Operand = Register | Predicate | Constant | Place | Number | Name

_REGISTER = re.compile(r"([-~|]?)(U?R)(Z|\d+)(?:\.64|\.H[01]_H[01]|\.U32|\.S32)*\|?$")
_PREDICATE = re.compile(r"(!?)(U?P)(T|\d)$")
_CONSTANT = re.compile(r"([-~|]?)c\[(0x[0-9a-f]+)\]\[(?:(U?R\w+)\+?)?(-?0x[0-9a-f]+)?\]\|?$")


@cache
def parse(text: str) -> Operand:
    """An operand as nvdisasm writes it."""
    if one := _REGISTER.match(text):
        uniform = one[2] == "UR"
        none = 63 if uniform else 255
        return Register(none if one[3] == "Z" else int(one[3]), uniform, one[1])
    if one := _PREDICATE.match(text):
        return Predicate(7 if one[3] == "T" else int(one[3]), one[2] == "UP", bool(one[1]))
    if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", text):
        return Number(int(text, 0) & WORD)
    if one := _CONSTANT.match(text):
        register = parse(one[3]) if one[3] else None
        assert register is None or isinstance(register, Register)
        return Constant(int(one[2], 16), int(one[4] or "0", 16), register, one[1])
    if "[" in text:
        inner = text[text.rindex("[") + 1 : text.rindex("]")]
        registers, offset = [], 0
        for part in inner.replace("+-", "+%").split("+"):
            part = part.replace("%", "-")
            if re.fullmatch(r"-?0x[0-9a-f]+", part):
                offset += int(part, 16)
            elif isinstance(found := parse(part), Register):
                registers.append(found)
        return Place(tuple(registers), offset, ".64" in inner)
    return Name(text)


# ------------------------------------------------------------------ state


@dataclass(eq=False)
class Warp:
    """A warp: the place and the state of each lane, registers, convergence barriers.

    ``waits``: by lane what it waits in: ``sync`` (``BSYNC``), ``warp`` (``WARPSYNC``), ``bar``,
    ``cluster``, or nothing.
    """

    number: int
    cta: Cta
    registers: Values = field(default_factory=lambda: np.full((256, LANES), UNKNOWN, np.int64))
    uniform: Values = field(default_factory=lambda: np.full((64, 1), UNKNOWN, np.int64))
    predicates: Values = field(default_factory=lambda: np.zeros((8, LANES), np.int64))
    uniform_predicates: Values = field(default_factory=lambda: np.zeros((8, 1), np.int64))
    convergence: list[int] = field(default_factory=lambda: [0] * 16)
    pc: list[int] = field(default_factory=lambda: [0] * LANES)
    waits: list[str] = field(default_factory=lambda: [""] * LANES)
    live: int = ALL
    #: where lanes have been in this very state, since something has changed anywhere
    seen: set[tuple[int, int, int]] = field(default_factory=set)
    spinning: int = 0
    version: int = -1
    #: the named barrier that lanes wait for, and the round of it
    joined: tuple[int, int] | None = None
    cluster_round: int = 0
    #: the votes of the last named barrier that it has passed
    votes: int = UNKNOWN
    registers_held: int = 0


@dataclass(eq=False)
class NamedBarrier:
    """A named barrier of a CTA: warps that have joined, lanes of others that have come."""

    joined: list[int] = field(default_factory=list)
    lanes: dict[int, int] = field(default_factory=dict)
    votes: int = 0
    threads: int | None = None
    round: int = 0


@dataclass(eq=False)
class Cta:
    """A CTA: its warps, its shared memory (a byte that is not known is 0 in ``known``)."""

    number: int
    index: tuple[int, int, int]
    rank: int
    cluster: Cluster
    shared: bytearray
    known: bytearray
    warps: list[Warp] = field(default_factory=list)
    barriers: dict[int, NamedBarrier] = field(default_factory=dict)
    mbarriers: set[int] = field(default_factory=set)
    #: registers given back, by partition of the SM
    pools: list[int] = field(default_factory=lambda: [0] * PARTITIONS)


@dataclass(eq=False)
class Cluster:
    """CTAs, and the barrier of the cluster."""

    ctas: list[Cta] = field(default_factory=list)
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)
    round: int = 0


@dataclass(eq=False)
class Buffer:
    """Global memory from an address on."""

    name: str
    address: int
    data: bytearray
    known: bytearray


class Memory:
    """Global memory: the buffers of a launch, at invented addresses, and its parameters' bytes."""

    def __init__(self, launch: Launch, info: KernelInfo) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.maps: dict[int, Map] = {}
        size = max((p.offset + p.size for p in info.parameters), default=0)
        self.params = bytearray(size)
        for formal, actual in zip(info.parameters, launch.params, strict=True):
            self._place(formal.offset, actual)

    def _place(self, at: int, actual: Parameter) -> None:
        match actual:
            case Pointer(bytes=0):
                self._put(at, bytes(8))
            case Pointer():
                buffer = self._buffer(actual)
                self._put(at, (buffer.address + actual.offset).to_bytes(8, "little"))
            case Scalar(type=kind, value=value):
                if value is None:
                    raise Unsupported("a parameter that is not known")
                self._put(at, bytes_of(kind, value))
            case Map():
                buffer = self._buffer(Pointer(actual.name))
                self.maps[at] = actual
                self._put(at, encode(actual, buffer.address + actual.offset))
            case Struct(fields=fields, data=data):
                self._put(at, data)
                for one in fields:
                    self._place(at + one.offset, one.value)

    def _put(self, at: int, data: bytes) -> None:
        self.params[at : at + len(data)] = data

    def _buffer(self, pointer: Pointer) -> Buffer:
        known = self.buffers.get(pointer.name)
        size = pointer.bytes if pointer.bytes is not None else 1 << 20
        if known is None:
            address = BUFFERS + (len(self.buffers) << 24)
            known = self.buffers[pointer.name] = Buffer(
                pointer.name, address, bytearray(size), bytearray(size)
            )
        if pointer.contents is not None:
            data = contents_of(pointer.contents)
            known.data[: len(data)] = data
            known.known[: len(data)] = b"\1" * len(data)
        return known

    def find(self, address: int, size: int) -> tuple[Buffer, int] | None:
        """The buffer that bytes lie in, and where."""
        for buffer in self.buffers.values():
            start = address - buffer.address
            if start >= 0 and start + size <= max(len(buffer.data), 1 << 23):
                return buffer, start
        return None


# ------------------------------------------------------------------ the machine


def lanes_of(mask: int) -> list[int]:
    """The bits of a mask, as lanes."""
    return [n for n in range(LANES) if mask >> n & 1]


def _array(mask: int) -> NDArray[np.bool_]:
    return np.array([mask >> n & 1 for n in range(LANES)], bool)


def bits_of(values: Iterable[Any]) -> int:
    """The lanes at which something holds, as a mask."""
    return sum(1 << n for n, v in enumerate(values) if v)


def of_lane(values: Values, lane: int) -> int:
    """The value of a lane: all lanes have the one of a uniform register."""
    return int(values[lane if len(values) > 1 else 0])


class Machine:
    """A launch whose CTAs all run at once."""

    def __init__(
        self,
        function: Function,
        info: KernelInfo,
        launch: Launch,
        arch: tuple[int, int],
        opcodes: Mapping[str, Execute],
    ) -> None:
        self.function, self.info, self.launch, self.arch = function, info, launch, arch
        self.memory = Memory(launch, info)
        self.opcodes = opcodes
        self.version = 0
        self.steps = 0
        #: by CTA and address of an mbarrier, the line of the PTX that has initialised it
        self.initialised: dict[tuple[int, int], int] = {}
        self.constants = self._constants()
        size = launch.cluster_size or 1
        threads = launch.threads
        shared = max(info.shared, 1024) + launch.dynamic_shared
        self.ctas: list[Cta] = []
        gx, gy, _ = launch.grid
        cx, cy, cz = launch.cluster if size > 1 else (1, 1, 1)
        by_cluster: dict[tuple[int, int, int], Cluster] = {}
        for number in range(launch.ctas):
            x, y, z = number % gx, number // gx % gy, number // gx // gy
            place = (x // cx, y // cy, z // cz)
            cluster = by_cluster.get(place)
            if cluster is None:
                cluster = by_cluster[place] = Cluster()
            rank = x % cx + cx * (y % cy + cy * (z % cz))
            cta = Cta(number, (x, y, z), rank, cluster, bytearray(shared), bytearray(shared))
            cluster.ctas.append(cta)
            self.ctas.append(cta)
            for n in range(-(-threads // LANES)):
                warp = Warp(n, cta)
                if threads < LANES * (n + 1):
                    warp.live = (1 << threads - LANES * n) - 1
                # given out in units of 8
                warp.registers_held = -(-(info.registers or 32) // 8) * 8
                cta.warps.append(warp)
        for cluster in by_cluster.values():
            cluster.ctas.sort(key=lambda cta: cta.rank)
        self.warps = [warp for cta in self.ctas for warp in cta.warps]

    def _constants(self) -> dict[int, int]:
        """Words of constant bank 0 by offset, as far as they are known."""
        old = self.arch < (10, 0)
        at = 0x210 if old else 0x380
        found = {}
        data = bytes(self.memory.params) + bytes(-len(self.memory.params) % 4)
        for n in range(0, len(data), 4):
            found[at + n] = int.from_bytes(data[n : n + 4], "little")
        sizes = (*self.launch.block, *self.launch.grid)
        for n, value in enumerate(sizes):
            found[(0 if old else 0x360) + 4 * n] = value
        # addresses of the parameters: what tensor maps are found by
        for n, word in enumerate((PARAMETERS & WORD, PARAMETERS >> 32)):
            found[(0x198 if old else 0x348) + 4 * n] = word
        for n in (0, 4):
            found[(0x208 if old else 0x358) + n] = 0
        found[0x28 if old else 0x37C] = 0xFFFDC0
        return found

    # ------------------------------------------------------------------ running

    def run(self) -> bool:
        """Runs to the end (True), or until nothing can move any more (False)."""
        while True:
            before, moved = self.version, False
            order = [warp for warp in self.warps if warp.live]
            if not order:
                return True
            for warp in order:
                moved |= self._turn(warp)
            if self.steps > MOST_STEPS:
                raise Unsupported("it does not come to an end")
            if self.version == before and not moved:
                return False

    def _turn(self, warp: Warp) -> bool:
        """Lets a warp run as far as it can; whether it has done anything but spin."""
        moved = False
        for _ in range(20_000):
            groups = self.runnable(warp)
            if not groups:
                return moved
            if warp.version != self.version:
                warp.seen.clear()
                warp.version, warp.spinning = self.version, 0
            pc, mask = next(((p, m) for p, m in groups if m & ~warp.spinning), (None, 0))
            if pc is None:
                return moved
            before = self.version
            if self.step(warp, pc, mask):  # a branch back
                key = (pc, mask, hash((warp.registers.tobytes(), warp.predicates.tobytes(),
                                       warp.uniform.tobytes())))  # fmt: skip
                if key in warp.seen and self.version == before:
                    warp.spinning |= mask
                    continue
                warp.seen.add(key)
            moved = True
        return moved

    def runnable(self, warp: Warp) -> list[tuple[int, int]]:
        """The places at which lanes stand that do not wait, with the lanes."""
        by_place: dict[int, int] = {}
        for lane in lanes_of(warp.live):
            if not warp.waits[lane]:
                by_place[warp.pc[lane]] = by_place.get(warp.pc[lane], 0) | 1 << lane
        return sorted(by_place.items())

    def step(self, warp: Warp, pc: int, mask: int) -> bool:
        """Executes an instruction for lanes that stand at it; whether they go back."""
        one = self.function.code.get(pc)
        if one is None:
            raise Unsupported(f"there is no code at {pc:#x}")
        self.steps += 1
        guard = self._guard(warp, one, mask)
        execute = self.opcodes.get(one.base)
        if execute is None:
            raise Unsupported(f"{one.opcode} is not modelled")
        for lane in lanes_of(mask):
            warp.pc[lane] = pc + WIDTH
        back = execute(self, warp, one, mask, guard)
        return bool(back)

    def _guard(self, warp: Warp, one: Instruction, mask: int) -> int:
        if not one.guard:
            return mask
        values = self.predicate(warp, parse(one.guard))
        found = 0
        for lane in lanes_of(mask):
            value = of_lane(values, lane)
            if value < 0:
                raise Unsupported(f"{one.opcode} at {one.pc:#x} is guarded by what is not known")
            found |= value << lane
        return found

    # ------------------------------------------------------------------ operands

    def predicate(self, warp: Warp, operand: Operand) -> Values:
        """Predicate values: of lanes, or one."""
        assert isinstance(operand, Predicate), operand
        if operand.number == 7:
            return np.array([0 if operand.negated else 1], np.int64)
        file = warp.uniform_predicates if operand.uniform else warp.predicates
        values = file[operand.number]
        return np.where(values < 0, -1, 1 - values) if operand.negated else values.copy()

    def value(self, warp: Warp, operand: Operand, at: int = 0) -> Values:
        """32-bit values; ``at`` 1: the upper word of a pair."""
        match operand:
            case Register(number, uniform, sign):
                if number == (63 if uniform else 255):
                    found = np.zeros(1, np.int64)
                else:
                    file = warp.uniform if uniform else warp.registers
                    found = file[number + at].copy()
            case Number(value):
                found, sign = np.array([value if not at else (WORD if value >> 31 else 0)]), ""
            case Constant(bank, offset, register, sign):
                index = 0 if register is None else int(self.value(warp, register)[0])
                if bank or index < 0:
                    found = np.array([UNKNOWN])
                else:
                    word = self.constants.get(offset + index + 4 * at, UNKNOWN)
                    found = np.array([word])
            case Predicate():
                found, sign = self.predicate(warp, operand), ""
            case _:
                raise Unsupported(f"an operand {operand}")
        found = found.astype(np.int64)
        if sign == "-":
            return np.where(found < 0, UNKNOWN, -found & WORD)
        if sign == "~":
            return np.where(found < 0, UNKNOWN, ~found & WORD)
        if sign == "|":
            return np.where(found < 0, UNKNOWN, np.abs(signed(found)) & WORD)
        return found

    def wide(self, warp: Warp, operand: Operand) -> list[int]:
        """64-bit values of pairs, as integers of lanes, -1 if not known."""
        low, high = self.value(warp, operand), self.value(warp, operand, 1)
        return [
            UNKNOWN if a < 0 or b < 0 else int(a) | int(b) << 32
            for a, b in zip(low, high, strict=True)
        ]

    def set(self, warp: Warp, operand: Operand, values: Values, mask: int, at: int = 0) -> None:
        """Sets a register (or a predicate) of lanes."""
        match operand:
            case Register(number, uniform, _):
                none = 63 if uniform else 255
                file = warp.uniform if uniform else warp.registers
            case Predicate(number, uniform, _):
                none = 7
                file = warp.uniform_predicates if uniform else warp.predicates
            case _:
                raise Unsupported(f"a result {operand}")
        if number == none or not mask:
            return
        if uniform:
            file[number + at] = of_lane(values, lanes_of(mask)[0])
        else:
            file[number + at] = np.where(_array(mask), values, file[number + at])

    def address(self, warp: Warp, place: Operand, lane: int) -> int:
        """The address that a lane names, -1 if it is not known."""
        assert isinstance(place, Place), place
        total = place.offset
        for register in place.registers:
            whole = place.wide and not register.uniform
            value = of_lane(self.value(warp, register), lane)
            if value < 0:
                return UNKNOWN
            if whole or (place.wide and len(place.registers) == 1):
                upper = of_lane(self.value(warp, register, 1), lane)
                if upper < 0:
                    return UNKNOWN
                value |= upper << 32
            total += value
        return total if place.wide else total & WORD

    def generic(self, warp: Warp, place: Place, lane: int) -> int:
        """The generic address that a lane names: nvdisasm does not say that it is a pair."""
        return self.address(warp, place._replace(wide=True), lane)

    # ------------------------------------------------------------------ shared memory

    def owner(self, cta: Cta, address: int) -> tuple[Cta, int]:
        """The CTA that an address of the cluster's shared memory lies in, and where."""
        if address < 0:
            raise Unsupported("an address that is not known")
        rank, offset = address >> 24, address & 0xFFFFFF
        if rank >= len(cta.cluster.ctas) or offset + 8 > len(cta.shared) + 64:
            raise Unsupported(f"an address {address:#x} outside of shared memory")
        return cta.cluster.ctas[rank], offset

    def word(self, cta: Cta, at: int) -> int:
        """The 64 bits of shared memory at an offset."""
        return int.from_bytes(cta.shared[at : at + 8], "little")

    def state(self, cta: Cta, at: int) -> Mbarrier:
        """The mbarrier at an offset."""
        found = decode(self.word(cta, at), self.arch)
        if at not in cta.mbarriers or found is None:
            raise Unsupported(f"there is no mbarrier at {at:#x}")
        return found

    def put(self, cta: Cta, at: int, state: Mbarrier) -> None:
        """Stores an mbarrier; a phase that lacks nothing is complete."""
        parity, pending, expected, tx = state.parity, state.pending, state.expected, state.tx
        if pending < 0:
            raise Unsupported(f"an arrival too many on the mbarrier at {at:#x}")
        if not pending and not tx:
            parity, pending = parity ^ 1, expected
        data = encoded(Mbarrier(parity, pending, expected, tx)).to_bytes(8, "little")
        cta.shared[at : at + 8] = data
        cta.known[at : at + 8] = b"\1" * 8
        self.version += 1

    def arrive(self, cta: Cta, at: int, count: int, tx: int = 0, drop: int = 0) -> None:
        """Arrivals on the mbarrier, after bytes that are expected."""
        s = self.state(cta, at)
        self.put(cta, at, Mbarrier(s.parity, s.pending - count, s.expected - drop, s.tx + tx))

    # ------------------------------------------------------------------ named barriers

    def join(
        self, warp: Warp, number: int, threads: int | None, mask: int, waits: bool, votes: int
    ) -> None:
        """Lanes come to a named barrier."""
        barrier = warp.cta.barriers.setdefault(number, NamedBarrier())
        lanes = barrier.lanes.get(warp.number, 0) | mask
        barrier.lanes[warp.number] = lanes
        barrier.votes += votes
        barrier.threads = threads
        self.version += 1
        if waits:
            for lane in lanes_of(mask):
                warp.waits[lane] = "bar"
            warp.joined = (number, barrier.round)
        self.complete(warp.cta)

    def complete(self, cta: Cta) -> None:
        """Completes the rounds of named barriers that are full."""
        for number, barrier in cta.barriers.items():
            for n, lanes in list(barrier.lanes.items()):
                if not cta.warps[n].live & ~lanes:
                    barrier.joined.append(n)
                    del barrier.lanes[n]
            if not barrier.joined:
                continue
            if barrier.threads is None:
                full = all(not w.live or w.number in barrier.joined for w in cta.warps)
            else:
                full = LANES * len(barrier.joined) >= barrier.threads
            if full:
                for warp in cta.warps:
                    if warp.joined == (number, barrier.round):
                        warp.joined = None
                        warp.votes = barrier.votes
                        warp.waits = ["" if w == "bar" else w for w in warp.waits]
                barrier.joined, barrier.votes, barrier.round = [], 0, barrier.round + 1
                self.version += 1

    def complete_cluster(self, cluster: Cluster) -> None:
        """Completes the round of a cluster's barrier if all lanes have arrived that are there."""
        live = [(w, w.live) for cta in cluster.ctas for w in cta.warps if w.live]
        if not cluster.arrived:
            return
        if all(not lanes & ~cluster.arrived.get((w.cta.rank, w.number), 0) for w, lanes in live):
            cluster.arrived.clear()
            cluster.round += 1
            self.version += 1
            for w, _ in live:
                w.waits = ["" if x == "cluster" else x for x in w.waits]

    # ------------------------------------------------------------------ lanes of a warp

    def end(self, warp: Warp, mask: int) -> None:
        """Lanes end."""
        if not mask:
            return
        warp.live &= ~mask
        self.version += 1
        self.release_lanes(warp)
        self.complete(warp.cta)
        self.complete_cluster(warp.cta.cluster)

    def release_lanes(self, warp: Warp) -> None:
        """Lanes go on that have waited for lanes that have come or ended."""
        for number in range(16):
            kind = f"sync {number}"
            come = warp.live & bits_of(w == kind for w in warp.waits)
            if come and not warp.convergence[number] & warp.live & ~come:
                warp.waits = ["" if w == kind else w for w in warp.waits]
        for kind in {w for w in warp.waits if w.startswith("warp ")}:
            wanted = int(kind[5:])
            come = warp.live & bits_of(w.startswith("warp ") for w in warp.waits)
            if come and not wanted & warp.live & ~come:
                warp.waits = ["" if w == kind else w for w in warp.waits]


def encoded(state: Mbarrier) -> int:
    """The word of an mbarrier, as `tilesim.autopsy.mbarrier_word` lays it out."""
    return (
        state.parity << 63
        | (-state.pending % (1 << 20)) << 43
        | (-state.tx % (1 << 21)) << 21
        | (-state.expected % (1 << 20)) << 1
    )


def signed(values: Values) -> Values:
    """32-bit words as numbers with a sign."""
    return np.where(values >> 31 & 1, values - (1 << 32), values)


Execute = Callable[[Machine, Warp, Instruction, int, int], "bool | None"]
