"""Rules for copies with tensor maps, and for what is irregular in other asynchronous copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from tilesim.arith.types import WIDTH, u8, u64
from tilesim.ir.addresses import view_at
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Const, Expr, select
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import ReduceOp
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.ops.tensormap import TensormapReplace
from tilesim.ir.ops.tma import TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from tilesim.ir.tensormap import (
    BY_DIMENSION,
    CODES,
    NBYTES,
    WIDE,
    Field,
    LoadMode,
    StoreMode,
    copied_shape,
    halo_of,
    in_shared,
)
from tilesim.ptx.bind import begun_name
from tilesim.ptx.expressions import signed
from tilesim.ptx.inline import At, Flat, Items, Not, Register, Step, Symbol
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.rules.by_spelling import spelled
from tilesim.records import dataclass, replace

_HINT = "L2::cache_hint"
_BYTES = "mbarrier::complete_tx::bytes"
_MULTICAST = "multicast::cluster"
#: modes that are named by qualifiers
_LOADS: tuple[LoadMode, ...] = ("im2col", "tile::gather4", *WIDE)
_STORES: tuple[StoreMode, ...] = ("im2col_no_offs", "tile::scatter4")
_ROWS: tuple[LoadMode | StoreMode, ...] = ("tile::gather4", "tile::scatter4")
#: bytes of the smallest box, which stands for what a map in memory says
_LEAST = 16
#: a tensor map begins at a multiple of so many bytes
_MAP = 64


@rule("cp.async.ca", "cp.async.cg")
def _cp_async(low: Lowering, step: Step) -> Iterator[Op]:
    """Each lane copies for itself. The last operand may be a predicate instead of a number: with it
    nothing is read."""
    ignored = [o for o in step.operands[3:] if _is_predicate(o)]
    rest = tuple(o for o in step.operands if o not in ignored)
    for op in spelled(low, replace(step, operands=rest)):
        if not isinstance(op, CpAsync):
            yield op
            continue
        real = select(low.value(ignored[0], 1), 0, op.size) if ignored else op.src_bytes
        yield replace(op, src_bytes=real, shared_out=False)


def _is_predicate(operand: Flat) -> bool:
    return isinstance(operand, Not) or (isinstance(operand, Register) and operand.type == "pred")


# ---------------------------------------------------------------------- tensor copies


@dataclass(frozen=True)
class _Through:
    """The tensor map of a copy, the coordinates in the order of the tensor's shape, and where the
    map lies if the kernel has made it."""

    map: TensorMap
    coords: tuple[Expr, ...]
    at: View | None


def _map(low: Lowering, operand: Flat) -> _Through:
    if not isinstance(operand, At) or not operand.rest:
        raise low.unsupported("a tensor map with coordinates is expected")
    place = operand.base if isinstance(operand.base, Symbol) else None
    if isinstance(operand.base, Register):
        place = low.constants.parameter(operand.base)
    coordinates = operand.rest[0]
    if not isinstance(coordinates, Items):
        raise low.unsupported("coordinates are expected in braces")
    coords = tuple(signed(low.value(c, 32), 32) for c in reversed(coordinates.items))
    if place is None or place.variable.space != "param":
        return _made(low, operand, coords)
    key = place.variable.name, place.offset + operand.offset
    found = low.launched.maps.get(key)
    if found is None:
        raise low.unsupported(
            f"byte {key[1]} of parameter {key[0]} is not a tensor map in the launch description",
            'describe it there as a parameter of kind "map"',
        )  # fmt: skip
    if place.variable.alignment % _MAP or key[1] % _MAP:
        raise low.unsupported(
            f"nothing says that the tensor map at byte {key[1]} of parameter {key[0]} begins at a "
            f"multiple of {_MAP} bytes (B16)",
            f"declare the parameter with .align {_MAP}",
        )
    if found.tensor.name == begun_name(found.name):
        raise low.unsupported(
            f"the tensor map at byte {key[1]} of parameter {key[0]} covers less of its "
            "buffer than the contents that the launch description gives"
        )
    return _Through(found, coords, None)


def _made(low: Lowering, operand: At, coords: tuple[Expr, ...]) -> _Through:
    """A map in global memory: its bytes say what is copied; of which buffers it can be one is
    known before."""
    names = low.made_maps.buffers(operand)
    known = [low.launched.tensors[name] for name in names if name in low.launched.tensors]
    tensors = tuple(t for t in known if (t.dtype, len(t.shape)) == (u8, 1))
    if not tensors:
        with_maps = f" ({', '.join(names)} have maps of the launch)" if names else ""
        what = "the tensor map's base is unknown: name its buffer in the launch"
        raise low.unsupported(what + with_maps)
    rank, several = len(coords), f".{len(low.maps)}" if len(tensors) > 1 else ""
    declared = TensorMap(
        f"{tensors[0].name}.made{rank}{several}", tensors[0], (_LEAST,), rank=rank,
        others=tensors[1:],
    )  # fmt: skip
    same = (m for m in low.maps.values() if (m.rank, m.tensors) == (rank, tensors))
    declared = next(same, declared)
    low.maps[declared.name] = declared
    at = view_at(low.address(replace(operand, rest=())), u8, (NBYTES,), space="global")
    return _Through(declared, coords, at)


_SIZES = ("b1024", "b32", "b64")


@rule("tensormap.replace")
def _replace(low: Lowering, step: Step) -> Iterator[Op]:
    """Fields that the kernel never replaces are zero, as the bytes are that it begins with."""
    name = step.qualifiers[2]
    place, *numbers = step.operands
    space = low.space(step.qualifiers)
    known = next((f for f in get_args(Field) if f == name), None)
    if known is None or step.qualifiers[1] != "tile" or space == "generic":
        raise low.unsupported("this field is not modelled")
    low.require_known(step, "replace", "tile", name, "global", "shared", "shared::cta", *_SIZES)
    if len(numbers) != 1 + (known in BY_DIMENSION) or step.qualifiers[-2:-1] != ("b1024",):
        raise low.unsupported("other operands, or another size, are not modelled")
    view = low.view(place, u64, (NBYTES // 8,), space)
    ord = low.constant(numbers[0], "the dimension") if known in BY_DIMENSION else None
    value = low.value(numbers[-1], WIDTH[step.qualifiers[-1]])
    if known in CODES:
        value = Const(low.constant(numbers[-1], "the new value"))
    op = TensormapReplace(map=view, field=known, new_val=value, ord=ord, loc=low.loc)
    if step.qualifiers[-1] != f"b{op.bits}":
        raise low.unsupported(f"a new {known} has {op.bits} bits")
    yield op
    if known == "rank":
        for other in ("interleave_layout", "swizzle_mode", "fill_mode"):
            if other not in low.made_maps.fields:
                yield _zero(low, view, other)


def _zero(
    low: Lowering, view: View, field: Literal["interleave_layout", "swizzle_mode", "fill_mode"]
) -> Op:
    return TensormapReplace(map=view, field=field, new_val=Const(0), loc=low.loc)


def _rows_first(coords: tuple[Expr, ...], mode: LoadMode | StoreMode) -> tuple[Expr, ...]:
    """Coordinates in the order of the shape; PTX names the first column before the four rows."""
    return (*reversed(coords[:-1]), coords[-1]) if mode in _ROWS else coords


def _tile(
    low: Lowering,
    operand: Flat,
    map_: TensorMap,
    space: str,
    mode: LoadMode | StoreMode = "tile",
    halo: int = 0,
) -> View:
    """What is copied, in shared memory: dense from its address, swizzled as the map says."""
    if mode.startswith("im2col") != (map_.lower is not None):
        raise low.unsupported(f"the map of a copy of mode {mode} is for other modes")
    match space:
        case "shared::cta" | "shared::cluster":
            shape = in_shared(map_, copied_shape(map_.box, map_.element_strides, mode, halo))
            return view_at(
                low.address(operand), map_.tensor.dtype, shape, space=space, swizzle=map_.swizzle
            )
        case _:
            raise low.unsupported("the tile is in shared memory")


@rule("cp.async.bulk.tensor")
def _tensor(low: Lowering, step: Step) -> Iterator[Op]:
    # which CTAs' barrier it is and the mode stand before the state spaces or behind them
    moving = {"cta_group::1", "cta_group::2", "tile", *_LOADS, *_STORES}
    names = tuple(name for name in step.qualifiers[2:] if name not in moving)
    dimensions, target, source = names[1:4]
    known = {
        "tensor", dimensions, target, source, _BYTES, _MULTICAST, _HINT, "bulk_group",
    }  # fmt: skip
    if set(names) - known:
        raise low.unsupported("this form is not modelled")
    operands = list(step.operands)
    if _HINT in names:
        operands.pop()
    if target == "global":
        leaving: StoreMode = next((m for m in _STORES if m in step.qualifiers), "tile")
        through = _map(low, operands[0])
        yield TmaStore(
            map=through.map, src=_tile(low, operands[1], through.map, "shared::cta", leaving),
            coords=_rows_first(through.coords, leaving), at=through.at, mode=leaving, loc=low.loc,
        )  # fmt: skip
        return
    mode: LoadMode = next((m for m in _LOADS if m in step.qualifiers), "tile")
    through = _map(low, operands[1])
    info = _info(low, operands.pop(3), mode) if mode.startswith("im2col") else ()
    halo = halo_of(mode, info)
    pair = "cta_group::2" in step.qualifiers
    yield TmaLoad(
        map=through.map, dst=_tile(low, operands[0], through.map, target, mode, halo),
        coords=_rows_first(through.coords, mode), mbar=low.mbar(operands[2], target),
        multicast=low.value(operands[3], 16) if _MULTICAST in names else None, at=through.at,
        cta_group=2 if pair else 1, mode=mode,
        info=info, loc=low.loc,
    )  # fmt: skip


def _info(low: Lowering, operand: Flat, mode: LoadMode) -> tuple[Expr, ...]:
    """What a copy along a pixel box has beside coordinates: offsets, or wHalo and wOffset."""
    offsets = low.items(operand)
    info = tuple(low.value(offset, 16) for offset in offsets)
    if mode in WIDE:
        return (Const(low.constant(offsets[0], "wHalo")), *info[1:])
    return info[::-1]


#: what copies through a map have in common
_COPY = (
    "async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "global", "tile", _HINT
)  # fmt: skip


@rule("cp.async.bulk.prefetch.tensor")
def _prefetch(low: Lowering, step: Step) -> Iterator[Op]:
    low.require_known(step, *_COPY, "prefetch", "L2", *_LOADS)
    through = _map(low, step.operands[0])
    if through.at is not None:
        raise low.unsupported("a prefetch by a map that the kernel makes is not modelled")
    mode: LoadMode = next((m for m in _LOADS if m in step.qualifiers), "tile")
    info = _info(low, step.operands[1], mode) if mode.startswith("im2col") else ()
    coords = _rows_first(through.coords, mode)
    yield TmaPrefetch(map=through.map, coords=coords, mode=mode, info=info, loc=low.loc)


@rule("cp.reduce.async.bulk.tensor")
def _reduce(low: Lowering, step: Step) -> Iterator[Op]:
    through = _map(low, step.operands[0])
    pixels = "im2col_no_offs" in step.qualifiers
    mode: Literal["tile", "im2col_no_offs"] = "im2col_no_offs" if pixels else "tile"
    tile = _tile(low, step.operands[1], through.map, "shared::cta", mode)
    found = [op for op in get_args(ReduceOp) if op in step.qualifiers]
    low.require_known(step, *_COPY, "reduce", "shared::cta", "im2col_no_offs", "bulk_group", *found)
    if len(found) != 1:
        raise low.unsupported("this reduction is not modelled")
    yield TmaReduce(
        map=through.map, src=tile, coords=through.coords, op=found[0], at=through.at, mode=mode,
        loc=low.loc,
    )  # fmt: skip


@rule("prefetch", "prefetchu", "applypriority")
def _hint(low: Lowering, step: Step) -> Iterator[Op]:
    """Hints for caches: they have no effect that can be observed."""
    return iter(())
