"""How the effects of an instruction become one function, for all lanes or group by group.

That is done when the program is loaded. An instruction whose lanes name objects of their own is
executed once for all lanes, or lane by lane; one that is executed by lanes which have not met, part
by part, or together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.addresses import GLOBAL_WINDOW
from tilesim.ir.declarations import Fragment, GlobalTensor, View
from tilesim.ir.effects import Defines, Effect
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Computation, Op, UnknownResult, operand_names
from tilesim.ir.tensor_memory import TmemLayout, TmemView
from tilesim.records import dataclass
from tilesim.sim.machine.clock import join
from tilesim.sim.machine.divergence import assemble
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.expression import Evaluate
from tilesim.sim.machine.lanes import FULL, mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import Unknown, UnknownSteers, open_lanes, opened, plain
from tilesim.sim.machine.view_access import uniform, uniform_value
from tilesim.sim.machine.warp import Part as LaneGroup
from tilesim.sim.machine.warpgroup import WARPS
from tilesim.sim.observers.lane_races import is_weak_store

#: what tells lanes apart
Key = TypeVar("Key", int, tuple[int, tuple[int, ...]])


@contextmanager
def acting(w: Warp, mask: int) -> Iterator[None]:
    """Only the lanes of ``mask`` act."""
    active, w.mask = w.mask, mask
    try:
        yield
    finally:
        w.mask = active


def by_each(w: Warp, parts: Iterable[LaneGroup], act: Callable[[], object]) -> None:
    """``act`` in the lanes of each part, which knows and learns for itself; then all are active."""
    active = w.mask
    try:
        for part in parts:
            w.mask = part.mask
            w.act_as(part)
            act()
    finally:
        w.mask = active
    w.regroup()


def in_groups(w: Warp, keys: Sequence[Key], act: Callable[[Key], object]) -> None:
    """``act`` once for each of the ``keys`` of the active lanes, in those lanes that have it.

    What they learn they know for themselves, up to where they meet.
    """
    different = sorted(set(keys))
    if len(different) <= 1:
        for key in different:
            act(key)
        return
    # a warp whose lanes may name different ones has parts (`tilesim.analysis.divergence`)
    assert w.may_divide
    lanes = np.flatnonzero(mask_array(w.mask)).tolist()
    w.machine.outcome.explorable = False
    for key in different:
        mask = sum(1 << lane for lane, own in zip(lanes, keys, strict=True) if own == key)
        by_each(w, w.parts.divide(mask), partial(act, key))


def lane_by_lane(w: Warp, step: Step) -> None:
    """``step`` in each lane, which then has a clock of its own until the lanes meet."""
    by_each(w, w.parts.shatter(w.mask), partial(step, w))


def each_lane(step: Step, *, signals: bool = False) -> Step:
    """``step`` once for all lanes, or lane by lane where each names a barrier of its own.

    ``step`` evaluates its operands before it does anything else. No lane comes after another one:
    all publish what the warp knew before, and what they do is known when the instruction is over.
    ``signals``: other agents can see what is between the lanes, and no move of the machine shows.
    """

    def lanes(w: Warp) -> None:
        try:
            step(w)
        except NotUniform:
            active = w.mask
            w.machine.look_at_clock()
            if signals:
                w.machine.outcome.explorable = False
            if signals and w.may_divide:
                lane_by_lane(w, step)
                return
            w.apart = 1
            try:
                for lane in np.flatnonzero(mask_array(active)).tolist():
                    w.mask = 1 << lane
                    before = w.tick
                    step(w)
                    w.retreat(before)
            finally:
                w.mask, w.apart = active, 0
            w.advance()

    return lanes


#: cycles that a warp may not have come to move in: longer than what programs call too long; and
#: how many of them a run has at most
_LONG, _MOST = 1 << 40, 1 << 50


# ------------------------------------------------------------------ the function of an instruction


@dataclass(frozen=True)
class Act:
    """An effect that neither gives nor takes data; one that ``blocks`` is executed again.

    ``at``: finds what each lane may name another of (an mbarrier); then the instruction is executed
    lane by lane. ``signals``: other agents can see what is between the lanes.
    """

    step: Step
    blocks: bool = False
    at: Callable[[Warp], object] | None = None
    signals: bool = False


@dataclass(frozen=True)
class Give:
    """An effect that gives data: what was read through the view ``source`` (32 rows, of use in
    active lanes), or what the effect ``source`` answers. One that ``blocks`` gives None where the
    warp has to wait, and is executed again. ``at`` and ``signals`` as for `Act`."""

    source: object
    read: Callable[[Warp], Any]
    blocks: bool = False
    at: Callable[[Warp], object] | None = None
    signals: bool = False


@dataclass(frozen=True)
class Take:
    """An effect that takes a register value: of an expression, as another effect has given, or
    (None) the next one that the instruction computes, one or a row per lane."""

    write: Callable[[Warp, Any], None]
    value: Evaluate | View | TmemView | Fragment | Effect | None = None


Part: TypeAlias = Act | Give | Take
Effects: TypeAlias = tuple[Effect, ...]
Executor: TypeAlias = Callable[[Operands, Op, Any], Part]
#: how each kind of effect is carried out; filled by the modules of this package
EXECUTORS: dict[type[Effect], Executor] = {}


Which: TypeAlias = Callable[[Effects], bool]
Whole: TypeAlias = Callable[[Operands, Op, Effects], Step]
#: how effects are carried out that are one operation of the instruction, and which those are
OPERATIONS: list[tuple[Which, Whole]] = []


def executor(kind: type[Any]) -> Callable[[Executor], Executor]:
    """Decorator: the function is the executor of this kind of effect."""

    def register(function: Executor) -> Executor:
        if kind in EXECUTORS:
            raise TypeError(f"two executors for {kind.__name__}")
        EXECUTORS[kind] = function
        return function

    return register


def operation(which: Which) -> Callable[[Whole], Whole]:
    """Decorator: the function carries out all effects of an instruction, where they are such."""

    def register(function: Whole) -> Whole:
        OPERATIONS.append((which, function))
        return function

    return register


def with_effect(kind: type[Effect], **fields: object) -> Which:
    """Whether one of some effects is of a kind, with these fields."""

    def applies(effects: Effects) -> bool:
        for effect in effects:
            if isinstance(effect, kind) and all(
                getattr(effect, name) == value for name, value in fields.items()
            ):
                return True
        return False

    return applies


class Execution:
    """One execution of an instruction: its `Inputs`, and what it computes of them."""

    __slots__ = ("_evaluate", "_given", "_op", "_open", "_values", "warp")

    def __init__(self, warp: Warp, op: Op, evaluate: dict[int, Evaluate]) -> None:
        self.warp = warp
        self._op = op
        self._evaluate = evaluate
        self._given: dict[int, Any] = {}
        self._values: Iterator[Any] | None = None
        #: lanes in which an operand is a number that is open
        self._open = 0

    @property
    def active(self) -> NDArray[np.bool_]:
        """Per lane: whether it executes the instruction."""
        return mask_array(self.warp.mask)

    def lanes(self, operand: Expr) -> NDArray[Any]:
        """An operand's value in each lane."""
        found = self._evaluate[id(operand)](self.warp)
        self._open |= open_lanes(found)
        value = plain(found)
        if type(value) is Unknown:
            raise UnknownSteers(value)
        return np.broadcast_to(value, 32) if isinstance(value, np.ndarray) else np.full(32, value)

    def scalar(self, operand: Expr) -> int | float:
        """An operand's value in all active lanes."""
        found = self._evaluate[id(operand)](self.warp)
        self._open |= open_lanes(found)
        return uniform_value(plain(found), self.warp)

    def number(self, operand: Expr) -> int | None:
        """The integer that an operand is in all lanes; None if lanes may have numbers each."""
        value = self._evaluate[id(operand)](self.warp)
        return value if type(value) is int else None

    def address(self, place: View | GlobalTensor) -> NDArray[Any]:
        """The address of the first byte of a view operand or tensor in global memory, per lane."""
        tensor = place.tensor if isinstance(place, View) else place
        tensors = [t.name for t in self.warp.machine.program.tensors]
        address = (tensors.index(tensor.name) + 1) * GLOBAL_WINDOW
        if isinstance(place, View):
            offsets = self._evaluate[id(place)](self.warp)
            address += sum(o * s for o, s in zip(offsets, tensor.byte_strides, strict=True))
        return np.full(32, address, dtype=np.int64)

    def memory(self, view: View) -> NDArray[Any]:
        """What each lane read through a view."""
        rows: NDArray[Any] | Unknown = self.given(view)
        if isinstance(rows, Unknown):
            raise UnknownSteers(rows)
        return rows

    def tile(self, fragment: Fragment) -> NDArray[Any]:
        """The warp's part of a register tile; zeros if nothing was assigned to it."""
        part: NDArray[Any] | None = self.warp.fragments.get(fragment.name)
        return np.zeros(fragment.warp_shape, numpy_dtype(fragment.dtype)) if part is None else part

    @property
    def quarter(self) -> int:
        """Which quarter of its warpgroup's tiles the warp has."""
        return self.warp.number % WARPS

    def part(
        self, place: View | TmemView, cta: int, layout: TmemLayout | None = None
    ) -> NDArray[Any]:
        """What a CTA that takes part has of an operand, which is given as a function of both."""
        part: NDArray[Any] = self.given(place)(cta, layout)
        return part

    def given(self, source: object) -> Any:
        """What an effect has given."""
        return self._given[id(source)]

    def gives(self, source: object, value: Any) -> None:
        """What was read through a view, or what an effect answers."""
        self._given[id(source)] = value

    @property
    def time(self) -> int:
        """Cycles since the launch, as the latency model has them; never twice the same. Others may
        have taken as long as one likes in between: a schedule decides whether they have."""
        machine = self.warp.machine
        if machine.lost < _MOST and machine.gives_up():
            machine.lost += _LONG
        return int(machine.env.now) + self.warp.executed + machine.lost

    def computed(self) -> Any:
        """The next value that the instruction computes, one per lane; not known if it computes them
        of unknown values."""
        if self._values is None:
            try:
                self._values = iter(tuple(self._op.evaluate(self)))
            except UnknownSteers as steers:
                self._values = repeat(steers.value)
            except UnknownResult as unknown:
                what, loc = unknown.args
                self._values = repeat(Unknown(what, loc=loc))
        value = next(self._values)
        if not self._open:
            return value
        if self._op.combines:
            return opened(FULL if self._open & self.warp.mask else 0, value)
        there = self._op.source_lanes(self)
        lanes = self._open if there is None else mask_bits(mask_array(self._open)[there])
        return opened(lanes, value)


