"""Instructions about time and hints (SEMANTICS H16, H17)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import s32, s64, u32, u64
from tilesim.ir.declarations import View
from tilesim.ir.effects import Defines, Effect
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane


@dataclass(frozen=True, kw_only=True)
class Nanosleep(Op):
    """``nanosleep``: pauses for about ``duration`` nanoseconds, up to a millisecond.

    It orders and promises nothing: an access that relies on it races (H16).
    """

    mnemonic = "nanosleep"
    sync = True
    call = "time.sleep"
    ptx = "nanosleep.u32 {duration:r};"
    data = frozenset({"duration"})

    duration: Expr


@dataclass(frozen=True, kw_only=True)
class ReadClock(Op):
    """``mov`` from ``%clock``, ``%clock64`` or ``%globaltimer``.

    A kernel that is steered by it is no longer proved: no run shows all times (H16).
    """

    mnemonic = "mov.clock"
    call = "time.read(result, register)"
    ptx = "mov.{kind} {result}, %{register};"
    cycles = 20

    result: Var
    register: Literal["clock", "clock64", "globaltimer"] = "clock64"

    @property
    def kind(self) -> str:
        """The type of the special register."""
        return "u32" if self.register == "clock" else "u64"

    def verify(self) -> Iterator[str]:
        fitting = (s32, u32) if self.register == "clock" else (s64, u64)
        if self.result.dtype not in fitting:
            names = " or ".join(t.name for t in fitting)
            yield f"%{self.register} needs a register of type {names}, not {self.result.dtype}"

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result, divergent=True, oracle=f"what %{self.register} shows"),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        return (np.full(32, inputs.time, dtype=np.int64),)


@dataclass(frozen=True, kw_only=True)
class Prefetch(Op):
    """``prefetch``: a hint to bring a line of global memory into a cache; reads nothing (H17)."""

    mnemonic = "prefetch"
    call = "mem.prefetch(src, level)"
    ptx = "prefetch{src.space}.{level} [{src}];"

    src: View
    level: Literal["L1", "L2"] = "L2"

    def verify(self) -> Iterator[str]:
        if self.src.space != "global":
            yield f"only global memory is prefetched, not {self.src} (H17)"
