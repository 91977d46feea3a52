"""What launch control may answer, and the runs that cover it.

The hardware may hand any cluster any number of the clusters that wait, in any order. What a cluster
does depends on how many each of those that ask are given, and on nothing else, if their numbers
only choose addresses in global memory and are compared with numbers that do not tell them apart
(`tilesim.analysis.taint`). So a timed run with its certificate stands for all schedules with the
same counts, and a run is made for each of them. Clusters meet in global memory only, which is
compared in runs of the whole grid: any two tiles are worked on by different clusters in one of
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, permutations, product
from math import comb, lcm
from typing import Any

from numpy.typing import NDArray

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.liveness import carried
from tilesim.analysis.solver import closure
from tilesim.analysis.taint import BOTH, CLUSTERS, CTAS, Taint
from tilesim.analysis.uses_defs import OPERANDS, expressions_in, reads, sets
from tilesim.arith.operators import RELATIONS
from tilesim.checker.assumptions import Kind, Leaning
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.expr import Binary, Expr, Var, constant, walk
from tilesim.ir.frozen import cached
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir, condition
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.affine.free_parameter import is_free
from tilesim.sim.machine.schedule import Answers, Asker, Order
from tilesim.sim.machine.simulate import Run, Simulation
from tilesim.wording import count

#: rings repeat after so many tiles at most, or that is not waited for
_LONGEST = 48
#: warps that are listed in a sentence
_LISTED = 8
#: tiles that are computed at most to cover the counts
_TILES = 800
#: ways to share out the tiles of a grid that are all looked at
_MOST_PARTITIONS = 64
#: kinds of clusters of which any two are looked at that take over tiles
_KINDS = 3
#: tiles of which one agent is given all in one run, whatever rings there are: no analysis says
#: when what grows with each tile leaves an array
_IN_A_ROW = 64


@dataclass(frozen=True)
class Plan:
    """A run: which clusters are launched, what launch control answers, in which order is drawn."""

    clusters: tuple[int, ...]
    answers: Answers | None = None
    order: Order | None = None

    def __str__(self) -> str:
        if self.order is not None:
            return f"warps draw from counters in the order {_listed(self.order.warps)}"
        given = [
            f"hands {count(len(ids), 'cluster')} to {_asking(cluster, asker, len(by) > 1)}"
            for cluster, by in (self.answers or {}).items()
            for asker, ids in by.items()
            if ids
        ]
        return f"launch control {', '.join(given) or 'cancels nothing'}"


def _listed(warps: Sequence[int]) -> str:
    text = ", ".join(map(str, warps[:_LISTED]))
    return text if len(warps) <= _LISTED else f"{text}, ..."


def _asking(cluster: int, asker: Asker, several: bool) -> str:
    warp = f"warp {asker[1]} of its CTA {asker[0]}"
    return f"cluster {cluster}, {warp}" if several else f"cluster {cluster}"


class LaunchPlans:
    """The runs that cover what launch control may answer, given the ``first`` one."""

    def __init__(self, simulation: Simulation, clusters: Sequence[int], first: Run) -> None:
        program = simulation.program
        self._simulation = simulation
        self._program = program
        self._clusters = tuple(clusters)
        self._total = program.ctas // program.cluster_size
        self._together = simulation.groups == 1
        every = range(self._total) if self._together else clusters
        self._every = tuple(every)
        self._kinds = self._of_each_kind()
        asked = sorted({asker for o in first.outcomes for _, asker in o.asked})
        self.askers: tuple[Asker, ...] = tuple(asked)

    # ------------------------------------------------------------------ what is covered

    @property
    def _alone(self) -> tuple[int, ...]:
        """Clusters that are looked at alone: one of each kind, and the last."""
        return tuple(sorted({*self._kinds, self._every[-1]}))

    @cached_property
    def most(self) -> int:
        """How many clusters one agent is given at most.

        All others; or as many as it takes to fill every ring and to go round all of them once.
        """
        every = self._total - 1
        wanted = min(every, rings(self._simulation.code.mir))
        fits = 1
        while fits < wanted and self._cost(fits + 1) <= _TILES:
            fits += 1
        return min(every, fits)

    @cached_property
    def _turns(self) -> tuple[int, ...]:
        """Numbers above ``most`` of clusters that one agent is given, too: those with which what
        it carries from tile to tile is compared, and behind them, as far as runs may cost; last,
        so many that each of these turns comes in one run with others behind it."""
        every = self._total - 1
        told = values_around(compared(self._simulation.code.graph), self.most, every)
        fits = [n for n in told if sum(told[: told.index(n) + 1]) * len(self._alone) <= _TILES]
        last = min(every, max([_IN_A_ROW, *(n + 2 for n in fits)]))
        return tuple(sorted({*fits, last} if last > self.most else {*fits}))

    @property
    def _longest(self) -> int:
        """The most clusters that one agent is given in a run."""
        return max([self.most, *self._turns])

    def _cost(self, most: int) -> int:
        """How many tiles are computed, about, if each asker is given up to so many."""
        askers = len(self.askers)
        runs: int = min((most + 1) ** askers, comb(self._total - 1 + askers, askers))
        tiles = self._total if self._together else askers * most // 2 + 1
        return len(self._alone) * runs * tiles

    @property
    def covers(self) -> str:
        """What a verdict says about launch control."""
        text = "whatever number of clusters launch control hands to each"
        if self.most == self._total - 1:
            return text
        return f"{text} of those that ask (tried {up_to(self.most, self._turns)})"

    @property
    def assumption(self) -> Leaning:
        """What a verdict leans on: nothing, if every number was tried."""
        kind: Kind = "model" if self.most == self._total - 1 else "assumption"
        mir = self._simulation.code.mir
        asks = (mir.code[number].loc for number, _ in mir.all_of(fx.Cancels))
        return Leaning("launch-control", self.covers, tuple(dict.fromkeys(asks)), kind)

    def reasons(self) -> tuple[str, ...]:
        """Why the runs do not cover all answers."""
        if self._total == 1:
            return ()
        beyond = {n: loc for n, loc in compared(self._simulation.code.graph).items()
                  if self._longest < n < self._total}  # fmt: skip
        if beyond:
            number = min(beyond)
            return (
                f"what is executed may depend on whether more than {self._longest} clusters are "
                f"cancelled by one: {number} is compared with what it counts ({beyond[number]})",
            )
        drawn = hardware_taint(self._simulation)
        where = drawn.steers.get(CLUSTERS)
        if where is not None or CLUSTERS in drawn.periods:
            return (f"which clusters are cancelled may decide what is executed ({where})",)
        if any(0 < bound < max(self._program.grid) for bound in drawn.bounds.get(CLUSTERS, ())):
            return ("which clusters are cancelled decides what is executed",)
        both = hardware_taint(self._simulation, ctas=True).placed
        several = (
            self._simulation.written & both.keys() if self._partitions > _MOST_PARTITIONS else ()
        )
        for name in sorted(several):
            if any(sources >= {BOTH, CLUSTERS} for sources in both[name]):
                return (f"where {name} is accessed depends on which cluster cancels which other",)
        if len(self._kinds) > _KINDS and self._partitions > _MOST_PARTITIONS:
            return ("clusters that execute different instructions take over each other's work",)
        return ()

    def _of_each_kind(self) -> tuple[int, ...]:
        """One cluster of each kind, as far as runs so far have shown what shares memory."""
        return representatives(hardware_taint(self._simulation, ctas=True), self._every)

    # ------------------------------------------------------------------ the runs

    def runs(self, inputs: Mapping[str, NDArray[Any]]) -> Iterator[tuple[Plan, Run]]:
        """The runs one after another; once more where they show that clusters of more kinds execute
        different instructions."""
        known: tuple[int, ...] = ()
        while known != self._kinds:
            known = self._kinds
            yield from self._runs(inputs)
            self._kinds = self._of_each_kind()

    def _runs(self, inputs: Mapping[str, NDArray[Any]]) -> Iterator[tuple[Plan, Run]]:
        """Counts that no query has asked for are left out."""
        taken: dict[int, list[tuple[int, int]]] = {}
        for cluster, counts in self.alone():
            full = taken.setdefault(cluster, [])
            if any(counts[place] > most for place, most in full):
                continue
            plan = self.given(cluster, counts)
            run = self._run(plan, inputs)
            yield plan, run
            for place, asker in enumerate(self.askers):
                asked = sum(o.asked.get((cluster, asker), 0) for o in run.outcomes)
                if asked < counts[place]:
                    full.append((place, asked))
        down = self.given(self._clusters[0], [self.most, *[0] * (len(self.askers) - 1)], down=True)
        for plan in (down, *self.grids()):
            yield plan, self._run(plan, inputs)

    def _run(self, plan: Plan, inputs: Mapping[str, NDArray[Any]]) -> Run:
        return self._simulation.run(
            inputs, lambda cluster: None, [*plan.clusters], answers=plan.answers
        )

    def alone(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The cluster and how many each asker is given, for each run that looks at one cluster."""
        for cluster in self._alone:
            for counts in sorted(product(range(self.most + 1), repeat=len(self.askers)), key=sum):
                if sum(counts) < self._total:
                    yield cluster, counts
            for place in range(len(self.askers)):
                for number in self._turns:
                    yield cluster, tuple(number * (n == place) for n in range(len(self.askers)))

    def given(self, cluster: int, counts: Sequence[int], *, down: bool = False) -> Plan:
        """The run in which the askers of ``cluster`` are given so many, the following ones."""
        others = [(cluster + i) % self._total for i in range(1, self._total)]
        if down:
            others.reverse()
        by: dict[Asker, tuple[int, ...]] = {}
        for asker, wanted in zip(self.askers, counts, strict=True):
            by[asker], others = tuple(others[:wanted]), others[wanted:]
        return Plan((0,) if self._together else (cluster,), {cluster: by})

    def grids(self) -> Iterator[Plan]:
        """Runs of the grid in which any two tiles are worked on by different clusters.

        Of small grids these are all ways to share the tiles out. Otherwise, either a tile is its
        cluster's first one, or it was taken over. The numbers of two tiles differ in some bit that
        follows one in which they agree, if it is not the lowest. Where clusters are of several
        kinds, one of each takes tiles over.
        """
        yield Plan(self._clusters, {})
        if not self._together and len(self._clusters) < self._total:
            return
        if self._partitions <= _MOST_PARTITIONS:
            yield from self._shared_out()
            return
        every = range(self._total)
        for pair in dict.fromkeys((tuple(every[:2]), tuple(every[-2:]))):
            yield self._split(pair, 0, pair)
        for bit in range((self._total - 1).bit_length()):
            for side in (0, 1):
                launched = [c for c in every if (c >> bit & 1) == side]
                places = bit + 1, bit + 1 + len(launched) // 2
                takers = [launched[place % len(launched)] for place in places]
                yield self._split(launched, bit + 1, takers)
                for pair in self._kinds_that_meet:
                    yield self._split({*launched, *pair}, bit + 1, pair)

    @property
    def _kinds_that_meet(self) -> tuple[tuple[int, ...], ...]:
        """Clusters of different kinds that take over tiles, one of each kind."""
        kinds = self._kinds if len(self._kinds) <= _KINDS else ()
        return tuple(permutations(kinds, 2))

    @property
    def _partitions(self) -> int:
        """In how many ways tiles can be shared out: to those that ask in clusters launched."""
        total, askers = self._total, max(1, len(self.askers))
        return sum(comb(total, n) * (n * askers) ** (total - n) for n in range(1, total))

    def _shared_out(self) -> Iterator[Plan]:
        """A run for each of these ways."""
        every = range(self._total)
        for left in range(self._total - 1, 0, -1):
            for launched in combinations(every, left):
                taken = [c for c in every if c not in launched]
                for agents in product(product(launched, self.askers), repeat=len(taken)):
                    by: dict[int, dict[Asker, tuple[int, ...]]] = {}
                    for tile, (cluster, asker) in zip(taken, agents, strict=True):
                        shares = by.setdefault(cluster, dict.fromkeys(self.askers, ()))
                        shares[asker] += (tile,)
                    yield Plan(self._clusters, by)

    def _split(self, launched: Collection[int], bit: int, takers: Sequence[int]) -> Plan:
        """The clusters that are not launched are cancelled by two others, as one bit says."""
        taken = [c for c in range(self._total) if c not in launched]
        answers: dict[int, dict[Asker, tuple[int, ...]]] = {}
        for side, taker in enumerate(dict.fromkeys(takers)):
            ids = [c for c in taken if (c >> bit & 1) == side or takers[0] == takers[-1]]
            shares = (tuple(ids[i :: len(self.askers)]) for i in range(len(self.askers)))
            answers[taker] = dict(zip(self.askers, shares, strict=True))
        return Plan(self._clusters, answers)


