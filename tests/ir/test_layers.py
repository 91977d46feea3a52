"""The modules form layers: nobody imports what stands above it, and no circle is left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .module_graph import circle, graph, imports, modules

#: from the bottom up, by the start of a module's name; the longest one that fits counts
LAYERS = (
    ("tilesim.files", "tilesim.heap", "tilesim.version", "tilesim.words"),
    ("tilesim.arith",),
    ("tilesim.analysis", "tilesim.errors", "tilesim.ir", "tilesim.timer"),
    (
        "tilesim.leaning", "tilesim.lib", "tilesim.mark", "tilesim.parallel", "tilesim.proof",
        "tilesim.sim",
    ),
    ("tilesim.export", "tilesim.gpu", "tilesim.ptx"),
    (
        "tilesim.certificate_file", "tilesim.checker", "tilesim.loader", "tilesim.mistakes",
        "tilesim.repair", "tilesim.search",
        "tilesim.verdict", "tilesim.witness",
    ),
    (
        "tilesim.capture", "tilesim.conform", "tilesim.cute", "tilesim.fuzz", "tilesim.gpu.conform",
        "tilesim.gpu.crosscheck", "tilesim.predict", "tilesim.recording", "tilesim.report",
        "tilesim.tilelang", "tilesim.tilus", "tilesim.triton",
    ),
    ("tilesim.kernels", "tilesim.strategies"),
    ("tilesim.__main__", "tilesim.cli", "tilesim.kernels.__main__", "tilesim.mcp"),
)  # fmt: skip

#: the facade: kernels import it, and it loads the checker when that is asked for
FACADE = "tilesim"

#: imports in functions, and why they are there: each spares those who never call the function
LOCAL = {
    ("tilesim.checker", "tilesim.search.certificates"): "most checks make no certificate",
    ("tilesim.checker", "tilesim.search.every"): "most checks make no certificate",
    ("tilesim.cli.check", "tilesim.certificate_file"): "most checks make no certificate",
    ("tilesim.cli.crosscheck", "tilesim.cli.gpu"): "the gpu extra need not be installed",
    ("tilesim.cli.emit", "tilesim.cli.gpu"): "the gpu extra need not be installed",
    ("tilesim.cli.emit", "tilesim.gpu.emit"): "--help stays fast",
    ("tilesim.cli.emit", "tilesim.ir.text"): "--help stays fast",
    ("tilesim.cli.export", "tilesim.export"): "--help stays fast",
    ("tilesim.cli.mcp", "tilesim.mcp.server"): "an extra",
    ("tilesim.cli.show", "tilesim.ir.lower"): "--help stays fast",
    ("tilesim.cli.show", "tilesim.ir.text"): "--help stays fast",
    ("tilesim.cli.show", "tilesim.ir.text.mir"): "--help stays fast",
    ("tilesim.ir.ops.hints", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.matrix", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.matrix_bytes", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.mma_forms", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.mma_sync", "ml_dtypes"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.mma_sync", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.multimem", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tcgen05_mma", "tilesim.arith.tensor_cores"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tcgen05_data", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tile", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.tile", "tilesim.arith.tile_math"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.vector", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.warp", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.ops.wgmma", "numpy"): "building kernels needs no NumPy",
    ("tilesim.ir.tensormaps", "numpy"): "building kernels needs no NumPy",
    ("tilesim.arith.types", "ml_dtypes"): "building kernels needs no NumPy",
    ("tilesim.arith.types", "numpy"): "building kernels needs no NumPy",
    ("tilesim.loader.text", "tilesim.ir"): "most programs are Python",
    ("tilesim.loader.text", "tilesim.ir.bare"): "most programs are Python",
    ("tilesim.loader.text", "tilesim.ir.text"): "most programs are Python",
    ("tilesim.mark", "pytest"): "only tests need it",
    ("tilesim.cli.check", "tilesim.report.html"): "only a page needs it",
    ("tilesim.cli.examine", "tilesim.report.html.diagram"): "only a page needs it",
    ("tilesim.cli.examine", "tilesim.cli.smallest"): "only --shrink needs it",
    ("tilesim.checker", "tilesim.repair.mend"): "only a failure needs it",
    ("tilesim.search.checking", "tilesim.mistakes.diagnose"): "only a failure needs it",
    ("tilesim.witness", "tilesim.mistakes.diagnose"): "only a failure needs it",
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


def layer(module: str) -> int:
    """The number of a module's layer, from the bottom up."""
    best, found = "", -1
    for number, names in enumerate(LAYERS):
        for name in names:
            if (module == name or module.startswith(f"{name}.")) and len(name) > len(best):
                best, found = name, number
    assert found >= 0, f"{module} stands in no layer"
    return found


def test_no_circle(edges: dict[str, set[str]]) -> None:
    assert not circle(edges)


def test_nobody_imports_what_stands_above_it(edges: dict[str, set[str]]) -> None:
    assert not [
        f"{module} imports {target}"
        for module in sorted(edges.keys() - {FACADE})
        for target in sorted(edges[module] - {FACADE})
        if layer(target) > layer(module)
    ]


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
    below = ("tilesim.arith.", "tilesim.errors.", "tilesim.ir.", "tilesim.version.")
    assert not {name for name in loaded - {FACADE} if not f"{name}.".startswith(below)}
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in loaded)
    assert lines <= MOST_OF_DEFINITIONS


@pytest.mark.parametrize(
    ("command", "not_loaded"),
    [
        ("import tilesim.cli.group", ("tilesim.checker", "tilesim.ir.program", "numpy", "simpy")),
        ("import tilesim.cli.check", ("tilesim.mistakes", "tilesim.fuzz", "tilesim.report.html")),
        ("import tilesim.checker", ("tilesim.mistakes", "tilesim.repair.mend", "tilesim.report")),
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
