"""Every exception tilesim raises for a user's mistake.

What a *kernel* does wrong is never an exception: it is a `Finding` (``tilesim.findings.finding``).
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.ir.loc import Loc
from tilesim.records import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One reason why a program is rejected before it runs: what, where, which rule, what to do."""

    rule: str
    message: str
    loc: Loc
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.loc}: {self.message} [{self.rule}]"
        return f"{text}\n    fix: {self.fix}" if self.fix else text


class TilesimError(Exception):
    """Base of all errors whose cause is the input, not tilesim.

    ``places``: lines of the user's code that were being run, the outermost first.
    """

    places: tuple[Loc, ...] = ()


class InvalidProgram(TilesimError, ValueError):
    """The program breaks rules that are visible without running it.

    Raised by the verifier with every problem it found, and by the builder for a single operand
    that cannot be expressed at all.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics))


class ParseError(TilesimError, ValueError):
    """A ``.tile`` text is malformed; the message starts with ``file:line``."""


class TargetError(TilesimError, ValueError):
    """A kernel target (``file.py::kernel``, ``module::kernel``, ``file.tile``) cannot be loaded."""


class NoKernelError(TargetError):
    """A file or module that can be loaded, but defines no kernel."""


class UsageError(TilesimError, ValueError):
    """An option or argument value is out of range or contradicts another one."""


def reject(message: str, loc: Loc, *, rule: str = "operand", fix: str = "") -> InvalidProgram:
    """An `InvalidProgram` with one diagnostic, for the builder to raise."""
    return InvalidProgram([Diagnostic(rule, message, loc, fix)])
