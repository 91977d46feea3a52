"""Pipelines of tcgen05 that are right in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sim import steps as s
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]

_AFTER, _BEFORE = s.TensorFence(False), s.TensorFence(True)
_LOADED, _STORED = s.TensorWait(), s.TensorWait(stores=True)


@dataclass(frozen=True)
class _Handoff:
    """How one warp hands tensor memory to another: relaxed with fences, or released."""

    relaxed: bool
    fenced: bool
    full: bool

    @property
    def count(self) -> int:
        """Arrivals of one warp."""
        return 32 if self.full else 1

    def give(self, barrier: int, stages: int = 1) -> Steps:
        """After the accesses, which are over."""
        arrive = s.Arrive(barrier, relaxed=self.relaxed, full=self.full, stages=stages)
        return (_BEFORE, arrive) if self.fenced else (arrive,)

    def take(self, wait: s.Wait) -> Steps:
        """Before the next accesses."""
        taken = replace(wait, relaxed=self.relaxed)
        return (taken, _AFTER) if self.fenced else (taken,)


def _handoff(choose: Choose) -> _Handoff:
    relaxed = not choose(3)
    return _Handoff(relaxed, relaxed or bool(choose(2)), bool(choose(2)))


def _wait(barrier: int, parity: int, stages: int = 1) -> s.Wait:
    return s.Wait(barrier, parity, carried=True, stages=stages)


def _gemm(choose: Choose) -> Small:
    """Copies into a ring of stages, products into a ring of slots, a warp or two that load them."""
    stages, slots, tiles = 1 + choose(2), 1 + choose(2), 1 + choose(3)
    readers, hand = 1 + (not choose(3)), _handoff(choose)
    empty, done, free = stages, 2 * stages, 2 * stages + slots
    fill = (s.ArriveExpect(0, stages=stages), s.Copy(0, 0, stages=stages))
    producer = (_wait(empty, 1, stages), *fill[:: 1 - 2 * choose(2)])
    issuer = (
        *hand.take(_wait(free, 1, slots)), _wait(0, 0, stages),
        s.Mma(0, 0, stages, slots), s.TensorCommit(empty, stages=stages),
        s.TensorCommit(done, stages=slots),
    )  # fmt: skip
    reader = (
        *hand.take(_wait(done, 0, slots)), s.Ld(0, slots), _LOADED, *hand.give(free, slots),
    )  # fmt: skip
    warps = tuple((s.Loop(tiles, body),) for body in (producer, issuer, *[reader] * readers))
    counts = (1,) * (2 * stages + slots) + (hand.count * readers,) * slots
    return Small(warps, counts, stages, slots=slots)


def _deep(choose: Choose) -> Small:
    """Two products per slot, of one or two words; the issuer waits for its commit or a reader."""
    tiles, hand = 1 + choose(2), _handoff(choose)
    each = (1, 1) if choose(2) else (2,)
    copies = [(s.ArriveExpect(i, n), s.Copy(i, i, n)) for i, n in enumerate(each)]
    last = len(each)
    producer = tuple(step for i, fill in enumerate(copies) for step in (_wait(last + i, 1), *fill))
    products: list[Step] = []
    for i, n in enumerate(each):
        products += [_wait(i, 0), *(s.Mma(i + w, 0) for w in range(n)), s.TensorCommit(last + i)]
    done, free = 2 * last, 2 * last + 1
    issuer = (*hand.take(_wait(free, 1)), *products, s.TensorCommit(done))
    reader = (*hand.take(_wait(done, 0)), s.Ld(0), _LOADED, *hand.give(free))
    warps = tuple((s.Loop(tiles, body),) for body in (producer, issuer, reader))
    return Small(warps, (1,) * (2 * last + 1) + (hand.count,), sum(each), slots=1)


def _stored(choose: Choose) -> Small:
    """A warp stores to the slot, mma adds to it, the warp loads the sum."""
    trips, hand = 1 + choose(3), _handoff(choose)
    worker = (
        s.St(0), _STORED, *hand.give(0), *hand.take(_wait(1, 0)), s.Ld(0), _LOADED,
    )  # fmt: skip
    issuer = (*hand.take(_wait(0, 0)), s.Mma(0, 0), s.TensorCommit(1))
    bodies = (worker, issuer)
    return Small(tuple((s.Loop(trips, b),) for b in bodies), (hand.count, 1), 1, slots=1)


def _scales(choose: Choose) -> Small:
    """tcgen05.cp and then mma on the same slot, by one thread or by two."""
    trips, hand = 1 + choose(2), _handoff(choose)
    source = (_wait(1, 1), s.ArriveExpect(0), s.Copy(0, 0))
    copy: Steps = (_wait(0, 0), s.Cp(0, 0), s.TensorCommit(1))
    product: Steps = (s.Mma(1, 0), s.TensorCommit(2))
    again = (_wait(2, 0), _AFTER) if choose(2) else (_wait(2, 0),)
    if choose(2):
        one = (*copy, *product, *again, s.Ld(0), _LOADED)
        return Small(tuple((s.Loop(trips, b),) for b in (source, one)), (1,) * 3, 2, slots=1)
    first = (*hand.take(_wait(4, 1)), *copy, *hand.give(3))
    second = (
        *hand.take(_wait(3, 0)), *product, *again, s.Ld(0), _LOADED, *hand.give(4),
    )  # fmt: skip
    warps = tuple((s.Loop(trips, body),) for body in (source, first, second))
    return Small(warps, (1, 1, 1, hand.count, hand.count), 2, slots=1)


def _written(choose: Choose) -> Small:
    """A word written by a warp, or copied and read by a warp as well, is read by mma."""
    trips, hand = 1 + choose(3), _handoff(choose)
    end = (s.TensorCommit(2), s.Wait(2, 0), _AFTER, s.Ld(0), _LOADED)
    product = (_wait(0, 0), s.Mma(0, 0), s.TensorCommit(1))
    if choose(2):
        writer = (_wait(1, 1), s.Write(0), s.Fence(), s.Arrive(0, full=hand.full))
        warps: tuple[Steps, ...] = ((s.Loop(trips, writer),), (s.Loop(trips, product), *end))
        return Small(warps, (hand.count, 1, 1), 1, slots=1)
    producer = (_wait(1, 1), s.ArriveExpect(0), s.Copy(0, 0))
    reader = (_wait(0, 0), s.Read(0), s.Arrive(1, full=hand.full))
    warps = ((s.Loop(trips, producer),), (s.Loop(trips, product), *end), (s.Loop(trips, reader),))
    return Small(warps, (1, 1 + hand.count, 1), 1, slots=1)


def _together(choose: Choose) -> Small:
    """Products in several slots with one commit, loaded by the issuer and another warp."""
    trips = 1 + choose(2)
    twice = (s.Mma(0, 0),) * choose(2)
    issuer: Steps = (
        _wait(1, 1), s.Mma(0, 0), s.Mma(0, 1), *twice,
        s.TensorCommit(0), _wait(0, 0), _AFTER, s.Ld(choose(2)), _LOADED, s.Arrive(1),
    )  # fmt: skip
    reader = (_wait(0, 0), _AFTER, s.Ld(0), s.Ld(1), _LOADED, _BEFORE, s.Arrive(1))
    return Small(tuple((s.Loop(trips, b),) for b in (issuer, reader)), (1, 2), 1, slots=2)


def _pair(choose: Choose) -> Small:
    """Two CTAs that copy one word each into both; commits free the words of both."""
    trips = 1 + choose(2)
    meet = (s.ClusterArrive(bool(choose(2))), s.ClusterWait())
    warps: list[Steps] = []
    for cta in (0, 1):
        producer = (_wait(1, 1), s.ArriveExpect(0, 2), s.Copy(0, cta, mask=3))
        product = (_wait(0, 0), s.Mma(0, 0), s.Mma(1, 0), s.TensorCommit(1, mask=3))
        end = (s.TensorCommit(2), s.Wait(2, 0), _AFTER, s.Ld(0), _LOADED, *meet)
        tail = (s.Wait(1, trips - 1 & 1), *meet)
        warps += [(s.Loop(trips, producer), *tail), (s.Loop(trips, product), *end)]
    return Small(tuple(warps), (1, 2, 1), 2, ctas=2, slots=1)


#: how to make a pipeline that is right
TENSOR_STYLES: tuple[Callable[[Choose], Small], ...] = (
    _gemm, _gemm, _deep, _stored, _scales, _written, _together, _pair,
)  # fmt: skip
