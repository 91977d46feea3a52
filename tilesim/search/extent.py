"""What a check covers and how far it came, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tilesim.ir.program import Program
from tilesim.sim.explore import Exploration, Limits
from tilesim.sim.simulate import Run, Simulation
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


def extent(simulation: Simulation) -> str:
    """What running all clusters covers, in words."""
    program = simulation.program
    total, size = simulation.groups, program.cluster_size
    if simulation.together:
        return f"the whole grid of {program.ctas} CTAs"
    if total == 1:
        return "the CTA" if size == 1 else f"the cluster of {size} CTAs"
    return f"all {total} CTAs" if size == 1 else f"all {total} clusters of {size} CTAs"


def conditions(
    run: Run, program: Program, *, zero: Sequence[str], addressing: Sequence[str],
    steering: Sequence[str],
) -> str:  # fmt: skip
    """What a verdict takes for granted, each behind a semicolon: tensors that are ``zero`` at the
    start, those that addresses are taken from, and those whose contents steer."""
    text = f"; with {', '.join(zero)} zero at the start" if zero else ""
    if any(o.rounds for o in run.outcomes):
        text += "; float reductions round as their order has it"
    unknown = dict.fromkeys(source for o in run.outcomes for source in o.in_bounds)
    if unknown:
        text += f"; if the addresses are in bounds that are computed from {', '.join(unknown)}"
    if addressing:
        text += f"; if the addresses taken from {', '.join(addressing)} are in bounds"
    if steering:
        text += f"; for these contents of {', '.join(steering)}"
    if program.cluster_size > program.target.portable_cluster:
        text += f"; clusters of {program.cluster_size} CTAs are not portable (D15)"
    return text
