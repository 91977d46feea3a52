"""Loads through a cache that is not coherent with what the grid writes (SEMANTICS H25).

``ld.global.nc`` is for memory that is read-only for the duration of the kernel (PTX 9.7.9.9), and
so are constants and parameters. A store reaches that cache at the end of the kernel only: barriers,
fences, and acquires order nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.ir.effects import Reads
from tilesim.ir.frozen import kept

if TYPE_CHECKING:
    from tilesim.ir.mir import Mir
    from tilesim.ir.op import Op
    from tilesim.sim.machine.access import Access


@kept
def reads_noncoherently(op: Op) -> bool:
    """Whether what an instruction reads goes through that cache."""
    return any(isinstance(effect, Reads) and effect.noncoherent for effect in op.effects())


@kept
def has_noncoherent_loads(mir: Mir) -> bool:
    """Whether a program has such loads."""
    return any(effect.noncoherent for _, effect in mir.all_of(Reads))


def noncoherent(access: Access, record: Access) -> bool:
    """Whether one of two accesses to the same bytes is such a load and the other a write."""
    return any(
        not one.write and other.write and reads_noncoherently(one.op)
        for one, other in ((access, record), (record, access))
    )
