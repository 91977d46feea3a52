"""Writes the tables of ``docs/trust.md``: ``python -m docs.generate_trust``.

With ``--rules`` it prints the rules of the proof kernel instead.

What is trusted and how long it is comes from the modules that the proof kernel imports, what is
covered from the verdict files, the rules from their decorators. A test compares the page with this
output.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.regions import replaced
from tests.ir.module_graph import modules
from tests.kernel.test_contract import (
    DEFINITIONS,
    DESCRIBED,
    MODULES,
    PLAIN,
    PLAIN_DEFINITIONS,
    closure,
    code_lines,
    of_plain,
)
from tests.verdicts.files import kept
from tests.verdicts.row import LEVELS
from tests.verdicts.tables import summary
from tilesim.proof.check import table

PAGE = Path(__file__).with_name("trust.md")
#: the corpora of the gallery
GALLERY = ("gallery", "bugs")
#: what the kernel consists of, by its modules; all others are needed for any launch
PARTS = {
    "repetitions": ("repetitions", "state"),
    "every value of a parameter": ("forms", "moving"),
    "loops that wait, and words that are waited for": ("spins", "counters"),
    "regions that data decides": ("regions", "flow"),
}
_KERNEL, _OPS, _ARITH = "tilesim.proof.", "tilesim.ir.ops.", "tilesim.arith."


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, rows in (("trusted", trusted()), ("covered", covered())):
        text = replaced(text, name, rows)
    return text


def trusted() -> str:
    """What must be right for a recheck to be, with lines of code and of text."""
    known = modules()
    parts = {
        "the proof kernel, `tilesim/proof`": [m for m in known if m.startswith(_KERNEL)],
        **{f"- of it, {what}": [_KERNEL + m for m in names] for what, names in PARTS.items()},
        "what instructions are, `tilesim/ir/ops`": [m for m in known if m.startswith(_OPS)],
        "operands, effects, programs, in `tilesim/ir`": sorted(DEFINITIONS),
        "types and arithmetic, in `tilesim/arith`; dataclasses, `tilesim/records.py`": sorted(
            m
            for m in closure({*MODULES} | PLAIN | DESCRIBED)
            if m.startswith(_ARITH) or m == "tilesim.records"
        ),
        "of PTX: the plain form, instruction by instruction, and the launch's description": sorted(
            of_plain()
        ),
        "of PTX: encoding of instructions, static checks, in `tilesim/ir`": sorted(
            PLAIN_DEFINITIONS
        ),
    }
    rows = ["| part | modules | lines of code | lines |", "|---|---|---|---|"]
    for part, names in parts.items():
        paths = [known[name] for name in names]
        lines = sum(len(path.read_text().splitlines()) for path in paths)
        rows.append(f"| {part} | {len(paths)} | {sum(map(code_lines, paths)):,} | {lines:,} |")
    return "\n".join(rows) + "\n"


def covered() -> str:
    """What the kernel says of each row of the gallery at each level, by the verdict files."""
    rows = [row for corpus in GALLERY for row in kept(corpus).values()]
    parts = []
    for level in LEVELS:
        said = [(row.verdict, row.recheck) for row in rows if row.level == level and row.recheck]
        parts += [f"At level `{level}`:\n", *summary(said), ""]
    return "\n".join(parts)


def rules() -> str:
    """A line for each rule of the kernel: what it enforces, and the function that does."""
    return "".join(f"{rule.number}: {rule.sentence} ({rule.where})\n" for rule in table())


if __name__ == "__main__":
    if sys.argv[1:] == ["--rules"]:
        print(rules(), end="")
    else:
        PAGE.write_text(page(PAGE.read_text()))
