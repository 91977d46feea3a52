"""How far an exploration came, in words."""

from __future__ import annotations

from tilesim.sim.explore import Exploration, Limits
from tilesim.words import count


def bounded_by(found: Exploration, limits: Limits) -> str:
    """What a bound on preemptions means for the schedules explored."""
    if limits.preemptions is None:
        return ""
    return f", {found.explored.schedules} of them explored with {_at_most(limits.preemptions)} each"


def why_stopped(found: Exploration, limits: Limits) -> tuple[str, ...]:
    """Why exploring is no proof, as far as that is due to its limits."""
    if found.stopped:
        done = count(found.explored.schedules, "schedule")
        return (f"exploration stopped after {done}: {found.stopped}",)
    if limits.preemptions is not None and found.frontier is None and not found.explored.exact:
        return (f"exploration was bounded to {_at_most(limits.preemptions)} per schedule",)
    return ()


def _at_most(preemptions: int) -> str:
    return f"at most {count(preemptions, 'preemption')}"
