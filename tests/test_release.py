"""What is released: a wheel that works with nothing but what it says it needs, a source
distribution that makes the same one, and versions that agree wherever they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tilesim.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WHEEL = f"tilesim-{__version__}-py3-none-any.whl"
#: bytes of the wheel, and of what it unpacks to
MOST_OF_WHEEL, MOST_INSTALLED = 3 << 20, 9 << 20

#: modules that are for what is not installed with the package, and what that is
OTHERS = {
    "tilesim.cute": "cutlass",
    "tilesim.cutile": "cuda",
    "tilesim.lsp": "lsprotocol",
    "tilesim.mcp.server": "mcp",
    "tilesim.recording.gpu": "torch",
    "tilesim.recording.on_device": "torch",
    "tilesim.recording.reads": "torch",
    "tilesim.recording.torch_mode": "torch",
    "tilesim.strategies": "hypothesis",
    "tilesim.tilelang": "torch",
    "tilesim.tilus": "tvm_ffi",
    "tilesim.triton": "triton",
}


def run(*command: str | Path, folder: Path, status: int = 0) -> str:
    """What a command prints that ends with ``status``; its environment names no other tilesim."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, f"{done.stdout}{done.stderr}"
    return done.stdout


def required(requirements: list[str]) -> dict[str, str]:
    """What requirements ask for: the least version of each name."""
    return dict(one.split(">=") for one in requirements)


def needed(names: set[str]) -> set[str]:
    """Distributions, and those that they need without an extra."""
    found: set[str] = set()
    while names:
        found |= names
        lines = [line for name in names for line in distribution(name).requires or ()]
        names = {re.split(r"[^\w.-]", line)[0] for line in lines if ";" not in line} - found
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the unpacked source distribution makes."""
    folder = tmp_path_factory.mktemp("release")
    build = (sys.executable, "-m", "hatchling", "build")
    run(*build, "--target", "sdist", "--directory", folder, folder=ROOT)
    with tarfile.open(folder / f"tilesim-{__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    source = folder / f"tilesim-{__version__}"
    for name in ("CITATION.cff", "LICENSE", "action.yml", "dev.py", "tests/test_release.py"):
        assert (source / name).is_file()
    run(*build, "--target", "wheel", "--directory", folder, folder=source)
    return folder / WHEEL


@pytest.fixture(scope="module")
def clean(wheel: Path) -> Path:
    """The folder of the commands of an environment with the wheel and what it says it needs.

    Nothing is downloaded: what it needs is linked from the environment of the tests.
    """
    folder = wheel.parent / "clean"
    venv.create(folder)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(commands / "python", "-c", where, folder=folder).strip())
    for name in needed(set(required(PROJECT["dependencies"]))):
        one = distribution(name)
        for top in {path.parts[0] for path in one.files or () if ".." not in path.parts}:
            if top != "__pycache__":
                (packages / top).symlink_to(Path(str(one.locate_file(top))))
    run(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", commands / "python",
        "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel, folder=folder,
    )  # fmt: skip
    return commands


def test_the_wheel_has_all_files_of_the_package_and_no_others(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        inside = {one.filename: one.file_size for one in archive.infolist()}
    about = f"tilesim-{__version__}.dist-info"
    package = {
        path.relative_to(ROOT).as_posix()
        for folder in ("tilesim", "_tilesim_triton")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in inside if not name.startswith(about)} == {
        *package, "_tilesim_pytest.py"
    }  # fmt: skip
    assert f"{about}/licenses/LICENSE" in inside
    assert wheel.stat().st_size < MOST_OF_WHEEL
    assert sum(inside.values()) < MOST_INSTALLED


def test_it_works_with_what_it_says_it_needs(clean: Path, tmp_path: Path) -> None:
    command = clean / "tilesim"
    assert run(command, "--version", folder=tmp_path) == f"tilesim {__version__}\n"
    kernel = tmp_path / "pipeline.py"
    kernel.write_text((ROOT / "examples" / "pipeline.py").read_text())
    right = run(command, "check", kernel.name, "--param", "fixed=true", folder=tmp_path)
    assert right.startswith("PROVED pipeline.py::pipeline[fixed=True]")
    page = tmp_path / "page.html"
    wrong = "check", kernel.name, "--html", page, "--suggest"
    assert "  repair " in run(command, *wrong, folder=tmp_path, status=1)
    assert page.read_text().startswith("<!DOCTYPE html>")
    about = "import tilesim, importlib.metadata as m; print(tilesim.__file__, m.version('tilesim'))"
    file, version = run(clean / "python", "-c", about, folder=tmp_path).split()
    assert Path(file).is_relative_to(clean.parent)
    assert version == __version__


def test_modules_load_without_extras(clean: Path, tmp_path: Path) -> None:
    script = """
import importlib, pkgutil, tilesim
for one in pkgutil.walk_packages(tilesim.__path__, "tilesim."):
    if not one.name.endswith("__main__"):
        try:
            importlib.import_module(one.name)
        except ImportError as error:
            print(one.name, error.name)
"""
    missing = dict(
        map(str.split, run(clean / "python", "-c", script, folder=tmp_path).splitlines())
    )
    assert [
        (module, name)
        for module, name in missing.items()
        if not any(f"{module}.".startswith(f"{o}.") and name == n for o, n in OTHERS.items())
    ] == []


def test_versions_agree() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+) \((\S+)\)$", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__
    assert f"rev: v{__version__}\n" in (ROOT / "docs" / "ci.md").read_text()
    citation = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert str(citation["date-released"]) == newest[2]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]


def test_the_conda_recipe_says_what_the_project_says() -> None:
    recipe = pytest.importorskip("yaml").safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    build, requirements = recipe["build"], recipe["requirements"]
    assert recipe["context"]["version"] == __version__
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    assert [one for one in requirements["run"] if not one.startswith("python ")] == [
        one.replace(">=", " >=") for one in PROJECT["dependencies"]
    ]
    assert build["python"]["entry_points"] == [
        f"{name} = {place}" for name, place in PROJECT["scripts"].items()
    ]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
