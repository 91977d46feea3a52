"""The conditions of the certificate, each with a way to switch it off in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.sim.comparison import Opinion, opinion
from tests.sim.steps import Small
from tilesim.analysis.taint import Drawn
from tilesim.checker import ticket_orders, verdict
from tilesim.checker.grid import Survey
from tilesim.checker.launch_control import LaunchPlans, Plan
from tilesim.checker.ticket_orders import OrderPlans
from tilesim.ir.op import Op
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.machine import completions, lane_groups, mbarrier
from tilesim.sim.machine.clock import NEVER, Clock, join
from tilesim.sim.machine.execute import words
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.result import Violation
from tilesim.sim.machine.simulate import Run
from tilesim.sim.machine.warp import Agent
from tilesim.sim.observers import certificate, monotone_accesses, phase_conditions, races
from tilesim.sim.observers.lane_races import LaneExchange
from tilesim.sim.observers.phase_conditions import Credit, PhaseRecord, Tail

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Ablation:
    """A condition, or a part of one: what it says, and how to do without it."""

    says: str
    patch: Patch


def without(ablation: Ablation, small: Small) -> Opinion:
    """What one run says of a program while the condition is off."""
    with pytest.MonkeyPatch.context() as patch:
        ablation.patch(patch)
        return opinion(small, full=False)


def _gone(owner: object, name: str, result: object = None) -> Patch:
    """The check does nothing."""
    return lambda patch: patch.setattr(owner, name, lambda *args, **kwargs: result)


def _early(*, asynchronous: bool) -> Patch:
    """Condition A without one kind of credit."""
    check = Mbarrier._check_early

    def partly(self: Mbarrier, credit: Credit, clock: Clock) -> None:
        if credit.asynchronous != asynchronous:
            check(self, credit, clock)

    return lambda patch: patch.setattr(Mbarrier, "_check_early", partly)


def _after_join(patch: pytest.MonkeyPatch) -> None:
    """Condition C1 with what the wait itself learns."""
    check = Mbarrier._check_pass

    def late(self: Mbarrier, warp: Warp, op: Op, clock: Clock, common: int) -> None:
        joined = clock.copy()
        join(joined, self.completed)
        check(self, warp, op, joined, common)

    patch.setattr(Mbarrier, "_check_pass", late)


def _last_phase(*, at_inval: bool) -> Patch:
    """Condition B of the last phase, not at mbarrier.inval; or only with bare expectations."""
    check, stop = Mbarrier.check_last_phase, Mbarrier.stop

    def partly(self: Mbarrier) -> None:
        if self.keeps_clocks:
            check(self)

    def silently(self: Mbarrier, warp: Warp, op: Op) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Mbarrier, "check_last_phase", lambda self: None)
            stop(self, warp, op)

    if at_inval:
        return lambda patch: patch.setattr(Mbarrier, "stop", silently)
    return lambda patch: patch.setattr(Mbarrier, "check_last_phase", partly)


def _open_phase(patch: pytest.MonkeyPatch) -> None:
    """Condition I without the copies that completed in the open phase."""
    check = Mbarrier._check_over

    def partly(self: Mbarrier, warp: Warp, op: Op, clock: Clock) -> None:
        credits = [c for c in self.current.credits if not c.asynchronous]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.current, "credits", credits)
            check(self, warp, op, clock)

    patch.setattr(Mbarrier, "_check_over", partly)


def _silent(*starts: str) -> Patch:
    """Condition D without what begins like this."""
    note = Machine.nondeterministic

    def partly(
        self: Machine, what: str, where: Op, *, explorable: bool = True, contended: bool = True
    ) -> None:
        if not what.startswith(starts):
            note(self, what, where, explorable=explorable, contended=contended)

    return lambda patch: patch.setattr(Machine, "nondeterministic", partly)


def _slicing(clause: str) -> Patch:
    """Arrivals are taken as unobserved without this clause."""

    def unobservable(violation: Violation, barrier: object) -> bool:
        if violation.condition != "A" or not isinstance(barrier, Mbarrier):
            return False
        tail = barrier.tail
        clauses = {
            "no waits": not barrier.waited or (tail is not None and tail.hidden),
            "no bytes": not barrier.uses_tx,
            "one life": barrier.base == 0,
            "one size": len(barrier._sizes) == 1,
            "no drops": not barrier._irregular,
        }
        return all(holds for name, holds in clauses.items() if name != clause)

    return lambda patch: patch.setattr(certificate, "_unobservable", unobservable)


def _tail(**settings: int) -> Patch:
    """The tail of a barrier with other arguments."""
    init = Tail.__init__

    def changed(self: Tail, component: int, done: int, last: PhaseRecord, count: int) -> None:
        init(self, component, settings.get("done", done), last, settings.get("count", count))

    return lambda patch: patch.setattr(Tail, "__init__", changed)


def _tail_at_begin(patch: pytest.MonkeyPatch) -> None:
    """A tail begins although a wait has passed on its first phase."""
    begin = Mbarrier._begin_tail

    def blind(self: Mbarrier) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.previous, "waits", [])
            begin(self)

    patch.setattr(Mbarrier, "_begin_tail", blind)


def _tail_later(patch: pytest.MonkeyPatch) -> None:
    """A tail stays hidden although a wait passes on it."""
    passed = Mbarrier.passed

    def blind(self: Mbarrier, warp: Warp, op: Op, clock: Clock) -> None:
        tail, self.tail = self.tail, None
        passed(self, warp, op, clock)
        self.tail = tail

    patch.setattr(Mbarrier, "passed", blind)


def _one_credit(patch: pytest.MonkeyPatch) -> None:
    """What lanes of one instruction do to a barrier is one credit."""
    apply = Mbarrier.credit

    def whole(
        self: Mbarrier, credit: Credit, clock: Clock, *, visible: bool, drop: int = 0
    ) -> None:
        apply(self, replace(credit, lanes=1), clock, visible=visible, drop=drop)

    patch.setattr(Mbarrier, "credit", whole)


def _all_known(patch: pytest.MonkeyPatch) -> None:
    """Lanes know what the others of their warp did and learned, as they do where they have met."""
    patch.setattr(lane_groups, "limited", lambda clock, settled, size: clock.copy())


def _any_component(patch: pytest.MonkeyPatch) -> None:
    """Lanes that part get whatever component is free."""
    patch.setattr(lane_groups.Parts, "_spare", lambda self, part: self._spares.popitem()[0])


def jointly(w: Warp, keys: list[int], act: Callable[[int], object]) -> None:
    """What lanes of different words do, all of them do."""
    for key in sorted(set(keys)):
        act(key)


def _words_in_common(patch: pytest.MonkeyPatch) -> None:
    """What lanes tell and learn at words of their own, all of them do."""
    patch.setattr(words, "_by_lanes", lambda *args, **kwargs: False)
    patch.setattr(Agent, "shared_by_lanes", lambda self, clock: clock)
    patch.setattr(words, "in_groups", jointly)
    patch.setattr(monotone_accesses, "in_groups", jointly)


def _one_order(name: str) -> Patch:
    """The order of the timed run stands for all orders of this kind."""

    def none(self: OrderPlans, *tiles: int) -> Iterator[tuple[Plan, Run]]:
        self._say("taken for granted")
        return iter(())

    return lambda patch: patch.setattr(OrderPlans, name, none)


def _taken_for_numbers(patch: pytest.MonkeyPatch) -> None:
    """What numbers steer otherwise than by comparisons is not looked at."""
    decide = Drawn.__init__

    def blind(self: Drawn, *args: Any, **kwargs: Any) -> None:
        decide(self, *args, **kwargs)
        self.steers, self.periods = {}, {}

    patch.setattr(Drawn, "__init__", blind)


def _nothing_before(patch: pytest.MonkeyPatch) -> None:
    """An arrival publishes nothing of its own warp."""
    covers = phase_conditions._covers

    def blind(clock: Clock, credit: Credit) -> bool:
        credit.position = 0
        return covers(clock, credit)

    patch.setattr(phase_conditions, "_covers", blind)


class _AllBytes:
    """In place of a set of bytes: whatever it is made of, it has all bytes."""

    @classmethod
    def union(cls, parts: Iterable[object]) -> _AllBytes:
        return cls()

    def contains(self, other: object) -> bool:
        return True


#: every condition and every part of one that stands on its own
ABLATIONS: dict[str, Ablation] = {
    "A of arrivals": Ablation(
        "arrivals and expectations come after the phase before", _early(asynchronous=False)
    ),
    "A of copies": Ablation(
        "completions come after the phase before, by what their issuer knew",
        _early(asynchronous=True),
    ),
    "B": Ablation(
        "no part of a phase has all arrivals and its bytes in balance",
        _gone(phase_conditions, "_balanced_part"),
    ),
    "B ending": Ablation(
        "a bare expect_tx does not end a phase", _gone(phase_conditions, "_ending_expect")
    ),
    "B borrowed": Ablation(
        "an arrival that is expected on issue is so before the phase can end",
        _gone(phase_conditions, "_borrowed"),
    ),
    "B last": Ablation(
        "the last phase cannot complete in another order", _gone(Mbarrier, "check_last_phase")
    ),
    "B last, bytes too many": Ablation(
        "nor if more bytes come than were expected", _last_phase(at_inval=False)
    ),
    "B last, at inval": Ablation("nor before mbarrier.inval", _last_phase(at_inval=True)),
    "C1": Ablation("a wait does not pass a phase pair early", _gone(Mbarrier, "_check_pass")),
    "C1 before the join": Ablation("by what it knew before it passed", _after_join),
    "C1 of peeks": Ablation("nor does a look that makes it needless", _gone(Mbarrier, "peeked")),
    "C2": Ablation("a wait does not miss its phase", _gone(Mbarrier, "_check_missed")),
    "N": Ablation(
        "a join comes after the round before", _gone(NamedBarrier, "_check_generation")
    ),
    "I": Ablation("everything comes before mbarrier.inval", _gone(Mbarrier, "_check_over")),
    "I of the open phase": Ablation("also what completed in the open phase", _open_phase),
    "I of peeks": Ablation("also looks that were no waits", _gone(Mbarrier, "looked")),
    "I of copies": Ablation(
        "a copy lands in the life it was issued in", _gone(Mbarrier, "_check_lifetime")
    ),
    "T": Ablation("no order leaves the range of bytes", _gone(PhaseRecord, "add_bytes", 0)),
    "R": Ablation(
        "nor the range of arrivals that are pending", _gone(mbarrier, "most_pending", 0)
    ),
    "P": Ablation("a .noComplete arrival is not the last", _gone(mbarrier, "last_partial")),
    "D of polls": Ablation(
        "the answer of a poll is the same in every schedule", _silent("the answer")
    ),
    "D of peeks": Ablation("a peek and its wait ask the same", _silent("whether mbarrier")),
    "D of counts": Ablation("so is the pending count of a token", _silent("the pending count")),
    "D of atomics": Ablation("so is the result of an atomic", _silent("the result of atom")),
    "D of flags": Ablation("so is what a strong load reads", _silent("unordered strong")),
    "D of registers": Ablation("every setmaxnreg.inc is granted", _silent("which setmaxnreg")),
    "D of columns": Ablation(
        "tcgen05.alloc returns the same columns", _silent("which columns", "the address")
    ),
    "D of permits": Ablation(
        "and comes before the permit is given up", _silent("whether an alloc")
    ),
    "D of lanes": Ablation(
        "of lanes that store to one place the same one stays", _silent("which lane's value")
    ),
    "D of inputs": Ablation(
        "inputs that steer are given", _gone(verdict.Checking, "_untold", ())
    ),
    **{
        f"unobserved: {clause}": Ablation(says, _slicing(clause))
        for clause, says in {
            "no waits": "nobody waits on the barrier, or from some phase on not any more",
            "no bytes": "it counts no bytes",
            "one life": "it is never invalidated",
            "one size": "all arrivals are of one size",
            "no drops": "nobody drops, or sees whether it is the last",
        }.items()
    },
    "tail: not waited for": Ablation("no wait has passed on its first phase", _tail_at_begin),
    "tail: never waited for": Ablation("and none passes later", _tail_later),
    "tail: at the end": Ablation("it comes after the phases that are waited for", _tail(done=0)),
    "tail: no miss": Ablation(
        "what need not come after the last waits ends no phase", _tail(count=1 << 30)
    ),
    "lanes: one by one": Ablation("lanes of one instruction are credits of their own", _one_credit),
    "lanes: what each knows": Ablation(
        "lanes that part know of each other what is settled", _all_known
    ),
    "lanes: ahead of others": Ablation(
        "lanes that act as one come after what others of them did where they have met, or somebody "
        "has followed them all",
        lambda patch: patch.setattr(Agent, "common", NEVER),
    ),
    "lanes: places": Ablation(
        "and take over no component of which they do not know all", _any_component
    ),
    "lanes: words of their own": Ablation(
        "lanes that tell or learn at different words each do so for themselves", _words_in_common
    ),
    "lanes: one store": Ablation(
        "lanes of a store that leaves different numbers race",
        lambda patch: patch.setattr(races, "same_value", lambda m, one, two: one.op is two.op),
    ),
    "lanes: exchange": Ablation(
        "lanes that act as one are compared lane by lane", _gone(LaneExchange, "check")
    ),
    "lanes: exchange before a branch": Ablation(
        "also with what they did before they parted", _gone(LaneExchange, "check_split")
    ),
    "completions": Ablation(
        "a completed access vouches for what came before it on its own bytes alone",
        lambda patch: patch.setattr(completions, "ByteSet", _AllBytes),
    ),
    "orders: all": Ablation("numbers are drawn in every order", _one_order("_all")),
    "orders: last": Ablation(
        "each cluster that draws once draws the last number", _one_order("_each_once")
    ),
    "orders: tiles": Ablation(
        "each kind of cluster draws each number of tiles", _one_order("_any_number")
    ),
    "orders: meeting": Ablation(
        "clusters tell each other nothing but by drawing, if not all orders are tried",
        _gone(ticket_orders, "_meet_in", True),
    ),
    "orders: bounds": Ablation(
        "numbers that are drawn only choose addresses and are compared with fixed ones",
        _taken_for_numbers,
    ),
    "places: what is published": Ablation(
        "an arrival that counts for another phase publishes what those publish that it need not "
        "follow",
        _gone(phase_conditions, "_covers", True),
    ),
    "places: what came before": Ablation(
        "the accesses that its warp has made before it among them", _nothing_before
    ),
    "grids: residency": Ablation(
        "each cluster ends when no other has been started", _gone(verdict, "matters", result=False)
    ),
    "grids: answers": Ablation(
        "runs follow what launch control may answer", _gone(LaunchPlans, "runs", ())
    ),
    "grids: classes": Ablation(
        "clusters of one class execute the same", _gone(Follower, "leave")
    ),
    "grids: contacts": Ablation(
        "what clusters access in global memory is compared", _gone(Survey, "_compare", 0)
    ),
    "grids: tiles": Ablation(
        "and compare what clusters access that share the tiles out", _gone(LaunchPlans, "grids", ())
    ),
}  # fmt: skip
