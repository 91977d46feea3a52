"""Steps of programs of several clusters (family ``grids``), which one lane of a warp executes.

A warp has one register: what its last `Ticket`, `Tiles` or `Query` gave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.sim.steps import Scope, Step

Sem = Literal["relaxed", "acquire", "release", "acq_rel"]


@dataclass(frozen=True)
class Put:
    """A weak store to a place of global memory; ``by``: so many further on as the register says."""

    place: int
    by: bool = False


@dataclass(frozen=True)
class Get:
    """A weak load of a place of global memory."""

    place: int
    by: bool = False


@dataclass(frozen=True)
class Ticket:
    """atom.add of 1 to a flag: the register becomes what it was."""

    flag: int
    sem: Sem = "relaxed"
    scope: Scope = "gpu"


@dataclass(frozen=True)
class SpinTicket:
    """Acquiring loads of a flag until it is what the register says, or more."""

    flag: int


@dataclass(frozen=True)
class If:
    """``body`` if the register is ``value``."""

    value: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Tiles:
    """Takes tickets of a flag, and executes ``body`` with each below ``limit``; ends then."""

    flag: int
    limit: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Forever:
    """Repeats ``body`` until a `Leave` in it; steps on a ring and carried parities go with it."""

    body: tuple[Step, ...]


@dataclass(frozen=True)
class Leave:
    """Leaves the loop if the last `Query` found that nothing was cancelled."""


@dataclass(frozen=True)
class Cancel:
    """clusterlaunchcontrol.try_cancel into a slot of the CTA, with a word of bytes on a barrier."""

    slot: int
    barrier: int
    stages: int = 1


@dataclass(frozen=True)
class Query:
    """Reads a slot: the register becomes the first CTA of the cancelled cluster, if any is."""

    slot: int
    stages: int = 1
