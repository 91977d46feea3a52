"""``k.tile.copy_cluster``: one tile to several CTAs of a cluster, or from one CTA to another.

A tile operation, not an instruction: it emits the instructions of the path that it chose, which is
therefore visible in the program. Two forms (tilelang #1908):

* *multicast* (``cluster_mask``): global to shared memory. The lowest rank of the mask loads once
  and multicasts, the other masked CTAs receive, the CTAs outside the mask load for themselves.
* *to a peer* (``dst_cta``): the executing CTA's shared memory to that of another CTA.

Nothing is implicit: every receiving CTA arms its own barrier, from the `CopyPlan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import gcd
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from tilesim.errors import InvalidProgram, reject
from tilesim.ir.declarations import Mbar, SharedTensor, TensorMap, View
from tilesim.ir.expr import Const, Expr, Operand, Special, Var, as_expr, constant, divisor
from tilesim.ir.loc import caller
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.arith.types import DType
    from tilesim.dsl.copies import TmaOps
    from tilesim.dsl.generated import BulkMethods, MemMethods
    from tilesim.dsl.mbarrier import MbarrierOps
    from tilesim.ir.op import Op
    from tilesim.ir.program import Program

#: ``tensor``: one TMA load; ``bulk``: one bulk copy; ``rows``: one bulk copy per contiguous row;
#: ``elements``: generic remote stores
Path = Literal["tensor", "bulk", "rows", "elements"]
#: how the barrier learns that the copy is complete: bytes (``complete_tx``) or an arrival
Signal = Literal["bytes", "arrival"]

#: size and alignment of bulk copies (B6)
_BULK_UNIT = 16
#: alignment of a global tensor (cudaMalloc)
_GLOBAL_ALIGN = 256
_LANES = 32


class Kernel(Protocol):
    """What a copy needs of the builder that it emits its instructions to."""

    lane_id: Special
    cluster_rank: Special
    tma: TmaOps
    bulk: BulkMethods
    mem: MemMethods
    mbarrier: MbarrierOps

    def emit(self, op: Op) -> None: ...
    def elected(self) -> AbstractContextManager[None]: ...
    def if_(self, cond: Expr) -> AbstractContextManager[None]: ...
    def loop(self, start: Operand, *, name: str) -> AbstractContextManager[Var]: ...
    def var(self, name: str, *, dtype: DType) -> Var: ...
    def sync_warp(self) -> None: ...
    def finish(self) -> Program: ...


@dataclass(frozen=True)
class CopyPlan:
    """How a cluster copy is done and what the barrier of a receiving CTA must be armed with.

    ``copies``: instructions that move data, per issuing warp (loop iterations counted).
    ``bytes``: what completes on the barrier; expect exactly that many. ``arrivals``: arrivals that
    the copy itself makes; initialise the barrier with them on top of your own.
    """

    path: Path
    copies: int
    bytes: int
    arrivals: int


@dataclass(frozen=True)
class ClusterCopy:
    """The operands of one ``copy_cluster``."""

    src: View
    dst: View
    dst_cta: Operand | None = None
    cluster_mask: Operand | None = None
    barrier: Mbar | None = None
    map: TensorMap | None = None
    path: Path | None = None
    signal: Signal | None = None

    def plan(self, k: Kernel) -> CopyPlan:
        """Checks the operands and chooses the path.

        Raises:
            InvalidProgram: the form, the target or every path is impossible; the message says why.
        """
        for problem in (*self._form_problems(), *self._cluster_problems(k)):
            raise problem
        candidates = self._candidates() if self.path is None else (self.path,)
        refusals = []
        for path in candidates:
            why = next(self._why_not(path), None)
            if why is None:
                return self._planned(path)
            refusals.append(f"{path}: {why}")
        raise self._reject(
            f"copy_cluster cannot copy {self.src} to {self.dst}: {'; '.join(refusals)}",
            fix="choose another path, layout or barrier contract",
        )

    def emit(self, k: Kernel) -> CopyPlan:
        """Emits the instructions of the chosen path and returns the plan."""
        plan = self.plan(k)
        _EMIT[plan.path](k, self)
        return plan

    def pieces(self) -> Iterator[tuple[View, View]]:
        """Source and destination of each copy: the largest parts contiguous on both sides."""
        return _split(self.src, self.dst)

    @property
    def mask(self) -> int | None:
        """The multicast mask; None for a copy to a peer."""
        match self.cluster_mask:
            case bool() | None:
                return None
            case int(mask) | Const(int(mask)):
                return mask
            case _:
                return None

    # ------------------------------------------------------------------ what is rejected

    def _reject(self, message: str, *, rule: str = "operand", fix: str = "") -> InvalidProgram:
        return reject(message, caller(), rule=rule, fix=fix)

    def _form_problems(self) -> Iterator[InvalidProgram]:
        src, dst = self.src, self.dst
        if self.path is not None and self.path not in get_args(Path):
            yield self._reject(f"there is no path {self.path!r}; {', '.join(get_args(Path))}")
        if (self.dst_cta is None) == (self.cluster_mask is None):
            given = "neither" if self.dst_cta is None else "both"
            yield self._reject(
                f"copy_cluster with {given} of cluster_mask and dst_cta",
                fix="cluster_mask multicasts global memory, dst_cta copies shared memory to a peer",
            )
        if src.shape != dst.shape:
            yield self._reject(f"shapes differ: {src} is {src.shape}, {dst} is {dst.shape}")
        if dst.space != "shared":
            yield self._reject(f"the destination {dst} must be in shared memory")
        for operand in (src, dst, self.barrier):
            if operand is not None and operand.cta is not None:
                yield self._reject(
                    f"{operand} already names a CTA",
                    fix="copy_cluster takes the CTA as dst_cta= and adds .at() itself",
                )
        if self.cluster_mask is not None:
            yield from self._multicast_problems()
        else:
            yield from self._peer_problems()

    def _multicast_problems(self) -> Iterator[InvalidProgram]:
        if self.mask is None:
            yield self._reject(
                f"the multicast mask {self.cluster_mask} is not known when the kernel is built",
                fix="which CTA issues and which receive is decided at build time: give an integer",
            )
        if self.src.space != "global":
            yield self._reject(
                f"cluster_mask multicasts global memory, {self.src} is shared (B9)",
                fix="use dst_cta= to copy shared memory to a peer",
            )
        if self.barrier is None:
            yield self._reject("a multicast completes on an mbarrier of every receiver: barrier=")

    def _peer_problems(self) -> Iterator[InvalidProgram]:
        if self.src.space != "shared":
            yield self._reject(
                f"dst_cta copies shared memory to a peer, {self.src} is global (B.2)",
                fix="load it into shared memory first, or multicast it with cluster_mask=",
            )
        if self.map is not None:
            yield self._reject(f"{self.map.name} describes global memory, this copy has none")

    def _cluster_problems(self, k: Kernel) -> Iterator[InvalidProgram]:
        program = k.finish()
        if "cluster" not in program.target.features:
            yield self._reject(f"{program.target} has no clusters", rule="target",
                               fix="build for sm_90 or newer")  # fmt: skip
        size, mask = program.cluster_size, self.mask
        if mask is not None and not 0 < mask < 1 << size:
            yield self._reject(
                f"multicast mask {mask:#b} in a cluster of {size} CTAs (B9)", rule="out-of-bounds",
                fix="call k.launch(cluster=...) first and name only its CTAs, by cluster rank",
            )  # fmt: skip
        rank = None if self.dst_cta is None else constant(as_expr(self.dst_cta))
        if rank is not None and not 0 <= rank < size:
            yield self._reject(
                f"dst_cta {rank} in a cluster of {size} CTAs (D7)", rule="out-of-bounds",
                fix="call k.launch(cluster=...) first and name one of its CTAs, by cluster rank",
            )  # fmt: skip

    # ------------------------------------------------------------------ the paths

    def _candidates(self) -> tuple[Path, ...]:
        if self.cluster_mask is None:
            return ("bulk", "rows", "elements")
        return ("bulk", "rows") if self.map is None else ("tensor",)

    def _why_not(self, path: Path) -> Iterator[str]:
        """Reasons why ``path`` cannot do this copy, or cannot keep the barrier's contract."""
        match path:
            case "tensor":
                yield from self._why_no_tensor()
            case "bulk" | "rows":
                yield from self._why_no_bulk(path)
            case "elements":
                yield from self._why_no_elements()

    def _why_no_tensor(self) -> Iterator[str]:
        tensor_map = self.map
        if tensor_map is None:
            yield "a tensor copy needs a tensor map (map=) over a global source"
            return
        if tensor_map.tensor != self.src.tensor:
            yield f"{tensor_map.name} describes {tensor_map.tensor.name}, not the source"
        if tensor_map.box != self.src.extents or tensor_map.element_strides or tensor_map.packing:
            yield f"the box {tensor_map.box} of {tensor_map.name} is not {self.src.extents}"
        yield from self._no_bytes()

    def _why_no_bulk(self, path: Path) -> Iterator[str]:
        if self.map is not None:
            yield "with a tensor map the copy is a tensor copy"
        yield from self._no_bytes()
        if self.barrier is None:
            yield "a bulk copy completes on an mbarrier (barrier=)"
        if self.src.dtype != self.dst.dtype:
            yield f"a bulk copy cannot convert {self.src.dtype} to {self.dst.dtype}"
        for view in (self.src, self.dst):
            if getattr(view.tensor, "swizzle", 0):
                yield f"{view.tensor.name} is swizzled, a bulk copy moves linear bytes"
            elif path == "bulk" and not _contiguous(view):
                yield f"{view} is not one contiguous range"
        for piece in (view for pair in self.pieces() for view in pair):
            if piece.nbytes % _BULK_UNIT:
                yield f"{piece} has {piece.nbytes} bytes, not a multiple of {_BULK_UNIT} (B6)"
            elif _alignment(piece) % _BULK_UNIT:
                yield f"{piece} may start at an address that is not {_BULK_UNIT}-byte aligned (B6)"

    def _no_bytes(self) -> Iterator[str]:
        if self.signal == "arrival":
            yield "the copy completes bytes on the barrier and makes no arrival"

    def _why_no_elements(self) -> Iterator[str]:
        if self.cluster_mask is not None:
            yield "stores by the issuer complete no bytes at the passive receivers"
        if self.signal == "bytes":
            yield "generic stores complete no bytes on the barrier, they end with an arrival"
        if self.signal == "arrival" and self.barrier is None:
            yield "an arrival needs a barrier (barrier=)"

    def _planned(self, path: Path) -> CopyPlan:
        match path:
            case "elements":
                rounds = -(-self.src.size // _LANES)
                return CopyPlan(path, rounds, 0, 0 if self.barrier is None else 1)
            case "rows":
                return CopyPlan(path, sum(1 for _ in self.pieces()), self.dst.nbytes, 0)
            case "tensor" | "bulk":
                return CopyPlan(path, 1, self.dst.nbytes, 0)


def _split(src: View, dst: View) -> Iterator[tuple[View, View]]:
    if _contiguous(src) and _contiguous(dst):
        yield src, dst
        return
    for index in range(src.shape[0]):
        yield from _split(src[index], dst[index])


def _contiguous(view: View) -> bool:
    """True if the view's elements follow each other in memory (before any swizzle)."""
    expected = view.dtype.bytes
    for extent, stride in zip(
        reversed(view.extents), reversed(view.tensor.byte_strides), strict=True
    ):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected = stride * extent
    return True


def _alignment(view: View) -> int:
    """A number that divides the address of the view's first element, whatever the offsets are."""
    tensor = view.tensor
    if not isinstance(tensor, SharedTensor):
        known = _GLOBAL_ALIGN
    else:
        known = tensor.align if tensor.offset is None else tensor.offset
    for offset, stride in zip(view.offsets, tensor.byte_strides, strict=True):
        known = gcd(known, divisor(offset) * stride)
    return known


# ---------------------------------------------------------------------- emission


def _emit_tensor(k: Kernel, copy: ClusterCopy) -> None:
    assert copy.map is not None
    assert copy.barrier is not None
    tensor_map, barrier = copy.map, copy.barrier

    def load(mask: int | None) -> None:
        k.tma.load(tensor_map, copy.dst, copy.src.offsets, barrier, multicast=mask)

    _multicast(k, copy, load)


def _emit_bulk(k: Kernel, copy: ClusterCopy) -> None:
    barrier = copy.barrier
    assert barrier is not None
    if copy.dst_cta is not None:
        with k.elected():
            for src, dst in copy.pieces():
                k.bulk.copy(dst.at(copy.dst_cta), src, barrier.at(copy.dst_cta))
        return

    def load(mask: int | None) -> None:
        for src, dst in copy.pieces():
            k.bulk.load(dst, src, barrier, multicast=mask)

    _multicast(k, copy, load)


def _multicast(k: Kernel, copy: ClusterCopy, load: Callable[[int | None], None]) -> None:
    """The lowest rank of the mask multicasts, ranks outside the mask load for themselves."""
    mask = copy.mask
    assert mask is not None
    with k.elected():
        with k.if_(k.cluster_rank.eq((mask & -mask).bit_length() - 1)):
            load(mask)
        if mask != (1 << k.finish().cluster_size) - 1:
            with k.if_(((mask >> k.cluster_rank) & 1).eq(0)):
                load(None)


def _emit_elements(k: Kernel, copy: ClusterCopy) -> None:
    """All lanes store, then one arrives: release at cluster scope, cumulative over the warp."""
    assert copy.dst_cta is not None
    value = k.var(_free_name(k, "copied"), dtype=copy.src.dtype)
    dst = copy.dst.at(copy.dst_cta)

    def move(index: Expr) -> None:
        at = _coordinates(index, copy.src.shape)
        k.mem.load(value, copy.src[at])
        k.mem.store(dst[at], value)

    rounds, rest = divmod(copy.src.size, _LANES)
    if rounds:
        with k.loop(rounds, name="part") as part:
            move(part * _LANES + k.lane_id)
    if rest:
        with k.if_(k.lane_id < rest):
            move(rounds * _LANES + k.lane_id)
    if copy.barrier is not None:
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(copy.barrier.at(copy.dst_cta), scope="cluster")


def _coordinates(index: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """Element ``index`` in row-major order as one coordinate per dimension."""
    coordinates: list[Expr] = []
    for extent in reversed(shape[1:]):
        coordinates.append(index % extent)
        index = index // extent
    return (index, *reversed(coordinates)) if shape else ()


def _free_name(k: Kernel, name: str) -> str:
    program = k.finish()
    declared = (
        *program.params, *program.maps, *program.shared, *program.fragments, *program.variables
    )  # fmt: skip
    taken = {item.name for item in declared}
    candidate, n = name, 1
    while candidate in taken:
        candidate, n = f"{name}_{n}", n + 1
    return candidate


_EMIT: dict[Path, Callable[[Kernel, ClusterCopy], None]] = {
    "tensor": _emit_tensor,
    "bulk": _emit_bulk,
    "rows": _emit_bulk,
    "elements": _emit_elements,
}
