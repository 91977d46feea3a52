"""Programs of lanes that are right in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.code_lanes import LANES
from tests.sim.lane_changes import gathering
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]


def _small(*warps: Steps, counts: tuple[int, ...], words: int = 1, ctas: int = 1) -> Small:
    return Small(warps, counts, words, ctas=ctas, family="lanes")


def _some(choose: Choose) -> int:
    """How many lanes take part."""
    return (2, 3, 4, 4, LANES)[choose(5)]


def _by(lanes: int, *body: Step) -> Steps:
    """Steps of the first lanes."""
    return body if lanes == LANES else (s.Lanes(0, lanes, body),)


def _single(lanes: int, *body: Step) -> Steps:
    """Steps of the first lane, after what these did, where only these are."""
    return (s.Elect(body),) if lanes == LANES else (s.WarpSync(), s.Lanes(0, 1, body))


def _wait(barrier: int, parity: int, *, carried: bool = True) -> s.Wait:
    return s.Wait(barrier, parity, carried=carried)


def _read_and_release(choose: Choose) -> Small:
    """A copy that lanes read, each its cell; all release it, or one does for all."""
    lanes, trips, alone = _some(choose), 1 + choose(2), bool(choose(2))
    release = _single(lanes, s.Arrive(1)) if alone else (s.Arrive(1),)
    producer = (s.Elect((_wait(1, 1), s.ArriveExpect(0, LANES), s.Copy(0, 0))),)
    consumer = _by(lanes, _wait(0, 0), s.Read(0), *release)
    return _small(
        (s.Loop(trips, producer),), (s.Loop(trips, consumer),), counts=(1, 1 if alone else lanes)
    )


def _handoff(choose: Choose) -> Small:
    """Lanes write, lanes read; back by all or by one."""
    lanes, trips = _some(choose), 1 + choose(2)
    alone, back = bool(choose(2)), bool(choose(2))
    give = _single(lanes, s.Arrive(0)) if alone else (s.Arrive(0),)
    take = _single(lanes, s.Arrive(1)) if back else (s.Arrive(1),)
    producer = _by(lanes, _wait(1, 1), s.Write(0), *give)
    consumer = _by(lanes, _wait(0, 0), s.Read(0), *take)
    counts = (1 if alone else lanes, 1 if back else lanes)
    return _small((s.Loop(trips, producer),), (s.Loop(trips, consumer),), counts=counts)


def _one_reads_all(choose: Choose) -> Small:
    """Lanes write their cells, one lane of another warp reads those of all."""
    lanes, alone = 2 + choose(3), bool(choose(2))
    give = _single(lanes, s.Arrive(0)) if alone else (s.Arrive(0),)
    producer = _by(lanes, s.Write(0), *give)
    reads = tuple(s.Read(0, cell=i) for i in range(lanes))
    wait = s.Wait(0, 0)
    consumer: Steps = (wait, s.Elect(reads)) if choose(2) else (s.Elect((wait, *reads)),)
    return _small(producer, consumer, counts=(1 if alone else lanes,))


def _own_barriers(choose: Choose) -> Small:
    """Every lane has a barrier of its own, and a partner in the other warp."""
    lanes, trips = 2 + choose(2), 1 + choose(2)
    full, empty = s.Own(s.Arrive(0)), s.Own(s.Arrive(lanes))
    first = (s.Own(_wait(lanes, 1)), s.Write(0), full)
    second = (s.Own(_wait(0, 0)), s.Read(0), empty)
    return _small(
        (s.Loop(trips, _by(lanes, *first)),), (s.Loop(trips, _by(lanes, *second)),),
        counts=(1,) * 2 * lanes,
    )  # fmt: skip


def _own_to_all(choose: Choose) -> Small:
    """Every lane has a barrier of its own; the other warp waits for all of them."""
    lanes = 2 + choose(2)
    waits = tuple(s.Wait(i, 0) for i in range(lanes))
    gather: Steps = (*waits, s.Read(0)) if choose(2) else (s.Own(s.Wait(0, 0)), s.WarpSync())
    reads = tuple(s.Read(0, cell=i) for i in range(lanes))
    return _small(
        _by(lanes, s.Write(0), s.Own(s.Arrive(0))),
        _by(lanes, *gather, s.Lanes(0, 1, reads)), counts=(1,) * lanes,
    )  # fmt: skip


def _asynchronous(choose: Choose) -> Small:
    """cp.async by lanes, which later arrivals or waits make known."""
    lanes = _some(choose)
    styles: tuple[tuple[Steps, int], ...] = (
        ((s.CpAsync(0), s.Later(0)), lanes),
        ((s.CpAsync(0), s.Later(0, inc=True), s.Arrive(0)), lanes),
        ((s.CpAsync(0), s.CpWait(), s.Arrive(0)), lanes),
        ((s.CpAsync(0), s.CpWait(), *_single(lanes, s.Arrive(0))), 1),
    )
    steps, count = styles[choose(len(styles))]
    after: Steps = (s.Read(0),) if choose(2) else (s.Write(0),)
    return _small(_by(lanes, *steps), _by(lanes, s.Wait(0, 0), *after), counts=(count,))


def _shares(choose: Choose) -> Small:
    """Each lane expects and completes a part of the bytes, or one lane does."""
    lanes, part = (2, 3, 8)[choose(3)], 1 + choose(2)
    arrives: Steps = _by(lanes, s.ArriveExpect(0, part))
    count = lanes
    match choose(5):
        case 0:
            arrives, count = (s.Elect((s.ArriveExpect(0, lanes * part),)),), 1
        case 3:
            rest = s.Expect(0, (lanes - 1) * part)
            arrives, count = (s.Elect((rest, s.ArriveExpect(0, part))),), 1
        case 1:
            arrives = _by(lanes, s.Expect(0, part), s.Arrive(0))
        case 2:
            arrives = _by(lanes, s.Expect(0, part), *_single(lanes, s.Arrive(0)))
            count = 1
        case _:
            pass
    completes = _by(lanes, s.Complete(0, part))
    if choose(2):
        completes = (s.Elect((s.Complete(0, lanes * part),)),)
    if choose(3) == 0:
        return _small((*arrives, *completes, s.Wait(0, 0)), (), counts=(count,))
    return _small((*arrives, s.Wait(0, 0)), completes, counts=(count,))


def _copies(choose: Choose) -> Small:
    """A copy whose bytes lanes expect in parts."""
    lanes = (2, 4, 8)[choose(3)]
    expect: Steps = (s.ArriveExpect(0, LANES // lanes),)
    count = lanes
    if choose(2):
        expect = (s.Expect(0, LANES // lanes), *_single(lanes, s.Arrive(0)))
        count = 1
    steps = _by(lanes, *expect)
    copy: Steps = (s.Elect((s.Copy(0, 0),)),)
    steps = (*steps, *copy) if choose(2) else (*copy, *steps)
    return _small(steps, (s.Wait(0, 0), s.Read(0)), counts=(count,))


def _remote(choose: Choose) -> Small:
    """Lanes store to the other CTA, which expects their bytes."""
    lanes = 2 + choose(2)
    meet = (s.ClusterArrive(), s.ClusterWait())
    expects: Steps = (s.Elect((s.ArriveExpect(0, lanes),)),)
    count = 1
    if choose(2):
        expects, count = _by(lanes, s.ArriveExpect(0, 1)), lanes
    sender = (*_by(lanes, s.Remote("st", 0, 0, 1)), *meet)
    return _small(sender, (*expects, s.Wait(0, 0), s.Read(0), *meet), counts=(count,), ctas=2)


def _stores(choose: Choose) -> Small:
    """Lanes store the tile that others wrote, each in groups of its own."""
    lanes = 1 + choose(3)
    writer = (s.Write(0), s.Fence(), s.Arrive(0))
    storer = _by(lanes, s.Wait(0, 0), s.Store(0, 0), s.Commit(), s.WaitGroup(0))
    again: Steps = (s.Arrive(1),)
    storer = (*storer[:-1], *_inside(storer[-1], again))
    return _small(
        (*writer, s.Wait(1, 0), s.Write(0)), storer, counts=(LANES, lanes),
    )  # fmt: skip


def _inside(step: Step, more: Steps) -> Steps:
    if isinstance(step, s.Lanes):
        return (replace(step, body=(*step.body, *more)),)
    return (step, *more)


def _crossing(choose: Choose) -> Small:
    """Arrivals of one instruction that end a phase and begin the next; nobody can miss it."""
    lanes, phases = (2, 4, LANES)[choose(3)], 2
    first = _by(lanes, s.Arrive(0))
    if choose(2):
        return _small(first, (), counts=(lanes // phases,))
    return _small(first, _by(lanes, s.Arrive(0)), counts=(lanes,))


def _warps_meet(choose: Choose) -> Small:
    """Lanes write, the warps meet, other lanes read."""
    lanes = _some(choose)
    write = _by(lanes, s.Write(0))
    read: Steps = _by(lanes, s.Read(0)) if choose(2) else (s.Elect((s.Read(0, cell=1),)),)
    waits = bool(choose(2))
    return _small((*write, s.Join(0, 2, waits)), (s.Join(0, 2), *read), counts=(1,))


def _arms(choose: Choose) -> Small:
    """The arms of a branch are producer and consumer."""
    lanes = (2, 4)[choose(2)]
    body = (s.Write(0, cell=5), s.Arrive(0))
    other = (s.Wait(0, 0), s.Read(0, cell=5))
    if choose(2):
        return _small((s.Lanes(0, lanes, (s.Lanes(0, 1, body, other),)),), counts=(1,))
    return _small((s.Lanes(0, 1, body, other),), (), counts=(1,))


def _one_waits(choose: Choose) -> Small:
    """One lane waits for all of them, who are gathered and meet; if there is another copy, one
    releases for all."""
    lane, trips, elected = choose(3), 1 + choose(2), bool(choose(2))
    wait, gather = (_wait(0, 0),), gathering(choose)
    alone = s.Elect(wait, meets=False) if elected else s.Lanes(lane, lane + 1, wait, meets=False)
    meet: Steps = (s.WarpSync(),)
    read: Steps = (s.Read(0),) if choose(2) else (s.Read(0, cell=lane), gathering(choose))
    release = (*meet, s.Lanes(lane, lane + 1, (s.Arrive(1),))) if trips > 1 else ()
    consumer = (alone, gather, *meet, *read, *release)
    produce: Steps = (s.Elect((_wait(1, 1), s.ArriveExpect(0, LANES), s.Copy(0, 0))),)
    if choose(2):
        produce = (s.Lanes(0, 1, (_wait(1, 1),)), s.Write(0), *meet, s.Lanes(0, 1, (s.Arrive(0),)))
    return _small((s.Loop(trips, produce),), (s.Loop(trips, consumer),), counts=(1, 1))


def _parted(choose: Choose) -> Small:
    """Lanes that have parted hand over at a barrier of the CTA or of the cluster."""
    own = s.Lanes(0, 1 + choose(3), (s.Write(1),), meets=False)
    gather, reads = (gathering(choose),) * choose(2), (s.Read(0), s.Read(0, cell=choose(4)))
    before: Steps = (own, *gather, s.Write(0))
    read = reads[choose(2)]
    if choose(2):
        give: Steps = (*before, s.Join(0, 2, waits=False), s.Read(1))
        return _small(give, (s.Join(0, 2), read), counts=(1,), words=2)
    meet = (s.ClusterArrive(), s.ClusterWait())
    give = (*before, s.ClusterArrive(), s.Read(1), s.ClusterWait(), *reads[: choose(3)])
    take = (*meet, read)
    return _small(*(give, take) * (ctas := 1 + choose(2)), counts=(1,), words=2, ctas=ctas)


#: how to make a program of lanes that is right
LANE_STYLES: tuple[Callable[[Choose], Small], ...] = (
    _read_and_release, _read_and_release, _handoff, _handoff, _one_reads_all, _own_barriers,
    _own_to_all, _asynchronous, _shares, _shares, _copies, _remote, _stores, _crossing,
    _warps_meet, _arms, _one_waits, _one_waits, _one_waits, _parted, _parted,
)  # fmt: skip
