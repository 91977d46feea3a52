"""A program's statements with numbers and parents, so that passes can name places in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tilesim.errors import reject
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.effects import Effect
from tilesim.ir.memory import Mbar, View
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.program import For, If, Program, Role, Stmt, While, children, instructions


@dataclass(eq=False)
class Node:
    """A statement: its number in program order, what encloses it and how many loops do."""

    number: int
    stmt: Stmt
    parent: Node | None
    depth: int
    previous: Node | None
    following: Node | None = None
    regions: tuple[tuple[Node, ...], ...] = ()
    effects: tuple[Effect, ...] = ()

    def inside(self, ancestor: Node) -> bool:
        """Whether ``ancestor`` is this node or encloses it."""
        node: Node | None = self
        while node is not None and node is not ancestor:
            node = node.parent
        return node is not None

    def walk(self) -> Iterator[Node]:
        """This node and everything in it, in program order."""
        yield self
        for region in self.regions:
            for node in region:
                yield from node.walk()


@dataclass(frozen=True)
class Tree:
    """The body of a program as nodes."""

    program: Program
    body: tuple[Node, ...]
    nodes: tuple[Node, ...]

    @staticmethod
    def of(program: Program) -> Tree:
        """Numbers the statements of ``program``.

        Raises:
            InvalidProgram: an operand is at an address: nobody knows of what, before it runs.
        """
        for op in instructions(program):
            for operand in vars(op).values():
                if (isinstance(operand, View) and isinstance(operand.tensor, AddressedTensor)) or (
                    isinstance(operand, Mbar) and isinstance(operand.array, AddressedMbarriers)
                ):
                    raise reject(
                        f"{op.mnemonic} has an operand at an address, {operand}: where fences are "
                        "missing is only told for declared memory", op.loc,
                    )  # fmt: skip
        nodes: list[Node] = []
        body = _number(program.body, None, 0, nodes)
        return Tree(program, body, tuple(nodes))

    def insert(self, before: Mapping[int, Op], after: Mapping[int, Op]) -> Program:
        """The program with instructions put before and after the statements of these numbers."""
        if not before and not after:
            return self.program
        return replace(self.program, body=_rebuild(self.body, before, after))


def _number(
    body: tuple[Stmt, ...], parent: Node | None, depth: int, nodes: list[Node]
) -> tuple[Node, ...]:
    result: list[Node] = []
    for stmt in body:
        node = Node(len(nodes), stmt, parent, depth, result[-1] if result else None)
        nodes.append(node)
        if node.previous is not None:
            node.previous.following = node
        if isinstance(stmt, Op):
            node.effects = stmt.effects()
        inner = depth + isinstance(stmt, (For, While))
        node.regions = tuple(_number(region, node, inner, nodes) for region in children(stmt))
        result.append(node)
    return tuple(result)


def _rebuild(
    body: tuple[Node, ...], before: Mapping[int, Op], after: Mapping[int, Op]
) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for node in body:
        stmt = node.stmt
        match stmt:
            case For() | While() | Role():
                stmt = replace(stmt, body=_rebuild(node.regions[0], before, after))
            case If():
                then, orelse = (_rebuild(region, before, after) for region in node.regions)
                stmt = replace(stmt, then=then, orelse=orelse)
            case _:
                pass
        if node.number in before:
            result.append(before[node.number])
        result.append(stmt)
        if node.number in after:
            result.append(after[node.number])
    return tuple(result)


def hoisted(node: Node, accesses: Collection[Node]) -> Node:
    """Where to put a fence that belongs before ``node`` and covers ``accesses``.

    Every thread that made the accesses executes the fence, not only the lane that was elected to
    arrive for them: the place is outside of every branch that holds none of the accesses, and
    before the election and the warp barrier that lead to it.
    """
    node = _outside(node, accesses)
    while node.previous is not None and isinstance(node.previous.stmt, ElectSync | SyncWarp):
        node = node.previous
    return node


def sunk(node: Node, accesses: Collection[Node]) -> Node:
    """Where to put a fence that belongs after ``node`` and before ``accesses``; see `hoisted`."""
    node = _outside(node, accesses)
    while node.following is not None and isinstance(node.following.stmt, SyncWarp):
        node = node.following
    return node


def _outside(node: Node, accesses: Collection[Node]) -> Node:
    """The outermost branch around ``node`` that holds none of the accesses, or ``node``."""
    parent = node.parent
    while parent is not None and isinstance(parent.stmt, If):
        if any(access.inside(parent) for access in accesses):
            break
        node, parent = parent, parent.parent
    return node
