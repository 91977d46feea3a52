"""Reaching definitions: which instructions may have set the registers that a statement uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilesim.ir.effects import Defines
from tilesim.ir.op import Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While

#: by register: the instructions (and loops) whose value it may have, as `definition` numbers them
Reaching: TypeAlias = Mapping[str, frozenset[int]]
Visit: TypeAlias = Callable[[Stmt, Reaching], None]


def definition(stmt: Stmt) -> int:
    """A number for what ``stmt`` sets; equal for one object that is in the program twice."""
    return id(stmt)


def visit(program: Program, callback: Visit) -> None:
    """Calls ``callback`` with every statement and what reaches it, in program order."""
    _Flow(callback).through(program.body, {})


class _Flow:
    """A walk over regions; the lanes that do not execute one keep what they had."""

    def __init__(self, callback: Visit) -> None:
        self._visit = callback
        #: what reaches the end of the loops around by a break
        self._breaks: list[list[Reaching]] = []

    def through(self, body: tuple[Stmt, ...], state: Reaching) -> Reaching:
        """What reaches the end of ``body`` if ``state`` reaches its begin."""
        for stmt in body:
            state = self._after(stmt, state)
        return state

    def _after(self, stmt: Stmt, state: Reaching) -> Reaching:
        match stmt:
            case For():
                return self._loop(stmt, _define(state, stmt.var.name, stmt))
            case While():
                return self._loop(stmt, state)
            case _:
                self._visit(stmt, state)
        match stmt:
            case If():
                return _join(self.through(stmt.then, state), self.through(stmt.orelse, state))
            case Role():
                return _join(state, self.through(stmt.body, state))
            case Break():
                self._breaks[-1].append(state)
            case Op():
                for effect in stmt.effects():
                    if isinstance(effect, Defines):
                        state = _define(state, effect.var.name, stmt)
            case _:
                pass
        return state

    def _loop(self, stmt: For | While, state: Reaching) -> Reaching:
        """A second trip sees all that the first one sets; a third one sees no more."""
        self._breaks.append([])
        callback, self._visit = self._visit, _ignore
        state = _join(state, self.through(stmt.body, state))
        self._visit = callback
        self._visit(stmt, state)
        state = _join(state, self.through(stmt.body, state))
        return _join(state, *self._breaks.pop())


def _ignore(stmt: Stmt, state: Reaching) -> None:
    """The first look at a loop."""


def _define(state: Reaching, name: str, stmt: Stmt) -> Reaching:
    return {**state, name: frozenset((definition(stmt),))}


def _join(*states: Reaching) -> Reaching:
    result: dict[str, frozenset[int]] = {}
    for state in states:
        for name, found in state.items():
            result[name] = result.get(name, frozenset()) | found
    return result
