"""Accesses of lanes to one word each: loads, stores and read-modify-writes, as effects say them."""

from __future__ import annotations

from tilesim.ir.declarations import View
from tilesim.ir.effects import Defines, Effect, Reads, Scope, Sem, Writes
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.records import dataclass

#: all lanes of a warp that are active
EACH = 32


@dataclass(frozen=True, slots=True)
class WordAccess:
    """What every active lane does to its word: it reads it into ``result``, leaves ``value`` there,
    or ``combine``s that with what is there, which ``result`` gets (cas: if it is ``compare``).
    ``element`` as for `Reads`. ``asynchronous``: it is done at any later time (D14)."""

    view: View
    sem: Sem
    scope: Scope
    result: Var | None = None
    value: Expr | None = None
    combine: str | None = None
    compare: Expr | None = None
    element: tuple[int, int] | None = None
    asynchronous: bool = False

    @property
    def loads(self) -> bool:
        """Whether it only reads."""
        return self.value is None

    @property
    def stores(self) -> bool:
        """Whether it only writes."""
        return self.value is not None and self.combine is None

    @property
    def keeps(self) -> bool:
        """Whether it leaves what it finds: it replaces a word by the same one, or adds nothing."""
        if self.compare is not None:
            return self.compare == self.value
        return self.combine in ("add", "or", "xor") and self.value == Const(0)

    @property
    def acquires(self) -> bool:
        """Whether what it reads is acquired."""
        return self.sem in ("acquire", "acq_rel")

    @property
    def releases(self) -> bool:
        """Whether what it writes is released."""
        return self.sem in ("release", "acq_rel")


def word_access(effects: tuple[Effect, ...]) -> WordAccess | None:
    """The access that an instruction with these effects makes, if it is one of words."""
    access: WordAccess | None = None
    match effects:
        case (Reads(lanes=32, view=view) as read, Defines(var=var, value=View())):
            access = WordAccess(view, read.sem, read.scope, var, element=read.element)
        case (Writes(lanes=32, view=view, value=Expr() as value, combine=None) as write,):
            access = WordAccess(
                view, write.sem, write.scope, None, value, element=write.element,
                asynchronous=write.asynchronous,
            )  # fmt: skip
        case (
            Reads(lanes=32),
            Writes(lanes=32, view=view, value=Expr() as value, combine=str() as how) as write,
            *rest,
        ):
            result = rest[0].var if rest and isinstance(rest[0], Defines) else None
            access = WordAccess(
                view, write.sem, write.scope, result, value, how, write.compare,
                asynchronous=write.asynchronous,
            )  # fmt: skip
        case _:
            pass
    return access if access is not None and access.view.size == 1 else None


@cached
def word_accesses(mir: Mir) -> tuple[WordAccess | None, ...]:
    """By number, the access that each instruction makes, if it is one of words."""
    return tuple(map(word_access, mir.effects))


def communicates(mir: Mir) -> bool:
    """True if CTAs of different clusters may synchronise through global memory."""
    if mir.kernel.ctas == mir.kernel.cluster_size:
        return False
    for access in word_accesses(mir):
        if access is None or access.sem == "weak" or access.view.space == "shared":
            continue
        if access.stores or access.asynchronous or access.result is not None:
            return True
    return False
