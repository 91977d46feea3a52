"""Tokens: what an arrive returns and a wait takes back (SEMANTICS A.4, A19, A20).

A token is opaque. It names one phase of one barrier, the object at an address of a CTA between an
mbarrier.init and its mbarrier.inval. It is passed on as a number, through registers and memory; a
number that no arrive has returned is no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.misuse import Side

#: the numbers of consecutive tokens are far apart, so that arithmetic on one does not give another
_SPREAD = 0x9E3779B97F4A7C15
_BITS = (1 << 63) - 1


class Token(NamedTuple):
    """What the arrive ``by`` returned: the phase (over all lives of ``barrier``) and how many
    arrivals were pending, which only a .noComplete form tells (``counted``)."""

    barrier: Mbarrier
    phase: int
    pending: int
    counted: bool
    by: Side


class Tokens:
    """The tokens of a run, by their numbers."""

    def __init__(self) -> None:
        self._issued: dict[int, Token] = {}

    def issue(self, token: Token) -> int:
        """The number that stands for ``token`` in a 64-bit register."""
        number = (len(self._issued) + 1) * _SPREAD & _BITS
        self._issued[number] = token
        return number

    def find(self, number: int) -> Token | None:
        """The token with this number, None if there is none."""
        return self._issued.get(number)
