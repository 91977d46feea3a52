"""What the pipeline strategies produce: a program that prints as the code that builds it."""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.fuzz.code import builder_code
from tilesim.ir.program import Program


@dataclass(frozen=True)
class Example:
    """A generated program.

    ``about`` says what was drawn; ``fault`` what was spoiled, and ``original`` from what (None for
    a correct program). The ``repr`` is builder code: a failing example can be pasted as it is.
    """

    program: Program
    about: str
    fault: str = ""
    original: Program | None = None

    def __repr__(self) -> str:
        heads = [f"# {line}" for line in (self.about, self.fault) if line]
        return "\n".join(["", *heads, builder_code(self.program)])
