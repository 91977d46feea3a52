"""The packages stand in rows: none imports what stands above it, and no circle is left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .module_graph import circle, graph, imports, modules

#: from the top down: a package imports those in lower rows, and in its own row those right of its
#: ``>``; between ``|`` nothing is imported. The longest name that a module begins with counts
ROWS = """
__main__ kernels.__main__ > cli > mcp
strategies > kernels fuzz
triton tilelang tilus cute > recording > report capture
gpu > conform | predict | export
checker > repair > mistakes | loader
sim.schedulers > sim.affine > sim.observers
sim.machine | ptx | gpu.emit
lib mark > dsl | transforms
ir.verify > ir.checks ir.text > analysis | findings | proof
parallel limits
ir > arith > gpu.errors > errors | files | version | wording
records
"""

#: imports that go up, and why they are there; none may be added
UPWARDS = {
    (
        "tilesim.errors",
        "tilesim.ir.loc",
    ): "an error names its line",
    (
        "tilesim.gpu.errors",
        "tilesim.ir.loc",
    ): "an error names its line",
    (
        "tilesim.sim.machine.compose",
        "tilesim.sim.observers.lane_races",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.copies",
        "tilesim.sim.observers.phase_conditions",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.launch_control",
        "tilesim.sim.observers.uninitialised_reads",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.mbarrier",
        "tilesim.sim.observers.phase_conditions",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.memory",
        "tilesim.sim.observers.race_text",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.tensor_memory",
        "tilesim.sim.observers.phase_conditions",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.tensor_memory",
        "tilesim.sim.observers.tmem_order",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.tensormaps",
        "tilesim.sim.observers.tensormap_proxy",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.execute.words",
        "tilesim.sim.observers.monotone_accesses",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.lane_order",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.weak_memory",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.load",
        "tilesim.sim.observers.monotone_words",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.load",
        "tilesim.sim.observers.tmem_order",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.monotone_words",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.peers",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.races",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.machine",
        "tilesim.sim.observers.tmem_order",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.mbarrier",
        "tilesim.sim.observers.phase_conditions",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.affine.cluster_classes",
    ): "a run skips what repeats, and notes what it skipped",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.affine.cluster_plan",
    ): "a run skips what repeats, and notes what it skipped",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.affine.loop_skipping",
    ): "a run skips what repeats, and notes what it skipped",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.observers.accessed_bytes",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.observers.deadlock",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.observers.value_numbers",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.simulate",
        "tilesim.sim.observers.uninitialised_reads",
    ): "what judges a step is called where it is executed",
    (
        "tilesim.sim.machine.word_order",
        "tilesim.sim.observers.monotone_words",
    ): "what judges a step is called where it is executed",
}

#: the facade: kernels import it, and it loads the checker when that is asked for
FACADE = "tilesim"

#: imports in functions, and why they are there: each spares those who never call the function
LOCAL = {
    ("tilesim.cli.resume", "hashlib"): "loads OpenSSL",
    ("tilesim.ir.text.mir", "hashlib"): "loads OpenSSL",
    ("tilesim.proof.certificate", "hashlib"): "loads OpenSSL",
    ("tilesim.report.sarif", "hashlib"): "loads OpenSSL",
    ("tilesim.sim.schedulers.frontier", "hashlib"): "loads OpenSSL",
    ("tilesim.parallel", "logging"): "needed with Dask only",
    ("tilesim.parallel", "multiprocessing"): "most checks work in one process",
    ("tilesim.checker", "tilesim.checker.certificates"): "most checks make no certificate",
    ("tilesim.cli.check", "tilesim.checker.certificate_file"): "most checks make no certificate",
    ("tilesim.cli.crosscheck", "tilesim.cli.gpu"): "the gpu extra need not be installed",
    ("tilesim.cli.emit", "tilesim.cli.gpu"): "the gpu extra need not be installed",
    ("tilesim.cli.emit", "tilesim.gpu.emit"): "--help stays fast",
    ("tilesim.cli.emit", "tilesim.ir.text"): "--help stays fast",
    ("tilesim.cli.export", "tilesim.export"): "--help stays fast",
    ("tilesim.cli.mcp", "tilesim.mcp.server"): "an extra",
    ("tilesim.cli.show", "tilesim.transforms.lower"): "--help stays fast",
    ("tilesim.cli.show", "tilesim.ir.text"): "--help stays fast",
    ("tilesim.cli.show", "tilesim.ir.text.mir"): "--help stays fast",
    ("tilesim.ir.ops.hints", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.matrix", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.mma_sync", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.mma_sync", "ml_dtypes"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.multimem", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tcgen05_mma", "tilesim.arith.tensor_cores"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tcgen05", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tile", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tile", "tilesim.arith.tile_math"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.vector", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.warp", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.wgmma", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.tensormap", "numpy"): "building kernels needs no NumPy",
    ("tilesim.arith.types", "ml_dtypes"): "building kernels needs no NumPy",
    ("tilesim.arith.types", "numpy"): "building kernels needs no NumPy",
    ("tilesim.loader.text", "tilesim.ir"): "most programs are Python",
    ("tilesim.loader.text", "tilesim.transforms.rewrite"): "most programs are Python",
    ("tilesim.loader.text", "tilesim.ir.text"): "most programs are Python",
    ("tilesim.mark", "pytest"): "only tests need it",
    ("tilesim.cli.check", "tilesim.report.html"): "only a page needs it",
    ("tilesim.cli.examine", "tilesim.report.html.diagram"): "only a page needs it",
    ("tilesim.cli.examine", "tilesim.cli.smallest"): "only --shrink needs it",
    ("tilesim.checker", "tilesim.repair.suggest"): "only a failure needs it",
    ("tilesim.checker", "tilesim.checker.for_all"): "only checks for other values need it",
    (
        "tilesim.checker.verdict",
        "tilesim.checker.launch_control",
    ): "only cancelled clusters need it",
    ("tilesim.checker.verdict", "tilesim.checker.ticket_orders"): "only draws need it",
    ("tilesim.checker.verdict", "tilesim.ir.text.mir"): "only a failure needs it",
    (
        "tilesim.checker.verdict",
        "tilesim.sim.schedulers.exhaustive",
    ): "only other schedules need it",
    ("tilesim.checker.verdict", "tilesim.sim.schedulers.lane_lag"): "only other schedules need it",
    ("tilesim.checker.verdict", "tilesim.sim.schedulers.sampling"): "only other schedules need it",
    ("tilesim.checker.witness", "tilesim.ir.text.mir"): "only a failure needs it",
    ("tilesim.checker.witness", "tilesim.sim.observers.timeline"): "only a recording needs it",
    ("tilesim.checker.grid", "tilesim.sim.affine.cluster_classes"): "only grids need it",
    ("tilesim.checker.grid", "tilesim.sim.affine.footprints"): "only grids need it",
    ("tilesim.dsl.kernel", "tilesim.dsl.builder"): "only kernels in Python need it",
    ("tilesim.dsl.kernel", "tilesim.dsl.loop_state"): "only kernels in Python need it",
    ("tilesim.sim.affine.evaluator", "tilesim.ir.text.printer"): "only an obstacle needs it",
    ("tilesim.sim.machine.machine", "tilesim.sim.observers.weak_memory"): "only other schedules",
    ("tilesim.sim.machine.simulate", "tilesim.sim.affine.cluster_classes"): "only grids need it",
    ("tilesim.sim.machine.simulate", "tilesim.sim.affine.loop_skipping"): "only timed runs need it",
    ("tilesim.sim.machine.simulate", "tilesim.sim.observers.value_numbers"): "only named stores",
    ("tilesim.checker.verdict", "tilesim.mistakes.diagnose"): "only a failure needs it",
    ("tilesim.checker.witness", "tilesim.mistakes.diagnose"): "only a failure needs it",
    ("tilesim.parallel", "distributed"): "an extra",
    ("tilesim.triton.driver", "torch"): "kernels are recorded without it, too",
    ("tilesim.recording.without_gpu", "torch"): "scripts need not use it",
    ("tilesim.recording.autograd", "torch"): "scripts need not use it",
    ("tilesim.recording.autograd", "torch.autograd.graph"): "scripts need not use it",
    ("tilesim.recording.values", "torch._subclasses.fake_tensor"): "scripts need not use it",
    ("tilesim.recording.without_gpu", "torch._subclasses.fake_tensor"): "scripts need not use it",
}

MODULES = modules()


@pytest.fixture(scope="module")
def edges() -> dict[str, set[str]]:
    """Which module imports which."""
    return graph(MODULES)


def places() -> dict[str, tuple[int, int, int]]:
    """Where each package stands: row from the bottom up, part of the row, place in it."""
    found: dict[str, tuple[int, int, int]] = {}
    for row, line in enumerate(reversed(ROWS.strip().splitlines())):
        for part, group in enumerate(line.split("|")):
            for place, names in enumerate(group.split(">")):
                found |= {f"tilesim.{name}": (row, part, place) for name in names.split()}
    return found


PLACES = places()


def package(module: str) -> str:
    """The package of the rows that a module belongs to."""
    names = [name for name in PLACES if f"{module}.".startswith(f"{name}.")]
    assert names, f"{module} stands in no row"
    return max(names, key=len)


def may_import(package: str, other: str) -> bool:
    """Whether a package stands above another one, or left of a ``>`` before it."""
    row, part, place = PLACES[package]
    other_row, other_part, other_place = PLACES[other]
    beside = row == other_row and part == other_part and place < other_place
    return package == other or row > other_row or beside


def upwards(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports of what stands above, or beside."""
    return {
        (module, target)
        for module in edges.keys() - {FACADE}
        for target in edges[module] - {FACADE}
        if not may_import(package(module), package(target))
    }


