"""``tilesim`` and ``python -m tilesim``."""

from __future__ import annotations

from tilesim.cli import main as command
from tilesim.cli.streams import guard_streams
from tilesim.limits import patient_process


def main() -> None:
    """The command line, in a process of its own."""
    patient_process()
    guard_streams()
    command(prog_name="tilesim")


if __name__ == "__main__":
    main()
