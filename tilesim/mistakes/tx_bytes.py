"""Bytes of a phase: what instructions expect of a barrier, and what copies complete on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from tilesim.findings.finding import Named, Participant, Stated
from tilesim.ir import effects as fx
from tilesim.ir.declarations import SharedTensor, View
from tilesim.ir.expr import Special, walk
from tilesim.ir.op import Op
from tilesim.mistakes.barrier_use import (
    MOST_BETWEEN,
    Maker,
    about,
    elsewhere,
    first_per_instruction,
    shares,
)
from tilesim.mistakes.context import LANES, array_of, branch_past, has
from tilesim.mistakes.history import Touch
from tilesim.mistakes.mistake import Case, Cause
from tilesim.records import dataclass
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.observers.wait_for import Bytes


@dataclass(frozen=True)
class _Balance:
    """The bytes of a phase of one barrier, by warp and instruction: expected ones count up,
    completed ones down. ``every`` has those of all, ``totals`` those that do not balance alone.
    """

    case: Case
    on: Mbarrier
    every: dict[Maker, int]
    totals: dict[Maker, int]

    @classmethod
    def of(cls, case: Case, on: Mbarrier) -> _Balance:
        """What one execution of each instruction usually contributes."""
        every = shares(case.history.credits(on), bytes_=True)
        totals = _unbalanced(case, every)
        far = all(n < 0 and warp.cta is not on.cta for (warp, _), n in totals.items())
        if far and any(n > 0 for n in every.values()):
            totals = every  # what other CTAs copy is to be expected as well
        return cls(case, on, every, totals)

    @cached_property
    def credits(self) -> list[Touch]:
        """The credits that make it up, and arrivals."""
        credits = self.case.history.credits(self.on)
        return [c for c in credits if (c.warp, c.op.number) in self.totals or not c.tx]

    @cached_property
    def expects(self) -> list[Touch]:
        """Those that expect bytes."""
        return [c for c in self.credits if c.tx > 0]

    @cached_property
    def copies(self) -> list[Touch]:
        """One of each instruction that completes bytes."""
        return first_per_instruction(c for c in self.credits if c.tx < 0)

    @property
    def expected(self) -> dict[Maker, int]:
        """The bytes that each expects."""
        return {maker: n for maker, n in self.totals.items() if n > 0}

    @property
    def want(self) -> int:
        """All bytes that are expected."""
        return sum(self.expected.values())

    @property
    def have(self) -> int:
        """All bytes that are completed."""
        return -sum(n for n in self.totals.values() if n < 0)

    @cached_property
    def phases(self) -> dict[int, tuple[int, int]]:
        """By phase, the bytes that were expected in it, and those that were completed."""
        found: dict[int, tuple[int, int]] = {}
        for c in self.case.history.credits(self.on):
            want, have = found.get(c.phase, (0, 0))
            found[c.phase] = want + max(c.tx, 0), have - min(c.tx, 0)
        return found

    @cached_property
    def apart(self) -> bool:
        """Whether no phase has all the instructions that expect bytes: their sum says nothing."""
        makers: dict[int, set[Maker]] = defaultdict(set)
        for c in self.expects:
            makers[c.phase].add((c.warp, c.op.number))
        return not any(self.expected.keys() <= made for made in makers.values())

    @property
    def is_fine(self) -> bool:
        """Whether it says nothing about the finding."""
        rule = self.case.finding.rule
        if self.want == self.have or (rule == "over-arrival" and not self.have):
            return True
        completed = self.phases.get(self.on.phase, (0, 0))[1]
        to_come = rule == "deadlock" and not completed and _still_to_come(self.case, self.on)
        before = (sums for phase, sums in self.phases.items() if phase != self.on.phase)
        if self.apart and self.expects and all(want == have for want, have in before):
            return rule != "deadlock" or to_come
        return not self.have and to_come

    def expecting(self, expects: Iterable[Touch] | None = None) -> tuple[Participant, ...]:
        """The instructions that expect bytes."""
        own = first_per_instruction(self.expects if expects is None else expects)
        return tuple(self.case.of(c, f"expects {c.tx} bytes on {self.on.label}") for c in own)

    def completing(self, copies: Iterable[Touch]) -> tuple[Participant, ...]:
        """The copies that complete bytes, and where."""
        own = first_per_instruction(copies)
        return tuple(self.case.of(c, f"completes {-c.tx} bytes on {c.on.label}") for c in own)


def bytes_of_a_phase(case: Case) -> Cause | None:
    """The bytes expected are not those that the copies complete."""
    for on in about(case):
        balance = _Balance.of(case, on)
        if not balance.is_fine:
            found = (ask(balance) for ask in _REASONS)
            return next(cause for cause in found if cause is not None)
    return None


def _of_one_phase(b: _Balance, phase: int, also: str = "", unread: tuple[Named, ...] = ()) -> Cause:
    """The bytes of one phase do not balance."""
    (want, have), label = b.phases[phase], b.on.label
    own = [c for c in b.case.history.credits(b.on) if c.phase == phase]
    return Cause(
        f"{want} bytes are expected on {label} in phase {phase} and {have} completed{also}",
        (*b.expecting([c for c in own if c.tx > 0]), *b.completing(c for c in own if c.tx < 0)),
        f"expect on {label} as many bytes as its copies complete in each phase",
        facts=Stated(unread, bytes=(want,)),
    )


def _in_another_cta(b: _Balance) -> Cause | None:
    """The copies name the barrier of another CTA."""
    others = elsewhere(b.case, b.on, bytes_=True)
    if (
        b.copies
    ):  # copies of others are astray where they are not expected, if they are what is missing
        others = [c for c in others if sum(t.tx for t in b.case.history.credits(c.on)) < 0]
        if -sum(c.tx for c in others) != b.want - b.have:
            return None
        what = f"bytes that are expected on {b.on.label} complete on the barrier of another CTA"
    else:
        what = (
            f"no copy completes the {b.want} bytes that are expected on {b.on.label}: where there "
            "is one, it names another barrier"
        )
    if not others:
        return None
    return Cause(
        what,
        (*b.completing(others), *b.expecting()),
        f"let the copies complete on {b.on.label} as well (by their barrier, or their multicast "
        "mask), or expect no bytes there",
        facts=Stated(bytes=(b.want,)),
    )


def _on_another_array(b: _Balance) -> Cause | None:
    """A copy names a barrier that is meant for something else."""
    wrong = _of_another_array(b.case, b.expects) if b.expects and not b.copies else None
    if wrong is None:
        return None
    return Cause(
        f"no copy completes the {b.want} bytes that are expected on {b.on.label}: this one "
        f"completes its bytes on {wrong.on.label}",
        (*b.completing([wrong]), *b.expecting()),
        f"let the copy complete on {b.on.label}",
        "slots",
        Stated(bytes=(b.want,)),
    )


def _in_its_own_cta_only(b: _Balance) -> Cause | None:
    """One copy is not multicast, or so that it names one CTA."""
    ctas = b.case.history.machine.program.cluster_size
    missing = b.want - b.have
    own = [
        c for c in b.copies if (ctas - 1) * -c.tx == missing
        and (_fills_a_part(c.op) or _names_one_cta(b.case, c))
    ]  # fmt: skip
    if not b.expects or ctas == 1 or len(own) != 1:
        return None
    what = "is not multicast" if _fills_a_part(own[0].op) else "names its own CTA only by its mask"
    return Cause(
        f"{b.want} bytes are expected on {b.on.label} per phase and {b.have} completed: one copy "
        f"{what}",
        (b.case.of(own[0], f"completes {-own[0].tx} bytes in its own CTA only"), *b.expecting()),
        f"let this copy name all {ctas} CTAs by a multicast mask, or expect {b.have} bytes",
        facts=Stated(bytes=(b.want, b.have)),
    )


def _expected_by_several(b: _Balance) -> Cause | None:
    """One expectation that is right, executed by more warps or lanes than are meant."""
    if not b.expects:
        return None
    everyone = {maker: n for maker, n in b.every.items() if n > 0}
    in_all = -sum(n for n in b.every.values() if n < 0)
    first = b.expects[0]
    return _by_several(b.case, first, b.expected, b.have) or _by_several(
        b.case, first, everyone, in_all
    )


def _copied_by_all_lanes(b: _Balance) -> Cause | None:
    """Every lane of a warp makes the copy."""
    if not b.expects or b.have != LANES * b.want:
        return None
    return Cause(
        f"all {LANES} lanes execute {b.copies[0].op.mnemonic} on {b.on.label}: elect one",
        (b.case.of(b.copies[0], f"is executed by {LANES} lanes"), *b.expecting()),
        "let one elected lane issue the copy",
        "by_all_lanes",
        Stated(lanes=LANES),
    )


def _unequal(b: _Balance) -> Cause | None:
    """Too many or too few are expected."""
    if not b.expects:
        return None
    empty = _never_filled(b.case) if b.have < b.want and b.copies else ""
    unread = (Named(empty, empty),) if empty else ()
    also = f", and no instruction fills {empty}, which is read" if empty else ""
    odd = [c.phase for c in b.expects if b.phases[c.phase][0] != b.phases[c.phase][1]]
    if b.apart and odd:
        # instructions that belong to different phases: their sum is that of none
        return _of_one_phase(b, odd[0], also, unread)
    filling, sides = b.completing(b.copies), b.expecting()
    return Cause(
        f"{b.want} bytes are expected on {b.on.label} per phase and {b.have} completed{also}",
        (*reversed(filling), *sides) if empty else (*sides, *filling),
        f"expect on {b.on.label} as many bytes as its copies complete in a phase: {b.have} "
        f"instead of {b.want} (or let them copy {b.want})",
        facts=Stated(unread, bytes=(b.want,)),
    )


def _unexpected(b: _Balance) -> Cause | None:
    """No instruction expects any: phases end without these bytes."""
    owners = {c.warp for c in b.copies}
    arrivals = [c for c in b.credits if c.arrivals > 0]
    own = [c for c in arrivals if c.warp in owners]
    # of one execution each: it is not known which phase they belong to
    have = -sum(c.tx for c in b.copies)
    label = b.on.label
    return Cause(
        f"copies complete {have} bytes on {label} that no expect_tx covers: its phase ends without "
        "them",
        (*_in_other_turns(b),
         *(b.case.of(c, f"arrives on {label} and expects no bytes")
           for c in first_per_instruction(own or arrivals)),
         *b.completing(b.copies)),
        f"expect the {have} bytes with the arrival: arrive.expect_tx on {label}",
        facts=Stated(bytes=(have,)),
    )  # fmt: skip


def _in_other_turns(b: _Balance) -> Iterator[Participant]:
    """The expectation that a warp makes in other turns of the loop in which it copies, on barriers
    of the same array."""
    history = b.case.history
    for copy in b.copies:
        for op in history.code_of(copy.warp):
            expects = any(
                isinstance(e, fx.Expects) or (isinstance(e, fx.Arrives) and e.bytes is not None)
                for e in op.effects()
            )
            loop = b.case.loop_range(op)
            if not expects or loop is None or loop != b.case.loop_range(copy.op):
                continue
            named = history.acts_on(op, b.on, fx.Expects, fx.Arrives)
            if named and history.executions(copy.warp, op.number):
                yield b.case.warp(copy.warp, op, "expects bytes in other iterations of the loop")
                return


#: what may be wrong with a balance, the most telling first; the last two answer whatever it is
_REASONS: tuple[Callable[[_Balance], Cause | None], ...] = (
    _in_another_cta, _on_another_array, _in_its_own_cta_only,
    _expected_by_several, _copied_by_all_lanes, _unequal, _unexpected,
)  # fmt: skip


def _fills_a_part(op: Op) -> bool:
    """Whether a copy is not multicast, and fills a part of a tensor that follows from the rank of
    its CTA: the others' parts come from elsewhere."""
    effects = op.effects()
    offsets = [o for e in effects if isinstance(e, fx.Writes) for o in e.view.offsets]
    ranked = any(p == Special("cluster_rank") for o in offsets for p in walk(o))
    return ranked and not any(
        isinstance(e, fx.Completes) and e.multicast is not None for e in effects
    )


