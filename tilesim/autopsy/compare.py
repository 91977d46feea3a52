"""The deadlock that `check` finds in the PTX of a kernel, against the one in a dump.

A dump shows the end of one schedule: which warps wait where, for which barrier and which phase. So
does a run of the machine that ends in a deadlock. They are *the same hang* if each CTA of the dump
has a CTA of the run in which the same warps wait at the same instructions for the same: barriers of
both are told by a mapping that has to be one-to-one, keep the distances inside of a variable, and
agree with the state of each barrier (phase, pending arrivals, pending bytes). CTAs need not have
the same numbers, as CTAs of one kernel take the same steps; those of a cluster stand as the CTAs of
one cluster of the run, rank by rank, and have ended where those have. Otherwise the run with the
fewest differences is the nearest; other schedules are tried before that is said.

What the dump does not say (a register that is overwritten, memory that was not dumped, a line of
code without a table) is taken to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from functools import partial, reduce
from math import prod
from operator import or_
from time import monotonic
from typing import Literal, NamedTuple

from simpy.core import Infinity

from tilesim.autopsy import mbarrier_word
from tilesim.autopsy.core_dump import CoreDump, Cta
from tilesim.autopsy.find_ptx import FoundPtx
from tilesim.autopsy.launch import Assumed, Rebuilt, with_contents, with_maps_apart, with_zeros
from tilesim.autopsy.ptx_lines import wait_of, waits_of
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
    Sleep,
    Standing,
    TensorAllocWait,
    WarpWait,
    lanes_of,
)
from tilesim.checker import check
from tilesim.checker.report import Report
from tilesim.checker.witness import Witness, ends, replay
from tilesim.errors import InvalidProgram, TilesimError
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.mir import Mir
from tilesim.ir.text.mir import fingerprint
from tilesim.ptx.launch import Map, Struct
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Body, LaunchError, Module, Name
from tilesim.records import dataclass, replace
from tilesim.repair import Wanted
from tilesim.sim.machine.cta import Cta as RunCta
from tilesim.sim.machine.divergence import Arrival
from tilesim.sim.machine.errors import TOO_LONG
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Machine, TimeIsUp, TooLarge
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.register_pool import RegisterPool
from tilesim.sim.machine.schedule import Chooser, PctChooser, RandomChooser
from tilesim.sim.machine.simulate import Interrupted, Simulation
from tilesim.sim.machine.tensor_memory import Tmem, TmemPool
from tilesim.sim.machine.warp import Agent, Frame
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.wording import count, numbered, ranges

#: seconds that `check` may take, unless the caller says another time
TIME_LIMIT = 30.0
#: other schedules that are run to find one that ends as the dump does
_SCHEDULES = 24
#: clusters of them, scheduling points of each, seconds of all
_CLUSTERS, _POINTS, _SECONDS = 4, 50_000, 3.0
#: after how many rounds of tries in which no mbarrier changes a run that goes on trying hangs
_ROUNDS = 64
#: differences that are said, and CTAs that are named
_MOST_SAID = 8

#: ``same``: check finds this hang; ``nearest``: it finds a deadlock that differs; ``failed``: it
#: finds another failure and no deadlock; ``proved``: it proves the kernel; ``open``: it finds
#: nothing and proves nothing; ``none``: the kernel could not be checked
Kind = Literal["same", "nearest", "failed", "proved", "open", "none"]


@dataclass(frozen=True)
class Match:
    """What a check of the PTX says of a hang.

    ``says`` are sentences. ``finding`` is the deadlock that was compared, with cause, culprits and
    fix; of ``failed`` the first failure. ``differs``: in what the dump is otherwise, of
    ``nearest``. ``contradicts``: of ``proved``, the assumptions that the dump contradicts, or may
    contradict. ``report`` is that of the check; its repairs are there if they were asked for.
    ``assumed``: what the launch of the check had that the dump does not say. ``names``: by address
    in the dump, what the PTX calls the mbarriers that were matched.
    """

    kind: Kind
    says: tuple[str, ...]
    differs: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    finding: Finding | None = None
    report: Report | None = None
    assumed: tuple[Assumed, ...] = ()
    names: tuple[tuple[int, str], ...] = ()


# ---------------------------------------------------------------------- where a warp stands

_Kind = Literal[
    "mbarrier",
    "named",
    "cluster",
    "lanes",
    "poll",
    "sleep",
    "pool",
    "tmem",
    "group",
    "grid",
    "other",
]


class _State(NamedTuple):
    """Of an mbarrier: parity of the phase that runs, arrivals and bytes that it lacks."""

    parity: int
    pending: int
    tx: int

    def __str__(self) -> str:
        missing = f"{count(self.pending, 'arrival')} and {count(self.tx, 'byte')} missing"
        return f"is in a phase of parity {self.parity}, {missing}"


class _NoMbarrier(NamedTuple):
    """A word of a dump, in the place of an mbarrier, that is none."""

    word: int

    def __str__(self) -> str:
        return f"is none, but {self.word:#x}: none was initialised there, or it was overwritten"


class _Stand(NamedTuple):
    """What a warp, or some lanes of it, waits for, as far as it is known (None: not).

    ``barrier``: the address of an mbarrier or the number of a named barrier, with ``rank``, that of
    its CTA in the cluster (None: its own). ``variable``: of the run, where the mbarrier lies.
    ``line`` is the one of the PTX, ``lanes`` a mask. ``instead``: of the dump, what else it may
    wait for.
    """

    kind: _Kind | None
    line: int | None
    lanes: int
    barrier: int | None = None
    rank: int | None = None
    parity: int | None = None
    state: _State | _NoMbarrier | None = None
    variable: str = ""
    said: str = ""
    instead: tuple[_Stand, ...] = ()


#: of a run, by number of a cluster and rank: the CTAs in which a warp waits for ever
_Run = Mapping[int, "Mapping[int, _Here]"]
#: by warp, what it waits for; several where lanes of it stand apart
_Stands = Mapping[int, Sequence[_Stand]]


class _There(NamedTuple):
    """A CTA of the dump; ``state`` of the mbarrier at an address, as far as it is known."""

    stands: _Stands
    state: Callable[[int], _State | _NoMbarrier | None]

    def of(self, warp: int) -> Sequence[_Stand]:
        """What a warp waits for; nothing if it has ended."""
        return self.stands.get(warp, ())


class _Here(NamedTuple):
    """A CTA of a run that ended in a deadlock, and its number; ``barriers``: by variable and
    address, what they are called and their states."""

    number: int
    stands: _Stands
    barriers: Mapping[str, Mapping[int, tuple[str, _State]]]

    def of(self, warp: int) -> Sequence[_Stand]:
        """What a warp waits for; nothing if it has ended."""
        return self.stands.get(warp, ())


_KINDS: Mapping[type[Standing], _Kind] = {
    NamedBarrierWait: "named", ClusterBarrierWait: "cluster", WarpWait: "lanes", Poll: "poll",
    Sleep: "sleep", RegisterPoolWait: "pool", TensorAllocWait: "tmem", AsyncGroupWait: "group",
    GridDependencyWait: "grid", MbarrierWait: "mbarrier", EndlessLoop: "poll",
}  # fmt: skip


def _of_dump(dump: CoreDump, groups: Iterable[Group]) -> dict[Cta, _There]:
    """What the dump says of each CTA that is running."""
    arch = {device.number: device.arch for device in dump.devices}
    found: dict[Cta, dict[int, list[_Stand]]] = {}
    for group in groups:
        own = arch[group.cta.grid.device]
        instead = tuple(_of_wait(dump, group, other, own) for other in group.wait.instead)
        stand = _of_wait(dump, group, group.wait, own)._replace(instead=instead)
        of_cta = found.setdefault(group.cta, {})
        for warp in group.warps:
            of_cta.setdefault(warp, []).append(stand)
    return {
        cta: _There(stands, partial(_state_at, cta, arch=arch[cta.grid.device]))
        for cta, stands in found.items()
    }


def _of_wait(dump: CoreDump, group: Group, wait: Standing, arch: tuple[int, int]) -> _Stand:
    line = None if wait.instruction is None else wait.instruction.ptx
    said, lanes = f"{wait}{_place(wait)}{_which(group.lanes)}", group.lanes
    if isinstance(wait, MbarrierWait):
        own = wait.rank is None or wait.rank == group.cta.rank
        rank = None if own else wait.rank
        owner = dump.peer(group.cta, rank)
        state = None if wait.address is None else _state_at(owner, wait.address, arch)
        return _Stand("mbarrier", line, lanes, wait.address, rank, wait.parity, state, said=said)
    if isinstance(wait, NamedBarrierWait):
        return _Stand("named", line, lanes, wait.id, said=said)
    return _Stand(_KINDS.get(type(wait)), line, lanes, said=said)


def _place(wait: Standing) -> str:
    lines = wait.instruction.lines if wait.instruction else ()
    return f" at {lines[-1]}" if lines else ""


def _which(lanes: int) -> str:
    return "" if lanes == FULL else f" ({numbered('lane', lanes_of(lanes))})"


def _state_at(cta: Cta | None, address: int, arch: tuple[int, int]) -> _State | _NoMbarrier | None:
    word = None if cta is None else cta.word(address, 8)
    if word is None or mbarrier_word.evidence(arch) is None:
        return None
    own = mbarrier_word.decode(word, arch)
    return _NoMbarrier(word) if own is None else _State(own.parity, own.pending, own.tx)


def _of_run(machines: Iterable[Machine]) -> _Run:
    """What a run has left of each CTA in which a warp waits for ever. A run that an error has ended
    before nothing could move any more has left nothing."""
    found: dict[int, dict[int, _Here]] = {}
    for machine in machines:
        if machine.env.peek() < Infinity:
            continue
        for cta in machine.ctas:
            split = (w for w in machine.split_groups if w.cta.index == cta.index)
            agents = [w for w in (*cta.warps, *split) if not w.exited]
            stands: dict[int, list[_Stand]] = {}
            for agent in agents:
                stands.setdefault(agent.number, []).append(_of_agent(agent, cta))
            barriers: dict[str, dict[int, tuple[str, _State]]] = {}
            for one in (*cta.mbarriers.values(), *cta.spare_mbarriers):
                if one.live:
                    called = one.named.seen_from(cta.number), _state(one)
                    barriers.setdefault(one.variable, {})[one.address] = called
            if any(agent.blocked is not None for agent in agents):
                of_cluster = found.setdefault(cta.cluster.number, {})
                of_cluster[cta.rank] = _Here(cta.number, stands, barriers)
    return found


def _state(barrier: Mbarrier) -> _State:
    return _State(barrier.phase & 1, barrier.pending, barrier.tx)


def _of_agent(agent: Agent, cta: RunCta) -> _Stand:
    blocked, lanes = agent.blocked, agent.mask
    if blocked is None:
        return _Stand(None, None, lanes, said="is running")
    said = f"{blocked.seen_from(cta.number)} at {blocked.loc.short}{_which(lanes)}"
    stand = partial(_Stand, line=blocked.loc.innermost.line, lanes=lanes, said=said)
    match on := blocked.on:
        case Mbarrier():
            return stand(
                "mbarrier", barrier=on.address,
                rank=None if on.cta.index == cta.index else on.cta.rank,
                parity=blocked.parity, state=_state(on), variable=on.variable,
            )  # fmt: skip
        case NamedBarrier(of_cta=True):
            number = next((n for n, one in cta.named.items() if one is on), None)
            return stand("named", barrier=number)
        case NamedBarrier():
            return stand("cluster")
        case Frame() | Arrival():
            return stand("lanes")
        case RegisterPool():
            return stand("pool")
        case Tmem() | TmemPool():
            return stand("tmem")
        case Warpgroup():
            return stand("group")
        case _:
            return stand("poll" if blocked.polling else "other")


# ---------------------------------------------------------------------- two states


class _Loops:
    """The loops of a kernel as lines of its PTX: what polls stands anywhere in one. ``waits`` are
    the lines of waits for mbarriers."""

    def __init__(self, body: Body, waits: Sequence[int]) -> None:
        self.waits = waits
        found = []
        for number, one in enumerate(body.code):
            if one.base == "bra" and isinstance(one.operands[-1], Name):
                text = one.operands[-1].text
                starts = (s.labels[text] for s in body.chain(one.scope) if text in s.labels)
                start = next(starts, number + 1)
                if start <= number:
                    found.append((body.code[start].place.line, one.place.line))
        self._by_size = sorted(found, key=lambda loop: loop[1] - loop[0])

    def around(self, line: int) -> tuple[int, int]:
        """The first and the last line of the innermost loop around a line; itself if in none."""
        loops = (one for one in self._by_size if one[0] <= line <= one[1])
        return next(loops, (line, line))


class _Places:
    """Which places of the run are which of the dump. Mbarriers are told apart by what waits for
    them, so their mapping has to hold for all of them."""

    def __init__(self, loops: _Loops) -> None:
        self.loops = loops
        #: barriers of the dump and of the run by address, and by variable of the run how far the
        #: dump has it from where the run has it
        self.mapping: tuple[Mapping[int, int], Mapping[int, int], Mapping[str, int]] = ({}, {}, {})
        #: by address in the dump, what the run calls a barrier
        self.names: dict[int, str] = {}
        #: warps of the dump that stand as another one of the run
        self.exchanged = 0

    def fits(self, there: _Stand, here: _Stand) -> bool:
        """Whether the barrier that the dump names may be this one of the run; it is from now on."""
        if there.barrier is None or here.barrier is None:
            return True
        shift, (to, back, shifts) = there.barrier - here.barrier, self.mapping
        if (
            to.get(there.barrier, here.barrier) != here.barrier
            or back.get(here.barrier, there.barrier) != there.barrier
            or shifts.get(here.variable, shift) != shift
        ):
            return False
        self.mapping = (
            {**to, there.barrier: here.barrier},
            {**back, here.barrier: there.barrier},
            {**shifts, here.variable: shift},
        )
        return True

    @property
    def shift(self) -> Mapping[str, int]:
        """By variable of the run, how far the dump has it from where the run has it."""
        return self.mapping[2]

    def tried(self) -> _Places:
        """A copy, of which what is found is kept or not."""
        other = copy(self)
        other.names = dict(self.names)
        return other


class _Difference(NamedTuple):
    """In what the dump differs from the run: a warp of a CTA, or a barrier, of which the address is
    that in the dump, or else a CTA of the cluster."""

    warp: int | None
    there: str
    here: str
    barrier: int | None = None


def _differences(there: _There, here: _Here, places: _Places) -> list[_Difference]:
    """In what a CTA of a dump differs from a CTA of a run, whichever of its warps do the same."""
    every = sorted(there.stands.keys() | here.stands.keys())
    others = [w for w in every if not _agree(there.of(w), here.of(w), places)]
    # which of several warps comes first may be up to the schedule
    left, found = [*others], list[int]()
    for warp in others:
        instead = next((w for w in left if _agree(there.of(warp), here.of(w), places)), None)
        if instead is None:
            found.append(warp)
        else:
            left.remove(instead)
            places.exchanged += 1
    differences = [
        _Difference(warp, _text(there.of(warp)), _text(here.of(instead)))
        for warp, instead in zip(found, left, strict=True)
    ]
    for variable, shift in places.shift.items():
        for address, (name, state) in here.barriers.get(variable, {}).items():
            places.names[address + shift] = name
            own_state = there.state(address + shift)
            if own_state is not None and own_state != state:
                what = f"mbarrier {address + shift:#x}"
                differs = _Difference(None, f"{what} {own_state}", f"it {state}", address + shift)
                differences.append(differs)
    return differences


def _agree(there: Sequence[_Stand], here: Sequence[_Stand], places: _Places) -> bool:
    """Whether a warp of the dump stands as one of the run; what that says of places is kept."""
    # lanes that wait for lanes of their warp wait for what those wait for; a run that reports that
    # they do so in vain leaves them where they were
    waits = [s for s in there if s.kind != "lanes"] or [*there]
    own = [s for s in here if s.kind not in ("lanes", None)] or [*here]
    if not waits or not own:
        return not waits and not own
    # which lane is elected is up to the hardware
    apart = "lanes" in (waits[0].kind, own[0].kind)
    if not apart and _lanes(waits).bit_count() != _lanes(own).bit_count():
        return False
    before = places.mapping
    agree = all(any(_same(a, b, places) for b in own) for a in waits) and all(
        any(_same(a, b, places) for a in waits) for b in own
    )
    if not agree:
        places.mapping = before
    return agree


def _lanes(stands: Iterable[_Stand]) -> int:
    """The lanes that stand somewhere, as a mask."""
    return reduce(or_, (stand.lanes for stand in stands))


def _same(there: _Stand, here: _Stand, places: _Places) -> bool:
    """Whether a warp of the dump waits for what one of the run does, as far as both are known."""
    if any(_same(other, here, places) for other in there.instead):
        return True
    if there.kind is None or here.kind is None:
        return False
    if there.line is not None and here.line is not None and there.line != here.line:
        around, waits = places.loops.around, places.loops.waits
        first_try = there.kind == "mbarrier" and wait_of(there.line, waits) == here.line
        turns = there.kind in ("poll", "sleep") and around(there.line) == around(here.line)
        if not first_try and not turns:
            return False
    if there.kind != here.kind:
        # what a loop waits for that sleeps is not known
        return there.kind == "sleep" and here.kind in ("poll", "mbarrier")
    if there.kind == "named":
        return None in (there.barrier, here.barrier) or there.barrier == here.barrier
    if there.kind != "mbarrier":
        return True
    both = None not in (there.parity, here.parity)
    if there.rank != here.rank or (both and there.parity != here.parity):
        return False
    # a word that is no mbarrier is a difference of its own: of the barrier, not of the warp
    states = there.state, here.state
    if all(isinstance(one, _State) for one in states) and there.state != here.state:
        return False
    return places.fits(there, here)


def _text(stands: Sequence[_Stand]) -> str:
    return " and ".join(dict.fromkeys(s.said for s in stands)) or "has ended"


class _Compared(NamedTuple):
    """A run, and in what each CTA of the dump differs from the CTA of the run that is nearest, of
    which the number is there; None: the run has no CTA that waits."""

    differences: Mapping[Cta, list[_Difference]]
    counterparts: Mapping[Cta, int]
    names: Mapping[int, str]
    exchanged: int
    findings: tuple[Finding, ...] = ()

    @property
    def distance(self) -> int:
        """How many differences there are."""
        return sum(map(len, self.differences.values()))

    @property
    def finding(self) -> Finding | None:
        """The finding about the first CTA's counterpart, else the first about a deadlock."""
        ctas = [*self.counterparts.values()]
        waits = [f for f in self.findings if any(_waits(p) for p in f.participants)]
        own = [f for f in waits if any(p.cta == c for p in f.participants for c in ctas[:1])]
        return next(iter((*own, *waits, *self.findings)), None)


