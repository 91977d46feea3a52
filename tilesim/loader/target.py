"""One kernel to work on, not built yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.dsl.kernel import Kernel
from tilesim.errors import TargetError, UsageError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.loader.ptx import PtxKernel
from tilesim.loader.user_code import user_code
from tilesim.records import dataclass, field

if TYPE_CHECKING:  # most targets are no machine code
    from tilesim.loader.machine_code import ClosedKernel


@dataclass(frozen=True)
class Target:
    """One kernel to check or run, not built yet.

    ``id`` names it as the command line would: ``file.py::kernel[stages=2]``. It is a `Kernel` with
    parameters, a finished `Program`, a program of the ``machine``, PTX with its launch, or a
    ``closed`` kernel, of which there is machine code only. ``file`` is the file it was loaded from,
    for error messages.
    """

    id: str
    file: str
    kernel: Kernel | None = None
    program: Program | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    ptx: PtxKernel | None = None
    machine: Mir | None = None
    closed: ClosedKernel | None = None

    @property
    def configuration(self) -> str:
        """What tells a launch of PTX from others of the kernel; the names of others say it."""
        return "" if self.ptx is None else self.ptx.launch.configuration

    def form(self) -> Program | Mir:
        """The program, or its machine form if there is no other; raises like `build`.

        Raises:
            PtxError: the text is no PTX; `Unsupported`: an instruction is not modelled, or there is
                machine code only.
            LaunchError: the launch description contradicts the kernel.
        """
        if self.closed is not None:
            raise self.closed.unsupported()
        if self.ptx is not None:
            return self.ptx.mir()
        return self.build() if self.machine is None else self.machine

    def build(self) -> Program:
        """The program as a tree of regions.

        Raises:
            InvalidProgram: an operand cannot be expressed.
            TargetError: the kernel's function raises.
            UsageError: it is PTX or a machine program, which have no tree.
        """
        if self.closed is not None:
            raise self.closed.unsupported()
        if self.ptx is not None or self.machine is not None:
            what = "PTX" if self.ptx is not None else "a program of the machine"
            raise UsageError(
                f"{self.id} is {what}, a list of instructions; this needs a kernel in the DSL or "
                "in text form"
            )
        if self.kernel is None:
            assert self.program is not None
            return self.program
        with user_code(self.file, f"building {self.kernel.name}"):
            return self.kernel.build(**self.params)

    @property
    def arguments(self) -> dict[str, Any]:
        """All parameters of the kernel: the defaults, and those given."""
        return {**self.kernel.params, **self.params} if self.kernel else {}

    def inputs(self, program: Program, seed: int) -> dict[str, NDArray[Any]]:
        """Input arrays: the kernel's own, or small random integers, so that sums are exact.

        Of PTX none: its buffers hold what the launch description says.

        Raises:
            TargetError: the kernel's ``inputs`` raises.
        """
        if self.ptx is not None:
            return {}
        rng = np.random.default_rng(seed)
        if self.kernel is not None and self.kernel.inputs is not None:
            return self._arrays("inputs", self.call(self.kernel.inputs, rng))
        return {
            t.name: rng.integers(0 if t.dtype.kind == "uint" else -3, 4, t.shape).astype(
                numpy_dtype(t.dtype)
            )
            for t in program.tensors
        }

    def own_inputs(self, program: Program | Mir, seed: int) -> dict[str, NDArray[Any]] | None:
        """The inputs that the kernel itself supplies, because its control flow depends on them;
        None: it supplies none. Raises like `inputs`."""
        if self.kernel is None or self.kernel.inputs is None:
            return None
        return self.inputs(program.kernel if isinstance(program, Mir) else program, seed)

    def expected(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]] | None:
        """What the kernel's reference computes from ``inputs``; None without a reference.

        Raises:
            TargetError: the reference raises.
        """
        if self.kernel is None or self.kernel.reference is None:
            return None
        return self._arrays("reference", self.call(self.kernel.reference, dict(inputs)))

    def _arrays(self, what: str, made: object) -> dict[str, NDArray[Any]]:
        if not isinstance(made, Mapping):
            kind = type(made).__name__
            raise TargetError(f"{what} of {self.id} returns {kind}, not arrays by name")
        return {name: np.asarray(value) for name, value in made.items()}

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls ``inputs`` or ``reference`` of the kernel with its parameters.

        Raises:
            TargetError: it raises.
        """
        name = getattr(function, "__name__", "function")
        with user_code(self.file, f"calling {name} of {self.id}"):
            return function(*args, **self.arguments)
