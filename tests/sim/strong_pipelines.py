"""Programs with scopes, flags, reductions and remote stores that are right in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tests.sim import steps as s
from tests.sim.steps import Scope, Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]

_WIDE: tuple[Scope, ...] = ("cluster", "gpu", "sys")
_FORMS: tuple[Literal["st", "red", "copy", "reduce"], ...] = ("st", "red", "copy", "reduce")
_MEET = (s.ClusterArrive(), s.ClusterWait())


def _scope(choose: Choose, ctas: int) -> Scope:
    """One that includes the other side."""
    return _WIDE[choose(3)] if ctas > 1 or choose(2) else "cta"


def _publish(choose: Choose, ctas: int, step: s.Set | s.Add) -> Steps:
    """Raises a flag: by a release, or after a fence."""
    scope = _scope(choose, ctas)
    release = bool(choose(2))
    flag: Step
    if isinstance(step, s.Set):
        flag = s.Set(step.flag, step.value, release, scope, step.cta)
    else:
        flag = s.Add(step.flag, release, scope, step.cta)
    return (flag,) if release else (s.MemoryFence(_scope(choose, ctas)), flag)


def _learn(choose: Choose, ctas: int, flag: int, least: int, cta: int | None) -> Steps:
    """Waits for a flag: by an acquire, or with a fence after it."""
    scope = _scope(choose, ctas)
    acquire = bool(choose(2))
    spin = s.Spin(flag, least, acquire, scope, cta)
    return (spin,) if acquire else (spin, s.MemoryFence(_scope(choose, ctas)))


def _small(ctas: int, warps: tuple[Steps, ...], flags: int, words: int = 1) -> Small:
    """Of one CTA, or with every half of the warps in one of two, which end together."""
    if ctas > 1:
        warps = tuple((*steps, *_MEET) for steps in warps)
    return Small(warps, (), words, ctas=ctas, flags=flags)


def _message(choose: Choose) -> Small:
    """Data and flag of one warp, for one or two others; perhaps handed on by the first."""
    ctas, relay = 1 + choose(2), bool(choose(2))
    home = 0 if ctas > 1 else None
    writer = (s.Write(0, cta=home), *_publish(choose, ctas, s.Set(0, cta=home)))
    reader = (*_learn(choose, ctas, 0, 1, home), s.Read(0, cta=home))
    if not relay:
        return _small(ctas, (writer, reader), flags=1)
    middle = (*reader, *_publish(choose, ctas, s.Set(1, cta=home)))
    last = (*_learn(choose, ctas, 1, 1, home), s.Write(0, cta=home))
    warps = (writer, middle, last, ()) if ctas > 1 else (writer, middle, last)
    order = choose(3) if ctas > 1 else 0
    turned = (*warps[order:], *warps[:order])
    return _small(ctas, turned, flags=2)


def _turns(choose: Choose) -> Small:
    """Two warps that write a word in turns."""
    ctas, rounds = 1 + choose(2), 1 + choose(2)
    home = choose(2) if ctas > 1 else None
    first: list[Step] = []
    second: list[Step] = []
    for turn in range(1, rounds + 1):
        if turn > 1:
            first += _learn(choose, ctas, 1, turn - 1, home)
        first += [s.Write(0, cta=home), *_publish(choose, ctas, s.Set(0, turn, cta=home))]
        second += [*_learn(choose, ctas, 0, turn, home), s.Write(0, cta=home)]
        second += _publish(choose, ctas, s.Set(1, turn, cta=home))
    return _small(ctas, (tuple(first), tuple(second)), flags=2)


def _count(choose: Choose) -> Small:
    """Warps that write a word each and count up; the last waits for all of them."""
    ctas = 1 + choose(2)
    home = 0 if ctas > 1 else None
    writers = [
        (s.Write(word, cta=home), *_publish(choose, ctas, s.Add(0, cta=home)))
        for word in range(2 if ctas == 1 else 3)
    ]
    reader = (
        *_learn(choose, ctas, 0, len(writers), home),
        *(s.Read(word, cta=home) for word in range(len(writers))),
    )
    return _small(ctas, (*writers, reader), flags=1, words=len(writers))


def _reduce(choose: Choose) -> Small:
    """Reductions of one word by several warps, handed over by arrivals or the cluster barrier."""
    ctas, floats = 1 + choose(2), not choose(3)
    red = s.Red(0, _scope(choose, ctas), cta=0 if ctas > 1 else None)
    if not floats and choose(2):
        red = replace(red, op="max")
    adds: Steps = (red,) * (1 + choose(2))
    if ctas > 1:
        last: Steps = (s.Read(0),) * choose(2)
        warps = ((*adds, *_MEET, *last),) * (2 * (1 + choose(2)))
        return Small(warps, (), 1, ctas=2, floats=floats)
    some = 1 + choose(2)
    adder: Steps = (*adds, s.Arrive(0))
    reader: Steps = (s.Wait(0, 0), s.Read(0))
    return Small((*[adder] * some, reader), (some,), 1, floats=floats)


def _relaxed(choose: Choose) -> Small:
    """Strong accesses of one word that nothing orders."""
    ctas = 1 + choose(2)
    home = 0 if ctas > 1 else None
    one = s.Write(0, cta=home, scope=_scope(choose, ctas))
    two = (s.Read, s.Write)[choose(2)](0, cta=home, scope=_scope(choose, ctas))
    return _small(ctas, ((one,), (two,)), flags=0)


def _push(choose: Choose) -> Small:
    """One CTA stores into the other's word, again and again."""
    form = _FORMS[choose(4)]
    trips = 1 + choose(2)
    fence: Steps = (s.Fence(),) if form in ("copy", "reduce") and choose(2) else ()
    sender = (s.Wait(1, 1, carried=True), s.Remote(form, 0, 0, 1, source=1))
    receiver = (
        s.ArriveExpect(0), s.Wait(0, 0, carried=True), s.Read(0), *fence, s.Arrive(1, cta=0),
    )  # fmt: skip
    warps = ((s.Loop(trips, sender), *_MEET), (s.Loop(trips, receiver), *_MEET))
    return Small(warps, (1, 1), 2, ctas=2)