def _waits(side: Participant) -> bool:
    return side.deed is not None and side.deed.verb == "waits"


class _Hang(NamedTuple):
    """A dump, and the loops of its kernel."""

    ctas: Mapping[Cta, _There]
    loops: _Loops

    @property
    def clusters(self) -> Iterator[dict[int, Cta]]:
        """Its CTAs by rank, those of a cluster together."""
        found: dict[object, dict[int, Cta]] = {}
        for cta in self.ctas:
            found.setdefault((cta.cluster_size, cta.cluster or cta.index), {})[cta.rank] = cta
        yield from found.values()


def _different(here: _Run) -> list[int]:
    """The first of the clusters of a run that stand in the same way, for each way: there may be as
    many as in the dump, and to compare each with each takes minutes."""
    found: dict[object, int] = {}
    for number, cluster in sorted(here.items()):
        way = frozenset((rank, _way(cta)) for rank, cta in cluster.items())
        found.setdefault(way, number)
    return [*found.values()]


def _way(cta: _Here) -> object:
    stands = frozenset(
        (warp, tuple(one._replace(said="") for one in own)) for warp, own in cta.stands.items()
    )
    states = frozenset(
        (variable, address, state)
        for variable, some in cta.barriers.items()
        for address, (_, state) in some.items()
    )
    return stands, states


