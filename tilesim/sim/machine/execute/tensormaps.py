"""Tensor maps that lie in memory: fences of their proxy, and what copies read there (B14)."""

from __future__ import annotations

from collections.abc import Callable

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.types import Direction
from tilesim.ir import effects as fx
from tilesim.ir.addresses import GLOBAL_WINDOW
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.op import Op
from tilesim.ir.tensormap import NBYTES, USED, MapFields, decoded, fields_at
from tilesim.records import dataclass
from tilesim.sim.machine.compose import Act, each_lane, executor
from tilesim.sim.machine.errors import BarrierError
from tilesim.sim.machine.footprint import EVERY, Access, Footprint
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.observers.tensormap_proxy import place_of


@executor(fx.ReleasesMaps)
def _releases(c: Operands, op: Op, effect: fx.ReleasesMaps) -> Act:
    scope = effect.scope
    view = None if effect.view is None else c.view(effect.view)

    def step(w: Warp) -> None:
        place = None if view is None else place_of(view.memory(w), view.footprint(w))
        w.machine.races.maps.release(w, scope, place)

    return Act(step)


@executor(fx.AcquiresMap)
def _acquires(c: Operands, op: Op, effect: fx.AcquiresMap) -> Act:
    view, scope = c.view(effect.view), effect.scope

    def step(w: Warp) -> None:
        if not w.machine.options.ptx and view.is_null(w):
            w.machine.lean("B14", op)
            return
        memory = view.memory(w)
        if memory.mbarriers is not None:
            raise BarrierError(
                "out-of-bounds",
                f"{op.mnemonic} of {w} on a tensor map in shared memory (B14)",
                "acquire the map that copies use, which is in global memory",
            )
        w.machine.races.maps.acquire(w, scope, place_of(memory, view.footprint(w)))

    return Act(each_lane(step))


@dataclass(frozen=True, slots=True)
class MapInMemory:
    """The bytes that one copy takes its tensor map from, and what they say."""

    memory: Memory
    footprint: Footprint
    fields: MapFields

    def read(
        self, w: Warp, op: Op, place: tuple[int, int], also: tuple[int, int] | None = None
    ) -> Access:
        """Records that the copy reads its map, until it completes at ``place``, or ``also``."""
        access = Access(w, op, *place, False, False, lanes=w.mask, among=EVERY, also=also)
        races = w.machine.races
        races.read(self.memory, self.footprint, access, w.clock)
        races.maps.check(self.footprint, place_of(self.memory, self.footprint), access, w.clock)
        return access


def map_reader(
    c: Operands, op: Op, at: View, declared: TensorMap, direction: Direction | None
) -> Callable[[Warp], MapInMemory]:
    """Reads the tensor map of a copy from where it lies, as it is now: a write of it before the
    copy has read it races.

    Raises:
        BarrierError: when it reads: the bytes are no map, or one of another tensor.
    """
    view, rank = c.view(at), declared.dimensions

    def read(w: Warp) -> MapInMemory:
        memory, footprint = view.memory(w), view.footprint(w)
        fields = fields_of(w, memory, footprint)
        if rank != len(fields.dims):
            raise BarrierError(
                "out-of-bounds",
                f"{op.mnemonic} of {w} is for maps of rank {rank}, the tensor map at "
                f"{footprint.name} has {len(fields.dims)} (B14)",
                "use a map of the instruction's rank",
            )
        return MapInMemory(memory, footprint, fields)

    def fields_of(w: Warp, memory: Memory, footprint: Footprint) -> MapFields:
        what = f"{op.mnemonic} of {w} through the tensor map at {footprint.name}"
        low = footprint.bytes.low
        if low % NBYTES:
            raise BarrierError(
                "out-of-bounds", f"{what}, which is not {NBYTES}-byte aligned (B14)",
                "align the map",
            )  # fmt: skip
        used = ByteSet.interval(low, low + USED)
        lost = None if memory.marks is None else memory.marks.first_in(used)
        if lost is not None:
            raise UnknownSteers(lost.read_by(op.mnemonic, op.loc))
        data = memory.data[low : low + NBYTES]
        try:
            numbers = decoded(data)
        except KeyError as missing:
            raise BarrierError(
                "uninitialised-read", f"{what}, whose {missing.args[0]} was never set (B14)",
                "begin with a whole map (tensormap.copy), or replace every field of it",
            ) from None  # fmt: skip
        number, offset = divmod(numbers["global_address"][0], GLOBAL_WINDOW)
        tensors = w.machine.program.tensors
        if not 1 <= number <= len(tensors):
            raise BarrierError(
                "out-of-bounds", f"{what}, whose global_address {offset:#x} is in no tensor (B14)",
                "put the address of a tensor in global memory into the map",
            )  # fmt: skip
        name = tensors[number - 1].name
        if all(name != tensor.name for tensor in declared.tensors):
            of = " or ".join(tensor.name for tensor in declared.tensors)
            raise BarrierError(
                "unsupported",
                f"{what}: its global_address is in {name}, but {declared.name}, which says "
                f"what is copied, is a map of {of}",
                f"use a tensor map that is declared over {name}",
            )
        try:
            return fields_at(
                numbers, name, offset, declared, direction,
                w.machine.program.target.name,
            )  # fmt: skip
        except ValueError as wrong:
            fix = "the fields are what cuTensorMapEncodeTiled accepts"
            raise BarrierError("out-of-bounds", f"{what}: {wrong}", fix) from None

    return read
