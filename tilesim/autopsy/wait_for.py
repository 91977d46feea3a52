"""Which warps of a dump wait for what, what its state says is missing, and which could release it.

Read from the dump alone. Warps and CTAs that say the same are one entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.autopsy.core_dump import CoreDump, Cta, Grid
from tilesim.autopsy.waits import Group, Wait
from tilesim.cubin.sass import Function, Instruction
from tilesim.records import dataclass


@dataclass(frozen=True)
class Supply:
    """What could release a wait: groups at one place, the instructions ahead of them that would.

    ``certain``: each of these instructions names this barrier; otherwise its address is not known,
    and it may be another one. ``waits``: the groups wait themselves.
    """

    groups: tuple[Group, ...]
    instructions: tuple[Instruction, ...]
    certain: bool
    waits: bool


@dataclass(frozen=True)
class Entry:
    """Groups that wait for the same thing in the same way.

    ``groups``: the first CTA's first. ``state``: the barrier as it is in memory, and what it lacks,
    in lines of words. ``passing``: the state says that the wait is over. ``supplies``: what could
    release it. ``ctas``: the numbers of the CTAs that say the same.
    """

    groups: tuple[Group, ...]
    wait: Wait
    state: tuple[str, ...]
    passing: bool
    supplies: tuple[Supply, ...]
    ctas: tuple[int, ...]


@dataclass(frozen=True)
class WaitFor:
    """The wait-for graph of a dump: its entries, and the groups of a cycle, if there is one."""

    entries: tuple[Entry, ...]
    groups: tuple[Group, ...]
    cycle: tuple[Group, ...]


def wait_for(dump: CoreDump, functions: Mapping[Grid, Function]) -> WaitFor:
    """The graph of all CTAs whose kernels are known; ``functions`` has the code of each launch."""
    return WaitFor((), (), ())


def standing(dump: CoreDump, cta: Cta, function: Function) -> tuple[Group, ...]:
    """Where the warps of a CTA stand and what they wait for."""
    return ()
