"""Values in all clusters of a class, and how expressions are evaluated with them.

A value is a number, one number per lane, or an array over the clusters.

Not every expression is evaluated in all of them. ``(tile // ctas * iterations + kt) % stages``
steers, and ``tile`` differs between clusters; ``tile // ctas`` mostly does not, and all else is the
same in all of them. So it is enough to look at the greatest parts of an expression that depend on
nothing but what differs: as long as they are the same in all clusters, so is the whole, whatever
the other registers hold (`Uniform`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from tilesim.analysis.uses_defs import mentioned
from tilesim.arith.sums import Sums, combined
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Expr, Select, Unary
from tilesim.ir.op import Computation
from tilesim.ir.program import Program
from tilesim.sim.affine.cluster_plan import OF_THE_WARP, Integers, varies
from tilesim.sim.affine.footprints import Mask
from tilesim.sim.machine.cta import coordinates_in_cluster
from tilesim.sim.machine.executable import Operand
from tilesim.sim.machine.expression import Evaluate, Fit, compile_expr
from tilesim.sim.machine.lanes import FULL, mask_array, mask_bits
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown, plain

#: (clusters, 1) or (clusters, 32): one value per cluster, or per cluster and lane; or `Sums`
Values: TypeAlias = Any


class Arrays:
    """Arrays over the clusters, equal ones once: what is known of one is known by its identity."""

    def __init__(self) -> None:
        self.count = 0
        #: by first column and first row
        self._by_ends: dict[tuple[object, bytes], list[Values]] = {}

    def canonical(self, new: Values) -> Values:
        """The array that stands for all that are equal to this one."""
        if type(new) is Sums:
            name: tuple[object, bytes] = id(new.column), new.row.tobytes()
        else:
            name = new[:, 0].tobytes(), new[0].tobytes()
        candidates = self._by_ends.setdefault(name, [])
        for known in candidates:
            if known is new or _equal(known, new):
                return known
        candidates.append(new)
        self.count += 1
        return new

    def clear(self) -> None:
        """Forgets them."""
        self._by_ends.clear()
        self.count = 0


def _equal(one: Values, other: Values) -> bool:
    """Bit by bit: zero has two signs."""
    if type(one) is Sums and type(other) is Sums:
        return one.column is other.column and np.array_equal(one.row, other.row)
    if type(one) is Sums or type(other) is Sums or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "iu":
        return bool(np.array_equal(one, other))
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())


def lanes_where(test: Values, mask: int) -> int:
    """The lanes of a mask in which a condition holds."""
    value = plain(test)
    if type(value) is Unknown:
        return mask  # what is executed all the same does nothing but set registers
    if not isinstance(value, np.ndarray):
        return mask if value else 0
    return mask & mask_bits(value != 0)


def differs(value: Values) -> bool:
    """Whether a value is given for each cluster."""
    return type(value) is Sums or (isinstance(value, np.ndarray) and value.ndim == 2)


def first_of(value: Values) -> Values:
    """The value in the cluster that runs."""
    return value[0] if differs(value) else value


def moved(values: Values, by: Any) -> Values:
    """All values larger by a number, or one per lane."""
    found = combined("+", np.add, values, by) if type(values) is Sums else None
    return plain(values) + by if found is None else found


def of_active(values: Values, mask: int) -> Values:
    """The columns of the active lanes, or the only one."""
    return values if values.shape[1] == 1 or mask == FULL else values[:, mask_array(mask)]


# ----------------------------------------------------- what an instruction computes of its operands


def computed(
    op: Computation, fits: Sequence[Fit | None], operands: Mapping[int, Any], clusters: int
) -> tuple[Any, ...]:
    """The registers that it sets, each (clusters, 32), brought into their types by ``fits``.

    ``operands``: by the identity of the expression its value, or one per cluster. Clusters with the
    same operands are computed once.
    """
    at_once = op.compute_many(lambda operand: operands[id(operand)])
    if at_once is not None:
        return tuple(_fitted(result, fit) for fit, result in zip(fits, at_once, strict=False))
    operands = {k: plain(v) for k, v in operands.items()}
    known: dict[bytes, tuple[Any, ...]] = {}
    rows: list[tuple[Any, ...]] = []
    for cluster in range(clusters):
        own = {k: v[cluster] if np.ndim(v) == 2 else v for k, v in operands.items()}
        name = b"".join(np.asarray(v).tobytes() for v in own.values())
        if name not in known:
            known[name] = op.compute(_in_lanes(own))
        rows.append(known[name])
    columns = (np.stack(column) for column in zip(*rows, strict=True))
    # an opcode may have more results than are kept
    return tuple(_fitted(column, fit) for fit, column in zip(fits, columns, strict=False))


def _fitted(result: Any, fit: Fit | None) -> Any:
    if isinstance(result, np.ndarray):
        result = _signed(result)
    return result if fit is None else fit(result)


def _in_lanes(operands: Mapping[int, Any]) -> Callable[[Expr], Any]:
    return lambda operand: np.broadcast_to(operands[id(operand)], 32)


def _signed(column: Any) -> Any:
    """Results as registers hold them: integers of Python where 64 bits with a sign do not do."""
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        return column.astype(object)
    return column.astype(np.int64)


# ------------------------------------------------------------------ warps as expressions see them


#: of more clusters what is in registers is kept as `Sums`
SEVERAL = 1 << 8
#: of more clusters repetitions are not skipped
MANY = 1 << 16


class _Registers:
    """The registers of a warp in all clusters: arrays where they differ, else the warp's own."""

    def __init__(self, warp: Warp) -> None:
        self.own = warp.registers
        self.differing: dict[int, Values] = {}

    def __getitem__(self, slot: int) -> Any:
        return self.differing[slot] if slot in self.differing else self.own[slot]


