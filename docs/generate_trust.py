"""Writes the tables of ``docs/trust.md``: ``python -m docs.generate_trust``.

What is trusted and how long it is comes from the modules that the proof kernel imports, the rules
from its decorators. A test compares the page with this output.
"""

from __future__ import annotations

from pathlib import Path

from tests.ir.module_graph import modules
from tests.kernel.test_contract import DEFINITIONS, code_lines
from tilesim.proof.check import table

PAGE = Path(__file__).with_name("trust.md")
#: between these, the page is generated
BEGIN, END = "<!-- generated: {} -->\n", "<!-- end: {} -->\n"
_KERNEL, _OPS = "tilesim.proof.", "tilesim.ir.ops."


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, rows in (("trusted", trusted()), ("rules", rules())):
        begin, end = BEGIN.format(name), END.format(name)
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}{rows}{end}{tail}"
    return text


def trusted() -> str:
    """What must be right for a recheck to be, with lines of code and of text."""
    known = modules()
    parts = {
        "the proof kernel, `tilesim/proof`": [m for m in known if m.startswith(_KERNEL)],
        "what instructions are, `tilesim/ir/ops`": [m for m in known if m.startswith(_OPS)],
        "operands, effects, types, programs, in `tilesim/ir`": sorted(DEFINITIONS),
    }
    rows = ["| part | modules | lines of code | lines |", "|---|---|---|---|"]
    for part, names in parts.items():
        paths = [known[name] for name in names]
        lines = sum(len(path.read_text().splitlines()) for path in paths)
        rows.append(f"| {part} | {len(paths)} | {sum(map(code_lines, paths)):,} | {lines:,} |")
    return "\n".join(rows) + "\n"


def rules() -> str:
    """The table of the kernel's rules."""
    rows = ["| rule | what is enforced | by |", "|---|---|---|"]
    rows += [f"| {rule.number} | {rule.sentence} | `{rule.where}` |" for rule in table()]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
