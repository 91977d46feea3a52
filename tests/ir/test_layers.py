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
__main__ kernels.__main__ > cli > lsp > mcp
strategies > kernels fuzz
triton tilelang tilus cute cutile > recording > report capture
gpu > conform > autopsy | predict | export
checker > repair > mistakes | loader | translation
sim.schedulers > sim.affine > sim.observers
autopsy.launch > autopsy.find_ptx > autopsy.core_dump autopsy.ptx_lines > autopsy.errors
sim.machine | ptx | gpu.emit | cubin
lib mark > dsl | transforms
ir.verify > ir.checks ir.text > analysis | findings | proof
formats layout parallel limits
ir > arith > gpu.errors > errors | files | version | wording
records
"""


def pairs(table: str) -> set[tuple[str, str]]:
    """Modules and what they import. A row is a module of tilesim and names, of which those that
    begin with a dot are of tilesim; why the imports are there stands above, behind ``#``."""
    rows = (row.split(": ") for row in table.strip().splitlines() if not row.startswith("#"))
    return {
        (f"tilesim.{module}", re.sub(r"^\.", "tilesim.", target))
        for module, targets in rows
        for target in targets.split()
    }


#: imports that go up; none may be added
UPWARDS = pairs("""
# an error names its line
errors: .ir.loc
gpu.errors: .ir.loc
# what judges a step is called where it is executed
sim.machine.compose: .sim.observers.lane_races
sim.machine.execute.copies: .sim.observers.phase_conditions
sim.machine.execute.launch_control: .sim.observers.uninitialised_reads
sim.machine.execute.mbarrier: .sim.observers.phase_conditions
sim.machine.execute.memory: .sim.observers.race_text
sim.machine.execute.tensor_memory: .sim.observers.phase_conditions .sim.observers.tmem_order
sim.machine.execute.tensormaps: .sim.observers.tensormap_proxy
sim.machine.execute.words: .sim.observers.monotone_accesses
sim.machine.machine: .sim.observers.weak_memory
sim.machine.machine: .sim.observers.monotone_words .sim.observers.peers .sim.observers.races
sim.machine.machine: .sim.observers.tmem_order
sim.machine.load: .sim.observers.monotone_words .sim.observers.tmem_order
sim.machine.mbarrier: .sim.observers.phase_conditions
sim.machine.simulate: .sim.observers.accessed_bytes .sim.observers.deadlock
sim.machine.simulate: .sim.observers.at_exit
sim.machine.simulate: .sim.observers.value_numbers .sim.observers.uninitialised_reads
sim.machine.word_order: .sim.observers.monotone_words
# a run skips what repeats, and notes what it skipped
sim.machine.simulate: .sim.affine.cluster_classes .sim.affine.cluster_plan
sim.machine.simulate: .sim.affine.loop_skipping
""")

#: the facade: kernels import it, and it loads the checker when that is asked for
FACADE = "tilesim"

