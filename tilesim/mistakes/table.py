"""The table of mistakes: how a finding shows each of them, what mends it, what injects it."""

from __future__ import annotations

from tilesim.mistakes import (
    arrivals,
    barrier_use,
    barriers,
    control,
    fences,
    groups,
    operands,
    ordering,
    phases,
    release_acquire_paths,
    tx_bytes,
)
from tilesim.mistakes.barrier_use import COUNTED_RULES
from tilesim.mistakes.edits import FAMILIES
from tilesim.mistakes.faults import FAULTS, Mutant, mutants
from tilesim.mistakes.mistake import Mistake
from tilesim.mistakes.ordering import LANES_APART
from tilesim.mistakes.release_acquire_paths import RULES

__all__ = [
    "FAMILIES", "FAULTS", "MISTAKES", "TABLE", "TOPICS", "Mutant", "edits_for", "mutants",
]  # fmt: skip

#: the modules of topics: importing them registers their faults and their edits
TOPICS = (
    arrivals, barrier_use, barriers, control, fences, groups, operands, ordering, phases,
    release_acquire_paths, tx_bytes,
)  # fmt: skip

#: the mistakes that diagnoses know, in the order in which these are asked: the first that answers
#: counts
TABLE = (
    Mistake(groups.no_fence_of_registers, ("wgmma-order/no-fence",),
            ("wgmma", "move"), ("wgmma fence dropped", "wgmma wait dropped")),
    Mistake(groups.one_place, ("race",), ("data slot", "number", "mask")),
    Mistake(groups.by_all_lanes, ("tcgen05-order/lanes",),
            ("one lane", "participants", "condition"), ("every lane",)),
    Mistake(barriers.no_wait_there, (*RULES, "named-barrier"), ("arrival", "id", "meeting")),
    Mistake(arrivals.adds_its_own, ("deadlock",), ("names", "arrival")),
    Mistake(release_acquire_paths.too_narrow, ("race",), ("names",)),
    Mistake(ordering.no_barrier_before_release, RULES, ("meeting", "peer arrival")),
    Mistake(ordering.never_waited_for, RULES, ("trips", "phase", "slot", "missing wait")),
    Mistake(ordering.arrival_in_own_cta, (*RULES, "deadlock"),
            ("peer arrival", "rank", "mask", "slot")),
    Mistake(ordering.unobserved, (*RULES, "launch-control"),
            ("slot", "missing wait", "wait, not arrival"), ("wait dropped",)),
    Mistake(ordering.lanes_of_a_warp, LANES_APART, ("lanes", "meeting")),
    Mistake(ordering.before_the_grids, ("race/earlier-grid",), ("grid wait", "move")),
    Mistake(ordering.fence_of_maps, ("proxy-fence",), ("map fence", "move")),
    Mistake(release_acquire_paths.weak, RULES,
            ("names", "memory fence"), ("relaxed wait", "relaxed arrival")),
    Mistake(release_acquire_paths.stale_wait, (*RULES, "over-arrival", "async-at-exit"),
            ("phase", "slot", "number", "missing step", "missing arrival"), ("phase not carried",)),
    Mistake(release_acquire_paths.early_wait, RULES, ("phase", "slot"), ("wrong parity",)),
    Mistake(release_acquire_paths.other_slot, RULES,
            ("slot", "data slot", "number"), ("data of another slot", "barrier of another slot")),
    Mistake(groups.unfinished_group, (*RULES, "async-at-exit", "bulk-group"),
            ("pending", "group", "wgmma", "read", "move", "arrival"),
            ("store not awaited", "wrong group count", "group commit dropped",
             "group commit too early", "arrive before the group wait", "wgmma wait dropped")),
    Mistake(groups.unwaited_tensor_memory, ("tcgen05-order", "tmem-lifetime", "race"),
            ("tcgen05 fence", "move"), ("tcgen05 wait dropped",)),
    Mistake(groups.unfenced, ("tcgen05-order/no-fence",), ("tcgen05 fence", "move")),
    Mistake(groups.commit_of_another_thread, RULES,
            ("arrival", "participants", "move"), ("commit too early",)),
    Mistake(groups.commit_of_tensor_cores, RULES,
            ("arrival", "move"), ("commit without the operations",)),
    Mistake(groups.early_arrival, RULES, ("move", "slot", "data slot"), ("arrive too early",)),
    Mistake(groups.own_copy, RULES, ("missing wait", "move", "phase")),
    Mistake(groups.arrival_before_its_wait, (*RULES, "over-arrival"),
            ("move", "phase", "missing wait", "arrival too many"), ("arrive too early",)),
    Mistake(barrier_use.never_executed, ("deadlock", "uninitialised-barrier"),
            ("condition", "participants", "one lane", "trips"), ("dead predicate",)),
    Mistake(barrier_use.slots, COUNTED_RULES, ("slot", "number", "data slot")),
    Mistake(barrier_use.no_init, ("uninitialised-barrier",),
            ("missing init", "slot", "trips"), ("init dropped",)),
    Mistake(barrier_use.used_before_the_init, ("uninitialised-barrier",), ("meeting", "move")),
    Mistake(tx_bytes.bytes_of_a_phase, COUNTED_RULES,
            ("bytes", "arrival", "mask", "missing arrival", "count"),
            ("wrong bytes", "bytes not expected", "copy dropped", "wrong multicast mask")),
    Mistake(barriers.too_few_threads, (*RULES, "proxy-fence"), ("threads", "id", "meeting")),
    Mistake(barriers.unequal_counts, ("named-barrier",), ("threads",)),
    Mistake(barriers.other_counts, ("deadlock",), ("threads",)),
    Mistake(barriers.rounds, ("deadlock",),
            ("threads", "id", "participants", "meeting too many", "trips", "condition")),
    Mistake(barriers.no_other_warp, ("deadlock",),
            ("meeting too many", "threads", "condition", "participants", "names")),
    Mistake(arrivals.again_without_a_wait, ("over-arrival",),
            ("repeated", "phase", "missing wait", "one lane", "arrival too many", "count"),
            ("arrive duplicated", "wait dropped")),
    Mistake(phases.left_its_loop, ("deadlock",), ("condition", "trips", "missing arrival")),
    Mistake(arrivals.count_of_arrivals, COUNTED_RULES,
            ("peer arrival", "repeated", "count", "one lane", "wait, not arrival", "arrivals",
             "arrival", "arrival too many", "missing arrival", "participants", "condition"),
            ("wrong arrival count", "arrive duplicated", "every lane")),
    Mistake(arrivals.never_arrived, ("deadlock",),
            ("peer arrival", "slot", "arrival", "missing arrival", "rank", "condition",
             "one condition"),
            ("arrive dropped",)),
    Mistake(phases.parity_of_a_wait, ("deadlock",),
            ("phase", "missing step", "number", "slot"),
            ("wrong parity", "phase not carried", "barrier of another slot")),
    Mistake(phases.trips, ("deadlock",),
            ("trips", "condition", "missing arrival", "number"), ("uneven trips",)),
    Mistake(phases.without_a_peer, ("deadlock",),
            ("condition", "participants", "missing arrival", "arrival")),
    Mistake(phases.left_out, ("deadlock",),
            ("arrival", "other side", "condition", "one condition", "move", "missing arrival")),
    Mistake(phases.to_itself, ("deadlock",), ("slot", "rank")),
    Mistake(phases.used_up, ("deadlock",),
            ("phase", "missing arrival", "trips", "move", "arrival too many")),
    Mistake(ordering.another_value, ("deadlock",), ("slot", "condition", "trips", "number")),
    Mistake(ordering.no_barrier_after_acquire, ("race",), ("meeting",)),
    Mistake(ordering.landed, ("race/in-time-only",),
            ("missing wait", "meeting", "cluster barrier", "hand-over")),
    Mistake(ordering.not_asked, RULES,
            ("peer arrival", "missing arrival", "hand-over", "count", "participants")),
    Mistake(ordering.uneven, ("tmem-lifetime", "async-at-exit"),
            ("trips", "number", "missing wait"), ("uneven trips",)),
    Mistake(ordering.never_handed_on, RULES,
            ("peer arrival", "rank", "slot", "condition", "missing arrival", "arrival")),
    Mistake(ordering.not_in_this_iteration, RULES,
            ("missing wait", "wait, not arrival", "move", "trips", "condition")),
    Mistake(ordering.refilled, ("race",),
            ("missing wait", "phase", "one condition", "move", "hand-over", "peer arrival")),
    Mistake(ordering.no_wait, RULES,
            ("slot", "missing wait", "meeting", "hand-over", "cluster barrier")),
    Mistake(ordering.gap, RULES,
            ("meeting", "hand-over", "missing wait", "cluster barrier", "move"),
            ("named barrier dropped",)),
    Mistake(ordering.after_the_init, ("init-visibility",),
            ("init fence", "cluster barrier", "meeting", "names"),
            ("named barrier dropped", "mbarrier_init fence dropped")),
    Mistake(ordering.no_free_registers, ("register-pool",), ("registers",)),
    Mistake(ordering.generic_side, ("proxy-fence",),
            ("proxy fence", "move"), ("proxy fence dropped",)),
    Mistake(ordering.split_group, ("participation",),
            ("participants", "condition", "one lane", "names")),
    Mistake(ordering.uneven_rounds, ("peer-exit",), ("cluster barrier", "condition", "trips")),
    Mistake(ordering.not_drained, ("peer-exit",), ("missing wait", "cluster barrier", "trips")),
    Mistake(ordering.end_of_the_target, ("peer-exit",),
            ("cluster barrier", "names", "move"), ("cluster barrier dropped",)),
    Mistake(ordering.start_of_the_target, ("peer-start",),
            ("cluster barrier", "meeting", "move", "names"),
            ("cluster barrier dropped", "cluster barrier halved")),
    Mistake(ordering.never_freed, ("tmem-lifetime/not-freed",),
            ("allocation", "columns"), ("columns not freed",)),
    Mistake(ordering.before_the_inval, ("barrier-lifetime",),
            ("meeting", "move", "cluster barrier"), ("named barrier dropped",)),
)  # fmt: skip