def hardware_taint(simulation: Simulation, *, ctas: bool = False) -> Taint:
    """What numbers that hardware hands out decide, or with ``ctas`` those of the CTAs.

    Where memory is all that a number may reach a decision by, parts of it are distinguished by what
    runs so far have accessed.
    """
    drawn = Taint(simulation.code.graph, ctas=ctas)
    if simulation.accessed is not None and (drawn.steers or drawn.periods):
        drawn = Taint(simulation.accessed.graph, ctas=ctas)
    return drawn


def representatives(drawn: Taint, clusters: Sequence[int]) -> tuple[int, ...]:
    """One cluster of each kind that executes other instructions; ``drawn``: what numbers of CTAs
    decide."""
    program = drawn.kernel
    if (drawn.steers.keys() | drawn.periods.keys()) & set(CTAS) or program.grid[1:] != (1, 1):
        return tuple(clusters)
    size = program.cluster_size
    changes = {b // size for b in drawn.bounds.get("cta_x", ())}
    changes |= {-(-b // size) for b in drawn.bounds.get("cta_x", ())}
    changes |= drawn.bounds.get("cluster_id", set())
    first = {sum(c >= b for b in changes): c for c in reversed(clusters)}
    return tuple(sorted(first.values()))


def are_the_same(simulation: Simulation) -> bool:
    """Whether the same runs cover what launch control may answer for all values of a parameter that
    is not known, which a program is compiled with.

    Raises:
        Refused: what rings there are depends on it.
    """
    if simulation.accessed is not None:
        return False
    graph = simulation.code.graph
    drawn = [Taint(graph), Taint(graph, ctas=True)]
    if any(d.steers or d.periods for d in drawn):
        return False
    rings(simulation.code.mir)
    return not any(is_free(b) for d in drawn for bounds in d.bounds.values() for b in bounds)


def rings(mir: Mir) -> int:
    """How many tiles it takes to fill every ring of a program and to go round all of them."""
    sizes = [2 * m.count for m in mir.kernel.shared if isinstance(m, Mbarriers)]
    for expr in _expressions(mir):
        match expr:
            case Binary("%", _, rhs):
                sizes.append(constant(rhs) or 1)
            case Binary("&", _, rhs):
                sizes.append((constant(rhs) or 0) + 1)
            case _:
                pass
    sizes = [s for s in sizes if 1 < s <= _LONGEST]
    return min(lcm(*sizes), _LONGEST) + max(sizes, default=1) + 2


@cached
def compared(graph: FlowGraph) -> Mapping[int, Loc]:
    """Fixed numbers with which what loops carry from tile to tile is compared, or modulo which it
    counts, each with a place.

    Of loops that are in no other one and synchronise or draw numbers, as each that works on tiles
    does. A number modulo a power of two counts if it may be one of tiles: with larger ones
    addresses are made.
    """
    mir, carries = graph.mir, set[str]()
    for loop in graph.loops:
        inner = any(loop.blocks < other.blocks for other in graph.loops)
        effects = (e for b in loop.blocks for n in graph.blocks[b] for e in mir.effects[n])
        if not inner and not all(map(_is_alone, effects)):
            carries |= carried(graph, loop.head, loop.blocks)
    counts, found = _derived_registers(mir, carries), dict[int, Loc]()
    for n in range(len(mir.code)):
        if not reads(mir, n).isdisjoint(counts):
            for number in _compared_by(mir, n, counts):
                found.setdefault(number, mir.code[n].loc)
    return found


def values_around(numbers: Iterable[int], most: int, every: int) -> list[int]:
    """In order, these, the ones before and ``most`` behind each, above ``most``, up to ``every``:
    where a comparison comes out in another way, rings go round once more. Behind small ones they do
    so up to ``most``."""
    late = [n for n in numbers if n > most // 2]
    return sorted({k for n in late for k in range(n - 1, n + most + 1) if most < k <= every})


def up_to(most: int, beside: Sequence[int]) -> str:
    """All numbers up to ``most``, and these behind it, in words."""
    while most + 1 in beside:
        most += 1
    return ", ".join([f"up to {most}", *(str(n) for n in beside if n > most)])


def _is_alone(effect: fx.Effect) -> bool:
    """Whether an effect is neither a synchronisation nor an atomic."""
    if isinstance(effect, fx.Writes):
        return effect.combine is None
    return isinstance(effect, (fx.Defines, fx.Reads))


def _derived_registers(mir: Mir, names: Collection[str]) -> set[str]:
    """These registers, and those that instructions make of them."""
    after: dict[str, set[str]] = {}
    for n in range(len(mir.code)):
        for name in reads(mir, n):
            after.setdefault(name, set()).update(sets(mir, n))
    return closure(names, lambda name: after.get(name, ()))


def _compared_by(mir: Mir, number: int, counts: Collection[str]) -> Iterator[int]:
    """Fixed numbers with which an instruction compares one of the registers ``counts``."""
    for expr in _expressions_of(mir, number):
        match expr:
            case Binary(op, lhs, rhs) if op in RELATIONS or op in ("%", "&"):
                fixed = constant(rhs) if constant(lhs) is None else constant(lhs)
                names = {e.name for e in walk(expr) if isinstance(e, Var)}
                if fixed is None or names.isdisjoint(counts):
                    continue
                if op in RELATIONS or op == "%":
                    yield fixed
                elif fixed & fixed + 1 == 0 and fixed < _TILES:
                    yield fixed + 1
            case _:
                pass


def _expressions(mir: Mir) -> Iterator[Expr]:
    for number in range(len(mir.code)):
        yield from _expressions_of(mir, number)


def _expressions_of(mir: Mir, number: int) -> Iterator[Expr]:
    instruction = mir.code[number]
    cond, op = condition(instruction), instruction.what
    if cond is not None:
        yield from walk(cond)
    if isinstance(op, Op):
        for name in OPERANDS[type(op)]:
            for root in expressions_in(getattr(op, name)):
                yield from walk(root)
