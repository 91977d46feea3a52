"""One thread of a kernel in PTX, executed with given inputs, as far as its values are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesim.arith.bit_vectors import apply
from tilesim.arith.opcodes import operation
from tilesim.arith.types import WIDTH
from tilesim.ptx.constants import extended, narrowed, set_by
from tilesim.ptx.inline import (
    At,
    Both,
    Flat,
    Items,
    Kernel,
    Not,
    Register,
    Special,
    Step,
    Symbol,
    Target,
)
from tilesim.ptx.syntax import Integer
from tilesim.translation.inputs import (
    OFFSET,
    SHARED_AT,
    SHARED_WINDOW,
    End,
    Inputs,
    Memory,
    Space,
    Waits,
)

#: where parameters and local memory lie in generic addresses; no address of SASS depends on it
_PARAMETERS = 0x7F13 << 32
_LOCAL = 0x7F14 << 32
_ENDS = frozenset({"ret", "exit", "trap"})


class PtxThread:
    """A thread of a kernel; `run` executes it."""

    def __init__(self, kernel: Kernel, inputs: Inputs, shared: Mapping[str, int]) -> None:
        """``shared``: where the variables lie in the shared memory of a kernel."""
        self._shared = shared
        self._code = kernel.code
        self._inputs = inputs
        self._named = inputs.named
        self._known: dict[str, int | None] = {}
        self._memory = Memory(inputs)
        self.waits = Waits(inputs)
        names = [one.name for one in kernel.entry.params]
        self._parameters = {
            name: one.offset for name, one in zip(names, inputs.parameters, strict=False)
        }
        local = [name for name, one in kernel.variables.items() if one.space == "local"]
        self._local = {name: n << 20 for n, name in enumerate(local)}
        #: parameters of functions that are called, by variable and offset
        self._passed: dict[tuple[str, int], int | None] = {}
        self.end = End.UNKNOWN
        #: whether the steps were over before it was known how it ends
        self.bounded = False
        #: the steps whose guard was not known
        self.doubted: set[int] = set()

    # ------------------------------------------------------------------ values

    def value(self, operand: Flat) -> int | None:
        """What an operand is; None: not known."""
        match operand:
            case Register(name):
                return self._known.get(name)
            case Integer(value):
                return value & (1 << 64) - 1
            case Special(name):
                return self._named.get(name)
            case Symbol(variable, offset):
                return self._address_of(variable.name, variable.space, offset)
            case Not(inner):
                held = self._known.get(inner.name)
                return None if held is None else 1 - held
        return None

    def _address_of(self, name: str, space: str, offset: int) -> int | None:
        if space == "shared" and name in self._shared:
            return self._inputs.rank << 24 | SHARED_AT + self._shared[name] + offset
        if space == "param" and name in self._parameters:
            return _PARAMETERS + self._parameters[name] + offset
        if space == "local" and name in self._local:
            return _LOCAL + self._local[name] + offset
        return None

    def address(self, operand: Flat) -> int | None:
        """The address in brackets."""
        if not isinstance(operand, At):
            return self.value(operand)
        base = operand.base if isinstance(operand.base, int) else self.value(operand.base)
        return None if base is None else base + operand.offset & (1 << 64) - 1

    def holds(self, guard: Register | Not) -> bool | None:
        """Whether a guard is true."""
        value = self.value(guard)
        return None if value is None else bool(value)

    # ------------------------------------------------------------------ execution

    def run(self, most: int) -> Iterator[int]:
        """Executes at most so many steps, and says the number of each that takes effect before it
        is executed. It stops where it is not known how it goes on."""
        code, number = self._code, 0
        for _ in range(most):
            if number >= len(code):
                self.end = End.EXIT
                return
            step = code[number]
            executed = True if step.guard is None else self.holds(step.guard)
            number += 1
            if executed is None:
                if step.base in ("bra", "brx") or step.base in _ENDS:
                    return
                self.doubted.add(number - 1)
                self._set(step, None)
            elif executed:
                yield number - 1
                if step.base in _ENDS:
                    self.end = End.TRAP if step.base == "trap" else End.EXIT
                    return
                if step.base in ("bra", "brx"):
                    target = self._target(step)
                    if target is None:
                        return
                    number = target
                else:
                    self._execute(step, number - 1)
        self.bounded = True

    def _target(self, step: Step) -> int | None:
        if step.base == "brx":
            index, places = self.value(step.operands[0]), step.operands[-1]
            if index is None or not isinstance(places, Items) or index >= len(places.items):
                return None
            target = places.items[index]
        else:
            target = step.operands[-1]
        return target.number if isinstance(target, Target) else None

    def _set(self, step: Step, value: int | None) -> None:
        for register in set_by(step):
            self._known[register.name] = value

    def _put(self, operand: Flat, value: int | None) -> None:
        if isinstance(operand, Both):
            self._put(operand.first, value)
        elif isinstance(operand, Register):
            width = WIDTH[operand.type]
            self._known[operand.name] = None if value is None else value & (1 << width) - 1

    def _execute(self, step: Step, number: int) -> None:
        base = step.base
        if base == "mov":
            self._move(step)
            return
        computes = operation(step.opcode)
        if computes is not None:
            self._compute(step)
            return
        match base:
            case "ld" | "ldu":
                self._load(step)
            case "st" if "async" not in step.qualifiers and "bulk" not in step.qualifiers:
                self._store(step)
            case "atom":
                self._atomic(step)
            case "red" if "async" not in step.qualifiers:
                self._atomic(step)
            case "cvta":
                self._convert(step)
            case "mapa":
                self._map(step)
            case _:
                if not self._of_warp(step, number):
                    self._set(step, None)

    def _move(self, step: Step) -> None:
        """A move, or packing and unpacking."""
        target, source = step.operands[:2]
        if isinstance(source, Items):
            width = WIDTH[step.qualifiers[-1]] // len(source.items)
            total: int | None = 0
            for place, item in enumerate(source.items):
                value = self.value(item)
                if value is None or total is None:
                    total = None
                else:
                    total |= (value & (1 << width) - 1) << place * width
            self._put(target, total)
        elif isinstance(target, Items):
            width = WIDTH[step.qualifiers[-1]] // len(target.items)
            whole = self.value(source)
            for place, item in enumerate(target.items):
                part = None if whole is None else whole >> place * width & (1 << width) - 1
                self._put(item, part)
        else:
            self._put(target, self.value(source))

    def _compute(self, step: Step) -> None:
        found = operation(step.opcode)
        assert found is not None
        target = step.operands[0]
        values = tuple(self.value(one) for one in step.operands[1:])
        if len(values) != len(found.sources):
            self._set(step, None)
            return
        results = apply(found, values)
        targets = (target.first, target.second) if isinstance(target, Both) else (target,)
        kind = narrowed(step)
        for one, result in zip(targets, results, strict=False):
            number = result if isinstance(result, int) else None
            if kind and number is not None:
                number = extended(number, kind, one)
            self._put(one, number)

    def _of_warp(self, step: Step, number: int) -> bool:
        """What is left by an instruction that is not of one thread alone; False of others."""
        lane, operands = self._inputs.lane, step.operands
        match step.base:
            case "elect" if isinstance(operands[0], Both):
                self._put(operands[0].first, 0)
                self._put(operands[0].second, int(lane == 0))
            case "shfl":
                target = operands[0]
                if isinstance(target, Both):
                    self._put(target.first, self.value(operands[1]))
                    self._put(target.second, 1)
                else:
                    self._put(target, self.value(operands[1]))
            case "activemask":
                self._put(operands[0], 1 << lane)
            case "vote" if "uni" not in step.qualifiers:
                value = self.value(operands[1])
                if "ballot" in step.qualifiers:
                    value = None if value is None else value << lane
                self._put(operands[0], value)
            case "redux":
                self._put(operands[0], self.value(operands[1]))
            case "mbarrier" if {"test_wait", "try_wait"} & {*step.qualifiers}:
                place = self.address(operands[1])
                parity = self.value(operands[2]) if "parity" in step.qualifiers else None
                place = None if place is None else place & OFFSET
                parity = None if parity is None else parity & 1
                self._put(operands[0], int(self.waits.over(place, parity, number)))
            case "tcgen05" if "alloc" in step.qualifiers:  # the first column
                address, space = self._place(step, operands[0])
                self._memory.store(address, 4, 0, space or "shared")
            case _:
                return False
        return True

    # ------------------------------------------------------------------ memory

    def _place(self, step: Step, operand: Flat) -> tuple[int | None, Space | None]:
        """The address of an access, and its space; None is that of parameters, or not known."""
        address = self.address(operand)
        names = {one.partition("::")[0] for one in step.qualifiers}
        if "shared" in names:
            return None if address is None else address & OFFSET, "shared"
        if "global" in names:
            return address, "global"
        if "local" in names:
            return address, "local"
        if "param" in names:
            return address, None
        if "const" in names or address is None:
            return None, None
        match address >> 32 << 32:
            case value if value == SHARED_WINDOW << 32:
                return address & OFFSET, "shared"
            case value if value == _LOCAL:
                return address, "local"
            case value if value == _PARAMETERS:
                return address, None
        return address, "global"

    def _load(self, step: Step) -> None:
        target, source = step.operands[:2]
        address, space = self._place(step, source)
        kind = step.qualifiers[-1]
        nbytes = max(8, WIDTH[kind]) // 8
        for n, item in enumerate(target.items if isinstance(target, Items) else (target,)):
            at = None if address is None else address + n * nbytes
            value = None
            if space is None:
                value = self._parameter(source, at, n * nbytes, nbytes)
            elif nbytes <= 8:
                value = self._memory.load(at, nbytes, space)
            if value is not None and isinstance(item, Register):
                value = extended(value, kind, item)
            self._put(item, value)

    def _parameter(self, source: Flat, at: int | None, more: int, nbytes: int) -> int | None:
        """Bytes of a parameter of the kernel, or of a function that is called."""
        if at is not None and _PARAMETERS <= at < _PARAMETERS + (1 << 16):
            return self._inputs.parameter(at - _PARAMETERS, nbytes)
        if isinstance(source, At) and isinstance(source.base, Symbol):
            place = source.base.offset + source.offset + more
            return self._passed.get((source.base.variable.name, place))
        return None

    def _store(self, step: Step) -> None:
        target, source = step.operands[:2]
        address, space = self._place(step, target)
        nbytes = max(8, WIDTH[step.qualifiers[-1]]) // 8
        for n, item in enumerate(source.items if isinstance(source, Items) else (source,)):
            value = self.value(item)
            if space is not None:
                at = None if address is None else address + n * nbytes
                self._memory.store(at, nbytes, value, space)
            elif isinstance(target, At) and isinstance(target.base, Symbol):
                place = target.base.offset + target.offset + n * nbytes
                self._passed[target.base.variable.name, place] = value

    def _atomic(self, step: Step) -> None:
        """What was there before is known, not what is there then."""
        memory = next((one for one in step.operands if isinstance(one, At)), None)
        if memory is None:
            self._set(step, None)
            return
        address, space = self._place(step, memory)
        width = WIDTH.get(step.qualifiers[-1], 128)
        old = None
        if space is not None:
            old = self._memory.load(address, 4, space) if width == 32 else None
            self._memory.store(address, 4, None, space)
        if step.base == "atom":
            self._put(step.operands[0], old)

    def _convert(self, step: Step) -> None:
        """``cvta``: between addresses in a space and generic ones."""
        value = self.value(step.operands[1])
        names = {one.partition("::")[0] for one in step.qualifiers}
        if value is not None and "shared" in names:
            value = value & 0xFFFFFFFF
            if "to" not in names:
                value |= SHARED_WINDOW << 32
        elif not names & {"global", "param", "local"}:
            value = None
        self._put(step.operands[0], value)

    def _map(self, step: Step) -> None:
        """``mapa``: the same place in the shared memory of another CTA of the cluster."""
        address, rank = self.value(step.operands[1]), self.value(step.operands[2])
        if address is None or rank is None:
            self._put(step.operands[0], None)
        else:
            high = address >> 32 << 32
            self._put(step.operands[0], high | (rank & 0xFF) << 24 | address & OFFSET)
