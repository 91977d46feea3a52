"""Tensor maps that a kernel makes itself: the buffers that they are maps of.

What is copied is what the bytes of a map say when it is used. The buffer has to be known before: it
is the one of which the address was put into the map that lies at the same place, or was copied
there. That this is so is checked when a copy uses the map.
"""

from __future__ import annotations

from tilesim.ptx.constants import Constants
from tilesim.ptx.flat import At, Flat, Kernel, Register, Step, Symbol
from tilesim.ptx.launch import Launch, Pointer

#: opcodes that hand an address on
_MOVES = ("mov", "cvta", "cvt")
_DEEPEST = 64


class MadeMaps:
    """The maps that ``tensormap.replace`` and ``tensormap.cp_fenceproxy`` make in a kernel."""

    def __init__(self, kernel: Kernel, launch: Launch, constants: Constants) -> None:
        self._constants = constants
        self._pointers = {
            formal.name: actual.name
            for formal, actual in zip(kernel.entry.params, launch.params, strict=True)
            if isinstance(actual, Pointer) and actual.bytes != 0
        }
        #: by the place of a map: the buffer; None: it is not known, or there are several
        self._buffers: dict[str, str | None] = {}
        #: fields that the kernel sets in some map
        self.fields: set[str] = set()
        put: dict[str, str | None] = {}
        for step in kernel.code:
            if step.opcode.startswith("tensormap.replace"):
                self.fields.add(step.qualifiers[2])
                if step.qualifiers[2] == "global_address":
                    place, buffer = self._place(step.operands[0]), self._buffer(step.operands[1])
                    put[place] = buffer
                    self._note(place, buffer)
            elif step.opcode.startswith("tensormap.cp_fenceproxy"):
                self._note(self._place(step.operands[0]), put.get(self._place(step.operands[1])))

    def _note(self, place: str, buffer: str | None) -> None:
        self._buffers[place] = buffer if self._buffers.get(place, buffer) == buffer else None

    def buffer(self, operand: At) -> str | None:
        """The buffer of which the map at an address is one; None if that is not known."""
        return self._buffers.get(self._place(operand))

    def _place(self, operand: Flat) -> str:
        """A name for an address: the register that computes it, and what is added."""
        if not isinstance(operand, At):
            return repr(operand)
        return f"{self._root(operand.base)}+{operand.offset}"

    def _root(self, operand: Flat | int) -> str:
        """The register or symbol that an address is moved from."""
        for _ in range(_DEEPEST):
            step = None if isinstance(operand, int) else self._constants.setter(operand)
            if step is None or step.base not in _MOVES or len(step.operands) != 2:
                break
            operand = step.operands[1]
        return operand.name if isinstance(operand, Register) else repr(operand)

    def _buffer(self, operand: Flat, depth: int = 0) -> str | None:
        """The buffer that an address is in which is computed of one parameter."""
        step = self._constants.setter(operand)
        if step is None or depth > _DEEPEST:
            return None
        if step.base == "ld":
            return self._pointers.get(_parameter(self._constants, step) or "")
        if step.base not in (*_MOVES, "add"):
            return None
        found = {self._buffer(o, depth + 1) for o in step.operands[1:]} - {None}
        return found.pop() if len(found) == 1 else None


def _parameter(constants: Constants, step: Step) -> str | None:
    """The parameter that is loaded, from its first byte on."""
    place = step.operands[1]
    if not isinstance(place, At) or isinstance(place.base, int) or place.offset:
        return None
    symbol = place.base if isinstance(place.base, Symbol) else constants.parameter(place.base)
    return None if symbol is None or symbol.offset else symbol.variable.name
