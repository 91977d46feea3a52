"""How findings about races name accesses, and what would order them."""

from __future__ import annotations

from tilesim.sim.machine.access import Access

#: why two strong accesses race although their scopes include each other, and what helps
MIXED = (
    "both are strong, but they do not access the same element: one of another size, or at an "
    "address inside it (H2)",
    "access the bytes by elements of one size, or order the two by a release and an acquire",
)


def describe(access: Access, *, past: bool = False, noun: bool = False) -> str:
    """``producer (warp 4) writes``, or the asynchronous operation it issued."""
    if access.asynchronous or access.engine:
        who = f"{access.op.mnemonic} of {access.warp}"
    else:
        who = str(access.warp)
    if noun:
        return f"the {'write' if access.write else 'read'} by {who} of"
    if past:
        return f"{who} {'wrote' if access.write else 'read'}"
    return f"{who} {'writes' if access.write else 'reads'}"


def remedy(record: Access, access: Access) -> str:
    """What would order ``record`` before ``access``."""
    strong = access.scope is not None and record.scope is not None
    if strong and access.asynchronous == record.asynchronous:
        return "give both a scope that includes the other: cluster within a cluster, else gpu"
    if record.asynchronous or record.engine:
        handoff = (
            "" if record.warp is access.warp else ", then a release that the other side acquires"
        )
        return f"complete the earlier operation first: {_completion(record)}{handoff}"
    return (
        "order the two: release after the first (mbarrier arrive, barrier, ...) and acquire it "
        "(wait, barrier.sync, ...) before the second"
    )


#: by kind of group: what completes its operations
_COMPLETIONS = {
    "wgmma": "wgmma.commit_group and wait_group",
    "tcgen05": "tcgen05.commit on an mbarrier and a wait for it",
    "cp.async": "cp.async.wait_group (or cp.async.mbarrier.arrive and a wait)",
    "bulk": "cp.async.bulk.commit_group and wait_group",
    "bulk.write": "cp.async.bulk.commit_group and wait_group",
}


def _completion(record: Access) -> str:
    """What completes an asynchronous operation: the group it is in, or else its mbarrier."""
    warp = record.warp
    for kind, group in (*warp.groups.items(), *warp.lane_groups.items()):
        if group.component == record.component and kind in _COMPLETIONS:
            return _COMPLETIONS[kind]
    return "a wait on its mbarrier"
