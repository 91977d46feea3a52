"""What several fields of a machine's state have in common: clocks, positions in them, times."""

from __future__ import annotations

from typing import Any

from tilesim.sim.steady.snapshot import Writer


def left_out(out: Writer, owner: Any, value: Any) -> None:
    """Follows from the rest, or decides nothing."""


def clock(out: Writer, owner: Any, value: Any) -> None:
    out.clock(value)


def clocks(out: Writer, owner: Any, value: dict[Any, Any]) -> None:
    """Clocks by key."""
    out.token(len(value))
    for key, clock in value.items():
        out.write(key)
        out.clock(clock)


def time(out: Writer, owner: Any, value: float) -> None:
    out.time(value)


def at_component(out: Writer, owner: Any, value: int) -> None:
    """A position of the owner's ``component``."""
    out.position(owner.component, value)


def positions(out: Writer, owner: Any, value: dict[int, int]) -> None:
    """Positions by component."""
    out.token(tuple(value))
    for component, tick in value.items():
        out.position(component, tick)