def execute(c: Operands, op: Op) -> Step:
    """The step of an instruction, from its effects.

    Raises:
        TypeError: an effect has no executor, or what one waits for is not taken by the next one.
    """
    effects = op.effects()
    only_sets = all(type(effect) is Defines for effect in effects)
    for applies, whole in () if only_sets else OPERATIONS:
        if applies(effects):
            return whole(c, op, effects)
    strange = [type(e).__name__ for e in effects if type(e) not in EXECUTORS]
    if strange:
        raise TypeError(f"{op.mnemonic}: no executor for the effect {strange[0]}")
    parts = _paired([EXECUTORS[type(e)](c, op, e) for e in effects])
    stages = [_apart(stage, _step(c, op, stage)) for stage in _stages(parts)]
    return stages[0] if len(stages) == 1 else _resumed(stages)


def _stages(parts: list[Part]) -> list[list[Part]]:
    """``parts``, each that may block as the first and only one of a stage."""
    stages: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, Act) and part.blocks:
            stages += [part], []
        else:
            stages[-1].append(part)
    return [stage for stage in stages if stage] or [[]]


def _resumed(stages: list[Step]) -> Step:
    """Stages one after the other; a warp that was blocked in one goes on there."""

    places = [*enumerate(stages)]

    def run(w: Warp) -> bool | None:
        first = w.stage
        for number, stage in places[first:] if first else places:
            if stage(w):
                w.stage = number
                return True
        if first:
            w.stage = 0
        return None

    return run


