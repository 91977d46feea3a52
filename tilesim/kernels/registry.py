"""The gallery's cases: a kernel, its parameters and what `tilesim.check` must say about it.

A gallery module ends with ``CASES = (Case(...), ...)``. `cases` collects them from the modules
named here and from every module of ``tilesim.kernels.bugs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, get_args

from tilesim.dsl.kernel import Kernel
from tilesim.errors import UsageError
from tilesim.ir.program import Program, Strict, Verdict

#: `tilesim.checker.Report.verdict`, or ``rejected``: the verifier refuses the program
Expected = Literal[Verdict, "rejected"]

MODULES: tuple[str, ...] = (
    "tilesim.kernels.hopper.matmul_v0",
    "tilesim.kernels.hopper.matmul_v1",
    "tilesim.kernels.hopper.matmul_v2",
    "tilesim.kernels.hopper.matmul_v3",
    "tilesim.kernels.hopper.matmul_v4",
    "tilesim.kernels.hopper.matmul_v5",
    "tilesim.kernels.hopper.matmul_v6",
    "tilesim.kernels.hopper.matmul_v7",
    "tilesim.kernels.hopper.matmul_v8",
    "tilesim.kernels.hopper.matmul_fp8",
    "tilesim.kernels.hopper.matmul_fp8_blocks",
    "tilesim.kernels.hopper.matmul_grouped",
    "tilesim.kernels.hopper.copy",
    "tilesim.kernels.hopper.softmax",
    "tilesim.kernels.hopper.attention",
    "tilesim.kernels.hopper.attention_v1",
    "tilesim.kernels.hopper.attention_v2",
    "tilesim.kernels.nvfuser.printed",
    "tilesim.kernels.nvfuser.multi_role",
    "tilesim.kernels.nvfuser.chained",
    "tilesim.kernels.nvfuser.synchronous_producer",
    "tilesim.kernels.cluster.multicast",
    "tilesim.kernels.cluster.push",
    "tilesim.kernels.cluster.split_k",
    "tilesim.kernels.cluster.matmul",
    "tilesim.kernels.cluster.ring",
    "tilesim.kernels.blackwell.matmul_v0",
    "tilesim.kernels.blackwell.matmul_v1",
    "tilesim.kernels.blackwell.matmul_v2",
    "tilesim.kernels.blackwell.matmul_v3",
    "tilesim.kernels.blackwell.matmul_v4",
    "tilesim.kernels.blackwell.matmul_v5",
    "tilesim.kernels.blackwell.matmul_v6",
    "tilesim.kernels.blackwell.attention",
)
BUGS = "tilesim.kernels.bugs"


@dataclass(frozen=True)
class Case:
    """One row of the gallery.

    ``family`` groups rows (``hopper``, ``nvfuser``, ``bugs``). ``expected`` is the verdict.
    ``rule`` holds the acceptable rules of a kernel that must not pass: at least one finding (or
    diagnostic, for ``rejected``) must have one of them; empty accepts any rule. ``strict`` is the
    strictness of the check, ``source`` the entry of the bug collection the kernel encodes
    (``B035``), ``note`` a sentence for the reader.
    """

    kernel: Kernel
    params: Mapping[str, Any]
    family: str
    expected: Expected
    rule: frozenset[str] = frozenset()
    strict: Strict = "practice"
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.expected not in get_args(Expected):
            raise UsageError(
                f"{self.target}: expected verdict {self.expected!r} is not one of "
                f"{', '.join(get_args(Expected))}"
            )

    @property
    def target(self) -> str:
        """``module::kernel``, with the parameters that differ from the defaults in brackets."""
        function = self.kernel.function
        defaults = self.kernel.params
        variant = ",".join(
            f"{name}={value}"
            for name, value in self.params.items()
            if name not in defaults or value != defaults[name]
        )
        return f"{function.__module__}::{function.__name__}" + (f"[{variant}]" if variant else "")

    @property
    def fails(self) -> bool:
        """Whether the check must report something."""
        return self.expected in ("failed", "rejected")

    def build(self) -> Program:
        """The program of this case."""
        return self.kernel.build(**self.params)

    def accepts(self, verdict: str, rules: tuple[str, ...]) -> bool:
        """Whether a check that ended with ``verdict`` and findings of ``rules`` is as expected."""
        if verdict != self.expected:
            return False
        if not self.fails:
            return not rules
        return bool(self.rule & set(rules)) if self.rule else bool(rules)


def modules() -> tuple[str, ...]:
    """Names of the gallery's modules: those in `MODULES`, then the bugs in alphabetical order."""
    package = import_module(BUGS)
    names = sorted(module.name for module in iter_modules(package.__path__))
    return (*MODULES, *(f"{BUGS}.{name}" for name in names))


def cases(family: str | None = None) -> tuple[Case, ...]:
    """The gallery's cases, all of them or those of one family.

    Raises:
        UsageError: there is no such family.
    """
    every = tuple(_collect())
    if family is None:
        return every
    families = sorted({case.family for case in every})
    if family not in families:
        raise UsageError(f"there is no family {family!r}; the gallery has {', '.join(families)}")
    return tuple(case for case in every if case.family == family)


def _collect() -> Iterator[Case]:
    for name in modules():
        yield from getattr(import_module(name), "CASES", ())
