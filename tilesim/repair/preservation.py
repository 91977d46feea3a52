"""What a kernel does besides synchronising, which a repair must not take away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.taint import tensors_written
from tilesim.arith.types import numpy_dtype
from tilesim.errors import InvalidProgram
from tilesim.ir import effects as fx
from tilesim.ir.addresses import begins_with
from tilesim.ir.expr import Const
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Program, Strict
from tilesim.ir.verify import verify
from tilesim.mistakes.context import Facts, has
from tilesim.records import dataclass
from tilesim.sim.machine.simulate import Run, Simulation, check_inputs, kernel_of
from tilesim.sim.observers.timeline import record
from tilesim.transforms.rewrite import edited, statements

Arrays = Mapping[str, NDArray[Any]]
#: clusters of a large grid that are looked at
_CLUSTERS = 4
#: of the random numbers in tensors, and whether those that the kernel stores to have others: what
#: it stores may be what was there in one run, but not in both
_FILLS = ((0, False), (0, True), (1, False))
#: edits that change how often work is done, if only it is done and what is stored stays
_REPEATS = frozenset({"trips", "condition"})
#: what a run goes on behind as if it were not so
_UNORDERED = frozenset({"race", "proxy-fence", "async-at-exit"})
#: effects of instructions that say which cluster does which work
_STEERS = (fx.Cancels, fx.Queries)
#: scheduling points of a run without waits: a loop that nothing ends may go on for ever
_STEPS = 20_000
#: CTA, warp, mnemonic, line, and whether it writes global memory
_Key = tuple[int, int, str, Loc, bool]


@dataclass(frozen=True)
class Work:
    """What ``program`` is there for.

    ``same`` says whether what a program computes from ``numbers`` is right, if there is a
    reference. Without one, the work is what it stores to, every element of global memory that it
    writes (if it does not come to its end: would write if no warp waited for anything); and how
    often each warp executes the instructions that move data. ``inputs`` are those that its control
    flow depends on.
    """

    program: Program | Mir
    strict: Strict
    inputs: Arrays
    numbers: Arrays | None = None
    same: Callable[[Arrays], bool] | None = None

    def is_done_by(self, mended: Program | Mir, families: frozenset[str]) -> bool:
        """Whether a program that is proved, by edits of these families, does all of it."""
        if _instructions(mended) < self._least:
            return False
        if not self._runs and families & _REPEATS:
            return False
        if self.same is not None and self.numbers is not None:
            simulation = self._simulation(mended)
            return simulation is not None and self.same(_run(simulation, self.numbers).outputs)
        stored = self._stores(mended, self._stored)
        if not (self._stored.any() if self._steers_itself else self._stored).issubset(stored):
            return False
        now = self._executed(mended)
        if self._shares:
            return {key[1:] for key in self._executions} <= {key[1:] for key in now}
        if self._steers_itself:
            return self._executions.keys() <= now.keys()
        least = 1 if families & _REPEATS else None
        return all(
            now[key] >= (count if least is None or key[-1] else least)
            for key, count in self._executions.items()
        )

    @cached_property
    def _shares(self) -> bool:
        """Whether CTAs take over each other's work: it is none of a certain CTA then, nor done a
        number of times that a run without waits would show."""
        effects = (e for op in _ops(self.program) for e in op.effects())
        return any(isinstance(e, fx.Cancels) for e in effects)

    @cached_property
    def _comes_to_its_end(self) -> bool:
        """Whether its own run shows all of its work: it is only that accesses are not ordered."""
        simulation = self._simulation(self.program, numbers=False)
        if simulation is None:
            return False
        run = _run(simulation, self.inputs, _CLUSTERS)
        return all(finding.rule in _UNORDERED for finding in run.findings) and not any(
            outcome.cut_off or outcome.undefined for outcome in run.outcomes
        )

    @cached_property
    def _steers_itself(self) -> bool:
        """Whether what it has written decides what it executes: accesses that are not ordered may
        decide otherwise than they should, so how often is unknown."""
        simulation = self._simulation(self.program, numbers=False)
        if simulation is None or not self._comes_to_its_end:
            return False
        own = {s.name for s in kernel_of(self.program).shared}
        own |= {n for op in _ops(self.program) for e in op.effects() for n in tensors_written(e)}
        return not own.isdisjoint(simulation.code.flow.steering)

    @cached_property
    def _executions(self) -> Counter[_Key]:
        if self._comes_to_its_end:
            return self._executed(self.program)
        return self._executed(without_waits(self.program), steps=_STEPS)

    def _executed(self, program: Program | Mir, steps: int | None = None) -> Counter[_Key]:
        """How often each warp executes what moves data."""
        try:
            recording = record(
                program, self.inputs, strict=self.strict, clusters=_CLUSTERS, steps=steps
            )
        except InvalidProgram:
            return Counter()
        moving = {
            (what.mnemonic, what.loc): _stores_globally(what)
            for what in statements(program)
            if isinstance(what, Op) and _works(what)
        }
        found: Counter[_Key] = Counter()
        for timeline in recording.timelines:
            for piece in timeline.slices:
                stores = moving.get((piece.name, piece.loc))
                if piece.kind == "run" and stores is not None and piece.track.warp is not None:
                    where = (piece.track.cta, piece.track.warp, piece.name, piece.loc)
                    found[(*where, stores)] += 1
        if recording.cut_off:
            return Counter(found.keys())  # how often, is not known
        return found

    @cached_property
    def _runs(self) -> bool:
        """Whether it can be run; how often a rejected one does its work is not known."""
        try:
            verify(self.program)
        except InvalidProgram:
            return False
        return True

    @cached_property
    def _least(self) -> int:
        return _instructions(self.program)

    @cached_property
    def _stored(self) -> Stores:
        """The bytes that it stores to, also where it fails before it comes to it."""
        own = self._stores(self.program)
        if self._comes_to_its_end:
            return own
        return own | self._stores(without_waits(self.program), steps=_STEPS)

    def _stores(
        self, program: Program | Mir, wanted: Stores | None = None, steps: int | None = None
    ) -> Stores:
        """The elements that a program stores to; of ``wanted`` ones, as far as one run shows it.

        What is not stored to keeps the bytes that it is filled with.
        """
        found, kernel = Stores({}), kernel_of(program)
        simulation = self._simulation(program, steps)
        if simulation is None:
            return found
        written = {n for op in _ops(program) for e in op.effects() for n in tensors_written(e)}
        counters = _zeros(kernel, simulation.code.flow.steering_state)
        for seed, other in _FILLS:
            numbers = _numbers(kernel, seed, written if other else ())
            before = {**_contents(kernel), **numbers, **counters, **self.inputs}
            given = {n: a for n, a in before.items() if n in numbers or n in self.inputs}
            run = _run(simulation, given, _CLUSTERS)
            found |= Stores({n: _changed(a, before[n]) for n, a in run.outputs.items()})
            # stores by addresses name no tensor
            written |= {name for name, mask in found.elements.items() if mask.any()}
            if wanted is not None and wanted.issubset(found):
                break
        return found

    def _simulation(
        self, program: Program | Mir, steps: int | None = None, *, numbers: bool = True
    ) -> Simulation | None:
        try:
            simulation = Simulation(program, numbers=numbers, strict=self.strict)
        except InvalidProgram:
            return None
        if steps is not None:
            simulation.set_options(max_steps=steps)
        return simulation


def _run(simulation: Simulation, inputs: Arrays, most: int | None = None) -> Run:
    groups = list(range(simulation.groups))
    chosen = groups if most is None or len(groups) <= most else [*groups[: most - 1], groups[-1]]
    with np.errstate(all="ignore"):
        return simulation.run(check_inputs(simulation.program, inputs), lambda c: None, chosen)


@dataclass(frozen=True)
class Stores:
    """By tensor, which elements are stored to."""

    elements: Mapping[str, NDArray[np.bool_]]

    def __or__(self, other: Stores) -> Stores:
        both = dict(self.elements)
        for name, mask in other.elements.items():
            both[name] = both[name] | mask if name in both else mask
        return Stores(both)

    def any(self) -> Stores:
        """One element of each tensor that is stored to, the first one."""
        first = {n: np.zeros(mask.shape, bool) for n, mask in self.elements.items()}
        for name, mask in self.elements.items():
            first[name].flat[np.flatnonzero(mask)[:1]] = True
        return Stores(first)

    def issubset(self, other: Stores) -> bool:
        """Whether ``other`` has all of these elements."""
        return all(
            not mask.any() or (name in other.elements and not (mask & ~other.elements[name]).any())
            for name, mask in self.elements.items()
        )


def _numbers(kernel: Program, seed: int, other: Collection[str]) -> dict[str, NDArray[Any]]:
    """Small numbers in floats, so that no sum overflows, in bits that no kernel computes; of
    tensors that do not begin with what the launch says. ``other``: tensors in which every number
    is another one than without."""
    rng = np.random.default_rng(seed)
    found = {}
    for t in kernel.tensors:
        if not t.contents:
            numbers: NDArray[Any] = rng.random(t.shape) + 1 + (t.name in other)
            if t.dtype.kind != "float":
                numbers = (rng.integers(1, 4, t.shape) + (t.name in other)) % 3 + 1
            found[t.name] = numbers.astype(numpy_dtype(t.dtype))
    return found


def _zeros(kernel: Program, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """What tensors that steer a kernel and that it writes, as counters of tiles are, begin with in
    a check."""
    chosen = (t for t in kernel.tensors if t.name in names and not t.contents)
    return {t.name: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in chosen}


def _contents(kernel: Program) -> dict[str, NDArray[Any]]:
    """What tensors begin with of which the launch says it, zeros from there on."""
    return {
        t.name: np.frombuffer(begins_with(kernel, t)[: t.nbytes].ljust(t.nbytes, b"\0"), np.uint8)
        .view(numpy_dtype(t.dtype))
        .reshape(t.shape)
        for t in kernel.tensors
        if t.contents
    }


def _changed(after: NDArray[Any], before: NDArray[Any]) -> NDArray[np.bool_]:
    """By element, whether any of its bytes differs."""
    shape = (*after.shape, after.dtype.itemsize)
    one, other = (np.ascontiguousarray(a).view(np.uint8).reshape(shape) for a in (after, before))
    return np.asarray((one != other).any(axis=-1))


def _ops(program: Program | Mir) -> Iterator[Op]:
    return (what for what in statements(program) if isinstance(what, Op))


def _instructions(program: Program | Mir) -> int:
    """Instructions that move or compute data: none may go."""
    return sum(_works(what) for what in statements(program))


def _works(what: object) -> bool:
    """Whether it moves data: a request of launch control, and decoding its answer, moves none."""
    kinds = (fx.Reads, fx.Writes, fx.RemoteStore, fx.ReadsMap, fx.WritesMap, fx.Issues, fx.UsesTmem)
    if not isinstance(what, Op) or has(what, *_STEERS):
        return False
    return has(what, *kinds)


def _stores_globally(op: Op) -> bool:
    return any(
        isinstance(e, fx.WritesMap) or (isinstance(e, fx.Writes) and e.view.space != "shared")
        for e in op.effects()
    )


def without_waits(program: Program | Mir) -> Program | Mir:
    """The program without waiting: no warp arrives, waits, or meets others but all of the CTA."""
    instead: dict[int, tuple[Op, ...]] = {}
    for place in Facts(program).ops:
        met = has(place, fx.JoinsBarrier) and len(place.warps) == kernel_of(program).warps
        new = (place.op,) if met else tuple(_unblocked(place.op))
        if new != (place.op,):
            instead[place.number] = new
    return edited(program, instead)


def _unblocked(op: Op) -> Iterator[Op]:
    effects = op.effects()
    if isinstance(op, MbarrierArriveExpectTx):
        yield MbarrierExpectTx(mbar=op.mbar, bytes=op.bytes, loc=op.loc)
    elif any(isinstance(e, fx.Waits) for e in effects):
        for effect in effects:
            if isinstance(effect, fx.Defines):
                yield Assign(var=effect.var, value=Const(1), loc=op.loc)
    elif not any(isinstance(e, fx.Arrives) and e.group is None for e in effects) and not any(
        isinstance(e, fx.JoinsBarrier | fx.InvalidatesMbarrier) for e in effects
    ):
        yield op