def _apart(parts: list[Part], step: Step) -> Step:
    """``step``, lane by lane where lanes name objects of their own."""
    apart = [p for p in parts if not isinstance(p, Take) and p.at is not None]
    if not apart:
        return step
    if len(parts) > 1:
        raise TypeError("lanes name objects of their own for one effect of an instruction only")
    return each_lane(step, signals=any(part.signals for part in apart))


def _step(c: Operands, op: Op, parts: list[Part]) -> Step:
    steps = [part.step for part in parts if isinstance(part, Act)]
    if len(steps) < len(parts):
        return _with_values(c, op, parts)
    match steps:
        case []:
            return lambda w: None
        case [step]:
            return step
        case [first, second]:
            return _both(first, second)
        case _:
            return _sequence(steps)


def _paired(parts: list[Part]) -> list[Part]:
    """``parts``, where one that takes what the one before it gives, or what an expression says, is
    one step; not if the instruction computes values of what it has read."""
    takes = [part for part in parts if isinstance(part, Take)]
    computes = any(take.value is None for take in takes)
    result: list[Part] = []
    for part in parts:
        before = result[-1] if result else None
        match part, before:
            case Take(write, value), _ if callable(value) and not computes:
                result.append(Act(_handed(value, write)))
            case Take(write, value), Give(source) if (
                source == value
                and sum(take.value == source for take in takes) == 1
                and not (computes and isinstance(source, View))
            ):
                handed = (_waited if before.blocks else _handed)(before.read, write)
                result[-1] = Act(handed, before.blocks, before.at, before.signals)
            case _:
                result.append(part)
    return result


