"""Bulk copies of contiguous ranges, reductions, and groups of all bulk copies (SEMANTICS B)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.arith.types import DType, bf16, f16, f32, f64, s32, s64, u32, u64
from tilesim.ir.arithmetic import INT_MAX
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.effects import (
    Commits,
    Completes,
    Effect,
    Issues,
    Prefetches,
    Reads,
    WaitsGroup,
    Writes,
)
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.op import Op
from tilesim.records import dataclass

#: bytes that copies move at once, to which both ends are aligned (B6)
_CHUNK = 16

ReduceOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]


#: element types of reductions in global memory (B.2; 64-bit add is the same with a sign)
_BITS = (u32, s32, u64, s64)
REDUCIBLE: dict[str, tuple[DType, ...]] = {
    "add": (*_BITS, f16, bf16, f32, f64), "min": (*_BITS, f16, bf16), "max": (*_BITS, f16, bf16),
    "inc": (u32,), "dec": (u32,), "and": _BITS, "or": _BITS, "xor": _BITS,
}  # fmt: skip


def reduction_problems(
    op: str, dtype: DType, reducible: dict[str, tuple[DType, ...]]
) -> Iterator[str]:
    if dtype not in reducible[op]:
        types = ", ".join(t.name for t in reducible[op])
        yield f"the {op} reduction exists for {types}, not {dtype} (B.2)"


def own_source_problems(source: View) -> Iterator[str]:
    """A copy reads the shared memory of the CTA that executes it."""
    if source.remote:
        yield (
            f"the source {source} must be in the executing CTA's shared memory (shared::cta), "
            "not in a peer's (B.2)"
        )


def _bulk_problems(shared: View, other: View) -> Iterator[str]:
    if shared.space != "shared":
        yield f"{shared.tensor.name} must be in shared memory"
    if shared.nbytes != other.nbytes:
        yield f"sizes differ: {shared.nbytes} and {other.nbytes} bytes"
    yield from _size_problems(shared)


def _size_problems(view: View) -> Iterator[str]:
    if view.nbytes % _CHUNK:
        yield f"{view.nbytes} bytes is not a multiple of {_CHUNK} (B6)"


@dataclass(frozen=True, kw_only=True)
class _Copying(Op):
    """A copy of a contiguous range."""

    engine = "TMA"
    features = frozenset({"tma"})

    dst: View
    src: View

    @property
    def nbytes(self) -> int:
        """How many bytes are copied."""
        return self.dst.nbytes


@dataclass(frozen=True, kw_only=True)
class BulkLoad(_Copying):
    """``cp.async.bulk`` global to shared of a contiguous range; completes on ``mbar``."""

    mnemonic = "cp.async.bulk.load"
    call = "bulk.load(dst, src, mbar, *, multicast)"
    ptx = (
        "cp.async.bulk{dst.space=shared::cluster|shared::cta}{src.space=global}."
        "mbarrier::complete_tx::bytes{.multicast=multicast::cluster} "
        "[{dst:nbytes*b8}], [{src:nbytes*b8}], {nbytes:r}, [{mbar}]{,multicast:h};"
    )

    mbar: Mbar
    multicast: Expr | None = None

    def verify(self) -> Iterator[str]:
        yield from _bulk_problems(self.dst, self.src)
        if self.src.space != "global":
            yield f"{self.src.tensor.name} must be in global memory"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True),
            Writes(self.dst, "async", asynchronous=True),
            Completes(self.mbar, Const(self.dst.nbytes), self.multicast, asynchronous=True),
        )


@dataclass(frozen=True, kw_only=True)
class BulkLoadIgnoring(_Copying):
    """``cp.async.bulk`` with ``.ignore_oob``: a `BulkLoad` of which up to 15 bytes at either end of
    ``src`` may lie outside of its tensor (B38).

    ``left`` and ``right`` bytes are not read; what they become in ``dst`` is indeterminate.
    """

    mnemonic = "cp.async.bulk.load.ignore_oob"
    call = "bulk.load_ignoring(dst, src, mbar, left, right)"
    ptx = (
        "cp.async.bulk{dst.space=shared::cta}{src.space=global}."
        "mbarrier::complete_tx::bytes.ignore_oob "
        "[{dst:nbytes*b8}], [{src:nbytes*b8}], {nbytes:r}, {left:r}, {right:r}, [{mbar}];"
    )

    mbar: Mbar
    left: Expr = Const(0)
    right: Expr = Const(0)

    def verify(self) -> Iterator[str]:
        yield from _bulk_problems(self.dst, self.src)
        if self.src.space != "global" or len(self.src.dims) != 1:
            yield f"{self.src} must be elements of one dimension of global memory"
        if self.dst.remote or self.mbar.remote:
            yield "only copies into the executing CTA's shared memory ignore bytes (B38)"
        for side in map(constant, (self.left, self.right)):
            if side is not None and not 0 <= side < _CHUNK:
                yield f"{side} bytes are ignored at one end, at most {_CHUNK - 1} can be (B38)"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True, ignored=(self.left, self.right)),
            Writes(self.dst, "async", asynchronous=True),
            Completes(self.mbar, Const(self.dst.nbytes), asynchronous=True),
        )


@dataclass(frozen=True, kw_only=True)
class _ToPeer(_Copying):
    """From own shared memory to a peer's, completing the bytes on ``mbar`` of that peer (B.2)."""

    features = frozenset({"tma", "cluster"})

    mbar: Mbar

    def verify(self) -> Iterator[str]:
        yield from _bulk_problems(self.dst, self.src)
        yield from _peer_problems(self.dst, self.src, self.mbar)

    def _copies(self, combine: ReduceOp | None) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True),
            Writes(self.dst, "async", asynchronous=True, combine=combine),
            Completes(self.mbar, Const(self.dst.nbytes), asynchronous=True),
        )


