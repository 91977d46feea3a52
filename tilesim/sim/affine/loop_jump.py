"""Repetitions are skipped: what they access, what registers hold after them, what was counted."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.records import dataclass
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.cluster_plan import Integers
from tilesim.sim.affine.cluster_values import moved
from tilesim.sim.affine.evaluator import Register, flat
from tilesim.sim.affine.loop_period import Watched
from tilesim.sim.affine.loop_places import Moved
from tilesim.sim.affine.shifts import Later, NoShift, Shift, is_moving
from tilesim.sim.machine.expression import plain
from tilesim.sim.machine.footprint import Footprint, Past
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.moving_boxes import Course, Family, may_conflict

#: repetitions at once in which places are computed one by one, accesses of other clusters that are
#: noted one by one, and families of accesses to one tensor
_COMPUTED, _NOTED, _FAMILIES = 2048, 1 << 15, 64


@dataclass
class Jump:
    """So many repetitions that can be skipped, with what they access in global memory.

    ``each``: in each cluster that the machine stands for, if these are not ``times`` in all.
    """

    machine: Machine
    watched: Watched
    times: int
    follower: Follower | None
    each: Integers | None
    #: by access that moves: how far, (1 + times, clusters, dimensions), if that is listed
    listed: dict[int, Any]
    families: list[tuple[Memory, Past]]
    #: what registers hold in the end that do not move by a shift, in all clusters
    ends: dict[Register, NDArray[Any]]

    @classmethod
    def over(
        cls, machine: Machine, watched: Watched, times: int, follower: Follower | None
    ) -> Jump:
        """The longest jump over at most so many repetitions, the same in all clusters.

        Raises:
            NoShift: accesses of different repetitions may conflict, or are too many.
        """
        same = None if follower is None else follower.same
        if watched.later or any(isinstance(s, Later) for s in watched.moving.values()):
            times = min(times, _COMPUTED)
        for way in watched.later if times else ():
            stays = way.inside(times)
            times = min(times, int((stays if same is None else stays[same]).min()))
            if not times:
                break
        jump = cls(machine, watched, times, follower, None, {}, [], {})
        if times:
            jump._find()
        return jump

    @classmethod
    def apart(cls, machine: Machine, watched: Watched, follower: Follower) -> Jump | None:
        """A jump in which each cluster makes as many repetitions as it can; None if that may not
        be: all that then differs has to be looked at."""
        limits = watched.values.limits
        if type(limits) is int or not limits[0] or int(limits.max()) > _COMPUTED:
            return None
        each = np.full(len(follower.clusters), limits[0], dtype=np.int64)
        each[follower.same] = limits
        moving = {slot for (_, slot), shift in flat(watched.moving).items() if is_moving(shift)}
        if (each == each[0]).all() or not follower.looks_at(moving):
            return None
        try:
            most = int(each.max())
            if any((way.inside(most) < each)[follower.same].any() for way in watched.later):
                return None
            jump = cls(machine, watched, int(each[0]), follower, each, {}, [], {})
            jump._find()
        except NoShift:
            return None
        return jump

    def _find(self) -> None:
        for key, shift in flat(self.watched.moving).items():
            if isinstance(shift, Later):
                self.ends[key] = self._at_the_end(shift)
        self._list()
        self._gather()
        self._require_apart()

    def _at_the_end(self, shift: Later) -> NDArray[Any]:
        """What a register holds in the end, in all clusters."""
        last = [self.times] if self.each is None else self.each
        many, which = np.unique(last, return_inverse=True)
        values = shift.at(many)
        values = values.reshape(len(many), -1, values.shape[-1])
        ends: NDArray[Any] = values[which.ravel(), np.arange(values.shape[1])]
        return ends

    @property
    def most(self) -> int:
        """How many repetitions any cluster makes."""
        return self.times if self.each is None else int(self.each.max())

    # ------------------------------------------------------------------ what is accessed

    def _list(self) -> None:
        moved = self.watched.touched.moved
        for number, access in enumerate(moved):
            if self.follower is not None or any(way.later for way in access.ways):
                if self.most * len(moved) > _NOTED:
                    raise NoShift("too many places in global memory")
                self.listed[number] = self._further(access, access.memory.table.by_element)

    def _further(self, access: Moved, by_element: bool) -> Any:
        """How much further it lies in each repetition, in elements or in bytes:
        (1 + most, clusters, dimensions)."""
        many = np.arange(1, self.most + 1, dtype=np.int64)
        clusters = 1 if self.follower is None else len(self.follower.clusters)
        tensor = next(t for t in self.machine.program.tensors if t.name == access.memory.label)
        shape = self.most + 1, clusters, len(tensor.shape) if by_element else 1
        result = np.zeros(shape, dtype=np.int64)
        for way in access.ways:
            further = way.further(many)
            if by_element:
                result[1:, :, way.free.dim] += further
            else:
                result[1:, :, 0] += further * way.free.stride
        return result

    def _gather(self) -> None:
        """Accesses of the same kind to the same bytes are one family."""
        known: dict[tuple[Footprint, Course, bool], list[int]] = defaultdict(list)
        moved = self.watched.touched.moved
        for number, access in enumerate(moved):
            course = self._course(number, access)
            known[access.footprint, course, access.access.write].append(number)
        for (_, course, write), numbers in known.items():
            first = moved[numbers[0]]
            family = Family(*first.memory.table.corners(first.footprint), course, write)
            accesses = tuple(moved[n].access for n in numbers)
            self.families.append((first.memory, Past(family, accesses)))

    def _course(self, number: int, access: Moved) -> Course:
        """How an access moves in the cluster that is run."""
        table = access.memory.table
        iteration = [0] * table.corners(access.footprint)[0].shape[1]
        still = tuple(iteration)
        if any(way.later for way in access.ways):
            own = self.listed[number][: self.times + 1, 0].tolist()
            return Course(still, still, self.times, tuple(map(tuple, own)))
        for way in access.ways:
            if table.by_element:
                iteration[way.free.dim] += way.by
            else:
                iteration[0] += way.by * way.free.stride
        return Course(tuple(iteration), still, self.times)

    def _require_apart(self) -> None:
        """No access conflicts with one of another repetition, or with one from before."""
        own = {m.footprint for m in self.watched.touched.moved}
        by_memory: dict[Memory, list[Family]] = defaultdict(list)
        for memory, past in self.families:
            by_memory[memory].append(past.family)
        for memory, families in by_memory.items():
            table = memory.table
            others = [f for f in table.recorded if f not in own or f in self.watched.touched.still]
            before = [past.family for past in table.past]
            for write in (False, True):
                near = [table.corners(f) for f in others if bool(f.writes) is write]
                if near:
                    lows, highs = (np.concatenate(c) for c in zip(*near, strict=True))
                    before.append(Family.at_rest(lows, highs, write=write))
            apart = len(table.past) + len(families) <= _FAMILIES
            apart = apart and not may_conflict(families)
            if not apart or any(
                one.meets(other) for one in families for other in before
                if one.write or other.write
            ):  # fmt: skip
                raise NoShift(f"accesses to {memory.label} of different turns, which may meet")

    # ------------------------------------------------------------------ the jump

    def make(self) -> None:
        """Skips the repetitions."""
        for m in self.watched.touched.moved:
            m.footprint.writes[:] = [r for r in m.footprint.writes if r is not m.access]
            for key in [k for k, r in m.footprint.reads.items() if r is m.access]:
                del m.footprint.reads[key]
        for memory, past in self.families:
            memory.table.past.append(past)
        places = self.watched.touched.places()
        for memory in self.machine.globals.memories.values():
            table = memory.table
            table.skipped |= bool(table.past) or any(f not in places for f in table.recorded)
        if self.follower is not None:
            self._note(self.follower)
        self._move()

    def _note(self, follower: Follower) -> None:
        """What the other clusters access meanwhile."""
        moved = self.watched.touched.moved
        ways = []
        for access in moved:
            touches = access.noted[0]
            far = any(touches is other for other in follower.far.values())
            ways.append(self._further(access, by_element=not far))
        for k in range(1, self.most + 1):
            where = None if self.each is None or (self.each >= k).all() else self.each >= k
            for access, further in zip(moved, ways, strict=True):
                touches, kind, boxes, by = access.noted
                own = further[k, 0].tolist()
                moved_boxes = tuple(
                    tuple((a + s, b + s) for (a, b), s in zip(box, own, strict=True))
                    for box in boxes
                )
                touches.add(kind, moved_boxes, by + further[k] - further[k, 0], where)

    def _move(self) -> None:
        """Registers hold what they will hold."""
        machine, follower = self.machine, self.follower
        warps = {id(w): w for w in (*machine.warps, *machine.split_groups)}
        for (identity, slot), shift in flat(self.watched.moving).items():
            if not is_moving(shift):
                continue
            warp = warps.get(identity)
            if warp is None:
                continue  # lanes that have met the others since had the registers of their warp
            # what they held when a turn began matters to tell one that did nothing
            now = warp.effects, machine.version
            idle = (lap for lap in warp.laps.values() if (lap.effects, lap.version) == now)
            for registers in (warp.registers, *(lap.registers for lap in idle)):
                if not isinstance(shift, Later) and registers[slot] is not None:
                    registers[slot] = _further(registers[slot], self.times * shift)
            if follower is not None:
                self._move_all(follower, warp, slot, shift)
            if isinstance(shift, Later):
                own = self.ends[identity, slot][0]
                warp.registers[slot] = own.item() if len(own) == 1 else own.copy()

    def _move_all(self, follower: Follower, warp: Warp, slot: int, shift: Shift) -> None:
        """A register of all clusters; that of the one that runs has moved already, by a shift."""
        differing = follower.mirrors[warp.index].registers.differing
        if isinstance(shift, Later):
            follower.move(warp, slot, self.ends[id(warp), slot])
        elif self.each is not None and warp.registers[slot] is not None:
            own = warp.registers[slot]
            before = differing.get(slot, np.atleast_1d(own - self.times * shift)[None])
            follower.move(warp, slot, plain(before) + self.each[:, None] * np.atleast_1d(shift))
        elif slot in differing:
            by, before = self.times * shift, differing[slot]
            after = _further(plain(before), by) if _is_far(by) else moved(before, by)
            follower.move(warp, slot, after)


def _further(values: Any, by: Any) -> Any:
    """What a register holds after it has moved: it stays in the range of its type, but what it has
    moved by may be no number of 64 bits."""
    if _is_far(by) and isinstance(values, np.ndarray):
        return (values.astype(object) + by).astype(values.dtype)
    return values + by


def _is_far(by: Any) -> bool:
    return type(by) is int and abs(by) >= 1 << 63
