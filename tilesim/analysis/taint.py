"""Which data, and which numbers that hardware hands out, decide what a kernel does.

`Dataflow`: tensors whose contents reach control flow, addresses or barriers.

`Taint`: what a program does with a ticket of a counter, or with the coordinates of a cancelled
cluster. Which one an agent gets is not up to the program. If such numbers choose addresses in
global memory and are compared with fixed numbers, and do nothing else, then all outcomes of the
draw with the same results of these comparisons lead to the same instructions, barriers and shared
memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, TypeGuard

from tilesim.analysis.cfg import FlowGraph, sides_that_compute
from tilesim.analysis.solver import closure
from tilesim.analysis.ssa import assigned, reaching
from tilesim.analysis.thread_values import Threads
from tilesim.analysis.uses_defs import OPERANDS, Mentions, expressions_in, mentions, sets
from tilesim.arith.operators import MIRRORED, RELATIONS, integer
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor, is_part
from tilesim.ir.declarations import GlobalTensor, Mbar, View
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Special, Unary, Var, divisor, walk
from tilesim.ir.frozen import cached
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.clc import ClcQueryGetFirstCtaid, ClcQueryIsCanceled, ClcTryCancel
from tilesim.ir.ops.scalar import Assign, Atomic, Load, Shuffle, Store
from tilesim.ir.ops.vector import LoadVector, StoreVector
from tilesim.ir.program import Program


@cached
def loaded_tensors(mir: Mir) -> frozenset[str]:
    """Tensors that a scalar load or atomic may observe, directly or through copies, and those that
    tensor maps are taken from."""
    seeds = {
        e.view.tensor.name
        for effects in mir.effects
        for e in effects
        if isinstance(e, fx.Reads)
        and (e.proxy == "tensormap" or any(isinstance(d, fx.Defines) for d in effects))
    }
    return _sources(mir, seeds)


#: nodes of the data flow besides tensors, which are called by their names
_VARIABLE, _TILE, _TMEM = "%", "#", "@"
#: what an instruction finds in a register that more than so many may have set
_FOUND, _SEVERAL = "?", 8


class Dataflow:
    """What may flow where in a program: tensors, tiles, and registers as set by one instruction.

    Built once per program; what is asked of it is computed once.
    """

    def __init__(self, graph: FlowGraph, overlaps: Iterable[tuple[str, str]] | None = None) -> None:
        """``overlaps``: the pairs of shared allocations of which the second is read where the first
        was written; by default all that have bytes in common."""
        mir = graph.mir
        self._kernel, self._mir = mir.kernel, mir
        self._reaching = reaching(graph)
        self._changed = frozenset(
            name for effects in mir.effects for e in effects for name in written_by(e)
        )
        self._origins: dict[str, set[str]] = {}
        self._steer: set[str] = set()
        self._branch: set[str] = set()
        self._address: set[str] = set()
        found = aliases(mir.kernel) if overlaps is None else overlaps
        for source, target in (*found, *reached(mir)):
            self._origins.setdefault(target, set()).add(source)
        for number, mentioned in enumerate(mentions(mir)):
            if mentioned.tested:
                self._branch |= self._registers(mentioned.tested, number)
            what = mir.code[number].what
            if isinstance(what, Op):
                self._add(number, what, mir.effects[number], mentioned)
        self._steer |= self._branch

    @cached_property
    def steering(self) -> frozenset[str]:
        """Everything whose contents may reach control flow, an address or a barrier."""
        return self._closure(self._steer)

    @cached_property
    def branching(self) -> frozenset[str]:
        """Everything whose contents may reach a condition or the bound of a loop."""
        return self._closure(self._branch)

    @property
    def steering_inputs(self) -> tuple[str, ...]:
        """Global tensors that the kernel only reads and whose contents steer it, in order."""
        return tuple(n for n in self._global(self.steering) if not self._is_changed(n))

    @property
    def steering_state(self) -> tuple[str, ...]:
        """Global tensors that the kernel writes as well and whose contents steer it, in order."""
        return tuple(n for n in self._global(self.steering) if self._is_changed(n))

    def _is_changed(self, name: str) -> bool:
        """Whether the kernel may write a global tensor."""
        return not self._changed.isdisjoint((name, ".global", ".generic"))

    @property
    def steers_by_tiles(self) -> bool:
        """True if data that passes through register tiles or tensor memory steers the kernel.

        Its control flow is then only right if the contents of tiles are computed.
        """
        return any(node.startswith((_TILE, _TMEM)) for node in self.steering)

    @property
    def addressing(self) -> tuple[str, ...]:
        """Global tensors that say where the kernel reads others, which it never writes, in order.

        Such addresses decide what is read and whether that is in bounds, and nothing else. Tensors
        that steer it as well are not among them.
        """
        return self._global(self._closure(self._address) - self.steering)

    @cached_property
    def deciding(self) -> frozenset[str]:
        """Registers of which some value may reach control flow, a barrier or any address."""
        return frozenset(
            n[1:].rpartition("@")[0] for n in self._deciding_nodes if n.startswith(_VARIABLE)
        )

    @cached_property
    def _deciding_nodes(self) -> frozenset[str]:
        return self.steering | self._closure(self._address)

    def decides(self, name: str, setter: int) -> bool:
        """The same of the value that one instruction gives a register: others need not."""
        return _register(name, setter) in self._deciding_nodes

    def setters(self, number: int, name: str) -> tuple[int, ...]:
        """The instructions that may have set a register for the instruction of this number."""
        return self._reaching.setters(number, name)

    def _global(self, nodes: frozenset[str]) -> tuple[str, ...]:
        return tuple(t.name for t in self._kernel.tensors if t.name in nodes)

    def _closure(self, nodes: set[str]) -> frozenset[str]:
        return frozenset(closure(nodes, self._sources))

    def _sources(self, node: str) -> Iterable[str]:
        """What may flow into a node."""
        if not node.startswith(_FOUND):
            return self._origins.get(node, ())
        name, _, number = node.removeprefix(_FOUND).rpartition("@")
        return (_register(name, setter) for setter in self.setters(int(number), name))

    # ------------------------------------------------------------------ construction

    def _add(
        self, number: int, op: Op, effects: tuple[fx.Effect, ...], mentioned: Mentions
    ) -> None:
        inputs = {*tiles(effects, write=False)}.union(*map(tensors_read, effects))
        outputs = {*tiles(effects, write=True)}.union(*map(tensors_written, effects))
        outputs |= {_register(name, number) for name in sets(self._mir, number)}
        for name, value, names in mentioned.operands:
            registers = self._registers(names, number)
            inputs |= registers
            if registers and name not in op.data:
                where = self._is_address(effects, name, value) or (
                    name in op.addresses and self._deciding_maps.isdisjoint(outputs)
                )
                (self._address if where else self._steer).update(registers)
        for output in outputs:
            self._origins.setdefault(output, set()).update(inputs)

    @cached_property
    def _deciding_maps(self) -> frozenset[str]:
        """Tensors with tensor maps, or templates of such, that say what is written, or what is read
        of what is written."""
        seeds = {
            e.view.tensor.name
            for effects in self._mir.effects
            if any(
                isinstance(e, fx.WritesMap)
                or (isinstance(e, fx.ReadsMap) and any(map(self._is_changed, tensors_read(e))))
                for e in effects
            )
            for e in effects
            if isinstance(e, fx.Reads) and e.proxy == "tensormap"
        }
        return _sources(self._mir, seeds)

    def _registers(self, names: Iterable[str], number: int) -> set[str]:
        """These registers, once for each instruction that may have set them; if these are several,
        as the instruction finds them, as otherwise long chains would be kept for each."""
        found = set[str]()
        for name in names:
            setters = self.setters(number, name)
            if len(setters) > _SEVERAL:
                found.add(f"{_FOUND}{name}@{number}")
            else:
                found.update(_register(name, setter) for setter in setters)
        return found

    def _is_address(self, effects: Collection[fx.Effect], name: str, value: object) -> bool:
        """Whether an operand says what to read in global memory that the kernel never writes.

        So does how much of it cp.async reads: the rest of the destination is zero (C2). And a
        prefetch only asks whether its address is in bounds (B13).
        """
        if name == "src_bytes" or all(isinstance(e, fx.Prefetches) for e in effects):
            return True
        if name in ("coords", "info"):
            maps = (e for e in effects if isinstance(e, fx.ReadsMap))
            read = {name for e in maps for name in tensors_read(e)}
            return bool(read) and not any(map(self._is_changed, read))
        if not isinstance(value, View) or not isinstance(value.tensor, GlobalTensor):
            return False
        return not self._is_changed(value.tensor.name) and _stays_aligned(effects, value)


def _stays_aligned(effects: Collection[fx.Effect], view: View) -> bool:
    """Whether a view in global memory begins at a multiple of what is read there at once, whatever
    its offsets are (B6, C1, H15)."""
    reads = [e for e in effects if isinstance(e, fx.Reads) and e.view is view]
    if not any(e.asynchronous or e.lanes for e in reads):
        return True
    most = view.nbytes if any(e.lanes for e in reads) else 16
    at_once = max(1, min(view.nbytes, most))
    strides = view.tensor.byte_strides
    offsets = zip(view.offsets, strides, strict=True)
    return not any(divisor(offset, at_once) * stride % at_once for offset, stride in offsets)


@cached
def flow_of(graph: FlowGraph) -> Dataflow:
    """What may flow where in a program."""
    return Dataflow(graph)


def _register(name: str, setter: int) -> str:
    return f"{_VARIABLE}{name}@{setter}"


def tensors_read(effect: fx.Effect) -> tuple[str, ...]:
    """The names of the tensors of which an effect may read one."""
    if isinstance(effect, fx.Reads):
        return (effect.view.tensor.name,)
    if isinstance(effect, fx.ReadsMap):
        return tuple(tensor.name for tensor in effect.map.tensors)
    return ()


def tiles(effects: Iterable[fx.Effect], *, write: bool) -> Iterator[str]:
    """The register tiles, and tensor memory, that effects write or read, as nodes of the data
    flow."""
    for effect in effects:
        match effect:
            case fx.UsesFragment(fragment=fragment, write=written) if written is write:
                yield _TILE + fragment.name
            case fx.UsesTmem(write=written) if written is write:
                yield _TMEM
            case _:
                pass


def acquires_map(op: Op) -> bool:
    """Whether an instruction says of which tensor map copies behind it know: of none if it is given
    a number in place of an address (B14)."""
    return any(isinstance(effect, fx.AcquiresMap) for effect in op.effects())


#: what writes what it names
_STORES = (fx.Writes, fx.RemoteStore)


def tensors_written(effect: fx.Effect) -> tuple[str, ...]:
    """The names of the tensors of which an effect may write one."""
    if isinstance(effect, _STORES):
        return (effect.view.tensor.name,)
    if isinstance(effect, fx.WritesMap):
        return tuple(tensor.name for tensor in effect.map.tensors)
    return ()


def written_by(effect: fx.Effect) -> tuple[str, ...]:
    """The same, but what an effect writes at an address is one of the tensors that it may be in."""
    match effect:
        case fx.Writes(view=View(tensor=AddressedTensor(among=among))) if among:
            return among
        case _:
            return tensors_written(effect)


def _sources(mir: Mir, seeds: set[str]) -> frozenset[str]:
    """``seeds`` and every tensor whose contents may be copied into them."""
    origins: dict[str, list[str]] = {}
    for source, target in (*aliases(mir.kernel), *reached(mir)):
        origins.setdefault(target, []).append(source)
    for effects in mir.effects:
        reads = [name for e in effects for name in tensors_read(e)]
        for target in (name for e in effects for name in tensors_written(e)):
            origins.setdefault(target, []).extend(reads)
    return frozenset(closure(seeds, lambda name: origins.get(name, ())))


@cached
def at_addresses(mir: Mir) -> tuple[AddressedTensor, ...]:
    """What instructions access at addresses."""
    values = (value for op in mir.ops() for value in vars(op).values() if isinstance(value, View))
    return tuple(v.tensor for v in values if isinstance(v.tensor, AddressedTensor))


@cached
def is_addressed(mir: Mir) -> bool:
    """Whether an operand is named by its address."""
    named = (v for op in mir.ops() for v in vars(op).values() if isinstance(v, Mbar))
    return bool(at_addresses(mir)) or any(isinstance(m.array, AddressedMbarriers) for m in named)


def names_addresses(mir: Mir) -> bool:
    """Whether an operand is named by its address, or the address of a declaration is in the program
    otherwise, or in what an instruction gives."""
    if is_addressed(mir) or any(name.startswith("&") for m in mentions(mir) for name in m.names):
        return True
    given = (e.value for _, e in mir.all_of(fx.Defines) if isinstance(e.value, Expr))
    return any(isinstance(part, Base) for value in given for part in walk(value))


@cached
def reached(mir: Mir) -> tuple[tuple[str, str], ...]:
    """Pairs of a tensor and what is accessed at addresses that may be in it, and the reverse.

    Whatever is accessed at any address of shared memory is accessed in all of its parts; what is
    written so goes to none of them (`tilesim.analysis.pointer_table`).
    """
    # those that may be of any tensor of their state space
    everywhere: dict[str, list[tuple[str, ...]]] = {}
    for tensor in at_addresses(mir):
        if not tensor.within:
            everywhere.setdefault(tensor.name, []).append(tensor.among)
    separate = {t.within for t in at_addresses(mir) if is_part(t.within)}
    shared_names, global_names = (
        {s.name for s in mir.kernel.shared},
        {t.name for t in mir.kernel.tensors},
    )
    spaces = {
        name: _parts(name, shared_names, global_names) if not all(among) else set().union(*among)
        for name, among in sorted(everywhere.items())
    }
    found = []
    for name, parts in spaces.items():
        for other in sorted(parts):
            found += [(name, other), (other, name)]
        found += [(name, o) for o, theirs in spaces.items() if o != name and theirs & parts]
        found += [(part, name) for part in sorted(separate) if name != ".global"]
    return tuple(found)


def _parts(name: str, shared_names: set[str], global_names: set[str]) -> set[str]:
    """What may be at an address that is accessed by this name."""
    if name == ".generic":
        return shared_names | global_names
    return global_names if name == ".global" else shared_names


def aliases(program: Program) -> Iterator[tuple[str, str]]:
    """Pairs of shared allocations that overlap."""
    spans = [
        (s.name, program.placement[s.name], program.placement[s.name] + s.nbytes)
        for s in program.shared
    ]
    for a, low, high in spans:
        for b, start, stop in spans:
            if a != b and low < stop and start < high:
                yield a, b


#: the source of cancelled clusters' coordinates; other sources are counters, by tensor
CLUSTERS = "clusterlaunchcontrol"

#: special registers by which a CTA knows which one it is
CTAS = ("cta_x", "cta_y", "cta_z", "cluster_id")
#: the source of what depends on the number of the CTA and on another one together
BOTH = "both"

#: a word of shared memory: the part that it is in, its place if only that is followed, its type
Word: TypeAlias = tuple[str, str, tuple[str, int] | None, str]
#: (n, d): any function of (number + d) // n
Period: TypeAlias = tuple[int, int]
#: what a value may be made of: (source, d) is a number drawn plus d, with None any function of it;
#: what is empty does not depend on which numbers are drawn
Value: TypeAlias = frozenset[tuple[str, int | Period | None]]

_NOTHING: Value = frozenset()
#: so many different sums with one number; more are taken for any function of it
_MOST = 8
#: how many more than the bound are the numbers at which the outcome of a comparison changes
_CHANGES = {"<": (0,), ">=": (0,), "<=": (1,), ">": (1,), "==": (0, 1), "!=": (0, 1)}
#: what words of shared memory at fixed addresses are followed as, with address and type
_SHARED = "shared"
#: bits of a type of which a vector has a register for each element
_WHOLE = 32
#: halves of an answer of launch control as it was loaded: a query takes them apart
_HALVES = ("the first half of an answer", "the second half of an answer")
#: operands that say what is read or written in global memory
_PLACES = ("coords", "src_bytes")


class Taint:
    """What numbers from ``counters`` and from launch control decide in a program.

    With ``ctas`` the number of the CTA is looked at in the same way, under the names in `CTAS`.
    ``instead``: by number, what decides at a branch in place of its condition.

    ``steers``: the sources whose numbers reach control flow, a barrier or an address of shared
    memory otherwise than by a comparison with a fixed number, and where. ``bounds``: by source,
    the numbers b for which b - 1 and b lead to different outcomes of some comparison; ``periods``:
    quotients of the numbers that decide something else. ``placed``: by global tensor, the sources
    that choose where each access to it lies; `BOTH` among them if the number of the CTA and another
    one do so together, and not one or the other.
    """

    def __init__(
        self,
        graph: FlowGraph,
        counters: Iterable[str] = (),
        *,
        ctas: bool = False,
        instead: Mapping[int, Sequence[Expr]] | None = None,
    ) -> None:
        mir = graph.mir
        self.steers: dict[str, Loc] = {}
        self.bounds: dict[str, set[int]] = {}
        self.periods: dict[str, set[Period]] = {}
        self.placed: dict[str, set[frozenset[str]]] = {}
        self.kernel, self._instead = mir.kernel, instead or {}
        self._mir, self._graph = mir, graph
        self._known_sides: dict[int, tuple[int, ...] | None] = {}
        self._globals = frozenset(tensor.name for tensor in mir.kernel.tensors)
        self._setters = reaching(graph).setters
        self._threads = Threads(graph, launch=True)
        self._specials = CTAS if ctas else ()
        self._counters = frozenset(counters)
        self._nodes: dict[object, Value] = {}
        #: words of shared memory at fixed addresses that are accessed
        self._words: dict[Word, None] = {}
        self._aliases = [*aliases(mir.kernel), *reached(mir)]
        self._responses = frozenset(
            op.response.tensor.name for op in mir.ops() if isinstance(op, ClcTryCancel)
        )
        #: what may overlap them
        self._may_be_responses = self._responses | {
            other for one, other in self._aliases if one in self._responses
        }
        self._grew = True
        while self._grew:
            self._grew = False
            for number, instruction in enumerate(mir.code):
                for deciding in self._deciding(number, instruction):
                    self._decide(self._value(deciding, number), number, instruction.loc)
                if isinstance(instruction.what, Op):
                    self._flow_through(number, instruction.what, mir.effects[number])
            for one, other in self._aliases:
                self._put(other, _any(self._get(one)))

    # ------------------------------------------------------------------ instructions

    def _deciding(self, number: int, instruction: Instruction) -> Sequence[Expr]:
        """What decides where an instruction goes, or whether it is executed."""
        cond = condition(instruction)
        return self._instead.get(number, () if cond is None else (cond,))

    def _decide(self, value: Value, number: int, loc: Loc) -> None:
        """Something decides where to go on: what is executed, or what a few registers hold."""
        sides = None if not value or number in self._instead else self._sides(number)
        if sides is None:
            self._steer(value, loc)
            return
        for inside in sides:
            for effect in self._mir.effects[inside]:
                if isinstance(effect, fx.Defines):
                    node = effect.var.name, inside
                    self._put(node, _any(value) | self._both(number, (), value, self._get(node)))

    def _sides(self, number: int) -> tuple[int, ...] | None:
        """What a branch may jump over, if that is nothing but arithmetic without loops."""
        if number not in self._known_sides:
            self._known_sides[number] = sides_that_compute(self._graph, number)
        return self._known_sides[number]

    def _flow_through(self, number: int, op: Op, effects: tuple[fx.Effect, ...]) -> None:
        match effects:
            case (fx.Queries(part, registers=(low, high)), fx.Defines(var=var)):
                self._query(number, op, part, (low, high), var)
                return
            case _:
                pass
        results = [e.var for e in effects if isinstance(e, fx.Defines)]
        places, data = _NOTHING, _NOTHING
        placing: list[Expr] = []
        for name in OPERANDS[type(op)]:
            operand = getattr(op, name)
            exprs = [*expressions_in(operand)]
            value = self._union(self._value(e, number) for e in exprs)
            if name in op.data:
                data |= value | self._both(number, exprs, data)
            elif name in _PLACES or _is_global(operand):
                places |= value
                placing += exprs
                if _is_global(operand) and operand.tensor.name in self._counters:
                    self._steer(value, op.loc)
            else:
                self._steer(value, op.loc)
        places |= self._both(number, placing)
        for effect in effects:
            for tensor in self._globals.intersection((*tensors_read(effect), *written_by(effect))):
                self.placed.setdefault(tensor, set()).add(frozenset(source for source, _ in places))
        made = self._made(number, op, effects, data)
        made |= _any(places) | self._both(number, (), made, places)
        word = self._word(op.dst, number) if isinstance(op, Store | StoreVector) else None
        for effect in effects:
            for name in tensors_written(effect):
                self._put(name if word is None else word, made)
        for place, var in enumerate(results):
            half = {(_HALVES[place], 0)} if self._is_answer(op) else _NOTHING
            self._put((var.name, number), self._result(op, made) | half)
        for tile in tiles(effects, write=True):
            self._put(tile, _any(made))

    def _made(self, number: int, op: Op, effects: tuple[fx.Effect, ...], data: Value) -> Value:
        """What an instruction makes of its data."""
        names = {name for e in effects for name in tensors_read(e)}
        word = self._word(op.src, number) if isinstance(op, Load | LoadVector) else None
        if word is None:
            read = self._union(self._read(name) for name in names)
        else:  # what else is in this part of shared memory may lie there in part
            others = (*names, *(w for w in self._words if w != word and w[1] == word[1]))
            read = self._get(word) | _any(self._union(map(self._get, others)))
        if names & self._may_be_responses and not self._is_answer(op):
            read |= {(CLUSTERS, None)}
        # of register tiles that are written a part may stay
        over = (tile for tile in tiles(effects, write=True) if tile != _TMEM)
        read |= self._union(map(self._get, (*tiles(effects, write=False), *over)))
        match op:
            case Assign() | Shuffle() | Store() | StoreVector():
                return data
            case Load() | LoadVector():
                return read
            case _:
                return _any(read | data) | self._both(number, (), read, data)

    def _is_answer(self, op: Op) -> bool:
        """Whether an instruction loads all of an answer of launch control, as two halves; both
        are at multiples of 16 bytes."""
        return (
            isinstance(op, LoadVector)
            and op.src.dtype.bits == 64
            and len(op.results) == len(_HALVES)
            and op.src.tensor.name in self._responses
        )

    def _query(
        self, number: int, op: Op, part: str, registers: tuple[Expr, Expr], var: Var
    ) -> None:
        """A query of an answer in registers: what is no half of one may decide anything."""
        values = [self._value(register, number) for register in registers]
        other = self._union(v - {(half, 0)} for v, half in zip(values, _HALVES, strict=True))
        self._steer(other, op.loc)
        cluster = _NOTHING if part == "canceled" else frozenset({(CLUSTERS, 0)})
        self._put((var.name, number), cluster | _any(other))

    def _result(self, op: Op, made: Value) -> Value:
        match op:
            case Atomic() if op.dst.tensor.name in self._counters:
                return frozenset({(op.dst.tensor.name, 0)})
            case ClcQueryGetFirstCtaid():
                return frozenset({(CLUSTERS, 0)}) | _any(self._get(op.response.tensor.name))
            case ClcQueryIsCanceled():
                return _any(self._get(op.response.tensor.name))
            case _:
                return made

    # ------------------------------------------------------------------ words

    def _word(self, view: View, number: int) -> Word | None:
        """What words of the CTA's shared memory are followed as: one at a fixed address, or those
        of a part of it that is kept apart; else None.

        An access at another address, or as another type, may get any function of them.
        """
        tensor = view.tensor
        if not isinstance(tensor, AddressedTensor):
            return None
        address = None
        if not is_part(tensor.name):
            address = self._fixed(tensor.address, number)
            if tensor.space != "shared::cta" or view.extents or address is None:
                return None
        elif tensor.dtype.bits < _WHOLE:
            return None
        word = _SHARED, tensor.name, address, tensor.dtype.name
        self._words[word] = None
        return word

    def _fixed(self, address: Expr, at: int) -> tuple[str, int] | None:
        """An allocation and a number of bytes that an address always is."""
        match address:
            case Base(name, "shared"):
                return name, 0
            case Binary("+", inner, Const(value)) if not isinstance(inner, Binary):
                found = self._fixed(inner, at)
                return None if found is None else (found[0], found[1] + integer(value))
            case Var(name):
                base = assigned(self._graph, at, name)
                return self._fixed(base, at) if isinstance(base, Base) else None
            case _:
                return None

    def _read(self, name: str) -> Value:
        """What a tensor holds; what is no global tensor, any function of what words hold, too: of
        those in a part of shared memory, or of all."""
        if name in self._globals:
            return self._get(name)
        words = (w for w in self._words if not is_part(name) or w[1] == name)
        return self._get(name) | _any(self._union(map(self._get, words)))

    # ------------------------------------------------------------------ values

    def _value(self, expr: Expr, number: int) -> Value:
        """What an expression of an instruction is made of."""
        match expr:
            case Var(name):
                return self._union(self._get((name, n)) for n in self._setters(number, name))
            case Special(name) if name in self._specials:
                return frozenset({(name, 0)})
            case Binary("-", Binary("^", inner, Const(top)), Const(sign)) if top == sign == 1 << 31:
                return self._value(inner, number)  # 32 bits as a number with a sign
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, number)
            case Unary(op, operand):
                value = self._value(operand, number)
                return _any(value)
            case Select(cond, then, other):
                chosen = self._value(then, number) | self._value(other, number)
                return chosen | _any(self._value(cond, number))
            case _:
                return _NOTHING

    def _binary(self, op: str, lhs: Expr, rhs: Expr, at: int) -> Value:
        left, right = _numbers(self._value(lhs, at)), _numbers(self._value(rhs, at))
        if left and right:
            return _any(left | right)
        if right and op in (*RELATIONS, "+"):
            return self._binary(MIRRORED.get(op, op), rhs, lhs, at)
        number = self._threads.value(rhs, at)
        exact = [(source, d) for source, d in left if isinstance(d, int)]
        if not isinstance(number, int) or len(exact) < len(left):
            return _any(left | right)
        if op in RELATIONS:
            for source, d in exact:
                bounds = self.bounds.setdefault(source, set())
                bounds.update(number - d + more for more in _CHANGES[op])
            return _NOTHING
        if op in ("+", "-"):
            sign = 1 if op == "+" else -1
            return frozenset((s, d + sign * number) for s, d in exact)
        if op == "//" and number > 0:
            return frozenset((s, (number, d)) for s, d in exact)
        return _any(left | right)

    # ------------------------------------------------------------------ two numbers together

    def _both(self, number: int, exprs: Iterable[Expr], *others: Value) -> Value:
        """`BOTH`, if what an instruction is given by ``exprs`` and ``others`` depends on the number
        of the CTA and on another one together: not all of it is a function of one register."""
        found = [value for value in others if value]
        if self._specials and len({*self._registers(number, exprs, found)}) + len(found) > 1:
            found += (self._value(e, number) for e in exprs)
            sources = {source for value in found for source, _ in value}
            if sources.intersection(self._specials) and sources.difference(self._specials):
                return frozenset({(BOTH, None)})
        return _NOTHING

    def _registers(self, at: int, exprs: Iterable[Expr], others: object) -> Iterator[str]:
        """What ``exprs`` are functions of, where they are evaluated.

        A register that one instruction sets is known by its operands, if these have not changed
        since.
        """
        left = [(at, expr) for expr in exprs]
        while left:
            number, expr = left.pop()
            for part in walk(expr):
                match part:
                    case Special(name) if name in self._specials:
                        yield name
                    case Var(name) if self._value(part, number):
                        value = assigned(self._graph, number, name)
                        setters = self._setters(number, name)
                        if value is None or not self._stays(value, setters[0], at):
                            yield name
                        else:
                            left.append((setters[0], value))
                    case _:
                        pass

    def _stays(self, value: Expr, since: int, until: int) -> bool:
        """Whether what ``value`` was made of is the same whenever ``until`` is executed as it was
        when ``since`` was, the last time before."""
        names = {part.name for part in walk(value) if isinstance(part, Var)}
        changes = {n for name in names for n in self._mir.setters.get(name, ())}
        if since in changes:
            return False
        changes = {n for n in changes if any(map(self._get, ((m, n) for m in names)))}
        return not changes or changes.isdisjoint(self._graph.on_paths(since, until))

    def _steer(self, value: Value, loc: Loc) -> None:
        for source, d in sorted(_numbers(value), key=str):
            if isinstance(d, tuple):
                self.periods.setdefault(source, set()).add(d)
            else:
                self.steers.setdefault(source, loc)

    def _union(self, values: Iterable[Value]) -> Value:
        return _NOTHING.union(*values)

    def _get(self, node: object) -> Value:
        return self._nodes.get(node, _NOTHING)

    def _put(self, node: object, value: Value) -> None:
        before = self._get(node)
        after = before | value
        if len(after) > _MOST:
            after = _any(after)
            if before == after:
                return
        if after != before:
            self._nodes[node] = after
            self._grew = True


def _any(value: Value) -> Value:
    """Any function of what ``value`` is made of."""
    found = ((source, d if isinstance(d, tuple) else None) for source, d in value)
    return _numbers(frozenset(found))


def _numbers(value: Value) -> Value:
    """The same, if halves of answers are not kept together."""
    if not any(source in _HALVES for source, _ in value):
        return value
    return frozenset((CLUSTERS, None) if s in _HALVES else (s, d) for s, d in value)


def _is_global(operand: object) -> TypeGuard[View]:
    """Whether an operand lies in a tensor of which the name is known."""
    if not isinstance(operand, View):
        return False
    tensor = operand.tensor
    return isinstance(tensor, GlobalTensor) or (
        isinstance(tensor, AddressedTensor) and bool(tensor.within) and not is_part(tensor.within)
    )
