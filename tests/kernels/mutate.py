"""Breaking gallery kernels: programs with one instruction removed or changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.dsl.kernel import Kernel
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Stmt, rewrite
from tilesim.sim.machine.simulate import Policy

Arrays = dict[str, NDArray[Any]]
#: policies and seeds under which a correct kernel must compute what NumPy computes
SCHEDULES: tuple[tuple[Policy, int], ...] = (("timed", 0), ("random", 1), ("random", 2))


def edited(
    program: Program, mnemonic: str, edit: Callable[[Any], Op | None], nth: int | None = None
) -> Program:
    """``program`` with ``edit`` applied to the instructions of this mnemonic.

    ``nth`` restricts it to one of them, in program order; ``edit`` returning None removes the
    instruction. At least one instruction must be affected.
    """
    seen = 0
    hits = 0

    def visit(stmt: Stmt) -> tuple[Stmt, ...]:
        nonlocal seen, hits
        if not isinstance(stmt, Op) or stmt.mnemonic != mnemonic:
            return (stmt,)
        seen += 1
        if nth is not None and seen - 1 != nth:
            return (stmt,)
        hits += 1
        result = edit(stmt)
        return () if result is None else (result,)

    body = rewrite(program.body, visit)
    assert hits, f"{program.name} has no {mnemonic} number {nth}"
    return replace(program, body=body)


def without(program: Program, mnemonic: str, nth: int | None = None) -> Program:
    """``program`` without these instructions."""
    return edited(program, mnemonic, lambda op: None, nth)


def changed(program: Program, mnemonic: str, nth: int | None = None, **fields: Any) -> Program:
    """``program`` with fields of these instructions replaced."""
    return edited(program, mnemonic, lambda op: replace(op, **fields), nth)


def line(kernel: Kernel, text: str, nth: int = 0) -> int:
    """Line number of the ``nth`` line with ``text`` in the module that defines ``kernel``."""
    path = Path(inspect.getsourcefile(kernel.function) or "")
    numbers = [n for n, row in enumerate(path.read_text().splitlines(), 1) if text in row]
    assert len(numbers) > nth, f"{path.name} has {len(numbers)} lines with {text!r}"
    return numbers[nth]


def inputs(kernel: Kernel, program: Program, params: dict[str, Any], seed: int = 0) -> Arrays:
    """The kernel's own inputs, or small random integers in every tensor."""
    rng = np.random.default_rng(seed)
    if kernel.inputs is not None:
        return kernel.inputs(rng, **{**kernel.params, **params})
    return {
        t.name: rng.integers(-3, 4, t.shape).astype(numpy_dtype(t.dtype)) for t in program.tensors
    }
