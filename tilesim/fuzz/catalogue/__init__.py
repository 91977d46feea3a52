"""The catalogue of faults, one module per topic; importing it registers them."""

from tilesim.fuzz.catalogue import arrivals, control, copies, slots, waits

__all__ = ["arrivals", "control", "copies", "slots", "waits"]
