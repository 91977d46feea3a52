"""Whether what shared memory holds before anything is written reaches the results of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy
from numpy.typing import NDArray

from tilesim.ir.types import numpy_dtype
from tilesim.sim.machine.launch import Answers

if TYPE_CHECKING:
    from tilesim.sim.simulate import Simulation

#: zeros, and bytes that are no number in every floating-point type
_FILLS = (0x00, 0xFF)


class Garbage:
    """Compares runs of one program that start with different bytes in shared memory.

    Rows of a tile that a kernel neither fills nor stores are read by instructions that take whole
    tiles. That is no mistake if what is stored does not depend on them.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._known: dict[tuple[int, str], bool] = {}

    def is_hidden(
        self, group: int, inputs: Mapping[str, NDArray[Any]], answers: Answers | None
    ) -> bool:
        """Whether a group of clusters leaves the same bytes in global memory, whatever it starts
        with. Tensors that are not among the ``inputs`` and do not steer hold other than zeros."""
        key = (group, repr(answers))
        if key not in self._known:
            chosen = {**self._numbers(), **inputs}
            first, second = (self._results(fill, group, chosen, answers) for fill in _FILLS)
            self._known[key] = first is not None and first == second
        return self._known[key]

    def _numbers(self) -> dict[str, NDArray[Any]]:
        flow, rng = self._simulation.code.flow, np.random.default_rng(0)
        return {
            t.name: rng.integers(1, 4, t.shape).astype(numpy_dtype(t.dtype))
            for t in self._simulation.program.tensors
            if t.name not in flow.steering and t.name not in flow.addressing
        }

    def _results(
        self, fill: int, group: int, inputs: Mapping[str, NDArray[Any]], answers: Answers | None
    ) -> dict[str, bytes] | None:
        """What global memory holds in the end; None if the run fails."""
        simulation = self._simulation.with_numbers()
        simulation.options = replace(simulation.options, garbage=fill)
        simulation.garbage = None
        with np.errstate(all="ignore"):
            run = simulation.run_on(inputs, [(group, simpy.Environment())], answers)
        if run.findings or any(outcome.step_limit for outcome in run.outcomes):
            return None
        return {name: array.tobytes() for name, array in run.outputs.items()}
