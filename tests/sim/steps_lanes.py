"""Steps of programs of lanes (family ``lanes``): every lane that is active executes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.sim.steps import Arrive, ArriveExpect, Complete, Expect, Later, Step, Wait

#: instructions that lanes execute together, and that tell none of them what others know
Gathering = Literal["any", "ballot", "match", "redux", "shfl", "elect"]


@dataclass(frozen=True)
class Lanes:
    """A branch: the active lanes from ``low`` to before ``high`` execute ``body``, others
    ``orelse``. All meet at the end if the whole warp came here (as emitted code does), or go on
    parted if not ``meets``."""

    low: int
    high: int
    body: tuple[Step, ...]
    orelse: tuple[Step, ...] = ()
    meets: bool = True


@dataclass(frozen=True)
class Elect:
    """The whole warp meets, the first lane executes ``body``, and the warp meets again; or, if not
    ``meets``, it is gathered by the election and goes on parted."""

    body: tuple[Step, ...]
    meets: bool = True


@dataclass(frozen=True)
class Gather:
    """vote.sync, match.sync, redux.sync, shfl.sync or elect.sync of the lanes that are here: they
    wait for each other and learn nothing. ``used``: a branch depends on the result."""

    kind: Gathering
    used: bool = False


@dataclass(frozen=True)
class WarpSync:
    """bar.warp.sync of the lanes that are here."""


@dataclass(frozen=True)
class Own:
    """A step on a barrier that executes as many places further on as the lane's number says."""

    step: Arrive | ArriveExpect | Expect | Complete | Later | Wait


@dataclass(frozen=True)
class CpAsync:
    """cp.async of each lane into its own cell of a word."""

    word: int


@dataclass(frozen=True)
class CpWait:
    """cp.async.wait_all."""
