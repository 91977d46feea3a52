"""The text form of the IR: ``parse(to_text(program)) == program`` (docs/text-form.md)."""

from tilesim.ir.text.parser import parse
from tilesim.ir.text.printer import to_text

__all__ = ["parse", "to_text"]
