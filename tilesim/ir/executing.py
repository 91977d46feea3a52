"""Which warps of a CTA may execute an instruction.

Roles are branches over nothing but the number of the warp, or of the thread: in the DSL a test of
``%warp_id``, in compilers' code whatever they make of ``%tid``, often by way of registers and of a
shuffle that tells the compiler that all lanes agree. Where such a branch sends a warp is known
before it runs, and so are the warps that come to each instruction.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.arithmetic import LIMITS, integer_limits
from tilesim.ir.array_operators import ARRAY_BINARY, ARRAY_UNARY
from tilesim.ir.dataflow import operand_expressions, registers_set
from tilesim.ir.effects import Defines, Exits, Shuffles
from tilesim.ir.expr import Binary, Const, Expr, Special, Unary, Var, constant
from tilesim.ir.flowgraph import LANES, graph_of
from tilesim.ir.kept import kept
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Computation, Op

#: one number for all threads of a CTA, or an array of (warps, lanes); None: not known
_Value: TypeAlias = "int | NDArray[np.int64] | None"

#: numbers beyond this are left alone: sums of two that are not have 64 bits
_MOST = 1 << 61
#: of what is within it products have that, and what is shifted by less than 32
_SMALL = 1 << 30
_MOST_BITS = 32


@kept
def executing(mir: Mir) -> tuple[tuple[int, ...], ...]:
    """By number of an instruction, the warps that may come to it, in ascending order.

    Where none comes it is those that would if the branch before it went the other way, or nobody
    ended before it: reports say which warps an instruction was meant for.
    """
    ways = _Ways(mir)
    ways.follow()
    every = (1 << mir.kernel.warps) - 1
    found = [mask or every for mask in ways.coming]
    names = {mask: tuple(w for w in range(mir.kernel.warps) if mask >> w & 1) for mask in {*found}}
    return tuple([names[mask] for mask in found])


class _Ways:
    """Where branches send the warps of a CTA; sets of warps are masks."""

    def __init__(self, mir: Mir) -> None:
        self._mir, self._graph = mir, graph_of(mir)
        self._threads = _Threads(mir)
        self._every = (1 << mir.kernel.warps) - 1
        #: by number, and by block
        self.coming = [0] * len(mir.code)
        self._at_start = [0] * len(self._graph.blocks)

    def follow(self) -> None:
        """Follows all warps from the beginning, and then on ways that none of them goes."""
        todo, blocks = [(0, self._every)], range(len(self._at_start))
        while todo:
            self._through(todo)
            todo = [way for b in blocks if self._at_start[b] for way in self._not_taken(b)]

    def _through(self, todo: list[tuple[int, int]]) -> None:
        """Follows warps from blocks on, but not to where others have come before."""
        known = [*self._at_start]
        while todo:
            block, coming = todo.pop()
            coming &= ~self._at_start[block]
            if known[block] or not coming:
                continue
            self._at_start[block] |= coming
            for number in self._graph.blocks[block]:
                if not coming:
                    break
                self.coming[number] |= coming
                coming &= ~self._leaving(number)
            todo += self._after(block, coming)

    def _not_taken(self, block: int) -> list[tuple[int, int]]:
        """The blocks that follow one, or are written behind it, and to which nobody comes."""
        after = {*self._graph.successors[block], min(block + 1, len(self._at_start) - 1)}
        coming = self._at_start[block]
        return [(other, coming) for other in sorted(after) if not self._at_start[other]]

    def _after(self, block: int, coming: int) -> list[tuple[int, int]]:
        """The blocks that may follow one, with those of the warps ``coming`` through it that go
        on there."""
        graph = self._graph
        number = graph.blocks[block][-1] if graph.blocks[block] else -1
        what = self._mir.code[number].what if number >= 0 else None
        if not isinstance(what, Branch) or what.cond is None:
            return [(following, coming) for following in graph.successors[block]]
        true, false = self._decided(what.cond)
        taking, others = (true, false) if what.sense else (false, true)
        ways = ((what.target, taking), (number + 1, others))
        return [(graph.block_of[n], coming & some) for n, some in ways if coming & some]

    def _leaving(self, number: int) -> int:
        """The warps of which all lanes end at an instruction, if it does not end all of them."""
        instruction = self._mir.code[number]
        if instruction.guard is None or not isinstance(instruction.what, Op):
            return 0
        if not any(isinstance(effect, Exits) for effect in self._mir.effects[number]):
            return 0
        _, false = self._decided(instruction.guard)
        return self._every & ~false

    def _decided(self, cond: Expr) -> tuple[int, int]:
        """The warps in which a condition may hold in some lane, and those in which it may not."""
        value = self._threads.value(cond)
        if value is None:
            return self._every, self._every
        if isinstance(value, int):
            return (self._every, 0) if value else (0, self._every)
        holds = value != 0
        return _mask(holds.any(axis=1)), _mask(~holds.all(axis=1))


def _mask(warps: NDArray[np.bool_]) -> int:
    return sum(1 << int(w) for w in np.flatnonzero(warps))


class _Threads:
    """What registers hold in each thread of a CTA, as far as its number decides that."""

    def __init__(self, mir: Mir) -> None:
        self._mir, self._typing = mir, mir.typing
        warps = np.arange(mir.kernel.warps, dtype=np.int64)[:, None]
        lanes = np.arange(LANES, dtype=np.int64)[None, :]
        own = np.broadcast_to(warps, (mir.kernel.warps, LANES))
        self._special: dict[str, NDArray[np.int64]] = {
            "warp_id": own, "lane_id": np.broadcast_to(lanes, own.shape),
            "thread_id": warps * LANES + lanes,
        }  # fmt: skip
        self._registers: dict[str, _Value] = {}

    def value(self, expr: Expr) -> _Value:
        """An expression of integers of which no part wraps."""
        match expr:
            case Const(int(value)):
                return value if _lies(value, -_MOST, _MOST) else None
            case Special(name):
                return self._special.get(name)
            case Var(name):
                if name not in self._registers:
                    self._registers[name] = None  # what is made of itself is not known
                    self._registers[name] = self._held(expr)
                return self._registers[name]
            case Unary(op, operand):
                a = self.value(operand)
                return None if a is None else self._within(expr, ARRAY_UNARY[op](np.asarray(a)))
            case Binary(_, lhs, rhs):
                a = self.value(lhs)
                b = None if a is None else self.value(rhs)
                return None if a is None or b is None else self._binary(expr, a, b)
            case _:
                return None

    def _held(self, var: Var) -> _Value:
        """What a register holds that one instruction sets, always to the same."""
        setters = self._mir.setters.get(var.name, [])
        if len(setters) != 1 or self._mir.code[setters[0]].guard is not None:
            return None
        match self._mir.code[setters[0]].what, self._mir.effects[setters[0]]:
            case Computation() as op, _:
                found = self._computed(op, var)
            case _, (Defines(value=Expr() as value, chance="", unknown=""),):
                found = self.value(value)
            case _, (Shuffles(value=value, lane=lane, mode="idx"), Defines()):
                found = self._shuffled(value, constant(lane))
            case _:
                return None
        if found is None or var.name in self._typing.tokens or var.dtype.kind == "float":
            return None
        return found if _lies(found, *integer_limits(var.dtype)) else None

    def _computed(self, op: Computation, var: Var) -> _Value:
        operands = {id(e): self.value(e) for e in operand_expressions(op)}
        if any(value is None for value in operands.values()):
            return None
        results = op.compute_many(lambda operand: operands[id(operand)])
        place = [result.name for result in registers_set(op)].index(var.name)
        return None if results is None else _number(np.asarray(results[place]))

    def _shuffled(self, expr: Expr, lane: int | None) -> _Value:
        value = self.value(expr)
        if value is None or lane is None or not 0 <= lane < LANES:
            return None
        return value if isinstance(value, int) else np.broadcast_to(value[:, [lane]], value.shape)

    def _binary(
        self, expr: Binary, a: int | NDArray[np.int64], b: int | NDArray[np.int64]
    ) -> _Value:
        op, left, right = expr.op, np.asarray(a), np.asarray(b)
        unsigned = "u64" in (self._typing.type_of(expr.lhs), self._typing.type_of(expr.rhs))
        if unsigned and not (_lies(a, 0, _MOST) and _lies(b, 0, _MOST)):
            return None
        if op in ("//", "%") and not right.all():
            return None
        if op in ("<<", ">>") and not _lies(b, 0, _MOST_BITS - 1):
            return None
        if op in ("*", "<<") and not (_lies(a, -_SMALL, _SMALL) and _lies(b, -_SMALL, _SMALL)):
            return None
        return self._within(expr, ARRAY_BINARY[op](left, right))

    def _within(self, expr: Expr, result: NDArray[Any]) -> _Value:
        """A result that its type can hold."""
        kind, found = self._typing.type_of(expr), _number(result)
        if kind not in LIMITS or found is None:
            return None
        return found if _lies(found, *LIMITS[kind]) else None


def _number(result: NDArray[Any]) -> _Value:
    """A result, unless it is too large to go on with."""
    if not -_MOST <= result.min() <= result.max() <= _MOST:
        return None
    return result.astype(np.int64) if result.ndim else int(result)


def _lies(value: int | NDArray[np.int64], low: int, high: int) -> bool:
    if isinstance(value, int):
        return low <= value <= high
    return bool(low <= value.min() and value.max() <= high)
