"""Declarations: variables, parameters and registers."""

from __future__ import annotations

from tilesim.arith.types import WIDTH
from tilesim.ptx.operands import Operands, constant
from tilesim.ptx.scanner import Cursor, Text
from tilesim.ptx.syntax import Initial, Pointer, Scope, Variable

SPACES = frozenset({".const", ".global", ".local", ".param", ".shared", ".tex"})
LINKAGE = frozenset({".extern", ".visible", ".weak", ".common", ".hidden"})
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
#: registers that one declaration may make
_MOST_REGISTERS = 1 << 20
#: types that only parameters and variables of older programs have
_OPAQUE = {".texref": "b64", ".samplerref": "b64", ".surfref": "b64"}


class Declarations:
    """Reads declarations of one text."""

    def __init__(self, text: Text, operands: Operands) -> None:
        self._text = text
        self._operands = operands

    def registers(self, cursor: Cursor, scope: Scope) -> None:
        """``.reg .type names``; ``name<n>`` declares n of them."""
        vector, kind = self._type(cursor, "after .reg")
        while True:
            name = cursor.word("the name of a register")
            names = [name]
            if cursor.accept("<"):
                count = constant(cursor, tightness=8)
                if not 0 <= count <= _MOST_REGISTERS:
                    cursor.fail(f"{count} registers cannot be declared")
                cursor.expect(">", "after the number of registers")
                names = [f"{name}{i}" for i in range(count)]
            elif name in scope.registers:
                cursor.fail(f"{name} is declared twice in this scope")
            if vector > 1:
                names = [f"{name}{part}" for name in names for part in _components(vector)]
            scope.registers.update(dict.fromkeys(names, kind))
            if not cursor.accept(","):
                return

    def variables(self, cursor: Cursor, linkage: str = "") -> list[Variable]:
        """``.space [.align n] .type names`` with optional shapes and initial values."""
        space = cursor.take()[1:]
        if cursor.token == "[" and space == "const":  # an old bank number
            while not cursor.accept("]"):
                cursor.advance()
        first = self.variable(cursor, space, linkage)
        found = [first]
        while cursor.accept(","):
            place = self._text.place(cursor.start)
            name = cursor.word("the name of a variable")
            shape = self._shape(cursor)
            initial = self._initial(cursor)
            found.append(
                Variable(name, space, first.type, shape, first.vector, first.align, place,
                         linkage, None, initial)
            )  # fmt: skip
        return found

    def variable(self, cursor: Cursor, space: str, linkage: str = "") -> Variable:
        """What follows the state space: alignment, attributes, type, name, shape, value."""
        place = self._text.place(cursor.start)
        align = self._qualifiers(cursor)
        vector, kind = self._type(cursor, f"of the .{space} variable")
        pointer = self._pointer(cursor) if cursor.accept(".ptr") else None
        align = max(align, self._qualifiers(cursor))
        name = cursor.word("the name of a variable")
        while name == "_" and cursor.kind == "name":
            name = cursor.take()
        count = 0
        if cursor.accept("<"):
            count = constant(cursor, tightness=8)
            cursor.expect(">", "after the number of variables")
        shape = self._shape(cursor)
        initial = self._initial(cursor)
        if count:
            shape = (count, *shape)
        return Variable(name, space, kind, shape, vector, align, place, linkage, pointer, initial)

    def _qualifiers(self, cursor: Cursor) -> int:
        """``.align n`` and ``.attribute(...)``; the alignment, or 0."""
        align = 0
        while True:
            if cursor.accept(".align"):
                align = constant(cursor)
                if align <= 0 or align & (align - 1) or align > 1 << 20:
                    cursor.fail(f"{align} is no alignment", "use a power of two")
            elif cursor.accept(".attribute"):
                cursor.expect("(", "after .attribute")
                while cursor.kind and not cursor.accept(")"):
                    if cursor.accept("("):
                        while cursor.kind and not cursor.accept(")"):
                            cursor.advance()
                    else:
                        cursor.advance()
            else:
                return align

    def _pointer(self, cursor: Cursor) -> Pointer:
        space, align = "generic", 4
        if cursor.token in SPACES:
            space = cursor.take()[1:]
        found = self._qualifiers(cursor)
        return Pointer(space, found or align)

    def _type(self, cursor: Cursor, where: str) -> tuple[int, str]:
        vector = 1
        if cursor.token in _VECTORS:
            vector = _VECTORS[cursor.take()]
        if cursor.token in _OPAQUE:
            return vector, _OPAQUE[cursor.take()]
        kind = cursor.token[1:]
        if cursor.kind != "dot" or kind not in WIDTH:
            cursor.fail(f"expected a type {where}, found {cursor.found}")
        cursor.advance()
        return vector, kind

    def _shape(self, cursor: Cursor) -> tuple[int | None, ...]:
        shape: list[int | None] = []
        while cursor.accept("["):
            if cursor.accept("]"):
                shape.append(None)
                continue
            size = constant(cursor)
            if not 0 <= size < 1 << 48:
                cursor.fail(f"{size} is no size of an array")
            cursor.expect("]", "after the size of the array")
            shape.append(size)
        return tuple(shape)

    def _initial(self, cursor: Cursor) -> Initial:
        return self._operands.initial(cursor) if cursor.accept("=") else ()

    def list(self, cursor: Cursor) -> tuple[Variable, ...]:
        """``(.param ..., .reg ...)``: parameters or results of a function. A ``.hidden`` one is a
        parameter that the driver does not list."""
        cursor.expect("(", "before the parameters")
        found: list[Variable] = []
        while not cursor.accept(")"):
            linkage = "hidden" if cursor.accept(".hidden") else ""
            if cursor.token not in (".param", ".reg"):
                cursor.fail(f"expected .param or .reg, found {cursor.found}")
            found.append(self.variable(cursor, cursor.take()[1:], linkage))
            if cursor.token != ")":
                cursor.expect(",", "between parameters")
        return tuple(found)


def _components(vector: int) -> tuple[str, ...]:
    """The names of the components of a vector register, as they are written after it."""
    return tuple(f".{c}" for c in ("x", "y", "z", "w")[:vector])
