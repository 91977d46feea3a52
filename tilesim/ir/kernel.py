"""Kernels as users define them: a function of a builder and parameters, made with `kernel`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilesim.errors import UsageError
from tilesim.ir.builder import Builder
from tilesim.ir.loc import of_function
from tilesim.ir.program import Program

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray]

#: default values of a kernel's parameters, or overrides of them
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A kernel family: `build` makes the `Program` for one set of parameters.

    ``reference(inputs, **params)`` gives the expected output arrays by name, for ``tilesim run``;
    ``family`` groups kernels in tables.
    """

    name: str
    function: Callable[..., None]
    target: str
    warps: int
    params: Params
    family: str = "user"
    reference: Callable[..., Arrays] | None = field(default=None, compare=False)
    inputs: Callable[..., Arrays] | None = field(default=None, compare=False)

    def build(self, **params: Any) -> Program:
        """The program for ``params`` (defaults for those not given).

        Raises:
            UsageError: a parameter does not exist.
            InvalidProgram: an operand cannot be expressed.
        """
        unknown = sorted(set(params) - set(self.params))
        if unknown:
            raise UsageError(
                f"kernel {self.name} has no parameter {', '.join(unknown)}; "
                f"it has {', '.join(self.params) or 'none'}"
            )
        builder = Builder(self.name, self.target, self.warps)
        builder.loc = of_function(self.function)
        self.function(builder, **{**self.params, **params})
        return builder.finish()

    def __call__(self, **params: Any) -> Program:
        return self.build(**params)


def kernel(
    *,
    target: str = "sm_90a",
    warps: int = 4,
    name: str | None = None,
    family: str = "user",
    reference: Callable[..., Arrays] | None = None,
    inputs: Callable[..., Arrays] | None = None,
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorator: turns ``def f(k, *, stages=4): ...`` into a `Kernel`.

    Every parameter after the builder must have a default; they are the parameters of the family.
    ``inputs(rng, **params)`` may supply the input arrays by name (random small integers otherwise).
    """

    def wrap(function: Callable[..., None]) -> Kernel:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        missing = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        if missing:
            raise UsageError(f"{function.__name__}: parameter {missing[0]} needs a default value")
        defaults = {p.name: p.default for p in parameters}
        return Kernel(
            name or function.__name__, function, target, warps, defaults, family, reference, inputs
        )

    return wrap
