"""When two accesses are strong enough together not to race (SEMANTICS H2, H6)."""

from __future__ import annotations

from tilesim.sim.machine.access import Access
from tilesim.sim.machine.reduction import alike, reduction_form
from tilesim.sim.machine.release import mutual, narrower


def hides(access: Access, record: Access) -> bool:
    """Whether what conflicts with an earlier write conflicts with a strong one after it, too.

    What is strong can be unordered with the second and not race, and yet race with the first, if
    that is weak, of a narrower scope or of the other proxy (H2). And a reduction commutes with
    others, not with the store that comes before them.
    """
    assert access.scope is not None
    if record.scope is None or record.asynchronous != access.asynchronous:
        return False
    if record.warp.cta is not access.warp.cta:
        return False
    if narrower(access.scope, record.scope) != access.scope:
        return False
    return reduction_form(access.op) is None or alike(access.op, record.op)


def morally_strong(access: Access, record: Access) -> bool:
    """Whether both are strong, of one proxy, and each scope includes the other's thread (H2)."""
    if access.scope is None or record.scope is None:
        return False
    if access.asynchronous != record.asynchronous:
        return False
    return mutual(access.scope, access.warp.cta, record.scope, record.warp.cta)