def _gather(choose: Choose) -> Small:
    """Two warps reduce into one word of the peer, which expects the bytes of both."""
    form = _FORMS[1 + 2 * choose(2)]
    again = 1 + choose(2)
    sender: Steps = (*[s.Remote(form, 0, 0, 1, source=1)] * again, *_MEET)
    expect = s.ArriveExpect(0, 2 * again)
    receiver = (expect, s.Wait(0, 0), s.Read(0), *_MEET)
    return Small((sender, sender, receiver, _MEET), (1,), 2, ctas=2, floats=False)


def _exchange(choose: Choose) -> Small:
    """Each CTA sends its word to the other, and reads what it got."""
    form = _FORMS[choose(4)]
    warps = []
    for cta in (0, 1):
        first = (s.ArriveExpect(0), s.Remote(form, 0, 0, 1 - cta, source=1))
        steps = first[:: 1 - 2 * choose(2)]
        warps.append((*steps, s.Wait(0, 0), s.Read(0), *_MEET))
    return Small(tuple(warps), (1,), 2, ctas=2)


def blind(choose: Choose, *, flags: bool) -> Small:
    """Accesses of one or two words, of any strength, and hand-overs from one warp to another.

    They are made in the order of one schedule, which therefore goes through.
    """
    ctas, some = 1 + choose(2), 2 + choose(2)
    home = 0 if ctas > 1 else None
    warps: list[list[Step]] = [[] for _ in range(some if ctas == 1 else 2 + 2 * (some - 2))]
    scopes: tuple[Scope, ...] = ("cta", *_WIDE)
    handed = 0
    for _ in range(4 + choose(6)):
        one, word, kind = choose(len(warps)), choose(2), choose(9)
        scope = scopes[choose(4)] if choose(2) else None
        match kind:
            case 0 | 1:
                warps[one].append(s.Write(word, cta=home, scope=scope))
            case 2 | 3:
                warps[one].append(s.Read(word, cta=home, scope=scope))
            case 4 | 5:
                op: tuple[Literal["add", "max"], ...] = ("add", "add", "add", "max")
                warps[one].append(s.Red(word, scope or "gpu", op[choose(4)], home))
            case _:
                two = (one + 1 + choose(len(warps) - 1)) % len(warps)
                if flags:
                    warps[one] += _publish(choose, ctas, s.Set(handed, cta=home))
                    warps[two] += _learn(choose, ctas, handed, 1, home)
                elif two * ctas // len(warps) == one * ctas // len(warps):
                    warps[one].append(s.Arrive(handed, relaxed=not choose(5)))
                    warps[two].append(s.Wait(handed, 0))
                else:
                    continue
                handed += 1
    counts = () if flags else (1,) * handed
    ended = tuple((*steps, *(_MEET if ctas > 1 else ())) for steps in warps)
    return Small(ended, counts, 2, ctas=ctas, flags=handed if flags else 0)


#: how to make a program that is right, of flags and scopes, and of reductions and remote stores
SCOPE_STYLES: tuple[Callable[[Choose], Small], ...] = (_message, _message, _turns, _count, _relaxed)
REDUCTION_STYLES: tuple[Callable[[Choose], Small], ...] = (
    _reduce, _reduce, _push, _push, _gather, _exchange,
)  # fmt: skip
