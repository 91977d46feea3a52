"""How findings about races name accesses, and what would order them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.findings.finding import NOTHING_STATED, Deed, Kind, Participant, Rule, Stated
from tilesim.records import replace
from tilesim.sim.machine.clock import GLOBAL, HALF, SHARED, Clock
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.unknown import first_of

if TYPE_CHECKING:
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import Memory
    from tilesim.sim.machine.word_order import Overlap

#: why two strong accesses race although their scopes include each other, and what helps
MIXED = (
    "both are strong, but they do not access the same element: one of another size, or at an "
    "address inside it (H2)",
    "access the bytes by elements of one size, or order the two by a release and an acquire",
)


def describe(access: Access, *, past: bool = False, noun: bool = False) -> str:
    """``producer (warp 4) writes``, or the asynchronous operation it issued."""
    if access.asynchronous or access.engine:
        subject = f"{access.op.mnemonic} of {access.warp}"
    else:
        subject = str(access.warp)
    if noun:
        return f"the {'write' if access.write else 'read'} by {subject} of"
    if past:
        return f"{subject} {'wrote' if access.write else 'read'}"
    return f"{subject} {'writes' if access.write else 'reads'}"


def remedy(pair: Overlap) -> str:
    """What would order two accesses."""
    access, record = pair.access, pair.record
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


def side_of(access: Access, footprint: Footprint) -> Participant:
    """One side of a race."""
    verb = "writes" if access.write else "reads"
    action = f"{verb} {footprint.name} by {access.op.mnemonic}"
    deed = Deed("writes" if access.write else "reads", footprint.named)
    side = access.warp.machine.participant(access.warp, action, access.op, deed)
    return replace(side, moment=(access.component, access.tick))


def missing_edge(pair: Overlap) -> tuple[Kind, str]:
    """Why nothing orders an access after an earlier one."""
    access, record = pair.access, pair.record
    if access.scope is not None and record.scope is not None:
        if access.asynchronous != record.asynchronous:
            return "race/proxies", (
                "both are strong, but one is an access of the generic and the other one of the "
                "async proxy (H2)"
            )
        return "race/scopes", (
            f"both are strong, but scope {record.scope} of the earlier and scope "
            f"{access.scope} of the later one do not include each other's thread (H2)"
        )
    if pair.foreign:
        return (
            "race/other-cluster",
            "the two CTAs are in different clusters and do not synchronise",
        )
    if pair.clock[record.component] >= record.tick:
        return "race/in-time-only", (
            "the two are ordered in time only: the operations between are relaxed, or their scope "
            "does not include the other side"
        )
    where = f"{record.op.mnemonic} at {record.op.loc}"
    if record.asynchronous or record.engine:
        if record.in_flight:
            return "race/in-flight", f"{where} is still in flight"
        return "race/unobserved", f"{where} has completed, unobserved"
    return (
        "race/unordered",
        "no chain of release and acquire operations leads from one to the other",
    )


def report_access(
    rule: Rule, access: Access, footprint: Footprint, text: str, fix: str,
    earlier: tuple[Access, Footprint] | None = None, *, notes: tuple[str, ...] = (),
    sides: tuple[Participant, ...] = (), kind: Kind | None = None, facts: Stated = NOTHING_STATED,
) -> None:  # fmt: skip
    """Reports an access, of which ``text`` says the rest, and an earlier one or other ``sides``."""
    if earlier is not None:
        sides = (side_of(*earlier), *sides)
    access.warp.machine.report(
        rule,
        f"{describe(access)} {footprint.name}{text}",
        (side_of(access, footprint), *sides),
        notes,
        fix,
        depends=first_of(access.warp.may_access, earlier and earlier[0].may_access),
        kind=kind,
        facts=facts,
    )


def report_pair(
    rule: Rule, pair: Overlap, text: str, fix: str, *notes: str, kind: Kind | None = None,
    facts: Stated = NOTHING_STATED,
) -> None:  # fmt: skip
    """Reports an access and an earlier one."""
    report_access(
        rule, pair.access, pair.footprint, text, fix, (pair.record, pair.other),
        notes=(f"memory: {pair.memory.label}", *notes), kind=kind, facts=facts,
    )  # fmt: skip


def in_no_order(pair: Overlap, kind: Kind, why: str, fix: str) -> None:
    """Reports an access that nothing orders after an earlier one."""
    before = f"{describe(pair.record, noun=True)} {pair.other.name}"
    facts = Stated((pair.footprint.named, pair.other.named))
    text = f" and nothing orders it after {before}"
    report_pair("race", pair, text, fix, why, kind=kind, facts=facts)


def _other_fence(pair: Overlap) -> tuple[str, ...]:
    """A note on a fence that lies on the way and does not order this memory."""
    record, rows = pair.record, pair.access.warp.components
    known = rows.rows(pair.clock, record.component)
    shared = pair.memory.mbarriers is not None
    if known[GLOBAL if shared else SHARED] >= record.tick:
        space = "shared" if shared else "global"
        return (f"a fence.proxy.async lies between, but not one for {space} memory (H9)",)
    others = [rows.own_row(rank) for rank in range(rows.own) if shared]
    if any(known[row] >= record.tick for row in others):
        return (
            "a fence.proxy.async lies between, but shared::cta is the memory of the CTA that "
            "executes it: this is another one's (H9)",
        )
    halves = [HALF, *(rows.own_half(rank) for rank in range(rows.own))]
    if any(known[row] >= record.tick for row in halves):
        return ("fence.proxy.async::generic.release needs the acquire at the other side (H10)",)
    return ()


def without_proxy_fence(pair: Overlap) -> None:
    """Reports accesses of two proxies that are synchronised without a proxy fence (H6, H11)."""
    report_pair(
        "proxy-fence", pair,
        f" after {describe(pair.record, past=True)} {pair.other.name}: they are synchronised, but "
        "no fence.proxy.async lies between the generic and the async proxy (H6, H11)",
        "execute fence.proxy.async after the generic access and before the "
        "synchronisation that leads to the asynchronous one, in every thread that made it",
        *_other_fence(pair), kind="proxy-fence/async",
    )  # fmt: skip


def overlaps_barrier(memory: Memory, footprint: Footprint, access: Access) -> None:
    """Reports an access to the bytes of a live mbarrier (A6)."""
    assert memory.mbarriers is not None
    for address in footprint.barriers:
        barrier = memory.mbarriers[address]
        init = barrier.init
        if barrier.live and init is not None:
            label, deed = barrier.label, Deed("touches", barrier.named)
            started = access.warp.machine.participant(
                init.warp, f"initialised {label}", init.op, deed
            )
            report_access(
                "barrier-lifetime", access, footprint,
                f", which overlaps the live mbarrier {label} (A6)",
                "mbarrier.inval the barrier (and synchronise) before its bytes are reused, or give "
                "it storage of its own",
                sides=(started,), facts=Stated((barrier.named,)),
            )  # fmt: skip


def folded(footprint: Footprint, access: Access) -> None:
    """Reports one weak write of elements that share bytes: nothing orders its parts (H6)."""
    report_access(
        "race", access, footprint,
        ", of which several elements lie at the same bytes: any of them may be written last",
        "give the tensor strides that keep its elements apart, or write each of them once",
        kind="race/one-store",
    )  # fmt: skip


def several_lanes(footprint: Footprint, access: Access, first: int, other: int) -> None:
    """Reports one weak store by lanes that write the same bytes: nothing orders them (H4, H23)."""
    report_access(
        "race", access, footprint,
        f", where lanes {first} and {other} of this one store write the same bytes: nothing orders "
        "them, either may be the last (H4, H23)",
        "let one lane store, or give each lane a place of its own",
        kind="race/one-store",
    )  # fmt: skip


def noncoherent_load(pair: Overlap) -> None:
    """Reports a load through the non-coherent cache of what the grid writes, in whichever order:
    nothing but the end of the kernel makes the write visible there (H25)."""
    report_pair(
        "noncoherent-load", pair,
        f" after {describe(pair.record, noun=True)} {pair.other.name}, and one of the two is a "
        "load through the non-coherent cache",
        "load it with ld.global, or write it in an earlier kernel",
        "no barrier or fence makes that cache see what its own grid writes: what "
        "ld.global.nc (__ldg, const __restrict__), ld.const and ld.param load is read-only "
        "while the kernel runs (H25)",
    )  # fmt: skip


def stores_to_constant(footprint: Footprint, access: Access) -> None:
    """Reports a store to a constant or a parameter, which is illegal (PTX 9.7.9.11), also if it is
    not read: of loads whose value is known before the kernel runs none is left to meet it (H25)."""
    report_access(
        "noncoherent-load", access, footprint, ", which is a constant or a parameter",
        "write to a variable in .global memory",
        notes=(
            "stores to constant memory are illegal, also through a generic address; what "
            "ld.const and ld.param load is read-only while the kernel runs (H25)",
        ),
    )  # fmt: skip


def check_dependency(machine: Core, footprint: Footprint, access: Access, clock: Clock) -> None:
    """An access to what the grid before this one uses comes after griddepcontrol.wait.

    Behind that the grid before has ended for all: a write needs no more than to come later in every
    schedule, as behind a copy that was issued then; a read must not be made before what it waits
    for, which an acquire says.
    """
    assert machine.dependency is not None
    row = 0 if access.write else machine.components.size
    if not clock[row + machine.dependency]:
        report_access(
            "race", access, footprint,
            ", which the grid before this one may still be using: no griddepcontrol.wait is "
            "ordered before it (D17)",
            "execute griddepcontrol.wait before the first use of what the earlier grid produces; "
            "launch_dependents publishes nothing",
            kind="race/earlier-grid",
        )  # fmt: skip