@dataclass(frozen=True, kw_only=True)
class BulkCopy(_ToPeer):
    """``cp.async.bulk.shared::cluster.shared::cta``: own shared memory to a peer's, completing its
    bytes on ``mbar`` of that peer (B.2)."""

    mnemonic = "cp.async.bulk.copy"
    call = "bulk.copy(dst, src, mbar)"
    ptx = (
        "cp.async.bulk{dst.space=shared::cluster}{src.space=shared::cta}."
        "mbarrier::complete_tx::bytes "
        "[{dst:nbytes*b8}], [{src:nbytes*b8}], {nbytes:r}, [{mbar}];"
    )

    def effects(self) -> tuple[Effect, ...]:
        return self._copies(None)


def _peer_problems(dst: View, src: View, mbar: Mbar) -> Iterator[str]:
    if src.space != "shared" or src.remote:
        yield f"the source {src} must be in the executing CTA's shared memory (B.2)"
    if dst.space == "shared" and not dst.remote:
        yield f"the destination {dst} must be in another CTA: use .at(rank) (B.2)"
    if not mbar.remote:
        yield f"the mbarrier {mbar} must be in the destination CTA: use .at(rank) (B.2)"
    elif dst.cta is not None and mbar.cta is not None and dst.cta != mbar.cta:
        yield f"destination CTA {dst.cta} and mbarrier CTA {mbar.cta} differ (B.2)"


