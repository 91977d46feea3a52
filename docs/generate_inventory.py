"""Writes what inventories say of shipped machine code: ``python -m docs.generate_inventory``.

From ``benchmarks/inventory.json``, which ``python -m tests.cubin.inventory_survey`` and
``tests.cubin.inventory_mutants`` (``--out``) have made, come the tables of a section of
``docs/howto/machine-code.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.regions import replaced

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "howto" / "machine-code.md"
RESULTS = ROOT / "benchmarks" / "inventory.json"
#: what is compared, and the answers
KINDS = ("arrivals", "bytes", "named barriers", "registers")
ANSWERS = ("agrees", "differs", "not known")


def section(document: Mapping[str, Any]) -> str:
    """The tables."""
    parts = [*_sources(document["sources"]), "", *_mutants(document["mutants"])]
    return f"Read on {document['date']}:\n\n" + "\n".join(parts) + "\n"


def _sources(sources: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| of | kernels looked at | mbarriers | arrivals: agree, differ, not known | bytes "
        "| named barriers | `setmaxnreg` | CPU seconds: half, 99 % |"
    )
    yield "|---|" + "--:|" * 7
    for name, one in sources.items():
        answers = [", ".join(f"{one[kind][answer]:,}" for answer in ANSWERS) for kind in KINDS]
        looked_at = f"{one['looked at']} of {one['kernels']:,}"
        seconds = ", ".join(map(str, one["seconds at 50, 99 %"]))
        cells = [name, looked_at, f"{one['mbarriers']:,}", *answers, seconds]
        yield f"| {' | '.join(cells)} |"


def _mutants(mutants: Mapping[str, Any]) -> Iterator[str]:
    yield "| mistake in a number that agreed | drawn | differs | not known | agrees |"
    yield "|---|" + "--:|" * 4
    for name, answers in mutants.items():
        of = [answers.get("differs", 0), 0, answers.get("agrees", 0)]
        of[1] = sum(answers.values()) - of[0] - of[2]
        yield f"| {name} | {sum(answers.values())} | {' | '.join(map(str, of))} |"


def main() -> None:
    """Writes the section."""
    document = json.loads(RESULTS.read_text())
    PAGE.write_text(replaced(PAGE.read_text(), "inventory", section(document)))


if __name__ == "__main__":
    main()