def test_no_circle(edges: dict[str, set[str]]) -> None:
    assert not circle(edges)


def test_no_package_imports_what_stands_above_it(edges: dict[str, set[str]]) -> None:
    assert upwards(edges) <= UPWARDS.keys()
    assert UPWARDS.keys() <= upwards(edges), "no longer needed"


def test_the_emitter_knows_nothing_of_the_simulator(edges: dict[str, set[str]]) -> None:
    for module in edges:
        if module.startswith("tilesim.gpu.emit"):
            assert not [m for m in edges[module] if m.startswith("tilesim.sim")], module


def test_modules_that_are_imported_exist() -> None:
    root = Path(__file__).parents[2]
    used = re.compile(r"^ *(?:from|import) (tilesim[\w.]*)", re.MULTILINE)
    paths = [path for name in ("tilesim", "tests", "docs") for path in root.glob(f"{name}/**/*.py")]
    found = {(path, module) for path in paths for module in used.findall(path.read_text())}
    assert not {(path, module) for path, module in found if module not in MODULES}


#: loads all definitions of instructions, and prints which modules of tilesim that takes
LOADS = """
import pkgutil, sys
from importlib import import_module
import tilesim.ir.ops as ops
for module in pkgutil.iter_modules(ops.__path__, f"{ops.__name__}."):
    import_module(module.name)
print(*(name for name in sys.modules if f"{name}.".startswith("tilesim.")))
"""
#: lines of these modules
MOST_OF_DEFINITIONS = 12_200