#: element types of cp.reduce.async.bulk to shared memory (B.2)
_PEER_REDUCIBLE: dict[str, tuple[DType, ...]] = {
    "add": (u32, s32, u64), "min": (u32, s32), "max": (u32, s32), "inc": (u32,), "dec": (u32,),
    "and": (u32, s32), "or": (u32, s32), "xor": (u32, s32),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BulkReducePeer(_ToPeer):
    """``cp.reduce.async.bulk.shared::cluster.shared::cta``: combines own shared memory into a
    peer's, completing its bytes on ``mbar`` of that peer (B.2)."""

    mnemonic = "cp.reduce.async.bulk.peer"
    call = "bulk.reduce_peer(dst, src, mbar, op)"
    ptx = (
        "cp.reduce.async.bulk{dst.space=shared::cluster}{src.space=shared::cta}."
        "mbarrier::complete_tx::bytes.{op}.{dst.reduced} "
        "[{dst:nbytes*}], [{src:nbytes*}], {nbytes:r}, [{mbar}];"
    )

    op: ReduceOp = "add"

    def verify(self) -> Iterator[str]:
        yield from super().verify()
        yield from reduction_problems(self.op, self.dst.dtype, _PEER_REDUCIBLE)

    def effects(self) -> tuple[Effect, ...]:
        return self._copies(self.op)


@dataclass(frozen=True, kw_only=True)
class _ToGlobal(_Copying):
    """From own shared memory to global memory, in the thread's bulk group."""

    def verify(self) -> Iterator[str]:
        yield from own_source_problems(self.src)
        yield from _bulk_problems(self.src, self.dst)
        if self.dst.space != "global":
            yield f"{self.dst.tensor.name} must be in global memory"


@dataclass(frozen=True, kw_only=True)
class BulkStore(_ToGlobal):
    """``cp.async.bulk`` shared to global of a contiguous range, in the thread's bulk group.

    ``mask`` (``.cp_mask``): bit i says whether byte i of each 16 bytes is copied; the others are
    neither read nor written (B35).
    """

    mnemonic = "cp.async.bulk.store"
    call = "bulk.store(dst, src, *, mask)"
    ptx = (
        "cp.async.bulk{dst.space=global}{src.space=shared::cta}.bulk_group{.mask=cp_mask} "
        "[{dst:nbytes*b8}], [{src:nbytes*b8}], {nbytes:r}{,mask:h};"
    )

    mask: Expr | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Masks exist on later targets only."""
        return self.features if self.mask is None else self.features | {"tma.cp_mask"}

    def verify(self) -> Iterator[str]:
        known = None if self.mask is None else constant(self.mask)
        if known is not None and not 0 <= known < 1 << 16:
            yield f"the mask {known:#x} has more than 16 bits, one per byte of a chunk (B35)"
        yield from super().verify()

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True),
            Writes(self.dst, "async", asynchronous=True, mask=self.mask),
            Issues("bulk"),
        )


@dataclass(frozen=True, kw_only=True)
class BulkReduce(_ToGlobal):
    """``cp.reduce.async.bulk`` shared to global: ``op`` per element, relaxed.gpu (B.2)."""

    mnemonic = "cp.reduce.async.bulk"
    call = "bulk.reduce(dst, src, op)"
    ptx = (
        "cp.reduce.async.bulk{dst.space=global}{src.space=shared::cta}.bulk_group.{op}."
        "{dst.reduced} [{dst:nbytes*}], [{src:nbytes*}], {nbytes:r};"
    )
    hints = frozenset({"noftz"})

    op: ReduceOp = "add"

    def verify(self) -> Iterator[str]:
        yield from super().verify()
        yield from reduction_problems(self.op, self.dst.dtype, REDUCIBLE)

    def effects(self) -> tuple[Effect, ...]:
        return self._reduces(1)

    def _reduces(self, times: int) -> tuple[Effect, ...]:
        write = Writes(self.dst, "async", asynchronous=True, combine=self.op, times=times)
        return (Reads(self.src, "async", asynchronous=True), write, Issues("bulk"))


@dataclass(frozen=True, kw_only=True)
class BulkPrefetch(Op):
    """``cp.async.bulk.prefetch``: an L2 hint without visible effect (B13)."""

    mnemonic = "cp.async.bulk.prefetch"
    call = "bulk.prefetch(src)"
    ptx = "cp.async.bulk.prefetch.L2{src.space=global} [{src:nbytes*b8}], {nbytes:r};"
    engine = "TMA"
    features = frozenset({"tma"})

    src: View

    @property
    def nbytes(self) -> int:
        """How many bytes are asked for."""
        return self.src.nbytes

    def verify(self) -> Iterator[str]:
        yield from _size_problems(self.src)
        if self.src.space != "global":
            yield f"only global memory is prefetched, not {self.src} (B13)"

    def effects(self) -> tuple[Effect, ...]:
        return (Prefetches(self.src),)


@dataclass(frozen=True, kw_only=True)
class BulkCommitGroup(Op):
    """Closes the executing thread's bulk group; an empty group is complete (B29)."""

    mnemonic = "cp.async.bulk.commit_group"
    call = "bulk.commit_group"
    ptx = "cp.async.bulk.commit_group;"
    features = frozenset({"tma"})

    def effects(self) -> tuple[Effect, ...]:
        return (Commits("bulk"),)


@dataclass(frozen=True, kw_only=True)
class BulkWaitGroup(Op):
    """Blocks until at most ``pending`` newest bulk groups of this thread are unfinished (B29).

    ``read``: only until their sources have been read (B31).
    """

    mnemonic = "cp.async.bulk.wait_group"
    call = "bulk.wait_group(pending, *, read)"
    ptx = "cp.async.bulk.wait_group{.read} {pending};"
    features = frozenset({"tma"})
    sync = True

    pending: int = 0
    read: bool = False

    def verify(self) -> Iterator[str]:
        if not 0 <= self.pending <= INT_MAX:
            yield f"pending group count {self.pending} is outside 0..{INT_MAX}"

    def effects(self) -> tuple[Effect, ...]:
        return (WaitsGroup("bulk", self.pending, read_only=self.read),)
