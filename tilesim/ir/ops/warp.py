"""Values that the lanes of a warp exchange: votes, matches, reductions (SEMANTICS E19 to E21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import f32, s32, u32
from tilesim.ir.effects import Defines, Effect, Gathers
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

_EVERY = Const(0xFFFFFFFF)
#: the registers that hold a mask of lanes or any 32 bits
_WORDS = (s32, u32)
#: the class of register that inline PTX takes for an operand of a type
_REGISTERS = {"b32": "r", "u32": "r", "s32": "r", "b64": "l", "f32": "f"}
#: what redux.sync does with values of a type
_REDUCED = {
    "u32": ("add", "min", "max"), "s32": ("add", "min", "max"), "b32": ("and", "or", "xor"),
    "f32": ("min", "max"),
}  # fmt: skip


def bits(lanes: PerLane) -> int:
    """The mask of the lanes that are true."""
    return sum(1 << lane for lane, true in enumerate(lanes.tolist()) if true)


def same(value: int) -> PerLane:
    """One value in all lanes."""
    import numpy as np

    return np.full(32, value, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class VoteSync(Op):
    """``vote.sync``: whether ``predicate`` holds in all, any, or equally many lanes of ``mask``.

    ``uni`` says whether it is the same in all of them, ``ballot`` gives the mask of the lanes where
    it holds. The lanes of ``mask`` execute it together; it orders nothing in memory (E19).
    """

    mnemonic = "vote.sync"
    call = "warp.vote(result, predicate, mode, *, mask)"
    ptx = "vote.sync.{mode}.pred {result:p}, {predicate:p}, {mask};"
    data = frozenset({"predicate"})
    combines = True

    result: Var
    predicate: Expr
    mode: Literal["all", "any", "uni"]
    mask: Expr = _EVERY

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E19"), Defines(self.result))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        holds = inputs.lanes(self.predicate)[inputs.active] != 0
        every, some = bool(holds.all()), bool(holds.any())
        return (same({"all": every, "any": some, "uni": every or not some}[self.mode]),)


@dataclass(frozen=True, kw_only=True)
class Ballot(Op):
    """``vote.sync.ballot``: the lanes of ``mask`` in which ``predicate`` holds, as a mask (E19)."""

    mnemonic = "vote.sync.ballot"
    call = "warp.ballot"
    ptx = "vote.sync.ballot.b32 {result}, {predicate:p}, {mask};"
    data = frozenset({"predicate"})
    combines = True

    result: Var
    predicate: Expr
    mask: Expr = _EVERY

    def verify(self) -> Iterator[str]:
        yield from _word(self.result)

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E19"), Defines(self.result))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        holds = (inputs.lanes(self.predicate) != 0) & inputs.active
        return (same(bits(holds)),)


class _Match:
    """What both forms of match.sync compare."""

    result: Var
    kind: Literal["b32", "b64"]

    @property
    def register(self) -> str:
        """The class of the value's register."""
        return _REGISTERS[self.kind]

    def verify(self) -> Iterator[str]:
        yield from _word(self.result)


@dataclass(frozen=True, kw_only=True)
class MatchAny(_Match, Op):
    """``match.any.sync``: the mask of the lanes that have the same ``value`` as this one.

    ``kind``: how many bits of it are compared (E20).
    """

    mnemonic = "match.any.sync"
    call = "warp.match_any(result, value, *, kind, mask)"
    ptx = "match.any.sync.{kind} {result}, {value:register}, {mask};"
    data = frozenset({"value"})
    combines = True

    result: Var
    value: Expr
    kind: Literal["b32", "b64"] = "b32"
    mask: Expr = _EVERY

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E20"), Defines(self.result, divergent=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        values = _compared(inputs.lanes(self.value), self.kind)
        masks = [bits((values == value) & inputs.active) for value in values.tolist()]
        return (np.array(masks, dtype=np.int64),)


