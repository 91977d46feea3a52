"""Which warps of a dump wait for what, what its state says is missing, and which could release it.

Read from the dump alone: machine code, registers, shared memory. An instruction that could release
a wait is one ahead of a warp, in its control flow, that may name what is waited for. Warps and CTAs
that say the same are one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from tilesim.autopsy.ahead import Ahead, Kind, Names
from tilesim.autopsy.core_dump import LANES, CoreDump, Cta, Grid, target
from tilesim.autopsy.mbarrier_word import Mbarrier, decode, evidence
from tilesim.autopsy.passed import Passed
from tilesim.autopsy.standing import Launch
from tilesim.autopsy.waits import (
    ClusterBarrierWait,
    GridDependencyWait,
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Running,
    Sleep,
    TensorAllocWait,
    Wait,
    WarpWait,
    is_wait,
    lanes_of,
)
from tilesim.cubin.sass import Function, Instruction
from tilesim.records import dataclass, replace
from tilesim.sim.machine.register_pool import PARTITIONS
from tilesim.wording import count, numbered, ranges


@dataclass(frozen=True)
class Supply:
    """What could release a wait: groups at one place, the instructions ahead of them that would.

    ``certain``: each of these instructions can name this barrier, as far as its address is known;
    otherwise it is not known, and it may be another one. ``waits``: the groups wait themselves.
    """

    groups: tuple[Group, ...]
    instructions: tuple[Instruction, ...]
    certain: bool
    waits: bool


@dataclass(frozen=True)
class Entry:
    """Groups that wait for the same thing in the same way.

    ``groups``: the first CTA's first. ``state``: what is waited for as it is in memory, and what it
    lacks, in lines of words. ``passing``: the state says that the wait is over. ``supplies``: what
    could release it, of the first CTA. ``ctas``: the numbers of the CTAs that say the same.
    ``mbarrier``: the state of an mbarrier, if it is known; ``initialised``: where it can have been.
    """

    groups: tuple[Group, ...]
    wait: Wait
    state: tuple[str, ...]
    passing: bool
    supplies: tuple[Supply, ...]
    ctas: tuple[int, ...]
    mbarrier: Mbarrier | None = None
    initialised: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class WaitFor:
    """The wait-for graph of a dump: its entries, all groups, and those of a cycle, if one is
    there: each waits for the next one, the last for the first, and nothing else could release any
    of them."""

    entries: tuple[Entry, ...]
    groups: tuple[Group, ...]
    cycle: tuple[Group, ...]


def wait_for(dump: CoreDump, functions: Mapping[Grid, Function]) -> WaitFor:
    """The graph of all CTAs whose kernels are known; ``functions`` has the code of each launch."""
    entries: list[Entry] = []
    groups: list[Group] = []
    cycle: tuple[Group, ...] = ()
    for grid in dump.grids:
        if (function := functions.get(grid)) is not None:
            graph = _Graph(Launch(dump, grid, function))
            entries += graph.folded()
            groups += graph.groups
            cycle = cycle or graph.cycle()
    return WaitFor(tuple(entries), tuple(groups), cycle)


class _CtaWait:
    """A wait of one CTA: its groups, its state, what could release it."""

    def __init__(self, cta: Cta, wait: Wait, groups: list[Group]) -> None:
        self.cta = cta
        self.wait = wait
        self.groups = groups
        self.state: list[str] = []
        self.passing = False
        self.supplies: list[Supply] = []
        #: it needs each of those that could release it, not one of them
        self.needs_all = False
        self.mbarrier: Mbarrier | None = None
        self.initialised: tuple[Instruction, ...] = ()

    @property
    def seen_from(self) -> Cta | None:
        """The CTA that it is seen from; None for what all CTAs of the cluster see alike."""
        return None if isinstance(self.wait, ClusterBarrierWait) else self.cta

    @property
    def stops(self) -> bool:
        """Whether its groups are known to stand until something else releases them."""
        if isinstance(self.wait, MbarrierWait):
            known = self.mbarrier is not None and self.wait.parity is not None
            return known and not self.passing
        return not self.passing and not isinstance(self.wait, Running | Sleep)


class _Graph:
    """The waits of one launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.ahead = Ahead(launch)
        self._subgroups: dict[tuple[int, tuple[int, ...]], Group] = {}
        self._whole_of: dict[int, Group] = {}
        self.of: dict[Cta, list[Group]] = {cta: [] for cta in launch.ctas}
        for group in launch.groups:
            self.of[group.cta].append(group)
        passed = Passed(launch, self.ahead)
        self.of = {cta: list(passed.without(groups)) for cta, groups in self.of.items()}
        self.groups = tuple(group for groups in self.of.values() for group in groups)

    @cached_property
    def waits(self) -> list[_CtaWait]:
        """The waits, CTA by CTA."""
        found: list[_CtaWait] = []
        for cta, groups in self.of.items():
            together: dict[tuple[str, int | None], list[Group]] = {}
            for group in groups:
                one = group.wait.instruction
                key = str(group.wait), None if one is None else one.pc
                together.setdefault(key, []).append(group)
            for members in together.values():
                weakest = min((g.wait for g in members), key=lambda w: w.certain)
                found.append(self._explained(_CtaWait(cta, weakest, members)))
        return found

    def _explained(self, waiting: _CtaWait) -> _CtaWait:
        match waiting.wait:
            case MbarrierWait() as wait:
                self._mbarrier(waiting, wait)
            case NamedBarrierWait() as wait:
                self._named(waiting, wait)
            case ClusterBarrierWait():
                self._cluster(waiting)
            case WarpWait() as wait:
                self._warp(waiting, wait)
            case Poll() as wait:
                self._poll(waiting, wait)
            case RegisterPoolWait():
                waiting.supplies = self._supplies(self._of_partition(waiting), "registers", None)
                self._say_if_none(
                    waiting, "no live warp of its partition of the SM can still release registers"
                )
            case TensorAllocWait():
                beside = [c for c in self.launch.ctas if c.sm == waiting.cta.sm]
                groups = [group for cta in beside for group in self.of[cta]]
                waiting.supplies = self._supplies(groups, "columns", None)
                self._say_if_none(
                    waiting, "no live warp of this kernel on its SM can still free columns"
                )
            case GridDependencyWait():
                waiting.state += self._before(waiting.cta.grid)
            case _:
                pass
        return waiting

    def _say_if_none(self, waiting: _CtaWait, text: str) -> None:
        """Says that nothing could release it, if that is so."""
        if not waiting.supplies and not waiting.passing:
            waiting.state.append(self._as_far_as_known(text))

    def _as_far_as_known(self, text: str) -> str:
        """What is said of all code ahead, as far as it goes."""
        known = self.ahead.complete
        return text if known else f"{text}, as far as it is known where the code leads"

    def _others(self, waiting: _CtaWait) -> list[Group]:
        return _without(self.of[waiting.cta], waiting.groups)

    def _of_cluster(self, cta: Cta) -> list[Group]:
        """The groups of all CTAs of a cluster."""
        peers = self.launch.dump.cluster_of(cta)
        return [group for peer in peers if peer is not None for group in self.of[peer]]

    def _supplies(self, groups: Iterable[Group], kind: Kind, names: Names | None) -> list[Supply]:
        """What of a kind lies ahead of groups, and names what is waited for, or may."""
        together: dict[tuple[object, ...], tuple[list[Group], tuple[Instruction, ...], bool]] = {}
        for group in groups:
            by: dict[tuple[tuple[Instruction, ...], bool], list[int]] = {}
            for warp in group.warps:
                certain, possible = self.ahead.of(group, warp, kind, names)
                if certain or possible:
                    by.setdefault((certain or possible, bool(certain)), []).append(warp)
            for (ahead, sure), warps in by.items():
                cta = None if kind == "cluster" else group.cta.number
                key = cta, tuple(one.pc for one in ahead), sure, str(group.wait)
                part = self._subgroup(group, tuple(warps))
                together.setdefault(key, ([], ahead, sure))[0].append(part)
        found = [
            Supply(tuple(members), ahead, certain, is_wait(members[0].wait))
            for members, ahead, certain in together.values()
        ]
        return sorted(found, key=lambda supply: not supply.certain)

    def _subgroup(self, group: Group, warps: tuple[int, ...]) -> Group:
        """Some warps of a group."""
        if warps == group.warps:
            return group
        key = id(group), warps
        if key not in self._subgroups:
            self._subgroups[key] = replace(group, warps=warps)
            self._whole_of[id(self._subgroups[key])] = group
        return self._subgroups[key]

    def _whole_group(self, part: Group) -> Group:
        """The group that some warps are of."""
        return self._whole_of.get(id(part), part)

    # ------------------------------------------------------------------ mbarriers

    def _mbarrier(self, waiting: _CtaWait, wait: MbarrierWait) -> None:
        if wait.address is None:
            waiting.state.append("the mbarrier is unknown, and so is its state")
            return
        owner, rank = self.launch.dump.peer(waiting.cta, wait.rank), wait.rank or 0
        if owner is None:
            inside = rank < len(self.launch.dump.cluster_of(waiting.cta))
            waiting.state.append(
                f"CTA {rank} of the cluster has ended" if inside else f"there is no CTA {rank}"
            )
            return
        names = Names(owner, wait.address)
        waiting.initialised = self.ahead.initialised(wait.address)
        arrivals, copies = self._lacks(waiting, wait, owner)
        if waiting.passing:
            return
        groups = self._of_cluster(waiting.cta)
        if arrivals:
            waiting.supplies += self._supplies(groups, "arrival", names)
            self._say_if_none(waiting, "no live warp has an arrival on it ahead")
        if copies:
            supplies = self._supplies(groups, "bytes", names)
            if not supplies:
                text = "no live warp has a copy for it ahead"
                waiting.state.append(
                    f"{self._as_far_as_known(text)}: a copy that was issued must bring them"
                )
            waiting.supplies += supplies
        ended = self._ended(waiting.cta)
        if ended and not waiting.supplies:
            waiting.state.append(f"{_said(ended)} of its CTA {_have(ended)} ended")

    def _ended(self, cta: Cta) -> list[int]:
        """The warps of a CTA that have ended."""
        return sorted({*range(cta.grid.warps)} - {w for g in self.of[cta] for w in g.warps})

    def _lacks(self, waiting: _CtaWait, wait: MbarrierWait, owner: Cta) -> tuple[bool, bool]:
        """Whether arrivals are missing, and whether bytes are."""
        if owner.shared is None:
            waiting.state.append("its state is not known: the dump has no shared memory")
            return True, True
        word = owner.word(wait.address or 0, 8)
        if word is None:
            waiting.state.append(f"it lies behind the shared memory of {len(owner.shared)} bytes")
            return False, False
        state = decode(word, self.launch.arch)
        if state is None:
            reason = (
                f"the layout on {target(self.launch.arch)} is not known"
                if evidence(self.launch.arch) is None
                else "it is not an mbarrier: none was initialised there, or it was overwritten"
            )
            waiting.state.append(f"its word is {word:#018x}: {reason}")
            return True, True
        waiting.mbarrier = state
        text = f"{wait.name} is in a phase of parity {state.parity}: "
        text += f"{state.pending} of {state.expected} arrivals pending"
        if state.tx > 0:
            text += f", {state.tx} bytes outstanding"
        elif state.tx < 0:
            text += f", {-state.tx} bytes more completed than expected"
        waiting.state.append(text)
        if wait.parity is None:
            waiting.state.append("the parity asked for cannot be read: it may be complete")
        elif wait.parity != state.parity:
            waiting.passing = True
            waiting.state.append(
                f"the phase of parity {wait.parity} is complete: the wait is about to pass"
            )
        return state.pending > 0, state.tx != 0

    # ------------------------------------------------------------------ other barriers

    def _named(self, waiting: _CtaWait, wait: NamedBarrierWait) -> None:
        cta, own = waiting.cta, self.of[waiting.cta]
        alive = {w for g in own for w in g.warps}
        ended = self._ended(cta)
        if wait.id is None:
            waiting.state.append("the named barrier is unknown")
            return
        same = [g for g in own if _has_come(g, wait.id)]
        arrived = {w for g in same for w in g.warps}
        unsure = {
            w for g in own if isinstance(g.wait, NamedBarrierWait) and g.wait.id is None
            for w in g.warps
        }  # fmt: skip
        need = LANES * len(alive) if wait.threads is None else wait.threads
        total = _threads(same, own)
        waiting.state.append(
            f"{total} of {count(need, 'thread')} have come, as far as it shows: {_said(arrived)}"
            + (f"; {_said(unsure)} wait at a barrier that is not known" if unsure else "")
        )
        if self.ahead.may_name_barrier("bar.arrive", wait.id):
            waiting.state.append("arrivals by bar.arrive do not show in a dump")
        elif total >= need and not unsure:
            waiting.passing = True
            waiting.state.append("all that it counts have come: the wait is about to pass")
            return
        if ended:
            counted = "" if wait.threads is None else ", and the count has them or others in it"
            waiting.state.append(f"{_said(ended)} {_have(ended)} ended{counted}")
        waiting.needs_all = wait.threads is None
        waiting.supplies = self._supplies(_without(own, same), "named", Names(cta, wait.id))
        if alive - arrived:
            self._say_if_none(waiting, "no other live warp can reach it from where it stands")

    def _cluster(self, waiting: _CtaWait) -> None:
        peers = self.launch.dump.cluster_of(waiting.cta)
        ended = [rank for rank, cta in enumerate(peers) if cta is None]
        groups = self._of_cluster(waiting.cta)
        there = [g for g in groups if isinstance(g.wait, ClusterBarrierWait)]
        rest = [g for g in groups if not isinstance(g.wait, ClusterBarrierWait)]
        for rank, cta in enumerate(peers):
            if cta is not None and len(peers) > 1:
                arrived = sorted({w for g in there if g.cta is cta for w in g.warps})
                missing = sorted({w for g in rest if g.cta is cta for w in g.warps})
                text = f"CTA {rank} of the cluster: "
                text += (
                    f"{_said(arrived)} {_have(arrived, 'wait')} there"
                    if arrived
                    else "no warp waits there"
                )
                text += f", {_said(missing)} {_have(missing, 'do')} not" if missing else ""
                waiting.state.append(text)
        if ended:
            waiting.state.append(
                f"CTA {ranges(ended)} of the cluster has ended: that counts as come"
            )
        waiting.needs_all = True
        waiting.supplies = self._supplies(rest, "cluster", None)
        if rest:
            self._say_if_none(
                waiting,
                "no other warp has an arrival on it ahead: it has arrived, or does not reach it",
            )
        elif all(one and self.ahead.arrives(one) for one in {g.wait.instruction for g in there}):
            waiting.passing = True
            waiting.state.append("all that have not ended are there: the wait is about to pass")
        else:
            waiting.state.append(
                "all that have not ended are there; the code may lead there past the arrival, and "
                "a warp that came so has not arrived"
            )

    def _warp(self, waiting: _CtaWait, wait: WarpWait) -> None:
        waiting.needs_all = True
        missing, one = wait.missing or 0, wait.instruction
        for group in self._others(waiting):
            if one and set(group.warps) & set(waiting.groups[0].warps) and group.lanes & missing:
                if self.ahead.reaches(group, one):
                    waiting.supplies.append(Supply((group,), (one,), True, is_wait(group.wait)))
                else:
                    waiting.state.append(
                        f"lanes {ranges(lanes_of(group.lanes & missing))} cannot reach it from "
                        f"where they stand"
                    )

    def _poll(self, waiting: _CtaWait, wait: Poll) -> None:
        if wait.address is None:
            waiting.state.append("the word is unknown")
            return
        if wait.space != "shared" and wait.value is None:
            waiting.state.append("its value is not known: the dump has no memory there")
        if wait.space == "shared":
            owner = self.launch.dump.peer(waiting.cta, wait.rank)
            names = None if owner is None else Names(owner, wait.address, wait.width)
            others = _without(self._of_cluster(waiting.cta), waiting.groups)
            waiting.supplies = self._supplies(others, "shared store", names)
            self._say_if_none(waiting, "no live warp has a store to it ahead")
            return
        # which words these stores write is not known: none of them is said to release it
        near = {w for g in self._others(waiting) if self._stores(g) for w in g.warps}
        if near:
            waiting.state.append(
                f"{_said(near)} of its CTA {_have(sorted(near))} stores to global memory ahead, "
                "which may be to it"
            )
        far = {g.cta.number for g in self.groups if g.cta is not waiting.cta and self._stores(g)}
        if far:
            also = "warps of other CTAs have stores to global memory ahead, which may be to it"
            waiting.state.append("so have warps of other CTAs" if near else also)
        if not near and not far:
            unknown = self.launch.dump.absent(waiting.cta.grid).unknown
            begins = f"a CTA that has not begun ({unknown:,} may not have), " if unknown else ""
            waiting.state.append(
                "no other live warp of this kernel has a store to global memory ahead: it "
                f"takes {begins}another kernel, the host or a copy that is under way"
            )

    def _of_partition(self, waiting: _CtaWait) -> list[Group]:
        """The other groups of its CTA with a warp that shares the registers of one that waits."""
        parts = {w % PARTITIONS for group in waiting.groups for w in group.warps}
        others = self._others(waiting)
        return [g for g in others if not parts.isdisjoint(w % PARTITIONS for w in g.warps)]

    def _stores(self, group: Group) -> bool:
        return self.ahead.any_of(group, "global store")

    def _before(self, grid: Grid) -> Iterator[str]:
        others = [g for g in self.launch.dump.grids if g.device == grid.device and g is not grid]
        if others:
            yield f"on its device {_have(others)} not ended: {count(len(others), 'other grid')}"
        else:
            yield "no other grid of its device is in the dump"

    # ------------------------------------------------------------------ the whole

    def folded(self) -> list[Entry]:
        """The entries; CTAs that say the same are one."""
        together: dict[tuple[object, ...], list[_CtaWait]] = {}
        for one in self.waits:
            at = one.wait.instruction
            key = (
                _wait_key(one.wait), None if at is None else at.pc, one.wait.certain,
                tuple((g.warps, g.lanes) for g in one.groups), tuple(one.state), one.passing,
                tuple(_supply_key(s, one.seen_from) for s in one.supplies),
            )  # fmt: skip
            together.setdefault(key, []).append(one)
        return [
            Entry(
                tuple(group for one in same for group in one.groups), same[0].wait,
                (*_differing_words([one.wait for one in same]), *same[0].state), same[0].passing,
                tuple(same[0].supplies), tuple(dict.fromkeys(one.cta.number for one in same)),
                same[0].mbarrier, same[0].initialised,
            )
            for same in together.values()
        ]  # fmt: skip

    def cycle(self) -> tuple[Group, ...]:
        """Groups of which each waits for the next and that nothing else could release."""
        of = {id(g): one for one in self.waits for g in one.groups}
        blocked = {key for key, one in of.items() if one.stops and one.supplies}
        while True:
            freed = {key for key in blocked if not self._is_blocked(of[key], blocked)}
            if not freed:
                break
            blocked -= freed
        for group in self.groups:
            if id(group) in blocked and (cycle := self._around(group, of, blocked)):
                return cycle
        return ()

    def _is_blocked(self, one: _CtaWait, blocked: set[int]) -> bool:
        """Whether what could release a wait is itself blocked."""
        every = [
            id(self._whole_group(g)) in blocked for supply in one.supplies for g in supply.groups
        ]
        return any(every) if one.needs_all else all(every)

    def _around(
        self, first: Group, of: Mapping[int, _CtaWait], blocked: set[int]
    ) -> tuple[Group, ...]:
        """The cycle that is come to from a group, by the first of those known to release it."""
        path: list[Group] = []
        at: Group | None = first
        while at is not None and not any(at is g for g in path):
            path.append(at)
            following = [
                self._whole_group(g) for supply in of[id(at)].supplies if supply.certain
                for g in supply.groups if id(self._whole_group(g)) in blocked
            ]  # fmt: skip
            away = [g for g in following if g is not at]
            at = next(iter(away or following), None)
        if at is None:
            return ()
        start = next(n for n, g in enumerate(path) if g is at)
        return tuple(path[start:])


