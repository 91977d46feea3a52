"""Which data steers a kernel: tensors whose contents reach control flow, addresses or barriers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.memory import Mbar, View
from tilesim.ir.op import Op
from tilesim.ir.ops.cluster import RedAsync, StAsync
from tilesim.ir.ops.scalar import Assign, Atomic, Shuffle, Store
from tilesim.ir.ops.tile import TileFill
from tilesim.ir.program import For, If, Program, While, instructions, walk
from tilesim.ir.tmem import TmemView


def loaded_tensors(program: Program) -> frozenset[str]:
    """Tensors that a scalar load or atomic may observe, directly or through copies."""
    seeds = {
        e.view.tensor.name
        for op in instructions(program)
        if any(isinstance(d, fx.Defines) for d in op.effects())
        for e in op.effects()
        if isinstance(e, fx.Reads)
    }
    return _sources(program, seeds)


def steering_inputs(program: Program) -> tuple[str, ...]:
    """Global tensors that the kernel only reads and whose contents steer it, in order."""
    return _steering_tensors(program)[0]


def steering_state(program: Program) -> tuple[str, ...]:
    """Global tensors that the kernel writes as well and whose contents steer it, in order."""
    return _steering_tensors(program)[1]


def _steering_tensors(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Global tensors whose contents steer the kernel: those it only reads, and the others."""
    sources = _steering(program)
    names = [t.name for t in program.tensors if t.name in sources]
    written = {name for op in instructions(program) for e in op.effects() for name in _written(e)}
    return (
        tuple(name for name in names if name not in written),
        tuple(name for name in names if name in written),
    )


def steers_by_tiles(program: Program) -> bool:
    """True if data that passes through register tiles or tensor memory steers the kernel.

    Its control flow is then only right if the contents of tiles are computed.
    """
    return any(node.startswith((_TILE, _TMEM)) for node in _steering(program))


#: nodes of the data flow besides tensors, which are called by their names
_VARIABLE, _TILE, _TMEM = "%", "#", "@"


def _steering(program: Program) -> frozenset[str]:
    """Everything (tensors, variables, tiles) whose contents may reach a steering expression."""
    origins: dict[str, set[str]] = {}
    for source, target in _aliases(program):
        origins.setdefault(target, set()).add(source)
    for op in instructions(program):
        inputs, outputs = _flow(op)
        for output in outputs:
            origins.setdefault(output, set()).update(inputs)
    found: set[str] = set()
    new = set(_variables(_steering_expressions(program)))
    while new:
        found |= new
        new = {source for node in new for source in origins.get(node, ())} - found
    return frozenset(found)


def _flow(op: Op) -> tuple[set[str], set[str]]:
    """What ``op`` takes data from, and what it changes."""
    inputs = set(_variables(_operand_expressions(op, data=True)))
    outputs: set[str] = set()
    for effect in op.effects():
        inputs.update(_read(effect))
        outputs.update(_written(effect))
        match effect:
            case fx.Defines(var=var):
                outputs.add(_VARIABLE + var.name)
            case fx.UsesFragment(fragment=fragment, write=write):
                (outputs if write else inputs).add(_TILE + fragment.name)
            case fx.UsesTmem(write=write):
                (outputs if write else inputs).add(_TMEM)
            case _:
                pass
    return inputs, outputs


def _variables(expressions: Iterable[Expr]) -> Iterator[str]:
    for expr in expressions:
        yield from (_VARIABLE + v.name for v in walk_expr(expr) if isinstance(v, Var))


def _steering_expressions(program: Program) -> Iterator[Expr]:
    for stmt in walk(program.body):
        match stmt:
            case For():
                yield from (stmt.start, stmt.stop, stmt.step)
            case While() | If():
                yield stmt.cond
            case Op():
                yield from _operand_expressions(stmt)
            case _:
                pass


def _operand_expressions(op: Op, *, data: bool = False) -> Iterator[Expr]:
    """Expressions in the operands of ``op``; without ``data``, those that are not just moved."""
    skipped = {"loc"}
    if not data and isinstance(op, (Assign, Store, Atomic, Shuffle, StAsync, RedAsync, TileFill)):
        skipped |= {"value", "compare"}
    results = [e.var for e in op.effects() if isinstance(e, fx.Defines)]
    for field in fields(op):
        value = getattr(op, field.name)
        if field.name in skipped or any(value is result for result in results):
            continue
        match value:
            case View() as view:
                yield from view.offsets
                if view.cta is not None:
                    yield view.cta
            case Mbar() as mbar:
                yield mbar.index
                if mbar.cta is not None:
                    yield mbar.cta
            case TmemView() as tmem:
                yield tmem.address
            case tuple() as items:
                yield from (i for i in items if isinstance(i, Expr))
            case Expr() as expr:
                yield expr
            case _:
                pass


def _read(effect: fx.Effect) -> tuple[str, ...]:
    match effect:
        case fx.Reads(view=view):
            return (view.tensor.name,)
        case fx.ReadsMap(map=map_):
            return (map_.tensor.name,)
        case _:
            return ()


def _written(effect: fx.Effect) -> tuple[str, ...]:
    match effect:
        case fx.Writes(view=view) | fx.RemoteStore(view=view):
            return (view.tensor.name,)
        case fx.WritesMap(map=map_):
            return (map_.tensor.name,)
        case _:
            return ()


def _sources(program: Program, seeds: set[str]) -> frozenset[str]:
    """``seeds`` and every tensor whose contents may be copied into them."""
    flows = list(_aliases(program))
    for op in instructions(program):
        effects = op.effects()
        reads = [name for e in effects for name in _read(e)]
        writes = [name for e in effects for name in _written(e)]
        flows += [(source, target) for source in reads for target in writes]
    found = set(seeds)
    while True:
        more = {source for source, target in flows if target in found} - found
        if not more:
            return frozenset(found)
        found |= more


def _aliases(program: Program) -> Iterator[tuple[str, str]]:
    """Pairs of shared allocations that overlap."""
    spans = [
        (s.name, program.placement[s.name], program.placement[s.name] + s.nbytes)
        for s in program.shared
    ]
    for a, low, high in spans:
        for b, start, stop in spans:
            if a != b and low < stop and start < high:
                yield a, b
