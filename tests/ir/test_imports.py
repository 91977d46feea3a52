"""Who imports what: instructions know nothing of the rest, and little of the rest knows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, ismodule
from pathlib import Path

import pytest

import tilesim
from tilesim.ir.op import Op

PACKAGE = Path(tilesim.__file__).parent

#: modules that name instructions, and why that is no meaning which their definitions should have;
#: none may be added
NAMING = {
    "checker/inject_fences.py": "a pass that puts in fences: it makes them, as `transforms` does",
    "gpu/emit/trace.py": "what a recorder puts beside waits, polls and products is CUDA of its own",
    "mistakes/arrivals.py": "edits that put in arrivals",
    "mistakes/barriers.py": "edits that put in barriers and fences of their life",
    "mistakes/control.py": "edits that put in elect.sync",
    "mistakes/faults.py": "faults that put one instruction in another's place",
    "mistakes/fences.py": "edits that put in fences, commits and waits for groups",
    "mistakes/operands.py": "edits that put one instruction in the place of another",
    "predict/replay.py": "measured cycles of releases to a cluster and of tile operations",
    "repair/cuda.py": "how CUDA writes barriers, waits and fences",
    "repair/hoisted_reads.py": "reads that a compiler has moved up are put back before the stores",
    "repair/search.py": "registers that an edit sets are those of its `mov`",
    "repair/python_patch.py": "`k.sync_threads()` is how barrier 0 is written",
    "repair/source_edits.py": "`__syncthreads()` is how barrier 0 is written",
    "repair/preservation.py": "edits that change bytes that are expected, or set a register",
    "sim/affine/cluster_plan.py": "registers of clusters as arrays: a second evaluation of scalars",
}
#: what makes instructions rather than looking at them: their definitions, the DSL, lowering and
#: what it knows of programs; the emitter and the PTX reader, per family
MAKING = ("ir/", "dsl/", "analysis/", "transforms/", "gpu/emit/", "ptx/", "lib/")


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Every ``from module import name`` of a file, also those for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((module, alias.name) for alias in names)
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case _:
                pass


@pytest.mark.parametrize("path", sorted((PACKAGE / "ir").rglob("*.py")), ids=lambda p: p.name)
def test_instructions_import_nothing_that_executes_or_writes_them(path: Path) -> None:
    for module, _ in imports(path):
        if module.startswith("tilesim."):
            assert module.split(".")[1] in (
                "analysis",
                "arith",
                "ir",
                "errors",
                "records",
                "wording",
            ), module


def naming() -> Iterator[str]:
    """Files that import concrete instructions, but for those of one family each."""
    families = {path.stem for path in (PACKAGE / "ir" / "ops").glob("*.py")}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        makes = name.startswith(MAKING) and (not name.startswith("gpu/") or path.stem in families)
        if not makes and any(_is_instruction(*found) for found in imports(path)):
            yield name


def _is_instruction(module: str, name: str) -> bool:
    if not module.startswith("tilesim.ir.ops"):
        return False
    thing = getattr(import_module(module), name, None)
    return ismodule(thing) or (isclass(thing) and issubclass(thing, Op))


def test_no_more_modules_name_instructions() -> None:
    assert set(naming()) == NAMING.keys(), (
        "match on effects instead; what no longer does leaves the list"
    )
