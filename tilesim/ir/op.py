"""What an instruction is: a frozen dataclass with its spelling, checks, effects and values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeVar,
    get_args,
)

from tilesim.ir.effects import Effect
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.records import dataclass, field, fields, hints

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilesim.ir.declarations import Fragment, GlobalTensor, View
    from tilesim.ir.tensor_memory import TmemLayout, TmemView

    #: one value per lane, in the order of the lanes
    PerLane = NDArray[Any]

#: every concrete instruction class by mnemonic; filled as the ``ir.ops`` modules are imported
OPS: dict[str, type[Op]] = {}
#: fields of instructions and operands that are no operands themselves
ANNOTATIONS = frozenset({"loc", "number", "within"})


class Inputs(Protocol):
    """The resolved operands of one execution, for `Op.evaluate`; arrays have 32 rows, one a lane.

    What inactive lanes have is meaningless; ``active`` says which lanes execute the instruction.
    """

    @property
    def active(self) -> NDArray[np.bool_]:
        """Per lane: whether it executes the instruction."""
        ...

    @property
    def time(self) -> int:
        """Cycles since the launch, in one possible run."""
        ...

    def lanes(self, operand: Expr) -> PerLane:
        """An operand's value in each lane."""
        ...

    def scalar(self, operand: Expr) -> int | float:
        """An operand that is the same in all active lanes."""
        ...

    def number(self, operand: Expr) -> int | None:
        """The integer that an operand is in all lanes; None if that is not known at once."""
        ...

    def address(self, place: View | GlobalTensor) -> PerLane:
        """The address of the first byte of a view operand or tensor in global memory, per lane."""
        ...

    def memory(self, view: View) -> PerLane:
        """What each lane read through a view: (32, elements of the view); what the warp read as a
        whole: an array of the view's shape."""
        ...

    def part(self, place: View | TmemView, cta: int, layout: TmemLayout | None = None) -> PerLane:
        """What one of the CTAs that take part, 0 or 1, has of an operand: an array of the shape of
        a view of shared memory, rows in the order of their lanes of tensor memory.

        ``layout``: how it lies, if the same view is two operands that lie differently.
        """
        ...

    def tile(self, fragment: Fragment) -> PerLane:
        """The warp's part of a register tile."""
        ...

    @property
    def quarter(self) -> int:
        """Which quarter of its warpgroup's tiles the warp has."""
        ...