def _compared(hang: _Hang, here: _Run) -> _Compared:
    """Each cluster of a dump beside the cluster of a run that is nearest to it, itself if it is."""
    places = _Places(hang.loops)
    differences: dict[Cta, list[_Difference]] = {}
    counterparts: dict[Cta, int] = {}
    firsts = _different(here)
    cluster_of = {one.number: n for n, ctas in here.items() for one in ctas.values()}
    for ctas in hang.clusters:
        own = (cluster_of[cta.number] for cta in ctas.values() if cta.number in cluster_of)
        best: tuple[int, int, _Places] | None = None
        for number in dict.fromkeys((*own, *firsts)):
            tried = places.tried()
            found = _of_cluster(hang, ctas, here[number], tried)
            distance = sum(map(len, found.values()))
            if best is None or distance < best[0]:
                best = distance, number, tried
                differences |= found
            if not distance:
                break
        if best is None:
            differences |= _of_cluster(hang, ctas, {}, places)
        else:
            _, number, places = best
            run = here[number]
            counterparts |= {cta: run[r].number for r, cta in ctas.items() if r in run}
    return _Compared(differences, counterparts, places.names, places.exchanged)


def _of_cluster(
    hang: _Hang, ctas: Mapping[int, Cta], here: Mapping[int, _Here], places: _Places
) -> dict[Cta, list[_Difference]]:
    """In what each CTA of a cluster of a dump differs from that of its rank of one of a run. What
    the dump lacks is said of the first: a CTA of its cluster that is not there has ended."""
    found: dict[Cta, list[_Difference]] = {}
    for rank, cta in ctas.items():
        there = hang.ctas[cta]
        found[cta] = (
            _differences(there, here[rank], places)
            if rank in here
            else [_Difference(w, _text(s), "has ended") for w, s in there.stands.items()]
        )
    first = next(iter(ctas.values()))
    ended = [r for r in range(prod(first.cluster_size or ())) if r in here and r not in ctas]
    found[first] += (
        _Difference(
            None,
            f"CTA {rank} of its cluster has ended",
            _text([one for stands in here[rank].stands.values() for one in stands]),
        )
        for rank in ended
    )
    return found


