"""Programs of one warp in which lanes of a mask exit, wait elsewhere, or come later.

Lanes are divided into groups; each statement is executed by some of them, one after the other in
the text, with nothing behind it where they meet. Tickets of single lanes say which of them leave,
or come. The reference follows all interleavings of the groups: an instruction with a mask goes on
when all lanes of the mask that have not exited are at one of the same kind with the same mask (E11,
E19, E21, E27, U22), and only `bar.warp.sync` and mbarriers order stores.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from tilesim import Builder, Program, s32
from tilesim.ir.expr import Expr, Var

_LANES = 32
#: where a group is that has come to the end of the program, and one that has exited at its start
_END, _EXITED = -1, -2
_NO_TICKET = 9

Kind: TypeAlias = Literal["shfl", "any", "ballot", "redux", "sync"]
#: what is drawn, the shuffle twice as often
_DRAWN: tuple[Kind, ...] = ("shfl", "shfl", "any", "ballot", "redux", "sync")


@dataclass(frozen=True)
class Gather:
    """An instruction that waits for the lanes of the groups of ``mask``. ``source``: the group
    from whose first lane a shuffle takes the value; each lane's own if None."""

    kind: Kind
    mask: frozenset[int]
    source: int | None = None


@dataclass(frozen=True)
class Exit:
    """The lanes exit."""


@dataclass(frozen=True)
class Arrive:
    """Each lane arrives at the mbarrier."""


@dataclass(frozen=True)
class Wait:
    """Each lane waits for the first phase of the mbarrier."""


@dataclass(frozen=True)
class Draw:
    """Each lane, one of its group, draws a ticket; relaxed, so that nothing is ordered."""


@dataclass(frozen=True)
class Touch:
    """Each lane, one of its group, stores to the data word."""


Action: TypeAlias = Gather | Exit | Arrive | Wait | Draw | Touch


@dataclass(frozen=True)
class Statement:
    """What ``groups`` execute; those only whose ticket is ``ticket`` if that is given."""

    groups: frozenset[int]
    action: Action
    ticket: int | None = None


@dataclass(frozen=True)
class Warp:
    """Groups by the ends of their ranges of lanes, statements, and the mbarrier's count."""

    ends: tuple[int, ...]
    statements: tuple[Statement, ...]
    count: int

    def lanes(self, group: int) -> range:
        """The lanes of a group."""
        return range(self.ends[group - 1] if group else 0, self.ends[group])

    def mask(self, groups: frozenset[int]) -> int:
        """The lanes of groups, as a mask."""
        return sum(1 << lane for group in groups for lane in self.lanes(group))


class Overfull(Exception):
    """More arrive than the phase is for: the reference stops here."""


class _State(NamedTuple):
    """Per group, its statement, ticket and the stores that it knows; the barrier; all stores."""

    at: tuple[int, ...]
    ticket: tuple[int, ...]
    known: tuple[frozenset[int], ...]
    arrived: int
    brought: frozenset[int]
    stored: frozenset[int]
    drawn: int


def failures(warp: Warp) -> set[str]:
    """What goes wrong in some execution: ``stuck``, ``undefined`` (the value of a lane that has
    exited, or a lane outside its own mask), ``race``; ``passed`` if lanes were waited for that had
    passed by and ended later, which is right and may be reported (U22).

    Raises:
        Overfull: the mbarrier has more arrivals than its phase is for.
    """
    found: set[str] = set()
    groups = range(len(warp.ends))
    nothing: tuple[frozenset[int], ...] = tuple(frozenset() for _ in groups)
    first = _State(
        tuple(_next(warp, g, 0, _NO_TICKET) for g in groups), (_NO_TICKET,) * len(groups), nothing,
        0, frozenset(), frozenset(), 0,
    )  # fmt: skip
    seen, todo = {first}, [first]
    while todo:
        state = todo.pop()
        moves = [after for g in groups if (after := _move(warp, state, g, found)) is not None]
        if not moves and any(at >= 0 for at in state.at):
            found.add("stuck")
        fresh = [after for after in moves if after not in seen]
        seen.update(fresh)
        todo += fresh
    return found


def _next(warp: Warp, group: int, at: int, ticket: int) -> int:
    """The first statement of a group from ``at``."""
    for n in range(at, len(warp.statements)):
        statement = warp.statements[n]
        if group in statement.groups and statement.ticket in (None, ticket):
            return n
    return _END


def _move(warp: Warp, state: _State, group: int, found: set[str]) -> _State | None:
    """What a group's step leads to; None if it cannot move."""
    at = state.at[group]
    if at < 0:
        return None
    match warp.statements[at].action:
        case Exit():
            return state._replace(at=_put(state.at, group, _EXITED - at))
        case Arrive():
            arrived = state.arrived + len(warp.lanes(group))
            if arrived > warp.count:
                raise Overfull
            brought = state.brought | state.known[group]
            return _on(warp, state._replace(arrived=arrived, brought=brought), [group])
        case Wait():
            if state.arrived < warp.count:
                return None
            known = _put(state.known, group, state.known[group] | state.brought)
            return _on(warp, state._replace(known=known), [group])
        case Draw():
            ticket = _put(state.ticket, group, state.drawn)
            return _on(warp, state._replace(ticket=ticket, drawn=state.drawn + 1), [group])
        case Touch():
            event = at * len(warp.ends) + group
            if state.stored - state.known[group]:
                found.add("race")
            known = _put(state.known, group, state.known[group] | {event})
            return _on(warp, state._replace(known=known, stored=state.stored | {event}), [group])
        case Gather() as gather:
            return _gather(warp, state, group, gather, found)