def _names_one_cta(case: Case, landed: Touch) -> bool:
    """Whether a multicast copy has completed bytes in the CTA of its warp, and in no other."""
    multicast = any(
        isinstance(e, fx.Completes) and e.multicast is not None for e in landed.op.effects()
    )
    return multicast and landed.on.cta is landed.warp.cta and all(
        t.on.cta is landed.on.cta for t in case.history.credits(warp=landed.warp)
        if t.op is landed.op and t.tx < 0
    )  # fmt: skip


def _of_another_array(case: Case, expects: list[Touch]) -> Touch | None:
    """The next copy that a warp issues behind an expectation, if that completes more bytes than
    are expected on a barrier of another array."""
    expect = expects[0]
    mine = case.history.credits(warp=expect.warp)
    copies = (t for t in mine if t.tx < 0 and t.issued > expect.at)
    copy = min(copies, key=lambda t: t.issued, default=None)
    if copy is None or copy.issued - expect.at > MOST_BETWEEN:
        return None
    over = sum(c.tx for c in case.history.credits(copy.on)) < 0
    arrays = {array_of(on) for on in (copy.on, expect.on)}
    return copy if over and len(arrays) > 1 else None


def _still_to_come(case: Case, on: Mbarrier) -> bool:
    """Whether a warp that waits for something else would complete bytes of a barrier."""
    ops = (op for op in case.mir.ops() if has(op, fx.Completes))
    return any(case.history.ahead(op.number, Bytes(on)) for op in ops)