# ---------------------------------------------------------------------- the comparison


def compare(
    dump: CoreDump,
    ptx: FoundPtx,
    module: Module,
    rebuilt: Rebuilt,
    groups: Sequence[Group],
    *,
    time_limit: float = TIME_LIMIT,
    suggest: timedelta | float | Wanted | None = None,
) -> Match:
    """Checks the PTX of a kernel with its launch, and compares what that finds with the dump.

    Args:
        module: that of ``ptx``, perhaps with positions (`tilesim.autopsy.ptx_lines`).
        groups: where the warps of the launch stand.
        time_limit: what checking may take, in seconds.
        suggest: look for repairs as `check` does.
    """
    until = monotonic() + time_limit
    entry = next(one for one in module.entries if one.name == ptx.entry.name)
    try:
        try:
            mir = lower(module, entry, rebuilt.launch)
        except LaunchError:
            if not any(isinstance(p, Map | Struct) for p in rebuilt.launch.params):
                raise
            rebuilt = with_maps_apart(rebuilt)
            mir = lower(module, entry, rebuilt.launch)
        looked = Simulation(mir, numbers=False, strict="practice")
        given = with_contents(rebuilt, dump, looked.written, looked.holds)
        if given is not rebuilt:
            rebuilt, mir = given, lower(module, entry, given.launch)
        report = check(mir, time_limit=time_limit, suggest=suggest)
        left = until - monotonic()
        if _lacks_contents(report) and left > 0:
            zeros = with_zeros(rebuilt)
            other = lower(module, entry, zeros.launch)
            again = check(other, time_limit=left, suggest=suggest)
            if again.verdict in ("failed", "proved", "exhausted"):
                rebuilt, mir, report = zeros, other, again
    except InvalidProgram as error:
        what = f"check rejects the kernel, which may be the cause: {error.diagnostics[0]}"
        return Match("failed", (what,), assumed=rebuilt.assumed)
    except TilesimError as error:
        return Match("none", (f"the kernel cannot be checked: {error}",))
    assert entry.body is not None
    hang = _Hang(_of_dump(dump, groups), _Loops(entry.body, waits_of(ptx.text)))
    try:
        match = _judged(hang, mir, report, rebuilt, until)
    except (Interrupted, TimeIsUp, TooLarge):
        if monotonic() < until:
            raise  # by the user
        match = _no_time(report)
    says = (*match.says, *_also(match, report, rebuilt))
    return replace(match, says=says, assumed=rebuilt.assumed)


