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


#: known bits of a number: where the mask has ones, the bits of the value
Bits = tuple[int, int]
_ALL = (1 << 64) - 1


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
        #: by register, and whether what is not known counts as 0
        self._known: dict[tuple[str, bool], Bits | Symbol] = {}
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

    def value(self, operand: Flat, depth: int = 0, *, zeros: bool = False) -> Bits | Symbol:
        """Which bits of an operand of up to 64 bits are known, and what they are, or the address of
        a parameter or constant that it is; ``zeros``: as if what is not known were 0."""
        match operand:
            case Integer(number):
                return _ALL, number & _ALL
            case Special(name) if name in self._sizes:
                return _ALL, self._sizes[name]
            case Symbol(variable) if variable.space in ("param", "const"):
                return operand
            case Register(name):
                key = name, zeros
                if key not in self._known:
                    self._known[key] = _unknown(operand, zeros=zeros)  # while it is looked for
                    self._known[key] = self._computed(operand, depth, zeros=zeros)
                return self._known[key]
            case _:
                return _unknown(operand, zeros=zeros)

    def bits(self, operand: Flat, *, zeros: bool = False) -> Bits:
        """The same of what is a number: of an address no bit is known."""
        found = self.value(operand, zeros=zeros)
        return _unknown(operand, zeros=zeros) if isinstance(found, Symbol) else found

    def number(self, operand: Flat) -> int | None:
        """A known number, or None."""
        if isinstance(operand, Integer):
            return operand.value
        mask, value = self.bits(operand)
        return value if mask == _ALL else None

    def parameter(self, operand: Flat) -> Symbol | None:
        """A known address of a parameter, or None."""
        found = self.place(operand)
        return None if found is None or found.variable.space != "param" else found

    def place(self, operand: Flat) -> Symbol | None:
        """A known address of a parameter or constant, or None."""
        found = self.value(operand)
        return found if isinstance(found, Symbol) else None

    def setter(self, operand: Flat) -> Step | None:
        """The only instruction that sets a register, and always does."""
        return self._setter(operand.name) if isinstance(operand, Register) else None

    def _setter(self, name: str) -> Step | None:
        steps = self._setters.get(name, ())
        return steps[0] if len(steps) == 1 and steps[0].guard is None else None

    def _computed(self, register: Register, depth: int, *, zeros: bool) -> Bits | Symbol:
        """What the instruction that sets a register leaves there."""
        step, unknown = self._setter(register.name), _unknown(register, zeros=zeros)
        if step is None or depth > _DEEPEST or len(step.operands) < 2:
            return unknown
        if step.opcode.startswith("ld.param"):
            return self._loaded(step, register, depth) or unknown
        source, *_ = sources = step.operands[1:]
        packs = step.base == "mov" and isinstance(source, Items)
        items = source.items if packs and isinstance(source, Items) else sources
        values = [self.value(item, depth + 1, zeros=zeros) for item in items]
        numbers = [
            _unknown(item, zeros=zeros) if isinstance(value, Symbol) else value
            for item, value in zip(items, values, strict=True)
        ]
        if packs:
            return _packed(numbers, WIDTH[step.qualifiers[-1]]) or unknown
        return _moved(step, values) or _result(step, register, numbers) or unknown

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

    def passed(self, step: Step, register: Register) -> Flat | None:
        """With what a function is called that a load leaves in one of its registers, if one store
        says it."""
        part = self._part(step, register)
        return None if part is None else self._arguments.get(part)

    def _part(self, step: Step, register: Register) -> tuple[str, int, int] | None:
        """The variable, place and size of what a register gets by a load from a parameter."""
        target, source = step.operands[:2]
        if not isinstance(source, At):
            return None
        place = None if isinstance(source.base, int) else self.parameter(source.base)
        if place is None:
            return None
        items = target.items if isinstance(target, Items) else (target,)
        nbytes = WIDTH[step.qualifiers[-1]] // 8
        at = place.offset + source.offset + items.index(register) * nbytes
        return place.variable.name, at, nbytes

    def _loaded(self, step: Step, register: Register, depth: int) -> Bits | Symbol | None:
        """What a load from a parameter leaves in one of its registers, if the launch says it, or
        the call of a function."""
        part = self._part(step, register)
        if part is None:
            return None
        nbytes, argument = part[2], self._arguments.get(part)
        if argument is not None:
            value = self.value(argument, depth + 1)
            if isinstance(value, Symbol):
                return value
            mask, number = value
            if mask != _ALL:
                return None
            number &= (1 << 8 * nbytes) - 1
        else:
            found = self._parameter_value(*part)
            if not isinstance(found, Const) or not isinstance(found.value, int):
                return None
            number = found.value
        return _ALL, extended(number, step.qualifiers[-1], register)


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


def _unknown(operand: Flat, *, zeros: bool = False) -> Bits:
    """Nothing is known but that bits are 0 that a register does not have."""
    width = WIDTH[operand.type] if isinstance(operand, Register) else 64
    return _ALL if zeros else _ALL & ~((1 << min(width, 64)) - 1), 0


def _result(step: Step, register: Register, values: list[Bits]) -> Bits | None:
    """What an operation leaves in one of its results; None if nothing is known of that."""
    found = operation(step.opcode)
    if found is None or len(found.sources) != len(values):
        return None
    part, target = _part(step, register.name), step.operands[0]
    if part is not None:
        (mask, value), (first, width) = values[0], part
        return mask >> first | _ALL & ~((1 << width) - 1), value >> first & (1 << width) - 1
    kind = narrowed(step)
    if all(mask == _ALL for mask, _ in values):
        results = found(*(value for _, value in values))
        targets = [target.first, target.second] if isinstance(target, Both) else [target]
        if register not in targets or len(targets) > len(results):
            return None
        number = results[targets.index(register)]
        return _ALL, extended(number, kind, target) if kind else number
    above = _ALL & ~((1 << found.results[0]) - 1)
    is_cvt = found.name == "cvt"
    if len(found.results) > 1 or (is_cvt and ("sat" in found.detail or kind.startswith("s"))):
        return None
    if step.opcode.startswith("bfe.s") or (found.name in ("cvt", "shr") and found.detail[0] == "s"):
        return above, 0
    if is_cvt:  # the bits beyond its type do not count
        own = (1 << found.sources[0]) - 1
        values = [(mask | _ALL & ~own, value & own) for mask, value in values]
    mask, value = _combined(found.name, values)
    return mask | above, value & ~above & mask


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


def _moved(step: Step, values: list[Bits | Symbol]) -> Symbol | None:
    """The address of a parameter that is moved, converted, or has a number added."""
    match step.base, values:
        case (("mov" | "cvta" | "cvt"), [Symbol() as symbol]):
            return symbol
        case "add", [Symbol(variable, offset), (mask, more)] if mask == _ALL:
            return Symbol(variable, offset + (more - (1 << 64) if more >> 63 else more))
        case _:
            return None


def _packed(items: list[Bits], width: int) -> Bits | None:
    """A register of ``width`` bits that is made of items of one size, the first one lowest."""
    if width > 64:
        return None
    each = width // len(items)
    mask, value, part = _ALL & ~((1 << width) - 1), 0, (1 << each) - 1
    for place, (known, bits) in enumerate(items):
        mask |= (known & part) << place * each
        value |= (bits & part) << place * each
    return mask, value


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
