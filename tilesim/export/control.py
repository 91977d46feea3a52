"""Statements of one warp: roles and conditions are decided, run-time loops and branches remain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesim.arith.intervals import Interval
from tilesim.export.errors import NotExportable
from tilesim.export.instructions import instruction, silent
from tilesim.export.nodes import Action, Choice, Loop, Node
from tilesim.export.process import Process, State, reason, variable
from tilesim.export.values import Known, Runtime, active, as_runtime
from tilesim.ir.effects import Defines, Waits
from tilesim.ir.expr import Binary
from tilesim.ir.op import Op
from tilesim.ir.program import Break, For, If, Role, Stmt, While, walk
from tilesim.transforms.await_condition import spin_wait

#: rounds after which the range of a variable that grows in a loop is given up
_WIDEN = 4


class Code:
    """Writes the statements of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._loops: list[_Open] = []

    def block(self, body: tuple[Stmt, ...]) -> tuple[Node, ...]:
        """The statements of a region, as far as they are reached."""
        nodes: list[Node] = []
        for stmt in body:
            state = self._process.state
            if state.dead or not state.mask:
                break
            nodes += self._statement(stmt)
        return tuple(nodes)

    def _statement(self, stmt: Stmt) -> tuple[Node, ...]:
        match stmt:
            case Role(warps=warps, body=body):
                return self.block(body) if self._process.warp in warps else ()
            case If():
                return self._if(stmt)
            case For():
                return self._for(stmt)
            case While():
                return self._while(stmt)
            case Break():
                return self._break(stmt)
            case _:
                return instruction(self._process, stmt)

    # ------------------------------------------------------------------ branches

    def _if(self, stmt: If) -> tuple[Node, ...]:
        cond = self._process.value(stmt.cond)
        if isinstance(cond, Known):
            mask = self._process.state.mask
            return self._split(stmt, sum(1 << i for i in active(mask) if cond.lanes[i]))
        if isinstance(cond, Runtime):
            return self._branch(stmt, cond.text)
        if self._quiet(stmt):
            return ()
        if isinstance(stmt.cond, Binary) and stmt.cond.op == "and" and not stmt.orelse:
            inner = replace(stmt, cond=stmt.cond.rhs)
            return self._if(replace(stmt, cond=stmt.cond.lhs, then=(inner,)))
        raise NotExportable(f"if {stmt.cond}", stmt.loc, f"it depends on {cond.why}")

    def _split(self, stmt: If, taken: int) -> tuple[Node, ...]:
        """Lanes take the arms one after the other."""
        state = self._process.state
        whole = state.mask
        acts = [any(isinstance(s, Op) and s.synchronises for s in walk(b)) for b in _arms(stmt)]
        if taken and taken != whole and all(acts):
            raise NotExportable(
                f"if {stmt.cond}", stmt.loc, "its lanes act in both arms, in an order left open"
            )
        nodes: tuple[Node, ...] = ()
        for mask, body in zip((taken, whole & ~taken), _arms(stmt), strict=True):
            state = self._process.state
            if mask and not state.dead:
                state.mask = mask & state.live
                nodes += self.block(body)
        state = self._process.state
        state.mask = whole & state.live
        return nodes

    def _branch(self, stmt: If, text: str) -> tuple[Node, ...]:
        """All lanes take the same arm, which one is known at run time."""
        process, before = self._process, self._process.state
        process.depth += 1
        arms: list[tuple[str, tuple[Node, ...]]] = []
        ends: list[State] = []
        for guard, body in zip((text, "else"), _arms(stmt), strict=True):
            process.state = before.copy()
            arms.append((guard, self.block(body)))
            ends.append(process.state)
        process.depth -= 1
        process.state = process.meet(ends, stmt.loc)
        return (Choice(tuple(arms), stmt.loc),)

    def _quiet(self, stmt: Stmt) -> bool:
        """Passes over a statement that only moves data; False if it does more."""
        inside = list(walk((stmt,)))
        ops = [s for s in inside if isinstance(s, Op)]
        if any(isinstance(s, (Break, While)) for s in inside) or not all(map(silent, ops)):
            return False
        for op in ops:
            for effect in op.effects():
                if isinstance(effect, Defines):
                    why = f"{effect.var}, set by {op.mnemonic} at {op.loc} under a condition"
                    self._process.forget(effect.var, f"{why} the model does not have")
        return True

    # ------------------------------------------------------------------ loops

    def _break(self, stmt: Break) -> tuple[Node, ...]:
        loop, state = self._loops[-1], self._process.state
        if state.mask != loop.mask:
            raise NotExportable("break", stmt.loc, "only some lanes leave the loop")
        loop.breaks.append(state.copy())
        state.dead = True
        return (Action("break", stmt.loc),)

    def _for(self, stmt: For) -> tuple[Node, ...]:
        process, what = self._process, f"for {stmt.var}"
        bounds = [process.value(e) for e in (stmt.start, stmt.stop, stmt.step)]
        if any(as_runtime(b) is None for b in bounds) and self._quiet(stmt):
            return ()
        start, stop, step = (
            process.uniform(e, what, stmt.loc, "bound") for e in (stmt.start, stmt.stop, stmt.step)
        )
        by = step.range[0]
        if by != step.range[1] or by == 0:
            raise NotExportable(what, stmt.loc, "its step is not a constant other than zero")
        span = _span(start.range, stop.range, by)
        if span[0] > span[1]:
            return ()
        name = variable(stmt.var)
        first: tuple[Node, ...] = ()
        if stop.range[0] != stop.range[1]:
            process.declare(f"{name}_stop", stop.range)
            first = (Action(f"{name}_stop = {stop.text}"),)
            stop = replace(stop, text=f"{name}_stop")
        first = (*first, Action(f"{name} = {start.text}"))
        process.declare(name, start.range)
        process.declare(name, (min(span[0], span[0] + by), max(span[1], span[1] + by)))
        counter = Runtime(name, span, process.state.mask)

        def enter() -> None:
            process.state.variables[stmt.var.name] = counter

        process.counters.add(stmt.var.name)
        once = _span(start.range[::-1], stop.range[::-1], by)
        body = self._repeat(stmt, enter, runs=once[0] <= once[1])
        process.counters.discard(stmt.var.name)
        process.forget(stmt.var, f"{stmt.var}, the counter of a loop that has ended")
        test = f"({name} {'<' if by > 0 else '>'} {stop.text})"
        advance = f"{name} = {name} {'+' if by > 0 else '-'} {abs(by)}"
        return (Loop(first, test, body, (Action(advance),), stmt.loc),)

    def _while(self, stmt: While) -> tuple[Node, ...]:
        spin = spin_wait(stmt)
        if spin is not None:
            return self.block(spin)
        what = f"while {stmt.cond}"
        if any(_polls(s) for s in walk(stmt.body)):
            raise NotExportable(
                what, stmt.loc,
                "it polls a barrier: waiting in it for ever would not be an invalid end state",
            )  # fmt: skip
        tests: list[str] = []

        def enter() -> None:
            cond = self._process.value(stmt.cond)
            found = as_runtime(cond)
            if found is None:
                raise NotExportable(what, stmt.loc, f"it depends on {reason(cond)}")
            tests.append(found.text)

        body = self._repeat(stmt, enter, runs=False)
        return (Loop((), f"({tests[-1]})", body, (), stmt.loc, finite=False),)

    def _repeat(
        self, stmt: For | While, enter: Callable[[], None], *, runs: bool
    ) -> tuple[Node, ...]:
        """The body of a loop, written for what holds in every round.

        ``runs``: there is at least one round. ``enter`` is called at the start of a round.
        """
        process, entry = self._process, self._process.state
        head, rounds = entry, 0
        while True:
            process.state = head.copy()
            enter()
            self._loops.append(_Open(process.state.mask))
            process.depth += 1
            nodes = self.block(stmt.body)
            process.depth -= 1
            breaks = self._loops.pop().breaks
            end = process.state
            rounds += 1
            merged = process.meet((head, end), stmt.loc, widen=rounds > _WIDEN)
            if merged.variables == head.variables:
                break
            head = merged
        left = end if runs else head
        process.state = process.meet((left, *breaks), stmt.loc)
        return nodes


class _Open:
    """A loop that is being written: its lanes, and what holds where it is left."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.breaks: list[State] = []


def _arms(stmt: If) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    return stmt.then, stmt.orelse


def _span(start: Interval, stop: Interval, step: int) -> Interval:
    """The values that a counter can take, from the ranges of its bounds."""
    return (start[0], stop[1] - 1) if step > 0 else (stop[0] + 1, start[1])


def _polls(stmt: Stmt) -> bool:
    """Whether a statement asks for a phase of an mbarrier and goes on whatever the answer."""
    return isinstance(stmt, Op) and any(isinstance(e, Waits) and e.poll for e in stmt.effects())