def _no_time(report: Report) -> Match:
    """A check whose result could not be compared."""
    what = f"{report.verdict} ({report.covers})"
    if report.findings:
        what = f"{report.findings[0].rule}: {report.findings[0].message}"
    says = f"check says: {what}; the time limit left no time to compare that with the dump"
    finding = next(iter(report.findings), None)
    return Match("failed" if finding else "open", (says,), finding=finding, report=report)


def _lacks_contents(report: Report) -> bool:
    """Whether a check ends for want of what memory holds."""
    return report.verdict == "bounded" and any("give the contents of" in r for r in report.reasons)


def _judged(hang: _Hang, mir: Mir, report: Report, rebuilt: Rebuilt, until: float) -> Match:
    if report.verdict in ("proved", "exhausted"):
        return _proved(report, rebuilt, hang.ctas)
    if report.verdict == "failed" and report.witness is not None:
        found = _compared(hang, _of_run(ends(mir, report.witness, deadline=until)))._replace(
            findings=report.findings
        )
        if found.counterparts and not found.distance:
            return _same_hang(hang, found, report)
        other = _other_schedule(mir, hang, found, until)
        if other is not None and not other.distance:
            return _same_hang(hang, other, report)
        if found.counterparts and _waits_alike(hang, found):
            return _same_waits(hang, found, report)
        if found.counterparts:
            nearer = other is not None and other.distance < found.distance
            return _nearest(other if nearer and other is not None else found, report)
        return _failed(report, rebuilt, other)
    if report.verdict == "unsupported":
        return Match("none", (f"the kernel cannot be checked: {_why(report)}",), report=report)
    endless = _endless(mir, hang, until) if TOO_LONG in report.reasons else None
    if endless is not None and not endless.distance:
        match = _same_hang(hang, endless, report)
        return replace(match, says=(_TRIES, *match.says[1:]))
    other = _other_schedule(mir, hang, None, until)
    if other is not None:
        return _nearest(other, report) if other.distance else _same_hang(hang, other, report)
    return Match(
        "open",
        (f"check finds no failure and proves nothing ({report.covers}): {_why(report)}",),
        report=report,
    )