def _handed(read: Evaluate, write: Callable[[Warp, Any], None]) -> Step:
    return lambda w: write(w, read(w))


def _waited(read: Evaluate, write: Callable[[Warp, Any], None]) -> Step:
    """The same of what gives None where the warp has to wait."""

    def step(w: Warp) -> bool | None:
        found = read(w)
        if found is None:
            return True
        write(w, found)
        return None

    return step


def _both(first: Step, second: Step) -> Step:
    def run(w: Warp) -> None:
        first(w)
        second(w)

    return run


def _sequence(steps: list[Step]) -> Step:
    def run(w: Warp) -> None:
        for step in steps:
            step(w)

    return run


def _with_values(c: Operands, op: Op, parts: list[Part]) -> Step:
    """Parts that hand values on, with those that the instruction computes.

    Raises:
        TypeError: one waits for what it gives, and that is not taken at once.
    """
    if any(isinstance(part, Give) and part.blocks for part in parts):
        raise TypeError(f"{op.mnemonic}: what is waited for is taken by the next effect")
    evaluate = operands_of(c, op)
    runs = [_run(part) for part in parts]

    def step(w: Warp) -> None:
        execution = Execution(w, op, evaluate)
        for run in runs:
            run(execution)

    return step


def operands_of(c: Operands, op: Op) -> dict[int, Evaluate]:
    """The scalar operands of an instruction, those that it sets among them, and where those in
    global memory lie, for its `Execution`."""
    evaluate: dict[int, Evaluate] = {}
    for name in operand_names(type(op)):
        value = getattr(op, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                evaluate[id(item)] = c.operand(op, item)
        if isinstance(value, View) and isinstance(value.tensor, GlobalTensor):
            evaluate[id(value)] = c.view(value).offsets
    return evaluate


def _run(part: Part) -> Callable[[Execution], object]:
    match part:
        case Act(step):
            return lambda x: step(x.warp)
        case Give(source, read):
            return lambda x: x.gives(source, read(x.warp))
        case Take(write, None):
            return lambda x: write(x.warp, x.computed())
        case Take(write, value) if callable(value):
            return lambda x: write(x.warp, value(x.warp))
        case Take(write, source):
            return lambda x: write(x.warp, x.given(source))


# ------------------------------------------------------------------ lanes that have not met


#: what lanes execute together, besides what says so; none of it orders their accesses
_TOGETHER = ("activemask",)


def by_parts(c: Operands, op: Op, step: Step) -> Step:
    """``step`` of an instruction for a warp of several parts."""
    mask = _lanes_of(c, op)
    taken = _taken(step, op)
    if mask is None:
        return taken

    joins = any(isinstance(e, fx.JoinsBarrier | fx.JoinsCluster) for e in op.effects())

    def together(w: Warp) -> bool | None:
        # barriers count lanes that go apart for themselves
        if w.mask == FULL or (joins and w.machine.plan.places):
            return taken(w)
        try:
            lanes = mask(w)
        except NotUniform:
            return taken(w)
        return assemble(w, op, lanes, taken)

    return together


def lanes_named(c: Operands, mask: Expr | None) -> Callable[[Warp], int]:
    """The lanes that a mask names: all that have not exited, if there is none."""
    if mask is None:
        return lambda w: w.live_mask
    known = constant(mask)
    if known is not None:
        return lambda w: known & FULL
    value = c.expr(mask)
    return lambda w: uniform(value(w), w) & FULL


def _lanes_of(c: Operands, op: Op) -> Callable[[Warp], int] | None:
    """The lanes that an instruction waits for; None if each goes on by itself."""
    for effect in op.effects():
        match effect:
            case fx.Gathers(mask=Expr() as mask):
                return lanes_named(c, mask)
            case fx.JoinsBarrier(aligned=True) | fx.JoinsCluster(aligned=True) | fx.Registers():
                return lambda w: FULL
            case fx.Gathers(mask=None) | fx.GathersWarps() | fx.UsesFragment(partly=False):
                return lambda w: FULL
            case _:
                pass
    return None


def _taken(step: Step, op: Op) -> Step:
    """What lanes do that execute an instruction, of several parts or one."""
    effects = op.effects()
    if op.mnemonic == "mov" or isinstance(op, Computation) or any(map(_sees_to_parts, effects)):
        return step
    if any(map(_is_together, effects)) or op.mnemonic.startswith(_TOGETHER):
        return _together(step)
    match effects:
        case (fx.Waits(poll=False),):
            return _in_turn(step, waits=True)
        case _:
            return _in_turn(step, stores=is_weak_store(op))


def _sees_to_parts(effect: fx.Effect) -> bool:
    """Whether the executor of an effect sees to the parts itself, or does not depend on them."""
    match effect:
        case fx.JoinsBarrier() | fx.JoinsCluster() | fx.Registers() | fx.Elects() | fx.Exits():
            return True
        case fx.Gathers(orders=orders):
            return orders
        case _:
            return False


def _is_together(effect: fx.Effect) -> bool:
    """Whether lanes that have not met execute an effect together all the same."""
    match effect:
        case fx.Gathers() | fx.GathersWarps() | fx.Shuffles():
            return True
        case fx.UsesFragment(partly=partly):
            return not partly
        case _:
            return False


def _in_turn(step: Step, *, stores: bool = False, waits: bool = False) -> Step:
    """Each part by itself: with its clock, publishing what it knows, learning what it learns.

    ``stores``: all it does is a weak store, which lanes that only predicates have divided make as
    one (H23). ``waits``: all it does is to wait, at a barrier or for a phase of its own in each
    lane where lanes name different ones: they are parts then.
    """

    def run(w: Warp) -> bool | None:
        if len(w.acting) > 1:
            return several(w, [*w.acting])
        try:
            return step(w)
        except NotUniform:
            if not waits or not w.may_divide:
                raise
        return several(w, shattered(w))

    def shattered(w: Warp) -> list[LaneGroup]:
        w.diverged = True
        return w.parts.shatter(w.mask)

    def several(w: Warp, parts: list[LaneGroup]) -> bool | None:
        # no move of the machine shows what is between the parts
        w.machine.outcome.explorable = False
        active, left = w.mask, w.left or w.mask
        if stores and not w.diverged:
            w.iterations += 1
            w.iteration = w.iterations
        try:
            while parts:
                part = parts.pop(0)
                lanes = part.mask & left
                if not lanes:
                    continue
                w.mask = lanes
                w.act_as(part)
                w.machine.by_parts += 1
                try:
                    stopped = step(w)
                except NotUniform:
                    if not waits or not lanes & (lanes - 1):
                        raise
                    parts[:0] = shattered(w)
                    continue
                if stopped:
                    w.left = left
                    return True
                left &= ~lanes
        finally:
            w.mask, w.iteration = active, 0
            w.acting = w.parts.divide(active)
        w.left = 0
        w.regroup()
        return None

    return run


def _together(step: Step) -> Step:
    """All parts at once: they come after what each of them knows, and learn the same."""

    def at_once(w: Warp) -> bool | None:
        if len(w.acting) == 1:
            return step(w)
        w.clock = learned = w.parts.common(w.mask)
        w.iterations += 1
        w.iteration = w.iterations
        try:
            return step(w)
        finally:
            for part in w.acting:
                join(part.clock, learned)
            w.iteration = 0
            w.act_as(*w.acting)

    return at_once
