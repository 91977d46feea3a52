"""What the pipeline strategies produce: a program that prints as the code that builds it."""

from __future__ import annotations

from typing import Protocol

from tilesim.dsl.to_python import builder_code
from tilesim.ir.program import Program
from tilesim.records import dataclass, field


class Printer(Protocol):
    """What hypothesis and IPython print values with."""

    def text(self, text: str) -> None:
        """Prints ``text``."""
        ...


@dataclass(frozen=True)
class Example:
    """A generated program.

    ``about`` says what was drawn; ``fault`` what was spoiled, and ``original`` from what (None for
    a correct program). ``made`` is the call that makes it again, which hypothesis prints of an
    example that fails; the ``repr`` is builder code. Both can be pasted as they are.
    """

    program: Program
    about: str
    fault: str = ""
    original: Program | None = None
    made: str = field(default="", compare=False)

    def __repr__(self) -> str:
        heads = [f"# {line}" for line in (self.about, self.fault) if line]
        return "\n".join(["", *heads, builder_code(self.program)])

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        printer.text(self.made or repr(self))