def _also(match: Match, report: Report, rebuilt: Rebuilt) -> tuple[str, ...]:
    """Other failures that a check finds; where its deadlock is not that of the dump, they may be
    the cause of that."""
    others = [f for f in _others(report, rebuilt) if f != match.finding]
    if match.kind not in ("same", "nearest") or not others:
        return ()
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    what = f"{others[0].rule}: {others[0].message}{more}"
    may = ", which may be the cause" if match.kind == "nearest" else ""
    return (f"check also finds another failure{may}: {what}",)


def _others(report: Report, rebuilt: Rebuilt) -> list[Finding]:
    """Failures that are no deadlock, nor come from a size that was taken for a buffer."""
    taken = any(one.name == "buffer sizes" for one in rebuilt.assumed)
    return [
        f for f in report.findings
        if not any(map(_waits, f.participants)) and not (taken and f.rule == "out-of-bounds")
    ]  # fmt: skip


def _failed(report: Report, rebuilt: Rebuilt, other: _Compared | None) -> Match:
    """A check that fails, and not by a deadlock; ``other``: another schedule that ends in one."""
    failures = _others(report, rebuilt) or [f for f in report.findings if f.rule != "out-of-bounds"]
    if not failures:
        what = "check ends at an access beyond the size that was taken for a buffer"
        return Match("open", (f"{what}: {report.findings[0].message}",), report=report)
    first = failures[0]
    what = f"{first.rule}: {first.message}"
    if other is None:
        none = f"check finds no deadlock, but another failure, which may be the cause: {what}"
        return Match("failed", (none,), finding=first, report=report)
    says = (
        f"check finds another failure, which may be the cause: {what}",
        "other schedules end in a deadlock, of which that of the dump differs",
    )
    return Match("failed", says, tuple(_shown(other)), finding=first, report=report)


