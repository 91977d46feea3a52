"""Instructions of MIR to which only PTX is lowered: most compute registers of registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.bit_vectors import LANES, Operation, Value, apply, apply_many
from tilesim.arith.opcodes import operation
from tilesim.arith.types import DTYPES, numpy_dtype
from tilesim.ir.declarations import Fragment
from tilesim.ir.effects import Defines, Effect, Gathers, Group, Queries, UsesFragment
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.op import Computation, Inputs, MeaninglessOperand, Op, Symmetric, UnknownResult
from tilesim.records import dataclass

#: one value per lane
PerLane: TypeAlias = NDArray[Any]


#: what has one result of two numbers of one type, whichever comes first
_SYMMETRIC = re.compile(
    r"(add|mul|min|max|and|or|xor)"
    r"(\.(lo|rn|rz|rm|rp|ftz|sat|nan|xorsign|abs|relu))*"
    # no number has bits of its own, as one of f64 has
    r"\.([sub]\d+|f32|f32x2|b?f16|b?f16x2|pred)"
)


def _is_symmetric(opcode: str, sources: tuple[Expr, ...]) -> bool:
    return len(sources) == 2 and _SYMMETRIC.fullmatch(opcode) is not None


@dataclass(frozen=True, kw_only=True)
class Compute(Computation, Symmetric):
    """Integer and bit arithmetic, predicates, moves, conversions: ``opcode`` with its qualifiers.

    ``results`` may be fewer than the opcode has; registers hold unsigned numbers.
    """

    mnemonic = "ptx.compute"
    data = frozenset({"sources"})

    opcode: str
    results: tuple[Var, ...]
    sources: tuple[Expr, ...]

    @property
    def operation(self) -> Operation:
        """What the opcode computes."""
        found = operation(self.opcode)
        if found is None:
            raise ValueError(f"{self.opcode} is not computed")
        return found

    @property
    def symmetric(self) -> bool:
        return _is_symmetric(self.opcode, self.sources)

    def verify(self) -> Iterator[str]:
        if operation(self.opcode) is None:
            yield f"{self.opcode} is not computed"

    def effects(self) -> tuple[Effect, ...]:
        return tuple(Defines(result) for result in self.results)

    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        values = tuple(unsigned(value(source)) for source in self.sources)
        return tuple(spread(result) for result in apply(self.operation, values))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane | int, ...]:
        numbers = tuple(map(inputs.number, self.sources))
        known = tuple(n for n in numbers if n is not None)
        if len(known) < len(numbers):
            return self.compute(inputs.lanes)
        return tuple(result or 0 for result in apply(self.operation, known))

    def unspecified(self, inputs: Inputs) -> bool:
        divides = self.opcode.startswith(("div.", "rem."))
        return divides and not inputs.lanes(self.sources[1])[inputs.active].all()

    def compute_many(self, value: Callable[[Expr], Any]) -> tuple[Any, ...] | None:
        return apply_many(self.operation, tuple(map(value, self.sources)))


@dataclass(frozen=True, kw_only=True)
class Pack(Computation):
    """``mov`` of a vector to a register: the first item in the lowest bits; ``width`` of an item.

    `Unpack` is the other way round.
    """

    mnemonic = "ptx.pack"
    data = frozenset({"items"})

    result: Var
    items: tuple[Expr, ...]
    width: int

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result),)

    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        total = np.zeros(LANES, dtype=np.uint64)
        mask = np.uint64((1 << self.width) - 1)
        for number, item in enumerate(self.items):
            part = _array(unsigned(value(item))) & mask
            total |= part << np.uint64(number * self.width)
        return (total,)


@dataclass(frozen=True, kw_only=True)
class Unpack(Computation):
    """``mov`` of a register to a vector of items of ``width`` bits; ``places`` are those that have
    a register."""

    mnemonic = "ptx.unpack"
    data = frozenset({"value"})

    results: tuple[Var, ...]
    value: Expr
    width: int
    places: tuple[int, ...]

    def effects(self) -> tuple[Effect, ...]:
        return tuple(Defines(result) for result in self.results)

    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        whole = _array(unsigned(value(self.value)))
        mask = np.uint64((1 << self.width) - 1)
        return tuple(whole >> np.uint64(place * self.width) & mask for place in self.places)


@dataclass(frozen=True, kw_only=True)
class Decode(Computation):
    """The floating-point numbers of type ``kind`` that the bits of a register encode, the lowest
    first; `Encode` is the other way round."""

    mnemonic = "ptx.decode"
    data = frozenset({"value"})

    results: tuple[Var, ...]
    value: Expr
    kind: Literal["f16", "bf16", "f32", "f64"]

    def effects(self) -> tuple[Effect, ...]:
        return tuple(Defines(result) for result in self.results)

    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        bits, width = _array(unsigned(value(self.value))), DTYPES[self.kind].bits
        return tuple(self._numbers(bits >> np.uint64(k * width)) for k in range(len(self.results)))

    def _numbers(self, bits: PerLane) -> PerLane:
        dtype = DTYPES[self.kind]
        return bits.astype(f"u{dtype.bytes}").view(numpy_dtype(dtype)).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Encode(Computation):
    """The bits of ``items``, floating-point numbers of type ``kind``, the first one lowest."""

    mnemonic = "ptx.encode"
    data = frozenset({"items"})

    result: Var
    items: tuple[Expr, ...]
    kind: Literal["f16", "bf16", "f32", "f64"]

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result),)

    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        dtype = DTYPES[self.kind]
        total = np.zeros(LANES, dtype=np.uint64)
        for number, item in enumerate(self.items):
            cells = np.asarray(value(item)).astype(numpy_dtype(dtype))
            part = cells.view(f"u{dtype.bytes}").astype(np.uint64)
            total |= part << np.uint64(number * dtype.bits)
        return (total,)


@dataclass(frozen=True, kw_only=True)
class Data(Op, Symmetric):
    """Arithmetic on elements of tensors, and other things that are not known: the results are
    unknown. Where one decides something all the same, nothing is proved. ``why`` they are unknown,
    if it is no arithmetic. ``warp``: its lanes compute them together. ``partly``: the variables
    stand for several registers, of which others keep what they hold (`tilesim.ptx.accumulators`).
    ``composed``: the sources are what the operands are made of, not these. ``group``: of the
    operation that sets them, which is asynchronous."""

    mnemonic = "ptx.data"
    data = frozenset({"sources"})

    opcode: str
    results: tuple[Var, ...]
    sources: tuple[Expr, ...]
    why: str = ""
    warp: bool = False
    partly: bool = False
    composed: bool = False
    group: Group | None = None

    @property
    def symmetric(self) -> bool:
        return not self.composed and _is_symmetric(self.opcode, self.sources)

    def effects(self) -> tuple[Effect, ...]:
        why = self.why or f"the result of {self.opcode}, which is not computed"
        results = tuple(
            Defines(r, divergent=True, unknown=why, group=self.group) for r in self.results
        )
        return (Gathers(None, "E24", whole=True), *results) if self.warp else results


@dataclass(frozen=True, kw_only=True)
class Exchange(Op):
    """``shfl.sync`` of some lanes, or within parts of a warp: ``value`` of another lane.

    ``clamp`` and ``lane`` as in PTX; ``inside`` says whether the other lane is in the same part.
    What a lane gets from one that does not execute it is undefined (PTX 9.7.9.6).
    """

    mnemonic = "ptx.shfl"
    data = frozenset({"value"})

    result: Var
    inside: Var
    value: Expr
    mode: Literal["idx", "up", "down", "bfly"]
    lane: Expr
    clamp: Expr
    mask: Expr

    def effects(self) -> tuple[Effect, ...]:
        results = (Defines(self.result, divergent=True), Defines(self.inside, divergent=True))
        return (Gathers(self.mask, "E27"), *results)

    def _there(self, inputs: Inputs) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The lane that each lane reads from, and whether that is in its part."""
        own = np.arange(LANES, dtype=np.int64)
        by, clamp = (inputs.lanes(o).astype(np.int64) for o in (self.lane, self.clamp))
        by, most, part = by & 31, clamp & 31, clamp >> 8 & 31
        first, last = own & part, own & part | most & ~part
        there = {
            "up": own - by, "down": own + by, "bfly": own ^ by, "idx": first | by & ~part,
        }[self.mode]  # fmt: skip
        inside = there >= last if self.mode == "up" else there <= last
        return np.where(inside, there, own), inside

    def source_lanes(self, inputs: Inputs) -> NDArray[np.int64]:
        return self._there(inputs)[0]

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        there, inside = self._there(inputs)
        wrong = np.flatnonzero(inputs.active & ~inputs.active[there])
        if len(wrong):
            raise MeaninglessOperand(
                "participation",
                f"shfl.sync: lane {wrong[0]} reads the value of lane {there[wrong[0]]}, which does "
                "not execute it",
                "execute it with all lanes that are read from, and name them in the mask",
            )
        return _array(unsigned(inputs.lanes(self.value)))[there], inside.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Assumes(Op):
    """``result`` is 0 where ``value`` is ``expected``, as lowering has assumed of what it could not
    know, and otherwise an unknown value."""

    mnemonic = "ptx.assumes"

    result: Var
    value: Expr
    expected: int
    what: str

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        bits = _array(unsigned(inputs.lanes(self.value)))[inputs.active]
        if (bits != np.uint64(self.expected)).any():
            raise UnknownResult(f"{self.what} differs from what the code computes", UNKNOWN)
        return (np.zeros(LANES, dtype=np.uint64),)


