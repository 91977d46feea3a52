"""What an instruction is: a frozen dataclass with a PTX mnemonic, checks and effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from tilesim.ir.effects import Effect
from tilesim.ir.loc import UNKNOWN, Loc

#: every concrete instruction class by mnemonic; filled as the ``ir.ops`` modules are imported
OPS: dict[str, type[Op]] = {}
#: fields of every instruction that are no operands
ANNOTATIONS = frozenset({"loc", "number"})


@dataclass(frozen=True, kw_only=True)
class Op:
    """Base of all instructions.

    A subclass names its PTX ``mnemonic``, yields what is wrong with its operands from `verify`,
    and tells every analysis what it does through `effects`. ``features`` names what the target
    must support (``wgmma``, ``tma``...); ``sync`` marks operations other agents can observe or
    wait for, before which the schedule may let somebody else move. ``number`` is the place of the
    instruction in the machine's program (`tilesim.ir.mir`), -1 before it has one.
    """

    mnemonic: ClassVar[str] = ""
    features: ClassVar[frozenset[str]] = frozenset()
    sync: ClassVar[bool] = False

    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)
    number: int = field(default=-1, compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        if cls.mnemonic:
            other = OPS.setdefault(cls.mnemonic, cls)
            if other is not cls and other.__qualname__ != cls.__qualname__:
                raise TypeError(f"{cls.mnemonic} is defined by {other} and by {cls}")
            OPS[cls.mnemonic] = cls

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


R = TypeVar("R", bound=Callable[..., object])


class OpTable(Generic[R]):
    """One backend's rules, keyed by the exact instruction class.

    ``OpTable`` refuses duplicates when a rule is registered and `missing` lists instructions
    without a rule, which a test asserts to be empty.
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

    def missing(self) -> list[str]:
        """Mnemonics of instructions that have no rule here."""
        return sorted(m for m, cls in OPS.items() if cls not in self._rules)