def _why(report: Report) -> str:
    return "; ".join(report.reasons) or "; ".join(f.message for f in report.findings) or "?"


#: instead of what is said of a deadlock
_TRIES = (
    "the run of check does not end: the same warps wait for the same mbarriers as in the dump, "
    f"and {_ROUNDS} rounds of tries change nothing"
)


def _endless(mir: Mir, hang: _Hang, until: float) -> _Compared | None:
    """The timed run, as it stands when tries for mbarriers bring nothing any more, beside the
    dump; None if it does not come to that."""
    simulation = Simulation(mir, numbers=False, strict="practice")
    machines: list[Machine] = []
    simulation.watches = machines.append
    deadline = min(until, monotonic() + _SECONDS)
    simulation.set_options(deadline=deadline, rounds=_ROUNDS)
    clusters = [*range(min(simulation.groups, _CLUSTERS))]
    try:
        with simulation.shortly(_POINTS):
            run = simulation.run({}, lambda cluster: None, clusters)
    except (Interrupted, TimeIsUp, TooLarge):
        if monotonic() < deadline:
            raise  # by the user
        return None
    here = _of_run(machines)
    return _compared(hang, here)._replace(findings=run.findings) if here else None


def _other_schedule(
    mir: Mir, hang: _Hang, before: _Compared | None, until: float
) -> _Compared | None:
    """Of schedules by chance, the one that ends nearest to the dump; None if none is nearer than
    ``before``."""
    simulation = Simulation(mir, numbers=False, strict="practice")
    machines: list[Machine] = []
    simulation.watches = machines.append
    deadline = min(until, monotonic() + _SECONDS)
    simulation.set_options(deadline=deadline)
    best: tuple[_Compared, Witness] | None = None
    least = None if before is None or not before.counterparts else before.distance
    clusters = [*range(min(simulation.groups, _CLUSTERS))]
    for seed in range(_SCHEDULES):
        machines.clear()
        try:
            with simulation.shortly(_POINTS):
                run = simulation.run({}, partial(_by_chance, seed), clusters)
        except (Interrupted, TimeIsUp, TooLarge):
            if monotonic() < deadline:
                raise  # by the user
            break
        here = _of_run(machines)
        if not here:
            continue
        found = _compared(hang, here)._replace(findings=run.findings)
        if least is None or found.distance < least:
            choices = {c: tuple(picks) for c, picks in run.choices.items()}
            name, program = simulation.program.name, fingerprint(simulation.code.mir)
            witness = Witness(name, "practice", "replay", tuple(clusters), choices, program)
            best, least = (found, witness), found.distance
        if not least:
            break
    if best is None:
        return None
    found, witness = best
    return found._replace(findings=replay(mir, witness).findings)


def _by_chance(seed: int, cluster: int) -> Chooser:
    """Schedules in which all moves are equally likely, and such with priorities, in turn."""
    number = seed * 1009 + cluster
    return PctChooser(number) if seed % 2 else RandomChooser(number)


