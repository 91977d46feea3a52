"""Which data steers a kernel: tensors whose contents reach control flow, addresses or barriers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.solver import closure
from tilesim.analysis.ssa import reaching
from tilesim.analysis.uses_defs import Mentions, mentions
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor, is_part
from tilesim.ir.kept import kept
from tilesim.ir.memory import GlobalTensor, Mbar, View
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program


@kept
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
        return frozenset(closure(nodes, lambda node: self._origins.get(node, ())))

    # ------------------------------------------------------------------ construction

    def _add(
        self, number: int, op: Op, effects: tuple[fx.Effect, ...], mentioned: Mentions
    ) -> None:
        inputs = {name for effect in effects for name in tensors_read(effect)}
        outputs = {name for effect in effects for name in tensors_written(effect)}
        for effect in effects:
            match effect:
                case fx.Defines(var=var):
                    outputs.add(_register(var.name, number))
                case fx.UsesFragment(fragment=fragment, write=write):
                    (outputs if write else inputs).add(_TILE + fragment.name)
                case fx.UsesTmem(write=write):
                    (outputs if write else inputs).add(_TMEM)
                case _:
                    pass
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
        """These registers, once for each instruction that may have set them."""
        setters = self._reaching.setters
        return {_register(name, setter) for name in names for setter in setters(number, name)}

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
        return not self._is_changed(value.tensor.name)


@kept
def flow_of(graph: FlowGraph) -> Dataflow:
    """What may flow where in a program."""
    return Dataflow(graph)


def _register(name: str, setter: int) -> str:
    return f"{_VARIABLE}{name}@{setter}"


def tensors_read(effect: fx.Effect) -> tuple[str, ...]:
    """The names of the tensors of which an effect may read one."""
    match effect:
        case fx.Reads(view=view):
            return (view.tensor.name,)
        case fx.ReadsMap(map=map_):
            return tuple(tensor.name for tensor in map_.tensors)
        case _:
            return ()


def acquires_map(op: Op) -> bool:
    """Whether an instruction says of which tensor map copies behind it know: of none if it is given
    a number in place of an address (B14)."""
    return any(isinstance(effect, fx.AcquiresMap) for effect in op.effects())


def tensors_written(effect: fx.Effect) -> tuple[str, ...]:
    """The names of the tensors of which an effect may write one."""
    match effect:
        case fx.Writes(view=view) | fx.RemoteStore(view=view):
            return (view.tensor.name,)
        case fx.WritesMap(map=map_):
            return tuple(tensor.name for tensor in map_.tensors)
        case _:
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


@kept
def at_addresses(mir: Mir) -> tuple[AddressedTensor, ...]:
    """What instructions access at addresses."""
    values = (value for op in mir.ops() for value in vars(op).values() if isinstance(value, View))
    return tuple(v.tensor for v in values if isinstance(v.tensor, AddressedTensor))


@kept
def is_addressed(mir: Mir) -> bool:
    """Whether an operand is named by its address."""
    named = (v for op in mir.ops() for v in vars(op).values() if isinstance(v, Mbar))
    return bool(at_addresses(mir)) or any(isinstance(m.array, AddressedMbarriers) for m in named)


@kept
def reached(mir: Mir) -> tuple[tuple[str, str], ...]:
    """Pairs of a tensor and what is accessed at addresses that may be in it, and the reverse.

    Whatever is accessed at any address of shared memory is accessed in all of its parts; what is
    written so goes to none of them (`tilesim.ir.near`).
    """
    # those that may be of any tensor of their state space
    anywhere: dict[str, list[tuple[str, ...]]] = {}
    for tensor in at_addresses(mir):
        if not tensor.within:
            anywhere.setdefault(tensor.name, []).append(tensor.among)
    told_apart = {t.within for t in at_addresses(mir) if is_part(t.within)}
    near, far = {s.name for s in mir.kernel.shared}, {t.name for t in mir.kernel.tensors}
    spaces = {
        name: _parts(name, near, far) if not all(among) else set().union(*among)
        for name, among in sorted(anywhere.items())
    }
    found = []
    for name, parts in spaces.items():
        for other in sorted(parts):
            found += [(name, other), (other, name)]
        found += [(name, o) for o, theirs in spaces.items() if o != name and theirs & parts]
        found += [(part, name) for part in sorted(told_apart) if name != ".global"]
    return tuple(found)


def _parts(name: str, near: set[str], far: set[str]) -> set[str]:
    """What may be at an address that is accessed by this name."""
    if name == ".generic":
        return near | far
    return far if name == ".global" else near


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
