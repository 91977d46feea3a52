"""Instructions that are read as they are spelled: a template says what each operand is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilesim.arith import types
from tilesim.arith.types import DTYPES, WIDTH, DType
from tilesim.ir.declarations import View
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Data
from tilesim.ir.spelling import Slot
from tilesim.ptx.inline import At, Both, Flat, Items, Register, Special, Step
from tilesim.ptx.lowering_context import Lowering
from tilesim.ptx.syntax import Integer, Sink
from tilesim.ptx.templates import Form, InBrackets, Named, Pattern, Reading, Two
from tilesim.records import dataclass, field, replace

#: bits of an operand of a class of register
_BITS = {"p": 1, "h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
#: types whose elements are loaded with their sign
_SIGNED = {"s8": types.s8, "s16": types.s16, "s32": types.s32}


def spelled(low: Lowering, step: Step, what: str = "this instruction") -> list[Op]:
    """The instruction that is spelled so.

    Raises:
        Unsupported: none is, or operands are not as its template has them.
    """
    reading = low.forms.of(step.opcode)
    if reading is None:
        raise low.unsupported(f"{what} is not modelled", "see the page on PTX for what is")
    return _Reader(low, step, reading).read()


@dataclass
class _Reader:
    """Makes one instruction."""

    low: Lowering
    step: Step
    reading: Reading
    #: operands by name
    found: dict[str, Flat] = field(default_factory=dict)
    #: registers where the template has none: it is not known what they hold
    spare: list[Register] = field(default_factory=list)

    def read(self) -> list[Op]:
        form, low = self.reading.form, self.low
        self._match(form)
        numbers = {n: self._number(n) for n, kind in form.kinds.items() if kind == "number"}
        given: dict[str, Any] = {**self.reading.values}
        for slot, operand in self._slots():
            if form.kinds[slot.name] == "number":
                if numbers[slot.name] is not None:
                    given[slot.name] = numbers[slot.name]
            elif isinstance(operand, Sink) and form.kinds[slot.name] == "result":
                wanted = slot.name in form.required
                given[slot.name] = low.register(operand) if wanted else None
            else:
                given[slot.name] = self._operand(slot, operand, numbers)
        own = {name: value for name, value in given.items() if name in form.names}
        op = form.cls(**own, loc=low.loc)
        self._derived(op, given)
        registers = tuple(low.register(r) for r in self.spare)
        unsaid = Data(opcode=self.step.opcode, results=registers, sources=(), loc=low.loc)
        return [unsaid, op] if registers else [op]

    # ------------------------------------------------------------------ operands by name

    def _match(self, form: Form) -> None:
        operands = self.step.operands_without_policy
        wanted = [p for p in form.patterns if self._there(p)]
        extra = len(operands) - sum(not _may_miss(p) for p in wanted)
        chosen = []
        for pattern in wanted:
            announced = isinstance(pattern, Slot) and pattern.name in self.reading.announced
            if announced or not _may_miss(pattern):
                chosen.append(pattern)
                extra -= announced
            elif extra > 0:
                chosen.append(pattern)
                extra -= 1
        if len(chosen) != len(operands) or not all(map(self._take, chosen, operands)):
            raise self.low.unsupported(f"operands are expected as in {form.template}")

    def _there(self, pattern: Pattern) -> bool:
        """Whether no qualifier that should announce an operand is missing."""
        return not isinstance(pattern, Slot) or self.reading.announced.get(pattern.name, True)

    def _take(self, pattern: Pattern, operand: Flat) -> bool:
        """Notes which operands a pattern names; False: it is not like this."""
        match pattern, operand:
            case "_", Sink():
                return True
            case "_", Register():
                self.spare.append(operand)
                return True
            case str(), Integer(value):
                return pattern == str(value)
            case InBrackets((first, *others)), At(rest=rest) as place:
                return len(others) == len(rest) and all(
                    map(self._take, (first, *others), (replace(place, rest=()), *rest))
                )
            case Two(first, second), Both(a, b):
                return self._take(first, a) and self._take(second, b)
            case Two(first, second), _:
                return self._take(first, operand) and self._take(second, Sink())
            case Named(slot), Special():
                self.found[slot.name] = operand
                return True
            case Slot(name), Items((item,)):
                self.found[name] = item  # a list of one is what is in it
                return True
            case Slot(name), _:
                self.found[name] = operand
                return True
            case _:
                return False

    def _slots(self) -> Iterator[tuple[Slot, Flat]]:
        for slot in self.reading.form.slots:
            if slot.name in self.found:
                yield slot, self.found[slot.name]

    # ------------------------------------------------------------------ operands

    def _number(self, name: str) -> int | None:
        """An immediate; None: there is none, or it only hints."""
        operand = self.found.get(name)
        if operand is None:
            return None
        if name in self.reading.form.cls.hints:
            return self.low.constants.number(operand)
        number = self.low.constant(operand, name)
        slot = next(s for s in self.reading.form.slots if s.name == name)
        return number & (1 << _BITS[slot.register]) - 1 if slot.register in _BITS else number

    def _operand(self, slot: Slot, operand: Flat, numbers: dict[str, int | None]) -> Any:
        low, kind = self.low, self.reading.form.kinds[slot.name]
        width = _BITS.get(slot.register, self.reading.width)
        match kind:
            case "result":
                return low.register(operand)
            case "results":
                return tuple(low.register(r) for r in low.items(operand))
            case "value":
                return low.value(operand, width)
            case "values":
                return tuple(low.value(v, width) for v in low.items(operand))
            case "numbers":
                return tuple(low.constant(v, slot.name) for v in low.items(operand))
            case "mbar":
                return low.mbar(operand, self._space(slot.name))
            case "view":
                return self._view(slot, operand, numbers)
            case _:
                assert isinstance(operand, Special)
                return operand.name

    def _space(self, name: str) -> str:
        """The state space of an address: its own, or that of the first one, where an instruction
        completes what it does."""
        texts = self.reading.texts
        own = texts.get((name, "space"))
        if own is None and name not in self.reading.form.spaces:
            spaces = [text for (_, part), text in texts.items() if part == "space"]
            own = spaces[0] if spaces else self.reading.form.space
        return "shared::cta" if own == "shared" else own or "generic"

    def _view(self, slot: Slot, operand: Flat, numbers: dict[str, int | None]) -> View:
        count, starred, name = slot.register.partition("*")
        exact = self.reading.text(slot.name, "element", "reduced")
        text = name or exact or self.reading.text(slot.name, "type") or "b8"
        dtype, packed = element(text) if exact else (self._stored(text), 1)
        shape: tuple[int, ...] = ()
        if not starred and packed > 1:
            shape = (packed,)
        elif count.isdigit():
            shape = (int(count),)
        elif starred and count in numbers:
            shape = ((numbers[count] or 0) // dtype.bytes,)
        elif starred:
            shape = (len(self.low.items(self.found[count])) * packed,)
        return self.low.view(operand, dtype, shape, self._space(slot.name))

    def _stored(self, text: str) -> DType:
        """The type of elements that are moved as bits."""
        return _SIGNED.get(text) or self.low.bits(WIDTH[text])

    def _derived(self, op: Op, given: dict[str, Any]) -> None:
        """What follows from other operands has to be what the kernel says.

        Raises:
            Unsupported: it is not.
        """
        said = {n: text for (n, part), text in self.reading.texts.items() if not part}
        numbers = {n: str(v) for n, v in given.items() if n not in self.reading.form.names}
        for name, text in {**said, **numbers}.items():
            if text not in op.hints and str(getattr(op, name)) != text:
                raise self.low.unsupported(f"{text} is not modelled with these operands")


def _may_miss(pattern: Pattern) -> bool:
    return isinstance(pattern, Slot) and bool(pattern.mark)


def element(text: str) -> tuple[DType, int]:
    """The type of elements that a register of a PTX type holds, and how many they are."""
    if text in DTYPES:
        return DTYPES[text], 1
    name, _, count = text.rpartition("x")
    if name in DTYPES:
        return DTYPES[name], int(count)
    return {32: types.u32, 64: types.u64, 16: types.u16}[WIDTH[text]], 1
