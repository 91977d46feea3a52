"""Where the values of a free parameter are in the machine's program.

A kernel is compiled twice, with a number and with a `Free` one. Both programs have to be the same
but for literals, and for the sizes of tensors in global memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tilesim.ir.expr import Const, Expr, ScalarParam
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.memory import GlobalTensor
from tilesim.ir.mir import Mir
from tilesim.sim.forall.free import Number, Obstacle, Refused, is_free, slope_of, value_of

#: fields that follow from others, or only say what findings call something
_DERIVED = frozenset({"typing", "loc", "roles", "local"})


@dataclass
class Forms:
    """``literals`` that depend on the parameter, by identity, of the program that is run;
    ``tensors`` of which the size does."""

    literals: dict[int, Number] = field(default_factory=dict)
    tensors: dict[str, GlobalTensor] = field(default_factory=dict)


def forms(free: Mir, plain: Mir, name: str, further: int = 0) -> Forms:
    """What of ``plain`` depends on the parameter ``name``, which ``free`` is built with, and which
    is ``further`` steps larger in ``plain``.

    Raises:
        Refused: something else than literals and sizes of global tensors does.
    """
    walk = _Walk(name, further)
    walk.same(free.kernel, plain.kernel)
    if len(free.code) != len(plain.code):
        walk.differs("how many instructions there are")
    for number, (a, b) in enumerate(zip(free.code, plain.code, strict=True)):
        walk.loc, walk.what = b.loc, b.what
        walk.same(a, b)
        walk.same(free.effects[number], plain.effects[number])
    return walk.forms


class _Walk:
    """Compares two programs from their roots on."""

    def __init__(self, name: str, further: int) -> None:
        self.forms = Forms()
        self._further = further
        self.loc: Loc = UNKNOWN
        self.what: object = "the launch"
        self._name = name
        self._seen: set[tuple[int, int]] = set()
        self._plain: set[int] = set()
        #: what is compared stays alive, so that no identity is used twice
        self._kept: list[object] = []

    def differs(self, what: str) -> None:
        """Raises `Refused`."""
        raise Refused(Obstacle(f"{what} depends on {self._name}", self.loc))

    def same(self, free: Any, plain: Any, what: str = "") -> None:
        """Compares two values."""
        key = id(free), id(plain)
        if key in self._seen:
            return
        self._kept += free, plain
        self._seen.add(key)
        if isinstance(plain, Const | ScalarParam):
            self._literal(free, plain)
        elif isinstance(plain, GlobalTensor):
            self._tensor(free, plain)
        elif is_free(free):
            self.differs(what or str(self.what))
        elif type(free) is not type(plain):
            self.differs(f"{what or 'an operand'} of {self.what}")
        elif isinstance(plain, tuple | list):
            if len(free) != len(plain):
                self.differs(f"{what or 'an operand'} of {self.what}")
            for a, b in zip(free, plain, strict=True):
                self.same(a, b, what)
        elif isinstance(plain, dict):
            self.same(list(free.items()), list(plain.items()), what)
        elif is_dataclass(plain) and not isinstance(plain, type):
            self._fields(free, plain)
        elif isinstance(plain, Expr):
            raise TypeError(type(plain))
        elif free != plain:
            self.differs(f"{what or 'an operand'} of {self.what}")

    def _fields(self, free: Any, plain: Any) -> None:
        if not isinstance(plain, Expr) and isinstance(getattr(plain, "loc", None), Loc):
            before, self.loc = self.loc, plain.loc
        else:
            before = self.loc
        for f in fields(plain):
            if f.name not in _DERIVED:
                self.same(getattr(free, f.name), getattr(plain, f.name), f"`{f.name}`")
        self.loc = before

    def _literal(self, free: Any, plain: Const | ScalarParam) -> None:
        if type(free) is not type(plain) or is_free(plain.value):
            self.differs(f"an expression of {self.what}")
        if is_free(free.value):
            number: Number = free.value
            known = self.forms.literals.setdefault(id(plain), number)
            one = self._is(number, plain.value) and slope_of(known) == slope_of(number)
            if not one or id(plain) in self._plain:
                self.differs(f"an expression of {self.what}")
        elif free.value != plain.value or id(plain) in self.forms.literals:
            self.differs(f"an expression of {self.what}")
        else:
            self._plain.add(id(plain))

    def _is(self, free: Any, plain: Any) -> bool:
        """Whether a number is what a free one is in the program of ``plain``."""
        if is_free(plain):
            return False  # the kernel has kept it from another call
        if not is_free(free):
            return bool(free == plain)
        return bool(value_of(free) + slope_of(free) * self._further == plain)

    def _tensor(self, free: Any, plain: GlobalTensor) -> None:
        for f in fields(plain):
            a, b = getattr(free, f.name), getattr(plain, f.name)
            if f.name in ("shape", "strides"):
                if (a is None) is not (b is None) or len(a or ()) != len(b or ()):
                    self.differs(f"the shape of {plain.name}")
                if not all(map(self._is, a or (), b or ())):
                    self.differs(f"the shape of {plain.name}")
                if any(map(is_free, a or ())):
                    self.forms.tensors[plain.name] = free
            elif f.name not in _DERIVED:
                self.same(a, b, f"`{f.name}`")
