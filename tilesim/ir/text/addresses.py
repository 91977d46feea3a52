"""Operands of MIR as byte addresses: the declarations are its symbol table.

``A[0x400 + 0x2000 * (i % 4) + 0x80 * (0:+64) + 0x2 * (0:+64)]`` is a box of tensor A, before its
swizzle: where A lies in shared memory, then per dimension the distance of neighbours in bytes times
the index, or the first element and how many. A tensor in global memory begins wherever the launch
has put it, what is ``at(...)`` an address begins there; only the distances are written for both. An
mbarrier is ``full[0x10008]``, or ``full[0x10000 + 0x8 * (i % 4)]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesim.ir.expr import Const, Expr
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Mbar, Mbarriers, SharedTensor, Tensor, View
from tilesim.ir.program import Program
from tilesim.ir.text.lexer import Cursor
from tilesim.ir.text.operands import OperandParser
from tilesim.ir.text.scope import Scope
from tilesim.ir.text.values import Values

_MBARRIER = 8


class AddressValues(Values):
    """Writes operands with their byte addresses."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._placement = program.placement

    def _index(self, mbar: Mbar, loc: Loc) -> str:
        base = self._placement[mbar.array.name]
        match mbar.index:
            case Const(int(known)) if not isinstance(known, bool) and known >= 0:
                return hex(base + _MBARRIER * known)
            case index:
                return f"{base:#x} + {_MBARRIER:#x} * ({self.expression(index, loc)})"

    def _subscript(self, view: View, loc: Loc) -> str:
        terms = []
        if isinstance(view.tensor, SharedTensor):
            terms.append(hex(self._placement[view.tensor.name]))
        kept = set(view.dims)
        for dim, stride in enumerate(view.tensor.byte_strides):
            start = self.expression(view.offsets[dim], loc)
            size = f":+{view.extents[dim]}" if dim in kept else ""
            terms.append(f"{stride:#x} * ({start}{size})")
        return " + ".join(terms)


class Anonymous(AddressValues):
    """Writes operands without a name: what is declared goes by its number, what only findings
    call something is left out."""

    labels = False

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._numbers = {called: f"%{n}" for n, called in enumerate(self._declared)}

    def called(self, declared: str) -> str:
        """The number of a declaration."""
        return self._numbers[declared]


class AddressParser(OperandParser):
    """Reads what `AddressValues` writes; addresses have to be those of what they are in."""

    def __init__(self, cursor: Cursor, scope: Scope) -> None:
        super().__init__(cursor, scope)
        self.placement: Mapping[str, int] = {}

    def _element(self, array: Mbarriers) -> Mbar:
        cursor, token = self._cursor, self._cursor.peek()
        base, address = self.placement[array.name], cursor.integer("the address of an mbarrier")
        number, rest = divmod(address - base, _MBARRIER)
        if cursor.at("+"):
            start, _, keep = self._term(_MBARRIER, array.name)
            inside = address == base and not keep
        else:
            start, inside = Const(number), not rest and 0 <= number < array.count
        if not inside:
            raise cursor.error(
                token, f"expected an address in {array.name}, {array.nbytes} bytes from {base:#x}, "
                f"found {token}",
            )  # fmt: skip
        return self._at(array, start, token)

    def _box(self, tensor: Tensor) -> Iterator[tuple[Expr, int, bool]]:
        first = True
        if isinstance(tensor, SharedTensor):
            token, base = self._cursor.peek(), self.placement[tensor.name]
            if self._cursor.integer(f"the address of {tensor.name}") != base:
                raise self._cursor.error(token, f"expected {base:#x}, where {tensor.name} is, "
                                         f"found {token}")  # fmt: skip
            first = False
        for stride in tensor.byte_strides:
            yield self._term(stride, tensor.name, first=first)
            first = False

    def _term(self, stride: int, where: str, *, first: bool = False) -> tuple[Expr, int, bool]:
        """``+ stride * (start)`` or ``+ stride * (start:+size)``."""
        cursor = self._cursor
        if not first:
            cursor.expect("+", f" before the next dimension of {where}")
        token = cursor.peek()
        if cursor.integer("a distance in bytes") != stride:
            raise cursor.error(
                token, f"expected {stride:#x}, by which neighbours in {where} differ, found {token}"
            )
        cursor.expect("*", " after the distance")
        cursor.expect("(", " before the index")
        found = self._dimension()
        cursor.expect(")", " after the index")
        return found
