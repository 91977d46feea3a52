"""``python -m tilesim.sim.rules``: prints ``docs/findings.md``."""

from __future__ import annotations

from tilesim.sim.rules import markdown

if __name__ == "__main__":
    print(markdown(), end="")
