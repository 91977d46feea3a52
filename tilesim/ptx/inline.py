"""A kernel as one list of instructions with resolved names, what it calls inlined."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TypeAlias

from tilesim.arith.types import WIDTH
from tilesim.ptx import syntax
from tilesim.ptx.demangle import shown
from tilesim.ptx.syntax import (
    Float,
    Function,
    Instruction,
    Integer,
    Located,
    Module,
    Place,
    PtxError,
    Sink,
    Variable,
)
from tilesim.records import dataclass, field

#: the last operand is a policy of caches
POLICY = "L2::cache_hint"


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the kernel; registers of inner scopes and inlined calls have other names."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, without its ``%``: ``tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or of a parameter of the kernel, and a constant."""

    variable: Variable
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A place in the code: the number of an instruction."""

    number: int


@dataclass(frozen=True, slots=True)
class At:
    """``[base + offset]``; ``rest`` is what follows a comma.

    ``vector``: where it is that of an element, how large its vector is and how many bytes come
    before it there; ``undivided``: all of that is accessed as one, however many registers hold it.
    """

    base: Register | Symbol | int
    offset: int = 0
    rest: tuple[Flat, ...] = ()
    vector: tuple[int, int] = (0, 0)
    undivided: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """``{a, b, ...}``."""

    items: tuple[Flat, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """``a|b``: two results."""

    first: Flat
    second: Flat


@dataclass(frozen=True, slots=True)
class Not:
    """``!predicate``."""

    operand: Register


Flat: TypeAlias = (
    Register | Special | Symbol | Target | At | Items | Both | Not | Sink | Integer | Float
)


@cache
def _parts_of_name(opcode: str) -> tuple[str, tuple[str, ...]]:
    base, *qualifiers = opcode.split(".")
    return base, tuple(qualifiers)


@dataclass(frozen=True)
class Step:
    """One instruction. ``guard``: only lanes in which it holds (or does not: `Not`) execute it.

    ``base`` is the opcode without qualifiers, and ``qualifiers`` are what follows its dots.
    """

    opcode: str
    base: str
    qualifiers: tuple[str, ...]
    operands: tuple[Flat, ...]
    guard: Register | Not | None
    place: Place
    located: Located | None

    @classmethod
    def of(
        cls, opcode: str, operands: tuple[Flat, ...], guard: Register | Not | None, place: Place,
        located: Located | None,
    ) -> Step:  # fmt: skip
        """An instruction with this opcode."""
        base, qualifiers = _parts_of_name(opcode)
        return cls(opcode, base, qualifiers, operands, guard, place, located)

    def as_if(self, opcode: str, operands: tuple[Flat, ...]) -> Step:
        """Another instruction in its place."""
        return Step.of(opcode, operands, self.guard, self.place, self.located)

    @property
    def operands_without_policy(self) -> tuple[Flat, ...]:
        """The operands but for the policy of caches at the end, which `POLICY` announces; only a
        mask of bytes stands behind it."""
        if POLICY not in self.qualifiers:
            return self.operands
        *before, last = self.operands
        return (*before[:-1], last) if "cp_mask" in self.qualifiers else tuple(before)


@dataclass(frozen=True)
class Kernel:
    """An entry with everything that it calls.

    ``registers`` by name; ``shared`` are the byte offsets of its variables in shared memory, which
    takes ``shared_size`` bytes before dynamic shared memory, whose variables begin there;
    ``variables`` are those that it names in other memory.
    """

    entry: Function
    code: tuple[Step, ...]
    registers: Mapping[str, str]
    shared: Mapping[str, int]
    shared_size: int
    files: Mapping[int, str]
    variables: Mapping[str, Variable]

    @cached_property
    def shown(self) -> Mapping[str, str]:
        """What reports call its variables in shared memory."""
        return shown(self.shared)


_SPECIAL = re.compile(
    r"""%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]
    |laneid|warpid|nwarpid|cluster_ctarank|cluster_nctarank|is_explicit_cluster|gridid|smid|nsmid
    |clock|clock64|clock_hi|globaltimer|globaltimer_lo|globaltimer_hi|lanemask_(?:eq|le|lt|ge|gt)
    |dynamic_smem_size|total_smem_size|aggr_smem_size|current_graph_exec|envreg\d+|pm\d+
    |reserved_smem_offset_\w+)""",
    re.VERBOSE,
)
#: instructions whose last qualifier is a type, but for those of bulk copies
_TYPED = frozenset({"ld", "ldu", "mov", "st"})
#: dynamic shared memory begins at a multiple of this
_DYNAMIC_ALIGN = 16
#: instructions after inlining, and calls in calls
_LARGEST = 2_000_000
_DEEPEST = 64
#: state spaces of variables that are no parameters and not in shared memory
SPACES = frozenset({"global", "const", "local"})
#: functions that end the kernel, and others of the runtime that only print
TRAPS = frozenset({"__assertfail", "__trap", "__cxa_pure_virtual"})
PRINTS = frozenset({"vprintf"})


def flatten(module: Module, entry: Function) -> Kernel:
    """The kernel ``entry`` of a module as one list of instructions.

    Raises:
        PtxError: a name is not declared, or a call cannot be inlined.
    """
    return _Flattening(module, entry).kernel()


@dataclass
class _Frame:
    """A function in one of the places where it is called: what its names mean there.

    ``prefix`` begins the names of its registers; ``bound`` are the caller's variables for its
    parameters; ``names`` and ``operands`` are what those of its scopes mean, the latter by their
    identity; ``starts`` says where its instructions went, its end among them; ``called`` where it
    is called, if that is known, and ``places`` what the positions of its instructions are then.
    """

    function: Function
    prefix: str
    bound: Mapping[str, Variable]
    depth: int
    names: dict[tuple[int, str], Flat] = field(default_factory=dict)
    operands: dict[tuple[int, int], Flat] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    called: Located | None = None
    places: dict[Located, Located] = field(default_factory=dict)

    def located(self, at: Instruction) -> Located | None:
        """Where an instruction is written, and where the functions around that are called."""
        if at.located is None or self.called is None:
            return at.located
        known = self.places.get(at.located)
        if known is None:
            known = self.places[at.located] = at.located.called_at(self.called)
        return known


class _Flattening:
    def __init__(self, module: Module, entry: Function) -> None:
        self._module = module
        self._entry = entry
        self._functions = {f.name: f for f in module.functions if f.body is not None}
        self._globals = {v.name: v for v in module.variables}
        self._code: list[tuple[Step, _Frame]] = []
        self._registers: dict[str, str] = {}
        self._shared: dict[str, Variable] = {}
        self._variables: dict[str, Variable] = {}
        self._calls = 0

    def kernel(self) -> Kernel:
        params = {p.name: p for p in self._entry.params}
        self._inline(self._entry, "", params, 0)
        code = tuple([
            self._with_targets(step, frame) if step.base in ("bra", "brx") else step
            for step, frame in self._code
        ])  # fmt: skip
        shared, size = self._layout()
        return Kernel(
            self._entry, code, self._registers, shared, size, self._module.files, self._variables
        )

    # ------------------------------------------------------------------ code

    def _fail(self, place: Place, what: str, fix: str = "") -> PtxError:
        return PtxError(self._module.file, place.line, place.column, what, fix)

    def _inline(
        self, function: Function, prefix: str, bound: Mapping[str, Variable], depth: int,
        called: Located | None = None,
    ) -> None:  # fmt: skip
        assert function.body is not None
        frame = _Frame(function, prefix, bound, depth, called=called)
        for number, instruction in enumerate(function.body.code):
            frame.starts[number] = place = len(self._code)
            if place > _LARGEST:
                raise self._fail(instruction.place, "with its calls the kernel is too large")
            if instruction.opcode[:4] == "call" and instruction.base == "call":
                self._call(instruction, frame)
            else:
                self._add(instruction, frame)
        frame.starts[len(function.body.code)] = len(self._code)

    def _add(self, instruction: Instruction, frame: _Frame) -> None:
        guard = None if instruction.guard is None else self._guard(instruction, frame)
        opcode, scope, known = instruction.opcode, instruction.scope, frame.operands
        operands = tuple([
            known[key] if (key := (scope, id(operand))) in known
            else self._known(key, operand, instruction, frame)
            for operand in instruction.operands
        ])  # fmt: skip
        if frame.depth and instruction.base == "ret":
            assert frame.function.body is not None
            opcode, operands = "bra", (Target(-1 - len(frame.function.body.code)),)
        if instruction.base in _TYPED and opcode.rpartition(".")[2] not in WIDTH:
            opcode = self._with_type_last(instruction)
        step = Step.of(opcode, operands, guard, instruction.place, frame.located(instruction))
        self._code.append((step, frame))

    def _with_type_last(self, instruction: Instruction) -> str:
        """The opcode with its type at the end; ``ptxas`` takes it anywhere (``ld.u64.volatile``).

        Raises:
            PtxError: it has none, or several.
        """
        opcode, names = instruction.opcode, instruction.qualifiers
        if opcode.startswith("st.bulk"):
            return opcode
        types = [name for name in names if name in WIDTH]
        if len(types) != 1:
            raise self._fail(instruction.place, f"{opcode} does not end with a type")
        return ".".join((instruction.base, *(n for n in names if n != types[0]), *types))

    def _guard(self, instruction: Instruction, frame: _Frame) -> Register | Not | None:
        if instruction.guard is None:
            return None
        found = self._name(instruction.guard.predicate, instruction, frame)
        if not isinstance(found, Register) or found.type != "pred":
            raise self._fail(
                instruction.place, f"{instruction.guard.predicate} is not a predicate register"
            )
        return Not(found) if instruction.guard.negated else found

    def _with_targets(self, step: Step, frame: _Frame) -> Step:
        """Labels are negative numbers within their function until all is inlined."""
        operands = tuple(_placed(operand, frame.starts) for operand in step.operands)
        return Step.of(step.opcode, operands, step.guard, step.place, step.located)

    # ------------------------------------------------------------------ names

    def _name(self, name: str, instruction: Instruction, frame: _Frame) -> Flat:
        key = instruction.scope, name
        if key not in frame.names:
            frame.names[key] = self._resolve(name, instruction, frame)
        return frame.names[key]

    def _resolve(self, name: str, instruction: Instruction, frame: _Frame) -> Flat:
        body = frame.function.body
        assert body is not None
        at: int | None = instruction.scope
        while at is not None:
            number, scope = at, body.scopes[at]
            at = scope.parent
            if (number, name) in frame.names:
                return frame.names[number, name]
            if name in scope.registers:
                full = f"{frame.prefix}{name}" + (f"#{number}" if number else "")
                kind = self._registers[full] = scope.registers[name]
                found = frame.names[number, name] = Register(full, kind)
                return found
            if name in scope.variables:
                variable = scope.variables[name]
                full = f"{frame.prefix}{name}" + (f"#{number}" if number else "")
                return self._symbol(variable, full)
            if name in scope.labels:
                return Target(-1 - scope.labels[name])
            if name in scope.targets:
                places = [self._name(t, instruction, frame) for t in scope.targets[name]]
                return Items(tuple(places))
        if name in frame.bound:
            return Symbol(frame.bound[name])
        if name in self._globals:
            return self._symbol(self._globals[name], name)
        if _SPECIAL.fullmatch(name):
            return Special(name[1:])
        if name in self._functions:
            raise self._fail(
                instruction.place,
                f"the address of the function {name} is taken, to call it later",
                "compile without -G, so that it is inlined; indirect calls are not supported",
            )
        raise self._fail(
            instruction.place, f"{name} is not declared",
            "declare the register or label in this scope, or check that the file is complete",
        )  # fmt: skip

    def _symbol(self, variable: Variable, name: str) -> Symbol:
        named = variable if name == variable.name else _renamed(variable, name)
        if named.space == "shared":
            self._shared[name] = named
        elif named.space in SPACES:
            self._variables[name] = named
        return Symbol(named)

    def _known(
        self, key: tuple[int, int], operand: syntax.Operand, at: Instruction, frame: _Frame
    ) -> Flat:
        """As `_operand`, once for operands that are spelled alike: the reader makes one object of
        these, and vectors of accumulators are long."""
        found = frame.operands[key] = self._operand(operand, at, frame)
        return found

    def _operand(self, operand: syntax.Operand, at: Instruction, frame: _Frame) -> Flat:
        match operand:
            case syntax.Name(text):
                return self._name(text, at, frame)
            case syntax.Sum(base, offset):
                found = self._name(base.text, at, frame)
                if not isinstance(found, Symbol):
                    raise self._fail(at.place, f"{base.text} + {offset}: not a variable")
                return Symbol(found.variable, found.offset + offset)
            case syntax.Address():
                return self._address(operand, at, frame)
            case syntax.Vector(items):
                return Items(tuple(self._operand(item, at, frame) for item in items))
            case syntax.Pair(first, second):
                return Both(self._operand(first, at, frame), self._operand(second, at, frame))
            case syntax.Negated(name):
                found = self._name(name.text, at, frame)
                if not isinstance(found, Register):
                    raise self._fail(at.place, f"!{name.text}: not a register")
                return Not(found)
            case syntax.Sink() | syntax.Integer() | syntax.Float():
                return operand
            case _:
                raise self._fail(at.place, f"{at.opcode} has an operand of a wrong kind")

    def _address(self, operand: syntax.Address, at: Instruction, frame: _Frame) -> At:
        rest = tuple(self._operand(item, at, frame) for item in operand.rest)
        if isinstance(operand.base, syntax.Integer):
            return At(operand.base.value, operand.offset, rest)
        found = self._name(operand.base.text, at, frame)
        if isinstance(found, Register):
            return At(found, operand.offset, rest)
        if isinstance(found, Symbol):
            return At(Symbol(found.variable, found.offset + operand.offset), 0, rest)
        raise self._fail(at.place, f"{operand.base.text} is not an address")

    # ------------------------------------------------------------------ calls

    def _call(self, at: Instruction, frame: _Frame) -> None:
        results, name, arguments = _parts(at)
        function = self._functions.get(name)
        if function is None:
            self._outside(at, name, frame)
            return
        if frame.depth >= _DEEPEST:
            raise self._fail(at.place, f"{name} is called too deeply", "recursion is not supported")
        bound: dict[str, Variable] = {}
        formal = (*function.results, *function.params)
        actual = (*results, *arguments)
        if len(formal) != len(actual):
            raise self._fail(
                at.place, f"{name} takes {len(formal)} operands and results, not {len(actual)}"
            )
        for variable, operand in zip(formal, actual, strict=True):
            found = self._operand(operand, at, frame)
            if not isinstance(found, Symbol) or found.variable.space != "param":
                raise self._fail(
                    at.place, f"an argument of {name} is not a .param variable",
                    "registers as arguments are not supported",
                )  # fmt: skip
            bound[variable.name] = found.variable
        self._calls += 1
        guard = self._guard(at, frame)
        skip = len(self._code)
        if guard is not None:
            self._code.append((Step.of("bra", (), guard, at.place, frame.located(at)), frame))
        prefix = f"{frame.prefix}{name}.{self._calls}:"
        self._inline(function, prefix, bound, frame.depth + 1, frame.located(at))
        if guard is not None:
            opposite = guard.operand if isinstance(guard, Not) else Not(guard)
            jump = "bra.uni" if "uni" in at.opcode.split(".") else "bra"
            end = Step.of(jump, (Target(len(self._code)),), opposite, at.place, frame.located(at))
            self._code[skip] = end, frame

    def _outside(self, at: Instruction, name: str, frame: _Frame) -> None:
        """A function that is only declared: it ends the kernel, prints, or is not known."""
        if name in PRINTS:
            results = tuple(self._operand(r, at, frame) for r in _parts(at)[0])
            step = Step.of("call", results, self._guard(at, frame), at.place, frame.located(at))
            self._code.append((step, frame))
            return
        if name in TRAPS:
            step = Step.of("trap", (), self._guard(at, frame), at.place, frame.located(at))
            self._code.append((step, frame))
            return
        raise self._fail(
            at.place, f"{name} is called, but this module has no body for it",
            "link it, or compile so that it is inlined; indirect calls are not supported",
        )  # fmt: skip

    # ------------------------------------------------------------------ shared memory

    def _layout(self) -> tuple[dict[str, int], int]:
        """Offsets of variables in shared memory: in the order of the text, dynamic ones last."""
        every = {v.name: v for v in self._module.variables if v.space == "shared"} | self._shared
        offsets: dict[str, int] = {}
        size = 0
        for name, variable in every.items():
            if not _is_dynamic(variable):
                size = -(-size // variable.alignment) * variable.alignment
                offsets[name] = size
                size += variable.size
        dynamic = {n: v for n, v in every.items() if _is_dynamic(v)}
        if dynamic:
            align = max(_DYNAMIC_ALIGN, *(v.alignment for v in dynamic.values()))
            size = -(-size // align) * align
            offsets.update(dict.fromkeys(dynamic, size))
        return offsets, size


def _is_dynamic(variable: Variable) -> bool:
    return variable.linkage == "extern" or None in variable.shape


def _renamed(variable: Variable, name: str) -> Variable:
    return Variable(
        name, variable.space, variable.type, variable.shape, variable.vector, variable.align,
        variable.place, variable.linkage, variable.pointer, variable.initial,
    )  # fmt: skip


def _placed(operand: Flat, starts: Mapping[int, int]) -> Flat:
    match operand:
        case Target(number) if number < 0:
            return Target(starts[-1 - number])
        case Items(items):
            return Items(tuple(_placed(item, starts) for item in items))
        case _:
            return operand


def _parts(
    call: Instruction,
) -> tuple[tuple[syntax.Operand, ...], str, tuple[syntax.Operand, ...]]:
    """Results, name and arguments of a call."""
    results: tuple[syntax.Operand, ...] = ()
    match call.operands:
        case (syntax.Group(items), *rest):
            results = items
        case (*rest,):
            pass
    match rest:
        case [syntax.Name(name), syntax.Group(arguments), *_]:
            return results, name, arguments
        case [syntax.Name(name), *_]:
            return results, name, ()
        case _:
            return results, "?", ()
