"""``tilesim`` and ``python -m tilesim``."""

from __future__ import annotations

from tilesim.cli import main as command
from tilesim.limits import patient_process


def main() -> None:
    """The command line, in a process of its own."""
    patient_process()
    command(prog_name="tilesim")


if __name__ == "__main__":
    main()