class MeaninglessOperand(ValueError):
    """Operands have no meaning, or lanes that are needed are missing: the ``rule`` that says so,
    what is wrong, and what to do."""

    __match_args__ = ("rule", "message", "fix")

    def __init__(
        self, rule: Literal["out-of-bounds", "participation"], message: str, fix: str
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.fix = fix


class UnknownResult(Exception):
    """What an instruction computes depends on what is not known: ``args`` are what that is, in
    words, and where it is written."""


#: methods of instructions that are asked many times, and always answer the same
_ONCE = frozenset({"effects"})


def _once(key: str, method: Callable[[Op], object]) -> Callable[[Op], object]:
    """``method``, whose answer an instruction keeps under ``key``."""

    @wraps(method)
    def answer(op: Op) -> object:
        known = op.__dict__
        if key not in known:
            known[key] = method(op)
        return known[key]

    return answer


@dataclass(frozen=True, kw_only=True)
class Op:
    """Base of all instructions: everything that is said about one is said by its class.

    A subclass names its PTX ``mnemonic``, yields what is wrong with its operands from `verify`,
    does what its `effects` say, and computes what they need in `evaluate`. ``features`` names what
    the target must support (``wgmma``, ``tma``...); ``sync`` marks operations other agents can
    observe or wait for, before which the schedule may let another agent move.

    ``call``: the method of the DSL, ``namespace.method`` with the order of its parameters if that
    is not the fields' order with a ``*`` before the first one that has a default. ``ptx``: the
    spelling (`tilesim.ir.spelling`), ``also`` others that are read. ``synonyms``: opcodes, or some
    qualifiers of one, by what else PTX calls them; ``hints``: qualifiers and operands that change
    nothing, which are read and left out. ``cycles``: to issue it. ``engine`` carries out what it
    starts, by itself if none is named. ``data``: the operands that are only moved or computed with;
    others may steer; it ``combines`` those of all lanes for each. ``fault``: the mistake of leaving
    it out, for the catalogue of faults.
    ``number`` is the place of the instruction in the machine's program (`tilesim.ir.mir`), -1
    before it has one.
    """

    mnemonic: ClassVar[str] = ""
    features: ClassVar[frozenset[str]] = frozenset()
    sync: ClassVar[bool] = False
    call: ClassVar[str] = ""
    ptx: ClassVar[str] = ""
    also: ClassVar[tuple[str, ...]] = ()
    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType({})
    hints: ClassVar[frozenset[str]] = frozenset()
    cycles: ClassVar[int] = 4
    engine: ClassVar[str] = ""
    data: ClassVar[frozenset[str]] = frozenset()
    fault: ClassVar[str] = ""
    combines: ClassVar[bool] = False

    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)
    number: int = field(default=-1, compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        for name in _ONCE & vars(cls).keys():
            setattr(cls, name, _once(f".{name}", vars(cls)[name]))
        if cls.mnemonic:
            other = OPS.setdefault(cls.mnemonic, cls)
            if other is not cls and other.__qualname__ != cls.__qualname__:
                raise TypeError(f"{cls.mnemonic} is defined by {other} and by {cls}")
            OPS[cls.mnemonic] = cls

    def as_number(self, number: int) -> Self:
        """The same instruction at a place of its own in the machine's program."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, number=number)
        return other

    def having(self, operands: Mapping[str, object]) -> Self:
        """The same instruction with some other operands."""
        other = object.__new__(type(self))
        known = type(self).__dataclass_fields__  # what else there is was found out about this one
        own = {name: value for name, value in self.__dict__.items() if name in known}
        other.__dict__.update(own, **operands)
        return other

    @property
    def needs(self) -> frozenset[str]:
        """What the target must support for this very instruction, with these operands."""
        return self.features

    @property
    def addresses(self) -> frozenset[str]:
        """Operands of this very instruction that only say where copies find a tensor."""
        return frozenset()

    @property
    def synchronises(self) -> bool:
        """Whether other agents can observe this very instruction or wait for it."""
        return self.sync

    def verify(self) -> Iterator[str]:
        """Problems visible from this instruction alone, one sentence each (may start "rule: ")."""
        return iter(())

    def effects(self) -> tuple[Effect, ...]:
        """What the instruction reads, writes, arrives on, expects, waits for and orders."""
        return ()

    def evaluate(self, inputs: Inputs) -> tuple[PerLane | int, ...]:
        """The values of the effects that take a computed one (`Defines`, `Writes`), in order; a
        number is that of all lanes.

        Raises:
            NotImplementedError: the instruction computes none.
            MeaninglessOperand: there is no result for such operands, or for these lanes.
            UnknownResult: what it computes is not known.
        """
        raise NotImplementedError(f"{self.mnemonic} computes no value")

    @property
    def exchanges(self) -> bool:
        """Whether a lane gets the value of another one: `source_lanes` says of which."""
        return type(self).source_lanes is not Op.source_lanes

    def source_lanes(self, inputs: Inputs) -> NDArray[np.int64] | None:
        """By lane, the one of whose ``data`` its results are; None: each has its own."""
        return None

    def unspecified(self, inputs: Inputs) -> bool:
        """Whether PTX leaves to the machine what it computes of these operands (x / 0)."""
        return False


@dataclass(frozen=True, kw_only=True)
class Computation(Op):
    """Base of instructions that do nothing but compute registers, of their operands alone.

    No `abc.ABC`, nor are the classes below: whether an instruction is one is asked of each, again
    and again, and of those Python code answers that. The type checker refuses what lacks a method.
    """

    @abstractmethod
    def compute(self, value: Callable[[Expr], PerLane]) -> tuple[PerLane, ...]:
        """The values of its results; ``value`` gives an operand's, of each lane."""

    def compute_many(self, _value: Callable[[Expr], Any]) -> tuple[Any, ...] | None:
        """The same for many warps at once; None if that has to be computed warp by warp.

        Operands are numbers, arrays (32,), (warps, 1) or (warps, 32), or `tilesim.arith.sums.Sums`;
        results are numbers that hold for all of them if all operands do, else arrays of the shape
        to which operands broadcast.
        """
        return None

    def evaluate(self, inputs: Inputs) -> tuple[PerLane | int, ...]:
        """What it computes."""
        return self.compute(inputs.lanes)


class Symmetric:
    """Mixed into instructions that may compute the same of two operands, whichever comes first."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether this one does."""


class Rearranges:
    """Mixed into instructions of which a lane stores what other lanes have in registers."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Registers of each lane."""

    @abstractmethod
    def rows(self, registers: Sequence[PerLane]) -> PerLane:
        """What lanes store, (32, 8) of 16 bits, of what the registers hold in each."""


def operand_names(cls: type) -> tuple[str, ...]:
    """The fields of a class of instructions, annotations left out."""
    return _operand_names(cls)


@cache
def _operand_names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.name not in ANNOTATIONS)


def results_of(cls: type) -> frozenset[str]:
    """The fields of a class of instructions that name registers which it sets."""
    return _results_of(cls)


@cache
def _results_of(cls: type) -> frozenset[str]:
    types = hints(cls)
    return frozenset(
        f.name for f in fields(cls) if types[f.name] is Var or Var in get_args(types[f.name])
    )


R = TypeVar("R", bound=Callable[..., object])


class OpTable(Generic[R]):
    """One backend's rules, keyed by the exact instruction class.

    ``OpTable`` refuses duplicates when a rule is registered and `missing` lists instructions
    without a rule.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rules: dict[type[Op], R] = {}

    def rule(self, *classes: type[Op]) -> Callable[[R], R]:
        """Decorator: the function is the rule of these instruction classes."""

        def register(function: R) -> R:
            for cls in classes:
                if cls in self._rules:
                    raise TypeError(f"{self.name}: two rules for {cls.mnemonic}")
                self._rules[cls] = function
            return function

        return register

    def __getitem__(self, cls: type[Op]) -> R:
        try:
            return self._rules[cls]
        except KeyError:
            raise KeyError(f"{self.name} has no rule for {cls.mnemonic}") from None

    def __contains__(self, cls: type[Op]) -> bool:
        return cls in self._rules

    def missing(self) -> list[str]:
        """Mnemonics of instructions that have no rule here."""
        return sorted(m for m, cls in OPS.items() if cls not in self._rules)
