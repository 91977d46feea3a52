"""Numbers drawn from counters (``atom.add`` whose result is used): the runs that cover all orders.

For a fixed order of draws a timed run with its certificate stands for all schedules. Orders are

* all tried, if they are few;
* covered by some, if clusters meet in nothing but such counters and their numbers only choose
  addresses in global memory and are compared with fixed ones (`tilesim.analysis.taint`). Then what
  a cluster executes depends on the outcomes of these comparisons, and two clusters have to be
  looked at together only because of what both access in global memory. Which cluster has which
  number is not tried out for each of them: so where a number chooses a place that is written, the
  number of the CTA must not choose it as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from math import comb
from typing import Any

from numpy.typing import NDArray

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.taint import BOTH, Dataflow, Taint
from tilesim.checker.assumptions import Leaning
from tilesim.checker.last_draw import accesses_after, is_same_in_all_ctas
from tilesim.checker.launch_control import (
    Plan,
    compared,
    representatives,
    rings,
    up_to,
    values_around,
)
from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.ir.scalars import word_accesses
from tilesim.sim.machine.result import Outcome
from tilesim.sim.machine.schedule import Draw, Order, Word
from tilesim.sim.machine.simulate import Run, Simulation
from tilesim.sim.observers.monotone_words import ticket_tensors

#: orders that are tried at most where that has to be all of them
_ORDERS = 200
#: what trying orders may cost, in instructions and clusters that hear of a draw
_COST = 100_000
#: so many orders are tried whatever they cost
_LEAST = 16
#: so many numbers of tiles are tried because something is compared with one
_BESIDE = 24
#: so many clusters are all paired with each other
_FEW = 4


class OrderPlans:
    """The runs for one cluster (or a grid whose clusters communicate), given the timed one, which
    executed so many ``instructions``.

    ``covers`` says what they extend to, once they are made; it is empty if that is not all orders.
    ``assumption`` is what a verdict then assumes of numbers of tiles that were not tried, if any.
    """

    def __init__(
        self,
        simulation: Simulation,
        cluster: int,
        outcome: Outcome,
        instructions: int,
        inputs: Mapping[str, Any],
    ) -> None:
        self._simulation = simulation
        self._program = simulation.program
        self._cluster = cluster
        self._inputs: Mapping[str, NDArray[Any]] = inputs
        #: the outcome of the timed run
        self.outcome = outcome
        self._instructions = instructions
        self._draws = tuple(self.outcome.draws)
        self._tried = 1
        self.tensors = tuple(dict.fromkeys(d.tensor for d in self._draws))
        self.covers = ""
        self.assumption: Leaning | None = None

    def runs(self) -> Iterator[tuple[Plan, Run]]:
        """The runs one after another; stops where they show that they do not cover all orders.

        Where some do not stand for all, all are tried that there is time for.
        """
        if self._each_draws_once:
            yield from self._each_as_last()
        elif self._tiles is not None:
            yield from self._any_number(self._tiles)
        if not self.covers:
            yield from self._all()

    def leave_open(self) -> None:
        """Notes in the outcome of the timed run what the runs do not cover."""
        mir = self._simulation.code.mir
        for instruction, effects in zip(mir.code, mir.effects, strict=True):
            for drawn in self._drawn_in(effects):
                what = f"the result of atom.{drawn.combine} on {drawn.view.tensor.name}"
                self.outcome.nondeterminism.setdefault(what, instruction.loc)

    def _drawn_in(self, effects: tuple[fx.Effect, ...]) -> list[fx.Writes]:
        """What an instruction with these effects draws from the words of the outcome."""
        return [drawn for drawn in _drawn_by(effects) if drawn.view.tensor.name in self.tensors]

    def _run(self, order: Order) -> Run:
        run = self._simulation.run(self._inputs, lambda cluster: None, [self._cluster], order=order)
        self._tried += 1
        return run

    def _plan(self, order: Order) -> Plan:
        return Plan((self._cluster,), order=order)

    def _say(self, how: str) -> None:
        if self._bounds_by_program is None and self._bounds_by_runs() != self._bounds:
            return  # instructions have accessed bytes that they had not in the timed run
        self.covers = self._every_order(how)

    def _every_order(self, how: str) -> str:
        return f"every ticket order of {', '.join(self.tensors)} ({how})"

    # ------------------------------------------------------------------ all orders

    def _all(self) -> Iterator[tuple[Plan, Run]]:
        """Every order, in lexicographic order of the warps."""
        before = self._tried
        prefix: tuple[int, ...] | None = ()
        while prefix is not None:
            if self._tried > min(_ORDERS, self._allowed):
                return
            run = self._run(Order(prefix))
            picked = tuple(d.warp for d in run.outcomes[0].draws)
            yield self._plan(Order(picked)), run
            prefix = _next(run.outcomes[0].contenders, picked)
        self.covers = self._every_order(f"all {self._tried - before} orders")

    # ------------------------------------------------------------------ when some orders do

    @cached_property
    def _bounds(self) -> frozenset[int] | None:
        """Numbers that tell draws apart; None if they decide in other ways, too."""
        code = self._simulation.code
        tickets = ticket_tensors(code.mir) & code.counters
        if not _meet_in(code.mir, tickets, code.counters):
            return None
        if any(not _consecutive(draws) for draws in self._words.values()):
            return None
        return (
            self._bounds_by_runs() if self._bounds_by_program is None else self._bounds_by_program
        )

    @cached_property
    def _bounds_by_program(self) -> frozenset[int] | None:
        """The same, whatever bytes of shared memory instructions access."""
        return self._bounds_by(self._simulation.code.graph, self._simulation.code.flow)

    def _bounds_by_runs(self) -> frozenset[int] | None:
        """The same if they access none but those that they have accessed in runs so far."""
        accessed = self._simulation.accessed
        return None if accessed is None else self._bounds_by(accessed.graph, accessed.flow)

    def _bounds_by(self, graph: FlowGraph, flow: Dataflow) -> frozenset[int] | None:
        """What tells draws apart, by what may flow where."""
        tickets = ticket_tensors(graph.mir) & self._simulation.code.counters
        drawn = Taint(graph, tickets)
        if (drawn.steers.keys() | drawn.periods.keys()) & tickets:
            return None
        if flow.steering_state and not tickets >= {*flow.steering_state}:
            return None
        return frozenset().union(*(drawn.bounds.get(t, set()) for t in tickets))

    @cached_property
    def _words(self) -> dict[Word, list[Draw]]:
        words: dict[Word, list[Draw]] = {}
        for draw in self._draws:
            words.setdefault(draw.word, []).append(draw)
        return words

    def _inside(self, draws: Sequence[Draw]) -> set[int]:
        """The bounds that tell some of these numbers apart."""
        assert self._bounds is not None
        return {b for b in self._bounds if draws[0].number < b <= draws[-1].number}

    def _place(self, draw: Draw) -> int:
        """The cluster that draws, as one that the machine runs."""
        return draw.warp // (self._program.warps * self._program.cluster_size)

    # ------------------------------------------------------------------ places in global memory

    @cached_property
    def _deciding(self) -> Taint:
        """What the numbers drawn and those of the CTAs decide, looked at together."""
        code = self._simulation.code
        return Taint(code.graph, ticket_tensors(code.mir) & code.counters, ctas=True)

    @cached_property
    def _placed(self) -> list[set[frozenset[str]]]:
        """Of each tensor that is written in which a number drawn chooses a place: what chooses the
        places of the accesses to it.

        No run shows each cluster with each number. So what two clusters access there is covered
        only if the number alone says where that is, and not which of them has drawn it.
        """
        tickets = ticket_tensors(self._simulation.code.mir)
        written = self._simulation.written - tickets
        every = (placed for name, placed in self._deciding.placed.items() if name in written)
        return [placed for placed in every if any(sources & tickets for sources in placed)]

    @property
    def _only_numbers(self) -> bool:
        """Whether nothing but the number of one counter chooses any place in these tensors."""
        return all(len(placed) == 1 == len(next(iter(placed))) for placed in self._placed)

    @property
    def _in_no_order(self) -> bool:
        """Whether draws order nothing but themselves."""
        mir = self._simulation.code.mir
        words = filter(None, word_accesses(mir))
        fences = (e for _, e in mir.all_of(fx.Orders))
        return not any(w.releases and w.view.space != "shared" for w in words) and not any(
            e.releases and e.scope != "cta" and not (e.in_shared or e.inits) for e in fences
        )

    @cached_property
    def _kinds(self) -> tuple[int, ...]:
        """One cluster of each kind that executes other instructions."""
        clusters = range(len(self._numbers) // self._program.cluster_size)
        return representatives(self._deciding, clusters)

    @property
    def _of_one_kind(self) -> bool:
        return len(self._kinds) == 1

    # ------------------------------------------------------------------ one number each

    @cached_property
    def _each_draws_once(self) -> bool:
        """Whether each cluster draws once, and only the last number of a word is special."""
        clusters = [self._place(draw) for draw in self._draws]
        return (
            len({*clusters}) == len(clusters) > 1
            and self._bounds is not None
            and all(self._inside(ds) <= {ds[-1].number} for ds in self._words.values())
        )

    def _each_as_last(self) -> Iterator[tuple[Plan, Run]]:
        """Each cluster as the last one of its word, with each other one as one before it.

        If it is the same whichever cluster that is, a few of them (`tilesim.checker.last_draw`).
        Else two that are not the last are together in one run with the one first, and in one with
        the other. And for any two there is a run in which one is told to be the last and the other
        one is not. Such a run is no schedule; if it fails, schedules are tried in which what it
        shows is real.
        """
        groups = [tuple(d.warp for d in draws) for draws in self._words.values()]
        some = self._turns_for_any
        for turn in some or _turns():
            order = Order(tuple(w for g in groups for w in turn(g)))
            run = self._run(order)
            same = self._same(run)
            if same or run.findings:
                yield self._plan(order), run
            elif some:
                return
        if some:
            self._say("with each of them as the last one")
            return
        warps = tuple(w for g in groups for w in g)
        for alike in _halves(warps, together=len(groups) > 1):
            order = Order(warps, alike)
            run = self._run(order)
            if not self._same(run):
                return
            if run.findings:
                suspects = {p.cta for f in run.findings for p in f.participants}
                yield from self._suspected(groups, alike, suspects)
                return
            yield self._plan(order), run
        if not self._placed or (self._only_numbers and self._of_one_kind):
            self._say("with each of them as the last one")

    @property
    def _turns_for_any(self) -> tuple[Any, ...]:
        """Turns that stand for all if it is the same which cluster of a word is the last one; else
        none. Without accesses after it, the draw of a cluster that is not the last one is its end.
        """
        if self._placed or self._program.cluster_size > 1 or not self._simulation.together:
            return ()
        more, plans = False, self._simulation.plans(self._inputs)
        for draws in self._words.values():
            clusters = [self._place(draw) for draw in draws]
            last, other = (
                accesses_after(self._simulation, self._inputs, plans, clusters, draw.number)
                for draw in (draws[-1], draws[0])
            )
            if (
                len(draws) < 2
                or last is None
                or other is None
                or not all(map(is_same_in_all_ctas, last))
            ):
                return ()
            more = more or bool(other)
        return _turns() if more else _turns()[:1]

    def _suspected(
        self, groups: Sequence[tuple[int, ...]], alike: frozenset[int], suspects: set[int]
    ) -> Iterator[tuple[Plan, Run]]:
        ctas = {c: i for i, c in enumerate(self._numbers)}
        places = {ctas[s] // self._program.cluster_size for s in suspects if s in ctas}
        size = self._program.warps * self._program.cluster_size
        for last in sorted(w for w in alike if w // size in places):
            order = Order(tuple(sorted((w for g in groups for w in g), key=last.__eq__)))
            yield from self._real(order)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        """The CTAs that the machine runs, in its order."""
        return tuple(cta for ctas in self._simulation.group(self._cluster) for cta in ctas)

    def _real(self, order: Order) -> Iterator[tuple[Plan, Run]]:
        run = self._run(order)
        if run.findings or self._same(run):
            yield self._plan(order), run

    def _same(self, run: Run) -> bool:
        """Whether the same warps have drawn from the same words."""
        drawn = Counter((d.warp, d.word) for d in run.outcomes[0].draws)
        return drawn == Counter((d.warp, d.word) for d in self._draws)

    # ------------------------------------------------------------------ any number each

    @cached_property
    def _tiles(self) -> int | None:
        """How many numbers of the only word stand for work, if those from some bound on stand
        for the end, and each cluster has one warp that draws; else None."""
        warps = {draw.warp for draw in self._draws}
        if len(self._words) != 1 or len({self._place(d) for d in self._draws}) != len(warps):
            return None
        if self._bounds is None:
            return None
        inside = self._inside(self._draws)
        if len(inside) > 1 or not self._all_end(self._draws, inside):
            return None
        return max(inside, default=self._draws[-1].number + 1) - self._draws[0].number

    def _all_end(self, draws: Sequence[Draw], inside: set[int]) -> bool:
        """Whether the last number that each warp draws means the end, and none before it does.

        A number that is not compared, as one drawn while a tile is worked on, may be any.
        """
        last = {draw.warp: draw.number for draw in draws}
        return all((d.number >= b) == (d.number == last[d.warp]) for d in draws for b in inside)

    def _any_number(self, tiles: int) -> Iterator[tuple[Plan, Run]]:
        """Each kind of cluster with each number of tiles, and any two tiles in different ones."""
        warps = sorted({draw.warp for draw in self._draws})
        shared_out = [*_shared_out(warps, tiles)]
        most, late = min(tiles, rings(self._simulation.code.mir)), True
        told = [*compared(self._simulation.code.graph)]
        orders = [*self._counts(warps, tiles, most, told, late=late), *shared_out]
        while len(orders) > self._allowed and (late or most > 1):
            most, late = most if late else most - 1, False
            orders = [*self._counts(warps, tiles, most, told, late=late), *shared_out]
        beside = values_around(told, most, tiles)
        if len(beside) > _BESIDE:
            return
        for turns in dict.fromkeys(orders):
            run = self._run(Order(turns))
            yield self._plan(Order(turns)), run
            if not self._all_end(run.outcomes[0].draws, self._inside(self._draws)):
                return
        together = any(BOTH in sources for placed in self._placed for sources in placed)
        if together or not (self._only_numbers or self._in_no_order):
            return
        if not self._placed or self._of_one_kind or most == tiles:
            tried = f"{self._tried} orders"
            numbers = up_to(most, beside)
            self._say(tried if most == tiles else f"{tried}, {numbers} for one cluster")
            if self.covers and most < tiles and len(warps) > 1:
                mir = self._simulation.code.mir
                steps = zip(mir.code, mir.effects, strict=True)
                at = dict.fromkeys(step.loc for step, effects in steps if self._drawn_in(effects))
                self.assumption = Leaning("ticket-order", self.covers, tuple(at), "assumption")

    @cached_property
    def _allowed(self) -> int:
        """How many orders may be tried."""
        each = self._instructions + len(self._draws) * len(self._simulation.group(self._cluster))
        return max(_LEAST, _COST // max(1, each))

    def _counts(
        self, warps: list[int], tiles: int, most: int, told: Collection[int], *, late: bool
    ) -> Iterator[tuple[int, ...]]:
        """Each kind of cluster draws each number of tiles before the others, or ``late``: up to
        ``most``, those ``told`` and those beside them, and all."""
        size = self._program.warps * self._program.cluster_size
        alone = {*self._kinds, len(self._numbers) // self._program.cluster_size - 1}
        for warp in (w for w in warps if w // size in alone):
            others = [w for w in warps if w != warp]
            for number in dict.fromkeys(
                (*range(most + 1), *values_around(told, most, tiles), tiles)
            ):
                if not others:
                    return
                turns = -(-(tiles - number) // len(others))
                rest = tuple((others * turns)[: tiles - number])
                yield (warp,) * number + rest + (*others, warp)
                if late:
                    yield rest + (warp,) * number + (*others, warp)


def _shared_out(warps: list[int], tiles: int) -> Iterator[tuple[int, ...]]:
    """Two warps draw all numbers, which of them as one bit of the number says."""
    in_shared = [(a, b) for a in warps for b in warps if a != b]
    if len(warps) > _FEW:
        in_shared = [(warps[0], warps[1]), (warps[1], warps[0]), (warps[-1], warps[-2])]
    for one, other in in_shared:
        for bit in range(max(1, (tiles - 1).bit_length())):
            yield tuple(other if i >> bit & 1 else one for i in range(tiles))


def _turns() -> tuple[Any, ...]:
    """Orders of a group in which any two are before and after each other, and neither is last,
    besides its own."""
    return (
        lambda g: g[::-1],
        lambda g: (*g[1:], g[0]),
        lambda g: (*g[-2::-1], g[-1]),
        lambda g: (g[0], g[-1], *g[1:-1]),
        lambda g: (g[-1], g[0], *g[1:-1]),
    )


def _halves(warps: Sequence[int], *, together: bool) -> Iterator[frozenset[int]]:
    """Sets of warps such that for any two one has the first and not the second.

    Each warp is in half of the sets, and no two are in the same ones (Sperner). ``together``: and
    one set with all of them.
    """
    sets = 1
    while comb(sets, sets // 2) < len(warps):
        sets += 1
    codes = list(zip(warps, combinations(range(sets), sets // 2), strict=False))
    if together:
        yield frozenset(warps)
    for number in range(sets):
        yield frozenset(warp for warp, code in codes if number in code)


def _next(contenders: Sequence[int | None], picked: tuple[int, ...]) -> tuple[int, ...] | None:
    """The begin of the next order, given by draw the next warp that could have drawn instead; None
    after the last one."""
    for place in range(len(picked) - 1, -1, -1):
        later = contenders[place]
        if later is not None:
            return (*picked[:place], later)
    return None


def _consecutive(draws: Sequence[Draw]) -> bool:
    return all(b.number == a.number + 1 for a, b in pairwise(draws))


def _drawn_by(effects: tuple[fx.Effect, ...]) -> list[fx.Writes]:
    """The read-modify-writes of an instruction whose result is used."""
    results = [e.value for e in effects if isinstance(e, fx.Defines)]
    changes = (e for e in effects if isinstance(e, fx.Writes) and e.combine is not None)
    return [e for e in changes if any(e.view is result for result in results)]


def _meet_in(mir: Mir, tickets: frozenset[str], counters: frozenset[str]) -> bool:
    """Whether clusters tell each other nothing but by drawing and by resetting ``tickets``.

    A strong load of data tells nothing either: that it comes in no order after what it reads is a
    reason in a run in which it does. Only words that count are not looked at for that.
    """
    for effects in mir.effects:
        drawn = _drawn_by(effects)
        reads = [e for e in effects if isinstance(e, fx.Reads) and e.view.space != "shared"]
        counts = [e for e in effects if isinstance(e, fx.Writes) and e.combine is not None]
        if any(e.view.space != "shared" and e.view.tensor.name not in tickets for e in drawn):
            return False
        if not drawn and any(e.view.tensor.name in tickets for e in counts):
            return False
        if not counts and any(e.sem != "weak" and e.view.tensor.name in counters for e in reads):
            return False
    return True
