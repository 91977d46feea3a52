"""The machine as a whole: determinism, completeness of the rules, import time, layering."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilesim
from tilesim.checker import check
from tilesim.ir.program import instructions
from tilesim.kernels.hopper import matmul_v5
from tilesim.kernels.nvfuser import printed
from tilesim.sim.machine.compose import OPERATIONS
from tilesim.sim.machine.execute import EXECUTORS
from tilesim.sim.machine.simulate import Policy, simulate

from ..gpu.programs import PROGRAMS

PACKAGE = Path(tilesim.__file__).parent


def test_every_instruction_can_be_executed() -> None:
    for program in PROGRAMS.values():
        for op in instructions(program):
            effects = op.effects()
            if not any(applies(effects) for applies, _ in OPERATIONS):
                assert {type(effect) for effect in effects} <= set(EXECUTORS), op


@pytest.mark.parametrize("policy", ["timed", "random", "pct"])
def test_same_program_policy_and_seed_give_the_same_run(policy: Policy) -> None:
    program = matmul_v5.matmul.build(iterations=3, ctas=1)
    runs = [simulate(program, policy=policy, seed=7) for _ in range(2)]
    assert runs[0].findings == runs[1].findings == ()
    assert runs[0].stats == runs[1].stats
    assert runs[0].choices == runs[1].choices
    for name, value in runs[0].outputs.items():
        np.testing.assert_array_equal(value, runs[1].outputs[name])


def spawn(code: str, hash_seed: str = "0") -> str:
    """What a program prints in a process of its own."""
    env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    return run.stdout.decode()


def test_reports_are_the_same_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from tilesim.checker import check; from tilesim.kernels.nvfuser import printed;"
        "print(check(printed.printed.build(register_sharing=False)))"
    )
    texts = {spawn(code, hash_seed) for hash_seed in ("1", "2")}
    assert len(texts) == 1
    assert "deadlock" in texts.pop()
    assert check(printed.printed.build(register_sharing=False)).verdict == "failed"


def test_import_is_light() -> None:
    """No NumPy, no simpy, no CUDA, no hypothesis for building a kernel."""
    code = "import sys, tilesim; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = set(spawn(code).split())
    assert loaded.isdisjoint({"numpy", "simpy", "cuda", "cupy", "hypothesis", "click", "ml_dtypes"})


def imports(path: Path) -> set[str]:
    """Modules of tilesim that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith("tilesim")}


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("ir", ("tilesim.sim", "tilesim.gpu", "tilesim.cli", "tilesim.checker", "tilesim.kernels")),
        (
            "dsl",
            ("tilesim.sim", "tilesim.gpu", "tilesim.cli", "tilesim.checker", "tilesim.kernels"),
        ),
        ("analysis", ("tilesim.sim", "tilesim.gpu", "tilesim.cli", "tilesim.checker")),
        ("transforms", ("tilesim.sim", "tilesim.gpu", "tilesim.cli", "tilesim.checker")),
        ("sim", ("tilesim.gpu", "tilesim.cli", "tilesim.checker", "tilesim.report")),
        ("gpu/emit", ("tilesim.sim", "tilesim.cli", "tilesim.checker")),
    ],
)
def test_dependencies_point_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    for path in (PACKAGE / folder).rglob("*.py"):
        wrong = {name for name in imports(path) if name.startswith(forbidden)}
        assert not wrong, f"{path} imports {wrong}"
