"""``python -m tilesim``."""

from __future__ import annotations

from tilesim.cli import main

if __name__ == "__main__":
    main(prog_name="tilesim")
