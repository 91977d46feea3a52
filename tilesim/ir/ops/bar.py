"""Named barriers, warp barriers, election, register reallocation, exit (SEMANTICS section E)."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Literal

from tilesim.ir.effects import Defines, Effect, Elects, Exits, Gathers, JoinsBarrier, Registers
from tilesim.ir.expr import Const, Expr, Var, constant, fraction
from tilesim.ir.op import Op
from tilesim.records import dataclass

FULL_MASK = 0xFFFFFFFF


def counts_threads(threads: int) -> bool:
    """Whether a named barrier can wait for so many threads (E1)."""
    return 0 < threads <= 1024 and not threads % 32


def _named_problems(barrier: Expr, count: Expr | None) -> Iterator[str]:
    known, threads = constant(barrier), None if count is None else constant(count)
    if known is not None and not 0 <= known <= 15:
        yield f"named-barrier: id {known} is outside 0..15 (E1)"
    if fraction(barrier) is not None:
        yield f"named-barrier: id {barrier} is not an integer (E1)"
    if threads is not None and not counts_threads(threads):
        yield f"named-barrier: {threads} threads is not a multiple of 32 in 32..1024 (E1)"


@dataclass(frozen=True, kw_only=True)
class BarSync(Op):
    """``barrier.sync``: joins named barrier ``id`` and waits for ``threads`` threads (E1-E4).

    ``threads`` None means all threads of the CTA; ``id`` 0 without threads is ``__syncthreads``.
    ``aligned`` is the ``bar.sync`` form, which all lanes of the warp must execute together (E8).
    """

    mnemonic = "barrier.sync"
    ptx = "barrier.sync{.aligned} {id:r}{,threads:r};"
    synonyms = MappingProxyType({"bar.sync": "barrier.sync.aligned"})
    hints = frozenset({"cta"})
    cycles = 20
    sync = True

    id: Expr
    threads: Expr | None = None
    aligned: bool = True

    def verify(self) -> Iterator[str]:
        yield from _named_problems(self.id, self.threads)

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsBarrier(self.id, self.threads, waits=True, aligned=self.aligned),)


@dataclass(frozen=True, kw_only=True)
class BarArrive(Op):
    """``barrier.arrive``: counts this warp on named barrier ``id`` without waiting (E2, E4)."""

    mnemonic = "barrier.arrive"
    ptx = "barrier.arrive{.aligned} {id:r}, {threads:r};"
    synonyms = MappingProxyType({"bar.arrive": "barrier.arrive.aligned"})
    hints = frozenset({"cta"})
    sync = True

    id: Expr
    threads: Expr
    aligned: bool = True

    def verify(self) -> Iterator[str]:
        yield from _named_problems(self.id, self.threads)

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsBarrier(self.id, self.threads, waits=False, aligned=self.aligned),)


@dataclass(frozen=True, kw_only=True)
class BarRed(Op):
    """``barrier.red``: joins named barrier ``id`` and reduces a predicate over its threads (E5)."""

    mnemonic = "barrier.red"
    ptx = "barrier.red.{op}{.aligned}.{kind} {result:register}, {id:r}{,threads:r}, {value:p};"
    synonyms = MappingProxyType({"bar.red": "barrier.red.aligned"})
    hints = frozenset({"cta"})
    sync = True

    result: Var
    id: Expr
    value: Expr
    op: Literal["and", "or", "popc"] = "or"
    threads: Expr | None = None
    aligned: bool = True

    @property
    def kind(self) -> Literal["u32", "pred"]:
        """The type of the result."""
        return "u32" if self.op == "popc" else "pred"

    @property
    def register(self) -> str:
        """The class of the result's register."""
        return "r" if self.op == "popc" else "p"

    def verify(self) -> Iterator[str]:
        yield from _named_problems(self.id, self.threads)

    def effects(self) -> tuple[Effect, ...]:
        join = JoinsBarrier(
            self.id, self.threads, waits=True, aligned=self.aligned, vote=self.value,
            reduction=self.op,
        )  # fmt: skip
        return (join, Defines(self.result, join))


@dataclass(frozen=True, kw_only=True)
class SyncWarp(Op):
    """``bar.warp.sync``: the lanes of ``mask`` meet (E11).

    Lanes may name different masks: those that name one meet among themselves.
    """

    mnemonic = "bar.warp.sync"
    ptx = "bar.warp.sync {mask:r};"

    mask: Expr = Const(FULL_MASK)

    def verify(self) -> Iterator[str]:
        known = constant(self.mask)
        if known is not None and not 0 <= known <= FULL_MASK:
            yield f"lane mask {known:#x} is not a 32-bit mask (E11)"

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E11", orders=True),)


@dataclass(frozen=True, kw_only=True)
class ElectSync(Op):
    """``elect.sync``: ``result`` is 1 in one lane of ``mask``, always the same one (E12).

    It orders no accesses. ``warp_sync``: the lanes execute `bar.warp.sync` before it.
    """

    mnemonic = "elect.sync"
    ptx = "elect.sync _|{result:p}, {mask:r};"
    features = frozenset({"elect"})

    result: Var
    mask: int = FULL_MASK
    warp_sync: bool = True

    def verify(self) -> Iterator[str]:
        if not 0 <= self.mask <= FULL_MASK:
            yield f"lane mask {self.mask:#x} is not a 32-bit mask (E12)"

    def effects(self) -> tuple[Effect, ...]:
        gathers = Gathers(Const(self.mask), "E12", orders=self.warp_sync)
        return (gathers, elects := Elects(), Defines(self.result, elects, divergent=True))


@dataclass(frozen=True, kw_only=True)
class Setmaxnreg(Op):
    """``setmaxnreg``: changes the warp's register limit through the CTA's pool (E13-E18)."""

    mnemonic = "setmaxnreg"
    ptx = "setmaxnreg.{action}.sync.aligned.u32 {count};"
    features = frozenset({"setmaxnreg"})
    sync = True

    count: int
    action: Literal["inc", "dec"]

    def verify(self) -> Iterator[str]:
        if not 24 <= self.count <= 256 or self.count % 8:
            yield f"register-pool: {self.count} registers is not a multiple of 8 in 24..256 (E13)"

    def effects(self) -> tuple[Effect, ...]:
        return (Registers(self.count, increase=self.action == "inc"),)


@dataclass(frozen=True, kw_only=True)
class Exit(Op):
    """The active lanes end; a warp whose lanes have all ended counts as exited."""

    mnemonic = "exit"
    ptx = "exit;"
    synonyms = MappingProxyType({"ret": "exit"})
    hints = frozenset({"uni"})
    sync = True

    def effects(self) -> tuple[Effect, ...]:
        return (Exits(),)
