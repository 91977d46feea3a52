"""Why SASS may differ from PTX without harm: named rules, each with what it looks for.

What no rule explains is lost. A rule that cannot be sure leaves it undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from tilesim.cubin.sass import WIDTH, Instruction
from tilesim.ptx.constants import Constants, read_by, set_by
from tilesim.ptx.inline import At, Kernel, Not, Step
from tilesim.ptx.liveness import targets
from tilesim.records import dataclass
from tilesim.translation import classes
from tilesim.translation.classes import LOADS, Kind
from tilesim.translation.dead_products import PRODUCTS, PURE, dead_products
from tilesim.translation.pairing import text
from tilesim.translation.relations import Passing, Relation
from tilesim.translation.subject import Subject
from tilesim.translation.validation import Outcome


@dataclass(frozen=True)
class Judgement:
    """What is said of a relation that the SASS does not show, by which rule, and why."""

    outcome: Literal["explained", "lost", "undecided"]
    rule: str
    why: str


def without_sass(subject: Subject, event: int) -> tuple[Outcome, str]:
    """What became of an instruction that has no SASS of its own, and why."""
    kind = subject.masks.kinds[event]
    if kind.absent:
        return "not shown in SASS", kind.absent
    steps = [pair.step for pair in subject.pairs[event]]
    kernel = subject.translation.ptx
    if all(guard_is_false(kernel, step) for step in steps):
        return "deleted", "its guard is never true"
    if kind.name in PRODUCTS and all(
        pair.number in dead_products(kernel) for pair in subject.pairs[event]
    ):
        return "deleted", "its results are not used"
    other = merged_arrival(subject, event)
    if other is not None:
        line = subject.events[other][0]
        return "merged", (
            f"its bytes are expected by the arrival of line {line}, which is pending until then"
        )
    if kind.name == "wgmma.fence" and is_serialised(subject, event):
        return "strengthened", "ptxas serialises its wgmmas, with a fence before each (C7510)"
    if kind.name == "wgmma.wait" and is_waited_for(subject, event):
        return "strengthened", "ptxas serialises wgmmas: other waits there are for all of them"
    if kind.name == "setmaxnreg" and not any(
        kind.name == "setmaxnreg"
        for event, kind in enumerate(subject.masks.kinds)
        if event in subject.sass.copies
    ):
        return "deleted", "ptxas ignores all of them, as it says (C7508)"
    if kind.idempotent:
        other = neighbour(subject, event)
        if other is not None:
            line = subject.events[other][0]
            return "merged", f"nothing is between it and that of line {line}, which does the same"
    return "lost", "no SASS instruction comes from it"


def judge(
    subject: Subject, relation: Relation, missing: Mapping[int, Collection[int]]
) -> Judgement:
    """What is said of a relation that the SASS does not show; ``missing`` are the events Y of all
    such relations by their X."""
    kinds = {subject.masks.kinds[event].name for event in (relation.first, relation.second)}
    if kinds & _OF_MBARRIER and kinds & _OF_TENSOR_MEMORY:
        return Judgement(
            "explained", "other memory", "one of the two works on an mbarrier, the other does not"
        )
    if kinds == {"wgmma.fence", "fence.proxy.async"}:
        return Judgement(
            "explained", "two fences", "one is for registers, the other for shared memory"
        )
    if "bulk.commit" in kinds and kinds & _OF_NO_BULK_GROUP:
        return Judgement(
            "explained", "bulk group", "a commit is of earlier bulk copies, which the other is not"
        )
    if "cp.async.commit" in kinds and kinds & _OF_NO_GROUP:
        return Judgement(
            "explained", "group", "a commit is of earlier cp.async, which the other is not"
        )
    if kinds & _TENSOR_MEMORY_ALONE and kinds & _NO_TENSOR_MEMORY:
        return Judgement(
            "explained", "other memory", "one of the two is for tensor memory, the other is not"
        )
    if kinds == {"bulk.wait", "ld.shared"}:
        return Judgement(
            "explained", "two reads", "of shared memory bulk copies of a group only read"
        )
    reads = [pair.step.qualifiers for pair in subject.pairs[relation.first]]
    if "bulk.wait" in kinds and kinds & _OF_GLOBAL and all("read" in one for one in reads):
        return Judgement(
            "explained", "read sources", "the wait is for shared memory that bulk copies read"
        )
    statement = relation.statement
    if statement == "never behind":
        return Judgement("lost", "every path", "ptxas has moved it there")
    if subject.masks.kinds[relation.first].name == "wgmma.wait" and subject.sass.shown_if_passed(
        statement, relation.first, relation.second, waits_for_all(subject)
    ):
        return Judgement(
            "explained", "stricter wait", "another wait there is for all groups of wgmmas"
        )
    if relation.kind == "release" and is_left_out(subject, relation):
        return Judgement("explained", "unused load", "where it is left out its result is not used")
    loop = unrolled_loop(subject, relation, statement, missing[relation.first])
    if loop:
        return Judgement(
            "undecided", "unrolled loop",
            f"ptxas unrolled the loop of PTX line {loop}, and tests before it whether it runs: "
            "that it does is not seen in control flow",
        )  # fmt: skip
    return Judgement("lost", "every path", "ptxas has moved or removed it there")


# ---------------------------------------------------------------------- instructions


def guard_is_false(kernel: Kernel, step: Step) -> bool:
    """Whether a guard is a constant by which the instruction is never executed."""
    if step.guard is None:
        return False
    negated = isinstance(step.guard, Not)
    register = step.guard.operand if isinstance(step.guard, Not) else step.guard
    constants = Constants(kernel, lambda *_: None, {})
    mask, value = constants.bits(register)
    return bool(mask & 1) and bool(value & 1) == negated


def waits_for_all(subject: Subject) -> list[int]:
    """The places of SASS that wait for all groups of wgmmas."""
    return [
        pc
        for pc, one in subject.translation.sass.code.items()
        if one.base == "WARPGROUP" and one.operands[-1:] == ("0x0",)
    ]


def is_waited_for(subject: Subject, event: int) -> bool:
    """Whether waits for all groups of wgmmas do what a wait without SASS does: one follows each
    wgmma that the PTX's wait follows, and one is between each wgmma and what the PTX's is before.
    On a path without a wgmma there is nothing to wait for."""
    places = waits_for_all(subject)
    facts = subject.sass.with_copies(event, places)
    wgmmas = [n for n, kind in enumerate(subject.masks.kinds) if kind.name == "wgmma"]
    nodes = [node for one in wgmmas for node in facts.copies.get(one, ())]
    entry = facts.graph.since(nodes, {})
    for second in facts.copies.keys() & subject.ptx.copies.keys() - {event}:
        after = subject.ptx.passed("after", second) or 0
        if second in wgmmas:
            if after >> event & 1 and not (facts.passed("after", second) or 0) >> event & 1:
                return False
            continue
        between = subject.ptx.passed("between", second) or 0
        before = subject.ptx.passed("before", second) or 0
        if (between | before) >> event & 1 and not all(
            facts.graph.until_since(node, nodes, entry) >> event & 1
            for node in facts.copies[second]
        ):
            return False
    return bool(places and nodes)


def is_serialised(subject: Subject, event: int) -> bool:
    """Whether each HGMMA of the wgmmas between a fence and the next one has its own fence before
    it, with no other HGMMA between."""
    code = subject.translation.sass.code
    steps = subject.translation.ptx.code
    lines: set[int] = set()
    for step in steps[subject.pairs[event][0].number + 1 :]:
        if step.opcode.startswith("wgmma.fence"):
            break
        if step.opcode.startswith("wgmma.mma_async"):
            lines.add(step.place.line)
    places = [
        copy.pc
        for same in subject.pairs
        for copy in same[0].copies
        if same[0].kind == "wgmma" and same[0].step.place.line in lines
    ]

    def is_fenced(pc: int) -> bool:
        for place in range(pc - WIDTH, -1, -WIDTH):
            one = code.get(place)
            if one is None or one.base in ("BRA", "EXIT") or "GMMA" in one.base:
                return False
            if one.base == "WARPGROUP" and "ARRIVE" in one.modifiers:
                return True
        return False

    return bool(places) and all(is_fenced(pc) for pc in places)


def is_elsewhere(subject: Subject, event: int) -> bool:
    """Whether an access without SASS has no result that is used, or every path of the PTX before
    it, or behind it, comes to one of its kind that has SASS before it comes to anything that
    synchronises: ptxas made one of the two, and their relations are the same."""
    kernel = subject.translation.ptx
    if all(pair.number in dead_products(kernel) for pair in subject.pairs[event]):
        return True
    nodes = subject.ptx.graph.text.nodes
    before: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        for other in node.successors:
            before.setdefault(other, []).append(number)
    behind = {number: list(node.successors) for number, node in enumerate(nodes)}
    return all(
        _comes_to_its_kind(subject, event, node, before)
        or _comes_to_its_kind(subject, event, node, behind)
        for node in subject.ptx.copies[event]
    )


def _comes_to_its_kind(
    subject: Subject, event: int, node: int, edges: Mapping[int, list[int]]
) -> bool:
    kinds = subject.masks.kinds
    seen: set[int] = set()
    todo = [*edges.get(node, ())]
    if not todo:
        return False
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        here = subject.ptx.graph.text.events[place]
        if any(
            kinds[other] is kinds[event] and other in subject.sass.copies and other != event
            for other in here
        ):
            continue
        if any(not kinds[other].access for other in here) or not edges.get(place):
            return False
        todo += edges[place]
    return True


def merged_arrival(subject: Subject, event: int) -> int | None:
    """Of an ``expect_tx`` without SASS: the arrival with ``expect_tx`` on the same mbarrier that
    follows on every path, with nothing on that mbarrier between that could complete its phase.

    Until that arrival the phase is pending: it does not matter when its bytes are expected.
    """
    pair = subject.pairs[event][0]
    step = pair.step
    if pair.kind != "mbarrier.arrive" or "expect_tx" not in step.qualifiers:
        return None
    if "arrive" in step.qualifiers:
        return None
    behind = subject.ptx.passed("after", event) or 0
    code = subject.translation.ptx.code
    address = {*read_by(step)}
    for number in range(pair.number + 1, len(code)):
        other = code[number]
        if not address.isdisjoint(register.name for register in set_by(other)):
            return None
        if other.base == "mbarrier" and _mbarrier(other) == _mbarrier(step):
            if "expect_tx" not in other.qualifiers:
                return None
            if "arrive" not in other.qualifiers:
                continue  # it completes no phase
            found = subject.events.index((other.place.line, "mbarrier.arrive"))
            present = found in subject.sass.copies
            return found if present and behind >> found & 1 else None
        if other.base in ("bra", "brx", "ret", "exit") and other.guard is None:
            return None
    return None


def _mbarrier(step: Step) -> object:
    return next((operand for operand in step.operands if isinstance(operand, At)), None)


def neighbour(subject: Subject, event: int) -> int | None:
    """Another instruction of the same opcode with SASS of its own, next to one in the PTX: only
    arithmetic is between them."""
    pair = subject.pairs[event][0]
    code = subject.translation.ptx.code
    entered = {place for step in code for place in targets(step)}
    at_number = {
        one.number: number
        for number, same in enumerate(subject.pairs)
        for one in same
    }  # fmt: skip
    for step in (1, -1):
        number = pair.number + step
        while 0 <= number < len(code):
            if step > 0 and number in entered:
                break
            other = code[number]
            found = at_number.get(number)
            if found is not None:
                same = other.opcode == pair.step.opcode and other.guard == pair.step.guard
                if same and found in subject.sass.copies:
                    return found
                break
            if other.base not in PURE or (step < 0 and number + 1 in entered):
                break
            number += step
    return None


# ---------------------------------------------------------------------- relations


def is_left_out(subject: Subject, relation: Relation) -> bool:
    """Whether a load that is not executed on each path to a release is not executed behind it
    instead: what the PTX passes between the release and the load on every path, the SASS does as
    well, or no path leads there from the release."""
    kind = subject.masks.kinds[relation.first]
    if kind.name not in LOADS:
        return False
    wanted = subject.ptx.from_to(relation.second, relation.first)
    found = subject.sass.from_to(relation.second, relation.first)
    if found is None:
        return True
    if wanted is None:
        return False
    wanted &= subject.masks.order & subject.sass.events
    return bool(wanted) and not wanted & ~found


def unrolled_loop(
    subject: Subject, relation: Relation, statement: Passing, missing: Collection[int]
) -> int | None:
    """The PTX line of the branch of a loop that ptxas unrolled, if a relation is not shown for that
    alone: its X stands in the loop, its Y does not, each path without X tests that branch, and no
    relation of X with what is in the loop (``missing``: with what one is) is missing."""
    if subject.masks.kinds[relation.first].name == "mbarrier.wait":
        return None  # it is a loop itself, which is tried at least once
    facts = subject.ptx
    text_of = facts.graph.text
    kernel = subject.translation.ptx
    numbers = [pair.number for pair in subject.pairs[relation.first]]
    for node, (place, _) in enumerate(text_of.nodes):
        step = kernel.code[place]
        goal = targets(step)
        if step.base != "bra" or step.guard is None or not goal or goal[0] > place:
            continue
        if node not in facts.graph.live:
            continue
        if not any(goal[0] <= number < place for number in numbers):
            continue
        inside = range(goal[0], place)
        if any(pair.number in inside for second in missing for pair in subject.pairs[second]):
            continue
        line = step.place.line
        guarded = [copy.pc for copy in subject.pairs[relation.first][0].copies if copy.guard]
        if subject.sass.shown_if_passed(statement, relation.first, relation.second, [
            *guarded, *(pc for pc, one in subject.translation.sass.code.items()
            if one.ptx == line and one.base == "BRA" and (one.guard or one.operands[1:]))
        ]):  # fmt: skip
            return line
    return None


#: kinds that work on one mbarrier and synchronise nothing else, and kinds that work on none
_OF_MBARRIER = frozenset({"mbarrier.init", "mbarrier.inval"})
#: what a group of bulk copies is not made of, and no wait for one
_OF_NO_BULK_GROUP = frozenset({"cp.async", "cp.async.commit", "cp.async.wait", "fence.proxy.async"})
#: what a group of ``cp.async`` is not made of, and no wait for one
_OF_NO_GROUP = frozenset({"bulk.store", "bulk.reduce", "bulk.wait", "fence.proxy.async"})
#: accesses to tensor memory by threads, and copies, groups and fences of other memory
_TENSOR_MEMORY_ALONE = frozenset({"tcgen05.ld", "tcgen05.st"})
_NO_TENSOR_MEMORY = frozenset({"bulk.store", "bulk.reduce", "bulk.commit", "bulk.wait",
    "cp.async", "cp.async.commit", "cp.async.wait", "fence.proxy.async"})  # fmt: skip
#: accesses to global memory alone
_OF_GLOBAL = frozenset({"ld.global", "st.global"})
_OF_TENSOR_MEMORY = frozenset({"tcgen05.ld", "tcgen05.st", "tcgen05.mma", "tcgen05.cp", "wgmma"})


# ---------------------------------------------------------------------- inserted


def why_inserted(one: Instruction, kinds: list[Kind]) -> str:
    """What a synchronising SASS instruction without PTX does at a line of these kinds; empty if it
    belongs to what ptxas makes of them."""
    names = {kind.name for kind in kinds}
    if any(kind.expanded for kind in kinds):
        return ""
    if one.base in ("MEMBAR", "FENCE") and names & classes.WITH_FENCE:
        return ""
    if one.base == "SYNCS" and names & {"mbarrier.arrive", "mbarrier.wait"}:
        return ""  # of cp.async.mbarrier.arrive: the pending count; of a wait with a time limit
    if one.base == "FENCE" and "mbarrier.init" in names:
        return "orders earlier accesses to the bytes of an mbarrier before its initialisation"
    written = text(one)
    if one.base == "WARPGROUP" and "ARRIVE" in one.modifiers:
        return "orders registers before a wgmma"
    if one.base == "WARPGROUP":
        return "waits for wgmmas that the PTX does not wait for there"
    if "GMMA" in one.base:
        return "is a wgmma without operands, or one that is not paired"
    if "LDGDEPBAR" in written and names & {"cp.async.wait", "cp.async.commit"}:
        return ""
    if one.base == "BAR" and "barrier.cluster.wait" in names:
        return "stands for the cluster barrier in a launch without clusters"
    if one.base == "DEPBAR":
        return "waits for copies, or for a scoreboard"
    return "synchronises more than the PTX"
