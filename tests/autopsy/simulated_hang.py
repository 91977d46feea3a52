"""Dumps of hangs that no GPU has had: what a driver would write of a kernel's machine code that
hangs in a simulated machine.

A kernel is compiled by NVRTC with ``-lineinfo``, which embeds its PTX. Its machine code is executed
by `tests.autopsy.sass_machine` until nothing moves any more; its PTX by tilesim's simulator. The
state of the former is written as a dump, by `tests.autopsy.dump_writer`. What is true of the dump
(`Hang.stands`: which lanes wait for what) is known from both; `Hang.differences` says where they
contradict each other, and such a hang is no evidence of anything.

These dumps show whether an autopsy reads and concludes what it should. They are no evidence of what
hardware does: where a warp stands in its wait, and what is left in registers that are overwritten,
are those of real dumps as far as these were seen (an H200, driver 580), and guesses beyond.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from importlib import import_module
from typing import Any

from tests.autopsy import dump_writer as write
from tests.autopsy.sass_machine import (
    UNKNOWN,
    Cta,
    Machine,
    Place,
    Unsupported,
    Warp,
    bits_of,
    lanes_of,
    of_lane,
    parse,
)
from tests.autopsy.sass_opcodes import OPCODES
from tests.cubin.compiled import kernels
from tilesim.autopsy.mbarrier_word import Mbarrier
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Instruction
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.records import dataclass
from tilesim.sim.machine import machine as simulated
from tilesim.sim.machine.mbarrier import Mbarrier as SimulatedMbarrier
from tilesim.sim.machine.memory import GlobalMemory
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.register_pool import RegisterPool
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Simulation, run_machine
from tilesim.sim.machine.warp import Agent
from tilesim.sim.observers.wait_for import Bytes, WaitFor

#: where the code of the kernel lies on the device
ENTRY = 0x7F30_0000_0000
#: of lanes that wait in a loop, how often they stand where real ones did: at the first instruction
#: that needs the answer of what they have asked
USUAL = 0.8
#: of a kernel that does not hang
ENDS = "it ends"
#: scheduling points of a simulation
MOST_STEPS = 20_000
#: instructions in which what a lane comes to next is looked for
MOST_AHEAD = 30


@dataclass(frozen=True)
class Kernel:
    """A kernel that is to hang: its machine code for ``arch`` (``sm_90a``), and its launch."""

    name: str
    cubin: bytes
    arch: str
    launch: Launch

    @property
    def version(self) -> tuple[int, int]:
        """The architecture, as ``(9, 0)``."""
        number = int(self.arch.removeprefix("sm_").rstrip("af"))
        return number // 10, number % 10


def compiled(
    text: str, arch: str = "sm_90a", *, lines: bool = True, options: Sequence[str] = ()
) -> bytes:
    """The cubin that NVRTC makes of CUDA C++; ``lines``: with ``-lineinfo``; ``options``: others.

    Raises:
        Unsupported: it does not compile.
    """
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"k.cu", 0, [], [])
    own = [f"--gpu-architecture={arch}", "-std=c++17", "--fmad=false", "--no-cache"]
    options = [*own, *options, *(["-lineinfo"] if lines else [])]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * max(size, 2)  # written in place, and b" " is one object
    nvrtc.nvrtcGetProgramLog(program, log)
    if int(status):
        raise Unsupported(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    made = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, made)
    return made


# ------------------------------------------------------------------ what lanes wait for


@dataclass(frozen=True)
class Stand:
    """Lanes of a warp that stand at one place, and what they wait for there.

    ``kind``: ``mbarrier`` (``cta``, ``address``, ``parity``), ``named`` (``number``, ``threads``,
    None: the whole CTA), ``cluster``, ``lanes`` (``missing`` ones), ``poll`` (``space``,
    ``address``), ``pool``, ``spin`` (for nothing: no answer ends the loop).
    """

    warp: tuple[int, int]
    lanes: int
    pc: int
    kind: str
    cta: int = 0
    address: int = 0
    parity: int = 0
    number: int = 0
    threads: int | None = None
    missing: int = 0
    space: str = ""

    @property
    def what(self) -> tuple[object, ...]:
        """What they wait for, without where they stand."""
        return (
            self.kind, self.cta, self.address, self.parity, self.number, self.threads, self.space
        )  # fmt: skip


class Hang:
    """A kernel that hangs in the simulated machine.

    Raises:
        Unsupported: the machine cannot execute it, or it ends.
    """

    def __init__(self, kernel: Kernel, seed: int = 0) -> None:
        self.kernel = kernel
        self.image = Image(kernel.cubin, kernel.name)
        name = kernel.launch.entry
        symbol = next(one for one in self.image.functions if one.name == name)
        (self.function,) = disassemble(self.image, (symbol,))
        self.info = self.image.info(symbol)
        self.random = random.Random(seed)
        self.machine = Machine(self.function, self.info, kernel.launch, kernel.version, OPCODES)
        self._run()
        self.stands: tuple[Stand, ...] = tuple(
            stand for warp in self.machine.warps for stand in self._stands(warp)
        )

    def _run(self) -> None:
        if self.machine.run():
            raise Unsupported(ENDS)

    def _stands(self, warp: Warp) -> Iterator[Stand]:
        """Brings the lanes of a warp to where they stand in the dump."""
        key = (warp.cta.number, warp.number)
        by_place: dict[tuple[int, str], int] = {}
        for lane in lanes_of(warp.live):
            place = warp.pc[lane], warp.waits[lane]
            by_place[place] = by_place.get(place, 0) | 1 << lane
        for (pc, wait), mask in sorted(by_place.items()):
            if not wait:
                yield self._in_loop(warp, pc, mask)
            elif wait == "bar":
                yield self._behind_barrier(warp, pc, mask)
            elif wait == "cluster":
                self._place(warp, mask, pc - 16)
                yield Stand(key, mask, pc - 16, "cluster")
            else:
                self._place(warp, mask, pc - 16)
                wanted = (
                    warp.convergence[int(wait[5:])] if wait[:4] == "sync" else int(wait[5:])
                ) & warp.live
                come = bits_of(one == wait for one in warp.waits)
                yield Stand(key, mask, pc - 16, "lanes", missing=wanted & ~come)

    def _place(self, warp: Warp, mask: int, pc: int) -> None:
        for lane in lanes_of(mask):
            warp.pc[lane] = pc

    def _in_loop(self, warp: Warp, start: int, mask: int) -> Stand:
        """Lanes that ask again and again: what they ask, and one of the places where they may
        stand, in a state that they have there."""
        trail: list[Instruction] = []
        found: list[Stand] = []
        pc = start
        for _ in range(400):
            one = self.function.code[pc]
            trail.append(one)
            asked = self._asked(warp, one, mask)
            found += [] if asked is None else [asked]
            pc = self._step(warp, pc, mask)
            if pc == start:
                break
        else:
            raise Unsupported("lanes wait in a loop that is too long")
        kinds = {stand.what for stand in found}
        if not kinds:
            return Stand((warp.cta.number, warp.number), mask, pc, "spin")
        if len(kinds) != 1:
            raise Unsupported(f"lanes of warp {warp.number} wait for {len(kinds)} things at once")
        stop = self._usual(trail) if self.random.random() < USUAL else None
        goal = stop if stop is not None else self.random.choice(trail).pc
        for _ in range(400):
            if pc == goal:
                break
            pc = self._step(warp, pc, mask)
        first = found[0]
        return Stand(
            first.warp, mask, pc, first.kind, first.cta, first.address, first.parity,
            space=first.space,
        )  # fmt: skip

    def _step(self, warp: Warp, pc: int, mask: int) -> int:
        self.machine.step(warp, pc, mask)
        places = {warp.pc[lane] for lane in lanes_of(mask)}
        if len(places) > 1 or mask & ~warp.live:
            raise Unsupported("lanes part in a loop that waits")
        return places.pop()

    def _asked(self, warp: Warp, one: Instruction, mask: int) -> Stand | None:
        """What an instruction asks that lanes may wait for."""
        key, machine, lane = (warp.cta.number, warp.number), self.machine, lanes_of(mask)[0]
        operands = [parse(text) for text in one.operands]
        if one.opcode.startswith("SYNCS.PHASECHK"):
            if one.operands[0] == "PT":
                return None  # the answer is dropped
            owner, at = machine.owner(warp.cta, machine.address(warp, operands[1], lane))
            parity = of_lane(machine.value(warp, operands[2]), lane) >> 31
            return Stand(key, mask, one.pc, "mbarrier", owner.number, at, parity)
        if one.base == "USETMAXREG":
            return Stand(key, mask, one.pc, "pool")
        if one.base in ("LDG", "LD", "LDS", "ATOMG", "ATOMS"):
            place = next(p for p in operands if isinstance(p, Place))
            if one.base in ("LDS", "ATOMS"):
                owner, address = machine.owner(warp.cta, machine.address(warp, place, lane))
                return Stand(key, mask, one.pc, "poll", owner.number, address, space="shared")
            address = machine.generic(warp, place, lane)
            return Stand(key, mask, one.pc, "poll", 0, address, space="global")
        return None

    def _usual(self, trail: Sequence[Instruction]) -> int | None:
        """Where lanes stand that wait for an answer: at the first instruction that needs it."""
        for n, one in enumerate(trail):
            if one.opcode.startswith("NANOSLEEP"):
                return one.pc
            asks = one.opcode.startswith(("SYNCS.PHASECHK", "LDG", "LDS", "LD.", "USETMAXREG"))
            if not asks:
                continue
            answer = one.operands[0]
            for later in (*trail[n + 1 :], *trail[:n]):
                used = later.operands[:1] if later.base in _STORES else later.operands[1:]
                if later.guard.lstrip("!") == answer or answer in (
                    text.lstrip("!-~|") for text in (used or later.operands)
                ):
                    return later.pc
        return None

    def _behind_barrier(self, warp: Warp, pc: int, mask: int) -> Stand:
        """Lanes that have come to a named barrier: they stand up to four instructions behind it."""
        assert warp.joined is not None
        number, _ = warp.joined
        threads = warp.cta.barriers[number].threads
        if self.function.code[pc - 16].opcode.startswith("BAR.SYNC"):
            for _ in range(self.random.randrange(4)):
                if self.function.code[pc].base not in _HARMLESS or self.function.code[pc].guard:
                    break
                self.machine.step(warp, pc, mask)
                pc += 16
        self._place(warp, mask, pc)
        key = (warp.cta.number, warp.number)
        return Stand(key, mask, pc, "named", warp.cta.number, number=number, threads=threads)

    # ------------------------------------------------------------------ the dump

    def mbarriers(self, cta: Cta) -> dict[int, Mbarrier]:
        """The states of a CTA's mbarriers, by address."""
        return {at: self.machine.state(cta, at) for at in sorted(cta.mbarriers)}

    def dump(
        self, *, release: tuple[int, int] = (580, 159), before: Sequence[bytes] = (),
        arch: tuple[int, int] | None = None,
    ) -> write.Dump:  # fmt: skip
        """The dump; ``before``: cubins that were loaded before it."""
        launch, machine = self.kernel.launch, self.machine
        cluster = launch.cluster if launch.cluster_size > 1 else write.NONE
        grid = write.Grid(
            1, ENTRY, launch.grid, launch.block, cluster, bytes(machine.memory.params),
            self.info.registers or 32, module=len(before),
        )  # fmt: skip
        others = [write.Module(_loaded(cubin, n), cubin) for n, cubin in enumerate(before)]
        own = write.Module(
            write.load(self.kernel.cubin, {launch.entry: ENTRY}), self.kernel.cubin
        )  # fmt: skip
        steers = {p.name for p in launch.params if isinstance(p, Pointer) and p.contents}
        memory = [
            write.Memory(buffer.address, bytes(buffer.data))
            for name, buffer in machine.memory.buffers.items()
            if name in steers
        ]
        ctas = [self._cta(cta, cluster) for cta in machine.ctas if any(w.live for w in cta.warps)]
        device = write.Device(
            [grid], ctas, [[*others, own]], arch or self.kernel.version,
            name="NVIDIA H200" if self.kernel.version < (10, 0) else "NVIDIA B200",
        )  # fmt: skip
        return write.Dump([device], memory, release)

    def _cta(self, cta: Cta, cluster: write.Triple) -> write.Cta:
        warps = [self._warp(w, n) for n, w in enumerate(w for w in cta.warps if w.live)]
        place = write.NONE
        if cluster != write.NONE:
            x, y, z = (i // n for i, n in zip(cta.index, cluster, strict=True))
            place = (x, y, z)
        return write.Cta(
            1, cta.index, warps, sm=2 * cta.number % 132, shared=bytes(cta.shared), cluster=place,
            cluster_size=cluster,
        )  # fmt: skip

    def _warp(self, warp: Warp, slot: int) -> write.Warp:
        lanes = [self._lane(warp, lane) for lane in lanes_of(warp.live)]
        kinds = {s.kind for s in self.stands if s.warp == (warp.cta.number, warp.number)}
        scope = 3 if "named" in kinds else 4 if "cluster" in kinds else 0
        return write.Warp(
            lanes, slot,
            uniform_registers=[self._written(int(v[0])) for v in warp.uniform[:63]],
            uniform_predicates=[int(v[0]) > 0 for v in warp.uniform_predicates[:7]],
            convergence_barriers=tuple(warp.convergence),
            barrier=(scope, 0),
        )  # fmt: skip

    def _lane(self, warp: Warp, lane: int) -> write.Lane:
        bx, by, _ = self.kernel.launch.block
        thread = 32 * warp.number + lane
        count = self.info.registers or 32
        return write.Lane(
            lane, ENTRY + warp.pc[lane], (thread % bx, thread // bx % by, thread // (bx * by)),
            [self._written(int(v)) for v in warp.registers[:count, lane]],
            [int(v) > 0 for v in warp.predicates[:7, lane]],
            state=6 if warp.waits[lane][:4] in ("sync", "warp") else 1,
        )  # fmt: skip

    def _written(self, value: int) -> int:
        """A register as it is dumped: anything, if it is not known."""
        return self.random.getrandbits(32) if value == UNKNOWN else value

    # ------------------------------------------------------------------ the simulator's hang

    @cached_property
    def simulated(self) -> tuple[simulated.Machine, ...]:
        """The simulator's machines, which have executed the embedded PTX: one for each cluster, or
        one for all."""
        text = self.image.ptx
        if text is None:
            raise Unsupported("the cubin has no PTX")
        module = read(text, f"{self.kernel.name}.ptx")
        entry = next(e for e in module.entries if e.name == self.kernel.launch.entry)
        simulation = Simulation(
            lower(module, entry, self.kernel.launch), numbers=False, strict="practice"
        )
        simulation.set_options(max_steps=MOST_STEPS)
        memory = GlobalMemory(
            simulation.program, {}, simulation.written, simulation.holds,
            by_bytes=not simulation.code.global_by_name,
        )  # fmt: skip
        made = []
        for group in range(simulation.groups):
            one = simulated.Machine(
                simulation.program, simulation.code, simulation.group(group), memory,
                TimedEnvironment(), simulation.options, group,
            )  # fmt: skip
            run_machine(one)
            made.append(one)
        return tuple(made)

    @cached_property
    def agents(self) -> dict[tuple[int, int], list[Agent]]:
        """The simulator's warps that have not ended, by CTA and warp."""
        found: dict[tuple[int, int], list[Agent]] = {}
        for machine in self.simulated:
            for agent in (*machine.warps, *machine.split_groups):
                if not agent.exited:
                    found.setdefault((agent.cta.number, agent.number), []).append(agent)
        return found

    @cached_property
    def addresses(self) -> Mapping[tuple[int, int], int]:
        """By CTA and address of an mbarrier in the simulator, its address in the machine code: they
        are paired by the lines of the PTX that initialise them."""
        lines: dict[tuple[int, int], list[int]] = {}
        for cta in self.machine.ctas:
            for at in cta.mbarriers:
                lines.setdefault((cta.number, self.machine.initialised[cta.number, at]), []).append(
                    at
                )
        found: dict[tuple[int, int], int] = {}
        theirs: dict[tuple[int, int], list[int]] = {}
        for machine in self.simulated:
            for place in machine.ctas:
                for at, mbar in place.mbarriers.items():
                    if mbar.live and mbar.init is not None:
                        key = place.number, mbar.init.op.loc.line
                        theirs.setdefault(key, []).append(at)
        for key, places in theirs.items():
            for at, own in zip(sorted(places), sorted(lines.get(key, ())), strict=False):
                found[key[0], at] = own
        return found

    def differences(self) -> Iterator[str]:
        """What the simulator's hang is otherwise."""
        for machine in self.simulated:
            if machine.outcome.cut_off:
                yield f"the simulator stops: {machine.outcome.cut_off}"
            undefined = [f.rule for f in machine.outcome.findings if f.rule != "deadlock"]
            if machine.outcome.undefined:
                yield f"the simulator ends at {undefined[-1] if undefined else 'a fault'}"
        yield from self._other_states()
        yield from self._other_waits()

    def _other_states(self) -> Iterator[str]:
        own = {
            (cta.number, at): state
            for cta in self.machine.ctas
            for at, state in self.mbarriers(cta).items()
        }
        seen = set()
        for machine in self.simulated:
            for cta in machine.ctas:
                for at, mbar in cta.mbarriers.items():
                    if not mbar.live:
                        continue
                    place = self.addresses.get((cta.number, at))
                    state = Mbarrier(mbar.phase & 1, mbar.pending, mbar.expected, mbar.tx)
                    seen.add((cta.number, place))
                    ended = all(not w.live for w in self.machine.ctas[cta.number].warps)
                    if not ended and (place is None or own.get((cta.number, place)) != state):
                        where = None if place is None else own.get((cta.number, place))
                        yield f"{mbar.label} of CTA {cta.number} is {state}, here {where}"

    def _other_waits(self) -> Iterator[str]:
        mine: dict[tuple[int, int], set[tuple[object, ...]]] = {}
        for stand in self.stands:
            if stand.kind != "lanes":
                mine.setdefault(stand.warp, set()).add(self._said(stand))
        theirs: dict[tuple[int, int], set[tuple[object, ...]]] = {}
        for key, agents in self.agents.items():
            theirs.setdefault(key, set()).update(filter(None, map(self._said_by, agents)))
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key, set()) != theirs.get(key, set()):
                yield (
                    f"warp {key[1]} of CTA {key[0]} waits for {theirs.get(key)}, here for "
                    f"{mine.get(key)}"
                )

    def _said(self, stand: Stand) -> tuple[object, ...]:
        match stand.kind:
            case "mbarrier":
                return "mbarrier", stand.cta, stand.address, stand.parity
            case "named":
                return "named", stand.number
            case kind:
                return (kind,)

    def _said_by(self, agent: Agent) -> tuple[object, ...] | None:
        blocked = agent.blocked
        if blocked is None or blocked.clause.startswith("waits for lanes"):
            return None
        match blocked.on:
            case SimulatedMbarrier() as mbar:
                at = self.addresses.get((mbar.cta.number, mbar.address))
                return "mbarrier", mbar.cta.number, at, blocked.parity
            case NamedBarrier() as barrier if barrier.of_cta:
                named = {
                    n
                    for m in self.simulated
                    for c in m.ctas
                    if c.number == agent.cta.number
                    for n, one in c.named.items()
                    if one is barrier
                }
                ids = sorted(named)
                return "named", *ids
            case NamedBarrier():
                return ("cluster",)
            case RegisterPool():
                return ("pool",)
            case _:
                return ("poll",) if blocked.polling else ("other", blocked.text)

    def suppliers(self, stand: Stand) -> tuple[set[tuple[int, int]], set[tuple[int, int]]] | None:
        """The warps that could release what lanes wait for, as the simulator finds them, where it
        knows which barrier they act on; and all that come to an instruction which may count for
        it, although they have made such a contribution to this phase already. None if that is not
        known."""
        for machine in self.simulated:
            graph = WaitFor(machine)
            for agent in (*machine.warps, *machine.split_groups):
                same = _key(agent) == stand.warp and not agent.exited
                if same and agent.blocked and self._said_by(agent) == self._said(stand):
                    on = agent.blocked.on
                    what = {on, Bytes(on)} if isinstance(on, SimulatedMbarrier) else {on}
                    coming = {
                        other: [c for c in graph.coming(other) if not c.on.isdisjoint(what)]
                        for other in graph.agents_of_cluster(agent)
                    }
                    first = {
                        _key(other)
                        for other, op in graph.suppliers(agent)
                        if any(c.op is op and len(_addresses(c.on)) < 2 for c in coming[other])
                    }
                    return first, first | {_key(other) for other, some in coming.items() if some}
        return None


def _addresses(on: Iterable[object]) -> set[int]:
    """The addresses of mbarriers that an instruction may act on."""
    every = (one.on if isinstance(one, Bytes) else one for one in on)
    return {one.address for one in every if isinstance(one, SimulatedMbarrier)}


def _key(agent: Agent) -> tuple[int, int]:
    return agent.cta.number, agent.number


What = tuple[object, ...]


class Stopped(Hang):
    """A kernel that is stopped on its way, after so many instructions: most of it waits for
    nothing. ``asked``: by CTA, warp and lane, what it has waited for, or looked at, last."""

    def __init__(self, kernel: Kernel, seed: int = 0, steps: int = 100) -> None:
        self.steps = steps
        self.asked: dict[tuple[int, int, int], What] = {}
        super().__init__(kernel, seed)

    def _run(self) -> None:
        machine = self.machine
        while machine.steps < self.steps:
            able = [(w, place) for w in machine.warps for place in machine.runnable(w)]
            if not able:
                return
            warp, (pc, mask) = self.random.choice(able)
            for _ in range(self.random.randrange(1, 12)):
                self._note(self.asked, warp, pc, mask)
                machine.step(warp, pc, mask)
                left = [place for place in machine.runnable(warp) if place[1] & mask]
                if not left:
                    break
                pc, mask = left[0]

    def _stands(self, warp: Warp) -> Iterator[Stand]:
        """Nothing is moved but lanes that wait where they are."""
        for lane in lanes_of(warp.live):
            if warp.waits[lane] not in ("", "bar"):
                warp.pc[lane] -= 16
        return iter(())

    def _note(
        self, into: dict[tuple[int, int, int], What], warp: Warp, pc: int, mask: int
    ) -> None:  # fmt: skip
        one = self.function.code[pc]
        what: What | None = None
        if one.base == "BAR" and "ARV" not in one.modifiers:
            what = "named", int(one.operands[0], 0) if one.operands[0][:1] == "0" else None
        elif one.base == "UCGABAR_WAIT":
            what = ("cluster",)
        elif (asked := self._asked(warp, one, mask)) is not None:
            what = asked.kind, asked.address, asked.parity
        for lane in lanes_of(mask) if what is not None else ():
            into[warp.cta.number, warp.number, lane] = what or ()

    def near(self, cta: int, number: int, lane: int) -> set[What]:
        """What a lane waits for or looks at last before it was stopped, and next."""
        known = self.asked.get((cta, number, lane))
        found = {known} if known else set()
        before, self.machine = self.machine, deepcopy(self.machine)
        later: dict[tuple[int, int, int], What] = {}
        try:
            warp = next(w for w in self.machine.warps if (w.cta.number, w.number) == (cta, number))
            for _ in range(MOST_AHEAD):
                place = next((p for p in self.machine.runnable(warp) if p[1] >> lane & 1), None)
                if place is None or later:
                    break
                self._note(later, warp, *place)
                self.machine.step(warp, *place)
        except Unsupported:
            pass
        finally:
            self.machine = before
        return found | set(later.values())


_STORES = {"BRA", "EXIT", "ST", "STG", "STS"}
#: what is issued behind a barrier that has not blocked yet
_HARMLESS = frozenset({
    "NOP", "MOV", "UMOV", "IMAD", "UIMAD", "IADD3", "UIADD3", "VIADD", "LEA", "ULEA", "LOP3",
    "ULOP3", "PLOP3", "SHF", "USHF", "ISETP", "UISETP", "SEL", "USEL", "LDC", "ULDC", "LDCU", "S2R",
    "S2UR", "PRMT", "HFMA2", "CS2R",
})  # fmt: skip


def _loaded(cubin: bytes, number: int) -> bytes:
    """Another cubin that was loaded, at another address."""
    at = ENTRY + (number + 1 << 24)
    names = [one.name for one in kernels(Image(cubin))]
    return write.load(cubin, {name: at + (n << 20) for n, name in enumerate(names)})
