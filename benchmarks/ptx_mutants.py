"""Faults in PTX and in the program it comes from: ``python -m benchmarks.ptx_mutants [KERNEL...]``

A right kernel of the gallery is compiled to PTX and read back, and every fault of the catalogue
(`tilesim.fuzz`) is injected into it. Where the same fault is made in the program at the same line,
the verdicts are compared. A table of the faults on standard output, and the mutants on which the
two disagree.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import Source, emit
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.kernels.registry import cases
from tilesim.mistakes.table import Mutant, mutants
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

KERNELS = (
    "tilesim.kernels.hopper.copy::vector",
    "tilesim.kernels.hopper.copy::tensor",
    "tilesim.kernels.hopper.matmul_v2::matmul",
    "tilesim.kernels.hopper.matmul_v4::matmul",
    "tilesim.kernels.cluster.multicast::multicast",
)
LIMIT = timedelta(seconds=20)


def read_back(source: Source) -> Mir:
    """The kernel as the PTX that NVRTC makes of it says it."""
    module = read(compile_ptx(source), "k.ptx")
    return lower(module, module.entries[0], describe(source))


def verdict(program: Program | Mir) -> str:
    """The verdict, or that the program is refused."""
    try:
        return check(program, time_limit=LIMIT).verdict
    except InvalidProgram:
        return "rejected"


def found(verdicts: set[str]) -> bool:
    """Whether a fault was found by any of these."""
    return not verdicts.isdisjoint(("failed", "rejected"))


@dataclass
class Row:
    """Of one fault: mutants of PTX, those found, those with a counterpart, those that agree."""

    made: int = 0
    found: int = 0
    compared: int = 0
    agree: int = 0


def compared(program: Program, rows: dict[str, Row]) -> Iterator[str]:
    """Adds a kernel's mutants to the table; yields those on which the two disagree."""
    counterparts: dict[tuple[str, int], list[Mutant[Program]]] = {}
    for one in mutants(program):
        counterparts.setdefault((one.fault, one.loc.line), []).append(one)
    known: dict[tuple[str, int], set[str]] = {}
    source = emit(program)
    for mutant in mutants(read_back(source)):
        row = rows.setdefault(mutant.fault, Row())
        says = verdict(mutant.program)
        row.made += 1
        row.found += found({says})
        origin = source.loc(mutant.loc.line)
        key = mutant.fault, 0 if origin is None else origin.line
        if key not in counterparts:
            continue
        if key not in known:
            known[key] = {verdict(p.program) for p in counterparts[key]}
        row.compared += 1
        if found({says}) == found(known[key]) or says in known[key]:
            row.agree += 1
        else:
            theirs = ", ".join(sorted(known[key]))
            yield f"{program.name}: {mutant}: PTX {says}, IR {theirs}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=KERNELS, help="targets of the gallery")
    wanted = parser.parse_args().kernels
    rows: dict[str, Row] = {}
    disagree: list[str] = []
    for case in cases():
        if str(case.target) in wanted:
            disagree += compared(case.kernel.build(**case.params), rows)
    print("| fault | mutants | found | with a counterpart | same |\n|---|---:|---:|---:|---:|")
    for fault, row in sorted(rows.items()):
        print(f"| {fault} | {row.made} | {row.found} | {row.compared} | {row.agree} |")
    print("", *disagree, sep="\n")


if __name__ == "__main__":
    main()
