"""Whether what shared memory holds before anything is written reaches the results of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.taint import Dataflow
from tilesim.arith.types import numpy_dtype
from tilesim.ir.program import Program
from tilesim.sim.machine.chance import Answers

Inputs: TypeAlias = Mapping[str, NDArray[Any]]
#: what a group of clusters leaves in global memory if shared memory starts with a byte, the group
#: and the inputs and answers are these; None if the run fails
Results: TypeAlias = Callable[[int, int, Inputs, "Answers | None"], "dict[str, bytes] | None"]

#: zeros, and bytes that are no number in every floating-point type
_FILLS = (0x00, 0xFF)


class Garbage:
    """Compares runs of one program that start with different bytes in shared memory.

    Rows of a tile that a kernel neither fills nor stores are read by instructions that take whole
    tiles. That is no mistake if what is stored does not depend on them.
    """

    def __init__(self, program: Program, flow: Dataflow, results: Results) -> None:
        self._program = program
        self._flow = flow
        self._results = results
        self._known: dict[tuple[int, str], bool] = {}

    def is_hidden(self, group: int, inputs: Inputs, answers: Answers | None) -> bool:
        """Whether a group of clusters leaves the same bytes in global memory, whatever it starts
        with. Tensors that are not among the ``inputs`` and do not steer hold other than zeros."""
        key = (group, repr(answers))
        if key not in self._known:
            chosen = {**self._numbers(), **inputs}
            first, second = (self._results(fill, group, chosen, answers) for fill in _FILLS)
            self._known[key] = first is not None and first == second
        return self._known[key]

    def _numbers(self) -> dict[str, NDArray[Any]]:
        flow, rng = self._flow, np.random.default_rng(0)
        return {
            t.name: rng.integers(1, 4, t.shape).astype(numpy_dtype(t.dtype))
            for t in self._program.tensors
            if t.name not in flow.steering and t.name not in flow.addressing
        }
