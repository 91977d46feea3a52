"""Non-bulk cp.async (LDGSTS) and its groups (SEMANTICS section C)."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir.arithmetic import INT_MAX
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.effects import Arrives, Commits, Effect, Issues, Reads, WaitsGroup, Writes
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Op
from tilesim.records import dataclass


@dataclass(frozen=True, kw_only=True)
class CpAsync(Op):
    """Copies ``src`` to ``dst`` in chunks of ``size`` bytes spread over the active lanes (C1).

    Where an operand differs between the lanes, each lane copies all of the views that it names.
    ``src_bytes``: how many bytes of ``src`` are real; the rest of ``dst`` is zero (C2).
    """

    mnemonic = "cp.async"
    call = "cp_async.copy(dst, src, *, size, src_bytes)"
    ptx = (
        "cp.async.{cache}{dst.space=shared::cta}{src.space=global} "
        "[{dst:size*b8}], [{src:size*b8}], {size}{,src_bytes:r};"
    )
    hints = frozenset({"ca", "cg"})
    engine = "cp.async"

    dst: View
    src: View
    size: int = 16
    src_bytes: Expr | None = None
    shared_out: bool = True

    @property
    def cache(self) -> str:
        """The level at which it is cached: 16 bytes may pass by the first."""
        return "cg" if self.size == 16 else "ca"

    def verify(self) -> Iterator[str]:
        if self.size not in (4, 8, 16):
            yield f"cp.async copies 4, 8 or 16 bytes at a time, not {self.size} (C1)"
        elif self.dst.nbytes % self.size:
            yield f"{self.dst.nbytes} bytes is not a multiple of the copy size {self.size} (C1)"
        if self.dst.nbytes != self.src.nbytes:
            yield f"sizes differ: {self.dst.nbytes} and {self.src.nbytes} bytes"
        if self.dst.space != "shared" or self.src.space != "global":
            yield "cp.async copies from global to shared memory (C1)"
        if self.dst.remote:
            yield "cp.async writes the executing CTA's own shared memory (C1)"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, asynchronous=True),
            Writes(self.dst, asynchronous=True),
            Issues("cp.async", self.size, self.shared_out, self.src_bytes),
        )


@dataclass(frozen=True, kw_only=True)
class CpAsyncCommitGroup(Op):
    """Closes the executing thread's cp.async group (C4)."""

    mnemonic = "cp.async.commit_group"
    call = "cp_async.commit_group"
    ptx = "cp.async.commit_group;"

    def effects(self) -> tuple[Effect, ...]:
        return (Commits("cp.async"),)


@dataclass(frozen=True, kw_only=True)
class CpAsyncWaitGroup(Op):
    """Blocks until at most ``pending`` cp.async groups of this thread are unfinished (C4)."""

    mnemonic = "cp.async.wait_group"
    call = "cp_async.wait_group(pending)"
    ptx = "cp.async.wait_group {pending};"
    sync = True

    pending: int = 0

    def verify(self) -> Iterator[str]:
        if not 0 <= self.pending <= INT_MAX:
            yield f"pending group count {self.pending} is outside 0..{INT_MAX}"

    def effects(self) -> tuple[Effect, ...]:
        return (WaitsGroup("cp.async", self.pending),)


@dataclass(frozen=True, kw_only=True)
class CpAsyncWaitAll(Op):
    """Commits and waits for every cp.async of this thread (C4)."""

    mnemonic = "cp.async.wait_all"
    call = "cp_async.wait_all"
    ptx = "cp.async.wait_all;"
    sync = True

    def effects(self) -> tuple[Effect, ...]:
        return (Commits("cp.async"), WaitsGroup("cp.async", 0))


@dataclass(frozen=True, kw_only=True)
class CpAsyncMbarrierArrive(Op):
    """Arrives on ``mbar``, per lane, once the thread's earlier cp.async are complete (C6).

    Without ``noinc`` the pending count is raised first, so the net change is zero.
    """

    mnemonic = "cp.async.mbarrier.arrive"
    call = "cp_async.mbarrier_arrive(mbar, *, noinc)"
    ptx = "cp.async.mbarrier.arrive{.noinc}{mbar.space}.b64 [{mbar}];"
    engine = "cp.async"
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    noinc: bool = False

    def verify(self) -> Iterator[str]:
        if self.mbar.remote:
            yield "cp.async.mbarrier.arrive works on the executing CTA's own barriers only (C6)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(
            self.mbar, Const(1), asynchronous=True, group="cp.async", lent=not self.noinc
        )
        return (arrives,)
