"""Where the warps of a launch stand, and what each waits for there.

What an instruction is at which a warp may stand while it waits was seen in dumps of an H200
(driver 580). A warp that waits for an mbarrier stands in the loop of its ``SYNCS.PHASECHK``; one
that has issued ``BAR.SYNC.DEFER_BLOCKING`` up to four instructions behind it; the others at the
instruction. Since the driver's branch 590 the dump says for each warp which kind of barrier it
waits for (``Warp.barrier``); that is used where it is there, and no dump that has it was seen yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from tilesim.autopsy.core_dump import CoreDump, Cta, Grid, Lane, Warp, exception_text
from tilesim.autopsy.recovered import Recovered, between, dumped
from tilesim.autopsy.wait_loops import WaitLoop, wait_loops
from tilesim.autopsy.waits import (
    AsyncGroupWait,
    ClusterBarrierWait,
    EndlessLoop,
    GridDependencyWait,
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Running,
    Sleep,
    TensorAllocWait,
    Trap,
    Wait,
    WarpWait,
    lanes_of,
)
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image as CubinImage
from tilesim.cubin.operands import Memory, following, parse, read, written
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.records import replace
from tilesim.wording import count, ranges

#: instructions behind ``BAR.SYNC.DEFER_BLOCKING`` that a warp may stand at while it waits there
DEFERRED = 4
#: paths to a place that are looked at, at most
MOST_PATHS = 64
#: instructions behind a ``SYNCS.PHASECHK`` in which its answer may still be awaited
MOST_AWAITED = 12
#: bits of a shared address that count bytes; those above are the CTA's place in its cluster
SHARED_BITS = 24

#: at which a warp stands while it waits
_STOPS = frozenset({
    "UCGABAR_WAIT", "WARPSYNC", "BSYNC", "ACQBULK", "BAR", "DEPBAR", "WARPGROUP",
})  # fmt: skip
#: what ends a thread, or leaves for code that is not known
_ENDS = frozenset({"EXIT", "RET", "BPT", "KILL", "JMX", "JMXU"})
#: what has its result later, at a time that is not fixed
_VARIABLE = frozenset({
    "LD", "LDG", "LDS", "LDL", "ATOM", "ATOMG", "ATOMS", "SYNCS", "SHFL", "S2R", "S2UR", "B2R",
    "LDTM", "LDSM",
})  # fmt: skip


class _Path(NamedTuple):
    """A path to a place: the named barriers on it that a warp may have issued at most four
    instructions ago, the last one first, with how many instructions ago; ``open``: it may have
    issued none."""

    barriers: tuple[tuple[Instruction, int], ...]
    open: bool


#: waits by what was read in the dump to tell them: by names, by values
_Answers = dict[tuple[str, ...], dict[tuple[int | None, ...], Wait]]


class Launch:
    """The CTAs of one launch in a dump, with the code of its kernel, or of a function that the
    kernel calls; places of groups count from the kernel's beginning."""

    def __init__(self, dump: CoreDump, grid: Grid, function: Function) -> None:
        self.dump = dump
        self.grid = grid
        self.function = function
        self.kernel = grid.entry
        self._called: list[Launch] = []
        self._answers: dict[object, _Answers] = {}
        device = next(one for one in dump.devices if one.number == grid.device)
        self.arch = device.arch
        self.ctas = tuple(cta for cta in dump.ctas if cta.grid is grid)
        self._paths_to: dict[int, tuple[_Path, ...]] = {}
        self._endless: dict[int, bool] = {}
        self._stale_of: dict[tuple[int, int], frozenset[str] | None] = {}

    @cached_property
    def loops(self) -> Mapping[int, WaitLoop]:
        """By place, the smallest loop around it that only waits."""
        return wait_loops(self.function)

    def placed(self, one: Instruction) -> Instruction:
        """An instruction with the lines that it has in the source.

        The loop that asks again lies behind the code, where ptxas writes no lines: it has those of
        what lies before it. The line in the PTX is right there, and the first instruction of that
        line has the lines of the source.
        """
        if one.ptx is None:
            return one
        first = next(
            i for i in self.function.code.values() if (i.ptx, i.base) == (one.ptx, one.base)
        )
        return one if first.lines == one.lines else replace(one, lines=first.lines)

    def constant(self, name: str) -> int | None:
        """A word of constant bank 0 (``c[0x0][0x210]``), of which the dump has the parameters of
        the launch."""
        start, data = self._parameters_at, self.grid.params
        if start is None or data is None:
            return None
        at = int(name.removeprefix("c[0x0][").removesuffix("]"), 16) - start
        return int.from_bytes(data[at : at + 4], "little") if 0 <= at <= len(data) - 4 else None

    @cached_property
    def _parameters_at(self) -> int | None:
        """Where the parameters begin in constant bank 0, as the cubin says."""
        found = self.dump.image_of(self.grid)
        image = None if found is None else CubinImage(found.data)
        kernel = None if image is None else image.symbol_at(self.kernel)
        if image is None or kernel is None:
            return None
        return image.info(kernel).parameters_at

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Where all warps stand, CTA by CTA, the lowest warp first."""
        return tuple(group for cta in self.ctas for group in self._of(cta))

    def _of(self, cta: Cta) -> list[Group]:
        together: dict[tuple[int, int, Wait], list[int]] = {}
        for warp in cta.warps:
            places: dict[int, list[Lane]] = {}
            for lane in warp.lanes:
                places.setdefault(lane.pc - self.function.address, []).append(lane)
            for pc, lanes in sorted(places.items()):
                for wait, mask in self._within(pc)._waits(cta, warp, lanes, pc).items():
                    together.setdefault((pc, mask, wait), []).append(warp.number)
        groups = [
            Group(cta, tuple(warps), mask, pc, wait) for (pc, mask, wait), warps in together.items()
        ]
        return sorted(groups, key=lambda g: (g.warps, g.pc, g.lanes))

    def _within(self, pc: int) -> Launch:
        """The launch with the function that a place lies in: the kernel, or one that it calls."""
        if pc in self.function.code:
            return self
        address = self.function.address + pc
        for other in self._called:
            if other.function.address <= address < other.function.address + other.function.size:
                return other
        image = self.dump.image_of(self.grid)
        function = None if image is None else function_at(CubinImage(image.data), address)
        if function is None:
            return self
        self._called.append(Launch(self.dump, self.grid, function))
        return self._called[-1]

    def _waits(self, cta: Cta, warp: Warp, lanes: list[Lane], pc: int) -> dict[Wait, int]:
        """What lanes of a warp that stand at one place of the kernel wait for."""
        pc += self.kernel - self.function.address
        here = sum(1 << lane.number for lane in lanes)
        key = cta, pc, here, warp.valid, warp.exited, warp.barrier, warp.broken
        known = self._answers.setdefault(key, {})
        found: dict[int, tuple[Wait, int]] = {}  # by the identity of the wait: few are made
        for lane in lanes:
            wait = None if lane.exception else _answered(known, cta, warp, lane.number)
            if wait is None:
                registers = Recovered(self.function, cta, warp, lane.number, pc, self.constant)
                wait = _Standing(self, registers, here, lane.exception).wait()
                if not lane.exception:
                    by_values = known.setdefault(tuple(registers.used), {})
                    by_values[tuple(registers.used.values())] = wait
            mask = found[id(wait)][1] if id(wait) in found else 0
            found[id(wait)] = wait, mask | 1 << lane.number
        together: dict[Wait, int] = {}
        for wait, mask in found.values():
            together[wait] = together.get(wait, 0) | mask
        return together

    # ------------------------------------------------------------------ what the code says

    def never_ends(self, pc: int) -> bool:
        """Whether no path from a place leads to an exit, a return or a trap; False if that is not
        known, or no path leads to the place: a jump to itself fills code up behind its end."""
        if pc not in self._endless:
            ahead = self.function.reached([pc])
            ends = (self.function.code[place].base in _ENDS for place in ahead)
            known = pc in self._reached and ahead.isdisjoint(self.function.unknown)
            self._endless[pc] = known and not any(ends)
        return self._endless[pc]

    @cached_property
    def _reached(self) -> frozenset[int]:
        return self.function.reached([min(self.function.code)])

    def paths_to(self, pc: int) -> tuple[_Path, ...]:
        """The paths to a place, as far as named barriers just before it go."""
        if pc not in self._paths_to:
            found = [*islice(self._back(pc, 1, frozenset()), MOST_PATHS)]
            if len(found) == MOST_PATHS:
                found.append(_Path((), open=True))
            self._paths_to[pc] = tuple(dict.fromkeys(found))
        return self._paths_to[pc]

    def _back(self, pc: int, steps: int, used: frozenset[str]) -> Iterator[_Path]:
        """The paths to a place that is so many steps before another, which has used registers."""
        before = self.function.predecessors[pc]
        if steps > DEFERRED or not before:
            yield _Path((), open=True)
            return
        for place in before:
            one = self.function.code[place]
            if one.base in _VARIABLE and used & {*written(one)}:
                yield _Path(
                    (), open=True
                )  # its result was awaited: nothing was to wait for any more
            elif one.base == "BAR" and "ARV" not in one.modifiers:
                if not one.guard:
                    yield _Path(((one, steps),), open=False)
                    continue
                for path in self._back(place, steps + 1, used | read(one)):
                    yield _Path(((one, steps), *path.barriers), path.open)
            else:
                yield from self._back(place, steps + 1, used | read(one))

    def stale(self, ask: Instruction, pc: int, loop: WaitLoop | None) -> frozenset[str] | None:
        """The registers of a question that have another value at a place than they had for it;
        None if that cannot be told."""
        key = ask.pc, pc
        if key not in self._stale_of:
            self._stale_of[key] = self._find_stale(ask, pc, loop)
        return self._stale_of[key]

    def _find_stale(
        self, ask: Instruction, pc: int, loop: WaitLoop | None
    ) -> frozenset[str] | None:
        if ask.pc == pc:
            return frozenset()
        within = loop.places if loop else None
        since = between(self.function, ask.pc, pc, within)
        if since is None:
            return None
        changed = self._written({*since, ask.pc})
        if loop:  # or as they will be for it, when it comes to it next
            coming = between(self.function, pc, ask.pc, within)
            if coming is not None:
                changed &= self._written({*coming, pc})
        return changed

    def _written(self, places: set[int]) -> frozenset[str]:
        return frozenset(r for place in places for r in written(self.function.code[place]))

    def awaited(self, pc: int) -> Instruction | None:
        """The ``SYNCS.PHASECHK.TRYWAIT`` before a place, if nothing has used its answer yet."""
        passed: list[Instruction] = []
        place = pc
        for _ in range(MOST_AWAITED):
            before = self.function.predecessors[place]
            if len(before) != 1:
                return None
            place = before[0]
            one = self.function.code[place]
            if one.base == "SYNCS" and "PHASECHK" in one.modifiers:
                answer = {*written(one)}
                used = any(answer & {*read(other), *written(other)} for other in passed)
                awaits = "TRYWAIT" in one.modifiers and answer  # one that is dropped ends no loop
                return one if awaits and not used else None
            passed.append(one)
        return None


class _Standing:
    """One lane at one place; ``here`` are all lanes of its warp that stand there."""

    def __init__(self, launch: Launch, registers: Recovered, here: int, exception: int) -> None:
        self.launch = launch
        self.registers = registers
        self.cta, self.warp, self.pc = registers.cta, registers.warp, registers.pc
        self.here = here
        self.exception = exception
        self.one = launch.function.code.get(self.pc)

    def wait(self) -> Wait:
        """What it waits for."""
        exception = self.exception
        if exception:
            return Trap(self.one, True, f"the dump says: {exception_text(exception)}", exception)
        if (trap := self._trap()) is not None:
            return trap
        if self.one is None:
            return Running(None, False, "stands outside of the kernel's code")
        wait = self._at(self.one) or self._loop() or self._awaits()
        if wait is not None and (behind := self._behind()) is not None:
            if behind.certain:
                return behind
            if isinstance(wait, RegisterPoolWait):
                # Triton's warps without work come to a barrier again and again, and ask just behind
                # it for registers that they have already
                asks = wait.evidence.removesuffix(self._or_behind())
                where = f"{behind.evidence}; or it has passed it, and {asks}"
                return replace(behind, evidence=where, instead=(replace(wait, evidence=asks),))
            wait = replace(wait, instead=(behind,))
        wait = wait or self._behind() or self._said()
        if wait is None and self.launch.never_ends(self.pc):
            return EndlessLoop(self.one, True, "no path from here leads to an exit")
        return wait or Running(self.one, False, "no wait is near")

    def _trap(self) -> Trap | None:
        """A trap at which it stands, or just behind it, where nothing else leads."""
        function = self.launch.function
        if self.one is not None and self.one.base == "BPT":
            return Trap(self.one, True, f"stands at {self.one}", 0)
        before = function.code.get(self.pc - WIDTH)
        if before is None or before.base != "BPT":
            return None
        if not self.warp.broken and {*function.predecessors[self.pc]} - {self.pc}:
            return None
        return Trap(before, True, f"stands behind {before}", 0)

    # ------------------------------------------------------------------ at an instruction

    def _at(self, one: Instruction) -> Wait | None:
        """What it waits for if it stands at an instruction that waits."""
        if one.base not in _STOPS:
            return None
        loop = self.launch.loops.get(self.pc)
        guard = 1 if not one.guard else self.registers.operand(one.guard, self.pc)
        if guard == 0:
            return None
        sure = guard == 1
        where = f"stands at {one}" + ("" if sure else ", the guard of which is not known")
        sure &= not self._may_be_behind[0]
        where += self._or_behind()
        match one.base:
            case "UCGABAR_WAIT":
                return ClusterBarrierWait(one, sure, where)
            case "WARPSYNC" | "BSYNC":
                return self._meeting(one, sure, where)
            case "ACQBULK":
                return GridDependencyWait(one, sure, where)
            case "BAR" if "ARV" not in one.modifiers and not self._may_be_behind[0]:
                # one whose blocking is deferred is left at once
                sure &= "DEFER_BLOCKING" not in one.modifiers
                return self._named(one, sure, f"{where}, which is next", issued=False)
            case "DEPBAR" | "WARPGROUP" if loop is None and "ARRIVE" not in one.modifiers:
                return AsyncGroupWait(one, False, f"{where}, which is next if it does not wait")
            case _:
                return None

    def _meeting(self, one: Instruction, sure: bool, where: str) -> Wait | None:
        """Waits for lanes of its warp; None if all of them are there."""
        there = self.warp.valid & ~(self.warp.exited or 0)
        if one.base == "BSYNC":
            mask = self.registers.now(one.operands[0])
            where += f", {one.operands[0]} has the lanes {_lanes(mask)}"
        elif "ALL" in one.modifiers or not one.operands:
            mask = there
        else:
            mask = self.registers.operand(one.operands[0], self.pc)
            where += f", {one.operands[0]} has the lanes {_lanes(mask)}"
        if mask is None:
            return WarpWait(one, False, f"{where}, the mask of which is not known", None, None)
        missing = mask & there & ~self.here
        return WarpWait(one, sure, where, mask & there, missing) if missing else None

    def _named(self, one: Instruction, sure: bool, where: str, *, issued: bool) -> NamedBarrierWait:
        """Waits for a named barrier: ``BAR.SYNC.DEFER_BLOCKING 0x3, 0x60`` or ``R3, R3``."""
        operands = [o for o in one.operands if not o.lstrip("!").startswith(("P", "UP"))]
        known = [self.registers.operand(operand, one.pc) for operand in operands]
        number: int | None
        threads: int | None
        number = known[0] if known else None
        threads = known[1] if len(known) > 1 else None
        if operands and operands[0].startswith(("R", "UR")) and number is not None:
            # one register has both: the count above, the id in its low four bits
            number &= 0xF
        if len(operands) > 1 and operands[1].startswith(("R", "UR")) and threads is not None:
            threads = threads >> 16 & 0xFFF
        if number is None and operands:
            where += "; its register was overwritten"
        return NamedBarrierWait(one, sure, where, number, threads, len(operands) < 2, issued)

    # ------------------------------------------------------------------ in a loop

    def _loop(self) -> Wait | None:
        """What it waits for if it stands in a loop that does nothing else."""
        loop = self.launch.loops.get(self.pc)
        if loop is None:
            assert self.one is not None
            sleeps = self.one.base == "NANOSLEEP"
            return Sleep(self.one, True, f"stands at {self.one}") if sleeps else None
        first, *others = [self._asked(self.launch.placed(ask), loop) for ask in loop.asks]
        if all(_same(first, other) for other in others):
            return first
        asked = " and ".join(f"{ask.opcode} at {ask.pc:#x}" for ask in loop.asks)
        return Running(self.one, False, f"is in a loop that asks {asked}")

    def _asked(self, ask: Instruction, loop: WaitLoop) -> Wait:
        lowest, highest = min(loop.places), max(loop.places)
        where = f"stands in the loop {lowest:#x}-{highest:#x} that asks {ask.opcode} at {ask.pc:#x}"
        if loop.otherwise:
            where += "; the loop also ends by a count or a clock"
        stale = self.launch.stale(ask, self.pc, loop)
        sure = not self._may_be_behind[0]
        where += self._or_behind()
        match ask.base:
            case "SYNCS":
                return self._mbarrier(ask, stale, sure, where)
            case "USETMAXREG":
                return RegisterPoolWait(ask, sure, where)
            case "UTCATOMSWS":
                return TensorAllocWait(ask, sure, where)
            case _:
                return self._poll(ask, stale, loop, sure, where)

    @cached_property
    def _may_be_behind(self) -> tuple[dict[Instruction, int], bool]:
        """The named barriers just before its place that it may have issued, and wait for still;
        and whether it may have issued none of them."""
        said = self.warp.barrier
        if said is not None and said.scope == "none":
            return {}, True
        possible: dict[Instruction, int] = {}
        free = False
        for path in self.launch.paths_to(self.pc):
            for one, steps in path.barriers:
                guard = 1 if not one.guard else self.registers.operand(one.guard, one.pc)
                if guard != 0:
                    possible.setdefault(one, steps)
                if guard == 1:
                    break
            else:
                free |= path.open
        return possible, free

    def _or_behind(self) -> str:
        bars = " or ".join(f"{one} at {one.pc:#x}" for one in self._may_be_behind[0])
        return f"; or it still waits for {bars}, just before" if bars else ""

    def _awaits(self) -> Wait | None:
        """Waits for the answer of a ``try_wait`` that is asked once, before its loop."""
        ask = self.launch.awaited(self.pc)
        if ask is None or self.one is None:
            return None
        guard = 1 if not ask.guard else self.registers.operand(ask.guard, ask.pc)
        if guard == 0:
            return None
        used = bool(read(self.one) & {*written(ask)})
        where = f"stands {(self.pc - ask.pc) // WIDTH} behind {ask.opcode} at {ask.pc:#x}"
        where += ", whose answer it uses" if used else ", whose answer it does not use yet"
        where += self._or_behind()
        sure = used and guard == 1 and not self._may_be_behind[0]
        return self._mbarrier(ask, self.launch.stale(ask, self.pc, None), sure, where)

    def _mbarrier(
        self, ask: Instruction, stale: frozenset[str] | None, sure: bool, where: str
    ) -> MbarrierWait:
        place = self._sum(ask.operands[1], ask, stale)
        word = self._register(ask.operands[2], ask, stale)
        if place is None:
            return MbarrierWait(ask, sure, f"{where}; its address was overwritten", None, None,
                                None if word is None else word >> 31)  # fmt: skip
        at, rank = self._shared(place)
        return MbarrierWait(ask, sure, where, at, rank, None if word is None else word >> 31)

    def _poll(
        self, ask: Instruction, stale: frozenset[str] | None, loop: WaitLoop, sure: bool,
        where: str,
    ) -> Poll:  # fmt: skip
        operand = next((o for o in ask.operands if o.endswith("]")), "")
        body = [self.launch.function.code[place] for place in loop.places]
        acquire = any(one.opcode.startswith("CCTL.IVALL") for one in body)
        if ask.base in ("LDS", "ATOMS"):
            place = self._sum(operand, ask, stale)
            at, rank = (None, None) if place is None else self._shared(place)
            value = None if at is None else self._word(rank, at, width(ask))
            return Poll(ask, sure, where, "shared", at, rank, width(ask), value, True)
        space = "generic" if ask.base in ("LD", "ATOM") else "global"
        at = self._sum(operand, ask, stale, pair=True)
        data = None if at is None else self.launch.dump.at(at, width(ask))
        value = None if data is None else int.from_bytes(data, "little")
        return Poll(ask, sure, where, space, at, None, width(ask), value, acquire)

    def _sum(
        self, operand: str, ask: Instruction, stale: frozenset[str] | None, *, pair: bool = False
    ) -> int | None:
        """The address that a bracket names; ``pair``: of 64 bits, in two registers."""
        named = parse(operand)
        if not isinstance(named, Memory):
            return None
        if pair and not (named.wide or operand.startswith("[R")):
            return None
        total = named.offset
        for n, (register, scale) in enumerate(named.registers):
            low = self._register(register, ask, stale)
            if low is None:
                return None
            total += low * scale
            if pair and not n:
                high = self._register(following(register, 2)[1], ask, stale)
                if high is None:
                    return None
                total += high << 32
        return total & ((1 << 64) - 1 if pair else (1 << 32) - 1)

    def _register(self, name: str, ask: Instruction, stale: frozenset[str] | None) -> int | None:
        """A register as it was for a question."""
        if name in ("RZ", "URZ"):
            return 0
        if stale is not None and name not in stale:
            return self.registers.now(name)
        return self.registers.value(name, ask.pc)

    def _shared(self, place: int) -> tuple[int, int | None]:
        """Bytes in shared memory, and the rank of the CTA that has it; None for its own."""
        rank = place >> SHARED_BITS
        return place & ((1 << SHARED_BITS) - 1), None if rank == self.cta.rank else rank

    def _word(self, rank: int | None, at: int, width: int) -> int | None:
        """What the dump has in shared memory."""
        owner = self.launch.dump.peer(self.cta, rank)
        return None if owner is None else owner.word(at, width)

    # ------------------------------------------------------------------ behind a named barrier

    def _behind(self) -> Wait | None:
        """Waits for a named barrier that it has issued some instructions ago."""
        possible, free = self._may_be_behind
        if not possible:
            return None
        said = self.warp.barrier
        which = " or ".join(f"{one} at {one.pc:#x}" for one in possible)
        one, steps = next(iter(possible.items()))
        sure = said is not None and said.scope == "cta" and len(possible) == 1
        if (free and not sure) or len(possible) > 1:
            where = f"stands just behind {which}: it waits there if it has come from there"
            if len(possible) > 1:
                return NamedBarrierWait(one, False, where, None, None, False, True)
            return self._named(one, False, where, issued=True)
        where = f"has issued {which}, {count(steps, 'instruction')} before"
        where += (
            ", and the driver says that it waits for a barrier of its CTA"
            if sure
            else ": it waits for it unless it has just passed"
        )
        return self._named(one, sure, where, issued=True)

    def _said(self) -> Wait | None:
        """What the driver says that the warp waits for, where the code does not show it."""
        said = self.warp.barrier
        if said is None or said.scope == "none":
            return None
        where = f"the driver says that it waits for a barrier of the {said.scope} ({said.info:#x})"
        match said.scope:
            case "cta":
                return NamedBarrierWait(self.one, False, where, None, None, False, True)
            case "cluster":
                return ClusterBarrierWait(self.one, False, where)
            case "warp":
                return WarpWait(self.one, False, where, None, None)
            case _:
                return Running(self.one, False, where)


def _answered(known: _Answers, cta: Cta, warp: Warp, lane: int) -> Wait | None:
    """What a lane waits for, if another one was alike in all that this depends on."""
    for names, by_values in known.items():
        wait = by_values.get(tuple([dumped(cta, warp, lane, name) for name in names]))
        if wait is not None:
            return wait
    return None


def _same(one: Wait, other: Wait) -> bool:
    """Whether two questions of a loop are the same one."""
    match one, other:
        case MbarrierWait(), MbarrierWait():
            return (one.address, one.rank, one.parity) == (other.address, other.rank, other.parity)
        case Poll(), Poll():
            return (one.space, one.address, one.rank) == (other.space, other.address, other.rank)
        case _:
            return type(one) is type(other) and not isinstance(one, MbarrierWait | Poll)


def width(one: Instruction) -> int:
    """The bytes that a load reads, or that a store or an atomic operation writes."""
    for text, size in (("8", 1), ("16", 2), ("64", 8), ("128", 16), ("256", 32)):
        if {text, f"U{text}", f"S{text}", f"F{text}"} & {*one.modifiers}:
            return size
    return 4


def _lanes(mask: int | None) -> str:
    return "that are not known" if mask is None else ranges(lanes_of(mask))
