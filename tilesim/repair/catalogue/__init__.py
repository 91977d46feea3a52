"""The catalogue of repairs, the inverse of the catalogue of faults; importing it registers them."""

from tilesim.repair.catalogue import (
    answers,
    barriers,
    bounds,
    control,
    exchanges,
    fences,
    missing,
    moves,
    numbers,
    operands,
    peers,
    superfluous,
)

__all__ = [
    "answers", "barriers", "bounds", "control", "exchanges", "fences", "missing", "moves",
    "numbers", "operands", "peers", "superfluous",
]  # fmt: skip
