"""torch.compile and Helion on a machine without a GPU: their kernels are Triton's."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and triton"
)

COMPILED = """
import torch

@torch.compile
def shifted(x, y):
    return torch.nn.functional.softmax(x + y, dim=-1)

class Twice(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

@torch.compile(mode="max-autotune-no-cudagraphs")
def product(x, y):
    return x @ y

x, y = (torch.empty(1024, 2048, device="cuda") for _ in range(2))
product(x, y.T)
print(tuple(shifted(x, y).shape), tuple(torch.compile(Twice())(x).shape))
"""
HELION = """
import helion
import helion.language as hl
import torch

@helion.kernel(config=helion.Config(block_sizes=[64, 64, 32], num_warps=4, num_stages=3))
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float16, device=x.device)
    for m, n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([m, n], dtype=torch.float32)
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = acc.to(torch.float16)
    return out

x = torch.empty(1024, 512, device="cuda", dtype=torch.float16)
print(tuple(product(x, x.T.contiguous()).shape))
"""


def captured(script: str, folder: Path, *options: str) -> tuple[str, str]:
    """What a script and what `tilesim capture` print."""
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "tilesim.recording.host", "out", "sm_90a", *options, "script.py"],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def checked(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tilesim", "check", "out", "--format", "json"],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return [one["verdict"] for one in json.loads(done.stdout)["results"]]


def test_functions_and_modules_are_compiled_and_launched(tmp_path: Path) -> None:
    out, said = captured(COMPILED, tmp_path, "--inductor")
    assert out == "(1024, 2048) (1024, 2048)\n"
    assert "captured triton_" in said
    names = {json.loads(file.read_text())["entry"] for file in (tmp_path / "out").glob("*.json")}
    assert any("softmax" in name for name in names)
    assert any("relu" in name for name in names)
    assert any(name.startswith("triton_tem_fused_mm") for name in names)  # a template
    assert set(checked(tmp_path)) == {"proved"}
    assert "left out" not in said


def test_helion_compiles_and_launches(tmp_path: Path) -> None:
    pytest.importorskip("helion")
    out, _ = captured(HELION, tmp_path)
    assert out == "(1024, 1024)\n"
    launch = json.loads((tmp_path / "out" / "helion_product.json").read_text())
    assert launch["grid"] == [256, 1, 1]
    assert checked(tmp_path) == ["proved"]
