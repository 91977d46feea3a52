"""Which kinds of edits are tried first, by the rule that was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilesim.ir import effects as fx
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.repair import catalogue
from tilesim.repair.counted import COUNTED, counted
from tilesim.repair.edit import FAMILIES, Edit
from tilesim.repair.facts import Facts
from tilesim.repair.focus import Focus

_ARRIVALS = (
    "repeated", "count", "bytes", "phase", "arrival", "slot", "rank", "arrivals", "mask", "threads",
    "id",
    "arrival too many", "meeting too many", "missing step", "step too many", "number", "one lane",
    "trips", "condition", "participants",
)  # fmt: skip
_HAND_OVER = (
    "phase", "count", "bytes", "arrival", "pending", "read", "group", "threads", "slot", "number",
    "names", "wgmma", "side", "move", "missing wait", "meeting", "lanes", "missing step",
    "data slot",
)  # fmt: skip

#: by rule, the families of edits that its break suggests; the others come after them
SUGGESTED: dict[str, tuple[str, ...]] = {
    "deadlock": (*_ARRIVALS, "missing arrival", "move", "peer arrival"),
    "over-arrival": (*_ARRIVALS, "move"),
    "tx-mismatch": (*_ARRIVALS, "move", "missing arrival"),
    "phase-alias": (*_ARRIVALS, *_HAND_OVER, "missing arrival"),
    "phase-ambiguity": (*_ARRIVALS, *_HAND_OVER, "missing arrival"),
    "race": ("grid wait", *_HAND_OVER, "rank", "mask", "one lane", "hand-over", "proxy fence",
             "peer arrival"),
    "proxy-fence": ("proxy fence", "map fence", "memory fence", "move", "names", "side"),
    "tcgen05-order": ("tcgen05 fence", "side", "arrival", "phase", "count", "rank", "move",
                      "missing wait", "slot", "hand-over"),
    "uninitialised-barrier": ("missing init", "slot", "init fence", "cluster barrier", "meeting",
                              "move", "rank"),
    "init-visibility": ("init fence", "cluster barrier", "meeting", "names", "move"),
    "barrier-lifetime": ("invalidate", "meeting", "move", "end too many", "cluster barrier"),
    "peer-start": ("cluster barrier", "meeting", "move", "names"),
    "peer-exit": ("cluster barrier", "names", "move", "phase", "bytes", "count"),
    "tmem-lifetime": ("columns", "allocation", "cluster barrier", "meeting", "move", "hand-over",
                      "tcgen05 fence"),
    "participation": ("one lane", "threads", "id", "names", "participants", "condition",
                      "meeting too many"),
    "named-barrier": ("threads", "id", "meeting too many", "participants", "move", "meeting"),
    "bulk-group": ("pending", "group", "read", "move"),
    "wgmma-order": ("wgmma", "pending", "move"),
    "out-of-bounds": ("edge", "rows", "slot", "data slot", "mask", "rank", "trips", "condition",
                      "number"),
    "uninitialised-read": (*_HAND_OVER, "trips", "condition"),
    "async-at-exit": ("pending", "read", "group", "phase", "bytes", "count", "missing wait",
                      "trips", "wgmma", "move", "number"),
    "register-pool": ("registers", "side", "allocation", "participants", "end too many"),
    "launch-control": ("request too many", "answer", "phase", "move", "arrival too many", "count",
                       "bytes"),
}  # fmt: skip

#: by diagnosis (`Finding.diagnosis`), the families that mend what it says, the likeliest first
MENDED: dict[str, tuple[str, ...]] = {
    "unfinished_group": ("pending", "group", "wgmma", "read", "move", "arrival"),
    "by_all_lanes": ("one lane", "participants", "condition"),
    "unwaited_tensor_memory": ("tcgen05 fence", "move"),
    "commit_of_tensor_cores": ("arrival", "move"),
    "commit_of_another_thread": ("arrival", "participants", "move"),
    "adds_its_own": ("names", "arrival"),
    "unpublished": ("names", "memory fence"),
    "spoken_for": ("meeting", "peer arrival"),
    "not_asked": ("peer arrival", "missing arrival", "hand-over", "count", "participants"),
    "uneven_rounds": ("cluster barrier", "condition", "trips"),
    "last_phase": ("trips", "missing wait"),
    "landed": ("missing wait", "meeting", "cluster barrier", "hand-over"),
    "not_drained": ("missing wait", "cluster barrier", "trips"),
    "own_copy": ("missing wait", "move", "phase"),
    "early_answer": ("phase", "slot"),
    "early_arrival": ("move", "slot", "data slot"),
    "completed_before": ("slot", "phase"),
    "arrival_before_its_wait": ("move", "phase", "missing wait", "arrival too many"),
    "never_executed": ("condition", "participants", "one lane", "trips"),
    "slots": ("slot", "number", "data slot"),
    "bytes_of_a_phase": ("bytes", "arrival", "mask", "missing arrival", "count"),
    "no_init": ("missing init", "slot", "trips"),
    "too_few_threads": ("threads", "id", "meeting"),
    "unequal_counts": ("threads",),
    "nobody_waits_there": ("arrival", "id", "meeting"),
    "rounds": ("threads", "id", "participants", "meeting too many", "trips", "condition"),
    "nobody_else": ("meeting too many", "threads", "condition", "participants", "names"),
    "again_without_a_wait": ("repeated", "phase", "missing wait", "one lane",
                             "arrival too many", "count"),
    "count_of_arrivals": ("peer arrival", "repeated", "count", "one lane", "wait, not arrival",
                          "arrivals", "arrival", "arrival too many", "missing arrival",
                          "participants", "condition"),
    "never_handed_on": ("peer arrival", "rank", "slot", "condition", "missing arrival", "arrival"),
    "lanes_of_a_warp": ("lanes", "meeting"),
    "unobserved": ("slot", "missing wait", "wait, not arrival"),
    "stays_at_home": ("peer arrival", "rank", "slot", "count"),
    "told_elsewhere": ("peer arrival", "rank", "mask", "slot"),
    "never_waited_for": ("trips", "phase", "slot", "missing wait"),
    "refilled": ("missing wait", "phase", "move", "hand-over", "peer arrival"),
    "start_of_the_target": ("cluster barrier", "meeting", "move", "names"),
    "not_in_this_turn": ("missing wait", "wait, not arrival", "move", "trips", "condition"),
    "split_group": ("participants", "condition", "one lane", "names"),
    "no_wait": ("slot", "missing wait", "meeting", "hand-over", "cluster barrier"),
    "gap": ("meeting", "hand-over", "missing wait", "cluster barrier", "move"),
    "uneven": ("trips", "number", "missing wait"),
    "after_the_init": ("init fence", "cluster barrier", "meeting", "names"),
    "who_takes": ("registers", "allocation"),
    "generic_side": ("proxy fence", "move"),
    "end_of_the_target": ("cluster barrier", "names", "move"),
    "never_freed": ("allocation", "columns"),
    "before_the_inval": ("meeting", "move", "end too many", "cluster barrier"),
    "relaxed": ("names", "memory fence"),
    "no_arrival": ("phase", "missing arrival", "slot", "peer arrival"),
    "stale_wait": ("phase", "slot", "number", "missing step"),
    "early_wait": ("phase", "slot"),
    "other_slot": ("slot", "data slot", "number"),
    "not_every_time": ("condition", "missing arrival", "other arm", "count"),
    "nobody_arrives": ("peer arrival", "slot", "arrival", "missing arrival", "rank", "condition"),
    "parity_of_a_wait": ("phase", "missing step", "step too many", "number", "slot"),
    "trips": ("trips", "condition", "missing arrival", "number"),
    "left_out": ("arrival", "other arm", "move", "missing arrival"),
    "to_itself": ("slot", "rank"),
    "other_counts": ("threads",),
    "unfenced": ("tcgen05 fence", "move"),
    "slot_of_another_wait": ("data slot", "slot", "number"),
    "another_value": ("slot", "condition", "trips", "number"),
    "too_narrow": ("names",),
    "quiet_round": ("names",),
    "heard_for": ("meeting",),
    "one_place": ("data slot", "number", "mask"),
    "no_fence_of_registers": ("wgmma", "move"),
    "fence_of_maps": ("map fence", "move"),
    "used_before_the_init": ("meeting", "move"),
    "before_the_grids": ("grid wait", "move"),
    "used_up": ("phase", "missing arrival", "trips", "move", "arrival too many"),
}  # fmt: skip

assert set().union(*SUGGESTED.values(), *MENDED.values()) <= FAMILIES.keys(), catalogue


#: what makes an edit less likely: each further one at the same lines, a kind that only a further
#: finding suggests, one that none does
_VARIANT, _FURTHER, _OTHER = 0.25, 1, 3
#: what makes it likelier: a kind that mends the cause (less for each one before it), the line that
#: the cause names first
_MENDS, _LATER, _CULPRIT = 3, 0.25, 0.5


def _fits(facts: Facts, edit: Edit) -> bool:
    """Whether a program can have what an edit puts in: machine code has no regions, and nothing
    is put behind its end, where nobody comes."""
    return isinstance(facts.program, Program) or not any(
        not isinstance(what, Op | Control) or _ends(new[:place])
        for new in edit.instead.values() for place, what in enumerate(new)
    )  # fmt: skip


def _ends(before: tuple[object, ...]) -> bool:
    return any(
        isinstance(e, fx.Exits) for what in before if isinstance(what, Op) for e in what.effects()
    )  # fmt: skip


def candidates(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The edits to try, each once, the likeliest first: small, near to the finding, of a kind that
    its rule suggests, and not the tenth of its kind at the same place."""
    suggested = dict.fromkeys(SUGGESTED.get(focus.rule, ()))
    mends = {f: _MENDS - _LATER * n for n, f in enumerate(MENDED.get(focus.diagnosis, ()))}
    further = {f for rule in focus.rules[1:] for f in SUGGESTED.get(rule, ())}
    ranked: list[tuple[float, int, Edit, bool]] = []
    for name in [*suggested, *(f for f in FAMILIES if f not in suggested)]:
        unlikely = 0 if name in suggested else _FURTHER if name in further else _OTHER
        variants: Counter[object] = Counter()
        for edit in FAMILIES[name](facts, focus):
            if not _fits(facts, edit):
                continue
            cost: float = 2 * edit.size + focus.of_edit(edit.numbers)
            cost += -mends[name] if name in mends else unlikely
            cost -= _CULPRIT * (focus.culprit in edit.lines)
            cost += _VARIANT * variants[edit.lines]
            ranked.append((cost, len(ranked), edit, False))
            if name in mends and name in COUNTED:  # of another line, the init's
                ranked.append((cost + 2, len(ranked), edit, True))
            variants[edit.lines] += 1
    seen: set[object] = set()
    for _, _, single, together in sorted(ranked, key=lambda r: r[:2]):
        chosen = counted(facts, single) if together else single
        if chosen is None:
            continue
        key = tuple(sorted((n, repr(new)) for n, new in chosen.instead.items()))
        if key not in seen:
            seen.add(key)
            yield chosen
