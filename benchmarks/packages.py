"""Kernels in packages of the index: ``python -m benchmarks.packages FOLDER [PACKAGE...]``

Each package is installed with torch and tilesim into an environment of its own under FOLDER. Its
kernels are captured by calling its functions (`benchmarks.package_calls`), and checked as those of
`benchmarks.ptx_table`. Verdicts, times and what was unsupported go to standard output, as Markdown.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.ptx_table import HEAD, apart, launches

ROOT = Path(__file__).parent.parent
PACKAGES = ("liger-kernel", "fla-core", "cut-cross-entropy", "xformers", "bitsandbytes")


def capture(package: str, folder: Path) -> Path:
    """Installs a package and captures its kernels; where they are.

    Raises:
        subprocess.CalledProcessError: it cannot be installed here.
    """
    environment, captured = folder / "environment", folder / package
    python = str(environment / "bin" / "python")
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [python, "-m", "pip", "install", "--quiet", package, "torch", f"{ROOT}[triton]"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    calls = str(Path(__file__).with_name("package_calls.py"))
    command = [python, "-m", "tilesim", "capture", "-o", str(captured)]
    subprocess.run([*command, "--", python, calls, package], check=False, stdout=sys.stderr)
    return captured


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0)
    arguments = parser.parse_args()
    print(HEAD)
    for package in arguments.packages:
        captured = capture(package, arguments.folder / package)
        for path in launches(captured, arguments.each):
            lines = path.read_text().count("\n")
            cells = apart(path, arguments.limit)
            print(f"| {package} | {path.stem} | {lines} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
