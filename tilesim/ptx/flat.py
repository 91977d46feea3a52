"""A kernel as one list of instructions with resolved names: what `tilesim.ptx.inlining` makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

from tilesim.ir.quick import quick
from tilesim.ptx.names import shown
from tilesim.ptx.syntax import Float, Function, Integer, Located, Place, Variable

#: the last operand is a policy of caches
POLICY = "L2::cache_hint"


@quick
@dataclass(frozen=True, slots=True)
class Register:
    """A register of the kernel; registers of inner scopes and inlined calls have other names."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, without its ``%``: ``tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or of a parameter of the kernel, and a constant."""

    variable: Variable
    offset: int = 0


@quick
@dataclass(frozen=True, slots=True)
class Target:
    """A place in the code: the number of an instruction."""

    number: int


@quick
@dataclass(frozen=True, slots=True)
class At:
    """``[base + offset]``; ``rest`` is what follows a comma.

    ``vector``: where it is that of an element, how large its vector is and how many bytes come
    before it there; ``undivided``: all of that is accessed as one, however many registers hold it.
    """

    base: Register | Symbol | int
    offset: int = 0
    rest: tuple[Flat, ...] = ()
    vector: tuple[int, int] = (0, 0)
    undivided: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Items:
    """``{a, b, ...}``."""

    items: tuple[Flat, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """``a|b``: two results."""

    first: Flat
    second: Flat


@dataclass(frozen=True, slots=True)
class Not:
    """``!predicate``."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Nothing:
    """``_``."""


Flat: TypeAlias = (
    Register | Special | Symbol | Target | At | Items | Both | Not | Nothing | Integer | Float
)


@cache
def _parts(opcode: str) -> tuple[str, tuple[str, ...]]:
    base, *qualifiers = opcode.split(".")
    return base, tuple(qualifiers)


@quick
@dataclass(frozen=True)
class Step:
    """One instruction. ``guard``: only lanes in which it holds (or does not: `Not`) execute it.

    ``base`` is the opcode without qualifiers, and ``qualifiers`` are what follows its dots.
    """

    opcode: str
    base: str
    qualifiers: tuple[str, ...]
    operands: tuple[Flat, ...]
    guard: Register | Not | None
    place: Place
    located: Located | None

    @classmethod
    def of(
        cls, opcode: str, operands: tuple[Flat, ...], guard: Register | Not | None, place: Place,
        located: Located | None,
    ) -> Step:  # fmt: skip
        """An instruction with this opcode."""
        base, qualifiers = _parts(opcode)
        return cls(opcode, base, qualifiers, operands, guard, place, located)

    def as_if(self, opcode: str, operands: tuple[Flat, ...]) -> Step:
        """Another instruction in its place."""
        return Step.of(opcode, operands, self.guard, self.place, self.located)

    @property
    def operands_without_policy(self) -> tuple[Flat, ...]:
        """The operands but for the policy of caches at the end, which `POLICY` announces."""
        return self.operands[:-1] if POLICY in self.qualifiers else self.operands


@dataclass(frozen=True)
class Kernel:
    """An entry with everything that it calls.

    ``registers`` by name; ``shared`` are the byte offsets of its variables in shared memory, which
    takes ``shared_size`` bytes before dynamic shared memory, whose variables begin there;
    ``variables`` are those that it names in other memory.
    """

    entry: Function
    code: tuple[Step, ...]
    registers: Mapping[str, str]
    shared: Mapping[str, int]
    shared_size: int
    files: Mapping[int, str]
    variables: Mapping[str, Variable]

    @cached_property
    def shown(self) -> Mapping[str, str]:
        """What reports call its variables in shared memory."""
        return shown(self.shared)