@dataclass(frozen=True, kw_only=True)
class Query(Op):
    """``clusterlaunchcontrol.query_cancel`` of a response in a register, which is two halves."""

    mnemonic = "clusterlaunchcontrol.query_cancel"

    result: Var
    response: tuple[Expr, Expr]
    part: Literal["canceled", "x", "y", "z"]

    def effects(self) -> tuple[Effect, ...]:
        says = Queries(self.part, self.response)
        return (says, Defines(self.result, says))


@dataclass(frozen=True, kw_only=True)
class AccessTile(Op):
    """Registers of a tile of wgmma are read, or written, by an instruction that follows.

    ``moved``: it moves a constant or another register there. ``variable``: the name of the one that
    stands for all of them. ``sources``: of a tile that tcgen05.st stores, all of its registers.
    """

    mnemonic = "ptx.access_tile"
    cycles = 0
    data = frozenset({"sources"})

    fragment: Fragment
    write: bool
    moved: bool = False
    variable: str = ""
    sources: tuple[Expr, ...] = ()

    def effects(self) -> tuple[Effect, ...]:
        return (
            UsesFragment(
                self.fragment, write=self.write, partly=True, moved=self.moved,
                variable=self.variable,
            ),
        )  # fmt: skip


def unsigned(value: PerLane) -> Value:
    """A register's value in 32 lanes as unsigned numbers; one number if all lanes have it."""
    first = value[0]
    if bool((value == first).all()):
        return int(first) & (1 << 64) - 1
    if value.dtype == object:
        return np.array([int(v) & (1 << 64) - 1 for v in value], dtype=np.uint64)
    return np.ascontiguousarray(value.astype(np.int64)).view(np.uint64)


def _array(value: Value) -> PerLane:
    return np.full(LANES, value, dtype=np.uint64) if isinstance(value, int) else np.asarray(value)


def spread(value: Value) -> PerLane:
    """A result as one number per lane."""
    return _array(0 if value is None else value)
