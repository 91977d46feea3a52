"""Programs with scopes, flags, reductions and remote stores that are right in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tests.sim import steps as s
from tests.sim.changes import SPACES
from tests.sim.steps import Scope, Small, Space, Step

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


def _fenced(choose: Choose) -> Small:
    """Between who writes a word and who copies is a fence, or its two halves, by one of them or by
    who comes between."""
    return _crossing(choose, _fences)


def _crossing(choose: Choose, fence: Callable[[Choose, int, list[int]], list[Steps]]) -> Small:
    """Somebody writes a word of one CTA, and somebody else copies over it or from it."""
    place, writer, issuer = choose(2), choose(2), choose(2)
    relays = [w for w in range(4) if w not in (2 * writer, 2 * issuer + 1)]
    path = [2 * writer, *([relays[choose(len(relays))]] if choose(2) else []), 2 * issuer + 1]
    warps: list[list[Step]] = [[] for _ in range(4)]
    fences = fence(choose, place, [w // 2 for w in path])
    for at, warp in enumerate(path):
        warps[warp] += [s.Write(0, cta=place)] if at == 0 else [s.Wait(at, 0)]
        warps[warp] += fences[at]
        if warp != path[-1]:
            warps[warp].append(s.Arrive(at + 1, cta=path[at + 1] // 2))
    copies: list[tuple[Step, tuple[int, ...]]] = [(s.Copy(0, 0, mask=3), (0, 1))]
    if place == issuer:
        copies += [
            (s.Copy(0, 0), (place,)), (s.Remote("copy", 0, 1, 1 - place, source=0), (1 - place,)),
        ]  # fmt: skip
    else:
        form: Literal["copy", "reduce"] = "copy" if choose(2) else "reduce"
        copies += [
            (s.Copy(0, 0, mask=1 << place), (place,)),
            (s.Remote(form, 0, 0, place, source=1), (place,)),
        ]  # fmt: skip
    copy, goals = copies[choose(3)]
    warps[path[-1]].append(copy)
    for goal in goals:
        warps[2 * goal] += [s.ArriveExpect(0), s.Wait(0, 0), s.Read(_written(copy))]
    return Small(tuple((*steps, *_MEET) for steps in warps), (1, 1, 1), 2, ctas=2)


def _written(copy: Step) -> int:
    assert isinstance(copy, (s.Copy, s.Remote))
    return copy.word


def _fences(choose: Choose, place: int, ctas: list[int]) -> list[Steps]:
    """What orders proxies in the memory of ``place``, by threads of these ``ctas``, one after the
    other; and perhaps a fence that does not."""
    fences: list[list[Step]] = [[] for _ in ctas]
    at = choose(len(ctas))
    owned = [i for i, cta in enumerate(ctas) if cta == place]
    spaces: list[Space | None] = [None, "shared::cluster"]
    if ctas[at] == place:
        spaces += ["shared::cta"] * 3
    which = choose(len(spaces) + bool(owned))
    if which < len(spaces):
        fences[at].append(s.Fence(spaces[which]))
    else:
        begins = owned[choose(len(owned))]
        fences[begins].append(s.Fence("release"))
        fences[begins + choose(len(ctas) - begins)].append(s.Fence("acquire"))
    if choose(2):
        fences[choose(len(ctas))].insert(0, s.Fence(SPACES[choose(len(SPACES))]))
    return [tuple(steps) for steps in fences]


def _any_fences(choose: Choose, place: int, ctas: list[int]) -> list[Steps]:
    """One or two fences, of anything, by any of the threads."""
    fences: list[list[Step]] = [[] for _ in ctas]
    for _ in range(1 + choose(2)):
        fences[choose(len(ctas))].append(s.Fence(SPACES[choose(len(SPACES))]))
    return [tuple(steps) for steps in fences]


def blind(choose: Choose, *, flags: bool) -> Small:
    """Accesses of one or two words, of any strength, and hand-overs from one warp to another.

    They are made in the order of one schedule, which therefore goes through. Or any fences between
    a store and a copy.
    """
    if not flags and not choose(3):
        return _crossing(choose, _any_fences)
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
    _reduce, _reduce, _push, _push, _gather, _exchange, _fenced, _fenced, _fenced,
)  # fmt: skip
