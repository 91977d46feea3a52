"""Kernels in packages of the index: ``python -m benchmarks.packages FOLDER [PACKAGE...]``

One environment under FOLDER has torch and tilesim; each package is installed into a folder of its
own, without what it asks for (several ask for a torch of their own), and with what its functions
need to be imported. Its kernels are captured by calling them (`benchmarks.package_calls`), and
checked as those of `benchmarks.ptx_table`. Verdicts, times and what was unsupported go to standard
output, as Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.ptx_table import HEAD, apart, launches

ROOT = Path(__file__).parent.parent
#: what has to be there to import what is called
PACKAGES: dict[str, tuple[str, ...]] = {
    "bitsandbytes": ("packaging",),
    "conch-triton-kernels": (),
    "cut-cross-entropy": (),
    "fla-core": ("einops",),
    "flashinfer-python": ("apache-tvm-ffi", "nvidia-ml-py", "einops", "tqdm", "requests"),
    "liger-kernel": (),
    "lmdeploy": ("mmengine-lite", "transformers", "pydantic"),
    "torchao": (),
    "vllm": (
        "aiohttp", "cachetools", "cbor2", "cloudpickle", "msgspec", "psutil", "pydantic", "pyzmq",
        "regex", "requests", "tqdm", "transformers",
    ),
    "xformers": (),
}  # fmt: skip


def environment(folder: Path) -> str:
    """The interpreter of an environment with torch and this state of tilesim."""
    python = str(folder / "bin" / "python")
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install(python, "torch", f"{ROOT}[triton]")
    return python


def install(python: str, *what: str) -> None:
    """Packages of the index.

    Raises:
        subprocess.CalledProcessError: they cannot be installed here.
    """
    command = [python, "-m", "pip", "install", "--quiet", *what]
    subprocess.run(command, check=True, stdout=sys.stderr)


def capture(python: str, package: str, folder: Path) -> Path:
    """Installs a package and captures its kernels; where they are."""
    site, captured = folder / "site", folder / package
    if not site.exists():
        if PACKAGES[package]:
            install(python, *PACKAGES[package])
        install(python, "--no-deps", "--target", str(site), package)
    calls = str(Path(__file__).with_name("package_calls.py"))
    command = [python, "-m", "tilesim", "capture", "-o", str(captured), "--", python, calls]
    there = {**os.environ, "PYTHONPATH": str(site)}
    subprocess.run([*command, package], check=False, stdout=sys.stderr, env=there)
    return captured


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=[*PACKAGES])
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0)
    arguments = parser.parse_args()
    python = environment(arguments.folder / "environment")
    print(HEAD)
    for package in arguments.packages:
        captured = capture(python, package, arguments.folder / package)
        for path in launches(captured, arguments.each):
            lines = path.read_text().count("\n")
            cells = apart(path, arguments.limit)
            print(f"| {package} | {path.stem} | {lines} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
