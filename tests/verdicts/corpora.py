"""The corpora: programs by name, of which each is checked at both levels.

Those in tables are built here. Those that tests make are checked once more as their tests run
(`tests.verdicts.recorded`), at the level that the test asks for; they are named by their tests.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.consan import FAULTS, HARMLESS, matmul
from tests.kernels.faults import VARIANTS
from tests.litmus.sections import all_rows
from tilesim.findings.rules import RULE_DOCS
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.kernels.outcome import inputs_of
from tilesim.kernels.registry import BUGS, Case, cases
from tilesim.loader import load
from tilesim.loader.target import Target

ROOT = Path(__file__).resolve().parents[2]


def nothing() -> None:
    """No inputs."""


@dataclass(frozen=True)
class Entry:
    """A program of a corpus: how it is built, and what its tensors hold; unique by its name."""

    name: str
    build: Callable[[], Program | Mir]
    inputs: Callable[[], Mapping[str, Any] | None] = nothing


def _of_the_gallery(*, bugs: bool) -> Iterator[Entry]:
    for case in cases():
        if case.kernel.function.__module__.startswith(BUGS) == bugs:
            yield Entry(name_of(case), case.build, partial(inputs_of, case))


def name_of(case: Case) -> str:
    """What a verdict file calls a row of the gallery."""
    return case.target.removeprefix("tilesim.kernels.")


def _litmus() -> Iterator[Entry]:
    for row in all_rows():
        yield Entry(row.id, row.build)


def _consan() -> Iterator[Entry]:
    for fault in (*HARMLESS, *FAULTS):
        yield Entry(fault, partial(matmul.build, fault=fault))


def _reported() -> Iterator[Entry]:
    for variant in VARIANTS:
        build = partial(variant.kernel.build, **variant.params)
        yield Entry(variant.name, build, partial(getattr, variant, "inputs"))


def _rules() -> Iterator[Entry]:
    for name, doc in RULE_DOCS.items():
        if not doc.buggy:
            continue  # a rule of machine code
        for side, text in (("buggy", doc.buggy), ("fixed", doc.fixed)):
            yield Entry(f"{name} {side}", partial(_example, text))


def _example(text: str) -> Program:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "example.py"
        path.write_text(text)
        linecache.getlines(str(path))  # findings name its lines when it is gone
        (target,) = load(str(path))
        return target.build()


#: programs of tables; rows of the gallery that differ in their level alone are one program
TABLES: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "gallery": partial(_of_the_gallery, bugs=False),
    "bugs": partial(_of_the_gallery, bugs=True),
    "litmus": _litmus,
    "consan": _consan,
    "rules": _rules,
    "reported": _reported,
}
#: programs that tests make, by the files of these tests
TESTS: Mapping[str, tuple[str, ...]] = {
    "pairs": (
        "ptx/test_async_release.py", "ptx/test_counted_barriers.py", "ptx/test_members.py",
        "ptx/test_noncoherent.py", "ptx/test_unordered_lanes.py", "sim/test_async_access.py",
        "sim/test_barriers_of_lanes.py", "sim/test_dependents.py", "sim/test_forall_python.py",
        "sim/test_tensor_lanes.py", "sim/test_unordered_lanes.py", "sim/test_weak_memory.py",
    ),
    "cuda": (
        "ptx/test_check.py", "ptx/test_cuda.py", "ptx/test_cuda_blackwell.py",
        "ptx/test_cuda_last.py", "ptx/test_flags.py", "ptx/test_grid_sync.py",
        "ptx/test_tile_counters.py", "ptx/test_true_causes.py", "ptx/test_ways.py",
    ),
    "triton": ("triton/test_check.py", "triton/test_gluon.py"),
}  # fmt: skip
NAMES = (*TABLES, *TESTS)


def entries(corpus: str) -> tuple[Entry, ...]:
    """The programs of a corpus of tables, each once; of a folder, those of its files."""
    every = TABLES[corpus]() if corpus in TABLES else _of_folder(corpus)
    return tuple({entry.name: entry for entry in every}.values())


def _of_folder(folder: str) -> Iterator[Entry]:
    for target in load(folder):
        name = target.id.removeprefix(f"{folder.rstrip('/')}/")
        yield Entry(name, target.form, partial(_inputs, target))


def _inputs(target: Target) -> Mapping[str, Any] | None:
    return target.own_inputs(target.form(), 0)