def _without(groups: list[Group], others: list[Group]) -> list[Group]:
    return [group for group in groups if not any(group is other for other in others)]


def _has_come(group: Group, number: int) -> bool:
    return isinstance(group.wait, NamedBarrierWait) and group.wait.id == number


def _threads(there: list[Group], alive: list[Group]) -> int:
    """How many threads a named barrier counts of groups: lanes that have ended count with the
    others of their warp, once these are there."""
    total = 0
    for warp in {w for group in there for w in group.warps}:
        arrived = {lane for g in there if warp in g.warps for lane in lanes_of(g.lanes)}
        live = {lane for g in alive if warp in g.warps for lane in lanes_of(g.lanes)}
        total += LANES if arrived == live else len(arrived)
    return total


def _said(warps: Iterable[int]) -> str:
    numbers = sorted(warps)
    return numbered("warp", numbers) if numbers else "no warp"


def _have(things: list[int] | list[Grid], verb: str = "have") -> str:
    """The verb for one thing or several."""
    if len(things) != 1:
        return verb
    return {"have": "has", "do": "does", "wait": "waits"}[verb]


def _wait_key(wait: Wait) -> object:
    """What is the same for CTAs that stand alike: each may poll a global word of its own."""
    if isinstance(wait, Poll) and wait.space != "shared":
        return wait.space, wait.address is None, wait.value
    return str(wait)


def _differing_words(waits: list[Wait]) -> Iterator[str]:
    """That CTAs poll different words, if they do."""
    words = sorted({w.address for w in waits if isinstance(w, Poll) and w.address is not None})
    if len(words) > 1:
        yield f"they poll {len(words)} words, from {words[0]:#x} to {words[-1]:#x}"


def _rank(cta: Cta, seen: Cta | None) -> int | None:
    """Which CTA of the cluster one is; None for that from which it is seen."""
    return None if cta is seen else cta.rank


def _supply_key(supply: Supply, cta: Cta | None) -> tuple[object, ...]:
    """What a supply says, the same for CTAs that stand alike."""
    return (
        tuple((_rank(g.cta, cta), g.warps, g.lanes, _wait_key(g.wait)) for g in supply.groups),
        tuple(one.pc for one in supply.instructions), supply.certain,
    )  # fmt: skip
