"""Kernels as users define them: a function of a builder and parameters, made with `kernel`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tilesim.errors import UsageError, reject
from tilesim.ir.display import Shown
from tilesim.ir.expr import ScalarParam, building
from tilesim.ir.loc import calls_kernels, of_function
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.records import dataclass, field
from tilesim.wording import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from tilesim.dsl.builder import Builder
    from tilesim.dsl.loop_state import Iterations

    Arrays = dict[str, np.ndarray]

P = ParamSpec("P")
T = TypeVar("T")
#: flags of code with ``*args`` or ``**options``
_TAKES_ANY = 0x4 | 0x8
#: default values of a kernel's parameters, or overrides of them
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Kernel(Shown):
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

    def __post_init__(self) -> None:
        # for help(kernel) and inspect.signature(kernel): they look at the value, then at its class
        object.__setattr__(self, "__doc__", self._described())
        object.__setattr__(self, "__signature__", self._signature())

    def _signature(self) -> inspect.Signature:
        """What `build` takes."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(n, keyword, default=v) for n, v in self.params.items()]
        return inspect.Signature(parameters, return_annotation=Program)

    def _described(self) -> str:
        """The function's own documentation, the parameters, and where it is."""
        text = inspect.getdoc(self.function) or f"The kernel {self.name}."
        given = "".join(f"\n    {n}={v!r}" for n, v in self.params.items())
        place = of_function(self.function)
        return (
            f"{text}\n\nKernel {self.name} for {self.target}, {self.warps} warps, of {place}."
            + (f"\n\nParameters, with their defaults:\n{given}" if given else "")
        )

    def build(self, **params: Any) -> Program:
        """The program for ``params`` (defaults for those not given).

        They are parameters of the function, or scalars that it declares with ``k.scalar``.

        Raises:
            UsageError: a parameter does not exist.
            InvalidProgram: an operand cannot be expressed.
        """
        from tilesim.dsl.loop_state import Iterations, check_iterations

        builder = self._record(Iterations(repeatable=True), params)
        program = builder.finish()
        check_iterations(builder, lambda iterations: self._record(iterations, params))
        scalars = [*_scalars(program)]
        unknown = sorted(builder.passed.keys() - set(scalars))
        if unknown:
            raise UsageError(
                f"kernel {self.name} has no parameter {', '.join(unknown)}; "
                f"it has {', '.join([*self.params, *scalars]) or 'none'}"
            )
        return program

    def scalars(self, **params: Any) -> dict[str, int]:
        """What the host passes by value (``k.scalar``), by name, in the program for ``params``.

        Raises:
            UsageError, InvalidProgram: as `build`.
        """
        return _scalars(self.build(**params))

    @calls_kernels
    def _record(self, iterations: Iterations, params: Params) -> Builder:
        """Runs the kernel's function with a builder that has these ``turns``."""
        from tilesim.dsl.builder import Builder  # what checks of other programs do not need

        builder = Builder(self.name, self.target, self.warps, loc=of_function(self.function))
        builder.iterations = iterations
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        builder.codes |= {code} if code is not None else set()
        builder.passed = {n: v for n, v in params.items() if n not in self.params}
        own = {n: v for n, v in params.items() if n in self.params}
        record: Callable[..., object] = self.function
        with building(self.name):
            returned = record(builder, **{**self.params, **own})
        if returned is not None:
            raise reject(
                f"kernel {self.name} returns {returned}: it records instructions only",
                builder.loc, rule="region", fix="declare results with k.tensor, and store to them",
            )  # fmt: skip
        return builder

    def __call__(self, **params: Any) -> Program:
        return self.build(**params)


def public(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, written in Python, without ``*args`` and ``**options``.

    Called with an argument that it does not take, it raises a `UsageError` that names the options
    there are, where Python raises a `TypeError`.
    """
    code, name = function.__code__, function.__name__
    assert not code.co_flags & _TAKES_ANY
    most = code.co_argcount
    names = code.co_varnames[code.co_posonlyargcount : most + code.co_kwonlyargcount]
    known = ", ".join(names) or "none"

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        unknown = sorted(given.keys() - set(names))
        if unknown:
            near = did_you_mean(unknown[0], names)
            raise UsageError(f"{name} has no option {unknown[0]}{near}; it has {known}")
        if len(args) > most:
            raise UsageError(
                f"{name} takes no more than {most} without a name, {len(args)} were given; by name "
                f"it takes {known}"
            )
        return function(*args, **given)

    return call


@overload
def kernel(function: Callable[..., None], /) -> Kernel: ...
@overload
def kernel(
    *,
    target: str = "sm_90a",
    warps: int = 4,
    name: str | None = None,
    family: str = "user",
    reference: Callable[..., Arrays] | None = None,
    inputs: Callable[..., Arrays] | None = None,
) -> Callable[[Callable[..., None]], Kernel]: ...
@public
def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    target: str = "sm_90a",
    warps: int = 4,
    name: str | None = None,
    family: str = "user",
    reference: Callable[..., Arrays] | None = None,
    inputs: Callable[..., Arrays] | None = None,
) -> Kernel | Callable[[Callable[..., None]], Kernel]:
    """Decorator: turns ``def f(k, *, stages=4): ...`` into a `Kernel`; also without parentheses.

    Every parameter after the builder must have a default; they are the parameters of the family.
    ``inputs(rng, **params)`` may supply the input arrays by name (random small integers otherwise).

    Raises:
        UsageError: the function is none that a kernel can be made of.
    """

    def wrap(function: Callable[..., None]) -> Kernel:
        defaults = _defaults(function)
        called = name or function.__name__
        return Kernel(called, function, target, warps, defaults, family, reference, inputs)

    return wrap if function is None else wrap(function)


def _scalars(program: Program) -> dict[str, int]:
    return {p.name: p.value for p in program.params if isinstance(p, ScalarParam)}


def _defaults(function: Callable[..., None]) -> dict[str, Any]:
    """The parameters of a kernel's function after the builder."""
    if not callable(function):
        raise UsageError(f"a kernel is made of a function, not of {function!r}")
    called = getattr(function, "__name__", str(function))
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise UsageError(f"{called}: a kernel's function records when it is called; it cannot have "
                         "yield, or be async")  # fmt: skip
    first, *parameters = inspect.signature(function).parameters.values() or (None,)
    if first is None:
        raise UsageError(f"{called} has no parameter for the builder: write `def {called}(k):`")
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise UsageError(f"{called}: {p} stands for any parameters; name them")
        if p.default is p.empty:
            raise UsageError(f"{called}: parameter {p.name} needs a default value")
    return {p.name: p.default for p in parameters}


def built(program: Program | Mir | Kernel) -> Program | Mir:
    """``program``; that of a kernel is made with the defaults of its parameters.

    Raises:
        UsageError: it is none of them.
        InvalidProgram: the kernel is rejected while it is made.
    """
    if isinstance(program, Kernel):
        return program.build()
    if not isinstance(program, Program | Mir):
        hint = "; decorate it with @tilesim.kernel" if inspect.isfunction(program) else ""
        if isinstance(getattr(program, "program", None), Program | Mir):
            hint = "; pass its .program"
        told = repr(program).strip().partition("\n")[0]
        raise UsageError(f"expected a kernel or a program, got {told}{hint}")
    return program