#: imports in functions: each spares those who never call the function
LOCAL = pairs("""
# loads OpenSSL
cli.resume: hashlib
ir.text.mir: hashlib
proof.certificate: hashlib
report.sarif: hashlib
sim.schedulers.frontier: hashlib
# reads how Python was built
dsl.loop_state: sysconfig
# a check reads no file that another one has written
checker.witness: .formats
sim.schedulers.frontier: .formats
# needed with Dask only
parallel: logging
# most checks work in one process
parallel: multiprocessing multiprocessing.connection
checker.verdict: .parallel
# what only a mistake needs
loader: .loader.programs
# most targets are no machine code
loader: .loader.machine_code .loader.dumps
cli.check: .cli.sass
cli.show: .cli.show_machine_code
cli.sass: .gpu.compile .gpu.emit .cubin.disassembly
cli.launch_template: .loader.machine_code
cli.completing: .loader.machine_code
loader.machine_code: .autopsy.ptx_lines .cubin.disassembly
# what only PTX with lines of a source needs
sim.machine.execute.mbarrier: .findings.source_names
sim.machine.executable: .findings.source_names
sim.machine.load: .findings.source_names
# most checks make no certificate
checker: .checker.certificates .proof.rules
cli.check: .checker.certificate_file
cli.resume: .checker.certificate_file
# the gpu extra need not be installed
cli.doctor: .gpu.compile
cli.crosscheck: .cli.gpu
cli.emit: .cli.gpu
# --help stays fast
cli.emit: .gpu.emit .ir.text
cli.export: .export
cli.show: .transforms.lower .ir.text .ir.text.mir
# an extra
cli.lsp: .lsp.server
cli.mcp: .mcp.server
parallel: distributed
# CuTe DSL need not have TVM FFI
cute.driver: tvm_ffi cutlass.cutlass_dsl
# building kernels needs no NumPy
ir.ops.hints: numpy
ir.ops.matrix: numpy
ir.ops.mma_sync: numpy ml_dtypes
ir.ops.multimem: numpy
ir.ops.tcgen05_mma: .arith.tensor_cores
ir.ops.tcgen05: numpy
ir.ops.tile: numpy .arith.tile_math
ir.ops.vector: numpy
ir.ops.warp: numpy
ir.ops.wgmma: numpy
ir.tensormap: numpy
arith.types: ml_dtypes numpy
# most programs are Python
loader.text: .ir .transforms.rewrite .ir.text
loader.ptx: .ptx.parser .ptx.plain .ptx.program
# only tests need it
mark: pytest
# only a check that is to be resumed needs it
cli.resume: msgspec .proof.rules .sim.affine.free_parameter
# only the schema needs it
report.document: msgspec.json
# only a page needs it
cli.check: .report.html
cli.examine: .report.html.diagram
# only --shrink needs it
cli.examine: .cli.smallest
# only a failure needs it
checker: .repair .repair.suggest
sim.machine.simulate: .sim.observers.deadlock
checker.verdict: .ir.text.mir .mistakes.diagnose
checker.witness: .ir.text.mir .mistakes.diagnose
# only checks for other values need it
checker: .checker.for_all
# only cancelled clusters need it
checker.verdict: .checker.launch_control
# only draws need it
checker.verdict: .checker.ticket_orders
# only other schedules need it
checker.verdict: .sim.schedulers.exhaustive .sim.schedulers.lane_lag .sim.schedulers.sampling
# only a recording needs it
checker.witness: .sim.observers.timeline
# only programs with addresses need it
sim.machine.simulate: .analysis.pointer_table
sim.observers.accessed_bytes: .analysis.pointer_table
# only grids need it
checker.verdict: .checker.grid
sim.machine.simulate: .sim.affine.cluster_plan
checker.grid: .sim.affine.cluster_classes .sim.affine.footprints
sim.machine.simulate: .sim.affine.cluster_classes
# only kernels in Python need it
dsl.kernel: .dsl.builder .dsl.loop_state
# only an obstacle needs it
sim.affine.evaluator: .ir.text.printer
# only other schedules
sim.machine.machine: .sim.observers.weak_memory
# only timed runs need it
sim.machine.simulate: .sim.affine.loop_skipping
# only named stores
sim.machine.simulate: .sim.observers.value_numbers
# kernels are recorded without it, too
triton.driver: torch
# scripts need not use it
recording.without_gpu: torch torch._dynamo torch._subclasses.fake_tensor torch.utils._pytree
recording.without_gpu: .recording.gpu .recording.reads .recording.torch_mode
recording.device_guard: torch
recording.autograd: torch torch.autograd.graph
recording.values: torch._subclasses.fake_tensor
recording.inductor: torch torch._dynamo torch._dynamo.device_interface torch._inductor
recording.inductor: torch._inductor.config torch._inductor.fx_passes torch._inductor.runtime
recording.inductor: triton.compiler.compiler
""")

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
    assert upwards(edges) == UPWARDS


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
MOST_OF_DEFINITIONS = 12_300


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
        (
            "import tilesim.cli.check",
            (
                "tilesim.mistakes",
                "tilesim.fuzz",
                "tilesim.report.html",
                "tilesim.autopsy",
                "tilesim.repair.suggest",
                "tilesim.ptx.parser",
                "tilesim.ptx.program",
                "sysconfig",
            ),
        ),
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


def test_a_check_loads_what_every_check_needs() -> None:
    script = "import sys, tilesim.checker; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    loaded = [name for name in done.stdout.split() if name.split(".")[0] == "tilesim"]
    assert len(loaded) <= 164


def test_imports_in_functions_have_a_reason() -> None:
    found = {
        (module, use.target)
        for module, path in MODULES.items()
        for use in imports(path)
        if use.local
    }
    assert found == LOCAL


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
