"""Operands of the instructions of a program that is loaded, as functions of a warp."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tilesim.analysis.liveness import live_at
from tilesim.analysis.taint import Dataflow, loaded_tensors
from tilesim.analysis.uniformity import private_registers
from tilesim.analysis.uses_defs import (
    expressions_in,
    mentioned,
    only_computes,
    operand_expressions,
    sets_only,
)
from tilesim.arith.types import DType, u32, u64
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.declarations import Mbar, SharedTensor, Tensor, View
from tilesim.ir.effects import Defines, Shuffles
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.fragments import Layout, layouts
from tilesim.ir.mir import Control, Mir
from tilesim.ir.op import Op
from tilesim.sim.machine.addressing import AddressedAccess, mbarrier_at
from tilesim.sim.machine.errors import OutOfBounds
from tilesim.sim.machine.expression import (
    Evaluate,
    Fit,
    OpenNumbers,
    evaluator,
    fit_register,
    fit_value,
    used,
)
from tilesim.sim.machine.machine import Code, Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.view_access import ViewAccess, uniform
from tilesim.transforms.word_waits import WordWait, word_waits


class Operands:
    """Resolves operands of the program that is loaded.

    ``numbers``: the contents of tiles are computed, and not only what scalar loads can observe.
    """

    def __init__(self, code: Code, *, numbers: bool) -> None:
        #: what the machine will execute
        self.code = code
        self.numbers = numbers

    @property
    def mir(self) -> Mir:
        """The program."""
        return self.code.mir

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """How fragments are spread over threads, by name."""
        return layouts(self.mir.kernel.fragments, self.mir.ops())

    @property
    def flow(self) -> Dataflow:
        """Which data steers the program."""
        return self.code.flow

    @cached_property
    def word_waits(self) -> dict[int, WordWait]:
        """By number: polls that only wait for a word of memory."""
        return word_waits(self.code.graph)

    @cached_property
    def _observed(self) -> frozenset[str]:
        return loaded_tensors(self.mir)

    def expr(self, expr: Expr) -> Evaluate:
        """``expr`` as a function of a warp."""
        evaluate = evaluator(self.code, expr)
        if not self.open.may_be_open(expr):
            return evaluate
        return used(evaluate, mentioned(expr) & self.open.unset)

    def operand(self, op: Op, expr: Expr) -> Evaluate:
        """An operand of an instruction that computes a value."""
        moved = _moves(op) and (sets_only(op) or any(getattr(op, n) is expr for n in op.data))
        return evaluator(self.code, expr) if moved else self.expr(expr)

    @cached_property
    def open(self) -> OpenNumbers:
        """Which numbers PTX may leave open."""
        graph = self.code.graph
        unset = (live_at(graph, 0) & self.mir.setters.keys()) - private_registers(graph)
        return OpenNumbers(self.mir, None if self.numbers else self.flow.deciding, unset)

    def looked_at(self, op: Op, step: Step) -> Step:
        """``step``, behind a look at the data that it takes, which it may not compute: none of it
        may be open."""
        if _moves(op):
            return step
        taken = (e for name in op.data for e in expressions_in(getattr(op, name)))
        uses = [self.expr(e) for e in taken if self.open.may_be_open(e)]
        if not uses:
            return step

        def run(w: Warp) -> bool | None:
            for use in uses:
                use(w)
            return step(w)

        return run

    def slot(self, var: Var) -> int:
        """The register index of a variable."""
        return self.code.slots[var.name]

    def view(self, view: View, *, split: bool = False) -> ViewAccess:
        """``view`` as a resolver of memory and footprint; ``split`` for warpgroup fragments."""
        base = 0
        if isinstance(view.tensor, AddressedTensor):
            address = self._address(view.tensor.address, u32 if view.space == "shared" else u64)
            return AddressedAccess(view, self.expr, address, split=split)
        if isinstance(view.tensor, SharedTensor):
            base = self.mir.kernel.placement[view.tensor.name]
        return ViewAccess(view, self.expr, base, split=split)

    def _address(self, address: Expr, dtype: DType) -> Evaluate:
        """An address, which has as many bits as its state space asks for."""
        evaluate, fit = self.expr(address), fit_value(dtype, self.mir.typing.interval(address))
        return evaluate if fit is None else lambda w: fit(evaluate(w))

    def private(self, var: Var) -> bool:
        """Whether lanes that do not set a register when others do never use it."""
        return self.code.slots[var.name] in self.code.private

    def real(self, tensor: Tensor) -> bool:
        """True if the tensor's bytes must be computed."""
        return self.holds(tensor.name)

    def holds(self, name: str) -> bool:
        """True if the tensor of this name holds bytes."""
        return self.numbers or name in self._observed

    def decides(self, result: Var | None) -> bool:
        """True if a register's number may reach a branch, a barrier or an address."""
        return result is not None and (self.numbers or result.name in self.flow.deciding)

    def mbar(self, mbar: Mbar) -> Callable[[Warp], Mbarrier]:
        """``mbar`` as a function of a warp."""
        if isinstance(mbar.array, AddressedMbarriers):
            return mbarrier_at(self._address(mbar.array.address, u32), mbar.array.space)
        base = self.mir.kernel.placement[mbar.array.name]
        count, name = mbar.array.count, mbar.array.name
        if mbar.cta is not None:
            rank = self.expr(mbar.cta)
            local = self.mbar(Mbar(mbar.array, mbar.index))

            def remote(w: Warp) -> Mbarrier:
                address = local(w).address
                cta = w.machine.peer(w, uniform(rank(w), w))
                index = (address - base) // 8
                cta.mbarriers[address].call(name, f"{name}[{index}]", name, index)
                return cta.mbarriers[address]

            return remote
        index = self.expr(mbar.index)

        def resolve(w: Warp) -> Mbarrier:
            i = index(w)
            if type(i) is not int:
                i = uniform(i, w)
            if not 0 <= i < count:
                raise OutOfBounds(f"mbarrier {i} of {name}, which has {count}", name)
            barrier = w.cta.mbarriers[base + 8 * i]
            if barrier.name is not name:
                barrier.call(name, f"{name}[{i}]", name, i)
            return barrier

        return resolve

    def fit(self, var: Var, value: Expr) -> Fit | None:
        """What brings the value of ``value`` into the type of ``var``; None if it fits."""
        token = var.name in self.mir.typing.tokens
        return fit_register(var.dtype, value, self.mir.typing, token=token)

    def fit_loaded(self, var: Var, dtype: DType) -> Fit | None:
        """What brings an element of ``dtype`` into the type of ``var``; None if it fits."""
        if var.name in self.mir.typing.tokens:
            return None
        return fit_value(var.dtype, None if dtype.kind == "float" else integer_limits(dtype))

    def is_computed(self, op: Op, expr: Expr) -> bool:
        """Whether the registers in an operand hold what the program computes."""
        flow, code = self.flow, self.mir.code

        def holds(name: str) -> bool:
            setters = flow.setters(op.number, name)
            computed = (flow.decides(name, n) or from_nothing(code[n].what) for n in setters)
            return bool(setters) and all(computed)

        return all(holds(v.name) for v in walk(expr) if isinstance(v, Var))


def _moves(op: Op) -> bool:
    """Whether registers take what an instruction is given, be it open."""
    sets = (e.value for e in op.effects() if isinstance(e, Defines))
    exchanges = op.exchanges or any(isinstance(x, Expr | Shuffles) for x in sets)
    return exchanges or sets_only(op)


def from_nothing(op: Op | Control) -> bool:
    """Whether an instruction computes something that depends on no register."""
    if not isinstance(op, Op) or not only_computes(op):
        return False
    return not any(isinstance(v, Var) for e in operand_expressions(op) for v in walk(e))
