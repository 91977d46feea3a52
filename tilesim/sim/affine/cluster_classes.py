"""Follows all clusters of a grid while one of them runs.

Clusters that evaluate everything that steers to the same values take the same steps, in every
schedule: their runs are the one run with other addresses in global memory. So while one cluster
runs, each expression that mentions the CTA is evaluated for all of them, as arrays over the
clusters. A cluster that differs in control flow, a barrier, a shared-memory address, a count, a
lane of a shuffle, or data that may steer leaves the class. Global addresses may differ; what is
accessed there is collected for all clusters of the class and compared later.

Clusters may make different numbers of repetitions (`TripCounts`). A persistent CTA works on sixteen
tiles, its neighbour on fifteen. Where repetitions are skipped (`tilesim.sim.affine`), each cluster
makes as many of them as it makes; what comes after that is the same again, and is followed for all.
So the run of one stands for the others, as if each number of repetitions had been run: these
clusters are distinguished as a run of them would do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.sums import Sums
from tilesim.ir import effects as fx
from tilesim.ir.addresses import GLOBAL_WINDOW
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Switch
from tilesim.ir.op import Computation, Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, fields, replace
from tilesim.sim.affine.cluster_plan import (
    AddressedAccess,
    Integers,
    NamedAccess,
    Plan,
    refuses_negative,
    varies,
    varying_registers,
)
from tilesim.sim.affine.cluster_values import (
    Arrays,
    Mirror,
    Uniform,
    Values,
    computed,
    differs,
    first_of,
    lanes_where,
    of_active,
    places,
)
from tilesim.sim.affine.evaluator import Evaluator, Moving, Result, Uses
from tilesim.sim.affine.footprints import Kind, Mask, Touches, bytes_of, elements_of
from tilesim.sim.machine.assignment_jit import take_apart
from tilesim.sim.machine.expression import Fit, evaluator
from tilesim.sim.machine.footprint import EVERY, Access, Footprint
from tilesim.sim.machine.lanes import FULL, mask_array, shuffled_from
from tilesim.sim.machine.machine import Machine, Step, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.moving_boxes import Box
from tilesim.sim.machine.result import Outcome
from tilesim.sim.machine.unknown import Unknown, plain


@dataclass(frozen=True)
class TripCounts:
    """A jump over repetitions, of which each cluster makes ``more`` than the one that is run, with
    so many ``instructions`` and ``cycles`` each; ``what`` and ``loc`` decide how many."""

    more: Integers
    instructions: int
    cycles: float
    what: str
    loc: Loc

    def only(self, kept: Mask) -> TripCounts:
        """The same, of some of the clusters."""
        return replace(self, more=self.more[kept])


def is_plain(outcome: Outcome) -> bool:
    """Whether a run produced nothing that names a cluster, or that others would have to be run
    for."""
    nothing = Outcome()
    unimportant = ("leaned", "explorable")
    return outcome.explorable and all(
        getattr(outcome, f.name) == getattr(nothing, f.name)
        for f in fields(Outcome)
        if f.name not in unimportant
    )


# --------------------------------------------------------- accesses at addresses into global memory


def surely_inside(program: Program, far: AddressedAccess, addresses: Values) -> bool:
    """Whether all accesses are aligned and into one tensor, found out without looking at each."""
    if type(addresses) is Sums:
        low, high = addresses.limits
    else:
        low, high = int(np.minimum.reduce(addresses, None)), int(np.maximum.reduce(addresses, None))
    number = low // GLOBAL_WINDOW
    if not 0 < number <= len(program.tensors) or high // GLOBAL_WINDOW != number:
        return False
    if high % GLOBAL_WINDOW + far.pieces[-1][1] > program.tensors[number - 1].nbytes:
        return False
    if type(addresses) is Sums:
        return addresses.multiples_of(far.align)
    return not int(np.bitwise_or.reduce(addresses, None)) % far.align


def located(
    program: Program, far: AddressedAccess, addresses: NDArray[np.int64]
) -> tuple[Any, Any]:
    """Per address, a number for the tensor that it is into, and whether the access leaves it.

    What is no address into global memory stands for itself: other memory is looked at by name.
    """
    number = addresses // GLOBAL_WINDOW
    sizes = np.array([0, *(tensor.nbytes for tensor in program.tensors), 0])
    room = sizes[np.clip(number, 0, len(sizes) - 1)]
    beyond = addresses % GLOBAL_WINDOW + far.pieces[-1][1] > room
    return np.where(number > 0, number, addresses), (number > 0) & beyond


def _as_offset(value: Values) -> Values:
    """An offset: sums stay sums, whose lanes lie at the same distances in all clusters."""
    return value if type(value) is Sums else plain(value)


#: evaluated steps that are remembered: so many, of few if these have more clusters altogether
_REMEMBERED, _FEW, _CELLS = 4096, 16, 1 << 21


# -------------------------------------------------------- the clusters that the run is followed for


class Follower(Evaluator):
    """The clusters that take the same steps as the first of ``clusters``, which is run.

    ``same`` says which of the ``clusters`` still do; those that do not are dropped now and then.
    ``departures`` counts, by what they differ in and where, those that do not. ``touches`` are the
    accesses to global tensors that are ``written``, ``far`` those at addresses, in bytes.
    """

    def __init__(
        self, program: Program, plans: Mapping[int, Plan], clusters: Integers, written: Set[str]
    ) -> None:
        self.clusters = clusters
        self.same: Mask = np.ones(len(clusters), dtype=bool)
        self._left = 0  #: how many of them no longer do
        self.departures: dict[tuple[str, Loc], int] = {}
        self.touches: dict[str, Touches] = {}
        self.far: dict[str, Touches] = {}
        #: an access that could not be collected
        self.unseen = ""
        #: where clusters have made different numbers of repetitions
        self.trip_counts: tuple[TripCounts, ...] = ()
        self._program = program
        self._plans = plans
        self._written = written
        self._places = places(program, clusters)
        #: by number of a warp: it, as expressions see it in all clusters
        self.mirrors: dict[int, Mirror] = {}
        #: where the last access was noted, if it differs between clusters by where it lies only
        self.noted: tuple[Touches, Kind, tuple[Box, ...], Integers] | None = None
        self._equal = Arrays()
        #: registers that the instruction at hand sets
        self._pending: list[Result] = []
        #: what it evaluates
        self._current: object = ""

    @property
    def reads(self) -> dict[int, frozenset[int]]:
        """By number of an instruction, the registers in what may differ between clusters there."""
        return {pc: self.used(pc).reads for pc in self._plans}

    @property
    def members(self) -> Integers:
        """The clusters of the class; the one that was run is the first."""
        return self.clusters[self.same]

    def watch(self, machine: Machine) -> None:
        """Makes ``machine``, which runs the first cluster, show what it evaluates."""
        self.mirrors = {w.index: Mirror(w, self._places[w.cta.rank]) for w in machine.warps}
        moving = {id(w): self.mirrors[w.index].registers.differing for w in machine.warps}
        super().__init__(machine, moving)
        steps = list(machine.code)
        take_apart(machine.plan, steps, self._plans)
        self.uniform = Uniform(machine.plan.slots, machine.plan.mir.typing, self._vary)
        for pc in self._plans:
            step, sync, cycles = steps[pc]
            steps[pc] = (self._around(pc, step), sync, cycles)
        machine.code = steps
        machine.races.observer = self

    def _around(self, pc: int, step: Step) -> Step:
        mirrors, plan, uses = self.mirrors, self._plans[pc], self.used(pc)

        def followed(w: Warp) -> bool | None:
            mirror = mirrors[w.index]
            if mirror.uniform.get(pc) == w.mask:
                return step(w)
            if 2 * self._left >= len(self.clusters) > 1 and w.havoc_region is None:
                self._shrink()
            w.machine.look_at_clock()
            if not plan.accesses and self._is_uniform(uses, w, mirror):
                mirror.uniform[pc] = w.mask
                return step(w)
            self.look(pc, w)
            pending, self._pending = self._pending, []
            old = [mirror.registers[slot] for slot, *_ in pending]
            stopped = step(w)
            if w.blocked is None:
                for result, before in zip(pending, old, strict=True):
                    self._keep(plan, w, mirror, result, before)
            return stopped

        return followed

    def _is_uniform(self, uses: Uses, w: Warp, mirror: Mirror) -> bool:
        """Whether all clusters evaluate what the one that runs does, and set the same."""
        return mirror.registers.differing.keys().isdisjoint(uses.sets) and all(
            self.uniform.has(expr, mirror, w.mask) for expr in uses.exprs
        )

    def _shrink(self) -> None:
        """Goes on with those only that still agree."""
        kept = self.same
        self.clusters, self.same, self._left = self.clusters[kept], kept[kept], 0
        self._places = places(self._program, self.clusters)
        self.forget()
        for mirror in self.mirrors.values():
            mirror.shrink(self._places[mirror.cta.rank], kept)
        self.touches = {name: touches.only(kept) for name, touches in self.touches.items()}
        self.far = {name: touches.only(kept) for name, touches in self.far.items()}
        self.trip_counts = tuple(counts.only(kept) for counts in self.trip_counts)

    def part(self, which: Mask) -> Follower:
        """What follows some of the clusters, and has seen what they have accessed so far."""
        other = Follower(self._program, self._plans, self.clusters[which], self._written)
        other.touches = {name: touches.only(which) for name, touches in self.touches.items()}
        other.far = {name: touches.only(which) for name, touches in self.far.items()}
        other.unseen = self.unseen
        return other

    def forget(self) -> None:
        """Forgets what steps evaluated to."""
        self._known.clear()
        self._arrays.clear()
        self._equal.clear()
        self.uniform.forget()

    def move(self, warp: Warp, slot: int, new: Values) -> None:
        """What a register holds from now on in all clusters."""
        mirror = self.mirrors[warp.index]
        if self._vary(new):
            mirror.differ(slot, self._equal.canonical(new))
        else:
            mirror.agree(slot)

    def looks_at(self, registers: Collection[int]) -> bool:
        """Whether all uses of these registers are looked at, so that they may differ."""
        plan = self.machine.plan
        varying = {plan.slots[n] for n in varying_registers(plan.mir) if n in plan.slots}
        looked = frozenset[int]().union(*(self.used(pc).sets for pc in self._plans))
        return varying.issuperset(registers) and looked.issuperset(registers)

    # ------------------------------------------------------------------ which clusters still agree

    def leave(self, different: Mask, what: object, loc: Loc) -> None:
        """Follows these clusters no further, as they differ in something."""
        leaving = int((different & self.same).sum())
        if leaving:
            key = (str(what), loc)
            self.departures[key] = self.departures.get(key, 0) + leaving
            self.same = self.same & ~different
            self._left += leaving

    @property
    def _loc(self) -> Loc:
        """Where the instruction at hand is."""
        return self.machine.plan.mir.code[self.pc].loc

    def _lose(self, what: object) -> None:
        """The others cannot be followed any further."""
        different = np.ones(len(self.clusters), dtype=bool)
        different[0] = False
        self.leave(different, what, self._loc)

    def _agree(self, values: Values, mask: int, what: object) -> None:
        """Those whose values in the active lanes are others leave."""
        if type(values) is Sums and not values.is_uniform:
            self.leave(values.column.shift[:, 0] != 0, what, self._loc)
        if isinstance(values, np.ndarray) and values.ndim == 2:
            here = of_active(values, mask)
            self.leave((here != here[0]).any(axis=1), what, self._loc)

    # ------------------------------------------------------------------ what an instruction does

    def look(self, pc: int, w: Warp) -> None:
        if len(self._known) >= self._remembered or self._equal.count >= self._remembered:
            self.forget()
        try:
            super().look(pc, w)
        except ArithmeticError:
            self._lose(f"{self._current}, which divides by zero in some CTA")
            self._pending = [(slot, 0, w.mask, False) for slot in self.used(pc).sets]

    def _described(self, pc: int) -> Uses:
        plan = self._plans[pc]
        return self._uses_of(
            pc, plan.same, plan.stays, plan.others, places=plan.accesses, pure=plan.moves != "ld"
        )

    def _depends(self, expr: Expr) -> bool:
        return varies(expr, ())

    def _name(self, w: Warp, slot: int, moving: Moving) -> Hashable | None:
        array = moving.get(slot)
        if array is not None:
            self._arrays[id(array)] = array
            return "array", id(array)
        value = w.registers[slot]
        return value if type(value) in (int, float) else None

    def _spins(self, w: Warp, head: int) -> bool:
        return False

    def _value(self, expr: Expr, w: Warp, fit: Fit | None = None) -> Values:
        """What an expression is in all clusters, brought into a type; those leave in which it is
        not known, although it is in the one that runs."""
        self._current, mirror = expr, self.mirrors[w.index]
        evaluate = evaluator(self.machine.plan, expr)
        value = mirror.value(evaluate if fit is None else lambda w: fit(evaluate(w)))
        if type(value) is Unknown and type(evaluate(w)) is not Unknown:
            self._lose(f"a value that is not known, {value}")
        return value

    def _require_fixed(self, expr: Expr, w: Warp, mask: int, moving: Moving) -> None:
        self._agree(self._value(expr, w), mask, expr)

    def _decide(self, cond: Expr, w: Warp, moving: Moving) -> None:
        if isinstance(self.op, Switch):
            self._require_fixed(cond, w, w.mask, moving)
            return
        holds = plain(self._value(cond, w))
        if isinstance(holds, np.ndarray):
            self._agree(holds != 0, w.mask, cond)

    def _with_unknown_guard(self, guard: Expr, w: Warp) -> int:
        return w.mask  # what is executed all the same does nothing but set registers

    def _assigned(self, var: Var, value: Expr, w: Warp, mask: int, moving: Moving) -> Values:
        return self._value(value, w, self._plans[self.pc].fits[0])

    def _computed(self, op: Op, w: Warp, mask: int) -> Sequence[Values]:
        plan = self._plans[self.pc]
        result: Values = 0
        if plan.place is not None:
            self.places = [_as_offset(self._value(expr, w)) for expr in plan.place.offsets]
            self._current = plan.place.tensor.name
            self._inside(plan, plan.place, mask, self.places)
            if plan.moves == "ld":
                result = self._loaded(plan.place, w, self.places)
        if plan.far is not None:
            self.places = [self._addresses(plan.far, w, mask)]
        if isinstance(op, Computation):
            operands = {id(expr): self._value(expr, w) for expr in plan.data}
            known = not any(type(value) is Unknown for value in operands.values())
            if known and any(map(differs, operands.values())):
                return computed(op, plan.fits, operands, len(self.clusters))
        if plan.moves == "shfl.sync":
            result = self._shuffled(op, plan.data[0], plan.data[1], w)
        return (result,) * len(self.used(self.pc).sets)

    def _apply(self, w: Warp, moving: Moving, result: Result) -> None:
        self._pending.append(result)

    def _keep(self, plan: Plan, w: Warp, mirror: Mirror, result: Result, before: Values) -> None:
        """Notes what a register that has been set holds in all clusters."""
        slot, found, mask, _ = result
        new = w.registers[slot]
        if type(new) is Unknown:  # a use of it ends the run
            mirror.agree(slot)
            return
        if differs(found):
            new = found
        every = plan.moves == "mov" and slot in w.machine.plan.private
        # lanes that are agents of their own may be in another turn of the loop
        every = every and not w.machine.split_groups
        merges = mask != FULL and before is not None and not every
        if merges and (differs(new) or differs(before)):
            new = np.where(mask_array(mask), plain(new), plain(before))
        if not differs(new) or not self._vary(new):
            mirror.agree(slot)
            return
        mirror.differ(slot, self._equal.canonical(new))
        different = plain(w.registers[slot]) != new[0]
        if (different if mask == FULL else np.broadcast_to(different, 32)[mask_array(mask)]).any():
            self._lose(f"a register set at {self._loc}")

    def _vary(self, values: Values) -> bool:
        """Whether not all that take the same steps have the same."""
        own = values[self.same] if self._left else values
        if type(own) is Sums:
            return not own.is_uniform
        return bool((own[:, 0] != own[0, 0]).any() or (own != own[0]).any())

    @property
    def _remembered(self) -> int:
        """How many evaluated steps and arrays are remembered."""
        return max(_FEW, min(_REMEMBERED, _CELLS // len(self.clusters)))

    def _shuffled(self, op: Op, expr: Expr, lane: Expr, w: Warp) -> Values:
        """The values of other lanes: where from is the same in all clusters by now."""
        value = self._value(expr, w)
        if not differs(value):
            return value
        mode = next(e.mode for e in op.effects() if isinstance(e, fx.Shuffles))
        source = shuffled_from(mode, first_of(self._value(lane, w)))
        return np.broadcast_to(plain(value), (len(value), 32))[:, source]

    # ------------------------------------------------------------------ global memory

    def _inside(self, plan: Plan, place: NamedAccess, mask: int, offsets: list[Values]) -> None:
        """Those that leave the tensor where the one that runs does not are run for themselves."""
        where = f"offsets into {place.tensor.name}"
        if place.map is not None:
            if refuses_negative(self.op):
                for offset in offsets:
                    self._agree(plain(offset) < 0, mask, where)
            if place.tracked:
                lows, highs = self._cut(place, offsets, mask)
                self._agree((highs <= lows).any(axis=1, keepdims=True), FULL, where)
        else:
            limits = zip(offsets, place.extents, place.tensor.shape, strict=True)
            for offset, extent, limit in limits:
                if (
                    type(offset) is Sums
                    and 0 <= offset.limits[0] <= offset.limits[1] <= limit - extent
                ):
                    continue
                if differs(offset):
                    value = plain(offset)
                    outside = (value < 0) | (value + extent > limit)
                    self._agree(outside, mask, where)
        if place.aligned and any(map(differs, offsets)):
            strides = place.tensor.byte_strides
            address = sum(plain(v) * s for v, s in zip(offsets, strides, strict=True))
            if place.map is None:
                self._agree(address % 16, mask, f"the alignment of {where}")
        if place.decides and plan.moves != "ld" and any(map(differs, offsets)):
            self._lose(f"the contents of {place.tensor.name}")

    def _addresses(self, far: AddressedAccess, w: Warp, mask: int) -> Values:
        """Addresses in all clusters; those that lie in other memory than in the one that runs, or
        outside of it, are run for themselves."""
        what = far.address
        if far.real is not None and not far.written:
            mask = lanes_where(evaluator(self.machine.plan, far.real)(w), mask)
            if not mask:
                return None
        value = self._value(what, w)
        if not differs(value):
            return value
        if value.dtype == object:
            if any(v >> 63 for v in value.ravel().tolist()):
                self._lose(what)
                return value[0]
            value = value.astype(np.int64)
        if not surely_inside(self._program, far, value):
            value = plain(value)
            memory, outside = located(self._program, far, value)
            self._agree(memory, mask, what)
            self._agree(outside, mask, what)
            self._agree(value % far.align, mask, f"the alignment of {what}")
        if far.decides:
            self._lose(f"the contents at {what}")
        return value

    def _loaded(self, place: NamedAccess, w: Warp, offsets: list[Values]) -> Values:
        """What all clusters load from a tensor whose contents were given."""
        if not place.decides or not any(map(differs, offsets)):
            return 0
        if place.tracked:
            self._lose(f"the contents of {place.tensor.name}")
            return 0
        memory = w.machine.globals.memories[place.tensor.name]
        dtype = place.tensor.dtype
        sizes = zip(offsets, place.tensor.shape, place.tensor.byte_strides, strict=True)
        address = sum(np.clip(plain(v), 0, n - 1) * s for v, n, s in sizes)
        places = ByteSet.pieces(np.ravel(address), dtype.bytes)
        if memory.marks is not None and memory.marks.first_in(places) is not None:
            self._lose(f"the contents of {place.tensor.name}, which are not known")
            return 0
        values = memory.typed(dtype)[address // dtype.bytes]
        floating = values.dtype.kind in "fV"
        return values.astype(np.float64 if floating else np.int64)

    def _cut(
        self, place: NamedAccess, offsets: list[Values], mask: int
    ) -> tuple[Integers, Integers]:
        """First and last element of the box of a tensor map in each dimension, for all clusters:
        (clusters, dimensions)."""
        assert place.map is not None
        shape = (len(self.clusters), len(offsets))
        lows, highs = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        steps = place.map.element_strides or (1,) * len(offsets)
        sizes = zip(offsets, place.extents, steps, place.tensor.shape, strict=True)
        for d, (value, count, step, limit) in enumerate(sizes):
            start = self._column(value, mask)
            first = np.where(start < 0, np.maximum(0, -(start // step)), 0)
            last = np.where(start < limit, np.minimum(count, -(-(limit - start) // step)), 0)
            lows[:, d] = start + first * step
            highs[:, d] = np.maximum(lows[:, d], start + (last - 1) * step + 1)
            highs[last <= first, d] = lows[last <= first, d]
        return lows, highs

    def _column(self, value: Values, mask: int) -> Integers:
        """One value per cluster, of the first active lane."""
        lane = (mask & -mask).bit_length() - 1
        if type(value) is Sums:
            return value.of_lane(lane)
        if isinstance(value, np.ndarray):
            value = value[..., lane if value.shape[-1] == 32 else 0]
        return np.broadcast_to(value, len(self.clusters)).astype(np.int64)

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """The machine accesses a global tensor: noted if the kernel writes it. What the others
        access lies as far from that as their operands do."""
        self.noted = None
        if memory.label not in self._written:
            return
        op, mask = access.op, access.warp.mask
        kind = Kind(op, access.write, access.scope, access.asynchronous)
        if access.may_access is not None and access.among == EVERY:  # anywhere in the tensor
            span = footprint.bytes.low, footprint.bytes.high
            still = np.zeros((len(self.clusters), 1), dtype=np.int64)
            self._in_bytes(memory).add(kind, ((span,),), still)
            return
        plan = self._plans.get(self.pc) if op is self.op and self.places else None
        offsets = self.places
        if plan is not None and plan.far is not None and plan.far.moves:
            by = self._moves(offsets, mask, plan.far.address)
            self._note(self._in_bytes(memory), kind, bytes_of(footprint), by)
            return
        place = None if plan is None else plan.place
        if plan is None or place is None or place.tensor.name != memory.label:
            where = ", ".join(op.loc.chain)
            self.unseen = f"what {op.mnemonic} accesses in {memory.label} ({where})"
            return
        own, touches = elements_of(footprint), self.touches.setdefault(memory.label, Touches())
        if place.map is not None:
            lows, highs = self._cut(place, offsets, mask)
            by, sizes = lows - lows[0], highs - lows
            if not (sizes == sizes[0])[self.same].all():  # some are cut off
                box = tuple(zip(lows[0].tolist(), highs[0].tolist(), strict=True))
                touches.add(kind, (box,), by, more=sizes - sizes[0])
                return
        else:
            by = self._moves(offsets, mask, f"offsets into {place.tensor.name}")
        if own is None:
            strides = np.array(place.tensor.byte_strides, dtype=np.int64)
            own, touches = bytes_of(footprint), self._in_bytes(memory)
            by = (by * strides).sum(axis=1, keepdims=True)
        self._note(touches, kind, own, by)

    def _in_bytes(self, memory: Memory) -> Touches:
        return self.far.setdefault(memory.label, Touches())

    def _note(self, touches: Touches, kind: Kind, own: tuple[Box, ...], by: Integers) -> None:
        touches.add(kind, own, by)
        self.noted = touches, kind, own, by

    def _moves(self, operands: list[Values], mask: int, what: object) -> Integers:
        """How much further operands are than in the cluster that runs: (clusters, operands). Those
        leave in which they are not as much further in all lanes."""
        if len(operands) == 1 and type(operands[0]) is Sums:
            return operands[0].column.shift
        found = []
        for value in operands:
            first = self._column(value, mask)
            if type(value) is not Sums and differs(value):
                self._agree(of_active(value, mask) - first[:, None], FULL, what)
            found.append(first - first[0])
        return np.stack(found, axis=1)


# ------------------------------------------------------- clusters with other numbers of repetitions


@dataclass(frozen=True)
class OtherTripCount:
    """Clusters that a run stands for although it made other numbers of repetitions: what follows
    them, and how many instructions and cycles they take more."""

    follower: Follower
    instructions: int
    cycles: float


def by_trip_count(follower: Follower) -> list[OtherTripCount]:
    """The clusters of a class that have made other numbers of repetitions than the one that ran.

    ``follower`` follows only those from now on that have made as many.
    """
    trip_counts, follower.trip_counts = follower.trip_counts, ()
    if not trip_counts:
        return []
    own, *others = _groups(trip_counts, follower.same)
    found = [_other(follower, which, trip_counts) for which in others]
    what, loc = trip_counts[0].what, trip_counts[0].loc
    for number, other in enumerate(found):
        left = sum(map(np.count_nonzero, others[number + 1 :]))
        if left:
            other.follower.departures[what, loc] = int(left)
    follower.leave(~own, what, loc)
    return found


def _groups(trip_counts: tuple[TripCounts, ...], same: Mask) -> list[Mask]:
    """Those with the same numbers of repetitions, in the order of the first of each; the first that
    takes the same steps at all is the one that was run."""
    more = np.stack([counts.more for counts in trip_counts], axis=1)
    members = np.flatnonzero(same)
    _, first, names = np.unique(more[members], axis=0, return_index=True, return_inverse=True)
    groups = []
    for name in np.argsort(first).tolist():
        which = np.zeros(len(same), dtype=bool)
        which[members[names.ravel() == name]] = True
        groups.append(which)
    return groups


def _other(follower: Follower, which: Mask, trip_counts: tuple[TripCounts, ...]) -> OtherTripCount:
    own = int(np.flatnonzero(which)[0])
    more = [(int(counts.more[own]), counts) for counts in trip_counts]
    return OtherTripCount(
        follower.part(which),
        sum(n * counts.instructions for n, counts in more),
        sum(n * counts.cycles for n, counts in more),
    )


# ------------------------------------------------------------------ a run that is made again


def checkpoint(follower: Follower) -> Callable[[], None]:
    """A function that makes a follower forget what it has seen since now."""
    state = copy(vars(follower))
    state["departures"] = dict(follower.departures)
    whole = np.ones(len(follower.clusters), dtype=bool)
    for name in ("touches", "far"):
        state[name] = {key: touches.only(whole) for key, touches in state[name].items()}

    def restore() -> None:
        vars(follower).update(state)

    return restore
