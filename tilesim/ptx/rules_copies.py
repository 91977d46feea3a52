"""Rules for copies with tensor maps, and for what is irregular in other asynchronous copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from tilesim.ir.addresses import view_at
from tilesim.ir.expr import Expr, select
from tilesim.ir.memory import TensorMap, View
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import ReduceOp
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.ops.tma import TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from tilesim.ptx.flat import At, Flat, Items, Not, Register, Step, Symbol
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.spelled import spelled

_HINT = "L2::cache_hint"
_BYTES = "mbarrier::complete_tx::bytes"
_MULTICAST = "multicast::cluster"


@rule("cp.async.ca", "cp.async.cg")
def _cp_async(low: Lowering, step: Step) -> Iterator[Op]:
    """The last operand may be a predicate instead of a number: with it nothing is read."""
    ignored = [o for o in step.operands[3:] if _is_predicate(o)]
    rest = tuple(o for o in step.operands if o not in ignored)
    for op in spelled(low, replace(step, operands=rest)) or ():
        if isinstance(op, CpAsync) and ignored:
            some = select(low.value(ignored[0], 1), 0, op.size)
            yield replace(op, src_bytes=some)
        else:
            yield op


def _is_predicate(operand: Flat) -> bool:
    return isinstance(operand, Not) or (isinstance(operand, Register) and operand.type == "pred")


# ---------------------------------------------------------------------- tensor copies


def _map(low: Lowering, operand: Flat) -> tuple[TensorMap, tuple[Expr, ...]]:
    """The tensor map and the coordinates, in the order of the tensor's shape."""
    if not isinstance(operand, At) or not operand.rest:
        raise low.unsupported("a tensor map with coordinates is expected")
    place = operand.base if isinstance(operand.base, Symbol) else None
    if isinstance(operand.base, Register):
        place = low.constants.parameter(operand.base)
    if place is None or place.variable.space != "param":
        raise low.unsupported("the tensor map is no parameter of the kernel, which is not modelled")
    key = place.variable.name, place.offset + operand.offset
    found = low.launched.maps.get(key)
    if found is None:
        raise low.unsupported(
            f"byte {key[1]} of parameter {key[0]} is no tensor map in the launch description",
            'describe it there as a parameter of kind "map"',
        )  # fmt: skip
    coordinates = operand.rest[0]
    if not isinstance(coordinates, Items):
        raise low.unsupported("coordinates are expected in braces")
    return found, tuple(low.value(c, 32) for c in reversed(coordinates.items))


def _tile(low: Lowering, operand: Flat, map_: TensorMap, space: str) -> View:
    """The box in shared memory: dense from its address, swizzled as the map says."""
    match space:
        case "shared::cta" | "shared::cluster":
            return view_at(
                low.address(operand), map_.tensor.dtype, map_.box_shape, space=space,
                swizzle=map_.swizzle,
            )  # fmt: skip
        case _:
            raise low.unsupported("the tile is in shared memory")


@rule("cp.async.bulk.tensor")
def _tensor(low: Lowering, step: Step) -> Iterator[Op]:
    names = step.qualifiers[2:]
    dimensions, target, source = names[1:4]
    known = {
        "tensor", dimensions, target, source, "tile", _BYTES, _MULTICAST, _HINT, "bulk_group",
        "cta_group::1", "cta_group::2",
    }  # fmt: skip
    if set(names) - known:
        raise low.unsupported("this form is not modelled")
    operands = list(step.operands)
    if _HINT in names:
        operands.pop()
    if target == "global":
        map_, coordinates = _map(low, operands[0])
        tile = _tile(low, operands[1], map_, "shared::cta")
        yield TmaStore(map=map_, src=tile, coords=coordinates, loc=low.loc)
        return
    map_, coordinates = _map(low, operands[1])
    mask = low.value(operands[3], 16) if _MULTICAST in names else None
    dst = _tile(low, operands[0], map_, target)
    mbar = low.mbar(operands[2], target)
    if "cta_group::2" in names:
        yield TmaLoad(
            map=map_, dst=dst, coords=coordinates, mbar=mbar, multicast=mask, cta_group=2,
            loc=low.loc,
        )  # fmt: skip
    else:
        yield TmaLoad(map=map_, dst=dst, coords=coordinates, mbar=mbar, multicast=mask, loc=low.loc)


@rule("cp.async.bulk.prefetch.tensor")
def _prefetch(low: Lowering, step: Step) -> Iterator[Op]:
    map_, coordinates = _map(low, step.operands[0])
    yield TmaPrefetch(map=map_, coords=coordinates, loc=low.loc)


@rule("cp.reduce.async.bulk.tensor")
def _reduce(low: Lowering, step: Step) -> Iterator[Op]:
    map_, coordinates = _map(low, step.operands[0])
    tile = _tile(low, step.operands[1], map_, "shared::cta")
    found = [op for op in get_args(ReduceOp) if op in step.qualifiers]
    if len(found) != 1:
        raise low.unsupported("this reduction is not modelled")
    yield TmaReduce(map=map_, src=tile, coords=coordinates, op=found[0], loc=low.loc)


@rule("prefetch", "prefetchu")
def _hint(low: Lowering, step: Step) -> Iterator[Op]:
    """Loads into a cache: they have no effect that anybody can observe."""
    return iter(())


@rule("discard", "applypriority")
def _policy(low: Lowering, step: Step) -> Iterator[Op]:
    """Hints for caches."""
    if step.base == "discard":
        raise low.unsupported("bytes that lose their value are not modelled")
    return iter(())
