"""What a campaign ran on."""

from __future__ import annotations

import subprocess
from datetime import date

from tilesim.version import __version__


def machine() -> dict[str, str]:
    """The GPU, its driver and the compiler, as far as they are there."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = {"gpu": "none", "driver": ""}
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
        name, _, driver = shown.strip().splitlines()[0].partition(", ")
        found = {"gpu": name, "driver": driver}
    except (OSError, IndexError, subprocess.TimeoutExpired):
        pass
    shown = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    release = shown.partition("release ")[2].partition(",")[0]
    return {**found, "nvcc": release, "tilesim": __version__, "date": date.today().isoformat()}