def test_definitions_of_instructions_load_types_and_programs_only() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in MODULES if name.startswith("tilesim.ir.ops")} <= loaded
    below = (
        "tilesim.arith.",
        "tilesim.errors.",
        "tilesim.ir.",
        "tilesim.records.",
        "tilesim.version.",
    )
    assert not {name for name in loaded - {FACADE} if not f"{name}.".startswith(below)}
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in loaded)
    assert lines <= MOST_OF_DEFINITIONS


@pytest.mark.parametrize(
    ("command", "not_loaded"),
    [
        ("import tilesim.cli.group", ("tilesim.checker", "tilesim.ir.program", "numpy", "simpy")),
        ("import tilesim.cli.check", ("tilesim.mistakes", "tilesim.fuzz", "tilesim.report.html")),
        (
            "import tilesim.checker",
            (
                "tilesim.mistakes",
                "tilesim.repair.suggest",
                "tilesim.report",
                "tilesim.dsl.builder",
                "tilesim.ir.text",
                "tilesim.sim.affine.loop_skipping",
                "tilesim.checker.for_all",
                "tilesim.sim.schedulers.exhaustive",
            ),
        ),
    ],
)
def test_what_starts_loads_nothing_that_it_may_not_need(
    command: str, not_loaded: tuple[str, ...]
) -> None:
    """`tilesim --version` loads no checker; a check that proves no causes, repairs or reports."""
    script = f"{command}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert command.split()[1] in loaded
    assert not loaded & {*not_loaded}


#: checks the README's example, which is proved by leaning on U12; prints which modules that takes
CHECKS = """
import sys
from tilesim.checker import check
sys.path.insert(0, "examples")
from pipeline import pipeline
report = check(pipeline.build(fixed=FIXED))
print(report.verdict, *(one.name for one in report.leanings), *sys.modules)
"""


@pytest.mark.parametrize(("fixed", "verdict"), [("True", "proved"), ("False", "failed")])
def test_causes_are_loaded_for_a_failure_only(fixed: str, verdict: str) -> None:
    """Also where a second run, at the level `ptx`, fails, which says what the proof leans on."""
    script, root = CHECKS.replace("FIXED", fixed), Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    said = done.stdout.split()
    assert said[0] == verdict
    assert ("U12" in said) is (verdict == "proved")
    assert ("tilesim.mistakes.diagnose" in said) is (verdict == "failed")


def test_imports_in_functions_have_a_reason() -> None:
    found = {
        (module, use.target)
        for module, path in MODULES.items()
        for use in imports(path)
        if use.local
    }
    assert found <= LOCAL.keys()
    assert LOCAL.keys() <= found, "no longer needed"


def test_a_circle_is_found_wherever_its_imports_are(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "__init__.py").touch()
    (package / "a.py").write_text("from p.inner import b\n")
    (package / "inner" / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import C\n"
    )
    right = package / "c.py"
    right.write_text("import p.d\n")
    (package / "d.py").write_text("class D: ...\n")
    assert not circle(graph(modules(package)))
    right.write_text("def f():\n    if True:\n        import p.a\n")
    assert set(circle(graph(modules(package)))) == {"p.a", "p.inner.b", "p.c"}