def _never_filled(case: Case) -> str:
    """A named shared tensor that is read and not written."""
    read: dict[str, None] = {}
    written: set[str] = set()
    for effect in (e for effects in case.mir.effects for e in effects):
        match effect:
            case fx.Reads(view=View(tensor=SharedTensor(name=name))):
                read[name] = None
            case fx.Writes(view=view) | fx.RemoteStore(view=view):
                written.add(view.tensor.name)
            case _:
                pass
    return next((name for name in read if name not in written), "")


def _unbalanced(case: Case, totals: dict[Maker, int]) -> dict[Maker, int]:
    """The bytes of each warp and instruction, without those of loops that balance by themselves."""
    mir = case.mir
    groups: dict[object, int] = defaultdict(int)
    key = {m: (m[0], case.loop_range(mir.code[m[1]].what)) for m in totals}
    for maker, nbytes in totals.items():
        groups[key[maker]] += nbytes
    return {maker: nbytes for maker, nbytes in totals.items() if groups[key[maker]]}


def _by_several(case: Case, expect: Touch, expected: dict[Maker, int], have: int) -> Cause | None:
    """One expectation that is right, executed by more warps or lanes than are meant."""
    shares_ = [n for (_, number), n in expected.items() if number == expect.op.number]
    lanes = expect.arrivals
    times = len(shares_) if len(shares_) > 1 and shares_[0] == have else lanes
    if times < 2 or sum(expected.values()) != times * have:
        return None
    kind = "warps" if times == len(shares_) else "lanes"
    where = branch_past(case.mir, expect.op)
    own = case.of(expect, f"is executed by {times} {kind}")
    sides = [] if where is None else [case.warp(expect.warp, where, f"lets {times} {kind} in")]
    return Cause(
        f"{times} {kind} execute {expect.op.mnemonic} on {expect.on.label}, where one is meant",
        (*sides, own) if kind == "warps" else (own, *sides),
        f"let one elected lane of one warp execute {expect.op.mnemonic}",
    )