#: by name (`Finding.diagnosis`)
MISTAKES = {mistake.name: mistake for mistake in TABLE}


#: families that mend what breaks a rule and has no diagnosis, by rule
_OTHER_MENDS: dict[str, tuple[str, ...]] = {
    "phase-alias": ("phase", "count", "slot", "missing arrival", "missing wait", "move"),
    "phase-ambiguity": ("phase", "count", "slot", "missing arrival", "missing wait", "move"),
    "participation": ("threads", "id", "meeting too many"),
    "out-of-bounds": ("edge", "rows", "slot", "data slot", "mask", "rank", "trips", "condition",
                      "number"),
    "barrier-lifetime": ("invalidate",),
    "tmem-lifetime": ("columns",),
    "register-pool": ("allocation", "participants"),
    "launch-control": ("request too many", "answer", "phase", "move", "arrival too many", "count",
                       "bytes"),
}  # fmt: skip


def edits_for(diagnosis: str) -> tuple[str, ...]:
    """The families of edits that mend what a diagnosis says, the likeliest first."""
    return MISTAKES[diagnosis].mend if diagnosis in MISTAKES else ()


def edits_for_rule(rule: str) -> tuple[str, ...]:
    """The families of edits that mend what may break a rule, the likeliest first."""
    mistakes = (m for m in TABLE if any(own.partition("/")[0] == rule for own in m.rules))
    found = (family for mistake in mistakes for family in mistake.mend)
    return tuple(dict.fromkeys((*found, *_OTHER_MENDS.get(rule, ()))))