def _same_hang(hang: _Hang, found: _Compared, report: Report) -> Match:
    ctas = len(found.differences)
    whole = "the CTA" if ctas == 1 else f"all {ctas} CTAs"
    stands = [s for cta in hang.ctas.values() for own in cta.stands.values() for s in own]
    unread = any(
        s.kind == "sleep"
        or (s.kind == "mbarrier" and None in (s.barrier, s.parity))
        or (s.kind == "named" and s.barrier is None)
        for s in stands
    )
    says = [
        f"check finds this hang: in {whole} of the dump the same warps wait for the same as in its "
        "deadlock, at the same instructions and with the same parities"
        if not unread
        else f"check finds this hang, as far as the dump shows it: in {whole} of it the same warps "
        "wait at the same instructions as in its deadlock; for which barriers and parities some of "
        "them wait is not in the dump"
    ]
    others = sum(cta.number != number for cta, number in found.counterparts.items())
    if others:
        says.append(f"{count(others, 'CTA')} of the dump match another one of the check")
    if found.exchanged:
        says.append(f"{count(found.exchanged, 'warp')} of the dump match another one of the check")
    either = sum(bool(s.instead) for s in stands)
    if either:
        says.append(
            f"{count(either, 'warp')} of the dump stand just behind a named barrier: whether they "
            "have passed it is not in the dump, and either was compared"
        )
    if any(s.kind == "poll" for s in stands):
        says.append("which words are polled was not compared, only in which loops")
    if any(s.line is None for s in stands):
        says.append("instructions were compared as far as the cubin has a table of PTX lines")
    if any(s.kind == "mbarrier" and s.state is None for s in stands):
        says.append("the state of mbarriers was not compared: it is not in the dump")
    return Match(
        "same", tuple(says), finding=found.finding, report=report,
        names=tuple(sorted(found.names.items())),
    )  # fmt: skip


def _waits_alike(hang: _Hang, found: _Compared) -> bool:
    """Whether all that differs are mbarriers that no warp of the dump waits for."""
    stands = [s for cta in hang.ctas.values() for own in cta.stands.values() for s in own]
    if any(s.kind == "mbarrier" and s.barrier is None for s in stands):
        return False  # it may be one of those
    awaited = {s.barrier for s in stands if s.kind == "mbarrier"}
    differences = (d for own in found.differences.values() for d in own)
    return all(d.barrier is not None and d.barrier not in awaited for d in differences)


def _same_waits(hang: _Hang, found: _Compared, report: Report) -> Match:
    """A hang whose waits are those of the dump: what else differs is said."""
    match = _same_hang(hang, found, report)
    says = "mbarriers that no warp waits for are in another state than in its deadlock"
    return replace(match, says=(*match.says, says), differs=(*_shown(found),))


def _nearest(found: _Compared, report: Report) -> Match:
    matched = sum(not one for one in found.differences.values())
    return Match(
        "nearest",
        (f"check finds a deadlock, of which that of the dump differs: {matched} of "
         f"{len(found.differences)} CTAs stand as in it",),
        (*_shown(found),),
        finding=found.finding, report=report, names=tuple(sorted(found.names.items())),
    )  # fmt: skip


def _shown(found: _Compared) -> Iterator[str]:
    """The differences, those of warps and CTAs that differ in the same way together."""
    together: dict[tuple[str, str], dict[int, list[int | None]]] = {}
    for cta, differences in found.differences.items():
        for warp, there, here, _ in differences:
            together.setdefault((there, here), {}).setdefault(cta.number, []).append(warp)
    for number, ((there, here), ctas) in enumerate(together.items()):
        if number == _MOST_SAID:
            yield f"and {len(together) - _MOST_SAID} other differences"
            return
        warps = sorted({w for own in ctas.values() for w in own if w is not None})
        who = numbered("CTA", sorted(ctas))
        if warps:
            who += f" {numbered('warp', warps)}"
        yield f"{who}: {there}; in the deadlock of check: {here}"


# ---------------------------------------------------------------------- a proof, and a hang


#: assumptions of a proof that a dump shows to hold: the launch has taken place
_SHOWN = frozenset({"cluster-size", "device-size", "cluster-spread"})


def _proved(report: Report, rebuilt: Rebuilt, there: Mapping[Cta, _There]) -> Match:
    """A kernel that is proved and hangs: what the proof takes for granted."""
    taken = [
        f"{one.text} ({one.name})"
        for one in report.leanings
        if one.conditional and one.name not in _SHOWN
    ]
    taken += (f"{one.text} ({one.name})" for one in rebuilt.assumed)
    runs = sorted({
        cta.number for cta, own in there.items()
        if any(s.kind is None for stands in own.stands.values() for s in stands)
    })  # fmt: skip
    proves = f"check proves this kernel with this launch ({report.covers})"
    if rebuilt.launch.dependent:
        before = "if the kernels before it end: warps wait for one that has not ended"
        return Match("proved", (f"{proves} {before}",), contradicts=tuple(taken), report=report)
    says = [f"{proves}, so an assumption of the proof does not hold on the GPU"]
    if runs:
        says.append(
            f"in CTA {ranges(runs[:_MOST_SAID])} warps are not known to wait: the kernel may have "
            "been running, not hung"
        )
    says.append(
        "the dump may contradict what is listed here"
        if taken
        else "it has no assumption that the dump could contradict: the launch or the PTX differs "
        "from what ran, or the machine code or the hardware does not follow the PTX"
    )
    return Match("proved", tuple(says), contradicts=tuple(taken), report=report)
