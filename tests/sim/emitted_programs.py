"""Random rings of the DSL whose number of turns is a scalar of the launch, in PTX."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, ClassVar

from tests.sim.steady_campaign import condition
from tests.sim.steady_programs import ring
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Mir
from tilesim.ptx.description import dumps, loads
from tilesim.ptx.launch import Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: turns that conditions are about
_ITERATIONS = 300


class EmittedProgram:
    """The program of a number, for all values of ``n``: compiled once, as users do."""

    #: no lines of Python ask for values
    written_in_python: ClassVar[bool] = False
    marks: frozenset[int] = frozenset()

    def __init__(self, number: int) -> None:
        self.number = number
        draw = random.Random(number)
        stages, faults, seed = draw.randrange(1, 5), draw.randrange(3), draw.randrange(1 << 30)

        def faulty(i: Expr) -> Expr:
            return condition(random.Random(seed), i, _ITERATIONS)

        source = emit(ring(None, stages=stages, faulty=faulty if faults else None))
        self._module = read(compile_ptx(source), "emitted.ptx")
        self._launch = loads(dumps(describe(source)))

    def __call__(self, n: Any) -> Mir:
        """The program for so many turns."""
        params = tuple(
            replace(p, value=n) if isinstance(p, Scalar) and p.name == "n" else p
            for p in self._launch.params
        )
        launch = replace(self._launch, params=params)
        return lower(self._module, self._module.entries[0], launch)