class CtaOfAllClusters:
    """The CTA and the cluster of a warp, in all clusters: its coordinates are arrays."""

    def __init__(self, rank: int, coords: Iterable[Values], number: Values) -> None:
        self.rank = rank
        self.coords = tuple(coords)
        self.cluster = self
        self.number = number


def _in_a_column(values: Integers) -> Values:
    return values[:, None]


class Mirror:
    """A warp as expressions see it, in all clusters at once.

    ``uniform``: by number of a step, in which lanes it evaluates the same in all clusters while the
    registers differ as they do now.
    """

    def __init__(self, warp: Warp, place: CtaOfAllClusters) -> None:
        self.warp = warp
        warp.elsewhere = self
        self.machine = warp.machine
        self.number = warp.number
        self.cta = place
        self.registers = _Registers(warp)
        self.uniform: dict[int, int] = {}

    @property
    def mask(self) -> int:
        """The active lanes."""
        return self.warp.mask

    def differ(self, slot: int, values: Values) -> None:
        """What a register holds from now on."""
        differing = self.registers.differing
        if differing.get(slot) is not values:
            differing[slot] = values
            self.uniform.clear()

    def agree(self, slot: int) -> None:
        """A register holds the same in all clusters from now on."""
        if self.registers.differing.pop(slot, None) is not None:
            self.uniform.clear()

    def saved(self) -> dict[int, Values]:
        """What differs between clusters."""
        return dict(self.registers.differing)

    def restore(self, saved: dict[int, Values]) -> None:
        """Nothing else differs from now on."""
        self.registers.differing.clear()
        self.registers.differing.update(saved)
        self.uniform.clear()

    def value(self, evaluate: Evaluate) -> Values:
        """An expression: a number or one per lane, or an array over the clusters."""
        with np.errstate(divide="raise", over="ignore"):
            value = evaluate(cast(Warp, self))
            return value if type(value) is Sums else plain(value)

    def differs(self, evaluate: Evaluate) -> bool:
        """See `Elsewhere.differs`."""
        try:
            value = self.value(evaluate)
            return differs(value) and _vary(value)
        except ArithmeticError:
            return True

    def value_names(self, operand: Operand) -> list[Hashable] | None:
        """See `Elsewhere.value_names`."""
        if not operand.of_grid and self.registers.differing.keys().isdisjoint(operand.slots):
            return None
        assert operand.evaluate is not None
        try:
            value = self.value(operand.evaluate)
        except ArithmeticError:
            return [object() for _ in range(32)]  # the same as nothing
        if type(value) is Unknown:
            return [object() for _ in range(32)]
        if not differs(value) or not _vary(value):
            return None
        if type(value) is Sums:
            column = value.column.values.tobytes()
            return [(column, int(number)) for number in np.broadcast_to(value.row, 32)]
        return [column.tobytes() for column in np.broadcast_to(value, (len(value), 32)).T]

    def shrink(self, place: CtaOfAllClusters, kept: Mask) -> None:
        """Goes on with some of the clusters."""
        self.cta = place
        self.restore({slot: value[kept] for slot, value in self.saved().items()})


