"""Writes what translation validation says of a corpus: ``python -m docs.generate_translation``.

From ``benchmarks/translation.json``, which ``python -m tests.translation.campaign`` (``--out``) and
``tests.translation.mutation`` have made, come the tables of a section of
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
RESULTS = ROOT / "benchmarks" / "translation.json"


def section(document: Mapping[str, Any]) -> str:
    """The tables."""
    return "\n".join([*_corpus(document["corpus"]), "", *_mutants(document["mutants"])]) + "\n"


def _corpus(corpus: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| ptxas | kernels | synchronising instructions | relations shown | in another way | lost "
        "| kernels with a finding | CPU seconds, without nvdisasm: half, 99 % |"
    )
    yield "|---|" + "--:|" * 7
    for version, sums in [*corpus["by ptxas"].items(), ("all", corpus["all"])]:
        shown, explained, lost, _ = map(sum, zip(*sums["relations"].values(), strict=True))
        half, _, most = sums["at 50, 90, 99 %"]
        cells = [
            version, f"{sums['kernels']:,}", f"{sums['instructions']:,}", f"{shown:,}",
            f"{explained:,}", f"{lost:,}", str(sums["with findings"]), f"{half}, {most}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _mutants(mutants: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| mistake | drawn | without effect | of the others: a finding | said to be undecided "
        "| not seen |"
    )
    yield "|---|" + "--:|" * 5
    for name, one in mutants.items():
        left = one["drawn"] - one["without effect"]
        part = f" ({100 * one['finding'] / left:.1f} %)" if left else ""
        yield (
            f"| {name} | {one['drawn']} | {one['without effect']} | {one['finding']}{part} "
            f"| {one['undecided']} | {one['not seen']} |"
        )


def main() -> None:
    """Writes the section."""
    document = json.loads(RESULTS.read_text())
    PAGE.write_text(replaced(PAGE.read_text(), "translation", section(document)))


if __name__ == "__main__":
    main()
