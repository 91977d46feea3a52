"""MIR, the machine's form of a program: a numbered list of instructions, registers, jumps.

The machine runs this and nothing else. The number of an instruction is its identity; a loop is
registers and a branch, and branches may make any graph (`tilesim.analysis.cfg`). Roles and source
locations are annotations for reports, nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from tilesim.ir.arithmetic import Typing
from tilesim.ir.effects import Defines, Effect
from tilesim.ir.expr import Expr
from tilesim.ir.frozen import Keeper
from tilesim.ir.loc import LABEL, UNKNOWN, Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, field

E = TypeVar("E")


@dataclass(frozen=True, kw_only=True)
class Join:
    """Here lanes of a warp that come from several places go on together.

    ``syncs``: as behind a ``bar.warp.sync``, which the emitted code has here; else none comes after
    what the others have done.
    """

    syncs: bool = False

    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Active lanes in which ``cond`` is ``sense`` (all, if it is None) go on at ``target``.

    ``arms``: lanes on both sides synchronise before they meet. ``polls``: the way back of a loop
    that waits for others, in which a turn that has changed nothing need not be repeated before
    something else has. ``uniform``: the program says that lanes which execute it go one way
    (``bra.uni``), and is wrong if they do not.
    """

    target: int
    cond: Expr | None = None
    sense: bool = True
    arms: bool = False
    polls: bool = False
    uniform: bool = False
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Active lanes go on at the one of ``targets`` that ``index`` says (``brx.idx``).

    ``uniform``: as for `Branch`.
    """

    index: Expr
    targets: tuple[int, ...]
    uniform: bool = False
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Trap:
    """The kernel is wrong where ``cond`` holds; ``what`` says how. ``misplaced``: an access of its
    is, which is `out-of-bounds`; ``aborts``: it is an instruction that ends the launch with an
    error (PTX ISA: trap); else nothing is known of what comes then."""

    cond: Expr
    what: str = field(metadata=LABEL)
    misplaced: bool = False
    aborts: bool = False
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)


Control = Join | Branch | Switch | Trap


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``guard`` restricts it to the lanes in which it holds.

    ``role`` names the region of the source it is in. ``counts``: it keeps the counter of a loop,
    and the source has no instruction for it. ``left_out``: the cycles of instructions next to it
    that have been left out.
    """

    what: Op | Control
    guard: Expr | None = None
    role: str = ""
    counts: bool = False
    left_out: int = field(default=0, compare=False, repr=False)

    @property
    def loc(self) -> Loc:
        """Where it was written."""
        return self.what.loc

    def doing(self, what: Op | Control) -> Instruction:
        """Another instruction with the guard and the place in the source of this one."""
        return Instruction(what, self.guard, self.role, self.counts, self.left_out)


def condition(instruction: Instruction) -> Expr | None:
    """What decides whether an instruction is executed, or where a branch goes; None: nothing."""
    match instruction.what:
        case Branch(cond=cond) | Switch(index=cond) | Trap(cond=cond):
            return cond
        case _:
            return instruction.guard


def targets_of(what: Op | Control) -> tuple[int, ...]:
    """The instructions to which an instruction may jump."""
    match what:
        case Branch(target=target):
            return (target,)
        case Switch(targets=targets):
            return targets
        case _:
            return ()


@dataclass(frozen=True)
class Mir(Keeper):
    """A program in machine form; instruction ``n`` is ``code[n]``, and the last one is followed by
    the end of the warp.

    ``kernel`` has the launch and all declarations, hidden registers of loops among them; its body
    is empty. ``typing`` has the types and ranges of its registers, ``roles`` what reports call each
    warp of a CTA. ``local`` are counters of loops that nothing outside of their loop reads: what
    they hold in lanes that are not in the loop does not matter. ``gives_up``: where it would trap
    if it had to wait too long, which is left out (`tilesim.transforms.await_condition`).
    """

    kernel: Program
    code: tuple[Instruction, ...]
    roles: tuple[str, ...] = field(compare=False)
    typing: Typing = field(compare=False, repr=False)
    local: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    gives_up: tuple[Loc, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def effects(self) -> tuple[tuple[Effect, ...], ...]:
        """By number, what each instruction does; control flow does nothing."""
        return tuple(i.what.effects() if isinstance(i.what, Op) else () for i in self.code)

    def all_of(self, kind: type[E]) -> list[tuple[int, E]]:
        """The effects of a kind in order, each with the number of its instruction."""
        return [
            (n, effect) for n, effect in self._by_kind.get(kind, ()) if isinstance(effect, kind)
        ]

    @cached_property
    def computed(self) -> bool:
        """Whether the numbers of all registers can be computed."""
        return not any(effect.unknown for _, effect in self.all_of(Defines))

    @cached_property
    def _by_kind(self) -> dict[type[object], list[tuple[int, Effect]]]:
        found: dict[type[object], list[tuple[int, Effect]]] = {}
        for number, effects in enumerate(self.effects):
            for effect in effects:
                found.setdefault(type(effect), []).append((number, effect))
        return found

    @cached_property
    def setters(self) -> dict[str, list[int]]:
        """By register, the instructions that set it."""
        found: dict[str, list[int]] = {}
        for number, effect in self.all_of(Defines):
            found.setdefault(effect.var.name, []).append(number)
        return found

    def ops(self) -> Iterator[Op]:
        """The instructions that are no control flow, in order."""
        return iter(self._ops)

    @cached_property
    def _ops(self) -> tuple[Op, ...]:
        return tuple(i.what for i in self.code if isinstance(i.what, Op))