def _vary(values: Values) -> bool:
    """Whether not all clusters have the same."""
    if type(values) is Sums:
        return not values.is_uniform
    return bool((values != values[0]).any())


def places(program: Program, clusters: Integers) -> dict[int, CtaOfAllClusters]:
    """The places of the CTAs of each rank."""
    of = Sums.of if len(clusters) > SEVERAL else _in_a_column
    return {
        rank: CtaOfAllClusters(
            rank, map(of, coordinates_in_cluster(program, clusters, rank)), of(clusters)
        )
        for rank in range(program.cluster_size)
    }


# ---------------------------------------------------- expressions that are the same in all clusters


class Uniform:
    """Tells which expressions are the same in all clusters, as registers differ now.

    ``vary``: whether not all clusters that take the same steps have the same value.
    """

    def __init__(
        self, slots: Mapping[str, int], typing: Typing, vary: Callable[[Values], bool]
    ) -> None:
        self._slots = slots
        self._typing = typing
        self._vary = vary
        #: by identity of an expression, which is kept alive: its registers, and whether it names
        #: the CTA, and the warp
        self._read: dict[int, tuple[tuple[int, ...], bool, bool, Expr]] = {}
        #: by identity of an expression and registers: the parts that depend on these only
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[Evaluate, ...] | None] = {}
        #: what holds of an expression, with the arrays that are named by their identity
        self._known: dict[Hashable, tuple[bool, list[Values]]] = {}

    def forget(self) -> None:
        """Forgets what expressions evaluated to."""
        self._known.clear()

    def has(self, expr: Expr, mirror: Mirror, mask: int = FULL) -> bool:
        """Whether an expression is in all clusters, in the lanes of ``mask``, what it is in the one
        that runs, whatever registers hold that are the same in all of them."""
        read = self._read.get(id(expr))
        if read is None:
            names = mentioned(expr)
            slots = tuple([self._slots[name] for name in names if name in self._slots])
            read = slots, varies(expr, ()), not names.isdisjoint(OF_THE_WARP), expr
            self._read[id(expr)] = read
        differing = mirror.registers.differing
        slots = tuple([slot for slot in read[0] if slot in differing])
        if not slots and not read[1]:
            return True
        arrays = [differing[slot] for slot in slots]
        warp = mirror.number if read[2] else -1
        key = id(expr), mirror.cta.rank, warp, mirror.mask, mask, slots, *map(id, arrays)
        found = self._known.get(key)
        if found is None:
            parts = self._of(expr, slots)
            same = parts is not None and all(self._same(p, mirror, mask) for p in parts)
            found = self._known[key] = same, arrays
        return found[0]

    def _same(self, part: Evaluate, mirror: Mirror, mask: int) -> bool:
        """Whether an expression has the same value in all clusters."""
        try:
            value = mirror.value(part)
        except ArithmeticError:
            return False
        if not differs(value):
            return type(value) is not Unknown
        return not self._vary(value if type(value) is Sums else of_active(value, mask))

    def _of(self, expr: Expr, differing: tuple[int, ...]) -> tuple[Evaluate, ...] | None:
        """The greatest parts of an expression that depend on registers which differ, and on no
        others; None if what differs is itself evaluated somewhere."""
        key = id(expr), differing
        if key not in self._parts:
            parts = list(self._within(expr, differing))
            whole = all(isinstance(part, Unary | Binary | Select) for part in parts)
            made = (compile_expr(part, self._slots, self._typing) for part in parts)
            self._parts[key] = tuple(made) if whole else None
        return self._parts[key]

    def _within(self, expr: Expr, differing: tuple[int, ...]) -> Iterator[Expr]:
        names = {name for name in mentioned(expr) if name in self._slots}
        mine = {name for name in names if self._slots[name] in differing}
        if not varies(expr, mine):
            return
        if mine == names:
            yield expr
            return
        match expr:
            case Unary(operand=operand):
                yield from self._within(operand, differing)
            case Binary(lhs=lhs, rhs=rhs):
                yield from self._within(lhs, differing)
                yield from self._within(rhs, differing)
            case Select(cond=cond, then=then, other=other):
                for part in (cond, then, other):
                    yield from self._within(part, differing)
            case _:
                yield expr
