"""A kernel: launch shape, declarations and a structured body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import prod
from typing import Literal

from tilesim.ir.declarations import Fragment, GlobalTensor, Mbarriers, SharedTensor, TensorMap
from tilesim.ir.display import Shown
from tilesim.ir.expr import Expr, ScalarParam, Var
from tilesim.ir.frozen import Keeper
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.op import Op
from tilesim.ir.target import Target
from tilesim.records import dataclass, field, replace

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class For:
    """``for var in range(start, stop, step)``; bounds are warp-uniform and evaluated once. With
    ``sync`` lanes that a break has parted meet after it."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    sync: bool = True
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class While:
    """``while cond``: lanes whose condition is false leave the loop; with ``sync`` they meet after
    it."""

    cond: Expr
    body: tuple[Stmt, ...]
    sync: bool = True
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class If:
    """``if cond``: the condition may differ per lane; with ``sync`` lanes meet after it."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    sync: bool = True
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Break:
    """Leaves the innermost loop."""

    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Role:
    """A region executed only by these warps of the CTA; ``name`` is what findings call them."""

    name: str
    warps: tuple[int, ...]
    body: tuple[Stmt, ...]
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


Stmt = Op | For | While | If | Break | Role
Shared = SharedTensor | Mbarriers


@dataclass(frozen=True, kw_only=True)
class Program(Keeper, Shown):
    """A kernel, complete and immutable.

    ``grid`` counts CTAs, ``cluster`` CTAs per cluster, ``warps`` warps per CTA;
    ``registers`` is the per-thread register count at launch (for ``setmaxnreg``), None for the
    largest that fits one CTA per SM; ``smem_bytes`` is the dynamic shared memory requested at
    launch, None for what the allocations need. ``cooperative``: all CTAs are resident together.
    ``set_at`` says where what differs from the kernel's own line was set, by field.
    """

    name: str
    target: Target
    warps: int
    grid: Dim3 = (1, 1, 1)
    cluster: Dim3 = (1, 1, 1)
    params: tuple[GlobalTensor | ScalarParam, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    shared: tuple[Shared, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    variables: tuple[Var, ...] = ()
    body: tuple[Stmt, ...] = ()
    registers: int | None = None
    cooperative: bool = False
    smem_bytes: int | None = None
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)
    set_at: Mapping[str, Loc] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ctas(self) -> int:
        """CTAs in the grid."""
        return prod(self.grid)

    @property
    def cluster_size(self) -> int:
        """CTAs in a cluster."""
        return prod(self.cluster)

    @cached_property
    def tensors(self) -> tuple[GlobalTensor, ...]:
        """The global tensors among the parameters."""
        return tuple(p for p in self.params if isinstance(p, GlobalTensor))

    @cached_property
    def smem_used(self) -> int:
        """Bytes of shared memory from 0 to the end of the last allocation."""
        return max((self.placement[s.name] + s.nbytes for s in self.shared), default=0)

    @cached_property
    def statements(self) -> tuple[Stmt, ...]:
        """All statements in program order, regions included."""
        return tuple(walk(self.body))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """All instructions in program order."""
        return tuple(stmt for stmt in self.statements if isinstance(stmt, Op))

    @cached_property
    def placement(self) -> dict[str, int]:
        """Byte offset of every shared allocation, explicit ones as given."""
        return place_shared(self.shared)

    @property
    def smem_requested(self) -> int:
        """Bytes of dynamic shared memory of the launch."""
        return self.smem_used if self.smem_bytes is None else self.smem_bytes

    def role_of(self, warp: int) -> str:
        """What findings call a warp: its largest top-level role, ``warp N`` when it has none."""
        roles = [
            s
            for s in self.body
            if isinstance(s, Role) and warp in s.warps and s.name != f"warp {warp}"
        ]
        if not roles:
            return f"warp {warp}"
        return max(roles, key=lambda role: sum(1 for _ in walk(role.body))).name


def children(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The regions of a statement; empty for instructions."""
    match stmt:
        case For(body=body) | While(body=body) | Role(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case _:
            return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements in program order, regions included."""
    for stmt in body:
        yield stmt
        if not isinstance(stmt, Op):
            for region in children(stmt):
                yield from walk(region)


def instructions(program: Program) -> Iterator[Op]:
    """All instructions in program order."""
    return iter(program.ops)


def rewrite(body: tuple[Stmt, ...], visit: Callable[[Stmt], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """``body`` with every statement replaced by ``visit(statement)``, innermost regions first."""
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For() | While() | Role():
                stmt = replace(stmt, body=rewrite(stmt.body, visit))
            case If():
                stmt = replace(
                    stmt, then=rewrite(stmt.then, visit), orelse=rewrite(stmt.orelse, visit)
                )
            case _:
                pass
        result.extend(visit(stmt))
    return tuple(result)


def place_shared(shared: tuple[Shared, ...]) -> dict[str, int]:
    """Byte offset of every allocation: explicit ones as given, the others after one another."""
    offsets: dict[str, int] = {}
    cursor = max(((s.offset + s.nbytes) for s in shared if s.offset is not None), default=0)
    for item in shared:
        if item.offset is None:
            align = max(item.align, 1)  # what is wrong with it the verifier says
            cursor = -(-cursor // align) * align
            offsets[item.name] = cursor
            cursor += item.nbytes
        else:
            offsets[item.name] = item.offset
    return offsets


#: which rules hold: PTX as written, or as shipping kernels rely on it (SEMANTICS 0.3)
Strict = Literal["ptx", "practice"]
Verdict = Literal["proved", "exhausted", "bounded", "failed", "unsupported"]