def _gather(
    warp: Warp, state: _State, group: int, gather: Gather, found: set[str]
) -> _State | None:  # fmt: skip
    """All lanes of the mask that have not exited go on together."""
    if group not in gather.mask:
        found.add("undefined")
        return None
    members = [g for g in sorted(gather.mask) if state.at[g] >= 0]
    actions = [warp.statements[state.at[g]].action for g in members]
    if any(
        not isinstance(a, Gather) or (a.kind, a.mask) != (gather.kind, gather.mask) for a in actions
    ):
        return None
    for action in actions:
        if isinstance(action, Gather) and action.source not in (None, *members):
            found.add("undefined")
    first = min(state.at[g] for g in members)
    if any(_EXITED - first > state.at[g] or state.at[g] == _END for g in gather.mask - {*members}):
        found.add("passed")
    if gather.kind == "sync":
        all_known = frozenset[int]().union(*(state.known[g] for g in members))
        known = tuple(all_known if g in members else k for g, k in enumerate(state.known))
        state = state._replace(known=known)
    return _on(warp, state, members)


def _on(warp: Warp, state: _State, groups: list[int]) -> _State:
    at = state.at
    for group in groups:
        at = _put(at, group, _next(warp, group, at[group] + 1, state.ticket[group]))
    return state._replace(at=at)


def _put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


# ---------------------------------------------------------------------- programs


def absent(rng: random.Random) -> Warp:
    """Mostly instructions that some lanes of the mask do not execute, after which they exit."""
    ends = rng.choice(((16, 32), (1, 2, 32), (1, 2, 32), (1, 2, 3, 32), (8, 9, 10, 32)))
    groups = range(len(ends))
    single = [g for g in groups if ends[g] - (ends[g - 1] if g else 0) == 1]
    statements: list[Statement] = []
    everyone = frozenset(groups)

    def some(most: frozenset[int], likely: float = 0.7) -> frozenset[int]:
        chosen = frozenset(g for g in most if rng.random() < likely)
        return chosen or frozenset({rng.choice(sorted(most))})

    drawn = bool(single) and rng.random() < 0.5
    if drawn:
        statements += [Statement(frozenset({g}), Draw()) for g in single]
        rng.shuffle(statements)
    masks = [some(everyone), everyone]
    for _ in range(rng.randint(2, 5)):
        kind = rng.random()
        ticket = rng.choice((0, 1)) if drawn and rng.random() < 0.4 else None
        who = some(frozenset(single) if ticket is not None else everyone, 0.6)
        if kind < 0.45:
            mask = rng.choice(masks)
            gather = rng.choice(_DRAWN)
            source = rng.choice(sorted(mask)) if gather == "shfl" and rng.random() < 0.4 else None
            if rng.random() < 0.95:
                who = who & mask or mask
            if rng.random() < 0.4:
                who, ticket = mask, None
            statements.append(Statement(who, Gather(gather, mask, source), ticket))
        elif kind < 0.65:
            statements.append(Statement(some(who, 0.4), Exit(), ticket))
        elif kind < 0.78:
            statements.append(Statement(who, Arrive(), ticket))
        elif kind < 0.88:
            statements.append(Statement(who, Wait(), ticket))
        elif single:
            statements.append(Statement(frozenset({rng.choice(single)}), Touch(), ticket))
    warp = Warp(ends, tuple(statements), 1)
    sizes = [len(warp.lanes(g)) for s in statements for g in s.groups if s.action == Arrive()]
    return Warp(ends, tuple(statements), sum(sizes[: rng.randint(1, len(sizes))]) if sizes else 1)


def translate(warp: Warp) -> Program:
    """The program as the simulator takes it."""
    k = Builder("absent", warps=1)
    barrier = k.mbarriers("m")[0]
    data, tickets = k.shared("data", s32, (1,))[0], k.shared("tickets", s32, (1,))[0]
    with k.one_thread():
        k.mbarrier.init(barrier, warp.count)
        k.mem.store(tickets, 0)
    k.sync_threads()
    ticket, result = k.var("ticket", _NO_TICKET), k.var("result", 0)
    for number, statement in enumerate(warp.statements):
        executed = _one_of(k.lane_id, warp, statement.groups)
        if statement.ticket is not None:
            executed &= ticket.eq(statement.ticket)
        with k.if_(executed, sync=False):
            match statement.action:
                case Gather() as gather:
                    _emit(k, warp, gather, result)
                case Exit():
                    k.exit()
                case Arrive():
                    k.mbarrier.arrive(barrier)
                case Wait():
                    k.mbarrier.wait(barrier, 0)
                case Draw():
                    k.mem.atomic(tickets, "add", 1, result=ticket, sem="relaxed")
                case Touch():
                    k.mem.store(data, number)
    return k.finish()


def _one_of(lane: Expr, warp: Warp, groups: frozenset[int]) -> Expr:
    """Whether a lane is of these groups."""
    ranges = [warp.lanes(group) for group in sorted(groups)]
    condition = (lane >= ranges[0].start) & (lane < ranges[0].stop)
    for lanes in ranges[1:]:
        condition |= (lane >= lanes.start) & (lane < lanes.stop)
    return condition


def _emit(k: Builder, warp: Warp, gather: Gather, result: Var) -> None:
    mask = warp.mask(gather.mask)
    match gather.kind:
        case "shfl":
            source = k.lane_id if gather.source is None else warp.lanes(gather.source).start
            k.mem.shuffle(result, k.lane_id, source, mask=mask)
        case "any":
            k.warp.vote(result, k.lane_id > 3, "any", mask=mask)
        case "ballot":
            k.warp.ballot(result, k.lane_id > 3, mask=mask)
        case "redux":
            k.warp.redux(result, "add", k.lane_id, mask=mask)
        case "sync":
            k.sync_warp(mask)
