"""What registers hold wherever they are used: constants and addresses of parameters.

Only registers that one instruction sets, and that instruction without a guard, are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import cast

from tilesim.arith.opcodes import operation
from tilesim.arith.types import WIDTH
from tilesim.ir.expr import Const, Expr
from tilesim.ir.frozen import cached
from tilesim.ptx.inline import At, Both, Flat, Items, Kernel, Not, Register, Special, Step, Symbol
from tilesim.ptx.syntax import Integer

#: opcodes that set no register with their first operand
NO_RESULT = frozenset({
    "st", "bra", "brx", "ret", "exit", "bar", "barrier", "fence", "membar", "red", "prefetch",
    "prefetchu", "setmaxnreg", "stmatrix", "trap", "brkpt", "griddepcontrol", "nanosleep",
    "discard", "applypriority", "tensormap",
})  # fmt: skip
#: of those the ones whose ``.red`` does
_VOTES = frozenset({"bar", "barrier"})
#: opcodes that may set a register to the address of a parameter
ADDRESSING = frozenset({"mov", "cvta", "cvt", "add", "ld"})
_STRONG_LOADS = frozenset({"relaxed", "acquire", "volatile", "ld_reduce"})
#: other opcodes whose first operand is a register that they only read
_READS_FIRST = "tcgen05.dealloc"
_DEEPEST = 64


class Constants:
    """The values of registers that are known without running the kernel.

    ``parameter_value(name, offset, nbytes)`` is what the launch says of a parameter; ``sizes`` what
    special registers hold that tell how large it is.
    """

    def __init__(
        self, kernel: Kernel, parameter_value: Callable[[str, int, int], Expr | None],
        sizes: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._parameter_value = parameter_value
        self._sizes = sizes
        self._setters = naming(kernel).setters
        self._known: dict[str, int | Symbol | None] = {}
        #: by register what `known_bits` has found
        self.bits: dict[str, Bits] = {}
        self._code = kernel.code

    @cached_property
    def observes(self) -> bool:
        """Whether some instruction may tell what other threads have left in memory: a strong load,
        or an atomic whose result is read."""
        return any(map(self._observes, self._code))

    def _observes(self, step: Step) -> bool:
        if step.base == "atom":
            return not self.read.isdisjoint(r.name for r in registers(step.operands[0]))
        strong = _STRONG_LOADS & set(step.qualifiers)
        return step.base in ("ld", "multimem") and bool(strong)

    @cached_property
    def read(self) -> frozenset[str]:
        """The registers that some instruction reads."""
        return frozenset(name for step in self._code for name in read_by(step))

    def of(self, operand: Flat, depth: int = 0) -> int | Symbol | None:
        """A number (unsigned bits of the register), the address of a parameter or constant, or
        None."""
        match operand:
            case Integer(value):
                return value
            case Special(name):
                return self._sizes.get(name)
            case Symbol():
                return operand if operand.variable.space in ("param", "const") else None
            case Register(name):
                if name not in self._known:
                    self._known[name] = None  # while it is looked for
                    self._known[name] = self._computed(name, depth)
                return self._known[name]
            case _:
                return None

    def number(self, operand: Flat) -> int | None:
        """A known number, or None."""
        found = self.of(operand)
        return found if isinstance(found, int) else None

    def parameter(self, operand: Flat) -> Symbol | None:
        """A known address of a parameter, or None."""
        found = self.place(operand)
        return None if found is None or found.variable.space != "param" else found

    def place(self, operand: Flat) -> Symbol | None:
        """A known address of a parameter or constant, or None."""
        found = self.of(operand)
        return found if isinstance(found, Symbol) else None

    def setter(self, operand: Flat) -> Step | None:
        """The only instruction that sets a register, and always does."""
        return self._setter(operand.name) if isinstance(operand, Register) else None

    def _setter(self, name: str) -> Step | None:
        steps = self._setters.get(name, ())
        return steps[0] if len(steps) == 1 and steps[0].guard is None else None

    def _computed(self, name: str, depth: int) -> int | Symbol | None:
        step = self._setter(name)
        if step is None or depth > _DEEPEST or len(step.operands) < 2:
            return None
        if step.opcode.startswith("ld.param"):
            return self._loaded(step, name, depth)
        if step.base == "mov" and isinstance(step.operands[1], Items):
            return self._joined(step, step.operands[1].items, depth + 1)
        values: list[int | Symbol] = []
        for operand in step.operands[1:]:
            value = self.of(operand, depth + 1)
            if value is None:
                return None
            values.append(value)
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) < len(values):
            return _moved(step, values)
        return _result(step, name, numbers)

    def _joined(self, step: Step, items: tuple[Flat, ...], depth: int) -> int | None:
        """A register that is made of items of one size, the first one lowest."""
        width, total = WIDTH[step.qualifiers[-1]] // len(items), 0
        for place, item in enumerate(items):
            value = self.of(item, depth)
            if not isinstance(value, int):
                return None
            total |= (value & (1 << width) - 1) << place * width
        return total

    @cached_property
    def _arguments(self) -> dict[tuple[str, int, int], Flat | None]:
        """What functions are called with: by variable, offset and size in bytes what the only
        instruction that does stores there; None if there are more, or one with a guard."""
        found: dict[tuple[str, int, int], Flat | None] = {}
        for step in self._code:
            if step.base != "st" or "param" not in step.qualifiers:
                continue
            target, source = step.operands
            if not isinstance(target, At) or not isinstance(target.base, Symbol):
                continue
            items = source.items if isinstance(source, Items) else (source,)
            nbytes = WIDTH[step.qualifiers[-1]] // 8
            for number, item in enumerate(items):
                place = target.base.offset + target.offset + number * nbytes
                key = target.base.variable.name, place, nbytes
                found[key] = None if key in found or step.guard is not None else item
        return found

    def _loaded(self, step: Step, name: str, depth: int) -> int | Symbol | None:
        """What a load from a parameter leaves in one of its registers, if the launch says it, or
        the call of a function."""
        target, source = step.operands[:2]
        if not isinstance(source, At):
            return None
        place = None if isinstance(source.base, int) else self.parameter(source.base)
        if place is None:
            return None
        items = target.items if isinstance(target, Items) else (target,)
        number, register = next(
            (k, x) for k, x in enumerate(items) if isinstance(x, Register) and x.name == name
        )
        nbytes = WIDTH[step.qualifiers[-1]] // 8
        at = place.offset + source.offset + number * nbytes
        argument = self._arguments.get((place.variable.name, at, nbytes))
        if argument is not None:
            value = self.of(argument, depth + 1)
            if not isinstance(value, int):
                return value
            return extended(value & (1 << 8 * nbytes) - 1, step.qualifiers[-1], register)
        found = self._parameter_value(place.variable.name, at, nbytes)
        if not isinstance(found, Const) or not isinstance(found.value, int):
            return None
        return extended(found.value, step.qualifiers[-1], register)


def extended(number: int, kind: str, target: Flat) -> int:
    """What a load or conversion of a type leaves in a register that may be wider: signed types fill
    it with their sign."""
    width = WIDTH[kind]
    wider = WIDTH[target.type] if isinstance(target, Register) else width
    negative = kind.startswith("s") and number >> width - 1
    return number + (1 << wider) - (1 << width) if negative else number


def narrowed(step: Step) -> str:
    """The type of a conversion that leaves room in its register; "": there is no such room."""
    if step.base != "cvt" or not isinstance(step.operands[0], Register):
        return ""
    kind = step.qualifiers[-2]
    return kind if WIDTH.get(kind, 64) < WIDTH[step.operands[0].type] else ""


def _result(step: Step, name: str, values: list[int]) -> int | None:
    """What an operation on numbers gives one of its results; None if it is not computed."""
    found = operation(step.opcode)
    if found is None or len(found.sources) != len(values):
        return None
    results = found(*values)
    part = _part(step, name)
    if part is not None:
        return results[0] >> part[0] & (1 << part[1]) - 1
    if len(results) == 1:
        kind = narrowed(step)
        return extended(results[0], kind, step.operands[0]) if kind else results[0]
    names = [r.name for r in registers(step.operands[0])]
    return results[names.index(name)] if len(names) <= len(results) else None


def _part(step: Step, name: str) -> tuple[int, int] | None:
    """The first bit and the width of the item that a register gets of one that is unpacked."""
    target = step.operands[0]
    if step.base != "mov" or not isinstance(target, Items):
        return None
    width = WIDTH[step.qualifiers[-1]] // len(target.items)
    place = next(
        i for i, x in enumerate(target.items) if isinstance(x, Register) and x.name == name
    )
    return place * width, width


def _moved(step: Step, values: list[int | Symbol]) -> Symbol | None:
    """The address of a parameter that is moved, converted, or has a number added."""
    match step.base, values:
        case (("mov" | "cvta" | "cvt"), [Symbol() as symbol]):
            return symbol
        case "add", [Symbol(variable, offset), int() as more]:
            return Symbol(variable, offset + more)
        case _:
            return None


def read_by(step: Step) -> Iterator[str]:
    """The registers that an instruction reads; accumulators are among them."""
    results = set() if step.base == "wgmma" else {register.name for register in set_by(step)}
    for position, found in enumerate(operands_named(step)):
        for register in found:
            if position or register.name not in results:
                yield register.name
    if step.guard is not None:
        yield from (register.name for register in named(step.guard))


@cached
def set_by(step: Step) -> tuple[Register, ...]:
    """The registers that an instruction may set; of those of a wgmma all its accumulators."""
    none = step.base in NO_RESULT and not ("red" in step.qualifiers and step.base in _VOTES)
    if not step.operands or none or step.opcode.startswith(_READS_FIRST):
        return ()
    return registers(step.operands[0])


@cached
def operands_named(step: Step) -> list[tuple[Register, ...]]:
    """The registers that an instruction names, for each operand."""
    return [(o,) if type(o) is Register else named(o) for o in step.operands]


class Naming:
    """Where a kernel names its registers as operands, or parts of these."""

    def __init__(self, kernel: Kernel) -> None:
        #: by name, in the order of the code: registers, and the instructions that name them
        self.registers: dict[str, Register] = {}
        self.numbers: dict[str, list[int]] = {}
        #: by name, the instructions that set it
        self.setters: dict[str, list[Step]] = {}
        for number, step in enumerate(kernel.code):
            for found in operands_named(step):
                for register in found:
                    name = register.name
                    if name not in self.numbers:
                        self.registers[name], self.numbers[name] = register, []
                    self.numbers[name].append(number)
            for register in set_by(step):
                self.setters.setdefault(register.name, []).append(step)


@cached
def naming(kernel: Kernel) -> Naming:
    """Where a kernel names its registers."""
    return Naming(kernel)


def registers(operand: Flat) -> tuple[Register, ...]:
    """The registers that an operand names as results."""
    match operand:
        case Register():
            return (operand,)
        case Items(items):
            return _all(registers, items)
        case Both(first, second):
            return (*registers(first), *registers(second))
        case _:
            return ()


def named(operand: Flat) -> tuple[Register, ...]:
    """The registers that an operand names, base registers of addresses among them."""
    match operand:
        case Register():
            return (operand,)
        case Not(inner):
            return (inner,)
        case Items(items):
            return _all(named, items)
        case Both(first, second):
            return (*named(first), *named(second))
        case At(base, rest=rest):
            own = (base,) if isinstance(base, Register) else ()
            return own + _all(named, rest) if rest else own
        case _:
            return ()


def _all(
    of: Callable[[Flat], tuple[Register, ...]], items: tuple[Flat, ...]
) -> tuple[Register, ...]:
    """Those of all items, most of which are registers."""
    if {*map(type, items)} == {Register}:
        return cast(tuple[Register, ...], items)
    found: list[Register] = []
    for item in items:
        if isinstance(item, Register):
            found.append(item)
        else:
            found += of(item)
    return tuple(found)


# ---------------------------------------------------------------------- bits

#: known bits of a number: where the mask has ones, the bits of the value
Bits = tuple[int, int]
_ALL = (1 << 64) - 1


def known_bits(constants: Constants, operand: Flat, depth: int = 0) -> Bits:
    """Which bits of a register of up to 64 bits are known, and what they are."""
    number = constants.number(operand)
    if number is not None:
        return _ALL, number & _ALL
    if not isinstance(operand, Register):
        return _bits_of(constants, operand, depth)
    if operand.name not in constants.bits:
        constants.bits[operand.name] = _width_bits(operand), 0  # while they are looked for
        constants.bits[operand.name] = _bits_of(constants, operand, depth)
    return constants.bits[operand.name]


def _bits_of(constants: Constants, operand: Flat, depth: int) -> Bits:
    """The same of what is no constant."""
    step = constants.setter(operand)
    if step is None or depth > _DEEPEST:
        return _width_bits(operand), 0
    if step.base == "mov" and isinstance(step.operands[1], Items):
        return _packed(constants, step.operands[1].items, depth + 1)
    found = operation(step.opcode)
    if found is None or len(step.operands) - 1 != len(found.sources):
        return _width_bits(operand), 0
    sources = [known_bits(constants, o, depth + 1) for o in step.operands[1:]]
    above = _ALL & ~((1 << found.results[0]) - 1)
    part = _part(step, operand.name) if isinstance(operand, Register) else None
    if part is not None:
        (mask, value), (first, width) = sources[0], part
        return mask >> first | _ALL & ~((1 << width) - 1), value >> first & (1 << width) - 1
    if len(found.results) > 1 or not isinstance(step.operands[0], Register):
        return _width_bits(operand), 0
    if found.name == "cvt" and ("sat" in found.detail or narrowed(step).startswith("s")):
        return _width_bits(operand), 0
    signed = found.name in ("cvt", "shr") and found.detail[0] == "s"
    if signed or step.opcode.startswith("bfe.s"):
        return above, 0
    if found.name == "cvt":  # the bits beyond its type do not count
        sources = [(mask | _ALL & ~((1 << found.sources[0]) - 1), value) for mask, value in sources]
        sources = [(mask, value & (1 << found.sources[0]) - 1) for mask, value in sources]
    mask, value = _combined(found.name, sources)
    return mask | above, value & ~above & mask


def assumed(constants: Constants, operand: Flat, depth: int = 0) -> int:
    """A register of up to 64 bits, if every number in it that is not known were 0."""
    number = constants.number(operand)
    if number is not None:
        return number & _ALL
    step = constants.setter(operand)
    if step is None or depth > _DEEPEST:
        return 0
    if step.base == "mov" and isinstance(step.operands[1], Items):
        total = 0
        items = step.operands[1].items
        for place, item in enumerate(items):
            width = WIDTH[item.type] if isinstance(item, Register) else 64 // len(items)
            total |= (assumed(constants, item, depth + 1) & (1 << width) - 1) << place * width
        return total & _ALL
    values = [assumed(constants, source, depth + 1) for source in step.operands[1:]]
    assert isinstance(operand, Register)
    return _result(step, operand.name, values) or 0


def _packed(constants: Constants, items: tuple[Flat, ...], depth: int) -> Bits:
    """A register of 64 bits, or fewer, that is made of items of one size."""
    width = WIDTH[items[0].type] if isinstance(items[0], Register) else 64 // len(items)
    mask, value, part = _ALL & ~((1 << width * len(items)) - 1), 0, (1 << width) - 1
    for place, item in enumerate(items):
        known, bits = known_bits(constants, item, depth)
        mask |= (known & part) << place * width
        value |= (bits & part) << place * width
    return mask & _ALL, value & _ALL


def _width_bits(operand: Flat) -> int:
    """The bits that a register does not have are known to be 0."""
    width = WIDTH[operand.type] if isinstance(operand, Register) else 64
    return _ALL & ~((1 << min(width, 64)) - 1)


def _combined(name: str, sources: list[Bits]) -> Bits:
    match name, sources:
        case (("mov" | "cvt"), [(mask, value)]):
            return mask, value
        case "and", [(m, a), (n, b)]:
            return (m & n) | (m & ~a) | (n & ~b), a & b
        case "or", [(m, a), (n, b)]:
            return (m & n) | (m & a) | (n & b), a | b
        case "shl", [(m, a), (n, b)] if n == _ALL and b < 64:
            return (m << b | (1 << b) - 1) & _ALL, a << b & _ALL
        case "shr", [(m, a), (n, b)] if n == _ALL and b < 64:
            filled = _ALL & ~(_ALL >> b)
            return m >> b | filled, a >> b
        case "bfe", [(m, a), (n, b), (w, c)] if n == w == _ALL:
            first, field = b & 255, (1 << (c & 255)) - 1
            return m >> first & field | _ALL & ~field, a >> first & field
        case "add", [(m, a), (n, b)]:
            low, high = a + b, (a | _ALL & ~m) + (b | _ALL & ~n)
            # up to the lowest bit of either that is not known, nothing is carried that is not
            same = ((m & n) ^ (m & n) + 1) >> 1
            if high <= _ALL:
                same |= _ALL & ~((1 << (low ^ high).bit_length()) - 1)
            return same, low & same
        case _:
            return 0, 0
