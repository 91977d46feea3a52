"""Accesses of lanes to one word each, and what they hand over (SEMANTICS H)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType
from tilesim.ir.effects import Orders
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.scalars import WordAccess, word_access
from tilesim.sim.machine import word_order
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.compose import Effects, acting, in_groups, lane_by_lane, operation
from tilesim.sim.machine.errors import BarrierError
from tilesim.sim.machine.events import Kind
from tilesim.sim.machine.execute.lanes import per_lane, spread
from tilesim.sim.machine.execute.memory import (
    access_of,
    cells_of,
    issue,
    judge_lanes_that_overlap,
    last_wins,
    leave,
)
from tilesim.sim.machine.expression import Evaluate, assign
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.release import Released, add
from tilesim.sim.machine.unknown import Unknown, UnknownSteers, open_lanes
from tilesim.sim.machine.view_access import ViewAccess, unknown_in
from tilesim.sim.machine.word_order import (
    COMBINE,
    COMMUTATIVE,
    Combine,
    exact,
    observe,
    reduction_form,
)
from tilesim.sim.observers.monotone_accesses import Round, counted_words, draws_in_turns, look


def observe_value(
    w: Warp, memory: Memory, addresses: NDArray[np.int64], scope: FenceScope, *, acquires: bool,
    element: word_order.Element | None = None,
) -> None:  # fmt: skip
    """Joins what the releases to these addresses published to this warp (H3, H4); of a vector that
    acquires, after its last ``element`` (H15)."""

    def learn(address: int) -> None:
        released = w.machine.released.get((id(memory), address))
        if element is not None:
            word_order.gather(released or {}, w, scope)
            if word_order.ends(element):
                word_order.acquire(w)
        elif released is not None:
            observe(released, w, scope, acquires=acquires, in_shared=memory.mbarriers is not None)

    in_groups(w, addresses.tolist(), learn)


def _release(
    w: Warp, memory: Memory, released: Released, scope: FenceScope, clock: Clock, *, releases: bool
) -> None:
    """What an acquire of a strong write by ``w`` will learn, besides what is ``released``."""
    size = w.machine.components.size
    add(released, (scope, w.sender(scope)), clock, slice(None if releases else size))
    if not releases:
        w.fences.publish(released, scope, w.sender, size, in_shared=memory.mbarriers is not None)


def released_by(
    w: Warp, memory: Memory, scope: FenceScope, *, releases: bool, clock: Clock | None = None
) -> Released:
    """What a strong write by ``w`` releases of its own: of its ``clock``, if not another one."""
    own: Released = {}
    _release(w, memory, own, scope, w.clock if clock is None else clock, releases=releases)
    return own


def released_at(
    w: Warp, memory: Memory, addresses: Sequence[int], scope: FenceScope,
    *, releases: bool, clock: Clock,
) -> dict[int, Released]:  # fmt: skip
    """The same of a store, by address: where its thread has released before, that as well."""
    found = {a: released_by(w, memory, scope, releases=releases, clock=clock) for a in addresses}
    patterns = w.machine.release_patterns
    if patterns is not None:
        for address, lane in _sole_writers(w, addresses).items():
            patterns.carry((id(memory), address, w.index, lane), found[address], scope)
    return found


def publish_value(
    w: Warp, memory: Memory, addresses: Sequence[int], scope: FenceScope,
    *, releases: bool, chain: bool, clock: Clock | None = None,
) -> None:  # fmt: skip
    """What an acquire of these addresses will learn, of the warp's ``clock`` if not another one; an
    RMW continues the release sequence."""
    different = set(addresses)
    if clock is None:
        clock = w.clock
    # of lanes at several words each tells what all of them know
    if len(different) > 1 and w.lanes > 1:
        clock = w.shared_by_lanes(clock)
    for address in different:
        released = w.machine.released.setdefault((id(memory), address), {})
        if not chain:
            released.clear()
        _release(w, memory, released, scope, clock, releases=releases)
    patterns = w.machine.release_patterns
    if patterns is None:
        return
    for address, lane in _sole_writers(w, addresses).items():
        thread = (id(memory), address, w.index, lane)
        patterns.carry(thread, w.machine.released[id(memory), address], scope)
        if releases:
            patterns.note(thread, scope, w.sender(scope), clock)


def _sole_writers(w: Warp, addresses: Sequence[int]) -> dict[int, int]:
    """By address, which lane writes there, if it is one of those that are active and no other."""
    if len(addresses) != w.lanes:
        return {}
    lanes = np.flatnonzero(mask_array(w.mask)).tolist()
    once = {address for address in addresses if addresses.count(address) == 1}
    return {a: lane for a, lane in zip(addresses, lanes, strict=True) if a in once}


# --------------------------------------------------------------- loads, stores, atomics (section H)


def _note(
    w: Warp, op: Op, memory: Memory, addresses: NDArray[np.int64], kind: Kind, form: int = 0
) -> None:
    """Strong accesses: their order decides what is read; reductions of one ``form`` commute."""
    if w.machine.trace is None:
        return
    verb = "reads" if kind == "read" else "writes"
    for address in sorted(set(addresses.tolist())):
        text = f"{verb} {memory.label}+{address} by {op.mnemonic}"
        w.machine.note(kind, (memory.label, address), w, op, text, phase=form)


def _strong(
    w: Warp, memory: Memory, addresses: NDArray[np.int64], *, reads: bool, writes: bool
) -> None:
    """Strong accesses: what they need not have seen is noted, before they learn of it."""
    views = w.machine.views
    if views is None:
        return
    for address in sorted(set(addresses.tolist())):
        views.access(w, (memory.label, address), reads=reads, writes=writes)


def _take_turns(
    w: Warp, footprint: Footprint, addresses: NDArray[np.int64],
    element: word_order.Element | None = None,
) -> bool:  # fmt: skip
    """Whether each lane has an address of its own.

    The lanes of a strong access take their turns one by one, and no move of the machine shows the
    states in between, nor those that other orders of a vector's elements have: exploration must
    not claim to have seen what they or others read there.
    """
    if w.lanes > 1 or element is not None:
        w.machine.races.words.crowded.add(footprint.tensor)
    return len(set(addresses.tolist())) == len(addresses)


def _contended(w: Warp, footprint: Footprint) -> bool:
    """Whether an atomic may come before an access to its words that was made."""
    size, known = w.machine.components.size, w.clock.item
    return any(
        known(size + record.component) < record.tick
        for other in footprint.overlaps
        for record in (*other.writes, *other.reads.values())
    )


def _several(w: Warp, addresses: NDArray[np.int64]) -> bool:
    """Whether the active lanes access different words."""
    return w.lanes > 1 and bool((addresses != addresses[0]).any())


def _by_lanes(w: Warp, addresses: NDArray[np.int64], *, tells: bool, step: Step) -> bool:
    """Whether ``step`` was made in the lanes of each word, for lanes that access different ones.

    So it has to be where they tell others what they know, or learn from what they find.
    """
    if not tells or not w.may_divide or not _several(w, addresses):
        return False
    in_groups(w, addresses.tolist(), lambda _: step(w))
    return True


def _each_peer(view: ViewAccess, step: Step) -> Step:
    """``step`` once for all lanes, or CTA by CTA where lanes access the memory of several."""
    if not view.several:
        return step

    def peers(w: Warp) -> bool | None:
        lanes = view.peers(w)
        if lanes is None:
            return step(w)
        for mask in lanes.values():
            with acting(w, mask):
                step(w)
        return None

    return peers


@operation(lambda effects: word_access(effects) is not None)
def _access(c: Operands, op: Op, effects: Effects) -> Step:
    access = word_access(effects)
    assert access is not None
    if access.loads:
        return _load(c, op, access)
    step = _store(c, op, access) if access.stores else _update(c, op, access)
    return _issued(op, c.view(access.view), step) if access.asynchronous else step


def _issued(op: Op, view: ViewAccess, step: Step) -> Step:
    """``step``, which each active lane only issues: it is made at any later time (D14)."""
    far = view.view.space == "global"

    def run(w: Warp) -> None:
        if not far and view.memory(w).mbarriers is not None:
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} of {w} at an address in shared memory (D14)",
                "give it an address in global memory",
            )  # fmt: skip
        issue(w, op, step)

    return run


def _load(c: Operands, op: Op, word: WordAccess) -> Step:
    assert word.result is not None
    view, slot = c.view(word.view), c.slot(word.result)
    strong, dtype = word.sem != "weak", word.view.dtype
    scope = word.scope if strong else None
    poll = look(c, op, word, counted_words(c, op, word))
    fit = c.fit_loaded(word.result, dtype)
    name = word.view.tensor.name
    allocates = name in c.code.alloc_slots

    def value(w: Warp, memory: Memory, footprint: Footprint, addresses: NDArray[np.int64]) -> Any:
        lost = unknown_in(memory, footprint, op)
        return spread(w, memory.typed(dtype)[addresses // dtype.bytes]) if lost is None else lost

    def step(w: Warp) -> None:
        memory, footprint, addresses = view.lane_footprint(w)
        access = access_of(w, op, write=False, scope=scope)
        if strong and poll is None:
            _take_turns(w, footprint, addresses, word.element)
        # before the acquire: whether the write it reads comes first is up to the schedule
        w.machine.races.read(memory, footprint, access, w.clock)
        if allocates and memory.overlaid is not None:
            _require_address(w, op, name, memory.overlaid.others(footprint))
        if strong:
            _strong(w, memory, addresses, reads=True, writes=False)
            _note(w, op, memory, addresses, "read")
        loaded, waits, ends = value(w, memory, footprint, addresses), False, True
        if poll is not None and w.machine.timed:
            if type(loaded) is Unknown:
                raise UnknownSteers(loaded)
            waits = True
            ends, least = poll(w, memory, addresses)
            loaded = loaded if least is None else least
        elif strong:
            observe_value(
                w, memory, addresses, word.scope, acquires=word.acquires, element=word.element
            )
        if strong and ends and not _several(w, addresses):
            w.machine.races.observations.saw(access, footprint, waits=waits)
        assign(w, slot, loaded if fit is None else fit(loaded))

    return _each_peer(view, step)


def _require_address(w: Warp, op: Op, slot: str, writers: list[str]) -> None:
    """Where tcgen05.alloc has put an address, nothing else was written since."""
    if writers:
        raise BarrierError(
            "tmem-lifetime",
            f"{w} loads an address of tensor memory from {slot}, where {writers[0]} has been "
            "written since tcgen05.alloc put it there (G4)",
            f"load the address before {writers[0]} is written, or give {slot} bytes of its own",
        )


def _store(c: Operands, op: Op, word: WordAccess) -> Step:
    assert word.value is not None
    view, value = c.view(word.view), c.expr(word.value)
    strong, dtype, real = word.sem != "weak", word.view.dtype, c.real(word.view.tensor)
    scope, releases = word.scope if strong else None, word.releases
    computed, element = not strong and c.is_computed(op, word.value), word.element
    words = counted_words(c, op, word)

    def counted(w: Warp, memory: Memory, addresses: NDArray[np.int64]) -> NDArray[np.bool_] | slice:
        """The active lanes that store to a word which counts."""
        if words is None or not words.beside or strong:
            return slice(None)
        # a weak store to a word that has not begun to is one of data
        return np.array(words.already(w, memory, addresses), dtype=bool)

    def step(w: Warp) -> None:
        memory, footprint, addresses = view.lane_footprint(w)
        if strong and _by_lanes(w, addresses, tells=releases or bool(w.fences), step=step):
            return
        access = access_of(w, op, write=True, scope=scope)
        clock = w.clock
        if element is not None:
            alone = not _several(w, addresses)
            clock = word_order.published(w, element, own=alone)
            access.also = word_order.position(w, element) if alone else None
        new = value(w) if real or computed else None
        cells = None if new is None else cells_of(w, new, dtype)
        if strong:
            _take_turns(w, footprint, addresses, element)
        elif (
            computed
            and memory.mbarriers is not None
            and not open_lanes(new)
            and (w.elsewhere is None or not w.elsewhere.differs(value))
        ):
            access.stored = _one_number(cells)
        if not strong:
            judge_lanes_that_overlap(access, footprint, addresses, cells)
        w.machine.races.write(memory, footprint, access, w.clock)
        if isinstance(cells, Unknown):
            if words is not None and words.beside:
                words.lose(w, memory, addresses[counted(w, memory, addresses)], cells)
            elif words is not None:
                raise UnknownSteers(cells)
        elif real and cells is not None:
            last_wins(access, footprint.tensor, addresses, cells)
            if words is not None and w.machine.timed:
                own = None
                if strong:
                    where = addresses.tolist()
                    own = released_at(w, memory, where, word.scope, releases=releases, clock=clock)
                some = counted(w, memory, addresses)
                if w.may_access is not None and words.beside:
                    words.lose(w, memory, addresses[some], w.may_access)
                words.stored(w, memory, addresses[some], cells[some], own, releases=releases)
        if real and cells is not None:
            leave(op, memory, footprint, addresses, dtype, cells)
        if strong:
            _strong(w, memory, addresses, reads=False, writes=True)
            _note(w, op, memory, addresses, "write")
            where = addresses.tolist()
            publish_value(w, memory, where, word.scope, releases=releases, chain=False, clock=clock)
            if element is None:
                w.advance()
        elif w.machine.released:
            for address in set(addresses.tolist()):
                w.machine.released.pop((id(memory), address), None)
        w.effects += 1
        w.machine.changed()

    each = _each_peer(view, step)
    return each if element is None else _in_one_interval(each, element)


def _in_one_interval(step: Step, element: word_order.Element) -> Step:
    """The stores of a vector come in an interval that nothing else of their thread is in."""

    def run(w: Warp) -> None:
        if word_order.begins(element):
            w.advance()
        step(w)
        if word_order.ends(element):
            w.advance()

    return run


def _one_number(cells: NDArray[Any] | Unknown | None) -> bytes | None:
    """The one number that all lanes store, as memory has it; None if it is not known to be one."""
    if not isinstance(cells, np.ndarray):
        return None
    first = cells[:1].tobytes()
    return first if cells.tobytes() == first * len(cells) else None


def _known_cells(w: Warp, value: Evaluate, dtype: DType) -> NDArray[Any]:
    """What each active lane has for its word, as an element of memory."""
    found = cells_of(w, value(w), dtype)
    if isinstance(found, Unknown):
        raise UnknownSteers(found)
    return found


def _update(c: Operands, op: Op, word: WordAccess) -> Step:
    """Reads and writes in one step (RMW)."""
    assert word.value is not None
    assert word.combine is not None
    view, value, dtype = c.view(word.view), c.expr(word.value), word.view.dtype
    name, how, scope = word.view.tensor.name, word.combine, word.scope
    compare = None if word.compare is None else c.expr(word.compare)
    slot = None if word.result is None else c.slot(word.result)
    fit = None if word.result is None else c.fit_loaded(word.result, dtype)
    acquires, releases = word.acquires, word.releases
    real = c.real(word.view.tensor)
    form = reduction_form(op) if exact(op) else None
    touch: Kind = "write" if form is None else "reduce"
    ordered = how not in COMMUTATIVE or (how == "add" and dtype.kind == "float")
    # an exchange leaves its operand, with or without a comparison
    combine: Combine = COMBINE.get(how, lambda old, new: new)
    operands = [value] if compare is None else [value, compare]

    def lost(w: Warp, memory: Memory, footprint: Footprint) -> Unknown | None:
        """What is not known of the operands, or of what was there."""
        if not c.code.forgets:
            return None
        found = next((x for x in (f(w) for f in operands) if type(x) is Unknown), None)
        return unknown_in(memory, footprint, op) if found is None else found

    def hand_over(
        w: Warp, memory: Memory, addresses: NDArray[np.int64], written: list[int]
    ) -> None:
        """The words that were ``written``, of all that were looked at, are published."""
        _note(w, op, memory, addresses, touch if written else "read", form or 0)
        if written:
            publish_value(w, memory, written, scope, releases=releases, chain=True)
            w.advance()
            w.effects += 1
            w.machine.changed()

    words = counted_words(c, op, word)
    poll = look(c, op, word, words)
    left: tuple[int, Unknown] | None = None
    learns_of_others = acquires or any(e.acquires for _, e in c.mir.all_of(Orders))
    follows = words is not None or learns_of_others or c.decides(word.result)
    if slot is not None and how in COMMUTATIVE and not follows:
        # nothing follows what it finds, nor whose operation that is: it is a reduction
        left, slot = (slot, Unknown(f"the result of atom.{how} on {name}", loc=op.loc)), None
    only_reads = word.keeps or poll is not None
    goes_on = how != "exch" or slot is not None
    may_draw = words is not None and slot is not None and poll is None and not word.view.remote
    turns = draws_in_turns(c, word.view) if may_draw else None

    def update(
        w: Warp, memory: Memory, addresses: NDArray[np.int64]
    ) -> tuple[NDArray[Any], list[int]]:
        """The values before, and the addresses that were written."""
        cells = memory.typed(dtype)
        operands = _known_cells(w, value, dtype)
        expected = None if compare is None else _known_cells(w, compare, dtype)
        old = np.zeros(len(addresses), dtype=cells.dtype)
        written: list[int] = []
        with np.errstate(over="ignore"):
            for lane, address in enumerate(addresses.tolist()):
                cell = address // dtype.bytes
                old[lane] = cells[cell]
                if expected is None:
                    cells[cell] = combine(cells[cell], operands[lane])
                elif cells[cell] == expected[lane]:
                    cells[cell] = operands[lane]
                else:
                    continue
                written.append(address)
        return old, written

    def changes(
        w: Warp, memory: Memory, footprint: Footprint, addresses: NDArray[np.int64]
    ) -> bool:
        """Whether the word is written: where lanes compare it, by some of them."""
        if only_reads or compare is None or not real or lost(w, memory, footprint) is not None:
            return not only_reads
        cells = memory.typed(dtype)
        expected = _known_cells(w, compare, dtype)
        return bool((cells[addresses // dtype.bytes] == expected).any())

    def step(w: Warp, *, alone: bool = True, rounds: Round | None = turns) -> bool | None:
        """``alone``: all lanes that execute it are active. ``rounds``: a lane may draw in turn."""
        machine, timed = w.machine, w.machine.timed
        memory, footprint, addresses = view.lane_footprint(w)
        waits = poll is not None and timed
        # one lane of several cannot wait for its turn to draw, which a run may be told
        draws = may_draw and timed and w.lanes == 1 and (alone or rounds is not None)
        in_turn = draws and rounds is None
        place = memory.label, addresses.item(0)
        if in_turn and machine.tickets.holds_up(w, place):
            return w.block(machine.tickets, "waits to take its ticket", op)
        learns = slot is not None and not waits
        hands_on = learns and (releases or w.fences.releases)
        if hands_on and w.lanes > 1 and w.may_divide:
            # a lane that comes later acquires what those before it have released
            machine.outcome.explorable = False
            lane_by_lane(w, partial(step, alone=False, rounds=None))
            return None
        tells = learns or releases or bool(w.fences)
        if _by_lanes(w, addresses, tells=tells, step=partial(step, alone=False)):
            return None
        apart = _take_turns(w, footprint, addresses)
        if machine.views is not None:
            writes = changes(w, memory, footprint, addresses)
            _strong(w, memory, addresses, reads=True, writes=writes)
        if machine.lane_order is not None:
            # before the acquire: that it comes after what it finds is up to the schedule
            machine.lane_order.acts(w)
        before = w.clock.copy() if draws else None
        if in_turn and machine.tickets.led_to(w, place):
            what = f"whether a relaxed draw from {memory.label} finds a later one"
            machine.nondeterministic(what, op)
        elif slot is not None and not waits and not draws:
            what = f"the result of atom.{how} on {footprint.tensor}"
            contended = machine.lane_order is not None and _contended(w, footprint)
            machine.nondeterministic(what, op, explorable=apart, contended=contended)
        if slot is not None and not waits and (in_turn or not draws):
            observe_value(w, memory, addresses, scope, acquires=acquires)
        access = access_of(w, op, write=True, scope=scope)
        if goes_on:
            machine.races.unwritten.note(memory, footprint, access)
        machine.races.write(memory, footprint, access, w.clock)
        unknown = lost(w, memory, footprint) if real else None
        ends = True
        if poll is not None and timed and unknown is None:
            ends, _ = poll(w, memory, addresses)
        if slot is not None and w.lanes == 1 and ends:
            machine.races.observations.saw(access, footprint, waits=waits)
        if unknown is not None:
            if words is not None and words.beside and poll is None and not draws:
                words.lose(w, memory, addresses, unknown)
            elif words is not None:
                raise UnknownSteers(unknown)
            memory.forget(footprint.bytes, unknown)
            hand_over(w, memory, addresses, addresses.tolist())
            if slot is not None:
                assign(w, slot, unknown)
            if left is not None:
                assign(w, *left)
            return None
        if words is not None and timed and not waits:
            if w.may_access is not None and words.beside:
                words.lose(w, memory, addresses, w.may_access)
            own = released_by(w, memory, scope, releases=releases)
            new = per_lane(w, value(w))
            amount = int(new[0]) % (1 << dtype.bits)
            if rounds is not None and before is not None:
                words.draw_from_ranges(w, memory, place[1], rounds, amount, own)
            elif before is not None:
                words.draw_ticket(w, memory, place[1], before, how, amount, own)
            elif how == "exch":
                words.replaced(w, memory, addresses, new, own)
            else:
                words.added(w, memory, addresses, how, new, own)
        if real and not apart and ordered:
            last_wins(access, footprint.tensor, addresses, _known_cells(w, value, dtype))
        old, written = update(w, memory, addresses) if real else (None, addresses.tolist())
        hand_over(w, memory, addresses, [] if only_reads and not draws else written)
        if slot is not None and old is not None:
            found = spread(w, old)
            if in_turn:
                found = machine.tickets.number(w, name, place, found)
            assign(w, slot, found if fit is None else fit(found))
        if left is not None:
            assign(w, *left)
        return None

    return _each_peer(view, step)
