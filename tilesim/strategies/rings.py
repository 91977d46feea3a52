"""Rings of stages between producers and consumers in one CTA, correct by construction."""

from __future__ import annotations

from typing import Literal

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.ir.declarations import Fragment, GlobalTensor, SharedTensor, ds
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program
from tilesim.lib.pipeline import Pipeline, Slot
from tilesim.records import dataclass

ROWS, COLUMNS = 8, 32

Filling = Literal["tensor", "bulk", "store"]
Arrival = Literal["lane", "warp"]


@dataclass(frozen=True)
class Ring:
    """Parameters of a ring.

    ``filling``: stages are filled by TMA, by bulk copies, or by stores of a whole warp.
    ``producers`` take the items in turn and must divide ``stages``. ``operands`` are filled per
    item, all on one full barrier or (``split``) on one each. ``release``: consumers arrive with one
    lane or with the whole warp. ``chained``: a middle warp negates every item on its way through a
    second ring. ``stored``: consumers write results by bulk stores. ``tiles`` of ``trips`` items,
    phases carried on.
    """

    stages: int = 2
    trips: int = 3
    tiles: int = 1
    filling: Filling = "tensor"
    producers: int = 1
    operands: int = 1
    split: bool = False
    consumers: int = 1
    release: Arrival = "lane"
    chained: bool = False
    stored: bool = False

    @property
    def items(self) -> int:
        """Items over all tiles."""
        return self.tiles * self.trips

    def build(self) -> Program:
        """The program."""
        return _Ring(self).program()


class _Ring:
    """One ring in the making."""

    def __init__(self, spec: Ring) -> None:
        self.spec = spec
        middle = 1 if spec.chained else 0
        warps = spec.producers + middle + spec.consumers
        self.k = k = Builder("ring", "sm_90a", warps)
        rows = ROWS * max(1, spec.items)
        self.inputs: list[GlobalTensor] = [
            k.tensor(f"in{o}", f32, (rows, COLUMNS)) for o in range(spec.operands)
        ]
        self.maps = [k.tensor_map(t, (ROWS, COLUMNS)) for t in self.inputs]
        self.out: GlobalTensor = k.tensor("out", f32, (spec.consumers, rows, COLUMNS))
        shape = (spec.stages, ROWS, COLUMNS)
        self.slots: list[SharedTensor] = [
            k.shared(f"stage{o}", f32, shape) for o in range(spec.operands)
        ]
        self.fragment: Fragment = k.fragment("part", f32, (ROWS, COLUMNS))
        weight = 32 if spec.release == "warp" else 1
        readers = 1 if spec.chained else spec.consumers
        names = [f"ring{o}" for o in range(spec.operands)] if spec.split else ["ring"]
        self.rings = [
            Pipeline(k, spec.stages, name=name, consumers=readers * weight) for name in names
        ]
        if spec.chained:
            self.second = k.shared("second", f32, shape)
            self.rings.append(
                Pipeline(k, spec.stages, name="chain", consumers=spec.consumers * weight)
            )
        if spec.stored:
            self.results = k.shared("results", f32, (spec.consumers, ROWS, COLUMNS))

    def program(self) -> Program:
        """Opens the barriers and writes every role."""
        k, spec = self.k, self.spec
        with k.one_thread():
            for ring in self.rings:
                ring.init()
        k.sync_threads()
        for producer in range(spec.producers):
            with k.role(f"producer{producer}", producer):
                self._each(lambda item, p=producer: self._produce(item, p))
        if spec.chained:
            with k.role("middle", spec.producers):
                self._each(self._pass_on)
        first = spec.producers + (1 if spec.chained else 0)
        with k.role("consumer", range(first, first + spec.consumers)):
            self._each(lambda item: self._consume(item, k.warp_id - first))
            if spec.stored:
                with k.elected():
                    k.bulk.wait_group(0)
        return k.finish()

    def _each(self, body: object) -> None:
        """A loop over all items, numbered on across tiles."""
        k, spec = self.k, self.spec
        assert callable(body)
        if spec.tiles == 1:
            with k.loop(spec.trips) as i:
                body(i)
            return
        with k.loop(spec.tiles, name="tile") as tile, k.loop(spec.trips) as i:
            body(tile * spec.trips + i)

    # ------------------------------------------------------------------ roles

    def _produce(self, item: Expr, producer: int) -> None:
        if self.spec.producers == 1:
            self._fill(item)
            return
        with self.k.if_((item % self.spec.producers).eq(producer)):
            self._fill(item)

    def _inputs_of(self, ring: int) -> range:
        """The operands whose copies complete on a ring's full barrier."""
        return range(ring, ring + 1) if self.spec.split else range(self.spec.operands)

    def _first_rings(self) -> list[Pipeline]:
        return self.rings[: len(self.rings) - 1] if self.spec.chained else self.rings

    def _fill(self, item: Expr) -> None:
        k = self.k
        for number, ring in enumerate(self._first_rings()):
            slot, operands = ring[item], self._inputs_of(number)
            if self.spec.filling == "store":
                self._store(item, slot, operands)
                continue
            with k.elected():
                slot.acquire()
                slot.commit(len(operands) * self.slots[0][0].nbytes)
                for o in operands:
                    self._copy(item, slot, o)

    def _copy(self, item: Expr, slot: Slot, o: int) -> None:
        k, target = self.k, self.slots[o][slot.stage]
        if self.spec.filling == "tensor":
            k.tma.load(self.maps[o], target, (item * ROWS, 0), slot.full)
        else:
            k.bulk.load(target, self.inputs[o][ds(item * ROWS, ROWS)], slot.full)

    def _store(self, item: Expr, slot: Slot, operands: range) -> None:
        k = self.k
        slot.acquire()
        for o in operands:
            k.tile.load(self.fragment, self.inputs[o][ds(item * ROWS, ROWS), :])
            k.tile.store(self.slots[o][slot.stage], self.fragment)
        k.sync_warp()
        with k.elected():
            slot.commit()

    def _pass_on(self, item: Expr) -> None:
        k, target = self.k, self.rings[-1][item]
        target.acquire()
        for number, ring in enumerate(self._first_rings()):
            slot = ring[item]
            slot.wait()
            for o in self._inputs_of(number):
                k.tile.load(self.fragment, self.slots[o][slot.stage])
            self._release(slot)
        k.tile.map(self.fragment, "neg", self.fragment)
        k.tile.store(self.second[target.stage], self.fragment)
        k.sync_warp()
        with k.elected():
            target.commit()

    def _consume(self, item: Expr, consumer: Expr) -> None:
        k, spec = self.k, self.spec
        if spec.chained:
            slot = self.rings[-1][item]
            slot.wait()
            k.tile.load(self.fragment, self.second[slot.stage])
            self._release(slot)
        else:
            for number, ring in enumerate(self.rings):
                slot = ring[item]
                slot.wait()
                for o in self._inputs_of(number):
                    k.tile.load(self.fragment, self.slots[o][slot.stage])
                self._release(slot)
        target = self.out[consumer, ds(item * ROWS, ROWS), :]
        if not spec.stored:
            k.tile.store(target, self.fragment)
            return
        with k.elected():
            k.bulk.wait_group(0, read=True)
        k.sync_warp()
        k.tile.store(self.results[consumer], self.fragment)
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            k.bulk.store(target, self.results[consumer])
            k.bulk.commit_group()

    def _release(self, slot: Slot) -> None:
        k = self.k
        if self.spec.release == "warp":
            slot.release()
            return
        k.sync_warp()
        with k.elected():
            slot.release()
