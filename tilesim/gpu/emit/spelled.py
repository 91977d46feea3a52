"""Instructions whose PTX spelling says all: inline PTX from the template of their definition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from tilesim.gpu.emit.emitter import AsmOperand, Emitter
from tilesim.gpu.emit.memory import asm_address, mbar_address
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import CType
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.op import Op, results_of
from tilesim.ir.spelling import Slot, opcode, register_of, spelling

#: the class of register of a C type in inline PTX, and the C type of such a register
_CLASS: dict[CType, str] = {"s32": "r", "u32": "r", "s64": "l", "u64": "l", "f32": "f", "f64": "d"}
_TYPE: dict[str, CType] = {"r": "u32", "l": "u64", "f": "f32", "d": "f64", "h": "u32"}


class _Asm:
    """One statement: its operands, and the predicates it needs around it."""

    def __init__(self, e: Emitter, op: Op) -> None:
        self.e = e
        self.results = results_of(type(op))
        #: whether it swizzles its addresses itself: copies do that in hardware
        self.swizzles = op.engine != "TMA"
        self.outputs: list[AsmOperand] = []
        self.inputs: list[AsmOperand] = []
        self.before: list[str] = []
        self.after: list[str] = []
        #: results that pass through a variable of another type
        self.copies: list[tuple[str, str, str]] = []
        self.predicates = 0

    def operand(self, value: object, slot: Slot) -> str:
        """The text of an operand; ``$0``, ``$1`` are outputs, ``&0``, ``&1`` inputs so far."""
        match value:
            case (item,) if slot.bare:
                return self.operand(item, slot)
            case tuple():
                return "{" + ", ".join(self.operand(item, slot) for item in value) + "}"
            case Var() if slot.name in self.results:
                return self._result(value, slot.register)
            case None:
                return "_"
            case Expr():
                return self._input(value, slot.register)
            case View():
                return self._add(asm_address(self.e, value, swizzle=self.swizzles)[1])
            case Mbar():
                return self._add(("r", mbar_address(self.e, value)))
            case _:
                return str(value)

    def _add(self, operand: AsmOperand) -> str:
        self.inputs.append(operand)
        return f"&{len(self.inputs) - 1}&"

    def _input(self, value: Expr, register: str) -> str:
        if register == "p":
            number = self._add(("r", self.e.cast(value, "s32")))
            name = self._predicate()
            self.before.append(f"setp.ne.b32 {name}, {number}, 0;")
            return name
        register = register or _CLASS[self.e.names.type_of(value)]
        text = self.e.cast(value, _TYPE[register])
        return self._add((register, f"(u16)({text})" if register == "h" else text))

    def _result(self, var: Var, register: str) -> str:
        kind, target = self.e.names.type_of(var), self.e.var(var)
        wanted = "r" if register == "p" else register or _CLASS[kind]
        if wanted == _CLASS[kind]:
            place = target
        else:
            place = f"result_{len(self.copies)}"
            self.copies.append((_TYPE[wanted], place, f"{target} = ({kind}){place};"))
        self.outputs.append((f"={wanted}", place))
        number = f"${len(self.outputs) - 1}$"
        if register != "p":
            return number
        name = self._predicate()
        self.after.append(f"selp.b32 {number}, 1, 0, {name};")
        return name

    def _predicate(self) -> str:
        self.predicates += 1
        return f"p{self.predicates - 1}"

    def text(self, instruction: str) -> str:
        """The whole statement, with the numbers that inline PTX gives operands."""
        if self.predicates:
            names = ", ".join(f"p{n}" for n in range(self.predicates))
            parts = [f".reg .pred {names};", *self.before, instruction, *self.after]
            instruction = "{\n" + "\n".join(parts) + "\n}"
        for n in range(len(self.outputs)):
            instruction = instruction.replace(f"${n}$", f"%{n}")
        for n in range(len(self.inputs)):
            instruction = instruction.replace(f"&{n}&", f"%{n + len(self.outputs)}")
        return instruction


def spell(e: Emitter, op: Op) -> None:
    """Writes an instruction as its template says."""
    if any(isinstance(f, fx.Gathers) and _whole(f.mask) for f in op.effects()):
        e.whole_warp()
    parts = spelling(type(op)).operands
    built = _Asm(e, op)
    operands = "".join(_texts(built, op, parts))
    head = opcode(op)
    text = built.text(f"{head} {operands};" if operands else f"{head};")
    if not built.copies:
        e.asm(text, built.inputs, built.outputs)
        return
    with e.block("{"):
        for kind, place, _ in built.copies:
            e.line(f"{kind} {place};")
        e.asm(text, built.inputs, built.outputs)
        for _, _, copy in built.copies:
            e.line(copy)


def _whole(mask: Expr | None) -> bool:
    """Whether a mask is known to name all lanes."""
    return mask is None or constant(mask) == 0xFFFFFFFF


def _texts(built: _Asm, op: Op, parts: tuple[str | Slot, ...]) -> Iterator[str]:
    defaults = {f.name: f.default for f in fields(op)}
    for part in parts:
        if isinstance(part, str):
            yield part.replace("%", "%%")
            continue
        value = getattr(op, part.name)
        if part.mark and value == defaults.get(part.name):
            continue
        comma = ", " if part.mark else ""
        yield comma + built.operand(value, replace(part, register=_register(op, part)))


def _register(op: Op, slot: Slot) -> str:
    """The class of an operand's register, as the template says it: a letter, an attribute that is
    one, or the view of which it holds elements."""
    if len(slot.register) < 2 or "*" in slot.register:
        return slot.register
    named = getattr(op, slot.register)
    return register_of(named.dtype) if isinstance(named, View) else str(named)