@dataclass(frozen=True, kw_only=True)
class MatchAll(_Match, Op):
    """``match.all.sync``: ``result`` is the mask if all its lanes have the same ``value``, else 0.

    ``holds`` is whether they have; ``kind``: how many bits are compared (E20).
    """

    mnemonic = "match.all.sync"
    call = "warp.match_all(result, holds, value, *, kind, mask)"
    ptx = "match.all.sync.{kind} {result}|{holds:p}, {value:register}, {mask};"
    data = frozenset({"value"})
    combines = True

    result: Var
    holds: Var
    value: Expr
    kind: Literal["b32", "b64"] = "b32"
    mask: Expr = _EVERY

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E20"), Defines(self.result), Defines(self.holds))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        values = _compared(inputs.lanes(self.value), self.kind)[inputs.active]
        holds = bool((values == values[0]).all())
        return same(bits(inputs.active) if holds else 0), same(holds)


@dataclass(frozen=True, kw_only=True)
class ReduxSync(Op):
    """``redux.sync``: the sum, minimum... of ``value`` over the lanes of ``mask``, in all of them.

    Values of 32 bits; sums wrap. ``kind``: the type in which values are added or compared, b32 for
    logical operations. Of f32 there are ``min`` and ``max``, of magnitudes if ``abs``; numbers win
    over NaN, with ``nan`` a NaN over numbers; -0.0 is less than +0.0 (E21).
    """

    mnemonic = "redux.sync"
    call = "warp.redux(result, op, value, *, kind, abs, nan, mask)"
    ptx = "redux.sync.{op}{.abs}{.nan=NaN}.{kind} {result}, {value:register}, {mask};"
    data = frozenset({"value"})
    combines = True

    result: Var
    op: Literal["add", "min", "max", "and", "or", "xor"]
    value: Expr
    kind: Literal["u32", "s32", "b32", "f32"] = "s32"
    abs: bool = False
    nan: bool = False
    mask: Expr = _EVERY

    @property
    def register(self) -> str:
        """The class of the value's register."""
        return _REGISTERS[self.kind]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"redux.f32"}) if self.kind == "f32" else frozenset()

    def verify(self) -> Iterator[str]:
        if self.kind != "f32":
            yield from _word(self.result)
        elif self.result.dtype is not f32:
            yield f"redux.sync of f32 results in f32, {self.result} is {self.result.dtype} (E21)"
        if self.op not in _REDUCED[self.kind]:
            yield f"redux.sync.{self.op} has no type {self.kind} (E21)"
        if self.kind != "f32" and (self.abs or self.nan):
            yield f".abs and .NaN exist for redux.sync of f32, not of {self.kind} (E21)"

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(self.mask, "E21"), Defines(self.result))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        given = inputs.lanes(self.value)[inputs.active]
        if self.kind == "f32":
            return (np.full(32, _extreme(given, self), dtype=np.float64),)
        kind = np.int32 if self.kind == "s32" else np.uint32
        values = given.astype(np.int64).astype(kind)
        reduce = {
            "add": np.add, "min": np.minimum, "max": np.maximum,
            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        }[self.op].reduce  # fmt: skip
        total = reduce(values, dtype=kind)
        return (same(int(total)),)


@dataclass(frozen=True, kw_only=True)
class ActiveMask(Op):
    """``activemask``: the lanes that execute it together; what these are is not promised (E22).

    No proof rests on a value that depends on it: lanes of a warp may reconverge or not.
    """

    mnemonic = "activemask"
    call = "warp.activemask"
    ptx = "activemask.b32 {result};"

    result: Var

    def verify(self) -> Iterator[str]:
        yield from _word(self.result)

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result, divergent=True, oracle="which lanes activemask shows"),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        return (same(bits(inputs.active)),)


def _compared(values: PerLane, kind: str) -> PerLane:
    """The bits of the values that a match compares."""
    import numpy as np

    return values.astype(np.int64) & 0xFFFFFFFF if kind == "b32" else values


def _extreme(values: PerLane, redux: ReduxSync) -> float:
    """The least or greatest of floating-point numbers (E21)."""
    import numpy as np

    numbers = values.astype(np.float32)
    numbers = np.abs(numbers) if redux.abs else numbers
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0 or (redux.nan and len(known) < len(numbers)):
        return float("nan")
    # -0.0 is less than +0.0
    order = np.lexsort((~np.signbit(known), known))
    return float(known[order[0 if redux.op == "min" else -1]])


def _word(result: Var) -> Iterator[str]:
    if result.dtype not in _WORDS:
        yield f"the result has 32 bits, {result} is of type {result.dtype}"
