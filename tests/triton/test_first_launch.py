"""``TILESIM=1 python ...``: kernels are checked as they are launched first."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """Runs Python with tilesim as it is when it is installed: with its entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = tmp_path / "entry" / "tilesim_here-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tilesim-here\nVersion: 1\n")
    points = project["entry-points"]["triton.backends"]
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (about / "entry_points.txt").write_text(f"[triton.backends]\n{lines}")

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "TILESIM"}
        environment |= {
            "PYTHONPATH": f"{ROOT}:{about.parent}", "PYTHONWARNINGS": "ignore", **variables,
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True,
            check=False, cwd=tmp_path,
        )  # fmt: skip

    return run


def launching(python: Run, *commands: str, **variables: str) -> tuple[str, str]:
    """What the program and what tilesim prints."""
    done = python("-m", "tests.triton.launching", *commands, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("variables", [{}, {"TILESIM": "0"}])
def test_without_the_variable_triton_imports_nothing_of_tilesim(
    python: Run, variables: dict[str, str]
) -> None:
    code = (
        "import sys, triton; from triton.backends import backends;"
        "from triton.runtime import driver; from triton.knobs import runtime;"
        "print('tilesim' in backends, 'tilesim' in sys.modules, runtime.kernel_load_end_hook.calls)"
    )
    done = python("-c", code, **variables)
    assert (done.stdout, done.stderr) == ("True False []\n", "")


def test_kernels_are_checked_and_the_program_prints_what_it_always_does(python: Run) -> None:
    """Each in its first launch; what is not proved is said with its line and kept."""
    out, said = launching(python, "right", "twice", "wrong", TILESIM="1")
    assert out == "increased(1, 1, 1)\nincreased(2, 1, 1)\nincreased(1, 1, 1)\n"
    assert "tilesim: 2 kernels checked as first launched, 1 proved\n" in said
    wrong = next(line for line in said.splitlines() if line.startswith("  failed"))
    assert "race" in wrong
    assert "kernels.py:32" in wrong
    assert "PHASE=1" in wrong
    assert "tilesim: failed" in said  # at once, as well
    folder = Path(said.rpartition("tilesim check ")[2].strip())
    assert sorted(file.name for file in folder.iterdir()) == [
        "increased.json", "increased.ptx", "increased_1.json", "increased_1.ptx",
    ]  # fmt: skip


def test_an_autotuner_measures_proved_configurations_only(python: Run) -> None:
    """The first is measured by two launches, and then chosen; the second is never launched."""
    out, said = launching(python, "tuned", TILESIM="proved")
    assert out == "chosen {'PHASE': 0}\n" + "tuned(1, 1, 1)\n" * 3
    assert "2 kernels checked as first launched, 1 proved" in said
    assert "1 configuration not measured: not proved" in said


def test_what_is_not_checked_is_said(python: Run) -> None:
    out, said = launching(python, "old", TILESIM="1")
    assert out == "filled_by_64(1, 1, 1)\n"
    assert said == (
        "tilesim: 0 kernels checked as first launched, 0 proved\n"
        "  not checked: filled_by_64: sm_80 is not modelled\n"
    )


def test_inductor_launches_by_triton(python: Run) -> None:
    """torch has a launcher of its own, which it is told not to use: by the environment, or if its
    settings have been read already, there."""
    name = "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER"
    code = f"import triton.backends, os; print(os.environ.get('{name}'))"
    assert python("-c", code).stdout == "None\n"
    assert python("-c", code, TILESIM="1").stdout == "0\n"
    code = (
        "import sys, types; config = types.SimpleNamespace()"
        "; sys.modules['torch._inductor.config'] = config; import triton.backends"
        "; print(config.use_static_cuda_launcher)"
    )
    assert python("-c", code, TILESIM="1").stdout == "False\n"


def test_what_goes_wrong_leaves_the_program_alone(python: Run, tmp_path: Path) -> None:
    """A value that is not known, and a Triton that has other hooks. Of the processes of a machine
    that launch the same kernels one checks them."""
    for variables in ({"TILESIM": "yes"}, {"TILESIM": "1", "LOCAL_RANK": "1"}):
        out, said = launching(python, "old", **variables)
        assert out == "filled_by_64(1, 1, 1)\n"
        wrong = "tilesim: kernels are not checked: TILESIM is 1 or proved, not 'yes'\n"
        assert said == (wrong if variables["TILESIM"] == "yes" else "")
    other = "import triton.knobs as k; del k.runtime_knobs.kernel_load_end_hook"
    (tmp_path / "entry" / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.abc import MetaPathFinder\n"
        "class Other(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == '_tilesim_triton':\n"
        f"            {other}\n"
        "sys.meta_path.insert(0, Other())\n"
    )
    done = python("-c", "import triton; print('goes on')", TILESIM="1")
    assert done.stdout == "goes on\n"
    assert done.stderr.startswith("tilesim: kernels are not checked, this Triton is not known")
